//! A packet on its way through this node.

use std::time::Duration;

use crate::datagram::Datagram;
use crate::ethernet::Mac;

/// A packet, where it came from and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transit {
    /// The packet.
    pub datagram: Datagram,
    /// The neighbour that sent it here; `None` if this node itself sends it.
    pub previous_hop: Option<Mac>,
    /// The neighbour that it goes to.
    pub next_hop: Mac,
    /// When it came to the NC layer.
    pub came: Duration,
}

impl Transit {
    /// Whether the two can be coded: each comes from the neighbour that the other goes to, which therefore has it.
    pub fn opposes(&self, other: &Transit) -> bool {
        self.previous_hop == Some(other.next_hop)
            && other.previous_hop == Some(self.next_hop)
            && self.next_hop != other.next_hop
    }
}
