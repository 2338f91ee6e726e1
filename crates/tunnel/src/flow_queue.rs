//! The queue in front of Xmit: FQ-CoDel (RFC 8290), flow queues with controlled delay.
//!
//! The TUN gives no back-pressure (the kernel orphans what it writes into one), so the tunnel itself is the bottleneck's
//! buffer, and a plain one would fill. Here each flow has its own queue, served in turn, a flow that sends little first;
//! and a flow whose packets wait too long is told so: TCP by the window that it may use ([`window`](crate::window)), who does
//! not listen to that by one mark (ECN) or loss at a time (RFC 8289).
//!
//! CoDel's interval is twice the least round trip over the slowest path, for under load a flow's round trip has the paths'
//! own queues in it. Its target is a quarter of that round trip, or what the next slower path takes longer than the faster
//! ones: a path is used for its rate once the faster ones have so much before them ([`xmit`](crate::xmit)), so a flow that is
//! to use it must be let queue so much.
//!
//! A flow's packets never overtake one another here, not even what TCP sends again: its timestamp would make the receiver
//! discard what it has overtaken as old (PAWS, RFC 7323 §5).

use std::collections::VecDeque;
use std::time::Duration;

use packet::{Ecn, Ip, Tcp};

use crate::window::Window;

/// RFC 8289 §4.4.
const MIN_RTT: Duration = Duration::from_millis(100);
/// Target over interval. RFC 8289 §4.3 has 5 to 10 %, for many flows.
const TARGET_SHARE: u32 = 4;
/// A path that takes longer than the others by more than this is not worth the queue that it needs.
const MAX_TARGET: Duration = Duration::from_millis(200);
/// Below so many bytes nothing is dropped: there is no queue to speak of.
const LITTLE: usize = 2 * 1500;
/// Bytes that may wait, at least and at most.
const MIN_BYTES: usize = 256 << 10;
const MAX_BYTES: usize = 8 << 20;
/// A flow that is told by its window loses only if it does not obey: if packets wait for twice the target for so many
/// intervals, in which what waited before it was told drains.
const DEAF: u32 = 4;
const QUANTUM: isize = 1514;
const FLOWS: usize = 256;

#[derive(Debug)]
struct Waiting {
    packet: Vec<u8>,
    since: Duration,
}

/// A packet whose turn it is.
#[derive(Debug)]
pub struct Next {
    /// The packet.
    pub packet: Vec<u8>,
    /// Nothing else of its flow waits.
    pub alone: bool,
}

#[derive(Debug, Default)]
struct Flow {
    packets: VecDeque<Waiting>,
    bytes: usize,
    deficit: isize,
    listed: bool,
    /// When packets will have waited longer than the target for an interval.
    above_until: Option<Duration>,
    dropping: bool,
    drop_next: Duration,
    count: u32,
    window: Window,
}

/// Packets of many flows, waiting.
#[derive(Debug)]
pub struct FlowQueue {
    flows: Vec<Flow>,
    fresh: VecDeque<usize>,
    old: VecDeque<usize>,
    bytes: usize,
    max_bytes: usize,
    interval: Duration,
    target: Duration,
    seed: u64,
    dropped: u64,
    marked: u64,
}

impl FlowQueue {
    /// An empty queue; `seed` makes the flows' places unpredictable.
    pub fn new(seed: u64) -> Self {
        FlowQueue {
            flows: (0..FLOWS).map(|_| Flow::default()).collect(),
            fresh: VecDeque::new(),
            old: VecDeque::new(),
            bytes: 0,
            max_bytes: MIN_BYTES,
            interval: 2 * MIN_RTT,
            target: MIN_RTT / TARGET_SHARE,
            seed,
            dropped: 0,
            marked: 0,
        }
    }

    /// The round-trip time that flows see without a queue, by how much delay grows from one path to the next slower one at
    /// most, and what the paths carry together, bytes per second. Memory is bounded by two round trips of the best of late.
    pub fn set_paths(&mut self, rtt: Duration, step: Duration, rate: f64) {
        let rtt = rtt.max(MIN_RTT);
        self.interval = 2 * rtt;
        let step = if step < MAX_TARGET { step + step / 8 } else { Duration::ZERO };
        self.target = step.max(rtt / TARGET_SHARE);
        // A path that is gone takes its share of the limit with it by and by: what waits already is CoDel's to shorten, one loss
        // at a time.
        let max = ((rate * 2.0 * rtt.as_secs_f64()) as usize).clamp(MIN_BYTES, MAX_BYTES);
        self.max_bytes = max.max(self.max_bytes - self.max_bytes / 16);
    }

    /// Bytes waiting.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Flows that are told by their windows what they may have in flight.
    pub fn limited_flows(&self) -> usize {
        self.flows.iter().filter(|flow| flow.window.is_limited()).count()
    }

    /// Packets dropped; packets marked.
    pub fn totals(&self) -> (u64, u64) {
        (self.dropped, self.marked)
    }

