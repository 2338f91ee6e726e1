//! What this kernel can do, read from its own description of its types rather than from its version.

use std::ffi::OsStr;

use libbpf_rs::ReferencesType;
use libbpf_rs::btf::types::{Composite, Func, FuncProto, Ptr, Struct};
use libbpf_rs::btf::{Btf, BtfType, TypeId};
use rustix::thread::CapabilitySet;

use crate::Error;

/// How this kernel takes a TCP congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpStructOps {
    /// By links, which end with their last holder (since 6.4); without, a registration outlives the loader.
    pub links: bool,
    /// `cong_control` takes `(sk, ack, flag, rs)` (since 6.10), not `(sk, rs)`.
    pub cong_control_with_flag: bool,
    /// `cwnd_event_tx_start` tells that sending begins again (since 7.1), not `cwnd_event`.
    pub tx_start: bool,
    /// The functions of CUBIC can be called by programs (before 6.10 on x86_64 alone).
    pub cubic: bool,
    /// Where a registered struct_ops map's value holds the name, in bytes from its start.
    pub(crate) name_at: usize,
    /// The type of that value.
    pub(crate) value_type: u32,
}

/// Finds out.
///
/// # Errors
/// Not root, or what this kernel lacks.
pub fn tcp_struct_ops() -> Result<TcpStructOps, Error> {
    allowed()?;
    let types = Btf::from_vmlinux().map_err(|error| Error::NoTypes(error.to_string()))?;
    describe(&types, std::env::consts::ARCH).ok_or(Error::NoStructOps)
}

/// Whether this process may load programs.
///
/// # Errors
/// Not root, not the host's, or root without a capability that programs need.
pub fn allowed() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    if is_container() {
        return Err(Error::Container);
    }
    let held = rustix::thread::capabilities(None);
    let held = held.map_err(|error| Error::system("read this process's capabilities")(error.into()))?;
    match missing(held.effective).as_slice() {
        [] => Ok(()),
        names => Err(Error::NotAllowed(names.join(" and "))),
    }
}

/// Of the capabilities that programs need those that `held` lacks. CAP_SYS_ADMIN stands for all but CAP_NET_ADMIN.
fn missing(held: CapabilitySet) -> Vec<&'static str> {
    let all = [
        ("CAP_BPF", CapabilitySet::BPF | CapabilitySet::SYS_ADMIN),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        // Congestion controls read sockets.
        ("CAP_PERFMON", CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN),
    ];
    all.iter().filter(|(_, any)| !held.intersects(*any)).map(|(name, _)| *name).collect()
}

