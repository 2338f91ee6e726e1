//! The frame: what one is ([`Frame`]), read from bytes and written to them, and why bytes are none ([`Verdict`]).

use std::fmt;

use crate::ffi::{RawConfig, RawHeader};

/// Bytes of a message at most, in both wire versions; the paper's.
pub const DATA_MAX: usize = 2307;
/// The EtherType that frames follow (IEEE 802, local experimental).
pub const ETHERTYPE: u16 = 0x88b5;

/// The format of frames; all nodes of a network have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// The paper's (figure 7): 8 bits of ID, 8 of SEQ; nothing protects it.
    Paper = 0,
    /// 32 bits each, an epoch, and a tag.
    One = 1,
}

impl Wire {
    /// Bytes of the header.
    pub fn header_bytes(self) -> usize {
        match self {
            Wire::Paper => 5,
            Wire::One => 24,
        }
    }

    /// Where the header has the TTL.
    pub(crate) fn ttl_at(self) -> usize {
        match self {
            Wire::Paper => 2,
            Wire::One => 1,
        }
    }

    /// The greatest ID.
    pub fn id_max(self) -> u32 {
        match self {
            Wire::Paper => u8::MAX.into(),
            Wire::One => u32::MAX,
        }
    }

    /// The sequence number after `seq`: SEQ wraps.
    pub fn next(self, seq: u32) -> u32 {
        seq.wrapping_add(1) & self.id_max()
    }
}

/// What a frame is for. Wire version 0 has data only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An application's message.
    #[default]
    Data = 0,
    /// Data begin with the ID, 4 bytes, that is to answer.
    EchoRequest = 1,
    /// A request's data.
    EchoReply = 2,
}

/// What may lie behind a frame's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Nothing: it is a UDP datagram's payload.
    None = 0,
    /// What fills an Ethernet payload up to 46 bytes.
    Ethernet = 46,
}

/// What becomes of a frame that a node hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// For the first time: it is delivered, and relayed while TTL allows.
    New,
    /// Cut before the end of its header.
    Short,
    /// Of another version, or of no known kind.
    Version,
    /// LEN is not what follows.
    Length,
    /// TTL 0.
    Expired,
    /// This node's own ID.
    Own,
    /// Heard before.
    Duplicate,
    /// So far behind its source's newest that it cannot be told from a duplicate.
    Old,
    /// Of an earlier life of its source.
    OldEpoch,
    /// Not from who has the key.
    BadTag,
    /// Its source has sent more than it may.
    Limited,
}

impl Verdict {
    /// All, in the order of C's.
    pub const ALL: [Verdict; 11] = [
        Verdict::New,
        Verdict::Short,
        Verdict::Version,
        Verdict::Length,
        Verdict::Expired,
        Verdict::Own,
        Verdict::Duplicate,
        Verdict::Old,
        Verdict::OldEpoch,
        Verdict::BadTag,
        Verdict::Limited,
    ];

    /// Of C's number.
    pub(crate) fn from_number(number: u32) -> Verdict {
        Verdict::ALL.get(number as usize).copied().unwrap_or(Verdict::Length)
    }

    /// As state and metrics call it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::New => "new",
            Verdict::Short => "short",
            Verdict::Version => "version",
            Verdict::Length => "length",
            Verdict::Expired => "ttl",
            Verdict::Own => "own",
            Verdict::Duplicate => "duplicate",
            Verdict::Old => "old",
            Verdict::OldEpoch => "old-epoch",
            Verdict::BadTag => "bad-tag",
            Verdict::Limited => "limited",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A frame's header, LEN aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Who sent it first.
    pub id: u32,
    /// Which of that node's lives; 0 in wire version 0.
    pub epoch: u32,
    /// Its number in that life.
    pub seq: u32,
    /// How many times it may still be sent, this time included.
    pub ttl: u8,
    /// What it is for.
    pub kind: Kind,
}

/// A frame: a good header, and the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// At most [`DATA_MAX`] bytes.
    pub data: &'a [u8],
}

/// The format of a network's frames, with the key where they carry tags.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub(crate) raw: RawConfig,
}

impl fmt::Debug for Format {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Format").field("wire", &self.wire()).field("keyed", &self.is_keyed()).finish()
    }
}

impl Format {
    /// `key` is of no use in wire version 0, which has no room for a tag.
    pub fn new(wire: Wire, key: Option<[u8; 16]>) -> Format {
        let key = key.filter(|_| wire == Wire::One);
        let mut raw = RawConfig { wire: wire as u32, keyed: key.is_some().into(), ..RawConfig::default() };
        if let Some(key) = key {
            let (one, two) = key.split_at(8);
            raw.key = [one, two].map(|half| u64::from_ne_bytes(half.try_into().expect("half of 16 bytes")));
        }
        Format { raw }
    }

    /// Its version.
    pub fn wire(&self) -> Wire {
        if self.raw.wire == 0 { Wire::Paper } else { Wire::One }
    }

    /// Whether frames carry tags.
    pub fn is_keyed(&self) -> bool {
        self.raw.keyed != 0
    }

