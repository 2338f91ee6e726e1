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
