//! News of nftables: somebody has changed the rules, as the kernel tells it (nfnetlink multicast).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// `NFNLGRP_NFTABLES`, a bit for each group.
const GROUP: u32 = 1 << (7 - 1);

/// A subscription, in the network namespace that the thread was in when it was made. Readable when something has changed.
#[derive(Debug)]
pub struct NftChanges(OwnedFd);

impl NftChanges {
    /// Fails where the kernel has no nftables, or a sandbox forbids it.
    pub fn subscribe() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
        Ok(Self(socket))
    }

    /// Forgets what was told so far.
    ///
    /// # Errors
    /// The subscription has ended, and it stays readable: drop it.
    pub fn forget(&self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        loop {
            match recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
                // What did not fit was news too.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for NftChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
