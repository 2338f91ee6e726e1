//! `bicast-tcp`: one TCP flow through the tunnel, with and without copies of what controls retransmission.

use std::time::Duration;

use super::experiments::{bursts, link};
use crate::axes::{ALL, Grid, cases};
use crate::error::Error;
use crate::experiment::{Case, Experiment, Ratio, RunOptions, SideBySide};
use crate::links::{OnLinks, Setup};
use crate::network::{PathSpec, Topology};
use crate::system::{NawaSetup, System};
use crate::tasks::Fetch;

pub(crate) const ABOUT: &str =
    "one TCP flow in the tunnel over two paths with 5 % bursty loss, by what goes over both";

const RATE_MBPS: f64 = 10.0;
const DELAY: Duration = Duration::from_millis(20);

const GRIDS: [Grid; 1] =
    [Grid(ALL, &["system=nawa resend=false,true bicast=off,selective,adaptive loss_percent=5.0"])];

const RATIOS: [Ratio; 3] = [
    Ratio::new("goodput_of_off", "goodput_mbps", &[("bicast", "off")]),
    Ratio::new("rto_of_off", "rto_expiries", &[("bicast", "off")]),
    Ratio::new("stall_of_off", "longest_stall_ms", &[("bicast", "off")]),
];

const NOTES: [&str; 4] = [
    "two paths of 10 Mbit/s, 20 ms one way, drop-tail queues of 50 packets; of each direction of each 5 % of the packets are \
     lost, in bursts of 3 in the mean (Gilbert); one file by curl from server to client, CUBIC, `ping` beside it",
    "resend: what a path loses is sent again by the tunnel itself; bicast: as in the configuration of both ends",
    "rto_expiries, retransmitted_segments: of the server's TCP (TCPTimeouts, RetransSegs); resent_packets: by the tunnel, both \
     ends; longest_stall_ms: the longest time between two bytes that reached what reads curl's output",
    "extra_bytes_ratio: bytes of copies over bytes of the other inner packets, both ends; sent_bytes_ratio: UDP payload that \
     both ends sent over the file's size",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let bytes = options.size.of(4, 16, 32) << 20;
    let cases = cases(&GRIDS, options.size, |cell| {
        let loss = bursts(cell.get("loss_percent")?);
        let path = |name| PathSpec::symmetric(name, link(RATE_MBPS, DELAY, loss));
        let setup = Setup {
            topology: Topology::Relayed(["one", "two"].map(path).to_vec()),
            system: System::Nawa(NawaSetup {
                relayed: false,
                resend: cell.get("resend")?,
                bicast: cell.text("bicast"),
                ..NawaSetup::AUTO
            }),
            congestion_control: "cubic",
        };
        let workload = OnLinks { setup, task: Fetch { bytes, event: None, recovery: true } };
        // About 1.2 Mbit/s where nothing helps.
        let estimate = Duration::from_secs_f64(4.0 + bytes as f64 * 8.0 / 1.2e6);
        Ok(Case { key: cell.key(&["system", "resend", "bicast", "loss_percent"]), workload, estimate }
            .erase())
    })?;
    Ok(Experiment {
        side_by_side: SideBySide::Cases(cases.len()),
        cases,
        repeats: options.size.of(1, 5, 9),
        ratios: RATIOS.to_vec(),
        notes: NOTES.map(str::to_owned).to_vec(),
        ..Experiment::default()
    })
}
