//! The experiments of paper 002: TCP over a chain of nodes that share an 802.11 medium, relays coding or not.

mod batman;
mod bound;
mod chain;
mod experiments;
mod measure;
mod test;
mod transfer;

use crate::experiment::Entry;
use crate::paper::Paper;

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 3] = [
    ("coding-wait", experiments::ABOUT_WAIT, experiments::wait),
    ("coding-gain", experiments::ABOUT_GAIN, experiments::gain),
    ("coding-loss", experiments::ABOUT_LOSS, experiments::loss),
];

/// What of it is drawn and judged.
pub(crate) const PAPER: Paper = Paper {
    number: "002",
    title: "PiggyCode: improvement and evaluation on real machines",
    figures: &[
        "Figure 7: goodput over 2 hops | coding-wait hops=2 window_segments=256 | goodput_mbps by wait_ms mode",
        "Figure 8: goodput over 3 hops | coding-wait hops=3 window_segments=256 | goodput_mbps by wait_ms mode",
        "Figure 9: round trip over 2 hops | coding-wait hops=2 window_segments=256 | rtt_ms by wait_ms mode",
        "Figure 10: round trip over 3 hops | coding-wait hops=3 window_segments=256 | rtt_ms by wait_ms mode",
        "Figure 11: packets for a segment, 2 hops | coding-wait hops=2 window_segments=256 | packets_per_segment by wait_ms mode",
        "Figure 12: packets for a segment, 3 hops | coding-wait hops=3 window_segments=256 | packets_per_segment by wait_ms mode",
    ],
    claims: &[
        "Over 2 hops goodput is up to 6 % above plain TCP's | coding-wait mode=controlled hops=2 | goodput_of_plain >= 1.06 once",
        "Over 3 hops up to 5 % | coding-wait mode=controlled hops=3 | goodput_of_plain >= 1.05 once",
        "Over 2 hops up to 16 % of the packets are saved | coding-wait mode=controlled hops=2 | packets_of_plain <= 0.84 once",
        "Over 3 hops up to 21 % | coding-wait mode=controlled hops=3 | packets_of_plain <= 0.79 once",
        "Over 2 hops the round trip is up to 7 % shorter than PiggyCode's | coding-wait mode=controlled hops=2 | rtt_of_piggycode <= 0.93 once",
        "Over 3 hops up to 13 % | coding-wait mode=controlled hops=3 | rtt_of_piggycode <= 0.87 once",
        "A wait of 10 ms is enough: 99 % of what is held leaves within it | coding-wait mode=controlled | held_10ms_ratio >= 0.99 once",
    ],
};
