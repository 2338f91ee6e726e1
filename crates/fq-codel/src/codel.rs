//! CoDel (RFC 8289 §5), without ECN.

use std::time::Duration;

use crate::FRAME;

/// Decides which frames of a queue are dropped. It is told of one frame after the other, and so looks whether it is still to
/// drop once more for each that leaves.
#[derive(Debug)]
pub struct Codel {
    target: Duration,
    interval: Duration,
    /// When frames will have waited for too long for an interval; `None` while they do not.
    first_above: Option<Duration>,
    dropping: bool,
    drop_next: Duration,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Frames are to wait for `target`; they may wait for longer for an `interval`.
    pub fn new(target: Duration, interval: Duration) -> Codel {
        Codel {
            target,
            interval,
            first_above: None,
            dropping: false,
            drop_next: Duration::ZERO,
            count: 0,
            last_count: 0,
        }
    }

    /// Whether a frame that could leave at `now`, after having waited for `sojourn`, is dropped; so many bytes wait behind it. A
    /// queue of no more than a [`FRAME`] is short (§4.4).
    pub fn drops(&mut self, now: Duration, sojourn: Duration, behind: u64) -> bool {
        let too_long = self.too_long(now, sojourn, behind);
        if !too_long {
            self.dropping = false;
        } else if !self.dropping {
            self.begin(now);
            return true;
        } else if now >= self.drop_next {
            self.count += 1;
            self.drop_next = self.next(self.drop_next);
            return true;
        }
        false
    }

    /// Whether frames have waited for more than the target for an interval.
    fn too_long(&mut self, now: Duration, sojourn: Duration, behind: u64) -> bool {
        if sojourn < self.target || behind <= FRAME {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now.saturating_add(self.interval))
    }

    /// Begins to drop, as often as last time if that was a short while ago.
    fn begin(&mut self, now: Duration) {
        let delta = self.count - self.last_count;
        let recent = now.saturating_sub(self.drop_next) < self.interval.saturating_mul(16);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.dropping = true;
        self.drop_next = self.next(now);
    }

    /// The control law: the drop after that of `time`.
    fn next(&self, time: Duration) -> Duration {
        time.saturating_add(self.interval.div_f64(f64::from(self.count.max(1)).sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn codel() -> Codel {
        Codel::new(ms(5), ms(100))
    }

    /// The times in ms at which `codel` drops of a queue that leaves a frame each ms, each after `sojourn`.
    fn drops(codel: &mut Codel, from: u64, until: u64, sojourn: u64) -> Vec<u64> {
        (from..until).filter(|now| codel.drops(ms(*now), ms(sojourn), 100_000)).collect()
    }

    #[test]
    fn it_waits_for_an_interval_and_then_drops_ever_more_often() {
        let mut codel = codel();
        assert_eq!(drops(&mut codel, 0, 100, 20), []);
        // 100, and then after 100 / √n ms each.
        assert_eq!(drops(&mut codel, 100, 400, 20), [100, 200, 271, 329, 379]);
        assert_eq!(drops(&mut codel, 400, 500, 4), [], "below the target");
        // Soon after, it goes on as often as it had got to.
        assert_eq!(drops(&mut codel, 500, 700, 20), [600, 650, 695]);
    }

    #[test]
    fn a_queue_of_one_frame_is_left_alone() {
        let mut codel = codel();
        assert!(!(0..1000).any(|now| codel.drops(ms(now), ms(50), FRAME)));
    }
}
