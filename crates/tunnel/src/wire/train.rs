//! Trains of datagrams.

use crate::capture::{Captured, Ends, TrainNotes};
use crate::wire;
use crate::wire::address::Address;

/// Datagrams to one address, all of one size but the last, which may be shorter: what UDP segmentation offload sends in
/// one call.
#[derive(Debug, Default)]
pub struct Train {
    /// Where to.
    pub to: Option<Address>,
    /// Traffic class: DSCP and ECN.
    pub tos: u8,
    /// The size of each datagram but the last.
    pub segment_size: usize,
    /// The datagrams one after the other.
    pub contents: Vec<u8>,
    /// What is noted of the datagrams, while somebody captures.
    pub notes: Option<TrainNotes>,
    segments: usize,
    closed: bool,
}

/// The kernel's UDP_MAX_SEGMENTS before 6.9.
const MAX_SEGMENTS: usize = 64;
/// The longest that fits into an IPv4 packet with a UDP header.
const MAX_BYTES: usize = 65_507;

impl Train {
    /// Empties it.
    pub fn clear(&mut self) {
        self.contents.clear();
        self.notes.iter_mut().for_each(TrainNotes::clear);
        (self.to, self.tos, self.segment_size, self.segments, self.closed) = (None, 0, 0, 0, false);
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// Whether `count` datagrams of `size` bytes of UDP payload, the last perhaps of fewer, to `to` with `tos` may follow.
    pub fn takes(&self, to: &Address, tos: u8, size: usize, count: usize) -> bool {
        self.is_empty()
            || (self.to.as_ref() == Some(to)
                && self.tos == tos
                && !self.closed
                && (size == self.segment_size || size < self.segment_size && count == 1)
                && self.segments + count <= MAX_SEGMENTS
                && self.contents.len() + count * size <= MAX_BYTES)
    }

    /// Appends a datagram that `write` writes, after the relay's header where there is one.
    pub fn put(&mut self, to: &Address, tos: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.contents.len();
        if let Some((direction, session)) = to.via {
            self.contents.extend(wire::relay_header(direction, session));
        }
        write(&mut self.contents);
        let size = self.contents.len() - start;
        if self.is_empty() {
            (self.to, self.tos, self.segment_size) = (Some(*to), tos, size);
        }
        self.segments += 1;
        self.closed = size < self.segment_size;
    }

    /// How many datagrams there are.
    pub fn len(&self) -> usize {
        self.segments
    }

    /// The datagrams.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.contents.chunks(self.segment_size.max(1))
    }

    /// Gives `each` what was noted of its datagrams.
    pub fn tell(&self, each: impl FnMut(Captured)) {
        if let (Some(notes), Some(Address { remote, local, .. })) = (&self.notes, self.to) {
            notes.tell(Ends { remote, local, tos: self.tos }, self.datagrams(), each);
        }
    }
}
