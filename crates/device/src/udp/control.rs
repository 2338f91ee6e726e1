//! Control messages and socket addresses as bytes, read and written without unsafe code.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The length and alignment of the words of a `struct cmsghdr`.
const WORD: usize = size_of::<usize>();
/// `struct cmsghdr`: length, level, type.
const HEADER: usize = WORD + 8;

/// Room for all control messages of one datagram: packet information, TOS, segment size.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; 128],
}

impl Default for Control {
    fn default() -> Self {
        Self { bytes: [0; 128] }
    }
}

impl Control {
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(crate) const fn capacity() -> usize {
        128
    }

    /// Appends a message at `*length`, which it moves on.
    pub(super) fn push(&mut self, length: &mut usize, level: i32, kind: i32, data: &[u8]) {
        let at = *length;
        self.bytes[at..at + WORD].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        self.bytes[at + WORD..at + WORD + 4].copy_from_slice(&level.to_ne_bytes());
        self.bytes[at + WORD + 4..at + HEADER].copy_from_slice(&kind.to_ne_bytes());
        self.bytes[at + HEADER..at + HEADER + data.len()].copy_from_slice(data);
        *length = at + (HEADER + data.len()).next_multiple_of(WORD);
    }

    /// Level, type and data of the messages in the first `length` bytes.
    pub(crate) fn messages(&self, length: usize) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = self.bytes.get(..length).unwrap_or_default();
        std::iter::from_fn(move || {
            let (size, after) = rest.split_first_chunk::<WORD>()?;
            let size = usize::from_ne_bytes(*size);
            let (level, kind) = (i32::from_ne_bytes(array(after, 0)?), i32::from_ne_bytes(array(after, 4)?));
            let data = rest.get(HEADER..size)?;
            rest = rest.get(size.next_multiple_of(WORD)..).unwrap_or_default();
            Some((level, kind, data))
        })
    }
}

/// `N` bytes of `bytes` from `at`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
pub(super) struct Name {
    bytes: [u8; 28],
}

impl Name {
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(super) const fn capacity() -> u32 {
        28
    }

    /// The bytes of `address` and how many they are.
    pub(super) fn of(address: SocketAddr) -> (Self, u32) {
        let mut bytes = [0; 28];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, length) = match address {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                (libc::AF_INET, 16)
            }
            SocketAddr::V6(v6) => {
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (libc::AF_INET6, 28)
            }
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        (Self { bytes }, length)
    }

    /// The address, if it is one of IPv4 or IPv6.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        let family = i32::from(u16::from_ne_bytes(array(&self.bytes, 0)?));
        let port = u16::from_be_bytes(array(&self.bytes, 2)?);
        match family {
            libc::AF_INET => {
                Some(SocketAddrV4::new(Ipv4Addr::from(array::<4>(&self.bytes, 4)?), port).into())
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(array::<16>(&self.bytes, 8)?);
                let scope = u32::from_ne_bytes(array(&self.bytes, 24)?);
                Some(SocketAddrV6::new(ip, port, 0, scope).into())
            }
            _ => None,
        }
    }
}

/// `struct in_pktinfo`: leave by `interface` (0: any) from `local`.
pub(super) fn packet_info_v4(interface: u32, local: Ipv4Addr) -> [u8; 12] {
    let mut info = [0; 12];
    info[..4].copy_from_slice(&interface.to_ne_bytes());
    info[4..8].copy_from_slice(&local.octets());
    info
}

/// `struct in6_pktinfo`.
pub(super) fn packet_info_v6(interface: u32, local: Ipv6Addr) -> [u8; 20] {
    let mut info = [0; 20];
    info[..16].copy_from_slice(&local.octets());
    info[16..].copy_from_slice(&interface.to_ne_bytes());
    info
}

/// Interface and local address of a `struct in_pktinfo` or `struct in6_pktinfo`.
pub(super) fn read_packet_info(level: i32, data: &[u8]) -> Option<(u32, IpAddr)> {
    if level == libc::IPPROTO_IP {
        let local = Ipv4Addr::from(array::<4>(data, 4)?);
        return Some((u32::from_ne_bytes(array(data, 0)?), local.into()));
    }
    let local = Ipv6Addr::from(array::<16>(data, 0)?);
    Some((u32::from_ne_bytes(array(data, 16)?), local.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let (mut control, mut length) = (Control::default(), 0);
        control.push(&mut length, 1, 2, b"abc");
        control.push(&mut length, 3, 4, b"defgh");
        let read: Vec<_> = control.messages(length).collect();
        assert_eq!(read, [(1, 2, &b"abc"[..]), (3, 4, &b"defgh"[..])]);
    }

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for text in ["192.0.2.1:5", "[2001:db8::1]:65535", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Name::of(address).0.address(), Some(address));
        }
        assert_eq!(Name::default().address(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 128), length in 0usize..300) {
            let control = Control { bytes: bytes.try_into().unwrap() };
            for (level, _, data) in control.messages(length) {
                let _ = read_packet_info(level, data);
            }
        }
    }
}
