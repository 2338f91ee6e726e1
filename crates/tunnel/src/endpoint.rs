//! One end of the tunnel, sans-IO: datagrams and inner packets in, trains of datagrams and inner packets out.
//!
//! After any `handle_*`, call [`Endpoint::handle_timeout`], drain [`Endpoint::poll_transmit`] and [`Endpoint::poll_inner`],
//! then sleep until [`Endpoint::poll_timeout`] or the next event. `now` is a duration since an epoch of the caller's
//! choice; it never goes back.

mod reconfigure;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

use crate::address::{Address, LocalAddress, Train};
use crate::config::{Config, Mtu, PeerConfig};
use crate::cookie::{CookieChecker, CookieJar, LoadGauge};
use crate::keys::{PrivateKey, PublicKey};
use crate::noise::{self, Prologue, Responder};
use crate::path::MIN_INNER_MTU;
use crate::peer::{Common, Earliest, Peer};
use crate::routes::Routes;
use crate::sessions::{Identities, Indices};
use crate::sources::Sources;
use crate::why::Why;
use crate::wire::{self, Direction, Message};

/// More handshakes than this per second ask for cookies; bursts of [`HANDSHAKE_BURST`] do not.
const HANDSHAKES_PER_SECOND: u32 = 50;
const HANDSHAKE_BURST: u32 = 100;
/// So many cookies in a second, after a burst, to addresses that no peer is known to be at: a flood is not worth more
/// work.
const COOKIES_PER_SECOND: u32 = 5000;
const COOKIE_BURST: u32 = 500;
/// With a cookie, each host may do so often a handshake, after a burst (WireGuard's ratelimiter).
const SOURCE_INTERVAL: Duration = Duration::from_millis(50);
const SOURCE_BURST: u32 = 5;
/// Hosts that this is remembered of.
const MAX_SOURCES: usize = 4096;
/// Messages without a peer that wait to be sent: cookie replies, relay echoes.
const MAX_REPLIES: usize = 256;

/// Where a datagram came from, and how.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its source.
    pub remote: SocketAddr,
    /// The address that it was sent to and the interface that it came in by: replies leave from and by them.
    pub local: LocalAddress,
    /// Its traffic class: DSCP and ECN.
    pub tos: u8,
}

/// Counts of datagrams that belong to no peer.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Counters {
    /// Not of Nawa's wire format, or meant for a relay.
    pub received_invalid: u64,
    /// Handshake messages whose mac1 is not for this end's key.
    pub received_bad_mac1: u64,
    /// Handshakes answered by a cookie because there were too many.
    pub cookies_sent: u64,
    /// Handshakes of keys that are no peer's, or that were replayed.
    pub refused_handshakes: u64,
    /// Handshakes that got no answer, not even a cookie, because there were too many, in all or from one host.
    pub limited_handshakes: u64,
    /// Packets that name no session.
    pub received_unknown_session: u64,
    /// Inner packets to addresses that no peer is routed.
    pub dropped_no_route: u64,
    /// Inner packets larger than the tunnel's MTU, answered by ICMP where that is allowed.
    pub dropped_too_big: u64,
}

/// One end of the tunnel.
pub struct Endpoint {
    me: PrivateKey,
    public: PublicKey,
    rng: ChaCha20Rng,
    /// The other ends, in the order of the configuration.
    peers: Vec<Peer>,
    routes: Routes,
    /// Session indices, of established, pending and attempted sessions.
    indices: Indices,
    checker: CookieChecker,
    gauge: LoadGauge,
    cookies: LoadGauge,
    sources: Sources,
    replies: VecDeque<(Address, Vec<u8>)>,
    to_tun: VecDeque<Vec<u8>>,
    mtu: Mtu,
    inner_mtu: u16,
    next_peer: usize,
    counters: Counters,
}

