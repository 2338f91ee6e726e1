//! One sample: a transfer over a chain, and what its nodes counted.

use std::time::Duration;

use super::bound::{Bound, papers_rule};
use super::chain::{Chain, REPEATED};
use super::test::{Mode, Test};
use super::transfer::{self, Outcome};
use crate::counters::Counters;
use crate::error::Result;
use crate::experiment::Fields;
use crate::system::Means;
use crate::workload::{Measure, Sample};

impl Measure for Test {
    const PROGRAMS: &'static [&'static str] = &["ethtool", "ping"];

    fn measure(&self, means: &Means, seed: u64) -> Result<Sample> {
        let mut chain = Chain::start(self, means, seed)?;
        let before = chain.counters(means)?;
        let limit = self.estimate() * 6 + Duration::from_secs(10);
        let outcome = transfer::run(chain.ends(), &self.plan, limit)?;
        let counters = chain.counters(means)?.since(&before);
        chain.check()?;
        let mut metrics = of_transfer(self, &outcome);
        metrics.extend(of_layers(self, &outcome, &counters));
        metrics.push(("mac_repetitions", counters.get(REPEATED)));
        metrics.push(("medium_late_us", chain.lateness()?.as_secs_f64() * 1e6));
        Ok(metrics.into())
    }
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
        let held = count("held_packets");
        // Those of nothing are no numbers, and left out.
        metrics.extend([
            ("coding_ratio", 2.0 * count("sent_coded_frames") / count("relayed_packets")),
            ("held_in_vain_ratio", count("expired_packets") / held),
            ("held_ms", count("held_time_ms") / held),
            ("held_1ms_ratio", count("held_1ms_packets") / held),
            ("held_10ms_ratio", count("held_10ms_packets") / held),
        ]);
    }
    metrics
}
