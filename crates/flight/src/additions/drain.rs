//! Drains, and what they say of others and of the rate.

use super::{DEEP, DOUBTED, KNOWN, SHALLOW, UNKNOWN, ack, config, full_ack, standing};
use crate::core::Additions;
use crate::ffi::{NO_LIMIT, RawAck, RawFsat};

/// `FSAT_DRAIN_TICK_US`.
const TICK: u32 = 1 << 21;

/// Who does not know rtt_min drains so often.
const SECOND: u32 = 2 * TICK;

/// ACKs every 10 ms from `from` on, until the drain begins or ends; when it did.
fn until(state: &mut RawFsat, from: u32, rtt_us: u32, flight: u32, draining: u32) -> u32 {
    let times = (0..10_000).map(|n| from.wrapping_add(10_000 * n));
    for now_us in times {
        state.on_ack(&config(Additions::DRAIN), &ack(now_us, rtt_us, flight));
        if state.draining == draining {
            return now_us.wrapping_sub(from);
        }
    }
    panic!("never: {state:?}");
}

#[test]
fn drain_stops_sending_until_little_is_in_flight() {
    let mut state = RawFsat { rtt_known: DOUBTED, ..standing(0) };
    state.rtt_low_us = 190_000; // so that 200 ms are no news
    let due = until(&mut state, 0, 200_000, 40_000, DEEP);
    assert_eq!(due, 4_200_000, "the first ACK after a second tick");
    assert_eq!(state.space, 4000, "four segments, which is more than an eighth of the BDP");
    let left = |s, steady| {
        let mut few = RawFsat { draining: DEEP, drain_rcv_bytes: 4000, s, steady, ..state };
        few.on_ack(&config(Additions::DRAIN), &ack(due + 10_000, 200_000, 40_000));
        few.space
    };
    assert_eq!(left(16_000, 7), 2000, "two of a crowd: few segments, and not always as many");
    assert_eq!((left(16_000, 8), left(16_001, 7)), (4000, 4000));
}

#[test]
fn drain_is_gentle_once_rtt_min_is_known() {
    let begun = RawFsat { draining: SHALLOW, drain_rcv_bytes: 20_000, rtt_known: KNOWN, ..standing(0) };
    let mut state = RawFsat { quiet: 2, ..begun };
    state.on_ack(&config(Additions::DRAIN), &ack(10_000, 200_000, 40_000));
    assert_eq!(state.space, 39_000, "half of what arrived less");
    until(&mut state, 20_000, 112_500, 40_000, 0);
    assert_eq!(
        (state.rtt_known, state.quiet, state.drains),
        (KNOWN, 3, 0),
        "an eighth above rtt_min is enough"
    );
}

#[test]
fn drain_looks_below_rtt_min_at_first() {
    let begun = RawFsat { draining: SHALLOW, drain_rcv_bytes: 20_000, rtt_known: KNOWN, ..standing(0) };
    let seen = |state: RawFsat| {
        let mut state = RawFsat { rtt_found_us: 100_000, ..state };
        state.on_ack(&config(Additions::DRAIN), &ack(10_000, 112_500, 40_000));
        state
    };
    let [first, second, third] = [0, 1, 2].map(|quiet| seen(RawFsat { quiet, ..begun }));
    assert_eq!([first.draining, second.draining, third.draining], [DEEP, DEEP, 0]);
    assert_eq!(seen(RawFsat { sole: 1, ..begun }).draining, 0, "nobody else is there");
    assert_eq!(seen(RawFsat { falls: 6554, ..begun }).draining, 0, "the rate varies");
    let ended = |rtt_us, flight, losses_radio| {
        let mut state = RawFsat { losses_radio, ..first };
        let took = until(&mut state, 20_000, rtt_us, flight, 0);
        (took, state.rtt_min_us, state.rtt_known, state.quiet)
    };
    assert_eq!(ended(112_500, 5000, 0), (50_000, 100_000, KNOWN, 1), "half an RTT after it last fell");
    assert_eq!(ended(80_000, 3500, 0), (40_000, 80_000, UNKNOWN, 0), "it was others' queue");
    let took = |flight, losses| ended(112_500, flight, losses).0;
    assert_eq!(
        [took(5001, 0), took(11_000, 1)],
        [930_000, 50_000],
        "not to half, unless others fill the buffer"
    );
}

#[test]
fn drain_begins_at_ticks_so_that_flows_drain_together() {
    let begins = |dry_us: u32, rtt_found_us, flat_periods| {
        let begun = RawFsat { rtt_known: DOUBTED, rtt_low_us: 1, filled: 1, ..standing(dry_us) };
        let mut state = RawFsat { rtt_found_us, flat_periods, ..begun };
        dry_us.wrapping_add(until(&mut state, dry_us, 200_000, 40_000, DEEP))
    };
    for tick in [10 * TICK, 0] {
        let late = |since: u32, found, flat| begins(tick.wrapping_sub(since), found, flat).wrapping_sub(tick);
        let at = |since, found, flat| late(since, found, flat) / SECOND;
        assert!([524_288, 2_000_000, 4_190_000].iter().all(|since| late(*since, 1, 3) < 10_000));
        assert_eq!(at(520_000, 1, 3), 1, "an eighth of what lies between drains has to have passed");
        assert_eq!([at(524_288, 0, 2), at(520_000, 0, 2)], [0, 1], "before the first as well,");
        assert_eq!([at(TICK, 0, 3), at(TICK - 10_000, 0, 3)], [0, 1], "but half if RTT was flat at first");
    }
}

