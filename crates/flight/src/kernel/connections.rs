//! What is known of each connection: read from the kernel by an iterator over TCP's sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bpf::{Error, sockets};

use super::Base;
use crate::State;
use crate::ffi::RawFsat;

const SHOW: &[u8] = bpf::object!("show.bpf.o");
const AF_INET: u16 = 2;
/// `TCP_LISTEN`: such a socket has state only if its congestion control was chosen late; it sends nothing.
const LISTEN: u16 = 10;
/// `struct connection`, in bytes: seven numbers, FS-AT's state, four numbers, two options.
const CONNECTION: usize = size_of::<RawFsat>() + 13 * 4;
/// Where FS-AT's state begins in `struct record`, and where the options do.
const STATE: usize = HEADER + 7 * 4;
const OPTIONS: usize = STATE + size_of::<RawFsat>() + 4 * 4;
/// `struct record` before its `connection`, in bytes.
const HEADER: usize = 64;

/// A connection under FS-AT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its congestion control.
    pub scheme: String,
    /// What lies below.
    pub base: Base,
    /// The published equations and nothing else.
    pub paper: bool,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// What FS-AT knows and decided.
    pub fsat: State,
    /// The base's cwnd, bytes.
    pub cwnd: u64,
    /// What TCP may have in flight, bytes: FS-AT's window, or what recovery leaves of it.
    pub window: u64,
}

/// All of this thread's network namespace, of every version of the congestion controls that keeps the same state.
///
/// # Errors
/// What the kernel lacks or says.
pub fn connections() -> Result<Vec<Connection>, Error> {
    let read = sockets::read(SHOW, "show", "fsat_sockets", CONNECTION)?;
    Ok(read.chunks_exact(HEADER + CONNECTION).filter_map(parse).collect())
}

/// `struct record` of `bpf/connection.h`.
fn parse(record: &[u8]) -> Option<Connection> {
    let (half, word) = (|at| half(record, at), |at| word(record, at));
    let (family, mss) = (half(36), u64::from(word(40)));
    if half(38) == LISTEN {
        return None;
    }
    let raw = RawFsat::from_bytes(record.get(STATE..)?)?;
    let port = u16::from_be(half(34));
    Some(Connection {
        scheme: text(record.get(48..HEADER)?),
        base: Base::from_word(word(OPTIONS)),
        paper: word(OPTIONS + 4) != 0,
        local: SocketAddr::new(address(record.get(..16)?, family)?, half(32)),
        remote: SocketAddr::new(address(record.get(16..32)?, family)?, port),
        fsat: State::from(&raw),
        cwnd: u64::from(word(HEADER)) * mss,
        window: u64::from(word(44)) * mss,
    })
}

fn half(record: &[u8], at: usize) -> u16 {
    record.get(at..at + 2).map_or(0, |bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))
}

fn word(record: &[u8], at: usize) -> u32 {
    record.get(at..at + 4).map_or(0, |bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn address(bytes: &[u8], family: u16) -> Option<IpAddr> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    if family == AF_INET {
        return Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into());
    }
    // An IPv6 socket that speaks to an IPv4 address.
    Some(Ipv6Addr::from(bytes).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_where_c_wrote_it() {
        let mut record = vec![0; HEADER + CONNECTION];
        let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[192, 0, 2, 1]);
        put(16, &[192, 0, 2, 2]);
        put(32, &4000u16.to_ne_bytes());
        put(34, &443u16.to_be_bytes());
        put(36, &AF_INET.to_ne_bytes());
        put(40, &1000u32.to_ne_bytes());
        put(44, &7u32.to_ne_bytes());
        put(48, b"fsat");
        put(HEADER, &9u32.to_ne_bytes());
        put(OPTIONS, &1u32.to_ne_bytes());
        let connection = parse(&record).expect("a record");
        assert_eq!(connection.local, "192.0.2.1:4000".parse().expect("an address"));
        assert_eq!(connection.remote, "192.0.2.2:443".parse().expect("an address"));
        assert_eq!((connection.scheme.as_str(), connection.base), ("fsat", Base::Cubic));
        assert_eq!((connection.cwnd, connection.window), (9000, 7000));
        assert_eq!(parse(&record[..40]), None);
    }
}
