//! Chunks: the common format (RFC 9260 §3.2), and the content of those that matter here (§3.3).

use super::SctpError;
use super::parameter::Parameters;
use super::tlv::take;

/// Chunk types.
pub mod kind {
    /// RFC 9260 §3.3.1.
    pub const DATA: u8 = 0;
    /// §3.3.2.
    pub const INIT: u8 = 1;
    /// §3.3.3.
    pub const INIT_ACK: u8 = 2;
    /// §3.3.4.
    pub const SACK: u8 = 3;
    /// §3.3.5.
    pub const HEARTBEAT: u8 = 4;
    /// §3.3.6.
    pub const HEARTBEAT_ACK: u8 = 5;
    /// §3.3.7.
    pub const ABORT: u8 = 6;
    /// §3.3.8.
    pub const SHUTDOWN: u8 = 7;
    /// §3.3.9.
    pub const SHUTDOWN_ACK: u8 = 8;
    /// §3.3.11.
    pub const COOKIE_ECHO: u8 = 10;
    /// §3.3.12.
    pub const COOKIE_ACK: u8 = 11;
    /// §3.3.13.
    pub const SHUTDOWN_COMPLETE: u8 = 14;
    /// RFC 8260 §2.1: DATA with messages interleaved.
    pub const I_DATA: u8 = 64;
    /// RFC 5061 §4.1.2.
    pub const ASCONF_ACK: u8 = 0x80;
    /// RFC 5061 §4.1.1.
    pub const ASCONF: u8 = 0xc1;
}

/// A chunk whose length fits into the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Of [`kind`], or another.
    pub kind: u8,
    /// What they mean depends on the type.
    pub flags: u8,
    /// What follows the four bytes of the header, without padding.
    pub value: &'a [u8],
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// DATA or I-DATA.
    Data(Data<'a>),
    /// INIT.
    Init(Init<'a>),
    /// INIT ACK.
    InitAck(Init<'a>),
    /// SACK.
    Sack(Sack<'a>),
    /// HEARTBEAT, with the information that its ACK brings back.
    Heartbeat(Parameters<'a>),
    /// HEARTBEAT ACK, with the same.
    HeartbeatAck(Parameters<'a>),
    /// ABORT.
    Abort,
    /// SHUTDOWN, with the cumulative TSN ack.
    Shutdown(u32),
    /// SHUTDOWN ACK.
    ShutdownAck,
    /// SHUTDOWN COMPLETE.
    ShutdownComplete,
    /// COOKIE ECHO.
    CookieEcho,
    /// COOKIE ACK.
    CookieAck,
    /// ASCONF: its serial number, and its parameters, of which the first is an address of the sender.
    Asconf(u32, Parameters<'a>),
    /// Any other.
    Other,
}

/// A piece of a user message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Transmission sequence number.
    pub tsn: u32,
    /// Its sender asks for a SACK at once (the I bit, RFC 9260 §3.3.1).
    pub immediate: bool,
    /// Stream, its sequence and what else precedes the user's bytes, and those.
    pub rest: &'a [u8],
}

/// INIT or INIT ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init<'a> {
    /// The verification tag of all packets to its sender.
    pub initiate_tag: u32,
    /// TSN of its sender's first DATA.
    pub initial_tsn: u32,
    /// Addresses and more.
    pub parameters: Parameters<'a>,
}

/// A selective acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sack<'a> {
    /// All up to it arrived.
    pub cumulative_tsn: u32,
    /// What the receiver has room for, in bytes.
    pub window: u32,
    gaps: &'a [u8],
    duplicates: &'a [u8],
}

impl<'a> Sack<'a> {
    /// First and last TSN of each block that arrived beyond a gap, as offsets from the cumulative TSN.
    pub fn gap_blocks(&self) -> impl Iterator<Item = (u16, u16)> + use<'a> {
        let half = |a, b| u16::from_be_bytes([a, b]);
        self.gaps.as_chunks().0.iter().map(move |[a, b, c, d]| (half(*a, *b), half(*c, *d)))
    }

    /// TSNs that arrived more than once since the last SACK.
    pub fn duplicates(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.duplicates.as_chunks().0.iter().map(|tsn| u32::from_be_bytes(*tsn))
    }
}

impl<'a> Chunk<'a> {
    /// What it holds.
    ///
    /// # Errors
    /// [`SctpError::Content`] if fixed fields are cut off, or what their counts announce.
    pub fn content(&self) -> Result<Content<'a>, SctpError> {
        Ok(match self.kind {
            kind::DATA => self.data(12)?,
            kind::I_DATA => self.data(16)?,
            kind::INIT => Content::Init(self.init()?),
            kind::INIT_ACK => Content::InitAck(self.init()?),
            kind::SACK => Content::Sack(self.sack()?),
            kind::HEARTBEAT => Content::Heartbeat(Parameters::new(self.value)),
            kind::HEARTBEAT_ACK => Content::HeartbeatAck(Parameters::new(self.value)),
            kind::ABORT => Content::Abort,
            kind::SHUTDOWN => Content::Shutdown(self.word(0)?),
            kind::SHUTDOWN_ACK => Content::ShutdownAck,
            kind::SHUTDOWN_COMPLETE => Content::ShutdownComplete,
            kind::COOKIE_ECHO => Content::CookieEcho,
            kind::COOKIE_ACK => Content::CookieAck,
            kind::ASCONF => Content::Asconf(self.word(0)?, Parameters::new(self.from(4)?)),
            _ => Content::Other,
        })
    }

    fn data(&self, header: usize) -> Result<Content<'a>, SctpError> {
        self.from(header)?;
        let immediate = self.flags & 8 != 0;
        Ok(Content::Data(Data { tsn: self.word(0)?, immediate, rest: self.from(4)? }))
    }

    fn init(&self) -> Result<Init<'a>, SctpError> {
        let parameters = Parameters::new(self.from(16)?);
        Ok(Init { initiate_tag: self.word(0)?, initial_tsn: self.word(12)?, parameters })
    }

    fn sack(&self) -> Result<Sack<'a>, SctpError> {
        let (lists, counts) = (self.from(12)?, self.word(8)?);
        let [gaps, duplicates] = [counts >> 16, counts & 0xffff].map(|count| count as usize * 4);
        let need = gaps + duplicates;
        let lists = lists.get(..need).ok_or(self.cut_off(12 + need))?;
        let (gaps, duplicates) = lists.split_at(gaps);
        Ok(Sack { cumulative_tsn: self.word(0)?, window: self.word(4)?, gaps, duplicates })
    }

    fn from(&self, at: usize) -> Result<&'a [u8], SctpError> {
        self.value.get(at..).ok_or(self.cut_off(at))
    }

    fn word(&self, at: usize) -> Result<u32, SctpError> {
        let bytes = self.value.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or(self.cut_off(at + 4))
    }

    fn cut_off(&self, need: usize) -> SctpError {
        SctpError::Content { kind: self.kind, need, have: self.value.len() }
    }
}

