//! `tunnel-events`: links that die and return, addresses that change, relays that restart, in mid-transfer.

use std::time::Duration;

use link::{Bitrate, Capacity, LinkConfig, Queue};

use crate::disturbance::{Change, Event};
use crate::error::Error;
use crate::experiment::{Case, Experiment, RunOptions, Size};
use crate::links::{OnLinks, Setup};
use crate::network::{PathSpec, Topology};
use crate::system::{NawaSetup, System};
use crate::tasks::Fetch;

pub(crate) const ABOUT: &str =
    "one file over three links while a link is cut, addresses change at either end, or a relay restarts";

/// Long enough for ten seconds after the event over all links.
const FILE_BYTES: u64 = 32 << 20;

/// The event comes when this share of the file has arrived.
const AT: f64 = 0.25;

/// How long a cut link stays cut.
const CUT: Duration = Duration::from_secs(3);

const NOTES: [&str; 4] = [
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

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let cut = Change::Cut { path: 0, time: CUT };
    let direct = NawaSetup { relayed: false, ..NawaSetup::AUTO };
    let cases = vec![
        case("nawa", "cut", System::Nawa(NawaSetup::AUTO), cut),
        case("mptcp", "cut", System::Mptcp, cut),
        case("nawa", "readdress-client", System::Nawa(NawaSetup::AUTO), Change::ReaddressClient),
        case("nawa", "readdress-client-all", System::Nawa(NawaSetup::AUTO), Change::ReaddressClientAll),
        case("nawa", "rebind", System::Nawa(NawaSetup::AUTO), Change::Rebind),
        case("nawa", "readdress-server", System::Nawa(direct), Change::ReaddressServer),
        case("nawa", "relay-restart", System::Nawa(NawaSetup::AUTO), Change::RelayRestart),
    ];
    let repeats = match options.size {
        Size::Quick => 1,
        Size::Normal => 5,
        Size::Paper => 9,
    };
    let notes = NOTES.map(str::to_owned).to_vec();
    Ok(Experiment { name: "tunnel-events", cases, repeats, notes, ..Experiment::default() })
}

fn case(name: &str, called: &str, system: System, change: Change) -> Case {
    let topology = Topology::Relayed([10, 20, 30].map(path).to_vec());
    let event = Some(Event { change, at: AT });
    let workload = OnLinks {
        setup: Setup { topology, system, congestion_control: "cubic" },
        task: Fetch { bytes: FILE_BYTES, event, recovery: false },
    };
    let key = vec![("system", name.into()), ("event", called.into())];
    Case { key, workload, estimate: Duration::from_secs(13) }.erase()
}

fn path(milliseconds: u64) -> PathSpec {
    let link = LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(10.0)),
        delay: Duration::from_millis(milliseconds),
        queue: Queue::Packets(100),
        ..LinkConfig::default()
    };
    PathSpec::symmetric(format!("{milliseconds}ms"), link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_ends_within_about_two_minutes() {
        let experiment = experiment(&RunOptions { size: Size::Quick, ..RunOptions::default() }).unwrap();
        assert!(experiment.estimate() <= Duration::from_secs(130));
    }
}
