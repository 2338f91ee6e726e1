//! The experiments of paper 002: TCP over a chain of nodes that share an 802.11 medium, relays coding or not.

mod batman;
mod bound;
mod chain;
mod counters;
mod gain;
mod loss;
mod mode;
mod transfer;
mod wait;

use std::time::Duration;

use link::Probability;
use serde_json::Value;

use crate::error::Error;
use crate::experiment::{Case, Fields, Ratio, Reference, Workload};
use crate::network::Topology;
use crate::runner::Sample;
use crate::system::{Means, System};

use bound::{Bound, papers_rule};
use chain::Chain;
use counters::Counters;
use mode::Mode;
use transfer::{End, Outcome, Plan};

pub(crate) use gain::{ABOUT as ABOUT_GAIN, experiment as gain};
pub(crate) use loss::{ABOUT as ABOUT_LOSS, experiment as loss};
pub(crate) use wait::{ABOUT as ABOUT_WAIT, experiment as wait};

/// The payload of a full segment.
const SEGMENT: u64 = 1448;

/// What making a chain and its nodes takes, for each node, and taking it down.
const OVERHEAD: Duration = Duration::from_millis(350);

/// What guests at the nodes take to be up, to find each other and to learn who overhears whom: each says so every second.
const GUESTS: Duration = Duration::from_secs(12);

/// One transfer, or several at once, over a chain.
#[derive(Clone, Debug)]
pub struct Test {
    mode: Mode,
    hops: usize,
    /// How long a packet waits for a partner at most.
    wait: Duration,
    plan: Plan,
    /// Whether hosts make several segments at a time, as Linux has done for every interface since 4.17.
    bursts: bool,
    /// Of the unicast frames that a station could overhear.
    overhearing_loss: Probability,
}

/// What the kernel's TCP alone carries over 1, 2, 3 and 4 hops, about, in Mbit/s: for estimates.
const PLAIN_MBPS: [f64; 4] = [24.0, 11.9, 7.9, 5.9];

impl Test {
    /// How long it takes, about.
    fn estimate(&self) -> Duration {
        let time = match self.plan.end {
            End::Time(time) => time,
            End::Packets(packets) => {
                let flows = self.plan.flows as u64 * if self.plan.both_ways { 2 } else { 1 };
                let bits = (packets * flows * SEGMENT * 8) as f64;
                let rate = PLAIN_MBPS[self.hops.clamp(1, PLAIN_MBPS.len()) - 1];
                Duration::from_secs_f64(bits / rate / 1e6)
            }
        };
        let guests = matches!(self.mode, Mode::Batman { .. });
        let settling = if guests { GUESTS } else { Duration::ZERO };
        time + OVERHEAD * u32::try_from(self.hops + 1).unwrap_or(u32::MAX) + settling
    }
}

/// A case that brings its own network.
fn case(key: Fields<Value>, test: Test) -> Case {
    Case {
        key,
        topology: Topology::Direct,
        system: System::Tcp,
        // Of the topology; the transfers' own sockets say CUBIC.
        congestion_control: "reno",
        estimate: test.estimate(),
        workload: Workload::Coding(Box::new(test)),
    }
}

/// What is compared with the case of mode `off`, found by `reference`, in the same repeat.
fn ratios(of: &'static str, names: [&'static str; 2], reference: Reference) -> [Ratio; 2] {
    [(names[0], "goodput_mbps"), (names[1], "packets_per_segment")].map(|(name, metric)| Ratio {
        name,
        metric,
        of: (of, reference),
    })
}

/// One sample.
pub(crate) fn measure(test: &Test, means: &Means, seed: u64) -> Result<Sample, Error> {
    let mut chain = Chain::start(test, means, seed)?;
    let before = chain.counters(means)?;
    let (first, last) = chain.ends();
    let outcome = transfer::run([first, last], &test.plan, test.estimate() * 6 + Duration::from_secs(10))?;
    let counters = chain.counters(means)?.since(&before);
    chain.check()?;
    let mut metrics = of_transfer(test, &outcome);
    metrics.extend(of_layers(test, &outcome, &counters));
    metrics.push(("mac_repetitions", counters.repeated as f64));
    metrics.push(("medium_late_us", chain.lateness()?.mean().as_secs_f64() * 1e6));
    Ok(Sample {
        metrics: metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..Sample::default()
    })
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
    if test.mode == Mode::Controlled {
        metrics.push(("rule_packets_ratio", papers_rule(test.hops, outcome.there, outcome.back)));
    }
    metrics
}

/// Nodes without a layer have sent what their stations were given.
fn of_layers(test: &Test, outcome: &Outcome, counters: &Counters) -> Fields<f64> {
    let segments = outcome.segments().max(1.0);
    let mut metrics = vec![
        ("packets_sent", counters.sent as f64),
        ("packets_per_segment", counters.sent as f64 / segments),
        ("queue_dropped_packets", counters.dropped as f64),
    ];
    if test.mode.codes() {
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        metrics.extend([
            ("coded_packets", counters.coded as f64),
            ("undecoded_packets", counters.undecoded as f64),
        ]);
        if counters.relayed > 0 {
            metrics.push(("coding_ratio", share(2 * counters.coded, counters.relayed)));
        }
        if counters.held > 0 {
            metrics.extend([
                ("held_in_vain_ratio", share(counters.expired, counters.held)),
                ("held_ms", counters.held_time.as_secs_f64() * 1e3 / counters.held as f64),
                ("held_1ms_ratio", share(counters.held_1ms, counters.held)),
                ("held_10ms_ratio", share(counters.held_10ms, counters.held)),
            ]);
        }
    }
    metrics
}

/// What a reader of any of these figures has to know.
const NOTES: [&str; 8] = [
    "the running kernel's TCP (CUBIC) over a chain of namespaces on one emulated 802.11g medium (54 Mbit/s, stations 90 m apart: \
     neighbours read each other, all sense each other); 1448 bytes a segment",
    "mode plain: the kernel alone, without nawa; off: nawa on every node, which codes nothing; *_of_plain, *_of_off: \
     ratios within each repeat; *_packets_*: of packets_per_segment",
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

fn notes(more: &[&str]) -> Vec<String> {
    more.iter().chain(&NOTES).map(|&note| note.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, RunOptions, Size};

    fn all(size: Size) -> Vec<Experiment> {
        let options = RunOptions { size, ..RunOptions::default() };
        [wait, gain, loss].map(|make| make(&options).unwrap()).into()
    }

    #[test]
    fn quick_ends_within_about_two_minutes() {
        for experiment in all(Size::Quick) {
            let estimate = experiment.estimate();
            assert!(estimate <= Duration::from_secs(130), "{}: {estimate:?}", experiment.name);
        }
    }

    #[test]
    fn every_size_has_every_mode_and_what_it_is_compared_with() {
        for size in [Size::Quick, Size::Normal, Size::Paper] {
            for experiment in all(size) {
                for mode in ["plain", "off", "controlled", "any"] {
                    let has = experiment.cases.iter().any(|case| case.key[0].1 == mode);
                    assert!(has, "{} {size:?}: {mode}", experiment.name);
                }
                for case in experiment.cases.iter().filter(|case| case.key[1].1 != 1) {
                    let same = |other: &&Case| other.key[0].1 == "off" && other.key[1] == case.key[1];
                    assert!(experiment.cases.iter().any(|other| same(&other)), "{:?}", case.key);
                }
            }
        }
    }
}
