//! What coding saves over chains of the 802.11 medium at 54 Mbit/s, with a model of TCP in virtual time.
//!
//! The same seed gives the same figures, so these are no measurements of this machine.

mod common;
mod sim;

use coding::Mode;
use common::ms;
use sim::{Outcome, Scenario, run};

/// How much more goodput than without coding, and how many fewer packets for a segment, in percent.
struct Gain {
    goodput: f64,
    saved: f64,
    outcome: Outcome,
}

fn gain(scenario: &Scenario) -> Gain {
    let plain = run(&Scenario { mode: Mode::Off, ..scenario.clone() });
    let outcome = run(scenario);
    let goodput = (outcome.goodput_mbps / plain.goodput_mbps - 1.0) * 100.0;
    let saved = (1.0 - outcome.sent_per_segment / plain.sent_per_segment) * 100.0;
    println!(
        "{scenario:?}: goodput {goodput:+.1} %, {saved:.1} % fewer packets, RTT {:.1} ms",
        outcome.rtt_ms
    );
    Gain { goodput, saved, outcome }
}

/// The most that coding data with ACKs saves: (h - 1) / (h (d + 1)) for h hops and d packets of data for an ACK.
fn bound(hops: usize, data_per_ack: f64) -> f64 {
    let hops = hops as f64;
    (hops - 1.0) / (hops * (data_per_ack + 1.0)) * 100.0
}

#[test]
fn the_papers_rule_saves_what_the_paper_says_however_long_the_wait() {
    for (hops, saved) in [(2, 16.0), (3, 21.0)] {
        let scenario = Scenario { hops, mode: Mode::Controlled, window: 32, ..Scenario::default() };
        for wait in [20, 100] {
            let gain = gain(&Scenario { wait: ms(wait), ..scenario.clone() });
            assert!(gain.saved >= saved && gain.goodput > 5.0, "{hops} hops, {wait} ms");
        }
    }
}

#[test]
fn delayed_suffers_from_long_waits_as_the_paper_says() {
    for hops in [2, 3] {
        let at = |mode| run(&Scenario { hops, mode, wait: ms(100), ..Scenario::default() });
        let [delayed, controlled] = [at(Mode::Delayed), at(Mode::Controlled)];
        assert!(
            delayed.goodput_mbps < controlled.goodput_mbps && delayed.rtt_ms > controlled.rtt_ms,
            "{hops} hops"
        );
    }
}

#[test]
fn any_saves_nearly_what_can_be_saved() {
    for (hops, goodput_bound) in [(2, 10.1), (3, 13.9)] {
        let gain = gain(&Scenario { hops, mode: Mode::Any, ..Scenario::default() });
        let share = gain.saved / bound(hops, gain.outcome.data_per_ack);
        assert!(share >= 0.94 && gain.goodput >= 0.8 * goodput_bound, "{hops} hops: {share:.3} of the bound");
    }
}

#[test]
fn any_gains_where_the_paper_does_not() {
    for (flows, both_ways) in [(1, true), (2, true), (2, false)] {
        for (hops, least) in [(2, 25.0), (3, 30.0)] {
            let scenario = Scenario { hops, flows, both_ways, ..Scenario::default() };
            let any = gain(&Scenario { mode: Mode::Any, ..scenario.clone() });
            let controlled = gain(&Scenario { mode: Mode::Controlled, ..scenario });
            assert!(any.goodput > controlled.goodput, "{hops} hops, {flows} flows, both ways {both_ways}");
            assert!(!both_ways || any.goodput >= least, "{hops} hops, {flows} flows: {:.1} %", any.goodput);
        }
    }
}

#[test]
fn any_starves_no_small_window() {
    for hops in [2, 3, 4] {
        for window in [4, 8] {
            let gain = gain(&Scenario { hops, window, mode: Mode::Any, ..Scenario::default() });
            assert!(gain.goodput >= -1.0, "{hops} hops, window {window}: {:.1} %", gain.goodput);
        }
    }
}
