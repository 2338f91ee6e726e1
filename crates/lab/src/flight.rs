//! The experiments of paper 001 (FS-AT): kernel TCP over one emulated link, what it carries and what it lets wait.

mod case;
mod fairness;
mod field;
mod hsdpa;
mod loss;
mod paper;
mod radio;
mod series;
mod wired;

use crate::experiment::Entry;

pub(crate) use paper::PAPER;

pub use case::Flows;

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 5] = [
    Entry::new("flight-wired", wired::ABOUT, wired::experiment),
    Entry::new("flight-loss", loss::ABOUT, loss::experiment),
    Entry::new("flight-fairness", fairness::ABOUT, fairness::experiment),
    Entry::new("flight-radio", radio::ABOUT, radio::experiment),
    Entry::new("flight-field", field::ABOUT, field::experiment),
];

#[cfg(test)]
mod tests {
    use super::case::{CC, shares};
    use super::*;
    use crate::experiment::{Case, Experiment, Make, RunOptions, Size};

    const COMPARED: [Make; 3] = [wired::experiment, loss::experiment, radio::experiment];

    fn all(size: Size) -> Vec<Experiment> {
        let options = RunOptions { size, ..RunOptions::default() };
        EXPERIMENTS.map(|entry| (entry.make)(&options).unwrap()).into()
    }

    #[test]
    fn every_size_compares_all_controls_with_the_same_links() {
        for make in COMPARED {
            for size in [Size::Quick, Size::Normal, Size::Paper] {
                let experiment = make(&RunOptions { size, ..RunOptions::default() }).unwrap();
                for case in &experiment.cases {
                    let same_link = |other: &&Case| other.key[1..] == case.key[1..];
                    let names = experiment.cases.iter().filter(same_link).map(|other| &other.key[0].1);
                    let names: Vec<_> = names.collect();
                    assert!(
                        CC.split(['=', ',']).skip(1).all(|name| names.iter().any(|&known| known == name)),
                        "{names:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_the_paper_published_is_measured() {
        for experiment in all(Size::Paper) {
            for published in
                experiment.paper.iter().filter(|published| CC.contains(published.key[0].1.as_str().unwrap()))
            {
                assert!(experiment.cases.iter().any(|case| case.key == published.key), "{published:?}");
            }
        }
    }

    #[test]
    fn equal_rates_are_fair() {
        assert_eq!(shares(&[0.5, 0.5])[2..], [("share", 0.5), ("jain", 1.0)]);
        assert_eq!(shares(&[1.0, 0.0])[2..], [("share", 1.0), ("jain", 0.5)]);
    }
}
