//! The experiments of paper 003: one network address over several bad links, what it carries and what disturbs it.

mod attack;
mod bond;
mod demo;
mod events;
mod flow;
mod hostile;
mod paper;
#[cfg(feature = "quic")]
mod quic;

use crate::experiment::Entry;

pub(crate) use paper::{GOALS, PAPER};

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 5] = [
    Entry::new("bond", bond::ABOUT, bond::experiment),
    Entry::new("demo", demo::ABOUT, demo::experiment),
    Entry::new("tunnel", flow::ABOUT, flow::experiment),
    Entry::new("tunnel-events", events::ABOUT, events::experiment),
    Entry::new("tunnel-hostile", hostile::ABOUT, hostile::experiment),
];
