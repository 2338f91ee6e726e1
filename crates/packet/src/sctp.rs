//! SCTP packets (RFC 9260 §3), behind IP or behind UDP (RFC 6951). Begin with [`Sctp::parse`] and [`Sctp::chunks`];
//! [`Chunk::content`] says what a chunk holds.

mod chunk;
mod crc32c;
mod parameter;
mod tlv;

pub use chunk::{Chunk, Chunks, Content, Data, Init, Sack, kind};
pub use crc32c::crc32c;
pub use parameter::{Change, Parameter, Parameters, addresses, changes};

use crate::ip::{self, Ip};

/// The port of SCTP in UDP (RFC 6951 §6).
pub const UDP_PORT: u16 = 9899;
/// The common header, in bytes.
const HEADER: usize = 12;
/// Where the checksum lies in it.
const CHECKSUM: usize = 8;
/// UDP's header, in bytes.
const UDP_HEADER: usize = 8;

/// Why bytes are no SCTP packet, or no such chunk of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SctpError {
    /// Fewer bytes than the common header has.
    #[error("SCTP packet is cut off: {0} bytes, its header needs 12")]
    Short(usize),
    /// A chunk or parameter shorter than its own header, or longer than what is left.
    #[error("SCTP chunk or parameter of {length} bytes, where 4 to {left} are possible")]
    Length {
        /// As it says itself.
        length: usize,
        /// Bytes that there are.
        left: usize,
    },
    /// A chunk without its fixed fields, or whose counts say more than it has.
    #[error("SCTP chunk of type {kind} is cut off: {have} bytes behind its header, it needs {need}")]
    Content {
        /// Its type.
        kind: u8,
        /// Bytes that it needs.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// An address parameter of another length than its family's.
    #[error("SCTP address parameter of type {kind} with {length} bytes")]
    Address {
        /// Its type.
        kind: u16,
        /// Of its value.
        length: usize,
    },
}

/// A packet's common header and the chunks behind it.
#[derive(Clone, Copy, Debug)]
pub struct Sctp<'a> {
    bytes: &'a [u8],
}

impl<'a> Sctp<'a> {
    /// The SCTP packet in `ip`, behind a UDP header if one of UDP's ports is `udp_port`. `None` if it is none, cut off
    /// or a fragment.
    pub fn parse(ip: &Ip<'a>, udp_port: u16) -> Option<Self> {
        let payload = ip.payload();
        let bytes = match ip.protocol() {
            _ if ip.is_fragment() => None,
            ip::SCTP => Some(payload),
            ip::UDP => encapsulated(payload, udp_port),
            _ => None,
        };
        bytes.and_then(|bytes| Self::from_bytes(bytes).ok())
    }

    /// `bytes`, from the common header to the end of the packet.
    ///
    /// # Errors
    /// [`SctpError::Short`].
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, SctpError> {
        if bytes.len() < HEADER { Err(SctpError::Short(bytes.len())) } else { Ok(Self { bytes }) }
    }

    /// Of the sender.
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.bytes[0], self.bytes[1]])
    }

    /// Of the receiver.
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.bytes[2], self.bytes[3]])
    }

    /// Which association, as its receiver chose; 0 with INIT (RFC 9260 §8.5).
    pub fn verification_tag(&self) -> u32 {
        u32::from_be_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]])
    }

    /// Whether the CRC32c fits (RFC 9260 §6.8). It covers no addresses, so a packet sent between another pair of
    /// addresses keeps it.
    pub fn checksum_right(&self) -> bool {
        let field = self.bytes[CHECKSUM..HEADER].first_chunk().copied().unwrap_or_default();
        checksum(self.bytes) == u32::from_le_bytes(field)
    }

    /// The chunks, in order; ends behind the first that cannot be.
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks::new(&self.bytes[HEADER..])
    }
}

