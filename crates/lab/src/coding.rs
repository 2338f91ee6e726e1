//! The experiments of paper 002: TCP over a chain of nodes that share an 802.11 medium, relays coding or not.

mod batman;
mod bound;
mod chain;
mod counters;
mod gain;
mod loss;
mod measure;
mod mode;
mod paper;
mod test;
mod transfer;
mod wait;

use crate::experiment::Entry;

pub(crate) use paper::PAPER;

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 3] = [
    Entry::new("coding-wait", wait::ABOUT, wait::experiment),
    Entry::new("coding-gain", gain::ABOUT, gain::experiment),
    Entry::new("coding-loss", loss::ABOUT, loss::experiment),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Case, Experiment, RunOptions, Size};

    fn all(size: Size) -> Vec<Experiment> {
        let options = RunOptions { size, ..RunOptions::default() };
        EXPERIMENTS.map(|entry| (entry.make)(&options).unwrap()).into()
    }

    #[test]
    fn every_size_has_every_mode_and_what_it_is_compared_with() {
        for size in [Size::Quick, Size::Normal, Size::Paper] {
            for experiment in all(size) {
                for mode in ["plain", "off", "controlled", "any"] {
                    let has = experiment.cases.iter().any(|case| case.key[0].1 == mode);
                    assert!(has, "{} {size:?}: {mode}", experiment.name);
                }
                for case in experiment.cases.iter().filter(|case| case.key[1].1 != 1) {
                    let same = |other: &&Case| other.key[0].1 == "off" && other.key[1] == case.key[1];
                    assert!(experiment.cases.iter().any(|other| same(&other)), "{:?}", case.key);
                }
            }
        }
    }
}
