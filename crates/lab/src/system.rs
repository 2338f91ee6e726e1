//! Systems under test, each made ready in a network, after which all look alike: a way to start programs, an address
//! to reach, sources to bind.

mod clocks;
mod keys;
mod nawa;
mod wireguard;

use std::net::IpAddr;
use std::path::Path;

use crate::error::Error;
use crate::http::Transport;
use crate::network::{Network, SERVER};
use crate::program::Process;

pub use clocks::Clocks;
pub(crate) use keys::{KeyPair, write as write_key};
pub(crate) use nawa::run as start_nawa;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NawaSetup {
    /// `scheduler` in the configuration: "auto", "paper" or "paper-absolute".
    pub scheduler: &'static str,
    /// The clocks that its two ends see.
    pub clocks: Clocks,
    /// Which paths the server may send over.
    pub back: Back,
    /// True for paths through the relays, false for paths from end to end.
    pub relayed: bool,
    /// `resend` of the peer, at both ends.
    pub resend: bool,
    /// `bicast` of the peer, at both ends: "off", "selective" or "adaptive".
    pub bicast: &'static str,
}

impl NawaSetup {
    /// What Nawa does when nothing is configured, through relays.
    pub const AUTO: NawaSetup = NawaSetup {
        scheduler: "auto",
        clocks: Clocks::Same,
        back: Back::All,
        relayed: true,
        resend: true,
        bicast: "off",
    };
}

/// The paths of the direction back, from server to client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Back {
    /// All of them.
    #[default]
    All,
    /// The first alone, as in the paper's measurements.
    One,
}

impl Back {
    /// As in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Back::All => "all",
            Back::One => "one",
        }
    }
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
    /// The relays' programs, one per path; none where a system has none.
    relays: Vec<Process>,
}

impl System {
    /// The programs that it needs, apart from itself.
    pub fn programs(&self) -> &'static [&'static str] {
        match self {
            System::Mptcp => &["mptcpize"],
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

impl Means<'_> {
    /// The public key of the Nawa that was started as `name`.
    pub(crate) fn public_key(&self, name: &str) -> Result<[u8; 32], Error> {
        keys::public_key(self.nawa, &self.folder.join(format!("{name}.key")))
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
            relays: Vec::new(),
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
            relays: Vec::new(),
        }
    }

    /// The program that attackers are after: the first relay's, or the server's.
    pub(crate) fn attacked(&self, relay: bool) -> Option<&Process> {
        if relay { self.relays.first() } else { self.processes.first() }
    }

    /// Fails if a program of the system has ended.
    pub fn check(&mut self) -> Result<(), Error> {
        self.processes.iter_mut().chain(&mut self.relays).try_for_each(Process::check)
    }

    /// Kills the relay of path `path` (from 0) and starts it again; nothing where there is none.
    pub fn restart_relay(&mut self, network: &Network, path: usize) -> Result<(), Error> {
        self.relays.get_mut(path).map_or(Ok(()), |relay| relay.restart(&network.relays[path]))
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
