//! What the bytes on the wire are, and every reason to reject them. The layout is docs/wire.md's; integers are
//! big-endian. A `Message` borrows from the datagram; nothing here is secret or verified yet.

pub mod address;
pub mod frame;
pub mod train;

/// The version in the upper half of byte 0.
pub const VERSION: u8 = 1;
/// Bytes of an AEAD tag, a mac1, a mac2, a cookie and a challenge's token.
pub const TAG_LEN: usize = 16;
/// Bytes before the ciphertext of a transport packet; all are authenticated.
pub const HEADER_LEN: usize = 16;
/// Bytes that a handshake payload has, padded with zeroes.
pub const PAYLOAD_LEN: usize = 32;
/// Bytes of an initiation: header 8, ephemeral 32, static 48, payload 48, macs 32.
pub const INITIATION_LEN: usize = 168;
/// Bytes of a response: header 12, ephemeral 32, payload 48, macs 32. Less than the initiation's.
pub const RESPONSE_LEN: usize = 124;
/// Bytes of a cookie reply, less than those of any message that asks for one.
pub const COOKIE_REPLY_LEN: usize = 64;
/// Bytes of the third message of a relay registration, and of its answer.
pub const REGISTERED_LEN: usize = 40;
/// Bytes that a relay header puts before a datagram.
pub const RELAY_HEADER_LEN: usize = 12;
/// Bytes of a relay's challenge and of its echo.
pub const CHALLENGE_LEN: usize = 28;

/// The lower half of byte 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// First handshake message.
    Initiation = 1,
    /// Second handshake message.
    Response = 2,
    /// "Ask again with this cookie."
    CookieReply = 3,
    /// One sealed frame.
    Transport = 4,
    /// Third message of a relay registration, or its answer.
    Registered = 5,
    /// A datagram from a relay's client towards the destination.
    RelayUp = 8,
    /// A datagram from the destination towards a relay's client.
    RelayDown = 9,
    /// A relay asks a destination whether it wants a session.
    Challenge = 10,
    /// The destination's consent.
    Echo = 11,
}

impl Kind {
    /// Byte 0 of a message of this kind.
    pub const fn first_byte(self) -> u8 {
        VERSION << 4 | self as u8
    }

    /// What byte 0 says.
    pub fn of(datagram: &[u8]) -> Result<Self, WireError> {
        let first = *datagram.first().ok_or(WireError::Empty)?;
        if first >> 4 != VERSION {
            return Err(WireError::Version(first >> 4));
        }
        Ok(match first & 15 {
            1 => Self::Initiation,
            2 => Self::Response,
            3 => Self::CookieReply,
            4 => Self::Transport,
            5 => Self::Registered,
            8 => Self::RelayUp,
            9 => Self::RelayDown,
            10 => Self::Challenge,
            11 => Self::Echo,
            other => return Err(WireError::Type(other)),
        })
    }
}

/// Why a datagram is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No byte 0.
    #[error("empty datagram")]
    Empty,
    /// Another version of the protocol, or another protocol.
    #[error("version {0} of the wire format; this is version 1")]
    Version(u8),
    /// A type that version 1 does not have.
    #[error("unknown message type {0}")]
    Type(u8),
    /// A message of fixed length with another one, or a header that is cut off.
    #[error("{kind:?} of {got} bytes; expected {expected}")]
    Length {
        /// What byte 0 says.
        kind: Kind,
        /// Bytes of the datagram.
        got: usize,
        /// Bytes that it should have; the least for those of variable length.
        expected: usize,
    },
    /// Reserved bytes that are not zero.
    #[error("{0:?} with reserved bytes that are not zero")]
    Reserved(Kind),
}

/// Which way a relay forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the destination.
    Up,
    /// From the destination to the client.
    Down,
}

/// The 16 clear bytes before a transport packet's ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransportHeader {
    /// Path id; unique in a daemon's life.
    pub path: u16,
    /// The receiver's index of the session.
    pub receiver: u32,
    /// Packets sent before on this path in the daemon's life.
    pub sequence: u64,
}

