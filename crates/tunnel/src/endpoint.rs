//! One end of the tunnel, sans-IO: datagrams and inner packets in, trains of datagrams and inner packets out.
//!
//! After any `handle_*`, call [`Endpoint::handle_timeout`], drain [`Endpoint::poll_transmit`] and [`Endpoint::poll_inner`],
//! then sleep until [`Endpoint::poll_timeout`] or the next event. `now` is a duration since an epoch of the caller's
//! choice; it never goes back.

mod reconfigure;
mod roster;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

use crate::address::{Address, LocalAddress, Train, Way};
use crate::config::{Config, Mtu, PeerConfig};
use crate::cookie::{CookieChecker, CookieJar, LoadGauge};
use crate::keys::{PrivateKey, PublicKey};
use crate::noise::{self, Prologue, Responder};
use crate::path::{MIN_INNER_MTU, Path};
use crate::peer::{Common, Earliest, Peer};
use crate::routes::Routes;
use crate::sessions::{Identities, Indices};
use crate::sources::Sources;
use crate::why::Why;

use crate::wire::{self, Direction, Message};
use roster::Roster;

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
/// All of them together, but for those where a peer is known to be, so many handshakes in a second, after a burst: a
/// fortieth of a processor.
const PROVEN_PER_SECOND: u32 = 400;
const PROVEN_BURST: u32 = 100;
/// So many echoes to relays in a second, after a burst.
const ECHOES_PER_SECOND: u32 = 50;
const ECHO_BURST: u32 = 100;
/// Hosts that this is remembered of.
const MAX_SOURCES: usize = 4096;
/// Messages without a peer that wait to be sent: cookie replies, relay echoes.
const MAX_REPLIES: usize = 256;

/// So often in a second it is looked up where what makes no sense comes from: enough to name the cause, too little to be
/// worth a flood.
const STRANGERS_PER_SECOND: u32 = 4;
/// A line about strangers, at most this often.
const WORDS_INTERVAL: Duration = Duration::from_secs(10);

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
    /// Inner packets larger than their peer's paths carry, answered by ICMP where that is allowed.
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
    /// Their places, by key.
    places: BTreeMap<PublicKey, usize>,
    /// Who has something to do: what happens to one of them costs nothing for the others.
    roster: Roster,
    /// Session indices, of established, pending and attempted sessions, and each peer's.
    indices: Indices,
    own_indices: Vec<Vec<u32>>,
    checker: CookieChecker,
    gauge: LoadGauge,
    cookies: LoadGauge,
    sources: Sources,
    proven: LoadGauge,
    echoes: LoadGauge,
    replies: VecDeque<(Address, Vec<u8>)>,
    to_tun: VecDeque<Vec<u8>>,
    /// Paths that came up or are not up any more.
    states: VecDeque<(usize, usize, bool)>,
    strangers: LoadGauge,
    /// What was last said of what strangers do, and when.
    word: RefCell<Option<(Duration, String)>>,
    mtu: Mtu,
    inner_mtu: u16,
    counters: Counters,
}

