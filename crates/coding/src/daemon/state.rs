//! What a node is told and asked, what it says of itself, and what may be wrong.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use crate::config::Mode;
use crate::header;

/// What every host can reassemble (RFC 1122 §3.3.2) has to fit behind the NC header.
pub(super) const LEAST_MTU: u32 = 576 + header::CODED as u32;

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The slave: the real interface, which somebody else makes.
    pub interface: String,
    /// The master: the one that is made, and carries IP.
    pub master: String,
    /// A monitor interface of the slave's radio that somebody else makes; `None`: one is made where the slave is a radio's.
    pub monitor: Option<String>,
    /// What may change while it runs.
    pub change: Change,
}

/// What may change while a node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The master's addresses, each with its prefix.
    pub addresses: Vec<IpNet>,
    /// What is coded.
    pub mode: Mode,
    /// How long a packet waits for a partner at most.
    pub wait: Duration,
    /// Whether a pure ACK takes the place of an earlier one of its connection that waits still.
    pub thin_acks: bool,
}

/// Why nothing is coded on a radio: sums would be lost to whoever should overhear them, or cost more than they gain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Deaf {
    /// The named one is not there, or is of another kind or radio.
    #[error("no interface `{0}` is a monitor of the slave's radio; make it one, or leave `monitor` out")]
    Absent(String),
    /// The driver, or a name that is taken.
    #[error("what neighbours send each other is not heard: the monitor interface `{0}` cannot be used ({1})")]
    Refused(String, String),
    /// The named one is switched off.
    #[error(
        "what neighbours send each other is not heard: the monitor interface `{0}` is down; `ip link set {0} up`"
    )]
    Down(String),
    /// 802.11n or later.
    #[error(
        "the network is one of 802.11n or later, where sending many frames as one gains more than coding; join it without HT for coding \
         (`iw dev … ibss join NAME FREQUENCY NOHT`)"
    )]
    Aggregating,
    /// A station's, an access point's.
    #[error(
        "the access point of the slave's network passes frames on, below coding; make the slave ad-hoc (`iw dev … set type ibss`)"
    )]
    Infrastructure,
    /// Pairwise keys, or one of WEP.
    #[error(
        "the network is encrypted, so that nobody can read what neighbours send each other; encrypt above it, as a tunnel does"
    )]
    Encrypted,
}

/// A neighbour as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeighbourStatus {
    /// Its MAC address.
    pub address: String,
    /// Its frames for others that this node has heard: while there are none, no sum that it sends past this node can be decoded.
    pub overheard_frames: u64,
    /// It decodes sums, as it said lately (mode `any`).
    pub decodes: bool,
    /// It is not coded for at present, because it misses too much, or reports nothing.
    pub left_out: bool,
}