/// Whether this process is in a user namespace other than the first.
pub fn is_container() -> bool {
    in_container(&std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
}

/// Whether that is the map of a user namespace other than the first, whose root the kernel does not take for its own.
fn in_container(uid_map: &str) -> bool {
    let words: Vec<&str> = uid_map.split_whitespace().collect();
    !matches!(words.as_slice(), [] | ["0", "0", "4294967295"])
}

/// By the types of a kernel for `architecture`, as Rust names it.
fn describe(types: &Btf, architecture: &str) -> Option<TcpStructOps> {
    let ops: Struct = types.type_by_name("tcp_congestion_ops")?;
    let value: Struct = types.type_by_name("bpf_struct_ops_tcp_congestion_ops")?;
    let struct_ops: Struct = types.type_by_name("bpf_struct_ops")?;
    let name_at = offset(&Composite::from(value), "data")? + offset(&Composite::from(ops), "name")?;
    let cubic = ["cubictcp_init", "cubictcp_cong_avoid", "cubictcp_recalc_ssthresh", "cubictcp_state"];
    let cong_control_with_flag = parameters(types, &Composite::from(ops), "cong_control")? > 2;
    // Types do not say which functions programs may call: CUBIC's anywhere since 6.10, which brought the flag, too.
    let listed = architecture == "x86_64" || cong_control_with_flag;
    Some(TcpStructOps {
        links: offset(&Composite::from(struct_ops), "update").is_some(),
        cong_control_with_flag,
        tx_start: offset(&Composite::from(ops), "cwnd_event_tx_start").is_some(),
        cubic: listed && cubic.iter().all(|function| types.type_by_name::<Func>(function).is_some()),
        name_at,
        value_type: u32::from(value.type_id()),
    })
}

/// Of the member `name`, in bytes.
fn offset(composite: &Composite, name: &str) -> Option<usize> {
    let found = composite.iter().find(|member| member.name == Some(OsStr::new(name)))?;
    match found.attr {
        libbpf_rs::btf::types::MemberAttr::Normal { offset } => Some(offset as usize / 8),
        libbpf_rs::btf::types::MemberAttr::BitField { .. } => None,
    }
}

/// How many the function that the member `name` points to takes.
fn parameters(types: &Btf, composite: &Composite, name: &str) -> Option<usize> {
    let ty: TypeId = composite.iter().find(|member| member.name == Some(OsStr::new(name)))?.ty;
    let pointer: Ptr = types.type_by_id(ty)?;
    let pointee: BtfType = pointer.referenced_type();
    Some(FuncProto::try_from(pointee.skip_mods_and_typedefs()).ok()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_a_user_namespace_is_not_the_hosts() {
        assert!(!in_container("         0          0 4294967295\n"));
        assert!(in_container("         0     100000      65536\n"));
        assert!(in_container("         0       1000          1\n"));
        assert!(!in_container(""), "a kernel without user namespaces");
    }

    #[test]
    fn what_a_container_takes_away_is_named() {
        let all = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON;
        assert_eq!(missing(all), [""; 0]);
        assert_eq!(missing(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN), [""; 0]);
        assert_eq!(missing(CapabilitySet::NET_ADMIN), ["CAP_BPF", "CAP_PERFMON"]);
    }

    /// This kernel's types after `edit` of their words and of their strings, as that version of Linux has them.
    fn edited(version: &str, edit: impl FnOnce(&mut [u8], &mut [u8])) -> Btf<'static> {
        let mut types = std::fs::read("/sys/kernel/btf/vmlinux").expect("this kernel describes its types");
        let word = |at: usize| u32::from_ne_bytes(types[at..at + 4].try_into().expect("four bytes")) as usize;
        // `struct btf_header`: its length, and where types and strings are behind it.
        let (from, length, strings) = (word(4) + word(8), word(12), word(4) + word(16));
        let (front, strings) = types.split_at_mut(strings);
        edit(&mut front[from..from + length], strings);
        let file = std::env::temp_dir().join(format!("nawa-types-{}-{version}", std::process::id()));
        std::fs::write(&file, types).expect("a file");
        let types = Btf::from_path(&file).expect("types");
        std::fs::remove_file(&file).expect("it was there");
        types
    }

    /// Where that string begins.
    fn place(strings: &[u8], string: &str) -> usize {
        let string = format!("\0{string}\0");
        let found = strings.windows(string.len()).position(|bytes| bytes == string.as_bytes());
        found.expect("so far") + 1
    }

    /// Has what has the one string for its name have the other.
    fn swap_names(words: &mut [u8], places: [usize; 2]) {
        let names = places.map(|place| u32::try_from(place).expect("an offset").to_ne_bytes());
        for word in words.chunks_exact_mut(4) {
            if let Some(nth) = names.iter().position(|name| *word == *name) {
                word.copy_from_slice(&names[1 - nth]);
            }
        }
    }

    /// Without `cubictcp_cwnd_event`, whose name is given to the member that was `cwnd_event`.
    fn types_of_7_1() -> Btf<'static> {
        edited("7.1", |words, strings| {
            let places = ["cubictcp_cwnd_event", "cwnd_event"].map(|string| place(strings, string));
            let came = b"cwnd_event_tx_start";
            strings[places[0]..][..came.len()].copy_from_slice(came);
            swap_names(words, places);
        })
    }

    /// With `cong_control` for the name of `cwnd_event`, which takes two as that did.
    fn types_of_6_9() -> Btf<'static> {
        edited("6.9", |words, strings| {
            swap_names(words, ["cong_control", "cwnd_event"].map(|string| place(strings, string)));
        })
    }

    #[test]
    fn linux_7_1_is_known_by_its_event_and_needs_no_function_that_is_gone() {
        let describe = |types: &Btf| describe(types, std::env::consts::ARCH);
        let before = describe(&Btf::from_path("/sys/kernel/btf/vmlinux").expect("types")).expect("TCP's");
        let types = types_of_7_1();
        assert!(types.type_by_name::<Func>("cubictcp_cwnd_event").is_none(), "it is hidden");
        assert_eq!(describe(&types), Some(TcpStructOps { tx_start: true, ..before }));
    }

    #[test]
    fn before_linux_6_10_programs_may_call_cubic_on_x86_64_alone() {
        let cubic = |types: &Btf, architecture: &str| {
            let found = describe(types, architecture).expect("TCP's");
            (found.cong_control_with_flag, found.cubic)
        };
        let (before, now) = (types_of_6_9(), Btf::from_path("/sys/kernel/btf/vmlinux").expect("types"));
        assert_eq!(cubic(&before, "x86_64"), (false, true));
        assert_eq!(cubic(&before, "aarch64"), (false, false));
        let (flag, _) = cubic(&now, "x86_64");
        assert_eq!([cubic(&now, "x86_64"), cubic(&now, "aarch64")], [(flag, true), (flag, flag)]);
    }
}