    /// Reads a frame; its tag is not looked at.
    ///
    /// # Errors
    /// Why it is none: [`Verdict::Short`], [`Verdict::Version`], [`Verdict::Length`] or [`Verdict::Expired`].
    pub fn read<'a>(&self, bytes: &'a [u8], padding: Padding) -> Result<Frame<'a>, Verdict> {
        let raw = self.raw.parse(bytes, padding as u32).map_err(Verdict::from_number)?;
        let start = self.wire().header_bytes();
        let data = bytes.get(start..start + usize::from(raw.len)).ok_or(Verdict::Length)?;
        Ok(Frame { header: raw.into(), data })
    }

    /// The header alone, of a frame that may be cut behind it and was found good before; `None` if it is shorter.
    pub fn header(&self, bytes: &[u8]) -> Option<Header> {
        let header = self.wire().header_bytes();
        let mut alone = bytes.get(..header)?.to_vec();
        let length = header - if self.wire() == Wire::Paper { 2 } else { 22 };
        alone[length..length + 2].fill(0);
        self.read(&alone, Padding::None).ok().map(|frame| frame.header)
    }

    /// Writes a frame, with its tag if there is a key; without, wire version 1 has 0 for it.
    ///
    /// # Panics
    /// If there are more data than [`DATA_MAX`].
    pub fn write(&self, header: &Header, data: &[u8]) -> Vec<u8> {
        assert!(data.len() <= DATA_MAX, "{} bytes of data", data.len());
        let length = (data.len() as u16).to_be_bytes();
        let mut bytes = Vec::with_capacity(self.wire().header_bytes() + data.len());
        match self.wire() {
            Wire::Paper => {
                bytes.extend([header.id as u8, header.seq as u8, header.ttl]);
                bytes.extend(length);
            }
            Wire::One => {
                bytes.extend([1 << 4 | header.kind as u8, header.ttl]);
                bytes.extend(length);
                bytes.extend([header.id, header.epoch, header.seq].map(u32::to_be_bytes).as_flattened());
                bytes.extend([0; 8]);
            }
        }
        bytes.extend(data);
        if self.is_keyed() {
            let tag = self.raw.tag(&RawHeader::new(header, data.len()), &bytes);
            bytes[16..24].copy_from_slice(&tag);
        }
        bytes
    }

    /// Whether the tag of `bytes`, which `frame` was read from, is right; true where there are none.
    pub fn tag_is_good(&self, frame: &Frame, bytes: &[u8]) -> bool {
        let right = || self.raw.tag(&RawHeader::new(&frame.header, frame.data.len()), bytes);
        !self.is_keyed() || bytes.get(16..24).is_some_and(|tag| tag == right())
    }

    /// The same frame with one less TTL; `None` if it goes no further.
    pub fn relayed(&self, frame: &Frame, bytes: &[u8]) -> Option<Vec<u8>> {
        let whole = self.wire().header_bytes() + frame.data.len();
        let mut relayed = bytes.get(..whole).filter(|_| frame.header.ttl > 1)?.to_vec();
        relayed[self.wire().ttl_at()] = frame.header.ttl - 1;
        Some(relayed)
    }
}

impl From<RawHeader> for Header {
    fn from(raw: RawHeader) -> Header {
        let kind = match raw.kind {
            1 => Kind::EchoRequest,
            2 => Kind::EchoReply,
            _ => Kind::Data,
        };
        Header { id: raw.id, epoch: raw.epoch, seq: raw.seq, ttl: raw.ttl, kind }
    }
}

