//! TCP: what the kernel tells about a connection (`TCP_INFO`), and options that the standard library does not know.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::explained;
use crate::socket_option::set;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The state of a connection's sender. What an older kernel does not tell is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The largest payload of a segment, in bytes.
    pub mss: u32,
    /// The congestion window, in segments.
    pub cwnd: u32,
    /// The slow-start threshold, in segments; 2³¹ − 1 as long as there is none.
    pub ssthresh: u32,
    /// The window that the peer advertises, in bytes.
    pub snd_wnd: u32,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The least round-trip time that the kernel remembers.
    pub min_rtt: Duration,
    /// Segments sent and neither acknowledged nor known as lost.
    pub unacked: u32,
    /// Segments sent again so far.
    pub retransmitted: u32,
    /// The pacing rate, in bytes/s.
    pub pacing_rate: u64,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Segments sent, with data or without, those sent again included.
    pub segments_sent: u32,
}

/// The longest `struct tcp_info` that is looked at.
const LENGTH: usize = 256;

/// The state of `socket`, a TCP socket. Fails where it is none.
pub fn info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; LENGTH];
    let mut length = LENGTH as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to `bytes`, which is that long and outlives the call, and the
    // number of those that it wrote to `length`.
    let result = unsafe {
        let buffer = bytes.as_mut_ptr().cast();
        libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, buffer, &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(parse(&bytes)) }
}

/// From now on `socket` advertises a window of at most so many bytes. The kernel sets the limit anew whenever segments of
/// another size arrive: set it after the first ones, and again.
pub fn clamp_window(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(socket, libc::TCP_WINDOW_CLAMP, bytes)
}

/// `socket` can be written while less than so many bytes wait in it to be sent for the first time (TCP_NOTSENT_LOWAT).
pub fn set_most_unsent(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(socket, libc::TCP_NOTSENT_LOWAT, bytes)
}

fn set_int(socket: impl AsFd, name: libc::c_int, value: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, name, libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX))
}

/// Listens on `address`; an IPv6 address that is unspecified takes IPv4 as well.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC;
    let listen = || {
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
        }
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok::<_, io::Error>(socket.into())
    };
    listen().map_err(|error| explained(error, format_args!("cannot listen on TCP {address}")))
}

/// Offsets are those of `struct tcp_info` in linux/tcp.h, which only grows at its end.
fn parse(bytes: &[u8; LENGTH]) -> TcpInfo {
    let u32_at = |offset: usize| u32::from_ne_bytes(std::array::from_fn(|index| bytes[offset + index]));
    let u64_at = |offset: usize| u64::from_ne_bytes(std::array::from_fn(|index| bytes[offset + index]));
    let micros_at = |offset| Duration::from_micros(u32_at(offset).into());
    TcpInfo {
        mss: u32_at(16),
        unacked: u32_at(24),
        rtt: micros_at(68),
        ssthresh: u32_at(76),
        cwnd: u32_at(80),
        retransmitted: u32_at(100),
        pacing_rate: u64_at(104),
        bytes_acked: u64_at(120),
        segments_sent: u32_at(136),
        min_rtt: micros_at(148),
        snd_wnd: u32_at(228),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn a_connection_tells_what_it_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[0; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        // An answer acknowledges what was sent before it.
        far.write_all(&[0]).unwrap();
        near.read_exact(&mut [0]).unwrap();
        let info = info(&near).unwrap();
        assert_eq!((info.bytes_acked, info.unacked, info.retransmitted), (1001, 0, 0), "SYN and data");
        assert!(info.mss >= 500 && info.cwnd > 0 && info.snd_wnd > 0 && info.rtt >= info.min_rtt, "{info:?}");
    }

    #[test]
    fn a_socket_of_udp_has_none() {
        assert!(info(UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
