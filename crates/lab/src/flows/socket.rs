//! The flows' sockets: non-blocking, and gone with all they hold as soon as they are closed.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, ipproto, recv,
    socket_with, sockopt,
};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Listens in the calling thread's namespace. The connections accepted from it have the receive buffer given, in bytes.
pub(crate) fn listen(address: SocketAddr, receive_buffer: Option<u32>) -> io::Result<OwnedFd> {
    let socket = make()?;
    if let Some(bytes) = receive_buffer {
        sockopt::set_socket_recv_buffer_size_force(&socket, bytes as usize)?;
    }
    bind(&socket, &address)?;
    rustix::net::listen(&socket, 1)?;
    Ok(socket)
}

/// Begins to connect from the calling thread's namespace. [`io::ErrorKind::NotFound`] if the kernel has no such
/// congestion control.
pub(crate) fn connect(address: SocketAddr, congestion_control: &str) -> io::Result<OwnedFd> {
    let socket = make()?;
    sockopt::set_tcp_congestion(&socket, congestion_control)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// The connection that waits, if any still does.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let Some(socket) = unless_blocked(accept_with(listener, FLAGS))? else { return Ok(None) };
    abort_on_close(&socket)?;
    Ok(Some(socket))
}

/// Reads once; how many bytes came.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<u64> {
    let received = unless_blocked(recv(socket, buffer, RecvFlags::empty()))?;
    Ok(received.map_or(0, |(_, length)| length as u64))
}

/// Writes once; how many bytes the kernel took.
pub(crate) fn send(socket: &OwnedFd, content: &[u8]) -> io::Result<u64> {
    let sent = unless_blocked(rustix::net::send(socket, content, SendFlags::NOSIGNAL))?;
    Ok(sent.map_or(0, |length| length as u64))
}

fn make() -> io::Result<OwnedFd> {
    make_with(FLAGS, false)
}

/// MPTCP's, for peers that have it as well, if it is to be `multipath`.
pub(crate) fn make_with(flags: SocketFlags, multipath: bool) -> io::Result<OwnedFd> {
    let protocol = multipath.then_some(ipproto::MPTCP);
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, protocol)?;
    abort_on_close(&socket)?;
    Ok(socket)
}

/// A network that is taken down must not live on because a closed socket still has something to send.
fn abort_on_close(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

fn unless_blocked<T>(result: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
