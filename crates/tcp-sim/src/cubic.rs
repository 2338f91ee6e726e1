//! CUBIC with HyStart, as Linux's `tcp_cubic.c` of 6.x. Windows in segments.

use std::time::Duration;

/// From this window on HyStart acts (`hystart_low_window`), and so many round trips of a round are sampled.
const HYSTART_WINDOW: u64 = 16;
const HYSTART_SAMPLES: u32 = 8;
/// ACKs that follow each other closer than this are a train (`hystart_ack_delta_us`).
const HYSTART_GAP: Duration = Duration::from_millis(2);

/// What a window is, and how it grows.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Segments that may be in flight.
    pub cwnd: u64,
    /// Below it is slow start.
    pub ssthresh: u64,
    /// Segments that arrived towards the next one more.
    pub count: u64,
}

/// No threshold yet.
pub const INFINITE: u64 = u64::MAX;

impl Window {
    /// Whether it is slow start.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// `tcp_slow_start`; what is left of `acked`.
    fn slow_start(&mut self, acked: u64) -> u64 {
        let grown = (self.cwnd + acked).min(self.ssthresh);
        let left = acked - (grown - self.cwnd);
        self.cwnd = grown;
        left
    }

    /// `tcp_cong_avoid_ai`: one more for each `each` that arrived.
    fn avoid(&mut self, each: u64, acked: u64) {
        if self.count >= each {
            self.count = 0;
            self.cwnd += 1;
        }
        self.count += acked;
        if self.count >= each {
            self.cwnd += self.count / each;
            self.count %= each;
        }
    }
}

/// CUBIC's state.
#[derive(Debug, Clone, Default)]
pub struct Cubic {
    last_max: u64,
    last_cwnd: u64,
    /// ms, as Linux's jiffies with HZ = 1000.
    last_time: u64,
    each: u64,
    epoch: Option<Epoch>,
    acked: u64,
    delay_min: Option<Duration>,
    round: Round,
    /// HyStart ended slow start.
    found: bool,
}

/// Since a loss: when it began (ms), the plateau, the time to it (s), and what Reno would have by now.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: u64,
    origin: f64,
    k: f64,
    reno: u64,
}

/// A round trip of slow start.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    start: Duration,
    last_ack: Duration,
    end: u64,
    samples: u32,
    least: Option<Duration>,
}

/// What HyStart is told at an ACK.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Time.
    pub now: Duration,
    /// The newest round trip.
    pub rtt: Duration,
    /// The first segment unacknowledged, and the next to be sent.
    pub una: u64,
    /// The next segment to be sent.
    pub next: u64,
    /// How long 256 kB take at the pacing rate, which is computed though nothing is paced.
    pub train: Duration,
}

impl Cubic {
    /// `cubictcp_acked`.
    pub fn handle_rtt(&mut self, sample: Sample, window: &mut Window) {
        let ms = sample.now.as_millis() as u64;
        if self.epoch.is_some_and(|epoch| ms - epoch.start < 1000) {
            return;
        }
        let least = self.delay_min.get_or_insert(sample.rtt);
        *least = sample.rtt.min(*least);
        if !self.found && window.in_slow_start() {
            let least = *least;
            self.hystart(sample, least, window);
        }
    }

    /// `hystart_update`.
    fn hystart(&mut self, sample: Sample, least: Duration, window: &mut Window) {
        let now = sample.now;
        if sample.una > self.round.end {
            self.round = Round { start: now, last_ack: now, end: sample.next, samples: 0, least: None };
        }
        if window.cwnd < HYSTART_WINDOW {
            return;
        }
        let round = &mut self.round;
        if now - round.last_ack <= HYSTART_GAP {
            round.last_ack = now;
            let threshold = (least + sample.train.min(Duration::from_millis(1))) / 2;
            if now - round.start > threshold {
                self.found = true;
                window.ssthresh = window.cwnd;
                return;
            }
        }
        let lowest = *round.least.get_or_insert(sample.rtt).min(&mut { sample.rtt });
        round.least = Some(lowest);
        if round.samples < HYSTART_SAMPLES {
            round.samples += 1;
        } else if lowest > least + (least / 8).clamp(Duration::from_millis(4), Duration::from_millis(16)) {
            self.found = true;
            window.ssthresh = window.cwnd;
        }
    }

    /// `cubictcp_cong_avoid`.
    pub fn grow(&mut self, now: Duration, acked: u64, window: &mut Window) {
        let left = if window.in_slow_start() { window.slow_start(acked) } else { acked };
        if left > 0 {
            self.update(now, window.cwnd, left);
            window.avoid(self.each, left);
        }
    }

    /// `bictcp_update`.
    fn update(&mut self, now: Duration, cwnd: u64, acked: u64) {
        let ms = now.as_millis() as u64;
        self.acked += acked;
        if self.last_cwnd == cwnd && ms - self.last_time <= 1000 / 32 {
            return;
        }
        if self.epoch.is_none() || ms != self.last_time {
            self.last_cwnd = cwnd;
            self.last_time = ms;
            if self.epoch.is_none() {
                self.acked = acked;
            }
            self.each = self.cubic(ms, cwnd);
        }
        self.each = self.friendly(cwnd).max(2);
    }

    fn cubic(&mut self, ms: u64, cwnd: u64) -> u64 {
        let last_max = self.last_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: ms,
            origin: last_max.max(cwnd) as f64,
            k: (last_max.saturating_sub(cwnd) as f64 / 0.4).cbrt(),
            reno: cwnd,
        });
        let least = self.delay_min.unwrap_or_default().as_secs_f64();
        let t = (ms - epoch.start) as f64 / 1e3 + least;
        let target = (epoch.origin + 0.4 * (t - epoch.k).powi(3)).floor();
        let more = target - cwnd as f64;
        let each = if more > 0.0 { (cwnd as f64 / more) as u64 } else { 100 * cwnd };
        if last_max == 0 { each.min(20) } else { each }
    }

    /// As fast as Reno would.
    fn friendly(&mut self, cwnd: u64) -> u64 {
        let Some(epoch) = &mut self.epoch else { return self.each };
        let step = (cwnd * 15 / 8).max(1);
        if self.acked > step {
            let steps = (self.acked - 1) / step;
            self.acked -= steps * step;
            epoch.reno += steps;
        }
        if epoch.reno > cwnd { self.each.min(cwnd / (epoch.reno - cwnd)) } else { self.each }
    }

    /// `cubictcp_recalc_ssthresh`.
    pub fn ssthresh(&mut self, cwnd: u64) -> u64 {
        self.epoch = None;
        self.last_max = if cwnd < self.last_max { cwnd * (1024 + 717) / 2048 } else { cwnd };
        (cwnd * 717 / 1024).max(2)
    }

    /// A time-out: it begins anew.
    pub fn restart(&mut self, now: Duration, next: u64) {
        let round = Round { start: now, last_ack: now, end: next, samples: 0, least: None };
        *self = Cubic { round, ..Cubic::default() };
    }
}
