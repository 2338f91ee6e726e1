//! Which packets control retransmission: [`Association`] for SCTP, [`Connection`] for TCP, each for one direction.

use std::ops::BitOr;

use packet::sctp::Content;
use packet::{Sctp, Tcp};

use crate::ffi::{self, RawAssociation, RawConnection, RawSctp, RawSegment};

/// What is sent twice, in the order of `enum bicast_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Off,
    /// As published (paper 004, 4.1): requests for retransmission and retransmissions.
    Selective,
    /// All that may be: the paper's rival.
    Full,
    /// What `Selective` copies, and what else a timer would have to find, within a budget.
    #[default]
    Adaptive,
}

impl Mode {
    /// The reasons among `reasons` that count.
    pub fn wanted(self, reasons: Reasons) -> Reasons {
        Reasons(ffi::wanted(self as u32, reasons.0))
    }
}

/// Whether a copy of `length` bytes keeps all copies of a flow within `percent` of what it has sent; ten full packets
/// are free.
pub fn within_budget(sent_bytes: u64, extra_bytes: u64, length: u32, percent: u32) -> bool {
    ffi::within_budget(sent_bytes, extra_bytes, length, percent)
}

/// Why a packet may be sent twice; empty if it must not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reasons(u32);

impl Reasons {
    /// It holds data that was sent before.
    pub const RETRANSMISSION: Reasons = Reasons(1);
    /// It says what is missing: a SACK with gap ack blocks; SACK blocks or a duplicate ACK of TCP.
    pub const REQUEST: Reasons = Reasons(2);
    /// Nothing follows that would tell of its loss.
    pub const TAIL: Reasons = Reasons(4);
    /// It ends an association or a direction of a connection.
    pub const END: Reasons = Reasons(8);
    /// It begins a connection, or makes a path of an association known.
    pub const BEGIN: Reasons = Reasons(16);
    /// None of these; only [`Mode::Full`] copies it.
    pub const REST: Reasons = Reasons(32);

    /// All with the names that status uses, in the order of their bits.
    pub const NAMES: [(Reasons, &'static str); 6] = [
        (Reasons::RETRANSMISSION, "retransmission"),
        (Reasons::REQUEST, "request"),
        (Reasons::TAIL, "tail"),
        (Reasons::END, "end"),
        (Reasons::BEGIN, "begin"),
        (Reasons::REST, "rest"),
    ];

    /// `enum bicast_reason`.
    #[cfg(test)]
    pub(crate) fn from_word(word: u32) -> Reasons {
        Reasons(word)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` hold.
    pub fn contains(self, other: Reasons) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Reasons {
    type Output = Reasons;

    fn bitor(self, other: Reasons) -> Reasons {
        Reasons(self.0 | other.0)
    }
}

/// What is known of an SCTP association, in one direction: the highest TSN sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Association(RawAssociation);

impl Association {
    /// The reasons to send `packet` twice. A packet with a chunk that cannot be has none, and counts as not sent.
    pub fn classify(&mut self, packet: &Sctp) -> Reasons {
        gather(packet).map_or(Reasons::default(), |fields| Reasons(self.0.classify(&fields)))
    }
}

fn gather(packet: &Sctp) -> Option<RawSctp> {
    let mut fields = RawSctp::default();
    for chunk in packet.chunks() {
        let chunk = chunk.ok()?;
        let (tsn, gaps) = match chunk.content().ok()? {
            Content::Data(data) => (data.tsn, 0),
            Content::Sack(sack) => (0, sack.gap_blocks().count() as u32),
            _ => (0, 0),
        };
        fields.chunk_seen(chunk.kind, chunk.flags, tsn, gaps);
    }
    Some(fields)
}

/// What is known of a TCP connection, in one direction: how far it has been sent, and the last ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection(RawConnection);

impl Connection {
    /// The reasons to send `segment` twice.
    pub fn classify(&mut self, segment: &Tcp) -> Reasons {
        let fields = RawSegment {
            seq: segment.sequence(),
            ack: segment.acknowledgment(),
            length: segment.payload().len() as u32,
            flags: segment.flags().into(),
            window: segment.window().into(),
            sack_blocks: segment.sack_blocks() as u32,
        };
        Reasons(self.0.classify(&fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::sctp::kind;

    fn packet(chunks: &[u8]) -> Vec<u8> {
        [&[0; 12], chunks].concat()
    }

    fn data(tsn: u8) -> Vec<u8> {
        vec![kind::DATA, 3, 0, 17, 0, 0, 0, tsn, 0, 0, 0, 0, 0, 0, 0, 0, b'x', 0, 0, 0]
    }

    fn classify(state: &mut Association, chunks: &[u8]) -> Reasons {
        state.classify(&Sctp::from_bytes(&packet(chunks)).expect("a header"))
    }

    #[test]
    fn reads_what_the_classifier_needs() {
        let mut state = Association::default();
        assert_eq!(classify(&mut state, &data(5)), Reasons::REST);
        assert_eq!(classify(&mut state, &[data(6), data(4)].concat()), Reasons::RETRANSMISSION);
        let sack = [kind::SACK, 0, 0, 20, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 3];
        assert_eq!(classify(&mut state, &sack), Reasons::REQUEST);
    }

    #[test]
    fn what_cannot_be_is_not_copied_and_not_remembered() {
        let mut state = Association::default();
        classify(&mut state, &data(5));
        let before = state;
        assert_eq!(classify(&mut state, &[data(9), vec![0, 0, 0, 3]].concat()), Reasons::default());
        assert_eq!(classify(&mut state, &[kind::DATA, 3, 0, 8, 0, 0, 0, 9]), Reasons::default());
        assert_eq!(state, before);
    }

    #[test]
    fn modes_choose_among_reasons() {
        let all = Reasons::NAMES.iter().fold(Reasons::default(), |all, (one, _)| all | *one);
        assert_eq!(Mode::Off.wanted(all), Reasons::default());
        assert_eq!(Mode::Selective.wanted(all), Reasons::RETRANSMISSION | Reasons::REQUEST);
        assert_eq!(Mode::Full.wanted(all), all);
        assert!(Mode::Adaptive.wanted(Reasons::REST).is_empty());
        assert!(Mode::Adaptive.wanted(all).contains(Reasons::TAIL | Reasons::END));
    }

    #[test]
    fn a_budget_is_a_share_behind_an_allowance() {
        assert!(within_budget(0, 0, 15_000, 10));
        assert!(!within_budget(0, 1, 15_000, 10));
        assert!(within_budget(1_000_000, 100_000, 15_000, 10));
        assert!(!within_budget(1_000_000, 100_001, 15_000, 10));
    }
}
