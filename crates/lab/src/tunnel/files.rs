//! `demo`: one file over three bad links, by every system that Linux offers for it and by Nawa; and `tunnel-events`: one over three
//! links that die and return, whose addresses change and whose relays restart in mid-transfer.

use std::sync::Arc;
use std::time::Duration;

use link::{Capacity, CellularConfig, Loss, Probability, Queue, Trace};

use crate::axes::{ALL, FULL, Grid, cases};
use crate::disturbance::{Change, Event};
use crate::error::{Error, Result};
use crate::experiment::{Case, Experiment, RunOptions};
use crate::links::{Fetch, OnLinks, Setup};
use crate::network::{PathSpec, Topology};
use crate::system::{NawaSetup, System};
use crate::traces::recordings;

pub(crate) const ABOUT: &str =
    "one file over LTE, Wi-Fi and satellite: the best single link, MPTCP, and Nawa, also with a link cut";

/// The file, in bytes; with `--quick` one that takes about a minute by all systems.
const FILE_BYTES: u64 = 32 << 20;
const QUICK_BYTES: u64 = 8 << 20;

/// Index of the Wi-Fi link in [`paths`].
const WIFI: usize = 1;

const NOTES: [&str; 8] = [
    "lte: 45 ms one way; mean 10 Mbit/s with a cellular link's variation and outages (generated; with --traces, the \
     first recording there, at its own rate); drop-tail queue of 500 kB, 400 ms at 10 Mbit/s",
    "wifi: 10 ms one way; 15 Mbit/s; 2 % loss, in fades of 5 packets on average that lose half of them \
     (Gilbert-Elliott), in both directions, before the queue; drop-tail queue of 100 packets",
    "satellite: 150 ms one way; 5 Mbit/s; drop-tail queue of 100 packets",
    "rates count whole Ethernet frames and hold in each direction; every system gets a new network whose links start \
     from the same seed when its transfer starts, after one small warm-up file",
    "time_s runs from curl's start to the end of its output; longest_stall_ms is the longest time between two bytes \
     that reached what reads curl's output",
    "rtt_loaded_p95_ms: `ping` ten times a second during the transfer, through the tunnel for Nawa, else on the link \
     of the connection; mptcp does not carry pings: its are those of the link that it starts on",
    "mptcp, nawa and nawa-cut use CUBIC, mptcp-bbr (on all subflows) and nawa-bbr use BBR; mptcp starts on the link that was best \
     for a single connection of its congestion control",
    "nawa-cut: the Wi-Fi link is cut after a third of the file, for 3 s",
];

/// Single links come first: MPTCP begins on the one that was best for its congestion control.
const GRIDS: [Grid; 1] = [Grid(ALL, &["system=cubic,bbr,mptcp,mptcp-bbr,nawa,nawa-bbr,nawa-cut"])];

/// How long each takes for [`FILE_BYTES`], about: the slowest half a minute, the quickest a quarter.
const SECONDS: u64 = 22;

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let topology = Topology::Relayed(paths(options)?);
    let bytes = options.size.of(QUICK_BYTES, FILE_BYTES, FILE_BYTES);
    let change = Change::Cut { path: WIFI, time: Duration::from_secs(3) };
    let cases = cases(&GRIDS, options.size, |cell| {
        let (name, topology) = (cell.text("system"), topology.clone());
        let system = match name {
            "cubic" | "bbr" => System::BestTcp,
            "mptcp" | "mptcp-bbr" => System::Mptcp,
            _ => System::Nawa(NawaSetup::AUTO),
        };
        let event = (name == "nawa-cut").then_some(Event { change, at: 1.0 / 3.0 });
        let congestion_control = if name.ends_with("bbr") { "bbr" } else { "cubic" };
        let setup = Setup { topology, system, congestion_control };
        let workload = OnLinks { setup, task: Fetch { bytes, event, recovery: false } };
        let estimate = Duration::from_secs(SECONDS * bytes / FILE_BYTES);
        Ok(Case::new(cell.key("system"), workload, estimate))
    })?;
    Ok(Experiment { in_order: true, ..Experiment::of(cases, options.size.of(1, 1, 3), &[], &NOTES) })
}

/// The three links. Queues are of the size that such links have in reality, and the same for every system.
fn paths(options: &RunOptions) -> Result<Vec<PathSpec>> {
    let (delay, queue) = (Duration::from_millis(45), Queue::Bytes(500_000));
    let lte = PathSpec::of("lte", lte_capacities(options)?, delay, queue);
    Ok(vec![lte, wifi(), PathSpec::plain("satellite", 5.0, 150)])
}

