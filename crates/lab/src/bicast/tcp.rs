//! `bicast-tcp`: one TCP flow through the tunnel, with and without copies of what controls retransmission.

use std::time::Duration;

use super::experiments::{bursts, link};
use crate::error::Error;
use crate::experiment::{Case, Experiment, Ratio, Reference, RunOptions, SideBySide, Size};
use crate::links::{OnLinks, Setup};
use crate::network::{PathSpec, Topology};
use crate::system::{NawaSetup, System};
use crate::tasks::Fetch;

pub(crate) const ABOUT: &str =
    "one TCP flow in the tunnel over two paths with 5 % bursty loss, by what goes over both";

const LOSS_PERCENT: f64 = 5.0;
const RATE_MBPS: f64 = 10.0;
const DELAY: Duration = Duration::from_millis(20);

const MODES: [&str; 3] = ["off", "selective", "adaptive"];

const RATIOS: [Ratio; 3] = [
    Ratio { name: "goodput_of_off", metric: "goodput_mbps", of: ("bicast", Reference::Name("off")) },
    Ratio { name: "rto_of_off", metric: "rto_expiries", of: ("bicast", Reference::Name("off")) },
    Ratio { name: "stall_of_off", metric: "longest_stall_ms", of: ("bicast", Reference::Name("off")) },
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
    let (megabytes, repeats) = match options.size {
        Size::Quick => (8, 1),
        Size::Normal => (16, 5),
        Size::Paper => (32, 9),
    };
    let cases: Vec<_> = [false, true]
        .iter()
        .flat_map(|&resend| MODES.map(|bicast| case(resend, bicast, megabytes << 20)))
        .collect();
    Ok(Experiment {
        name: "bicast-tcp",
        side_by_side: SideBySide::Cases(cases.len()),
        cases,
        repeats,
        ratios: RATIOS.to_vec(),
        notes: NOTES.map(str::to_owned).to_vec(),
        ..Experiment::default()
    })
}

fn case(resend: bool, bicast: &'static str, bytes: u64) -> Case {
    let path = |name| PathSpec::symmetric(name, link(RATE_MBPS, DELAY, bursts(LOSS_PERCENT)));
    let key = vec![
        ("system", "nawa".into()),
        ("resend", resend.into()),
        ("bicast", bicast.into()),
        ("loss_percent", LOSS_PERCENT.into()),
    ];
    let workload = OnLinks {
        setup: Setup {
            topology: Topology::Relayed(["one", "two"].map(path).to_vec()),
            system: System::Nawa(NawaSetup { relayed: false, resend, bicast, ..NawaSetup::AUTO }),
            congestion_control: "cubic",
        },
        task: Fetch { bytes, event: None, recovery: true },
    };
    // About 1.2 Mbit/s where nothing helps.
    Case { key, workload, estimate: Duration::from_secs_f64(4.0 + bytes as f64 * 8.0 / 1.2e6) }.erase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_ends_within_about_two_minutes() {
        let options = RunOptions { size: Size::Quick, ..RunOptions::default() };
        assert!(experiment(&options).unwrap().estimate() <= Duration::from_secs(130));
    }
}
