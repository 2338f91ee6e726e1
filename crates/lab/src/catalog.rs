//! The experiments of all strands, by name. No other file names the strands.

use crate::error::{Error, Result};
use crate::experiment::{Case, Entry, Experiment, RunOptions};
use crate::paper::Paper;
use crate::{accuracy, bicast, coding, field, flight, flood, tunnel};

/// A strand's line here and its folder are all that it takes to add one (docs/lab.md).
const STRANDS: [&[Entry]; 7] = [
    &accuracy::EXPERIMENTS,
    &tunnel::EXPERIMENTS,
    &flight::EXPERIMENTS,
    &flood::EXPERIMENTS,
    &coding::EXPERIMENTS,
    &bicast::EXPERIMENTS,
    &field::EXPERIMENTS,
];

/// The parts of a report: the goals, then the papers.
pub(crate) const PAPERS: [Paper; 7] =
    [tunnel::GOALS, field::PAPER, flood::PAPER, flight::PAPER, coding::PAPER, tunnel::PAPER, bicast::PAPER];

/// What `nawa lab report --picture` draws: a network, and what happened there.
pub(crate) const PICTURE: (&str, &Paper) = (field::DRAWING, &field::PAPER);

/// The experiments: name, and in one line what each measures.
pub fn list() -> Vec<(&'static str, &'static str)> {
    STRANDS.iter().copied().flatten().map(|&(name, about, _)| (name, about)).collect()
}

/// The experiment `name` as `options` want it.
pub fn find(name: &str, options: &RunOptions) -> Result<Experiment> {
    let found = STRANDS.iter().copied().flatten().find(|(own, ..)| *own == name);
    let unknown = || Error::BadInput(format!("no experiment is called `{name}`: `nawa lab list` names them"));
    let &(name, _, make) = found.ok_or_else(unknown)?;
    let experiment = make(options)?;
    let is_given =
        |case: &Case| options.links.iter().any(|links| case.field("case").is_some_and(|own| own == links));
    if !options.links.is_empty() && !experiment.cases.iter().any(is_given) {
        return Err(Error::BadInput(format!("`{name}` has links of its own: --links is for `bond`")));
    }
    Ok(Experiment { name, ..experiment })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::{Size, plain};

    #[test]
    fn an_unknown_experiment_is_bad_input() {
        let error = find("nothing", &RunOptions::default()).unwrap_err();
        assert!(error.is_bad_input(), "{error}");
    }

    #[test]
    fn links_for_an_experiment_that_has_its_own_are_bad_input() {
        let options = RunOptions { links: vec!["5@1".into()], ..RunOptions::default() };
        assert!(find("bond", &options).is_ok());
        assert!(find("demo", &options).unwrap_err().is_bad_input());
    }

    #[test]
    fn every_experiment_has_distinct_cases_of_a_stated_length() {
        for (name, _) in list() {
            let experiment = find(name, &RunOptions::default()).unwrap();
            assert!(experiment.repeats > 0 && !experiment.estimate().is_zero());
            let titles: std::collections::BTreeSet<_> =
                experiment.cases.iter().map(Experiment::title).collect();
            assert_eq!(titles.len(), experiment.cases.len());
        }
    }

    fn of_size(name: &str, size: Size) -> Experiment {
        find(name, &RunOptions { size, ..RunOptions::default() }).unwrap()
    }

    /// What one of them, and all together, may take with `--quick` on a machine that has everything.
    const QUICK: [Duration; 2] = [Duration::from_secs(130), Duration::from_secs(25 * 60)];

    #[test]
    fn quick_ends_within_two_minutes_each_and_25_together() {
        let times = list().into_iter().map(|(name, _)| (name, of_size(name, Size::Quick).estimate()));
        let times: Vec<_> = times.collect();
        println!("{times:?}");
        assert!(times.iter().map(|(_, time)| *time).sum::<Duration>() <= QUICK[1], "{times:?}");
        assert!(times.iter().all(|(_, time)| *time <= QUICK[0]), "{times:?}");
    }

    #[test]
    fn what_papers_published_is_measured_by_their_size() {
        for (name, _) in list() {
            let experiment = of_size(name, Size::Paper);
            for published in &experiment.paper {
                // Of what papers say of the best over all waits, no case is one.
                let key = || published.key.iter().filter(|(_, value)| *value != "best");
                let is = |case: &&Case| key().all(|(field, value)| case.field(field) == Some(value));
                assert!(experiment.cases.iter().any(|case| is(&case)), "{name}: {published:?}");
            }
        }
    }

    #[test]
    fn quick_measures_what_every_figure_and_claim_is_about() {
        let of = |paper: &Paper| {
            let figures = paper.figures().unwrap().into_iter().map(|figure| (figure.experiment, figure.only));
            figures
                .chain(paper.claims().unwrap().into_iter().map(|claim| (claim.experiment, claim.only)))
                .collect::<Vec<_>>()
        };
        for (experiment, only) in PAPERS.iter().flat_map(of) {
            let mut experiment = of_size(experiment, Size::Quick);
            // Beyond `--quick` are four transfers by loss.
            if only.contains("transfers=4") && experiment.name == "bicast-loss" {
                continue;
            }
            for word in only.split(' ').filter(|word| !word.is_empty()) {
                let possible = |value: &&str| {
                    experiment.cases.iter().any(|case| {
                        case.field(word.split('=').next().unwrap()).is_some_and(|own| plain(own) == *value)
                    })
                };
                let values: Vec<&str> = word.split(['=', ',']).skip(1).filter(possible).collect();
                let word = format!("{}={}", word.split('=').next().unwrap(), values.join(","));
                experiment.keep(&[word]).unwrap();
            }
        }
    }
}
