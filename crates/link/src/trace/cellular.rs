//! Generated traces that vary as cellular links do.

use std::time::Duration;

use super::Trace;
use super::parse::{OPPORTUNITY_BYTES, repeat_opportunities};
use crate::dice::Dice;
use crate::units::{Bitrate, Probability};

/// How long a rate holds: 20 ms, the tick of Sprout's model of cellular links (Winstein et al., NSDI 2013, 3.1).
const TICK: Duration = Duration::from_millis(20);

/// A cellular-like link: the logarithm of its rate wanders around a mean (an Ornstein-Uhlenbeck
/// process), and outages stop it now and then.
#[derive(Debug, Clone, PartialEq)]
pub struct CellularConfig {
    /// Mean rate over the whole trace, outages included.
    pub mean: Bitrate,
    /// Standard deviation of the rate's natural logarithm: 0 is constant, 0.5 mostly between a third and
    /// thrice the mean.
    pub variation: f64,
    /// How long the rate remembers: after this time the correlation has fallen to 1/e.
    pub correlation: Duration,
    /// Outages; `None` for a link that never stops.
    pub outages: Option<Outages>,
    /// Whether frames are carried in bunches, two on average, at times by chance (a Poisson process, as in Sprout's model), and
    /// not evenly. Then the mean rate is the configured one only nearly.
    pub bunched: bool,
    /// How long the trace is before it repeats, to 20 ms.
    pub duration: Duration,
}

/// Times at which a cellular-like link carries nothing; both lengths are exponentially distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outages {
    /// Mean time between two outages.
    pub every: Duration,
    /// Mean length of an outage.
    pub length: Duration,
}

impl Default for CellularConfig {
    fn default() -> CellularConfig {
        CellularConfig {
            mean: Bitrate::from_mbps(10.0),
            variation: 0.5,
            correlation: Duration::from_secs(1),
            outages: Some(Outages { every: Duration::from_secs(20), length: Duration::from_millis(200) }),
            bunched: false,
            duration: Duration::from_secs(120),
        }
    }
}

impl Trace {
    /// Generates a cellular-like trace: the same `seed` and `config`, the same trace. Its mean rate is the
    /// configured one to 1 ‰ (at least 1 kbit/s).
    pub fn cellular(seed: u64, config: &CellularConfig) -> Trace {
        let ticks = (config.duration.as_nanos() / TICK.as_nanos()).clamp(1, 1 << 24) as usize;
        let mut relative = wander(ticks, config, &mut Dice::new(seed, 0));
        if let Some(outages) = config.outages {
            interrupt(&mut relative, outages, &mut Dice::new(seed, 1));
        }
        let mean_bps = config.mean.as_bps().max(1000) as f64;
        let scale = mean_bps * ticks as f64 / relative.iter().sum::<f64>();
        if config.bunched {
            let stamps = bunches(relative.iter().map(|r| r * scale), &mut Dice::new(seed, 2));
            return repeat_opportunities(&stamps, ticks as u64 * TICK.as_millis() as u64);
        }
        let tick = TICK.as_nanos() as u64;
        let rate = |r: f64| (r * scale).round() as u64;
        let rates: Vec<_> = (0..).zip(relative).map(|(n, r)| (n * tick, rate(r))).collect();
        Trace::from_rates(&rates, ticks as u64 * tick)
    }
}

/// How many opportunities a bunch has on average.
const BUNCH: f64 = 2.0;

/// Opportunities to carry a frame, in ms: bunches of geometric size at the times of a Poisson process, whose rates (bit/s) are those
/// of the ticks. At least one.
fn bunches(rates: impl Iterator<Item = f64>, dice: &mut Dice) -> Vec<u64> {
    let mut stamps = Vec::new();
    let mut due = dice.exponential();
    for (tick, rate) in rates.enumerate() {
        let expected = rate * TICK.as_secs_f64() / (8 * OPPORTUNITY_BYTES) as f64 / BUNCH;
        while due < expected {
            let time = (tick as f64 + due / expected) * TICK.as_millis() as f64;
            stamps.push(time as u64);
            while dice.unit() >= 1.0 / BUNCH {
                stamps.push(time as u64);
            }
            due += dice.exponential();
        }
        due -= expected;
    }
    if stamps.is_empty() {
        stamps.push(0);
    }
    stamps
}

/// Rates per tick, relative to each other: the exponential of a first-order autoregressive process.
fn wander(ticks: usize, config: &CellularConfig, dice: &mut Dice) -> Vec<f64> {
    let keep = (-TICK.as_secs_f64() / config.correlation.as_secs_f64().max(1e-9)).exp();
    let fresh = (1.0 - keep * keep).sqrt();
    let mut level = dice.normal();
    let mut next = || {
        level = keep * level + fresh * dice.normal();
        (config.variation.clamp(0.0, 4.0) * level).exp()
    };
    (0..ticks).map(|_| next()).collect()
}

/// Sets the rate to 0 during outages. At least one tick keeps its rate.
fn interrupt(rates: &mut [f64], outages: Outages, dice: &mut Dice) {
    let begin = per_tick(outages.every);
    let end = per_tick(outages.length);
    let mut out = false;
    for rate in rates.iter_mut().skip(1) {
        out ^= dice.chance(if out { end } else { begin });
        if out {
            *rate = 0.0;
        }
    }
}

/// Probability per tick of what happens once in `mean`.
fn per_tick(mean: Duration) -> Probability {
    let ratio = TICK.as_secs_f64() / mean.as_secs_f64().max(TICK.as_secs_f64());
    Probability::new(ratio).unwrap_or(Probability::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_gives_the_trace() {
        let config = CellularConfig::default();
        assert_eq!(Trace::cellular(3, &config), Trace::cellular(3, &config));
        assert_ne!(Trace::cellular(3, &config), Trace::cellular(4, &config));
    }

    #[test]
    fn bunches_come_by_chance_and_carry_as_much() {
        let even = CellularConfig { duration: Duration::from_secs(600), ..CellularConfig::default() };
        let bunched = CellularConfig { bunched: true, ..even.clone() };
        let [even, bunched] = [even, bunched].map(|config| Trace::cellular(5, &config));
        let ratio = bunched.mean().as_bps() as f64 / even.mean().as_bps() as f64;
        assert!((0.99..1.01).contains(&ratio), "{ratio}");
        let idle = (0..10_000).filter(|ms| {
            let [begin, end] = [*ms, ms + 5].map(Duration::from_millis);
            bunched.offered(end) == bunched.offered(begin)
        });
        assert!(idle.count() > 500, "5 ms without any are common");
    }

    #[test]
    fn extreme_configurations_still_carry() {
        let zero = Duration::ZERO;
        let outages = Some(Outages { every: zero, length: Duration::MAX });
        for (duration, bunched) in
            [(zero, false), (Duration::from_secs(3), false), (zero, true), (Duration::from_secs(3), true)]
        {
            let config = CellularConfig {
                mean: Bitrate::from_bps(0),
                variation: f64::INFINITY,
                correlation: zero,
                outages,
                bunched,
                duration,
            };
            assert!(Trace::cellular(1, &config).mean().as_bps() > 0);
        }
    }
}
