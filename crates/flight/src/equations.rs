//! The paper's equations, one by one, with numbers worked by hand. Segments of 1000 bytes, rtt_min 100 ms.

use crate::ffi::{NO_LIMIT, RawAck, RawFsat};

/// An ACK 100 ms after the period's begin, which ends it.
fn last_ack(delivered: u32) -> RawAck {
    RawAck {
        now_us: 100_000,
        rtt_us: 150_000,
        delivered,
        flight: 5_000,
        cwnd: 100_000,
        cwnd_max: 200_000,
        mss: 1000,
        ..RawAck::default()
    }
}

/// In a period that began at 0 with `flight` outstanding, `rcv_bytes` of which have arrived.
fn in_period(flight: u32, rcv_bytes: u32) -> RawFsat {
    RawFsat {
        target: NO_LIMIT,
        space: 200_000,
        rtt_min_us: 100_000,
        period_flight: flight,
        period_rcv_bytes: rcv_bytes,
        s: 20_000,
        dev: 1000,
        ..RawFsat::default()
    }
}

fn after(mut state: RawFsat, ack: &RawAck) -> RawFsat {
    state.paper_on_ack(ack);
    state
}

#[test]
fn eq4_the_window_is_the_lesser_of_cwnd_and_space() {
    let state = RawFsat { space: 30_000, ..in_period(0, 0) };
    let window = |cwnd| state.paper_window(cwnd, 1000);
    assert_eq!((window(20_000), window(40_000)), (20_000, 30_000));
    assert_eq!(window(10), 1000, "never less than a segment");
}

#[test]
fn eq5_nothing_queues_so_no_limit() {
    let limited = RawFsat { target: 30_000, ..in_period(20_000, 18_000) };
    assert_eq!(after(limited, &last_ack(2000)).target, NO_LIMIT);
    assert_ne!(after(limited, &last_ack(1999)).target, NO_LIMIT);
}

#[test]
fn eq6_the_first_limit_is_the_bdp_and_its_headroom() {
    // dev = 3/4 · 1000 = 750, s = 20,000: tw_rcv_bytes = 20,000 + 4 · 750
    assert_eq!(after(in_period(30_000, 18_000), &last_ack(2000)).target, 23_000);
}

#[test]
fn eq7_the_next_is_halfway_to_it() {
    let state = RawFsat { target: 50_000, ..in_period(30_000, 18_000) };
    assert_eq!(after(state, &last_ack(2000)).target, (23_000 + 50_000) / 2);
}

#[test]
fn eq8_growth_is_followed_within_the_period() {
    let state = RawFsat { target: 10_000, ..in_period(30_000, 4000) };
    let early = RawAck { now_us: 50_000, ..last_ack(2000) };
    assert_eq!(after(state, &early).target, 12_000);
    assert_eq!(after(RawFsat { target: 13_000, ..state }, &early).target, 13_000);
}

#[test]
fn eq9_the_deviation_comes_first_and_from_the_old_mean() {
    let state = after(RawFsat { s: 16_000, ..in_period(30_000, 18_000) }, &last_ack(2000));
    // dev = 3/4 · 1000 + 1/4 · 4000, s = 7/8 · 16,000 + 1/8 · 20,000
    assert_eq!((state.dev, state.s), (1750, 16_500));
    assert_eq!(state.target, 16_500 + 4 * 1750);
}

#[test]
fn eq9_the_headroom_ends_at_twice_the_bdp() {
    let state = RawFsat { s: 40_000, dev: 5000, ..in_period(30_000, 8000) };
    assert_eq!(after(state, &last_ack(2000)).target, 20_000);
}

#[test]
fn eq9_the_first_measurement_is_the_mean() {
    let state = after(RawFsat { s: 0, dev: 0, ..in_period(30_000, 18_000) }, &last_ack(2000));
    assert_eq!((state.s, state.dev, state.target), (20_000, 10_000, 40_000));
}

