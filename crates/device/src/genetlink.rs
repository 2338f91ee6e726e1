//! Generic netlink: requests to a family of the kernel that is known by its name, as `nl80211` (linux/genetlink.h).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use crate::netlink::{Message, Reply, replies};

pub use crate::netlink::attributes;

/// The family that knows the others, its question and its answer's attributes.
const CONTROL: u16 = libc::GENL_ID_CTRL as u16;
const GET_FAMILY: u8 = libc::CTRL_CMD_GETFAMILY as u8;
const FAMILY_ID: u16 = libc::CTRL_ATTR_FAMILY_ID as u16;
const FAMILY_NAME: u16 = libc::CTRL_ATTR_FAMILY_NAME as u16;
/// `struct genlmsghdr`, in bytes: command, version, two reserved.
const HEADER: usize = 4;
/// Bytes that one receive returns at most.
const MESSAGES: usize = 64 << 10;

/// A connection to one family, in the network namespace that the thread was in when it was opened.
#[derive(Debug)]
pub struct GenericNetlink {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl GenericNetlink {
    /// Fails with `NotFound` where the kernel has no such family.
    pub fn open(family: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(rustix::net::netlink::GENERIC))?;
        let mut control = Self { socket, family: CONTROL, sequence: 0, buffer: vec![0; MESSAGES].into() };
        let name = [family.as_bytes(), &[0]].concat();
        let answer = control.request(GET_FAMILY, &[(FAMILY_NAME, &name)])?;
        let id = attributes(&answer)
            .find(|(kind, _)| *kind == FAMILY_ID)
            .and_then(|(_, id)| id.first_chunk().copied());
        let id = id.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self { family: u16::from_ne_bytes(id), ..control })
    }

    /// Asks, and waits for the answer: its attributes, none if it is an acknowledgement.
    pub fn request(&mut self, command: u8, with: &[(u16, &[u8])]) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mine = self.sequence;
        self.write(command, with, libc::NLM_F_ACK)?;
        let (mut answer, mut end) = (Vec::new(), None);
        while end.is_none() {
            self.read(RecvFlags::empty(), |reply| match reply.error() {
                _ if reply.sequence != mine => {}
                Some(0) => end = Some(Ok(())),
                Some(error) => end = Some(Err(io::Error::from_raw_os_error(error))),
                None => answer = reply.body.get(HEADER..).unwrap_or_default().to_vec(),
            })?;
        }
        end.unwrap_or(Ok(())).map(|()| answer)
    }

    /// Tells, and waits for nothing.
    pub fn tell(&mut self, command: u8, with: &[(u16, &[u8])]) -> io::Result<()> {
        self.write(command, with, 0)
    }

    /// What the family says by itself: calls `each` with commands and their attributes.
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is nothing.
    pub fn recv(&mut self, mut each: impl FnMut(u8, &[u8])) -> io::Result<()> {
        let family = self.family;
        self.read(RecvFlags::DONTWAIT, |reply| {
            if let Some((header, body)) =
                reply.body.split_first_chunk::<HEADER>().filter(|_| reply.kind == family)
            {
                each(header[0], body);
            }
        })
    }

    fn write(&self, command: u8, with: &[(u16, &[u8])], flags: libc::c_int) -> io::Result<()> {
        let message = Message::new(self.family).fixed(&[command, 1, 0, 0]);
        let message = with.iter().fold(message, |message, (kind, data)| message.attribute(*kind, data));
        let bytes = message.finish(self.sequence, flags);
        sendto(&self.socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    fn read(&mut self, flags: RecvFlags, each: impl FnMut(Reply<'_>)) -> io::Result<()> {
        let (length, _) = recv(&self.socket, &mut self.buffer[..], flags)?;
        replies(&self.buffer[..length]).for_each(each);
        Ok(())
    }
}

impl AsFd for GenericNetlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_by_its_name_or_not() {
        // The control family itself is always there.
        let mut control = GenericNetlink::open("nlctrl").unwrap();
        assert_eq!(control.family, CONTROL);
        assert!(control.request(GET_FAMILY, &[(FAMILY_NAME, b"nlctrl\0")]).is_ok());
        let error = GenericNetlink::open("nobody").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(control.recv(|_, _| ()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
