//! PacketQueue: restores the order that many paths destroy.
//!
//! Every inner packet of an order stream has a sequence. A packet is handed on when all before it have been, or have
//! been given up. A gap is given up
//!
//! - at once, when the sender says that it will not send below its floor any more;
//! - at once, when every live path has passed it and the sender repeats nothing ([`recv_enqueue`](crate::recv_enqueue)
//!   says when a path has passed);
//! - when the packet behind it has waited for the hold time;
//! - when more bytes wait than the queue may hold.
//!
//! A sequence that was handed on or given up is never handed on again: copies and resends end here. But what was sent again on
//! purpose, though its sender repeats nothing else, is handed on after it was given up
//! ([`insert_late`](PacketQueue::insert_late)).
//!
//! What has no place in an order ([`insert_at_once`](PacketQueue::insert_at_once)) waits for nothing: only its sequence does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What became of the packets of an order stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Handed on.
    pub delivered_packets: u64,
    /// Never arrived in time; given up.
    pub lost_packets: u64,
    /// Copies of what was there already, or arrived after it was given up.
    pub duplicate_packets: u64,
    /// Given up because a packet behind had waited for the hold time.
    pub timed_out_packets: u64,
}

struct Held {
    packet: Vec<u8>,
    /// When the gap before this packet became visible.
    since: Duration,
}

/// One order stream at its receiver.
pub struct PacketQueue {
    /// The next sequence to hand on; `None` until the sender's position is known.
    next: Option<u64>,
    held: BTreeMap<u64, Held>,
    /// The newest of those that were given up.
    given_up: BTreeSet<u64>,
    held_bytes: usize,
    max_bytes: usize,
    ready: VecDeque<Vec<u8>>,
    counters: Counters,
}

/// What a waiting packet costs beside its bytes, so that empty ones are not free.
const ENTRY: usize = 64;

/// So many sequences that were given up are remembered.
const MAX_GIVEN_UP: u64 = 1024;

/// Sequences start here, so that positions before a sender's first floor have a number too.
const ORIGIN: u64 = 1 << 32;

