//! The rules of `fsat`, one by one, with numbers worked by hand. Segments of 1000 bytes, rtt_min 100 ms.

use crate::ffi::{Constants, NO_LIMIT, RawAck, RawFsat};

const ASK: u16 = 0;
const OWN: u16 = 1;
const OTHERS: u16 = 2;

/// The queue is its own: 10 segments a period, 2 of which wait, and once 50 ms of queue were seen.
fn own() -> RawFsat {
    RawFsat {
        target: 12_000,
        space: 12_000,
        rtt_min_us: 100_000,
        mode: OWN,
        rcv_bytes: 10_000,
        s: 10_000,
        period_rtt_us: NO_LIMIT,
        queue_rtt_us: 120_000,
        high_us: 150_000,
        low_us: NO_LIMIT,
        ack_us: 90_000,
        ..RawFsat::default()
    }
}

fn ack(now_us: u32, rtt_us: u32, delivered: u32) -> RawAck {
    RawAck {
        now_us,
        rtt_us,
        delivered,
        flight: 12_000,
        cwnd: 12_000,
        cwnd_max: 200_000,
        mss: 1000,
        ..RawAck::default()
    }
}

fn after(mut state: RawFsat, ack: &RawAck) -> RawFsat {
    state.on_ack(&Constants::default(), ack);
    state
}

/// The mode that a loss leads to where the least RTT of the period is this, and whether the base has to reduce.
fn lost(state: RawFsat, period_rtt_us: u32) -> (u16, bool) {
    let mut state = RawFsat { period_rtt_us, ..state };
    let radio = state.losses_radio;
    let ssthresh = state.on_loss(&Constants::default(), 12_000, 8000);
    let spared = state.losses_radio > radio;
    assert!(!spared || ssthresh == 12_000, "(10): {ssthresh}");
    (state.mode, !spared)
}

#[test]
fn a_steady_link_is_given_the_contract() {
    assert_eq!(after(own(), &ack(100_000, 120_000, 10_000)).target, 12_000);
}

#[test]
fn a_link_that_varies_is_given_its_deviation() {
    // dev = 3/4 · 2000 = 1500: 4 · 1500 on top.
    let state = RawFsat { dev: 2000, ..own() };
    assert_eq!(after(state, &ack(100_000, 120_000, 10_000)).target, 16_000);
}

#[test]
fn a_queue_that_is_nearly_forgotten_is_asked_with_half_as_much_more() {
    let target = |high_us| {
        let state = RawFsat { queue_rtt_us: 100_000, high_us, ..own() };
        after(state, &ack(100_000, 100_000, 10_000)).target
    };
    assert_eq!((target(117_000), target(116_000)), (12_000, 17_000));
}

#[test]
fn an_application_that_limits_does_not_lower_target() {
    let limited = RawAck { app_limited: 1, ..ack(100_000, 120_000, 1000) };
    assert_eq!(after(own(), &limited).target, 12_000);
    assert!(after(own(), &ack(100_000, 120_000, 1000)).target < 12_000);
}

#[test]
fn asking_grows_while_it_limits() {
    // A receiver that reads slowly: less than half of what may be in flight is.
    let space = |flight_n, flight| {
        let asks = RawFsat { mode: ASK, flight_n, ..own() };
        after(asks, &RawAck { flight, ..ack(50_000, 100_000, 1000) }).space
    };
    assert_eq!((space(4000, 5000), space(4000, 4000)), (13_000, 12_000));
    assert_eq!(space(12_000, 0), 13_000, "a bunch of ACKs");
}

#[test]
fn asking_ends_when_a_queue_answers() {
    let asks = RawFsat { mode: ASK, queue_rtt_us: 100_000, ..own() };
    assert_eq!(after(asks, &ack(100_000, 112_000, 10_000)).mode, ASK);
    assert_eq!(after(asks, &ack(100_000, 113_000, 10_000)).mode, OWN);
}

#[test]
fn asking_ends_when_much_is_lost() {
    let asks = RawFsat { mode: ASK, ..own() };
    let heavy = |lost| {
        let mut state = asks;
        let cut = state.on_ack(&Constants::default(), &RawAck { lost, ..ack(100_000, 100_000, 10_000) });
        (state.mode, cut)
    };
    assert_eq!(heavy(2000), (ASK, false), "no more than an eighth and a segment");
    assert_eq!(heavy(3000), (OTHERS, true));
}

