//! The options of sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets one; `T` is the type that the kernel takes for this option.
pub(crate) fn set<T: Copy>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    let (socket, length) = (socket.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the option's value is one `T`, which outlives the call, as does what it points to; the kernel only reads
    // both. The descriptor is open.
    let result = unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
