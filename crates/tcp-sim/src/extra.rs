//! What is acknowledged beyond BBR's rate, for links that bring acknowledgements in bunches (`bbr_update_ack_aggregation`).

use std::time::Duration;

use crate::rate::RateSample;

/// The most is kept for so many rounds up to twice as many.
const ROUNDS: u32 = 5;
/// It counts for at most what the rate carries in so many seconds.
const TIME: f64 = 0.1;
/// No interval has more segments.
const SEGMENTS: u64 = 1 << 20;

/// Segments acknowledged beyond the rate.
#[derive(Debug, Default)]
pub struct Extra {
    since: Duration,
    acked: u64,
    most: [u64; 2],
    rounds: u32,
    at: usize,
}

impl Extra {
    /// Nothing yet.
    pub fn new(now: Duration) -> Extra {
        Extra { since: now, ..Extra::default() }
    }

    /// Segments that may be in flight for it at this rate, per second.
    pub fn window(&self, rate: f64) -> u64 {
        self.most[0].max(self.most[1]).min((rate * TIME) as u64)
    }

    /// An acknowledgement came, at this rate, perhaps the first of a round.
    pub fn update(&mut self, now: Duration, sample: &RateSample, rate: f64, round: bool, cwnd: u64) {
        if sample.acked == 0 || sample.delivered.is_none() {
            return;
        }
        if round {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                (self.rounds, self.at) = (0, 1 - self.at);
                self.most[self.at] = 0;
            }
        }
        let mut carried = (rate * (now - self.since).as_secs_f64()) as u64;
        if self.acked <= carried || self.acked + sample.acked >= SEGMENTS {
            (self.acked, self.since, carried) = (0, now, 0);
        }
        self.acked += sample.acked;
        let beyond = self.acked.saturating_sub(carried).min(cwnd);
        self.most[self.at] = self.most[self.at].max(beyond);
    }
}