#[test]
fn a_timeout_ends_the_period_for_what_it_lost() {
    let lost = |lost| {
        let mut state = RawFsat { lost, period_rcv_bytes: 10_000, ..own() };
        let cut = state.on_timeout(&Constants::default(), 1000, 1000);
        assert_eq!((state.lost, state.space), (0, 1000));
        (state.mode, cut)
    };
    assert_eq!((lost(2000), lost(3000)), ((OWN, false), (OTHERS, true)));
}

#[test]
fn a_loss_is_the_radios_where_the_queue_answers_and_is_empty() {
    for mode in [OWN, OTHERS] {
        let state = RawFsat { mode, ..own() };
        assert_eq!(lost(state, 108_000), (OWN, false), "what the radio loses is not others'");
        assert_eq!(lost(state, 109_000), (OTHERS, true));
        let silent = RawFsat { high_us: 112_000, ..state };
        assert_eq!(lost(silent, 100_000), (OTHERS, true), "no queue was seen: a policer");
    }
}

#[test]
fn a_period_without_an_rtt_is_judged_by_the_last() {
    assert_eq!(lost(RawFsat { queue_rtt_us: 108_000, ..own() }, NO_LIMIT), (OWN, false));
    assert_eq!(lost(RawFsat { queue_rtt_us: 109_000, ..own() }, NO_LIMIT), (OTHERS, true));
}

#[test]
fn congestion_takes_an_own_queue_away_and_no_more() {
    let ssthresh = |mode| RawFsat { mode, ..own() }.on_loss(&Constants::default(), 12_000, 8000);
    assert_eq!(ssthresh(OWN), 10_000, "(11)");
    assert_eq!(ssthresh(OTHERS), 0, "the base's own");
}

#[test]
fn a_mark_is_congestion_whatever_the_queue() {
    let mut state = own();
    state.on_mark();
    assert_eq!((state.mode, state.losses_congestion), (OTHERS, 1));
}

/// The window in the slowdown that begins at 8 s, and what comes of RTTs of `rtt_us` in it.
fn slowed(state: RawFsat, rtt_us: u32) -> RawFsat {
    let state = RawFsat { near_us: 7_999_000, ..state };
    let begun = after(state, &ack(8_000_000, rtt_us, 1000));
    let end = 8_000_000 + rtt_us + 100_000;
    after(RawFsat { period_start_us: end, ..begun }, &ack(end, rtt_us, 0))
}

#[test]
fn rtt_min_that_was_not_seen_for_long_is_looked_for() {
    let begun = after(RawFsat { near_us: 7_999_000, ..own() }, &ack(8_000_000, 120_000, 1000));
    assert_eq!(begun.window(&Constants::default(), &ack(0, 0, 0)), 5000, "half of what arrives");
    assert_eq!(slowed(own(), 120_000).rtt_min_us, 120_000, "the route is longer");
    assert_eq!(slowed(own(), 120_000).s, 12_000, "as much more arrives within it");
}

#[test]
fn an_rtt_that_stays_far_is_looked_into_sooner() {
    let state = RawFsat { seen_us: 4_000_000, near_us: 1_000_000, ..own() };
    let slows = |now_us| after(after(state, &ack(now_us, 130_000, 0)), &ack(now_us, 130_000, 0)).low_us;
    assert_eq!((slows(4_199_000), slows(4_200_000)), (NO_LIMIT, 130_000));
}

#[test]
fn a_queue_that_goes_with_ours_is_ours() {
    let others = RawFsat { mode: OTHERS, queue_rtt_us: 200_000, ..own() };
    assert_eq!(slowed(others, 112_000).mode, OWN);
    assert_eq!(slowed(others, 113_000).mode, OTHERS);
    let silent = RawFsat { high_us: 112_000, queue_rtt_us: 100_000, ..others };
    assert_eq!(slowed(silent, 100_000).mode, OTHERS, "there was none that could go");
}

#[test]
fn rtt_min_is_believed_as_long_as_nothing_waits() {
    let seen = |rtt_us| after(own(), &ack(5_000_000, rtt_us, 0)).seen_us;
    assert_eq!((seen(108_000), seen(109_000)), (5_000_000, 0));
}
