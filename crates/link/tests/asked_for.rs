//! Rate, delay, loss and the other impairments against what was asked for.

mod common;

use std::time::Duration;

use common::*;
use link::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Frames for a statistical test.
const MANY: usize = 20_000;

/// Sends `count` frames of 100 bytes, 1 ms apart.
fn run(config: LinkConfig, seed: u64, count: usize) -> (Arrivals, Link) {
    let calls: Vec<_> = (0..count as u64).map(|n| (ms(n), Call::Send(numbered(n)))).collect();
    polled_late(&config, seed, &calls)
}

fn numbered(number: u64) -> Vec<u8> {
    let mut frame = vec![0; 100];
    frame[..8].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[..8].try_into().unwrap())
}

/// Whether `count` of `MANY` is what `share` asks for: within six standard deviations, the variance being
/// `inflation` times that of independent decisions.
fn is_share(count: u64, share: f64, inflation: f64) -> bool {
    let n = MANY as f64;
    let allowed = 6.0 * (share * (1.0 - share) * n * inflation).sqrt() + 1.0;
    (count as f64 - share * n).abs() <= allowed
}

fn one_frame_arrival(config: LinkConfig, seed: u64, now: Duration, bytes: usize) -> Duration {
    let mut link = Link::new(config, seed);
    link.send(now, vec![0; bytes]);
    drain(&mut link)[0].0
}

proptest! {
    /// A backlogged link is never idle and never faster than its rate.
    #[test]
    fn the_rate_is_kept(bps in 10_000u64..10_000_000_000, sizes in vec(1usize..1600, 1..200)) {
        let rate = Bitrate::from_bps(bps);
        let config = LinkConfig { capacity: Capacity::Fixed(rate), ..LinkConfig::default() };
        let calls: Vec<_> = sizes.iter().map(|size| (ms(5), Call::Send(vec![0; *size]))).collect();
        let (arrivals, _) = polled_late(&config, 0, &calls);
        let mut bytes = 0;
        for (count, (arrival, frame)) in (1..).zip(arrivals) {
            bytes += frame.len();
            let took = arrival - ms(5);
            prop_assert!(took >= rate.transmit_time(bytes));
            prop_assert!(took <= rate.transmit_time(bytes) + Duration::from_nanos(count));
        }
        prop_assert_eq!(bytes, sizes.iter().sum::<usize>());
    }

    #[test]
    fn delay_and_jitter_are_what_was_asked(
        delay in micros(500_000), jitter in micros(50_000), now in micros(1_000_000), seed: u64,
    ) {
        let config = LinkConfig { delay, jitter, ..LinkConfig::default() };
        let took = one_frame_arrival(config, seed, now, 100) - now;
        prop_assert!((delay..=delay + jitter).contains(&took));
    }

    #[test]
    fn bernoulli_loses_its_share(share in 0.0..=1.0, after: bool, seed: u64) {
        let loss = Loss::Bernoulli(p(share));
        let (_, link) = run(LinkConfig { loss, loss_after_queue: after, ..LinkConfig::default() }, seed, MANY);
        prop_assert!(is_share(link.stats().lost.frames.get(), share, 1.0));
    }

    #[test]
    fn gilbert_elliott_loses_its_share_in_bursts(share in 0.005f64..0.3, burst in 1.5f64..10.0, seed: u64) {
        let loss = Loss::gilbert_elliott(p(share), burst).unwrap();
        let (arrivals, link) = run(LinkConfig { loss, ..LinkConfig::default() }, seed, MANY);
        let lost = link.stats().lost.frames.get();
        prop_assert!(is_share(lost, share, 2.0 * burst));
        let gaps = arrivals.windows(2).filter(|w| number(&w[1].1) - number(&w[0].1) > 1).count() as f64;
        // A run of losses is geometric: its mean has the standard deviation burst / sqrt(runs). One run may
        // be cut off at either end.
        let measured = lost as f64 / gaps.max(1.0);
        let ends = 2.0 * 40.0 * burst / gaps.max(1.0);
        prop_assert!((measured - burst).abs() <= 6.0 * burst / gaps.sqrt() + ends, "{measured} of {burst}");
    }

    #[test]
    fn shares_of_copies_errors_and_late_frames_are_kept(share in 0.0..=0.5, seed: u64) {
        let config = LinkConfig {
            duplicate: p(share),
            corrupt: p(share),
            reorder: Some(Reorder { probability: p(share), extra_delay: Duration::from_micros(500) }),
            ..LinkConfig::default()
        };
        let (arrivals, link) = run(config, seed, MANY);
        let copies = arrivals.len() as f64 / MANY as f64;
        prop_assert!(is_share(link.stats().duplicated.frames.get(), share, 1.0));
        let errors = link.stats().corrupted.frames.get() as f64 / copies;
        prop_assert!(is_share(errors as u64, share, 1.5));
        let late = arrivals.iter().filter(|(arrival, _)| arrival.subsec_micros() % 1000 == 500).count();
        prop_assert!(is_share((late as f64 / copies) as u64, share, 1.5));
    }

    #[test]
    fn corruption_flips_one_bit(size in 1usize..200, seed: u64) {
        let mut link = Link::new(LinkConfig { corrupt: Probability::ONE, ..LinkConfig::default() }, seed);
        link.send(Duration::ZERO, vec![0; size]);
        let frame = drain(&mut link).remove(0).1;
        prop_assert_eq!(frame.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        prop_assert_eq!(frame.len(), size);
    }

    /// The loss before the queue leaves its room to others, that behind the queue does not.
    #[test]
    fn loss_sits_where_it_was_asked(queue in 0usize..50, seed: u64) {
        for after in [false, true] {
            let config = LinkConfig {
                capacity: Capacity::Fixed(Bitrate::from_mbps(1.0)),
                queue: Queue::Packets(queue),
                loss: Loss::Bernoulli(p(0.5)),
                loss_after_queue: after,
                ..LinkConfig::default()
            };
            let calls = vec![(Duration::ZERO, Call::Send(vec![0; 1000])); 300];
            let (arrivals, link) = polled_late(&config, seed, &calls);
            let carried = arrivals.len() as u64 + if after { link.stats().lost.frames.get() } else { 0 };
            prop_assert_eq!(carried, queue as u64 + 1);
        }
    }

    /// With enough attempts nothing is lost, and each repetition costs the capacity of a transmission.
    #[test]
    fn a_repeating_link_pays_with_capacity_and_delay(share in 0.0f64..0.5, count in 1usize..100, seed: u64) {
        let rate = Bitrate::from_mbps(8.0);
        let arq = Arq { attempts: 200, retry_delay: ms(5) };
        let config = LinkConfig {
            capacity: Capacity::Fixed(rate),
            loss: Loss::Bernoulli(p(share)),
            arq: Some(arq),
            ..LinkConfig::default()
        };
        let calls = vec![(Duration::ZERO, Call::Send(vec![0; 1000])); count];
        let (arrivals, link) = polled_late(&config, seed, &calls);
        prop_assert_eq!(arrivals.len(), count);
        let repeated = link.stats().repeated.frames.get();
        let last = arrivals[count - 1].0;
        let busy = rate.transmit_time(1000 * (count + repeated as usize));
        prop_assert!(last >= busy);
        prop_assert!(last <= busy + arq.retry_delay * repeated as u32);
    }
}

/// Frames of 1 ms each, sent at 0, tried at most twice, 5 ms apart, of which half the attempts fail.
fn tried_twice(count: u8, seed: u64) -> (Arrivals, Stats) {
    let config = LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(8.0)),
        loss: Loss::Bernoulli(p(0.5)),
        arq: Some(Arq { attempts: 2, retry_delay: ms(5) }),
        ..LinkConfig::default()
    };
    let calls: Vec<_> = (0..count).map(|n| (Duration::ZERO, Call::Send(vec![n; 1000]))).collect();
    let (arrivals, link) = polled_late(&config, seed, &calls);
    (arrivals, *link.stats())
}

