//! The random bytes of an end or a relay.

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use zeroize::Zeroizing;

/// ChaCha20 with fast key erasure: each draw is followed by another key, so that who reads this memory later learns
/// nothing of what was drawn before, the ephemeral keys of ended sessions above all (forward secrecy).
pub struct ErasingRng(ChaCha20Rng);

impl SeedableRng for ErasingRng {
    type Seed = [u8; 32];

    fn from_seed(seed: Self::Seed) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    fn from_rng(rng: &mut impl RngCore) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *seed);
        Self::from_seed(*seed)
    }
}

impl RngCore for ErasingRng {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        self.0.fill_bytes(dest);
        *self = Self::from_rng(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_cannot_be_found_out_later() {
        let mut rng = ErasingRng::from_seed([7; 32]);
        let mut drawn = [0; 64];
        rng.fill_bytes(&mut drawn);
        // The state is all that ChaCha20 has: from its first block on, it gives nothing of what was drawn.
        let mut wound_back = rng.0.clone();
        wound_back.set_stream(0);
        wound_back.set_word_pos(0);
        let mut held = [0; 4096];
        wound_back.fill_bytes(&mut held);
        assert!(drawn.chunks(8).all(|part| held.windows(8).all(|other| other != part)));
    }

    #[test]
    fn one_seed_gives_one_sequence_without_repetition() {
        let draw = |seed| {
            let mut rng = ErasingRng::from_seed([seed; 32]);
            (0..1000).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert_eq!(drawn, draw(1));
        let different: std::collections::BTreeSet<_> = drawn.iter().chain(&draw(2)).copied().collect();
        assert_eq!(different.len(), 2000);
    }
}
