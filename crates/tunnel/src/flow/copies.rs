//! Copies of packets that control retransmission, over a second path (paper 004, in the tunnel).
//!
//! Of TCP's and SCTP's packets on their way to a peer, [`bicast`] tells those that ask for a retransmission, are one, or begin
//! or end a connection: if one is lost, its sender waits for a timer. Such a packet goes out as ever, and once more over the
//! best of the other paths, under the same order sequence, by which the far end drops whichever comes second. Copies leave
//! before anything else does, so that no path overtakes them: for the far end they are packets like others.
//!
//! In adaptive mode also what has too little behind it for its loss to be noticed ([`tail`](crate::flow::tcp_tail)); and where the tunnel
//! itself sends nothing again, what has not arrived and would be found by a timer goes once more, again with a copy
//! ([`watched`](crate::flow::watched)): a retransmission in any case, a flow's other data once the flow has fallen silent.
//!
//! What is remembered of a flow costs as much for any number of them; one that was forgotten, or whose place another has
//! taken, goes without copies of its next retransmission.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bicast::{Association, Connection, Mode, Reasons, within_budget};
use packet::sctp::UDP_PORT;
use packet::tcp;
use packet::{Ip, Sctp, Tcp};
use serde::Serialize;

use crate::flow::tcp_tail::TcpTail;
use crate::flow::watched::{WatchList, Watched};

/// Flows that are remembered, in sets of [`WAYS`], of which the one that was unused for longest makes room.
const FLOWS: usize = 4096;
const WAYS: usize = 4;
/// A flow that was silent for so long is forgotten: longer than its sender's timers are (Linux's longest has two minutes).
const FORGET_AFTER: Duration = Duration::from_secs(300);
/// Bytes of copies in percent of all that goes either way, for requests answer what comes in: more than is to be expected at
/// 5 % loss, and the end for whoever sends nothing but retransmissions.
const BUDGET_PERCENT: u32 = 10;
/// What copies for the tail alone may bring all copies to: what is left is for those that are worth more.
const TAIL_BUDGET_PERCENT: u32 = 7;
/// What has not arrived goes once more so often.
const TIMES: u8 = 3;
/// 2⁶⁴ over the golden ratio: spreads keys that differ little.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A packet to be sent once more.
#[derive(Debug)]
pub struct Copy {
    /// Its order sequence.
    pub order: u64,
    /// Its bytes.
    pub packet: Vec<u8>,
    /// The id of the path that it has taken already.
    pub path: u16,
    /// It was sent a while ago and has not arrived.
    pub late: bool,
    reasons: Reasons,
}

/// What was copied, and what was not.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CopyCounters {
    /// Bytes of inner packets, without copies.
    pub sent_bytes: u64,
    /// Bytes of inner packets from the peer, with its copies.
    pub received_bytes: u64,
    /// Bytes of copies.
    pub extra_bytes: u64,
    /// Copies by why; one may have several reasons.
    pub duplicated_packets: BTreeMap<&'static str, u64>,
    /// Packets that were to be copied and were not, by why.
    pub not_duplicated_packets: BTreeMap<&'static str, u64>,
}

/// What decides about copies to one peer.
#[derive(Debug)]
pub struct Copies {
    adaptive: bool,
    flows: Vec<Flow>,
    seed: u64,
    /// No more than one train has: nothing else is sent before they are.
    waiting: VecDeque<Copy>,
    /// What is sent once more if it does not arrive.
    follow: WatchList,
    /// The one of them that is being sent, until it is known by which path. What cannot be sent is not watched any more.
    again: Option<Watched>,
    /// How long it takes to hear that something has arrived.
    patience: Duration,
    counters: CopyCounters,
}

/// A connection of TCP's or an association of SCTP's, by what is sent.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    key: u64,
    used: Duration,
    tcp: Connection,
    tail: TcpTail,
    sctp: Association,
}

