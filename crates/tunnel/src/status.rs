//! What an endpoint shows of itself: whatever decides, with its unit.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::config::{Local, Scheduler};
use crate::endpoint::{Counters, Endpoint};
use crate::flow::copies::CopyCounters;
use crate::flow::queue::Seen;
use crate::packet_queue;
use crate::path::Path;
use crate::peer::{Change, Others, Peer, PeerCounters, why_of};
use crate::why::Why;

/// An endpoint's state.
#[derive(Clone, Debug, Serialize)]
pub struct TunnelStatus {
    /// This end's public key.
    pub public_key: String,
    /// The MTU of the TUN interface, bytes.
    pub mtu: u16,
    /// The mark of the outer packets, where the daemon gives them one; 0: none.
    pub fwmark: u32,
    /// Where packets of the default routes go; none if no peer has one.
    pub default_route: Option<DefaultRoute>,
    /// What TCP connections of this host into the tunnel use, whatever they ask for; none if that is theirs to choose.
    pub congestion_control: Option<String>,
    /// Datagrams and packets that belong to no peer.
    pub counters: Counters,
    /// The last handshake that this end does not take, and why.
    pub refused: Option<Refused>,
    /// The other ends.
    pub peers: Vec<PeerStatus>,
}

/// Where packets go that no narrower route leads anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DefaultRoute {
    /// Those of IPv4.
    pub ipv4: Leads,
    /// Those of IPv6.
    pub ipv6: Leads,
}

/// Where such packets of a family go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leads {
    /// What becomes of them.
    pub goes: Goes,
    /// The peer that has the route.
    pub peer: Option<String>,
}

/// What becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goes {
    /// They go through the tunnel.
    Tunnel,
    /// They go nowhere, for no path is up: the tunnel fails closed.
    Held,
    /// They leave beside the tunnel for the same reason: it fails open.
    Clear,
    /// They leave beside it, for no peer has such a route, or another program's comes before it.
    Beside,
}

/// A handshake that is not taken.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// How long ago, s.
    pub ago_s: f64,
    /// From where, and what is wrong with it.
    pub why: String,
}

/// A peer's state.
#[derive(Clone, Debug, Serialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Its public key.
    pub public_key: String,
    /// Inner prefixes that it may use and is routed.
    pub routes: Vec<ipnet::IpNet>,
    /// Whether there are keys and a path to send on, and packets of its default route do not leave beside the tunnel.
    pub up: bool,
    /// What is amiss with it, whatever its paths are like.
    pub why: Option<String>,
    /// How packets are spread.
    pub scheduler: Scheduler,
    /// Whether what a path loses is sent again over another.
    pub resend: bool,
    /// What data is sealed with.
    pub cipher: Option<crate::handshake::session::Cipher>,
    /// Age of the session, s.
    pub session_age_s: Option<f64>,
    /// Bytes of inner packets waiting to be sent.
    pub queue_bytes: usize,
    /// Inner packets dropped to keep the queue short (CoDel).
    pub queue_dropped_packets: u64,
    /// Inner packets marked for the same reason (ECN).
    pub queue_marked_packets: u64,
    /// TCP flows whose windows say what they may have in flight, so that no loss has to.
    pub limited_flows: usize,
    /// The flows away from this end that sent most of late, up to 16.
    pub flows: Vec<FlowStatus>,
    /// Bytes kept to be sent again.
    pub unconfirmed_bytes: usize,
    /// Bytes waiting behind gaps.
    pub reorder_bytes: usize,
    /// Inner packets sent again on another path.
    pub resent_packets: u64,
    /// Inner packets that were never confirmed.
    pub given_up_packets: u64,
    /// What went over two paths; none if nothing is to.
    pub bicast: Option<CopyCounters>,
    /// How much faster the peer's clock runs than this end's, parts per million, as delays show it.
    pub clock_skew_ppm: f64,
    /// Inner packets received.
    pub order: packet_queue::Counters,
    /// What was refused.
    pub counters: PeerCounters,
    /// Its paths.
    pub paths: Vec<PathStatus>,
}

/// A flow of inner packets away from this end.
#[derive(Clone, Debug, Serialize)]
pub struct FlowStatus {
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, or IP's number of the protocol.
    pub protocol: String,
    /// Its address, and port if it has one, at this end.
    pub source: String,
    /// Where it goes.
    pub destination: String,
    /// What it has sent of late.
    pub rate_bps: f64,
    /// Bytes of it that wait to be sent.
    pub queue_bytes: usize,
    /// Whether its window says what it may have in flight.
    pub limited: bool,
}