impl TransportHeader {
    /// The header as bytes.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = Kind::Transport.first_byte();
        bytes[2..4].copy_from_slice(&self.path.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.receiver.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

/// A datagram of the right version, type and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// Handshake, first message: for `noise::Responder`.
    Initiation {
        /// The initiator's index.
        sender: u32,
    },
    /// Handshake, second message: for `noise::Initiator`.
    Response {
        /// The responder's index.
        sender: u32,
        /// The initiator's index.
        receiver: u32,
    },
    /// For `cookie::CookieJar`.
    CookieReply {
        /// The index of who is asked to stamp again.
        receiver: u32,
    },
    /// For `session::OpeningKey`.
    Transport(TransportHeader),
    /// For `registration` and `relay`.
    Registered {
        /// The receiver's index of the registration.
        receiver: u32,
        /// Nonce under the registration's key.
        counter: u64,
        /// Sealed session id and tag.
        sealed: &'a [u8; 24],
    },
    /// A datagram with a relay's header.
    Relayed {
        /// Towards the destination or towards the client.
        direction: Direction,
        /// The relay's name for the session.
        session: u64,
        /// What is inside; at least one byte.
        datagram: &'a [u8],
    },
    /// A relay asks whether its client's datagrams are wanted here.
    Challenge {
        /// The relay's name for the session.
        session: u64,
        /// To be sent back in an echo.
        token: [u8; TAG_LEN],
    },
    /// They are wanted.
    Echo {
        /// The relay's name for the session.
        session: u64,
        /// The challenge's.
        token: [u8; TAG_LEN],
    },
}

impl<'a> Message<'a> {
    /// Checks version, type, exact length and reserved bytes.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let kind = Kind::of(datagram)?;
        check_length(kind, datagram)?;
        let reserved = if kind == Kind::Transport { 1..2 } else { 1..4 };
        if datagram[reserved].iter().any(|byte| *byte != 0) {
            return Err(WireError::Reserved(kind));
        }
        Ok(Self::read(kind, datagram))
    }

    /// Reads a datagram whose length has been checked.
    fn read(kind: Kind, datagram: &'a [u8]) -> Self {
        let index = |at| u32::from_be_bytes(array(datagram, at));
        let long = |at| u64::from_be_bytes(array(datagram, at));
        let relayed = |direction| Self::Relayed {
            direction,
            session: long(4),
            datagram: &datagram[RELAY_HEADER_LEN..],
        };
        match kind {
            Kind::Initiation => Self::Initiation { sender: index(4) },
            Kind::Response => Self::Response { sender: index(4), receiver: index(8) },
            Kind::CookieReply => Self::CookieReply { receiver: index(4) },
            Kind::Transport => Self::Transport(TransportHeader {
                path: u16::from_be_bytes(array(datagram, 2)),
                receiver: index(4),
                sequence: long(8),
            }),
            Kind::Registered => {
                let sealed = datagram.last_chunk().expect("the length has been checked");
                Self::Registered { receiver: index(4), counter: long(8), sealed }
            }
            Kind::RelayUp => relayed(Direction::Up),
            Kind::RelayDown => relayed(Direction::Down),
            Kind::Challenge => Self::Challenge { session: long(4), token: array(datagram, 12) },
            Kind::Echo => Self::Echo { session: long(4), token: array(datagram, 12) },
        }
    }
}

fn check_length(kind: Kind, datagram: &[u8]) -> Result<(), WireError> {
    let expected = match kind {
        Kind::Initiation => INITIATION_LEN,
        Kind::Response => RESPONSE_LEN,
        Kind::CookieReply => COOKIE_REPLY_LEN,
        Kind::Registered => REGISTERED_LEN,
        Kind::Challenge | Kind::Echo => CHALLENGE_LEN,
        Kind::Transport => HEADER_LEN + TAG_LEN,
        Kind::RelayUp | Kind::RelayDown => RELAY_HEADER_LEN + 1,
    };
    let may_be_longer = matches!(kind, Kind::Transport | Kind::RelayUp | Kind::RelayDown);
    let got = datagram.len();
    if got == expected || (may_be_longer && got > expected) {
        return Ok(());
    }
    Err(WireError::Length { kind, got, expected })
}

/// `N` bytes from `at`; the caller has checked the length.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Takes a relay's header off: direction, session id and the datagram inside.
pub fn peel(datagram: &[u8]) -> Option<(Direction, u64, &[u8])> {
    match Message::parse(datagram) {
        Ok(Message::Relayed { direction, session, datagram }) => Some((direction, session, datagram)),
        _ => None,
    }
}

/// A relay's header, to be put before a datagram.
pub fn relay_header(direction: Direction, session: u64) -> [u8; RELAY_HEADER_LEN] {
    let kind = match direction {
        Direction::Up => Kind::RelayUp,
        Direction::Down => Kind::RelayDown,
    };
    let mut bytes = [0; RELAY_HEADER_LEN];
    bytes[0] = kind.first_byte();
    bytes[4..].copy_from_slice(&session.to_be_bytes());
    bytes
}

