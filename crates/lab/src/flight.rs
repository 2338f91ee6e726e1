//! The experiments of paper 001 (FS-AT): kernel TCP over one emulated link, what it carries and what it lets wait.

mod case;
mod constant;
mod fairness;
mod field;
mod hsdpa;
mod radio;

use crate::experiment::Entry;
use crate::paper::Paper;

pub use case::Flows;

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 5] = [
    ("flight-wired", constant::ABOUT, constant::wired),
    ("flight-loss", constant::ABOUT_LOSS, constant::loss),
    ("flight-fairness", fairness::ABOUT, fairness::experiment),
    ("flight-radio", radio::ABOUT, radio::experiment),
    ("flight-field", field::ABOUT, field::experiment),
];

/// What of it is drawn and judged.
pub(crate) const PAPER: Paper = Paper {
    number: "001",
    title: "Flight Size Auto Tuning for high-speed wireless access networks",
    figures: &[
        "Figure 7: goodput by rate | flight-wired | goodput_mbps by rate_kbps cc",
        "Table 1: greatest queue | flight-wired | queue_max_packets by rate_kbps cc",
        "Figure 8: mean queue | flight-wired | queue_mean_packets by rate_kbps cc",
        "Figure 13: goodput under random loss | flight-loss | goodput_mbps by loss_percent cc",
        "Figure 14: share beside as many flows of Reno | flight-fairness against=reno flows=1 rate_kbps=1000 windows=kernel starts=random | share by buffer_bdp cc",
        "Figures 11 and 12: goodput over HSDPA channels | flight-radio trace=hsdpa-st+5db,hsdpa-pa3+5db,hsdpa-va30+5db | goodput_mbps by trace cc",
    ],
    claims: &[
        "On wired links FS-AT carries what Reno carries | flight-wired cc=fsat_paper | goodput_of_reno >= 0.99",
        "Below 1.4 Mbit/s its mean queue is 55 to 78 % shorter than Reno's | flight-wired cc=fsat_paper rate_kbps=64,384,1000 | queue_of_reno <= 0.45",
        "Its greatest queue at 384 kbit/s is 13 packets | flight-wired cc=fsat_paper rate_kbps=384 | queue_max_packets <= 13.0",
        "Its greatest queue at 1 Mbit/s is 37 packets | flight-wired cc=fsat_paper rate_kbps=1000 | queue_max_packets <= 37.0",
        "1 % of random loss hardly slows it | flight-loss cc=fsat_paper loss_percent=1.0 | goodput_of_lossless >= 0.9",
        "and slows Reno | flight-loss cc=reno loss_percent=1.0 | goodput_of_lossless <= 0.9",
        "Beside Reno it gets more where the buffer is small | flight-fairness cc=fsat_paper_reno against=reno flows=1 buffer_bdp=0.5 | share >= 0.5",
        "and less where it is large | flight-fairness cc=fsat_paper_reno against=reno flows=1 buffer_bdp=10.0 | share <= 0.5",
        "Over HSDPA it loses no goodput against Reno | flight-radio cc=fsat_paper trace=hsdpa-st+5db,hsdpa-pa3+5db,hsdpa-va30+5db | goodput_of_reno >= 0.99",
    ],
};
