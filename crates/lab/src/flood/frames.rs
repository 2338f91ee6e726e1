//! Frames as the lab sends them onto a medium: wire version 1 behind Ethernet, or in a broadcast datagram.

use std::net::Ipv4Addr;

use flood::frame::Kind;
use flood::{ETHERTYPE, Format, Header, Wire};

use super::mode::{Mode, PORT};
use crate::datagram::packet;
use crate::medium::address;

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
        frame.extend(packet((address(0), PORT), (Ipv4Addr::BROADCAST, PORT), &message));
    } else {
        frame.extend(ETHERTYPE.to_be_bytes());
        frame.extend(message);
    }
    frame
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
    }
}
