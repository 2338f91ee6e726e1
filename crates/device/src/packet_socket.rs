//! Packet sockets: whole Ethernet frames of one EtherType, past the kernel's protocols (packet(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::interface_request;
use crate::socket_option::set;

/// `ETHTOOL_GFLAGS` (linux/ethtool.h) asks what an interface's card does by itself, and `ETH_FLAG_RXVLAN` is one bit of the answer.
const GET_FLAGS: u32 = 0x25;
const RX_VLAN: u32 = 1 << 8;

/// A non-blocking packet socket at one interface. What leaves this host is not heard.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    mac: [u8; 6],
    interface: libc::c_int,
}

impl PacketSocket {
    /// At the interface with this index, in the calling thread's network namespace. With `ethertype`, it hears frames
    /// of that; without, it only sends. Fails without CAP_NET_RAW, and where the interface has no Ethernet address.
    pub fn open(interface: u32, ethertype: Option<u16>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // What the kernel's limit cuts off is no error.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, crate::BUFFER);
        bind(&socket, ethertype.unwrap_or(0), interface)?;
        Self::adopt(socket)
    }

    /// A packet socket that somebody has opened and bound to an interface, and passed on.
    pub fn adopt(socket: OwnedFd) -> io::Result<Self> {
        let mut name = address();
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let fd = socket.as_raw_fd();
        // SAFETY: the kernel writes at most `length` bytes, which is what the name has.
        check(unsafe { libc::getsockname(fd, (&raw mut name).cast(), &raw mut length) })?;
        let mac = *name.sll_addr.first_chunk().expect("eight bytes");
        if (name.sll_family, name.sll_hatype, name.sll_halen)
            != (libc::AF_PACKET as u16, libc::ARPHRD_ETHER, 6)
        {
            return Err(io::Error::other("the interface carries no Ethernet frames"));
        }
        Ok(Self { socket, mac, interface: name.sll_ifindex })
    }

    /// The interface's address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Whether the interface `name` takes VLANs' tags off what it receives, so that XDP does not see them. Fails where there is none.
    pub fn takes_tags_off(&self, name: &str) -> io::Result<bool> {
        // `struct ethtool_value`: the command, and room for the answer.
        let mut value = [GET_FLAGS, 0];
        let mut request = interface_request::with_flags(name, 0)?;
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: SIOCETHTOOL reads an `ifreq`, and reads and writes the two words that it points to; both outlive the call.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) })?;
        Ok(value[1] & RX_VLAN != 0)
    }

    /// Sends one frame, from its destination address on.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        Ok(send(&self.socket, frame, SendFlags::empty()).map(drop)?)
    }

    /// The next frame; `None` if there is none. What is longer than `buffer` is cut.
    pub fn recv<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let (length, _) = recv(&self.socket, &mut *buffer, RecvFlags::empty()).ok()?;
        buffer.get(..length)
    }

    /// The same, with nothing of a frame that is not for everybody at this interface. One of a VLAN, whose tag the kernel or the card has
    /// taken off, is none: the kernel calls it another host's, or, where the VLAN is an interface, that one's.
    pub fn recv_broadcast<'b>(&self, buffer: &'b mut [u8]) -> Option<Option<&'b [u8]>> {
        let mut from = address();
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let (fd, into) = (self.socket.as_raw_fd(), buffer.as_mut_ptr().cast());
        // SAFETY: the kernel writes at most as many bytes as the buffer has, and at most `length` of the address.
        let got =
            unsafe { libc::recvfrom(fd, into, buffer.len(), 0, (&raw mut from).cast(), &raw mut length) };
        let got = usize::try_from(got).ok()?;
        let wanted = from.sll_pkttype == libc::PACKET_BROADCAST && from.sll_ifindex == self.interface;
        Some(buffer.get(..got).filter(|_| wanted))
    }
}

/// Bytes that a socket has sent and that the interface has not: 0 once all has been on the air, where its driver tells so.
pub fn unsent(socket: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int, which outlives the call.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

impl From<PacketSocket> for OwnedFd {
    fn from(socket: PacketSocket) -> Self {
        socket.socket
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn address() -> libc::sockaddr_ll {
    // SAFETY: all zero is a valid `sockaddr_ll`: integers and bytes.
    let mut name: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    name.sll_family = libc::AF_PACKET as u16;
    name
}

/// Has a packet socket hear the frames of this EtherType, 0: of none, at the interface with this index, and send by it.
pub(crate) fn bind(socket: &OwnedFd, ethertype: u16, interface: u32) -> io::Result<()> {
    let mut name = address();
    name.sll_protocol = ethertype.to_be();
    name.sll_ifindex = i32::try_from(interface).map_err(io::Error::other)?;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the name is one `sockaddr_ll` of the length given, which outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), length) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
