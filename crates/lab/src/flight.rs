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
