//! When backups help: where what goes over the other paths comes so much later than over a backup that nobody would wait for it.

use std::time::Duration;

/// What comes so much later than over a backup goes over that as well, if that has been so for a [`PERIOD`]: a burst is none.
const TOO_LATE: Duration = Duration::from_secs(1);
/// Backups help for so long after that was last so: a pause of a page's reader, and more than the two periods in which what they take
/// shows that it is so still.
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
    /// second and deliver `later` seconds later, if a backup works.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes a second that the other paths carry.
    const RATE: f64 = 1000.0;
    /// From one judgement to the next, and after so many a second has passed.
    const STEP: Duration = Duration::from_millis(10);
    const SECOND: u32 = 100;

    #[test]
    fn a_burst_waits_for_the_other_paths_and_what_comes_too_late_for_a_second_does_not() {
        let mut help = Help::default();
        let mut judge = |step: u32, waiting| help.judge(step * STEP, 0, waiting, RATE, Some(0.0));
        // Half a second longer than anybody would wait for, again and again.
        for step in 0..20 * SECOND {
            let gone = 10 * (step % (2 * SECOND)) as usize;
            assert!(!judge(step, 1500_usize.saturating_sub(gone)), "{step}");
        }
        assert!((20 * SECOND..21 * SECOND).all(|step| !judge(step, 1500)));
        assert!(judge(21 * SECOND, 1500));
    }

    /// Else they would stop for having helped.
    #[test]
    fn what_backups_take_would_wait_for_the_other_paths() {
        for (taken, lasts) in [(15, true), (5, false)] {
            let mut help = Help::default();
            let helped = (0..60 * SECOND).map(|step| {
                let (sent, waiting) = match step.checked_sub(2 * SECOND) {
                    None => (0, 1500),
                    Some(since) => (taken * u64::from(since), 0),
                };
                help.judge(step * STEP, sent, waiting, RATE, Some(0.0))
            });
            assert_eq!(helped.last(), Some(lasts), "{taken}");
        }
    }
}
