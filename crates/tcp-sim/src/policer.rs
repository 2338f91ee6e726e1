//! A policer, as BBR's long-term rate sees it (`bbr_lt_bw_sampling`): two intervals in a row with much loss and the same rate.

use std::time::Duration;

/// An interval lasts so many rounds.
const ROUNDS: std::ops::RangeInclusive<u32> = 4..=16;
/// Segments lost for each delivered.
const LOSS: f64 = 50.0 / 256.0;
/// Rates are the same within this share, or so many bytes per second.
const ALIKE: f64 = 0.125;
const ALIKE_BYTES: f64 = 500.0;
/// The rate is believed for so many rounds.
const USE: u32 = 48;

/// Segments delivered and lost so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    /// When.
    pub now: Duration,
    pub delivered: u64,
    pub lost: u64,
}

/// What is known of a policer.
#[derive(Debug, Default)]
pub struct Policer {
    sampling: bool,
    using: bool,
    rounds: u32,
    rate: f64,
    /// At the interval's beginning.
    since: Total,
}

impl Policer {
    /// Segments per second that pass, while there seems to be one.
    pub fn rate(&self) -> Option<f64> {
        self.using.then_some(self.rate)
    }

    /// A round passed in which its rate was used.
    pub fn use_for_a_round(&mut self, total: Total) {
        self.rounds += 1;
        if self.rounds >= USE {
            self.reset(total);
        }
    }

    /// An acknowledgement came; `mss` in bytes.
    pub fn sample(&mut self, total: Total, newly_lost: u64, app_limited: bool, round: bool, mss: f64) {
        if !self.sampling {
            if newly_lost == 0 {
                return;
            }
            self.begin(total);
            self.sampling = true;
        }
        self.rounds += u32::from(round);
        if app_limited || self.rounds > *ROUNDS.end() {
            self.reset(total);
            return;
        }
        let (lost, delivered) = (total.lost - self.since.lost, total.delivered - self.since.delivered);
        let time = (total.now - self.since.now).as_secs_f64();
        let much = newly_lost > 0 && delivered > 0 && lost as f64 >= LOSS * delivered as f64;
        if ROUNDS.contains(&self.rounds) && much && time >= 1e-3 {
            self.end_interval(total, delivered as f64 / time, mss);
        }
    }

    fn end_interval(&mut self, total: Total, rate: f64, mss: f64) {
        let difference = (rate - self.rate).abs();
        if self.rate > 0.0 && (difference <= ALIKE * self.rate || difference * mss <= ALIKE_BYTES) {
            self.rate = (rate + self.rate) / 2.0;
            (self.using, self.rounds) = (true, 0);
        } else {
            self.rate = rate;
            self.begin(total);
        }
    }

    fn begin(&mut self, total: Total) {
        (self.since, self.rounds) = (total, 0);
    }

    fn reset(&mut self, total: Total) {
        *self = Policer { since: total, ..Policer::default() };
    }
}
