//! `demo`: one file over three bad links, by every system that Linux offers for it and by Nawa.

use std::sync::Arc;
use std::time::Duration;

use link::{Capacity, CellularConfig, LinkConfig, Loss, Probability, Queue, Trace};

use crate::axes::{ALL, Grid, cases};
use crate::disturbance::{Change, Event};
use crate::error::Error;
use crate::experiment::{Case, Experiment, RunOptions};
use crate::links::{OnLinks, Setup};
use crate::network::{PathSpec, Topology};
use crate::system::{NawaSetup, System};
use crate::tasks::Fetch;
use crate::traces::{Recording, recordings};

pub(crate) const ABOUT: &str =
    "one file over LTE, Wi-Fi and satellite: the best single link, MPTCP, and Nawa, also with a link cut";

/// The file, in bytes; with `--quick` one that takes about a minute by all systems.
const FILE_BYTES: u64 = 32 << 20;
const QUICK_BYTES: u64 = 8 << 20;

/// Index of the Wi-Fi link in [`paths`].
const WIFI: usize = 1;

const NOTES: [&str; 6] = [
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
];

/// The best single link comes first: MPTCP begins on it.
const GRIDS: [Grid; 1] = [Grid(ALL, &["system=cubic,bbr,mptcp,mptcp-bbr,nawa,nawa-bbr,nawa-cut"])];

/// How long each takes for [`FILE_BYTES`], about: the slowest half a minute, the quickest a quarter.
const SECONDS: u64 = 22;

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
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
        Ok(Case { key: cell.key(&["system"]), workload, estimate }.erase())
    })?;
    let mut notes: Vec<String> = NOTES.map(str::to_owned).to_vec();
    notes.push("mptcp, nawa and nawa-cut use CUBIC, mptcp-bbr (on all subflows) and nawa-bbr use BBR".into());
    notes.push("nawa-cut: the Wi-Fi link is cut after a third of the file, for 3 s".into());
    let repeats = options.size.of(1, 1, 3);
    Ok(Experiment { cases, in_order: true, repeats, notes, ..Experiment::default() })
}

/// The three links. Queues are of the size that such links have in reality, and the same for every system.
fn paths(options: &RunOptions) -> Result<Vec<PathSpec>, Error> {
    Ok(vec![lte(options)?, wifi(), PathSpec::plain("satellite", 5.0, 150)])
}

fn lte(options: &RunOptions) -> Result<PathSpec, Error> {
    let [up, down] = lte_capacities(options)?.map(|capacity| LinkConfig {
        capacity,
        delay: Duration::from_millis(45),
        queue: Queue::Bytes(500_000),
        ..LinkConfig::default()
    });
    Ok(PathSpec { name: "lte".into(), up, down })
}

/// Up and down: the first recording in `--traces`, by name, that has both, or generated ones.
fn lte_capacities(options: &RunOptions) -> Result<[Capacity; 2], Error> {
    let Some(folder) = &options.traces else {
        let trace =
            |stream| Trace::cellular(options.seed.wrapping_mul(2) + stream, &CellularConfig::default());
        return Ok([0, 1].map(|stream| Capacity::Trace(Arc::new(trace(stream)))));
    };
    let first = recordings(folder)?.into_iter().find(Recording::has_back);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_link_is_the_wifi() {
        let paths = paths(&RunOptions::default()).unwrap();
        assert_eq!(paths[WIFI].name, "wifi");
        assert!((paths[WIFI].down.loss.mean() - 0.02).abs() < 1e-9);
    }

    #[test]
    fn a_folder_without_traces_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let options = RunOptions { traces: Some(folder.path().into()), ..RunOptions::default() };
        assert!(matches!(experiment(&options), Err(Error::NoTrace(_))));
    }

    #[test]
    fn a_bad_trace_is_an_error_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.down"), "1\n2\n").unwrap();
        std::fs::write(folder.path().join("x.up"), "1\ntwo\n").unwrap();
        let options = RunOptions { traces: Some(folder.path().into()), ..RunOptions::default() };
        let error = experiment(&options).unwrap_err().to_string();
        assert!(error.contains("x.up") && error.contains('2'), "{error}");
    }
}
