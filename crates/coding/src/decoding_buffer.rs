//! The decoding buffer: copies of what this node sent, to decode sums with.

use crate::datagram::{Datagram, Label};
use crate::recent::Recent;

/// Copies kept: more than a window of TCP and the queues on the way hold, 1.5 MB of full-sized packets.
const MAX_PACKETS: usize = 1024;

/// Copies of the latest packets sent, with their mutable fields zero.
#[derive(Debug, Default)]
pub struct DecodingBuffer(Recent<Vec<u8>, MAX_PACKETS>);

impl DecodingBuffer {
    /// Keeps a copy of a packet that is sent, in place of the oldest.
    pub fn insert(&mut self, datagram: &Datagram) {
        self.0.insert(datagram.label().digest, datagram.canonical());
    }

    /// The copy of the packet with this label.
    pub fn find(&self, label: Label) -> Option<&[u8]> {
        self.0.find(label.digest).filter(|copy| copy.len() == usize::from(label.length)).map(Vec::as_slice)
    }

    /// Copies kept.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
