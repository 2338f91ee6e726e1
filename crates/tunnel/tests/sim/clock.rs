//! The clock's edge: what an end's CLOCK_BOOTTIME shows while true time passes.

use std::time::Duration;

/// A clock that started some other time, runs too fast or slow, and jumps.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// What it showed at true time 0.
    pub offset: Duration,
    /// By how much it is too fast, parts per million.
    pub ppm: i64,
    /// True times, rising, and by how much it jumped forward then: a monotonic clock never goes back.
    pub steps: Vec<(Duration, Duration)>,
}

impl Clock {
    /// What it shows at the true time `now`.
    pub fn read(&self, now: Duration) -> Duration {
        let drift = self.drift(now);
        let steps: Duration = self.steps.iter().filter(|(at, _)| *at <= now).map(|(_, by)| *by).sum();
        self.offset + steps + drift
    }

    /// The first true time at which it shows `shown` or more.
    pub fn when(&self, shown: Duration) -> Duration {
        let mut passed = Duration::ZERO;
        for (at, by) in &self.steps {
            let before = self.drift(*at) + self.offset + passed;
            if shown <= before {
                break;
            }
            passed += *by;
            if shown <= before + *by {
                return *at;
            }
        }
        let running = shown.saturating_sub(self.offset + passed);
        let nanos = running.as_nanos() as i128 * 1_000_000 / i128::from(1_000_000 + self.ppm);
        Duration::from_nanos(nanos as u64 + u64::from(self.ppm != 0))
    }

    fn drift(&self, now: Duration) -> Duration {
        let nanos = now.as_nanos() as i128;
        Duration::from_nanos((nanos + nanos * i128::from(self.ppm) / 1_000_000) as u64)
    }
}
