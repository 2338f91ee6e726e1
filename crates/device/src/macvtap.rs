//! macvtap: one end of a veth pair as a driver's queue, whose Ethernet frames a program reads and writes.
//!
//! What the other end sends stays charged to the socket that sent it until the program reads it. So a program that does
//! not read stops senders, as a device that is busy does: TCP by its small queues, a packet socket by its send buffer. A
//! [`Tap`](crate::Tap) takes all at once, and drops what its ring cannot hold.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::interface_request;

/// An open macvtap interface. Packets without offload: what is read are whole Ethernet frames, checksums filled in and
/// no longer than the interface's MTU allows. The interface stays when this value goes.
#[derive(Debug)]
pub struct Macvtap {
    file: File,
}

impl Macvtap {
    /// Opens the macvtap interface `name` whose character device has this number, as `/sys/class/net/NAME/tapINDEX/dev`
    /// in its namespace says. The calling thread has to be in that namespace, and the interface's `txqueuelen` is how
    /// many frames may wait in it from now on.
    ///
    /// Its device is made at `node`, which goes at once: the one that the kernel makes is named after the interface's
    /// index, and namespaces have the same ones. Fails where `node` is there or its file system takes no devices, without
    /// CAP_MKNOD, and where the number is of no macvtap.
    pub fn open(name: &str, (major, minor): (u32, u32), node: &Path) -> io::Result<Self> {
        mknodat(CWD, node, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(major, minor))?;
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(node);
        std::fs::remove_file(node)?;
        let file = file?;
        leave_offload_to_the_kernel(&file, name)?;
        Ok(Self { file })
    }

    /// Reads the next frame that the veth pair's other end sent; its length in bytes.
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is none. A frame longer than `buffer` is cut.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.file, buffer)?)
    }

    /// Hands one whole frame to the other end; its length in bytes.
    pub fn send(&self, frame: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.file, frame)?)
    }
}

impl AsFd for Macvtap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Without `IFF_VNET_HDR` the kernel cuts what is too long and fills checksums in.
fn leave_offload_to_the_kernel(file: &File, name: &str) -> io::Result<()> {
    let request = interface_request::with_flags(name, libc::IFF_TAP | libc::IFF_NO_PI)?;
    // SAFETY: TUNSETIFF reads one `ifreq`, which `request` is and outlives the call; the descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_there_is_left_alone() {
        let there = std::env::current_exe().unwrap();
        let error = Macvtap::open("t0", (1, 3), &there).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(there.exists());
    }
}