#[test]
fn drain_is_not_due_where_rtt_falls_with_others_losses() {
    let known = |losses_congestion, level_periods, lost_us| {
        let filled = RawFsat { rtt_min_us: 200_000, rtt_found_us: 200_000, rtt_known: KNOWN, ..standing(0) };
        let mut state = RawFsat { losses_congestion, level_periods, lost_us, quiet: 3, ..filled };
        state.on_ack(&config(Additions::FSAT), &ack(10_000, 174_000, 40_000));
        (state.rtt_known, state.quiet, state.rtt_min_us)
    };
    assert_eq!(known(12, 0, 0), (KNOWN, 3, 174_000));
    assert_eq!(known(11, 0, 0), (UNKNOWN, 0, 174_000), "who has no share to give away");
    assert_eq!(known(12, 8, 0), (UNKNOWN, 0, 174_000), "the others have left");
    assert_eq!(
        known(12, 0, 0_u32.wrapping_sub(24_000_000)),
        (UNKNOWN, 0, 174_000),
        "nothing is lost any more"
    );
}

#[test]
fn drain_is_not_what_rtt_does_by_itself_in_a_buffer_that_others_keep_full() {
    let dry = |losses_congestion, high_us| {
        let found = RawFsat { rtt_known: KNOWN, rtt_found_us: 100_000, dry_us: 0, ..standing(SECOND) };
        let mut state = RawFsat { losses_congestion, high_us: [high_us, 0], lost_us: SECOND, ..found };
        state.on_ack(&config(Additions::FSAT), &ack(SECOND + 10_000, 110_000, 40_000));
        state.dry_us
    };
    assert_eq!([dry(12, 130_000), dry(11, 130_000)], [0, SECOND + 10_000], "who came when it was full");
    assert_eq!(dry(12, 230_000), SECOND + 10_000, "more than one BDP");
}

#[test]
fn drain_is_due_where_rtt_sinks_in_small_steps() {
    let begun = RawFsat { rtt_known: KNOWN, rtt_found_us: 100_000, ..standing(0) };
    let mut state = begun;
    let mut known = |rtt_us| {
        state.on_ack(&config(Additions::DRAIN), &ack(10_000, rtt_us, 40_000));
        state.rtt_known
    };
    assert_eq!([known(94_000), known(89_000), known(87_500)], [KNOWN; 3]);
    assert_eq!(known(87_400), UNKNOWN, "more than an eighth below what the last drain found");
    let mut varies = RawFsat { falls: 6554, ..begun };
    for rtt_us in [94_000, 87_400] {
        varies.on_ack(&config(Additions::DRAIN), &ack(10_000, rtt_us, 40_000));
    }
    assert_eq!(varies.rtt_known, KNOWN, "the rate varies");
}

#[test]
fn drain_is_shallow_where_the_rate_was_the_same_for_eight_periods() {
    let begun = |steady, foreign| {
        let mut state =
            RawFsat { steady, foreign, rtt_low_us: 1, period_start_us: SECOND - 1, ..standing(0) };
        state.on_ack(&config(Additions::DRAIN), &ack(SECOND, 200_000, 40_000));
        (state.draining, state.space)
    };
    assert_eq!(begun(8, 0), (SHALLOW, 17_500), "an eighth less than the BDP");
    assert_eq!(begun(7, 0), (DEEP, 4000));
    assert_eq!(begun(8, 8), (DEEP, 4000), "and the queue our own");
}

#[test]
fn drain_counts_periods_of_one_rate() {
    let mut state = standing(0);
    let mut steady = |period: u32, delivered| {
        let end = RawAck { delivered, ..ack(100_000 * period, 200_000, 40_000) };
        state.on_ack(&config(Additions::DRAIN), &end);
        state.steady
    };
    assert_eq!([steady(1, 16_000), steady(2, 18_000), steady(3, 16_000)], [0, 1, 2]);
    assert_eq!([steady(4, 13_000), steady(5, 13_000)], [0, 1]);
}

#[test]
fn drain_goes_deep_if_a_shallow_one_does_not_show_rtt_min() {
    let shallow =
        RawFsat { draining: SHALLOW, drain_rcv_bytes: 20_000, rtt_found_us: 100_000, ..standing(0) };
    let after = |known, rtt_us: u32| {
        let mut state = RawFsat { rtt_known: known, rtt_low_us: rtt_us, ..shallow };
        while state.draining == SHALLOW && state.period_start_us < 1_000_000 {
            let now_us = state.period_start_us + 10_000;
            state.on_ack(&config(Additions::DRAIN), &ack(now_us, rtt_us, 17_000));
            state.period_start_us = now_us;
        }
        (state.period_start_us, state.draining)
    };
    assert_eq!(after(0, 112_000), (120_000, 0), "seen for one RTT");
    assert_eq!(after(0, 120_000), (120_000, DEEP));
    assert_eq!(after(KNOWN, 120_000), (120_000, DEEP));
    assert_eq!(after(0, 80_000), (80_000, DEEP), "rtt_min was too great");
}

#[test]
fn drain_ends_when_rtt_falls_no_more() {
    let mut state = RawFsat { draining: DEEP, drain_rcv_bytes: 20_000, rtt_found_us: 100_000, ..standing(0) };
    let early = ack(300_000, 100_000, 20_000);
    state.on_ack(&config(Additions::DRAIN), &early);
    assert_eq!(state.draining, DEEP, "more is in flight than a drain leaves");
    let took = until(&mut state, 310_000, 100_000, 3500, 0);
    assert_eq!(took, 40_000, "half an RTT after it last had to go on");
    assert_eq!((state.rtt_known, state.quiet), (KNOWN, 1));
    assert!(state.space >= 20_000, "and sending goes on where it was");
}

