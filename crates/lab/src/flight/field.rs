//! `flight-field`: what is common on the Internet and not on the paper's links: policers, managed and tiny queues, bunched
//! acknowledgements, steps of delay, packets that overtake each other.

use std::time::Duration;

use link::{
    Aqm, Bitrate, ByteCount, Capacity, Jitter, LinkConfig, PolicerConfig, Probability, Queue, Reorder, Trace,
};

use super::case::{FRAME, Flows, STARTS, UP_TO, experiment_of, flow, overhead};
use crate::axes::{Grid, NORMAL, PAPER, QUICK, cases};
use crate::error::Result;
use crate::experiment::{Case, Experiment, RunOptions, SideBySide};
use crate::flows::{FlowSpec, FlowTest};
use crate::network::{Topology, fixed};

pub(crate) const ABOUT: &str = "congestion controls at policers, CoDel, PIE and tiny queues beside CUBIC, and with bunched ACKs, steps of delay and reordering";

const RTT: Duration = Duration::from_millis(60);

/// Who is compared on a link.
const CC: &str = "cc=fsat,bbr,cubic";
const CONTROLS: usize = 3;

/// What overflows: the queues of the cases that share one with CUBIC, and with as many more of the same control.
const QUEUES: &str = "queue=policer,codel,pie,packets-3,packets-10,bdp-2";
const BESIDE: &str = "against=cubic flows=1,4";
const OWN: &str = "against=itself flows=4";

/// Links that each control has alone, and those that change so seldom that it takes longer to see.
const LINKS: &str = "case=bunched,suspended,jitter,reorder,none";
const CHANGES: &str = "case=step,starlink";

/// Rates, and for how many seconds each is measured: at 1 Mbit/s many fit beside each other, at 100 none.
const RATES: &str = "rate_kbps:time_s=1000:60,10000:20,100000:10";
const RATES_OF_CHANGES: &str = "rate_kbps:time_s=1000:60,10000:40,100000:40";
const RATE_QUICK: &str = "rate_kbps=4000 time_s=7";
const RATES_PAPER: &str = "rate_kbps=1000,10000,100000 time_s=120";

const GRIDS: [Grid; 11] = [
    Grid(QUICK, &[RATE_QUICK, "against=cubic flows=1", QUEUES, CC]),
    Grid(QUICK, &[RATE_QUICK, LINKS, CC]),
    Grid(QUICK, &[RATE_QUICK, CHANGES, CC]),
    Grid(NORMAL, &[RATES, BESIDE, QUEUES, CC]),
    Grid(NORMAL, &[RATES, OWN, QUEUES, CC]),
    Grid(NORMAL, &[RATES, LINKS, CC]),
    Grid(NORMAL, &[RATES_OF_CHANGES, CHANGES, CC]),
    Grid(PAPER, &[RATES_PAPER, BESIDE, QUEUES, CC]),
    Grid(PAPER, &[RATES_PAPER, OWN, QUEUES, CC]),
    Grid(PAPER, &[RATES_PAPER, LINKS, CC]),
    Grid(PAPER, &[RATES_PAPER, CHANGES, CC]),
];

const ABOUT_THIS: [&str; 4] = [
    "RTT 60 ms; queue: policer (a token bucket of 50 frames, nothing waits), codel and pie (RFC 8289, RFC 8033, before ten BDP), \
     packets-N (drop-tail), bdp-2 (drop-tail, twice the BDP); `flows` flows of cc and as many of `against`, which start within 5 s; \
     measured from then on for time_s",
    "case: one flow of cc in two BDP of buffer; bunched: acknowledgements released every 16 ms; suspended: both directions stand \
     still for 166 ms each 2 s; step: RTT 20 and 100 ms in turns of 20 s; starlink: base delay 30, 60, 45, 80 ms in turns of 15 s \
     and up to 7 ms of jitter, no loss; jitter: RTT 20 ms, and what a normal distribution of 10 ms adds to each frame, in order; reorder: each frame takes 20 or 45 ms by chance",
    "dropped_ratio: of all frames handed to the bottleneck, by its policer and its queue; retransmitted_ratio: of all segments sent",
    "recovery_s: of step and starlink, the longest time in which less was acknowledged than nine tenths of the usual, of each second",
];

