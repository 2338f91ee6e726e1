//! When each group of cases is measured, so that what runs at the same time does not disturb itself.
//!
//! A turn is one group in one repeat. Its cases start together, so that what is compared sees the same machine. The turns of a repeat
//! come in an order drawn from the seed, unless the experiment has an order of its own, and those of the next after them: rivals
//! alternate. Turns follow one another, or, where the experiment allows it, run beside each other up to a sum of their links' rates,
//! whatever their repeat: a link of 64 kbit/s takes twenty minutes for 10 MB and next to nothing of the machine. Those
//! that last longest begin first; the others fill the time until these end.

use std::collections::VecDeque;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::experiment::{Case, Experiment, SideBySide};

/// Cases to be measured at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) repeat: usize,
    /// Indices of those that no earlier run has measured.
    pub(crate) cases: Vec<usize>,
    estimate: Duration,
    /// The sum of their links' rates, in bit/s.
    load: u64,
}

/// The turns that have not begun, and what those that have leave free.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    waiting: VecDeque<Turn>,
    running: usize,
    load: u64,
    /// The greatest sum of rates; none: one turn after the other.
    limit: Option<u64>,
}

impl Schedule {
    /// The turns of `experiment`, their order drawn from `seed`, without the cases and repeats that `has` knows.
    pub(crate) fn new(experiment: &Experiment, seed: u64, has: impl Fn(usize, usize) -> bool) -> Self {
        let (mut turns, mut dice) = (Vec::new(), ChaCha8Rng::seed_from_u64(seed));
        for repeat in 0..experiment.repeats {
            let (mut own, mut first) = (Vec::new(), 0);
            for group in experiment.groups() {
                let indexed = (first..).zip(group);
                let cases: Vec<_> = indexed.filter(|&(index, _)| !has(index, repeat)).collect();
                own.extend((!cases.is_empty()).then(|| Turn::new(repeat, &cases)));
                first += group.len();
            }
            if !experiment.in_order {
                own.sort_by_cached_key(|_| dice.next_u64());
            }
            turns.extend(own);
        }
        let limit = match experiment.side_by_side {
            SideBySide::Cases(_) | SideBySide::Rates(_) => None,
            SideBySide::Links { up_to, .. } => {
                turns.sort_by_key(|turn| std::cmp::Reverse(turn.estimate));
                Some(up_to.as_bps())
            }
        };
        Self { waiting: turns.into(), running: 0, load: 0, limit }
    }

    /// The next turn, if it may begin now.
    pub(crate) fn begin(&mut self) -> Option<Turn> {
        let next = self.waiting.front()?;
        let fits = self.limit.is_some_and(|limit| self.load + next.load <= limit);
        if self.running > 0 && !fits {
            return None;
        }
        self.running += 1;
        self.load += next.load;
        self.waiting.pop_front()
    }

    /// A turn that has begun is over.
    pub(crate) fn end(&mut self, turn: &Turn) {
        self.running -= 1;
        self.load -= turn.load;
    }

    /// Whether nothing is being measured.
    pub(crate) fn is_idle(&self) -> bool {
        self.running == 0
    }

    /// How many runs of a case are left.
    pub(crate) fn runs(&self) -> usize {
        self.waiting.iter().map(|turn| turn.cases.len()).sum()
    }

    /// How long the turns that are left take, about.
    pub(crate) fn estimate(&self) -> Duration {
        let mut schedule = self.clone();
        let (mut now, mut running) = (Duration::ZERO, Vec::<(Duration, Turn)>::new());
        loop {
            while let Some(turn) = schedule.begin() {
                running.push((now + turn.estimate, turn));
            }
            let Some(first) = (0..running.len()).min_by_key(|&index| running[index].0) else { return now };
            let (end, turn) = running.swap_remove(first);
            now = end;
            schedule.end(&turn);
        }
    }
}

impl Experiment {
    /// How long the whole takes, about.
    pub fn estimate(&self) -> Duration {
        Schedule::new(self, 0, |_, _| false).estimate()
    }
}

