//! What `fsat` adds, one by one, with numbers worked by hand.

use crate::core::Additions;
use crate::ffi::{NO_LIMIT, RawAck, RawConfig, RawFsat};

fn config(additions: Additions) -> RawConfig {
    RawConfig { additions: additions.bits() }
}

fn ack(now_us: u32, rtt_us: u32, flight: u32) -> RawAck {
    RawAck {
        now_us,
        rtt_us,
        delivered: 2000,
        flight,
        cwnd: 100_000,
        cwnd_max: 200_000,
        mss: 1000,
        ..RawAck::default()
    }
}

/// A queue as long as the path has stood for long: 10 MB/s, rtt_min 100 ms, RTT 200 ms.
fn standing(now_us: u32) -> RawFsat {
    RawFsat {
        target: 40_000,
        space: 40_000,
        rtt_min_us: 100_000,
        rcv_bytes: 20_000,
        flight_n: 40_000,
        s: 20_000,
        period_start_us: now_us,
        period_flight: 40_000,
        rtt_low_us: NO_LIMIT,
        period_rtt_us: NO_LIMIT,
        rtt_usual_us: 200_000,
        dry_us: now_us,
        drained_us: now_us,
        ..RawFsat::default()
    }
}

#[test]
fn best_a_loss_in_a_dip_falls_back_to_the_best_bdp() {
    let mut dip = RawFsat { flight_n: 50_000, rcv_bytes: 10_000, best: [0, 30_000], ..standing(0) };
    assert_eq!(dip.on_loss(&config(Additions::BEST), 90_000, NO_LIMIT, 1000), 30_000);
    assert_eq!(dip.on_loss(&config(Additions::PAPER), 90_000, NO_LIMIT, 1000), 25_000);
}

#[test]
fn best_a_loss_of_no_more_than_the_best_bdp_is_the_radios() {
    let mut dip = RawFsat { flight_n: 30_000, rcv_bytes: 10_000, best: [30_000, 0], ..standing(0) };
    assert_eq!(dip.on_loss(&config(Additions::BEST), 90_000, NO_LIMIT, 1000), NO_LIMIT);
    assert_eq!(dip.losses_radio, 1);
    dip.flight_n += 1;
    assert_eq!(dip.on_loss(&config(Additions::BEST), 90_000, NO_LIMIT, 1000), 30_000);
}

#[test]
fn best_is_forgotten_after_two_spells() {
    let mut state = RawFsat { period_rcv_bytes: 50_000, ..standing(0) };
    let best = |state: &RawFsat| state.best.into_iter().max();
    state.on_ack(&config(Additions::BEST), &ack(100_000, 200_000, 40_000));
    assert_eq!(best(&state), Some(52_000));
    for n in 2..=159 {
        state.on_ack(&config(Additions::BEST), &ack(100_000 * n, 200_000, 40_000));
    }
    assert_eq!(best(&state), Some(52_000));
    for n in 160..=240 {
        state.on_ack(&config(Additions::BEST), &ack(100_000 * n, 200_000, 40_000));
    }
    assert_eq!(best(&state), Some(2000));
}

/// ACKs every 10 ms from `from` on, until the drain begins or ends; when it did.
fn until(state: &mut RawFsat, from: u32, rtt_us: u32, flight: u32, draining: u32) -> u32 {
    let times = (0..10_000).map(|n| from + 10_000 * n);
    for now_us in times {
        state.on_ack(&config(Additions::DRAIN), &ack(now_us, rtt_us, flight));
        if state.draining == draining {
            return now_us - from;
        }
    }
    panic!("never: {state:?}");
}

#[test]
fn drain_stops_sending_until_half_of_the_bdp_is_in_flight() {
    let mut state = standing(0);
    state.rtt_low_us = 190_000; // so that 200 ms are no news
    let due = until(&mut state, 0, 200_000, 40_000, 1);
    assert_eq!(due, 2_000_000);
    assert_eq!(state.space, state.rcv_bytes / 2);
}

#[test]
fn drain_ends_when_rtt_falls_no_more() {
    let mut state = RawFsat { draining: 1, drain_rcv_bytes: 20_000, rtt_found_us: 100_000, ..standing(0) };
    let early = ack(300_000, 100_000, 20_000);
    state.on_ack(&config(Additions::DRAIN), &early);
    assert_eq!(state.draining, 1, "more than half of the BDP is in flight");
    let took = until(&mut state, 310_000, 100_000, 9000, 0);
    assert_eq!(took, 40_000, "half an RTT after it last had to go on");
    assert_eq!(state.rtt_known, 1);
    assert!(state.space >= 20_000, "and sending goes on where it was");
}

#[test]
fn drain_raises_rtt_min_at_the_second_time_and_lowers_it_at_once() {
    let found = |state: &RawFsat, rtt_us| {
        let mut state = RawFsat { draining: 1, drain_rcv_bytes: 20_000, ..*state };
        until(&mut state, 100_000, rtt_us, 9000, 0);
        (state.rtt_min_us, state.rtt_known, state)
    };
    let start = RawFsat { rtt_found_us: 100_000, ..standing(0) };
    let (rtt_min, known, once) = found(&start, 250_000);
    assert_eq!((rtt_min, known), (100_000, 0), "so the next is soon");
    let (rtt_min, known, twice) = found(&once, 240_000);
    assert_eq!((rtt_min, known), (240_000, 1));
    assert_eq!(found(&twice, 80_000).0, 80_000);
}

#[test]
fn drain_is_not_due_where_nothing_queues() {
    let mut state = standing(0);
    for n in 0..1000 {
        (state.target, state.flight_n, state.period_flight) = (NO_LIMIT, 0, 0);
        state.on_ack(&config(Additions::DRAIN), &ack(10_000 * n, 200_000, 0));
    }
    assert_eq!(state.drains, 0);
}

#[test]
fn drain_is_due_when_rtt_stays_longer_than_our_queue_makes_it() {
    let first_drain = |rtt_us| {
        let mut state = RawFsat { rtt_found_us: 100_000, rtt_known: 1, rtt_low_us: 1, ..standing(0) };
        (state.rtt_usual_us, state.dev) = (rtt_us, 0);
        until(&mut state, 0, rtt_us, 40_000, 1)
    };
    assert!(first_drain(240_000) < 2_000_000);
    assert_eq!(first_drain(210_000), 45_000_000);
}

#[test]
fn fair_is_two_segments_more_than_target() {
    let space = |additions| {
        let mut state = standing(0);
        state.on_ack(&config(additions), &ack(10_000, 200_000, 40_000));
        state.space
    };
    assert_eq!((space(Additions::PAPER), space(Additions::FAIR)), (40_000, 42_000));
}

#[test]
fn pace_is_half_as_much_again_as_the_window_needs() {
    let state = RawFsat { srtt_us: 200_000, ..standing(0) };
    let pace = config(Additions::PACE);
    assert_eq!(state.pacing_rate(&pace, &ack(0, 0, 0)), 300_000);
    let start = RawFsat { target: NO_LIMIT, ..state };
    assert_eq!(start.pacing_rate(&pace, &ack(0, 0, 0)), 400_000);
    assert_eq!(RawFsat { srtt_us: 0, ..state }.pacing_rate(&pace, &ack(0, 0, 0)), 0);
}