impl PacketQueue {
    /// An empty queue that holds at most `max_bytes` of packets.
    pub fn new(max_bytes: usize) -> Self {
        PacketQueue {
            next: None,
            held: BTreeMap::new(),
            given_up: BTreeSet::new(),
            held_bytes: 0,
            max_bytes,
            ready: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// The 64-bit sequence nearest to what is expected, of a wire sequence's low 32 bits.
    pub fn unwrap(&self, order: u32) -> u64 {
        let near =
            self.next.or_else(|| self.held.keys().next().copied()).unwrap_or(ORIGIN + u64::from(order));
        near.saturating_add_signed(i64::from(order.wrapping_sub(near as u32) as i32))
    }

    /// Whether `order` was handed on or given up, or waits: what arrives under it now is a copy.
    pub fn knows(&self, order: u64) -> bool {
        self.next.is_some_and(|next| order < next) || self.held.contains_key(&order)
    }

    /// A packet arrived.
    pub fn insert(&mut self, now: Duration, order: u64, packet: &[u8]) {
        if self.next == Some(order) {
            self.hand_on(packet.to_vec());
            self.drain();
            return;
        }
        if self.knows(order) {
            self.counters.duplicate_packets += 1;
            return;
        }
        let behind = self.held.range(order..).next().map_or(now, |(_, h)| h.since);
        self.held.insert(order, Held { packet: packet.to_vec(), since: behind.min(now) });
        self.held_bytes += packet.len() + ENTRY;
        while self.held_bytes > self.max_bytes {
            self.skip_gap();
        }
    }

    /// A packet arrived that is worth the more the sooner it is handed on, whatever comes before it.
    pub fn insert_at_once(&mut self, now: Duration, order: u64, packet: &[u8]) {
        let copies = self.counters.duplicate_packets;
        self.insert(now, order, &[]);
        if self.counters.duplicate_packets == copies {
            self.ready.push_back(packet.to_vec());
        }
    }

    /// Whether `order` was given up, of late.
    pub fn gave_up(&self, order: u64) -> bool {
        self.given_up.contains(&order)
    }

    /// A packet arrived that [was given up](Self::gave_up), and whose sender has sent it again for its receiver to miss it no
    /// longer than need be.
    pub fn insert_late(&mut self, order: u64, packet: &[u8]) {
        if self.given_up.remove(&order) {
            self.counters.lost_packets -= 1;
            self.counters.delivered_packets += 1;
            self.ready.push_back(packet.to_vec());
        }
    }

    /// The sender will send nothing below `floor` any more.
    pub fn handle_floor(&mut self, floor: u64) {
        match self.next {
            // What came before this was known is in front of it or behind it.
            None => {
                self.next = Some(self.held.first_key_value().map_or(floor, |(first, _)| floor.min(*first)))
            }
            Some(next) if floor <= next => return,
            Some(_) => {}
        }
        while let Some(first) = self.held.first_key_value().map(|(k, _)| *k).filter(|k| *k < floor) {
            self.advance(first);
            self.drain();
        }
        self.advance(floor);
        self.drain();
    }

    /// Every live path has passed everything below `passed`, and the sender repeats nothing.
    pub fn handle_passed(&mut self, passed: u64) {
        // Only a gap in front of something that waits is given up: a sequence not yet seen may be on its way.
        while let (Some(next), Some((first, _))) = (self.next, self.held.first_key_value()) {
            if passed <= next {
                return;
            }
            self.advance(passed.min(*first));
            self.drain();
        }
    }

    /// Gives up the gaps whose time has come.
    pub fn handle_timeout(&mut self, now: Duration, hold: Duration) {
        while self.poll_timeout(hold).is_some_and(|t| t <= now) {
            let lost = self.counters.lost_packets;
            self.skip_gap();
            self.counters.timed_out_packets += self.counters.lost_packets - lost;
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do, for a hold time of `hold`.
    pub fn poll_timeout(&self, hold: Duration) -> Option<Duration> {
        self.held.first_key_value().map(|(_, h)| h.since + hold)
    }

    /// The next packet in order.
    pub fn poll_ready(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Bytes waiting behind gaps.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn hand_on(&mut self, packet: Vec<u8>) {
        self.next = self.next.map(|n| n + 1);
        self.counters.delivered_packets += 1;
        if !packet.is_empty() {
            self.ready.push_back(packet);
        }
    }

    fn drain(&mut self) {
        while let Some(entry) = self.held.first_entry().filter(|e| Some(*e.key()) == self.next) {
            let held = entry.remove();
            self.held_bytes -= held.packet.len() + ENTRY;
            self.hand_on(held.packet);
        }
    }

    /// Gives up everything from the next sequence up to `to`.
    fn advance(&mut self, to: u64) {
        let next = self.next.unwrap_or(to);
        self.counters.lost_packets += to.saturating_sub(next);
        self.given_up.extend(next.max(to.saturating_sub(MAX_GIVEN_UP))..to);
        while self.given_up.len() as u64 > MAX_GIVEN_UP {
            self.given_up.pop_first();
        }
        self.next = Some(next.max(to));
    }

    fn skip_gap(&mut self) {
        if let Some((&first, _)) = self.held.first_key_value() {
            self.advance(first);
            self.drain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn started() -> PacketQueue {
        let mut q = PacketQueue::new(1000);
        q.handle_floor(q.unwrap(0));
        q
    }

    fn put(q: &mut PacketQueue, now: Duration, order: u32) {
        let order64 = q.unwrap(order);
        q.insert(now, order64, &[order as u8]);
    }

    fn out(q: &mut PacketQueue) -> Vec<u8> {
        std::iter::from_fn(|| q.poll_ready()).map(|p| p[0]).collect()
    }

    #[test]
    fn order_is_restored_and_copies_are_dropped() {
        let mut q = started();
        for order in [1, 0, 0, 3, 2, 2, 1] {
            put(&mut q, MS, order);
        }
        assert_eq!(out(&mut q), [0, 1, 2, 3]);
        assert_eq!(q.counters().duplicate_packets, 3);
        assert_eq!(q.held_bytes(), 0);
    }

    #[test]
    fn what_has_no_place_in_the_order_waits_for_nothing_and_comes_once() {
        let mut q = started();
        let at_once = |q: &mut PacketQueue, order: u32| q.insert_at_once(MS, q.unwrap(order), &[order as u8]);
        put(&mut q, MS, 1);
        at_once(&mut q, 2);
        at_once(&mut q, 2);
        assert_eq!(out(&mut q), [2]);
        put(&mut q, MS, 3);
        put(&mut q, MS, 0);
        at_once(&mut q, 2);
        assert_eq!(out(&mut q), [0, 1, 3]);
        assert_eq!((q.counters().delivered_packets, q.counters().duplicate_packets), (4, 2));
        assert_eq!(q.held_bytes(), 0);
    }

    #[test]
    fn a_gap_is_given_up_when_the_sender_says_so() {
        let mut q = started();
        put(&mut q, MS, 2);
        q.handle_floor(q.unwrap(2));
        assert_eq!(out(&mut q), [2]);
        put(&mut q, MS, 1);
        assert_eq!(out(&mut q), []);
        assert_eq!((q.counters().lost_packets, q.counters().duplicate_packets), (2, 1));
    }

    #[test]
    fn a_gap_that_every_path_has_passed_is_given_up_but_nothing_beyond_what_waits() {
        let mut q = started();
        put(&mut q, MS, 2);
        q.handle_passed(q.unwrap(1));
        assert_eq!(out(&mut q), []);
        q.handle_passed(q.unwrap(9));
        assert_eq!(out(&mut q), [2]);
        put(&mut q, MS, 3);
        assert_eq!(out(&mut q), [3]);
    }

    #[test]
    fn a_gap_is_given_up_after_the_hold_time_of_the_first_packet_behind_it() {
        let mut q = started();
        put(&mut q, MS, 5);
        put(&mut q, 8 * MS, 3);
        assert_eq!(q.poll_timeout(10 * MS), Some(11 * MS));
        q.handle_timeout(10 * MS, 10 * MS);
        assert_eq!(out(&mut q), []);
        q.handle_timeout(11 * MS, 10 * MS);
        assert_eq!(out(&mut q), [3, 5]);
        assert_eq!(q.counters().timed_out_packets, 4);
    }

    #[test]
    fn what_was_given_up_and_comes_after_all_is_handed_on_once() {
        let mut q = started();
        put(&mut q, MS, 2);
        q.handle_passed(q.unwrap(2));
        assert_eq!(out(&mut q), [2]);
        for order in [1, 1, 2] {
            let order64 = q.unwrap(order);
            assert_eq!(q.gave_up(order64), order == 1 && q.counters().lost_packets == 2);
            q.insert_late(order64, &[order as u8]);
        }
        assert_eq!(out(&mut q), [1]);
        assert_eq!((q.counters().delivered_packets, q.counters().lost_packets), (2, 1));
        q.handle_floor(q.unwrap(1 << 30));
        assert_eq!(q.given_up.len() as u64, MAX_GIVEN_UP);
        assert!(q.gave_up(q.unwrap((1 << 30) - 1)));
    }

    #[test]
    fn before_the_floor_is_known_packets_wait_for_the_hold_time() {
        let mut q = PacketQueue::new(1000);
        put(&mut q, MS, 7);
        put(&mut q, MS, 6);
        assert_eq!(out(&mut q), []);
        q.handle_timeout(11 * MS, 10 * MS);
        assert_eq!(out(&mut q), [6, 7]);
        assert_eq!(q.counters().lost_packets, 0);
    }

    #[test]
    fn sequences_that_only_go_down_end_at_zero() {
        let mut q = PacketQueue::new(1000);
        for step in 0..5u32 {
            put(&mut q, MS, 0u32.wrapping_sub(step.wrapping_mul(0x7fff_ffff)));
        }
        assert!(q.unwrap(0x8000_0001) < 1 << 33);
    }

    #[test]
    fn what_came_before_the_first_floor_and_is_below_it_is_handed_on() {
        let mut q = PacketQueue::new(1000);
        for order in [5, 3, 8] {
            put(&mut q, MS, order);
        }
        q.handle_floor(q.unwrap(7));
        assert_eq!(out(&mut q), [3, 5]);
        q.handle_floor(q.unwrap(8));
        assert_eq!(out(&mut q), [8]);
        assert_eq!((q.counters().delivered_packets, q.counters().lost_packets), (3, 3));
    }

    #[test]
    fn sequences_wrap() {
        let mut q = PacketQueue::new(1000);
        q.handle_floor(q.unwrap(u32::MAX));
        for order in [0, u32::MAX, 1] {
            assert!(!q.knows(q.unwrap(order)));
            put(&mut q, MS, order);
            assert!(q.knows(q.unwrap(order)));
            put(&mut q, MS, order);
        }
        assert_eq!(out(&mut q), [255, 0, 1]);
        assert_eq!(q.counters().duplicate_packets, 3);
    }

    proptest! {
        /// Against the set of sequences: each at most once, in order, and every one delivered or counted lost.
        #[test]
        fn every_sequence_is_delivered_once_or_counted(arrivals in proptest::collection::vec((0u32..60, 0u8..5), 0..200)) {
            let mut q = PacketQueue::new(20 * (1 + ENTRY));
            q.handle_floor(q.unwrap(0));
            let mut seen = Vec::new();
            for (i, (order, act)) in arrivals.into_iter().enumerate() {
                let now = i as u32 * MS;
                match act {
                    0 => q.handle_floor(q.unwrap(order)),
                    1 => q.handle_passed(q.unwrap(order)),
                    2 => q.handle_timeout(now, 10 * MS),
                    _ => put(&mut q, now, order),
                }
                prop_assert!(q.held_bytes() <= 20 * (1 + ENTRY));
                seen.extend(out(&mut q));
            }
            prop_assert!(seen.windows(2).all(|w| w[0] < w[1]));
            prop_assert_eq!(seen.len() as u64, q.counters().delivered_packets);
            let next = q.next.unwrap() - ORIGIN;
            prop_assert_eq!(q.counters().delivered_packets + q.counters().lost_packets, next);
        }
    }
}
