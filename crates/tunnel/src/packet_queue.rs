//! PacketQueue: restores the order of each flow, which many paths destroy.
//!
//! Every inner packet has a sequence, by which its copies are told, and says how far behind it the packet is that it must
//! not overtake: the one before it of its own flow. So a flow never waits for another's gap, and what has no order (a pure
//! ACK, the first packet of a flow) waits for nothing. A packet is handed on when the one before it has been, or has been
//! given up. That is given up
//!
//! - at once, when the sender says that it will not send below its floor any more;
//! - when the packet behind it has waited for the hold time;
//! - when more bytes wait, or more gaps are open, than the queue may hold: then those waited for longest.
//!
//! Of a flow that lacks two packets, what follows the second may come before what follows the first: each waits for its own.
//!
//! A sequence that was handed on or given up is never handed on again: copies and resends end here. But what was sent again on
//! purpose, though its sender repeats nothing else, is handed on after it was given up
//! ([`insert_late`](PacketQueue::insert_late)).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
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

#[derive(Debug)]
struct Held {
    packet: Vec<u8>,
    /// The sequence that it waits for.
    before: u64,
}

/// The packets of one sender at their receiver.
#[derive(Debug)]
pub struct PacketQueue {
    /// The lowest sequence that was neither handed on nor given up; `None` until the sender's position is known.
    base: Option<u64>,
    /// What was handed on or given up beyond the base: from where to where.
    done: BTreeMap<u64, u64>,
    held: BTreeMap<u64, Held>,
    /// Which of them waits for a sequence.
    waiters: BTreeMap<u64, u64>,
    /// When each of them came, and some that have been handed on since.
    arrivals: VecDeque<(Duration, u64)>,
    /// The newest of those that were given up.
    given_up: VecDeque<Range<u64>>,
    newest: Option<u64>,
    held_bytes: usize,
    max_bytes: usize,
    ready: VecDeque<Vec<u8>>,
    counters: Counters,
}

/// What a waiting packet costs beside its bytes, so that empty ones are not free.
const ENTRY: usize = 128;
/// Gaps that are open at the same time, at most.
const MAX_GAPS: usize = 1 << 16;
/// So many gaps that were given up are remembered.
const MAX_GIVEN_UP: usize = 64;
/// Sequences start here, so that positions before a sender's first floor have a number too.
const ORIGIN: u64 = 1 << 32;

