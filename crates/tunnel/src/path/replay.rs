//! One path's memory of the sequences it has received: a ring of bits, as RFC 6479.

const WORDS: usize = 256;
const WORD_BITS: u64 = 64;

/// Accepts each sequence once, and none more than `SPAN` below the highest accepted.
#[derive(Debug, Clone)]
pub struct ReplayWindow {
    /// One more than the highest accepted sequence; 0 before the first.
    end: u64,
    bits: Box<[u64; WORDS]>,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { end: 0, bits: Box::new([0; WORDS]) }
    }
}

impl ReplayWindow {
    /// How far below the highest accepted sequence one may still come: reordering of a path, in packets.
    pub const SPAN: u64 = (WORDS as u64 - 1) * WORD_BITS;

    /// Whether `accept` would say yes. For use before the packet is verified; changes nothing.
    pub fn would_accept(&self, sequence: u64) -> bool {
        if sequence >= self.end {
            return sequence < u64::MAX;
        }
        self.end - sequence <= Self::SPAN && self.bits[word(sequence)] & bit(sequence) == 0
    }

    /// Takes a verified packet's sequence; false if it came before or is too old. `u64::MAX` is never taken.
    pub fn accept(&mut self, sequence: u64) -> bool {
        if !self.would_accept(sequence) {
            return false;
        }
        if sequence >= self.end {
            self.advance(sequence);
        }
        self.bits[word(sequence)] |= bit(sequence);
        true
    }

    /// Clears the words between the old end and `sequence`'s.
    fn advance(&mut self, sequence: u64) {
        let last = sequence / WORD_BITS;
        // The first word not yet in use; `end` 0 starts with word 0, which is clear.
        let first = self.end.div_ceil(WORD_BITS);
        let from = first.max((last + 1).saturating_sub(WORDS as u64));
        for index in from..=last {
            self.bits[index as usize % WORDS] = 0;
        }
        self.end = sequence + 1;
    }
}

fn word(sequence: u64) -> usize {
    (sequence / WORD_BITS) as usize % WORDS
}

fn bit(sequence: u64) -> u64 {
    1 << (sequence % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepts_each_once_in_any_order() {
        let mut window = ReplayWindow::default();
        for sequence in [0, 2, 1, 70, 63, 64, 8191, 100] {
            assert!(window.accept(sequence), "{sequence}");
            assert!(!window.accept(sequence), "{sequence}");
        }
    }

    #[test]
    fn spans_at_least_8192_and_no_more_than_it_says() {
        const { assert!(ReplayWindow::SPAN >= 8192) };
        let mut window = ReplayWindow::default();
        assert!(window.accept(100_000));
        assert!(window.accept(100_001 - ReplayWindow::SPAN));
        assert!(!window.accept(100_000 - ReplayWindow::SPAN));
    }

    #[test]
    fn survives_jumps_to_the_end() {
        let mut window = ReplayWindow::default();
        assert!(window.accept(5));
        assert!(window.accept(u64::MAX - 1));
        assert!(!window.would_accept(u64::MAX));
        assert!(!window.accept(u64::MAX - 1));
        assert!(window.accept(u64::MAX - 2));
        assert!(!window.accept(5));
    }

    fn step() -> impl Strategy<Value = i64> {
        prop_oneof![5 => -80..80i64, 2 => -20_000..20_000i64, 1 => 0..200_000i64]
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec(step(), 0..400)) {
            let (mut window, mut model) = (ReplayWindow::default(), HashSet::new());
            let (mut at, mut end) = (0u64, 0u64);
            for step in steps {
                at = at.saturating_add_signed(step);
                let expected = (at >= end || end - at <= ReplayWindow::SPAN) && !model.contains(&at);
                prop_assert_eq!(window.would_accept(at), expected);
                prop_assert_eq!(window.accept(at), expected);
                if expected {
                    model.insert(at);
                    end = end.max(at + 1);
                }
            }
        }
    }
}
