//! The queue in front of Xmit: FQ-CoDel (RFC 8290), flow queues with controlled delay.
//!
//! The TUN gives no back-pressure (the kernel orphans what it writes into one), so the tunnel itself is the bottleneck's
//! buffer, and a plain one would fill. Here each flow has its own queue, served in turn, a flow that sends little first;
//! and a flow whose packets wait too long is told so: TCP by the window that it may use ([`window`](crate::flow::window)), who does
//! not listen to that by one mark (ECN) or loss at a time (RFC 8289).
//!
//! A flow whose packet no path takes at present is passed over, for another may have one that a path does take. What takes it
//! depends on how much the flow has left to send. Nobody knows that; the best guess is as much as it has sent of late.
//!
//! CoDel's interval is twice the least round trip over the slowest path, for under load a flow's round trip has the paths'
//! own queues in it. Its target is a quarter of the least round trip over the quickest.
//!
//! A flow's packets never overtake one another here, not even what TCP sends again: its timestamp would make the receiver
//! discard what it has overtaken as old (PAWS, RFC 7323 §5). But an acknowledgement takes the place of an older one that waits:
//! it says all that that one did (RFC 9293 §3.10.7.4).

use std::collections::VecDeque;
use std::time::Duration;

use packet::{Ecn, FlowName, Ip, Tcp, tcp};

use crate::flow::window::{Allowed, Window};

/// RFC 8289 §4.4.
const MIN_RTT: Duration = Duration::from_millis(100);
/// What waits is to wait no longer than this, or a share of the quickest round trip. RFC 8289 §4.3 has 5 to 10 % of the
/// interval, for many flows.
pub const MIN_TARGET: Duration = Duration::from_millis(20);
const TARGET_SHARE: u32 = 4;
/// Below so many bytes nothing is dropped: there is no queue to speak of.
const LITTLE: usize = 2 * 1500;
/// A flow that is told by its window loses only if it does not obey: if packets wait for too long for so many intervals, in
/// which what waited before it was told drains.
const DEAF: u32 = 4;
const QUANTUM: isize = 1514;
const FLOWS: usize = 256;
/// A flow has one of so many places, so that two share one only if more than these are in use: of a hundred flows hardly any do, of
/// which a third would if each had but one place.
const WAYS: usize = 8;
/// What a flow sent is forgotten with this time constant.
const MEMORY: Duration = Duration::from_secs(1);
/// A flow may have so many times what it needs to use a slower path.
const ALLOWED: f64 = 1.125;
/// A flow that has sent less of late sends little, bytes: a call, a game, a terminal, the first window of a connection.
const SPARSE: f64 = 20_000.0;
/// So do the acknowledgements of a download on a thin way back, but they would fill it: no more than this share of what full paths carry
/// in a second is little.
const SPARSE_SHARE: f64 = 0.25;
/// Flows that are shown, those that send most: a screen takes no more, and a hub has hundreds of peers.
const SHOWN: usize = 16;
/// A flow that has sent less of late has ended, for whoever looks, bytes.
const QUIET: f64 = 40.0;

#[derive(Debug)]
struct Waiting {
    packet: Vec<u8>,
    since: Duration,
}

/// The first packet of a flow whose turn it is.
#[derive(Debug)]
pub struct Head<'a> {
    /// The packet.
    pub packet: &'a [u8],
    /// Whether the flow sends little, and no more of it waits than it may send in a turn. An acknowledgement waits for its path to have room, for a later one
    /// may take its place meanwhile.
    pub sparse: bool,
    /// Bytes that this and the other flows that wait have left to send, each as many as this one, as far as can be told.
    pub rest: f64,
    /// Bytes per second that the flow has sent of late.
    pub rate: f64,
}

/// A packet whose turn it is.
#[derive(Debug)]
pub struct Next {
    /// The packet.
    pub packet: Vec<u8>,
    /// The flow's place.
    pub flow: usize,
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
    /// Bytes that it sent of late, as of when.
    sent: (f64, Duration),
    /// The order sequence of its last packet that has an order.
    last: Option<u64>,
    /// The hash and the name of the flow that was here last.
    name: Option<(u64, FlowName)>,
}

/// A flow, for whoever looks.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Which.
    pub name: FlowName,
    /// Bytes per second that it has sent of late.
    pub rate: f64,
    /// Bytes of it that wait.
    pub waiting: usize,
    /// It is told by its window what it may have in flight.
    pub limited: bool,
}

