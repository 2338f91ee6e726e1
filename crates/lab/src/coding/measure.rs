//! One sample: a transfer over a chain, and what its nodes counted.

use std::time::Duration;

use link::Probability;

use super::bound::{Bound, papers_rule};
use super::chain::{Chain, REPEATED};
use super::mode::Mode;
use super::test::Test;
use super::transfer::{self, End, Outcome, Plan};
use crate::axes::{Grid, cases};
use crate::counters::Counters;
use crate::error::Error;
use crate::experiment::{Case, Experiment, Fields, Ratio, Size};
use crate::system::Means;
use crate::workload::{Need, Prepared, Sample, Site, Workload};

impl Workload for Test {
    fn needs(&self) -> Vec<Need> {
        Need::programs(&["ethtool", "ping"])
    }

    fn prepare<'a>(&'a self, site: Site<'a>) -> Result<Box<dyn Prepared + 'a>, Error> {
        Ok(Box::new(move || measure(self, &site.means(), site.seed)))
    }
}

/// When transfers end, whether hosts make several segments at a time, and how often all is repeated.
pub(super) struct Timing {
    pub(super) end: End,
    pub(super) bursts: bool,
    pub(super) repeats: usize,
}

impl Timing {
    /// A fixed time, slow start included.
    pub(super) fn fixed(size: Size) -> Self {
        let end = End::Time(Duration::from_millis(size.of(1_500, 5_000, 10_000)));
        Self { end, bursts: true, repeats: size.of(1, 5, 9) }
    }
}

/// Where no axis says how long a packet waits for a partner at most.
const WAIT_MS: u64 = 10;

/// With aggregation, frames that go as one transmission at most: 4 ms at the fastest rate here.
const AGGREGATE: usize = 16;

/// The experiment whose cells these grids are: one way and one flow at a time if they do not say.
pub(super) fn experiment_of(
    grids: &[Grid],
    size: Size,
    timing: Timing,
    about: &[&str],
) -> Result<Experiment, Error> {
    let cases = cases(grids, size, |cell| {
        let mode = Mode::named(cell.text("mode"));
        let wait_ms = if cell.text("wait_ms").is_empty() { WAIT_MS } else { cell.get("wait_ms")? };
        let aggregate = if cell.text("aggregation") == "on" { AGGREGATE } else { 1 };
        let loss = cell.get::<f64>("overhearing_loss_percent")? / 100.0;
        let test = Test {
            mode,
            hops: cell.get("hops")?,
            wait: Duration::from_millis(wait_ms),
            plan: Plan {
                flows: cell.get("flows").map(|flows: usize| flows.max(1))?,
                both_ways: cell.text("directions") == "2",
                window: cell.get("window_segments")?,
                end: timing.end,
            },
            bursts: timing.bursts,
            aggregate,
            overhearing_loss: Probability::new(loss).unwrap_or(Probability::ZERO),
        };
        Ok(Case { key: cell.key(&KEY), estimate: test.estimate(), workload: test }.erase())
    })?;
    let notes = about.iter().chain(&NOTES).map(|&note| note.to_owned()).collect();
    Ok(Experiment { cases, repeats: timing.repeats, notes, ..Experiment::default() })
}

const KEY: [&str; 8] = [
    "mode",
    "hops",
    "wait_ms",
    "window_segments",
    "flows",
    "directions",
    "overhearing_loss_percent",
    "aggregation",
];

pub(super) const RATIOS: [Ratio; 4] = [
    Ratio::new("goodput_of_plain", "goodput_mbps", &[("mode", "plain")]),
    Ratio::new("packets_of_plain", "packets_per_segment", &[("mode", "plain")]),
    Ratio::new("goodput_of_off", "goodput_mbps", &[("mode", "off")]),
    Ratio::new("packets_of_off", "packets_per_segment", &[("mode", "off")]),
];

fn measure(test: &Test, means: &Means, seed: u64) -> Result<Sample, Error> {
    let mut chain = Chain::start(test, means, seed)?;
    let before = chain.counters(means)?;
    let (first, last) = chain.ends();
    let outcome = transfer::run([first, last], &test.plan, test.estimate() * 6 + Duration::from_secs(10))?;
    let counters = chain.counters(means)?.since(&before);
    chain.check()?;
    let mut metrics = of_transfer(test, &outcome);
    metrics.extend(of_layers(test, &outcome, &counters));
    metrics.push(("mac_repetitions", counters.get(REPEATED)));
    metrics.push(("medium_late_us", chain.lateness()?.mean().as_secs_f64() * 1e6));
    Ok(metrics.into())
}

