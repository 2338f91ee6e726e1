//! How applications of this host reach the node of an interface: the abstract Unix socket `@nawa-flood-INTERFACE` (of
//! the network namespace; root only), whose packets (SOCK_SEQPACKET) are messages. Numbers are little-endian.
//!
//! | from | packet |
//! |---|---|
//! | node, once | [`Welcome`] as JSON |
//! | application | what 1 (0 a message, 1 an echo request, 2 "deliver to me from now on") · TTL 1 (0: the node's) · 0 2 · data |
//! | node | ID 4 · epoch 4 · SEQ 4 · TTL 1 · kind 1 · 0 2 · messages dropped for this receiver so far 8 · data |
//!
//! A data path by one daemon costs a system call and a wake-up each way, and gives every sender unique sequence numbers,
//! every receiver a queue of its own, and applications no need of the key nor of privileges beyond root's socket.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, send, socket_with,
};
use serde::{Deserialize, Serialize};

use crate::frame::{DATA_MAX, Header, Kind};

/// Bytes before the data of a packet to the node.
const ASK: usize = 4;
/// Bytes before the data of a packet from the node.
const HEAD: usize = 24;
/// A packet of either side is no longer.
pub(crate) const LONGEST: usize = HEAD + DATA_MAX;
/// Messages that wait for one receiver, beside what its socket holds; of more, the oldest are dropped and counted.
pub(crate) const QUEUE: usize = 1024;
/// Applications at a time.
pub(crate) const CLIENTS: usize = 256;

/// What an application is told first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The node's ID.
    pub id: u32,
    /// Of its life; 0 in wire version 0.
    pub epoch: u32,
    /// The wire version.
    pub wire: u8,
    /// TTL of messages that name none.
    pub ttl: u8,
    /// Bytes that a message may have.
    pub data_max_bytes: usize,
}

/// What an application asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask<'a> {
    Send { kind: Kind, ttl: u8, data: &'a [u8] },
    Deliver,
}

impl<'a> Ask<'a> {
    /// `None` if it is nothing that can be asked.
    pub(crate) fn parse(packet: &'a [u8]) -> Option<Ask<'a>> {
        let (head, data) = packet.split_first_chunk::<ASK>()?;
        match *head {
            [0, ttl, 0, 0] => Some(Ask::Send { kind: Kind::Data, ttl, data }),
            [1, ttl, 0, 0] if data.len() >= 4 => Some(Ask::Send { kind: Kind::EchoRequest, ttl, data }),
            [2, 0, 0, 0] if data.is_empty() => Some(Ask::Deliver),
            _ => None,
        }
    }
}

/// A message that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its frame's header.
    pub header: Header,
    /// How many messages have been dropped for this receiver, since it listens.
    pub dropped: u64,
    /// The data.
    pub data: Vec<u8>,
}

fn write_message(header: &Header, dropped: u64, data: &[u8]) -> Vec<u8> {
    let Header { id, epoch, seq, ttl, kind } = *header;
    let mut packet = Vec::with_capacity(HEAD + data.len());
    packet.extend([id, epoch, seq].map(u32::to_le_bytes).as_flattened());
    packet.extend([ttl, kind as u8, 0, 0]);
    packet.extend(dropped.to_le_bytes());
    packet.extend(data);
    packet
}

fn read_message(packet: &[u8]) -> Option<Message> {
    let (head, data) = packet.split_first_chunk::<HEAD>()?;
    let word = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let kind = if head[13] == Kind::EchoReply as u8 { Kind::EchoReply } else { Kind::Data };
    let header = Header { id: word(0), epoch: word(4), seq: word(8), ttl: head[12], kind };
    let dropped = head[16..].try_into().map_or(0, u64::from_le_bytes);
    Some(Message { header, dropped, data: data.to_vec() })
}

fn address(interface: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("nawa-flood-{interface}").as_bytes())?)
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The node's side: the name, taken.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

impl Listener {
    pub(crate) fn bind(interface: &str) -> io::Result<Listener> {
        let socket = open()?;
        bind(&socket, &address(interface)?)?;
        listen(&socket, 16)?;
        Ok(Listener(socket))
    }

