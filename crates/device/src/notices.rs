//! Notices that rules have changed, as the kernel tells it (netlink multicast).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink, XFRM};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// `NFNLGRP_NFTABLES`, a bit for each group.
const NFTABLES: u32 = 1 << (7 - 1);
/// `XFRMNLGRP_POLICY`.
const POLICIES: u32 = 1 << (4 - 1);

/// A subscription, in the network namespace that the thread was in when it was made. Readable when something has changed.
#[derive(Debug)]
pub struct Notices(OwnedFd);

impl Notices {
    /// Of nftables' rules.
    ///
    /// # Errors
    /// The kernel has none, or a sandbox forbids it.
    pub fn of_nftables() -> io::Result<Self> {
        Self::subscribe(NETFILTER, NFTABLES)
    }

    /// Of IPsec's policies.
    ///
    /// # Errors
    /// The kernel has none, or a sandbox forbids it.
    pub fn of_ipsec_policies() -> io::Result<Self> {
        Self::subscribe(XFRM, POLICIES)
    }

    fn subscribe(protocol: Protocol, group: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(protocol))?;
        bind(&socket, &SocketAddrNetlink::new(0, group))?;
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

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
