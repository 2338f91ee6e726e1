//! The paper's weights: each path's share by its feedback of one-way delay, equations (1) to (3).
//!
//! D_i(t+1) = MeanDelay_i(t+1) − MinDelay_i(t)          (1)
//! d_i = (1/D_i(t+1)) / Σ_j (1/D_j(t+1))                (2)
//! W_i(t+1) = (1 − α) W_i(t) + α d_i, 0 < α < 1         (3)
//!
//! Delays are the receiver's clock minus the sender's; a constant offset cancels in (1). D can be 0 or negative, because
//! MinDelay is the previous period's: it is floored at the resolution of what can be told apart, which is the timestamps'
//! plus the least jitter seen on any path. A path without a sample in a period keeps its weight; weights are renormalised
//! as paths come and go.
//!
//! `absolute` is what the paper's text describes beside its equations: one-way delays as two clocks show
//! them, which therefore have to agree. It is here to show what then happens, see docs/tunnel.md.

use std::time::Duration;

use crate::schedule::clock_skew::Minima;

/// α of equation (3).
pub const ALPHA: f64 = 0.25;
/// The period t of the equations.
pub const PERIOD: Duration = Duration::from_millis(100);
/// Timestamps differ by this much for reasons that are no delay: their unit and the hosts' scheduling, in µs.
const RESOLUTION: f64 = 100.0;

/// One-way delays over a period: the receiver's clock minus the sender's, in µs, wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// How many were measured; the rest means nothing if 0.
    pub samples: u32,
    /// The least.
    pub min: u32,
    /// The arithmetic mean, minus the least.
    pub mean_over_min: u32,
    /// The greatest, minus the least.
    pub max_over_min: u32,
}

/// One path's terms of the equations. Delays are µs.
#[derive(Clone, Debug)]
pub struct Weight {
    weight: f64,
    previous_min: Option<u32>,
    min: Option<u32>,
    /// Sum of (delay − min) over the period's samples, and their number.
    over_min: f64,
    samples: f64,
    jitter: f64,
    /// For the clocks' skew.
    pub minima: Minima,
}

impl Default for Weight {
    fn default() -> Self {
        Weight {
            weight: 1.0,
            previous_min: None,
            min: None,
            over_min: 0.0,
            samples: 0.0,
            jitter: 0.0,
            minima: Minima::default(),
        }
    }
}

impl Weight {
    /// W_i, a share in 0 to 1 after [`update`].
    pub fn get(&self) -> f64 {
        self.weight
    }

    /// Feedback of one-way delays since the last report.
    pub fn handle_delay(&mut self, delay: &Delay) {
        if delay.samples == 0 {
            return;
        }
        self.minima.add(delay.min);
        let new = f64::from(delay.samples);
        let min = self.min.unwrap_or(delay.min);
        let below = f64::from(delay.min.wrapping_sub(min) as i32);
        if below < 0.0 {
            self.min = Some(delay.min);
            self.over_min += -below * self.samples + f64::from(delay.mean_over_min) * new;
        } else {
            self.min = Some(min);
            self.over_min += (below + f64::from(delay.mean_over_min)) * new;
        }
        self.samples += new;
    }

    /// D_i, not floored, and ends the period. `None` without a sample in this period.
    fn end_period(&mut self, absolute: bool) -> Option<f64> {
        let min = self.min.take()?;
        let mean_over_min = std::mem::take(&mut self.over_min) / std::mem::take(&mut self.samples);
        self.jitter += 0.25 * (mean_over_min - self.jitter);
        let previous = if absolute { 0 } else { self.previous_min.replace(min).unwrap_or(min) };
        Some(f64::from(min.wrapping_sub(previous) as i32) + mean_over_min)
    }
}

/// Ends a period for the paths in use: equations (1) to (3), then the weights' sum is made 1 again. `skew`: by how much
/// delays seem to grow in a period because one clock is faster, µs; it is no part of D.
/// `absolute`: D_i is MeanDelay_i itself, with the offset between the clocks in it and whatever sign that gives it.
pub fn update<'a>(paths: impl Iterator<Item = &'a mut Weight>, absolute: bool, skew: f64) {
    let mut paths: Vec<_> = paths.map(|w| (w.end_period(absolute).map(|d| d - skew), w)).collect();
    normalise(paths.iter_mut().map(|(_, w)| &mut **w));
    let jitter = paths.iter().map(|(_, w)| w.jitter).fold(f64::INFINITY, f64::min);
    let floor = RESOLUTION + jitter;
    let floored = |d: f64| if absolute { d.abs().max(floor).copysign(d) } else { d.max(floor) };
    let inverse = |d: f64| 1.0 / floored(d);
    let measured = paths.iter().filter_map(|(d, _)| *d).map(inverse).sum::<f64>();
    // Those without a sample keep their weight; the others share what is left.
    let kept = paths.iter().filter(|(d, _)| d.is_none()).map(|(_, w)| w.weight).sum::<f64>();
    for (d, w) in &mut paths {
        // Delays on both sides of zero may cancel out.
        if let Some(d) = d
            && measured != 0.0
        {
            w.weight = (1.0 - ALPHA) * w.weight + ALPHA * (1.0 - kept) * inverse(*d) / measured;
        }
    }
    normalise(paths.iter_mut().map(|(_, w)| &mut **w));
}

