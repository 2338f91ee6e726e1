//! One end of the tunnel, sans-IO: datagrams and inner packets in, trains of datagrams and inner packets out.
//!
//! After any `handle_*`, call [`Endpoint::handle_timeout`], drain [`Endpoint::poll_transmit`] and [`Endpoint::poll_inner`],
//! then sleep until [`Endpoint::poll_timeout`] or the next event. `now` is a duration since an epoch of the caller's
//! choice; it never goes back.

mod answers;
mod handshakes;
mod known;
mod limits;
mod names;
mod reconfigure;
mod roster;
pub mod routes;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand_core::{RngCore, SeedableRng};

use crate::capture::Direction::{In, Out};
use crate::capture::{self, Captured, Ends};
use crate::config::{Config, Mtu, PeerConfig};
use crate::endpoint::routes::Routes;
use crate::handshake::cookie::{CookieChecker, LoadGauge};
use crate::handshake::erasing_rng::ErasingRng;
use crate::handshake::sessions::Identities;
use crate::keys::{PrivateKey, PublicKey};
use crate::path::{MIN_INNER_MTU, Path};
use crate::peer::{Common, Earliest, Peer, State};
use crate::why::{Larger, Why};
use crate::wire::address::{Address, LocalAddress, Way};
use crate::wire::train::Train;

use crate::wire::{self, Direction, Message};
use answers::{Answers, Responses};
pub use answers::{Done, Work};
use known::Known;
use limits::{Limits, Words};
use names::Names;
use roster::Roster;

/// So often in a second it is looked up where what makes no sense comes from: enough to name the cause, too little to be
/// worth a flood.
const STRANGERS_PER_SECOND: u32 = 4;

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
    /// Packets that name no session, and messages of relays from where there is none.
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
    rng: ErasingRng,
    /// The other ends, in the order of the configuration.
    peers: Vec<Peer>,
    routes: Routes,
    /// Their places, by key.
    places: BTreeMap<PublicKey, usize>,
    /// Who has something to do: what happens to one of them costs nothing for the others.
    roster: Roster,
    /// What datagrams call the peers' sessions.
    names: Names,
    /// Where peers are known to be, and initiations that are to be answered.
    known: Known,
    answers: Answers,
    responses: Responses,
    checker: CookieChecker,
    limits: Limits,
    replies: VecDeque<(Address, Vec<u8>)>,
    to_tun: VecDeque<Vec<u8>>,
    /// Paths that came up or are not up any more.
    states: VecDeque<(usize, usize, bool)>,
    strangers: LoadGauge,
    /// What was last said of what strangers do, and when.
    word: RefCell<Words>,
    mtu: Mtu,
    inner_mtu: u16,
    fail_open: bool,
    congestion_control: Option<String>,
    counters: Counters,
    /// What a capture has not taken yet; `None` while nobody captures.
    captured: Option<Vec<Captured>>,
}

impl Endpoint {
    /// An end that has heard of nobody. 32 bytes are drawn from `rng`.
    pub fn new(config: Config, me: PrivateKey, rng: &mut impl RngCore) -> Self {
        let mut rng = ErasingRng::from_rng(rng);
        let public = me.public();
        let incarnation = rng.next_u64();
        let routes = routes_of(&config);
        let common = Common::of(&config);
        let peers = config.peers.into_iter().map(|peer| peer_of(peer, common, &me, incarnation, &mut rng));
        let peers: Vec<_> = peers.collect();
        Endpoint {
            checker: CookieChecker::new(&public, &mut rng),
            limits: Limits::default(),
            me,
            public,
            rng,
            places: places_of(&peers),
            roster: Roster::new(peers.len()),
            names: Names::new(peers.len()),
            known: Known::default(),
            answers: Answers::default(),
            responses: Responses::default(),
            peers,
            routes,
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
            fail_open: config.fail_open,
            congestion_control: config.congestion_control,
            counters: Counters::default(),
            captured: None,
        }
    }

    /// What TCP connections of this host into the tunnel use, if it is chosen for them.
    pub fn congestion_control(&self) -> Option<&str> {
        self.congestion_control.as_deref()
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
        self.word.borrow().last.clone()
    }

