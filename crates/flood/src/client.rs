//! What applications use: [`Client`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use device::poller::Interest;
use device::{PacketSocket, Poller, Waker, monotonic};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, connect, recv, send};

use crate::board::Reader;
use crate::frame::{Format, Header, Kind, Wire};
use crate::local::{Ask, Welcome, address, is_roots, open, recv_with};
use crate::medium::ethernet;
use crate::sequence::Sequence;

/// For the node to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Looks at the board between two looks at the connection.
const LOOKS: u32 = 1024;

/// A message that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its frame's header.
    pub header: Header,
    /// How many messages this receiver has lost since it listens, because it read too slowly.
    pub dropped: u64,
    /// The data.
    pub data: Vec<u8>,
}

/// Why a [`Client`] cannot.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody has the name.
    #[error(
        "no node floods on `{0}` in this network namespace; start one with a [[flood]] section and `nawa up`"
    )]
    NoNode(String),
    /// Somebody who is not root has the name.
    #[error("who holds the socket @nawa-flood-{0} is not root, and so no node; end that process (`ss -xlp`)")]
    Stranger(String),
    /// The node has closed the connection.
    #[error("the node has closed the connection; it stops, or only root may talk to it")]
    Closed,
    /// Longer than a frame carries.
    #[error("a message of {0} bytes is too long; at most {1} bytes go into a frame here")]
    TooLong(usize, usize),
    /// It is down, or has no room.
    #[error("the interface does not take the message: {0}")]
    Unsent(io::Error),
    /// Anything else.
    #[error("cannot talk to the node: {0}")]
    System(#[from] io::Error),
}

/// An application's connection to the node of an interface of this network namespace.
///
/// Its descriptor is readable when a message has come, until [`Client::recv`] finds no more.
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
    format: Format,
    /// Where frames go past the node; without, what is sent goes through it.
    outlet: Option<(PacketSocket, Sequence)>,
    /// The connection, and what an ear waits for.
    ready: Poller,
    ear: Mutex<Option<Ear>>,
    busy: bool,
}

/// By which a client listens.
#[derive(Debug)]
struct Ear {
    board: Reader,
    bell: Poller,
    /// Keeps the client's descriptor readable where the bell has been heard and there is more to read.
    more: Waker,
    frame: Vec<u8>,
    /// Messages lost that the node has been told of.
    reported: u64,
}

impl Client {
    /// Connects; messages are delivered after [`Client::listen`].
    ///
    /// # Errors
    /// If there is no node, or it does not want this user.
    pub fn connect(interface: &str) -> Result<Client, ClientError> {
        let socket = open()?;
        match connect(&socket, &address(interface)?) {
            Err(Errno::CONNREFUSED) => return Err(ClientError::NoNode(interface.to_owned())),
            other => other.map_err(io::Error::from)?,
        }
        if !is_roots(&socket) {
            return Err(ClientError::Stranger(interface.to_owned()));
        }
        let (packet, descriptors) = answer(&socket)?;
        let welcome: Welcome = serde_json::from_slice(&packet).map_err(io::Error::other)?;
        let wire = if welcome.wire == 0 { Wire::Paper } else { Wire::One };
        let outlet = match <[OwnedFd; 2]>::try_from(descriptors) {
            Ok([packets, sequence]) => Some((PacketSocket::adopt(packets)?, Sequence::map(sequence)?)),
            Err(_) => None,
        };
        let format = outlet.as_ref().map_or(Format::new(wire, None), |(_, sequence)| sequence.format(wire));
        let ready = Poller::new()?;
        ready.add(&socket, 0, Interest::Read)?;
        Ok(Client { socket, welcome, format, outlet, ready, ear: Mutex::new(None), busy: false })
    }

    /// What the node is.
    pub fn node(&self) -> &Welcome {
        &self.welcome
    }