#[test]
fn drain_raises_rtt_min_at_the_second_time_and_lowers_it_at_once() {
    let found = |state: &RawFsat, rtt_us| {
        let mut state = RawFsat { draining: DEEP, drain_rcv_bytes: 20_000, ..*state };
        until(&mut state, 100_000, rtt_us, 3500, 0);
        (state.rtt_min_us, state.rtt_known, state)
    };
    let start = RawFsat { rtt_found_us: 100_000, ..standing(0) };
    let (rtt_min, known, once) = found(&start, 250_000);
    assert_eq!((rtt_min, known), (100_000, DOUBTED), "so the next is soon");
    let (rtt_min, known, twice) = found(&once, 240_000);
    assert_eq!((rtt_min, known), (240_000, KNOWN));
    assert_eq!(found(&twice, 80_000).0, 80_000);
    let (rtt_min, known, twice) = found(&RawFsat { s: 8000, ..once }, 240_000);
    assert_eq!((rtt_min, known), (100_000, DOUBTED), "in a crowd at the third time");
    assert_eq!(found(&RawFsat { s: 8000, ..twice }, 245_000).0, 240_000);
}

/// How many drains that find `rtt_us` it takes until rtt_min, 100 ms, is raised, of a flow whose share is `s` and varies.
fn drains_to_raise(s: u32, rtt_us: u32, losses_radio: u32) -> Option<u32> {
    let mut state = RawFsat { rtt_found_us: 100_000, losses_radio, ..standing(0) };
    let mut found = || {
        state = RawFsat { draining: DEEP, drain_rcv_bytes: 20_000, s, steady: 0, ..state };
        until(&mut state, 100_000, rtt_us, 3500, 0);
        state.rtt_min_us
    };
    (1..20).find(|_| found() > 100_000)
}

#[test]
fn drain_raises_rtt_min_of_a_share_of_few_segments_at_the_fifth_time() {
    let of_shares = |rtt_us, lost| [20_000, 8000, 1000].map(|s| drains_to_raise(s, rtt_us, lost));
    assert_eq!(of_shares(200_000, 0), [Some(2), Some(3), Some(5)]);
    assert_eq!(of_shares(199_999, 1), [Some(2), Some(3), Some(5)]);
    assert_eq!(
        of_shares(199_999, 0),
        [Some(2), Some(16), Some(16)],
        "less than twice, and nobody fills the buffer"
    );
}

#[test]
fn drain_raises_rtt_min_at_the_second_time_where_no_crowd_has_so_much() {
    let found = |rtt_us| drains_to_raise(8000, rtt_us, 0);
    assert_eq!((found(800_007), found(800_008)), (Some(3), Some(2)), "eight times the least of all");
}

#[test]
fn drain_raises_rtt_min_of_one_segment_as_rarely_as_of_two() {
    let raised_at = |s, steady| {
        let mut state = RawFsat { rtt_found_us: 100_000, losses_radio: 1, ..standing(0) };
        (1..20).find(|time| {
            let now_us = 1_000_000 * time;
            let settled =
                RawFsat { draining: DEEP, falls_us: now_us - 100_000, rtt_low_us: 200_000, ..state };
            state = RawFsat { s, steady, dry_us: now_us - 200_000, period_start_us: now_us, ..settled };
            state.on_ack(&config(Additions::DRAIN), &ack(now_us, 200_000, 3000));
            state.rtt_min_us > 100_000
        })
    };
    assert_eq!([1000, 2000, 5001].map(|s| raised_at(s, 0)), [Some(5), Some(5), Some(3)]);
    assert_eq!(raised_at(1000, 8), Some(2), "a path of one segment");
}

#[test]
fn drain_that_found_more_is_refuted_by_rtt_min_itself() {
    let mut state = RawFsat { rtt_found_us: 250_000, rtt_known: DOUBTED, ..standing(0) };
    state.on_ack(&config(Additions::DRAIN), &ack(10_000, 112_500, 10_000));
    assert_eq!((state.rtt_known, state.rtt_found_us), (KNOWN, 100_000));
}

#[test]
fn drain_joins_others_but_not_where_the_queue_runs_dry_by_itself() {
    let joins_with = |s, quiet, alone_us, sole| {
        let known = RawFsat { rtt_found_us: 100_000, rtt_known: KNOWN, rtt_low_us: 1, ..standing(0) };
        let mut state = RawFsat { s, quiet, alone_us, sole, period_start_us: 8_090_000, ..known };
        state.on_ack(&config(Additions::DRAIN), &ack(8_100_000, 170_000, 40_000));
        state.draining == SHALLOW
    };
    let joins = |quiet, alone_us, sole| joins_with(20_000, quiet, alone_us, sole);
    assert!(joins(2, 0, 0), "that was eight seconds ago");
    assert!(joins(1, 5_000_000, 0), "as long as drains bring news");
    assert!(!joins(2, 5_000_000, 0));
    assert!(!joins(2, 0, 1), "nobody else is there: the rate has risen");
    let crowd = |quiet| joins_with(16_000, quiet, 5_000_000, 0);
    assert_eq!([crowd(3), crowd(4)], [true, false], "in a crowd it takes four that bring none");
}

