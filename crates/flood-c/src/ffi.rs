//! The functions of `include/nawa-flood.h`, which says what they do.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use flood::{Client, ClientError};

/// `struct nawa_flood_header`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Header {
    id: u32,
    epoch: u32,
    seq: u32,
    ttl: u8,
    reserved: [u8; 3],
    dropped: u64,
}

fn errno(error: &ClientError) -> c_int {
    match error {
        ClientError::NoNode(_) | ClientError::Stranger(_) => libc::ECONNREFUSED,
        ClientError::Closed => libc::EPIPE,
        ClientError::TooLong(..) => libc::EMSGSIZE,
        ClientError::Unsent(error) | ClientError::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

fn done(result: Result<(), ClientError>) -> c_int {
    result.err().map_or(0, |error| -errno(&error))
}

/// # Safety
/// `interface` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nawa_flood_open(interface: *const c_char) -> *mut Client {
    let fail = |errno: c_int| {
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = errno };
        std::ptr::null_mut()
    };
    if interface.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller gives a string.
    let Ok(interface) = unsafe { CStr::from_ptr(interface) }.to_str() else { return fail(libc::EINVAL) };
    match Client::connect(interface) {
        Ok(client) => Box::into_raw(Box::new(client)),
        Err(error) => fail(errno(&error)),
    }
}

/// # Safety
/// `flood` is null or from `nawa_flood_open`, and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nawa_flood_listen(flood: *mut Client) -> c_int {
    // SAFETY: as the caller says.
    unsafe { flood.as_ref() }.map_or(-libc::EINVAL, |client| done(client.listen()))
}

/// # Safety
/// As of [`nawa_flood_listen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nawa_flood_busy_poll(flood: *mut Client, busy: c_int) {
    // SAFETY: as the caller says.
    if let Some(client) = unsafe { flood.as_mut() } {
        client.set_busy_polling(busy != 0);
    }
}

/// # Safety
/// As of [`nawa_flood_listen`]; `data` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nawa_flood_send(
    flood: *mut Client,
    ttl: u8,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(client) = (unsafe { flood.as_ref() }) else { return -libc::EINVAL };
    if length == 0 {
        return done(client.send(ttl, &[]));
    }
    if data.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: as the caller says; not null, and only read during the call.
    done(client.send(ttl, unsafe { std::slice::from_raw_parts(data.cast(), length) }))
}

/// # Safety
/// As of [`nawa_flood_listen`]; `header` is null or has room for one, `data` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nawa_flood_recv(
    flood: *mut Client,
    header: *mut Header,
    data: *mut c_void,
    size: usize,
    timeout_ms: c_int,
) -> c_long {
    // SAFETY: as the caller says.
    let Some(client) = (unsafe { flood.as_ref() }) else { return c_long::from(-libc::EINVAL) };
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let message = match client.recv_data(timeout) {
        Ok(Some(message)) => message,
        Ok(None) => return c_long::from(-libc::ETIMEDOUT),
        Err(error) => return c_long::from(-errno(&error)),
    };
    let flood::Header { id, epoch, seq, ttl, .. } = message.header;
    if !header.is_null() {
        // SAFETY: not null, and has room for one as the caller says.
        unsafe { header.write(Header { id, epoch, seq, ttl, reserved: [0; 3], dropped: message.dropped }) };
    }
    let length = message.data.len().min(size);
    if length > 0 && !data.is_null() {
        // SAFETY: so many bytes are there on both sides, and they are different memory.
        unsafe { std::ptr::copy_nonoverlapping(message.data.as_ptr(), data.cast(), length) };
    }
    message.data.len() as c_long
}

/// # Safety
/// As of [`nawa_flood_listen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nawa_flood_fd(flood: *const Client) -> c_int {
    // SAFETY: as the caller says.
    unsafe { flood.as_ref() }.map_or(-libc::EINVAL, |client| client.as_fd().as_raw_fd())
}

/// # Safety
/// As of [`nawa_flood_listen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nawa_flood_data_max(flood: *const Client) -> usize {
    // SAFETY: as the caller says.
    unsafe { flood.as_ref() }.map_or(0, |client| client.node().data_max_bytes)
}

/// # Safety
/// As of [`nawa_flood_listen`]; it is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nawa_flood_close(flood: *mut Client) {
    if !flood.is_null() {
        // SAFETY: it is a box that `nawa_flood_open` made, and the caller gives it back.
        drop(unsafe { Box::from_raw(flood) });
    }
}