#[test]
fn a_repetition_takes_its_time() {
    for (arrivals, stats) in (0..64).map(|seed| tried_twice(1, seed)) {
        let expected = match (stats.lost.frames.get(), stats.repeated.frames.get()) {
            (0, 0) => vec![(ms(1), vec![0; 1000])],
            (0, 1) => vec![(ms(2 + 5), vec![0; 1000])],
            (1, 1) => vec![],
            other => panic!("{other:?}"),
        };
        assert_eq!(arrivals, expected);
    }
}

#[test]
fn frames_wait_for_one_that_is_given_up() {
    let runs = (0..64).map(|seed| tried_twice(2, seed));
    let given_up = |(arrivals, stats): &(Arrivals, Stats)| {
        stats.repeated.frames == PacketCount(1) && arrivals.len() == 1 && arrivals[0].1[0] == 1
    };
    let found: Vec<_> = runs.filter(given_up).collect();
    assert!(!found.is_empty());
    assert!(found.iter().all(|(arrivals, _)| arrivals[0].0 == ms(2 + 5)));
}

#[test]
fn a_queue_in_bytes_is_filled_to_the_byte() {
    let config = LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(1.0)),
        queue: Queue::Bytes(1000),
        ..LinkConfig::default()
    };
    let sizes = [500, 600, 401, 400, 1, 0];
    let calls = sizes.map(|size| (Duration::ZERO, Call::Send(vec![0; size])));
    let (arrivals, _) = polled_late(&config, 0, &calls);
    assert_eq!(arrivals.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(), [500, 600, 400, 0]);
}

