//! The experiments of paper 000: messages flooded over a medium that many nodes share.

mod breakdown;
mod node;
mod rate;
mod reach;
mod real;
mod relay;
mod simulation;
mod stages;

use crate::experiment::Entry;
use crate::paper::Paper;

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 4] = [
    ("flood-relay", relay::ABOUT, relay::experiment),
    ("flood-breakdown", breakdown::ABOUT, breakdown::experiment),
    ("flood-rate", rate::ABOUT, rate::experiment),
    ("flood-reach", reach::ABOUT, reach::experiment),
];

/// What of it is drawn and judged.
pub(crate) const PAPER: Paper = Paper {
    number: "000",
    title: "A method of decreasing delay of relay in ad-hoc networks",
    figures: &[
        "Table 1: a relay's delay | flood-relay medium=links authenticated=no listening=no hops=2 | relay_delay_us by mode hops",
        "Figure 10: one way by hops, without the medium's time | flood-relay medium=links authenticated=no listening=no | one_way_us by hops mode",
        "Figure 11: one way by hops over 802.11b | flood-relay medium=dcf | one_way_us by hops mode",
        "Figure 12: where a relay's time goes | flood-breakdown direction=relay napi=softirq | delay_us by stage mode",
        "Frames a second without loss | flood-rate | frames_per_s by mode",
        "Frames for a message, 100 nodes on 802.11b, nothing else lost | flood-reach medium=dcf clock=virtual nodes=100 loss_percent=0 load_percent=0 | transmissions_per_message by degree algorithm",
    ],
    claims: &[
        "Relaying in the driver takes 64 % less than in an application (the text says over 70 %) | flood-relay mode=driver hops=2 medium=links authenticated=no listening=no | of_application <= 0.36",
        "Beyond the paper: suppression reaches 99 % of 100 nodes with 20 neighbours where a fifth is lost | flood-reach algorithm=suppressed nodes=100 degree=20 loss_percent=20 medium=links clock=virtual | reached_ratio >= 0.99",
        "with 40 % of the frames | flood-reach algorithm=suppressed nodes=100 degree=20 loss_percent=20 medium=links clock=virtual | transmissions_of_pure <= 0.4",
    ],
};
