//! Mode `any` (beyond the paper): any two opposing packets, past neighbours that overhear.

use std::time::Duration;

use super::NcLayer;
use crate::encoder::payload_len;
use crate::ethernet::{self, Mac};
use crate::header::{self, Report};
use crate::hold::Leaving;
use crate::interface_queue::Entry;
use crate::transit::Transit;

/// Packets that wait here while windows are large: to them, a packet that a neighbour does not overhear is no pause.
const MANY: usize = 8;
/// They are large for so long after so many waited.
const LARGE_FOR: Duration = Duration::from_secs(1);

impl NcLayer {
    /// A packet that has no partner yet waits for one, if that is worth it.
    pub(super) fn wait_or_go(&mut self, now: Duration, packet: Transit) {
        self.stats.relayed += 1;
        if self.interface_queue.len() + self.holds.len() >= MANY {
            self.many_waited = Some(now);
        }
        if !self.can_be_held(now, &packet) {
            let held = self.holds.release(&packet);
            self.send_held(now, held);
            return self.enqueue(Entry::Packet(packet));
        }
        let leaving = Leaving {
            own: self.interface_queue.count_packets(|other| other.follows_the_way_of(&packet)),
            partners: self.interface_queue.count_packets(|other| other.opposes(&packet)),
        };
        let until = now.saturating_add(self.config.wait);
        let out = self.holds.insert(now, until, packet, leaving);
        let (waited, came_now) = out.into_iter().partition(|packet| packet.came < now);
        self.send_pushed_out(now, waited);
        Vec::into_iter(came_now).for_each(|packet| self.enqueue(Entry::Packet(packet)));
    }

    /// Whether the neighbours on both sides decode, and miss too little for a hold to be in vain.
    fn can_be_held(&self, now: Duration, packet: &Transit) -> bool {
        let mut hops = packet.previous_hop.into_iter().chain([packet.next_hop]);
        let many_wait = self.many_waited.is_some_and(|last| now.saturating_sub(last) < LARGE_FOR);
        self.can_be_coded(now, packet) && hops.all(|hop| self.neighbours.is_worth_waiting_for(hop, many_wait))
    }

    /// Whether the neighbours on both sides decode.
    fn can_be_coded(&self, now: Duration, packet: &Transit) -> bool {
        let mut hops = packet.previous_hop.into_iter().chain([packet.next_hop]);
        packet.previous_hop.is_some() && hops.all(|hop| self.neighbours.decodes(now, hop))
    }

    /// The partner of a packet that leaves: what waits in the queue came before what is held, for it was pushed out by that.
    pub(super) fn meet_any(&mut self, now: Duration, leaving: &Transit) -> Option<Transit> {
        if !self.can_be_coded(now, leaving) {
            return None;
        }
        let (mtu, neighbours) = (self.config.mtu, &self.neighbours);
        let fits = |other: &Transit| {
            payload_len(&other.datagram, &leaving.datagram) <= mtu
                && neighbours.overhears(now, leaving.in_order(other).1)
        };
        // A sum takes as long as its longer packet: what it saves is the shorter one's time.
        let fits_well = |other: &Transit| fits(other) && leaving.is_about_as_long_as(other);
        let (queue, holds, stats) = (&mut self.interface_queue, &mut self.holds, &mut self.stats);
        let mut take = |fits: &dyn Fn(&Transit) -> bool| {
            queue.take_partner(leaving, fits).or_else(|| {
                let held = holds.take_partner(leaving, fits)?;
                stats.released(now.saturating_sub(held.came));
                Some(held)
            })
        };
        take(&fits_well).or_else(|| take(&fits))
    }

    /// The next report or greeting that is due. They go first: what they say is late otherwise.
    pub(super) fn report(&mut self, now: Duration) -> Option<Vec<u8>> {
        let (to, report) = match self.reception.poll(now) {
            Some(report) => report,
            None => self.greeting.poll(now).then_some((Mac::BROADCAST, Report::default()))?,
        };
        self.stats.reports += 1;
        self.stats.sent += 1;
        let mut frame = ethernet::begin(to, self.config.mac, ethernet::NC, header::REPORT);
        report.emit(&mut frame);
        Some(frame)
    }

    /// Packets that were missed go first, and by themselves.
    pub(super) fn send_again(&mut self, packets: Vec<Transit>) {
        for packet in packets.into_iter().rev() {
            let alone = Transit { previous_hop: None, ..packet };
            self.stats.sent_again += u64::from(self.interface_queue.push_front(Entry::Packet(alone)));
        }
    }
}
