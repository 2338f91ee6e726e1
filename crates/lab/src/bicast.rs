//! The experiments of paper 004: files over SCTP between hosts with two paths, of which some packets go over both.

mod dropping;
mod experiments;
mod measure;
mod network;
mod paper;
mod tcp;
mod test;
pub(crate) mod transfer;

use crate::experiment::Entry;

pub(crate) use paper::PAPER;

pub use test::{Test, sctp_stacks};

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 7] = [
    Entry::new("bicast-loss", experiments::ABOUT_LOSS, experiments::loss),
    Entry::new("bicast-load", experiments::ABOUT_LOAD, experiments::load),
    Entry::new("bicast-uneven", experiments::ABOUT_UNEVEN, experiments::uneven),
    Entry::new("bicast-cut", experiments::ABOUT_CUT, experiments::cut),
    Entry::new("bicast-budget", experiments::ABOUT_BUDGET, experiments::budget),
    Entry::new("bicast-dropping", dropping::ABOUT, dropping::experiment),
    Entry::new("bicast-tcp", tcp::ABOUT, tcp::experiment),
];
