//! How much one path may have in flight, and how fast: bounded by what it delivers, not by what it loses.
//!
//! A model of the path in two numbers, the greatest delivery rate of the last ten round trips and the least round-trip
//! time of the last ten seconds, as BBR's (draft-cardwell-iccrg-bbr-congestion-control-00 §4); delivery rate samples as
//! draft-cheng-iccrg-delivery-rate-estimation-02, but the time in which packets arrived is taken from the receiver's
//! clock, so that a slow or bunched return path does not blur it. Loss does not enter: a wireless link that loses two
//! packets in a hundred still carries the other ninety-eight.
//!
//! The greatest rate is that of the past: on a link that varies FS-AT ([`flight`]) holds what is in flight below it, to what
//! arrived within the last least round trip and room for its variation. A report is the ACK of its equations (4) to (9).

use std::collections::VecDeque;
use std::time::Duration;

use flight::{Ack, Algorithm, FsAt};

/// Growth per round trip that doubles the rate each time: 2/ln 2.
const STARTUP_GAIN: f64 = 2.885;
/// In-flight limit over the bandwidth-delay product meanwhile: at most as much again queues on the path.
const STARTUP_WINDOW_GAIN: f64 = 2.0;
/// Pacing gains, one least round-trip time each: probe for more, drain what the probe queued, cruise.
const CYCLE: [f64; 4] = [1.25, 0.75, 1.0, 1.0];
/// In-flight limit over the bandwidth-delay product while cruising: room for one probe and jitter.
const WINDOW_GAIN: f64 = 1.5;
/// Round trips over which the greatest delivery rate counts.
const RATE_ROUNDS: u64 = 10;
/// How long the least round-trip time counts.
const MIN_RTT_LIFE: Duration = Duration::from_secs(10);
/// How long the in-flight limit is halved to measure the least round-trip time anew.
const PROBE_RTT: Duration = Duration::from_millis(100);
/// The receiver reports within this time, so this much more is in flight.
const REPORT_DELAY: Duration = Duration::from_millis(6);
/// In flight before anything was measured, bytes: 32 packets, as QUIC deployments start with, paced over a round trip.
const INITIAL_WINDOW: f64 = 45_000.0;
/// A few packets are always allowed, so that rate samples come and small bandwidth-delay products are filled.
const SLACK: f64 = 4.0 * 1500.0;
/// Bytes of a full packet, and of all that a path could ever have in flight: the `mss` and `snd_cwnd_max` of FS-AT.
const PACKET: u32 = 1400;
const MAX_WINDOW: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    Drain,
    Cruise,
}

/// What the path had delivered when a packet was sent: kept with the packet until it is acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    sent: Duration,
    delivered: u64,
    /// The receiver's clock at the arrival that `delivered` counts up to, µs.
    delivered_arrival: u32,
    first_sent: Duration,
    app_limited: bool,
}

impl Snapshot {
    /// Of a packet that is sent for want of data, or whatever the window says: it shows less than the path carries.
    pub fn app_limited(self) -> Self {
        Snapshot { app_limited: true, ..self }
    }
}

/// One path's model.
#[derive(Debug)]
pub struct Rate {
    phase: Phase,
    delivered: u64,
    delivered_arrival: u32,
    first_sent: Duration,
    app_limited_until: Option<u64>,
    round: u64,
    round_end: u64,
    /// (round, bytes/s), falling rates: the first is the greatest.
    max: VecDeque<(u64, f64)>,
    /// The last rate that was more than a want of data, bytes/s.
    latest: f64,
    min_rtt: Option<(Duration, Duration)>,
    probe_rtt_until: Option<Duration>,
    full: (f64, u8),
    cycle: (usize, Duration),
    next_send: Duration,
    fsat: FsAt,
}

impl Rate {
    /// Of a path that nothing is known about.
    pub fn new() -> Self {
        Rate {
            phase: Phase::Startup,
            delivered: 0,
            delivered_arrival: 0,
            first_sent: Duration::ZERO,
            app_limited_until: None,
            round: 0,
            round_end: 0,
            max: VecDeque::new(),
            latest: 0.0,
            min_rtt: None,
            probe_rtt_until: None,
            full: (0.0, 0),
            cycle: (2, Duration::ZERO),
            next_send: Duration::ZERO,
            fsat: unlimited(),
        }
    }

