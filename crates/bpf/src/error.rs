//! What may go wrong between a program and the kernel.

use std::path::PathBuf;

/// Each is a whole sentence: what is wrong, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// CAP_BPF, CAP_NET_ADMIN and what goes with them.
    #[error("BPF programs need root; use sudo")]
    NotRoot,
    /// Root of a user namespace, not of the host.
    #[error(
        "root in this container is not root of the host, and BPF programs need CAP_BPF and CAP_NET_ADMIN there; use nawa on the host, whose congestion controls containers can choose"
    )]
    Container,
    /// Root without these capabilities, as in most containers.
    #[error(
        "BPF programs need {0}, which this process does not have; use nawa on the host, or give it these"
    )]
    NotAllowed(String),
    /// `lockdown=confidentiality`.
    #[error(
        "this kernel is locked down (confidentiality: /sys/kernel/security/lockdown), so that BPF programs may not read what {0} needs; boot with lockdown=integrity or without"
    )]
    LockedDown(String),
    /// /sys/kernel/btf/vmlinux cannot be used.
    #[error(
        "this kernel does not describe its types ({0}: /sys/kernel/btf/vmlinux); it has to be built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes(String),
    /// No struct_ops for TCP.
    #[error(
        "this kernel takes no TCP congestion control from BPF; that needs Linux 6.1 or newer with CONFIG_BPF_JIT, CONFIG_BPF_SYSCALL and TCP"
    )]
    NoStructOps,
    /// No kfuncs of the base.
    #[error("this kernel has no {0}, on which to build; choose another with --base")]
    NoBase(&'static str),
    /// The object has no such program or map.
    #[error("the BPF object has nothing named {0}")]
    Missing(String),
    /// bpffs is not mounted, and cannot be from here.
    #[error("no BPF file system is mounted on /sys/fs/bpf ({0}); use `mount -t bpf bpf /sys/fs/bpf`")]
    NoBpffs(std::io::Error),
    /// The name is taken by somebody else.
    #[error(
        "the kernel has a congestion control named {0} that is not Nawa's; choose another name, or unload it"
    )]
    NameTaken(String),
    /// The verifier, or a limit.
    #[error(
        "the kernel refuses the BPF program {program}: {error}; `--log-level debug` shows the verifier's words"
    )]
    Refused {
        /// Which one.
        program: String,
        /// The loader's words.
        error: libbpf_rs::Error,
    },
    /// A pin cannot be used.
    #[error("cannot use {path}: {error}")]
    Pin {
        /// Where.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Anything else that the kernel answers.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        error: std::io::Error,
    },
}

impl Error {
    /// An error of the system while `doing` something; the loader's words are kept.
    pub(crate) fn loader(doing: &'static str, error: libbpf_rs::Error) -> Self {
        Error::System { doing, error: std::io::Error::other(error) }
    }

    /// For `map_err`.
    pub fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Error::System { doing, error }
    }
}
