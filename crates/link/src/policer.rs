//! A policer: drops what exceeds a rate, and holds nothing.

use std::time::Duration;

use crate::config::PolicerConfig;

/// 10⁻⁹ bit: what 1 bit/s brings in 1 ns, so that the bucket has no rounding.
type Nanobits = u128;

/// A token bucket (RFC 2697 with one colour); full at time 0.
#[derive(Debug)]
pub(crate) struct Policer {
    config: PolicerConfig,
    tokens: Nanobits,
    /// When the bucket was last filled up.
    filled: Duration,
}

impl Policer {
    pub(crate) fn new(config: PolicerConfig) -> Policer {
        Policer { config, tokens: nanobits(config.burst.get()), filled: Duration::ZERO }
    }

    /// Whether a frame of `bytes` at `now`, which never goes back, passes. One that does not leaves the bucket as it is.
    pub(crate) fn passes(&mut self, now: Duration, bytes: usize) -> bool {
        let nanos = now.saturating_sub(self.filled).as_nanos();
        self.filled = now;
        let brought = nanos.saturating_mul(self.config.rate.as_bps().into());
        self.tokens = self.tokens.saturating_add(brought).min(nanobits(self.config.burst.get()));
        match self.tokens.checked_sub(nanobits(bytes as u64)) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }
}

fn nanobits(bytes: u64) -> Nanobits {
    Nanobits::from(bytes) * 8_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bitrate, ByteCount};

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_passes_and_then_what_the_rate_brings() {
        let config = PolicerConfig { rate: Bitrate::from_mbps(8.0), burst: ByteCount(3000) };
        let mut policer = Policer::new(config);
        let passed = |policer: &mut Policer, at: u64| (0..9).filter(|_| policer.passes(ms(at), 1000)).count();
        assert_eq!([0, 0, 1, 3, 1000].map(|at| passed(&mut policer, at)), [3, 0, 1, 2, 3]);
        assert!(
            !policer.passes(ms(2000), 3001) && policer.passes(ms(2000), 3000),
            "more than a burst never passes"
        );
    }
}
