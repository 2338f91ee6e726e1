//! The NC header, between the MAC and the IP header (4.1), behind EtherType [`NC`](crate::ethernet::NC).
//!
//! ```text
//!   0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+-------------------------------+
//! |version| kind  |   reserved    | plain: flow id                |  a plain packet: 10 bytes
//! +-------+-------+---------------+-------------------------------+
//! | plain: TCP sequence number                                    |
//! +-------------------------------+-------------------------------+
//! | plain: TCP checksum           | packet …
//! +-------------------------------+
//!
//! +-------+-------+---------------+-------------------------------+
//! |version| kind  |   reserved    | number for the first receiver |  a sum of two: 28 bytes
//! +-------+-------+---------------+-------------------------------+
//! | number for the second receiver| MAC of the second receiver    |
//! +-------------------------------+                               |
//! |                                                               |
//! +---------------------------------------------------------------+
//! | first packet: digest                                          |
//! +-------------------------------+---------------+---------------+
//! | length                        | TOS           | hop limit     |
//! +-------------------------------+---------------+---------------+
//! | second packet: digest, length, TOS, hop limit                 |
//! |                                                               |
//! +---------------------------------------------------------------+
//! | sum of both packets, as long as the longer …
//! ```
//!
//! All numbers are big-endian. The first packet's receiver is the frame's destination; the second one overhears. The
//! paper names a packet in a sum by sequence number and checksum of its TCP header; here it is a digest of the whole
//! packet, which every protocol has and which also proves that it was decoded right.

use crate::datagram::{Label, Segment};
use crate::ethernet::Mac;

/// Bytes before the packet in a plain frame.
pub const PLAIN: usize = 10;
/// Bytes before the sum in a coded frame.
pub const CODED: usize = 28;

const VERSION: u8 = 1;
const KIND_PLAIN: u8 = 0;
const KIND_CODED: u8 = 1;

/// Why bytes behind the NC EtherType are no NC packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer bytes than the header needs.
    #[error("NC header is cut off: {have} bytes, it needs {need}")]
    Short {
        /// Bytes needed.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Another version.
    #[error("NC header has version {0}, not 1")]
    Version(u8),
    /// An unknown kind.
    #[error("NC header has kind {0}, which is none")]
    Kind(u8),
    /// Reserved bits that are not zero.
    #[error("NC header has reserved bits set: {0:#04x}")]
    Reserved(u8),
    /// A packet too short to be IP.
    #[error("NC header announces a packet of {0} bytes, which cannot be")]
    Length(u16),
    /// A sum shorter than the longer of its packets.
    #[error("the sum has {have} bytes, its longer packet {need}")]
    Sum {
        /// Bytes of the longer packet.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
}

/// What is behind the NC EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// A packet by itself.
    Plain(Plain<'a>),
    /// A sum of two.
    Coded(Coded<'a>),
}

/// A TCP packet that was not coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// [`FlowKey::id`](crate::FlowKey::id).
    pub flow: u16,
    /// TCP's sequence number.
    pub sequence: u32,
    /// TCP's checksum.
    pub checksum: u16,
    /// The packet, perhaps padded.
    pub packet: &'a [u8],
}

/// The sum of two packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coded<'a> {
    /// Counts the coded packets for the frame's destination.
    pub first_number: u16,
    /// Counts the coded packets for the second receiver.
    pub second_number: u16,
    /// Whom the second packet is for.
    pub second_receiver: Mac,
    /// The packet for the frame's destination.
    pub first: Label,
    /// The packet for the second receiver.
    pub second: Label,
    /// Both, added by XOR: exactly as long as the longer.
    pub sum: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads what follows the EtherType.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let [first, reserved] = *chunk(bytes, 0)?;
        if first >> 4 != VERSION {
            return Err(HeaderError::Version(first >> 4));
        }
        if reserved != 0 {
            return Err(HeaderError::Reserved(reserved));
        }
        match first & 15 {
            KIND_PLAIN => Ok(Header::Plain(Plain::parse(bytes)?)),
            KIND_CODED => Ok(Header::Coded(Coded::parse(bytes)?)),
            kind => Err(HeaderError::Kind(kind)),
        }
    }
}