    /// Delivery rate in bytes per second, once one was measured.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.max.front().map(|m| m.1)
    }

    /// The least round-trip time of late.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|m| m.0)
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> usize {
        let model = self.model_window();
        if self.phase == Phase::Startup || self.bytes_per_second().is_none() {
            return model;
        }
        // Room for a probe, and for what another path hands over when it dies.
        let room = WINDOW_GAIN * self.fsat.state().rcv_bytes as f64;
        model.min(self.fsat.window(model as u64).max(room as u64) as usize + SLACK as usize)
    }

    /// As the model of the path has it.
    fn model_window(&self) -> usize {
        let (Some(rate), Some(rtt)) = (self.bytes_per_second(), self.min_rtt()) else {
            return INITIAL_WINDOW as usize;
        };
        let bdp = rate * rtt.as_secs_f64();
        let gain = match (self.probe_rtt_until, self.phase) {
            (Some(_), _) => return (bdp / 2.0 + SLACK) as usize,
            (None, Phase::Startup) => STARTUP_WINDOW_GAIN,
            (None, _) => WINDOW_GAIN,
        };
        let window = gain * bdp + rate * REPORT_DELAY.as_secs_f64() + SLACK;
        (if self.phase == Phase::Startup { window.max(INITIAL_WINDOW) } else { window }) as usize
    }

    /// When the pacer lets the next packet go.
    pub fn next_send(&self) -> Duration {
        self.next_send
    }

    /// Bytes that may go in one burst: what the path carries in half a millisecond.
    pub fn burst(&self) -> usize {
        (self.pacing() * 0.0005) as usize
    }

    /// How long `bytes` take at the path's rate; nothing while that is unknown.
    pub fn transmit_time(&self, bytes: usize) -> Duration {
        self.bytes_per_second().map_or(Duration::ZERO, |r| Duration::from_secs_f64(bytes as f64 / r.max(1.0)))
    }

    /// How long a packet sent now waits on the path behind what is in flight, as the path delivers at present.
    pub fn queue_delay(&self, in_flight: usize) -> Duration {
        let Some(min) = self.min_rtt().filter(|_| self.latest > 0.0) else { return Duration::ZERO };
        Duration::from_secs_f64(in_flight as f64 / self.latest).saturating_sub(min + REPORT_DELAY)
    }

    /// Sends a packet: takes its share of the pacer's time.
    pub fn handle_sent(&mut self, now: Duration, bytes: usize, in_flight_before: usize) -> Snapshot {
        if in_flight_before == 0 {
            self.first_sent = now;
        }
        let cost = Duration::from_secs_f64(bytes as f64 / self.pacing());
        // A timer that fires late costs no rate, up to a few milliseconds; and a few packets after a pause go at once.
        let credit = Duration::from_millis(4).max(Duration::from_secs_f64(SLACK / self.pacing()));
        self.next_send = self.next_send.max(now.saturating_sub(credit)) + cost;
        Snapshot {
            sent: now,
            delivered: self.delivered,
            delivered_arrival: self.delivered_arrival,
            first_sent: self.first_sent,
            app_limited: self.app_limited_until.is_some_and(|until| self.delivered <= until),
        }
    }

    /// Nothing was waiting to be sent though the path had room: what is in flight now shows less than the path carries.
    pub fn handle_app_limited(&mut self, in_flight: usize) {
        self.app_limited_until = Some(self.delivered + in_flight as u64);
    }

    /// A report acknowledged `acked` bytes; `largest` belongs to the latest sent of them, which arrived at `arrival`
    /// (receiver's clock, µs) and whose round trip took `rtt`. `in_flight` is what remains.
    pub fn handle_acked(
        &mut self,
        now: Duration,
        acked: usize,
        largest: &Snapshot,
        arrival: u32,
        rtt: Duration,
        in_flight: usize,
    ) {
        self.delivered += acked as u64;
        self.update_min_rtt(now, rtt);
        if largest.delivered >= self.round_end {
            self.round += 1;
            self.round_end = self.delivered;
            self.check_full(largest.app_limited, rtt);
        }
        self.sample(largest, arrival, rtt);
        self.delivered_arrival = arrival;
        self.first_sent = largest.sent;
        self.advance(now, in_flight, rtt);
        self.limit(now, acked, in_flight, Some(rtt), largest.app_limited);
    }

    /// A report acknowledged `acked` bytes, all sent before something that was acknowledged earlier.
    pub fn handle_acked_late(&mut self, now: Duration, acked: usize, in_flight: usize) {
        self.delivered += acked as u64;
        self.limit(now, acked, in_flight, None, false);
    }

    fn limit(
        &mut self,
        now: Duration,
        acked: usize,
        in_flight: usize,
        rtt: Option<Duration>,
        app_limited: bool,
    ) {
        let ack = Ack {
            rtt,
            delivered: acked as u64,
            lost: 0,
            flight: in_flight as u64,
            cwnd: self.model_window() as u64,
            cwnd_max: MAX_WINDOW,
            mss: PACKET,
            app_limited,
        };
        self.fsat.on_ack(now, &ack);
    }

    /// The path was silent and answers again: forget its rate, keep its round-trip time.
    pub fn restart(&mut self) {
        self.max.clear();
        self.latest = 0.0;
        self.full = (0.0, 0);
        self.phase = Phase::Startup;
        self.probe_rtt_until = None;
        self.fsat = unlimited();
    }

    /// The path leads elsewhere now: forget all that was measured.
    pub fn handle_move(&mut self) {
        self.restart();
        self.min_rtt = None;
    }

    fn sample(&mut self, p: &Snapshot, arrival: u32, rtt: Duration) {
        if p.delivered == 0 {
            return; // The receiver's clock at the interval's start is not known yet.
        }
        let arrived = Duration::from_micros(u64::from(arrival.wrapping_sub(p.delivered_arrival)));
        let sent = p.sent.saturating_sub(p.first_sent);
        let interval = arrived.max(sent);
        if interval < self.min_rtt().unwrap_or_default().min(Duration::from_millis(1)) || interval.is_zero() {
            return; // Too short to tell.
        }
        let rate = (self.delivered - p.delivered) as f64 / interval.as_secs_f64();
        // A want of data shows no less than the path carries, and nothing at all before it was full once.
        if !p.app_limited || (self.latest > 0.0 && rate > self.latest) {
            self.latest = rate;
        }
        if p.app_limited && self.bytes_per_second().is_some_and(|max| rate < max) {
            return;
        }
        while self.max.back().is_some_and(|m| m.1 <= rate) {
            self.max.pop_back();
        }
        self.max.push_back((self.round, rate));
        // A queue in spite of the window says that the link has become slower: only the last rounds count.
        let queued = self.min_rtt().is_some_and(|min| rtt > 2 * min + 2 * REPORT_DELAY);
        let rounds = if queued { 1 } else { RATE_ROUNDS };
        while self.max.front().is_some_and(|m| m.0 + rounds < self.round) {
            self.max.pop_front();
        }
    }

    fn update_min_rtt(&mut self, now: Duration, rtt: Duration) {
        if self.min_rtt.is_none_or(|(min, _)| rtt <= min) {
            self.min_rtt = Some((rtt, now));
        }
        match (self.probe_rtt_until, self.min_rtt) {
            (Some(until), _) if now >= until => self.probe_rtt_until = None,
            (None, Some((min, at))) if now > at + MIN_RTT_LIFE => {
                self.probe_rtt_until = Some(now + PROBE_RTT + min);
                self.min_rtt = Some((rtt, now));
            }
            _ => {}
        }
    }

    /// Startup ends when three rounds brought no quarter more, or one if a queue has built up by then.
    fn check_full(&mut self, app_limited: bool, rtt: Duration) {
        let rate = self.bytes_per_second().unwrap_or(0.0);
        if self.phase != Phase::Startup || app_limited {
            return;
        }
        if rate >= self.full.0 * 1.25 {
            self.full = (rate, 0);
            return;
        }
        self.full.1 += 1;
        if self.is_queued(rtt) || self.full.1 >= 3 {
            self.phase = Phase::Drain;
        }
    }

    fn advance(&mut self, now: Duration, in_flight: usize, last_rtt: Duration) {
        let rtt = self.min_rtt().unwrap_or_default().max(REPORT_DELAY);
        let bdp = self.bytes_per_second().unwrap_or(0.0) * rtt.as_secs_f64();
        if self.phase == Phase::Drain && in_flight as f64 <= bdp + SLACK {
            self.phase = Phase::Cruise;
            self.cycle = (2, now);
        }
        let (at, since) = self.cycle;
        let drained = CYCLE[at] < 1.0 && in_flight as f64 <= bdp;
        // A probe goes on for as long as the path takes more without a queue: a link that recovers is followed at once.
        let probing = CYCLE[at] > 1.0 && !self.is_queued(last_rtt);
        if self.phase == Phase::Cruise && !probing && (drained || now >= since + rtt) {
            self.cycle = ((at + 1) % CYCLE.len(), now);
        }
    }

    /// Whether a round trip shows a queue on the path, beyond what reports and jitter add.
    fn is_queued(&self, rtt: Duration) -> bool {
        self.min_rtt().is_some_and(|min| rtt > min + min / 4 + REPORT_DELAY)
    }

    /// Bytes per second that the pacer lets go.
    pub fn pacing(&self) -> f64 {
        let gain = match self.phase {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => 1.0 / STARTUP_GAIN,
            Phase::Cruise => CYCLE[self.cycle.0],
        };
        let rate = self.bytes_per_second().unwrap_or(0.0);
        // Until the path was full once, what it delivered is what it was asked for: the initial window goes at once.
        let rtt = self.min_rtt().unwrap_or(Duration::from_millis(10)).max(Duration::from_micros(100));
        let initial = if self.phase == Phase::Startup { INITIAL_WINDOW / rtt.as_secs_f64() } else { 1000.0 };
        (gain * rate).max(initial)
    }
}

/// The published equations: what `fsat` adds to them is the rest of this file's.
fn unlimited() -> FsAt {
    FsAt::new(Algorithm::Paper, Duration::ZERO, MAX_WINDOW)
}

impl Default for Rate {
    fn default() -> Self {
        Self::new()
    }
}
