//! The calls of libbpf that `libbpf-rs` does not offer: links by descriptors.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// libbpf returns negative errors.
fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    // SAFETY: what is not an error is a new descriptor, which nobody else owns.
    checked(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// The link with that id.
pub fn link_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number.
    owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) })
}

/// Puts `map`, a struct_ops map that is ready, in the place of what `link` registers.
pub fn update_link(link: BorrowedFd, map: BorrowedFd) -> io::Result<()> {
    // SAFETY: two open descriptors; no options.
    checked(unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), map.as_raw_fd(), ptr::null()) }).map(drop)
}

/// Links `program` to a tc hook of an interface (TCX, since Linux 6.6), before what is there.
pub fn link_to_hook(program: BorrowedFd, interface: u32, egress: bool) -> io::Result<OwnedFd> {
    let hook = if egress { libbpf_sys::BPF_TCX_EGRESS } else { libbpf_sys::BPF_TCX_INGRESS };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: libbpf_sys::BPF_F_BEFORE,
        ..Default::default()
    };
    let interface = i32::try_from(interface).map_err(io::Error::other)?;
    // SAFETY: an open descriptor, numbers, and options that outlive the call.
    owned(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), interface, hook, &options) })
}

/// Runs `program` on `frame` so many times, with `context` at first.
pub fn run_repeatedly(program: BorrowedFd, context: &[u8], frame: &[u8], times: u32) -> io::Result<()> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        repeat: i32::try_from(times).map_err(io::Error::other)?,
        ..Default::default()
    };
    // SAFETY: an open descriptor, and options whose pointers and sizes are those of slices that outlive the call.
    checked(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) }).map(drop)
}

/// Pins what `fd` is at `path`.
pub fn pin(fd: BorrowedFd, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: an open descriptor and a string that outlives the call.
    checked(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens what is pinned at `path`.
pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: a string that outlives the call.
    owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// Takes a struct_ops map's only element out: unregisters it, if it was registered without a link.
pub fn unregister(map: BorrowedFd) -> io::Result<()> {
    let key = 0u32;
    // SAFETY: the key of a struct_ops map is 4 bytes.
    checked(unsafe { libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), ptr::from_ref(&key).cast()) }).map(drop)
}

/// Gives the calling thread a root and a working folder of its own, without which it may not change its mounts.
pub fn unshare_files() -> io::Result<()> {
    // SAFETY: takes nothing from other threads but what they change of root, working folder and umask later.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?)
}

/// Counts the time and the runs of all BPF programs for as long as it is open.
pub fn enable_run_time() -> io::Result<OwnedFd> {
    // SAFETY: takes a number.
    owned(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })
}

/// Attaches `program` to the interface with this index, by a link.
pub fn attach_xdp(program: BorrowedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: all zero is "nothing of that" in every member.
    let mut options: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.flags = flags;
    let interface = i32::try_from(interface).map_err(io::Error::other)?;
    // SAFETY: an open descriptor, and options that outlive the call.
    owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), interface, libbpf_sys::BPF_XDP, &raw const options)
    })
}

/// What XDP can do at the interface with this index: `NETDEV_XDP_ACT_…`.
pub fn xdp_features(interface: u32) -> io::Result<u64> {
    // SAFETY: all zero is valid: integers.
    let mut options: libbpf_sys::bpf_xdp_query_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    let interface = i32::try_from(interface).map_err(io::Error::other)?;
    // SAFETY: a number, and options that outlive the call, of the size that they say.
    checked(unsafe { libbpf_sys::bpf_xdp_query(interface, 0, &raw mut options) })?;
    Ok(options.feature_flags)
}

/// The XDP program that passes every frame, in two instructions: `r0 = XDP_PASS; exit`.
pub fn load_pass() -> io::Result<OwnedFd> {
    let instruction = |code: u32, imm: i32| {
        // SAFETY: all zero is a valid instruction: integers.
        let mut instruction: libbpf_sys::bpf_insn = unsafe { std::mem::zeroed() };
        instruction.code = code as u8;
        instruction.imm = imm;
        instruction
    };
    let pass = libbpf_sys::XDP_PASS as i32;
    let program = [
        instruction(libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K, pass),
        instruction(libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT, 0),
    ];
    // SAFETY: two strings and as many instructions as given, which outlive the call; no options.
    owned(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"nawa_pass".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            program.as_ptr(),
            program.len() as libbpf_sys::size_t,
            ptr::null_mut(),
        )
    })
}