impl<'a> Plain<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        Ok(Self {
            flow: u16::from_be_bytes(*chunk(bytes, 2)?),
            sequence: u32::from_be_bytes(*chunk(bytes, 4)?),
            checksum: u16::from_be_bytes(*chunk(bytes, 8)?),
            packet: &bytes[PLAIN..],
        })
    }
}

impl<'a> Coded<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let header: &[u8; CODED] = chunk(bytes, 0)?;
        let (first, second) = (label(chunk(header, 12)?)?, label(chunk(header, 20)?)?);
        let need = usize::from(first.length.max(second.length));
        let sum = &bytes[CODED..];
        let sum = sum.get(..need).ok_or(HeaderError::Sum { need, have: sum.len() })?;
        Ok(Self {
            first_number: u16::from_be_bytes(*chunk(header, 2)?),
            second_number: u16::from_be_bytes(*chunk(header, 4)?),
            second_receiver: Mac(*chunk(header, 6)?),
            first,
            second,
            sum,
        })
    }

    /// Writes the header and the sum behind a frame's EtherType.
    pub fn emit(&self, frame: &mut Vec<u8>) {
        frame.extend([VERSION << 4 | KIND_CODED, 0]);
        frame.extend(self.first_number.to_be_bytes());
        frame.extend(self.second_number.to_be_bytes());
        frame.extend(self.second_receiver.0);
        for label in [self.first, self.second] {
            frame.extend(label.digest.to_be_bytes());
            frame.extend(label.length.to_be_bytes());
            frame.extend([label.tos, label.hop_limit]);
        }
        frame.extend(self.sum);
    }
}

/// Writes the header of a plain packet and the packet behind a frame's EtherType.
pub(crate) fn emit_plain(frame: &mut Vec<u8>, segment: &Segment, packet: &[u8]) {
    frame.extend([VERSION << 4 | KIND_PLAIN, 0]);
    frame.extend(segment.flow.id().to_be_bytes());
    frame.extend(segment.sequence.to_be_bytes());
    frame.extend(segment.checksum.to_be_bytes());
    frame.extend(packet);
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<&[u8; N], HeaderError> {
    let short = HeaderError::Short { need: at + N, have: bytes.len() };
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(short)
}

fn label(bytes: &[u8; 8]) -> Result<Label, HeaderError> {
    let [a, b, c, d, high, low, tos, hop_limit] = *bytes;
    let length = u16::from_be_bytes([high, low]);
    if length < 20 {
        return Err(HeaderError::Length(length));
    }
    Ok(Label { digest: u32::from_be_bytes([a, b, c, d]), length, tos, hop_limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(sum: &[u8]) -> Coded<'_> {
        let label = |digest, length| Label { digest, length, tos: 3, hop_limit: 63 };
        Coded {
            first_number: 1,
            second_number: 2,
            second_receiver: Mac([2, 0, 0, 0, 0, 3]),
            first: label(0x0102_0304, 40),
            second: label(0x0506_0708, 20),
            sum,
        }
    }

    #[test]
    fn a_sum_is_read_as_it_was_written_and_padding_is_cut_off() {
        let (sum, mut bytes) = ([9; 40], Vec::new());
        coded(&sum).emit(&mut bytes);
        assert_eq!(bytes.len(), CODED + 40);
        bytes.extend([0; 6]);
        assert_eq!(Header::parse(&bytes), Ok(Header::Coded(coded(&sum))));
    }

    #[test]
    fn what_is_cut_off_is_refused_wherever() {
        let mut bytes = Vec::new();
        coded(&[9; 40]).emit(&mut bytes);
        for length in 0..bytes.len() {
            assert!(Header::parse(&bytes[..length]).is_err(), "{length}");
        }
    }
}