#[test]
fn drain_joins_none_before_the_first_unless_something_was_lost() {
    let joins = |rtt_found_us, losses_congestion| {
        let mut state =
            RawFsat { rtt_found_us, losses_congestion, flat_periods: 3, rtt_low_us: 1, ..standing(0) };
        state.on_ack(&config(Additions::DRAIN), &full_ack(2_050_000, 170_000));
        state.draining != 0
    };
    assert_eq!([joins(0, 0), joins(0, 1), joins(100_000, 0)], [false, true, true]);
}

#[test]
fn drain_counts_periods_in_which_rtt_fell_by_itself() {
    assert_eq!(
        RawFsat::new(&config(Additions::DRAIN), 0, 1000).undrained,
        8,
        "eight periods after the begin"
    );
    let mut state = RawFsat { undrained: 16, rtt_before_us: 200_000, ..standing(0) };
    let mut falls = |period: u32, rtt_us| {
        state.period_rtt_us = rtt_us;
        state.on_ack(&config(Additions::DRAIN), &full_ack(100_000 * period, 200_000));
        state.falls
    };
    assert_eq!(falls(1, 176_000), 0, "less than an eighth");
    assert_eq!(falls(2, 154_000), 0, "as each time");
    assert_eq!(falls(3, 134_000), 2048, "a 32nd of 65536");
    assert_eq!(falls(4, 200_000), 1984, "a 32nd of that less");
    assert_eq!(falls(5, 174_000), 3970);
    state.draining = SHALLOW;
    state.period_rtt_us = 100_000;
    state.on_ack(&config(Additions::DRAIN), &full_ack(600_000, 200_000));
    assert_eq!((state.falls, state.undrained), (3970, 0), "and not while a drain makes it fall, or after it");
}

#[test]
fn drain_takes_a_fall_by_half_for_four() {
    let falls = |before_us, falls| {
        let long = RawFsat { undrained: 16, rtt_before_us: before_us, falls, ..standing(0) };
        let mut state = RawFsat { period_rtt_us: 200_000, ..long };
        state.on_ack(&config(Additions::DRAIN), &full_ack(100_000, 200_000));
        state.falls
    };
    assert_eq!(
        (falls(400_001, 0), falls(400_002, 0)),
        (2048, 8192),
        "that is, by itself, a rate that varies"
    );
    assert_eq!(falls(400_002, 65_536), 65_536, "in each period, not more");
}

#[test]
fn drain_counts_falls_among_as_many_periods_as_there_were_until_the_first() {
    // Such a link is offered three quarters of the best when its queue runs dry.
    let varies = |undrained, falls, rtt_found_us| {
        let seen = RawFsat { undrained, falls, rtt_found_us, best: [90_000, 0], ..standing(0) };
        let mut state = RawFsat { rtt_low_us: 1, ..seen };
        state.on_ack(&config(Additions::FSAT), &ack(10_000, 112_000, 40_000));
        state.target == 67_500
    };
    assert_eq!([varies(48, 6553, 0), varies(48, 6554, 0)], [false, true], "a tenth of 32");
    assert_eq!([varies(40, 4914, 0), varies(40, 4915, 0)], [false, true], "of 24");
    assert_eq!([varies(36, 4095, 0), varies(36, 4096, 0)], [false, true], "of 20");
    assert_eq!([varies(17, 4095, 0), varies(17, 4096, 0)], [false, true], "of as many at least");
    assert_eq!([varies(17, 6553, 100_000), varies(17, 6554, 100_000)], [false, true], "not after a drain");
    let mut state = RawFsat { undrained: 47, period_rtt_us: 200_000, ..standing(0) };
    for period in 1..=2 {
        state.on_ack(&config(Additions::DRAIN), &full_ack(100_000 * period, 200_000));
    }
    assert_eq!(state.undrained, 48, "no more than they are averaged over");
}

#[test]
fn drain_learns_what_filled_the_link_when_rtt_first_rises() {
    let mut state = RawFsat { target: NO_LIMIT, best: [23_000, 0], rtt_found_us: 1, ..standing(0) };
    let mut period = |number: u32, rtt_us| {
        state.period_rtt_us = rtt_us;
        state.on_ack(&config(Additions::DRAIN), &full_ack(100_000 * number, 200_000));
        (state.flat_periods, state.filled)
    };
    assert_eq!([period(1, 100_000), period(2, 114_000)], [(1, 0), (2, 0)], "not by more than an eighth");
    assert_eq!(period(3, 115_000), (2, 23_000), "the best until then");
    assert_eq!([period(4, 100_000), period(5, 200_000)], [(2, 23_000); 2], "once and for all");
    assert_eq!(RawFsat::new(&config(Additions::DRAIN), 0, 1000).flat_periods, 0);
    let mut first = RawFsat::new(&config(Additions::DRAIN), 0, 1000);
    for rtt_us in [130_000, 100_000] {
        first.on_ack(&config(Additions::DRAIN), &ack(0, rtt_us, 1000));
    }
    assert_eq!((first.rtt_first_us, first.rtt_min_us), (130_000, 100_000));
}

