//! `bond`: what one flow, or eight, gets of two or three links by every system there is, and who else is there beside it.

mod measure;
mod profiles;

use std::collections::BTreeSet;
use std::time::Duration;

use link::Bitrate;

use crate::axes::{Cell, FULL, Grid, NORMAL, PAPER, QUICK, cells};
use crate::error::Result;
use crate::experiment::{Case, Experiment, Ratio, RunOptions, SideBySide, Size};
use crate::iperf::Direction;
use crate::links::{OnLinks, Setup};
use crate::network::{PathSpec, Topology};
use crate::system::{NawaSetup, System};

use measure::Test;

pub(crate) const ABOUT: &str = "TCP over two or three mixed links: each link alone, MPTCP, Nawa, by CUBIC and BBR; ping and a call beside it";

const ONE: &str = "flows=1 direction=down";
const CC: &str = "cc=cubic,bbr";
const PROFILES: &str = "case=baseline,rtt_40,rtt_70,rtt_120,rtt_320,jit_5,jit_20,loss_05,loss_2,bw_4to1,bw_10to1,dual_lte,fiber_lte,\
    lte_starlink,lte_geo,congested,three,50+10,lossy30,sat+dsl,shallow,tiny,bloat,thin-up";
/// Pairs of recordings, in the folder of traces.
const RECORDED: &str = "case=att+verizon,att+tmobile";

/// Each set of links that was given.
const GIVEN: [Grid; 3] = [
    Grid(QUICK, &[ONE, CC]),
    Grid(NORMAL, &[ONE, CC]),
    Grid(PAPER, &["flows=1,8 direction=down,up,both", CC]),
];

const DIRECTIONS: [(&str, Direction); 3] =
    [("down", Direction::Down), ("up", Direction::Up), ("both", Direction::Both)];

/// Each is measured by every system.
const GRIDS: [Grid; 9] = [
    Grid(QUICK, &["case=three,lossy30,sat+dsl,tiny", ONE, CC]),
    Grid(NORMAL, &[PROFILES, ONE, CC]),
    Grid(NORMAL, &[RECORDED, ONE, CC]),
    Grid(NORMAL, &["case=three,50+10,sat+dsl,tiny,bloat flows=8 direction=down", CC]),
    Grid(NORMAL, &["case=three,50+10,sat+dsl,thin-up flows=1 direction=up", CC]),
    Grid(NORMAL, &["case=rtt_120,three,50+10,sat+dsl,bloat flows=1 direction=both", CC]),
    Grid(PAPER, &[PROFILES, "flows=1,8 direction=down,up", CC]),
    Grid(PAPER, &[RECORDED, "flows=1,8 direction=down,up", CC]),
    Grid(FULL, &["case=dual_lte,three,50+10,sat+dsl transport=quic", ONE, CC]),
];

const LINKS: &[(&str, &str)] = &[("system", "link*")];
const MPTCP: &[(&str, &str)] = &[("system", "mptcp*")];

const RATIOS: [Ratio; 5] = [
    Ratio { greatest: true, ..Ratio::new("of_best_link", "goodput_mbps", LINKS) },
    Ratio::new("of_sum", "goodput_mbps", LINKS),
    Ratio::new("of_mptcp", "goodput_mbps", MPTCP),
    Ratio { greatest: true, over: &["cc"], ..Ratio::new("of_best_link_any_cc", "goodput_mbps", LINKS) },
    Ratio { greatest: true, over: &["cc"], ..Ratio::new("of_mptcp_any_cc", "goodput_mbps", MPTCP) },
];

/// The sum of links' rates up to which cases run beside each other without a change of ratios (docs/lab.md).
const SIDE_BY_SIDE: Bitrate = Bitrate::from_bps(120_000_000);

const NOTES: [&str; 8] = [
    "goodput_mbps: payload that reached the receivers of iperf3 over 12 s (recorded links: 30 s), the start included, of both ways \
     together where direction is both; cc: the congestion control of both ends, and of all of MPTCP's subflows; link1 and so on: plain TCP on that \
     link alone; mptcp: the kernel's, which starts on the fastest link, with a subflow on each other; nawa: paths from end to \
     end, nothing configured",
    "of_best_link, of_sum, of_mptcp: goodput over that of the best single link, of all single links together, and of MPTCP, \
     with the same cc in the same repeat; of_best_link_any_cc, of_mptcp_any_cc: of the better of CUBIC and BBR there",
    "rtt_idle_p95_ms, rtt_loaded_…: `ping` 20 times a second before and beside the flows, of those answered, through the \
     tunnel for Nawa; mptcp carries no pings: its are those of the fastest link",
    "call_…: a call beside the flows, 50 packets of 60 bytes a second that the server sends back; loss_ratio: the share not \
     answered within 3 s of the end; longest_gap_ms: the longest time between two answers",
    "links: rates count whole Ethernet frames; both directions alike but for thin-up and where `b` is written; loss comes before the queue, is \
     independent, and strikes in both directions; jitter is half-normal and keeps order; drop-tail queues",
    "rpm: 60 s over the mean of the loaded round trips of the ping, the slowest twentieth left out; \
     draft-ietf-ippm-responsiveness has TCP's, TLS's and HTTP's handshakes and requests on the loaded connection too",
    "link1-quic …, nawa-quic: one QUIC connection by quinn, with its own CUBIC or BBR (which it calls experimental); ratios are \
     those of QUIC over QUIC",
    "thin-up: 12 Mbit/s down, 256 kbit/s up, 20 ms one way, 100 packets; the others are in docs/lab.md",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let mut cases = Vec::new();
    let mut missing = BTreeSet::new();
    for (case, cell) in named_cells(options) {
        let quic = cell.text("transport") == "quic";
        if quic && !cfg!(feature = "quic") {
            missing.insert("nawa-quic, link1-quic …: this build has no QUIC (`--features quic`)".to_owned());
            continue;
        }
        match profiles::links(case, options.traces.as_deref())? {
            Ok(links) => cases.extend(of_all_systems(case, &cell, &links, options.size)?),
            Err(why) => drop(missing.insert(format!("{case}: {why}"))),
        }
    }
    let mut experiment = Experiment::of(cases, options.size.of(1, 3, 3), &RATIOS, &NOTES);
    experiment.notes.extend(missing.into_iter().map(|text| format!("not measured: {text}")));
    Ok(Experiment { side_by_side: SideBySide::Rates(SIDE_BY_SIDE), ..experiment })
}