impl Endpoint {
    /// An end that has heard of nobody. `seed` is what all its random bytes come from.
    pub fn new(config: Config, me: PrivateKey, seed: [u8; 32]) -> Self {
        let mut rng = ChaCha20Rng::from_seed(seed);
        let public = me.public();
        let incarnation = rng.next_u64();
        let routes = routes_of(&config);
        let common = Common { scheduler: config.scheduler, mtu: config.mtu, marks: config.marks };
        let peers = config.peers.into_iter().map(|peer| peer_of(peer, common, &me, incarnation, &mut rng));
        let peers: Vec<_> = peers.collect();
        Endpoint {
            checker: CookieChecker::new(&public, &mut rng),
            gauge: LoadGauge::new(HANDSHAKES_PER_SECOND, HANDSHAKE_BURST),
            cookies: LoadGauge::new(COOKIES_PER_SECOND, COOKIE_BURST),
            proven: LoadGauge::new(PROVEN_PER_SECOND, PROVEN_BURST),
            echoes: LoadGauge::new(ECHOES_PER_SECOND, ECHO_BURST),
            sources: Sources::new(SOURCE_INTERVAL, SOURCE_BURST, MAX_SOURCES),
            me,
            public,
            rng,
            places: places_of(&peers),
            roster: Roster::new(peers.len()),
            own_indices: vec![Vec::new(); peers.len()],
            peers,
            routes,
            indices: Indices::new(),
            replies: VecDeque::new(),
            to_tun: VecDeque::new(),
            states: VecDeque::new(),
            strangers: LoadGauge::new(STRANGERS_PER_SECOND, STRANGERS_PER_SECOND),
            word: RefCell::default(),
            mtu: config.mtu,
            inner_mtu: match config.mtu {
                Mtu::Auto => MIN_INNER_MTU,
                Mtu::Fixed(mtu) => mtu,
            },
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

    /// What was last said of a handshake that this end does not take, and when.
    pub fn last_word(&self) -> Option<(Duration, String)> {
        self.word.borrow().clone()
    }

    /// The MTU that the TUN interface should have now.
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu
    }

    /// Path `path` of peer `peer` (in the order of the configuration) has a way, another one, or none any more, and why.
    /// Until it has one the path is not used.
    pub fn set_way(&mut self, now: Duration, peer: usize, path: usize, way: Result<Way, Why>) {
        self.roster.wake(peer);
        let Some(peer) = self.peers.get_mut(peer) else { return };
        let (way, why) = way.map_or_else(|why| (None, Some(why)), |way| (Some(way), None));
        if let Some(path) = peer.paths.get_mut(path) {
            path.obstacle = why;
        }
        peer.set_way(now, path, way, &self.me, &mut self.rng);
    }

    /// The same where the configuration names all by addresses: the interface or address that the path leaves by came,
    /// changed or, if `None`, went.
    pub fn set_local(&mut self, now: Duration, peer: usize, path: usize, local: Option<LocalAddress>) {
        self.roster.wake(peer);
        let Some(peer) = self.peers.get_mut(peer) else { return };
        let config = peer.paths.get(path).and_then(|path| path.config.as_ref());
        let way = local.zip(config).and_then(|(local, config)| Way::of(config, local));
        peer.set_way(now, path, way, &self.me, &mut self.rng);
    }

    /// What went to `remote` could not leave from `source`, which is no address of this host any more.
    pub fn handle_source_gone(&mut self, remote: SocketAddr, source: IpAddr) {
        for (at, peer) in self.peers.iter_mut().enumerate() {
            peer.paths.iter_mut().for_each(|path| path.handle_source_gone(remote, source));
            if peer.paths.iter().any(|path| path.probe_wanted) {
                self.roster.wake(at);
            }
        }
    }

    /// Something is amiss on the way to `remote`.
    pub fn handle_trouble(&mut self, now: Duration, remote: SocketAddr, why: &Why) {
        self.each_that_leads_to(remote, |path| path.handle_trouble(now, why.clone()));
    }

    /// A router on the way to `remote` says that something was too large. What passes is found by what arrives: this only tells
    /// a small link from a black hole.
    pub fn handle_told_size(&mut self, remote: SocketAddr) {
        self.each_that_leads_to(remote, |path| path.told_size = true);
    }

    fn each_that_leads_to(&mut self, remote: SocketAddr, mut each: impl FnMut(&mut Path)) {
        let leads = |path: &&mut Path| {
            path.address().is_some_and(|address| address.remote == remote)
                || path.relay().is_some_and(|relay| relay.remote == remote)
        };
        for (at, peer) in self.peers.iter_mut().enumerate() {
            for path in peer.paths.iter_mut().filter(leads) {
                each(path);
                self.roster.wake(at);
            }
        }
    }

    /// What came from `remote` is not what a peer there would send.
    fn handle_stranger(&mut self, now: Duration, remote: SocketAddr) {
        if !self.strangers.under_load(now) {
            self.handle_trouble(now, remote, &Why::Stranger(remote));
        }
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
                Some(&at) => {
                    self.roster.wake(at);
                    let peer = &mut self.peers[at];
                    peer.handle_transport(now, &from, arrival.tos, header, datagram, &mut self.rng);
                    self.collect_inner(at);
                }
                None => self.counters.received_unknown_session += 1,
            },
            Ok(Message::Initiation { .. }) => self.handle_initiation(now, from, datagram),
            Ok(Message::Response { receiver, .. }) => self.handle_response(now, from, receiver, datagram),
            Ok(Message::CookieReply { receiver }) => self.handle_cookie(now, from, receiver, datagram),
            Ok(Message::Registered { .. }) => self.handle_relay(now, &from, datagram),
            // Relays ask rarely: a flood that looks like them keeps no handshake from its answer.
            Ok(Message::Challenge { session, token }) if from.via.is_none() => {
                if !self.echoes.under_load(now) {
                    self.reply(from, wire::echo(session, token).to_vec());
                }
            }
            Ok(_) | Err(_) => {
                self.counters.received_invalid += 1;
                self.handle_stranger(now, arrival.remote);
            }
        }
    }

    /// The TUN gave an inner packet.
    pub fn handle_inner(&mut self, now: Duration, packet: &mut [u8]) {
        let Ok(ip) = packet::Ip::parse(packet) else { return };
        let Some(peer) = self.routes.find(ip.destination()) else {
            self.counters.dropped_no_route += 1;
            return;
        };
        let mtu = self.peers[peer].inner_mtu();
        if packet.len() > usize::from(mtu) {
            self.counters.dropped_too_big += 1;
            let mut answer = Vec::new();
            if packet::packet_too_big(packet, mtu, &mut answer) {
                self.to_tun.push_back(answer);
            }
            return;
        }
        packet::clamp_mss(packet, mtu);
        self.roster.wake(peer);
        self.peers[peer].handle_inner(now, packet);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        for at in self.roster.begin(now) {
            let peer = &mut self.peers[at];
            let mtu = peer.inner_mtu();
            peer.handle_timeout(now, &mut self.rng, &self.indices);
            peer.notice(now, |path, up| self.states.push_back((at, path, up)));
            if peer.inner_mtu() != mtu {
                self.update_mtu();
            }
            self.note_indices(at);
            self.collect_inner(at);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        let mut next = Earliest(self.roster.due());
        self.roster.awake().for_each(|at| next.add(self.peers[at].poll_timeout(now)));
        next.0
    }

    /// Fills `train` with what is to be sent next to one address; false if nothing is.
    pub fn poll_transmit(&mut self, now: Duration, train: &mut Train) -> bool {
        train.clear();
        if let Some((to, message)) = self.replies.pop_front() {
            train.put(&to, 0, |out| out.extend(message));
            return true;
        }
        // Peers take turns; who has nothing to send and carries nothing sleeps until something is due.
        while let Some(at) = self.roster.next() {
            let peer = &mut self.peers[at];
            if peer.poll_transmit(now, train) {
                self.roster.again(at);
                return true;
            }
            if peer.is_quiet(now) {
                self.roster.sleep(at, peer.poll_timeout(now));
            }
        }
        false
    }

    /// Whether a path carries data, as was said last.
    pub fn is_up(&self, peer: usize, path: usize) -> bool {
        let path = self.peers.get(peer).and_then(|peer| peer.paths.get(path));
        path.is_some_and(|path| path.said.is_up())
    }

    /// The next of the paths (peer and path in the order of the configuration) that came up, or (false) are not up any more.
    pub fn poll_state(&mut self) -> Option<(usize, usize, bool)> {
        self.states.pop_front()
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
            self.say(now, || {
                format!(
                    "a handshake from {} is for another key than this end's, {}; correct the file there",
                    from.remote, self.public
                )
            });
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
        let Some(&at) = self.places.get(&responder.peer) else {
            self.counters.refused_handshakes += 1;
            self.say(now, || {
                format!(
                    "a handshake from {} is of the key {}, which no peer in the file has",
                    from.remote, responder.peer
                )
            });
            return;
        };
        let sessions = &mut self.peers[at].sessions;
        match sessions.handle_initiation(now, responder, &mut self.rng, &self.indices) {
            Some(response) => {
                self.roster.wake(at);
                self.note_indices(at);
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
            // Whoever is at many addresses has many cookies: peers where they are known to be do not wait behind him.
            let known = self.is_known(from);
            let welcome = self.sources.take(now, host) && (known || !self.proven.under_load(now));
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
            self.handle_stranger(now, from.remote);
            return;
        }
        match self.indices.get(&receiver) {
            Some(&peer) => {
                self.roster.wake(peer);
                self.peers[peer].handle_response(now, message);
            }
            None => self.handle_relay(now, &from, message),
        }
    }

    fn handle_cookie(&mut self, now: Duration, from: Address, receiver: u32, message: &[u8]) {
        let Some(&peer) = self.indices.get(&receiver) else {
            self.handle_relay(now, &from, message);
            return;
        };
        let here = |a: Option<&Address>| a.is_some_and(|a| a.is_same_place(&from));
        for path in self.peers[peer].paths.iter_mut().filter(|p| here(p.address())) {
            path.jar.accept(now, message);
            path.handle_trouble(now, Why::Limited(from.remote));
        }
    }

    fn handle_relay(&mut self, now: Duration, from: &Address, message: &[u8]) {
        if let Some(at) = self.peers.iter_mut().position(|peer| peer.handle_relay(now, from, message)) {
            self.roster.wake(at);
        }
    }

    fn reply(&mut self, to: Address, message: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((to, message));
        }
    }

    /// Says what strangers do wrong, a few times a minute at most.
    fn say(&self, now: Duration, line: impl FnOnce() -> String) {
        let mut word = self.word.borrow_mut();
        if word.as_ref().is_none_or(|(at, _)| now >= *at + WORDS_INTERVAL) {
            let line = line();
            tracing::info!("{line}");
            *word = Some((now, line));
        }
    }

    // ---- helpers ------------------------------------------------------------------------------------------------

    /// Takes ordered packets from a peer, keeps those that it may send, and makes them fit.
    fn collect_inner(&mut self, at: usize) {
        while let Some(mut packet) = self.peers[at].poll_inner() {
            let Ok(ip) = packet::Ip::parse(&packet) else { continue };
            if self.routes.find(ip.source()) != Some(at) {
                self.peers[at].counters.received_foreign_source += 1;
                continue;
            }
            packet::clamp_mss(&mut packet, self.peers[at].inner_mtu());
            self.to_tun.push_back(packet);
        }
    }

    /// The interface takes what any peer does: the others' packets are told their size one by one.
    fn update_mtu(&mut self) {
        if self.mtu == Mtu::Auto {
            self.inner_mtu = self.peers.iter().map(Peer::inner_mtu).max().unwrap_or(MIN_INNER_MTU);
        }
    }

    /// Makes the index table say what a peer's sessions do, if they changed.
    fn note_indices(&mut self, at: usize) {
        let (peer, own) = (&self.peers[at], &mut self.own_indices[at]);
        if peer.sessions.indices().eq(own.iter().copied()) {
            return;
        }
        for index in own.drain(..) {
            self.indices.remove(&index);
        }
        own.extend(peer.sessions.indices());
        self.indices.extend(own.iter().map(|index| (*index, at)));
    }

    /// The peers are others, or in other places.
    fn list_anew(&mut self) {
        self.places = places_of(&self.peers);
        self.roster = Roster::new(self.peers.len());
        self.states.clear();
        self.indices.clear();
        self.own_indices = vec![Vec::new(); self.peers.len()];
        (0..self.peers.len()).for_each(|at| self.note_indices(at));
    }
}

fn places_of(peers: &[Peer]) -> BTreeMap<PublicKey, usize> {
    peers.iter().enumerate().map(|(at, peer)| (*peer.public_key(), at)).collect()
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
    Peer::new(config, common, ids, rng.next_u64())
}
