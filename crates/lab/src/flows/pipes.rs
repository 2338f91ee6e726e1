//! Sockets that one thread moves bytes through: as much as they take, from each sender to its receiver.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use device::poller::{Interest, Poller};
use device::tcp;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, ipproto, recv,
    socket_with, sockopt,
};

use crate::clock;
use crate::error::{Doing, Error, Result};
use crate::namespace::Namespace;

/// One connection's sockets, and how far it is.
pub(crate) struct Pipe {
    listener: OwnedFd,
    pub(crate) receiver: Option<OwnedFd>,
    /// None until it is there, and for one that another program has.
    pub(crate) sender: Option<OwnedFd>,
    /// What the receiver is to advertise at most, in bytes.
    window: Option<u32>,
    /// Still to be handed to the kernel.
    unsent: u64,
    pub(crate) received: u64,
    /// When the last byte came.
    pub(crate) last: Duration,
}

/// All connections of a test, and the time since its start.
pub(crate) struct Pipes {
    poller: Poller,
    pub(crate) all: Vec<Pipe>,
    started: Instant,
    buffer: Vec<u8>,
}

/// What of a connection a token of the poller is: the token is three times the connection's index, plus this.
const LISTENER: u64 = 0;
const RECEIVER: u64 = 1;
const SENDER: u64 = 2;

impl Pipes {
    pub(crate) fn new() -> Result<Self> {
        let poller = Poller::new().doing(|| "make an epoll instance".into())?;
        Ok(Self { poller, all: Vec::new(), started: clock::now(), buffer: vec![0; 1 << 16] })
    }

    /// The next connection is accepted by `host` at `address` and carries so many bytes at most. Its receiver has a buffer of so many
    /// bytes, and advertises so many, at most, where that is not left to the kernel.
    pub(crate) fn listen(
        &mut self,
        (host, address): (&Namespace, SocketAddr),
        bytes: Option<u64>,
        (buffer, window): (Option<u32>, Option<u32>),
    ) -> Result<()> {
        let listener =
            host.run(|| listen(address, buffer, false))?.doing(|| format!("listen at {address}"))?;
        // What has been advertised once is not taken back: the first window has to be small too.
        let limited = window.map_or(Ok(()), |window| tcp::clamp_window(&listener, window));
        limited.doing(|| "limit a receiver's window".into())?;
        let token = 3 * self.all.len() as u64 + LISTENER;
        self.poller.add(&listener, token, Interest::Read).doing(|| "wait for a socket".into())?;
        let unsent = bytes.unwrap_or(u64::MAX);
        let (receiver, sender, last) = (None, None, Duration::ZERO);
        self.all.push(Pipe { listener, receiver, sender, window, unsent, received: 0, last });
        Ok(())
    }

    /// Connection `index` begins to send, from `host` by `congestion_control` to `address`.
    pub(crate) fn connect(
        &mut self,
        index: usize,
        (host, address): (&Namespace, SocketAddr),
        congestion_control: &str,
    ) -> Result<()> {
        let sender = match host.run(|| connect(address, congestion_control))? {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoCongestionControl(congestion_control.into()));
            }
            sender => sender.doing(|| format!("connect to {address}"))?,
        };
        let token = 3 * index as u64 + SENDER;
        self.poller.add(&sender, token, Interest::Write).doing(|| "wait for a socket".into())?;
        self.all[index].sender = Some(sender);
        Ok(())
    }

    /// Time begins.
    pub(crate) fn restart(&mut self) {
        self.started = clock::now();
    }

    pub(crate) fn now(&self) -> Duration {
        clock::now() - self.started
    }

    /// Moves what can be moved, waiting at most for `timeout`.
    pub(crate) fn step(&mut self, timeout: Duration) -> Result<()> {
        let ready = self.poller.wait(Some(timeout)).doing(|| "wait for sockets".into())?;
        let tokens: Vec<u64> = ready.map(|ready| ready.token).collect();
        let now = self.now();
        for token in tokens {
            let Some(pipe) = self.all.get_mut((token / 3) as usize) else { continue };
            let moved = match token % 3 {
                LISTENER => pipe.accept(&self.poller, token - LISTENER + RECEIVER),
                RECEIVER => pipe.receive(&mut self.buffer, now),
                _ => pipe.send(&self.poller, &self.buffer),
            };
            moved.doing(|| format!("transfer by flow {}", token / 3))?;
        }
        Ok(())
    }
}

impl Pipe {
    fn accept(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        if let Some(receiver) = unless_blocked(accept_with(&self.listener, FLAGS))? {
            abort_on_close(&receiver)?;
            poller.add(&receiver, token, Interest::Read)?;
            self.receiver = Some(receiver);
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], now: Duration) -> io::Result<()> {
        let Some(receiver) = &self.receiver else { return Ok(()) };
        let came = unless_blocked(recv(receiver, buffer, RecvFlags::empty()))?;
        self.window.map_or(Ok(()), |window| tcp::clamp_window(receiver, window))?;
        if let Some((_, bytes @ 1..)) = came {
            self.received += bytes as u64;
            self.last = now;
        }
        Ok(())
    }

    fn send(&mut self, poller: &Poller, content: &[u8]) -> io::Result<()> {
        let Some(sender) = &self.sender else { return Ok(()) };
        let length = content.len().min(usize::try_from(self.unsent).unwrap_or(usize::MAX));
        let sent = unless_blocked(rustix::net::send(sender, &content[..length], SendFlags::NOSIGNAL))?;
        self.unsent -= sent.unwrap_or(0) as u64;
        if self.unsent == 0 { poller.remove(sender) } else { Ok(()) }
    }
}

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Listens in the calling thread's namespace. The connections accepted from it have the receive buffer given, in bytes.
pub(crate) fn listen(at: SocketAddr, receive_buffer: Option<u32>, multipath: bool) -> io::Result<OwnedFd> {
    let socket = make_with(FLAGS, multipath)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if let Some(bytes) = receive_buffer {
        sockopt::set_socket_recv_buffer_size_force(&socket, bytes as usize)?;
    }
    bind(&socket, &at)?;
    rustix::net::listen(&socket, 8)?;
    Ok(socket)
}

/// Begins to connect from the calling thread's namespace. [`io::ErrorKind::NotFound`] if the kernel has no such
/// congestion control.
fn connect(address: SocketAddr, congestion_control: &str) -> io::Result<OwnedFd> {
    let socket = make_with(FLAGS, false)?;
    sockopt::set_tcp_congestion(&socket, congestion_control)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
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
