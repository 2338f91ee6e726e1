//! The links and rivals that `fsat` is designed on. Cellular traces are generated, never recorded ones.

use std::sync::Arc;
use std::time::Duration;

use flight::Algorithm;
use link::{
    Aqm, Bitrate, ByteCount, Capacity, CellularConfig, Jitter, Loss, Outages, PolicerConfig, Probability,
    Queue, Reorder, Trace,
};

use super::{Flow, Kind, LinkConfig, Outcome, Profile, Scenario};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A flow with FS-AT on CUBIC, or on the base alone.
pub fn flow(fsat: Option<Algorithm>, base: Kind, start: Duration, back: Duration) -> Flow {
    Flow {
        profile: Profile { fsat, base, ..Profile::default() },
        start,
        back: vec![(Duration::ZERO, back)],
        bunch: Duration::ZERO,
    }
}

/// One way of a link: `rate` in Mbit/s, `delay` ms, `queue` packets, loss in percent before the queue.
pub fn fixed(mbps: f64, delay: u64, queue: usize, loss_percent: f64) -> LinkConfig {
    LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(mbps)),
        delay: ms(delay),
        queue: Queue::Packets(queue),
        loss: bernoulli(loss_percent),
        ..LinkConfig::default()
    }
}

fn bernoulli(percent: f64) -> Loss {
    Probability::new(percent / 100.0).map_or(Loss::None, Loss::Bernoulli)
}

/// A generated cellular link, RTT 60 ms with its way back, 2000 packets of queue.
pub fn cellular(config: &CellularConfig, seed: u64, loss_percent: f64) -> LinkConfig {
    LinkConfig {
        capacity: Capacity::Trace(Arc::new(Trace::cellular(seed, config))),
        delay: ms(30),
        queue: Queue::Packets(2000),
        loss: bernoulli(loss_percent),
        ..LinkConfig::default()
    }
}

/// The paper's link: RTT 180 ms, advertised window 96 kB, initial window 3, deep buffer, 80 s.
pub fn paper(mbps: f64, loss_percent: f64, fsat: Option<Algorithm>, seed: u64) -> Scenario {
    let profile = Profile { fsat, base: Kind::Reno, initial: 3.0, rwnd: 66, ..Profile::default() };
    let flow =
        Flow { profile, start: Duration::ZERO, back: vec![(Duration::ZERO, ms(90))], bunch: Duration::ZERO };
    Scenario {
        link: fixed(mbps, 90, 1000, loss_percent),
        flows: vec![flow],
        from: Duration::ZERO,
        until: ms(80_000),
        seed,
    }
}

/// One flow on a cellular link, 60 s.
pub fn radio(mbps: f64, loss_percent: f64, fsat: Option<Algorithm>, seed: u64) -> Scenario {
    let config = CellularConfig { mean: Bitrate::from_mbps(mbps), ..CellularConfig::default() };
    on_cellular(&config, loss_percent, fsat, seed)
}

/// The same on one that is gone for 1.5 s every 15 s, on average.
pub fn outages(mbps: f64, fsat: Option<Algorithm>, seed: u64) -> Scenario {
    let outages = Some(Outages { every: ms(15_000), length: ms(1500) });
    let config = CellularConfig { mean: Bitrate::from_mbps(mbps), outages, ..CellularConfig::default() };
    on_cellular(&config, 0.0, fsat, seed)
}

/// One whose rate jumps, in the median to 2.5 times as much or as little within a second, and that is gone for 1 s every
/// 10 s, on average.
pub fn jumps(mbps: f64, fsat: Option<Algorithm>, seed: u64) -> Scenario {
    let outages = Some(Outages { every: ms(10_000), length: ms(1000) });
    let mean = Bitrate::from_mbps(mbps);
    let config = CellularConfig { mean, variation: 1.2, outages, ..CellularConfig::default() };
    on_cellular(&config, 0.0, fsat, seed)
}

/// One whose rate changes as much within 0.3 s, and that is never gone.
pub fn fast(mbps: f64, fsat: Option<Algorithm>, seed: u64) -> Scenario {
    let mean = Bitrate::from_mbps(mbps);
    let config = CellularConfig {
        mean,
        variation: 1.0,
        correlation: ms(300),
        outages: None,
        ..CellularConfig::default()
    };
    on_cellular(&config, 0.0, fsat, seed)
}