impl Turn {
    fn new(repeat: usize, cases: &[(usize, &Case)]) -> Self {
        Self {
            repeat,
            cases: cases.iter().map(|(index, _)| *index).collect(),
            estimate: cases.iter().map(|(_, case)| case.estimate).max().unwrap_or_default(),
            load: cases.iter().map(|(_, case)| case.workload.rate().as_bps()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::find;
    use crate::experiment::{RunOptions, Size};

    fn wired() -> Experiment {
        find("flight-wired", &RunOptions { size: Size::Paper, ..RunOptions::default() }).unwrap()
    }

    fn all(mut schedule: Schedule) -> Vec<Turn> {
        let mut turns = Vec::new();
        while let Some(turn) = schedule.begin() {
            schedule.end(&turn);
            turns.push(turn);
        }
        turns
    }

    #[test]
    fn every_case_has_its_turn_in_every_repeat_and_what_takes_the_whole_machine_has_it_alone() {
        for (name, _) in crate::list() {
            let experiment = find(name, &RunOptions::default()).unwrap();
            let mut schedule = Schedule::new(&experiment, 1, |_, _| false);
            let turns = all(schedule.clone());
            let alone = matches!(experiment.side_by_side, SideBySide::Cases(_));
            assert!(schedule.begin().is_some() && !(alone && schedule.begin().is_some()), "{name}");
            let runs = turns.iter().flat_map(|turn| turn.cases.iter().map(|&case| (case, turn.repeat)));
            let mut runs: Vec<_> = runs.collect();
            runs.sort_unstable();
            let expected =
                (0..experiment.cases.len()).flat_map(|case| (0..experiment.repeats).map(move |n| (case, n)));
            assert!(runs.into_iter().eq(expected), "{name}");
        }
    }

    #[test]
    fn the_order_of_a_repeat_is_drawn_from_the_seed() {
        let order = |name, seed| {
            let experiment = find(name, &RunOptions::default()).unwrap();
            let turns = all(Schedule::new(&experiment, seed, |_, _| false));
            turns.iter().map(|turn| (turn.repeat, turn.cases[0])).collect::<Vec<_>>()
        };
        assert_eq!(order("tunnel", 1), order("tunnel", 1));
        assert_ne!(order("tunnel", 1), order("tunnel", 2));
        assert!(order("tunnel", 1).is_sorted_by_key(|(repeat, _)| *repeat) && order("demo", 1).is_sorted());
    }

    #[test]
    fn cases_of_one_link_take_their_turn_together() {
        let experiment = wired();
        for turn in all(Schedule::new(&experiment, 1, |_, _| false)) {
            let link = |index: usize| &experiment.cases[index].key[1];
            let alike = |&index: &usize| link(index) == link(turn.cases[0]);
            let expected: Vec<usize> = (0..experiment.cases.len()).filter(alike).collect();
            assert_eq!(turn.cases, expected);
        }
    }

    #[test]
    fn cases_start_together_up_to_a_sum_of_rates() {
        let up_to = link::Bitrate::from_mbps(120.0);
        let experiment = Experiment {
            side_by_side: SideBySide::Rates(up_to),
            ..find("bond", &RunOptions::default()).unwrap()
        };
        let turns = all(Schedule::new(&experiment, 1, |_, _| false));
        assert!(turns.iter().all(|turn| turn.load <= up_to.as_bps() || turn.cases.len() == 1));
        let mut first: Vec<&Turn> = turns.iter().filter(|turn| turn.repeat == 0).collect();
        first.sort_by_key(|turn| turn.cases[0]);
        for pair in first.windows(2) {
            let next = experiment.cases[pair[1].cases[0]].workload.rate().as_bps();
            assert!(pair[0].load + next > up_to.as_bps(), "one more would have fitted");
        }
    }

    #[test]
    fn turns_run_beside_each_other_up_to_the_limit() {
        let experiment = wired();
        let mut schedule = Schedule::new(&experiment, 1, |_, _| false);
        let mut began = Vec::new();
        while let Some(turn) = schedule.begin() {
            began.push(turn);
        }
        assert!(began.len() > experiment.repeats, "{}", began.len());
        assert!(Some(schedule.load) <= schedule.limit && !schedule.is_idle());
        let slow = &experiment.cases[began[0].cases[0]];
        assert!(slow.estimate * 2 > schedule.estimate(), "the slowest are not what it waits for");
        let turn = began.remove(0);
        schedule.end(&turn);
        assert!(Some(schedule.load) < schedule.limit);
    }

    #[test]
    fn what_was_measured_is_not_estimated() {
        let experiment = find("tunnel", &RunOptions::default()).unwrap();
        let (whole, rest) = (
            Schedule::new(&experiment, 1, |_, _| false),
            Schedule::new(&experiment, 1, |case, n| n > 0 || case > 1),
        );
        assert_eq!(whole.runs(), experiment.cases.len() * experiment.repeats);
        assert_eq!(rest.runs(), 2);
        assert_eq!(rest.estimate(), experiment.cases[0].estimate + experiment.cases[1].estimate);
        assert!(whole.estimate() > rest.estimate());
    }
}
