//! The lab's clocks: it is one of the edges that may read them.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::complete;
use crate::error::{Error, Result};

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
pub(crate) fn timestamp() -> Result<String> {
    let said = complete("date", Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]), "")?;
    Ok(said.trim().into())
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
) -> Result<T> {
    poll_until(limit, ready).ok_or_else(|| Error::late(what, limit))
}
