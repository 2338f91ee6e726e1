//! `bond`: what one flow, or eight, gets of two or three links by every system there is, and who else is there beside it.

mod measure;
mod profiles;

use std::time::Duration;

use link::Bitrate;

use crate::error::Error;
use crate::experiment::{Case, Experiment, RunOptions, Share, SideBySide, Size, Whole};
use crate::links::{OnLinks, Setup};
use crate::network::{PathSpec, Topology};
use crate::system::{NawaSetup, System};

use measure::{Direction, Test, Transport};

pub(crate) const ABOUT: &str = "TCP over two or three mixed links: each link alone, MPTCP, Nawa, by CUBIC and BBR; ping and a call beside it";

const CONTROLS: [&str; 2] = ["cubic", "bbr"];

/// Those of `--quick`.
const QUICK: [&str; 5] = ["three", "50+10", "lossy30", "sat+dsl", "tiny"];

/// Those that are measured with eight flows too, and upwards.
const EIGHT: [&str; 5] = ["three", "50+10", "sat+dsl", "tiny", "bloat"];
const UPWARDS: [&str; 4] = ["three", "50+10", "sat+dsl", "thin-up"];

/// Those over which a QUIC flow goes too.
const QUIC: [&str; 4] = ["dual_lte", "three", "50+10", "sat+dsl"];

const SHARES: [Share; 5] = [
    share("of_best_link", "link", Whole::Greatest, &[]),
    share("of_sum", "link", Whole::Sum, &[]),
    share("of_mptcp", "mptcp", Whole::Greatest, &[]),
    share("of_best_link_any_cc", "link", Whole::Greatest, &["cc"]),
    share("of_mptcp_any_cc", "mptcp", Whole::Greatest, &["cc"]),
];

const fn share(name: &'static str, systems: &'static str, of: Whole, over: &'static [&'static str]) -> Share {
    Share { name, metric: "goodput_mbps", systems, of, over }
}

/// The sum of links' rates up to which cases run beside each other without a change of ratios (docs/lab.md).
const SIDE_BY_SIDE: Bitrate = Bitrate::from_bps(240_000_000);

const NOTES: [&str; 8] = [
    "goodput_mbps: payload that reached the receiver of iperf3 over 12 s (recorded links: 30 s), the start included; cc: the congestion control of both ends, and of all of MPTCP's subflows; link1 and so on: plain TCP on that \
     link alone; mptcp: the kernel's, which starts on the fastest link, with a subflow on each other; nawa: paths from end to \
     end, nothing configured",
    "of_best_link, of_sum, of_mptcp: goodput over that of the best single link, of all single links together, and of MPTCP, \
     with the same cc in the same repeat; of_best_link_any_cc, of_mptcp_any_cc: of the better of CUBIC and BBR there",
    "rtt_idle_p95_ms, rtt_loaded_…: `ping` 20 times a second before and beside the flows, of those answered, through the \
     tunnel for Nawa; mptcp carries no pings: its are those of the fastest link",
    "call_…: a call beside the flows, 50 packets of 60 bytes a second that the server sends back; loss_ratio: the share not \
     answered within 3 s of the end; longest_gap_ms: the longest time between two answers",
    "links: rates count whole Ethernet frames; both directions alike but for thin-up; loss comes before the queue, is \
     independent, and strikes in both directions; jitter is half-normal and keeps order; drop-tail queues",
    "rpm: 60 s over the mean of the loaded round trips of the ping, the slowest twentieth left out; \
     draft-ietf-ippm-responsiveness has TCP's, TLS's and HTTP's handshakes and requests on the loaded connection too",
    "link1-quic …, nawa-quic: one QUIC connection by quinn, with its own CUBIC or BBR (which it calls experimental); ratios are \
     those of QUIC over QUIC",
    "thin-up: 12 Mbit/s down, 256 kbit/s up, 20 ms one way, 100 packets; the others are in docs/lab.md",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let quick = options.size == Size::Quick;
    let mut notes: Vec<String> = NOTES.map(str::to_owned).to_vec();
    let mut cases = Vec::new();
    for (name, profiles) in profiles::PROFILES {
        if !quick || QUICK.contains(&name) {
            add(&mut cases, name, &profiles::paths(profiles), seconds(12), options.size);
        }
    }
    for (name, recordings) in profiles::RECORDED.into_iter().filter(|_| !quick) {
        let folder = options.traces.as_deref();
        let paths = folder.map(|folder| profiles::recorded(folder, recordings)).transpose()?.flatten();
        match paths {
            Some(paths) => add(&mut cases, name, &paths, seconds(30), options.size),
            None => notes.push(format!(
                "{name}: not measured, it needs a folder (--traces) with the recordings {}*.down and {}*.down",
                recordings[0], recordings[1]
            )),
        }
    }
    if !cfg!(feature = "quic") {
        notes
            .push("nawa-quic, link1-quic …: not measured, this build has no QUIC (`--features quic`)".into());
    }
    Ok(Experiment {
        name: "bond",
        cases,
        side_by_side: SideBySide::Rates(SIDE_BY_SIDE),
        repeats: if quick { 1 } else { 3 },
        shares: SHARES.to_vec(),
        notes,
        ..Experiment::default()
    })
}