/// A relay's challenge to a destination.
pub fn challenge(session: u64, token: [u8; TAG_LEN]) -> [u8; CHALLENGE_LEN] {
    token_message(Kind::Challenge, session, token)
}

/// A destination's answer to a challenge.
pub fn echo(session: u64, token: [u8; TAG_LEN]) -> [u8; CHALLENGE_LEN] {
    token_message(Kind::Echo, session, token)
}

fn token_message(kind: Kind, session: u64, token: [u8; TAG_LEN]) -> [u8; CHALLENGE_LEN] {
    let mut bytes = [0; CHALLENGE_LEN];
    bytes[0] = kind.first_byte();
    bytes[4..12].copy_from_slice(&session.to_be_bytes());
    bytes[12..].copy_from_slice(&token);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(kind: Kind, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes[0] = kind.first_byte();
        bytes
    }

    const FIXED: [(Kind, usize); 6] = [
        (Kind::Initiation, INITIATION_LEN),
        (Kind::Response, RESPONSE_LEN),
        (Kind::CookieReply, COOKIE_REPLY_LEN),
        (Kind::Registered, REGISTERED_LEN),
        (Kind::Challenge, CHALLENGE_LEN),
        (Kind::Echo, CHALLENGE_LEN),
    ];
    const VARIABLE: [(Kind, usize); 3] = [(Kind::Transport, 32), (Kind::RelayUp, 13), (Kind::RelayDown, 13)];

    #[test]
    fn rejects_an_empty_datagram() {
        assert_eq!(Message::parse(&[]), Err(WireError::Empty));
    }

    #[test]
    fn rejects_another_version() {
        assert_eq!(Message::parse(&[0x21; 200]), Err(WireError::Version(2)));
    }

    #[test]
    fn rejects_an_unknown_type() {
        for kind in [0, 6, 7, 12, 15] {
            assert_eq!(Message::parse(&[VERSION << 4 | kind; 64]), Err(WireError::Type(kind)));
        }
    }

    #[test]
    fn rejects_every_other_length() {
        for (kind, expected) in FIXED {
            assert!(Message::parse(&bytes(kind, expected)).is_ok(), "{kind:?}");
            for got in [1, expected - 1, expected + 1] {
                let error = WireError::Length { kind, got, expected };
                assert_eq!(Message::parse(&bytes(kind, got)), Err(error));
            }
        }
        for (kind, expected) in VARIABLE {
            assert!(Message::parse(&bytes(kind, expected)).is_ok(), "{kind:?}");
            let error = WireError::Length { kind, got: expected - 1, expected };
            assert_eq!(Message::parse(&bytes(kind, expected - 1)), Err(error));
        }
    }

    #[test]
    fn rejects_reserved_bytes_that_are_not_zero() {
        for (kind, len) in FIXED.into_iter().chain(VARIABLE) {
            let mut message = bytes(kind, len);
            message[1] = 1;
            assert_eq!(Message::parse(&message), Err(WireError::Reserved(kind)));
        }
    }

    #[test]
    fn the_answer_is_never_larger_than_the_question() {
        const { assert!(RESPONSE_LEN <= INITIATION_LEN && COOKIE_REPLY_LEN <= RESPONSE_LEN) };
    }

    #[test]
    fn transport_header_and_back() {
        let header = TransportHeader { path: 0x0102, receiver: 0x03040506, sequence: 0x0708090a0b0c0d0e };
        let mut packet = header.to_bytes().to_vec();
        assert_eq!(packet, [0x14, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        packet.extend([0; TAG_LEN]);
        assert_eq!(Message::parse(&packet), Ok(Message::Transport(header)));
    }

    #[test]
    fn relay_header_and_back() {
        for direction in [Direction::Up, Direction::Down] {
            let mut packet = relay_header(direction, 7).to_vec();
            assert_eq!(peel(&packet), None);
            packet.push(9);
            assert_eq!(peel(&packet), Some((direction, 7, &[9][..])));
        }
        assert_eq!(peel(&challenge(7, [1; 16])), None);
    }

    #[test]
    fn challenge_and_echo_and_back() {
        let token = [3; 16];
        assert_eq!(Message::parse(&challenge(7, token)), Ok(Message::Challenge { session: 7, token }));
        assert_eq!(Message::parse(&echo(7, token)), Ok(Message::Echo { session: 7, token }));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(kind in 0u8..16, mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = VERSION << 4 | kind;
            }
            let _ = Message::parse(&bytes);
            let _ = peel(&bytes);
        }
    }
}
