//! The experiments of all strands, by name. No other file names the strands.

use crate::error::Error;
use crate::experiment::{Entry, Experiment, RunOptions};
use crate::{bicast, coding, field, flight, flood, tunnel};

/// A strand's line here and its folder are all that it takes to add one (docs/lab.md).
const STRANDS: [&[Entry]; 6] = [
    &tunnel::EXPERIMENTS,
    &flight::EXPERIMENTS,
    &flood::EXPERIMENTS,
    &coding::EXPERIMENTS,
    &bicast::EXPERIMENTS,
    &field::EXPERIMENTS,
];

/// The experiments: name, and in one line what each measures.
pub fn list() -> Vec<(&'static str, &'static str)> {
    STRANDS.iter().copied().flatten().map(|entry| (entry.name, entry.about)).collect()
}

/// The experiment `name` as `options` want it.
pub fn find(name: &str, options: &RunOptions) -> Result<Experiment, Error> {
    let found = STRANDS.iter().copied().flatten().find(|entry| entry.name == name);
    let entry = found.ok_or_else(|| Error::UnknownExperiment(name.into()))?;
    (entry.make)(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_is_bad_input() {
        let error = find("nothing", &RunOptions::default()).unwrap_err();
        assert!(error.is_bad_input(), "{error}");
    }

    #[test]
    fn every_experiment_has_distinct_cases_of_a_stated_length() {
        for (name, _) in list() {
            let experiment = find(name, &RunOptions::default()).unwrap();
            assert_eq!(experiment.name, name);
            assert!(experiment.repeats > 0 && !experiment.estimate().is_zero());
            let titles: std::collections::BTreeSet<_> =
                experiment.cases.iter().map(Experiment::title).collect();
            assert_eq!(titles.len(), experiment.cases.len());
        }
    }
}