/// A way back that takes `delay` and is gone from `begin` on for `length`: what would arrive meanwhile comes at its end.
fn without(begin: Duration, length: Duration, delay: Duration) -> impl Iterator<Item = (Duration, Duration)> {
    let steps = (0..length.as_millis() as u64).step_by(5).map(ms);
    steps.map(move |at| (begin + at, length - at + delay)).chain([(begin + length, delay)])
}

fn on_cellular(config: &CellularConfig, loss_percent: f64, fsat: Option<Algorithm>, seed: u64) -> Scenario {
    Scenario {
        link: cellular(config, seed, loss_percent),
        flows: vec![flow(fsat, Kind::Cubic, Duration::ZERO, ms(30))],
        from: ms(2000),
        until: ms(62_000),
        seed,
    }
}

/// `n` flows of `kinds` in turn on 10 Mbit/s, RTT 60 ms (BDP 50 packets), starting `apart`; measured from
/// a while after the last one's start.
pub fn shared(kinds: &[Option<Algorithm>], queue: usize, apart: Duration, seed: u64) -> Scenario {
    let flows = (0u32..).zip(kinds).map(|(n, kind)| flow(*kind, Kind::Cubic, apart * n, ms(30)));
    let last = apart * (kinds.len() as u32 - 1);
    Scenario {
        link: fixed(10.0, 30, queue, 0.0),
        flows: flows.collect(),
        from: last,
        until: last + ms(90_000),
        seed,
    }
}

/// `kinds` on the lab's link: 1 Mbit/s, RTT 180 ms (BDP 15 packets), for 145 s from 5 s after the last one's start.
pub fn slow(kinds: &[Option<Algorithm>], queue: usize, starts: &[Duration], seed: u64) -> Scenario {
    let flows = starts.iter().zip(kinds).map(|(start, kind)| flow(*kind, Kind::Cubic, *start, ms(90)));
    let from = starts.iter().max().copied().unwrap_or_default() + ms(5000);
    Scenario {
        link: fixed(1.0, 90, queue, 0.0),
        flows: flows.collect(),
        from,
        until: from + ms(145_000),
        seed,
    }
}

/// `each` flows of `fsat` on the lab's link, and as many of CUBIC until `left`; measured `after` that, for so long.
pub fn left(
    fsat: Option<Algorithm>,
    each: usize,
    queue: usize,
    left: Duration,
    after: [Duration; 2],
    seed: u64,
) -> Scenario {
    let systems = in_turn(fsat, seed).repeat(each);
    let mut scenario = slow(&systems, queue, &scattered(2 * each, seed), seed);
    for flow in scenario.flows.iter_mut().filter(|flow| flow.profile.fsat.is_none()) {
        flow.profile.until = Some(left);
    }
    Scenario { from: left + after[0], until: left + after[1], ..scenario }
}

/// When `n` flows of the lab start: somewhere within 5 s, as good as at random.
pub fn scattered(n: usize, seed: u64) -> Vec<Duration> {
    let mix = |n: u64| (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (1..=n as u64).map(|flow| ms((mix(mix(mix(seed) ^ flow)) >> 33) % 5000)).collect()
}

/// One flow of `system` and one of CUBIC; which of them begins goes by the seed.
pub fn in_turn(system: Option<Algorithm>, seed: u64) -> [Option<Algorithm>; 2] {
    if seed % 2 == 1 { [system, None] } else { [None, system] }
}

/// The goodput of the one over that of CUBIC's, or of some by turns with as many, in the run of number `n`; the first run's
/// seed is odd.
pub fn share(n: usize, run: &Outcome) -> f64 {
    let [first, second] =
        [0, 1].map(|turn| run.flows.iter().skip(turn).step_by(2).map(|flow| flow.goodput).sum::<f64>());
    if n.is_multiple_of(2) { first / second } else { second / first }
}

/// A route that becomes longer, then shorter than at first: RTT 60, 160, 40 ms, 30 s each, and the last for 50 s.
pub fn route_change(fsat: Option<Algorithm>, seed: u64) -> Scenario {
    let mut flow = flow(fsat, Kind::Cubic, Duration::ZERO, ms(50));
    flow.back = vec![(Duration::ZERO, ms(50)), (ms(30_000), ms(150)), (ms(60_000), ms(30))];
    Scenario { link: fixed(10.0, 10, 1000, 0.0), flows: vec![flow], from: ms(2000), until: ms(110_000), seed }
}

// ---- The field: what is common on the Internet, and not on the paper's link ----

/// RTT of the field's links, ms, half of it on the way back.
pub const FIELD_RTT: u64 = 60;

/// What the bottleneck does with packets that it cannot send at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bottleneck {
    /// A token bucket of so many packets.
    Policer(u64),
    /// CoDel or PIE before 1000 packets, or ten BDP.
    Managed(Aqm),
    /// A drop-tail queue of so many packets.
    Packets(usize),
    /// Of so many BDP.
    Bdp(f64),
}