impl Endpoint {
    /// An end that has heard of nobody. `seed` is what all its random bytes come from.
    pub fn new(config: Config, me: PrivateKey, seed: [u8; 32]) -> Self {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let public = me.public();
        let incarnation = rng.next_u64();
        let routes = routes_of(&config);
        let common = Common { scheduler: config.scheduler, mtu: config.mtu };
        let peers = config.peers.into_iter().map(|peer| peer_of(peer, common, &me, incarnation, &mut rng));
        let peers = peers.collect();
        Endpoint {
            checker: CookieChecker::new(&public, &mut rng),
            gauge: LoadGauge::new(HANDSHAKES_PER_SECOND, HANDSHAKE_BURST),
            cookies: LoadGauge::new(COOKIES_PER_SECOND, COOKIE_BURST),
            sources: Sources::new(SOURCE_INTERVAL, SOURCE_BURST, MAX_SOURCES),
            me,
            public,
            rng,
            peers,
            routes,
            indices: Indices::new(),
            replies: VecDeque::new(),
            to_tun: VecDeque::new(),
            mtu: config.mtu,
            inner_mtu: match config.mtu {
                Mtu::Auto => MIN_INNER_MTU,
                Mtu::Fixed(mtu) => mtu,
            },
            next_peer: 0,
            counters: Counters::default(),
        }
    }

