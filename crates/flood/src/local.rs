//! How applications of this host find the node of an interface: the abstract Unix socket `@nawa-flood-INTERFACE` (of
//! the network namespace; root only), whose packets (SOCK_SEQPACKET) are these. Numbers are little-endian.
//!
//! | from | packet | descriptors with it |
//! |---|---|---|
//! | node, once | [`Welcome`] as JSON | in mode driver: a packet socket and the numbers (`sequence.rs`), to send by |
//! | application | 0 a message, 1 an echo request · TTL 1 (0: the node's) · 0 2 · data | |
//! | application | 2 "deliver to me from now on" · 1 if it need not be woken · 0 2 | |
//! | node, to that | 2 | the board (`board.rs`) and a bell (`bell.rs`) |
//! | application | 3 · 0 3 · messages it has lost since it said so last 8 | |
//!
//! Messages come by the board, and in mode driver go by the packet socket: no daemon has to run for either. In the other modes,
//! and where relays wait, what is sent goes through the node. The node is gone when it closes the connection.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    recv, recvmsg, sendmsg, socket_with,
};
use serde::{Deserialize, Serialize};

use crate::frame::{DATA_MAX, Kind};

/// Bytes before the data of a packet to the node.
const ASK: usize = 4;
/// No packet is longer.
pub(crate) const LONGEST: usize = ASK + DATA_MAX;
/// Descriptors with one packet at most.
const DESCRIPTORS: usize = 2;
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
    Deliver { busy: bool },
    Dropped(u64),
}

impl<'a> Ask<'a> {
    /// `None` if it is nothing that can be asked.
    pub(crate) fn parse(packet: &'a [u8]) -> Option<Ask<'a>> {
        let (head, data) = packet.split_first_chunk::<ASK>()?;
        match *head {
            [0, ttl, 0, 0] => Some(Ask::Send { kind: Kind::Data, ttl, data }),
            [1, ttl, 0, 0] if data.len() >= 4 => Some(Ask::Send { kind: Kind::EchoRequest, ttl, data }),
            [2, busy @ 0..=1, 0, 0] if data.is_empty() => Some(Ask::Deliver { busy: busy == 1 }),
            [3, 0, 0, 0] => Some(Ask::Dropped(u64::from_le_bytes(data.try_into().ok()?))),
            _ => None,
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        match *self {
            Ask::Send { kind, ttl, data } => {
                [&[u8::from(kind == Kind::EchoRequest), ttl, 0, 0], data].concat()
            }
            Ask::Deliver { busy } => vec![2, busy.into(), 0, 0],
            Ask::Dropped(messages) => [&[3, 0, 0, 0], &messages.to_le_bytes()[..]].concat(),
        }
    }
}

pub(crate) fn address(interface: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("nawa-flood-{interface}").as_bytes())?)
}

/// Whether the other end is root's. Anybody may take a name.
pub(crate) fn is_roots(socket: &OwnedFd) -> bool {
    device::process::peer(socket).is_ok_and(|(uid, _)| uid == 0)
}

pub(crate) fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// One packet, with descriptors.
fn send_with(socket: &OwnedFd, packet: &[u8], descriptors: &[BorrowedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one packet"));
    }
    sendmsg(socket, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The length of the next packet, and the descriptors with it.
pub(crate) fn recv_with(socket: &OwnedFd, buffer: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    };
    Ok((received.bytes, ancillary.drain().flat_map(rights).collect()))
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

    /// The next application; `None` if there is none, it is gone already, or it is not root's.
    pub(crate) fn accept(&self) -> io::Result<Option<Application>> {
        match accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                Ok(is_roots(&socket).then_some(Application { socket, listening: None, dropped: 0 }))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An application that is connected.
#[derive(Debug)]
pub(crate) struct Application {
    socket: OwnedFd,
    /// Whether it listens, and then how.
    pub(crate) listening: Option<Waiting>,
    /// Messages that it has lost.
    pub(crate) dropped: u64,
}

/// How an application waits for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It has to be woken.
    Asleep,
    /// It looks by itself.
    Busy,
}

impl Application {
    /// Says what the node is, and hands over what it takes to send without it.
    pub(crate) fn welcome(&self, welcome: &Welcome, outlet: &[BorrowedFd]) -> io::Result<()> {
        send_with(&self.socket, &serde_json::to_vec(welcome)?, outlet)
    }

    /// Hands over what it takes to listen.
    pub(crate) fn deliver(&self, board: BorrowedFd, bell: BorrowedFd) -> io::Result<()> {
        send_with(&self.socket, &[2], &[board, bell])
    }

    /// The next packet it has sent; an error once it is gone.
    pub(crate) fn next<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => Ok(buffer.get(..length)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Application {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_understood() {
        for ask in [
            Ask::Send { kind: Kind::Data, ttl: 3, data: &[9] },
            Ask::Send { kind: Kind::EchoRequest, ttl: 0, data: &[1, 2, 3, 4, 5] },
            Ask::Deliver { busy: false },
            Ask::Deliver { busy: true },
            Ask::Dropped(1 << 40),
        ] {
            assert_eq!(Ask::parse(&ask.write()), Some(ask));
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for bad in [
            &[][..],
            &[0, 0, 0],
            &[1, 0, 0, 0, 1, 2, 3],
            &[2, 0, 0, 0, 1],
            &[2, 2, 0, 0],
            &[3, 0, 0, 0],
            &[4, 0, 0, 0],
            &[0, 0, 1, 0],
        ] {
            assert_eq!(Ask::parse(bad), None, "{bad:?}");
        }
    }
}
