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
        let config = LinkConfig { delay, jitter: Jitter::Uniform(jitter), ..LinkConfig::default() };
        let took = one_frame_arrival(config, seed, now, 100) - now;
        prop_assert!((delay..=delay + jitter).contains(&took));
    }

    /// A policer passes its burst and its rate over any time, and holds no frame.
    #[test]
    fn a_policer_drops_what_exceeds_and_holds_nothing(kbps in 50u64..700, frames in 2u64..30, seed: u64) {
        let policer = PolicerConfig { rate: Bitrate::from_bps(1000 * kbps), burst: ByteCount(100 * frames) };
        let config = LinkConfig { policer: Some(policer), delay: ms(7), ..LinkConfig::default() };
        let (arrivals, link) = run(config, seed, MANY); // 800 kbit/s
        prop_assert!(arrivals.iter().all(|(arrival, frame)| *arrival == ms(number(frame) + 7)));
        let passed = frames + (MANY as u64 - 1) * kbps / 800;
        prop_assert!(arrivals.len() as u64 <= passed && arrivals.len() as u64 + 1 >= passed);
        prop_assert_eq!(link.stats().policer_dropped.frames.get(), (MANY - arrivals.len()) as u64);
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

/// Half-normal: the mean is σ √(2/π), the variance σ² (1 − 2/π); order is kept or not as was asked.
#[test]
fn half_normal_jitter_has_its_mean_and_keeps_order_where_asked() {
    let lateness = |(arrival, frame): &(Duration, Vec<u8>)| *arrival - ms(5) - ms(number(frame));
    for (seed, sigma) in [(1, 2), (2, 9), (3, 30)] {
        let jitters = [Jitter::HalfNormal(ms(sigma)), Jitter::HalfNormalReordering(ms(sigma))];
        for (jitter, keeps_order) in jitters.into_iter().zip([true, false]) {
            let (arrivals, _) = run(LinkConfig { jitter, delay: ms(5), ..LinkConfig::default() }, seed, MANY);
            let late: Duration = arrivals.iter().map(lateness).sum();
            let mean = late.as_secs_f64() / MANY as f64 / ms(sigma).as_secs_f64();
            let (expected, allowed) = (0.798, 6.0 * 0.603 / (MANY as f64).sqrt());
            // Frames that wait for a late one are later in the mean.
            assert_eq!(mean > expected + allowed, keeps_order, "{mean}");
            assert!(arrivals.len() == MANY && mean > expected - allowed, "{mean}");
            assert_eq!(arrivals.is_sorted_by_key(|(_, frame)| number(frame)), keeps_order);
        }
    }
}

#[test]
fn frames_have_the_delay_of_their_time_and_keep_order() {
    let delay_steps = vec![(ms(3), ms(20)), (ms(2), ms(16)), (ms(5), ms(30))];
    let config = LinkConfig { delay: ms(1), delay_steps, ..LinkConfig::default() };
    let times: Vec<_> = run(config, 1, 13).0.iter().map(|(arrival, _)| arrival.as_millis()).collect();
    assert_eq!(times, [20, 21, 22, 22, 22, 35, 36, 37, 38, 39, 39, 39, 39]);
}

/// A window of 100 packets of 1 ms each, as long as none is lost, and half of it after a loss: what waits at the end.
#[test]
fn a_managed_queue_stays_short() {
    let waits = |aqm| {
        let capacity = Capacity::Fixed(Bitrate::from_mbps(8.0));
        let mut link = Link::new(LinkConfig { capacity, aqm, ..LinkConfig::default() }, 1);
        let (mut window, mut lost, mut now) = (100_u64, 0, Duration::ZERO);
        let mut middle = QueueStats::default();
        while now < Duration::from_secs(20) {
            now += ms(1);
            while link.poll(now).is_some() {}
            let stats = *link.stats();
            let dropped = stats.queue_dropped.frames.get();
            window = if dropped > lost { (window / 2).max(2) } else { window };
            lost = dropped;
            let under_way = stats.offered.frames.get() - stats.delivered.frames.get() - dropped;
            (under_way..window).for_each(|_| link.send(now, vec![0; 1000]));
            window += u64::from(now.as_nanos().is_multiple_of(50_000_000));
            if now == Duration::from_secs(10) {
                middle = link.queue_stats(now);
            }
        }
        link.queue_stats(now).since(&middle).sojourn(50.0).unwrap()
    };
    assert!(waits(None) > ms(100));
    assert!(waits(Some(Aqm::CODEL)) < ms(15), "{:?}", waits(Some(Aqm::CODEL)));
    assert!(waits(Some(Aqm::PIE)) < ms(25), "{:?}", waits(Some(Aqm::PIE)));
}

#[test]
fn a_rate_steps_at_its_times_and_around_again() {
    let fast_then_slow = [(ms(10), 8.0), (ms(20), 0.8)].map(|(time, mbps)| (time, Bitrate::from_mbps(mbps)));
    let trace = Trace::steps(&fast_then_slow).unwrap();
    let config = LinkConfig { capacity: Capacity::Trace(trace.into()), ..LinkConfig::default() };
    let calls = vec![(ms(0), Call::Send(vec![0; 1000])); 14];
    let times: Vec<_> = polled_late(&config, 0, &calls).0.iter().map(|(time, _)| time.as_millis()).collect();
    assert_eq!(times, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 31, 32]);
    assert_eq!(Trace::steps(&[(ms(0), Bitrate::from_mbps(1.0))]), Err(TraceError::Empty));
    assert_eq!(Trace::steps(&[(ms(1), Bitrate::from_bps(0))]), Err(TraceError::Idle));
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
    let other =
        LinkConfig { jitter: Jitter::Uniform(ms(3)), corrupt: p(0.1), duplicate: p(0.1), ..lossy.clone() };
    let lost = |config| run(config, 7, 1000).1.stats().lost;
    assert_eq!(lost(lossy), lost(other));
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
