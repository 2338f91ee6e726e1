//! The encoder: one frame for two packets.

use crate::datagram::Datagram;
use crate::ethernet::{self, Mac};
use crate::header::{CODED, Coded};

/// A packet and the neighbour that it goes to.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The packet.
    pub datagram: &'a Datagram,
    /// The next hop.
    pub receiver: Mac,
    /// Counts the coded packets for that neighbour.
    pub number: u16,
}

/// The frame from `source` that carries the sum of two packets: to `first`'s receiver, overheard by `second`'s.
pub fn encode(source: Mac, first: Part<'_>, second: Part<'_>) -> Vec<u8> {
    let sum = add(first.datagram.canonical(), &second.datagram.canonical());
    let mut frame = ethernet::begin(first.receiver, source, ethernet::NC, CODED + sum.len());
    let header = Coded {
        first_number: first.number,
        second_number: second.number,
        second_receiver: second.receiver,
        first: first.datagram.label(),
        second: second.datagram.label(),
        sum: &sum,
    };
    header.emit(&mut frame);
    frame
}

/// What follows the Ethernet header of the sum of two packets, in bytes.
pub fn payload_len(first: &Datagram, second: &Datagram) -> usize {
    CODED + first.bytes().len().max(second.bytes().len())
}

/// The sum of two byte strings: XOR, the shorter as if it went on with zeros.
pub(crate) fn add(mut longer: Vec<u8>, shorter: &[u8]) -> Vec<u8> {
    if longer.len() < shorter.len() {
        longer.resize(shorter.len(), 0);
    }
    longer.iter_mut().zip(shorter).for_each(|(sum, byte)| *sum ^= byte);
    longer
}
