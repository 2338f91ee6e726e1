//! The experiments of paper 003: one network address over several bad links, what it carries and what disturbs it.

mod attack;
mod bond;
mod files;
mod flow;
mod hostile;
#[cfg(feature = "quic")]
mod quic;

use crate::experiment::Entry;
use crate::paper::Paper;

/// What `nawa lab list` shows of them.
pub(crate) const EXPERIMENTS: [Entry; 5] = [
    ("bond", bond::ABOUT, bond::experiment),
    ("demo", files::ABOUT, files::experiment),
    ("tunnel", flow::ABOUT, flow::experiment),
    ("tunnel-events", files::ABOUT_EVENTS, files::events),
    ("tunnel-hostile", hostile::ABOUT, hostile::experiment),
];

/// What of the paper is drawn and judged, and the project's own goals.
pub(crate) const PAPER: Paper = Paper {
    number: "003",
    title: "Improving an IP multipath transmission system with feedback",
    figures: &[
        "TCP over 1 to 10 paths | tunnel links=10x10 transport=tcp clocks=same | goodput_mbps by paths system back",
        "UDP over 1 to 10 paths | tunnel links=10x10 transport=udp clocks=same | goodput_mbps by paths system back",
        "TCP, clocks apart | tunnel links=10x10 transport=tcp clocks=offset,behind | goodput_mbps by paths system back",
        "UDP, clocks apart | tunnel links=10x10 transport=udp clocks=offset,behind | goodput_mbps by paths system back",
        "Beyond the paper: uneven links and none | tunnel links=50+10,10+10+10slow,unshaped transport=tcp | goodput_mbps by links system",
        "While something happens | tunnel-events | longest_stall_ms by event system",
    ],
    claims: &[
        "TCP over ten paths has 8.34 times one path (the text says 8.5) | tunnel system=nawa links=10x10 paths=10 transport=tcp clocks=same back=all | times_one_path >= 8.34",
        "With clocks apart the authors' program uses about three of ten paths | tunnel system=nawa-paper-absolute links=10x10 paths=10 transport=tcp clocks=behind back=one | goodput_mbps <= 30.0",
        "Beyond the paper: Nawa carries 77.8 Mbit/s over ten paths whatever the clocks | tunnel system=nawa links=10x10 paths=10 transport=tcp | goodput_mbps >= 77.8",
    ],
};

pub(crate) const GOALS: Paper = Paper {
    number: "nawa",
    title: "Headline figures and goals",
    figures: &[
        "demo: time of one file over three bad links | demo | time_s by system",
        "demo: longest stall | demo | longest_stall_ms by system",
        "demo: round trip under load, p95 | demo | rtt_loaded_p95_ms by system",
        "bond: goodput of one CUBIC flow | bond cc=cubic flows=1 direction=down | goodput_mbps by case system",
        "bond: goodput of one BBR flow | bond cc=bbr flows=1 direction=down | goodput_mbps by case system",
        "The emulator's own error: what of its rate a link carries | emulator what=rate | of_ideal by rate_mbps what",
    ],
    claims: &[
        "The demo's file never stalls for half a second, though the Wi-Fi is cut | demo system=nawa,nawa-cut | longest_stall_ms <= 500.0",
        "A bond with CUBIC carries at least what the best single link does by any congestion control | bond system=nawa cc=cubic flows=1 direction=down | of_best_link_any_cc >= 1.0",
        "and .95 of MPTCP's, with its better congestion control | bond system=nawa cc=cubic flows=1 direction=down | of_mptcp_any_cc >= 0.95",
        "Whatever happens, data flows again within a second | tunnel-events system=nawa | longest_stall_ms <= 1000.0",
        "The emulator is late by less than half a millisecond at the median, over a round trip of 20 | emulator what=lateness | late_p50_us <= 500.0",
        "and carries 98 % of its rate | emulator what=rate | of_ideal >= 0.98",
    ],
};
