//! The experiments of paper 002: TCP over a chain of nodes that share an 802.11 medium, relays coding or not.

mod batman;
mod bound;
mod chain;
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
