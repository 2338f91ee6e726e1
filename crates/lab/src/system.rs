//! Systems under test, each made ready in a network, after which all look alike: a way to start programs, an address
//! to reach, sources to bind.

mod keys;
mod nawa;
mod wireguard;

use std::net::IpAddr;
use std::path::Path;

use crate::error::Error;
use crate::http::Transport;
use crate::network::{Network, SERVER};
use crate::program::Process;

pub use wireguard::find as find_rival;

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
}

/// How Nawa is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NawaSetup {
    /// `scheduler` in the configuration: "auto" or "paper".
    pub scheduler: &'static str,
}

impl NawaSetup {
    /// What Nawa does when nothing is configured.
    pub const AUTO: NawaSetup = NawaSetup { scheduler: "auto" };
}

/// What a system may need to be started.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// The `nawa` to start.
    pub nawa: &'a Path,
    /// An empty folder for configuration files, as long as the system runs.
    pub folder: &'a Path,
    /// The path (from 0) on which a single connection did best so far.
    pub best_path: usize,
}

/// A system that carries traffic. Dropping it stops it.
#[derive(Debug)]
pub struct Ready {
    /// Words that precede every program that uses it.
    pub launcher: &'static [&'static str],
    /// What servers listen for.
    pub transport: Transport,
    /// The server's address through it.
    pub server: IpAddr,
    /// The addresses that clients bind, one per connection; `None` leaves it to the kernel.
    pub sources: Vec<Option<IpAddr>>,
    /// Where other traffic of the client (`ping`) leaves, per connection.
    pub ping_sources: Vec<Option<IpAddr>>,
    processes: Vec<Process>,
}

impl System {
    /// The programs that it needs, apart from itself.
    pub fn programs(&self) -> &'static [&'static str] {
        match self {
            System::Mptcp => &["mptcpize"],
            _ => &[],
        }
    }

    /// Starts it in `network`; returns when it carries traffic.
    pub fn start(&self, network: &Network, means: &Means) -> Result<Ready, Error> {
        match self {
            System::Tcp => Ok(Ready::plain(vec![network.client_address(0)])),
            System::BestTcp => Ok(Ready::plain(all_sources(network))),
            System::Mptcp => mptcp(network, means.best_path),
            System::Nawa(setup) => nawa::start(setup, network, means),
            System::WireGuard(program) => wireguard::start(program, network, means),
        }
    }
}

impl Ready {
    fn plain(sources: Vec<IpAddr>) -> Self {
        let sources: Vec<_> = sources.into_iter().map(Some).collect();
        Self {
            launcher: &[],
            transport: Transport::Tcp,
            server: SERVER,
            ping_sources: sources.clone(),
            sources,
            processes: Vec::new(),
        }
    }

    /// A tunnel, whose `server` address is reached as the kernel routes it.
    fn tunnel(server: IpAddr, processes: Vec<Process>) -> Self {
        Self {
            launcher: &[],
            transport: Transport::Tcp,
            server,
            sources: vec![None],
            ping_sources: vec![None],
            processes,
        }
    }

    /// Fails if a program of the system has ended.
    pub fn check(&mut self) -> Result<(), Error> {
        self.processes.iter_mut().try_for_each(Process::check)
    }
}

fn all_sources(network: &Network) -> Vec<IpAddr> {
    (0..network.path_names().len()).map(|path| network.client_address(path)).collect()
}

/// The kernel takes at most this many additional subflows.
const SUBFLOWS_MAX: usize = 8;

/// The connection starts on the best path; every other one is a subflow to the same address.
fn mptcp(network: &Network, first: usize) -> Result<Ready, Error> {
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
    Ok(Ready { launcher: &["mptcpize", "run"], transport: Transport::Mptcp, ..ready })
}
