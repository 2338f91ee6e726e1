//! Queues that drop before they are full, so that what waits in them does not wait for long.

use std::time::Duration;

use fq_codel::{Codel, FRAME};

use crate::config::Aqm;
use crate::dice::Dice;
use crate::units::Probability;

/// Decides which frames of a queue are dropped.
#[derive(Debug)]
pub(crate) enum Manager {
    /// None.
    Off,
    Codel(Codel),
    Pie(Box<Pie>),
}

impl Manager {
    pub(crate) fn new(aqm: Option<Aqm>, dice: Dice) -> Manager {
        match aqm {
            None => Manager::Off,
            Some(Aqm::Codel { target, interval }) => Manager::Codel(Codel::new(target, interval)),
            Some(Aqm::Pie { target }) => Manager::Pie(Box::new(Pie::new(target, dice))),
        }
    }

    /// Whether a frame that comes at `now`, when so many bytes wait, is dropped.
    pub(crate) fn drops_arrival(&mut self, now: Duration, waiting: u64) -> bool {
        match self {
            Manager::Pie(pie) => pie.drops(now, waiting),
            _ => false,
        }
    }

    /// Whether a frame that could leave at `now`, after having waited for `sojourn`, is dropped; so many bytes wait behind it.
    pub(crate) fn drops_departure(&mut self, now: Duration, sojourn: Duration, behind: u64) -> bool {
        match self {
            Manager::Codel(codel) => codel.drops(now, sojourn, behind),
            Manager::Pie(pie) => {
                pie.saw(now, if behind == 0 { Duration::ZERO } else { sojourn });
                false
            }
            Manager::Off => false,
        }
    }
}

/// How often the probability changes (RFC 8033 §5.1).
const UPDATE: Duration = Duration::from_millis(15);

/// So long nothing is dropped after a quiet time.
const BURST: Duration = Duration::from_millis(150);

/// Beyond this delay the probability rises by [`STEP_MAX`] each time.
const DELAY_MAX: Duration = Duration::from_millis(250);

/// The most by which it rises otherwise once it is above a tenth.
const STEP_MAX: f64 = 0.02;

/// Weights of the delay's difference from the target and of its change, per second.
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;

/// Updates after which a queue that is empty has forgotten everything: 0.98 to this power is nothing.
const UPDATES_MAX: u128 = 4000;

/// PIE (RFC 8033), without ECN and without derandomisation; the delay is that of the frame that left last.
#[derive(Debug)]
pub(crate) struct Pie {
    target: Duration,
    dice: Dice,
    probability: f64,
    delay: Duration,
    /// The delay at the last update.
    delay_before: Duration,
    /// What is left of [`BURST`].
    burst: Duration,
    updated: Duration,
}

impl Pie {
    fn new(target: Duration, dice: Dice) -> Pie {
        Pie {
            target,
            dice,
            probability: 0.0,
            delay: Duration::ZERO,
            delay_before: Duration::ZERO,
            burst: BURST,
            updated: Duration::ZERO,
        }
    }

    /// A frame left at `now` after so long.
    fn saw(&mut self, now: Duration, delay: Duration) {
        self.update(now);
        self.delay = delay;
    }

    fn drops(&mut self, now: Duration, waiting: u64) -> bool {
        self.update(now);
        let calm = self.probability < 0.2 && self.delay_before < self.target / 2;
        let spared = !self.burst.is_zero() || calm || waiting <= 2 * FRAME;
        !spared && self.dice.chance(Probability::new(self.probability).unwrap_or(Probability::ONE))
    }

    /// All updates that are due.
    fn update(&mut self, now: Duration) {
        let due = now.saturating_sub(self.updated).as_nanos() / UPDATE.as_nanos();
        if due > UPDATES_MAX {
            self.updated = now - UPDATE * UPDATES_MAX as u32;
        }
        while now.saturating_sub(self.updated) >= UPDATE {
            self.updated += UPDATE;
            self.update_once();
        }
    }

    fn update_once(&mut self) {
        let [delay, before, target] =
            [self.delay, self.delay_before, self.target].map(|time| time.as_secs_f64());
        let mut step = scale(self.probability) * (ALPHA * (delay - target) + BETA * (delay - before));
        if self.probability >= 0.1 {
            step = step.min(STEP_MAX);
        }
        if self.delay > DELAY_MAX {
            step += STEP_MAX;
        }
        self.probability += step;
        if self.delay.is_zero() && self.delay_before.is_zero() {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst = self.burst.saturating_sub(UPDATE);
        let half = self.target / 2;
        if self.probability == 0.0 && self.delay < half && self.delay_before < half {
            self.burst = BURST;
        }
        self.delay_before = self.delay;
    }
}

/// Small probabilities change in small steps (RFC 8033 §4.2).
fn scale(probability: f64) -> f64 {
    let steps = [(1e-6, 2048.0), (1e-5, 512.0), (1e-4, 128.0), (1e-3, 32.0), (1e-2, 8.0), (1e-1, 2.0)];
    steps.iter().find(|(below, _)| probability < *below).map_or(1.0, |(_, divisor)| 1.0 / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn pie_lets_a_burst_pass_and_then_drops_until_the_delay_is_small() {
        let mut pie = Manager::new(Some(Aqm::PIE), Dice::new(1, 0));
        let mut dropped = |from: u64, until: u64, delay: u64| {
            let arrivals = (from..until).filter(|&now| {
                pie.drops_departure(ms(now), ms(delay), 100_000);
                pie.drops_arrival(ms(now), 100_000)
            });
            arrivals.count()
        };
        assert_eq!(dropped(0, 140, 50), 0, "a burst");
        let many = dropped(140, 10_000, 50);
        assert!(many > 500, "{many}");
        assert!(dropped(10_000, 12_000, 20) > 0);
        dropped(12_000, 90_000, 0);
        assert_eq!(dropped(90_000, 91_000, 0), 0);
    }

    #[test]
    fn pie_forgets_in_a_long_silence() {
        let mut pie = Pie::new(ms(15), Dice::new(1, 0));
        (0..5000).for_each(|now| pie.saw(ms(now), ms(100)));
        assert!(pie.probability > 0.1);
        pie.saw(ms(5000), Duration::ZERO);
        assert!(!pie.drops(Duration::from_secs(1_000_000), 100_000) && pie.probability < 1e-9);
    }
}
