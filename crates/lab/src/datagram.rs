//! Datagrams that the lab makes by itself.

use std::net::Ipv4Addr;

use packet::checksum::Sum;

/// Bytes of Ethernet's header.
pub(crate) const ETHERNET: usize = 14;

/// Bytes of IPv4's and UDP's headers.
pub(crate) const HEADERS: usize = 28;

/// A packet of IPv4 and UDP without a UDP checksum (RFC 768: 0 is none), from an address and port to another.
pub(crate) fn packet(
    (from, source): (Ipv4Addr, u16),
    (to, port): (Ipv4Addr, u16),
    payload: &[u8],
) -> Vec<u8> {
    let length = (HEADERS + payload.len()) as u16;
    let mut packet = vec![0; HEADERS];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    let checksum = Sum::default().bytes(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet[20..22].copy_from_slice(&source.to_be_bytes());
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet[24..26].copy_from_slice(&(length - 20).to_be_bytes());
    packet.extend(payload);
    packet
}