    /// This end's key.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// The other ends.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Counts of what belongs to no peer.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The MTU that the TUN interface should have now.
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu
    }

    /// The interface or address that path `path` of peer `peer` (in the order of the configuration) leaves by came,
    /// changed or, if `None`, went. Until it came the path is not used.
    pub fn set_local(&mut self, now: Duration, peer: usize, path: usize, local: Option<LocalAddress>) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.set_local(now, path, local, &self.me, &mut self.rng);
        }
    }

    /// The same, with what keeps the path from leaving this host.
    pub fn set_way(&mut self, now: Duration, peer: usize, path: usize, way: Result<LocalAddress, Why>) {
        let (local, why) = way.map_or_else(|why| (None, Some(why)), |local| (Some(local), None));
        if let Some(path) = self.peers.get_mut(peer).and_then(|peer| peer.paths.get_mut(path)) {
            path.obstacle = why;
        }
        self.set_local(now, peer, path, local);
    }

    /// What went to `remote` could not leave from `source`, which is no address of this host any more.
    pub fn handle_source_gone(&mut self, remote: SocketAddr, source: IpAddr) {
        let paths = self.peers.iter_mut().flat_map(|peer| &mut peer.paths);
        paths.for_each(|path| path.handle_source_gone(remote, source));
    }

    /// A datagram came. Its bytes are overwritten.
    pub fn handle_datagram(&mut self, now: Duration, arrival: &Arrival, datagram: &mut [u8]) {
        let mut from = Address::direct(arrival.remote, arrival.local);
        let mut datagram = datagram;
        if let Some((direction, session, inner)) = wire::peel(datagram) {
            // What came down goes back up.
            let back = if direction == Direction::Up { Direction::Down } else { Direction::Up };
            from.via = Some((back, session));
            let start = datagram.len() - inner.len();
            datagram = &mut datagram[start..];
        }
        match Message::parse(datagram) {
            Ok(Message::Transport(header)) => match self.indices.get(&header.receiver) {
                Some(&peer) => {
                    let peer = &mut self.peers[peer];
                    peer.handle_transport(now, &from, arrival.tos, header, datagram, &mut self.rng);
                    self.collect_inner();
                }
                None => self.counters.received_unknown_session += 1,
            },
            Ok(Message::Initiation { .. }) => self.handle_initiation(now, from, datagram),
            Ok(Message::Response { receiver, .. }) => self.handle_response(now, from, receiver, datagram),
            Ok(Message::CookieReply { receiver }) => self.handle_cookie(now, from, receiver, datagram),
            Ok(Message::Registered { .. }) => {
                self.peers.iter_mut().any(|p| p.handle_relay(now, &from, datagram));
            }
            Ok(Message::Challenge { session, token }) if from.via.is_none() => {
                self.reply(from, wire::echo(session, token).to_vec());
            }
            Ok(_) | Err(_) => self.counters.received_invalid += 1,
        }
    }

    /// The TUN gave an inner packet.
    pub fn handle_inner(&mut self, now: Duration, packet: &mut [u8]) {
        let Ok(ip) = packet::Ip::parse(packet) else { return };
        let Some(peer) = self.routes.find(ip.destination()) else {
            self.counters.dropped_no_route += 1;
            return;
        };
        if packet.len() > usize::from(self.inner_mtu) {
            self.counters.dropped_too_big += 1;
            let mut answer = Vec::new();
            if packet::packet_too_big(packet, self.inner_mtu, &mut answer) {
                self.to_tun.push_back(answer);
            }
            return;
        }
        packet::clamp_mss(packet, self.inner_mtu);
        self.peers[peer].handle_inner(now, packet);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        for peer in &mut self.peers {
            peer.handle_timeout(now, &mut self.rng, &self.indices);
        }
        self.note_indices();
        self.update_mtu();
        self.collect_inner();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        let mut next = Earliest(None);
        self.peers.iter().for_each(|p| next.add(p.poll_timeout(now)));
        next.0
    }

    /// Fills `train` with what is to be sent next to one address; false if nothing is.
    pub fn poll_transmit(&mut self, now: Duration, train: &mut Train) -> bool {
        train.clear();
        if let Some((to, message)) = self.replies.pop_front() {
            train.put(&to, 0, |out| out.extend(message));
            return true;
        }
        // Peers take turns.
        for _ in 0..self.peers.len() {
            self.next_peer = (self.next_peer + 1) % self.peers.len();
            if self.peers[self.next_peer].poll_transmit(now, train) {
                return true;
            }
        }
        false
    }

    /// The next packet for the TUN.
    pub fn poll_inner(&mut self) -> Option<Vec<u8>> {
        self.to_tun.pop_front()
    }

    // ---- handshakes ---------------------------------------------------------------------------------------------

    fn handle_initiation(&mut self, now: Duration, from: Address, message: &[u8]) {
        let loaded = self.gauge.is_spent(now);
        let proven = loaded && self.checker.check_mac2(now, from.remote, message);
        // What most of a flood comes to ends here, before mac1 costs a hash as well.
        if loaded && !proven && self.cookies.is_spent(now) && !self.is_known(&from) {
            self.counters.limited_handshakes += 1;
            return;
        }
        if !self.checker.check_mac1(message) {
            self.counters.received_bad_mac1 += 1;
            return;
        }
        if self.gauge.under_load(now) && !self.is_welcome(now, &from, message, proven) {
            return;
        }
        let ephemeral = noise::ephemeral(message);
        if let Some((at, response)) = self
            .peers
            .iter_mut()
            .enumerate()
            .find_map(|(i, p)| Some((i, p.sessions.repeat_response(&ephemeral)?)))
        {
            self.send_response(now, at, from, response);
            return;
        }
        let Ok(responder) = Responder::read(Prologue::Tunnel, &self.me, message) else {
            self.counters.refused_handshakes += 1;
            return;
        };
        let Some(at) = self.peers.iter().position(|p| *p.public_key() == responder.peer) else {
            self.counters.refused_handshakes += 1;
            return;
        };
        let sessions = &mut self.peers[at].sessions;
        match sessions.handle_initiation(now, responder, &mut self.rng, &self.indices) {
            Some(response) => {
                self.note_indices();
                self.send_response(now, at, from, response);
            }
            None => self.counters.refused_handshakes += 1,
        }
    }

    fn send_response(&mut self, now: Duration, peer: usize, to: Address, mut response: Vec<u8>) {
        CookieJar::new(self.peers[peer].public_key()).stamp(now, &mut response);
        self.reply(to, response);
    }

    /// Under load, who cannot show that it receives at its address gets a cookie and nothing else, and who can may do a
    /// few handshakes per second. The proof (mac2) is of the address as this end sees it: through a relay, the relay's.
    fn is_welcome(&mut self, now: Duration, from: &Address, message: &[u8], proven: bool) -> bool {
        let host = from.remote.ip();
        if proven {
            let welcome = self.sources.take(now, host);
            self.counters.limited_handshakes += u64::from(!welcome);
            return welcome;
        }
        // A flood from made-up addresses does not keep a cookie from where a peer is known to be.
        if self.cookies.under_load(now) && !(self.is_known(from) && self.sources.take(now, host)) {
            self.counters.limited_handshakes += 1;
        } else if let Some(reply) = self.checker.reply(now, from.remote, message) {
            self.counters.cookies_sent += 1;
            self.reply(*from, reply.to_vec());
        }
        false
    }

    /// Whether a path of a peer's leads there.
    fn is_known(&self, from: &Address) -> bool {
        let mut addresses = self.peers.iter().flat_map(|p| &p.paths).filter_map(|path| path.address());
        addresses.any(|address| address.is_same_place(from))
    }

    fn handle_response(&mut self, now: Duration, from: Address, receiver: u32, message: &[u8]) {
        if !self.checker.check_mac1(message) {
            self.counters.received_bad_mac1 += 1;
            return;
        }
        match self.indices.get(&receiver) {
            Some(&peer) => self.peers[peer].handle_response(now, message),
            None => {
                self.peers.iter_mut().any(|p| p.handle_relay(now, &from, message));
            }
        }
    }

    fn handle_cookie(&mut self, now: Duration, from: Address, receiver: u32, message: &[u8]) {
        let Some(&peer) = self.indices.get(&receiver) else {
            self.peers.iter_mut().any(|p| p.handle_relay(now, &from, message));
            return;
        };
        let here = |a: Option<&Address>| a.is_some_and(|a| a.is_same_place(&from));
        for path in self.peers[peer].paths.iter_mut().filter(|p| here(p.address())) {
            path.jar.accept(now, message);
        }
    }

    fn reply(&mut self, to: Address, message: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((to, message));
        }
    }

    // ---- helpers ------------------------------------------------------------------------------------------------

    /// Takes ordered packets from the peers, keeps those that the peer may send, and makes them fit.
    fn collect_inner(&mut self) {
        for at in 0..self.peers.len() {
            while let Some(mut packet) = self.peers[at].poll_inner() {
                let Ok(ip) = packet::Ip::parse(&packet) else { continue };
                if self.routes.find(ip.source()) != Some(at) {
                    self.peers[at].counters.received_foreign_source += 1;
                    continue;
                }
                packet::clamp_mss(&mut packet, self.inner_mtu);
                self.to_tun.push_back(packet);
            }
        }
    }

    fn update_mtu(&mut self) {
        if self.mtu == Mtu::Auto
            && let Some(mtu) = self.peers.iter().filter_map(Peer::inner_mtu).min()
        {
            self.inner_mtu = mtu.max(MIN_INNER_MTU);
        }
    }

    /// Makes the index table say what the peers' sessions do, when they changed.
    fn note_indices(&mut self) {
        let count: usize = self.peers.iter().map(|p| p.sessions.indices().count()).sum();
        let known = |p: &Peer| p.sessions.indices().all(|i| self.indices.contains_key(&i));
        if count == self.indices.len() && self.peers.iter().all(known) {
            return;
        }
        self.rebuild_indices();
    }

    fn rebuild_indices(&mut self) {
        self.indices.clear();
        for (at, peer) in self.peers.iter().enumerate() {
            self.indices.extend(peer.sessions.indices().map(|i| (i, at)));
        }
    }
}

fn routes_of(config: &Config) -> Routes {
    let mut routes = Routes::default();
    for (index, peer) in config.peers.iter().enumerate() {
        peer.routes.iter().for_each(|net| routes.insert(*net, index));
    }
    routes
}

/// A peer that nothing was heard of; to it, this is the life `incarnation`.
fn peer_of(
    config: PeerConfig,
    common: Common,
    me: &PrivateKey,
    incarnation: u64,
    rng: &mut ChaCha20Rng,
) -> Peer {
    let ids = Identities {
        me: me.clone(),
        peer: config.public_key,
        preshared: config.preshared_key.clone(),
        incarnation,
    };
    Peer::new(config, common.scheduler, common.mtu, ids, rng.next_u64())
}