#[test]
fn drain_is_spared_to_who_came_alone() {
    let alone = RawFsat { rtt_first_us: 114_000, flat_periods: 3, filled: 15_778, ..standing(0) };
    let alone = RawFsat { period_start_us: SECOND - 1, rtt_low_us: 1, ..alone };
    let after = |mut state: RawFsat| {
        state.on_ack(&config(Additions::DRAIN), &ack(SECOND, 200_000, 40_000));
        state
    };
    let spared = after(alone);
    assert_eq!(
        (spared.draining, spared.drains, spared.rtt_known, spared.rtt_found_us),
        (0, 0, KNOWN, 100_000)
    );
    assert_eq!((spared.dry_us, spared.target), (SECOND, 40_000), "the next one is due as after a drain");
    assert_eq!(spared.sole, 1);
    let drains = |state| after(state).draining != 0;
    assert!(
        drains(RawFsat { filled: 15_777, ..alone }),
        "20,000 bytes arrive, an eighth and two segments more than then"
    );
    assert!(drains(RawFsat { filled: 0, ..alone }), "RTT has never risen");
    assert!(drains(RawFsat { flat_periods: 2, ..alone }));
    assert!(drains(RawFsat { rtt_first_us: 115_000, ..alone }), "RTT was not the least from the begin on");
    assert!(drains(RawFsat { losses_radio: 1, ..alone }), "the buffer may be full");
    assert!(drains(RawFsat { rtt_found_us: 100_000, ..alone }), "the first drain only");
}

#[test]
fn drain_believes_to_be_alone_until_there_are_others() {
    let met = |foreign, falls| {
        let mut state = RawFsat { sole: 1, foreign, falls, period_rtt_us: 210_000, ..standing(0) };
        state.on_ack(&config(Additions::DRAIN), &full_ack(100_000, 210_000));
        state.sole == 0
    };
    assert_eq!([met(6, 0), met(7, 0)], [false, true], "eight periods with more queue than is ours");
    assert!(met(7, 65_536), "even if the rate varies: that may be wrong");
    let found = |rtt_us| {
        let known = RawFsat { sole: 1, rtt_found_us: 100_000, rtt_known: KNOWN, ..standing(0) };
        let mut state = RawFsat { draining: DEEP, drain_rcv_bytes: 20_000, ..known };
        until(&mut state, 100_000, rtt_us, 3500, 0);
        state.sole
    };
    assert_eq!([found(112_000), found(115_000)], [1, 0], "a drain that finds more than rtt_min");
    let mut full = RawFsat { sole: 1, rtt_known: KNOWN, ..standing(0) };
    full.on_loss(&config(Additions::FSAT), 90_000, NO_LIMIT, 1000);
    assert_eq!((full.sole, full.rtt_known), (0, UNKNOWN), "a buffer that is full: the queue may be others'");
}

#[test]
fn drain_is_no_news_for_long_where_the_rate_varies() {
    let due = |falls, after_us| {
        let mut state = RawFsat { falls, rtt_low_us: 1, ..standing(0) };
        state.on_ack(&config(Additions::DRAIN), &full_ack(after_us, 200_000));
        state.draining != 0
    };
    assert!(due(6553, SECOND) && !due(6554, SECOND));
    assert!(!due(6554, 16 * TICK - 1) && due(6554, 16 * TICK));
}

#[test]
fn drain_is_due_the_later_the_more_of_them_brought_nothing_new() {
    let due = |state: RawFsat, after_us| {
        let found = RawFsat { rtt_found_us: 100_000, rtt_low_us: 1, period_start_us: after_us - 1, ..state };
        let mut state = RawFsat { rtt_known: KNOWN, rtt_least_us: 100_000, ..found };
        state.on_ack(&config(Additions::DRAIN), &ack(after_us, 200_000, 40_000));
        state.draining != 0
    };
    let ours = RawFsat { high_us: [800_000, 0], ..standing(0) };
    let ticks = |quiet: u32| {
        (0..6).map(|power| 1 << power).find(|ticks| due(RawFsat { quiet, ..ours }, ticks * TICK))
    };
    assert_eq!([ticks(0), ticks(1), ticks(2), ticks(3)], [Some(2), Some(4), Some(4), Some(8)]);
    assert_eq!([ticks(6), ticks(7), ticks(u32::MAX)], [Some(8), Some(16), Some(16)]);
    assert!(!due(ours, 2 * TICK - 1));
    let every = |other: RawFsat| (0..7).map(|power| 1 << power).find(|ticks| due(other, ticks * TICK));
    assert_eq!(every(RawFsat { sole: 1, ..ours }), Some(32), "who came alone");
    let lossy = |ticks| {
        let lost_us = ticks * TICK - 23_000_000;
        due(RawFsat { losses_congestion: 1, lost_us, ..ours }, ticks * TICK)
    };
    assert_eq!((lossy(32), lossy(64)), (false, true), "others fill the buffer");
    assert_eq!(every(RawFsat { high_us: [800_008, 0], ..ours }), Some(64));
}

#[test]
fn drain_is_due_soon_once_others_have_left_a_queue_of_theirs() {
    let due = |level_periods, rtt_min_us| {
        let full =
            RawFsat { high_us: [1_600_016, 0], rtt_least_us: 100_000, rtt_known: KNOWN, ..standing(0) };
        let found = RawFsat { rtt_found_us: rtt_min_us, rtt_min_us, rtt_low_us: 1, ..full };
        let mut state = RawFsat { level_periods, period_start_us: 2 * TICK - 1, ..found };
        state.on_ack(&config(Additions::DRAIN), &ack(2 * TICK, 2 * rtt_min_us, 40_000));
        state.draining != 0
    };
    assert_eq!([due(7, 126_000), due(8, 126_000)], [false, true]);
    assert!(!due(8, 125_000), "rtt_min is ours: whoever fills the buffer is still there");
}

