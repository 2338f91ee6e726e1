//! What holds for every link, whatever it is asked to do.

mod common;

use std::time::Duration;

use common::*;
use link::*;
use proptest::prelude::*;

/// All that arrives if the link is polled exactly when it asks to be, checking that it asks in time.
fn polled_on_time(config: &LinkConfig, seed: u64, calls: &[(Duration, Call)]) -> Arrivals {
    let mut link = Link::new(config.clone(), seed);
    let mut arrivals = Vec::new();
    for (now, call) in calls.iter().cloned() {
        poll_until(&mut link, now, &mut arrivals);
        apply(&mut link, now, call);
    }
    poll_until(&mut link, Duration::from_secs(3600), &mut arrivals);
    assert_eq!(link.poll_timeout(), None, "something is left after an hour");
    arrivals
}

fn poll_until(link: &mut Link, end: Duration, arrivals: &mut Arrivals) {
    let mut last = Duration::ZERO;
    while let Some(now) = link.poll_timeout().filter(|now| *now <= end) {
        assert!(now >= last, "asked to be polled in the past");
        last = now;
        while let Some((arrival, frame)) = link.poll(now) {
            assert_eq!(arrival, now, "a frame arrived before the link asked to be polled");
            arrivals.push((arrival, frame));
        }
    }
}

fn total(tallies: &[Tally]) -> (u64, u64) {
    (tallies.iter().map(|t| t.frames.get()).sum(), tallies.iter().map(|t| t.bytes.get()).sum())
}

/// Where a blackout cuts off a long frame, and the short one behind it arrives before the long one would have left.
#[test]
fn a_frame_behind_a_cut_off_one_is_asked_for_in_time() {
    let config = LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_bps(1_000_000)),
        blackouts: vec![ms(1)..ms(2)],
        ..LinkConfig::default()
    };
    let calls: Vec<_> = [1500, 100].map(|bytes| (ms(0), Call::Send(vec![0; bytes]))).into();
    let arrivals = polled_on_time(&config, 0, &calls);
    assert_eq!(arrivals, [(ms(2) + Duration::from_micros(800), vec![0; 100])]);
}

proptest! {
    /// Same seed, same calls: same bytes at the same times, whenever the link is polled.
    #[test]
    fn polling_changes_nothing(config in config(), seed: u64, calls in calls()) {
        let on_time = polled_on_time(&config, seed, &calls);
        let (late, _) = polled_late(&config, seed, &calls);
        prop_assert_eq!(on_time, late);
    }

    /// What waited is known exactly, however seldom it is asked for.
    #[test]
    fn asking_for_the_queue_changes_nothing(config in config(), seed: u64, calls in calls()) {
        let (mut asked, mut unasked) = (Link::new(config.clone(), seed), Link::new(config, seed));
        let mut time = Duration::ZERO;
        for (now, call) in calls {
            for step in [1, 2] {
                asked.queue_stats(time + (now - time) * step / 2);
            }
            time = now;
            apply(&mut asked, now, call.clone());
            apply(&mut unasked, now, call);
        }
        let end = Duration::from_secs(3600);
        prop_assert_eq!(asked.queue_stats(end), unasked.queue_stats(end));
    }

    #[test]
    fn every_frame_is_counted_once(config in config(), seed: u64, calls in calls()) {
        let (arrivals, link) = polled_late(&config, seed, &calls);
        let s = link.stats();
        let sent = calls.iter().filter(|(_, call)| matches!(call, Call::Send(_))).count();
        prop_assert_eq!(s.offered.frames.get(), sent as u64);
        prop_assert_eq!(s.delivered.frames.get(), arrivals.len() as u64);
        let into = total(&[s.offered, s.duplicated]);
        let out = total(&[s.delivered, s.lost, s.policer_dropped, s.queue_dropped, s.blackout_dropped]);
        prop_assert_eq!(into, out);
        prop_assert_eq!(s.queue, Tally::default());
    }

    #[test]
    fn arrivals_never_go_back(config in config(), seed: u64, calls in calls()) {
        let (arrivals, _) = polled_late(&config, seed, &calls);
        prop_assert!(arrivals.is_sorted_by_key(|(arrival, _)| *arrival));
    }

    #[test]
    fn order_is_kept_unless_reordering_is_asked_for(mut config in config(), seed: u64, calls in calls()) {
        config.reorder = None;
        if matches!(config.jitter, Jitter::HalfNormalReordering(_)) {
            config.jitter = Jitter::None;
        }
        config.corrupt = Probability::ZERO;
        let (arrivals, _) = polled_late(&config, seed, &calls);
        let numbers = arrivals.iter().filter_map(|(_, frame)| frame.first());
        prop_assert!(numbers.is_sorted());
    }

    #[test]
    fn the_queue_keeps_its_limit(config in config(), seed: u64, calls in calls()) {
        let (_, link) = polled_late(&config, seed, &calls);
        let (used, limit) = match config.queue {
            Queue::Packets(limit) => (link.stats().queue_max_frames.get(), limit),
            Queue::Bytes(limit) => (link.stats().queue_max_bytes.get(), limit),
        };
        prop_assert!(used <= limit as u64);
    }

    /// The link cannot be up and carry in a blackout: what is sent then is dropped.
    #[test]
    fn nothing_sent_in_a_blackout_arrives(mut config in config(), seed: u64, start in micros(50_000)) {
        let blackout = start..start + ms(30);
        config.blackouts = vec![blackout.clone()];
        config.corrupt = Probability::ZERO;
        let calls: Vec<_> = (0..100).map(|n| (ms(n), Call::Send(vec![n as u8; 100]))).collect();
        let (arrivals, link) = polled_late(&config, seed, &calls);
        let sent = |frame: &[u8]| ms(u64::from(frame[0]));
        prop_assert!(arrivals.iter().all(|(_, frame)| !blackout.contains(&sent(frame))));
        prop_assert!(link.stats().blackout_dropped.frames.get() >= 30);
    }
}
