//! The experiments of paper 000: messages flooded over a medium that many nodes share.

mod breakdown;
mod frames;
mod mode;
mod node;
mod paper;
mod ping;
mod rate;
mod reach;
mod real;
mod relay;
mod simulation;
mod stages;

use crate::experiment::Entry;

pub(crate) use paper::PAPER;

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 4] = [
    Entry::new("flood-relay", relay::ABOUT, relay::experiment),
    Entry::new("flood-breakdown", breakdown::ABOUT, breakdown::experiment),
    Entry::new("flood-rate", rate::ABOUT, rate::experiment),
    Entry::new("flood-reach", reach::ABOUT, reach::experiment),
];
