//! UDP in batches: many datagrams per system call (`sendmmsg`, `recvmmsg`), and many per message (UDP_SEGMENT,
//! UDP_GRO), each with its local address, interface and TOS.

pub(crate) mod control;
mod receive;
mod transmit;

pub use receive::{Meta, RecvBatch};
pub use transmit::{SendFailure, Transmit};

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use crate::BUFFER;
use crate::explained;
use crate::socket_option::set;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// How a socket is bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Mark of every packet sent (SO_MARK); 0: none. Needs CAP_NET_ADMIN.
    pub fwmark: u32,
    /// An IPv6 socket leaves IPv4 to another one on the same port.
    pub v6_only: bool,
    /// Other sockets may bind the same port; the kernel spreads flows over them.
    pub reuse_port: bool,
}

/// An unconnected, non-blocking UDP socket. Packets leave with DF set, whatever path MTU the kernel believes in:
/// finding it is the caller's.
#[derive(Debug)]
pub struct UdpSocket {
    socket: OwnedFd,
    refused: Mutex<Refused>,
}

/// Ways out that do not take trains: a driver without checksum offload fails them with EIO, and the kernel with EINVAL.
#[derive(Debug, Default)]
struct Refused {
    /// By interface if one was asked for, and address.
    ways: BTreeSet<(Option<u32>, IpAddr)>,
    /// When the first of them did.
    since: Option<Duration>,
}

impl UdpSocket {
    /// Binds `address`; port 0 takes a free one. Fails where it is taken or not local, and where a mark is not
    /// permitted; the error says which.
    pub fn bind(address: SocketAddr, options: Options) -> io::Result<Self> {
        let socket = open(address, options)
            .and_then(|socket| rustix::net::bind(&socket, &address).map(|()| socket).map_err(Into::into))
            .map_err(|error| explained(error, format_args!("cannot bind UDP {address}")))?;
        Ok(Self { socket, refused: Mutex::default() })
    }

    /// Of the sockets that share its port ([`Options::reuse_port`]), the one that was bound second gets the datagrams
    /// whose first byte is `first`, the one that was bound first all others.
    pub fn steer(&self, first: u8) -> io::Result<()> {
        let code = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        // Byte 0 of the payload; a datagram without one ends the program with 0. What is returned counts the sockets.
        let mut program = [
            code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0),
            code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, first.into()),
            code(libc::BPF_RET | libc::BPF_K, 0, 0, 1),
            code(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        set(&self.socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, filter)
    }

    /// Marks every packet sent from now on (SO_MARK); 0: none. Needs CAP_NET_ADMIN.
    pub fn set_mark(&self, mark: u32) -> io::Result<()> {
        set(&self.socket, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
            .map_err(|error| explained(error, format_args!("cannot set the mark {mark:#x}")))
    }

    /// Whether the kernel cuts trains of datagrams (UDP_SEGMENT).
    pub fn cuts_trains(&self) -> bool {
        set(&self.socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
    }

    /// The address it is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let name = rustix::net::getsockname(&self.socket)?;
        SocketAddr::try_from(name).map_err(Into::into)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open(address: SocketAddr, options: Options) -> io::Result<OwnedFd> {
    let v6 = address.is_ipv6();
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if v6 {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, libc::c_int::from(options.v6_only))?;
    }
    if options.reuse_port {
        set(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if options.fwmark != 0 {
        set(&socket, libc::SOL_SOCKET, libc::SO_MARK, options.fwmark.cast_signed())
            .map_err(|error| explained(error, format_args!("mark {:#x}", options.fwmark)))?;
    }
    enlarge(&socket);
    inform(&socket, v6)?;
    // Kernels before 5.0 have no GRO for UDP: then every datagram comes alone.
    let _ = set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    Ok(socket)
}

/// As large as the kernel lets them be: beyond its limit with CAP_NET_ADMIN, up to it without.
fn enlarge(socket: &OwnedFd) {
    for (force, ask) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set(socket, libc::SOL_SOCKET, force, BUFFER).is_err() {
            let _ = set(socket, libc::SOL_SOCKET, ask, BUFFER);
        }
    }
}

/// DF on every packet; local address, interface and TOS with every packet received.
fn inform(socket: &OwnedFd, v6: bool) -> io::Result<()> {
    let options: &[(libc::c_int, libc::c_int, libc::c_int)] = if v6 {
        &[
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
            (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
        ]
    } else {
        &[
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
            (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
        ]
    };
    options.iter().try_for_each(|(level, name, value)| set(socket, *level, *name, *value))
}
