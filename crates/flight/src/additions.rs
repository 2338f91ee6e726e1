//! What `fsat` adds, one by one, with numbers worked by hand.

mod drain;

use crate::core::Additions;
use crate::ffi::{NO_LIMIT, RawAck, RawConfig, RawFsat};

/// `FSAT_RTT_UNKNOWN`, `FSAT_RTT_KNOWN` and `FSAT_RTT_DOUBTED`.
const UNKNOWN: u32 = 0;
const KNOWN: u32 = 1;
const DOUBTED: u32 = 2;
/// `FSAT_DRAIN_SHALLOW` and `FSAT_DRAIN_DEEP`.
const SHALLOW: u32 = 1;
const DEEP: u32 = 2;

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
        rtt_least_us: 100_000,
        rcv_bytes: 20_000,
        flight_n: 40_000,
        s: 20_000,
        period_start_us: now_us,
        period_flight: 40_000,
        rtt_low_us: NO_LIMIT,
        undrained: 48, // falls are of as many periods as they are averaged over
        rtt_found_before_us: [NO_LIMIT; 3],
        period_rtt_us: NO_LIMIT,
        rtt_usual_us: 200_000,
        dry_us: now_us,
        drained_us: now_us,
        ..RawFsat::default()
    }
}

/// All that arrives in a period of [`standing`]: two segments take 10 ms.
fn full_ack(now_us: u32, rtt_us: u32) -> RawAck {
    RawAck { delivered: 20_000, ..ack(now_us, rtt_us, 40_000) }
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
fn fair_lowers_target_to_two_segments() {
    let target = |additions| {
        let mut state = RawFsat { target: 0, s: 0, period_flight: 3000, ..standing(0) };
        state.on_ack(&config(additions), &RawAck { delivered: 500, ..ack(100_000, 200_000, 3000) });
        state.target
    };
    assert_eq!((target(Additions::PAPER), target(Additions::FAIR)), (8192, 2000));
}

#[test]
fn pace_is_half_as_much_again_as_the_window_needs() {
    let state = RawFsat { srtt_us: 200_000, rtt_found_us: 100_000, ..standing(0) };
    let pace = config(Additions::PACE);
    assert_eq!(state.pacing_rate(&pace, &ack(0, 0, 0)), 300_000);
    let unlimited = RawFsat { target: NO_LIMIT, ..state };
    assert_eq!(unlimited.pacing_rate(&pace, &ack(0, 0, 0)), 400_000);
    let start = RawFsat { rtt_found_us: 0, ..state };
    assert_eq!(start.pacing_rate(&pace, &ack(0, 0, 0)), 577_078, "2 / ln 2 before the first drain");
    let varies = RawFsat { falls: 6554, ..state };
    assert_eq!(varies.pacing_rate(&pace, &ack(0, 0, 0)), 600_000, "by the least RTT, 100 ms");
    assert_eq!(RawFsat { srtt_us: 0, ..state }.pacing_rate(&pace, &ack(0, 0, 0)), 0);
    let carries = |s| RawFsat { s, ..state }.pacing_rate(&pace, &ack(0, 0, 0));
    assert_eq!(
        [carries(1001), carries(1000)],
        [300_000, u64::MAX],
        "a path that carries one segment at most"
    );
}

#[test]
fn best_bounds_what_a_link_that_varies_is_offered_beyond_twice_what_arrived() {
    let target = |falls, best| {
        let mut state = RawFsat { falls, best: [best, 0], period_rcv_bytes: 28_000, ..standing(0) };
        (state.rtt_low_us, state.rtt_before_us) = (1, 200_000);
        state.on_ack(&config(Additions::FSAT), &ack(10_000, 200_000, 40_000));
        state.target
    };
    // 30,000 bytes arrived so far.
    assert_eq!(target(6553, 90_000), 60_000, "(8)");
    assert_eq!((target(6554, 90_000), target(6554, 65_000), target(6554, 50_000)), (67_500, 65_000, 60_000));
}

#[test]
fn best_is_offered_to_a_link_that_varies_where_its_queue_runs_dry() {
    // The period began 10 ms ago: neither (8) nor (7) has to do with it.
    let target = |state: RawFsat, rtt_us| {
        let seen = RawFsat { best: [30_000, 60_000], rtt_before_us: 300_000, rtt_low_us: 1, ..state };
        let mut state = RawFsat { rtt_found_us: 100_000, ..seen };
        state.on_ack(&config(Additions::FSAT), &ack(10_000, rtt_us, 40_000));
        state.target
    };
    let varies = RawFsat { falls: 6554, ..standing(0) };
    assert_eq!(target(varies, 112_000), 45_000, "within an eighth of rtt_min");
    assert_eq!(target(varies, 149_000), 45_000, "less than half of the last period's least");
    assert_eq!(target(varies, 150_000), 40_000);
    assert_eq!(target(RawFsat { falls: 6553, ..varies }, 112_000), 40_000);
    assert_eq!(target(RawFsat { target: 70_000, ..varies }, 112_000), 70_000, "it limits nothing");
    let drain = RawFsat { draining: DEEP, drain_rcv_bytes: 20_000, ..varies };
    assert_eq!(target(drain, 149_000), 40_000, "a drain makes RTT fall");
}

#[test]
fn pace_ends_in_a_buffer_that_others_fill() {
    const UNPACED: u64 = u64::MAX;
    let rate = |state: RawFsat| state.pacing_rate(&config(Additions::FSAT), &ack(0, 0, 0));
    let path = RawFsat { srtt_us: 200_000, losses_congestion: 1, ..standing(0) };
    let path = RawFsat { rtt_found_us: 100_000, ..path };
    let high = |high_us| RawFsat { high_us: [high_us, 0], ..path };
    assert_eq!([rate(high(125_000)), rate(high(125_001))], [300_000, UNPACED]);
    assert_eq!([rate(high(225_000)), rate(high(226_000))], [UNPACED, 300_000], "deeper than one BDP");
    assert_eq!(rate(RawFsat { losses_congestion: 0, ..high(200_000) }), 300_000, "nobody does");
}

#[test]
fn pace_ends_in_a_deeper_buffer_once_others_have_come_to_share_it() {
    let rate = |losses_congestion, rtt_min_us, flight_n| {
        let path = RawFsat { srtt_us: 200_000, rtt_found_us: 100_000, high_us: [900_000, 0], ..standing(0) };
        let state = RawFsat { losses_congestion, rtt_min_us, flight_n, ..path };
        state.pacing_rate(&config(Additions::FSAT), &ack(0, 0, 0))
    };
    assert_eq!([rate(12, 126_000, 20_000), rate(11, 126_000, 20_000)], [u64::MAX, 300_000], "twelve losses");
    assert_eq!(rate(12, 125_000, 20_000), 300_000, "their queue is not in rtt_min");
    assert_eq!(rate(12, 126_000, 20_001), 300_000, "more than twenty segments");
}

#[test]
fn pace_hands_over_few_segments_one_by_one() {
    let path = RawFsat { s: 8000, high_us: [800_000, 0], ..standing(50_000_000) };
    let burst = |state: RawFsat| state.burst(&config(Additions::FSAT), 1000);
    assert_eq!(burst(path), 1);
    assert_eq!(burst(RawFsat { s: 8001, ..path }), 0, "more than eight");
    assert_eq!(path.burst(&config(Additions::PAPER), 1000), 0);
    let lost = RawFsat { losses_radio: 1, lost_us: 26_000_001, ..path };
    assert_eq!(burst(lost), 0, "others may fill the buffer");
    assert_eq!(burst(RawFsat { lost_us: 26_000_000, ..lost }), 1, "24 s ago");
    assert_eq!(burst(RawFsat { high_us: [0, 800_008], ..path }), 0, "they do");
}

#[test]
fn even_scales_what_arrived_to_one_rtt_min() {
    let ended = |additions| {
        let mut state = RawFsat { period_rcv_bytes: 23_000, target: 1, ..standing(0) };
        state.on_ack(&config(additions), &ack(125_000, 200_000, 40_000));
        (state.rcv_bytes, state.target)
    };
    // 25,000 bytes in 125 ms, 20,000 of them within 100 ms: (8), then halfway to s of 20,000, dev of 0 or 1250 by (9), (7).
    assert_eq!(ended(Additions::PAPER), (25_000, (50_000 + 20_625 + 5000) / 2));
    assert_eq!(ended(Additions::EVEN), (25_000, (40_000 + 20_000) / 2));
}

/// A loss with 40 kB in flight and a cwnd of 100 kB; the best BDP is `best`, the greatest RTT `high_us`, the last `rtt_us`.
fn lost_where_full(best: u32, high_us: u32, rtt_us: u32) -> u32 {
    let full = Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits());
    let mut state = RawFsat { best: [best, 0], high_us: [0, high_us], rtt_us, ..standing(0) };
    state.on_loss(&config(full), 100_000, NO_LIMIT, 1000)
}

