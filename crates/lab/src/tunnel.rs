//! `tunnel`: one TCP flow over several links, and over a link that nothing limits (paper 003).

use std::time::Duration;

use link::{Bitrate, Capacity, LinkConfig, Queue};

use crate::error::Error;
use crate::experiment::{Case, Experiment, Published, RunOptions, Size, Workload};
use crate::iperf::Iperf;
use crate::network::{PathSpec, Topology};
use crate::system::{NawaSetup, System, find_rival};

pub(crate) const ABOUT: &str =
    "one TCP flow over 1 to 10 links of 10 Mbit/s, over 50 + 10 Mbit/s, and unshaped";

/// What starting and stopping a case takes beside its measurement.
const OVERHEAD: Duration = Duration::from_secs(2);

/// Rivals: the system's name and its program.
const RIVALS: [(&str, &str); 2] = [("boringtun", "boringtun-cli"), ("wireguard-go", "wireguard-go")];

/// TCP over 1 to 10 paths in Mbit/s (paper 003, clocks synchronised).
const PAPER_TCP: [f64; 10] = [9.33, 18.1, 26.3, 34.9, 43.1, 50.2, 57.6, 65.0, 72.9, 77.8];

const NOTES: [&str; 4] = [
    "goodput_mbps: one iperf3 flow from client to server, CUBIC, as received; the first 2 s are not counted",
    "50+10: two links of 50 and 10 Mbit/s, 10 ms one way each, drop-tail queues of 100 packets; no rate is configured",
    "10x10: N links of 10 Mbit/s, no delay, drop-tail queues of 100 packets",
    "unshaped: one veth pair; both ends and iperf3 share this machine's CPUs",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (seconds, repeats) = match options.size {
        Size::Quick => (4, 1),
        Size::Normal => (10, 3),
        Size::Paper => (20, 3),
    };
    let time = Duration::from_secs(seconds);
    let mut cases = uneven(time);
    let counts: Vec<usize> = if options.size == Size::Paper { (1..=10).collect() } else { vec![1, 10] };
    cases.extend(counts.iter().flat_map(|&count| equal(count, time)));
    cases.extend(unshaped(time));
    let mut notes: Vec<String> = NOTES.map(str::to_owned).to_vec();
    for (name, program) in missing_rivals() {
        notes.push(format!("{name}: not measured, `{program}` is not installed (`make rivals` builds it)"));
    }
    Ok(Experiment { name: "tunnel", cases, repeats, paper: published(), notes })
}

fn uneven(time: Duration) -> Vec<Case> {
    let delay = Duration::from_millis(10);
    let topology = Topology::Relayed(vec![path("fast", 50.0, delay), path("slow", 10.0, delay)]);
    let systems = [("cubic", System::Tcp), ("mptcp", System::Mptcp), ("nawa", System::Nawa(NawaSetup::AUTO))];
    systems.map(|(name, system)| case(name, system, "50+10", &topology, time)).into()
}

fn equal(count: usize, time: Duration) -> Vec<Case> {
    let paths = (1..=count).map(|index| path(&format!("path{index}"), 10.0, Duration::ZERO)).collect();
    let topology = Topology::Relayed(paths);
    let paper = NawaSetup { scheduler: "paper" };
    let systems = [
        ("mptcp", System::Mptcp),
        ("nawa", System::Nawa(NawaSetup::AUTO)),
        ("nawa-paper", System::Nawa(paper)),
    ];
    systems.map(|(name, system)| case(name, system, "10x10", &topology, time)).into()
}

fn unshaped(time: Duration) -> Vec<Case> {
    let mut systems = vec![("cubic", System::Tcp), ("nawa", System::Nawa(NawaSetup::AUTO))];
    let installed = RIVALS.iter().filter(|(_, program)| find_rival(program).is_some());
    systems.extend(installed.map(|&(name, program)| (name, System::WireGuard(program))));
    let make = |(name, system)| case(name, system, "unshaped", &Topology::Direct, time);
    systems.into_iter().map(make).collect()
}

fn missing_rivals() -> impl Iterator<Item = (&'static str, &'static str)> {
    RIVALS.into_iter().filter(|(_, program)| find_rival(program).is_none())
}

fn case(name: &str, system: System, links: &str, topology: &Topology, time: Duration) -> Case {
    let paths = topology.path_names().len();
    Case {
        key: vec![
            ("system", name.into()),
            ("links", links.into()),
            ("paths", paths.into()),
            ("transport", "tcp".into()),
        ],
        topology: topology.clone(),
        system,
        congestion_control: "cubic",
        workload: Workload::Stream { time },
        estimate: time + Iperf::WARM_UP + OVERHEAD,
    }
}

fn path(name: &str, mbps: f64, delay: Duration) -> PathSpec {
    let capacity = Capacity::Fixed(Bitrate::from_mbps(mbps));
    PathSpec::symmetric(
        name,
        LinkConfig { capacity, delay, queue: Queue::Packets(100), ..LinkConfig::default() },
    )
}

fn published() -> Vec<Published> {
    let one = |(paths, mbps): (usize, f64)| Published {
        key: vec![
            ("system", "nawa-paper".into()),
            ("links", "10x10".into()),
            ("paths", paths.into()),
            ("transport", "tcp".into()),
        ],
        metrics: vec![("goodput_mbps", mbps)],
    };
    (1..).zip(PAPER_TCP).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_size_covers_one_to_ten_paths() {
        let experiment = experiment(&RunOptions { size: Size::Paper, ..RunOptions::default() }).unwrap();
        for published in &experiment.paper {
            assert!(experiment.cases.iter().any(|case| case.key == published.key), "{published:?}");
        }
    }

    #[test]
    fn quick_ends_within_about_two_minutes() {
        let experiment = experiment(&RunOptions { size: Size::Quick, ..RunOptions::default() }).unwrap();
        assert!(experiment.estimate() <= Duration::from_secs(130), "{:?}", experiment.estimate());
    }
}
