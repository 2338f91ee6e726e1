//! The links and rivals that `fsat` is designed on. Cellular traces are generated, never recorded ones.

use std::sync::Arc;
use std::time::Duration;

use flight::Additions;
use link::{Arq, Bitrate, Capacity, CellularConfig, FadingConfig, Loss, Outages, Probability, Queue, Trace};

use super::{Flow, Kind, LinkConfig, Outcome, Profile, Scenario};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A flow with FS-AT on CUBIC, or on the base alone.
pub fn flow(fsat: Option<Additions>, base: Kind, start: Duration, back: Duration) -> Flow {
    Flow { profile: Profile { fsat, base, ..Profile::default() }, start, back: vec![(Duration::ZERO, back)] }
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
pub fn paper(mbps: f64, loss_percent: f64, fsat: Option<Additions>, seed: u64) -> Scenario {
    let profile = Profile { fsat, base: Kind::Reno, initial: 3.0, rwnd: 66, ..Profile::default() };
    let flow = Flow { profile, start: Duration::ZERO, back: vec![(Duration::ZERO, ms(90))] };
    Scenario {
        link: fixed(mbps, 90, 1000, loss_percent),
        flows: vec![flow],
        from: Duration::ZERO,
        until: ms(80_000),
        seed,
    }
}

/// One flow on a cellular link, 60 s.
pub fn radio(mbps: f64, loss_percent: f64, fsat: Option<Additions>, seed: u64) -> Scenario {
    let config = CellularConfig { mean: Bitrate::from_mbps(mbps), ..CellularConfig::default() };
    on_cellular(&config, loss_percent, fsat, seed)
}

/// The same on one that is gone for 1.5 s every 15 s, on average.
pub fn outages(mbps: f64, fsat: Option<Additions>, seed: u64) -> Scenario {
    let outages = Some(Outages { every: ms(15_000), length: ms(1500) });
    let config = CellularConfig { mean: Bitrate::from_mbps(mbps), outages, ..CellularConfig::default() };
    on_cellular(&config, 0.0, fsat, seed)
}

/// One whose rate jumps, in the median to 2.5 times as much or as little within a second, and that is gone for 1 s every
/// 10 s, on average.
pub fn jumps(mbps: f64, fsat: Option<Additions>, seed: u64) -> Scenario {
    let outages = Some(Outages { every: ms(10_000), length: ms(1000) });
    let mean = Bitrate::from_mbps(mbps);
    let config = CellularConfig { mean, variation: 1.2, outages, ..CellularConfig::default() };
    on_cellular(&config, 0.0, fsat, seed)
}

/// One whose rate changes as much within 0.3 s, and that is never gone.
pub fn fast(mbps: f64, fsat: Option<Additions>, seed: u64) -> Scenario {
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

/// One whose frames come in bunches, as a scheduler hands out its opportunities, with a way back that is gone for 1 s every 20 s.
/// From the begin on, which the others leave out.
pub fn bunched(mbps: f64, fsat: Option<Additions>, seed: u64) -> Scenario {
    let mean = Bitrate::from_mbps(mbps);
    let config = CellularConfig {
        mean,
        correlation: ms(3000),
        outages: None,
        bunched: true,
        duration: ms(60_000),
        ..CellularConfig::default()
    };
    let mut scenario = on_cellular(&config, 0.0, fsat, seed);
    (scenario.from, scenario.until) = (Duration::ZERO, ms(60_000));
    let gone = (0..3).map(|n| ms(20_000 * n + 1000 + 2999 * (seed % 6)));
    scenario.flows[0].back.extend(gone.flat_map(|begin| without(begin, ms(1000), ms(30))));
    scenario
}

/// A way back that takes `delay` and is gone from `begin` on for `length`: what would arrive meanwhile comes at its end.
fn without(begin: Duration, length: Duration, delay: Duration) -> impl Iterator<Item = (Duration, Duration)> {
    let steps = (0..length.as_millis() as u64).step_by(5).map(ms);
    steps.map(move |at| (begin + at, length - at + delay)).chain([(begin + length, delay)])
}

fn on_cellular(config: &CellularConfig, loss_percent: f64, fsat: Option<Additions>, seed: u64) -> Scenario {
    Scenario {
        link: cellular(config, seed, loss_percent),
        flows: vec![flow(fsat, Kind::Cubic, Duration::ZERO, ms(30))],
        from: ms(2000),
        until: ms(62_000),
        seed,
    }
}

/// A fading channel's name, its Doppler frequency in Hz, and the centre and deviation of its rate in kbit/s.
pub type Channel = (&'static str, f64, [u64; 2]);

/// The lab's HSDPA channels, by how the terminal moves and its geometry.
pub const HSDPA: [Channel; 15] = [
    ("st 15dB", 0.5, [2757, 774]),
    ("st 10dB", 0.5, [2702, 794]),
    ("st 5dB", 0.5, [2194, 303]),
    ("st 0dB", 0.5, [1267, 56]),
    ("st -5dB", 0.5, [520, 20]),
    ("pa3 15dB", 5.6, [2356, 881]),
    ("pa3 10dB", 5.6, [2121, 827]),
    ("pa3 5dB", 5.6, [1627, 1099]),
    ("pa3 0dB", 5.6, [723, 1107]),
    ("pa3 -5dB", 5.6, [22, 876]),
    ("va30 15dB", 55.6, [1549, 427]),
    ("va30 10dB", 55.6, [1447, 372]),
    ("va30 5dB", 55.6, [1223, 388]),
    ("va30 0dB", 55.6, [818, 364]),
    ("va30 -5dB", 55.6, [343, 482]),
];

/// A generated channel as the lab's HSDPA, its rate fading between 64 kbit/s and 3.36 Mbit/s around its centre, and 2 % of its frames repeated 12 ms later and delivered in order, under the conditions of [`paper`] for 60 s.
pub fn fading(
    (_, doppler_hz, [centre_kbps, deviation_kbps]): Channel,
    fsat: Option<Additions>,
    seed: u64,
) -> Scenario {
    let [centre, deviation, floor, peak] =
        [centre_kbps, deviation_kbps, 64, 3360].map(|kbps| Bitrate::from_bps(kbps * 1000));
    let bounds = [floor, peak];
    let config = FadingConfig { centre, deviation, bounds, doppler_hz, tick: ms(10), duration: ms(120_000) };
    let mut scenario = paper(1.0, 0.0, fsat, seed);
    scenario.link.capacity = Capacity::Trace(Arc::new(Trace::fading(seed, &config)));
    scenario.link.loss = bernoulli(2.0);
    scenario.link.arq = Some(Arq { attempts: 6, retry_delay: ms(12) });
    scenario.until = ms(60_000);
    scenario
}

/// `n` flows of `kinds` in turn on 10 Mbit/s, RTT 60 ms (BDP 50 packets), starting `apart`; measured from
/// a while after the last one's start.
pub fn shared(kinds: &[Option<Additions>], queue: usize, apart: Duration, seed: u64) -> Scenario {
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
pub fn slow(kinds: &[Option<Additions>], queue: usize, starts: &[Duration], seed: u64) -> Scenario {
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
    fsat: Option<Additions>,
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

/// The same, but the second half of them 25 s later.
pub fn latecomers(n: usize, seed: u64) -> Vec<Duration> {
    let mut starts = scattered(n, seed);
    starts[n / 2..].iter_mut().for_each(|start| *start += ms(25_000));
    starts
}

/// How far apart flows start, a little more with each seed.
pub fn staggered(apart_ms: u64, seed: u64) -> Duration {
    ms(apart_ms + 37 * seed)
}

/// One flow of `system` and one of CUBIC; which of them begins goes by the seed.
pub fn in_turn(system: Option<Additions>, seed: u64) -> [Option<Additions>; 2] {
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
pub fn route_change(fsat: Option<Additions>, seed: u64) -> Scenario {
    let mut flow = flow(fsat, Kind::Cubic, Duration::ZERO, ms(50));
    flow.back = vec![(Duration::ZERO, ms(50)), (ms(30_000), ms(150)), (ms(60_000), ms(30))];
    Scenario { link: fixed(10.0, 10, 1000, 0.0), flows: vec![flow], from: ms(2000), until: ms(110_000), seed }
}
