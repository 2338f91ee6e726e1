//! BBR version 1, as Linux's `tcp_bbr.c`: the rate is the most delivered in ten round trips, the window a gain times what
//! that rate carries in the least round trip of ten seconds.

use std::time::Duration;

use crate::extra::Extra;
use crate::policer::{Policer, Total};
use crate::rate::RateSample;
use crate::state::State;

/// 2 / ln 2: the least gain at which the rate can double each round trip.
const HIGH_GAIN: f64 = 2.885;
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
const CWND_GAIN: f64 = 2.0;
/// A round trip each.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Round trips over which the most delivered is kept (`bbr_bw_rtts`).
const BANDWIDTH_ROUNDS: u64 = 10;
/// The least round trip is looked for anew after so long, for so long, with so few in flight.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const MIN_WINDOW: u64 = 4;
/// The pipe is full when three rounds brought less than a quarter more.
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
/// The pacing rate stays a little below (`bbr_pacing_margin_percent`).
const MARGIN: f64 = 0.99;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// BBR's state. Rates are in segments per second.
#[derive(Debug)]
pub struct Bbr {
    mode: Mode,
    mss: f64,
    pacing_rate: f64,
    pacing_gain: f64,
    cwnd_gain: f64,
    has_seen_rtt: bool,
    /// The most delivered: in which round, how much; falling.
    bandwidth: Vec<(u64, f64)>,
    round: Round,
    min_rtt: Duration,
    min_rtt_at: Duration,
    probe_rtt: ProbeRtt,
    idle_restart: bool,
    full: (f64, u32),
    full_reached: bool,
    cycle: (usize, Duration),
    prior_cwnd: u64,
    conservation: bool,
    previous_state: State,
    extra: Extra,
    policer: Policer,
}

#[derive(Debug, Default)]
struct Round {
    count: u64,
    /// What will have been delivered when it ends.
    ends: u64,
    started: bool,
}

#[derive(Debug, Default)]
struct ProbeRtt {
    done: Option<Duration>,
    round_done: bool,
}

/// What the sender knows as an acknowledgement comes.
#[derive(Debug)]
pub(crate) struct Seen {
    pub state: State,
    /// Segments.
    pub cwnd: u64,
    pub in_flight: u64,
    /// In all.
    pub delivered: u64,
    pub lost: u64,
    pub srtt: Option<Duration>,
}

impl Bbr {
    /// A connection begins.
    pub fn new(now: Duration, mss: u64, cwnd: u64, rtt: Duration) -> Bbr {
        let mut bbr = Bbr {
            mode: Mode::Startup,
            mss: mss as f64,
            pacing_rate: 0.0,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            has_seen_rtt: !rtt.is_zero(),
            bandwidth: Vec::new(),
            round: Round::default(),
            min_rtt: if rtt.is_zero() { Duration::MAX } else { rtt },
            min_rtt_at: now,
            probe_rtt: ProbeRtt::default(),
            idle_restart: false,
            full: (0.0, 0),
            full_reached: false,
            cycle: (0, now),
            prior_cwnd: 0,
            conservation: false,
            previous_state: State::Open,
            extra: Extra::new(now),
            policer: Policer::default(),
        };
        bbr.begin_pacing(cwnd, Some(rtt).filter(|rtt| !rtt.is_zero()));
        bbr
    }

    /// Bytes per second at which segments leave.
    pub fn pacing_rate(&self) -> f64 {
        self.pacing_rate * self.mss
    }

    /// `bbr_init_pacing_rate_from_rtt`.
    fn begin_pacing(&mut self, cwnd: u64, srtt: Option<Duration>) {
        self.has_seen_rtt = srtt.is_some();
        let rtt = srtt.map_or(1e-3, |srtt| srtt.as_secs_f64());
        self.pacing_rate = HIGH_GAIN * MARGIN * cwnd as f64 / rtt;
    }

    fn most(&self) -> f64 {
        self.bandwidth.first().map_or(0.0, |(_, most)| *most)
    }

    fn rate(&self) -> f64 {
        self.policer.rate().unwrap_or_else(|| self.most())
    }

    /// `bbr_save_cwnd`, when recovery or a time-out begins.
    pub(crate) fn save(&mut self, cwnd: u64) {
        if self.previous_state < State::Recovery && self.mode != Mode::ProbeRtt {
            self.prior_cwnd = cwnd;
        } else {
            self.prior_cwnd = self.prior_cwnd.max(cwnd);
        }
    }