    /// The MTU that the TUN interface should have now.
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu
    }

    /// Path `path` of peer `peer` (in the order of the configuration) has a way, another one, or none any more, and why.
    /// Until it has one the path is not used.
    pub fn set_way(&mut self, now: Duration, peer: usize, path: usize, way: Result<Way, Why>) {
        self.roster.wake(peer);
        self.known = Known::default();
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
        self.known = Known::default();
        let Some(peer) = self.peers.get_mut(peer) else { return };
        let config = peer.paths.get(path).and_then(|path| path.config.as_ref());
        let way = local.zip(config).and_then(|(local, config)| Way::of(config, local));
        peer.set_way(now, path, way, &self.me, &mut self.rng);
    }

    /// Why packets that are routed to `peer` (in the order of the configuration) do not come to this end, if some do not.
    pub fn set_beside(&mut self, peer: usize, why: Option<Why>) {
        self.roster.wake(peer);
        self.peers.get_mut(peer).into_iter().for_each(|peer| peer.beside.clone_from(&why));
    }

    /// Whether a path leads or is registered there, or was a second ago. What strangers bring about, a flood of it, ends with this
    /// question: it costs the same whatever the number of peers.
    pub fn leads_to(&mut self, now: Duration, remote: SocketAddr) -> bool {
        self.known.has_host(now, remote, &self.peers)
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

    /// A packet of `size` bytes to `remote` was too large, as `by` says. What passes is found by what arrives: this only tells a small
    /// link from a black hole.
    pub fn handle_too_large(&mut self, remote: SocketAddr, size: u16, by: Larger) {
        self.each_that_leads_to(remote, |path| path.mtu.handle_too_large(size, by));
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

    /// Notes every packet from now on, or no longer. Whoever wants notes of what is sent gives trains that have some.
    pub fn set_captured(&mut self, on: bool) {
        if on == self.captured.is_some() {
            return;
        }
        self.captured = on.then(Vec::new);
        self.peers.iter_mut().for_each(|peer| peer.set_noted(on));
    }

    /// What was noted of packets that came, and of inner ones that went nowhere, since the last time.
    pub fn take_captured(&mut self) -> Vec<Captured> {
        let Some(captured) = &mut self.captured else { return Vec::new() };
        for peer in &mut self.peers {
            let dropped = peer.queue.take_noted();
            let name = Some(peer.config.name.as_str());
            captured.extend(dropped.iter().map(|(packet, why)| capture::dropped(Out, name, packet, why)));
        }
        std::mem::take(captured)
    }

    fn note_dropped(&mut self, peer: Option<usize>, packet: &[u8], why: &str) {
        if let Some(captured) = &mut self.captured {
            let peer = peer.map(|at| self.peers[at].config.name.as_str());
            captured.push(capture::dropped(Out, peer, packet, why));
        }
    }

    /// A datagram came. Its bytes are overwritten.
    pub fn handle_datagram(&mut self, now: Duration, arrival: &Arrival, datagram: &mut [u8]) {
        if self.captured.is_none() {
            self.take_datagram(now, arrival, datagram);
            return;
        }
        let sealed = datagram.to_vec();
        let taken_by = self.take_datagram(now, arrival, datagram);
        let Arrival { remote, local, tos } = *arrival;
        let ends = Ends { remote, local, tos };
        let captured = self.captured.get_or_insert_default();
        let peer = taken_by.and_then(|at| self.peers.get_mut(at));
        let opened = peer.and_then(|peer| Some((peer.noted.as_mut()?.opened.take()?, &peer.config.name)));
        match opened {
            Some((opened, peer)) => opened.note(In, peer, ends, &sealed, |one| captured.push(one)),
            None => captured.push(capture::other(In, ends, &sealed, "")),
        }
    }

    /// The place of the peer whose session a transport packet names.
    fn take_datagram(&mut self, now: Duration, arrival: &Arrival, datagram: &mut [u8]) -> Option<usize> {
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
            Ok(Message::Transport(header)) => match self.names.of_index(header.receiver) {
                Some(at) => {
                    self.roster.wake(at);
                    let peer = &mut self.peers[at];
                    peer.handle_transport(now, &from, arrival.tos, header, datagram, &mut self.rng);
                    self.collect_inner(at);
                    return Some(at);
                }
                None => self.counters.received_unknown_session += 1,
            },
            Ok(Message::Initiation { .. }) => self.handle_initiation(now, from, datagram),
            Ok(Message::Response { receiver, .. }) => self.handle_response(now, from, receiver, datagram),
            Ok(Message::CookieReply { receiver }) => self.handle_cookie(now, from, receiver, datagram),
            Ok(Message::Registered { .. }) => self.handle_relay(now, &from, datagram),
            // Relays ask rarely: a flood that looks like one keeps no handshake from its answer, and no other relay from its echo.
            Ok(Message::Challenge { session, token }) if from.via.is_none() => {
                if self.limits.echoes.take(now, from.remote.ip()) {
                    self.reply(from, wire::echo(session, token).to_vec());
                }
            }
            Ok(_) | Err(_) => {
                self.counters.received_invalid += 1;
                self.handle_stranger(now, arrival.remote);
            }
        }
        None
    }

    /// The TUN gave an inner packet.
    pub fn handle_inner(&mut self, now: Duration, packet: &mut [u8]) {
        let Ok(ip) = packet::Ip::parse(packet) else { return };
        let Some(peer) = self.routes.find(ip.destination()) else {
            // What the host's own kernel says to its link is for no peer.
            if ip.destination().is_multicast() {
                return;
            }
            self.counters.dropped_no_route += 1;
            self.note_dropped(None, packet, "no peer is routed its destination; its sender is told");
            let mut answer = Vec::new();
            if packet::unreachable(packet, &mut answer) {
                self.to_tun.push_back(answer);
            }
            return;
        };
        let mtu = self.peers[peer].inner_mtu();
        if packet.len() > usize::from(mtu) {
            self.counters.dropped_too_big += 1;
            self.note_dropped(Some(peer), packet, "it is larger than the paths carry; its sender is told");
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

    /// This host stood still until now, suspended or stopped.
    pub fn handle_stop(&mut self, now: Duration) {
        for (at, peer) in self.peers.iter_mut().enumerate() {
            peer.paths.iter_mut().for_each(|path| path.sent.handle_stop(now));
            self.roster.wake(at);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        for at in self.roster.begin(now) {
            let peer = &mut self.peers[at];
            let mtu = peer.inner_mtu();
            peer.handle_timeout(now, &mut self.rng, self.names.indices());
            peer.notice(now, |path, up| self.states.push_back((at, path, up)));
            if peer.inner_mtu() != mtu {
                self.update_mtu();
            }
            self.names.note(at, &self.peers[at].sessions);
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
        // Peers take turns; who has nothing to send sleeps until something is due or happens, but for one whose packets wait for room.
        while let Some(at) = self.roster.next() {
            let peer = &mut self.peers[at];
            if peer.poll_transmit(now, train) {
                self.roster.again(at);
                return true;
            }
            if !(peer.is_waiting() && peer.can_send(now)) {
                self.roster.sleep(at, peer.poll_timeout(now));
            }
        }
        false
    }

    /// Whether a path carries data, as was said last.
    pub fn is_up(&self, peer: usize, path: usize) -> bool {
        let path = self.peers.get(peer).and_then(|peer| peer.paths.get(path));
        path.is_some_and(|path| path.log.state == State::Up)
    }

    /// Whether there is a path, as was said last, to every peer that has a default route.
    pub fn leads_out(&self) -> bool {
        let is_exit = |peer: &&Peer| peer.config.routes.iter().any(|net| net.prefix_len() == 0);
        self.peers.iter().filter(is_exit).all(Peer::leads_out)
    }

    /// Whether packets of the default routes leave beside the tunnel at present.
    pub fn fails_open(&self) -> bool {
        self.fail_open && !self.leads_out()
    }

    /// The next of the paths (peer and path in the order of the configuration) that came up, or (false) are not up any more.
    pub fn poll_state(&mut self) -> Option<(usize, usize, bool)> {
        self.states.pop_front()
    }

    /// The next packet for the TUN.
    pub fn poll_inner(&mut self) -> Option<Vec<u8>> {
        self.to_tun.pop_front()
    }

    // ---- helpers ------------------------------------------------------------------------------------------------

    /// Takes ordered packets from a peer, keeps those that it may send, and makes them fit.
    fn collect_inner(&mut self, at: usize) {
        while let Some(mut packet) = self.peers[at].poll_inner() {
            let Ok(ip) = packet::Ip::parse(&packet) else {
                self.peers[at].counters.received_malformed += 1;
                continue;
            };
            if self.routes.find(ip.source()) != Some(at) {
                self.peers[at].counters.received_foreign_source += 1;
                if let Some(captured) = &mut self.captured {
                    let peer = Some(self.peers[at].config.name.as_str());
                    captured.push(capture::dropped(In, peer, &packet, "its source is not the peer's"));
                }
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

    /// The peers are others, or in other places.
    fn list_anew(&mut self) {
        self.places = places_of(&self.peers);
        if self.captured.is_some() {
            self.peers.iter_mut().filter(|peer| peer.noted.is_none()).for_each(|peer| peer.set_noted(true));
        }
        self.roster = Roster::new(self.peers.len());
        self.states.clear();
        self.known = Known::default();
        // Peers ask again.
        self.answers = Answers::default();
        self.names = Names::new(self.peers.len());
        self.peers.iter().enumerate().for_each(|(at, peer)| self.names.note(at, &peer.sessions));
    }
}

fn places_of(peers: &[Peer]) -> BTreeMap<PublicKey, usize> {
    peers.iter().enumerate().map(|(at, peer)| (peer.config.public_key, at)).collect()
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
    rng: &mut impl RngCore,
) -> Peer {
    let ids = Identities {
        me: me.clone(),
        peer: config.public_key,
        preshared: config.preshared_key.clone(),
        incarnation,
    };
    Peer::new(config, common, ids, rng.next_u64())
}