impl Flow {
    /// Whether the flow that was here last has ended, as far as can be told: what it sent has arrived or is given up.
    fn is_free(&self, now: Duration) -> bool {
        self.name.is_none() || (self.packets.is_empty() && now >= self.sent.1 + MEMORY)
    }

    /// What the flow that was here last has left says nothing of the next.
    fn begin(&mut self, now: Duration) {
        *self = Flow { sent: (0.0, now), listed: self.listed, deficit: self.deficit, ..Flow::default() };
    }

    fn recent(&self, now: Duration) -> f64 {
        let (bytes, at) = self.sent;
        // The packets of a burst go at one time, and an exponential is dear.
        if now <= at {
            return bytes;
        }
        bytes * (-(now.saturating_sub(at).as_secs_f64() / MEMORY.as_secs_f64())).exp()
    }
}

/// Packets of many flows, waiting.
#[derive(Debug, Default)]
pub struct FlowQueue {
    flows: Vec<Flow>,
    fresh: VecDeque<usize>,
    old: VecDeque<usize>,
    bytes: usize,
    /// How many flows have more than one packet waiting.
    busy: usize,
    interval: Duration,
    target: Duration,
    /// Bytes per second that the paths carry together.
    rate: f64,
    /// Bytes that a flow sends in a second at most that sends little.
    sparse: f64,
    /// For each of the paths: bytes that a flow needs to have left to use it, and how many of them wait until then.
    steps: Vec<(f64, f64)>,
    seed: u64,
    max_bytes: usize,
    dropped: u64,
    marked: u64,
    /// What was dropped, and why, while somebody captures.
    noted: Option<Vec<(Vec<u8>, &'static str)>>,
}

impl FlowQueue {
    /// An empty queue for so many bytes at most; `seed` makes the flows' places unpredictable.
    pub fn new(seed: u64, max_bytes: usize) -> Self {
        let flows = (0..FLOWS).map(|_| Flow::default()).collect();
        let mut queue = FlowQueue { flows, seed, max_bytes, ..FlowQueue::default() };
        queue.set_paths(MIN_RTT, MIN_RTT, 0.0, None, Vec::new());
        queue
    }

    /// Notes what is dropped from now on, or no longer.
    pub fn set_noted(&mut self, on: bool) {
        self.noted = on.then(Vec::new);
    }

    /// `packet` was dropped, here or after it was taken.
    pub fn note(&mut self, packet: Vec<u8>, why: &'static str) {
        if let Some(noted) = &mut self.noted {
            noted.push((packet, why));
        }
    }