impl PacketQueue {
    /// An empty queue that holds at most `max_bytes` of packets.
    pub fn new(max_bytes: usize) -> Self {
        PacketQueue {
            base: None,
            done: BTreeMap::new(),
            held: BTreeMap::new(),
            waiters: BTreeMap::new(),
            arrivals: VecDeque::new(),
            given_up: VecDeque::new(),
            newest: None,
            held_bytes: 0,
            max_bytes,
            ready: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Holds at most so many bytes of packets from now on.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// The 64-bit sequence nearest to the newest, of a wire sequence's low 32 bits.
    pub fn unwrap(&self, order: u32) -> u64 {
        let near = self.newest.unwrap_or(ORIGIN + u64::from(order));
        near.saturating_add_signed(i64::from(order.wrapping_sub(near as u32) as i32))
    }

    /// Whether `order` was handed on or given up, or waits: what arrives under it now is a copy.
    pub fn knows(&self, order: u64) -> bool {
        self.is_done(order) || self.held.contains_key(&order)
    }

    /// A packet arrived that must not overtake the one `behind` sequences before it; 0: it waits for nothing.
    pub fn insert(&mut self, now: Duration, order: u64, behind: u16, packet: &[u8]) {
        self.newest = self.newest.max(Some(order));
        if self.knows(order) {
            self.counters.duplicate_packets += 1;
            return;
        }
        let before = order.saturating_sub(u64::from(behind));
        // Two that wait for one sequence are no flow's: the second is handed on.
        if behind == 0 || self.is_done(before) || self.waiters.contains_key(&before) {
            self.hand_on(packet.to_vec());
            self.settle(order);
        } else {
            self.waiters.insert(before, order);
            self.held.insert(order, Held { packet: packet.to_vec(), before });
            self.held_bytes += packet.len() + ENTRY;
            self.note_arrival(now, order);
            while self.held_bytes > self.max_bytes {
                self.give_up_first();
            }
        }
        // Whatever made the gaps, as packets that waited for too long do: each makes more of them where it is handed on.
        while self.done.len() > MAX_GAPS
            && let Some(first) = self.done.keys().next().copied()
        {
            self.handle_floor(first);
        }
    }

    /// Whether `order` was given up, of late.
    pub fn gave_up(&self, order: u64) -> bool {
        self.given_up.iter().any(|gap| gap.contains(&order))
    }

    /// A packet arrived that [was given up](Self::gave_up), and whose sender has sent it again for its receiver to miss it no
    /// longer than need be.
    pub fn insert_late(&mut self, order: u64, packet: &[u8]) {
        let Some(at) = self.given_up.iter().position(|gap| gap.contains(&order)) else { return };
        let after = order + 1..std::mem::replace(&mut self.given_up[at].end, order);
        if self.given_up[at].is_empty() {
            self.given_up.remove(at);
        }
        self.remember(after);
        self.counters.lost_packets -= 1;
        self.hand_on(packet.to_vec());
    }

    /// The sender will send nothing below `floor` any more.
    pub fn handle_floor(&mut self, floor: u64) {
        self.newest = self.newest.max(Some(floor));
        match self.base {
            // What came before the position was known is no loss.
            None => self.base = Some(floor),
            Some(base) if floor <= base => return,
            Some(base) => {
                self.give_up(base..floor);
                self.base = Some(floor);
            }
        }
        self.absorb();
        while let Some((before, order)) = self.waiters.pop_first() {
            if before >= floor {
                self.waiters.insert(before, order);
                return;
            }
            self.release(order);
        }
    }

    /// Gives up what a packet has waited for the hold time for.
    pub fn handle_timeout(&mut self, now: Duration, hold: Duration) {
        while self.first_arrival().is_some_and(|since| since + hold <= now) {
            self.counters.timed_out_packets += 1;
            self.give_up_first();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) may have something to do, for a hold time of `hold`.
    pub fn poll_timeout(&self, hold: Duration) -> Option<Duration> {
        self.arrivals.front().map(|(since, _)| *since + hold)
    }

    /// The next packet that may be handed on.
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

    fn is_done(&self, order: u64) -> bool {
        self.base.is_some_and(|base| order < base)
            || self.done.range(..=order).next_back().is_some_and(|(_, end)| order < *end)
    }

    fn hand_on(&mut self, packet: Vec<u8>) {
        self.counters.delivered_packets += 1;
        if !packet.is_empty() {
            self.ready.push_back(packet);
        }
    }

    /// `order` is done with: what waited for it is handed on, and what waited for that.
    fn settle(&mut self, order: u64) {
        self.mark_done(order);
        if let Some(next) = self.waiters.remove(&order) {
            self.release(next);
        }
    }

    /// Hands on `order` and all that waits for it in turn.
    fn release(&mut self, order: u64) {
        let mut next = Some(order);
        while let Some(order) = next
            && let Some(held) = self.held.remove(&order)
        {
            self.held_bytes -= held.packet.len() + ENTRY;
            self.hand_on(held.packet);
            self.mark_done(order);
            next = self.waiters.remove(&order);
        }
        if self.held.is_empty() {
            self.arrivals.clear();
        }
    }

    fn mark_done(&mut self, order: u64) {
        if self.base == Some(order) {
            self.base = Some(order + 1);
            return self.absorb();
        }
        if self.is_done(order) {
            return;
        }
        let end = self.done.remove(&(order + 1)).unwrap_or(order + 1);
        match self.done.range_mut(..order).next_back().filter(|(_, end)| **end == order) {
            Some((_, below)) => *below = end,
            None => drop(self.done.insert(order, end)),
        }
    }

    /// The base moves over what is done already.
    fn absorb(&mut self) {
        while let Some(first) = self.done.first_entry().filter(|first| Some(*first.key()) <= self.base) {
            self.base = self.base.max(Some(first.remove()));
        }
    }

    /// Those that wait no longer stay behind one that does, but, when one more comes, no more of them than wait and [`MAX_GIVEN_UP`].
    fn note_arrival(&mut self, now: Duration, order: u64) {
        self.arrivals.push_back((now, order));
        if self.arrivals.len() > 2 * self.held.len() + MAX_GIVEN_UP {
            let held = &self.held;
            self.arrivals.retain(|(_, order)| held.contains_key(order));
        }
    }

    /// When the packet came that has waited longest.
    fn first_arrival(&mut self) -> Option<Duration> {
        while self.arrivals.front().is_some_and(|(_, order)| !self.held.contains_key(order)) {
            self.arrivals.pop_front();
        }
        self.arrivals.front().map(|(since, _)| *since)
    }

    /// Gives up what the packet that has waited longest waits for.
    fn give_up_first(&mut self) {
        if self.first_arrival().is_none() {
            return;
        }
        let Some(&(_, mut order)) = self.arrivals.front() else { return };
        while let Some(held) = self.held.get(&order) {
            order = held.before;
        }
        self.give_up(order..order + 1);
        self.settle(order);
    }

    /// What of `orders` has not come will not be waited for.
    fn give_up(&mut self, orders: Range<u64>) {
        let mut from = orders.start;
        let done = self.done.range(orders.clone()).map(|(start, end)| *start..*end);
        let held = self.held.range(orders.clone()).map(|(order, _)| *order..order + 1);
        let mut known: Vec<_> = done.chain(held).collect();
        known.sort_unstable_by_key(|range| range.start);
        known.push(orders.end..orders.end);
        for range in known {
            if from < range.start {
                self.counters.lost_packets += range.start - from;
                self.remember(from..range.start);
            }
            from = range.end;
        }
    }

    fn remember(&mut self, gap: Range<u64>) {
        if !gap.is_empty() {
            self.given_up.push_back(gap);
        }
        if self.given_up.len() > MAX_GIVEN_UP {
            self.given_up.pop_front();
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

    /// A packet of a flow of which every packet is.
    fn put(q: &mut PacketQueue, now: Duration, order: u32) {
        put_behind(q, now, order, 1);
    }

    fn put_behind(q: &mut PacketQueue, now: Duration, order: u32, behind: u16) {
        let order64 = q.unwrap(order);
        q.insert(now, order64, behind, &[order as u8]);
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
    fn a_flow_does_not_wait_for_the_gap_of_another() {
        let mut q = started();
        // 0, 2, 5 are one flow, 1, 3, 4 another.
        put_behind(&mut q, MS, 5, 3);
        put_behind(&mut q, MS, 3, 2);
        put_behind(&mut q, MS, 4, 1);
        put_behind(&mut q, MS, 0, 0);
        assert_eq!(out(&mut q), [0]);
        put_behind(&mut q, MS, 2, 2);
        assert_eq!(out(&mut q), [2, 5]);
        put_behind(&mut q, MS, 1, 0);
        assert_eq!(out(&mut q), [1, 3, 4]);
        assert_eq!((q.base, q.done.len(), q.held_bytes()), (Some(ORIGIN + 6), 0, 0));
    }

    /// Each gap that is given up frees a packet that makes another gap: were they given up within each other, the stack would not do.
    #[test]
    fn gaps_beyond_the_most_are_given_up_one_after_the_other() {
        let mut q = PacketQueue::new(usize::MAX);
        let at = |n: u64| ORIGIN + 4 * n;
        (0..MAX_GAPS as u64).for_each(|n| q.insert(MS, at(n), 0, &[1]));
        // Each waits for the gap behind one of the first.
        let far = 16_000;
        (0..far).for_each(|n| q.insert(MS, at(n + far) + 2, (4 * far + 1) as u16, &[2]));
        assert_eq!(q.held.len(), far as usize);
        (0..3).for_each(|n| q.insert(MS, at(MAX_GAPS as u64 + n), 0, &[3]));
        assert_eq!((q.done.len(), q.held.len()), (MAX_GAPS, 0));
    }

    #[test]
    fn no_more_is_kept_than_waits_and_than_gaps_are_kept_of() {
        let mut q = PacketQueue::new(1 << 20);
        for n in 0..3 * MAX_GAPS as u64 {
            q.insert(MS, ORIGIN + 4 * n, 1, &[]);
            q.handle_timeout(2 * MS, MS);
        }
        assert!(q.done.len() <= MAX_GAPS + 1, "{} gaps", q.done.len());
        // One waits, and behind it others come and go.
        q.insert(MS, ORIGIN << 1, 9, &[]);
        for n in 0..1000 {
            let order = (ORIGIN << 1) + 100 + 2 * n;
            q.insert(MS, order + 1, 1, &[]);
            q.insert(MS, order, 0, &[]);
        }
        assert_eq!(q.held.len(), 1);
        assert!(q.arrivals.len() < 200, "{} arrivals", q.arrivals.len());
    }

    #[test]
    fn what_has_no_place_in_the_order_waits_for_nothing_and_comes_once() {
        let mut q = started();
        put(&mut q, MS, 1);
        put_behind(&mut q, MS, 2, 0);
        put_behind(&mut q, MS, 2, 0);
        assert_eq!(out(&mut q), [2]);
        put_behind(&mut q, MS, 3, 2);
        put(&mut q, MS, 0);
        put_behind(&mut q, MS, 2, 0);
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
    fn a_gap_is_given_up_after_the_hold_time_of_the_packet_behind_it() {
        let mut q = started();
        put(&mut q, MS, 5);
        put(&mut q, 8 * MS, 3);
        assert_eq!(q.poll_timeout(10 * MS), Some(11 * MS));
        q.handle_timeout(10 * MS, 10 * MS);
        assert_eq!(out(&mut q), []);
        q.handle_timeout(11 * MS, 10 * MS);
        assert_eq!(out(&mut q), [5]);
        q.handle_timeout(18 * MS, 10 * MS);
        assert_eq!(out(&mut q), [3]);
        assert_eq!((q.counters().timed_out_packets, q.counters().lost_packets), (2, 2));
    }

    #[test]
    fn what_waits_for_a_packet_that_waits_is_handed_on_after_it() {
        let mut q = started();
        put(&mut q, MS, 3);
        put(&mut q, 2 * MS, 2);
        q.handle_timeout(11 * MS, 10 * MS);
        assert_eq!(out(&mut q), [2, 3], "the first gap is the one before 2");
    }

    #[test]
    fn what_was_given_up_and_comes_after_all_is_handed_on_once() {
        let mut q = started();
        put(&mut q, MS, 2);
        q.handle_floor(q.unwrap(2));
        assert_eq!(out(&mut q), [2]);
        for order in [1, 1, 2] {
            let order64 = q.unwrap(order);
            assert_eq!(q.gave_up(order64), order == 1 && q.counters().lost_packets == 2);
            q.insert_late(order64, &[order as u8]);
        }
        assert_eq!(out(&mut q), [1]);
        assert_eq!((q.counters().delivered_packets, q.counters().lost_packets), (2, 1));
        for floor in 0..200 {
            put_behind(&mut q, MS, 10 + 2 * floor, 0);
            q.handle_floor(q.unwrap(11 + 2 * floor));
        }
        assert_eq!(q.given_up.len(), MAX_GIVEN_UP);
        assert!(q.gave_up(q.unwrap(10 + 2 * 199 - 1)));
    }

    /// Whoever gives up much at once, and sends it again one by one, is remembered no longer for it.
    #[test]
    fn gaps_in_what_was_given_up_are_bounded() {
        for step in [1, 2] {
            let mut q = started();
            q.handle_floor(q.unwrap(1_000_000));
            for order in (10..5000).step_by(step) {
                q.insert_late(q.unwrap(order), &[0]);
            }
            assert!(q.given_up.len() <= MAX_GIVEN_UP && q.given_up.iter().all(|gap| !gap.is_empty()));
            assert!(q.counters().lost_packets < 1_000_000 - 2000);
        }
    }

    #[test]
    fn before_the_floor_is_known_what_has_an_order_waits_for_the_hold_time() {
        let mut q = PacketQueue::new(1000);
        put(&mut q, MS, 7);
        put(&mut q, MS, 6);
        put_behind(&mut q, MS, 9, 0);
        assert_eq!(out(&mut q), [9]);
        q.handle_timeout(11 * MS, 10 * MS);
        assert_eq!(out(&mut q), [6, 7]);
    }

    #[test]
    fn sequences_that_only_go_down_end_at_zero() {
        let mut q = PacketQueue::new(1000);
        for step in 0..5u32 {
            put(&mut q, MS, 0u32.wrapping_sub(step.wrapping_mul(0x7fff_ffff)));
        }
        assert!(q.unwrap(0x8000_0001) < 1 << 34);
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
        assert_eq!((q.counters().delivered_packets, q.counters().lost_packets), (3, 1));
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

    #[test]
    fn gaps_that_never_close_do_not_make_it_grow() {
        let mut q = started();
        for order in 0..2 * MAX_GAPS as u32 {
            put_behind(&mut q, MS, 2 * order + 1, 0);
        }
        assert!(q.done.len() <= MAX_GAPS);
        assert_eq!(out(&mut q).len(), 2 * MAX_GAPS);
    }

    proptest! {
        /// Against the set of sequences of two flows, one of even and one of odd numbers: each at most once, in its flow's
        /// order, and every one delivered or counted lost.
        #[test]
        fn every_sequence_is_delivered_once_or_counted(arrivals in proptest::collection::vec((0u32..60, 0u8..5), 0..200)) {
            let mut q = PacketQueue::new(20 * (1 + ENTRY));
            q.handle_floor(q.unwrap(0));
            let mut seen = Vec::new();
            for (i, (order, act)) in arrivals.into_iter().enumerate() {
                let now = i as u32 * MS;
                match act {
                    0 => q.handle_floor(q.unwrap(order)),
                    1 => q.handle_timeout(now, 10 * MS),
                    _ => put_behind(&mut q, now, order, if order < 2 { 0 } else { 2 }),
                }
                prop_assert!(q.held_bytes() <= 20 * (1 + ENTRY));
                seen.extend(out(&mut q));
            }
            // What is given up may still come, behind what has waited for it.
            for parity in (0..2).filter(|_| q.counters().lost_packets == 0) {
                let flow: Vec<_> = seen.iter().filter(|order| **order % 2 == parity).collect();
                prop_assert!(flow.windows(2).all(|w| w[0] < w[1]));
            }
            prop_assert_eq!(seen.len() as u64, q.counters().delivered_packets);
            let beyond: u64 = q.done.iter().map(|(start, end)| end - start).sum();
            let done = q.base.unwrap() - ORIGIN + beyond;
            prop_assert_eq!(q.counters().delivered_packets + q.counters().lost_packets, done);
            prop_assert_eq!(q.held.len(), q.waiters.len());
        }
    }
}
