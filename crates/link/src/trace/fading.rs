//! Generated traces of a link whose rate follows a fading channel, as adaptive modulation makes it.

use std::f64::consts::TAU;
use std::time::Duration;

use super::Trace;
use crate::dice::Dice;
use crate::units::Bitrate;

/// Waves that make up the fading.
const WAVES: usize = 16;

/// Mean and standard deviation of the logarithm of an exponentially distributed power: −γ, π/√6.
const LOG_MEAN: f64 = -0.577_215_664_9;
const LOG_DEVIATION: f64 = 1.282_549_830_2;

/// A link whose rate is redrawn in every tick: linear in the received power's logarithm, within bounds. The power is
/// that of many waves with random directions, as a receiver meets them that moves through a field of reflections
/// (Clarke 1968; Jakes 1974, 1.1).
#[derive(Debug, Clone, PartialEq)]
pub struct FadingConfig {
    /// The rate at the mean of the power's logarithm; it may lie outside the bounds.
    pub centre: Bitrate,
    /// By how much one standard deviation of that logarithm changes the rate.
    pub deviation: Bitrate,
    /// The least and the greatest rate.
    pub bounds: [Bitrate; 2],
    /// The greatest Doppler shift, in Hz: speed over wavelength.
    pub doppler_hz: f64,
    /// How long a rate holds.
    pub tick: Duration,
    /// How long the trace is before it repeats, to a tick.
    pub duration: Duration,
}

impl Trace {
    /// Generates the trace of a fading channel: the same `seed` and `config`, the same trace. A link that would never
    /// carry anything carries 1 kbit/s.
    pub fn fading(seed: u64, config: &FadingConfig) -> Trace {
        let tick = config.tick.max(Duration::from_millis(1));
        let ticks = (config.duration.as_nanos() / tick.as_nanos()).clamp(1, 1 << 24) as u64;
        let waves = Waves::new(config.doppler_hz, &mut Dice::new(seed, 0));
        let nanos = tick.as_nanos() as u64;
        let rate = |n: u64| config.rate(waves.level(n as f64 * tick.as_secs_f64()));
        let mut rates: Vec<_> = (0..ticks).map(|n| (n * nanos, rate(n))).collect();
        if rates.iter().all(|&(_, rate)| rate == 0) {
            rates[0].1 = 1000;
        }
        Trace::from_rates(&rates, ticks * nanos)
    }
}

impl FadingConfig {
    /// The rate, in bit/s, where the power's logarithm is `level` standard deviations above its mean.
    fn rate(&self, level: f64) -> u64 {
        let [least, greatest] = self.bounds.map(|rate| rate.as_bps() as f64);
        let rate = self.centre.as_bps() as f64 + level * self.deviation.as_bps() as f64;
        rate.min(greatest).max(least).round() as u64
    }
}

/// Plane waves with random directions and phases: angular frequency, and the phases of both quadratures.
struct Waves(Vec<(f64, f64, f64)>);

impl Waves {
    fn new(doppler_hz: f64, dice: &mut Dice) -> Waves {
        let mut wave = || {
            let shift = doppler_hz * (TAU * dice.unit()).cos();
            (TAU * shift, TAU * dice.unit(), TAU * dice.unit())
        };
        Waves((0..WAVES).map(|_| wave()).collect())
    }

    /// The logarithm of the power at a time in seconds, normalised.
    fn level(&self, time: f64) -> f64 {
        let quadrature = |sum: f64| sum * sum / WAVES as f64;
        let real = self.0.iter().map(|(frequency, phase, _)| (frequency * time + phase).cos()).sum();
        let imaginary = self.0.iter().map(|(frequency, _, phase)| (frequency * time + phase).cos()).sum();
        let power: f64 = quadrature(real) + quadrature(imaginary);
        (power.max(1e-9).ln() - LOG_MEAN) / LOG_DEVIATION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(doppler_hz: f64) -> FadingConfig {
        FadingConfig {
            centre: Bitrate::from_mbps(2.0),
            deviation: Bitrate::from_mbps(0.5),
            bounds: [Bitrate::from_mbps(0.1), Bitrate::from_mbps(3.4)],
            doppler_hz,
            tick: Duration::from_millis(10),
            duration: Duration::from_secs(100),
        }
    }

    #[test]
    fn the_level_is_normalised() {
        let waves = Waves::new(50.0, &mut Dice::new(1, 0));
        let levels: Vec<f64> = (0..100_000).map(|n| waves.level(f64::from(n) * 0.01)).collect();
        let mean = levels.iter().sum::<f64>() / levels.len() as f64;
        let variance = levels.iter().map(|level| (level - mean).powi(2)).sum::<f64>() / levels.len() as f64;
        assert!(mean.abs() < 0.1 && (variance - 1.0).abs() < 0.2, "{mean} {variance}");
    }

    #[test]
    fn the_seed_gives_the_trace_and_the_bounds_hold() {
        let trace = Trace::fading(3, &config(5.0));
        assert_eq!(trace, Trace::fading(3, &config(5.0)));
        assert_ne!(trace, Trace::fading(4, &config(5.0)));
        assert!((0.1..3.4).contains(&trace.mean().as_mbps()));
    }

    #[test]
    fn extreme_configurations_still_carry() {
        let none = Bitrate::from_bps(0);
        for bounds in [[none, none], [Bitrate::from_bps(u64::MAX); 2], [Bitrate::from_mbps(9.0), none]] {
            let config =
                FadingConfig { bounds, tick: Duration::ZERO, duration: Duration::ZERO, ..config(f64::NAN) };
            assert!(Trace::fading(1, &config).mean().as_bps() > 0, "{bounds:?}");
        }
    }
}
