//! Whole packets of IPv4, sent with any source address and seen on an interface: what attackers in the lab do.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use crate::packet_socket::bind;

/// Packets per system call.
const MESSAGES: usize = 64;
/// Where IPv4 puts the destination address.
const DESTINATION: std::ops::Range<usize> = 16..20;

/// Sends packets as they are, IP header included. The kernel fills in the header's checksum.
#[derive(Debug)]
pub struct RawSender {
    socket: OwnedFd,
}

impl RawSender {
    /// In the calling thread's network namespace. Fails without CAP_NET_RAW.
    pub fn new() -> io::Result<Self> {
        let raw = Some(Protocol::from_raw(255.try_into().expect("255 is not zero")));
        let socket = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, raw)?;
        Ok(Self { socket })
    }

    /// Sends packets of IPv4, at least 20 bytes each, in order, each to where its header says. What the kernel refuses
    /// is skipped; returns how many it took.
    pub fn send<'a>(&self, packets: impl IntoIterator<Item = &'a [u8]>) -> usize {
        let packets: Vec<&[u8]> = packets.into_iter().filter(|packet| packet.len() >= 20).collect();
        packets.chunks(MESSAGES).map(|chunk| self.send_chunk(chunk)).sum()
    }

    fn send_chunk(&self, mut packets: &[&[u8]]) -> usize {
        let mut taken = 0;
        while !packets.is_empty() {
            let sent = self.send_messages(packets);
            taken += sent;
            packets = &packets[sent.max(1)..];
        }
        taken
    }

    /// One `sendmmsg`; the number of messages sent.
    fn send_messages(&self, packets: &[&[u8]]) -> usize {
        // SAFETY: all zero is a valid `mmsghdr`, `iovec` and `sockaddr_in`: integers and nullable pointers.
        let (mut headers, mut parts, mut names): (
            [libc::mmsghdr; MESSAGES],
            [libc::iovec; MESSAGES],
            [libc::sockaddr_in; MESSAGES],
        ) = unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        let count = packets.len().min(MESSAGES);
        for (index, packet) in packets[..count].iter().enumerate() {
            names[index].sin_family = libc::AF_INET as libc::sa_family_t;
            names[index].sin_addr.s_addr = u32::from(destination(packet)).to_be();
            // sendmmsg only reads through the pointers, mutable as their types are.
            parts[index] = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
        }
        let socket = self.socket.as_raw_fd();
        // SAFETY: each of the first `count` headers points to a name and one iovec with its bytes, of the lengths it
        // gives; all outlive the call, which only reads them.
        let sent = unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), count as _, 0) };
        usize::try_from(sent).unwrap_or(0)
    }
}

fn destination(packet: &[u8]) -> Ipv4Addr {
    packet
        .get(DESTINATION)
        .and_then(|bytes| bytes.first_chunk::<4>())
        .map_or(Ipv4Addr::UNSPECIFIED, |bytes| Ipv4Addr::from(*bytes))
}

/// Sees the packets of IPv4 that come in by an interface.
#[derive(Debug)]
pub struct Sniffer {
    socket: OwnedFd,
}

impl Sniffer {
    /// On `interface` of the calling thread's network namespace. Fails without CAP_NET_RAW, and where there is no such
    /// interface.
    pub fn new(interface: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?;
        let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
        bind(&socket, libc::ETH_P_IP as u16, index)?;
        Ok(Self { socket })
    }

    /// The next packet, from its IP header on; `None` if there is none. What is longer than `buffer` is cut.
    pub fn next<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let (length, _) = recv(&self.socket, &mut *buffer, RecvFlags::empty()).ok()?;
        buffer.get(..length)
    }
}