    /// The next application; `None` if there is none, or it is not root's.
    pub(crate) fn accept(&self) -> Option<Receiver> {
        let socket = accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()?;
        let is_root = socket_peercred(&socket).is_ok_and(|peer| peer.uid.is_root());
        let queue = VecDeque::new();
        is_root.then_some(Receiver { socket, queue, listening: false, dropped: 0, watched_for_room: false })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An application that is connected, and what waits for it.
#[derive(Debug)]
pub(crate) struct Receiver {
    socket: OwnedFd,
    queue: VecDeque<Vec<u8>>,
    pub(crate) listening: bool,
    pub(crate) dropped: u64,
    /// Whether the node waits for room in the socket.
    pub(crate) watched_for_room: bool,
}

impl Receiver {
    pub(crate) fn welcome(&mut self, welcome: &Welcome) {
        self.push(serde_json::to_vec(welcome).unwrap_or_default());
    }

    pub(crate) fn deliver(&mut self, header: &Header, data: &[u8]) {
        self.push(write_message(header, self.dropped, data));
    }

    /// The next packet it has sent; an error once it is gone.
    pub(crate) fn next<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => Ok(buffer.get(..length)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// How many messages wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Sends what waits, as far as the socket has room.
    pub(crate) fn flush(&mut self) {
        while let Some(packet) = self.queue.front() {
            // One that is gone is found by reading.
            if send(&self.socket, packet, SendFlags::NOSIGNAL) == Err(rustix::io::Errno::AGAIN) {
                return;
            }
            self.queue.pop_front();
        }
    }

    fn push(&mut self, packet: Vec<u8>) {
        if self.queue.len() >= QUEUE {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(packet);
        self.flush();
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Why a [`Client`] cannot.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody has the name.
    #[error(
        "no node floods on `{0}` in this network namespace; start one with a [[flood]] section and `nawa up`"
    )]
    NoNode(String),
    /// The node has closed the connection.
    #[error("the node has closed the connection; it stops, or only root may talk to it")]
    Closed,
    /// Longer than a frame carries.
    #[error("a message of {0} bytes is too long; at most {1} bytes go into a frame here")]
    TooLong(usize, usize),
    /// Anything else.
    #[error("cannot talk to the node: {0}")]
    System(#[from] io::Error),
}

/// An application's connection to the node of an interface of this network namespace. Its descriptor is readable when a
/// message is there.
///
/// ```no_run
/// let client = flood::Client::connect("wlan0")?;
/// client.listen()?;
/// client.send(0, b"hello, everybody")?;
/// while let Some(message) = client.recv(None)? {
///     println!("{}: {:?}", message.header.id, message.data);
/// }
/// # Ok::<(), flood::ClientError>(())
/// ```
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    welcome: Welcome,
    busy: bool,
}

impl Client {
    /// Connects; messages are delivered after [`Client::listen`].
    ///
    /// # Errors
    /// If there is no node, or it does not want this user.
    pub fn connect(interface: &str) -> Result<Client, ClientError> {
        let socket = open()?;
        match connect(&socket, &address(interface)?) {
            Err(rustix::io::Errno::CONNREFUSED) => return Err(ClientError::NoNode(interface.to_owned())),
            other => other.map_err(io::Error::from)?,
        }
        let (mut packet, patience) = ([0; 512], Duration::from_secs(10));
        let length =
            wait_and_recv(&socket, &mut packet, Some(patience), false)?.ok_or(ClientError::Closed)?;
        let welcome = serde_json::from_slice(&packet[..length]).map_err(io::Error::other)?;
        Ok(Client { socket, welcome, busy: false })
    }

    /// What the node is.
    pub fn node(&self) -> &Welcome {
        &self.welcome
    }

    /// Whether [`Client::recv`] looks again and again, which takes a processor, instead of sleeping until woken.
    pub fn set_busy_polling(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// Has what is heard from now on delivered.
    ///
    /// # Errors
    /// If the node is gone.
    pub fn listen(&self) -> Result<(), ClientError> {
        self.ask(&[2, 0, 0, 0])
    }

    /// Sends a message to everybody; `ttl` 0 is the node's own setting.
    ///
    /// # Errors
    /// If it is too long, or the node is gone.
    pub fn send(&self, ttl: u8, data: &[u8]) -> Result<(), ClientError> {
        self.send_as(0, ttl, data)
    }

    /// Asks the node `id` to send `data` back, as a message of kind [`Kind::EchoReply`] whose data are the ID, big-endian,
    /// and then `data`. Wire version 1 only.
    ///
    /// # Errors
    /// As of [`Client::send`].
    pub fn request_echo(&self, id: u32, ttl: u8, data: &[u8]) -> Result<(), ClientError> {
        self.send_as(1, ttl, &[id.to_be_bytes().as_slice(), data].concat())
    }

    /// The next message; `None` if none came in time.
    ///
    /// # Errors
    /// If the node is gone.
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Option<Message>, ClientError> {
        let mut packet = [0; LONGEST];
        let Some(length) = wait_and_recv(&self.socket, &mut packet, timeout, self.busy)? else {
            return Ok(None);
        };
        Ok(read_message(&packet[..length]))
    }

    fn send_as(&self, what: u8, ttl: u8, data: &[u8]) -> Result<(), ClientError> {
        if data.len() > self.welcome.data_max_bytes {
            return Err(ClientError::TooLong(data.len(), self.welcome.data_max_bytes));
        }
        self.ask(&[&[what, ttl, 0, 0], data].concat())
    }

    fn ask(&self, packet: &[u8]) -> Result<(), ClientError> {
        loop {
            match send(&self.socket, packet, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                // The node is slower than this: wait for it.
                Err(rustix::io::Errno::AGAIN) => wait(&self.socket, PollFlags::OUT, None)?,
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                    return Err(ClientError::Closed);
                }
                Err(error) => return Err(io::Error::from(error).into()),
            };
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The length of the next packet, `None` after `timeout`.
fn wait_and_recv(
    socket: &OwnedFd,
    buffer: &mut [u8],
    timeout: Option<Duration>,
    busy: bool,
) -> Result<Option<usize>, ClientError> {
    let until = timeout.map(|timeout| device::monotonic() + timeout);
    loop {
        match recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => return Err(ClientError::Closed),
            Ok((length, _)) => return Ok(Some(length)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let rest = until.map(|until| until.saturating_sub(device::monotonic()));
        if rest.is_some_and(|rest| rest.is_zero()) {
            return Ok(None);
        }
        if !busy {
            wait(socket, PollFlags::IN, rest)?;
        }
    }
}

fn wait(socket: &OwnedFd, what: PollFlags, timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|rest| Timespec {
        tv_sec: rest.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: rest.subsec_nanos().into(),
    });
    match poll(&mut [PollFd::new(socket, what)], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_delivered_is_read() {
        let header = Header { id: 7, epoch: 8, seq: 9, ttl: 3, kind: Kind::EchoReply };
        let packet = write_message(&header, 5, b"data");
        assert_eq!(read_message(&packet), Some(Message { header, dropped: 5, data: b"data".to_vec() }));
        assert_eq!(read_message(&packet[..HEAD - 1]), None);
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        assert_eq!(Ask::parse(&[2, 0, 0, 0]), Some(Ask::Deliver));
        assert_eq!(Ask::parse(&[0, 3, 0, 0, 9]), Some(Ask::Send { kind: Kind::Data, ttl: 3, data: &[9] }));
        for bad in
            [&[][..], &[0, 0, 0], &[1, 0, 0, 0, 1, 2, 3], &[2, 0, 0, 0, 1], &[3, 0, 0, 0], &[0, 0, 1, 0]]
        {
            assert_eq!(Ask::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_receiver_that_does_not_read_loses_the_oldest() {
        let name = format!("test-{}", std::process::id());
        let listener = Listener::bind(&name).expect("the name is free");
        let Ok(socket) = open() else { panic!("no socket") };
        connect(&socket, &address(&name).expect("a name")).expect("it listens");
        let Some(mut receiver) = listener.accept() else {
            return eprintln!("SKIPPED: a_receiver_that_does_not_read_loses_the_oldest: needs root");
        };
        let count = 20_000;
        for seq in 0..count {
            receiver.deliver(&Header { seq, ..Header::default() }, &[0; 100]);
        }
        assert_eq!(receiver.waiting(), QUEUE);
        let client = Client {
            socket,
            welcome: Welcome { id: 1, epoch: 0, wire: 1, ttl: 1, data_max_bytes: 1 },
            busy: false,
        };
        let (mut last, mut received) = (None, 0);
        while let Some(message) = client.recv(Some(Duration::ZERO)).expect("it is there") {
            assert!(last < Some(message.header.seq), "in order");
            (last, received) = (Some(message.header.seq), received + 1);
            receiver.flush();
        }
        assert_eq!(last, Some(count - 1), "the newest came");
        assert_eq!(receiver.dropped + received, u64::from(count));
    }
}
