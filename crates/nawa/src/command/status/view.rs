//! Of what the daemon shows, what the tables need. Scripts read the JSON, which has more.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole state.
#[derive(Default, Deserialize)]
pub struct State {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// Where its log is.
    pub log: Option<String>,
    /// The interface's name.
    pub interface: Option<String>,
    /// The strands that failed of late.
    #[serde(default)]
    pub failed: Vec<Failed>,
    /// What was wrong with the file when it was last read again.
    #[serde(default)]
    pub reload_refused: Vec<String>,
    /// If this node is an end of a tunnel.
    pub tunnel: Option<Tunnel>,
    /// If this node is a relay.
    pub relay: Option<Relay>,
    /// If it provides the congestion controls.
    pub flight: Option<Flight>,
    /// If it copies SCTP's packets.
    pub bicast: Option<super::bicast::Bicast>,
    /// The interfaces on which it floods.
    #[serde(default)]
    pub flood: Vec<Flood>,
    /// The interfaces on which it codes.
    #[serde(default)]
    pub coding: Vec<Coding>,
}

/// `crate::restarts::Restarts::status`
#[derive(Deserialize)]
pub struct Failed {
    pub strand: String,
    pub why: String,
    pub failures: u32,
    pub starts_again_in_s: Option<f64>,
}

/// `coding::daemon::Status`
#[derive(Deserialize)]
pub struct Coding {
    pub interface: String,
    pub master: String,
    pub mode: String,
    pub waits_because: Option<String>,
    pub off_because: Option<String>,
    pub holds_nothing_because: Option<String>,
    pub warning: Option<String>,
    pub neighbours: Vec<CodingNeighbour>,
    pub sent_frames: u64,
    #[serde(default)]
    pub sent_coded_frames: u64,
    pub coding_ratio: Option<f64>,
    pub relayed_packets: u64,
    pub held_packets: u64,
    pub held_time_ms: f64,
    pub decoded_packets: u64,
    pub missing_partner_frames: u64,
    pub wrong_partner_frames: u64,
    pub left_out_neighbours: u64,
}

/// `coding::daemon::NeighbourStatus`
#[derive(Deserialize)]
pub struct CodingNeighbour {
    pub address: String,
    pub overheard_frames: u64,
    pub decodes: bool,
    pub left_out: bool,
}

/// `flood::node::Status`
#[derive(Deserialize)]
pub struct Flood {
    pub interface: String,
    pub id: u32,
    pub mode: String,
    /// What does it, unless it waits.
    pub relay: Option<String>,
    /// For what it waits; nothing else is known then.
    pub waits: Option<String>,
    pub fallback: Option<String>,
    #[serde(default)]
    pub warnings: Vec<String>,
    #[serde(default)]
    pub authenticated: bool,
    #[serde(default)]
    pub sent_frames: u64,
    #[serde(default)]
    pub unsent_frames: u64,
    #[serde(default)]
    pub new_frames: u64,
    #[serde(default)]
    pub relayed_frames: u64,
    #[serde(default)]
    pub suppressed_frames: u64,
    #[serde(default)]
    pub receivers: u64,
    #[serde(default)]
    pub undelivered_messages: u64,
    #[serde(default)]
    pub dropped_frames: BTreeMap<String, u64>,
}

/// `flight::State`, or why it cannot be read.
#[derive(Deserialize)]
pub struct Flight {
    #[serde(default)]
    pub registered: Vec<String>,
    #[serde(default)]
    pub default: String,
    #[serde(default)]
    pub connections: Vec<crate::flight::Line>,
    /// What somebody has taken away.
    #[serde(default)]
    pub lost: Vec<String>,
    pub error: Option<String>,
}

/// `tunnel::status::TunnelStatus`
#[derive(Deserialize)]
pub struct Tunnel {
    pub public_key: String,
    pub mtu: u16,
    #[serde(default)]
    pub fwmark: u32,
    pub default_route: Option<DefaultRoute>,
    pub congestion_control: Option<String>,
    /// The last handshake that is not taken.
    pub refused: Option<Refused>,
    pub peers: Vec<Peer>,
}

/// `tunnel::status::DefaultRoute`
#[derive(Deserialize)]
pub struct DefaultRoute {
    pub ipv4: Leads,
    pub ipv6: Leads,
}

/// `tunnel::status::Leads`
#[derive(Deserialize)]
pub struct Leads {
    pub goes: String,
    pub peer: Option<String>,
}

/// `tunnel::status::Refused`
#[derive(Deserialize)]
pub struct Refused {
    pub ago_s: f64,
    pub why: String,
}

impl Leads {
    /// In words; `net` is the default route of its family.
    pub fn words(&self, net: &str) -> String {
        let peer = self.peer.as_deref().unwrap_or_default();
        match self.goes.as_str() {
            "tunnel" => format!("through the tunnel to {peer}"),
            "held" => format!("held back, for no path is up to {peer} (fail closed)"),
            "clear" => format!("in the clear, for no path is up to {peer} (fail-open)"),
            _ if self.peer.is_none() => format!("beside the tunnel, for no peer has {net}"),
            _ => format!("beside the tunnel, for another route or rule comes before that to {peer}"),
        }
    }
}

