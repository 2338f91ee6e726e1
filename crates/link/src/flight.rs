//! Frames behind the bottleneck, on their way to the receiver.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Frames in flight. Most keep order and wait in a plain queue; only those held back need a heap.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    ordered: VecDeque<(Duration, Vec<u8>)>,
    held_back: BinaryHeap<Reverse<HeldBack>>,
    /// No frame that keeps order arrives before this.
    floor: Duration,
    /// Frames held back so far.
    count: u64,
}

impl Flight {
    /// A frame that keeps order: it arrives at `arrival` or with its predecessor, whichever is later.
    pub(crate) fn push(&mut self, arrival: Duration, frame: Vec<u8>) {
        self.hold_order(arrival);
        self.ordered.push_back((self.floor, frame));
    }

    /// Keeps frames that follow from arriving before `time`.
    pub(crate) fn hold_order(&mut self, time: Duration) {
        self.floor = self.floor.max(time);
    }

    /// A frame that arrives at `arrival` and that those behind may overtake.
    pub(crate) fn push_held_back(&mut self, arrival: Duration, frame: Vec<u8>) {
        self.count += 1;
        self.held_back.push(Reverse(HeldBack { arrival, number: self.count, frame }));
    }

    /// When the next frame arrives.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        let ordered = self.ordered.front().map(|(arrival, _)| *arrival);
        let held_back = self.held_back.peek().map(|Reverse(frame)| frame.arrival);
        ordered.into_iter().chain(held_back).min()
    }

    /// The next frame, if it has arrived by `now`, and when it arrived.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<(Duration, Vec<u8>)> {
        let next = self.next_arrival().filter(|arrival| *arrival <= now)?;
        if self.ordered.front().is_some_and(|(arrival, _)| *arrival == next) {
            return self.ordered.pop_front();
        }
        self.held_back.pop().map(|Reverse(frame)| (frame.arrival, frame.frame))
    }
}

/// Ordered by arrival, then by age.
#[derive(Debug)]
struct HeldBack {
    arrival: Duration,
    number: u64,
    frame: Vec<u8>,
}

impl HeldBack {
    fn key(&self) -> (Duration, u64) {
        (self.arrival, self.number)
    }
}

impl Ord for HeldBack {
    fn cmp(&self, other: &HeldBack) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for HeldBack {
    fn partial_cmp(&self, other: &HeldBack) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for HeldBack {
    fn eq(&self, other: &HeldBack) -> bool {
        self.key() == other.key()
    }
}

impl Eq for HeldBack {}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn order_is_kept_except_by_frames_held_back() {
        let mut flight = Flight::default();
        flight.push_held_back(ms(30), vec![1]);
        flight.push(ms(20), vec![2]);
        flight.push(ms(10), vec![3]);
        flight.push_held_back(ms(5), vec![4]);
        assert_eq!(flight.pop(ms(4)), None);
        let order: Vec<_> = std::iter::from_fn(|| flight.pop(ms(30))).collect();
        assert_eq!(order, [(ms(5), vec![4]), (ms(20), vec![2]), (ms(20), vec![3]), (ms(30), vec![1])]);
    }

    #[test]
    fn frames_held_back_to_the_same_moment_keep_order() {
        let mut flight = Flight::default();
        (0..9).for_each(|n| flight.push_held_back(ms(5), vec![n]));
        let order: Vec<_> = std::iter::from_fn(|| flight.pop(ms(5))).map(|(_, frame)| frame[0]).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
