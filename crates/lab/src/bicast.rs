//! The experiments of paper 004: files over SCTP between hosts with two paths, of which some packets go over both.

mod experiments;
mod measure;
mod network;
mod test;
pub(crate) mod transfer;

use crate::experiment::Entry;
use crate::paper::Paper;

pub(crate) use test::check_usrsctp;
pub use test::{Test, sctp_stacks};

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 8] = [
    ("bicast-loss", experiments::ABOUT_LOSS, experiments::loss),
    ("bicast-load", experiments::ABOUT_LOAD, experiments::load),
    ("bicast-burst", experiments::ABOUT_BURST, experiments::burst),
    ("bicast-uneven", experiments::ABOUT_UNEVEN, experiments::uneven),
    ("bicast-cut", experiments::ABOUT_CUT, experiments::cut),
    ("bicast-budget", experiments::ABOUT_BUDGET, experiments::budget),
    ("bicast-dropping", experiments::ABOUT_DROPPING, experiments::dropping),
    ("bicast-tcp", experiments::ABOUT_TCP, experiments::tcp),
];

/// What of it is drawn and judged.
pub(crate) const PAPER: Paper = Paper {
    number: "004",
    title: "High-speed SCTP by selective bicasting over several ISPs' wireless LANs",
    figures: &[
        "Figure 8: 2 transfers by loss | bicast-loss stack=linux-probed loss=both transfers=2 | transfer_s by loss_percent mode",
        "Figure 9: 4 transfers by loss | bicast-loss stack=linux-probed loss=both transfers=4 | transfer_s by loss_percent mode",
        "Figure 10: 1 % loss by transfers | bicast-load stack=linux-probed loss=both where=router loss_percent=1.0 | transfer_s by transfers mode",
        "Figure 11: 5 % loss by transfers | bicast-load stack=linux-probed loss=both where=router loss_percent=5.0 | transfer_s by transfers mode",
        "Beyond the paper: a TCP file through the tunnel | bicast-tcp | goodput_mbps by bicast resend",
        "Beyond the paper: uneven paths, 5 % loss | bicast-uneven stack=linux-probed loss_percent=5.0 | transfer_s by links mode",
    ],
    claims: &[
        "At 1 % loss selective copies cost nothing | bicast-load mode=selective stack=linux-probed loss_percent=1.0 where=router | time_of_normal <= 1.1",
        "and beat full copies with four transfers | bicast-load mode=selective stack=linux-probed loss_percent=1.0 transfers=4 where=router | time_of_full <= 1.0",
        "At 5 % loss they slow down far less than none | bicast-load mode=selective stack=linux-probed loss_percent=5.0 loss=both where=router | time_of_normal <= 0.8",
    ],
};