    /// What was dropped since the last time, and why.
    pub fn take_noted(&mut self) -> Vec<(Vec<u8>, &'static str)> {
        self.noted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The round-trip times that flows see without a queue over the quickest and the slowest path, what the paths carry together,
    /// bytes per second, the same if all are full, and for each of them how many bytes a flow needs to have left to use it, and let
    /// wait until then.
    pub fn set_paths(
        &mut self,
        quickest: Duration,
        slowest: Duration,
        rate: f64,
        full: Option<f64>,
        steps: Vec<(f64, f64)>,
    ) {
        self.interval = 2 * slowest.max(MIN_RTT);
        self.target = MIN_TARGET.max(quickest / TARGET_SHARE);
        self.rate = rate;
        self.sparse = full.map_or(SPARSE, |full| SPARSE.min(full * SPARSE_SHARE));
        self.steps = steps;
    }

    /// So many bytes at most from now on.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// Bytes waiting.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Flows that are told by their windows what they may have in flight.
    pub fn limited_flows(&self) -> usize {
        self.flows.iter().filter(|flow| flow.window.is_limited()).count()
    }

    /// The flows that sent most of late, that one first.
    pub fn flows(&self, now: Duration) -> Vec<Seen> {
        let seen = |flow: &Flow| {
            let (_, name) = flow.name?;
            let recent = flow.recent(now);
            let (rate, waiting) = (recent / MEMORY.as_secs_f64(), flow.bytes);
            let limited = flow.window.is_limited();
            (recent >= QUIET || waiting > 0).then_some(Seen { name, rate, waiting, limited })
        };
        let mut flows: Vec<_> = self.flows.iter().filter_map(seen).collect();
        flows.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        flows.truncate(SHOWN);
        flows
    }

    /// Packets dropped; packets marked.
    pub fn totals(&self) -> (u64, u64) {
        (self.dropped, self.marked)
    }

    /// The place of the flow with this hash: its own, else the one that is free for longest, for a flow that pauses is told by what its
    /// SYN said. Where all are in use it shares one.
    fn place(&self, now: Duration, hash: u64) -> usize {
        let home = hash as usize % FLOWS;
        let first = home - home % WAYS;
        let places = std::iter::once(home).chain(first..first + WAYS);
        let own = |at: &usize| self.flows[*at].name.is_some_and(|(known, _)| known == hash);
        let free = |at: &usize| self.flows[*at].is_free(now);
        let unused = |at: &usize| self.flows[*at].sent.1;
        places.clone().find(own).or_else(|| places.filter(free).min_by_key(unused)).unwrap_or(home)
    }

    /// A packet comes.
    pub fn push(&mut self, now: Duration, packet: &[u8]) {
        let ip = Ip::parse(packet).ok();
        let hash = ip.as_ref().map_or(0, |ip| packet::flow_hash(ip, self.seed));
        let at = self.place(now, hash);
        let flow = &mut self.flows[at];
        if flow.name.is_none_or(|(known, _)| known != hash) {
            if flow.is_free(now) {
                flow.begin(now);
            }
            flow.name = ip.as_ref().map(|ip| (hash, FlowName::of(ip)));
        }
        flow.window.handle_sent(hash, ip.as_ref().and_then(Tcp::parse).as_ref());
        flow.bytes += packet.len();
        self.bytes += packet.len();
        match flow.packets.back_mut().filter(|last| packet::says_all_of(packet, &last.packet)) {
            Some(last) => {
                flow.bytes -= last.packet.len();
                self.bytes -= last.packet.len();
                let before = std::mem::replace(&mut last.packet, packet.to_vec());
                self.note(before, "a later acknowledgement says as much");
            }
            None => {
                flow.packets.push_back(Waiting { packet: packet.to_vec(), since: now });
                self.busy += usize::from(flow.packets.len() == 2);
            }
        }
        let flow = &mut self.flows[at];
        if !flow.listed {
            (flow.listed, flow.deficit) = (true, QUANTUM);
            self.fresh.push_back(at);
        }
        self.dropped += self.shrink(self.max_bytes, "the queue is full");
    }

    /// A packet that answers a flow of this queue's comes back: it tells the flow's sender what it may have in flight. False if
    /// the sender is better off without it.
    pub fn handle_returned(&mut self, now: Duration, packet: &mut [u8]) -> bool {
        let Ok(ip) = Ip::parse(packet) else { return true };
        let Some(segment) = Tcp::parse(&ip) else { return true };
        let hash = packet::reverse_flow_hash(&ip, self.seed);
        let at = self.place(now, hash);
        // What the other end begins has its place from now on, or the next that it begins would take the same.
        if segment.flags() & (tcp::SYN | tcp::ACK) == tcp::SYN && self.flows[at].is_free(now) {
            self.flows[at].begin(now);
            self.flows[at].name = Some((hash, FlowName::of(&ip).reverse()));
        }
        let target = self.target + self.allowance(now, at);
        let bytes = self.rate / self.busy.max(1) as f64 * target.as_secs_f64();
        let allowed = Allowed { bytes, period: self.interval };
        let Flow { window, bytes: waiting, .. } = &mut self.flows[at];
        let passes = window.passes(hash, &segment);
        let field = window.handle_returned(now, hash, &segment, *waiting, &allowed);
        if let Some(field) = field.filter(|_| !segment.is_signed()) {
            packet::set_window(packet, field);
        }
        passes
    }

    /// The next packet whose flow `choose` finds something for, and what that is.
    pub fn pop<T>(
        &mut self,
        now: Duration,
        mut choose: impl FnMut(&Head<'_>) -> Option<T>,
    ) -> Option<(Next, T)> {
        for is_fresh in [true, false] {
            let mut passed = 0;
            while let Some(at) = self.list(is_fresh).get(passed).copied() {
                if self.flows[at].deficit <= 0 {
                    self.list(is_fresh).remove(passed);
                    self.flows[at].deficit += QUANTUM;
                    self.old.push_back(at);
                    continue;
                }
                self.shorten(now, at);
                let Some(head) = self.head(now, at) else {
                    // Flows that nothing takes at present are still before it: its round is not over.
                    if !is_fresh && passed > 0 {
                        passed += 1;
                        continue;
                    }
                    self.list(is_fresh).remove(passed);
                    // A flow that has run dry waits a round before it counts as fresh again (RFC 8290 §4.2).
                    if is_fresh && !self.old.is_empty() {
                        self.old.push_back(at);
                    } else {
                        self.flows[at].listed = false;
                    }
                    continue;
                };
                match choose(&head) {
                    Some(chosen) => {
                        return self.take(now, at).map(|packet| (Next { packet, flow: at }, chosen));
                    }
                    None => passed += 1,
                }
            }
        }
        None
    }

    /// The next packet of the flow at `at`, if `takes` it: what goes in one burst may be more than the flow's turn, and is taken off
    /// its next ones.
    pub fn pop_from(&mut self, now: Duration, at: usize, takes: impl FnOnce(&[u8]) -> bool) -> Option<Next> {
        self.shorten(now, at);
        let flow = &self.flows[at];
        let first = flow.packets.front()?;
        takes(&first.packet).then(|| self.take(now, at)).flatten().map(|packet| Next { packet, flow: at })
    }

    /// The packet of the flow at `flow` that is sent under `order` must not overtake the one so many sequences before; 0: there is
    /// none.
    pub fn chain(&mut self, flow: usize, order: u64) -> u16 {
        let last = self.flows[flow].last.replace(order);
        last.and_then(|last| u16::try_from(order.saturating_sub(last)).ok()).unwrap_or(0)
    }

    fn list(&mut self, is_fresh: bool) -> &mut VecDeque<usize> {
        if is_fresh { &mut self.fresh } else { &mut self.old }
    }

    fn head(&self, now: Duration, at: usize) -> Option<Head<'_>> {
        let flow = &self.flows[at];
        let flows = self.busy.max(1) as f64;
        let packet = &flow.packets.front()?.packet[..];
        let recent = flow.recent(now);
        let left = flow.window.left().unwrap_or(recent.max(flow.bytes as f64));
        Some(Head {
            packet,
            sparse: recent < self.sparse && flow.bytes as isize <= QUANTUM && !packet::is_pure_ack(packet),
            rest: flows * left,
            rate: recent / MEMORY.as_secs_f64(),
        })
    }

    /// How much longer a flow's packets may wait if the flow may come to have so many left that it uses slower paths: as many
    /// as it has sent of late.
    fn allowance(&self, now: Duration, at: usize) -> Duration {
        let most = self.busy.max(1) as f64 * self.flows[at].recent(now);
        let waiting = self.steps.iter().filter(|(need, _)| *need <= most).map(|(_, waiting)| *waiting);
        Duration::from_secs_f64(ALLOWED * waiting.fold(0.0, f64::max) / self.rate.max(1.0)).min(MEMORY)
    }

    /// CoDel (RFC 8289 §5.5), of the packets that would leave now.
    fn shorten(&mut self, now: Duration, at: usize) {
        if !self.is_late(now, at) {
            self.flows[at].dropping = false;
            return;
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
            let Some(first) = flow.packets.front_mut() else { return };
            let waited = now.saturating_sub(first.since);
            let base = flow.drop_next.max(now.saturating_sub(self.interval));
            flow.drop_next = base + (self.interval + waited).div_f64(f64::from(flow.count).sqrt());
            flow.count += 1;
            if mark(&mut first.packet) {
                self.marked += 1;
                return;
            }
            self.dropped += 1;
            if let Some(first) = self.take_first(at) {
                self.note(first.packet, "it has waited too long (CoDel)");
            }
            self.flows[at].dropping &= self.is_late(now, at);
        }
    }

    /// Whether the flow's packets have waited too long for an interval. While packets wait, a flow hears of what was done to it so
    /// much later: that long is added to the interval.
    fn is_late(&mut self, now: Duration, at: usize) -> bool {
        let target = self.target + self.allowance(now, at);
        let flow = &mut self.flows[at];
        let interval = if flow.window.left().is_some() { DEAF * self.interval } else { self.interval };
        let waited = flow.packets.front().map_or(Duration::ZERO, |first| now.saturating_sub(first.since));
        if waited < target || flow.bytes <= LITTLE {
            flow.above_until = None;
            return false;
        }
        now >= *flow.above_until.get_or_insert(now + interval)
    }

    /// The flow's first packet, which is to be sent.
    fn take(&mut self, now: Duration, at: usize) -> Option<Vec<u8>> {
        let Waiting { packet, .. } = self.take_first(at)?;
        let flow = &mut self.flows[at];
        flow.deficit -= packet.len() as isize;
        flow.sent = (flow.recent(now) + packet.len() as f64, now);
        if flow.bytes == 0 {
            flow.window.handle_dry(now);
        }
        Some(packet)
    }

    fn take_first(&mut self, at: usize) -> Option<Waiting> {
        let flow = &mut self.flows[at];
        let first = flow.packets.pop_front()?;
        self.busy -= usize::from(flow.packets.len() == 1);
        flow.bytes -= first.packet.len();
        self.bytes -= first.packet.len();
        Some(first)
    }

    /// Drops the oldest packets of the flow that has most waiting, until no more than so many bytes wait; how many packets, not counted
    /// in [`totals`](Self::totals).
    pub fn shrink(&mut self, bytes: usize, why: &'static str) -> u64 {
        let mut dropped = 0;
        while self.bytes > bytes {
            let fattest = (0..FLOWS).max_by_key(|at| self.flows[*at].bytes);
            let Some(first) = fattest.and_then(|at| self.take_first(at)) else { break };
            dropped += 1;
            self.note(first.packet, why);
        }
        dropped
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
    use std::collections::BTreeSet;

    use super::*;

    const MAX_BYTES: usize = 4 << 20;
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

    fn pop(q: &mut FlowQueue, now: Duration) -> Option<Next> {
        q.pop(now, |_| Some(())).map(|(next, ())| next)
    }

    fn fill(q: &mut FlowQueue, at: Duration, port: u8, ecn: u8, n: u8) {
        (0..n).for_each(|tag| q.push(at, &packet(port, ecn, tag)));
    }

    #[test]
    fn a_flow_that_sends_little_goes_first() {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        fill(&mut q, MS, 1, 0, 20);
        (0..4).for_each(|_| drop(pop(&mut q, MS)));
        q.push(MS, &packet(2, 0, 99));
        let next: Vec<_> = (0..2).filter_map(|_| pop(&mut q, MS)).map(|n| n.packet[999]).collect();
        assert!(next.contains(&99), "{next:?}");
    }

    #[test]
    fn a_flow_begins_with_nothing_of_the_one_before() {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        let place = *places(&mut q, MS, 1..2).first().expect("its place");
        let later = 2 * MEMORY;
        let set = place - place % WAYS;
        for other in (set..set + WAYS).filter(|other| *other != place) {
            q.flows[other].begin(later);
            q.flows[other].name = q.flows[place].name.map(|(_, name)| (0, name));
        }
        let of = |port: u16| {
            let mut packet = packet(0, 0, 0);
            packet[20..22].copy_from_slice(&port.to_be_bytes());
            packet
        };
        let hash = |packet: &[u8]| packet::flow_hash(&Ip::parse(packet).expect("a packet"), q.seed);
        let next = (2..).map(of).find(|packet| hash(packet) as usize % FLOWS / WAYS == place / WAYS);
        assert!(q.flows[place].recent(later) > 100.0);
        q.push(later, &next.expect("a flow of this set"));
        assert_eq!((q.flows[place].packets.len(), q.flows[place].recent(later)), (1, 0.0));
    }

    /// The places of the flows with these ports, of which each sends a packet.
    fn places(q: &mut FlowQueue, now: Duration, ports: std::ops::Range<u8>) -> BTreeSet<usize> {
        ports.for_each(|port| fill(q, now, port, 0, 1));
        std::iter::from_fn(|| pop(q, now)).map(|next| next.flow).collect()
    }

    #[test]
    fn a_hundred_flows_have_a_place_each_and_leave_it_when_they_end() {
        for seed in 1..20 {
            let mut q = FlowQueue::new(seed, MAX_BYTES);
            for (second, first) in [0, 100, 50, 150, 0].into_iter().enumerate() {
                let now = Duration::from_secs(2 * second as u64);
                let used = places(&mut q, now, first..first + 100);
                assert!(used.len() >= 97, "{} places", used.len());
                assert_eq!(
                    places(&mut q, now + 500 * MS, first..first + 100),
                    used,
                    "a flow keeps its place"
                );
            }
        }
    }

    #[test]
    fn the_place_of_a_flow_that_pauses_is_left_alone_while_others_are_free() {
        for seed in 1..50 {
            let mut q = FlowQueue::new(seed, MAX_BYTES);
            let place = places(&mut q, MS, 0..1);
            for port in 1..40 {
                let other = places(&mut q, 1100 * u32::from(port) * MS, port..port + 1);
                assert!(other.is_disjoint(&place));
            }
        }
    }

    /// An option that offers a scale of 7 for windows.
    const SCALES: &[u8] = &[3, 3, 7, 0];
    const WINDOW: u16 = 60_000;

    /// A TCP segment with these flags, sequence and acknowledgement of the flow to `port`, or of its answers, with so many bytes of
    /// data.
    fn tcp_of(
        v6: bool,
        (port, answers): (u16, bool),
        flags: u8,
        numbers: [u32; 2],
        options: &[u8],
        data: usize,
    ) -> Vec<u8> {
        let header = 20 + options.len();
        let length = (header + data) as u16;
        let mut p = if v6 { vec![0; 40] } else { vec![0; 20] };
        let (addresses, width) = if v6 {
            (p[0], p[6], p[7]) = (0x60, 6, 64);
            p[4..6].copy_from_slice(&length.to_be_bytes());
            (8, 16)
        } else {
            (p[0], p[8], p[9]) = (0x45, 64, 6);
            p[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            (12, 4)
        };
        let ends = if answers { [(1, 443), (2, port)] } else { [(2, port), (1, 443)] };
        for (at, (host, _)) in ends.into_iter().enumerate() {
            p[addresses + width * (at + 1) - 1] = host;
        }
        p.extend(ends.into_iter().flat_map(|(_, port): (u8, u16)| port.to_be_bytes()));
        p.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
        p.extend([(header as u8 / 4) << 4, flags]);
        p.extend(WINDOW.to_be_bytes());
        p.extend([0; 4]);
        p.extend(options);
        p.resize(p.len() + data, 0);
        p
    }

    fn segment(port: u16, flags: u8, answers: bool) -> Vec<u8> {
        tcp_of(false, (port, answers), flags, [0; 2], SCALES, 0)
    }

    /// An acknowledgement with these options that comes back while a queue stands.
    fn returned_to_a_queue(v6: bool, options: &[u8]) -> Vec<u8> {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        let sent = |flags, options: &[u8], sequence, data| {
            tcp_of(v6, (1, true), flags, [sequence, 1], options, data)
        };
        let answer = |flags, options: &[u8], ack| tcp_of(v6, (1, false), flags, [1, ack], options, 0);
        q.push(MS, &sent(tcp::SYN, SCALES, 0, 0));
        pop(&mut q, MS);
        q.handle_returned(2 * MS, &mut answer(tcp::SYN | tcp::ACK, SCALES, 1));
        (0..80).for_each(|number| q.push(3 * MS, &sent(tcp::ACK, &[], 1 + 1000 * number, 1000)));
        let mut ack = answer(tcp::ACK, options, 1001);
        q.handle_returned(500 * MS, &mut ack);
        ack
    }

    #[test]
    fn the_window_of_a_signed_acknowledgement_is_left_as_it_is() {
        for v6 in [false, true] {
            let window = |options: &[u8]| {
                let packet = returned_to_a_queue(v6, options);
                Tcp::parse(&Ip::parse(&packet).unwrap()).unwrap().window()
            };
            assert!(window(&[]) < WINDOW, "the queue stands");
            // TCP-MD5 and TCP-AO.
            for (kind, length) in [(19, 18), (29, 16)] {
                let mut options = vec![kind, length];
                options.resize(usize::from(length), 7);
                options.resize(options.len().next_multiple_of(4), 0);
                assert_eq!(window(&options), WINDOW, "option {kind}");
            }
        }
    }

    #[test]
    fn flows_that_the_other_end_begins_at_once_have_a_place_each() {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        // Every place has been used, each at another time.
        for port in 0..2000 {
            q.push(u32::from(port) * MS, &segment(port, tcp::ACK, true));
            pop(&mut q, u32::from(port) * MS);
        }
        let now = Duration::from_secs(10);
        let ports = 5000..5030;
        assert!(ports.clone().all(|port| q.handle_returned(now, &mut segment(port, tcp::SYN, false))));
        ports.clone().for_each(|port| q.push(now, &segment(port, tcp::SYN | tcp::ACK, true)));
        assert_eq!(q.flows.iter().filter(|flow| flow.window.left().is_some()).count(), ports.len());
    }

    #[test]
    fn what_a_flow_sends_in_one_burst_is_taken_off_its_next_turns() {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        fill(&mut q, MS, 1, 0, 30);
        let first = pop(&mut q, MS).unwrap().flow;
        fill(&mut q, MS, 2, 0, 30);
        assert_eq!(
            std::iter::from_fn(|| q.pop_from(MS, first, |_| true)).take(19).count(),
            19,
            "a whole train"
        );
        let next: Vec<_> = std::iter::from_fn(|| pop(&mut q, MS)).take(20).map(|n| n.flow).collect();
        assert_eq!(next.iter().filter(|flow| **flow == first).count(), 0, "{next:?}");
    }

    #[test]
    fn flows_are_shown_by_what_they_send_until_they_end() {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        fill(&mut q, MS, 1, 0, 3);
        fill(&mut q, MS, 2, 0, 9);
        while pop(&mut q, MS).is_some() {}
        let ports =
            |q: &FlowQueue, at| -> Vec<_> { q.flows(at).iter().map(|flow| flow.name.ports).collect() };
        assert_eq!(ports(&q, MS), [Some([2, 0]), Some([1, 0])]);
        assert_eq!(q.flows(MS)[0].rate, 9000.0);
        assert_eq!(ports(&q, 60_000 * MS), []);
        (0..40).for_each(|port| fill(&mut q, MS, port, 0, 1));
        assert_eq!(ports(&q, MS).len(), SHOWN);
    }

    #[test]
    fn order_within_a_flow_is_kept_and_nothing_is_lost_without_a_queue() {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        fill(&mut q, MS, 1, 0, 50);
        let tags: Vec<_> = std::iter::from_fn(|| pop(&mut q, 20 * MS)).map(|n| n.packet[999]).collect();
        assert_eq!(tags, (0..50).collect::<Vec<_>>());
        assert_eq!((q.bytes(), q.totals()), (0, (0, 0)));
    }

    #[test]
    fn a_flow_that_runs_dry_while_nothing_can_be_sent_gains_no_turn() {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        fill(&mut q, MS, 1, 0, 40);
        drop(pop(&mut q, MS));
        // There is room for one of each three packets that come; flow 2 has a new one whenever its last has gone.
        let mut sent = [0; 2];
        for _ in 0..60 {
            if q.flows(MS).iter().all(|flow| flow.name.ports != Some([2, 0]) || flow.waiting == 0) {
                fill(&mut q, MS, 2, 0, 1);
            }
            let next = pop(&mut q, MS).expect("both flows have packets");
            sent[usize::from(next.packet[21]) - 1] += 1;
            assert!(q.pop(MS, |_| None::<()>).is_none());
        }
        assert!(sent[0] >= 25, "{sent:?}");
    }

    /// One packet in and one out each millisecond, behind 60 that wait: a standing queue of 60 ms.
    fn stand(ecn: u8, ms: u32) -> FlowQueue {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        fill(&mut q, Duration::ZERO, 1, ecn, 60);
        for t in 0..ms {
            q.push(t * MS, &packet(1, ecn, 0));
            pop(&mut q, t * MS);
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
        let mut q = FlowQueue::new(1, MAX_BYTES);
        q.set_paths(400 * MS, 400 * MS, 1e6, None, Vec::new());
        fill(&mut q, Duration::ZERO, 1, 0, 60);
        for t in 0..300 {
            q.push(t * MS, &packet(1, 0, 0));
            pop(&mut q, t * MS);
        }
        assert_eq!(q.totals().0, 0);
    }

    #[test]
    fn memory_is_bounded_at_the_cost_of_the_fattest_flow() {
        let mut q = FlowQueue::new(1, MAX_BYTES);
        q.push(MS, &packet(2, 0, 7));
        (0..100).for_each(|_| fill(&mut q, MS, 1, 0, 50));
        assert!(q.bytes() <= MAX_BYTES);
        let tags: Vec<_> =
            std::iter::from_fn(|| pop(&mut q, MS)).map(|n| (n.packet[21], n.packet[999])).collect();
        assert!(tags.contains(&(2, 7)) && tags.last() == Some(&(1, 49)));
    }
}