/// What a node knows of itself. Frames are counted where they leave, packets where they are relayed; repetitions by the MAC
/// are in none of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The slave.
    pub interface: String,
    /// The master.
    pub master: String,
    /// What is coded: `off` as well while there is a reason not to, or no slave.
    pub mode: &'static str,
    /// Why nothing is coded though the file says so; null if there is no such reason.
    pub off_because: Option<String>,
    /// What is wrong and does not stop it; null if nothing is.
    pub warning: Option<String>,
    /// Those that sent something lately.
    pub neighbours: Vec<NeighbourStatus>,
    /// How long a packet waits for a partner at most.
    pub wait_ms: f64,
    /// Whether a pure ACK takes the place of an earlier one of its connection that waits still.
    pub thin_acks: bool,
    /// Of the master.
    pub mtu_bytes: u32,
    /// Why the slave is not used at present; null if it is.
    pub waits_because: Option<String>,
    /// Frames handed to the slave.
    pub sent_frames: u64,
    /// Of these, sums of two packets.
    pub sent_coded_frames: u64,
    /// Sums for each frame sent; null before the first.
    pub coding_ratio: Option<f64>,
    /// Frames that the slave did not take, or that waited when it went down.
    pub unsent_frames: u64,
    /// Frames dropped from the interface queue: it was full, or they had waited in it for too long (CoDel).
    pub queue_dropped_frames: u64,
    /// Packets of other nodes that were relayed, in sums or not.
    pub relayed_packets: u64,
    /// Packets that waited for a partner.
    pub held_packets: u64,
    /// Of these, gone within a millisecond.
    pub held_1ms_packets: u64,
    /// Of these, gone within ten.
    pub held_10ms_packets: u64,
    /// How long all of them waited together.
    pub held_time_ms: f64,
    /// Of those held, sent by themselves because their time was over.
    pub expired_packets: u64,
    /// Of those held, sent by themselves because there were too many.
    pub pushed_out_packets: u64,
    /// Packets decoded.
    pub decoded_packets: u64,
    /// Sums whose other packet this node does not have.
    pub missing_partner_frames: u64,
    /// Sums that came out wrong.
    pub wrong_partner_frames: u64,
    /// Frames with the NC EtherType that are none.
    pub malformed_frames: u64,
    /// Packets sent again because the neighbour did not overhear them.
    pub sent_again_packets: u64,
    /// Reports and greetings.
    pub report_frames: u64,
    /// Pure ACKs that a later one took the place of.
    pub thinned_packets: u64,
    /// Frames that the master did not take, because it is down.
    pub undelivered_frames: u64,
    /// Frames in the interface queue.
    pub queued_frames: usize,
    /// Packets that wait for a partner.
    pub waiting_packets: usize,
    /// Why none waits at present, where a node relays of late in mode `any`; null where some may.
    pub holds_nothing_because: Option<&'static str>,
    /// TCP connections known.
    pub flows: usize,
    /// Neighbours that are not coded for at present, because they miss too much of it.
    pub left_out_neighbours: usize,
    /// Copies of sent packets, to decode with.
    pub copies: usize,
    /// Packets handed to IP whose senders are remembered.
    pub arrivals: usize,
}

/// Why an interface cannot be a slave, now or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is none of that name.
    #[error("there is no interface `{0}`; make it first, or name another as `interface`")]
    Absent(String),
    /// It has no Ethernet address.
    #[error("`{0}` carries no Ethernet frames; name another as `interface`")]
    NotEthernet(String),
    /// There is no room for the header.
    #[error("the MTU of `{0}` is {1} bytes, and {LEAST_MTU} are needed; raise it")]
    Small(String, u32),
    /// Of slave or master: what the slave hears goes elsewhere, and whoever is behind a master that is in a bridge has an address
    /// of his own, while the medium knows this node's alone.
    #[error("{0}, and route to the hosts behind it")]
    Port(String),
    /// IP would run beside the master.
    #[error(
        "`{0}` has the address {1}, and IP belongs on the master; take it off with `ip address flush dev {0}`, and write it \
         as `addresses`"
    )]
    Addressed(String, IpAddr),
    /// It carries nothing at present.
    #[error("`{0}` is down, or has no carrier; `ip link set {0} up`")]
    Down(String),
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The slave cannot be used, and that will not change by itself.
    #[error("cannot code on the slave: {0}")]
    Slave(#[from] Unusable),
    /// Packet sockets, or the program at the slave.
    #[error("cannot code on `{0}`: {1}; this needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF")]
    Open(String, io::Error),
    /// The master's name is taken.
    #[error("interface `{0}` exists already; remove it with `ip link delete {0}` or choose another master")]
    MasterExists(String),
    /// The master cannot be made, or not be given its addresses.
    #[error("cannot make the master interface `{0}`: {1}; this needs CAP_NET_ADMIN and /dev/net/tun")]
    Master(String, io::Error),
    /// Descriptors or memory.
    #[error("cannot start the thread that codes: {0}; see the limits on open files and memory")]
    Resources(#[from] io::Error),
}
