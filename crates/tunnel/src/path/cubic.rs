//! The window of a CUBIC flow (RFC 9438), for a path that has to hold its own in a queue of others.

use std::time::Duration;

/// The window after a loss over that before (§4.6), and how it grows, packets/s³ (§5.1).
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// Since the last loss.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    /// The window then, packets.
    most: f64,
    since: Duration,
    /// Nothing was lost yet.
    slow_start: bool,
}

impl Cubic {
    /// Begins with so many packets.
    pub fn new(now: Duration, packets: f64) -> Self {
        Cubic { most: packets, since: now, slow_start: true }
    }

    /// A packet was lost with a window of so many, one that was sent after the last loss.
    pub fn handle_loss(&mut self, now: Duration, window: f64) {
        *self = Cubic { most: window, since: now, slow_start: false };
    }

    /// Whether nothing was lost yet.
    pub fn in_slow_start(&self) -> bool {
        self.slow_start
    }

    /// Since when the window grows.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Packets that may be in flight: twice as many each round trip before the first loss (RFC 5681 §3.1), then §4.2, or what Reno
    /// would have (§4.3).
    pub fn window(&self, now: Duration, rtt: Duration) -> f64 {
        let t = now.saturating_sub(self.since).as_secs_f64();
        let rounds = t / rtt.as_secs_f64().max(1e-3);
        if self.slow_start {
            return self.most * rounds.min(32.0).exp2();
        }
        let k = (self.most * (1.0 - BETA) / C).cbrt();
        let reno = BETA * self.most + 3.0 * (1.0 - BETA) / (1.0 + BETA) * rounds;
        (C * (t - k).powi(3) + self.most).max(reno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn it_doubles_each_round_trip_until_something_is_lost() {
        let mut cubic = Cubic::new(RTT, 10.0);
        assert!((cubic.window(4 * RTT, RTT) - 80.0).abs() < 1e-6);
        cubic.handle_loss(4 * RTT, 80.0);
        assert!((cubic.window(4 * RTT, RTT) - 56.0).abs() < 1e-6);
    }

    /// After cbrt(200 · .3/.4) = 5.3 s.
    #[test]
    fn it_comes_back_to_where_it_lost_and_goes_on() {
        let mut cubic = Cubic::new(Duration::ZERO, 10.0);
        cubic.handle_loss(Duration::ZERO, 200.0);
        let at = |ms| cubic.window(Duration::from_millis(ms), RTT);
        assert!(at(3000) < at(5300) && (at(5313) - 200.0).abs() < 0.1 && at(10_000) > 230.0);
    }
}
