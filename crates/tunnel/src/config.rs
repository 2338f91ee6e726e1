//! What a tunnel endpoint is told: the configuration file's `[tunnel]`, `[[peer]]` and `[[peer.path]]`, checked and
//! resolved. Nothing here comes from a network.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use crate::{PresharedKey, PublicKey};

/// At most this many paths to a peer, listed or learned.
pub const MAX_PATHS: usize = 16;

/// How packets are spread over the paths of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// Windows by what each path delivers, resends over another path, steering by predicted arrival and weight.
    #[default]
    Auto,
    /// The paper's: weights by equations (1) to (3) and nothing else.
    Paper,
    /// The paper's with absolute one-way delays in place of equation (1): what clocks that disagree do to it. To show
    /// the fault, not to be used.
    PaperAbsolute,
}

/// Which packets to a peer go over two paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bicast {
    /// None.
    #[default]
    Off,
    /// Those of TCP's and SCTP's that control retransmission ([`copies`](crate::flow::copies)).
    Selective,
    /// Those, what has too little behind it for its loss to be noticed, and what then has not arrived.
    Adaptive,
}

/// The MTU of the TUN interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mtu {
    /// What the paths in use to some peer carry, at least 1280 unless only IPv4 is routed to it.
    #[default]
    Auto,
    /// As given, in bytes; a path that carries less gets larger packets in pieces.
    Fixed(u16),
}

/// What of an inner packet's traffic class its outer packet has, and tells of on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Its DSCP. Some networks drop what has one.
    pub dscp: bool,
    /// Its ECN, both ways (RFC 6040). Some networks drop or mark all that is capable of it.
    pub ecn: bool,
}

impl Default for Marks {
    fn default() -> Self {
        Self { dscp: true, ecn: true }
    }
}

impl Marks {
    /// The outer packet's traffic class for the inner packet's.
    pub fn outer(self, tos: u8) -> u8 {
        let mask = if self.dscp { 0xfc } else { 0 } | if self.ecn { 0x03 } else { 0 };
        tos & mask
    }
}

/// One end of the tunnel.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// How packets are spread.
    pub scheduler: Scheduler,
    /// The MTU of the TUN interface.
    pub mtu: Mtu,
    /// What outer packets have of inner ones.
    pub marks: Marks,
    /// Packets of a default route go beside the tunnel while no path leads to its peer. Else they go nowhere.
    pub fail_open: bool,
    /// What TCP connections of this host into the tunnel use, whatever they ask for; `None`: what they ask for.
    pub congestion_control: Option<String>,
    /// Who is asked for the addresses of hosts, instead of those that the host's files name.
    pub resolvers: Vec<IpAddr>,
    /// The other ends.
    pub peers: Vec<PeerConfig>,
}

/// Why a configuration is not taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Two peers of one name.
    #[error("two peers are called {0}; give one of them another name")]
    PeerName(String),
    /// Two peers with one key.
    #[error("peer {0} has the key of another peer; list a peer once, with all its paths")]
    PeerKey(String),
    /// A prefix routed to two peers, or twice to one.
    #[error("peer {0} has the route {1}, which is listed already; a prefix belongs to one peer")]
    Route(String, IpNet),
    /// Two paths of one name.
    #[error("peer {0} has a path {1} already; choose another name, or change that path")]
    PathName(String, String),
    /// More than [`MAX_PATHS`].
    #[error("peer {0} would have more than {MAX_PATHS} paths; remove one first")]
    TooManyPaths(String),
    /// A life gives each path its own id, and has some thirty thousand for each peer.
    #[error("peer {0} has had too many paths since the daemon was started; start it anew")]
    NoIds(String),
}

impl Config {
    /// Whether it contradicts itself.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (mut names, mut keys, mut routes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for peer in &self.peers {
            let name = || peer.name.clone();
            if !names.insert(&peer.name) {
                return Err(ConfigError::PeerName(name()));
            }
            if !keys.insert(&peer.public_key) {
                return Err(ConfigError::PeerKey(name()));
            }
            if let Some(route) = peer.routes.iter().find(|route| !routes.insert(route.trunc())) {
                return Err(ConfigError::Route(name(), *route));
            }
            peer.validate_paths()?;
        }
        Ok(())
    }
}

impl PeerConfig {
    fn validate_paths(&self) -> Result<(), ConfigError> {
        let mut names = BTreeSet::new();
        if let Some(path) = self.paths.iter().find(|path| !names.insert(&path.name)) {
            return Err(ConfigError::PathName(self.name.clone(), path.name.clone()));
        }
        if self.paths.len() > MAX_PATHS {
            return Err(ConfigError::TooManyPaths(self.name.clone()));
        }
        Ok(())
    }
}

/// One other end.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// For status and logs; unique.
    pub name: String,
    /// Who it is; unique.
    pub public_key: PublicKey,
    /// 32 zero bytes if there is none.
    pub preshared_key: PresharedKey,
    /// Inner addresses that this peer may use and is routed.
    pub routes: Vec<IpNet>,
    /// Send something on each path at least this often, if given.
    pub keepalive: Option<Duration>,
    /// Whether what a path lost is sent again over another ([`Scheduler::Auto`] only).
    pub resend: bool,
    /// Which packets go over two paths.
    pub bicast: Bicast,
    /// The paths this end lists, at most [`MAX_PATHS`]; empty at an end that only learns them.
    pub paths: Vec<PathConfig>,
}

/// The greatest [`Cost::prefer`].
pub const MAX_PREFER: u8 = 15;

/// What using a path costs its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// It is paid for by the byte: no copies go over it, and few probes.
    pub metered: bool,
    /// It is used only where paths with lower ones are full; at most [`MAX_PREFER`].
    pub prefer: u8,
    /// Bytes that it may carry in a month.
    pub monthly_cap: Option<u64>,
    /// They are spent: it is a backup for the rest of the month.
    pub spent: bool,
}

/// One way to reach a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// For status and logs; unique within the peer.
    pub name: String,
    /// Where to leave this host.
    pub local: Local,
    /// The peer.
    pub remote: Host,
    /// The relay to go through.
    pub via: Option<Via>,
    /// Use it only while no other path works, both ends.
    pub backup: bool,
    /// Whether the peer is to send on it beside others. If not, to the peer it is a backup; this end uses it as ever.
    pub receive: bool,
    /// What using it costs, both ways.
    pub cost: Cost,
}

impl PathConfig {
    /// Whether the peer is told to send on it only while no other path works.
    pub fn is_backup_for_peer(&self) -> bool {
        self.is_backup() || !self.receive
    }

    /// Whether this end uses it only while no other path works.
    pub fn is_backup(&self) -> bool {
        self.backup || self.cost.spent
    }
}

/// Where a path leaves this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Local {
    /// Wherever the routing table says.
    #[default]
    Any,
    /// By this interface.
    Interface(String),
    /// From this address.
    Address(IpAddr),
}

/// A host and a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// By its address.
    Address(SocketAddr),
    /// By its name, whose addresses the daemon asks the resolver for, or by an address with a zone.
    Name(String, u16),
}

impl Host {
    /// Its address, if no resolver has to be asked for it.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Host::Address(address) => Some(*address),
            Host::Name(..) => None,
        }
    }
}

impl From<SocketAddr> for Host {
    fn from(address: SocketAddr) -> Self {
        Host::Address(address)
    }
}

/// A relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// Where it listens.
    pub address: Host,
    /// By TLS over TCP, not by UDP.
    pub tls: bool,
    /// Who it is.
    pub public_key: PublicKey,
}
