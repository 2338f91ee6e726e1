//! Routers and hosts that say by ICMP that a datagram of this host's did not arrive.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use crate::socket_option::set;

/// ICMP_FILTER and ICMPV6_FILTER, which the C library's headers lack.
const FILTER: libc::c_int = 1;
/// "Destination unreachable", of either family.
const TYPE_V4: u8 = 3;
const TYPE_V6: u8 = 1;
/// Its code "port unreachable", of either family.
const PORT_V4: u8 = 3;
const PORT_V6: u8 = 4;
/// Its code "fragmentation needed", and the type that is IPv6's "packet too big".
const TOO_BIG_V4: u8 = 4;
const TOO_BIG_V6: u8 = 2;
/// Messages taken at once; while more come, the rest waits for the next time.
const MESSAGES: usize = 64;
/// Enough of a message for all headers, in bytes.
const MESSAGE: usize = 256;

/// A datagram that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Where it was to go.
    pub remote: SocketAddr,
    /// Why not.
    pub because: Because,
}

/// Why a datagram did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The host is there, and nobody listens on the port.
    Refused,
    /// No way there is known.
    NoWay,
    /// It, an IP packet of so many bytes, is larger than some link on the way carries.
    TooBig(u16),
}

/// Hears of such datagrams, of the network namespace that the thread was in when it was made.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    v6: bool,
}

impl Listener {
    /// Of IPv4, or of IPv6. Needs CAP_NET_RAW.
    pub fn open(v6: bool) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, protocol) = match v6 {
            false => (AddressFamily::INET, rustix::net::ipproto::ICMP),
            true => (AddressFamily::INET6, rustix::net::ipproto::ICMPV6),
        };
        let socket = socket_with(family, SocketType::RAW, flags, Some::<Protocol>(protocol))?;
        // A bit for each type that is not wanted.
        if v6 {
            let mut filter = [u32::MAX; 8];
            filter[0] &= !(1 << TYPE_V6 | 1 << TOO_BIG_V6);
            set(&socket, libc::IPPROTO_ICMPV6, FILTER, filter)?;
        } else {
            set(&socket, libc::SOL_RAW, FILTER, !(1u32 << TYPE_V4))?;
        }
        Ok(Self { socket, v6 })
    }

    /// What has come since the last time.
    pub fn take(&self) -> Vec<Unreachable> {
        let (mut found, mut buffer) = (Vec::new(), [0; MESSAGE]);
        for _ in 0..MESSAGES {
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => found.extend(read(self.v6, &buffer[..length.min(MESSAGE)])),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        found
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Of IPv4 with the IP header around, of IPv6 without.
fn read(v6: bool, message: &[u8]) -> Option<Unreachable> {
    let header = if v6 { 0 } else { usize::from(message.first()? & 15) * 4 };
    let (icmp, quoted) = message.get(header..)?.split_at_checked(8)?;
    let length = |at: usize| Some(u16::from_be_bytes(*quoted.get(at..)?.first_chunk()?));
    let because = match (v6, icmp[0], icmp[1]) {
        (false, TYPE_V4, PORT_V4) | (true, TYPE_V6, PORT_V6) => Because::Refused,
        (false, TYPE_V4, TOO_BIG_V4) => Because::TooBig(length(2)?),
        // Its header's 40 bytes are not counted there.
        (true, TOO_BIG_V6, _) => Because::TooBig(length(4)?.saturating_add(40)),
        (false, TYPE_V4, _) | (true, TYPE_V6, _) => Because::NoWay,
        _ => return None,
    };
    let (protocol, ip, udp) = if v6 {
        let ip = Ipv6Addr::from(*quoted.get(24..)?.first_chunk::<16>()?);
        (quoted[6], IpAddr::V6(ip), quoted.get(40..)?)
    } else {
        let ip = Ipv4Addr::from(*quoted.get(16..)?.first_chunk::<4>()?);
        (quoted[9], IpAddr::V4(ip), quoted.get(usize::from(quoted[0] & 15) * 4..)?)
    };
    let port = u16::from_be_bytes(*udp.get(2..)?.first_chunk()?);
    (i32::from(protocol) == libc::IPPROTO_UDP)
        .then_some(Unreachable { remote: SocketAddr::new(ip, port), because })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_datagram_that_is_quoted_is_read() {
        let mut message = vec![0; 20 + 8 + 20 + 8];
        (message[0], message[28]) = (0x45, 0x45);
        (message[20], message[21]) = (3, 3);
        message[28 + 9] = 17;
        message[28 + 16..28 + 20].copy_from_slice(&[192, 0, 2, 1]);
        message[48..52].copy_from_slice(&[0, 7, 0, 9]);
        let remote = "192.0.2.1:9".parse().unwrap();
        assert_eq!(read(false, &message), Some(Unreachable { remote, because: Because::Refused }));
        message[21] = 1;
        assert_eq!(read(false, &message).map(|found| found.because), Some(Because::NoWay));
        message[21] = TOO_BIG_V4;
        message[30..32].copy_from_slice(&1460u16.to_be_bytes());
        assert_eq!(read(false, &message).map(|found| found.because), Some(Because::TooBig(1460)));
        message[20] = 8;
        assert_eq!(read(false, &message), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, v6: bool) {
            let _ = read(v6, &bytes);
        }
    }
}
