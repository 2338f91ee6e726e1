//! The decoding buffer: copies of what this node sent, to decode sums with.

use crate::datagram::{Datagram, Label};
use crate::recent::Recent;

/// Copies kept: as many full-sized packets as Linux's greatest receive window (`tcp_rmem`, 6 MB) holds, which they take as well. With
/// 256, windows of 1000 segments lose a fifth over three hops; 1024 do where no more than one relay's own queue
/// (`interface_queue.rs`) holds what a node has sent, but relays have a queue above that as well, and a node may have several.
const MAX_PACKETS: usize = 4096;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_window_of_linux_can_be_decoded_with() {
        let mut buffer = DecodingBuffer::default();
        let packet = |n: u16| {
            let [high, low] = n.to_be_bytes();
            let bytes = vec![0x60, 0, 0, 0, 0, 20, 17, 9, high, low];
            Datagram::parse([bytes, vec![0; 50]].concat()).expect("a packet")
        };
        // 6 MB are no more segments of 1460 bytes.
        let window: Vec<_> = (0..4096).map(packet).collect();
        window.iter().for_each(|packet| buffer.insert(packet));
        assert!(window.iter().all(|packet| buffer.find(packet.label()).is_some()));
    }
}
