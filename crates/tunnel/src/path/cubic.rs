//! The window of a CUBIC flow (RFC 9438), for a path that has to hold its own in a queue of others.

use std::time::Duration;

/// The window after a loss over that before (§4.6), and how it grows, packets/s³ (§5.1).
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// Packets that may be in flight.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    window: f64,
    /// What it was at the last loss, or at first, and when that was.
    most: f64,
    since: Duration,
    in_slow_start: bool,
    /// A packet was lost that was sent later.
    lost: bool,
}

impl Cubic {
    /// Begins with so many packets.
    pub fn new(now: Duration, packets: f64) -> Self {
        Cubic { window: packets, most: packets, since: now, in_slow_start: true, lost: false }
    }

    /// Packets that may be in flight.
    pub fn window(&self) -> f64 {
        self.window
    }

    /// Whether nothing was lost yet.
    pub fn is_in_slow_start(&self) -> bool {
        self.in_slow_start
    }

    /// A packet was lost. All that were sent before the last loss was known are part of that.
    pub fn handle_lost(&mut self, sent: Duration) {
        self.lost |= sent > self.since;
    }

    /// Something was acknowledged after a round trip of `rtt`; of late so many packets were in flight. What is not used does not grow
    /// (RFC 7661).
    pub fn handle_acked(&mut self, now: Duration, rtt: Duration, used: f64) {
        if std::mem::take(&mut self.lost) {
            (self.most, self.since, self.in_slow_start) = (self.window, now, false);
        }
        self.window = self.grown(now, rtt).min(2.0 * used);
    }

    /// Twice as many each round trip before the first loss (RFC 5681 §3.1), then §4.2, or what Reno would have (§4.3).
    fn grown(&self, now: Duration, rtt: Duration) -> f64 {
        let t = now.saturating_sub(self.since).as_secs_f64();
        let rounds = t / rtt.max(Duration::from_millis(1)).as_secs_f64();
        if self.in_slow_start {
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
    const MANY: f64 = 1000.0;

    fn after(cubic: &mut Cubic, time: Duration) -> f64 {
        cubic.handle_acked(time, RTT, MANY);
        cubic.window()
    }

    #[test]
    fn it_doubles_each_round_trip_until_something_is_lost() {
        let mut cubic = Cubic::new(RTT, 10.0);
        assert!((after(&mut cubic, 4 * RTT) - 80.0).abs() < 1e-6);
        cubic.handle_lost(3 * RTT);
        assert!((after(&mut cubic, 4 * RTT) - 56.0).abs() < 1e-6);
        cubic.handle_lost(3 * RTT);
        assert!(after(&mut cubic, 5 * RTT) >= 56.0, "that was the same loss");
    }

    /// After cbrt(200 · .3/.4) = 5.3 s.
    #[test]
    fn it_comes_back_to_where_it_lost_and_goes_on() {
        let mut cubic = Cubic::new(Duration::ZERO, 200.0);
        cubic.handle_lost(RTT);
        after(&mut cubic, Duration::ZERO);
        let mut at = |ms| after(&mut cubic, Duration::from_millis(ms));
        assert!(at(3000) < at(5300) && (at(5313) - 200.0).abs() < 0.1 && at(10_000) > 230.0);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut cubic = Cubic::new(Duration::ZERO, 10.0);
        cubic.handle_acked(20 * RTT, RTT, 30.0);
        assert!((cubic.window() - 60.0).abs() < 1e-6);
    }
}
