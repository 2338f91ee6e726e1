//! Why the lab could not do something, each in one sentence.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why the lab could not do something.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum Error {
    /// The lab cannot work on this machine.
    #[error("{0}")]
    Unusable(String),
    /// The caller asked for something that does not exist.
    #[error("{0}")]
    BadInput(String),
    #[error(
        "the kernel has no macvtap, which the 802.11 medium needs ({0}): load the module `macvtap`, or use a kernel \
         with CONFIG_MACVTAP"
    )]
    NoMacvtap(String),
    #[error("the running kernel has no SCTP: load the module `sctp`, or use a kernel with CONFIG_IP_SCTP")]
    NoSctp,
    #[error("the running kernel's own SCTP would end usrsctp's associations: unload the module `sctp`")]
    OtherSctp,
    #[error("the program `{program}` is missing: install the Debian package `{package}`")]
    MissingProgram { program: String, package: String },
    #[error("the experiment has no `{value}` for `{field}`: that is a mistake in the lab")]
    BadCell { field: String, value: String },
    #[error("the kernel has no congestion control `{0}`")]
    NoCongestionControl(String),
    #[error("the folder {} holds no pair of traces NAME.up and NAME.down", .0.display())]
    NoTrace(PathBuf),
    /// A program failed, or said something unexpected.
    #[error("`{program}` failed: {reason}")]
    Program { program: String, reason: String },
    #[error("`iperf3` failed before it moved anything: {0}")]
    NoFlow(String),
    #[error("{0}")]
    Bpf(#[from] bpf::Error),
    /// `what` is as "NAME did not …".
    #[error("{what} within {seconds} s")]
    Late { what: String, seconds: u64 },
    #[error("the file that `{system}` carried arrived with another SHA-256 than it left with")]
    Corrupted { system: String },
    /// `doing` is an infinitive.
    #[error("cannot {doing}: {source}")]
    Io { doing: String, source: io::Error },
}

/// What the lab's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// True where the caller asked for something that does not exist; the rest is failure.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Error::BadInput(_) | Error::NoTrace(_))
    }

    pub(crate) fn program(program: &str, reason: impl Into<String>) -> Self {
        Error::Program { program: program.into(), reason: reason.into() }
    }

    pub(crate) fn late(what: impl Into<String>, limit: Duration) -> Self {
        Error::Late { what: what.into(), seconds: limit.as_secs() }
    }
}

/// Says what was being done when an I/O operation failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