    /// `bbr_undo_cwnd`.
    pub(crate) fn undo(&mut self) {
        self.full = (0.0, 0);
        self.policer = Policer::default();
    }

    /// `bbr_set_state` for a time-out.
    pub(crate) fn handle_time_out(&mut self, now: Duration, delivered: u64, lost: u64) {
        self.previous_state = State::Loss;
        self.full.0 = 0.0;
        self.round.started = true;
        self.sample_policer(now, delivered, lost, 1, false);
    }

    /// Segments in flight that the rate times `gain` fills, and room for what hosts hold back.
    fn inflight(&self, gain: f64) -> u64 {
        if self.min_rtt == Duration::MAX {
            return 10;
        }
        let bdp = (self.rate() * self.min_rtt.as_secs_f64() * gain).ceil() as u64;
        let mut cwnd = bdp + 3 * self.burst();
        cwnd += cwnd % 2;
        if self.mode == Mode::ProbeBandwidth && self.cycle.0 == 0 {
            cwnd += 2;
        }
        cwnd
    }

    /// `bbr_tso_segs_goal`: a millisecond's.
    pub(crate) fn burst(&self) -> u64 {
        let least = if self.pacing_rate() * 8.0 < 1.2e6 { 1 } else { 2 };
        ((self.pacing_rate / 1024.0) as u64).clamp(least, 44)
    }

    // ---- the model ----------------------------------------------------------------------------------------------

    /// `bbr_update_bw`.
    fn update_bandwidth(&mut self, now: Duration, sample: &RateSample, delivered: u64, lost: u64) {
        self.round.started = false;
        let Some(count) = sample.delivered else { return };
        if sample.prior_delivered() >= self.round.ends {
            self.round.ends = delivered;
            self.round.count += 1;
            self.round.started = true;
            self.conservation = false;
        }
        self.sample_policer(now, delivered, lost, sample.lost, sample.app_limited);
        let bandwidth = count as f64 / sample.interval.as_secs_f64();
        if !sample.app_limited || bandwidth >= self.most() {
            let round = self.round.count;
            self.bandwidth.retain(|(at, most)| at + BANDWIDTH_ROUNDS >= round && *most > bandwidth);
            self.bandwidth.push((round, bandwidth));
        }
    }

    fn sample_policer(
        &mut self,
        now: Duration,
        delivered: u64,
        lost: u64,
        newly_lost: u64,
        app_limited: bool,
    ) {
        let was = self.policer.rate();
        let total = Total { now, delivered, lost };
        if was.is_none() {
            self.policer.sample(total, newly_lost, app_limited, self.round.started, self.mss);
        } else if self.mode == Mode::ProbeBandwidth && self.round.started {
            self.policer.use_for_a_round(total);
        }
        match (was, self.policer.rate()) {
            (None, Some(_)) => self.pacing_gain = 1.0,
            (Some(_), None) => self.begin_phase(now, 0),
            _ => {}
        }
    }

    /// `bbr_update_cycle_phase`.
    fn update_cycle(&mut self, now: Duration, sample: &RateSample) {
        if self.mode != Mode::ProbeBandwidth {
            return;
        }
        let full_length = now - self.cycle.1 > self.min_rtt;
        let in_flight = sample.prior_in_flight;
        let over = if self.pacing_gain > 1.0 {
            full_length && (sample.lost > 0 || in_flight >= self.inflight(self.pacing_gain))
        } else if self.pacing_gain < 1.0 {
            full_length || in_flight <= self.inflight(1.0)
        } else {
            full_length
        };
        if over {
            self.begin_phase(now, (self.cycle.0 + 1) % CYCLE.len());
        }
    }

    fn begin_phase(&mut self, now: Duration, phase: usize) {
        self.cycle = (phase, now);
        self.pacing_gain = if self.policer.rate().is_some() { 1.0 } else { CYCLE[phase] };
    }

    /// `bbr_check_full_bw_reached`.
    fn check_full(&mut self, sample: &RateSample) {
        if self.full_reached || !self.round.started || sample.app_limited {
            return;
        }
        if self.most() >= self.full.0 * FULL_GROWTH {
            self.full = (self.most(), 0);
            return;
        }
        self.full.1 += 1;
        self.full_reached = self.full.1 >= FULL_ROUNDS;
    }

