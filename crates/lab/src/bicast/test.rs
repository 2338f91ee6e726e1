//! What one case transfers, over which paths, by whose SCTP.

use std::process::{Command, Stdio};
use std::time::Duration;

use link::LinkConfig;

use crate::error::{Error, Result};
use crate::guest;
use crate::program;

/// Paths between the hosts.
pub(super) const PATHS: usize = 2;

/// Whose SCTP is at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    /// Linux's, in guests behind the two hosts of the network: the running kernel may have none.
    Linux,
    /// The same, whose programs ask for HEARTBEATs on all paths at once: by itself it waits for some seconds, in which
    /// nothing can be copied.
    LinuxProbed,
    /// That of the running kernel, where it has one, on the two hosts themselves; programs ask for HEARTBEATs likewise.
    LinuxNative,
    /// FreeBSD's as a library, on the two hosts themselves.
    Usrsctp,
}

/// As in the JSON.
pub(super) const STACKS_BY_NAME: [(&str, Stack); 4] = [
    ("linux", Stack::Linux),
    ("linux-probed", Stack::LinuxProbed),
    ("linux-native", Stack::LinuxNative),
    ("usrsctp", Stack::Usrsctp),
];

impl Stack {
    pub(super) fn is_in_guests(self) -> bool {
        matches!(self, Stack::Linux | Stack::LinuxProbed)
    }

    /// Whether programs ask for HEARTBEATs.
    pub(super) fn is_probed(self) -> bool {
        matches!(self, Stack::LinuxProbed | Stack::LinuxNative)
    }

    pub(super) fn name(self) -> &'static str {
        STACKS_BY_NAME.iter().find(|(_, stack)| *stack == self).map_or("", |(name, _)| name)
    }

    /// Fails, in one sentence, where this machine does not have it.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Stack::Linux | Stack::LinuxProbed => guest::check(&["sctp"]),
            Stack::LinuxNative => check_native(),
            Stack::Usrsctp => check_usrsctp(),
        }
    }
}

/// Fails, in one sentence, where this machine lacks one of the stacks.
pub fn sctp_stacks() -> Result<()> {
    [Stack::Linux, Stack::Usrsctp].into_iter().try_for_each(Stack::check)
}

/// Fails where the running kernel has no SCTP. A socket would tell as well, but load the module, which usrsctp does not go
/// with: the kernel answers packets of associations that it does not know with ABORTs (RFC 9260 8.4).
fn check_native() -> Result<()> {
    let protocols = std::fs::read_to_string("/proc/net/protocols").unwrap_or_default();
    let has = protocols.lines().any(|line| line.split_whitespace().next() == Some("SCTP"));
    has.then_some(()).ok_or(Error::NoSctp)
}

/// Fails where usrsctp is not installed, or would not be alone.
pub(crate) fn check_usrsctp() -> Result<()> {
    if check_native().is_ok() {
        return Err(Error::OtherSctp);
    }
    program::require(&["cc"])?;
    let mut compiler = Command::new("cc");
    compiler.args(["-E", "-include", "usrsctp.h", "-x", "c", "/dev/null"]);
    let status = compiler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Error::MissingProgram { program: "usrsctp".into(), package: "libusrsctp-dev".into() }),
    }
}

/// Transfers at the same time between the same hosts.
#[derive(Clone, Debug)]
pub struct Test {
    pub(super) stack: Stack,
    /// Whether Nawa runs on a router in front of each host that is SCTP's end, and not on these.
    pub(super) on_routers: bool,
    /// `mode` in the configuration of both.
    pub(super) mode: &'static str,
    /// `budget` there, in percent, if it is there.
    pub(super) budget_percent: Option<u32>,
    /// Of each path: from client to server, and back.
    pub(super) paths: [[LinkConfig; 2]; PATHS],
    /// How many, each a process with a primary path of its own. A single one is measured on each path, and the mean taken.
    pub(super) transfers: usize,
    /// All keep to the first path.
    pub(super) on_first: bool,
    /// Whether a TCP flow goes by the second path meanwhile.
    pub(super) beside: bool,
    /// Hosts that they come from, behind the one that runs Nawa; 1 for usrsctp.
    pub(super) clients: usize,
    /// Since when copies are counted as well: when a path that fails on the way carries packets again.
    pub(super) later: Option<Duration>,
    /// Of each; a test may want less than the experiment.
    pub bytes: u64,
    /// When transfers that have not ended are given up.
    pub(super) limit: Duration,
}

impl Test {
    pub(super) fn nawa_in_guests(&self) -> bool {
        self.stack.is_in_guests() && !self.on_routers
    }

    /// The primary paths of its runs, each run on a network of its own.
    pub(super) fn runs(&self) -> Vec<Vec<usize>> {
        match self.transfers {
            many if self.on_first => vec![vec![0; many]],
            1 => (0..PATHS).map(|path| vec![path]).collect(),
            many => vec![(0..many).map(|number| number % PATHS).collect()],
        }
    }
}