/// Puts the right checksum into a packet that starts with its common header; one that is cut off stays as it is.
pub fn fill_checksum(packet: &mut [u8]) {
    if packet.len() >= HEADER {
        let sum = checksum(packet);
        packet[CHECKSUM..HEADER].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Over the packet with zeros in the checksum's place.
fn checksum(packet: &[u8]) -> u32 {
    crc32c([&packet[..CHECKSUM], &[0; HEADER - CHECKSUM], &packet[HEADER..]])
}

/// What UDP carries from or to `port`.
fn encapsulated(udp: &[u8], port: u16) -> Option<&[u8]> {
    let header: &[u8; UDP_HEADER] = udp.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let length = usize::from(word(4));
    (word(0) == port || word(2) == port).then(|| udp.get(UDP_HEADER..length)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Build, bytes};
    use proptest::prelude::*;

    /// A COOKIE ACK (RFC 9260 §3.3.12) from port 1000 to 2000 with tag 7.
    fn cookie_ack() -> Vec<u8> {
        let mut packet = [1000u16, 2000].map(u16::to_be_bytes).concat();
        packet.extend([0, 0, 0, 7, 0, 0, 0, 0, kind::COOKIE_ACK, 0, 0, 4]);
        fill_checksum(&mut packet);
        packet
    }

    fn udp(length: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = [UDP_PORT, 7777, length, 0].map(u16::to_be_bytes).concat();
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn reads_the_common_header() {
        for build in [Build::v4(), Build::v6()] {
            let packet = build.raw(ip::SCTP, &cookie_ack());
            let sctp = Sctp::parse(&Ip::parse(&packet).unwrap(), UDP_PORT).unwrap();
            assert_eq!((sctp.source_port(), sctp.destination_port()), (1000, 2000));
            assert_eq!((sctp.verification_tag(), sctp.checksum_right()), (7, true));
            assert_eq!(sctp.chunks().count(), 1);
        }
    }

    #[test]
    fn a_changed_bit_is_seen() {
        let mut packet = cookie_ack();
        packet[15] ^= 1;
        assert!(!Sctp::from_bytes(&packet).unwrap().checksum_right());
    }

    #[test]
    fn reads_sctp_in_udp() {
        let sctp = cookie_ack();
        let parse = |packet: &[u8], port| {
            Sctp::parse(&Ip::parse(packet).unwrap(), port).map(|sctp| sctp.checksum_right())
        };
        let good = Build::v4().raw(ip::UDP, &udp(8 + sctp.len() as u16, &sctp));
        assert_eq!(parse(&good, UDP_PORT), Some(true));
        assert_eq!(parse(&good, 7777), Some(true), "the other end's port may be the known one");
        assert_eq!(parse(&good, 9), None);
        for length in [0, 7, 8, 19, 8 + sctp.len() as u16 + 1] {
            assert_eq!(parse(&Build::v4().raw(ip::UDP, &udp(length, &sctp)), UDP_PORT), None, "{length}");
        }
    }

    #[test]
    fn what_is_cut_off_or_a_fragment_is_none() {
        let parse = |packet: &[u8]| Sctp::parse(&Ip::parse(packet).unwrap(), UDP_PORT).is_some();
        assert!(!parse(&Build::v4().raw(ip::SCTP, &cookie_ack()[..11])));
        assert!(!parse(&Build::v4().raw(ip::TCP, &cookie_ack())));
        let mut fragment = Build::v4().raw(ip::SCTP, &cookie_ack());
        fragment[6] = 0x20;
        assert!(!parse(&fragment));
        assert_eq!(Sctp::from_bytes(&[0; 11]).unwrap_err(), SctpError::Short(11));
    }

    proptest! {
        #[test]
        fn never_panics(packet in bytes(), junk: Vec<u8>) {
            let mut junk = junk;
            if let Ok(ip) = Ip::parse(&packet) {
                let _ = Sctp::parse(&ip, UDP_PORT).map(|sctp| sctp.chunks().count());
            }
            fill_checksum(&mut junk);
            if let Ok(sctp) = Sctp::from_bytes(&junk) {
                prop_assert!(sctp.checksum_right());
                prop_assert!(sctp.chunks().flatten().filter(|chunk| chunk.content().is_ok()).count() <= junk.len());
            }
        }
    }
}
