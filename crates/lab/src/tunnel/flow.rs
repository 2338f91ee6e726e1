//! `tunnel`: one flow over one to ten links, TCP and UDP, with clocks that agree and clocks that do not (paper 003).

use std::time::Duration;

use link::Bitrate;

use crate::axes::{ALL, Cell, FULL, Grid, NORMAL, PAPER, QUICK, cases};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Published, Ratio, RunOptions};
use crate::iperf::{Iperf, Protocol};
use crate::links::{OnLinks, Setup, Stream};
use crate::network::{PathSpec, Topology};
use crate::system::{Clocks, NawaSetup, System, find_rival};

pub(crate) const ABOUT: &str = "one flow, TCP or UDP, over 1 to 10 links of 10 Mbit/s, over uneven links, and unshaped; clocks same and apart";

const NOTES: [&str; 10] = [
    "goodput_mbps: payload of one iperf3 flow from client to server, as its server reports it by the second; the \
     first 2 s are not counted; TCP is CUBIC",
    "udp: packets of 1350 bytes of payload, offered as payload at 110 % of the sum of the links' rates (unshaped: as \
     fast as iperf3 can), so that something must be lost; loss_ratio: the share of those sent that did not arrive, by the gaps \
     between those that did; what waits in a queue is not lost; offered_mbps: what iperf3 did send",
    "times_one_path: goodput over that of the same system over one path in this run",
    "10x10: N links of 10 Mbit/s, no delay, drop-tail queues of 100 packets",
    "50+10: two links of 50 and 10 Mbit/s, 10 ms one way each, drop-tail queues of 100 packets; no rate is configured",
    "10+10+10slow: three links of 10 Mbit/s, 10, 10 and 120 ms one way, drop-tail queues of 100 packets; cubic is on \
     one fast link",
    "unshaped: one veth pair; both ends and iperf3 share this machine's CPUs",
    "clocks: offset: the server's clock is an hour ahead (a time namespace); behind: 20 ms behind, so \
     that one-way delays as seen have either sign; drift: the server's runs 200 ppm too \
     fast, the client's 200 ppm too slowly; step: the server's jumps forward by 50 ms every 2 s",
    "back: one: the server sends over the first path only, as in the paper; mptcp takes 9 paths at most; plain is UDP \
     without a tunnel on one link",
    "nawa-paper is equations (1) to (3); nawa-paper-absolute puts absolute one-way delays into (2) instead of (1), as \
     the authors' program must have, and stands beside their figures with clocks apart",
];

/// Rivals: the system's name and its program.
const RIVALS: [(&str, &str); 2] = [("boringtun", "boringtun-cli"), ("wireguard-go", "wireguard-go")];

const TCP: &str = "transport=tcp clocks=same back=all";
const UDP: &str = "transport=udp clocks=same back=all";
const UNSHAPED: &str = "links=unshaped paths=1";
const BOTH: &str = "transport=tcp,udp";
const SOME: &str = "links=10x10 paths=1,3,10";
const EACH: &str = "links=10x10 paths=1,2,3,4,5,6,7,8,9,10";
const NAWAS: &str = "system=nawa,nawa-paper,nawa-paper-absolute";
const EVERY_CLOCK: &str = "clocks=same,offset,behind,drift,step";

/// MPTCP has its first subflow and the eight additional ones that the kernel takes.
const GRIDS: [Grid; 21] = [
    Grid(ALL, &["links=50+10 system:paths=cubic:1,mptcp:2,nawa:2", TCP]),
    Grid(QUICK, &["links=10+10+10slow system:paths=cubic:1,nawa:3", TCP]),
    Grid(FULL, &["links=10+10+10slow system:paths=cubic:1,mptcp:3,nawa:3,nawa-paper:3", TCP]),
    // The figures that the project promises, and one of each system.
    Grid(QUICK, &["system=mptcp links=10x10 paths=9", TCP]),
    Grid(QUICK, &["system:paths=nawa:1,nawa:9,nawa:10,nawa-paper:1,nawa-paper:10 links=10x10", TCP]),
    Grid(QUICK, &["system=nawa links=10x10 paths=1,10", UDP]),
    Grid(QUICK, &["system=nawa links=10x10 paths=10 clocks=offset back=all", BOTH]),
    // Absolute delays matter with the paper's single path back.
    Grid(QUICK, &["system=nawa links=10x10 paths=10 clocks=behind back=one transport=tcp"]),
    Grid(QUICK, &["system=nawa-paper-absolute links=10x10 paths=10 clocks=behind back=one", BOTH]),
    Grid(NORMAL, &["system=mptcp links=10x10 paths=1,3,9", TCP]),
    Grid(NORMAL, &["system=nawa back=all", SOME, BOTH, EVERY_CLOCK]),
    Grid(
        NORMAL,
        &["system:clocks=nawa-paper:same,nawa-paper:offset,nawa-paper-absolute:offset back=all", SOME, BOTH],
    ),
    Grid(NORMAL, &["system=nawa,nawa-paper clocks=same back=one", SOME, BOTH]),
    Grid(NORMAL, &["system=nawa,nawa-paper-absolute clocks=offset,behind back=one", SOME, BOTH]),
    // Every system with every clock; a single path back with the clocks that the paper had.
    Grid(PAPER, &["system=mptcp links=10x10 paths=1,2,3,4,5,6,7,8,9", TCP]),
    Grid(PAPER, &[NAWAS, "back=all", EACH, BOTH, EVERY_CLOCK]),
    Grid(PAPER, &[NAWAS, "back=one clocks=same,offset,behind", EACH, BOTH]),
    // Without a tunnel.
    Grid(FULL, &["system=cubic links=10x10 paths=1", TCP]),
    Grid(FULL, &["system=plain links=10x10 paths=1", UDP]),
    Grid(ALL, &["system=cubic,nawa,boringtun,wireguard-go", UNSHAPED, TCP]),
    Grid(ALL, &["system=plain,nawa", UNSHAPED, UDP]),
];

