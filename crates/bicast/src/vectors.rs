//! The vectors of `tests/vectors`, which the kernel replays too.

use crate::core::Reasons;
use crate::ffi::{RawAssociation, RawConnection, RawSctp, RawSegment};

pub const SCTP: &str = include_str!("../tests/vectors/sctp.txt");
pub const TCP: &str = include_str!("../tests/vectors/tcp.txt");

/// One packet of a file.
pub struct Vector<T> {
    /// Where it stands, from 1.
    pub line: usize,
    /// It is the first of its association or connection.
    pub first: bool,
    pub packet: T,
    pub reasons: Reasons,
}

/// A chunk's type, flags, TSN and number of gap ack blocks.
pub type Fields = (u8, u8, u32, u32);

pub fn sctp() -> Vec<Vector<Vec<Fields>>> {
    read(SCTP, 1, |words| words[0].split('+').map(chunk).collect())
}

pub fn tcp() -> Vec<Vector<RawSegment>> {
    read(TCP, 6, |words| RawSegment {
        seq: number(words[0]),
        length: number(words[1]),
        ack: number(words[2]),
        window: number(words[3]),
        flags: words[4].chars().map(flag).sum(),
        sack_blocks: number(words[5]),
    })
}

/// Lines of `fields` words and then the reasons.
fn read<T>(text: &str, fields: usize, parse: impl Fn(&[&str]) -> T) -> Vec<Vector<T>> {
    let (mut vectors, mut first) = (Vec::new(), true);
    for (index, line) in text.lines().enumerate() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            [word, ..] if word.starts_with('#') => {}
            ["new"] => first = true,
            _ => {
                let (packet, reasons) = words.split_at(fields);
                let reasons = reasons.iter().fold(Reasons::default(), |all, name| all | reason(name));
                vectors.push(Vector { line: index + 1, first, packet: parse(packet), reasons });
                first = false;
            }
        }
    }
    vectors
}

fn number(text: &str) -> u32 {
    text.parse().expect("a number of 32 bits")
}

fn flag(letter: char) -> u32 {
    match letter {
        'F' => 1,
        'S' => 2,
        'R' => 4,
        'A' => 16,
        _ => panic!("no flag {letter}"),
    }
}

fn reason(name: &str) -> Reasons {
    let found = Reasons::NAMES.iter().find(|(_, known)| *known == name).map(|(reason, _)| *reason);
    found.unwrap_or_else(|| if name == "none" { Reasons::default() } else { panic!("no reason {name}") })
}

fn chunk(text: &str) -> Fields {
    use packet::sctp::kind;
    let kind = match text {
        "HEARTBEAT" => kind::HEARTBEAT,
        "HEARTBEAT_ACK" => kind::HEARTBEAT_ACK,
        "INIT" => kind::INIT,
        "INIT_ACK" => kind::INIT_ACK,
        "COOKIE_ECHO" => kind::COOKIE_ECHO,
        "COOKIE_ACK" => kind::COOKIE_ACK,
        "ASCONF" => kind::ASCONF,
        "SHUTDOWN" => kind::SHUTDOWN,
        "SHUTDOWN_ACK" => kind::SHUTDOWN_ACK,
        "SHUTDOWN_COMPLETE" => kind::SHUTDOWN_COMPLETE,
        "ABORT" => kind::ABORT,
        _ => {
            let (tsn, flags) = text[1..].strip_suffix('!').map_or((&text[1..], 0), |tsn| (tsn, 8));
            return match text.as_bytes()[0] {
                b'D' => (kind::DATA, flags, number(tsn), 0),
                b'i' => (kind::I_DATA, flags, number(tsn), 0),
                b'S' => (kind::SACK, 0, 0, number(tsn)),
                _ => panic!("no chunk {text}"),
            };
        }
    };
    (kind, 0, 0, 0)
}

/// The fields of a packet with these chunks.
pub fn gather(chunks: &[Fields]) -> RawSctp {
    let mut fields = RawSctp::default();
    chunks.iter().for_each(|(kind, flags, tsn, gaps)| fields.chunk_seen(*kind, *flags, *tsn, *gaps));
    fields
}

#[test]
fn sctp_is_classified_as_published() {
    let mut state = RawAssociation::default();
    for vector in sctp() {
        state = if vector.first { RawAssociation::default() } else { state };
        let reasons = state.classify(&gather(&vector.packet));
        assert_eq!(Reasons::from_word(reasons), vector.reasons, "sctp.txt:{}", vector.line);
    }
}

#[test]
fn tcp_is_classified_alike() {
    let mut state = RawConnection::default();
    for vector in tcp() {
        state = if vector.first { RawConnection::default() } else { state };
        let reasons = state.classify(&vector.packet);
        assert_eq!(Reasons::from_word(reasons), vector.reasons, "tcp.txt:{}", vector.line);
    }
}
