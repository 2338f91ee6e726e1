//! Which of a TUN's queues a packet waits in: that of its destination, so that a flood to one leaves the others' packets alone.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `BPF_PROG_LOAD` and `BPF_PROG_TYPE_SOCKET_FILTER` of bpf(2).
const PROG_LOAD: libc::c_int = 5;
const SOCKET_FILTER: u32 = 1;

/// One instruction of eBPF (RFC 9669 §3).
const fn code(opcode: u8, to: u8, from: u8, offset: i16, immediate: u32) -> [u8; 8] {
    let [o0, o1] = offset.to_le_bytes();
    let [i0, i1, i2, i3] = immediate.to_le_bytes();
    [opcode, from << 4 | to, o0, o1, i0, i1, i2, i3]
}

/// A hash of the IP destination, of IPv6 of two of its words; the kernel takes what is left of it by the number of queues.
const PROGRAM: [[u8; 8]; 13] = [
    code(0xbf, 6, 1, 0, 0),           // r6 = the packet, where loads look for it
    code(0x30, 0, 0, 0, 0),           // r0 = byte 0
    code(0x57, 0, 0, 0, 0xf0),        // r0 &= 0xf0
    code(0x15, 0, 0, 5, 0x40),        // IPv4: to the sixth from here
    code(0x20, 0, 0, 0, 28),          // r0 = word of the network
    code(0xbf, 7, 0, 0, 0),           // r7 = r0
    code(0x20, 0, 0, 0, 36),          // r0 = word of the host
    code(0xaf, 0, 7, 0, 0),           // r0 ^= r7
    code(0x05, 0, 0, 1, 0),           // over the next
    code(0x20, 0, 0, 0, 16),          // r0 = IPv4 destination
    code(0x24, 0, 0, 0, 0x9e37_79b1), // r0 *= 2^32 divided by the golden ratio
    code(0x74, 0, 0, 0, 16),          // r0 >>= 16
    code(0x95, 0, 0, 0, 0),           // end
];

/// The start of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    /// Log level, size and buffer, kernel version, flags: none.
    rest: [u64; 4],
}

/// Spreads the packets of the TUN over its queues by their destinations.
pub(crate) fn by_destination(tun: &File) -> io::Result<()> {
    let license = c"Dual MIT/GPL";
    let load = Load {
        kind: SOCKET_FILTER,
        count: PROGRAM.len() as u32,
        instructions: PROGRAM.as_ptr() as u64,
        license: license.as_ptr() as u64,
        rest: [0; 4],
    };
    // SAFETY: bpf(2) reads `load` and what it points to, which outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, std::mem::size_of::<Load>()) };
    let descriptor = libc::c_int::try_from(result).ok().filter(|fd| *fd >= 0);
    let Some(descriptor) = descriptor else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has just given it to this call alone.
    let program = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let descriptor = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one int, which outlives the call; both descriptors are open.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETSTEERINGEBPF, &raw const descriptor) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `_IOR('T', 224, int)`, <linux/if_tun.h>.
const TUNSETSTEERINGEBPF: libc::c_ulong = 0x8004_54e0;
