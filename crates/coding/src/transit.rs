//! A packet on its way through this node.

use std::time::Duration;

use crate::datagram::{Datagram, FlowKey, Kind};
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

    /// Whether both come from one neighbour and go to one.
    pub fn follows_the_way_of(&self, other: &Transit) -> bool {
        self.previous_hop == other.previous_hop && self.next_hop == other.next_hop
    }

    /// The order of two packets in a sum: the longer is sent to its next hop, with link ACKs; the other is overheard.
    pub fn in_order<'a>(&'a self, other: &'a Transit) -> (&'a Transit, &'a Transit) {
        let longer = self.datagram.bytes().len() >= other.datagram.bytes().len();
        if longer { (self, other) } else { (other, self) }
    }

    /// Whether neither is twice as long as the other.
    pub fn is_about_as_long_as(&self, other: &Transit) -> bool {
        let [one, two] = [self, other].map(|packet| packet.datagram.bytes().len());
        one < 2 * two && two < 2 * one
    }

    /// Of packets that take one way, those for which this is equal keep their order: those of one connection, pure ACKs
    /// apart, which may overtake data; and all that are not TCP's.
    fn order(&self) -> (Option<FlowKey>, bool) {
        (self.datagram.segment().map(|segment| segment.flow), self.datagram.kind() == Kind::Ack)
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

/// How many packets are looked at for a partner.
const LOOKED_AT: usize = 64;

/// Where the partner of `leaving` is: the first opposing packet that `fits`, if it overtakes none of its own flow.
pub fn find_partner<'a, P>(
    packets: impl Iterator<Item = (P, &'a Transit)>,
    leaving: &Transit,
    fits: impl Fn(&Transit) -> bool,
) -> Option<P> {
    let opposing = packets.filter(|(_, packet)| packet.opposes(leaving)).take(LOOKED_AT);
    let mut passed = Vec::new();
    for (place, packet) in opposing {
        let order = packet.order();
        if !passed.contains(&order) {
            if fits(packet) {
                return Some(place);
            }
            passed.push(order);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Mac = Mac([2; 6]);
    const RIGHT: Mac = Mac([4; 6]);

    /// UDP, so many bytes long.
    fn packet(length: u8, from: Mac, to: Mac) -> Transit {
        let mut bytes = vec![0; 40 + usize::from(length)];
        (bytes[0], bytes[5], bytes[6]) = (0x60, length, 17);
        let datagram = Datagram::parse(bytes).unwrap();
        Transit { datagram, previous_hop: Some(from), next_hop: to, came: Duration::ZERO }
    }

    #[test]
    fn a_partner_overtakes_none_of_its_own_flow() {
        let [short, long] = [20, 200].map(|length| packet(length, LEFT, RIGHT));
        let (leaving, other_way) = (packet(20, RIGHT, LEFT), packet(200, LEFT, Mac([6; 6])));
        let find = |packets: &[&Transit]| {
            let packets = (0..).zip(packets.iter().copied());
            find_partner(packets, &leaving, |packet| packet.is_about_as_long_as(&leaving))
        };
        assert_eq!(find(&[&short, &long]), Some(0));
        assert_eq!(find(&[&long, &short]), None);
        assert_eq!(find(&[&other_way, &leaving, &short]), Some(2));
    }
}
