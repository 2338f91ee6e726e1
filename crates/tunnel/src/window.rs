//! What one TCP flow through the tunnel may have in flight, told to its sender in the window of the acknowledgements that
//! come back to it.
//!
//! A sender that is told of a queue by a loss has its receiver wait a round trip for what was lost; told by the window, it
//! loses nothing and the receiver sees no pause. As FS-AT's, the limit is what the path carries in a round trip; but the
//! queue is the tunnel's own, and how long packets wait in it is known, so that one equation keeps it at its target. Once
//! per round trip
//!
//! ```text
//! limit = in flight × (1 + (target − wait) / round trip)
//! ```
//!
//! with the most that was in flight and the least time that packets waited in it: by Little's law, in flight over
//! round trip is the flow's rate.
//!
//! The window is lowered only: what the receiver announces is never exceeded. A flow whose queue stays below the target is
//! left alone, and so is one whose SYNs were not seen on both ways, for then its windows' scale is unknown (RFC 7323 §2.2).
//! A sender has to bear a window that shrinks (RFC 9293 §3.8.6).

use std::time::Duration;

use packet::{Tcp, tcp};

/// A sender is always let have so much in flight, bytes: enough for fast retransmit (RFC 5681 §3.2).
const MIN_LIMIT: f64 = 16_384.0;
/// A limit that would be larger is none.
const MAX_LIMIT: f64 = (64 << 20) as f64;
/// By so much a limit grows in a round trip at most.
const GROWTH: f64 = 2.0;
/// A sender that uses less than this share of its limit is held by something else.
const USED: f64 = 0.7;

/// A receiver whose window grows by less in a round trip has its last one, and holds a sender that has so much of it in flight.
const GROWING: f64 = 1.1;
const HELD: f64 = 0.75;
/// Acknowledgements that are passed on in a round trip.
const PER_ROUND: u32 = 6;
/// With so few bytes in flight, ten packets, each is.
const FEW: u32 = 14_000;

/// One flow, from this end of the tunnel to the other.
#[derive(Debug, Default)]
pub struct Window {
    /// Which flow: its hash.
    flow: u64,
    /// This end's SYN offered to scale windows.
    offers: bool,
    /// What the other end's SYN said of its windows' scale, 0 if nothing; `None` if it was not seen.
    scale: Option<u8>,
    /// The sequence number after the highest sent, and the highest acknowledged.
    next: u32,
    acknowledged: u32,
    /// Bytes that may be in flight.
    limit: Option<f64>,
    /// The window that the receiver announces, and the one that it announced as it last held the sender.
    announced: u32,
    held_by: Option<u32>,
    round: Option<Round>,
    /// The highest acknowledgement that came back, and the highest that was passed on.
    returned: u32,
    passed: u32,
}

/// From the sending of a segment to its acknowledgement.
#[derive(Debug)]
struct Round {
    since: Duration,
    /// The sequence number after the segment, and the bytes in flight with it.
    until: u32,
    in_flight: u32,
    announced: u32,
    least_wait: Duration,
}

impl Window {
    /// Whether the flow is told what it may have in flight.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// The receiver's window, if that holds the sender and does not grow.
    pub fn held_by(&self) -> Option<u32> {
        self.held_by
    }

    /// Bytes that a flow that can be told has left, as far as can be told: what is in flight, and as much again, but no more than its
    /// receiver takes.
    pub fn left(&self) -> Option<f64> {
        self.scale.map(|_| f64::from(self.in_flight().saturating_mul(2).min(self.announced)))
    }

