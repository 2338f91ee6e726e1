//! TAP: a network interface whose Ethernet frames a program reads and writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::interface_request;

/// A TAP interface without packet information and without offload: what is read and written are whole Ethernet frames,
/// checksums filled in. One that was made exists as long as this value does.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Makes the interface `name` (at most 15 bytes) in the calling thread's network namespace, non-blocking.
    ///
    /// Fails without CAP_NET_ADMIN or `/dev/net/tun`, and where `name` is taken or too long.
    pub fn create(name: &str) -> io::Result<Self> {
        Self::open(Path::new("/dev/net/tun"), name)
    }

    /// Opens the character device `node`, and has it be the TAP `name`. Without `IFF_VNET_HDR` the kernel cuts what is too long and
    /// fills checksums in.
    pub(crate) fn open(node: &Path, name: &str) -> io::Result<Self> {
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(node)?;
        let request = interface_request::with_flags(name, libc::IFF_TAP | libc::IFF_NO_PI)?;
        // SAFETY: TUNSETIFF reads one `ifreq`, which `request` is and outlives the call; the descriptor is open.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { file }) }
    }

    /// Whether the interface seems to have a cable in it: without, the kernel sends nothing by it. At first it has.
    ///
    /// Fails on kernels before 4.20.
    pub fn set_carrier(&self, on: bool) -> io::Result<()> {
        let on = libc::c_int::from(on);
        // SAFETY: TUNSETCARRIER reads one int, which outlives the call; the descriptor is open.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETCARRIER, &raw const on) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Reads the next frame that the kernel sends out of the interface; its length in bytes.
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is none. A frame longer than `buffer` is cut.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.file, buffer)?)
    }

    /// Hands one whole frame to the kernel, as if it had arrived at the interface, or to a macvtap's other end; its length in bytes.
    ///
    /// Fails where the interface is down (EIO) or the frame is shorter than an Ethernet header (EINVAL).
    pub fn send(&self, frame: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.file, frame)?)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_sixteen_bytes_is_refused() {
        let error = Tap::create("sixteen-bytes-00").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