/// What a link between neighbours carries, Mbit/s.
pub const LAN_MBPS: f64 = 1000.0;

/// Packets in flight on an idle link of `mbps`.
pub fn bdp(mbps: f64) -> f64 {
    mbps * 1e6 / 8.0 * FIELD_RTT as f64 / 1e3 / super::FRAME as f64
}

fn bottleneck(mbps: f64, kind: Bottleneck) -> LinkConfig {
    let deep = (10.0 * bdp(mbps)).max(1000.0) as usize;
    let link = |queue| fixed(mbps, FIELD_RTT / 2, queue, 0.0);
    match kind {
        Bottleneck::Policer(packets) => LinkConfig {
            capacity: Capacity::Fixed(Bitrate::from_mbps(50.0 * mbps)),
            policer: Some(PolicerConfig {
                rate: Bitrate::from_mbps(mbps),
                burst: ByteCount(packets * super::FRAME as u64),
            }),
            ..link(deep)
        },
        Bottleneck::Managed(aqm) => LinkConfig { aqm: Some(aqm), ..link(deep) },
        Bottleneck::Packets(packets) => link(packets),
        Bottleneck::Bdp(times) => link((times * bdp(mbps)).round().max(1.0) as usize),
    }
}

/// `kinds` over one bottleneck, starting somewhere within 2 s; measured from 5 s on for `seconds`.
pub fn field(kinds: &[Option<Algorithm>], mbps: f64, kind: Bottleneck, seconds: u64, seed: u64) -> Scenario {
    let starts = scattered(kinds.len(), seed).into_iter().map(|start| start * 2 / 5);
    let flow = |(kind, start)| flow(kind, Kind::Cubic, start, ms(FIELD_RTT / 2));
    Scenario {
        link: bottleneck(mbps, kind),
        flows: kinds.iter().copied().zip(starts).map(flow).collect(),
        from: ms(5000),
        until: ms(5000 + 1000 * seconds),
        seed,
    }
}

/// `each` flows beside as many of CUBIC in `bdp` of buffer, on a link that is `times` as fast as `mbps` until a bucket is empty, after
/// about `seconds`, and policed from then on.
pub fn boosted(
    system: Option<Algorithm>,
    [mbps, times]: [f64; 2],
    bdp: f64,
    seconds: u64,
    each: usize,
    seed: u64,
) -> Scenario {
    let mut scenario =
        field(&in_turn(system, seed).repeat(each), mbps * times, Bottleneck::Bdp(bdp), 90, seed);
    let burst = ByteCount(((times - 1.0) * mbps * 1e6 / 8.0 * seconds as f64) as u64);
    scenario.link.policer = Some(PolicerConfig { rate: Bitrate::from_mbps(mbps), burst });
    scenario
}

/// `kinds` between neighbours: 1 Gbit/s, RTT .2 ms, a buffer of so many packets, ACKs in bunches of 50 µs; measured for 4 s after 1 s.
pub fn lan(kinds: &[Option<Algorithm>], queue: usize, seed: u64) -> Scenario {
    let starts = scattered(kinds.len(), seed).into_iter().map(|start| start / 20);
    let flow = |(kind, start)| Flow {
        bunch: Duration::from_micros(50),
        ..flow(kind, Kind::Cubic, start, Duration::from_micros(100))
    };
    let link = LinkConfig { delay: Duration::from_micros(100), ..fixed(LAN_MBPS, 0, queue, 0.0) };
    let flows = kinds.iter().copied().zip(starts).map(flow).collect();
    Scenario { link, flows, from: ms(1000), until: ms(5000), seed }
}

/// One flow in two BDP of buffer, its loss in percent.
pub fn alone(system: Option<Algorithm>, mbps: f64, loss_percent: f64, seed: u64) -> Scenario {
    let mut scenario = field(&[system], mbps, Bottleneck::Bdp(2.0), 40, seed);
    scenario.link.loss = bernoulli(loss_percent);
    scenario
}

/// ACKs released together every `every` ms.
pub fn bunched_acks(system: Option<Algorithm>, mbps: f64, every: u64, seed: u64) -> Scenario {
    let mut scenario = alone(system, mbps, 0.0, seed);
    scenario.flows[0].bunch = ms(every);
    scenario
}

