//! A packet on its way through this node.

use std::time::Duration;

use crate::datagram::{Datagram, Kind};
use crate::encoder::Part;
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

    /// The order of two packets in a sum: the longer is sent to its next hop, with link ACKs; the other is overheard.
    pub fn in_order<'a>(&'a self, other: &'a Transit) -> (&'a Transit, &'a Transit) {
        let longer = self.datagram.bytes().len() >= other.datagram.bytes().len();
        if longer { (self, other) } else { (other, self) }
    }

    /// As part of a sum.
    pub(crate) fn part(&self) -> Part<'_> {
        Part { datagram: &self.datagram, receiver: self.next_hop }
    }

    /// Whether no later packet makes up for it, as for an ACK.
    pub(crate) fn is_wanted(&self) -> bool {
        self.datagram.kind() != Kind::Ack
    }
}
