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
//! |version| kind  |W|  reserved   | number for the second receiver|  a sum of two: 26 bytes
//! +-------+-------+---------------+-------------------------------+
//! | MAC of the second receiver                                    |
//! |                               +-------------------------------+
//! |                               | first packet: digest, length, |
//! | TOS, hop limit; second packet: the same …
//! +---------------------------------------------------------------+
//! | sum of both packets, as long as the longer …
//!
//! +-------+-------+---------------+-------------------------------+
//! |version| kind  |   reserved    | newest number overheard       |  a report: 22 bytes
//! +-------+-------+---------------+-------------------------------+
//! | numbers missed, ever          | bit i: newest - i is missing  |
//! +-------------------------------+                               |
//! |                                                               |
//! |                               +-------------------------------+
//! |                               | the relay's nonce …
//! +-------------------------------+
//!
//! +-------+-------+---------------+-------------------------------+
//! |version| kind  |A|  reserved   | nonce of whoever asks …       |  a greeting: 10 bytes
//! +-------+-------+---------------+-------------------------------+
//! ```
//!
//! Mode `any` sends no plain NC packets, but IP as it is. W says that the second packet is wanted again if it is missed, A
//! that the greeting asks for one with its nonce.
//!
//! All numbers are big-endian. The first packet's receiver is the frame's destination; the second one overhears. The
//! paper names a packet in a sum by sequence number and checksum of its TCP header; here it is a digest of the whole
//! packet, which every protocol has and which also proves that it was decoded right.

use crate::datagram::{Label, Segment};
use crate::ethernet::Mac;

/// Bytes before the packet in a plain frame.
pub const PLAIN: usize = 10;
/// Bytes before the sum in a coded frame.
pub const CODED: usize = 26;
/// Bytes of a report.
pub const REPORT: usize = 22;
/// Bytes of a greeting.
pub const GREETING: usize = 10;

/// Version 1 had CRCs as digests, and believed whoever sent an NC frame.
const VERSION: u8 = 2;
const KIND_PLAIN: u8 = 0;
const KIND_CODED: u8 = 1;
const KIND_REPORT: u8 = 2;
const KIND_GREETING: u8 = 3;

/// The flag of a sum whose second packet is wanted again.
const WANTED: u8 = 0x80;
/// The flag of a greeting that asks for one.
const ASKS: u8 = 0x80;

/// Why bytes behind the NC EtherType are no NC packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Fewer bytes than the header needs.
    Short,
    /// Another version.
    Version,
    /// An unknown kind.
    Kind,
    /// Reserved bits that are not zero.
    Reserved,
    /// A packet too short to be IP.
    Length,
    /// A sum shorter than the longer of its packets.
    Sum,
}

/// What is behind the NC EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// A TCP packet that was not coded, perhaps padded.
    Plain(&'a [u8]),
    /// A sum of two.
    Coded(Coded<'a>),
    /// What a neighbour overheard.
    Report(Report),
    /// A neighbour decodes.
    Greeting(Greeting),
}

/// The sum of two packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coded<'a> {
    /// Whether the second packet is wanted again if it is missed.
    pub wanted: bool,
    /// Counts the sums that the second receiver is to overhear.
    pub number: u16,
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
            return Err(HeaderError::Version);
        }
        let flags = match first & 15 {
            KIND_CODED => WANTED,
            KIND_GREETING => ASKS,
            _ => 0,
        };
        if reserved & !flags != 0 {
            return Err(HeaderError::Reserved);
        }
        match first & 15 {
            KIND_PLAIN => chunk::<PLAIN>(bytes, 0).map(|header| Header::Plain(&bytes[header.len()..])),
            KIND_CODED => Ok(Header::Coded(Coded::parse(bytes)?)),
            KIND_REPORT => Ok(Header::Report(Report::parse(bytes)?)),
            KIND_GREETING => Ok(Header::Greeting(Greeting::parse(bytes)?)),
            _ => Err(HeaderError::Kind),
        }
    }
}