/// What making ready and ending takes, of as many cases as start together.
const OVERHEAD: Duration = seconds(10);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Adds all that is measured over `links` at that size.
fn add(cases: &mut Vec<Case>, name: &'static str, links: &[PathSpec], time: Duration, size: Size) {
    use Direction::{Down, Up};
    use Transport::{Quic, Tcp};
    let mut rows = vec![(Tcp, 1, Down)];
    if size == Size::Paper {
        rows.extend([(Tcp, 8, Down), (Tcp, 1, Up), (Tcp, 8, Up)]);
    } else if size == Size::Normal {
        rows.extend(EIGHT.contains(&name).then_some((Tcp, 8, Down)));
        rows.extend(UPWARDS.contains(&name).then_some((Tcp, 1, Up)));
    }
    let quic = cfg!(feature = "quic") && size != Size::Quick && QUIC.contains(&name);
    rows.extend(quic.then_some((Quic, 1, Down)));
    for (transport, flows, direction) in rows {
        let idle_pings = if size == Size::Quick { 40 } else { 80 };
        let test = Test { transport, flows, direction, time, idle_pings };
        for cc in CONTROLS {
            let made = systems(links).into_iter().filter_map(|system| case(name, system, cc, &test));
            cases.extend(made);
        }
    }
}

/// A system, its name, and the links that it has.
type Over = (System, String, Vec<PathSpec>);

/// Each link by plain TCP, then all of them by what can use them.
fn systems(links: &[PathSpec]) -> Vec<Over> {
    let alone = links.iter().map(|link| (System::Tcp, link.name.clone(), vec![link.clone()]));
    let nawa = System::Nawa(NawaSetup { relayed: false, ..NawaSetup::AUTO });
    let mut fastest_first = links.to_vec();
    let rate = |link: &PathSpec| Topology::Single(Box::new(link.clone())).rate();
    fastest_first.sort_by_key(|link| std::cmp::Reverse(rate(link)));
    let bonds = [(System::Mptcp, "mptcp", fastest_first), (nawa, "nawa", links.to_vec())];
    alone.chain(bonds.map(|(system, name, links)| (system, name.to_owned(), links))).collect()
}

/// `None` where the system does not carry that transport.
fn case(name: &'static str, (system, called, links): Over, cc: &'static str, test: &Test) -> Option<Case> {
    let quic = test.transport == Transport::Quic;
    let called = if quic { format!("{called}-quic") } else { called };
    let mut key = vec![
        ("case", name.into()),
        ("system", called.into()),
        ("cc", cc.into()),
        ("flows", test.flows.into()),
        ("direction", test.direction.name().into()),
    ];
    key.extend(quic.then_some(("transport", "quic".into())));
    let carried = !(quic && system == System::Mptcp);
    let setup = Setup { topology: Topology::Relayed(links), system, congestion_control: cc };
    let workload = OnLinks { setup, task: test.clone() };
    let estimate = test.time + measure::PING_EVERY * test.idle_pings + OVERHEAD;
    carried.then(|| Case { key, workload, estimate }.erase())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn sized(size: Size) -> Experiment {
        experiment(&RunOptions { size, ..RunOptions::default() }).unwrap()
    }

    fn values(experiment: &Experiment, field: usize) -> BTreeSet<String> {
        let tcp = experiment.cases.iter().filter(|case| case.field("transport").is_none());
        tcp.map(|case| case.key[field].1.to_string()).collect()
    }

    #[test]
    fn quick_ends_within_about_two_minutes_and_has_every_system_but_quic() {
        let quick = sized(Size::Quick);
        assert!(quick.estimate() <= seconds(130), "{:?}", quick.estimate());
        for size in [Size::Normal, Size::Paper] {
            assert_eq!(
                [1, 2].map(|field| values(&quick, field)),
                [1, 2].map(|field| values(&sized(size), field))
            );
        }
    }

    #[test]
    fn recordings_are_pairs_and_named_where_they_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = |experiment: &Experiment| {
            experiment
                .notes
                .iter()
                .filter(|note| note.contains("needs a folder"))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(missing(&sized(Size::Normal)).len(), 2);
        for name in ["ATT-LTE-x.down", "ATT-LTE-x.up", "TMobile-UMTS-y.down"] {
            std::fs::write(folder.path().join(name), "1\n2\n").unwrap();
        }
        let options = RunOptions { traces: Some(folder.path().into()), ..RunOptions::default() };
        let experiment = experiment(&options).unwrap();
        assert!(missing(&experiment).iter().all(|note| note.starts_with("att+verizon")));
        let both =
            experiment.cases.iter().find(|case| case.key[0].1 == "att+tmobile" && case.key[1].1 == "nawa");
        let workload = both.unwrap().workload::<OnLinks<Test>>().unwrap();
        assert_eq!(workload.setup.topology.path_names(), ["link1", "link2"]);
        std::fs::write(folder.path().join("TMobile-UMTS-y.down"), "1\ntwo\n").unwrap();
        assert!(super::experiment(&options).unwrap_err().is_bad_input());
    }
}