/// The chunks of a packet; ends behind an error.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, SctpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let taken = take(&mut self.rest)?;
        Some(taken.map(|([kind, flags], value)| Chunk { kind, flags, value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(bytes: &[u8]) -> Result<Content<'_>, SctpError> {
        let mut chunks = Chunks::new(bytes);
        let content = chunks.next().unwrap().and_then(|chunk| chunk.content());
        assert!(chunks.next().is_none());
        content
    }

    #[test]
    fn walks_over_padding() {
        let bytes = [9, 1, 0, 5, 0xaa, 0, 0, 0, 11, 0, 0, 4, 9, 0, 0, 5, 0xbb];
        let chunks: Result<Vec<_>, _> = Chunks::new(&bytes).collect();
        let chunk = |kind, flags, value| Chunk { kind, flags, value };
        assert_eq!(chunks.unwrap(), [chunk(9, 1, &[0xaa][..]), chunk(11, 0, &[]), chunk(9, 0, &[0xbb])]);
    }

    #[test]
    fn ends_behind_what_cannot_be() {
        for (bytes, length, left) in
            [(&[0, 0, 0][..], 3, 3), (&[0, 0, 0, 3], 3, 4), (&[0, 0, 0, 0], 0, 4), (&[0, 0, 0, 9, 1], 9, 5)]
        {
            let mut chunks = Chunks::new(bytes);
            assert_eq!(chunks.next(), Some(Err(SctpError::Length { length, left })));
            assert_eq!(chunks.next(), None);
        }
    }

    #[test]
    fn reads_data() {
        let mut bytes = vec![kind::DATA, 0x0b, 0, 17, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, b'x', 0, 0, 0];
        let Ok(Content::Data(data)) = only(&bytes) else { panic!("no DATA") };
        assert_eq!((data.tsn, data.immediate, data.rest.len()), (5, true, 9));
        (bytes[0], bytes[3]) = (kind::I_DATA, 19);
        assert_eq!(only(&bytes), Err(SctpError::Content { kind: kind::I_DATA, need: 16, have: 15 }));
    }

    #[test]
    fn reads_sack() {
        let mut bytes = vec![kind::SACK, 0, 0, 24, 0, 0, 0, 9, 0, 0, 0x20, 0, 0, 1, 0, 1];
        bytes.extend([0, 2, 0, 3, 0, 0, 0, 8]);
        let Ok(Content::Sack(sack)) = only(&bytes) else { panic!("no SACK") };
        assert_eq!((sack.cumulative_tsn, sack.window), (9, 0x2000));
        assert_eq!(sack.gap_blocks().collect::<Vec<_>>(), [(2, 3)]);
        assert_eq!(sack.duplicates().collect::<Vec<_>>(), [8]);
        bytes[13] = 2;
        assert_eq!(only(&bytes), Err(SctpError::Content { kind: kind::SACK, need: 24, have: 20 }));
    }

    #[test]
    fn fixed_fields_may_not_be_missing() {
        for (kind, need) in [
            (kind::DATA, 12),
            (kind::INIT, 16),
            (kind::INIT_ACK, 16),
            (kind::SACK, 12),
            (kind::SHUTDOWN, 4),
            (kind::ASCONF, 4),
        ] {
            let chunk = Chunk { kind, flags: 0, value: &[0; 3] };
            assert_eq!(chunk.content(), Err(SctpError::Content { kind, need, have: 3 }), "{kind}");
        }
    }

    #[test]
    fn the_rest_is_told_apart() {
        let content = |kind| Chunk { kind, flags: 0, value: &[0, 0, 0, 7] }.content();
        assert_eq!(content(kind::SHUTDOWN), Ok(Content::Shutdown(7)));
        assert_eq!(content(kind::SHUTDOWN_ACK), Ok(Content::ShutdownAck));
        assert_eq!(content(kind::SHUTDOWN_COMPLETE), Ok(Content::ShutdownComplete));
        assert_eq!(content(kind::ABORT), Ok(Content::Abort));
        assert_eq!(content(kind::COOKIE_ECHO), Ok(Content::CookieEcho));
        assert_eq!(content(kind::COOKIE_ACK), Ok(Content::CookieAck));
        assert_eq!(content(kind::ASCONF_ACK), Ok(Content::Other));
    }
}
