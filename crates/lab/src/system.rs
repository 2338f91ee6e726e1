//! Systems under test, each made ready in a network, after which all look alike: a way to start programs, an address
//! to reach, sources to bind.

mod clocks;
mod nawa;
mod ready;
mod rival;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::network::Network;

pub use clocks::Clocks;
pub use nawa::NawaSetup;
pub(crate) use nawa::{node_sections, peer_section, run as start_nawa};
pub(crate) use ready::Identity;
pub use ready::{Means, Ready};
pub use rival::find as find_rival;

/// What carries the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// Plain TCP on the first path.
    Tcp,
    /// Plain TCP on every path at once, one connection each; the first to finish counts.
    BestTcp,
    /// Kernel MPTCP over all paths, programs started by mptcpize.
    Mptcp,
    /// Nawa over all paths, started as a user does.
    Nawa(NawaSetup),
    /// A user-space WireGuard over the first path: the program's name.
    WireGuard(&'static str),
    /// Whatever a program makes of the paths (docs/lab.md).
    Rival(PathBuf),
}

impl System {
    /// The programs that it needs, apart from itself.
    pub fn programs(&self) -> &'static [&'static str] {
        match self {
            System::Mptcp => &["mptcpize"],
            System::WireGuard(_) => &["wg"],
            _ => &[],
        }
    }

    /// The bytes that have reached the client over each path; `None` where that cannot be read just now.
    pub fn received(&self, network: &Network, nawa: &Path) -> Option<Vec<u64>> {
        match self {
            System::Nawa(_) => nawa::received(network, nawa),
            _ => Some(network.stats().ok()?.iter().map(|[_, down]| down.delivered.bytes.get()).collect()),
        }
    }

    /// Starts it in `network`; returns when it carries traffic. MPTCP begins on path `best` (from 0).
    pub fn start(&self, network: &Network, means: &Means, best: usize) -> Result<Ready> {
        match self {
            System::Tcp => Ok(Ready::plain(vec![network.client_address(0)])),
            System::BestTcp => {
                let paths = 0..network.path_names().len();
                Ok(Ready::plain(paths.map(|path| network.client_address(path)).collect()))
            }
            System::Mptcp => mptcp(network, best),
            System::Nawa(setup) => nawa::start(setup, network, means),
            System::WireGuard(program) => rival::start(&rival::wireguard(program)?, network, means),
            System::Rival(program) => rival::start(&[program.into()], network, means),
        }
    }
}

/// The kernel takes at most this many additional subflows.
const SUBFLOWS_MAX: usize = 8;

/// The connection starts on the best path; every other one is a subflow to the same address.
fn mptcp(network: &Network, first: usize) -> Result<Ready> {
    let limits = format!("mptcp limits set subflows {SUBFLOWS_MAX} add_addr_accepted {SUBFLOWS_MAX}");
    let mut lines = vec![limits.clone()];
    let others = (0..network.path_names().len()).filter(|&path| path != first);
    for path in others.take(SUBFLOWS_MAX) {
        let (address, device) = (network.client_address(path), network.interface(path));
        lines.push(format!("mptcp endpoint add {address} dev {device} subflow"));
    }
    network.client.ip(&lines)?;
    network.server.ip(&[limits])?;
    let ready = Ready::plain(vec![network.client_address(first)]);
    Ok(Ready { launcher: &["mptcpize", "run"], multipath: true, ..ready })
}