    /// `bbr_check_drain`.
    fn check_drain(&mut self, now: Duration, in_flight: u64) {
        if self.mode == Mode::Startup && self.full_reached {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && in_flight <= self.inflight(1.0) {
            self.begin_probing(now);
        }
    }

    /// `bbr_reset_probe_bw_mode`: any phase but the draining one; which is chance there.
    fn begin_probing(&mut self, now: Duration) {
        self.mode = Mode::ProbeBandwidth;
        let chance = (now.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let phase = CYCLE.len() - 1 - (chance % 7) as usize;
        self.begin_phase(now, (phase + 1) % CYCLE.len());
    }

    /// `bbr_update_min_rtt`; whether the window is to be as before.
    fn update_min_rtt(&mut self, now: Duration, sample: &RateSample, in_flight: u64, delivered: u64) -> bool {
        let expired = now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = sample.rtt
            && (rtt < self.min_rtt || (expired && !sample.maybe_delayed))
        {
            (self.min_rtt, self.min_rtt_at) = (rtt, now);
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.probe_rtt = ProbeRtt::default();
            return false;
        }
        if self.mode != Mode::ProbeRtt {
            return false;
        }
        match self.probe_rtt.done {
            None if in_flight <= MIN_WINDOW => {
                self.probe_rtt = ProbeRtt { done: Some(now + PROBE_RTT_TIME), round_done: false };
                self.round.ends = delivered;
                false
            }
            None => false,
            Some(done) => {
                self.probe_rtt.round_done |= self.round.started;
                if !self.probe_rtt.round_done || now < done {
                    return false;
                }
                self.min_rtt_at = now;
                if self.full_reached {
                    self.begin_probing(now)
                } else {
                    self.mode = Mode::Startup
                }
                true
            }
        }
    }

    /// `bbr_update_gains`.
    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth if self.policer.rate().is_some() => (1.0, CWND_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.cycle.0], CWND_GAIN),
            Mode::ProbeRtt => (1.0, 1.0),
        };
    }

    /// `bbr_set_pacing_rate`.
    fn update_pacing(&mut self, cwnd: u64, srtt: Option<Duration>) {
        if !self.has_seen_rtt && srtt.is_some() {
            self.begin_pacing(cwnd, srtt);
        }
        let rate = self.rate() * self.pacing_gain * MARGIN;
        if self.full_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// `bbr_set_cwnd`.
    fn new_cwnd(
        &mut self,
        sample: &RateSample,
        state: State,
        cwnd: u64,
        in_flight: u64,
        delivered: u64,
    ) -> u64 {
        let mut cwnd = cwnd;
        if sample.acked > 0 {
            if sample.lost > 0 {
                cwnd = cwnd.saturating_sub(sample.lost).max(1);
            }
            let before = self.previous_state;
            self.previous_state = state;
            if state == State::Recovery && before != State::Recovery {
                self.conservation = true;
                self.round.ends = delivered;
                cwnd = in_flight + sample.acked;
            } else if before >= State::Recovery && state < State::Recovery {
                self.conservation = false;
                cwnd = cwnd.max(self.prior_cwnd);
            }
            if self.conservation {
                cwnd = cwnd.max(in_flight + sample.acked);
            } else {
                let extra = if self.full_reached { self.extra.window(self.rate()) } else { 0 };
                let target = self.inflight(self.cwnd_gain) + extra;
                if self.full_reached {
                    cwnd = (cwnd + sample.acked).min(target);
                } else if cwnd < target || delivered < 10 {
                    cwnd += sample.acked;
                }
                cwnd = cwnd.max(MIN_WINDOW);
            }
        }
        if self.mode == Mode::ProbeRtt { cwnd.min(MIN_WINDOW) } else { cwnd }
    }

    /// `bbr_main`: the window, in segments, after an acknowledgement.
    pub(crate) fn handle_ack(&mut self, now: Duration, sample: &RateSample, seen: &Seen) -> u64 {
        let Seen { state, cwnd, in_flight, delivered, lost, srtt } = *seen;
        self.update_bandwidth(now, sample, delivered, lost);
        let (rate, started) = (self.rate(), self.round.started);
        self.extra.update(now, sample, rate, started, cwnd);
        self.update_cycle(now, sample);
        self.check_full(sample);
        self.check_drain(now, in_flight);
        let was_probing = self.probes_rtt();
        let restores = self.update_min_rtt(now, sample, in_flight, delivered);
        if self.probes_rtt() && !was_probing {
            self.save(cwnd);
        }
        self.update_gains();
        self.update_pacing(cwnd, srtt);
        let cwnd = if restores { cwnd.max(self.prior_cwnd) } else { cwnd };
        self.new_cwnd(sample, state, cwnd, in_flight, delivered)
    }

    /// So few are in flight that their rate tells nothing.
    pub(crate) fn probes_rtt(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }
}
