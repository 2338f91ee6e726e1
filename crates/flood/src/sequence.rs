//! What all who send as one node share, so that each of its frames has a number of its own: memory that the node and the
//! applications on it have mapped, with the numbers, what became of the frames, and the network's key.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use device::Shared;

use crate::frame::{Format, Wire};

/// Words of it, by number.
const NEXT: usize = 0;
const SENT: usize = 1;
const UNSENT: usize = 2;
const KEYED: usize = 3;
const KEY: [usize; 2] = [4, 5];
const TO_RELAY: usize = 6;
const WORDS: usize = 7;

/// One node's numbers.
#[derive(Debug)]
pub(crate) struct Sequence(Shared);

impl Sequence {
    /// They begin with 0; the descriptor is for applications.
    pub(crate) fn create(format: &Format) -> io::Result<(Sequence, OwnedFd)> {
        let (memory, file) = Shared::create("nawa-flood-sequence", WORDS)?;
        memory.words()[KEYED].store(format.raw.keyed.into(), Ordering::Relaxed);
        for (word, half) in KEY.into_iter().zip(format.raw.key) {
            memory.words()[word].store(half, Ordering::Relaxed);
        }
        Ok((Sequence(memory), file))
    }

    /// The node's, of whom `file` came.
    pub(crate) fn map(file: impl AsFd) -> io::Result<Sequence> {
        Shared::map(file, WORDS).map(Sequence)
    }

    /// The format of its frames.
    pub(crate) fn format(&self, wire: Wire) -> Format {
        let word = |at: usize| self.0.words()[at].load(Ordering::Relaxed);
        let key = KEY.map(|half| word(half).to_ne_bytes());
        let key = (word(KEYED) != 0).then(|| *key.as_flattened().first_chunk().expect("16 bytes"));
        Format::new(wire, key)
    }

    /// A number that no other frame has, until they wrap.
    pub(crate) fn take(&self, wire: Wire) -> u32 {
        self.0.words()[NEXT].fetch_add(1, Ordering::Relaxed) as u32 & wire.id_max()
    }

    /// Counts a frame with this TTL, by whether it went.
    pub(crate) fn count(&self, ttl: u8, went: bool) {
        let to_relay = (went && ttl > 1).then_some(TO_RELAY);
        for word in to_relay.into_iter().chain([if went { SENT } else { UNSENT }]) {
            self.0.words()[word].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many of those that went were for others to relay.
    pub(crate) fn to_relay(&self) -> u64 {
        self.0.words()[TO_RELAY].load(Ordering::Relaxed)
    }

    /// How many went, and how many did not.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [SENT, UNSENT].map(|word| self.0.words()[word].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_take_from_the_same_numbers() {
        let format = Format::new(Wire::One, Some([7; 16]));
        let (node, file) = Sequence::create(&format).expect("memory");
        let application = Sequence::map(&file).expect("it can be mapped");
        assert_eq!(application.format(Wire::One), format);
        assert_eq!([node.take(Wire::One), application.take(Wire::One), node.take(Wire::One)], [0, 1, 2]);
        application.count(1, true);
        application.count(2, true);
        application.count(2, false);
        assert_eq!((node.counts(), node.to_relay()), ([2, 1], 1));
    }

    #[test]
    fn numbers_of_8_bits_wrap() {
        let (node, _) = Sequence::create(&Format::new(Wire::Paper, None)).expect("memory");
        let taken: Vec<u32> = (0..258).map(|_| node.take(Wire::Paper)).collect();
        assert_eq!(taken[254..], [254, 255, 0, 1]);
    }
}
