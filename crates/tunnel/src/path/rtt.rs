//! The round-trip time of a path, smoothed.

use std::time::Duration;

/// Reports are not later than expected by less.
pub const MIN_VARIATION: Duration = Duration::from_millis(10);
/// No round trip is taken to be longer: a peer that delays its reports for ever longer makes this end wait no longer for them.
pub const MAX_RTT: Duration = Duration::from_secs(10);
/// Before a round trip was measured.
pub const INITIAL_RTT: Duration = Duration::from_millis(333);

/// Smoothed round-trip time (RFC 6298 §2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl Rtt {
    /// One more was measured.
    pub fn add(&mut self, rtt: Duration) {
        let rtt = rtt.min(MAX_RTT);
        let Some(smoothed) = self.smoothed else {
            *self = Rtt { smoothed: Some(rtt), variation: rtt / 2 };
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
    }

    /// The smoothed round-trip time, once measured.
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// What takes longer is late (RFC 6298 §2.3).
    pub fn timeout(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL_RTT) + (self.variation * 4).max(MIN_VARIATION)
    }
}