impl Copies {
    /// Knows no flow; `seed` makes their places unpredictable. What the tail needs is copied as well if `adaptive`.
    pub fn new(seed: u64, adaptive: bool) -> Self {
        Copies {
            adaptive,
            flows: vec![Flow::default(); FLOWS],
            seed,
            waiting: VecDeque::new(),
            follow: WatchList::default(),
            again: None,
            patience: Duration::ZERO,
            counters: CopyCounters::default(),
        }
    }

    /// Changes what is copied from now on.
    pub fn set_adaptive(&mut self, adaptive: bool) {
        self.adaptive = adaptive;
    }

    /// `packet` was sent under the sequence `order` over the path with the id `path`. `patience`: how long it takes to hear of
    /// its arrival, if known; none where the tunnel sends again what is lost.
    pub fn handle_sent(
        &mut self,
        now: Duration,
        order: u64,
        packet: &[u8],
        path: u16,
        patience: Option<Duration>,
    ) {
        self.counters.sent_bytes += packet.len() as u64;
        let (flow, reasons) = self.classify(now, packet);
        if self.is_wanted(reasons) {
            self.waiting.push_back(Copy { order, packet: packet.to_vec(), path, late: false, reasons });
        }
        let Some(patience) = patience.filter(|_| self.adaptive) else { return };
        self.patience = patience;
        let always =
            [Reasons::RETRANSMISSION, Reasons::BEGIN, Reasons::END].iter().any(|r| reasons.contains(*r));
        let span = span(packet);
        if always || span.is_some() {
            if let Some((first, _)) = span {
                self.follow.handle_retransmission(flow, first);
            }
            let (packet, due) = (packet.to_vec(), now + patience);
            self.follow.insert(Watched { order, packet, path, flow, span, always, due, times: 0 });
        }
    }

    /// The packet with the sequence `order` arrived.
    pub fn handle_confirmed(&mut self, order: u64) {
        self.follow.handle_confirmed(order);
    }

    /// An inner packet came from the peer.
    pub fn handle_received(&mut self, now: Duration, packet: &[u8]) {
        self.counters.received_bytes += packet.len() as u64;
        if !self.adaptive {
            return;
        }
        let Ok(ip) = Ip::parse(packet) else { return };
        let Some(segment) = Tcp::parse(&ip).filter(|segment| segment.flags() & tcp::ACK != 0) else { return };
        let key = packet::reverse_flow_hash(&ip, self.seed);
        if let Some(flow) = self.set(key).iter_mut().find(|flow| flow.key == key) {
            flow.tail.acknowledged(segment.acknowledgment());
            flow.used = now;
        }
    }

    /// The next packet to be sent once more.
    pub fn take(&mut self, now: Duration) -> Option<Copy> {
        loop {
            let copy = self.waiting.pop_front().or_else(|| self.take_late(now))?;
            let CopyCounters { sent_bytes, received_bytes, extra_bytes, .. } = self.counters;
            let percent = if copy.reasons == Reasons::TAIL { TAIL_BUDGET_PERCENT } else { BUDGET_PERCENT };
            if within_budget(sent_bytes + received_bytes, extra_bytes, copy.packet.len() as u32, percent) {
                return Some(copy);
            }
            self.count_missed("budget");
        }
    }

    /// The next packet that should have arrived by now, and that its sender waits for.
    fn take_late(&mut self, now: Duration) -> Option<Copy> {
        loop {
            let mut late = self.follow.take_due(now)?;
            let known = self.set(late.flow).iter().find(|flow| flow.key == late.flow).copied();
            let Some(flow) = known.filter(|flow| late.span.is_none_or(|(_, end)| !flow.tail.has(end))) else {
                continue;
            };
            // While anything of its flow comes and goes, its sender will hear of it, and is not to take for reordering what
            // was lost.
            let silent_at = flow.used + self.patience;
            if !late.always && silent_at > now {
                late.due = silent_at;
                self.follow.insert(late);
                continue;
            }
            let (order, packet, path) = (late.order, late.packet.clone(), late.path);
            self.again = Some(late);
            return Some(Copy { order, packet, path, late: true, reasons: Reasons::default() });
        }
    }

