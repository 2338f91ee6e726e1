//! How much faster the peer's clock runs than this end's, from the one-way delays that it reports.
//!
//! Queues come and go, so the least delay of a path over some seconds stays where it is; where it moves, and on most paths
//! alike, a clock does it. So: each path's least delay of an epoch minus that of the epoch before, the median over the
//! paths, smoothed. Crystals are wrong by at most 100 ppm and NTP turns clocks by at most 500 (RFC 5905 §11.3): more is no
//! clock, but a path that changed, and is left out.

use std::time::Duration;

/// Time over which a path's least delay is taken.
pub const EPOCH: Duration = Duration::from_secs(5);
/// The greatest skew that is believed, ppm.
const GREATEST: f64 = 1000.0;
/// Weight of an epoch in the smoothed skew.
const GAIN: f64 = 0.25;

/// One path's least one-way delays, µs (receiver's clock minus sender's, wrapping), of this epoch and the last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Minima {
    current: Option<u32>,
    previous: Option<u32>,
}

impl Minima {
    /// A report gave `min` as the least of some delays.
    pub fn add(&mut self, min: u32) {
        let lower = |current: &u32| min.wrapping_sub(*current) as i32 <= 0;
        if self.current.as_ref().is_none_or(lower) {
            self.current = Some(min);
        }
    }

    /// Ends an epoch: by how much the least delay has changed, µs.
    fn turn(&mut self) -> Option<i32> {
        let previous = std::mem::replace(&mut self.previous, self.current.take());
        Some(self.previous?.wrapping_sub(previous?) as i32)
    }
}

/// The peer's clock against this end's.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockSkew {
    ppm: f64,
    epoch_end: Option<Duration>,
}

impl ClockSkew {
    /// How much faster the peer's clock runs, parts per million, −1000 to 1000.
    pub fn ppm(&self) -> f64 {
        self.ppm
    }

    /// By how much delays to the peer seem to grow in `time`, µs.
    pub fn over(&self, time: Duration) -> f64 {
        self.ppm * time.as_secs_f64()
    }

    /// Called often; at an epoch's end takes over what the paths' minima show.
    pub fn update<'a>(&mut self, now: Duration, minima: impl Iterator<Item = &'a mut Minima>) {
        let end = *self.epoch_end.get_or_insert(now + EPOCH);
        if now < end {
            return;
        }
        self.epoch_end = Some(now + EPOCH);
        let mut changes: Vec<i32> = minima.filter_map(Minima::turn).collect();
        // After a pause the last epoch was longer.
        if now >= end + EPOCH / 4 {
            return;
        }
        changes.retain(|change| f64::from(change.unsigned_abs()) <= GREATEST * EPOCH.as_secs_f64());
        changes.sort_unstable();
        if let Some(median) = changes.get(changes.len() / 2) {
            self.ppm += GAIN * (f64::from(*median) / EPOCH.as_secs_f64() - self.ppm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The skew after `epochs` with these delays by time, each 100 ms.
    fn run(epochs: u32, delays: &[&dyn Fn(f64) -> f64]) -> f64 {
        let (mut skew, mut minima) = (ClockSkew::default(), vec![Minima::default(); delays.len()]);
        for tick in 0..epochs * 50 {
            let now = tick * Duration::from_millis(100);
            for (m, delay) in minima.iter_mut().zip(delays) {
                m.add(delay(now.as_secs_f64()) as i64 as u32);
            }
            skew.update(now, minima.iter_mut());
        }
        skew.ppm()
    }

    #[test]
    fn what_moves_on_all_paths_is_the_clock() {
        for ppm in [-200.0, 200.0] {
            // An hour apart, and one path's queue comes and goes.
            let drift = move |t: f64| 3.6e9 + ppm * t;
            let queue = move |t: f64| drift(t) + 40_000.0 * (t * 3.0).sin().abs();
            let found = run(60, &[&drift, &|t| drift(t) + 90_000.0, &queue]);
            assert!((found - ppm).abs() < 5.0, "{found} for {ppm}");
        }
    }

    #[test]
    fn what_moves_on_one_path_is_not() {
        let still = |_| 10_000.0;
        assert!(run(60, &[&still, &still, &|t| 500.0 * t]).abs() < 1.0);
        // Every path's queue fills: far more than any clock drifts.
        let fills = |t: f64| 1_000_000.0f64.min(20_000.0 * t);
        assert!(run(20, &[&fills, &fills, &fills]).abs() < 1.0);
    }

    #[test]
    fn a_pause_is_no_drift() {
        let (mut skew, mut minima) = (ClockSkew::default(), Minima::default());
        for (now, min) in [(0, 5), (5, 5), (10, 9), (600, 200_000), (605, 200_000)] {
            minima.add(min);
            skew.update(Duration::from_secs(now), std::iter::once(&mut minima));
            assert!(skew.ppm().abs() < 1.0, "{}", skew.ppm());
        }
    }
}
