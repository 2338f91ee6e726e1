//! A relay: `RelayControl` decides who has which session, `RelayTable` forwards. Both are sans-IO.
//!
//! - A client that `allow` lists registers by a handshake of three messages. Its session, and the client's address
//!   in it, exist or change only with the third, sealed under the handshake's fresh key and taken once, from the
//!   address that the first came from.
//! - Who is not in `allow` gets no answer whatever, nor does the host whose address it takes (`knock`).
//! - The destination gets nothing but challenges until it has echoed one or has itself registered from that address:
//!   no more bytes of them than the client sent for it, and few for each host, whoever asks. Consent ends when the
//!   destination is not heard any more.
//! - No answer is larger than its question.
//! - All is bounded: sessions and pending handshakes per key and in total. What is idle is forgotten.

mod control;
mod status;
mod table;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::Serialize;

pub use self::{
    control::RelayControl,
    status::{RelayStatus, SessionStatus},
    table::{Counters, RelayTable},
};

/// A session whose client is not heard for so long is forgotten.
pub const IDLE: Duration = Duration::from_secs(180);

/// What is bounded how.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Sessions of one key; a newer one takes the place of one that is silent.
    pub sessions_per_key: usize,
    /// Sessions in all.
    pub sessions: usize,
    /// Handshakes of one key that wait for their third message; a newer one takes the oldest one's place.
    pub pending_per_key: usize,
    /// Such handshakes in all; more are refused.
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions_per_key: 32, sessions: 65536, pending_per_key: 64, pending: 4096 }
    }
}

/// What is to be done with a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send it on, byte for byte.
    Forward {
        /// Where to.
        to: SocketAddr,
    },
    /// Send this to where it came from.
    Reply(Vec<u8>),
    /// It has been taken; nothing to send to where it came from.
    Taken,
    /// It is worth nothing; it has been counted.
    Drop(DropReason),
}

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// No message of this version.
    Malformed,
    /// A message of a type that a relay does not take.
    NotForRelay,
    /// The sender names a client, whose private key it does not have.
    Mac1,
    /// The handshake does not fit the relay's key.
    Handshake,
    /// The sender is no client in `allow`, or does not know the relay's public key.
    NotAllowed,
    /// A message that came before, or is older than one that did.
    Replayed,
    /// Too many handshakes, in all or from one host.
    Load,
    /// An address that cannot be a destination.
    Destination,
    /// Too many sessions, of the key or in all.
    SessionLimit,
    /// Too many handshakes wait for their third message.
    PendingLimit,
    /// A third message without its handshake.
    UnknownHandshake,
    /// A third message that does not fit its handshake.
    Confirmation,
    /// Data for a session that does not exist.
    UnknownSession,
    /// From another address than the session's.
    WrongSource,
    /// Data for a destination that has not consented.
    NotOpen,
    /// An echo with a wrong token.
    Token,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Malformed,
        Self::NotForRelay,
        Self::Mac1,
        Self::Handshake,
        Self::NotAllowed,
        Self::Replayed,
        Self::Load,
        Self::Destination,
        Self::SessionLimit,
        Self::PendingLimit,
        Self::UnknownHandshake,
        Self::Confirmation,
        Self::UnknownSession,
        Self::WrongSource,
        Self::NotOpen,
        Self::Token,
    ];
}

/// One form for an address, whatever socket it came through: no mapped IPv4, no flow label.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(mut v6) => match v6.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::from((ip, v6.port())),
            IpAddr::V6(_) => {
                v6.set_flowinfo(0);
                SocketAddr::V6(v6)
            }
        },
        v4 => v4,
    }
}

/// Whether one host can listen there; a link-local address would need an interface.
fn is_destination(address: SocketAddr) -> bool {
    let usable = match address.ip() {
        IpAddr::V4(ip) => !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    usable && address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
}