    /// When [`take`](Self::take) has something that it has not now.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.follow.poll_timeout()
    }

    /// `copy` was sent over the path with the id `path`.
    pub fn handle_copied(&mut self, now: Duration, copy: Copy, path: u16) {
        self.counters.extra_bytes += copy.packet.len() as u64;
        let reasons = Reasons::NAMES.iter().filter(|(reason, _)| copy.reasons.contains(*reason));
        for name in reasons.map(|(_, name)| *name).chain(copy.late.then_some("late")) {
            *self.counters.duplicated_packets.entry(name).or_default() += 1;
        }
        let Some(mut late) = self.again.take().filter(|_| copy.late) else { return };
        self.waiting.push_back(Copy { path, ..copy });
        (late.path, late.times, late.due) = (path, late.times + 1, now + self.patience);
        if late.times < TIMES {
            self.follow.insert(late);
        }
    }

    /// A copy was not sent.
    pub fn count_missed(&mut self, why: &'static str) {
        *self.counters.not_duplicated_packets.entry(why).or_default() += 1;
    }

    /// What was copied so far.
    pub fn counters(&self) -> &CopyCounters {
        &self.counters
    }

    /// The flow of `packet`, and why it may be sent twice.
    fn classify(&mut self, now: Duration, packet: &[u8]) -> (u64, Reasons) {
        let Ok(ip) = Ip::parse(packet) else { return (0, Reasons::default()) };
        if let Some(segment) = Tcp::parse(&ip) {
            let adaptive = self.adaptive;
            let key = packet::flow_hash(&ip, self.seed);
            let flow = self.flow(now, key);
            let reasons = flow.tcp.classify(&segment);
            let tail = adaptive && flow.tail.sent(&segment, reasons);
            (key, if tail && reasons == Reasons::REST { Reasons::TAIL } else { reasons })
        } else if let Some(sctp) = Sctp::parse(&ip, UDP_PORT) {
            // An association's packets have several addresses.
            let ports = u32::from(sctp.source_port()) << 16 | u32::from(sctp.destination_port());
            let key = (u64::from(sctp.verification_tag()) << 32 | u64::from(ports)) ^ self.seed;
            (key, self.flow(now, key).sctp.classify(&sctp))
        } else {
            (0, Reasons::default())
        }
    }

    /// What is known of the flow `key`.
    fn flow(&mut self, now: Duration, key: u64) -> &mut Flow {
        let ways = self.set(key);
        let known = ways.iter().position(|flow| flow.key == key);
        let unused = || ways.iter().enumerate().min_by_key(|(_, flow)| flow.used).map(|(at, _)| at);
        let flow = &mut ways[known.or_else(unused).unwrap_or(0)];
        if flow.key != key || now >= flow.used + FORGET_AFTER {
            *flow = Flow { key, ..Flow::default() };
        }
        flow.used = now;
        flow
    }

    /// Where the flow `key` is, if it is known.
    fn set(&mut self, key: u64) -> &mut [Flow] {
        let set = (key.wrapping_mul(GOLDEN) >> 32) as usize % (FLOWS / WAYS);
        &mut self.flows[set * WAYS..][..WAYS]
    }

    /// As published, and what begins or ends a connection: of its loss, too, only a timer tells.
    fn is_wanted(&self, reasons: Reasons) -> bool {
        let mode = if self.adaptive { Mode::Adaptive } else { Mode::Selective };
        let ends = [Reasons::BEGIN, Reasons::END];
        !mode.wanted(reasons).is_empty() || ends.iter().any(|end| reasons.contains(*end))
    }
}