/// A path's state. Rates and round trips are those of the direction away from this end.
#[derive(Clone, Debug, Serialize)]
pub struct PathStatus {
    /// Unique in the life of the daemon that lists it.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// `up`, `silent` (nothing comes back), `checking` (not proved yet) or `down` (no interface or relay session).
    pub state: &'static str,
    /// What keeps it from being `up`, from carrying packets both ways, or from being used; none if nothing does.
    pub why: Option<String>,
    /// The same in a word, for scripts; `carries`, `silent`, `not-proved` or `leads-nowhere` where there is no sentence.
    pub cause: &'static str,
    /// What became of it, the newest last.
    pub changes: Vec<ChangeStatus>,
    /// Used only while no other path works.
    pub backup: bool,
    /// Paid for by the byte.
    pub metered: bool,
    /// Used only where paths with lower ones are full.
    pub prefer: u8,
    /// Listed by this end.
    pub listed: bool,
    /// Where it leaves this host, where the configuration says so: an interface or an address.
    pub local: Option<String>,
    /// Whether the peer sends on it beside others, on a path that this end lists.
    pub receive: Option<bool>,
    /// Where its datagrams go: the peer's address or the relay's.
    pub remote: Option<SocketAddr>,
    /// Whether through a relay.
    pub relayed: bool,
    /// Whether by TLS to there, on a path that this end lists.
    pub tls: bool,
    /// Marks that it drops packets for, which therefore have none: `DSCP`, `ECN`.
    pub marks_left_off: Vec<&'static str>,
    /// It marks packets as congested that may not be marked, and so its marks are ignored.
    pub marks_ignored: bool,
    /// Others' traffic fills its link's queue, so that this end has as much in flight as a CUBIC flow would.
    pub competes: bool,
    /// Largest outer packet that passes, bytes.
    pub mtu: u16,
    /// Smoothed round-trip time.
    pub rtt_ms: Option<f64>,
    /// Least round-trip time of the last round, without this end's queue on the path.
    pub rtt_min_ms: Option<f64>,
    /// One-way delay beyond that of the fastest path.
    pub delay_over_best_ms: Option<f64>,
    /// What the path delivers.
    pub rate_bps: Option<f64>,
    /// The paper's weight: its share, 0 to 1, among those that are up, and 0 if it is not.
    pub weight: f64,
    /// Bytes that may be in flight, and are.
    pub window_bytes: usize,
    /// Bytes in flight.
    pub in_flight_bytes: usize,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of UDP payload sent.
    pub sent_bytes: u64,
    /// Packets sent that did not arrive.
    pub lost_packets: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes of UDP payload received.
    pub received_bytes: u64,
}

/// A change of a path's state, or of its reason.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeStatus {
    /// How long ago, s.
    pub ago_s: f64,
    /// As of a path.
    pub state: &'static str,
    /// As of a path.
    pub cause: &'static str,
    /// The reason, and the number that decided.
    pub why: String,
}

impl Endpoint {
    /// What it shows.
    pub fn status(&self, now: Duration) -> TunnelStatus {
        TunnelStatus {
            public_key: self.public_key().to_string(),
            mtu: self.inner_mtu(),
            fwmark: 0,
            default_route: self.default_route(),
            congestion_control: self.congestion_control().map(str::to_owned),
            counters: *self.counters(),
            refused: self
                .last_word()
                .map(|(at, why)| Refused { ago_s: now.saturating_sub(at).as_secs_f64(), why }),
            peers: self.peers().iter().map(|p| self.peer_status(p, now)).collect(),
        }
    }

    fn peer_status(&self, peer: &Peer, now: Duration) -> PeerStatus {
        let mut status = peer_status(peer, now);
        let exit = peer.config.routes.iter().any(|net| net.prefix_len() == 0);
        if exit && status.why.is_none() {
            let why = match (self.fails_open(), peer.carries()) {
                (true, _) => Some(Why::FailsOpen),
                (false, false) => Some(Why::HeldBack),
                (false, true) => None,
            };
            // What should go to it goes elsewhere, whatever is tried on a path that is silent for a moment.
            status.up &= why != Some(Why::FailsOpen);
            status.why = why.map(|why| why.to_string());
        }
        status
    }

    fn default_route(&self) -> Option<DefaultRoute> {
        let exit = |v4: bool| {
            let leads = |net: &ipnet::IpNet| net.prefix_len() == 0 && net.addr().is_ipv4() == v4;
            self.peers().iter().find(|peer| peer.config.routes.iter().any(leads))
        };
        let leads = |v4: bool, peer: Option<&Peer>| Leads {
            goes: match peer {
                None => Goes::Beside,
                Some(peer) if peer.beside.as_ref().is_some_and(|why| why.is_of_default(v4)) => Goes::Beside,
                Some(_) if self.fails_open() => Goes::Clear,
                Some(peer) if peer.carries() => Goes::Tunnel,
                Some(_) => Goes::Held,
            },
            peer: peer.map(|peer| peer.config.name.clone()),
        };
        let (ipv4, ipv6) = (exit(true), exit(false));
        (ipv4.is_some() || ipv6.is_some())
            .then(|| DefaultRoute { ipv4: leads(true, ipv4), ipv6: leads(false, ipv6) })
    }
}

