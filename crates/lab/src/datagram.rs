//! Datagrams that the lab makes by itself.

use std::net::Ipv4Addr;

use packet::checksum::Sum;

/// Bytes of Ethernet's header.
pub(crate) const ETHERNET: usize = 14;

/// Bytes of IPv4's and UDP's headers.
pub(crate) const HEADERS: usize = 28;

/// A packet of IPv4 and UDP without a UDP checksum (RFC 768: 0 is none), from an address and port to another.
pub fn packet((from, source): (Ipv4Addr, u16), (to, port): (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let length = (HEADERS + payload.len()) as u16;
    let [high, low] = length.to_be_bytes();
    let head = [0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0];
    let mut packet = [&head[..], &from.octets(), &to.octets()].concat();
    let checksum = Sum::default().bytes(&packet).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend([source, port, length - 20, 0].map(u16::to_be_bytes).as_flattened());
    packet.extend(payload);
    packet
}