#[test]
fn full_a_loss_at_the_end_of_a_shallow_buffer_is_congestion() {
    assert_eq!(lost_where_full(40_000, 168_000, 140_000), 66_666);
    assert_eq!(lost_where_full(40_000, 169_000, 140_000), NO_LIMIT, "the buffer has room: the radio");
    assert_eq!(lost_where_full(40_000, 112_501, 112_501), 66_666, "who came when it was full");
    assert_eq!(
        lost_where_full(40_000, 112_500, 112_500),
        NO_LIMIT,
        "RTT does not differ: there is no buffer"
    );
}

#[test]
fn full_less_is_given_up_in_a_buffer_of_more_than_one_bdp() {
    assert_eq!(lost_where_full(39_000, 225_000, 190_000), 66_666);
    assert_eq!(lost_where_full(39_000, 226_000, 190_000), 90_000);
    assert_eq!(lost_where_full(39_000, 229_000, 190_000), 39_000, "the buffer has room: (11)");
}

#[test]
fn full_a_quarter_is_given_up_once_we_have_our_share_of_others_buffer() {
    let full = config(Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits()));
    let lost = |losses_congestion, rtt_min_us| {
        let path = RawFsat { losses_congestion, rtt_min_us, best: [39_000, 0], ..standing(0) };
        { RawFsat { rtt_us: 400_000, high_us: [400_000, 0], ..path } }.on_loss(&full, 100_000, NO_LIMIT, 1000)
    };
    assert_eq!((lost(11, 126_000), lost(10, 126_000)), (75_000, 90_000), "the twelfth loss");
    assert_eq!(lost(11, 125_000), 90_000, "their queue is not in rtt_min");
}

