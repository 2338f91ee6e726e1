//! Active queue management: who is dropped from a queue before it is full.

use std::time::Duration;

use crate::config::Aqm;
use crate::dice::Dice;
use crate::units::Probability;

/// The state of a queue's [`Aqm`].
#[derive(Debug)]
pub(crate) enum Manager {
    None,
    CoDel(CoDel),
    Pie(Box<Pie>),
}

impl Manager {
    pub(crate) fn new(aqm: Aqm, dice: Dice) -> Manager {
        match aqm {
            Aqm::None => Manager::None,
            Aqm::CoDel => Manager::CoDel(CoDel::default()),
            Aqm::Pie => Manager::Pie(Box::new(Pie::new(dice))),
        }
    }

    /// Whether a frame that comes at `now` is dropped. The first of the queue has waited for `delay`.
    pub(crate) fn drops_at_tail(&mut self, now: Duration, delay: Duration, waiting: usize) -> bool {
        match self {
            Manager::Pie(pie) => pie.drops(now, delay, waiting),
            _ => false,
        }
    }

    /// Whether the first of the queue, whose turn comes at `now`, is dropped; `more` wait behind it.
    pub(crate) fn drops_at_head(&mut self, now: Duration, sojourn: Duration, more: usize) -> bool {
        match self {
            Manager::CoDel(codel) => codel.drops(now, sojourn, more),
            _ => false,
        }
    }
}

/// RFC 8289 with its constants.
#[derive(Debug, Default)]
pub(crate) struct CoDel {
    /// When the delay will have been above the target for an interval.
    above_until: Option<Duration>,
    dropping: bool,
    next: Duration,
    count: u32,
    /// `count` when dropping began.
    began_with: u32,
}

impl CoDel {
    const TARGET: Duration = Duration::from_millis(5);
    const INTERVAL: Duration = Duration::from_millis(100);

    fn drops(&mut self, now: Duration, sojourn: Duration, more: usize) -> bool {
        if sojourn < CoDel::TARGET || more == 0 {
            (self.above_until, self.dropping) = (None, false);
            return false;
        }
        let above = now >= *self.above_until.get_or_insert(now + CoDel::INTERVAL);
        if self.dropping && above && now >= self.next {
            self.count += 1;
            self.next += CoDel::INTERVAL.div_f64(f64::from(self.count).sqrt());
            return true;
        }
        if self.dropping || !above {
            self.dropping &= above;
            return false;
        }
        let recent = now.saturating_sub(self.next) < 16 * CoDel::INTERVAL;
        let since = self.count - self.began_with;
        self.count = if recent && since > 1 { since } else { 1 };
        self.began_with = self.count;
        self.dropping = true;
        self.next = now + CoDel::INTERVAL.div_f64(f64::from(self.count).sqrt());
        true
    }
}

/// RFC 8033 with its constants, by timestamps.
#[derive(Debug)]
pub(crate) struct Pie {
    dice: Dice,
    probability: f64,
    updated: Duration,
    delay: Duration,
    burst: Duration,
}

impl Pie {
    const TARGET: Duration = Duration::from_millis(15);
    const UPDATE: Duration = Duration::from_millis(15);
    const BURST: Duration = Duration::from_millis(150);
    /// So many updates without a frame forget all there was.
    const UPDATES: u128 = 1000;

    fn new(dice: Dice) -> Pie {
        Pie { dice, probability: 0.0, updated: Duration::ZERO, delay: Duration::ZERO, burst: Pie::BURST }
    }

    fn drops(&mut self, now: Duration, delay: Duration, waiting: usize) -> bool {
        let due = now.saturating_sub(self.updated).as_nanos() / Pie::UPDATE.as_nanos();
        (0..due.min(Pie::UPDATES)).for_each(|_| self.update(delay));
        if due > 0 {
            self.updated = now;
        }
        let spared = self.delay < Pie::TARGET / 2 && self.probability < 0.2;
        if self.burst > Duration::ZERO || spared || waiting <= 2 {
            return false;
        }
        Probability::new(self.probability).is_ok_and(|probability| self.dice.chance(probability))
    }

    fn update(&mut self, delay: Duration) {
        let (now, before) = (delay.as_secs_f64(), self.delay.as_secs_f64());
        let target = Pie::TARGET.as_secs_f64();
        let scale = match self.probability {
            p if p < 1e-6 => 2048.0,
            p if p < 1e-5 => 512.0,
            p if p < 1e-4 => 128.0,
            p if p < 1e-3 => 32.0,
            p if p < 1e-2 => 8.0,
            p if p < 0.1 => 2.0,
            _ => 1.0,
        };
        let step = (0.125 * (now - target) + 1.25 * (now - before)) / scale;
        let idle = now == 0.0 && before == 0.0;
        self.probability = ((self.probability + step) * if idle { 0.98 } else { 1.0 }).clamp(0.0, 1.0);
        self.burst = self.burst.saturating_sub(Pie::UPDATE);
        if self.probability == 0.0 && now < target / 2.0 && before < target / 2.0 {
            self.burst = Pie::BURST;
        }
        self.delay = delay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn codel_drops_more_and_more_often_while_the_delay_stays_above_its_target() {
        let mut codel = CoDel::default();
        let drops: Vec<u64> = (0..500).filter(|at| codel.drops(ms(*at), ms(6), 9)).collect();
        assert_eq!(drops, [100, 200, 271, 329, 379, 424, 464]);
        assert!(!codel.drops(ms(500), ms(4), 9) && !codel.drops(ms(501), ms(6), 9), "it begins anew");
        assert!(!CoDel::default().drops(ms(0), ms(90), 0), "the last of a queue is never dropped");
    }

    #[test]
    fn pie_drops_a_share_that_grows_with_the_delay_and_lets_bursts_pass() {
        let share = |delay| {
            let mut pie = Pie::new(Dice::new(1, 0));
            (0..20_000).filter(|at| pie.drops(ms(*at), ms(delay), 99)).count()
        };
        assert_eq!(share(14), 0);
        assert!(share(40) > share(20) && share(20) > 100, "{} {}", share(40), share(20));
        let mut pie = Pie::new(Dice::new(1, 0));
        assert!((0..150).all(|at| !pie.drops(ms(at), ms(200), 99)));
    }
}
