//! Round trips and the retransmission time-out, as Linux's `tcp_rtt_estimator` has them.

use std::time::Duration;

/// `TCP_RTO_MIN` and `TCP_RTO_MAX`.
pub const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_MAX: Duration = Duration::from_secs(120);
/// Before a round trip is known.
const RTO_FIRST: Duration = Duration::from_secs(1);
/// The least round trip is forgotten after so long (`tcp_min_rtt_wlen`).
const MIN_WINDOW: Duration = Duration::from_secs(300);

/// What is known of round trips.
#[derive(Debug, Clone, Default)]
pub struct Rtt {
    srtt: Option<f64>,
    mdev: f64,
    mdev_max: f64,
    rttvar: f64,
    /// The segment whose acknowledgement ends this round of variances.
    round_end: u64,
    min: Option<(Duration, Duration)>,
}

impl Rtt {
    /// Smoothed, if there is one.
    pub fn smoothed(&self) -> Option<Duration> {
        self.srtt.map(Duration::from_secs_f64)
    }

    /// The least, if there is one.
    pub fn min(&self) -> Option<Duration> {
        self.min.map(|(_, min)| min)
    }

    /// A round trip was seen; `una` is the first segment unacknowledged, `next` the next to be sent.
    pub fn measure(&mut self, sample: Duration, una: u64, next: u64) {
        let m = sample.as_secs_f64();
        let least = RTO_MIN.as_secs_f64();
        let Some(srtt) = self.srtt else {
            self.srtt = Some(m);
            self.mdev = m / 2.0;
            self.rttvar = (2.0 * m).max(least);
            self.mdev_max = self.rttvar;
            self.round_end = next;
            return;
        };
        let error = m - srtt;
        self.srtt = Some(srtt + error / 8.0);
        // Kept four times as large, as there; a fall counts an eighth where it would raise the deviation.
        let mut deviation = error.abs() - self.mdev / 4.0;
        if error < 0.0 && deviation > 0.0 {
            deviation /= 8.0;
        }
        self.mdev += deviation;
        if self.mdev > self.mdev_max {
            self.mdev_max = self.mdev;
            self.rttvar = self.rttvar.max(self.mdev_max);
        }
        if una > self.round_end {
            if self.mdev_max < self.rttvar {
                self.rttvar -= (self.rttvar - self.mdev_max) / 4.0;
            }
            self.round_end = next;
            self.mdev_max = least;
        }
    }

    /// The least of some time.
    pub fn note_min(&mut self, now: Duration, sample: Duration) {
        if self.min.is_none_or(|(at, min)| sample <= min || now - at > MIN_WINDOW) {
            self.min = Some((now, sample));
        }
    }

    /// How long to wait for an acknowledgement, doubled `backoff` times.
    pub fn rto(&self, backoff: u32) -> Duration {
        let base = self.srtt.map_or(RTO_FIRST, |srtt| Duration::from_secs_f64(srtt + self.rttvar));
        (base * (1 << backoff.min(16))).min(RTO_MAX)
    }
}
