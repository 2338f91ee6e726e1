//! UDP to everybody on one interface's network: limited broadcast of IPv4 (RFC 919).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto, socket_with,
};

use crate::socket_option::set;
use crate::{BUFFER, addresses, interface_request};

/// A non-blocking UDP socket that hears what comes to everybody at a port by one interface, and sends to that port of all
/// hosts there. What comes to this host alone it does not hear, since that may come from beyond the network; nor what this
/// host sends, which the kernel hands back.
#[derive(Debug)]
pub struct BroadcastSocket {
    socket: OwnedFd,
    everybody: SocketAddrV4,
    here: Ipv4Addr,
}

impl BroadcastSocket {
    /// On `interface` of the calling thread's network namespace, which has to have an address of IPv4. `checksums`: whether
    /// datagrams carry a checksum.
    pub fn bind(interface: &str, port: u16, checksums: bool) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_BROADCAST, 1)?;
        let name = interface_request::with_flags(interface, 0)?.ifr_name;
        set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, libc::c_int::from(!checksums))?;
        // What the kernel's limit cuts off is no error.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER);
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::BROADCAST, port))?;
        let v4 = |address| if let IpAddr::V4(v4) = address { Some(v4) } else { None };
        let none =
            || io::Error::new(io::ErrorKind::AddrNotAvailable, format!("`{interface}` has no IPv4 address"));
        let here = addresses(interface)?.into_iter().find_map(v4).ok_or_else(none)?;
        Ok(Self { socket, everybody: SocketAddrV4::new(Ipv4Addr::BROADCAST, port), here })
    }

    /// Sends one datagram.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        Ok(sendto(&self.socket, datagram, SendFlags::empty(), &self.everybody).map(drop)?)
    }

    /// The next datagram; `None` if there is none. What is longer than `buffer` is cut.
    pub fn recv<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        loop {
            let (length, _, from) = recvfrom(&self.socket, &mut *buffer, RecvFlags::empty()).ok()?;
            let from = from.and_then(|from| SocketAddrV4::try_from(from).ok());
            if from.is_none_or(|from| *from.ip() != self.here) {
                return buffer.get(..length);
            }
        }
    }
}

impl AsFd for BroadcastSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