impl DefaultRoute {
    /// Each family, and where it goes.
    pub fn words(&self) -> [String; 2] {
        [format!("IPv4 {}", self.ipv4.words("0.0.0.0/0")), format!("IPv6 {}", self.ipv6.words("::/0"))]
    }

    /// Whether packets that should go to `peer` leave in the clear.
    pub fn leaves(&self, peer: &str) -> bool {
        [&self.ipv4, &self.ipv6]
            .iter()
            .any(|leads| leads.goes == "clear" && leads.peer.as_deref() == Some(peer))
    }
}

/// `tunnel::status::PeerStatus`
#[derive(Deserialize)]
pub struct Peer {
    pub name: String,
    #[serde(default)]
    pub public_key: String,
    #[serde(default)]
    pub routes: Vec<String>,
    pub up: bool,
    /// What is amiss, if anything is.
    pub why: Option<String>,
    pub scheduler: String,
    pub cipher: Option<String>,
    #[serde(default)]
    pub queue_bytes: u64,
    #[serde(default)]
    pub flows: Vec<Flow>,
    pub resent_packets: u64,
    pub given_up_packets: u64,
    pub bicast: Option<Copies>,
    pub paths: Vec<Path>,
}

impl Peer {
    /// What is amiss with it, if anything is: a sentence each.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        let none = self.paths.is_empty().then(|| {
            "no path yet: this end lists none, and the other has not called; see that `nawa up` runs there".into()
        });
        self.why.clone().into_iter().chain(none)
    }
}

/// `tunnel::status::FlowStatus`
#[derive(Deserialize)]
pub struct Flow {
    pub protocol: String,
    pub source: String,
    pub destination: String,
    pub rate_bps: f64,
    pub queue_bytes: u64,
    pub limited: bool,
}

/// `tunnel::flow::copies::CopyCounters`
#[derive(Deserialize)]
pub struct Copies {
    pub sent_bytes: u64,
    pub extra_bytes: u64,
    pub duplicated_packets: BTreeMap<String, u64>,
    pub not_duplicated_packets: BTreeMap<String, u64>,
}

/// `tunnel::status::PathStatus`
#[derive(Deserialize)]
pub struct Path {
    pub id: u16,
    pub name: String,
    pub state: String,
    #[serde(default)]
    pub cause: String,
    /// What is amiss, if anything is.
    pub why: Option<String>,
    #[serde(default)]
    pub listed: bool,
    /// The interface or address that it leaves by.
    pub local: Option<String>,
    /// The largest packet that passes.
    #[serde(default)]
    pub mtu: u16,
    pub backup: bool,
    #[serde(default)]
    pub metered: bool,
    /// What it may carry in a month and has carried, bytes, and when that begins anew.
    pub monthly_cap_bytes: Option<u64>,
    #[serde(default)]
    pub monthly_used_bytes: u64,
    #[serde(default)]
    pub monthly_resets_on: String,
    /// Why that is forgotten at the next start.
    pub monthly_unsaved: Option<String>,
    #[serde(default)]
    pub prefer: u8,
    pub remote: Option<String>,
    pub relayed: bool,
    #[serde(default)]
    pub tls: bool,
    pub rtt_ms: Option<f64>,
    pub rtt_min_ms: Option<f64>,
    #[serde(default)]
    pub in_flight_bytes: u64,
    pub rate_bps: Option<f64>,
    pub weight: f64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub lost_packets: u64,
    pub received_bytes: u64,
    #[serde(default)]
    pub changes: Vec<Change>,
}

impl Path {
    /// What is amiss, if anything is. A path that the other end lists is looked after there.
    pub fn reason(&self) -> Option<&str> {
        let there = "the other end lists it and has not come by it; `nawa path why` says more there";
        let uncalled = self.state == "down" && !self.listed;
        self.why.as_deref().or(uncalled.then_some(there))
    }
}

/// `tunnel::status::ChangeStatus`
#[derive(Deserialize)]
pub struct Change {
    pub ago_s: f64,
    pub state: String,
    pub why: String,
}

/// `tunnel::relay::RelayStatus`
#[derive(Deserialize)]
pub struct Relay {
    pub sessions: Vec<Session>,
    pub forwarded_packets: u64,
    pub forwarded_bytes: u64,
    pub dropped_packets: BTreeMap<String, u64>,
}

/// `tunnel::relay::SessionStatus`
#[derive(Deserialize)]
pub struct Session {
    pub client_key: String,
    pub client: String,
    #[serde(default)]
    pub tls: bool,
    pub destination: String,
    pub open: bool,
    pub idle_s: f64,
}
