//! Mode `any` (beyond the paper): any two opposing packets, past neighbours that overhear.

use std::time::Duration;

use super::{CODED_FOR, NcLayer};
use crate::config::Mode;
use crate::datagram::Kind;
use crate::encoder::payload_len;
use crate::ethernet::{self, Mac};
use crate::header::{self, Greeting, Report};
use crate::hold::Leaving;
use crate::interface_queue::Entry;
use crate::neighbours::{KNOWN_FOR, Neighbours};
use crate::transit::Transit;

/// Packets that wait here while windows are large: to them, a packet that a neighbour does not overhear is no pause.
const MANY: usize = 8;
/// They are large for so long after so many waited.
const LARGE_FOR: Duration = Duration::from_secs(1);
/// How long a relay gives way, in usual times from one frame to the next: the other's turn at the medium, and its frame.
const WAY_GAPS: u32 = 2;

/// Whether a packet that leaves and one that opposes it may go as a sum: it fits into a frame, and the one that is overheard has a
/// next hop that can be trusted to do so.
fn can_sum(now: Duration, mtu: usize, neighbours: &Neighbours) -> impl Fn(&Transit, &Transit) -> bool {
    move |leaving, other| {
        payload_len(&leaving.datagram, &other.datagram) <= mtu
            && neighbours.overhears(now, leaving.in_order(other).1)
    }
}

impl NcLayer {
    /// A packet that has no partner yet waits for one, if that is worth it.
    pub(super) fn wait_or_go(&mut self, now: Duration, packet: Transit) {
        self.stats.relayed += 1;
        self.relayed = Some(now);
        if self.interface_queue.len() + self.holds.len() >= MANY {
            self.many_waited = Some(now);
        }
        if !self.can_be_held(now, &packet) {
            let held = self.holds.release(&packet);
            self.send_held(now, held);
            return self.enqueue(now, Entry::Packet(packet));
        }
        let leaving = self.leaving(now, &packet);
        let until = now.saturating_add(self.config.wait);
        let out = self.holds.insert(now, until, packet, leaving);
        let (waited, came_now) = out.into_iter().partition(|packet| packet.came < now);
        self.send_pushed_out(now, waited);
        Vec::into_iter(came_now).for_each(|packet| self.enqueue(now, Entry::Packet(packet)));
    }

    fn leaving(&self, now: Duration, packet: &Transit) -> Leaving {
        let can_sum = can_sum(now, self.config.mtu, &self.neighbours);
        let is_partner = |other: &Transit| other.opposes(packet) && can_sum(other, packet);
        Leaving {
            own: self.interface_queue.count_packets(|other| other.follows_the_way_of(packet)),
            partners: self.interface_queue.count_packets(is_partner),
        }
    }

    /// Whether the neighbours on both sides decode, and miss too little for a hold to be in vain.
    fn can_be_held(&self, now: Duration, packet: &Transit) -> bool {
        let mut hops = packet.previous_hop.into_iter().chain([packet.next_hop]);
        let many_wait = self.windows_are_large(now);
        self.can_be_coded(now, packet) && hops.all(|hop| self.neighbours.is_worth_waiting_for(hop, many_wait))
    }

