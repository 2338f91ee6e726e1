//! Why the lab could not do something, each in one sentence.

use std::io;
use std::path::PathBuf;

use link::notation::NotationError;

/// Why the lab could not do something.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum Error {
    #[error("the lab makes network namespaces and needs root: run it with sudo")]
    NotRoot,
    #[error("the lab cannot make a network namespace here ({0}): run it on the host, not in a container")]
    NoNamespace(#[source] Box<Error>),
    #[error(
        "the lab's links need /dev/net/tun, which cannot be opened ({0}): load the module `tun` or pass the device in"
    )]
    NoTun(#[source] io::Error),
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
    #[error("no experiment is called `{0}`: `nawa lab list` names them")]
    UnknownExperiment(String),
    #[error(
        "`{0}` has no case that a rival could do: only those whose `system` is `nawa`, unless that is configured, have one"
    )]
    NoRival(String),
    #[error("the folder {} holds no results: `nawa lab run all --out DIR` makes some", .0.display())]
    NoResults(PathBuf),
    #[error("the folder holds no course of `{0}`: `nawa lab run {0} --json FILE` measures it")]
    NotMeasured(&'static str),
    #[error(
        "{} is the result of another program, seed, size or selection: give another folder, or remove that file", .0.display()
    )]
    OtherRun(PathBuf),
    #[error("no case is left by `{word}`: {reason}")]
    NoCase { word: String, reason: String },
    #[error("the experiment has no `{value}` for `{field}`: that is a mistake in the lab")]
    BadCell { field: String, value: String },
    #[error("the kernel has no congestion control `{0}`")]
    NoCongestionControl(String),
    #[error("the folder {} holds no pair of traces NAME.up and NAME.down", .0.display())]
    NoTrace(PathBuf),
    #[error(transparent)]
    BadLinks(NotationError),
    #[error("`{0}` has links of its own: --links is for `bond`")]
    OwnLinks(String),
    #[error("{}: {reason}", .path.display())]
    BadTrace { path: PathBuf, reason: String },
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
        matches!(
            self,
            Error::UnknownExperiment(_)
                | Error::NoCase { .. }
                | Error::NoTrace(_)
                | Error::BadLinks(_)
                | Error::OwnLinks(_)
                | Error::BadTrace { .. }
                | Error::NoRival(_)
                | Error::OtherRun(_)
                | Error::NoResults(_)
                | Error::NotMeasured(_)
        )
    }

    pub(crate) fn program(program: &str, reason: impl Into<String>) -> Self {
        Error::Program { program: program.into(), reason: reason.into() }
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