const TIMES_ONE_PATH: Ratio = Ratio::new("times_one_path", "goodput_mbps", &[("paths", "1")]);

const KEY: &str = "system links paths transport clocks back";

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let time = Duration::from_secs(options.size.of(2, 8, 20));
    let cases = cases(&GRIDS, options.size, |cell| case(cell, time))?;
    let mut experiment = Experiment::of(cases, options.size.of(1, 3, 3), &[TIMES_ONE_PATH], &NOTES);
    for (name, program) in RIVALS.iter().filter(|(_, program)| find_rival(program).is_none()) {
        experiment.cases.retain(|case| case.key[0].1 != *name);
        let note = format!("{name}: not measured, `{program}` is not installed (`make rivals` builds it)");
        experiment.notes.push(note);
    }
    Ok(Experiment { paper: published(), ..experiment })
}

fn case(cell: &Cell, time: Duration) -> Result<Case> {
    let paths: usize = cell.get("paths")?;
    let topology = topology(cell.text("links"), paths);
    let setup = NawaSetup {
        clocks: cell.one_of("clocks", &Clocks::ALL)?,
        one_path_back: cell.one_of("back", &[("all", false), ("one", true)])?,
        ..NawaSetup::AUTO
    };
    let system = match cell.text("system") {
        "cubic" | "plain" => System::Tcp,
        "mptcp" => System::Mptcp,
        "nawa" => System::Nawa(setup),
        "nawa-paper" => System::Nawa(NawaSetup { scheduler: "paper", ..setup }),
        "nawa-paper-absolute" => System::Nawa(NawaSetup { scheduler: "paper-absolute", ..setup }),
        _ => System::WireGuard(cell.one_of("system", &RIVALS)?),
    };
    let protocol = match cell.text("transport") {
        "udp" => Protocol::Udp(offered(&topology)),
        _ => Protocol::Tcp,
    };
    // What starting and stopping takes beside the measurement.
    let overhead = Duration::from_millis(800 + 120 * paths as u64);
    let workload = OnLinks {
        task: Stream { protocol, time },
        setup: Setup { topology, system, congestion_control: "cubic" },
    };
    Ok(Case::new(cell.key(KEY), workload, time + Iperf::WARM_UP + overhead))
}

fn topology(links: &str, paths: usize) -> Topology {
    let plain = |(name, mbps, delay)| PathSpec::plain(name, mbps, delay);
    match links {
        "10x10" => {
            Topology::Relayed((1..=paths).map(|n| PathSpec::plain(format!("path{n}"), 10.0, 0)).collect())
        }
        "50+10" => Topology::Relayed([("fast", 50.0, 10), ("slow", 10.0, 10)].map(plain).to_vec()),
        "unshaped" => Topology::Direct,
        _ => Topology::Relayed(
            [("fast1", 10.0, 10), ("fast2", 10.0, 10), ("slow", 10.0, 120)].map(plain).to_vec(),
        ),
    }
}

/// What paper 003 published: goodput in Mbit/s over 1 to 10 paths, a single path back, both hosts' clocks synchronised by NTP, or not.
fn published() -> Vec<Published> {
    let cells = "system:clocks=nawa-paper:same,nawa-paper-absolute:offset links=10x10 back=one transport=tcp,udp \
                 paths=1,2,3,4,5,6,7,8,9,10";
    let mbps = [
        [9.33, 18.1, 26.3, 34.9, 43.1, 50.2, 57.6, 65.0, 72.9, 77.8],
        [9.50, 18.9, 27.7, 34.2, 46.3, 56.4, 65.8, 75.4, 81.0, 84.9],
        [9.33, 18.1, 26.3, 22.5, 22.3, 22.9, 25.3, 23.5, 23.4, 23.1],
        [9.50, 18.9, 27.7, 28.2, 26.5, 27.4, 24.7, 27.8, 26.3, 28.7],
    ];
    Published::row(cells, "goodput_mbps", mbps.as_flattened())
}

/// 110 % of the sum of the links' rates; `None` where they have none.
fn offered(topology: &Topology) -> Option<Bitrate> {
    let sum = topology.rate().as_bps();
    (sum > 0).then(|| Bitrate::from_bps(sum * 11 / 10))
}