/// Up and down: the first recording in `--traces`, by name, that has both, or generated ones.
fn lte_capacities(options: &RunOptions) -> Result<[Capacity; 2]> {
    let Some(folder) = &options.traces else {
        let trace =
            |stream| Trace::cellular(options.seed.wrapping_mul(2) + stream, &CellularConfig::default());
        return Ok([0, 1].map(|stream| Capacity::Trace(Arc::new(trace(stream)))));
    };
    let first = recordings(folder)?.into_iter().find(|recording| recording.back.is_some());
    first.ok_or_else(|| Error::NoTrace(folder.clone()))?.load()
}

fn wifi() -> PathSpec {
    let mut path = PathSpec::plain("wifi", 15.0, 10);
    [&mut path.up, &mut path.down].into_iter().for_each(|way| way.loss = wifi_loss());
    path
}

/// 2 %: one frame in 25 meets a fade, which lasts five frames on average and loses half of them. A fade that lost every
/// frame would last until five frames have tried, however long that takes: no radio does that.
fn wifi_loss() -> Loss {
    let probability = |value| Probability::new(value).unwrap_or(Probability::ZERO);
    let (share, frames) = (0.04, 5.0);
    Loss::GilbertElliott {
        good_to_bad: probability(share / (1.0 - share) / frames),
        bad_to_good: probability(1.0 / frames),
        loss_good: Probability::ZERO,
        loss_bad: probability(0.5),
    }
}

pub(crate) const ABOUT_EVENTS: &str =
    "one file over three links while a link is cut, addresses change at either end, or a relay restarts";

/// Long enough for ten seconds after the event over all links.
const EVENT_BYTES: u64 = 32 << 20;

/// The event comes when this share of the file has arrived.
const AT: f64 = 0.25;

/// How long a cut link stays cut.
const CUT: Duration = Duration::from_secs(3);

const EVENT_NOTES: [&str; 4] = [
    "three links of 10 Mbit/s, 10, 20 and 30 ms one way, drop-tail queues of 100 packets; one file by curl from \
     server to client, CUBIC; the event comes when a quarter of it has arrived",
    "longest_stall_ms: the longest time between two bytes that reached what reads curl's output",
    "used_again_s: from the event's end (cut: the link's return) until every path concerned has received more than a \
     tenth of its link's rate for 0.2 s, by `nawa status` (mptcp: by the link); looked at from 0.2 s on, when what was \
     under way has arrived, every 0.2 s, so that 0.4 is the least; \
     a run in which one is not until the file's end counts with the time until then",
    "cut: the 10 ms link, both directions, for 3 s; readdress-client: the client's address on it; \
     readdress-client-all: on all; rebind: a NAT gives the client another port on it and drops what is sent to the old \
     one; relay-restart: its relay, by SIGKILL; readdress-server: the server's only address, paths without relays",
];

const EVENT_GRIDS: [Grid; 2] = [
    Grid(ALL, &["event:system=cut:nawa,cut:mptcp,readdress-client:nawa,rebind:nawa,relay-restart:nawa"]),
    Grid(FULL, &["system=nawa event=readdress-client-all,readdress-server"]),
];

/// What happens, by its name.
const CHANGES: [(&str, Change); 6] = [
    ("cut", Change::Cut { path: 0, time: CUT }),
    ("readdress-client", Change::ReaddressClient),
    ("readdress-client-all", Change::ReaddressClientAll),
    ("rebind", Change::Rebind),
    ("readdress-server", Change::ReaddressServer),
    ("relay-restart", Change::RelayRestart),
];

pub(crate) fn events(options: &RunOptions) -> Result<Experiment> {
    let cases = cases(&EVENT_GRIDS, options.size, |cell| {
        let change = cell.one_of("event", &CHANGES)?;
        // Relays have the server's address from their clients' files.
        let relayed = !matches!(change, Change::ReaddressServer);
        let nawa = System::Nawa(NawaSetup { relayed, ..NawaSetup::AUTO });
        let system = cell.one_of("system", &[("nawa", nawa), ("mptcp", System::Mptcp)])?;
        let paths = [10, 20, 30].map(|ms| PathSpec::plain(format!("{ms}ms"), 10.0, ms));
        let workload = OnLinks {
            setup: Setup { topology: Topology::Relayed(paths.to_vec()), system, congestion_control: "cubic" },
            task: Fetch { bytes: EVENT_BYTES, event: Some(Event { change, at: AT }), recovery: false },
        };
        Ok(Case::new(cell.key("system event"), workload, Duration::from_secs(13)))
    })?;
    Ok(Experiment::of(cases, options.size.of(1, 5, 9), &[], &EVENT_NOTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_traces_and_a_bad_trace_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let options = RunOptions { traces: Some(folder.path().into()), ..RunOptions::default() };
        assert!(matches!(experiment(&options), Err(Error::NoTrace(_))));
        std::fs::write(folder.path().join("x.down"), "1\n2\n").unwrap();
        std::fs::write(folder.path().join("x.up"), "1\ntwo\n").unwrap();
        let error = experiment(&options).unwrap_err().to_string();
        assert!(error.contains("x.up") && error.contains('2'), "{error}");
    }
}
