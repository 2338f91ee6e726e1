//! What a file asks for, once it is read and checked.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tunnel::config::{Cost, Local, Marks, Mtu, Scheduler};
use tunnel::daemon::Listen;
use tunnel::{PresharedKey, PrivateKey, PublicKey};

use super::flood::Flood;
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
    pub floods: Vec<Flood>,
    /// The interfaces on which packets are coded.
    pub codings: Vec<::coding::daemon::Settings>,
    /// The copies of SCTP's packets, if the daemon is to make them.
    pub bicast: Option<::bicast::daemon::Config>,
    /// Where metrics are asked for, by TCP.
    pub metrics: Option<SocketAddr>,
}

/// `[tunnel]` with its peers.
#[derive(Debug)]
pub struct Tunnel {
    /// The TUN interface to make.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Where peers reach this end; port 0 if they need not.
    pub listen: Listen,
    /// By which others reach this end; only invites tell them.
    pub endpoints: Vec<HostPort>,
    /// How packets are spread over paths.
    pub scheduler: Scheduler,
    /// Of the TUN interface.
    pub mtu: Mtu,
    /// On the outer packets; 0 leaves them unmarked.
    pub fwmark: u32,
    /// What outer packets have of inner ones.
    pub marks: Marks,
    /// Whether packets of a default route go beside the tunnel while it is down.
    pub fail_open: bool,
    /// What this host's TCP connections into the tunnel use, whatever they ask for.
    pub congestion_control: Option<String>,
    /// Who is asked for the names in paths, instead of those that the host's files name.
    pub resolvers: Vec<IpAddr>,
    /// The other ends.
    pub peers: Vec<Peer>,
}

/// `[[peer]]`
#[derive(Debug)]
pub struct Peer {
    /// Unique.
    pub name: String,
    /// Unique.
    pub public_key: PublicKey,
    /// 32 zero bytes if there is none.
    pub preshared_key: PresharedKey,
    /// Inner prefixes, of one peer each.
    pub routes: Vec<IpNet>,
    /// More than nothing, at most an hour.
    pub keepalive: Option<Duration>,
    /// What a path lost is sent again over another.
    pub resend: bool,
    /// Which packets go over two paths.
    pub bicast: tunnel::Bicast,
    /// At most 16.
    pub paths: Vec<Path>,
}

/// `[[peer.path]]`
#[derive(Debug)]
pub struct Path {
    /// Unique within the peer.
    pub name: String,
    /// Where to leave this host.
    pub local: Local,
    /// The peer, perhaps by name.
    pub remote: HostPort,
    /// The relay in between.
    pub via: Option<Via>,
    /// Carries data only while no other path does.
    pub backup: bool,
    /// The peer sends on it beside other paths, not only while no other works.
    pub receive: bool,
    /// What using it costs.
    pub cost: Cost,
}

/// `via` of a path.
#[derive(Debug)]
pub struct Via {
    /// The relay, perhaps by name.
    pub address: HostPort,
    /// By TLS over TCP, not by UDP.
    pub tls: bool,
    /// Who it is.
    pub public_key: PublicKey,
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
