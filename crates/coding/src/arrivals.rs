//! Where the packets came from that IP is about to forward.
//!
//! IP takes a packet from the master interface and gives it back with another next hop, without a word of where it came
//! from. Only the neighbour that sent it has a copy; so the layer remembers, by digest, whom it had each packet from. A
//! packet that it did not hand to IP before is this node's own.

use crate::datagram::Datagram;
use crate::ethernet::Mac;
use crate::recent::Recent;

/// Packets remembered: more than wait in IP at once.
const MAX_PACKETS: usize = 1024;

/// The senders of the latest packets that were handed to IP.
#[derive(Debug, Default)]
pub struct Arrivals(Recent<Mac, MAX_PACKETS>);

impl Arrivals {
    /// A packet from `sender` is handed to IP.
    pub fn insert(&mut self, datagram: &Datagram, sender: Mac) {
        self.0.insert(datagram.label().digest, sender);
    }

    /// The neighbour that sent the packet; `None` if it is this node's own.
    pub fn sender(&self, datagram: &Datagram) -> Option<Mac> {
        self.0.find(datagram.label().digest).copied()
    }

    /// Packets remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