    /// A packet comes.
    pub fn push(&mut self, now: Duration, packet: &[u8]) {
        let ip = Ip::parse(packet).ok();
        let hash = ip.as_ref().map_or(0, |ip| packet::flow_hash(ip, self.seed));
        let at = hash as usize % FLOWS;
        let flow = &mut self.flows[at];
        flow.window.handle_sent(now, hash, ip.as_ref().and_then(Tcp::parse).as_ref());
        flow.bytes += packet.len();
        self.bytes += packet.len();
        flow.packets.push_back(Waiting { packet: packet.to_vec(), since: now });
        if !flow.listed {
            (flow.listed, flow.deficit) = (true, QUANTUM);
            self.fresh.push_back(at);
        }
        while self.bytes > self.max_bytes {
            self.drop_from_fattest();
        }
    }

    /// A packet that answers a flow of this queue's comes back: it tells the flow's sender what it may have in flight.
    pub fn handle_returned(&mut self, now: Duration, packet: &mut [u8]) {
        let Ok(ip) = Ip::parse(packet) else { return };
        let Some(segment) = Tcp::parse(&ip) else { return };
        let hash = packet::reverse_flow_hash(&ip, self.seed);
        let window = &mut self.flows[hash as usize % FLOWS].window;
        if let Some(field) = window.handle_returned(now, hash, &segment, self.target) {
            packet::set_window(packet, field);
        }
    }

    /// The paths that are left carry only so much of what they did.
    pub fn handle_loss_of_paths(&mut self, left: f64) {
        self.flows.iter_mut().for_each(|flow| flow.window.handle_loss_of_paths(left));
    }

    /// The next packet.
    pub fn pop(&mut self, now: Duration) -> Option<Next> {
        loop {
            let is_fresh = !self.fresh.is_empty();
            let list = if is_fresh { &mut self.fresh } else { &mut self.old };
            let at = *list.front()?;
            if self.flows[at].deficit <= 0 {
                list.pop_front();
                self.flows[at].deficit += QUANTUM;
                self.old.push_back(at);
                continue;
            }
            if let Some(packet) = self.dequeue(now, at) {
                self.flows[at].deficit -= packet.len() as isize;
                return Some(Next { packet, alone: self.flows[at].packets.is_empty() });
            }
            let list = if is_fresh { &mut self.fresh } else { &mut self.old };
            list.pop_front();
            // A flow that has run dry waits a round before it counts as fresh again (RFC 8290 §4.2).
            if is_fresh && !self.old.is_empty() {
                self.old.push_back(at);
            } else {
                self.flows[at].listed = false;
            }
        }
    }

    /// CoDel's dequeue (RFC 8289 §5.5).
    fn dequeue(&mut self, now: Duration, at: usize) -> Option<Vec<u8>> {
        let (mut packet, mut late, mut waited) = self.take(now, at)?;
        if !late {
            self.flows[at].dropping = false;
            return Some(packet);
        }
        if !self.flows[at].dropping {
            let flow = &mut self.flows[at];
            // Soon after the last dropping state it goes on where that ended.
            let recent = now < flow.drop_next + 8 * self.interval;
            flow.count = if recent && flow.count > 2 { flow.count - 2 } else { 1 };
            flow.dropping = true;
            flow.drop_next = now;
        }
        while self.flows[at].dropping && now >= self.flows[at].drop_next {
            let flow = &mut self.flows[at];
            let base = flow.drop_next.max(now.saturating_sub(self.interval));
            flow.drop_next = base + (self.interval + waited).div_f64(f64::from(flow.count).sqrt());
            flow.count += 1;
            if mark(&mut packet) {
                self.marked += 1;
                return Some(packet);
            }
            self.dropped += 1;
            (packet, late, waited) = self.take(now, at)?;
            self.flows[at].dropping &= late;
        }
        Some(packet)
    }

    /// The flow's first packet, whether packets have waited too long for an interval, and how long this one waited. While
    /// packets wait, a flow hears of what was done to it so much later: that long is added to the interval.
    fn take(&mut self, now: Duration, at: usize) -> Option<(Vec<u8>, bool, Duration)> {
        let flow = &mut self.flows[at];
        let Some(Waiting { packet, since }) = flow.packets.pop_front() else {
            flow.dropping = false;
            flow.above_until = None;
            return None;
        };
        flow.bytes -= packet.len();
        self.bytes -= packet.len();
        let waited = now.saturating_sub(since);
        flow.window.handle_waited(waited);
        let (target, interval) = match flow.window.is_limited() {
            true => (2 * self.target, DEAF * self.interval),
            false => (self.target, self.interval),
        };
        if waited < target || flow.bytes <= LITTLE {
            flow.above_until = None;
            return Some((packet, false, waited));
        }
        let until = *flow.above_until.get_or_insert(now + interval);
        Some((packet, now >= until, waited))
    }

