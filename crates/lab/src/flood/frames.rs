//! Frames as the lab sends them onto a medium: wire version 1 behind Ethernet, or in a broadcast datagram.

use std::net::Ipv4Addr;

use flood::frame::Kind;
use flood::{ETHERTYPE, Format, Header, Wire};

use super::mode::{Mode, PORT};

/// The ID that the lab's messages have; no node's own.
pub(super) const SOURCE: u32 = 1000;
/// At least any chain's length.
pub(super) const TTL: u8 = 16;
/// Without a key.
pub(super) fn format() -> Format {
    Format::new(Wire::One, None)
}

/// A message of `bytes` bytes as `mode` carries it.
pub(super) fn frame(mode: Mode, bytes: usize) -> Vec<u8> {
    let header = Header { id: SOURCE, epoch: 1, seq: 0, ttl: TTL, kind: Kind::Data };
    let message = format().write(&header, &vec![0; bytes]);
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 0]);
    if mode.is_udp() {
        frame.extend(0x0800u16.to_be_bytes());
        frame.extend(datagram(&message));
    } else {
        frame.extend(ETHERTYPE.to_be_bytes());
        frame.extend(message);
    }
    frame
}

/// UDP over IPv4 to everybody, without UDP's checksum (RFC 768: 0 is none).
fn datagram(payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(28 + payload.len()).unwrap_or(u16::MAX);
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ip.extend(crate::medium::address(0).octets());
    ip.extend(Ipv4Addr::BROADCAST.octets());
    let checksum = checksum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&checksum);
    ip.extend(PORT.to_be_bytes());
    ip.extend(PORT.to_be_bytes());
    ip.extend((total - 20).to_be_bytes());
    ip.extend([0; 2]);
    ip.extend(payload);
    ip
}

/// RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks().0.iter().map(|&pair| u32::from(u16::from_be_bytes(pair)));
    let sum: u32 = words.sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use flood::Padding;

    #[test]
    fn a_message_is_the_same_in_a_datagram() {
        let [bare, datagram] = [Mode::Driver, Mode::Application].map(|mode| frame(mode, 100));
        assert_eq!(bare[14..], datagram[42..]);
        let read = format().read(&bare[14..], Padding::Ethernet).unwrap();
        assert_eq!((read.header.id, read.data.len()), (SOURCE, 100));
        assert_eq!(checksum(&datagram[14..34]), 0, "a good header sums up to nothing");
    }
}
