//! What one path has in flight, what of it was lost, and when the path is taken to be silent.
//!
//! Loss is told per path, by its own sequence (RFC 9002 §6.1 in spirit): a packet is lost when one sent enough packets
//! later has arrived. How many are enough adapts: a packet that arrives after it was declared lost raises the threshold to
//! its displacement (RFC 8985 §6.2). A path on which data is overdue, and from which nothing has come back for its probe
//! time-out, is silent: what is overdue is handed back, the oldest first, and the path gets nothing but probes until it
//! answers. One probe that is not reported only puts it in doubt: the report may have been lost elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::Report;
use crate::rate::{Rate, Snapshot};

/// RFC 9002 §6.1.1.
const FIRST_THRESHOLD: u64 = 3;
const MAX_THRESHOLD: u64 = 1024;
/// A report waits at most this long at the receiver, with its timers' slack.
const REPORT_DELAY: Duration = Duration::from_millis(30);
/// More than that beyond what is expected, and a packet is overdue.
const LATE: Duration = Duration::from_millis(100);
const MIN_VARIATION: Duration = Duration::from_millis(30);
/// Before a round trip was measured.
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// A silent path is probed at least this often.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// UDP payloads larger than this carry inner packets beyond IPv6's least MTU, whatever is around them.
const LARGE: u32 = 1280 + 12 + 44;
/// So many large packets lost over so long, and none arrived though smaller ones did: large ones do not pass (RFC 8899
/// §4.3).
const SWALLOWED: u32 = 8;
const SWALLOWED_FOR: Duration = Duration::from_millis(300);
/// What a path forgets of packets that nothing was heard of.
const MAX_TRACKED: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Lost,
    Acked,
}

#[derive(Debug)]
struct Packet {
    state: State,
    bytes: u32,
    /// The order sequence of the data it carries.
    order: Option<u64>,
    /// The size it probes, as an outer IP packet.
    probed: Option<u16>,
    snapshot: Snapshot,
    at: Duration,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An inner packet of this order sequence.
    Data(u64),
    /// Something to be acknowledged; it may probe this size of an outer IP packet.
    Probe(Option<u16>),
    /// Feedback.
    Report,
}

/// What a report or a time-out says about what was sent. Reused, so that no allocation is made per report.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Order sequences that arrived.
    pub confirmed: Vec<u64>,
    /// Order sequences whose packet is taken to be lost.
    pub lost: Vec<u64>,
    /// Probed sizes that arrived.
    pub probed: Vec<u16>,
    /// Whether anything new was acknowledged.
    pub progress: bool,
}

impl Outcome {
    /// Empties it.
    pub fn clear(&mut self) {
        self.confirmed.clear();
        self.lost.clear();
        self.probed.clear();
        self.progress = false;
    }
}

/// Smoothed round-trip time (RFC 6298 §2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl Rtt {
    fn add(&mut self, rtt: Duration) {
        let Some(smoothed) = self.smoothed else {
            *self = Rtt { smoothed: Some(rtt), variation: rtt / 2 };
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
    }

    /// The smoothed round-trip time, once measured.
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// What is not reported for this long is lost (RFC 9002 §6.2.1).
    fn probe_timeout(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL_RTT) + self.patience()
    }

    /// How much later than expected a report may come.
    fn patience(&self) -> Duration {
        (self.variation * 4).max(MIN_VARIATION) + REPORT_DELAY
    }
}