    fn drop_from_fattest(&mut self) {
        if let Some(flow) = self.flows.iter_mut().max_by_key(|f| f.bytes)
            && let Some(first) = flow.packets.pop_front()
        {
            flow.bytes -= first.packet.len();
            self.bytes -= first.packet.len();
            self.dropped += 1;
        }
    }
}

/// Marks congestion on a packet whose ends understand it.
fn mark(packet: &mut [u8]) -> bool {
    let Ok(ip) = Ip::parse(packet) else { return false };
    let capable = ip.ecn() != Ecn::NotEct;
    if capable {
        packet::set_ecn(packet, Ecn::Ce);
    }
    capable
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A UDP packet of flow `port` whose last byte is `tag`.
    fn packet(port: u8, ecn: u8, tag: u8) -> Vec<u8> {
        let mut p = vec![0; 1000];
        (p[0], p[1], p[9]) = (0x45, ecn, 17);
        p[2..4].copy_from_slice(&1000u16.to_be_bytes());
        p[21] = port;
        p[24..26].copy_from_slice(&980u16.to_be_bytes());
        p[999] = tag;
        p
    }

    fn fill(q: &mut FlowQueue, at: Duration, port: u8, ecn: u8, n: u8) {
        (0..n).for_each(|tag| q.push(at, &packet(port, ecn, tag)));
    }

    #[test]
    fn a_flow_that_sends_little_goes_first() {
        let mut q = FlowQueue::new(1);
        fill(&mut q, MS, 1, 0, 20);
        (0..4).for_each(|_| drop(q.pop(MS)));
        q.push(MS, &packet(2, 0, 99));
        let next: Vec<_> = (0..2).filter_map(|_| q.pop(MS)).map(|n| n.packet[999]).collect();
        assert!(next.contains(&99), "{next:?}");
    }

    #[test]
    fn order_within_a_flow_is_kept_and_nothing_is_lost_without_a_queue() {
        let mut q = FlowQueue::new(1);
        fill(&mut q, MS, 1, 0, 50);
        let tags: Vec<_> = std::iter::from_fn(|| q.pop(20 * MS)).map(|n| n.packet[999]).collect();
        assert_eq!(tags, (0..50).collect::<Vec<_>>());
        assert_eq!((q.bytes(), q.totals()), (0, (0, 0)));
    }

    /// One packet in and one out each millisecond, behind 60 that wait: a standing queue of 60 ms.
    fn stand(ecn: u8, ms: u32) -> FlowQueue {
        let mut q = FlowQueue::new(1);
        fill(&mut q, Duration::ZERO, 1, ecn, 60);
        for t in 0..ms {
            q.push(t * MS, &packet(1, ecn, 0));
            q.pop(t * MS);
        }
        q
    }

    #[test]
    fn a_standing_queue_is_told_one_loss_at_a_time() {
        assert_eq!(
            stand(0, 220).totals().0,
            0,
            "the target passes at 25 ms, an interval of 200 ms after that"
        );
        let dropped = stand(0, 300).totals().0;
        assert!((1..=4).contains(&dropped), "{dropped}");
    }

    #[test]
    fn who_understands_ecn_is_marked_and_loses_nothing() {
        let (dropped, marked) = stand(2, 300).totals();
        assert!(dropped == 0 && marked > 0);
    }

    #[test]
    fn a_longer_round_trip_is_given_more_time() {
        let mut q = FlowQueue::new(1);
        q.set_paths(400 * MS, Duration::ZERO, 1e6);
        fill(&mut q, Duration::ZERO, 1, 0, 60);
        for t in 0..300 {
            q.push(t * MS, &packet(1, 0, 0));
            q.pop(t * MS);
        }
        assert_eq!(q.totals().0, 0);
    }

    #[test]
    fn what_waits_outlives_the_path_that_it_was_to_take() {
        let mut q = FlowQueue::new(1);
        q.set_paths(300 * MS, Duration::ZERO, 2e6);
        (0..20).for_each(|_| fill(&mut q, MS, 1, 0, 50));
        let waiting = q.bytes();
        q.set_paths(100 * MS, Duration::ZERO, 1e5);
        q.push(MS, &packet(1, 0, 0));
        assert_eq!((q.bytes(), q.totals().0), (waiting + 1000, 0));
        (0..40).for_each(|_| q.set_paths(100 * MS, Duration::ZERO, 1e5));
        q.push(MS, &packet(1, 0, 0));
        assert!(q.bytes() <= MIN_BYTES);
    }

    #[test]
    fn memory_is_bounded_at_the_cost_of_the_fattest_flow() {
        let mut q = FlowQueue::new(1);
        q.push(MS, &packet(2, 0, 7));
        (0..8).for_each(|_| fill(&mut q, MS, 1, 0, 50));
        assert!(q.bytes() <= MIN_BYTES);
        let tags: Vec<_> = std::iter::from_fn(|| q.pop(MS)).map(|n| (n.packet[21], n.packet[999])).collect();
        assert!(tags.contains(&(2, 7)) && tags.last() == Some(&(1, 49)));
    }
}