#[test]
fn drain_counts_periods_in_which_what_arrives_goes_no_way_from_where_it_was() {
    let mut state = standing(0);
    let mut level = |period: u32, delivered| {
        let ack = RawAck { delivered, ..ack(100_000 * period, 150_000, 40_000) };
        state.on_ack(&config(Additions::DRAIN), &ack);
        (state.level, state.level_periods)
    };
    assert_eq!(
        [level(1, 32_000), level(2, 33_000), level(3, 31_000)],
        [(32_000, 0), (32_000, 1), (32_000, 2)]
    );
    assert_eq!(level(4, 33_001), (33_001, 0), "a 32nd from the first of them, be it little from the last");
    let arrived = |period_app_limited| {
        let mut state = RawFsat { level: 20_000, level_periods: 9, period_app_limited, ..standing(0) };
        let ack = RawAck { delivered: 20_000, ..ack(100_000, 150_000, 40_000) };
        state.on_ack(&config(Additions::DRAIN), &ack);
        state.level_periods
    };
    assert_eq!([arrived(0), arrived(1)], [10, 0], "the application's rate says nothing");
}

#[test]
fn drain_takes_no_short_buffer_for_a_rate_that_varies() {
    let joins = |losses_congestion, high_us| {
        let found = RawFsat { rtt_found_us: 100_000, rtt_known: KNOWN, rtt_low_us: 1, ..standing(0) };
        let falls = RawFsat { falls: 65_536, losses_congestion, high_us: [0, high_us], ..found };
        let mut state = RawFsat { rtt_least_us: 100_000, ..falls };
        state.on_ack(&config(Additions::DRAIN), &full_ack(3_000_000, 170_000));
        state.draining == SHALLOW
    };
    assert!(joins(1, 300_002), "in one of two BDP at most RTT falls whenever flows lose something");
    assert!(!joins(1, 300_003), "it is deeper");
    assert!(!joins(0, 300_002), "nothing was lost");
}

#[test]
fn drain_that_empties_a_long_queue_counts_as_falls() {
    let falls = |state: RawFsat, begun_us| {
        let due = RawFsat { falls: 1000, foreign: 8, drained_us: 0u32.wrapping_sub(2_000_000), ..state };
        let mut state = RawFsat { rtt_found_us: 100_000, rtt_low_us: begun_us, ..due };
        for (now_us, rtt_us) in [(10_000, begun_us), (20_000, 112_000), (90_000, 112_000)] {
            state.on_ack(&config(Additions::DRAIN), &ack(now_us, rtt_us, 1000));
            assert!(now_us > 10_000 || state.draining != 0);
        }
        assert_eq!((state.draining, state.rtt_known), (0, KNOWN));
        state.falls
    };
    let known = RawFsat { rtt_known: KNOWN, ..standing(0) };
    assert_eq!(falls(known, 800_008), 1000 + 32_768, "more than eight times rtt_min, and rtt_min is seen");
    assert_eq!(falls(known, 800_007), 1000);
    assert_eq!(falls(standing(0), 800_008), 1000 + 32_768, "a deep one ends when RTT falls no more");
    assert_eq!(falls(RawFsat { s: 12_000, ..known }, 800_008), 1000, "in a crowd others may drain too");
}

