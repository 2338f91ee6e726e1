//! What one TCP flow through the tunnel may have in flight, told to its sender in the window of the acknowledgements that
//! come back to it.
//!
//! A sender that is told of a queue by a loss has its receiver wait a round trip for what was lost; told by the window, it
//! loses nothing and the receiver sees no pause. The queue is the tunnel's own, and so near the sender that it has room for
//! what may wait as soon as the sender hears of it:
//!
//! ```text
//! limit = most that was under way of late + what may wait
//! ```
//!
//! Under way is what the sender has in flight and does not wait here. A queue that ran empty of late might have given more: then
//! as much as is under way may wait.
//!
//! The window is lowered only: what the receiver announces is never exceeded. A flow of which nothing waits for long is
//! left alone, and so is one whose SYNs were not seen on both ways, for then its windows' scale is unknown (RFC 7323 §2.2).
//! A sender has to bear a window that shrinks (RFC 9293 §3.8.6).

use std::time::Duration;

use packet::{Tcp, tcp};

/// A sender is always let have so much in flight, bytes: enough for fast retransmit (RFC 5681 §3.2).
const MIN_LIMIT: f64 = 16_384.0;
/// Acknowledgements that are passed on in a round trip.
const PER_ROUND: u32 = 6;
/// With so few bytes in flight, ten packets, each is.
const FEW: u32 = 14_000;

/// What may wait of a flow.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    /// So many bytes.
    pub bytes: f64,
    /// A queue that does not run empty for so long stands.
    pub period: Duration,
}

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
    /// The window that the receiver announces.
    announced: u32,
    /// The most that was under way in this period and in the last, and since when this one is.
    under_way: [f64; 2],
    since: Duration,
    /// When nothing of the flow waited.
    dry: Duration,
    /// The highest acknowledgement that came back, and the highest that was passed on.
    returned: u32,
    passed: u32,
}

