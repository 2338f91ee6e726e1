//! What holds for flows under FS-AT, in virtual time: bounds with room, not figures. Those are the ablation's.

mod sim;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flight::Additions;
use link::{Capacity, Trace};
use sim::{Kind, Outcome, Scenario, World, cases};

const BOTH: [Option<Additions>; 2] = [Some(Additions::PAPER), Some(Additions::FSAT)];
const FSAT: Option<Additions> = Some(Additions::FSAT);

fn run(scenario: Scenario) -> Outcome {
    World::new(scenario).run()
}

/// Share of the link that is used.
fn used(outcome: &Outcome, mbps: f64) -> f64 {
    outcome.goodput() * 8e-6 / mbps
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let outcome = || run(cases::radio(3.0, 1.0, FSAT, 5));
    assert_eq!(outcome(), outcome());
    assert_ne!(outcome(), run(cases::radio(3.0, 1.0, FSAT, 6)));
}

#[test]
fn the_base_alone_fills_the_deep_buffer() {
    // What the other tests compare with: without it they would say nothing.
    let reno = run(cases::paper(1.0, 0.0, None, 1));
    assert!(reno.queue_mean > 40.0, "{reno:?}");
    assert!(used(&reno, 1.0) > 0.97, "{reno:?}");
}

#[test]
fn a_deep_buffer_stays_half_empty_and_the_link_full() {
    for fsat in BOTH {
        for mbps in [0.384, 1.0, 2.0] {
            let (reno, outcome) =
                (run(cases::paper(mbps, 0.0, None, 1)), run(cases::paper(mbps, 0.0, fsat, 1)));
            assert!(used(&outcome, mbps) > 0.95, "{fsat:?} at {mbps}: {outcome:?}");
            assert!(outcome.queue_mean < 0.7 * reno.queue_mean, "{fsat:?} at {mbps}: {outcome:?}");
        }
    }
}

#[test]
fn random_loss_does_not_halve_the_goodput() {
    for fsat in BOTH {
        let outcome = run(cases::paper(1.0, 1.0, fsat, 2));
        let flow = outcome.flows[0];
        assert!(used(&outcome, 1.0) > 0.9, "{fsat:?}: {outcome:?}");
        assert!(flow.state.is_some_and(|state| state.losses_radio > 0), "{fsat:?}: {flow:?}");
    }
    let outcome = run(cases::paper(1.0, 5.0, FSAT, 2));
    assert!(used(&outcome, 1.0) > 0.85, "{outcome:?}");
}

#[test]
fn random_loss_on_a_varying_link_is_no_congestion() {
    let lossless = run(cases::radio(10.0, 0.0, FSAT, 3));
    let lossy = run(cases::radio(10.0, 1.0, FSAT, 3));
    assert!(lossy.goodput() > 0.8 * lossless.goodput(), "{lossy:?} against {lossless:?}");
    let cubic = run(cases::radio(10.0, 0.0, None, 3));
    assert!(lossless.queue_p95_ms < 0.2 * cubic.queue_p95_ms, "{lossless:?} against {cubic:?}");
}

#[test]
fn pacing_does_not_hinder_slow_start_where_acks_come_in_bunches() {
    // 20 frames every 12 ms, 20 Mbit/s: what was delivered when the link could first be full, after 0.5 s.
    let bunches: String = (1..=5000).map(|n| format!("{}\n", n / 20 * 12 + 12)).collect();
    let delivered = |fsat| {
        let mut scenario = cases::radio(1.0, 0.0, fsat, 1);
        let trace = Trace::from_mahimahi(&bunches).expect("a trace");
        scenario.link.capacity = Capacity::Trace(Arc::new(trace));
        (scenario.from, scenario.until) = (Duration::ZERO, Duration::from_millis(500));
        run(scenario).goodput()
    };
    let ratio = delivered(FSAT) / delivered(Some(Additions::PAPER));
    assert!(ratio > 0.8, "{ratio}");
}

#[test]
fn a_shallow_buffer_still_gives_congestion_losses() {
    let outcome = run(cases::shared(&[FSAT], 5, Duration::ZERO, 1));
    let lost = outcome.dropped as f64 / outcome.offered as f64;
    assert!(outcome.flows[0].state.is_some_and(|state| state.losses_congestion > 0), "{outcome:?}");
    assert!(lost < 0.03, "{lost}: {outcome:?}");
}

