//! What the programs keep, as Rust sees it: `bpf/state.h`, read field by field.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::core::Reasons;

/// `struct key`, in bytes.
pub const KEY: usize = 8;
/// `struct association`, in bytes.
pub const ASSOCIATION: usize = 776;
/// `ADDRESSES`.
pub const ADDRESSES: usize = 4;
/// `struct address`.
pub const ADDRESS: usize = 16;
/// `struct local`.
pub const LOCAL: usize = 88;
/// Where they begin.
pub const LOCALS: usize = 144;
/// Where the peer's begin.
const REMOTES: usize = LOCALS + ADDRESSES * LOCAL;
/// `struct remote`.
const REMOTE: usize = 56;
/// Where `struct bicast_rate` begins, its `lossy`, its `every`, its `stack` and its `late`.
const RATE: usize = 720;
const LOSSY: usize = RATE + 24;
const EVERY: usize = RATE + 28;
const STACK: usize = RATE + 44;
const LATE: usize = RATE + 52;
const STACKS: [&str; 3] = ["unknown", "addresses-first", "extensions-first"];
/// `UNANSWERED`.
const UNANSWERED: u32 = 2;
/// `enum skipped`.
const SKIPPED: [&str; 5] = ["no-path", "budget", "unsent", "too-long", "busy"];

/// An SCTP association of this host, by what it sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Verification tag of what is sent.
    pub tag: u32,
    /// This host's SCTP port.
    pub local_port: u16,
    /// The peer's.
    pub remote_port: u16,
    /// When something was sent last, on the monotonic clock.
    pub seen: Duration,
    /// Packets that the host's stack sent.
    pub sent_packets: u64,
    /// Bytes of them, from the IP header on.
    pub sent_bytes: u64,
    /// Bytes of copies beside them.
    pub extra_bytes: u64,
    /// TSNs that the peer reported as received twice.
    pub duplicate_tsns: u64,
    /// Copies by reason; one packet may have several.
    pub copies: BTreeMap<&'static str, u64>,
    /// Packets that were to be copied and were not, by why.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Of the bytes of first transmissions what may be copied now, in percent, in adaptive mode; `None` while nothing is
    /// retransmitted.
    pub first_percent: Option<f64>,
    /// What the stack's INIT or INIT ACK listed first, which tells FreeBSD's from others.
    pub handshake: &'static str,
    /// This end's addresses that the peer sends to.
    pub locals: Vec<IpAddr>,
    /// The peer's.
    pub remotes: Vec<Remote>,
}

/// An address of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Where.
    pub address: IpAddr,
    /// Copies may go there: a HEARTBEAT was answered, and not too many since were not.
    pub usable: bool,
    /// Round-trip time of the last answered HEARTBEAT.
    pub rtt: Duration,
    /// Of the copies of first transmissions that went there the last one that was watched was not reported in time.
    pub late: bool,
    /// The longest packet that its path takes, as a router has said, in bytes.
    pub mtu: Option<u32>,
}

impl Known {
    /// `None` if the bytes are not as many as C's structs have.
    pub fn read(key: &[u8], value: &[u8]) -> Option<Known> {
        if key.len() != KEY || value.len() != ASSOCIATION {
            return None;
        }
        let port = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]);
        let copies = Reasons::NAMES.iter().enumerate().map(|(n, (_, name))| (*name, long(value, 56 + 8 * n)));
        let skipped = SKIPPED.iter().enumerate().map(|(n, name)| (*name, long(value, 104 + 8 * n)));
        let locals = value[LOCALS..].chunks_exact(LOCAL).take(ADDRESSES);
        let remotes = value[REMOTES..].chunks_exact(REMOTE).take(ADDRESSES);
        Some(Known {
            tag: u32::from_be_bytes([key[0], key[1], key[2], key[3]]),
            local_port: port(4),
            remote_port: port(6),
            seen: Duration::from_nanos(long(value, 16)),
            sent_packets: long(value, 24),
            sent_bytes: long(value, 32),
            extra_bytes: long(value, 40),
            duplicate_tsns: long(value, 48),
            copies: copies.collect(),
            skipped: skipped.collect(),
            first_percent: (word(value, LOSSY) > 0).then(|| 100.0 / f64::from(word(value, EVERY))),
            handshake: STACKS.get(word(value, STACK) as usize).copied().unwrap_or(STACKS[0]),
            locals: locals.filter_map(|local| address(&local[..ADDRESS])).collect(),
            remotes: (1..).zip(remotes).filter_map(|(n, one)| remote(one, word(value, LATE) == n)).collect(),
        })
    }
}

/// `struct address`.
pub fn address_bytes(address: IpAddr) -> [u8; ADDRESS] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let bytes: [u8; ADDRESS] = bytes.try_into().ok()?;
    Some(Ipv6Addr::from(bytes).to_canonical()).filter(|address| !address.is_unspecified())
}

fn remote(bytes: &[u8], late: bool) -> Option<Remote> {
    let address = address(&bytes[..ADDRESS])?;
    let usable = word(bytes, 32) != 0 && word(bytes, 36) <= UNANSWERED;
    let rtt = Duration::from_micros(word(bytes, 28).into());
    let mtu = Some(word(bytes, 44)).filter(|mtu| *mtu > 0);
    Some(Remote { address, usable, rtt, late, mtu })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_where_c_wrote_it() {
        let mut value = vec![0; ASSOCIATION];
        let mut put = |at: usize, bytes: &[u8]| value[at..at + bytes.len()].copy_from_slice(bytes);
        put(24, &7u64.to_ne_bytes());
        put(40, &9u64.to_ne_bytes());
        put(56, &3u64.to_ne_bytes());
        put(104, &2u64.to_ne_bytes());
        put(144, &address_bytes("192.0.2.1".parse().unwrap()));
        put(REMOTES, &address_bytes("2001:db8::1".parse().unwrap()));
        put(REMOTES + 28, &1500u32.to_ne_bytes());
        put(REMOTES + 32, &1u32.to_ne_bytes());
        put(LOSSY, &1u32.to_ne_bytes());
        put(EVERY, &8u32.to_ne_bytes());
        put(STACK, &2u32.to_ne_bytes());
        put(LATE, &1u32.to_ne_bytes());
        let known = Known::read(&[0, 0, 0, 5, 3, 232, 7, 208], &value).unwrap();
        assert_eq!((known.tag, known.local_port, known.remote_port), (5, 1000, 2000));
        assert_eq!((known.sent_packets, known.extra_bytes), (7, 9));
        assert_eq!((known.copies["retransmission"], known.skipped["no-path"]), (3, 2));
        assert_eq!(known.locals, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!((known.handshake, known.first_percent), ("extensions-first", Some(12.5)));
        let remote = &known.remotes[0];
        assert_eq!((remote.usable, remote.late, remote.rtt), (true, true, Duration::from_micros(1500)));
        assert_eq!(known.remotes.len(), 1);
        assert_eq!(Known::read(&[0; 7], &value), None);
    }
}