#[test]
fn eq10_a_loss_without_a_queue_is_the_radios() {
    let mut state = RawFsat { flight_n: 20_000, rcv_bytes: 20_000, ..in_period(0, 0) };
    assert_eq!(state.paper_on_loss(30_000, 25_000, 1000), 30_000);
    assert_eq!(state.paper_on_loss(30_000, 40_000, 1000), 40_000);
    assert_eq!((state.losses_radio, state.losses_congestion), (2, 0));
}

#[test]
fn eq11_a_loss_behind_a_queue_is_congestion() {
    let mut state = RawFsat { flight_n: 30_000, rcv_bytes: 20_000, ..in_period(0, 0) };
    assert_eq!(state.paper_on_loss(90_000, NO_LIMIT, 1000), 20_000);
    state.flight_n = 60_000;
    assert_eq!(state.paper_on_loss(90_000, NO_LIMIT, 1000), 30_000);
    assert_eq!((state.losses_radio, state.losses_congestion), (0, 2));
}

#[test]
fn eq11_a_mark_is_congestion_whatever_queues() {
    let mut state = RawFsat { flight_n: 20_000, rcv_bytes: 20_000, ..in_period(0, 0) };
    assert_eq!(state.paper_on_mark(1000), 20_000);
    assert_eq!(state.losses_congestion, 1);
}

#[test]
fn space_rises_by_what_arrived_and_falls_by_half_of_it() {
    let step = |space, target| {
        let state = RawFsat { space, target, ..in_period(0, 0) };
        after(state, &RawAck { now_us: 50_000, ..last_ack(2000) }).space
    };
    assert_eq!(step(20_000, 40_000), 22_000);
    assert_eq!(step(39_000, 40_000), 40_000);
    assert_eq!(step(50_000, 40_000), 49_000);
    assert_eq!(step(40_500, 40_000), 40_000);
    assert_eq!(step(150_000, 40_000), 99_000, "from cwnd, above which it limits nothing");
    assert_eq!(step(200_000, NO_LIMIT), 200_000, "no more than the advertised window");
}

#[test]
fn target_stays_above_eight_kilobytes() {
    let state = RawFsat { target: 9000, s: 1000, dev: 0, ..in_period(30_000, 500) };
    assert_eq!(after(state, &last_ack(500)).target, 8192);
    assert_eq!(after(state, &RawAck { mss: 9000, ..last_ack(500) }).target, 18_000);
}

#[test]
fn a_period_lasts_one_rtt_min() {
    let state = in_period(30_000, 18_000);
    let early = after(state, &RawAck { now_us: 99_999, ..last_ack(2000) });
    assert_eq!((early.rcv_bytes, early.period_rcv_bytes), (0, 20_000));
    let over = after(state, &last_ack(2000));
    assert_eq!((over.rcv_bytes, over.flight_n), (20_000, 30_000));
    assert_eq!((over.period_rcv_bytes, over.period_flight, over.period_start_us), (0, 5000, 100_000));
}

#[test]
fn the_clock_may_wrap_within_a_period() {
    let state = RawFsat { period_start_us: u32::MAX - 49_999, ..in_period(30_000, 18_000) };
    let at = |now_us| after(state, &RawAck { now_us, ..last_ack(2000) }).rcv_bytes;
    assert_eq!((at(49_999), at(50_000)), (0, 20_000));
}

#[test]
fn an_application_that_sends_little_shrinks_nothing() {
    let state = RawFsat { target: 50_000, ..in_period(30_000, 1000) };
    let idle = after(state, &RawAck { app_limited: 1, ..last_ack(1000) });
    assert_eq!((idle.target, idle.s, idle.dev), (50_000, 20_000, 1000));
    let marked_before = RawFsat { period_app_limited: 1, ..state };
    assert_eq!(after(marked_before, &last_ack(1000)).target, 50_000);
    assert!(after(state, &last_ack(1000)).target < 50_000);
}

#[test]
fn rtt_min_is_the_least_and_only_of_samples() {
    let state = in_period(0, 0);
    let min = |rtt_us| after(state, &RawAck { rtt_us, ..last_ack(0) }).rtt_min_us;
    assert_eq!((min(0), min(99_000), min(101_000)), (100_000, 99_000, 100_000));
}
