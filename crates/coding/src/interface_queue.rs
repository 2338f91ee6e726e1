//! The interface queue: what waits for the slave interface's turn.
//!
//! It is in the NC layer, not below it, because there PiggyCode codes: at the moment a packet leaves, with one that
//! still waits. Whoever drives the layer keeps the queue below as short as the interface allows.
//!
//! So mac80211's queues by flow are without work, and are here instead ([`Flows`]): a call does not wait behind a download. The
//! paper's modes have one queue for all, first in, first out.

use std::collections::VecDeque;
use std::time::Duration;

use fq_codel::Flows;
use packet::{Ip, flow_hash};

use crate::ethernet::{self, Frame, HEADER};
use crate::stats::Stats;
use crate::transit::{Transit, find_partner};

/// Frames that may wait, as many as an interface's usual `txqueuelen`; for one more, one is dropped.
pub const MAX_FRAMES: usize = 1000;
/// Queues, as RFC 8290 §5.2.5 has them; flows beyond so many share some, so that strangers make no more of them.
const QUEUES: u64 = 1024;

/// What waits for its turn.
#[derive(Debug)]
pub enum Entry {
    /// A frame that the NC layer leaves as it is.
    Untouched(Vec<u8>),
    /// A packet that is sent by itself, unless it finds a partner here.
    Packet(Transit),
    /// Two packets that are sent as one: the first to its next hop, for the second's to overhear.
    Sum(Box<[Transit; 2]>),
}

impl Entry {
    /// The one IP packet in it.
    pub fn packet(&self) -> Option<&[u8]> {
        match self {
            Entry::Untouched(frame) => {
                let frame = Frame::parse(frame)?;
                matches!(frame.ethertype, ethernet::IPV4 | ethernet::IPV6).then_some(frame.payload)
            }
            Entry::Packet(packet) => Some(packet.datagram.bytes()),
            Entry::Sum(_) => None,
        }
    }

    fn packets(&self) -> u64 {
        if matches!(self, Entry::Sum(_)) { 2 } else { 1 }
    }

    /// Of the frame that it is sent as, an NC header apart.
    fn bytes(&self) -> u64 {
        let bytes = match self {
            Entry::Untouched(frame) => frame.len(),
            Entry::Packet(packet) => HEADER + packet.datagram.bytes().len(),
            Entry::Sum(pair) => HEADER + pair[0].in_order(&pair[1]).0.datagram.bytes().len(),
        };
        bytes as u64
    }
}

/// What waits, by flow; order is kept within a flow.
#[derive(Debug)]
pub struct InterfaceQueue {
    /// What goes before all flows.
    first: VecDeque<Entry>,
    flows: Flows<u64, Entry>,
    by_flow: bool,
    seed: u64,
}

impl InterfaceQueue {
    /// A queue for each flow, told apart by a hash with `seed`, with CoDel in each; or one for all, first in, first out.
    pub fn new(by_flow: bool, seed: u64) -> Self {
        Self { first: VecDeque::new(), flows: queues(by_flow), by_flow, seed }
    }

    /// One or the other from now on. What waits keeps its order within a flow.
    pub fn set_by_flow(&mut self, now: Duration, by_flow: bool) {
        if by_flow != self.by_flow {
            self.by_flow = by_flow;
            let mut before = std::mem::replace(&mut self.flows, queues(by_flow));
            // At time zero nothing has waited for long, and nothing is dropped.
            while let Some(entry) = before.pop(Duration::ZERO, drop) {
                self.flows.push(now, self.flow(&entry), entry.bytes(), entry);
            }
        }
    }

    /// Puts an entry at the end of its flow's queue. If there is no room, what has waited for longest in the longest is dropped.
    pub fn push(&mut self, now: Duration, entry: Entry, stats: &mut Stats) {
        if !self.has_room() {
            stats.queue_dropped += self.flows.drop_longest().map_or(0, |dropped| dropped.packets());
        }
        self.flows.push(now, self.flow(&entry), entry.bytes(), entry);
    }

    /// Puts an entry at the front, where it does not wait; false if there is no room, and it is dropped.
    pub fn push_front(&mut self, entry: Entry) -> bool {
        let room = self.has_room();
        if room {
            self.first.push_front(entry);
        }
        room
    }

    /// Puts a packet in the place of the last of its flow that `is_superseded`; it comes back if there is none.
    pub fn replace(&mut self, entry: Entry, is_superseded: impl Fn(&[u8]) -> bool) -> Option<Entry> {
        let mut flow = self.flows.flow_mut(self.flow(&entry)).rev();
        match flow.find(|older| older.packet().is_some_and(&is_superseded)) {
            Some(older) => {
                *older = entry;
                None
            }
            None => Some(entry),
        }
    }

