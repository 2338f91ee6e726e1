//! `tunnel-events`: links that die and return, addresses that change, relays that restart, in mid-transfer.

use std::time::Duration;

use crate::axes::{ALL, FULL, Grid, cases};
use crate::disturbance::{Change, Event};
use crate::error::Error;
use crate::experiment::{Case, Experiment, RunOptions};
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

const GRIDS: [Grid; 2] = [
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

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let cases = cases(&GRIDS, options.size, |cell| {
        let change = cell.one_of("event", &CHANGES)?;
        // Relays have the server's address from their clients' files.
        let relayed = !matches!(change, Change::ReaddressServer);
        let nawa = System::Nawa(NawaSetup { relayed, ..NawaSetup::AUTO });
        let system = cell.one_of("system", &[("nawa", nawa), ("mptcp", System::Mptcp)])?;
        let paths = [10, 20, 30].map(|ms| PathSpec::plain(format!("{ms}ms"), 10.0, ms));
        let workload = OnLinks {
            setup: Setup { topology: Topology::Relayed(paths.to_vec()), system, congestion_control: "cubic" },
            task: Fetch { bytes: FILE_BYTES, event: Some(Event { change, at: AT }), recovery: false },
        };
        let key = cell.key(&["system", "event"]);
        Ok(Case { key, workload, estimate: Duration::from_secs(13) }.erase())
    })?;
    let (repeats, notes) = (options.size.of(1, 5, 9), NOTES.map(str::to_owned).to_vec());
    Ok(Experiment { cases, repeats, notes, ..Experiment::default() })
}
