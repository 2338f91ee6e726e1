//! The host's edge: a processor that others use too.

use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

/// An end that runs and stands still by turns, for times that are exponentially distributed.
#[derive(Debug)]
pub struct Busy {
    rng: ChaCha20Rng,
    /// How long each takes in the mean.
    runs: Duration,
    stands: Duration,
    is_still: bool,
    until: Duration,
    /// What has come meanwhile: frames by their wire, and inner packets.
    waiting: Vec<(Option<usize>, Vec<u8>)>,
}

impl Busy {
    /// It runs for `runs` in the mean, then stands still for `stands`, and so on.
    pub fn new(seed: u64, [runs, stands]: [Duration; 2]) -> Self {
        let rng = ChaCha20Rng::seed_from_u64(seed);
        Self { rng, runs, stands, is_still: true, until: Duration::ZERO, waiting: Vec::new() }
    }

    /// Time goes on.
    pub fn pass_to(&mut self, now: Duration) {
        while self.until <= now {
            self.is_still = !self.is_still;
            let mean = if self.is_still { self.stands } else { self.runs };
            let share = ((self.rng.next_u64() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            self.until += mean.mul_f64(-share.ln());
        }
    }

    /// Until when it stands still, if it does at `now`.
    pub fn still_until(&self, now: Duration) -> Option<Duration> {
        Some(self.until).filter(|until| self.is_still && *until > now)
    }

    /// Keeps what comes while it stands still.
    pub fn keep(&mut self, wire: Option<usize>, bytes: Vec<u8>) {
        self.waiting.push((wire, bytes));
    }

    /// What has come meanwhile.
    pub fn take(&mut self) -> Vec<(Option<usize>, Vec<u8>)> {
        std::mem::take(&mut self.waiting)
    }
}
