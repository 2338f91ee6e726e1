//! `field`: all strands at once, in a convoy of four vehicles on a radio mesh, two of which have uplinks.
//!
//! [`convoy`] is the network, [`system`] what runs on it and its files, [`traffic`], [`hazards`] and `association` what goes over it,
//! [`fault`] what happens to it meanwhile, [`running`] both together, [`measure`] one sample, [`Trial`] what tests do to it.

mod convoy;
mod fault;
mod hazards;
mod measure;
mod running;
mod system;
mod traffic;
mod trial;

use std::time::Duration;

use crate::error::Result;
use crate::experiment::{Case, Entry, Experiment, Ratio, RunOptions};
use crate::paper::Paper;

pub use convoy::VEHICLES;
pub use fault::Fault;
use system::System;
pub use trial::Trial;

/// What `nawa lab list` shows of it.
pub(crate) const EXPERIMENTS: [Entry; 1] = [("field", ABOUT, experiment)];

const ABOUT: &str = "a convoy of four vehicles on a mesh with four bad uplinks: all strands at once, each left out, and stock Linux";

/// What making the convoy ready and taking it down takes.
const OVERHEAD: Duration = Duration::from_secs(8);

/// What users of the convoy notice, compared with stock Linux.
const RATIOS: [Ratio; 6] = [
    Ratio::new("goodput_of_stock", "goodput_mbps", &[("system", "stock")]),
    Ratio::new("interactive_p99_of_stock", "interactive_p99_ms", &[("system", "stock")]),
    Ratio::new("call_loss_of_stock", "call_loss_ratio", &[("system", "stock")]),
    Ratio::new("call_p99_of_stock", "call_p99_ms", &[("system", "stock")]),
    Ratio::new("hazard_p99_of_stock", "hazard_p99_ms", &[("system", "stock")]),
    Ratio::new("hazard_delivered_of_stock", "hazard_delivered_ratio", &[("system", "stock")]),
];

const NOTES: [&str; 9] = [
    "four vehicles 90 m apart on one emulated 802.11g medium (54 Mbit/s, half duplex), each hearing its neighbours; the first has the uplinks \
     lte (metered) and sat, the last policed and nat; the third is where everything is used, and has no uplink",
    "meanwhile: the NAT's address changes; lte is lost for 4 s; the second vehicle, a relay, is off for 3 s; the last is out of range for \
     4 s. Nothing reaches whoever is cut off, so that no system delivers all hazards",
    "stock: MPTCP with BBR over all four uplinks, the call on the uplink of least delay (policed), which misses the 4 s in which the \
     last vehicle is out of range; hazards by a UDP program at every node, SCTP's own multihoming",
    "nawa-without-tunnel: MPTCP, and the call, as stock, with the other strands; nawa-without-flight, nawa-cubic-inside: TCP inside the \
     tunnel by BBR, by CUBIC, not by FS-AT; nawa-without-flood: hazards as stock",
    "goodput_mbps: a download and an upload together; interactive_p99_ms: 100 bytes asked for ten times a second, from when each was due \
     until its 1000 bytes are there, on one connection beside them, what is not answered counted until the end",
    "call_loss_ratio: of 50 packets of 60 bytes a second, each sent back, those not answered within a second; call_p99_ms: the round \
     trips of all, of which those are a second",
    "hazard_delivered_ratio: of 10 messages a second that the first vehicle floods, over the three others; hazard_p99_ms: of those that came, \
     one way",
    "air_bytes: all frames on the medium, repetitions included; metered_bytes: frames over lte, both ways; cpu_cores: what the machine did but \
     for the emulation itself, programs of the traffic included; sctp_…: a file by usrsctp from the first vehicle over lte and sat; \
     sctp_longest_gap_ms: of the files that had arrived at the end",
    "…_of_stock: ratios within each repeat. Courses: in each second the median of all samples; interactive_ms: the slowest of the ten requests \
     that were due then",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let systems = &System::ALL[..options.size.of(2, System::ALL.len(), System::ALL.len())];
    let case = |&(name, system): &(&'static str, System)| {
        Case::new(vec![("system", name.into())], system, fault::LENGTH + OVERHEAD)
    };
    let (cases, repeats) = (systems.iter().map(case).collect(), options.size.of(1, 3, 5));
    let events = fault::TIMELINE.into_iter().map(|(time, _, what)| (time, what)).collect();
    Ok(Experiment { events, ..Experiment::of(cases, repeats, &RATIOS, &NOTES) })
}

/// The network, as a piece of SVG of 980 by 200.
pub(crate) const DRAWING: &str = include_str!("field/convoy.svg");

/// What of it is drawn and judged.
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