#[test]
fn drain_is_not_due_by_rtt_where_the_rate_varies() {
    let due = |falls, rtt_us, foreign| {
        let known = RawFsat { rtt_found_us: 100_000, rtt_known: KNOWN, rtt_low_us: 1, ..standing(0) };
        let mut state = RawFsat { falls, undrained: 0, foreign, period_rtt_us: 210_000, ..known };
        state.on_ack(&config(Additions::DRAIN), &full_ack(3_000_000, rtt_us));
        state.draining == SHALLOW
    };
    assert!(due(6553, 170_000, 0) && due(6553, 210_000, 7), "others drain, or it is others' queue");
    assert!(!due(6554, 170_000, 0) && !due(6554, 210_000, 7));
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
fn drain_is_not_due_before_anything_queued() {
    let mut state = RawFsat { filled: 1, ..standing(0) }; // or it would be spared
    for n in 0..1000 {
        state.on_ack(&config(Additions::DRAIN), &ack(10_000 * n, 105_000, 40_000));
    }
    assert_eq!(state.drains, 0);
    state.rtt_low_us = 1; // so that the last RTTs are no news
    assert_eq!(
        until(&mut state, 10_000_000, 180_000, 40_000, SHALLOW),
        2_590_000,
        "at 12,582,912, the first tick that is one after the last of them"
    );
}

#[test]
fn drain_takes_the_least_rtt_for_others_drain_but_not_on_a_longer_route() {
    let next = |rtt_known, s| {
        let found = RawFsat { rtt_known, s, rtt_found_us: 160_000, rtt_low_us: 160_000, ..standing(0) };
        let mut state = RawFsat { filled: 1, ..found };
        let mut last = 0;
        while state.draining == 0 && last < 8_000_000 {
            last += 10_000;
            state.on_ack(&config(Additions::DRAIN), &ack(last, 160_000, 40_000));
            (state.steady, state.s, state.rcv_bytes) = (0, s, 20_000);
        }
        last
    };
    assert_eq!(next(DOUBTED, 20_000), 4_200_000, "no queue makes it: the route is longer");
    assert_eq!(next(DOUBTED, 16_000), 8_000_000, "few segments: others may have drained");
    assert_eq!(next(UNKNOWN, 20_000), 8_000_000);
}

#[test]
fn drain_is_due_when_rtt_stays_longer_than_our_queue_makes_it() {
    let first_drain = |rtt_min_us, rtt_us| {
        let known = RawFsat { rtt_found_us: rtt_min_us, rtt_known: KNOWN, quiet: 7, ..standing(0) };
        let path = RawFsat { rtt_min_us, rtt_least_us: rtt_min_us, rtt_usual_us: rtt_us, ..known };
        until(&mut RawFsat { rtt_low_us: 1, ..path }, 0, rtt_us, 40_000, SHALLOW)
    };
    let half = "half a tick; two segments are 10 ms, the BDP being 20 kB";
    assert_eq!(first_drain(100_000, 221_000), 1_050_000, "{half}");
    assert_eq!(first_drain(131_072, 290_000), 1_120_000, "the first ACK after eight periods");
    assert_eq!(first_drain(131_073, 290_000), 4_200_000, "two ticks");
    assert_eq!(first_drain(100_000, 200_000), 33_560_000, "sixteen: the queue is ours");
}

#[test]
fn drain_is_due_where_the_bdp_has_grown_by_half() {
    let due = |drained_s, now_us, losses_radio, falls| {
        let known = RawFsat { rtt_found_us: 100_000, rtt_known: KNOWN, rtt_low_us: 1, ..standing(0) };
        let mut state = RawFsat { drained_s, losses_radio, falls, period_start_us: TICK - 10_000, ..known };
        state.on_ack(&config(Additions::DRAIN), &ack(now_us, 200_000, 40_000));
        state.draining != 0
    };
    assert!(due(13_333, TICK, 0, 6553) && !due(13_334, TICK, 0, 6553));
    assert!(!due(13_333, TICK - 1, 0, 0) && !due(0, TICK, 0, 0), "not at once, nor before the first");
    assert!(!due(13_333, TICK, 1, 0) && !due(13_333, TICK, 0, 6554));
}

#[test]
fn drain_is_due_at_first_also_where_the_buffer_is_full_from_the_begin() {
    let drains = |losses_radio| {
        let mut state = RawFsat { losses_radio, rtt_low_us: 1, ..standing(0) };
        for n in 0..421 {
            state.target = NO_LIMIT;
            state.on_ack(&config(Additions::DRAIN), &ack(10_000 * n, 105_000, 40_000));
        }
        state.drains
    };
    assert_eq!((drains(0), drains(1)), (0, 1), "always near rtt_min; there were losses");
}

#[test]
fn drain_does_not_lift_the_limit_for_a_moment() {
    let lifted_at = |rtt_found_us, falls, delivered| {
        let dry = RawFsat { period_flight: delivered, s: delivered, rtt_low_us: 1, ..standing(0) };
        let mut state = RawFsat { rtt_found_us, falls, ..dry };
        (1..9).find(|period| {
            let all = RawAck { flight: delivered, delivered, ..full_ack(100_000 * period, 100_000) };
            state.on_ack(&config(Additions::DRAIN), &all);
            state.target == NO_LIMIT
        })
    };
    let three = "periods in a row in which nothing queued";
    assert_eq!([lifted_at(100_000, 0, 20_000), lifted_at(100_000, 0, 1251)], [Some(3); 2], "{three}");
    assert_eq!(lifted_at(0, 0, 20_000), Some(1), "before any drain");
    assert_eq!([lifted_at(100_000, 7000, 20_000), lifted_at(100_000, 0, 1250)], [Some(1); 2]);
}

#[test]
fn drain_leaves_the_less_room_the_more_of_others_queues() {
    let target = |rtt_usual_us, rtt_known, falls, losses_congestion| {
        let seen = RawFsat { rtt_usual_us, rtt_known, falls, losses_congestion, ..standing(0) };
        let mut state = RawFsat { target: 2000, ..seen };
        state.on_ack(&config(Additions::DRAIN), &full_ack(10_000, 200_000));
        state.target
    };
    let filled =
        [200_000, 250_000, 300_000, 900_000].map(|rtt_usual_us| target(rtt_usual_us, KNOWN, 6553, 1));
    assert_eq!(filled, [40_000, 30_000, 20_000, 20_000], "(8): twice what arrived, once, and between");
    let alone = [162_500, 231_250, 300_000].map(|rtt_usual_us| target(rtt_usual_us, KNOWN, 6553, 0));
    assert_eq!(alone, [40_000, 30_000, 20_000], "nobody fills the buffer");
    assert_eq!(
        [target(300_000, DOUBTED, 0, 0), target(300_000, UNKNOWN, 0, 0), target(300_000, KNOWN, 6554, 0)],
        [40_000; 3]
    );
}

#[test]
fn drain_leaves_no_room_for_what_arrived_by_chance() {
    let target = |rtt_usual_us, s, falls| {
        let seen = RawFsat { rtt_usual_us, rtt_known: KNOWN, s, dev: 3000, falls, ..standing(0) };
        let mut state = RawFsat { target: 2000, ..seen };
        state.on_ack(&config(Additions::DRAIN), &full_ack(10_000, 200_000));
        state.target
    };
    let counted = [12_000, 17_000, 18_000].map(|s| target(300_000, s, 0));
    assert_eq!(counted, [15_000, 20_000, 20_000], "mean and deviation, at most what arrived");
    assert_eq!(target(231_250, 12_000, 0), 22_500, "half of it on top, between 13/8 and three times rtt_min");
    let all = [target(162_500, 12_000, 0), target(300_000, 12_000, 6554)];
    assert_eq!(all, [40_000; 2], "not while the queue may be ours alone, nor where the rate varies");
}

#[test]
fn drain_that_found_more_takes_falls_for_others() {
    let falls = |rtt_us| {
        let found = RawFsat { draining: DEEP, drain_rcv_bytes: 20_000, rtt_found_us: 100_000, ..standing(0) };
        let mut state = RawFsat { falls: 6000, ..found };
        until(&mut state, 100_000, rtt_us, 3500, 0);
        state.falls
    };
    assert_eq!((falls(114_285), falls(114_286)), (6000, 0), "by more than an eighth of it");
}

#[test]
fn drain_does_not_follow_what_arrives_where_that_says_nothing_of_the_next_period() {
    // 8000 bytes less than the mean arrive, after `arrived` in the last period.
    let state = |falls, s, arrived| {
        let slow = RawFsat { s, away: 8000, apart: 8000, falls, arrived, ..standing(0) };
        let mut state = RawFsat { target: 2000, rtt_low_us: 1, ..slow };
        let ack = RawAck { delivered: s - 8000, ..full_ack(100_000, 200_000) };
        state.on_ack(&config(Additions::DRAIN), &ack);
        state
    };
    let [less, same] = [15_999, 16_000].map(|arrived| state(6554, 16_000, arrived));
    assert_eq!((less.away, less.apart, same.apart), (8000, 7999, 8000), "an eighth for the new one");
    assert_eq!(same.target, 47_000, "the mean 15,000 and four times 8000");
    assert_eq!(less.target, 15_000 + 4 * 2000, "(9): dev is a quarter of 8000");
    assert_eq!(state(6553, 16_000, 16_000).target, 16_000, "the rate does not vary");
    assert_eq!(state(6554, 32_000, 32_000).target, 31_000 + 32_000, "thirty-two segments");
    assert_eq!(
        state(6554, 34_000, 34_000).target,
        33_000 + 4 * 2000,
        "more: by (8) 52,000, and all of the way back"
    );
}

#[test]
fn drain_keeps_on_top_what_periods_differ_by_where_the_rate_varies() {
    let target = |falls| {
        let flow = RawFsat { falls, dev: 5000, arrived: 20_000, away: 1600, apart: 800, ..standing(0) };
        let mut state = RawFsat { rtt_low_us: 1, rtt_found_us: 1, ..flow };
        state.on_ack(&config(Additions::DRAIN), &full_ack(100_000, 200_000));
        state.target
    };
    // 20,000 bytes arrived, as ever: dev is 3750 now, apart 700. By (9) and (7) from 40,000 towards what is on top.
    assert_eq!(target(6553), (40_000 + 35_000) / 2);
    assert_eq!(target(6554), 20_000 + 2 * 700, "and at once");
}

#[test]
fn drain_knows_a_link_that_varies_and_space_falls_by_all_that_arrives() {
    let space = |falls, s, rtt_us| {
        let mut state = RawFsat { falls, s, target: 30_000, rtt_low_us: 1, rtt_found_us: 1, ..standing(0) };
        state.on_ack(&config(Additions::DRAIN), &ack(10_000, rtt_us, 40_000));
        state.space
    };
    assert_eq!(space(6554, 20_000, 300_003), 38_000, "RTT is more than three times rtt_min");
    assert_eq!(space(6554, 20_000, 300_002), 39_000);
    assert_eq!(space(6553, 20_000, 300_003), 39_000);
    assert_eq!(space(6554, 16_000, 300_003), 39_000, "sixteen segments");
}

#[test]
fn drain_lets_rtt_say_what_queues() {
    // 20 kB in flight, 20 kB arrive: by (5) nothing waits.
    let target = |additions, least_rtt_us| {
        let mut state = RawFsat { period_rcv_bytes: 18_000, period_flight: 20_000, ..standing(0) };
        state.period_rtt_us = least_rtt_us;
        state.on_ack(&config(additions), &ack(100_000, 200_000, 20_000));
        state.target
    };
    assert_eq!(target(Additions::DRAIN, 150_000), NO_LIMIT);
    assert_eq!(target(Additions::DRAIN, 150_002), 30_000, "halfway to s of 20 kB, (7)");
    assert_eq!(target(Additions::PAPER, NO_LIMIT), NO_LIMIT);
}

#[test]
fn drain_takes_two_segments_for_chance_as_far_as_ours_can_be() {
    // 2 kB within an rtt_min of 100 ms: two segments of 1 kB would take that long, if the link were ours.
    let chance = |steady| {
        let mut state = RawFsat { arrived: 2000, steady, ..standing(0) };
        state.on_ack(&config(Additions::DRAIN), &ack(100_000, 200_000, 40_000));
        state.two_segments_us
    };
    assert_eq!((chance(7), chance(6)), (100_000, 40_000), "else no longer than an ACK is delayed");
}

#[test]
fn drain_goes_back_in_a_crowd_to_no_more_than_is_usual() {
    let began = |s| {
        let mut state = RawFsat { rtt_low_us: 1, s, period_start_us: SECOND - 1, ..standing(0) };
        state.on_ack(&config(Additions::DRAIN), &ack(SECOND, 200_000, 40_000));
        state.drain_rcv_bytes
    };
    assert_eq!((began(16_000), began(18_000)), (16_000, 20_000), "of the last period's 20 kB");
}
