//! Seeded randomness.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::units::Probability;

/// A stream of random decisions, given by a seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// Stream `stream` of `seed`; the streams of one seed are independent of each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Dice {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Dice(rng)
    }

    /// Uniform over 0 (included) to 1 (excluded).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`. What cannot be otherwise uses up no randomness.
    pub(crate) fn chance(&mut self, p: Probability) -> bool {
        match p.get() {
            0.0 => false,
            1.0 => true,
            p => self.unit() < p,
        }
    }

    /// Uniform over 0 to `max`.
    pub(crate) fn duration(&mut self, max: Duration) -> Duration {
        if max.is_zero() { Duration::ZERO } else { max.mul_f64(self.unit()) }
    }

    /// Uniform over 0 to `bound` − 1; `bound` must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.0.next_u64() as u128 * bound as u128) >> 64) as usize
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Normal with mean 0 and variance 1, nearly: the sum of twelve uniform numbers, within ±6.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