/// The sending side of one path.
#[derive(Debug)]
pub struct Sent {
    base: u64,
    packets: VecDeque<Packet>,
    in_flight: usize,
    largest_acked: Option<u64>,
    /// When that was sent, and when it arrived by the receiver's clock, µs.
    newest: (Duration, u32),
    threshold: u64,
    rtt: Rtt,
    /// The oldest packet in flight, or where to look for it.
    oldest: u64,
    /// When something was last acknowledged, or sent while nothing was in flight.
    last_progress: Duration,
    /// A probe was not reported, and nothing since.
    in_doubt: bool,
    /// Probes wanted since the path fell silent, when that was, and when the next is due.
    silent: u32,
    silent_since: Duration,
    next_probe: Duration,
    /// Since the silence began, something sent before it was acknowledged: the path was slow, not dead (as F-RTO has it,
    /// RFC 5682), and still is what it was.
    was_slow: bool,
    sent_packets: u64,
    sent_bytes: u64,
    lost_packets: u64,
    /// Large packets lost since one arrived: how many, when the first and the last of them were sent.
    swallowed: (u32, Duration, Duration),
    /// The path's model.
    pub rate: Rate,
}

impl Default for Sent {
    fn default() -> Self {
        Sent {
            base: 0,
            packets: VecDeque::new(),
            in_flight: 0,
            largest_acked: None,
            newest: (Duration::ZERO, 0),
            threshold: FIRST_THRESHOLD,
            rtt: Rtt::default(),
            oldest: 0,
            last_progress: Duration::ZERO,
            in_doubt: false,
            silent: 0,
            silent_since: Duration::ZERO,
            next_probe: Duration::ZERO,
            was_slow: false,
            sent_packets: 0,
            sent_bytes: 0,
            lost_packets: 0,
            swallowed: (0, Duration::ZERO, Duration::ZERO),
            rate: Rate::new(),
        }
    }
}

