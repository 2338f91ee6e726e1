//! The configuration file: read ([`document`]), checked ([`check`], [`peer`]), resolved ([`resolve`]). A file with
//! one mistake starts nothing, and all its mistakes are named at once.

mod bicast;
mod check;
mod coding;
mod document;
pub mod edit;
mod flood;
mod fragments;
mod peer;
mod resolve;
mod secret;
mod source;
pub mod value;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path;
use std::time::Duration;

use ipnet::IpNet;
use tunnel::config::{Cost, Local, Marks, Mtu, Scheduler};
use tunnel::daemon::Listen;
use tunnel::{PresharedKey, PrivateKey, PublicKey};

pub use self::bicast::mode_name;
pub use flood::Flood;
pub use resolve::Resolved;
pub use source::Complaint;
pub use value::HostPort;

use crate::failure::Failure;
use crate::flight::Base;
use source::Source;

/// What a file asks for.
#[derive(Debug)]
pub struct Settings {
    /// Who this node is, to peers and to relays; there is one with a tunnel or a relay.
    pub key: Option<PrivateKey>,
    /// Where bytes are counted over restarts.
    pub state_dir: path::PathBuf,
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

/// Reads and checks `file`, and the fragments in `FILE.d`.
///
/// # Errors
/// Bad input with a line for everything that is wrong.
pub fn load(file: &path::Path) -> Result<Settings, Failure> {
    load_text(file).map_err(|complaints| bad_file(&complaints))
}

/// Checks `text`, which is to stand in `file`, by itself: fragments are checked with it when it is loaded.
///
/// # Errors
/// As [`load`].
pub fn check_text(file: &path::Path, text: &str) -> Result<(), Failure> {
    parse(file, text).map(drop).map_err(|complaints| bad_file(&complaints))
}

/// The private key in the file `path`.
///
/// # Errors
/// One sentence.
pub fn read_key(path: &path::Path) -> Result<PrivateKey, String> {
    secret::read(path)
}

fn bad_file(complaints: &[Complaint]) -> Failure {
    let mut failure = Failure::bad_input("");
    failure.lines = complaints.iter().map(Complaint::to_string).collect();
    failure
}

fn load_text(file: &path::Path) -> Result<Settings, Vec<Complaint>> {
    let files = fragments::read(file)?;
    meant(Source::of(file, &files))
}

fn parse(file: &path::Path, text: &str) -> Result<Settings, Vec<Complaint>> {
    meant(Source::new(file, text))
}

fn meant(mut source: Source<'_>) -> Result<Settings, Vec<Complaint>> {
    let document = document::read(&mut source);
    let settings = document.and_then(|document| check::check(&mut source, document));
    let complaints = source.into_complaints();
    match settings {
        Some(settings) if complaints.is_empty() => Ok(settings),
        _ => Err(complaints),
    }
}
