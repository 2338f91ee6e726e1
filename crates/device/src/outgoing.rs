//! Sockets of ordinary programs that leave a certain way: with a mark, by an interface, from an address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::socket_option::set;

/// How packets leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Mark of every packet sent (SO_MARK); 0: none. Needs CAP_NET_ADMIN.
    pub mark: u32,
    /// The index of the only interface that they leave by and come in by.
    pub interface: Option<u32>,
    /// Their source address, where the destination is of its family.
    pub source: Option<IpAddr>,
}

impl Outgoing {
    /// A UDP socket that sends to `to` and hears nobody else. It does not block.
    ///
    /// # Errors
    /// There is no route, or no permission.
    pub fn udp(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = UdpSocket::from(self.open(to, SocketType::DGRAM)?);
        socket.connect(to)?;
        Ok(socket)
    }

    /// A TCP connection to `to`, which has only begun: it is made, or has failed, when it can be written. It does not block.
    ///
    /// # Errors
    /// There is no route, or no permission.
    pub fn tcp(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.open(to, SocketType::STREAM)?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self, to: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
        let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        if self.mark != 0 {
            set(&socket, libc::SOL_SOCKET, libc::SO_MARK, self.mark.cast_signed())?;
        }
        if let Some(interface) = self.interface {
            set(&socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, interface.cast_signed())?;
        }
        if let Some(source) = self.source.filter(|source| source.is_ipv4() == to.is_ipv4()) {
            rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
        }
        Ok(socket)
    }
}

/// The loopback address of the family of `address`.
pub fn loopback(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn they_reach_this_host() {
        let (udp, tcp) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let from = Outgoing { source: Some(IpAddr::from([127, 0, 0, 9])), ..Outgoing::default() };
        let near = from.udp(udp.local_addr().unwrap()).unwrap();
        near.send(b"7").unwrap();
        assert_eq!(udp.recv_from(&mut [0; 8]).unwrap().1, near.local_addr().unwrap());
        assert_eq!(near.local_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 9]));
        assert_eq!(near.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let near = from.tcp(tcp.local_addr().unwrap()).unwrap();
        assert_eq!(tcp.accept().unwrap().1, near.local_addr().unwrap());
    }
}