/// The cells, each with the name of its links, or the links that were given.
fn named_cells(options: &RunOptions) -> Vec<(&str, Cell)> {
    if options.links.is_empty() {
        return cells(&GRIDS, options.size).into_iter().map(|cell| (cell.text("case"), cell)).collect();
    }
    let of = |links| cells(&GIVEN, options.size).into_iter().map(move |cell| (links, cell));
    options.links.iter().map(String::as_str).flat_map(of).collect()
}

/// What making ready and ending takes, of as many cases as start together.
const OVERHEAD: Duration = seconds(10);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A cell over the links that are called `name`, by every system that carries its transport.
fn of_all_systems(name: &str, cell: &Cell, links: &[PathSpec], size: Size) -> Result<Vec<Case>> {
    let (quic, cc) = (cell.text("transport") == "quic", cell.text("cc"));
    let recorded = profiles::RECORDED.iter().any(|(known, _)| *known == name);
    let test = Test {
        quic,
        flows: cell.get("flows")?,
        direction: cell.one_of("direction", &DIRECTIONS)?,
        time: seconds(if recorded { 30 } else { 12 }),
        idle_pings: size.of(40, 80, 80),
    };
    let estimate = test.time + measure::PING_EVERY * test.idle_pings + OVERHEAD;
    let carrying = systems(links).into_iter().filter(|(system, ..)| !(quic && *system == System::Mptcp));
    let case = |(system, by, links): Over| {
        let by = if quic { format!("{by}-quic") } else { by };
        let mut key = vec![("case", name.into()), ("system", by.into())];
        key.extend(cell.key("cc flows direction transport"));
        let setup = Setup { topology: Topology::Relayed(links), system, congestion_control: cc };
        Case::new(key, OnLinks { setup, task: test.clone() }, estimate)
    };
    Ok(carrying.map(case).collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plain;

    fn sized(size: Size) -> Experiment {
        experiment(&RunOptions { size, ..RunOptions::default() }).unwrap()
    }

    fn values(experiment: &Experiment, field: usize) -> BTreeSet<String> {
        let tcp = experiment.cases.iter().filter(|case| case.field("transport").is_none());
        tcp.map(|case| case.key[field].1.to_string()).collect()
    }

    #[test]
    fn quick_has_every_system_but_quic() {
        let quick = sized(Size::Quick);
        for size in [Size::Normal, Size::Paper] {
            assert_eq!(
                [1, 2].map(|field| values(&quick, field)),
                [1, 2].map(|field| values(&sized(size), field))
            );
        }
    }

    #[test]
    fn links_that_are_given_are_all_that_is_measured() {
        let links = ["12@20 b0.256".to_owned(), "5@1, 6@2".to_owned()];
        let given = |links: &[String]| {
            experiment(&RunOptions { links: links.to_vec(), size: Size::Quick, ..RunOptions::default() })
        };
        let all = given(&links).unwrap();
        let measured = all.cases.iter().map(|case| plain(&case.key[0].1)).collect::<BTreeSet<_>>();
        assert_eq!(measured, BTreeSet::from(links));
        let thin = all.cases.iter().find(|case| case.key[1].1 == "nawa").unwrap();
        let thin = &thin.workload::<OnLinks<Test>>().unwrap().setup.topology.links()[0];
        let rates =
            [&thin.up, &thin.down].map(|way| Topology::single(way.clone(), way.clone()).rate().as_bps());
        assert_eq!(rates, [256_000, 12_000_000]);
        assert!(given(&["5".into()]).unwrap_err().is_bad_input());
    }

    #[test]
    fn recordings_are_pairs_and_named_where_they_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = |experiment: &Experiment| {
            let notes = experiment.notes.iter().filter(|note| note.contains("a folder (--traces)"));
            notes.cloned().collect::<Vec<_>>()
        };
        assert_eq!(missing(&sized(Size::Normal)).len(), 2);
        for name in ["ATT-LTE-x.down", "ATT-LTE-x.up", "TMobile-UMTS-y.down"] {
            std::fs::write(folder.path().join(name), "1\n2\n").unwrap();
        }
        let options = RunOptions { traces: Some(folder.path().into()), ..RunOptions::default() };
        let experiment = experiment(&options).unwrap();
        assert!(missing(&experiment).iter().all(|note| note.contains("att+verizon")));
        let both =
            experiment.cases.iter().find(|case| case.key[0].1 == "att+tmobile" && case.key[1].1 == "nawa");
        let workload = both.unwrap().workload::<OnLinks<Test>>().unwrap();
        assert_eq!(workload.setup.topology.path_names(), ["link1", "link2"]);
        std::fs::write(folder.path().join("TMobile-UMTS-y.down"), "1\ntwo\n").unwrap();
        assert!(super::experiment(&options).unwrap_err().is_bad_input());
    }
}
