//! `bicast-dropping`: copies into a second path that drops them, and a TCP flow that shares it.

use std::time::Duration;

use link::{Bitrate, ByteCount, LinkConfig, PolicerConfig, Queue};

use super::experiments::{ALL_MODES, DELAY, MODES, OVERHEAD, RATE_MBPS, link, side_by_side, sorted};
use super::test::{Stack, Test};
use crate::axes::{Cell, FULL, Grid, QUICK, cells};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Ratio, RunOptions};
use crate::network::percent_lost;

pub(crate) const ABOUT: &str = "SCTP transfers by a clean path, and what is copied into a second one that drops, polices or has no buffer";

/// All transfers together, which takes longer than the TCP flow beside them.
const BYTES: u64 = 20 << 20;
/// What is copied after that is counted as well.
const LATER: Duration = Duration::from_secs(5);

const NOTES: [&str; 4] = [
    "all transfers keep to the first path, 10 Mbit/s, 5 ms, which loses loss_percent of the packets in each direction; 20 MiB together, \
     kernel SCTP in guests whose programs ask for HEARTBEATs at once, nawa on a router in front of each",
    "second: of the second path, as fast, loss-N: loses N % in each direction; policed: passes 1 Mbit/s and 15 kB at once; short: has room \
     for three packets",
    "copied_ratio: bytes of copies over bytes of the stacks' own packets, both ends; later_copied_ratio: of those \
     from 5 s on",
    "tcp_goodput_mbps: of one CUBIC flow by the second path for 10 s, from 2 s on; none where 50 % and more are lost",
];

const RATIOS: [Ratio; 2] = [
    Ratio::new("tcp_goodput_ratio", "tcp_goodput_mbps", &[("mode", "normal")]),
    Ratio::new("time_of_normal", "transfer_s", &[("mode", "normal")]),
];

/// A TCP flow goes by the second path where one gets through.
const GRIDS: [Grid; 3] = [
    Grid(QUICK, &["loss_percent=0.0 transfers=1 second=loss-10,policed mode=normal,selective,adaptive"]),
    Grid(FULL, &["loss_percent=0.0 transfers=1", SECONDS, ALL_MODES]),
    Grid(FULL, &["loss_percent:transfers=0.0:4,5.0:1", SECONDS, ALL_MODES]),
];
const SECONDS: &str = "second=loss-2,loss-10,loss-50,loss-90,policed,short";

fn second(name: &str) -> LinkConfig {
    let percent = name.strip_prefix("loss-").and_then(|text| text.parse().ok());
    let mut config = link(RATE_MBPS, DELAY, percent_lost(percent.unwrap_or(0.0)));
    match name {
        "policed" => {
            let rate = Bitrate::from_mbps(RATE_MBPS / 10.0);
            config.policer = Some(PolicerConfig { rate, burst: ByteCount(15_000) });
        }
        "short" => config.queue = Queue::Packets(3),
        _ => {}
    }
    config
}

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let cases: Result<_> = cells(&GRIDS, options.size).iter().map(case).collect();
    let experiment = Experiment::of(sorted(cases?), options.size.of(1, 3, 3), &RATIOS, &NOTES);
    Ok(Experiment { side_by_side: side_by_side(options.size), ..experiment })
}

fn case(cell: &Cell) -> Result<Case<Test>> {
    let (name, transfers) = (cell.text("second"), cell.get("transfers")?);
    let loss_percent: f64 = cell.get("loss_percent")?;
    let first = link(RATE_MBPS, DELAY, percent_lost(loss_percent));
    let seconds = BYTES as f64 * 8e-6 / RATE_MBPS * if loss_percent > 0.0 { 3.0 } else { 1.1 };
    let estimate = OVERHEAD + Duration::from_secs_f64(seconds);
    let test = Test {
        stack: Stack::LinuxProbed,
        on_routers: true,
        mode: cell.one_of("mode", &MODES)?,
        budget_percent: None,
        paths: [first, second(name)].map(|one| [one.clone(), one]),
        transfers,
        on_first: true,
        beside: !["loss-50", "loss-90"].contains(&name),
        clients: 1,
        later: Some(LATER),
        bytes: BYTES / transfers as u64,
        limit: estimate * 5 + Duration::from_secs(120),
    };
    let key = cell.key("mode second transfers loss_percent");
    Ok(Case { key, workload: test, estimate })
}
