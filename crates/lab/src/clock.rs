//! The lab's clocks: it is one of the edges that may read them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::Error;

/// The monotonic clock.
#[allow(clippy::disallowed_methods, reason = "the lab times real programs")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Time that the calling thread has had on a processor.
pub(crate) fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// This moment as RFC 3339 in UTC, whole seconds.
#[allow(clippy::disallowed_methods, reason = "a report names the time at which it was made")]
pub(crate) fn timestamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

/// Gives `ready` a new chance every few milliseconds until it has something, at most for `limit`.
pub(crate) fn poll_until<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = now() + limit;
    loop {
        if let Some(found) = ready() {
            return Some(found);
        }
        if now() >= deadline {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// The same, where it is an error, of which `what` tells, if there is nothing in time.
pub(crate) fn within<T>(
    limit: Duration,
    what: impl Into<String>,
    ready: impl FnMut() -> Option<T>,
) -> Result<T, Error> {
    let late = || Error::Late { what: what.into(), seconds: limit.as_secs() };
    poll_until(limit, ready).ok_or_else(late)
}

/// How long `limit` still is, counted from `started`.
pub(crate) fn left(started: Instant, limit: Duration) -> Duration {
    limit.saturating_sub(now() - started)
}

fn rfc3339(unix: u64) -> String {
    let (days, second) = (unix / 86_400, unix % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Count from 0000-03-01, so that the leap day ends a year; 146,097 days are 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_calendar_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_735_689_599), "2024-12-31T23:59:59Z");
    }

    #[test]
    fn polling_gives_up() {
        assert_eq!(poll_until(Duration::ZERO, || None::<()>), None);
        assert_eq!(poll_until(Duration::ZERO, || Some(1)), Some(1));
    }
}
