//! The addresses of interfaces.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// The addresses that `interface` has, of the calling thread's network namespace; none if there is no such interface.
///
/// Fails only where memory or descriptors have run out.
pub fn addresses(interface: &str) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    each(|name, address, _| {
        if name == interface {
            found.extend(address);
        }
    })?;
    Ok(found)
}

/// The names of the interfaces that have `address`, of the calling thread's network namespace.
///
/// Fails only where memory or descriptors have run out.
pub fn holders(address: IpAddr) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    each(|name, one, _| {
        if one == Some(address) {
            found.push(name.to_owned());
        }
    })?;
    Ok(found)
}

/// The names of all interfaces of the calling thread's network namespace.
///
/// Fails only where memory or descriptors have run out.
pub fn interfaces() -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    each(|name, _, _| found.extend([name.to_owned()]))?;
    Ok(found)
}

/// All addresses, each with its interface's name and the bits of its prefix, of the calling thread's network namespace.
///
/// Fails only where memory or descriptors have run out.
pub fn networks() -> io::Result<Vec<(String, IpAddr, u8)>> {
    let mut found = Vec::new();
    each(|name, address, mask| {
        let bits = |mask: IpAddr| match mask {
            IpAddr::V4(mask) => mask.to_bits().leading_ones(),
            IpAddr::V6(mask) => mask.to_bits().leading_ones(),
        };
        if let (Some(address), Some(mask)) = (address, mask) {
            found.push((name.to_owned(), address, bits(mask) as u8));
        }
    })?;
    Ok(found)
}

/// Every interface at least once, and with each of its addresses and that one's mask.
fn each(mut work: impl FnMut(&str, Option<IpAddr>, Option<IpAddr>)) -> io::Result<()> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `list` is written once; what it is then is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut next = list;
    // SAFETY: the list's members are valid until it is freed, and its last one's `ifa_next` is null.
    while let Some(one) = unsafe { next.as_ref() } {
        // SAFETY: the name is a string of C.
        let name = unsafe { CStr::from_ptr(one.ifa_name) };
        let name = name.to_string_lossy();
        // An address of IPv4 may have a label, which stands here instead: the interface's name, a colon and more.
        let name = name.split_once(':').map_or(&*name, |(name, _)| name);
        // SAFETY: null, or an address of the family that it says.
        let found = unsafe { address(one.ifa_addr) };
        // SAFETY: the same.
        work(name, found, unsafe { address(one.ifa_netmask) });
        next = one.ifa_next;
    }
    // SAFETY: it came from getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(())
}

/// # Safety
/// `address` is null or points to a socket address of the family that it says.
unsafe fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the caller's promise; it may be unaligned.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the caller's promise; it may be unaligned.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_has_none() {
        assert!(addresses("not-there-0").unwrap().is_empty());
        assert!(!interfaces().unwrap().contains("not-there-0"));
        assert!(holders("192.0.2.1".parse().unwrap()).unwrap().is_empty());
    }
}