/// The sequence numbers of the first byte and behind the last, if `packet` is a segment with data.
fn span(packet: &[u8]) -> Option<(u32, u32)> {
    let ip = Ip::parse(packet).ok()?;
    let segment = Tcp::parse(&ip).filter(|segment| !segment.payload().is_empty())?;
    Some((segment.sequence(), segment.sequence().wrapping_add(segment.payload().len() as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: Duration = Duration::from_secs(1);

    /// A segment of TCP's of `length` bytes of data.
    fn segment(port: u16, flags: u8, sequence: u32, ack: u32, length: usize) -> Vec<u8> {
        let mut p = ipv4(6, 20 + length);
        p[20..22].copy_from_slice(&port.to_be_bytes());
        p[24..28].copy_from_slice(&sequence.to_be_bytes());
        p[28..32].copy_from_slice(&ack.to_be_bytes());
        (p[32], p[33]) = (5 << 4, flags);
        p
    }

    /// A packet from the address 10.0.0.`host` with DATA of this TSN.
    fn data(host: u8, tag: u32, tsn: u32) -> Vec<u8> {
        let mut p = ipv4(132, 12 + 20);
        p[15] = host;
        p[24..28].copy_from_slice(&tag.to_be_bytes());
        p[35] = 17;
        p[36..40].copy_from_slice(&tsn.to_be_bytes());
        p
    }

    fn ipv4(protocol: u8, length: usize) -> Vec<u8> {
        let mut p = vec![0; 20 + length];
        let total = p.len() as u16;
        (p[0], p[8], p[9], p[12]) = (0x45, 64, protocol, 10);
        p[2..4].copy_from_slice(&total.to_be_bytes());
        p
    }

    /// Whether `packet` is to be sent twice.
    fn twice(copies: &mut Copies, now: Duration, packet: &[u8]) -> bool {
        copies.handle_sent(now, 0, packet, 1, None);
        let copy = copies.take(now);
        copy.map(|copy| copies.handle_copied(now, copy, 2)).is_some()
    }

    #[test]
    fn what_begins_ends_asks_and_repeats_goes_twice() {
        let copies = &mut Copies::new(1, false);
        let mut twice = |flags, sequence, ack, length| {
            super::tests::twice(copies, S, &segment(1, flags, sequence, ack, length))
        };
        assert!(twice(2, u32::MAX, 0, 0), "SYN");
        assert!(!twice(16, 0, 1, 100));
        assert!(twice(16, 0, 1, 100), "again");
        assert!(!twice(16, 100, 2, 0), "an acknowledgement");
        assert!(twice(16, 100, 2, 0), "that says no more than the one before");
        assert!(twice(17, 100, 3, 0), "FIN");
        let counted = &copies.counters().duplicated_packets;
        assert_eq!(format!("{counted:?}"), r#"{"begin": 1, "end": 1, "request": 1, "retransmission": 1}"#);
        assert_eq!((copies.counters().sent_bytes, copies.counters().extra_bytes), (440, 260));
    }

    /// The other end of the connection of `segment(port, …)` has all before `ack`.
    fn acknowledge(copies: &mut Copies, port: u16, ack: u32) {
        let mut p = segment(0, 16, 0, ack, 0);
        let (source, destination) = p[12..20].split_at_mut(4);
        source.swap_with_slice(destination);
        p[22..24].copy_from_slice(&port.to_be_bytes());
        copies.handle_received(S, &p);
    }

    #[test]
    fn what_has_little_behind_it_goes_twice_in_adaptive_mode() {
        for adaptive in [false, true] {
            let copies = &mut Copies::new(1, adaptive);
            let data = |copies: &mut Copies, nth: u32| {
                twice(copies, S, &segment(1, 16, (nth * 100).wrapping_sub(150), 7, 100))
            };
            assert!(!data(copies, 0), "nothing is known of the other end");
            acknowledge(copies, 1, 100u32.wrapping_sub(150));
            let few: Vec<bool> = (1..7).map(|nth| data(copies, nth)).collect();
            assert_eq!(few, [adaptive, adaptive, adaptive, adaptive, false, false]);
            acknowledge(copies, 1, 100u32.wrapping_sub(150));
            assert!(!data(copies, 7), "an old ACK");
            acknowledge(copies, 1, 800u32.wrapping_sub(150));
            assert_eq!(data(copies, 8), adaptive);
        }
    }

    #[test]
    fn acknowledgements_go_twice_for_a_while_after_a_request() {
        for adaptive in [false, true] {
            let copies = &mut Copies::new(1, adaptive);
            let mut ack = |number| twice(copies, S, &segment(1, 16, 0, number, 0));
            assert!(!ack(1) && !ack(2));
            assert!(ack(2), "again: a request");
            let after = (3..1000).take_while(|number| ack(*number)).count();
            assert_eq!(after > 200, adaptive, "{after}");
            assert!(after < 997);
        }
    }

    #[test]
    fn the_tail_leaves_some_of_the_budget() {
        let copies = &mut Copies::new(1, true);
        twice(copies, S, &segment(1, 16, 0, 7, 1000));
        for nth in 1..1000 {
            acknowledge(copies, 1, nth * 1000);
            twice(copies, S, &segment(1, 16, nth * 1000, 7, 1000));
        }
        assert!(copies.counters().not_duplicated_packets["budget"] > 800);
        let again = segment(1, 16, 0, 7, 1000);
        let copied = (0..10).filter(|_| twice(copies, S, &again)).count();
        assert_eq!(copied, 10, "retransmissions");
    }

    #[test]
    fn an_association_is_the_same_from_every_address() {
        let copies = &mut Copies::new(1, false);
        assert!(!twice(copies, S, &data(1, 7, u32::MAX)));
        assert!(!twice(copies, S, &data(2, 7, 0)));
        assert!(!twice(copies, S, &data(1, 8, 0)), "another's");
        assert!(twice(copies, S, &data(2, 7, u32::MAX)));
    }

    #[test]
    fn a_flow_is_forgotten_in_time() {
        let copies = &mut Copies::new(1, false);
        let packet = segment(1, 16, 0, 0, 10);
        assert!(!twice(copies, S, &packet));
        assert!(twice(copies, 300 * S, &packet));
        assert!(!twice(copies, 600 * S, &packet));
    }

    #[test]
    fn a_hundred_thousand_flows_cost_as_much_as_one() {
        let copies = &mut Copies::new(1, false);
        let kept = segment(1, 16, 0, 0, 10);
        twice(copies, S, &kept);
        for tag in 0..100_000 {
            assert!(!twice(copies, S + Duration::from_micros(tag.into()), &data(1, tag, 0)));
            if tag % 100 == 0 {
                twice(copies, S + Duration::from_micros(tag.into()), &kept);
            }
        }
        assert_eq!((copies.flows.len(), copies.waiting.len()), (FLOWS, 0));
        let before = copies.counters().duplicated_packets["retransmission"];
        assert_eq!(before, 1000, "a flow that is used keeps its place");
    }

    #[test]
    fn who_sends_nothing_but_retransmissions_is_not_copied_for_long() {
        let copies = &mut Copies::new(1, false);
        let packet = segment(1, 16, 0, 0, 1000);
        let copied = (0..10_000).filter(|_| twice(copies, S, &packet)).count();
        assert_eq!(copied as u64, copies.counters().duplicated_packets["retransmission"]);
        let CopyCounters { sent_bytes, extra_bytes, .. } = *copies.counters();
        assert!(extra_bytes * 10 <= sent_bytes + 150_000, "{extra_bytes} of {sent_bytes}");
        assert!(copies.counters().not_duplicated_packets["budget"] > 8000);
        copies.handle_received(S, &[0; 1 << 20]);
        assert!(twice(copies, S, &packet));
    }

    proptest! {
        #[test]
        fn no_packet_is_too_strange(mut packet in proptest::collection::vec(any::<u8>(), 20..120), kind in 0usize..3) {
            let length = packet.len() as u16;
            (packet[0], packet[9]) = (0x45, [6, 17, 132][kind]);
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            (packet[6], packet[7]) = (0, 0);
            let mut copies = Copies::new(1, true);
            for _ in 0..2 {
                copies.handle_sent(S, 0, &packet, 1, Some(S));
                copies.handle_received(S, &packet);
            }
            prop_assert!(copies.waiting.len() <= 2);
        }
    }
}
