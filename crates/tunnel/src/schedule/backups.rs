//! When backups help: where what goes over the other paths comes so much later than over a backup that nobody would wait for it.

use std::time::Duration;

/// What comes so much later than over a backup goes over that as well, if that has been so for a [`PERIOD`]: a burst is none.
const TOO_LATE: Duration = Duration::from_secs(1);
/// Backups help for so long after that was last so.
const HELP: Duration = Duration::from_secs(10);
/// What they take counts as waiting for the other paths for so long.
const PERIOD: Duration = Duration::from_secs(1);

/// Whether backups help, and what they do.
#[derive(Debug, Default)]
pub struct Help {
    /// Until when.
    until: Duration,
    /// Since when all else comes too late.
    late_since: Option<Duration>,
    /// Since when, from how many bytes on what they take is counted; and what they took in the period before that.
    since: Duration,
    sent: u64,
    took: u64,
}

impl Help {
    /// Whether they help. Backups have sent `sent` bytes in all; `waiting` bytes wait for the other paths, which carry `rate` bytes per
    /// second and deliver `later` seconds later, if they and a backup work.
    pub fn judge(&mut self, now: Duration, sent: u64, waiting: usize, rate: f64, later: Option<f64>) -> bool {
        if now >= self.since + PERIOD {
            self.took = if now < self.until { sent.saturating_sub(self.sent) } else { 0 };
            (self.since, self.sent) = (now, sent);
        }
        let waits = (waiting as u64 + self.took) as f64 / rate.max(1.0);
        let late = later.is_some_and(|later| later + waits > TOO_LATE.as_secs_f64());
        self.late_since = late.then(|| self.late_since.unwrap_or(now));
        if self.late_since.is_some_and(|since| now >= since + PERIOD) {
            self.until = now + HELP;
        }
        now < self.until
    }
}
