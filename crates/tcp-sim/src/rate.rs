//! Samples of the delivery rate, as Linux's `tcp_rate.c`.

use std::time::Duration;

/// What a segment remembers of when it left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Snapshot {
    delivered: u64,
    delivered_at: Duration,
    first_sent: Duration,
    app_limited: bool,
}

/// What has been delivered.
#[derive(Debug, Default)]
pub struct Rate {
    /// Segments that arrived, and when the last was told.
    pub delivered: u64,
    delivered_at: Duration,
    first_sent: Duration,
    /// What is delivered up to here was limited by the application.
    app_limited: u64,
    /// Segments judged lost.
    pub lost: u64,
}

/// What an acknowledgement tells.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateSample {
    /// The segment that left last of those newly delivered: what was delivered when it left, and when that was.
    prior: Option<(u64, Duration)>,
    newest: (Duration, u64),
    sent_over: Duration,
    /// Whether the application had nothing more to send.
    pub app_limited: bool,
    /// Newly delivered segments.
    pub acked: u64,
    /// Newly lost segments.
    pub lost: u64,
    /// Segments delivered over `interval`, if it is a sample of the rate.
    pub delivered: Option<u64>,
    /// How long it took to deliver them.
    pub interval: Duration,
    /// The newest round trip.
    pub rtt: Option<Duration>,
    /// In flight before the acknowledgement.
    pub prior_in_flight: u64,
    /// A single segment, whose acknowledgement may have waited.
    pub maybe_delayed: bool,
}

impl RateSample {
    /// What had been delivered when the newest segment left.
    pub fn prior_delivered(&self) -> u64 {
        self.prior.map_or(0, |(delivered, _)| delivered)
    }
}

impl Rate {
    /// A segment leaves.
    pub fn snapshot(&mut self, now: Duration, nothing_out: bool) -> Snapshot {
        if nothing_out {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            app_limited: self.app_limited > 0,
        }
    }

    /// A segment, sent at `sent` as transmission `tx`, was delivered.
    pub fn deliver(&mut self, sample: &mut RateSample, snapshot: &Snapshot, sent: Duration, tx: u64) {
        self.delivered += 1;
        if sample.prior.is_none() || (sent, tx) > sample.newest {
            sample.prior = Some((snapshot.delivered, snapshot.delivered_at));
            sample.newest = (sent, tx);
            sample.app_limited = snapshot.app_limited;
            sample.sent_over = sent - snapshot.first_sent;
            self.first_sent = sent;
        }
    }

    /// `tcp_rate_gen`; `before` had been delivered before this acknowledgement.
    pub fn finish(&mut self, now: Duration, sample: &mut RateSample, before: u64, least: Option<Duration>) {
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        sample.acked = self.delivered - before;
        if sample.acked > 0 {
            self.delivered_at = now;
        }
        let Some((delivered, at)) = sample.prior else { return };
        sample.interval = sample.sent_over.max(now - at);
        let known = least.is_none_or(|least| sample.interval >= least) && !sample.interval.is_zero();
        sample.delivered = known.then(|| self.delivered - delivered);
    }

    /// The application has no more to send.
    pub fn note_app_limited(&mut self, in_flight: u64) {
        self.app_limited = (self.delivered + in_flight).max(1);
    }
}