impl Sent {
    /// The next packet's path sequence.
    pub fn next_sequence(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// Records the packet that takes [`next_sequence`](Self::next_sequence). `size` is its UDP payload's.
    pub fn handle_sent(&mut self, now: Duration, size: usize, content: Content) {
        let (order, probed) = match content {
            Content::Data(order) => (Some(order), None),
            Content::Probe(size) => (None, size),
            Content::Report => (None, None),
        };
        // Nobody reports the arrival of a report by itself, and a size that does not pass is no loss: neither is in flight.
        let bytes = if matches!(content, Content::Data(_) | Content::Probe(None)) { size } else { 0 };
        if bytes > 0 && self.in_flight == 0 && self.silent == 0 {
            self.last_progress = now;
        }
        let mut snapshot = self.rate.handle_sent(now, bytes, self.in_flight);
        if order.is_none() {
            snapshot = snapshot.app_limited();
        }
        self.packets.push_back(Packet {
            state: State::InFlight,
            bytes: bytes as u32,
            order,
            probed,
            snapshot,
            at: now,
        });
        self.in_flight += bytes;
        if self.in_flight == bytes {
            self.find_oldest();
        }
        self.sent_packets += 1;
        self.sent_bytes += size as u64;
        if self.packets.len() > MAX_TRACKED {
            self.forget_first();
        }
    }

    /// The receiver's report about this path.
    pub fn handle_report(&mut self, now: Duration, report: &Report, out: &mut Outcome) {
        let (mut acked, mut largest) = (0, None);
        for range in &report.ranges {
            let low = (*range.start()).max(self.base);
            let high = (*range.end()).min(self.next_sequence().wrapping_sub(1));
            if self.packets.is_empty() || low > high {
                continue;
            }
            for sequence in low..=high {
                acked += self.ack(sequence, out);
            }
            if out.progress && largest.is_none() {
                largest = Some(high);
            }
        }
        if let Some(sequence) = largest.filter(|_| out.progress) {
            self.progress(now, report, sequence, acked);
        }
        self.detect_lost(out);
        self.find_oldest();
        self.forget();
    }

    /// What has been in flight for longer than the probe time-out is handed back as lost, and the path is silent; or, if it
    /// was one probe only, whose report may have been lost elsewhere, in doubt. True if it should be probed (again).
    pub fn handle_timeout(&mut self, now: Duration, out: &mut Outcome) -> bool {
        let mut falls_silent = false;
        if self.overdue_at().is_some_and(|t| t <= now) {
            let data = self.lose_overdue(now, out);
            let in_doubt = std::mem::replace(&mut self.in_doubt, true);
            falls_silent = self.silent == 0 && (data || in_doubt);
            if self.silent == 0 && !falls_silent {
                return true;
            }
        }
        if falls_silent {
            (self.silent_since, self.was_slow) = (now, false);
        } else if self.silent == 0 || now < self.next_probe {
            return false;
        }
        self.silent = self.silent.saturating_add(1);
        let backoff = self.rtt.probe_timeout() * (1 << self.silent.min(6));
        self.next_probe = now + backoff.min(MAX_PROBE_INTERVAL);
        true
    }

    /// The path is about to be forgotten, or there is no way to send on it any more: everything in flight is handed back as lost.
    pub fn abandon(&mut self, out: &mut Outcome) {
        (0..self.packets.len()).for_each(|i| self.lose(i, out));
        self.find_oldest();
    }

    /// The path leads elsewhere from now on: what was in flight is handed back as lost, and unless it is the same host
    /// nothing is known of its links any more (RFC 9000 §9.4).
    pub fn handle_move(&mut self, now: Duration, same_host: bool, out: &mut Outcome) {
        self.abandon(out);
        if !same_host {
            self.rtt = Rtt::default();
            self.rate.handle_move();
        }
        self.silent = 0;
        self.last_progress = now;
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let probe = (self.silent > 0).then_some(self.next_probe);
        self.overdue_at().into_iter().chain(probe).min()
    }

    /// How long from now a report on what is sent now should take at most, as the path was at its best of late: what was
    /// smoothed over an outage would say as long as that.
    pub fn report_expected_in(&self) -> Duration {
        (self.least_rtt() + self.rate.transmit_time(self.in_flight)) * 3 / 2 + LATE
    }

    /// Whether something is in flight, and nothing was reported for longer than that takes: the path may have died.
    pub fn is_late(&self, now: Duration) -> bool {
        let since = self.oldest().map(|oldest| oldest.at.max(self.last_progress));
        since.is_some_and(|since| now > since + self.least_rtt() * 3 / 2 + LATE / 2)
    }

    fn least_rtt(&self) -> Duration {
        self.rate.min_rtt().or(self.rtt.smoothed()).unwrap_or(INITIAL_RTT)
    }

    /// When the oldest packet in flight is to be given up: not while others are acknowledged, for it may yet be.
    fn overdue_at(&self) -> Option<Duration> {
        let overdue = self.oldest()?.at + self.rtt.probe_timeout();
        Some(if self.silent > 0 {
            overdue
        } else {
            overdue.max(self.last_progress + self.rtt.probe_timeout())
        })
    }

    /// Whether nothing has come back for a probe time-out.
    pub fn is_silent(&self) -> bool {
        self.silent > 0
    }

    /// Probe time-outs since something last came back.
    pub fn silences(&self) -> u32 {
        self.silent
    }

    /// Whether large packets have stopped to arrive while others did not. Once told, it takes as many again.
    pub fn take_swallowing(&mut self) -> bool {
        let (count, first, last) = self.swallowed;
        let swallows = count >= SWALLOWED && last >= first + SWALLOWED_FOR;
        if swallows {
            self.swallowed.0 = 0;
        }
        swallows
    }

    /// Bytes sent and neither acknowledged nor taken to be lost.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Round-trip time.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Packets sent, bytes sent, packets lost.
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.sent_packets, self.sent_bytes, self.lost_packets)
    }

    /// True if there was data among it.
    fn lose_overdue(&mut self, now: Duration, out: &mut Outcome) -> bool {
        let timeout = self.rtt.probe_timeout();
        let mut data = false;
        while let Some(packet) = self.oldest().filter(|p| p.at + timeout <= now) {
            data |= packet.order.is_some();
            self.lose((self.oldest - self.base) as usize, out);
            self.find_oldest();
        }
        data
    }

    /// The oldest packet in flight that counts.
    fn oldest(&self) -> Option<&Packet> {
        self.packets.get(self.oldest.checked_sub(self.base)? as usize).filter(|_| self.in_flight > 0)
    }

    fn find_oldest(&mut self) {
        let counts = |p: &Packet| p.state == State::InFlight && p.bytes > 0;
        self.oldest = self.oldest.max(self.base);
        let behind = self.packets.range((self.oldest - self.base) as usize..);
        self.oldest += behind.take_while(|p| !counts(p)).count() as u64;
    }

    fn ack(&mut self, sequence: u64, out: &mut Outcome) -> usize {
        let packet = &mut self.packets[(sequence - self.base) as usize];
        let was = std::mem::replace(&mut packet.state, State::Acked);
        if was == State::Acked {
            return 0;
        }
        if packet.bytes > LARGE {
            self.swallowed.0 = 0;
        }
        let bytes = packet.bytes as usize;
        // Sent before the silence.
        self.was_slow |= self.silent > 0 && packet.order.is_some() && packet.at < self.silent_since;
        out.progress = true;
        out.confirmed.extend(packet.order.take());
        out.probed.extend(packet.probed.take());
        if was == State::Lost {
            self.lost_packets -= 1;
            let displaced = self.largest_acked.unwrap_or(0).saturating_sub(sequence) + 1;
            if self.silent == 0 {
                self.threshold = self.threshold.max(displaced).min(MAX_THRESHOLD);
            }
            return 0;
        }
        self.in_flight -= bytes;
        bytes
    }

    fn progress(&mut self, now: Duration, report: &Report, sequence: u64, acked: usize) {
        let packet = &self.packets[(sequence - self.base) as usize];
        let waited = Duration::from_micros(u64::from(report.report_delay));
        // By the peer's clock, which may have been set meanwhile, or lie.
        let waited = Some(waited).filter(|w| *w <= REPORT_DELAY);
        let rtt = waited.map(|waited| now.saturating_sub(packet.at).saturating_sub(waited));
        let snapshot = packet.snapshot;
        let is_new = self.largest_acked.is_none_or(|l| sequence > l);
        let at = packet.at;
        let arrived_late = self.grown(at, report.arrival);
        if is_new {
            (self.largest_acked, self.newest) = (Some(sequence), (at, report.arrival));
        }
        let before_silence = self.silent > 0 && at < self.silent_since;
        if before_silence && now > at + arrived_late + self.rtt.probe_timeout() {
            // It was the report that took long. What it tells was so before the silence.
            self.rate.handle_acked_late(now, acked, self.in_flight);
            return;
        }
        if std::mem::take(&mut self.silent) > 0 {
            // The round trips of what was sent into the silence say when it ended, not how long the path is.
            self.rtt = Rtt::default();
            if !std::mem::take(&mut self.was_slow) {
                self.rate.restart();
            }
        }
        (self.last_progress, self.in_doubt) = (now, false);
        match rtt.filter(|_| is_new) {
            Some(rtt) => {
                self.rtt.add(rtt);
                self.rate.handle_acked(now, acked, &snapshot, report.arrival, rtt, self.in_flight);
            }
            None => self.rate.handle_acked_late(now, acked, self.in_flight),
        }
    }

    /// By how much longer than the newest before it a packet sent at `at` was under way.
    fn grown(&self, at: Duration, arrival: u32) -> Duration {
        let (sent, arrived) = self.newest;
        let between = arrival.wrapping_sub(arrived).cast_signed().max(0).cast_unsigned();
        let between = Duration::from_micros(between.into());
        if self.largest_acked.is_some() {
            between.saturating_sub(at.saturating_sub(sent))
        } else {
            Duration::ZERO
        }
    }

    fn detect_lost(&mut self, out: &mut Outcome) {
        let Some(largest) = self.largest_acked else { return };
        let below = (largest + 1).saturating_sub(self.threshold).saturating_sub(self.base) as usize;
        for i in 0..below.min(self.packets.len()) {
            self.lose(i, out);
        }
    }

    fn lose(&mut self, i: usize, out: &mut Outcome) {
        let packet = &mut self.packets[i];
        if packet.state != State::InFlight {
            return;
        }
        packet.state = State::Lost;
        if packet.bytes > LARGE {
            let (count, first, _) = self.swallowed;
            self.swallowed = (count + 1, if count == 0 { packet.at } else { first }, packet.at);
        }
        self.in_flight -= packet.bytes as usize;
        self.lost_packets += 1;
        // The order sequence stays: should the packet arrive after all, that confirms it.
        out.lost.extend(packet.order);
    }

    /// Forgets what is settled, but remembers losses for a while, to notice those that were none.
    fn forget(&mut self) {
        let keep = self.largest_acked.unwrap_or(0).saturating_sub(MAX_THRESHOLD);
        while let Some(first) = self.packets.front() {
            let done = first.state == State::Acked || (first.state == State::Lost && self.base < keep);
            if !done {
                break;
            }
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.packets.pop_front() {
            self.base += 1;
            if first.state == State::InFlight {
                self.in_flight -= first.bytes as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn send(s: &mut Sent, at: u32, n: u64) {
        for _ in 0..n {
            let order = s.next_sequence();
            s.handle_sent(at * MS, 1000, Content::Data(order));
        }
    }

    fn report(s: &mut Sent, at: u32, ranges: &[(u64, u64)]) -> Outcome {
        let mut out = Outcome::default();
        let ranges = ranges.iter().map(|r| r.0..=r.1).collect();
        s.handle_report(at * MS, &Report { ranges, arrival: at * 1000, ..Report::default() }, &mut out);
        out
    }

    #[test]
    fn a_packet_is_lost_when_three_later_ones_arrived() {
        let mut s = Sent::default();
        send(&mut s, 0, 5);
        assert_eq!(report(&mut s, 20, &[(1, 2)]).lost, []);
        let out = report(&mut s, 21, &[(1, 3)]);
        assert_eq!((out.confirmed, out.lost), (vec![3], vec![0]));
        assert_eq!(s.in_flight(), 1000);
        assert_eq!(s.totals().2, 1);
    }

    #[test]
    fn a_path_that_reorders_is_given_more_time() {
        let mut s = Sent::default();
        send(&mut s, 0, 20);
        assert_eq!(report(&mut s, 20, &[(1, 5)]).lost, [0]);
        let out = report(&mut s, 21, &[(0, 5)]);
        assert_eq!((out.confirmed, s.totals().2), (vec![0], 0));
        assert_eq!(report(&mut s, 22, &[(7, 11), (0, 5)]).lost, []);
        assert_eq!(report(&mut s, 22, &[(7, 12), (0, 5)]).lost, [6]);
    }

    #[test]
    fn silence_hands_everything_back_and_ends_with_an_answer() {
        let mut s = Sent::default();
        send(&mut s, 0, 3);
        report(&mut s, 20, &[(0, 0)]);
        let timeout = s.poll_timeout().unwrap();
        let mut out = Outcome::default();
        assert!(!s.handle_timeout(timeout - MS, &mut out));
        assert!(s.handle_timeout(timeout, &mut out));
        assert_eq!((&out.lost[..], s.in_flight(), s.is_silent()), (&[1, 2][..], 0, true));
        let again = s.poll_timeout().unwrap();
        assert!(again > timeout && again <= timeout + MAX_PROBE_INTERVAL);
        assert_eq!(report(&mut s, 900, &[(0, 2)]).confirmed, [1, 2]);
        assert!(!s.is_silent());
    }

    /// What a path is taken to carry before it falls silent with two packets under way, and after a report of `ranges`.
    fn rates_around_a_silence(ranges: &[(u64, u64)]) -> (f64, f64) {
        let mut s = Sent::default();
        send(&mut s, 0, 3);
        report(&mut s, 20, &[(0, 0)]);
        send(&mut s, 20, 3);
        report(&mut s, 40, &[(0, 3)]);
        let before = s.rate.bytes_per_second().unwrap();
        let mut out = Outcome::default();
        assert!(s.handle_timeout(s.poll_timeout().unwrap(), &mut out));
        s.handle_sent(500 * MS, 50, Content::Probe(None));
        report(&mut s, 900, ranges);
        assert!(!s.is_silent());
        (before, s.rate.bytes_per_second().unwrap_or(0.0))
    }

    #[test]
    fn a_path_that_was_dead_is_measured_anew_and_one_that_was_slow_is_not() {
        let (before, after) = rates_around_a_silence(&[(6, 6), (0, 3)]);
        assert!(after < before / 10.0, "{after} of {before}");
        let (before, after) = rates_around_a_silence(&[(0, 6)]);
        assert_eq!(after, before);
    }

    /// Whether a path with packets under way that fell silent is so still when, 80 ms later, a report says that the first
    /// of them arrived `transit` ms after it was sent.
    fn silent_after(transit: u32) -> bool {
        let mut s = Sent::default();
        send(&mut s, 0, 1);
        report(&mut s, 20, &[(0, 0)]);
        send(&mut s, 30, 2);
        let falls_silent = s.poll_timeout().unwrap();
        assert!(s.handle_timeout(falls_silent, &mut Outcome::default()) && s.is_silent());
        let late = Report { arrival: (30 + transit) * 1000, ranges: vec![0..=1], ..Report::default() };
        s.handle_report(falls_silent + 80 * MS, &late, &mut Outcome::default());
        s.is_silent()
    }

    #[test]
    fn a_late_report_of_what_arrived_in_time_ends_no_silence_and_what_arrived_late_does() {
        assert!(silent_after(20));
        assert!(!silent_after(130));
    }

    #[test]
    fn a_path_that_goes_hands_everything_back_at_once() {
        let mut s = Sent::default();
        send(&mut s, 0, 3);
        let mut out = Outcome::default();
        s.abandon(&mut out);
        assert_eq!((&out.lost[..], s.in_flight(), s.next_sequence()), (&[0, 1, 2][..], 0, 3));
    }

    #[test]
    fn markers_in_a_pause_do_not_lower_what_the_path_is_taken_to_carry() {
        let mut s = Sent::default();
        for t in 0..200 {
            send(&mut s, t, 1);
            if let Some(arrived) = t.checked_sub(20) {
                report(&mut s, t, &[(0, arrived.into())]);
            }
        }
        let rate = s.rate.bytes_per_second().unwrap();
        assert!(rate > 900_000.0, "{rate}: a packet of 1000 bytes each millisecond");
        for t in (300..6000).step_by(250) {
            let marker = s.next_sequence();
            s.handle_sent(t * MS, 60, Content::Probe(None));
            report(&mut s, t + 20, &[(0, marker)]);
        }
        assert!(s.rate.bytes_per_second().unwrap() >= rate);
    }

    #[test]
    fn a_wait_that_no_report_has_is_no_part_of_a_round_trip() {
        let mut s = Sent::default();
        send(&mut s, 0, 1);
        report(&mut s, 50, &[(0, 0)]);
        // The receiver's clock was set forward by 45 ms between an arrival and its report.
        send(&mut s, 100, 1);
        let set = Report { path: 0, report_delay: 45_000, ranges: vec![0..=1], ..Report::default() };
        s.handle_report(150 * MS, &set, &mut Outcome::default());
        assert_eq!((s.in_flight(), s.rate.min_rtt()), (0, Some(50 * MS)));
    }

    #[test]
    fn reports_of_what_was_never_sent_change_nothing() {
        let mut s = Sent::default();
        assert!(!report(&mut s, 1, &[(0, 9)]).progress);
        send(&mut s, 1, 2);
        assert!(!report(&mut s, 2, &[(5, u64::MAX - 1)]).progress);
        assert_eq!(report(&mut s, 3, &[(0, u64::MAX - 1)]).confirmed, [0, 1]);
        assert_eq!((s.in_flight(), s.next_sequence()), (0, 2));
    }
}