    /// The entry whose turn it is.
    pub fn pop(&mut self, now: Duration, stats: &mut Stats) -> Option<Entry> {
        let next = self.first.pop_front();
        next.or_else(|| self.flows.pop(now, |dropped| stats.queue_dropped += dropped.packets()))
    }

    /// Takes out the partner of `leaving`, as [`find_partner`] chooses it of all flows' packets, the oldest first.
    pub fn take_partner(
        &mut self,
        now: Duration,
        leaving: &Transit,
        fits: impl Fn(&Transit) -> bool,
        stats: &mut Stats,
    ) -> Option<Transit> {
        loop {
            let opposing = self.flows.iter().filter_map(|(place, since, entry)| match entry {
                Entry::Packet(packet) if packet.opposes(leaving) => Some((since, place, packet)),
                _ => None,
            });
            let mut opposing: Vec<_> = opposing.collect();
            opposing.sort_by_key(|(since, ..)| *since);
            let packets = opposing.into_iter().map(|(_, place, packet)| (place, packet));
            let place = find_partner(packets, leaving, &fits)?;
            match self.flows.take(now, place)? {
                Ok(Entry::Packet(packet)) => return Some(packet),
                Ok(_) => return None,
                Err(dropped) => stats.queue_dropped += dropped.packets(),
            }
        }
    }

    /// How many packets that `fit` wait.
    pub fn count_packets(&self, fit: impl Fn(&Transit) -> bool) -> usize {
        let fits = |entry: &Entry| matches!(entry, Entry::Packet(packet) if fit(packet));
        self.first.iter().chain(self.flows.iter().map(|(_, _, entry)| entry)).filter(|e| fits(e)).count()
    }

    /// Whether one more frame may wait.
    pub fn has_room(&self) -> bool {
        self.len() < MAX_FRAMES
    }

    /// Entries that wait.
    pub fn len(&self) -> usize {
        self.first.len() + self.flows.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which queue is an entry's: what is no IP has one with some flows.
    fn flow(&self, entry: &Entry) -> u64 {
        let ip = entry.packet().filter(|_| self.by_flow).and_then(|packet| Ip::parse(packet).ok());
        ip.map_or(0, |ip| flow_hash(&ip, self.seed) % QUEUES)
    }
}

fn queues(by_flow: bool) -> Flows<u64, Entry> {
    if by_flow { Flows::default() } else { Flows::without_codel() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::Datagram;
    use crate::ethernet::Mac;

    const LEFT: Mac = Mac([2; 6]);
    const RIGHT: Mac = Mac([4; 6]);

    /// Of the flow `flow`, so many bytes of UDP.
    fn packet(flow: u8, length: u8, from: Mac, to: Mac) -> Transit {
        let mut bytes = vec![0; 40 + usize::from(length)];
        (bytes[0], bytes[5], bytes[6], bytes[41]) = (0x60, length, 17, flow);
        let datagram = Datagram::parse(bytes).unwrap();
        Transit { datagram, previous_hop: Some(from), next_hop: to, came: Duration::ZERO }
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_partner_is_the_oldest_of_all_flows_and_overtakes_none_of_its_own() {
        for by_flow in [true, false] {
            let (mut queue, mut stats) = (InterfaceQueue::new(by_flow, 1), Stats::default());
            let [leaving, other_way] = [(RIGHT, LEFT), (LEFT, Mac([6; 6]))].map(|(f, t)| packet(9, 20, f, t));
            let there = [(1, 100), (2, 20), (1, 21), (3, 22)].map(|(flow, n)| packet(flow, n, LEFT, RIGHT));
            for (at, packet) in [&other_way].into_iter().chain(&there).enumerate() {
                queue.push(ms(at as u64), Entry::Packet(packet.clone()), &mut stats);
            }
            let mut partner = |fits: fn(&Transit) -> bool| {
                queue.take_partner(ms(9), &leaving, fits, &mut stats).map(|packet| packet.datagram.bytes()[5])
            };
            assert_eq!(partner(|packet| packet.datagram.bytes()[5] == 21), None);
            assert_eq!(
                [partner(|_| true), partner(|_| true), partner(|_| true)],
                [Some(100), Some(20), Some(21)]
            );
            assert_eq!(queue.count_packets(|_| true), 2);
            let left: Vec<_> = std::iter::from_fn(|| queue.pop(ms(9), &mut stats)).collect();
            assert!(left.len() == 2 && queue.is_empty());
        }
    }

    #[test]
    fn what_is_put_at_the_front_leaves_before_all_flows() {
        let (mut queue, mut stats) = (InterfaceQueue::new(true, 1), Stats::default());
        queue.push(ms(0), Entry::Untouched(vec![0; 60]), &mut stats);
        assert!(queue.push_front(Entry::Untouched(vec![1; 60])));
        assert!(matches!(queue.pop(ms(0), &mut stats), Some(Entry::Untouched(frame)) if frame[0] == 1));
        assert_eq!((queue.len(), queue.has_room()), (1, true));
    }
}