    /// Whether [`Client::recv`] looks again and again, which takes a processor, instead of sleeping until woken. Where
    /// nobody has to be woken, relaying is quicker: call it before [`Client::listen`].
    pub fn set_busy_polling(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// Has what is heard from now on delivered.
    ///
    /// # Errors
    /// If the node is gone.
    pub fn listen(&self) -> Result<(), ClientError> {
        let mut ear = self.ear.lock().unwrap_or_else(PoisonError::into_inner);
        self.ask(&Ask::Deliver { busy: self.busy })?;
        let (_, descriptors) = answer(&self.socket)?;
        let Ok([board, bell]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(io::Error::other("it hands over no board and no bell").into());
        };
        if ear.is_none() {
            let (bell, more) = (Poller::from(bell), Waker::new()?);
            self.ready.add(&bell, 0, Interest::Read)?;
            self.ready.add(&more, 0, Interest::Read)?;
            *ear = Some(Ear { board: Reader::open(board)?, bell, more, frame: Vec::new(), reported: 0 });
        }
        Ok(())
    }

    /// Sends a message to everybody; `ttl` 0 is the node's own setting.
    ///
    /// # Errors
    /// If it is too long, the interface does not take it, or the node is gone.
    pub fn send(&self, ttl: u8, data: &[u8]) -> Result<(), ClientError> {
        self.send_as(Kind::Data, ttl, data)
    }

    /// Asks the node `id` to send `data` back, as a message of kind [`Kind::EchoReply`] whose data are the ID, big-endian,
    /// and then `data`. Wire version 1 only.
    ///
    /// # Errors
    /// As of [`Client::send`].
    pub fn request_echo(&self, id: u32, ttl: u8, data: &[u8]) -> Result<(), ClientError> {
        self.send_as(Kind::EchoRequest, ttl, &[id.to_be_bytes().as_slice(), data].concat())
    }

    /// The next message; `None` if none came in time.
    ///
    /// # Errors
    /// If the node is gone, and all is read.
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Option<Message>, ClientError> {
        self.recv_if(timeout, |_| true)
    }

    /// The next message of an application's; what answers pings is left out, and makes nobody wait longer.
    ///
    /// # Errors
    /// As of [`Client::recv`].
    pub fn recv_data(&self, timeout: Option<Duration>) -> Result<Option<Message>, ClientError> {
        self.recv_if(timeout, |message| message.header.kind == Kind::Data)
    }

    fn recv_if(
        &self,
        timeout: Option<Duration>,
        wanted: impl Fn(&Message) -> bool,
    ) -> Result<Option<Message>, ClientError> {
        let until = timeout.map(|timeout| monotonic() + timeout);
        let mut ear = self.ear.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match self.take(ear.as_mut())? {
                Some(message) if wanted(&message) => return Ok(Some(message)),
                Some(_) => {}
                None => self.check()?,
            }
            let rest = until.map(|until| until.saturating_sub(monotonic()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(None);
            }
            if !self.busy {
                wait(&self.ready, PollFlags::IN, rest)?;
            }
        }
    }

    /// A message, if there is one; the descriptor is readable afterwards if there may be more.
    fn take(&self, ear: Option<&mut Ear>) -> Result<Option<Message>, ClientError> {
        let Some(ear) = ear else { return Ok(None) };
        let looks = if self.busy { LOOKS } else { 1 };
        let mut there = (0..looks).any(|_| ear.board.take(&mut ear.frame));
        if !there && !self.busy {
            // Heard before looking again: what comes after that rings again.
            ear.more.reset();
            ear.bell.wait(Some(Duration::ZERO))?.for_each(drop);
            there = ear.board.take(&mut ear.frame);
            if there {
                ear.more.wake();
            }
        }
        let dropped = ear.board.dropped();
        if dropped > ear.reported {
            // For the node's count. If it has no time for that now, later.
            let report = Ask::Dropped(dropped - ear.reported).write();
            if send(&self.socket, &report, SendFlags::NOSIGNAL).is_ok() {
                ear.reported = dropped;
            }
        }
        let header = there.then(|| self.format.header(&ear.frame)).flatten();
        Ok(header.map(|header| {
            let data = ear.frame[self.format.wire().header_bytes()..].to_vec();
            Message { header, dropped, data }
        }))
    }

    fn send_as(&self, kind: Kind, ttl: u8, data: &[u8]) -> Result<(), ClientError> {
        if data.len() > self.welcome.data_max_bytes {
            return Err(ClientError::TooLong(data.len(), self.welcome.data_max_bytes));
        }
        let Some((socket, sequence)) = self.outlet.as_ref().filter(|_| self.can_say(kind)) else {
            return self.ask(&Ask::Send { kind, ttl, data });
        };
        self.check()?;
        let Welcome { id, epoch, .. } = self.welcome;
        let ttl = if ttl == 0 { self.welcome.ttl } else { ttl };
        let header = Header { id, epoch, seq: sequence.take(self.format.wire()), ttl, kind };
        let frame = ethernet(socket.mac(), &self.format.write(&header, data));
        let sent = loop {
            match socket.send(&frame) {
                // The interface is slower than this: wait for it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(socket, PollFlags::OUT, None)?;
                }
                sent => break sent,
            }
        };
        sequence.count(ttl, sent.is_ok());
        sent.map_err(ClientError::Unsent)
    }

