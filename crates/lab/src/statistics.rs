//! Medians and other percentiles, and how sure they are.

use std::time::Duration;

/// The least confidence that an interval from order statistics is chosen for.
const CONFIDENCE: f64 = 0.9;

/// Fewer samples than this have no interval from order statistics: not even their extremes enclose the median with
/// [`CONFIDENCE`].
pub(crate) const SAMPLES_MIN: usize = 5;

/// Where a median lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// The probability that the interval encloses the median, whatever the distribution, as long as samples are
    /// independent; `None` for the samples' extremes, where there are fewer than [`SAMPLES_MIN`].
    pub(crate) confidence: Option<f64>,
}

impl Interval {
    pub(crate) fn kind(&self) -> String {
        match self.confidence {
            Some(confidence) => {
                format!("{:.1} % interval of the median, from order statistics", confidence * 100.0)
            }
            None => "min..max".into(),
        }
    }
}

/// Bytes over time, in Mbit/s.
pub(crate) fn mbps(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8e-6 / time.as_secs_f64().max(1e-9)
}

/// The value that `percent` of `times` do not exceed (nearest rank); `None` of none.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// The same in milliseconds.
pub(crate) fn percentile_ms(times: &[Duration], percent: usize) -> Option<f64> {
    percentile(times, percent).map(|time| time.as_secs_f64() * 1e3)
}

/// The median; of an even number the mean of the middle two; NaN of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The narrowest pair of symmetric order statistics that encloses the median with [`CONFIDENCE`]; `None` of no values.
///
/// The k-th smallest and k-th largest of n enclose it with probability 1 − 2 Σ C(n, i) / 2ⁿ, i < k (the binomial
/// distribution of how many samples lie below the median).
pub(crate) fn interval(mut values: Vec<f64>) -> Option<Interval> {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let (mut skipped, mut confidence) = (0, enclosed(count, 1));
    while enclosed(count, skipped + 2) >= CONFIDENCE {
        skipped += 1;
        confidence = enclosed(count, skipped + 1);
    }
    let (low, high) = (*values.get(skipped)?, *values.get(count - 1 - skipped)?);
    Some(Interval { low, high, confidence: (count >= SAMPLES_MIN).then_some(confidence) })
}

/// The probability that the `k`-th smallest and `k`-th largest of `count` samples enclose the median.
fn enclosed(count: usize, k: usize) -> f64 {
    let (mut term, mut tail) = (0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX)), 0.0);
    for i in 0..k {
        tail += term;
        term *= count.saturating_sub(i) as f64 / (i + 1) as f64;
    }
    1.0 - 2.0 * tail
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> Interval {
        interval((1..=count).rev().map(f64::from).collect()).unwrap()
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // n = 5: 1 - 2/32; n = 9, second of each end: 1 - 2 * 10/512; n = 20, the sixth: 1 - 2 * 21700/2^20.
        assert_eq!(of(5), Interval { low: 1.0, high: 5.0, confidence: Some(0.9375) });
        assert_eq!(of(9), Interval { low: 2.0, high: 8.0, confidence: Some(1.0 - 20.0 / 512.0) });
        let twenty = of(20);
        assert_eq!((twenty.low, twenty.high), (6.0, 15.0));
        assert!((twenty.confidence.unwrap() - 0.9586).abs() < 1e-4);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<Duration> = (1..=20).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 95), Some(Duration::from_millis(19)));
        assert_eq!(percentile_ms(&times, 100), Some(20.0));
        assert_eq!(percentile_ms(&times[..1], 95), Some(20.0));
        assert_eq!(percentile(&[], 95), None);
    }

    #[test]
    fn few_samples_have_only_their_extremes() {
        assert_eq!(of(4), Interval { low: 1.0, high: 4.0, confidence: None });
        assert_eq!(of(1).kind(), "min..max");
        assert_eq!(interval(Vec::new()), None);
    }
}
