//! `struct ifreq`: an interface's name, index and flags, as ioctls take them.

use std::io;

/// A request that names an interface (1 to 15 bytes) and carries `flags`.
pub(crate) fn with_flags(name: &str, flags: libc::c_int) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        let reason = format!("`{name}` is no interface name: use 1 to {} bytes", libc::IFNAMSIZ - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    // SAFETY: all zero is a valid `ifreq`: it is made of integers, arrays of them and nullable pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    Ok(request)
}

/// A request that names an interface by its index.
pub(crate) fn at(index: u32) -> libc::ifreq {
    // SAFETY: all zero is a valid `ifreq`: it is made of integers, arrays of them and nullable pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = index.cast_signed();
    request
}

/// Whether a request has this flag of an interface, once the kernel has written those into it.
pub(crate) fn has_flag(request: &libc::ifreq, flag: libc::c_int) -> bool {
    // SAFETY: any bytes are integers, and all bytes of a request are initialized.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    libc::c_int::from(flags) & flag != 0
}

/// The name in a request that the kernel has answered.
pub(crate) fn name(request: &libc::ifreq) -> String {
    let bytes: Vec<u8> = request.ifr_name.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_name() {
        assert_eq!(name(&with_flags("nawa0", 0).unwrap()), "nawa0");
        assert_eq!(name(&with_flags("fifteen-bytes-0", 0).unwrap()), "fifteen-bytes-0");
    }

    #[test]
    fn refuses_what_is_no_name() {
        for wrong in ["", "sixteen-bytes-00", "a\0b"] {
            let error = with_flags(wrong, 0).map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{wrong:?}");
        }
    }
}
