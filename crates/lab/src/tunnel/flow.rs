//! `tunnel`: one flow over one to ten links, TCP and UDP, with clocks that agree and clocks that do not (paper 003).

use std::time::Duration;

use super::variant::{RIVALS, Row};
use super::{paper, plan};
use crate::error::Error;
use crate::experiment::{Experiment, RunOptions, Size};
use crate::system::find_rival;

pub(crate) const ABOUT: &str = "one flow, TCP or UDP, over 1 to 10 links of 10 Mbit/s, over uneven links, and unshaped; clocks same and apart";

const NOTES: [&str; 10] = [
    "goodput_mbps: payload of one iperf3 flow from client to server, as its server reports it by the second; the \
     first 2 s are not counted; TCP is CUBIC",
    "udp: packets of 1350 bytes of payload, offered as payload at 110 % of the sum of the links' rates (unshaped: as \
     fast as iperf3 can), so that something must be lost; loss_ratio: the share of those sent that did not arrive, by the gaps \
     between those that did; what waits in a queue is not lost; offered_mbps: what iperf3 did send",
    "times_one_path: goodput over that of the same system over one path in this run",
    "10x10: N links of 10 Mbit/s, no delay, drop-tail queues of 100 packets",
    "50+10: two links of 50 and 10 Mbit/s, 10 ms one way each, drop-tail queues of 100 packets; no rate is configured",
    "10+10+10slow: three links of 10 Mbit/s, 10, 10 and 120 ms one way, drop-tail queues of 100 packets; cubic is on \
     one fast link",
    "unshaped: one veth pair; both ends and iperf3 share this machine's CPUs",
    "clocks: offset: the server's clock is an hour ahead (a time namespace); behind: 20 ms behind, so \
     that one-way delays as seen have either sign; drift: the server's runs 200 ppm too \
     fast, the client's 200 ppm too slowly; step: the server's jumps forward by 50 ms every 2 s",
    "back: one: the server sends over the first path only, as in the paper; mptcp takes 9 paths at most; plain is UDP \
     without a tunnel on one link",
    "nawa-paper is equations (1) to (3); nawa-paper-absolute puts absolute one-way delays into (2) instead of (1), as \
     the authors' program must have, and stands beside their figures with clocks apart",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment, Error> {
    let (seconds, repeats) = match options.size {
        Size::Quick => (3, 1),
        Size::Normal => (8, 3),
        Size::Paper => (20, 3),
    };
    let time = Duration::from_secs(seconds);
    let rows = plan::rows(options.size);
    let cases = rows.iter().flat_map(Row::variants).map(|variant| variant.case(time)).collect();
    let mut notes: Vec<String> = NOTES.map(str::to_owned).to_vec();
    for (name, program) in missing_rivals() {
        notes.push(format!("{name}: not measured, `{program}` is not installed (`make rivals` builds it)"));
    }
    let paper = paper::published();
    Ok(Experiment { name: "tunnel", cases, repeats, paper, notes, ..Experiment::default() })
}

fn missing_rivals() -> impl Iterator<Item = (&'static str, &'static str)> {
    RIVALS.into_iter().filter(|(_, program)| find_rival(program).is_none())
}

#[cfg(test)]
mod tests {
    use link::Bitrate;

    use super::super::variant::{Links, offered};
    use super::*;

    fn sized(size: Size) -> Experiment {
        experiment(&RunOptions { size, ..RunOptions::default() }).unwrap()
    }

    #[test]
    fn the_papers_size_covers_all_that_it_published() {
        let experiment = sized(Size::Paper);
        for published in &experiment.paper {
            assert!(experiment.cases.iter().any(|case| case.key == published.key), "{published:?}");
        }
    }

    #[test]
    fn quick_ends_within_about_two_minutes() {
        let estimate = sized(Size::Quick).estimate();
        assert!(estimate <= Duration::from_secs(130), "{estimate:?}");
    }

    #[test]
    fn udp_is_offered_more_than_the_links_carry() {
        assert_eq!(offered(&Links::Equal(10).topology()), Some(Bitrate::from_mbps(110.0)));
        assert_eq!(offered(&Links::Unshaped.topology()), None);
    }

    #[test]
    fn every_size_has_distinct_cases() {
        for size in [Size::Quick, Size::Normal, Size::Paper] {
            let titles: Vec<_> = sized(size).cases.iter().map(Experiment::title).collect();
            let distinct: std::collections::BTreeSet<_> = titles.iter().collect();
            assert_eq!(distinct.len(), titles.len(), "{size:?}");
        }
    }
}