fn of_transfer(test: &Test, outcome: &Outcome) -> Fields<f64> {
    let bound = Bound::of(test.hops, outcome.there, outcome.back);
    let mut metrics = vec![
        ("goodput_mbps", outcome.goodput_mbps()),
        ("rtt_ms", outcome.rtt.as_secs_f64() * 1e3),
        ("data_per_ack", outcome.data_per_ack()),
        ("retransmitted_packets", outcome.retransmitted as f64),
        ("window_bytes", outcome.window.into()),
        ("bound_packets_ratio", bound.packets),
        ("bound_goodput_ratio", bound.goodput),
    ];
    if test.mode == Mode::Nawa("controlled") {
        metrics.push(("rule_packets_ratio", papers_rule(test.hops, outcome.there, outcome.back)));
    }
    metrics
}

/// Nodes without a layer have sent what their stations were given.
fn of_layers(test: &Test, outcome: &Outcome, counters: &Counters) -> Fields<f64> {
    let (count, segments) = (|name| counters.get(name), outcome.segments().max(1.0));
    let mut metrics = vec![
        ("packets_sent", count("sent_frames")),
        ("packets_per_segment", count("sent_frames") / segments),
        ("queue_dropped_packets", count("queue_dropped_frames")),
    ];
    if test.mode.codes() {
        metrics.extend([
            ("coded_packets", count("sent_coded_frames")),
            ("undecoded_packets", count("missing_partner_frames") + count("wrong_partner_frames")),
        ]);
        let (relayed, held) = (count("relayed_packets"), count("held_packets"));
        if relayed > 0.0 {
            metrics.push(("coding_ratio", 2.0 * count("sent_coded_frames") / relayed));
        }
        if held > 0.0 {
            metrics.extend([
                ("held_in_vain_ratio", count("expired_packets") / held),
                ("held_ms", count("held_time_ms") / held),
                ("held_1ms_ratio", count("held_1ms_packets") / held),
                ("held_10ms_ratio", count("held_10ms_packets") / held),
            ]);
        }
    }
    metrics
}

/// What a reader of any of these figures has to know.
const NOTES: [&str; 9] = [
    "the running kernel's TCP (CUBIC) over a chain of namespaces on one emulated 802.11g medium (54 Mbit/s, stations 90 m apart: \
     neighbours read each other, all sense each other); 1448 bytes a segment",
    "mode plain: the kernel alone, without nawa; off: nawa on every node, which codes nothing; *_of_plain, *_of_off: \
     ratios within each repeat; *_packets_*: of packets_per_segment",
    "aggregation on: up to 16 frames for one station go as one (A-MPDU); plain and off have the interface's queue to themselves, by \
     flow and with CoDel (FQ-CoDel), as mac80211's is; controlled and any keep what waits in the layer. On a radio of 802.11n nawa \
     codes nothing, which is off; this medium does not say that it is one",
    "mode batman: batman-adv of Linux 6.1 with its network coding in a guest at each node, batman-off: without; TCP's ends are the \
     same as in all modes; its own messages count as packets",
    "packets_sent: frames that all nodes' NC layers handed to their interfaces (plain: that all stations took), the MAC's \
     repetitions apart; packets_per_segment: for each segment that arrived",
    "bound_packets_ratio, bound_goodput_ratio: the least packets and the most goodput that sums of two opposing packets \
     allow against no coding, from this run's count of packets of both ways (and 802.11's airtimes)",
    "rule_packets_ratio: the least packets that the paper's rule sends in this run, which codes one data packet of two at most, \
     however many ACKs there are; held_in_vain_ratio: of the held, those whose time ran out",
    "coding_ratio: packets that relays sent in sums, of all that they relayed; held_ms: mean time in wait queues; \
     held_1ms_ratio, held_10ms_ratio: of the held, those that left within 1 and 10 ms",
    "rtt_ms: mean of the senders' smoothed round-trip time, every 10 ms; medium_late_us: by how much frames came later to \
     their nodes than the model of the medium says, in the mean",
];