/// A frame that is cut off leaves what it would have used of the trace to others.
#[test]
fn a_cut_frees_the_capacity_of_the_frame_it_took() {
    let trace = Trace::from_mahimahi("10\n20\n").unwrap();
    let config = LinkConfig { capacity: Capacity::Trace(trace.into()), ..LinkConfig::default() };
    let calls = [
        (ms(0), Call::Send(vec![0; 3000])),
        (ms(5), Call::Up(false)),
        (ms(6), Call::Up(true)),
        (ms(6), Call::Send(vec![0; 1500])),
    ];
    assert_eq!(polled_late(&config, 0, &calls).0, [(ms(10), vec![0; 1500])]);
}

/// 1000 bytes at 8 Mbit/s take 1 ms. Frames 0 to 3 are sent at 0; the link is down from 1.5 to 10 ms.
fn cut_short(cut: bool) -> (Arrivals, Link) {
    let mut config = LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(8.0)),
        delay: ms(100),
        ..LinkConfig::default()
    };
    let (down, up) = (Duration::from_micros(1500), ms(10));
    let mut calls: Vec<_> = (0..4).map(|n| (Duration::ZERO, Call::Send(vec![n; 1000]))).collect();
    if cut {
        calls.extend([(down, Call::Up(false)), (up, Call::Up(true))]);
    } else {
        config.blackouts = vec![down..up];
    }
    polled_late(&config, 0, &calls)
}

#[test]
fn a_cut_takes_the_frame_in_transmission_and_holds_the_queue() {
    for by_hand in [false, true] {
        let (arrivals, link) = cut_short(by_hand);
        let times: Vec<_> = arrivals.iter().map(|(arrival, frame)| (arrival.as_millis(), frame[0])).collect();
        assert_eq!(times, [(101, 0), (111, 2), (112, 3)]);
        assert_eq!(link.stats().blackout_dropped.frames, PacketCount(1));
    }
}

#[test]
fn links_that_differ_in_delay_lose_the_same_frames() {
    let lossy = LinkConfig { loss: Loss::Bernoulli(p(0.3)), ..LinkConfig::default() };
    let other = LinkConfig { jitter: ms(3), corrupt: p(0.1), duplicate: p(0.1), ..lossy.clone() };
    let lost = |config| run(config, 7, 1000).1.stats().lost;
    assert_eq!(lost(lossy), lost(other));
}

/// Frames of 1 ms each, 5 ms apart, of which half are lost; every third is spared.
#[test]
fn a_spared_frame_takes_its_time_and_nobody_elses_chance() {
    let config = LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(8.0)),
        loss: Loss::Bernoulli(p(0.5)),
        ..LinkConfig::default()
    };
    let arrivals = |spares: fn(u8) -> bool| {
        let mut link = Link::new(config.clone(), 7);
        for number in 0..60 {
            let (now, frame) = (ms(5 * u64::from(number)), vec![number; 1000]);
            if spares(number) { link.send_spared(now, frame) } else { link.send(now, frame) }
        }
        let arrivals = drain(&mut link).into_iter().map(|(arrival, frame)| (arrival, frame[0]));
        arrivals.collect::<Vec<_>>()
    };
    let kept = arrivals(|_| false);
    let expected: Vec<_> = (0..60)
        .map(|number| (ms(5 * u64::from(number) + 1), number))
        .filter(|frame| frame.1 % 3 == 0 || kept.contains(frame))
        .collect();
    assert_eq!(arrivals(|number| number % 3 == 0), expected);
    assert!(kept.len() < expected.len() && expected.len() < 60);
}

#[test]
fn a_queue_is_weighted_by_time() {
    let capacity = Capacity::Fixed(Bitrate::from_bps(800_000)); // 1 ms for each frame
    let mut link = Link::new(LinkConfig { capacity, ..LinkConfig::default() }, 1);
    (0..4).for_each(|n| link.send(Duration::ZERO, numbered(n)));
    let first = link.queue_stats(Duration::from_micros(1500));
    let all = link.queue_stats(ms(6));
    // They wait 0, 1, 2 and 3 ms: three frames in the first of these, two in the second, one in the third.
    assert_eq!((first.mean_frames(), all.mean_frames()), (4.0 / 1.5, 1.0));
    assert_eq!(all.since(&first).mean_frames(), 2.0 / 4.5);
    assert_eq!(all.sojourn(50.0).unwrap().as_micros(), 1000);
    assert_eq!(all.sojourn(100.0).unwrap().as_micros(), 2976, "3 ms, to 1.6 %");
}

#[test]
fn a_link_is_idle_once_its_last_frame_is_transmitted() {
    let ms = Duration::from_millis;
    let capacity = Capacity::Fixed(Bitrate::from_bps(8_000_000));
    let mut link = Link::new(LinkConfig { capacity, delay: ms(50), ..LinkConfig::default() }, 1);
    assert_eq!(link.idle_from(), Some(Duration::ZERO));
    link.send(ms(5), vec![0; 1000]);
    assert_eq!(link.idle_from(), Some(ms(6)));
    link.send(ms(5), vec![0; 1000]);
    assert_eq!(link.idle_from(), None, "one waits");
    link.poll(ms(6));
    assert_eq!(link.idle_from(), Some(ms(7)));
}
