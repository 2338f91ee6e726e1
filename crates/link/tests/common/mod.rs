//! Random links, and ways to drive one.

#![allow(dead_code, reason = "every test file uses a part")]

use std::time::Duration;

use link::*;
use proptest::collection::vec;
use proptest::prelude::*;

pub type Arrivals = Vec<(Duration, Vec<u8>)>;

/// What a caller does to a link, in the order of time.
#[derive(Debug, Clone)]
pub enum Call {
    Send(Vec<u8>),
    Up(bool),
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn p(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

pub fn micros(max: u64) -> impl Strategy<Value = Duration> {
    (0..=max).prop_map(Duration::from_micros)
}

pub fn probability(max: f64) -> impl Strategy<Value = Probability> {
    (0.0..=max).prop_map(p)
}

pub fn trace() -> impl Strategy<Value = Trace> {
    let mahimahi = vec(0u64..50, 1..40).prop_map(|mut stamps| {
        stamps.sort_unstable();
        stamps.push(50);
        let text: Vec<_> = stamps.iter().map(u64::to_string).collect();
        Trace::from_mahimahi(&text.join("\n")).unwrap()
    });
    let rates = vec((1u32..100, 0u32..50), 1..20).prop_map(|pairs| {
        let mut time = 0;
        let mut text = String::from("0 1\n");
        for (step, rate) in pairs {
            time += step;
            text.push_str(&format!("{} {rate}\n", f64::from(time) / 1e3));
        }
        Trace::from_seconds_mbps(&text).unwrap()
    });
    prop_oneof![mahimahi, rates]
}

pub fn capacity() -> impl Strategy<Value = Capacity> {
    prop_oneof![
        Just(Capacity::Unlimited),
        (100_000u64..1_000_000_000).prop_map(|bps| Capacity::Fixed(Bitrate::from_bps(bps))),
        trace().prop_map(|trace| Capacity::Trace(trace.into())),
    ]
}

pub fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        probability(1.0).prop_map(Loss::Bernoulli),
        (probability(0.4), 1.0f64..10.0).prop_map(|(l, b)| Loss::gilbert_elliott(l, b).unwrap()),
    ]
}

fn delay_steps() -> impl Strategy<Value = Vec<(Duration, Duration)>> {
    vec((micros(30_000), micros(50_000)), 0..4)
}

fn jitter() -> impl Strategy<Value = Jitter> {
    (micros(5_000), 0..4).prop_map(|(time, kind)| match kind {
        0 => Jitter::None,
        1 => Jitter::Uniform(time),
        2 => Jitter::HalfNormal(time),
        _ => Jitter::HalfNormalReordering(time),
    })
}

fn policer() -> impl Strategy<Value = Option<PolicerConfig>> {
    let policer = (0u64..10_000_000, 0u64..20_000)
        .prop_map(|(bps, burst)| PolicerConfig { rate: Bitrate::from_bps(bps), burst: ByteCount(burst) });
    proptest::option::of(policer)
}

fn blackouts() -> impl Strategy<Value = Vec<std::ops::Range<Duration>>> {
    vec((micros(100_000), micros(20_000)).prop_map(|(start, length)| start..start + length), 0..4)
}

prop_compose! {
    /// A link with any impairment.
    pub fn config()(
        (capacity, delay, delay_steps) in (capacity(), micros(50_000), delay_steps()),
        (jitter, policer) in (jitter(), policer()),
        (loss, loss_after_queue) in (loss(), any::<bool>()),
        reorder in proptest::option::of((probability(0.5), micros(10_000))),
        (duplicate, corrupt) in (probability(0.3), probability(0.3)),
        queue in prop_oneof![(0usize..20).prop_map(Queue::Packets), (0usize..20_000).prop_map(Queue::Bytes)],
        blackouts in blackouts(),
        arq in proptest::option::of((0u32..5, micros(8_000))),
    ) -> LinkConfig {
        let reorder = reorder.map(|(probability, extra_delay)| Reorder { probability, extra_delay });
        let arq = arq.map(|(attempts, retry_delay)| Arq { attempts, retry_delay });
        LinkConfig {
            capacity, delay, delay_steps, jitter, reorder, loss, loss_after_queue, duplicate, corrupt, policer, queue,
            blackouts, arq, aqm: link::Aqm::None,
        }
    }
}

/// Up to 60 calls within about 100 ms, with frames of up to 1500 bytes, numbered in their first byte. The
/// last call restores the link.
pub fn calls() -> impl Strategy<Value = Vec<(Duration, Call)>> {
    let call = prop_oneof![
        8 => (0usize..1500).prop_map(|size| Call::Send(vec![0; size])),
        1 => any::<bool>().prop_map(Call::Up),
    ];
    vec((micros(3_000), call), 1..60).prop_map(|steps| {
        let mut now = Duration::ZERO;
        let mut calls = Vec::new();
        for (number, (step, mut call)) in steps.into_iter().enumerate() {
            now += step;
            if let Call::Send(frame) = &mut call
                && let Some(first) = frame.first_mut()
            {
                *first = number as u8;
            }
            calls.push((now, call));
        }
        calls.push((now, Call::Up(true)));
        calls
    })
}

pub fn apply(link: &mut Link, now: Duration, call: Call) {
    match call {
        Call::Send(frame) => link.send(now, frame),
        Call::Up(up) => link.set_up(now, up),
    }
}

/// All that arrives if nothing is polled before everything was sent.
pub fn polled_late(config: &LinkConfig, seed: u64, calls: &[(Duration, Call)]) -> (Arrivals, Link) {
    let mut link = Link::new(config.clone(), seed);
    for (now, call) in calls.iter().cloned() {
        apply(&mut link, now, call);
    }
    let arrivals = drain(&mut link);
    (arrivals, link)
}

/// All that is still to arrive.
pub fn drain(link: &mut Link) -> Arrivals {
    let hour = Duration::from_secs(3600);
    std::iter::from_fn(|| link.poll(hour)).collect()
}