    /// Why no packet waits for a partner at present, if so, at a node that has relayed of late.
    pub fn holds_nothing_because(&self, now: Duration) -> Option<&'static str> {
        let relays = self.relayed.is_some_and(|last| now < last.saturating_add(KNOWN_FOR));
        if !relays || self.config.mode != Mode::Any || self.holds.len() > 0 {
            return None;
        }
        if !self.can_code(now) {
            return Some("fewer than two neighbours decode and are not left out");
        }
        if self.neighbours.worth_waiting_for(now, self.windows_are_large(now)) < 2 {
            return Some("neighbours miss too many sums, or have yet to show that they overhear");
        }
        self.holds.idle_because(now)
    }

    fn windows_are_large(&self, now: Duration) -> bool {
        self.many_waited.is_some_and(|last| now.saturating_sub(last) < LARGE_FOR)
    }

    /// A sum gives both its receivers something to send at the same moment, and where they do not sense each other their frames
    /// collide. So a relay that overheard one lets the other go first; not while windows are small, which wait for every packet, nor
    /// where it misses so much that sums are a trial.
    pub(super) fn give_way(&mut self, now: Duration, from: Mac) {
        if self.windows_are_large(now) && self.reception.is_good(from) {
            self.quiet_until = now.saturating_add(WAY_GAPS * self.holds.gap());
        }
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
        let can_sum = can_sum(now, self.config.mtu, &self.neighbours);
        let fits = |other: &Transit| can_sum(leaving, other);
        // A sum takes as long as its longer packet: what it saves is the shorter one's time.
        let fits_well = |other: &Transit| fits(other) && leaving.is_about_as_long_as(other);
        let leaves = self.leaves_to_others(now, leaving);
        let (queue, holds, stats) = (&mut self.interface_queue, &mut self.holds, &mut self.stats);
        let mut take = |fits: &dyn Fn(&Transit) -> bool| {
            queue.take_partner(now, leaving, fits, stats).or_else(|| {
                let held = holds.take_partner(leaving, fits)?;
                stats.released(now.saturating_sub(held.came));
                Some(held)
            })
        };
        take(&fits_well).or_else(|| if leaves { None } else { take(&fits) })
    }

    /// While many packets wait, one of another length is left to those of that length that wait for the same way: an ACK has its
    /// turn before data, and would take the data that opposes it from them.
    fn leaves_to_others(&self, now: Duration, leaving: &Transit) -> bool {
        let is_another = |own: &Transit| own.follows_the_way_of(leaving) && !own.is_about_as_long_as(leaving);
        self.windows_are_large(now) && self.interface_queue.count_packets(is_another) > 0
    }

    /// An ACK that so goes without a partner lets the others go first for the rest of its time: by then one may oppose it.
    pub(super) fn waits_for_its_like(&self, now: Duration, leaving: &Transit) -> bool {
        self.config.mode == Mode::Any
            && leaving.datagram.kind() == Kind::Ack
            && now < leaving.came.saturating_add(self.config.wait)
            && self.can_be_held(now, leaving)
            && self.leaves_to_others(now, leaving)
    }

    /// The next report or greeting that is due. They go first: what they say is late otherwise.
    pub(super) fn report(&mut self, now: Duration) -> Option<Vec<u8>> {
        let frame = match self.reception.poll(now) {
            Some((to, report)) => {
                let mut frame = self.begin_nc(to);
                Report { answer: self.neighbours.nonce(to), ..report }.emit(&mut frame);
                frame
            }
            None => {
                let (to, greeting) = self.greetings.poll()?;
                let mut frame = self.begin_nc(to);
                greeting.emit(&mut frame);
                frame
            }
        };
        self.stats.reports += 1;
        self.stats.sent += 1;
        Some(frame)
    }

    fn begin_nc(&self, to: Mac) -> Vec<u8> {
        ethernet::begin(to, self.config.mac, ethernet::NC, header::REPORT)
    }

    /// A report counts if it answers this node's nonce: whoever wrote it hears this node.
    pub(super) fn receive_report(&mut self, now: Duration, from: Mac, report: &Report) {
        if let Some(until) = self.greetings.answered_until(now, report.answer) {
            self.neighbours.note(now, from, until);
            let again = self.neighbours.handle_report(now, from, report);
            self.send_again(again);
        }
    }

    /// Asks those that are not known to decode, or not for much longer.
    pub(super) fn ask(&mut self, now: Duration, hops: [Mac; 2]) {
        for hop in hops {
            if self.neighbours.is_to_be_asked(now, hop) {
                self.greetings.ask(now, hop);
            }
        }
    }

    /// So does a greeting that answers. One that asks is answered; over a radio only if, of late, the relay's frames for others were
    /// overheard, which its own questions to others are among.
    pub(super) fn receive_greeting(&mut self, now: Duration, from: Mac, greeting: &Greeting) {
        if greeting.asks {
            self.neighbours.learn(now, from, greeting.nonce);
            self.coded_for_until = now.saturating_add(CODED_FOR);
            let lately = |(_, heard): &(u64, Duration)| now < heard.saturating_add(KNOWN_FOR);
            let hears = !self.config.by_monitor || self.overheard.get(&from).is_some_and(lately);
            if hears {
                self.greetings.answer(now, from, greeting.nonce);
            } else {
                self.unanswered = Some((from, now));
            }
        } else if let Some(until) = self.greetings.answered_until(now, greeting.nonce) {
            self.neighbours.note(now, from, until);
        }
    }

    /// Packets that were missed go first, and by themselves.
    pub(super) fn send_again(&mut self, packets: Vec<Transit>) {
        for packet in packets.into_iter().rev() {
            let alone = Transit { previous_hop: None, ..packet };
            self.stats.sent_again += u64::from(self.interface_queue.push_front(Entry::Packet(alone)));
        }
    }
}