#[test]
fn full_falls_back_to_the_best_of_late_only_in_a_deeper_buffer() {
    let full = config(Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits()));
    let lost = |high_us| {
        let known = RawFsat { best: [60_000, 0], flight_n: 70_000, rtt_us: 200_000, ..standing(0) };
        { RawFsat { high_us: [high_us, 0], ..known } }.on_loss(&full, 50_000, NO_LIMIT, 1000)
    };
    assert_eq!((lost(225_000), lost(226_000)), (33_333, 60_000));
}

#[test]
fn full_does_not_take_a_delayed_ack_for_a_buffer() {
    let full = config(Additions::FULL);
    let mut state = RawFsat { high_us: [200_000, 0], ..standing(0) };
    let single = |rtt_us| RawAck { delivered: 1000, ..ack(0, rtt_us, 40_000) };
    (1..16).for_each(|_| state.on_ack(&full, &single(400_000)));
    assert_eq!(state.high_us, [200_000, 0]);
    state.on_ack(&full, &ack(0, 210_000, 40_000));
    assert_eq!(state.high_us, [210_000, 0], "an ACK for two segments is sent at once");
    (1..16).for_each(|_| state.on_ack(&full, &single(400_000)));
    assert_eq!(state.high_us, [210_000, 0]);
    state.on_ack(&full, &single(400_000));
    assert_eq!(state.high_us, [400_000, 0], "this receiver delays none");
}

