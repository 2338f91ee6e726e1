//! What of the convoy is drawn and judged.

use crate::paper::Paper;

/// The network, as a piece of SVG of 980 by 200.
pub(crate) const DRAWING: &str = include_str!("convoy.svg");

pub(crate) const PAPER: Paper = Paper {
    number: "convoy",
    title: "All strands at once, against stock Linux",
    figures: &[
        "Goodput of a download and an upload in each second | field system=nawa,stock | goodput_mbps by time_s system",
        "The slowest of ten requests in each second | field system=nawa,stock | interactive_ms by time_s system",
    ],
    claims: &[
        "All strands carry more than stock Linux | field system=nawa | goodput_of_stock >= 1.0",
        "Slow answers come sooner | field system=nawa | interactive_p99_of_stock <= 1.0",
        "A call loses less | field system=nawa | call_loss_of_stock <= 1.0",
        "and its packets are no later | field system=nawa | call_p99_of_stock <= 1.0",
        "More hazards arrive | field system=nawa | hazard_delivered_of_stock >= 1.0",
        "and no later | field system=nawa | hazard_p99_of_stock <= 1.0",
    ],
};