/// RTT at least `rtt` ms, and more by the absolute value of a normal variable of so many ms; 500 packets of buffer.
pub fn jittering(system: Option<Algorithm>, mbps: f64, [rtt, sigma]: [u64; 2], seed: u64) -> Scenario {
    let mut scenario = alone(system, mbps, 0.0, seed);
    scenario.link = LinkConfig { jitter: Jitter::HalfNormal(ms(sigma)), ..fixed(mbps, rtt / 2, 500, 0.0) };
    scenario.flows[0].back = vec![(Duration::ZERO, ms(rtt - rtt / 2))];
    scenario
}

/// RTT `from` ms, from 20 s on `to` ms; measured 6 to 10 s after that, or, where the way is back, 26 to 30 s.
pub fn step(system: Option<Algorithm>, mbps: f64, [from, to]: [u64; 2], back: bool, seed: u64) -> Scenario {
    let mut scenario = alone(system, mbps, 0.0, seed);
    scenario.link.delay = ms(from / 2);
    scenario.link.queue = Queue::Packets((mbps * 1e6 / 8.0 * 0.1 / super::FRAME as f64) as usize);
    let [near, far] = [from, to].map(|rtt| ms(rtt - from / 2));
    let at = ms(20_000 + 137 * seed);
    scenario.flows[0].back = vec![(Duration::ZERO, near), (at, far), (at + ms(20_000), near)];
    let begin = at + if back { ms(20_000) } else { Duration::ZERO };
    (scenario.from, scenario.until) = (begin + ms(6000), begin + ms(10_000));
    scenario
}

/// RTT `from` ms, from 20 s on `to` ms; measured 20 to 40 s after that.
pub fn longer(system: Option<Algorithm>, mbps: f64, rtts: [u64; 2], seed: u64) -> Scenario {
    let mut scenario = step(system, mbps, rtts, false, seed);
    scenario.flows[0].back.pop();
    (scenario.from, scenario.until) = (ms(40_000), ms(60_000));
    scenario
}

/// A satellite link as Starlink's: another base delay every 15 s, about which packets are lost for 100 ms, and jitter.
pub fn starlink(system: Option<Algorithm>, mbps: f64, seed: u64) -> Scenario {
    let mut scenario = alone(system, mbps, 0.0, seed);
    let delay =
        |n: u64| ms([30, 45, 60, 80][((n ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62) as usize] - 15);
    scenario.link.delay = ms(15);
    scenario.link.jitter = Jitter::Uniform(ms(7));
    scenario.flows[0].back = (0..9).map(|n| (ms(15_000 * n), delay(n))).collect();
    // Each of these takes one packet: 1.5 % of 100 ms.
    let lost = (1.5e-2 * 0.1 * mbps * 1e6 / 8.0 / super::FRAME as f64).ceil() as u64;
    let loss = |(n, k): (u64, u64)| {
        let at = ms(15_000 * n) + Duration::from_millis(100).mul_f64((k as f64 + 0.5) / lost as f64) - ms(50);
        at..at + Duration::from_nanos(1)
    };
    scenario.link.blackouts = (1..9).flat_map(|n| (0..lost).map(move |k| (n, k))).map(loss).collect();
    scenario.until = ms(125_000);
    scenario
}

/// Both directions stand still for 166 ms each 2 s.
pub fn suspended(system: Option<Algorithm>, mbps: f64, seed: u64) -> Scenario {
    let mut scenario = alone(system, mbps, 0.0, seed);
    let steps = [(ms(1834), Bitrate::from_mbps(mbps)), (ms(166), Bitrate::from_bps(0))];
    if let Ok(trace) = Trace::steps(&steps) {
        scenario.link.capacity = Capacity::Trace(Arc::new(trace));
    }
    let gone = (0..25).flat_map(|n| without(ms(1834 + 2000 * n), ms(166), ms(FIELD_RTT / 2)));
    scenario.flows[0].back.extend(gone);
    scenario
}

/// Packets take one of two ways by chance, of 20 and of 45 ms.
pub fn reordered(system: Option<Algorithm>, mbps: f64, seed: u64) -> Scenario {
    let mut scenario = alone(system, mbps, 0.0, seed);
    scenario.link.delay = ms(20);
    scenario.link.reorder =
        Probability::new(0.5).ok().map(|probability| Reorder { probability, extra_delay: ms(25) });
    scenario
}