    /// Whether an acknowledgement that comes back to the sender of `flow` is to be passed on.
    ///
    /// Not if it is one of more than [`PER_ROUND`] in a round trip, and says but that so much more has arrived; a later one will
    /// say that as well. Slow start ends where eight in a round trip find it longer than before (HyStart++, RFC 9406 §4.2; Linux
    /// takes nine), which over several paths says only that a slower one has come into use.
    pub fn passes(&mut self, flow: u64, segment: &Tcp<'_>) -> bool {
        let ack = segment.acknowledgment();
        let plain = segment.payload().is_empty()
            && segment.flags() & !tcp::PSH == tcp::ACK
            && segment.sack_blocks() == 0;
        let step = ack.wrapping_sub(self.passed);
        let known = self.flow == flow && self.scale.is_some();
        let more = is_after(ack, self.returned);
        if more {
            self.returned = ack;
        }
        let little = self.next.wrapping_sub(self.passed) <= FEW || ack == self.next;
        let passes =
            !known || !plain || !more || little || step >= self.next.wrapping_sub(self.passed) / PER_ROUND;
        if passes && is_after(ack, self.passed) {
            self.passed = ack;
        }
        passes
    }

    /// A packet of the flow `flow` enters the queue, with this TCP segment if it has one. Two flows that share this place
    /// are both left alone.
    pub fn handle_sent(&mut self, now: Duration, flow: u64, segment: Option<&Tcp<'_>>) {
        if self.flow != flow {
            *self = Self { flow, ..Self::default() };
        }
        let Some(segment) = segment else { return };
        let end = segment.sequence().wrapping_add(segment.payload().len() as u32);
        if segment.flags() & tcp::SYN != 0 {
            // An answer comes after the other end's SYN.
            let scale = self.scale.filter(|_| segment.flags() & tcp::ACK != 0);
            let (offers, next) = (segment.window_scale().is_some(), end.wrapping_add(1));
            *self = Self {
                flow,
                offers,
                scale,
                next,
                acknowledged: next,
                returned: next,
                passed: next,
                ..Self::default()
            };
        } else if is_after(end, self.next) {
            self.next = end;
            let in_flight = self.in_flight();
            let announced = self.announced;
            self.round.get_or_insert(Round {
                since: now,
                until: end,
                in_flight,
                announced,
                least_wait: Duration::MAX,
            });
        }
    }

    /// A packet leaves the queue in which it waited so long.
    pub fn handle_waited(&mut self, wait: Duration) {
        if let Some(round) = &mut self.round {
            round.least_wait = round.least_wait.min(wait);
        }
    }

    /// A segment comes back to the sender of `flow`, whose packets are to wait for `target` at most: what is to stand in
    /// its window field, if less than does.
    pub fn handle_returned(
        &mut self,
        now: Duration,
        flow: u64,
        segment: &Tcp<'_>,
        target: Duration,
    ) -> Option<u16> {
        let (syn, ack) = (segment.flags() & tcp::SYN != 0, segment.flags() & tcp::ACK != 0);
        if syn && (!ack || self.flow != flow) {
            *self = Self { flow, ..Self::default() };
        }
        if syn {
            self.scale = Some(segment.window_scale().unwrap_or(0));
            return None;
        }
        let scale = self.scale.filter(|_| self.flow == flow && ack)?;
        self.announced = u32::from(segment.window()) << if self.offers { scale } else { 0 };
        self.handle_acknowledged(now, segment.acknowledgment(), target);
        let field = self.limit? as u32 >> if self.offers { scale } else { 0 };
        (field < u32::from(segment.window())).then_some(field as u16)
    }

    fn handle_acknowledged(&mut self, now: Duration, acknowledged: u32, target: Duration) {
        // What was never sent cannot be acknowledged.
        if !is_after(acknowledged, self.acknowledged) || is_after(acknowledged, self.next) {
            return;
        }
        self.acknowledged = acknowledged;
        if let Some(round) = self.round.take_if(|round| !is_after(round.until, acknowledged)) {
            self.adjust(now, &round, target);
        }
    }

    /// The equation, at the end of a round trip.
    fn adjust(&mut self, now: Duration, round: &Round, target: Duration) {
        let trip = now.saturating_sub(round.since).as_secs_f64();
        if round.least_wait == Duration::MAX || trip == 0.0 {
            return;
        }
        let in_flight = f64::from(round.in_flight);
        let grows =
            f64::from(self.announced) > GROWING * f64::from(round.announced.max(self.held_by.unwrap_or(0)));
        if grows {
            self.held_by = None;
        } else if self.limit.is_none() && in_flight > HELD * f64::from(self.announced) {
            self.held_by = Some(self.announced);
        }
        let spare = target.as_secs_f64() - round.least_wait.as_secs_f64();
        let fits = in_flight * (1.0 + spare / trip);
        let limit = match self.limit {
            None if spare > 0.0 => return,
            None => fits,
            Some(limit) if in_flight < USED * limit || round.least_wait.is_zero() => limit * GROWTH,
            Some(limit) => fits.min(limit * GROWTH),
        };
        self.limit = Some(limit.max(MIN_LIMIT)).filter(|limit| *limit < MAX_LIMIT);
    }

    fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.acknowledged)
    }
}

/// Serial arithmetic (RFC 9293 §3.4).
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Ip;

    const MS: Duration = Duration::from_millis(1);
    const TARGET: Duration = Duration::from_millis(50);
    const SCALE: u8 = 7;
    /// Near the end of the number space, so that it wraps.
    const ISN: u32 = u32::MAX - 20_000;

    /// An IPv4 packet with a TCP segment; a SYN offers [`SCALE`].
    fn segment(flags: u8, seq: u32, ack: u32, window: u16, data: usize) -> Vec<u8> {
        let options: &[u8] = if flags & tcp::SYN != 0 { &[3, 3, SCALE, 0] } else { &[] };
        let header = 20 + options.len();
        let mut p = vec![0; 20 + header + data];
        let len = p.len() as u16;
        (p[0], p[8], p[9]) = (0x45, 64, 6);
        p[2..4].copy_from_slice(&len.to_be_bytes());
        p[24..28].copy_from_slice(&seq.to_be_bytes());
        p[28..32].copy_from_slice(&ack.to_be_bytes());
        (p[32], p[33]) = ((header as u8 / 4) << 4, flags);
        p[34..36].copy_from_slice(&window.to_be_bytes());
        p[40..40 + options.len()].copy_from_slice(options);
        p
    }

    fn parse(packet: &[u8]) -> Tcp<'_> {
        Tcp::parse(&Ip::parse(packet).unwrap()).unwrap()
    }

    fn send(w: &mut Window, now: Duration, flags: u8, seq: u32, data: usize) {
        w.handle_sent(now, 1, Some(&parse(&segment(flags, seq, 0, 0, data))));
    }

    fn returned(w: &mut Window, now: Duration, flags: u8, ack: u32, window: u16) -> Option<u16> {
        w.handle_returned(now, 1, &parse(&segment(flags, 0, ack, window, 0)), TARGET)
    }

    fn connected() -> Window {
        let mut w = Window::default();
        send(&mut w, MS, tcp::SYN, ISN.wrapping_sub(1), 0);
        assert_eq!(returned(&mut w, MS, tcp::SYN | tcp::ACK, ISN, 60_000), None);
        w
    }

    /// A round trip of 100 ms with `bytes` in flight, of which every packet waited so long; the window that comes of it.
    fn round(w: &mut Window, from: u32, bytes: usize, wait: Duration) -> Option<u16> {
        // All but a byte is under way when the round begins.
        w.next = from.wrapping_add(bytes as u32 - 1);
        w.acknowledged = from;
        send(w, 100 * MS, tcp::ACK, w.next, 1);
        w.handle_waited(wait);
        returned(w, 200 * MS, tcp::ACK, from.wrapping_add(bytes as u32), 60_000)
    }

    #[test]
    fn a_queue_beyond_its_target_is_taken_out_of_the_window() {
        let mut w = connected();
        assert_eq!(round(&mut w, ISN, 40_000, 49 * MS), None);
        // 40 ms too long of 100: 24,000 of 40,000 bytes fit.
        let from = ISN.wrapping_add(40_000);
        assert_eq!(round(&mut w, from, 40_000, 90 * MS), Some(24_000 >> SCALE));
        // 25 ms too short of 100, of a sender that used all it had: a quarter more.
        assert_eq!(round(&mut w, from.wrapping_add(40_000), 24_000, 25 * MS), Some(30_000 >> SCALE));
    }

    #[test]
    fn a_window_below_the_limit_is_left_as_it_is() {
        let mut w = connected();
        round(&mut w, ISN, 40_000, 90 * MS);
        let ack = w.next;
        assert_eq!(returned(&mut w, MS, tcp::ACK, ack, 24_000 >> SCALE), None);
        assert_eq!(returned(&mut w, MS, tcp::ACK, ack, 0), None);
        assert!(returned(&mut w, MS, tcp::ACK, ack, 60_000).is_some());
    }

    #[test]
    fn a_limit_that_does_not_hold_its_sender_grows_until_it_is_none() {
        let mut w = connected();
        round(&mut w, ISN, 40_000, 90 * MS);
        for _ in 0..60 {
            let from = w.next;
            round(&mut w, from, 1000, 10 * MS);
        }
        assert!(!w.is_limited());
    }

    #[test]
    fn a_flow_whose_beginning_was_not_seen_is_left_alone() {
        let mut w = Window::default();
        send(&mut w, MS, tcp::ACK, ISN, 1000);
        assert_eq!(round(&mut w, ISN, 40_000, 90 * MS), None);
        assert!(!w.is_limited());
    }

    #[test]
    fn without_scaling_on_both_ends_windows_are_bytes() {
        let mut w = connected();
        w.offers = false;
        assert_eq!(round(&mut w, ISN, 40_000, 90 * MS), Some(24_000));
    }

    #[test]
    fn the_other_end_may_begin() {
        let mut w = Window::default();
        assert_eq!(returned(&mut w, MS, tcp::SYN, 0, 60_000), None);
        send(&mut w, MS, tcp::SYN | tcp::ACK, ISN.wrapping_sub(1), 0);
        assert_eq!(round(&mut w, ISN, 40_000, 90 * MS), Some(24_000 >> SCALE));
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_says_nothing() {
        let mut w = connected();
        send(&mut w, MS, tcp::ACK, ISN, 1000);
        w.handle_waited(90 * MS);
        for ack in [ISN.wrapping_add(1001), ISN.wrapping_add(1 << 30), ISN.wrapping_sub(1), ISN] {
            assert_eq!(returned(&mut w, 200 * MS, tcp::ACK, ack, 60_000), None);
        }
        assert_eq!(w.acknowledged, ISN);
    }

    #[test]
    fn flows_that_share_a_place_and_packets_without_tcp_end_the_limit() {
        for stranger in [None, Some(segment(tcp::ACK, 5, 5, 5, 100))] {
            let mut w = connected();
            round(&mut w, ISN, 40_000, 90 * MS);
            assert!(w.is_limited());
            w.handle_sent(MS, 2, stranger.as_deref().map(parse).as_ref());
            assert!(!w.is_limited());
        }
    }

    /// A sender that obeys nothing but the window, through a link of 1 kB/ms with 60 ms of delay on the way back: whatever
    /// it begins with, packets come to wait for the target, and the link never idles.
    #[test]
    fn the_queue_settles_at_its_target() {
        let mut w = connected();
        let mut queue = std::collections::VecDeque::new();
        let mut acks = std::collections::VecDeque::new();
        let announced = (400_000 >> SCALE) as u16;
        let (mut next, mut acked, mut field) = (0u32, 0u32, announced);
        for ms in 0..6000 {
            let now = ms * MS;
            while acks.front().is_some_and(|(at, _)| *at <= now) {
                let (_, ack) = acks.pop_front().unwrap();
                acked = ack;
                field =
                    returned(&mut w, now, tcp::ACK, ISN.wrapping_add(ack), announced).unwrap_or(announced);
            }
            while next - acked + 1000 <= u32::from(field) << SCALE {
                send(&mut w, now, tcp::ACK, ISN.wrapping_add(next), 1000);
                next += 1000;
                queue.push_back((now, next));
            }
            let served = queue.pop_front();
            if let Some((since, end)) = served {
                w.handle_waited(now - since);
                acks.push_back((now + 60 * MS, end));
                if ms > 2000 {
                    let wait = now - since;
                    assert!(wait > TARGET / 2 && wait < TARGET * 3 / 2, "at {now:?} {wait:?}");
                }
            }
            assert!(served.is_some(), "idle at {now:?}");
        }
    }
}
