//! Why the lab could not do something, each in one sentence.

use std::io;
use std::path::PathBuf;

/// Why the lab could not do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller is not root.
    #[error("the lab makes network namespaces and needs root: run it with sudo")]
    NotRoot,
    /// There is no `/dev/net/tun`, or it cannot be opened.
    #[error(
        "the lab's links need /dev/net/tun, which cannot be opened ({0}): load the module `tun` or pass the device in"
    )]
    NoTun(#[source] io::Error),
    /// The kernel has no macvtap.
    #[error(
        "the kernel has no macvtap, which the 802.11 medium needs ({reason}): load the module `macvtap`, or use a kernel \
         with CONFIG_MACVTAP"
    )]
    NoMacvtap {
        /// What `ip` said.
        reason: String,
    },
    /// The kernel has no SCTP.
    #[error("the running kernel has no SCTP: load the module `sctp`, or use a kernel with CONFIG_IP_SCTP")]
    NoSctp,
    /// The kernel has SCTP, and answers what is another stack's.
    #[error("the running kernel's own SCTP would end usrsctp's associations: unload the module `sctp`")]
    OtherSctp,
    /// A program that the lab runs is not installed.
    #[error("the program `{program}` is missing: install the Debian package `{package}`")]
    MissingProgram {
        /// The program as it is called.
        program: String,
        /// The Debian package that has it.
        package: String,
    },
    /// No experiment has this name.
    #[error("no experiment is called `{0}`: `nawa lab list` names them")]
    UnknownExperiment(String),
    /// Nothing in the experiment can be compared with a rival.
    #[error(
        "`{0}` has no case that a rival could do: only those whose `system` is `nawa`, unless that is configured, have one"
    )]
    NoRival(String),
    /// There is nothing to report.
    #[error("the folder {} holds no results: `nawa lab run all --out DIR` makes some", .0.display())]
    NoResults(PathBuf),
    /// A folder of results has one of another run.
    #[error(
        "{} is the result of another program, seed, size or selection: give another folder, or remove that file", .0.display()
    )]
    OtherRun(PathBuf),
    /// No case of the experiment is as asked for.
    #[error("no case is left by `{word}`: {reason}")]
    NoCase {
        /// What was asked for.
        word: String,
        /// What could be.
        reason: String,
    },
    /// An experiment's own axes have a value that does not exist.
    #[error("the experiment has no `{value}` for `{field}`: that is a mistake in the lab")]
    BadCell {
        /// The field.
        field: String,
        /// Its value.
        value: String,
    },
    /// The kernel has no such congestion control.
    #[error("the kernel has no congestion control `{0}`")]
    NoCongestionControl(String),
    /// The folder of traces holds none that can be used.
    #[error("the folder {} holds no pair of traces NAME.up and NAME.down", .0.display())]
    NoTrace(PathBuf),
    /// A trace cannot be read.
    #[error("{}: {reason}", .path.display())]
    BadTrace {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A program failed, or said something unexpected.
    #[error("`{program}` failed: {reason}")]
    Program {
        /// The program as it is called.
        program: String,
        /// What it said, or how it ended.
        reason: String,
    },
    /// The kernel does not take a BPF program of the lab's.
    #[error("{0}")]
    Bpf(#[from] bpf::Error),
    /// Something did not happen in time.
    #[error("{what} within {seconds} s")]
    Late {
        /// What did not happen, as "NAME did not …".
        what: String,
        /// How long the lab waited.
        seconds: u64,
    },
    /// What was received is not what was sent.
    #[error("the file that `{system}` carried arrived with another SHA-256 than it left with")]
    Corrupted {
        /// The system that carried it.
        system: String,
    },
    /// An operation of the operating system failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What the lab was doing, as an infinitive.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// True where the caller asked for something that does not exist; the rest is failure.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Error::UnknownExperiment(_)
                | Error::NoCase { .. }
                | Error::NoTrace(_)
                | Error::BadTrace { .. }
                | Error::NoRival(_)
                | Error::OtherRun(_)
                | Error::NoResults(_)
        )
    }

    pub(crate) fn program(program: &str, reason: impl Into<String>) -> Self {
        Error::Program { program: program.into(), reason: reason.into() }
    }
}

/// Says what was being done when an I/O operation failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