#[test]
fn full_a_dip_of_the_rate_is_no_shallow_buffer() {
    let full = Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits());
    let lost = |rtt_us, rtt_min_us| {
        let path = RawFsat { best: [40_000, 0], ..standing(0) };
        let mut state = RawFsat { high_us: [0, rtt_us], rtt_us, rtt_min_us, ..path };
        state.on_loss(&config(full), 100_000, NO_LIMIT, 1000)
    };
    assert_eq!((lost(225_000, 100_000), lost(226_000, 125_000)), (66_666, NO_LIMIT));
    assert_eq!(lost(226_000, 126_000), 66_666, "others' queue is in rtt_min, so that no BDP is known");
}

#[test]
fn full_knows_of_no_buffer_where_rtt_does_not_differ_from_rtt_min() {
    let full = config(Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits()));
    let lost = |rtt_us| {
        let longer = RawFsat { rtt_min_us: 200_000, best: [40_000, 0], ..standing(0) };
        { RawFsat { rtt_us, high_us: [rtt_us, 0], ..longer } }.on_loss(&full, 100_000, NO_LIMIT, 1000)
    };
    assert_eq!(lost(225_000), NO_LIMIT, "a route that has become longer, and the radio's loss");
    assert_eq!(lost(225_001), 66_666);
}

#[test]
fn full_says_whether_any_waited_where_others_queue_is_in_rtt_min() {
    let full = config(Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits()));
    let lost = |rtt_min_us| {
        let path = RawFsat { flight_n: 20_000, best: [20_000, 0], ..standing(0) };
        { RawFsat { rtt_min_us, rtt_us: 150_000, high_us: [150_000, 0], ..path } }
            .on_loss(&full, 100_000, NO_LIMIT, 1000)
    };
    assert_eq!(lost(125_000), NO_LIMIT, "by (10) none of twenty waited");
    assert_eq!(lost(126_000), 66_666, "it says so of what others made wait");
}

#[test]
fn full_falls_back_to_what_the_path_carries_without_others_queue() {
    let full = config(Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits()));
    let lost = |cwnd| {
        let path = RawFsat { rtt_min_us: 200_000, flight_n: 70_000, best: [60_000, 0], ..standing(0) };
        { RawFsat { rtt_us: 250_000, high_us: [250_000, 0], ..path } }.on_loss(&full, cwnd, NO_LIMIT, 1000)
    };
    assert_eq!((lost(50_000), lost(30_000)), (45_000, 30_000));
}

#[test]
fn full_leaves_the_bdp_and_of_few_segments_the_smoothed_one() {
    let full = config(Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits()));
    let lost = |flight_n| {
        let path = RawFsat { rcv_bytes: 15_900, s: 17_000, best: [20_000, 0], ..standing(0) };
        let mut state = RawFsat { flight_n, rtt_us: 150_000, high_us: [150_000, 0], ..path };
        state.on_loss(&full, 20_000, NO_LIMIT, 1000)
    };
    assert_eq!((lost(16_000), lost(16_001)), (17_000, 15_900));
}

#[test]
fn full_says_of_few_segments_whether_any_waited() {
    let full = config(Additions::from_bits(Additions::BEST.bits() | Additions::FULL.bits()));
    let lost = |flight_n, rtt_us, high_us| {
        let path = RawFsat { best: [20_000, 0], ..standing(0) };
        { RawFsat { flight_n, rtt_us, high_us: [high_us, 0], ..path } }
            .on_loss(&full, 100_000, NO_LIMIT, 1000)
    };
    assert_eq!(lost(16_000, 126_000, 150_000), 66_666, "sixteen, of which (10) says that none waited");
    assert_eq!(lost(16_000, 125_000, 150_000), NO_LIMIT, "no more than a quarter above the least RTT");
    assert_eq!(lost(16_000, 126_000, 160_000), NO_LIMIT, "the buffer has room");
    assert_eq!(lost(17_000, 126_000, 150_000), NO_LIMIT, "seventeen are enough for (10)");
}

#[test]
fn pace_forgets_an_outage() {
    let srtt_after = |rtt_us| {
        let mut state = RawFsat { srtt_us: 400_000, ..standing(0) };
        state.on_ack(&config(Additions::PACE), &ack(10_000, rtt_us, 40_000));
        state.srtt_us
    };
    assert_eq!((srtt_after(100_000), srtt_after(99_999)), (362_500, 99_999));
}
