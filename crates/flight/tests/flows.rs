//! What holds for flows under FS-AT, in virtual time: bounds with room, not figures. Those are the ablation's.

mod sim;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flight::{Algorithm, Mode};
use link::{Aqm, Capacity, Jitter, Trace};
use sim::cases::Bottleneck;
use sim::{Kind, Outcome, Scenario, World, cases};

fn fsat() -> Option<Algorithm> {
    Some(Algorithm::fsat())
}

fn both() -> [Option<Algorithm>; 2] {
    [Some(Algorithm::Paper), fsat()]
}

fn run(scenario: Scenario) -> Outcome {
    World::new(scenario).run()
}

/// Share of the link that is used.
fn used(outcome: &Outcome, mbps: f64) -> f64 {
    outcome.goodput() * 8e-6 / mbps
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let outcome = || run(cases::radio(3.0, 1.0, fsat(), 5));
    assert_eq!(outcome(), outcome());
    assert_ne!(outcome(), run(cases::radio(3.0, 1.0, fsat(), 6)));
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
    for fsat in both() {
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
    for fsat in both() {
        let outcome = run(cases::paper(1.0, 1.0, fsat, 2));
        let flow = outcome.flows[0];
        assert!(used(&outcome, 1.0) > 0.9, "{fsat:?}: {outcome:?}");
        assert!(flow.state.is_some_and(|state| state.losses_radio > 0), "{fsat:?}: {flow:?}");
    }
    let outcome = run(cases::paper(1.0, 5.0, fsat(), 2));
    assert!(used(&outcome, 1.0) > 0.85, "{outcome:?}");
}

#[test]
fn random_loss_on_a_varying_link_is_no_congestion() {
    let lossless = run(cases::radio(10.0, 0.0, fsat(), 3));
    let lossy = run(cases::radio(10.0, 1.0, fsat(), 3));
    assert!(lossy.goodput() > 0.8 * lossless.goodput(), "{lossy:?} against {lossless:?}");
    let cubic = run(cases::radio(10.0, 0.0, None, 3));
    assert!(lossless.queue_p95_ms < 0.2 * cubic.queue_p95_ms, "{lossless:?} against {cubic:?}");
}

#[test]
fn a_link_that_goes_away_leaves_it_its_queue() {
    // A timeout whose packets arrive after all was none: left to CUBIC, which fills the buffer, this waits for seconds.
    let waits = |seed| run(cases::jumps(5.0, fsat(), seed)).queue_p95_ms;
    let p95 = median((1..=5).map(waits).collect());
    assert!(p95 < 1000.0, "{p95} ms");
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
    let ratio = delivered(fsat()) / delivered(Some(Algorithm::Paper));
    assert!(ratio > 0.8, "{ratio}");
}

/// Two minutes at 5 % loss, after a queue's answer would be forgotten.
#[test]
fn what_answered_is_asked_again_before_it_is_forgotten() {
    let mut scenario = cases::alone(fsat(), 60.0, 5.0, 1);
    (scenario.from, scenario.until) = (Duration::from_secs(90), Duration::from_secs(120));
    let outcome = run(scenario);
    assert!(used(&outcome, 60.0) > 0.8, "{outcome:?}");
}

/// The link is fast until a bucket is empty, and policed from then on: a queue has answered, and does not any more.
#[test]
fn it_yields_where_a_queue_becomes_a_policer() {
    let shares = (1..=5).map(|seed| {
        cases::share(seed as usize - 1, &run(cases::boosted(fsat(), [10.0, 3.0], 2.0, 6, 4, seed)))
    });
    let share = median(shares.collect());
    assert!((0.4..2.0).contains(&share), "{share}");
}

#[test]
fn a_shallow_buffer_still_gives_congestion_losses() {
    let outcome = run(cases::shared(&[fsat()], 5, Duration::ZERO, 1));
    let lost = outcome.dropped as f64 / outcome.offered as f64;
    assert!(outcome.flows[0].state.is_some_and(|state| state.losses_congestion > 0), "{outcome:?}");
    assert!(lost < 0.03, "{lost}: {outcome:?}");
}

#[test]
fn rtt_min_follows_a_longer_route_and_a_shorter() {
    // RTT 60 ms, from 30 s on 160 ms, from 60 s on 40 ms, and 1.2 ms to transmit a packet.
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut world = World::new(cases::route_change(fsat(), 1));
    let sink = Rc::clone(&seen);
    world.look = Some(Box::new(move |now, _, sender, _| {
        let state = sender.fsat.as_ref().map(|fsat| fsat.state());
        sink.borrow_mut().extend(state.map(|state| (now, state.rtt_min.unwrap_or_default())));
    }));
    let outcome = world.run();
    let seen = seen.borrow();
    let at = |second| seen.iter().rfind(|(now, _)| now.as_secs() < second).expect("it runs").1.as_millis();
    assert!((60..80).contains(&at(30)), "{}", at(30));
    assert!(at(60) >= 160, "{}", at(60));
    assert!(at(110) < 60, "{}", at(110));
    assert!(used(&outcome, 10.0) > 0.85, "{outcome:?}");
}

#[test]
fn latecomers_share_and_do_not_pile_up() {
    // Medians of five: one run in a buffer of ten BDP says little.
    for (flows, apart) in [(2, 5000), (4, 2000), (8, 600)] {
        let late = |n| {
            let apart = Duration::from_millis(apart + 37 * n);
            run(cases::shared(&vec![fsat(); flows], 500, apart, n))
        };
        let outcomes: Vec<Outcome> = (1..=5).map(late).collect();
        let jain = median(outcomes.iter().map(Outcome::jain).collect());
        let queue = median(outcomes.iter().map(|outcome| outcome.queue_mean).collect());
        assert!(jain > 0.9, "{flows} flows: {jain}");
        assert!(queue < 5.0 * 50.0, "{flows} flows: {queue}");
    }
}

#[test]
fn cubic_beside_it_does_not_starve_it() {
    for queue in [50, 250] {
        let outcome = run(cases::shared(&[fsat(), None], queue, Duration::from_secs(1), 1));
        let share = outcome.flows[0].goodput / outcome.flows[1].goodput;
        assert!((0.2..5.0).contains(&share), "{share} with {queue} packets: {outcome:?}");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Share of the one over CUBIC's beside it, the median of five runs.
fn share_in_the_field(each: usize, kind: Bottleneck) -> f64 {
    let run = |n: usize| {
        let seed = n as u64 + 1;
        let systems = cases::in_turn(fsat(), seed).repeat(each);
        cases::share(n, &run(cases::field(&systems, 10.0, kind, 60, seed)))
    };
    median((0..5).map(run).collect())
}

#[test]
fn it_yields_where_no_queue_shows() {
    let policer = Bottleneck::Policer(50);
    for kind in [policer, Bottleneck::Packets(1), Bottleneck::Packets(5), Bottleneck::Packets(10)] {
        for each in [1, 4] {
            let share = share_in_the_field(each, kind);
            assert!((0.4..2.5).contains(&share), "{each} beside {each}, {kind:?}: {share}");
        }
    }
}

#[test]
fn it_yields_where_a_queue_is_managed() {
    for kind in [Aqm::CODEL, Aqm::PIE].map(Bottleneck::Managed) {
        for each in [1, 4] {
            let share = share_in_the_field(each, kind);
            assert!((0.4..2.5).contains(&share), "{each} beside {each}, {kind:?}: {share}");
        }
    }
}

#[test]
fn eight_at_a_policer_lose_little_more_than_cubic() {
    let lost = |system| {
        let outcome = run(cases::field(&[system; 8], 10.0, Bottleneck::Policer(50), 60, 1));
        outcome.dropped as f64 / outcome.offered as f64
    };
    let (own, cubic) = (lost(fsat()), lost(None));
    assert!(own < 2.0 * cubic, "{own} against {cubic}");
}

#[test]
fn recovery_does_not_hold_down_what_the_radio_loses() {
    // A round trip carries 500 packets, 25 of which are lost.
    let outcome = run(cases::alone(fsat(), 100.0, 5.0, 1));
    assert!(used(&outcome, 100.0) > 0.9, "{outcome:?}");
}

#[test]
fn acks_in_bunches_leave_the_link_full() {
    for every in [4, 16, 50] {
        let outcome = run(cases::bunched_acks(fsat(), 10.0, every, 1));
        assert!(used(&outcome, 10.0) > 0.85, "every {every} ms: {outcome:?}");
    }
}

#[test]
fn what_hosts_delay_is_no_queue() {
    // Between neighbours a host that is busy holds packets for several of their round trips.
    let mut scenario = cases::lan(&[fsat()], 256, 1);
    scenario.link.jitter = Jitter::HalfNormal(Duration::from_micros(500));
    let outcome = run(scenario);
    assert!(used(&outcome, cases::LAN_MBPS) > 0.9, "{outcome:?}");
}

#[test]
fn what_a_radio_delays_now_and_then_is_no_queue() {
    // Longer than half of the round trip, and what waited comes in a bunch.
    for [rtt, sigma] in [[5, 3], [20, 10], [40, 20]] {
        let outcome = run(cases::jittering(fsat(), 30.0, [rtt, sigma], 1));
        assert!(used(&outcome, 30.0) > 0.9, "RTT {rtt} ms, {sigma} ms: {outcome:?}");
    }
}

#[test]
fn a_step_of_delay_is_followed_within_seconds() {
    for rtts in [[20, 100], [100, 180], [100, 130]] {
        for back in [false, true] {
            let outcome = run(cases::step(fsat(), 10.0, rtts, back, 1));
            assert!(used(&outcome, 10.0) > 0.9, "{rtts:?} and back: {back}: {outcome:?}");
        }
    }
}

#[test]
fn others_that_leave_give_it_its_queue_back() {
    let last = |left| {
        let after = [40, 80].map(Duration::from_secs);
        run(cases::left(fsat(), 1, 150, Duration::from_secs(left), after, 1))
    };
    let outcome = last(100);
    assert!(outcome.flows.iter().any(|flow| flow.state.is_some_and(|state| state.mode == Mode::Own)));
    assert!(outcome.queue_mean < 2.0 * 15.0, "{outcome:?}");
}

#[test]
fn an_application_that_sends_little_is_not_limited() {
    for fsat in both() {
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
        for fsat in both() {
            let mut scenario = cases::shared(&[fsat], 1000, Duration::ZERO, 1);
            scenario.flows[0].profile.report = Some(Duration::from_millis(report));
            let outcome = run(scenario);
            assert!(used(&outcome, 10.0) > 0.85, "{fsat:?} every {report} ms: {outcome:?}");
            assert!(outcome.queue_mean < 3.0 * 50.0, "{fsat:?} every {report} ms: {outcome:?}");
        }
    }
}

#[test]
fn the_base_is_exchangeable() {
    for base in [Kind::Reno, Kind::Cubic] {
        let mut scenario = cases::shared(&[fsat()], 1000, Duration::ZERO, 1);
        scenario.flows[0].profile.base = base;
        let outcome = run(scenario);
        assert!(used(&outcome, 10.0) > 0.9, "{base:?}: {outcome:?}");
        assert!(outcome.queue_mean < 2.0 * 50.0, "{base:?}: {outcome:?}");
    }
}
