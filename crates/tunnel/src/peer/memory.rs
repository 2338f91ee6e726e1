//! How much may wait for one peer: all have the same share of what the tunnel may use, so that no number of peers exhausts a host.

/// Bytes of inner packets that may wait at an end, of all peers together.
const ALL: usize = 1 << 30;
/// A peer's share counts in so many parts: what waits to be sent is one, and what is kept to be sent again, and what waits behind
/// gaps, four each.
const PARTS: usize = 9;
/// Bytes of a part: what even the fastest peer needs, and what none has less than.
const LARGEST: usize = 4 << 20;
const LEAST: usize = 256 << 10;

/// Bytes of inner packets that may wait for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    part: usize,
}

impl Memory {
    /// The share of each of so many peers.
    pub fn of_each(peers: usize) -> Self {
        Self { part: (ALL / PARTS / peers.max(1)).clamp(LEAST, LARGEST) }
    }

    /// To be sent.
    pub fn waiting(self) -> usize {
        self.part
    }

    /// To be sent again, perhaps.
    pub fn kept(self) -> usize {
        4 * self.part
    }

    /// Behind gaps.
    pub fn held(self) -> usize {
        4 * self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_hundred_peers_hold_a_gigabyte_and_few_hold_what_they_need() {
        let all = |peers: usize| {
            let memory = Memory::of_each(peers);
            peers * (memory.waiting() + memory.kept() + memory.held())
        };
        assert_eq!(Memory::of_each(1), Memory::of_each(28));
        assert_eq!((Memory::of_each(1).waiting(), Memory::of_each(1).held()), (4 << 20, 16 << 20));
        assert!((1..=455).all(|peers| all(peers) <= ALL));
    }
}
