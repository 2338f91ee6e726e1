//! What a file asks for, once it is read and checked: what the daemon starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tunnel::config::Config;
use tunnel::daemon::Listen;
use tunnel::{PrivateKey, PublicKey};

use super::value::HostPort;

/// What a file asks for.
#[derive(Debug)]
pub struct Settings {
    /// Who this node is, to peers and to relays; there is one with a tunnel or a relay.
    pub key: Option<PrivateKey>,
    /// Where bytes are counted over restarts.
    pub state_dir: PathBuf,
    /// The tunnel, if this node is an end of one.
    pub tunnel: Option<Tunnel>,
    /// The relay, if this node is one.
    pub relay: Option<Relay>,
    /// The congestion controls, if the daemon is to provide them.
    pub flight: Option<Flight>,
    /// The interfaces on which messages are flooded.
    pub floods: Vec<::flood::node::Settings>,
    /// The interfaces on which packets are coded.
    pub codings: Vec<::coding::daemon::Settings>,
    /// The copies of SCTP's packets, if the daemon is to make them.
    pub bicast: Option<::bicast::daemon::Config>,
    /// Where metrics are asked for, by TCP.
    pub metrics: Option<SocketAddr>,
}

/// `[tunnel]` with its peers.
#[derive(Clone, Debug)]
pub struct Tunnel {
    /// The TUN interface to make.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Where peers reach this end; port 0 if they need not.
    pub listen: Listen,
    /// By which others reach this end; only invites tell them.
    pub endpoints: Vec<HostPort>,
    /// On the outer packets; 0 leaves them unmarked.
    pub fwmark: u32,
    /// What its core is told.
    pub config: Config,
}

/// `[relay]`
#[derive(Clone, Debug)]
pub struct Relay {
    /// Where clients and destinations reach it.
    pub listen: Listen,
    /// Where clients reach it by TLS, if they do.
    pub tls: Option<Listen>,
    /// Who may relay; at least one.
    pub allow: Vec<PublicKey>,
}

/// `[flight]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// `fsat` is this namespace's default.
    pub default: bool,
    /// The congestion avoidance below.
    pub base: Base,
}

/// The congestion avoidance below FS-AT, as it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// As RFC 5681: grows by a segment an RTT
    Reno,
    /// As RFC 9438: grows by time, faster on long fat paths
    #[default]
    Cubic,
}
