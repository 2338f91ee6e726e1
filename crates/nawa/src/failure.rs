//! How a command fails: one clear sentence for people, an exit status for scripts.

use std::fmt::Display;

/// Whose words they are.
const NAME: &str = "nawa: ";

/// The exit statuses that scripts rely on; 0 is "done".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The command was understood and did not succeed.
    Failed = 1,
    /// A file, a flag or a key is wrong. clap's usage errors have the same number.
    BadInput = 2,
    /// No daemon is running in this network namespace.
    NoDaemon = 3,
}

/// Why a command ends with a status other than 0. Each of `lines` is a whole sentence.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub status: u8,
    /// What to print on stderr.
    pub lines: Vec<String>,
}

impl Failure {
    /// Exit status 1.
    pub fn failed(why: impl Display) -> Self {
        Failure::new(Status::Failed, why)
    }

    /// Exit status 2.
    pub fn bad_input(why: impl Display) -> Self {
        Failure::new(Status::BadInput, why)
    }

    /// Exit status 3, of a command that needs a daemon.
    pub fn no_daemon() -> Self {
        Failure::new(
            Status::NoDaemon,
            "no nawa daemon is running in this network namespace; start one with `nawa up`",
        )
    }

    /// A child ended with `status` and said why in `lines`.
    pub fn of_child(status: u8, lines: Vec<String>) -> Self {
        Failure { status, lines }
    }

    /// Exit status 1 without a word.
    pub fn silent() -> Self {
        Failure { status: Status::Failed as u8, lines: Vec::new() }
    }

    /// Its sentences, for a text that says itself whose they are.
    pub fn sentences(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.strip_prefix(NAME).unwrap_or(line).to_owned()).collect()
    }

    /// The same in one line.
    pub fn why(&self) -> String {
        self.sentences().join("; ")
    }

    /// With this exit status.
    pub fn new(status: Status, why: impl Display) -> Self {
        Failure { status: status as u8, lines: vec![format!("{NAME}{why}")] }
    }
}