impl RawHeader {
    pub(crate) fn new(header: &Header, length: usize) -> RawHeader {
        let Header { id, epoch, seq, ttl, kind } = *header;
        RawHeader { id, epoch, seq, len: length as u16, ttl, kind: kind as u8 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 16] = *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";

    fn header() -> Header {
        Header { id: 7, epoch: 0x6540_0000, seq: 0x0102_0304, ttl: 5, kind: Kind::Data }
    }

    #[test]
    fn the_papers_header_is_five_bytes() {
        let format = Format::new(Wire::Paper, None);
        let bytes = format.write(&header(), b"hi");
        assert_eq!(bytes, [7, 4, 5, 0, 2, b'h', b'i']);
        let read = format.read(&bytes, Padding::None).expect("a frame");
        assert_eq!(read.header, Header { epoch: 0, seq: 4, ..header() });
        assert_eq!(read.data, b"hi");
    }

    #[test]
    fn the_tag_is_siphash_2_4() {
        // The second implementation gives the vector of Aumasson and Bernstein (2012), appendix A; C's gives the same.
        let format = Format::new(Wire::One, Some(KEY));
        let bytes = format.write(&header(), b"hi");
        assert_eq!(&bytes[..16], [0x10, 5, 0, 2, 0, 0, 0, 7, 0x65, 0x40, 0, 0, 1, 2, 3, 4]);
        let mut hashed = bytes[..16].to_vec();
        hashed[1] = 0;
        hashed.extend(b"hi");
        assert_eq!(&bytes[16..24], siphash(&hashed).to_le_bytes());
        assert_eq!(siphash(&(0..15).collect::<Vec<_>>()), 0xa129_ca61_49be_45e5);
    }

    /// A second SipHash-2-4 under [`KEY`], to compare with.
    fn siphash(bytes: &[u8]) -> u64 {
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let (k0, k1) = (word(&KEY[..8]), word(&KEY[8..]));
        let constants = [*b"somepseu", *b"dorandom", *b"lygenera", *b"tedbytes"].map(u64::from_be_bytes);
        let mut v = [constants[0] ^ k0, constants[1] ^ k1, constants[2] ^ k0, constants[3] ^ k1];
        let round = |v: &mut [u64; 4]| {
            for [a, b, c, d, x, y] in [[0, 1, 2, 3, 13, 16], [2, 1, 0, 3, 17, 21]] {
                v[a] = v[a].wrapping_add(v[b]);
                v[c] = v[c].wrapping_add(v[d]);
                v[b] = v[b].rotate_left(x as u32) ^ v[a];
                v[d] = v[d].rotate_left(y as u32) ^ v[c];
                v[a] = v[a].rotate_left(32);
            }
        };
        let mut take = |m: u64| {
            v[3] ^= m;
            round(&mut v);
            round(&mut v);
            v[0] ^= m;
        };
        let (words, rest) = bytes.split_at(bytes.len() / 8 * 8);
        words.chunks(8).for_each(|chunk| take(word(chunk)));
        take(word(rest) | (bytes.len() as u64) << 56);
        v[2] ^= 0xff;
        (0..4).for_each(|_| round(&mut v));
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }

    #[test]
    fn whatever_changes_but_the_ttl_makes_the_tag_wrong() {
        let format = Format::new(Wire::One, Some(KEY));
        let bytes = format.write(&header(), b"a message");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let good =
                format.read(&changed, Padding::None).is_ok_and(|frame| format.tag_is_good(&frame, &changed));
            assert_eq!(good, at == 1, "byte {at}");
        }
    }

    #[test]
    fn a_length_that_lies_is_no_frame() {
        for wire in [Wire::Paper, Wire::One] {
            let format = Format::new(wire, None);
            let good = format.write(&header(), &[7; 100]);
            assert!(format.read(&good, Padding::None).is_ok());
            for cut in 0..good.len() {
                let short = cut < wire.header_bytes();
                let verdict = format.read(&good[..cut], Padding::None).expect_err("cut");
                assert_eq!(verdict, if short { Verdict::Short } else { Verdict::Length }, "{cut}");
            }
            let longer = [good.as_slice(), &[0]].concat();
            assert_eq!(format.read(&longer, Padding::Ethernet), Err(Verdict::Length));
            let mut padded = format.write(&header(), b"x");
            padded.resize(46, 0);
            assert_eq!(format.read(&padded, Padding::Ethernet).map(|frame| frame.data), Ok(&b"x"[..]));
            assert_eq!(format.read(&padded, Padding::None), Err(Verdict::Length));
            let mut huge = format.write(&header(), &[7; DATA_MAX]);
            let at = wire.header_bytes() - if wire == Wire::Paper { 2 } else { 22 };
            huge[at..at + 2].copy_from_slice(&(DATA_MAX as u16 + 1).to_be_bytes());
            huge.push(7);
            assert_eq!(format.read(&huge, Padding::None), Err(Verdict::Length));
        }
    }

    #[test]
    fn a_relayed_frame_has_one_less_ttl_and_no_padding() {
        let format = Format::new(Wire::One, Some(KEY));
        let mut bytes = format.write(&header(), b"x");
        bytes.resize(46, 0);
        let frame = format.read(&bytes, Padding::Ethernet).expect("a frame");
        let relayed = format.relayed(&frame, &bytes).expect("TTL 5 goes on");
        let again = format.read(&relayed, Padding::None).expect("a frame");
        assert_eq!(again.header, Header { ttl: 4, ..header() });
        assert!(format.tag_is_good(&again, &relayed));
        let last = format.write(&Header { ttl: 1, ..header() }, b"x");
        let frame = format.read(&last, Padding::None).expect("a frame");
        assert_eq!(format.relayed(&frame, &last), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            id: u32, epoch: u32, seq: u32, ttl in 1u8.., data in proptest::collection::vec(0u8.., 0..300),
            key: Option<[u8; 16]>,
        ) {
            let header = Header { id, epoch, seq, ttl, kind: Kind::EchoReply };
            let format = Format::new(Wire::One, key);
            let bytes = format.write(&header, &data);
            let frame = format.read(&bytes, Padding::None).expect("a frame");
            prop_assert_eq!(frame, Frame { header, data: &data });
            prop_assert!(format.tag_is_good(&frame, &bytes));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(0u8.., 0..80)) {
            for wire in [Wire::Paper, Wire::One] {
                let format = Format::new(wire, Some(KEY));
                if let Ok(frame) = format.read(&bytes, Padding::Ethernet) {
                    format.tag_is_good(&frame, &bytes);
                    format.relayed(&frame, &bytes);
                }
            }
        }
    }
}
