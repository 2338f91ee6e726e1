//! When backups help: where what goes over the other paths comes so much later than over a backup that nobody would wait for it.

use std::time::Duration;

use super::Peer;
use crate::config::Scheduler;

/// What comes so much later than over a backup goes over that as well, if that has been so for a [`PERIOD`]: a burst is none.
const TOO_LATE: Duration = Duration::from_secs(1);
/// Backups help for so long after that was last so.
const HELP: Duration = Duration::from_secs(10);
/// What they take counts as waiting for the other paths for so long.
const PERIOD: Duration = Duration::from_secs(1);

/// Whether backups help, and what they do.
#[derive(Debug, Default)]
pub(super) struct Help {
    /// Until when.
    until: Duration,
    /// Since when all else comes too late.
    late_since: Option<Duration>,
    /// Since when, from how many bytes on what they take is counted; and what they took in the period before that.
    since: Duration,
    sent: u64,
    took: u64,
}

impl Peer {
    /// Has backups take part, or wait again.
    pub(super) fn judge_backups(&mut self, now: Duration) {
        if self.scheduler != Scheduler::Auto || !self.paths.iter().any(|path| path.backup) {
            return;
        }
        let up = |backup: bool| self.paths.iter().filter(move |p| p.is_up() && p.backup == backup);
        let sent: u64 = up(true).map(|path| path.sent.totals().1).sum();
        let help = &mut self.help;
        if now >= help.since + PERIOD {
            help.took = if now < help.until { sent.saturating_sub(help.sent) } else { 0 };
            (help.since, help.sent) = (now, sent);
        }
        let waits = (self.queue.bytes() as u64 + help.took) as f64;
        let rate: f64 = up(false).map(|path| path.sent.rate.perhaps()).sum();
        let there = up(false).filter_map(|path| path.expected_arrival(0.0)).min();
        let by_backup = up(true).filter_map(|path| path.least_arrival(0.0)).min();
        let later = there
            .zip(by_backup)
            .map(|(there, by_backup)| (there - by_backup) as f64 / 1e6 + waits / rate.max(1.0));
        let late = later.is_some_and(|later| later > TOO_LATE.as_secs_f64());
        help.late_since = late.then(|| help.late_since.unwrap_or(now));
        if help.late_since.is_some_and(|since| now >= since + PERIOD) {
            help.until = now + HELP;
        }
        let helps = now < help.until;
        self.paths.iter_mut().for_each(|path| path.helps = helps);
    }
}