impl<'a> Coded<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let header: &[u8; CODED] = chunk(bytes, 0)?;
        let (first, second) = (label(chunk(header, 10)?)?, label(chunk(header, 18)?)?);
        let need = usize::from(first.length.max(second.length));
        let sum = bytes[CODED..].get(..need).ok_or(HeaderError::Sum)?;
        Ok(Self {
            wanted: header[1] & WANTED != 0,
            number: u16::from_be_bytes(*chunk(header, 2)?),
            second_receiver: Mac(*chunk(header, 4)?),
            first,
            second,
            sum,
        })
    }

    /// Writes the header and the sum behind a frame's EtherType.
    pub fn emit(&self, frame: &mut Vec<u8>) {
        frame.extend([VERSION << 4 | KIND_CODED, if self.wanted { WANTED } else { 0 }]);
        frame.extend(self.number.to_be_bytes());
        frame.extend(self.second_receiver.0);
        for label in [self.first, self.second] {
            frame.extend(label.digest.to_be_bytes());
            frame.extend(label.length.to_be_bytes());
            frame.extend([label.tos, label.hop_limit]);
        }
        frame.extend(self.sum);
    }
}

/// What a neighbour overheard of the sums whose second receiver it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The newest number.
    pub newest: u16,
    /// Numbers missed or not decoded since ever, modulo 2^16.
    pub lost: u16,
    /// Bit i: the number i before the newest is missing.
    pub missing: u64,
    /// The nonce that the relay asked with last.
    pub answer: u64,
}

impl Report {
    fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let report: &[u8; REPORT] = chunk(bytes, 0)?;
        Ok(Self {
            newest: u16::from_be_bytes(*chunk(report, 2)?),
            lost: u16::from_be_bytes(*chunk(report, 4)?),
            missing: u64::from_be_bytes(*chunk(report, 6)?),
            answer: u64::from_be_bytes(*chunk(report, 14)?),
        })
    }

    /// Writes the report behind a frame's EtherType.
    pub fn emit(&self, frame: &mut Vec<u8>) {
        frame.extend([VERSION << 4 | KIND_REPORT, 0]);
        frame.extend(self.newest.to_be_bytes());
        frame.extend(self.lost.to_be_bytes());
        frame.extend(self.missing.to_be_bytes());
        frame.extend(self.answer.to_be_bytes());
    }
}

/// Asks a neighbour whether it decodes, or answers that its sender does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// Whether it asks.
    pub asks: bool,
    /// Of the one that asks.
    pub nonce: u64,
}

impl Greeting {
    fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let greeting: &[u8; GREETING] = chunk(bytes, 0)?;
        Ok(Self { asks: greeting[1] & ASKS != 0, nonce: u64::from_be_bytes(*chunk(greeting, 2)?) })
    }

    /// Writes the greeting behind a frame's EtherType.
    pub fn emit(&self, frame: &mut Vec<u8>) {
        frame.extend([VERSION << 4 | KIND_GREETING, if self.asks { ASKS } else { 0 }]);
        frame.extend(self.nonce.to_be_bytes());
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
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(HeaderError::Short)
}

fn label(bytes: &[u8; 8]) -> Result<Label, HeaderError> {
    let [a, b, c, d, high, low, tos, hop_limit] = *bytes;
    let length = u16::from_be_bytes([high, low]);
    if length < 20 {
        return Err(HeaderError::Length);
    }
    Ok(Label { digest: u32::from_be_bytes([a, b, c, d]), length, tos, hop_limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(sum: &[u8]) -> Coded<'_> {
        let label = |digest, length| Label { digest, length, tos: 3, hop_limit: 63 };
        Coded {
            wanted: true,
            number: 2,
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
    fn a_report_is_read_as_it_was_written() {
        let (report, mut bytes) =
            (Report { newest: 7, lost: 300, missing: 1 << 63 | 5, answer: 9 }, Vec::new());
        report.emit(&mut bytes);
        assert_eq!((bytes.len(), Header::parse(&bytes)), (REPORT, Ok(Header::Report(report))));
        assert!(Header::parse(&bytes[..REPORT - 1]).is_err());
    }

    #[test]
    fn a_greeting_is_read_as_it_was_written() {
        let (greeting, mut bytes) = (Greeting { asks: true, nonce: 1 << 63 | 5 }, Vec::new());
        greeting.emit(&mut bytes);
        assert_eq!((bytes.len(), Header::parse(&bytes)), (GREETING, Ok(Header::Greeting(greeting))));
        assert!(Header::parse(&bytes[..GREETING - 1]).is_err());
    }

    #[test]
    fn what_is_cut_off_is_refused_wherever() {
        let mut bytes = Vec::new();
        coded(&[9; 40]).emit(&mut bytes);
        for length in 0..bytes.len() {
            assert!(Header::parse(&bytes[..length]).is_err(), "{length}");
        }
        let plain = [VERSION << 4 | KIND_PLAIN, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert!((0..PLAIN).all(|length| Header::parse(&plain[..length]).is_err()));
        assert_eq!(Header::parse(&plain), Ok(Header::Plain(&[9])));
    }
}
