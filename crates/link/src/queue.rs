//! What waited in a link's queue: every change counts, nothing is sampled.

use std::time::Duration;

/// The queue of one link over a stretch of its time. A frame waits from its arrival at the queue until its transmission
/// begins; one that finds the transmitter idle waits for no time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStats {
    from: Duration,
    until: Duration,
    frames: u64,
    /// The integral of the number of waiting frames over time, in frames · ns.
    waited: u128,
    sojourns: Histogram,
}

impl QueueStats {
    /// How long the stretch is.
    pub fn time(&self) -> Duration {
        self.until.saturating_sub(self.from)
    }

    /// How many frames waited, averaged over time; 0 of a stretch of no time.
    pub fn mean_frames(&self) -> f64 {
        match self.time().as_nanos() {
            0 => 0.0,
            nanos => self.waited as f64 / nanos as f64,
        }
    }

    /// How long frames waited: the `percent`-th percentile (0 to 100) of those whose transmission began, to 1.6 % or
    /// 1 µs; `None` if there was none.
    pub fn sojourn(&self, percent: f64) -> Option<Duration> {
        self.sojourns.percentile(percent).map(Duration::from_micros)
    }

    /// The stretch from `earlier`'s end, which has the same link's begin, to this one's.
    pub fn since(&self, earlier: &QueueStats) -> QueueStats {
        QueueStats {
            from: earlier.until,
            until: self.until,
            frames: self.frames,
            waited: self.waited.saturating_sub(earlier.waited),
            sojourns: self.sojourns.since(&earlier.sojourns),
        }
    }

    /// The same up to `now`.
    pub(crate) fn at(&self, now: Duration) -> QueueStats {
        let mut copy = self.clone();
        copy.advance(now);
        copy
    }

    /// A frame begins to wait at `time`; times never go back.
    pub(crate) fn enter(&mut self, time: Duration) {
        self.advance(time);
        self.frames += 1;
    }

    /// A frame that has waited since `entered` is transmitted from `time` on.
    pub(crate) fn leave(&mut self, time: Duration, entered: Duration) {
        self.advance(time);
        self.frames -= 1;
        self.sojourns.add(micros(time.saturating_sub(entered)));
    }

    /// A frame that waited is dropped at `time`.
    pub(crate) fn drop(&mut self, time: Duration) {
        self.advance(time);
        self.frames -= 1;
    }

    /// A frame is transmitted without having waited.
    pub(crate) fn pass(&mut self) {
        self.sojourns.add(0);
    }

    fn advance(&mut self, time: Duration) {
        let passed = time.saturating_sub(self.until);
        self.waited += passed.as_nanos() * u128::from(self.frames);
        self.until += passed;
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Powers of two are cut into so many buckets, and smaller values have one each.
const BUCKETS: u64 = 64;
const BUCKETS_LOG2: u32 = BUCKETS.ilog2();

/// How often values occurred, to 1/64 of each: 59 · 64 buckets at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Histogram(Vec<u64>);

impl Histogram {
    fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += 1;
    }

    fn since(&self, earlier: &Histogram) -> Histogram {
        let before = earlier.0.iter().copied().chain(std::iter::repeat(0));
        Histogram(self.0.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect())
    }

    /// The least value of the bucket that the percentile (nearest rank) is in.
    fn percentile(&self, percent: f64) -> Option<u64> {
        let total: u64 = self.0.iter().sum();
        let rank = ((total as f64 * percent / 100.0).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= rank
        };
        self.0.iter().position(reached).map(least)
    }
}

fn bucket(value: u64) -> usize {
    let shift = value.max(1).ilog2().saturating_sub(BUCKETS_LOG2);
    (u64::from(shift) * BUCKETS + (value >> shift)) as usize
}

/// The least value in a bucket.
fn least(bucket: usize) -> u64 {
    let shift = (bucket as u64 / BUCKETS).saturating_sub(1);
    (bucket as u64 - shift * BUCKETS) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn buckets_keep_order_and_are_narrow() {
        for value in [0, 1, 63, 64, 65, 127, 128, 129, 1000, 123_456, u64::MAX / 3, u64::MAX] {
            let floor = least(bucket(value));
            assert!(floor <= value && value - floor <= value / 64, "{value} {floor}");
            assert!(bucket(value) < 59 * 64);
            assert_eq!(bucket(floor), bucket(value));
            assert!(bucket(value.saturating_add(value / 32 + 1)) > bucket(value) || value == u64::MAX);
        }
    }

    #[test]
    fn the_mean_is_weighted_by_time() {
        let mut queue = QueueStats::default();
        queue.enter(ms(10));
        queue.enter(ms(20));
        queue.leave(ms(40), ms(10));
        queue.leave(ms(50), ms(20));
        assert_eq!(queue.at(ms(100)).mean_frames(), 0.6);
        assert_eq!(queue.at(ms(100)).since(&queue).mean_frames(), 0.0);
        assert_eq!(queue.sojourn(100.0), Some(Duration::from_micros(least(bucket(30_000)))));
    }

    #[test]
    fn percentiles_are_nearest_ranks_of_the_stretch() {
        let mut queue = QueueStats::default();
        queue.pass();
        let first = queue.clone();
        for n in 1..=20 {
            queue.enter(ms(0));
            queue.leave(ms(0) + Duration::from_micros(n), ms(0));
        }
        assert_eq!(queue.since(&first).sojourn(95.0), Some(Duration::from_micros(19)));
        assert_eq!(queue.sojourn(0.0), Some(Duration::ZERO));
        assert_eq!(QueueStats::default().sojourn(95.0), None);
    }
}