pub(crate) fn experiment(options: &RunOptions) -> Result<Experiment> {
    let cases = cases(&GRIDS, options.size, |cell| {
        let kbps = cell.get("rate_kbps")?;
        let until = STARTS + Duration::from_secs(cell.get("time_s")?);
        let each = std::iter::repeat_n(flow(cell.text("cc")), cell.get::<usize>("flows")?.max(1));
        let (flows, [up, down]) = match cell.text("queue") {
            "" => (each.collect(), link(kbps, cell.text("case"))),
            queue => {
                let shared = |flow| FlowSpec { start: [Duration::ZERO, STARTS], ..flow };
                let against = cell.text(if cell.text("against") == "itself" { "cc" } else { "against" });
                let others = each.clone().map(|_| flow(against));
                (each.chain(others).map(shared).collect::<Vec<_>>(), [bottleneck(kbps, queue), plain(kbps)])
            }
        };
        let test = FlowTest::lasting(flows, STARTS, until);
        let flows = Flows { topology: Topology::single(up, down), test };
        let key = cell.key("cc against flows queue case rate_kbps time_s");
        Ok(Case::new(key, flows, until + overhead(CONTROLS, 0)))
    })?;
    let alike = &["rate_kbps", "against", "queue", "case", "flows"];
    let side_by_side = SideBySide::Links { alike, up_to: UP_TO };
    Ok(Experiment { side_by_side, ..experiment_of(cases, options.size.of(1, 1, 5), &[], &ABOUT_THIS) })
}

fn packets(kbps: u64, bdp: f64) -> Queue {
    let one = kbps as f64 * 125.0 * RTT.as_secs_f64() / FRAME as f64;
    Queue::Packets((bdp * one).round().max(1.0) as usize)
}

/// Half of the RTT, and two BDP of buffer.
fn plain(kbps: u64) -> LinkConfig {
    fixed(kbps as f64 / 1e3, RTT / 2, packets(kbps, 2.0))
}

fn bottleneck(kbps: u64, name: &str) -> LinkConfig {
    let link = plain(kbps);
    match name.split_once('-') {
        Some(("packets", packets)) => {
            LinkConfig { queue: Queue::Packets(packets.parse().unwrap_or(1)), ..link }
        }
        Some(_) => link,
        None if name == "policer" => {
            let (rate, burst) = (Bitrate::from_bps(kbps * 1000), ByteCount(50 * FRAME as u64));
            LinkConfig { policer: Some(PolicerConfig { rate, burst }), capacity: Capacity::Unlimited, ..link }
        }
        None => {
            let aqm = if name == "pie" { Aqm::PIE } else { Aqm::CODEL };
            LinkConfig { aqm: Some(aqm), queue: packets(kbps, 10.0), ..link }
        }
    }
}

/// The ways there and back.
fn link(kbps: u64, name: &str) -> [LinkConfig; 2] {
    let (up, down, ms) = (plain(kbps), plain(kbps), Duration::from_millis);
    let steps = |steps: &[(u64, u64)]| steps.iter().map(|&(s, delay)| (ms(1000 * s), ms(delay))).collect();
    match name {
        "bunched" => [up, LinkConfig { capacity: in_turns(ms(15), ms(1), 100 * kbps), ..down }],
        "suspended" => {
            let capacity = in_turns(ms(166), ms(1834), kbps);
            [LinkConfig { capacity: capacity.clone(), ..up }, LinkConfig { capacity, ..down }]
        }
        "step" => [
            LinkConfig { delay: ms(10), ..up },
            LinkConfig { delay_steps: steps(&[(20, 10), (20, 90)]), ..down },
        ],
        "starlink" => [
            LinkConfig { delay: ms(15), jitter: Jitter::Uniform(ms(7)), ..up },
            LinkConfig { delay_steps: steps(&[(15, 15), (15, 45), (15, 30), (15, 65)]), ..down },
        ],
        "jitter" => [
            LinkConfig { delay: ms(10), jitter: Jitter::HalfNormal(ms(10)), ..up },
            LinkConfig { delay: ms(10), ..down },
        ],
        "reorder" => {
            let half = Probability::new(0.5).unwrap_or(Probability::ZERO);
            let reorder = Some(Reorder { probability: half, extra_delay: ms(25) });
            [LinkConfig { delay: ms(20), reorder, ..up }, down]
        }
        _ => [up, down],
    }
}

/// A rate that is 0 for some time and `kbps` for some, in turns.
fn in_turns(none: Duration, some: Duration, kbps: u64) -> Capacity {
    let steps = [(none, Bitrate::from_bps(0)), (some, Bitrate::from_bps(1000 * kbps))];
    Trace::steps(&steps).map_or(Capacity::Unlimited, |trace| Capacity::Trace(trace.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_start_together_than_one_thread_emulates() {
        let experiment = experiment(&RunOptions::default()).unwrap();
        let rate = |group: &[Case]| group.iter().map(|case| case.workload.rate().as_bps()).sum::<u64>();
        assert!(experiment.groups().all(|group| rate(group) <= UP_TO.as_bps() || group.len() == 1));
        let policed =
            experiment.cases.iter().find(|case| case.key.iter().any(|(_, value)| value == "policer"));
        assert_eq!(
            policed.unwrap().workload.rate(),
            Bitrate::from_bps(1_000_000),
            "what the policer lets through"
        );
    }
}