#[test]
fn rtt_min_follows_a_longer_route_and_a_shorter() {
    // RTT 60 ms, from 30 s on 160 ms, from 60 s on 40 ms, and 1.2 ms to transmit a packet.
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut world = World::new(cases::route_change(FSAT, 1));
    let sink = Rc::clone(&seen);
    world.look = Some(Box::new(move |now, _, sender, _| {
        let state = sender.fsat.as_ref().map(|fsat| fsat.state());
        sink.borrow_mut().extend(state.map(|state| (now, state.rtt_min.unwrap_or_default(), state.drains)));
    }));
    let outcome = world.run();
    let seen = seen.borrow();
    let at = |second| seen.iter().rfind(|(now, ..)| now.as_secs() < second).expect("it runs");
    let (_, before, drains_before) = *at(30);
    let (_, longer, drains_after) = *at(60);
    let (_, shorter, _) = *at(110);
    assert!(drains_after > drains_before, "nobody noticed: {drains_before} drains");
    assert!((60..80).contains(&before.as_millis()), "{before:?}");
    assert!(longer.as_millis() >= 160, "{longer:?}");
    assert!(shorter.as_millis() < 60, "{shorter:?}");
    assert!(used(&outcome, 10.0) > 0.85, "{outcome:?}");
}

#[test]
fn latecomers_share_and_do_not_pile_up() {
    for (flows, apart) in [(2, 5000), (4, 2000), (8, 600)] {
        let apart = Duration::from_millis(apart + 37);
        let outcome = run(cases::shared(&vec![FSAT; flows], 1000, apart, 1));
        assert!(outcome.jain() > 0.9, "{flows} flows: {outcome:?}");
        assert!(outcome.queue_mean < 5.0 * 50.0, "{flows} flows: {outcome:?}");
    }
}

#[test]
fn cubic_beside_it_does_not_starve_it() {
    for queue in [50, 250] {
        let outcome = run(cases::shared(&[FSAT, None], queue, Duration::from_secs(1), 1));
        let share = outcome.flows[0].goodput / outcome.flows[1].goodput;
        assert!((0.2..5.0).contains(&share), "{share} with {queue} packets: {outcome:?}");
    }
}

#[test]
fn a_queue_that_cubic_has_left_goes() {
    // What CUBIC held, nearly ten BDP, is in rtt_min until a drain finds that it is gone.
    let queue = |after: [u64; 2], seed| {
        let after = after.map(Duration::from_secs);
        run(cases::left(FSAT, 1, 150, Duration::from_secs(150), after, seed)).queue_mean / 15.0
    };
    let mean = |after| (1..=8).map(|seed| queue(after, seed)).sum::<f64>() / 8.0;
    let (first, later) = (mean([0, 10]), mean([40, 80]));
    assert!(first > 4.0 && later < 2.0, "{first} and {later} BDP");
}

#[test]
fn an_application_that_sends_little_is_not_limited() {
    for fsat in BOTH {
        let mut scenario = cases::shared(&[fsat], 1000, Duration::ZERO, 1);
        let packets_per_second = 200.0;
        scenario.flows[0].profile.app = Some(packets_per_second);
        let outcome = run(scenario);
        let offered = packets_per_second * sim::FRAME as f64;
        assert!((outcome.goodput() - offered).abs() < 0.01 * offered, "{fsat:?}: {outcome:?}");
        assert!(outcome.queue_mean < 1.0, "{fsat:?}: {outcome:?}");
    }
}

#[test]
fn reports_every_while_drive_it_as_acks_do() {
    // As the tunnel's feedback: one report for all that came within 10 to 25 ms.
    for report in [10, 25] {
        for fsat in BOTH {
            let mut scenario = cases::shared(&[fsat], 1000, Duration::ZERO, 1);
            scenario.flows[0].profile.report = Some(Duration::from_millis(report));
            let outcome = run(scenario);
            assert!(used(&outcome, 10.0) > 0.9, "{fsat:?} every {report} ms: {outcome:?}");
            assert!(outcome.queue_mean < 3.0 * 50.0, "{fsat:?} every {report} ms: {outcome:?}");
        }
    }
}

#[test]
fn the_base_is_exchangeable() {
    for base in [Kind::Reno, Kind::Cubic] {
        let mut scenario = cases::shared(&[FSAT], 1000, Duration::ZERO, 1);
        scenario.flows[0].profile.base = base;
        let outcome = run(scenario);
        assert!(used(&outcome, 10.0) > 0.9, "{base:?}: {outcome:?}");
        assert!(outcome.queue_mean < 2.0 * 50.0, "{base:?}: {outcome:?}");
    }
}
