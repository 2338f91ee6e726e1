//! Propagation delay that changes with time.

use std::time::Duration;

/// The delay at each time.
#[derive(Debug)]
pub(crate) struct Delay {
    /// When each ends, since the period's begin, and its delay; never empty.
    steps: Vec<(Duration, Duration)>,
    least: Duration,
}

impl Delay {
    /// `steps` (for how long, which delay) one after the other from time 0, and around again; `constant` if they take no time.
    pub(crate) fn new(constant: Duration, steps: &[(Duration, Duration)]) -> Delay {
        let mut end = Duration::ZERO;
        let step = |&(length, delay): &(Duration, Duration)| {
            end = end.saturating_add(length);
            (end, delay)
        };
        let mut steps: Vec<_> = steps.iter().filter(|(length, _)| !length.is_zero()).map(step).collect();
        if steps.is_empty() {
            steps.push((Duration::MAX, constant));
        }
        let least = steps.iter().map(|(_, delay)| *delay).min().unwrap_or_default();
        Delay { steps, least }
    }

    /// The delay of a frame whose transmission ends at `time`.
    pub(crate) fn at(&self, time: Duration) -> Duration {
        let (period, last) = self.steps[self.steps.len() - 1];
        let within = crate::units::nanoseconds(time.as_nanos() % period.as_nanos());
        let behind = self.steps.partition_point(|(end, _)| *end <= within);
        self.steps.get(behind).map_or(last, |(_, delay)| *delay)
    }

    /// No frame has less.
    pub(crate) fn least(&self) -> Duration {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_delay_holds_as_long_as_it_was_given_and_comes_again() {
        let delay = Delay::new(ms(1), &[(ms(10), ms(30)), (ms(0), ms(5)), (ms(5), ms(80))]);
        let at = [0, 9, 10, 14, 15, 24, 25, 30].map(|time| delay.at(ms(time)).as_millis());
        assert_eq!(at, [30, 30, 80, 80, 30, 30, 80, 30]);
        assert_eq!(delay.least(), ms(30));
        let constant = Delay::new(ms(7), &[]);
        assert_eq!([ms(0), Duration::MAX].map(|time| constant.at(time)), [ms(7); 2]);
    }
}