impl Window {
    /// Whether the flow is told what it may have in flight, and that is less than its receiver takes.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some_and(|limit| limit < f64::from(self.announced))
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
        if self.flow != flow || self.scale.is_none() {
            return true;
        }
        let ack = segment.acknowledgment();
        let plain = segment.payload().is_empty()
            && segment.flags() & !tcp::PSH == tcp::ACK
            && segment.sack_blocks() == 0;
        let step = ack.wrapping_sub(self.passed);
        let more = is_after(ack, self.returned);
        if more {
            self.returned = ack;
        }
        let little = self.next.wrapping_sub(self.passed) <= FEW || ack == self.next;
        let passes = !plain || !more || little || step >= self.next.wrapping_sub(self.passed) / PER_ROUND;
        if passes && is_after(ack, self.passed) {
            self.passed = ack;
        }
        passes
    }

    /// A packet of the flow `flow` enters the queue, with this TCP segment if it has one. Two flows that share this place
    /// are both left alone.
    pub fn handle_sent(&mut self, flow: u64, segment: Option<&Tcp<'_>>) {
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
        }
    }

    /// Nothing of the flow waits any more.
    pub fn handle_dry(&mut self, now: Duration) {
        self.dry = now;
    }

    /// A segment comes back to the sender of `flow`, of which so many bytes wait: what is to stand in its window field, if less
    /// than does.
    pub fn handle_returned(
        &mut self,
        now: Duration,
        flow: u64,
        segment: &Tcp<'_>,
        waiting: usize,
        queue: &Allowed,
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
        let acknowledged = segment.acknowledgment();
        // What was never sent cannot be acknowledged.
        if is_after(acknowledged, self.acknowledged) && !is_after(acknowledged, self.next) {
            self.acknowledged = acknowledged;
            self.adjust(now, waiting, queue);
        }
        let field = self.limit? as u32 >> if self.offers { scale } else { 0 };
        (field < u32::from(segment.window())).then_some(field as u16)
    }

    fn adjust(&mut self, now: Duration, waiting: usize, queue: &Allowed) {
        let under_way = (f64::from(self.in_flight()) - waiting as f64).max(0.0);
        if now >= self.since + queue.period {
            (self.under_way, self.since) = ([0.0, self.under_way[0]], now);
        }
        self.under_way[0] = self.under_way[0].max(under_way);
        let most = self.under_way[0].max(self.under_way[1]);
        let bytes = queue.bytes.max(MIN_LIMIT);
        if now >= self.dry + queue.period {
            self.limit = Some(most + bytes);
        } else if let Some(limit) = &mut self.limit {
            *limit = limit.max(most + bytes.max(most));
        }
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
    const QUEUE: Allowed = Allowed { bytes: 20_000.0, period: Duration::from_millis(200) };
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

    fn send(w: &mut Window, flags: u8, seq: u32, data: usize) {
        w.handle_sent(1, Some(&parse(&segment(flags, seq, 0, 0, data))));
    }

    /// An acknowledgement comes back while so many bytes wait.
    fn returned(w: &mut Window, now: Duration, ack: u32, window: u16, waiting: usize) -> Option<u16> {
        w.handle_returned(now, 1, &parse(&segment(tcp::ACK, 0, ack, window, 0)), waiting, &QUEUE)
    }

    fn answered(w: &mut Window, flags: u8) {
        let syn = segment(tcp::SYN | flags, 0, ISN, 60_000, 0);
        assert_eq!(w.handle_returned(MS, 1, &parse(&syn), 0, &QUEUE), None);
    }

    fn connected() -> Window {
        let mut w = Window::default();
        send(&mut w, tcp::SYN, ISN.wrapping_sub(1), 0);
        answered(&mut w, tcp::ACK);
        w
    }

    /// So many bytes are in flight, of which some wait; the window that an acknowledgement of a byte more leads to.
    fn in_flight(w: &mut Window, now: Duration, bytes: usize, waiting: usize) -> Option<u16> {
        while w.in_flight() <= bytes as u32 {
            let (next, more) = (w.next, bytes as u32 + 1 - w.in_flight());
            send(w, tcp::ACK, next, more.min(1000) as usize);
        }
        let ack = w.next.wrapping_sub(bytes as u32);
        returned(w, now, ack, 60_000, waiting)
    }

    #[test]
    fn a_queue_that_stands_is_cut_to_what_may_wait() {
        let mut w = connected();
        w.handle_dry(MS);
        assert_eq!(in_flight(&mut w, 2 * MS, 40_000, 10_000), None, "it was empty just now");
        // 30 kB were under way, 20 may wait.
        assert_eq!(in_flight(&mut w, 300 * MS, 90_000, 70_000), Some((50_000_u32 >> SCALE) as u16));
        // The most in two periods counts.
        assert_eq!(in_flight(&mut w, 550 * MS, 90_000, 80_000), Some((40_000_u32 >> SCALE) as u16));
    }

    #[test]
    fn a_queue_that_ran_empty_may_be_as_much_as_is_under_way() {
        let mut w = connected();
        in_flight(&mut w, 300 * MS, 90_000, 60_000);
        w.handle_dry(500 * MS);
        assert_eq!(in_flight(&mut w, 501 * MS, 45_000, 0), Some((90_000_u32 >> SCALE) as u16));
        assert!(w.is_limited());
    }

    #[test]
    fn a_window_below_the_limit_is_left_as_it_is() {
        let mut w = connected();
        assert!(in_flight(&mut w, 300 * MS, 90_000, 60_000).is_some());
        let ack = w.next;
        assert_eq!(returned(&mut w, 301 * MS, ack, 24_000 >> SCALE, 0), None);
        assert_eq!(returned(&mut w, 301 * MS, ack, 0, 0), None);
        assert!(returned(&mut w, 301 * MS, ack, 60_000, 0).is_some());
    }

    #[test]
    fn a_flow_whose_beginning_was_not_seen_is_left_alone() {
        let mut w = Window::default();
        send(&mut w, tcp::ACK, ISN, 1000);
        assert_eq!(in_flight(&mut w, 300 * MS, 90_000, 60_000), None);
        assert!(!w.is_limited());
    }

    #[test]
    fn without_scaling_on_both_ends_windows_are_bytes() {
        let mut w = connected();
        w.offers = false;
        assert_eq!(in_flight(&mut w, 300 * MS, 90_000, 70_000), Some(40_000));
    }

    #[test]
    fn the_other_end_may_begin() {
        let mut w = Window::default();
        answered(&mut w, 0);
        send(&mut w, tcp::SYN | tcp::ACK, ISN.wrapping_sub(1), 0);
        assert_eq!(in_flight(&mut w, 300 * MS, 90_000, 70_000), Some((40_000_u32 >> SCALE) as u16));
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_says_nothing() {
        let mut w = connected();
        send(&mut w, tcp::ACK, ISN, 1000);
        for ack in [ISN.wrapping_add(1001), ISN.wrapping_add(1 << 30), ISN.wrapping_sub(1), ISN] {
            assert_eq!(returned(&mut w, 300 * MS, ack, 60_000, 1000), None);
        }
        assert_eq!(w.acknowledged, ISN);
    }

    #[test]
    fn acknowledgements_of_another_flow_say_nothing() {
        let mut w = connected();
        send(&mut w, tcp::ACK, ISN, 20_000);
        let ack = |of: u32| segment(tcp::ACK, 0, ISN.wrapping_add(of), 60_000, 0);
        // Had it counted, what is acknowledged next would be old.
        assert!(w.passes(2, &parse(&ack(19_000))));
        assert!(!w.passes(1, &parse(&ack(100))));
    }

    #[test]
    fn flows_that_share_a_place_and_packets_without_tcp_end_the_limit() {
        for stranger in [None, Some(segment(tcp::ACK, 5, 5, 5, 100))] {
            let mut w = connected();
            in_flight(&mut w, 300 * MS, 90_000, 70_000);
            assert!(w.is_limited());
            w.handle_sent(2, stranger.as_deref().map(parse).as_ref());
            assert!(!w.is_limited());
        }
    }

    /// A sender that obeys nothing but the window, through a link of 1 kB/ms with 60 ms of delay on the way back: whatever
    /// it begins with, no more comes to wait than may, and the link never idles.
    #[test]
    fn the_queue_settles_at_what_may_wait() {
        let mut w = connected();
        let mut queue = std::collections::VecDeque::new();
        let mut acks = std::collections::VecDeque::new();
        let announced = (400_000 >> SCALE) as u16;
        let (mut next, mut acked, mut field) = (0u32, 0u32, announced);
        for ms in 0..6000 {
            let now = ms * MS;
            while acks.front().is_some_and(|(at, _)| *at <= now) {
                (_, acked) = acks.pop_front().unwrap();
                let waiting = queue.len() * 1000;
                field =
                    returned(&mut w, now, ISN.wrapping_add(acked), announced, waiting).unwrap_or(announced);
            }
            while next - acked + 1000 <= u32::from(field) << SCALE {
                send(&mut w, tcp::ACK, ISN.wrapping_add(next), 1000);
                next += 1000;
                queue.push_back(next);
            }
            if ms > 2000 {
                let waiting = queue.len() as f64 * 1000.0;
                assert!(waiting > QUEUE.bytes / 2.0 && waiting < QUEUE.bytes * 1.5, "at {now:?} {waiting}");
            }
            let end = queue.pop_front().unwrap_or_else(|| panic!("idle at {now:?}"));
            acks.push_back((now + 60 * MS, end));
        }
    }
}