fn normalise<'a>(weights: impl Iterator<Item = &'a mut Weight>) {
    let weights: Vec<_> = weights.collect();
    let sum = weights.iter().map(|w| w.weight).sum::<f64>();
    for w in weights {
        w.weight /= sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(min: u32, mean: u32) -> Delay {
        Delay { samples: 10, min, mean_over_min: mean.wrapping_sub(min), max_over_min: 0 }
    }

    fn run(periods: usize, offset: u32, delays: &[(u32, u32)]) -> Vec<f64> {
        let mut w = vec![Weight::default(); delays.len()];
        for _ in 0..periods {
            for (w, &(min, mean)) in w.iter_mut().zip(delays) {
                w.handle_delay(&delay(min.wrapping_add(offset), mean.wrapping_add(offset)));
            }
            update(w.iter_mut(), false, 0.0);
        }
        w.iter().map(Weight::get).collect()
    }

    #[test]
    fn equation_1_takes_the_increase_over_the_previous_minimum() {
        let mut w = Weight::default();
        w.handle_delay(&delay(100, 150));
        assert_eq!(w.end_period(false), Some(50.0));
        w.handle_delay(&delay(170, 200));
        assert_eq!(w.end_period(false), Some(100.0), "200 − 100");
        w.handle_delay(&delay(20, 30));
        assert_eq!(w.end_period(false), Some(-140.0), "30 − 170");
        assert_eq!(w.end_period(false), None);
    }

    #[test]
    fn reports_within_a_period_are_averaged_by_their_samples() {
        let mut w = Weight::default();
        w.handle_delay(&Delay { samples: 30, min: 100, mean_over_min: 10, max_over_min: 0 });
        w.handle_delay(&Delay { samples: 10, min: 60, mean_over_min: 10, max_over_min: 0 });
        assert_eq!(w.end_period(false), Some((30.0 * 110.0 + 10.0 * 70.0) / 40.0 - 60.0));
    }

    #[test]
    fn equations_2_and_3_prefer_the_less_congested() {
        // Jitter 0 on the first path, so that the floor is the resolution: 1/1000 to 1/3000.
        let w = run(200, 0, &[(0, 1000), (0, 3000), (500, 500)]);
        assert!((w[0] / w[1] - 3.0).abs() < 0.01 && w[2] > w[0], "{w:?}");
        assert!((w.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        // One period moves by α of the way.
        let one = run(1, 0, &[(0, 1000), (0, 3000)]);
        assert!((one[0] - ((1.0 - ALPHA) * 0.5 + ALPHA * 0.75)).abs() < 0.05, "{one:?}");
    }

    #[test]
    fn a_longer_path_is_not_a_worse_one() {
        let w = run(50, 0, &[(1_000, 2_000), (90_000, 91_000)]);
        assert!((w[0] - w[1]).abs() < 1e-9, "{w:?}");
    }

    #[test]
    fn an_offset_between_the_clocks_cancels() {
        let delays = [(0, 1000), (0, 3000), (0, 9000)];
        assert_eq!(run(20, 0, &delays), run(20, 3_600_000_000u32.wrapping_neg(), &delays));
    }

    #[test]
    fn no_delay_at_all_gives_equal_weights() {
        for w in run(50, 7, &[(0, 0); 10]) {
            assert!((w - 0.1).abs() < 1e-9);
        }
    }

    #[test]
    fn weights_are_renormalised_as_paths_go() {
        let mut w = vec![Weight::default(); 4];
        update(w.iter_mut(), false, 0.0);
        assert!((w[0].get() - 0.25).abs() < 1e-9);
        update(w[..2].iter_mut(), false, 0.0);
        assert!((w[0].get() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn absolute_delays_that_cancel_out_leave_the_weights() {
        let mut w = vec![Weight::default(); 2];
        for (w, micros) in w.iter_mut().zip([1, 1u32.wrapping_neg()]) {
            w.handle_delay(&delay(micros, micros));
        }
        update(w.iter_mut(), true, 0.0);
        assert_eq!(w.iter().map(Weight::get).collect::<Vec<_>>(), [0.5; 2]);
    }

    #[test]
    fn absolute_delays_around_zero_starve_the_paths_on_the_other_side() {
        // Delays of 10, 20 and 30 ms, seen with a clock that is 15 ms behind.
        let mut w = vec![Weight::default(); 3];
        for _ in 0..50 {
            for (w, ms) in w.iter_mut().zip([10u32, 20, 30]) {
                w.handle_delay(&delay((ms * 1000).wrapping_sub(15_000), (ms * 1000).wrapping_sub(15_000)));
            }
            update(w.iter_mut(), true, 0.0);
        }
        assert!(w[0].get() < 0.0 && w[1].get() > 1.0, "{w:?}");
    }
}
