//! Which initiations are fresh: of each life of a peer only those with a greater counter than any taken before.
//!
//! Counters stand inside the encrypted payload, so nobody but the peer makes one; what was recorded carries one that
//! has been taken, or one of a life that this end has not heard of since it started. The latter is taken once.

use std::collections::{HashMap, VecDeque};

/// The largest counter taken from each of the last [`Freshness::CAPACITY`] lives that were heard.
#[derive(Debug, Default)]
pub struct Freshness {
    largest: HashMap<u64, u64>,
    /// The lives, the least recently heard first.
    order: VecDeque<u64>,
}

impl Freshness {
    /// Lives that are remembered: a daemon that restarts every day does so for almost three years.
    pub const CAPACITY: usize = 1024;

    /// Takes an initiation; false if it is no newer than one that has been taken of its life.
    pub fn take(&mut self, life: u64, counter: u64) -> bool {
        if self.largest.get(&life).is_some_and(|largest| counter <= *largest) {
            return false;
        }
        if self.largest.insert(life, counter).is_some() {
            self.order.retain(|other| *other != life);
        }
        self.order.push_back(life);
        if self.order.len() > Self::CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.largest.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_taken_once_and_older_ones_never() {
        let mut lives = Freshness::default();
        assert!(lives.take(1, 5));
        assert!(!lives.take(1, 5) && !lives.take(1, 4) && !lives.take(1, 0));
        assert!(lives.take(1, 6) && lives.take(2, 0));
        assert!(!lives.take(2, 0) && !lives.take(1, 6));
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_who_was_heard_last() {
        let mut lives = Freshness::default();
        for life in 0..3 * Freshness::CAPACITY as u64 {
            assert!(lives.take(life, 1));
            assert!(life == 0 || lives.take(0, life + 1), "life 0 is heard all the time");
            assert!(lives.order.len() <= Freshness::CAPACITY && lives.largest.len() == lives.order.len());
        }
        assert!(!lives.take(0, 1));
        assert!(lives.take(1, 1), "long ago");
    }
}