fn peer_status(peer: &Peer, now: Duration) -> PeerStatus {
    let (given_up_packets, resent_packets) = peer.unconfirmed.totals();
    let (queue_dropped_packets, queue_marked_packets) = peer.queue.totals();
    let session = peer.sessions.current(now);
    let others = peer.others();
    let best = peer.paths.iter().filter_map(|p| p.delay).min();
    // The weights' own sum is 1 only after the first period.
    let weights = peer.paths.iter().filter(|p| p.is_up()).map(|p| p.weight.get()).sum();
    PeerStatus {
        name: peer.config.name.clone(),
        public_key: peer.config.public_key.to_string(),
        routes: peer.config.routes.clone(),
        up: peer.can_send(now),
        why: peer.why(now).map(|why| why.to_string()),
        scheduler: peer.scheduler,
        resend: peer.unconfirmed.repeats(),
        cipher: session.map(|s| s.cipher),
        session_age_s: session.map(|s| s.age(now).as_secs_f64()),
        queue_bytes: peer.queue.bytes(),
        queue_dropped_packets,
        queue_marked_packets,
        limited_flows: peer.queue.limited_flows(),
        flows: peer.queue.flows(now).iter().map(flow_status).collect(),
        unconfirmed_bytes: peer.unconfirmed.bytes(),
        reorder_bytes: peer.ordered.held_bytes(),
        resent_packets,
        given_up_packets,
        bicast: peer.copies.as_ref().map(|copies| copies.counters().clone()),
        clock_skew_ppm: peer.skew.ppm(),
        order: *peer.ordered.counters(),
        counters: peer.counters,
        paths: peer.paths.iter().map(|p| path_status(p, others, (best, weights), now)).collect(),
    }
}

fn flow_status(flow: &Seen) -> FlowStatus {
    let [source, destination] = flow.name.ends();
    let protocol = match flow.name.protocol {
        packet::ip::TCP => "tcp".to_owned(),
        packet::ip::UDP => "udp".to_owned(),
        1 => "icmp".to_owned(),
        58 => "icmpv6".to_owned(),
        packet::ip::SCTP => "sctp".to_owned(),
        number => number.to_string(),
    };
    let Seen { rate, waiting, limited, .. } = *flow;
    FlowStatus { protocol, source, destination, rate_bps: rate * 8.0, queue_bytes: waiting, limited }
}

fn path_status(
    path: &Path,
    others: Others,
    (best_delay, weights): (Option<i64>, f64),
    now: Duration,
) -> PathStatus {
    let why = why_of(path, others, now);
    let change = |one: &Change| ChangeStatus {
        ago_s: now.saturating_sub(one.at).as_secs_f64(),
        state: one.state.name(),
        cause: one.cause,
        why: one.why.clone(),
    };
    let (sent_packets, sent_bytes, lost_packets) = path.sent.totals();
    PathStatus {
        id: path.id,
        name: path.name.clone(),
        state: path.state().name(),
        cause: path.cause(why.as_ref()),
        why: why.map(|why| why.to_string()),
        changes: path.log.changes.iter().map(change).collect(),
        backup: path.backup,
        metered: path.cost.metered,
        prefer: path.cost.prefer,
        listed: path.config.is_some(),
        local: path.config.as_ref().and_then(|config| local(&config.local)),
        receive: path.config.as_ref().map(|config| config.receive),
        remote: path.address().map(|a| path.tls().unwrap_or(a.remote)),
        tls: path.tls().is_some(),
        relayed: path.address().is_some_and(|a| a.via.is_some()),
        marks_left_off: path.marked.left_off().collect(),
        marks_ignored: path.marked.is_forged(now),
        competes: path.sent.rate.competes(),
        mtu: path.mtu.carried(),
        rtt_ms: path.sent.rtt().smoothed().map(millis),
        rtt_min_ms: path.sent.rate.trip().map(millis),
        delay_over_best_ms: path.delay.zip(best_delay).map(|(d, b)| (d - b) as f64 / 1e3),
        rate_bps: path.sent.rate.bytes_per_second().map(|r| r * 8.0),
        weight: if path.is_up() { path.weight.get() / weights } else { 0.0 },
        window_bytes: path.sent.window(now),
        in_flight_bytes: path.sent.in_flight(),
        sent_packets,
        sent_bytes,
        lost_packets,
        received_packets: path.received.packets(),
        received_bytes: path.received.bytes(),
    }
}

fn local(local: &Local) -> Option<String> {
    match local {
        Local::Any => None,
        Local::Interface(name) => Some(name.clone()),
        Local::Address(ip) => Some(ip.to_string()),
    }
}

fn millis(t: Duration) -> f64 {
    t.as_secs_f64() * 1e3
}