    /// Whether a frame has room for what it is for; the node counts what has not.
    fn can_say(&self, kind: Kind) -> bool {
        kind == Kind::Data || self.format.wire() == Wire::One
    }

    fn ask(&self, ask: &Ask) -> Result<(), ClientError> {
        let packet = ask.write();
        loop {
            match send(&self.socket, &packet, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                // The node is slower than this: wait for it.
                Err(Errno::AGAIN) => wait(&self.socket, PollFlags::OUT, None)?,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ClientError::Closed),
                Err(error) => return Err(io::Error::from(error).into()),
            };
        }
    }

    /// Fails if the node is gone: it says nothing unasked, so that there is nothing to read but the end.
    fn check(&self) -> Result<(), ClientError> {
        match recv(&self.socket, &mut [0; 1], RecvFlags::PEEK) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(ClientError::Closed),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// What the node says next.
fn answer(socket: &OwnedFd) -> Result<(Vec<u8>, Vec<OwnedFd>), ClientError> {
    let until = monotonic() + PATIENCE;
    let mut packet = [0; 512];
    loop {
        match recv_with(socket, &mut packet) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Err(ClientError::Closed),
            Ok((length, descriptors)) => return Ok((packet[..length].to_vec(), descriptors)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let rest = until.saturating_sub(monotonic());
        if rest.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        wait(socket, PollFlags::IN, Some(rest))?;
    }
}

fn wait(source: impl AsFd, what: PollFlags, timeout: Option<Duration>) -> io::Result<()> {
    // What is too long to be told is for ever.
    let timeout = timeout.and_then(|rest| Timespec::try_from(rest).ok());
    match poll(&mut [PollFd::new(&source, what)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;

    use super::*;
    use crate::local::Listener;

    #[test]
    fn who_is_not_root_is_no_node() {
        if !rustix::process::geteuid().is_root() {
            return println!("SKIPPED: who_is_not_root_is_no_node: needs root");
        }
        let connected = device::netns::run_in_new(|| {
            let become_user = |uid| set_thread_res_uid(Uid::ROOT, uid, Uid::ROOT).expect("root may");
            become_user(Uid::from_raw(65_534));
            let listener = Listener::bind("air0");
            become_user(Uid::ROOT);
            let _listener = listener.expect("anybody may");
            Client::connect("air0").map(drop)
        });
        assert!(matches!(connected, Ok(Err(ClientError::Stranger(_)))), "{connected:?}");
    }
}
