//! A hub that is flooded with handshakes by many hosts that have cookies, of many networks or of one: how long a peer's own handshake waits.
//!
//! `cargo test --release -p nawa --test hub_flood -- --nocapture` prints it. The peers are the tunnel's core, the hub is `nawa run`.

mod common;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use common::hub::{HUB, HUB_V6, Net, place, place_v6};
use common::uplinks::shell;
use common::{namespaces_or_skip, pause};
use device::UdpSocket;
use device::poller::boottime;
use device::udp::{Options, RecvBatch, Transmit};
use rand_core::{OsRng, TryRngCore};
use tunnel::endpoint::{Arrival, Endpoint};
use tunnel::handshake::cookie::CookieJar;
use tunnel::handshake::noise::{InitiationPayload, Initiator, Prologue};
use tunnel::wire::train::Train;
use tunnel::{PresharedKey, PrivateKey};

/// So many initiations, from so many networks of 256 addresses each, in so long.
const INITIATIONS: usize = 16_384;
const NETWORKS: u32 = 4096;
const TIME: Duration = Duration::from_millis(200);
/// So many floods, and so many peers, one of which shakes hands amid each.
const FLOODS: usize = 5;
/// From one network of IPv6 come so many each millisecond, as long as the peer needs, and at least so long and so many.
const EACH_MS: usize = 20;
const LEAST: Duration = Duration::from_secs(1);
const LEAST_INITIATIONS: usize = 10_000;
/// So many handshakes without a question a hub does at once and in a second, and so many for one host, be that a whole network of IPv6
/// (`endpoint/limits.rs`).
const UNASKED: [f64; 2] = [100.0, 50.0];
const OF_A_HOST: [f64; 2] = [5.0, 20.0];

/// How often all have their turn.
const TURN: Duration = Duration::from_millis(1);

fn host(network: u32) -> IpAddr {
    Ipv4Addr::from(0x0a60_0001 + (network << 8)).into()
}

/// All are of one network.
fn host_v6(number: u32) -> IpAddr {
    Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, (number >> 16) as u16, number as u16).into()
}

/// A peer's core and its socket.
struct Peer {
    end: Endpoint,
    socket: UdpSocket,
    train: Train,
}

impl Peer {
    fn new(net: &Net, at: usize) -> Self {
        Self::to(net, at, HUB.into(), place(at).into())
    }

    fn to(net: &Net, at: usize, hub: SocketAddr, from: IpAddr) -> Self {
        let socket = UdpSocket::bind((from, 4000).into(), Options::default()).expect("a socket");
        Self { end: net.end_to(at, hub), socket, train: Train::default() }
    }

    fn turn(&mut self, now: Duration, batch: &mut RecvBatch) {
        let end = &mut self.end;
        let _nothing = self.socket.recv(batch, |meta, datagram| {
            let arrival = Arrival { remote: meta.remote, local: Default::default(), tos: 0 };
            end.handle_datagram(now, &arrival, datagram);
        });
        self.end.work(now);
        self.end.handle_timeout(now);
        while self.end.poll_transmit(now, &mut self.train) {
            let to = self.train.to.expect("a train goes somewhere").remote;
            for datagram in self.train.datagrams() {
                self.socket.send(&[transmit(to, None, datagram)]);
            }
        }
        while self.end.poll_inner().is_some() {}
    }

    fn has_session(&self, now: Duration) -> bool {
        self.end.peers()[0].sessions.current(now).is_some()
    }

    /// Shakes hands before a flood.
    fn become_known(&mut self, batch: &mut RecvBatch) {
        let deadline = boottime() + common::PATIENCE;
        while !self.has_session(boottime()) {
            assert!(boottime() < deadline, "a session before the flood");
            self.turn(boottime(), batch);
            pause(TURN);
        }
        // The hub looks where its peers are once in a second, while handshakes are many.
        let known = boottime() + Duration::from_secs(1);
        while boottime() < known {
            self.turn(boottime(), batch);
            pause(TURN);
        }
    }
}

fn transmit(remote: SocketAddr, local: Option<IpAddr>, contents: &[u8]) -> Transmit<'_> {
    Transmit { remote, local, interface: None, tos: 0, segment_size: None, contents }
}

/// The hosts that flood, and their cookies.
struct Strangers {
    socket: UdpSocket,
    message: Vec<u8>,
    jars: Vec<CookieJar>,
    hub: SocketAddr,
    /// Where each is, and the other way around.
    host: fn(u32) -> IpAddr,
    places: BTreeMap<IpAddr, usize>,
}

impl Strangers {
    fn new(net: &Net, hub: SocketAddr, host: fn(u32) -> IpAddr) -> Self {
        let to = net.node.public_key.parse().expect("the hub's key");
        let mut rng = OsRng.unwrap_err();
        let key = PrivateKey::generate(&mut rng);
        let payload =
            InitiationPayload { incarnation: 1, counter: 1, fast_aes: false, pieces: true }.encode();
        let none = PresharedKey::default();
        let started = Initiator::new(&mut rng, Prologue::Tunnel, &key, &to, &none, 7, &payload);
        let any: IpAddr =
            if hub.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        Self {
            socket: UdpSocket::bind((any, 5000).into(), Options::default()).expect("a socket"),
            message: started.expect("usable keys").1,
            jars: (0..NETWORKS).map(|_| CookieJar::new(&to)).collect(),
            hub,
            host,
            places: (0..NETWORKS).map(|number| (host(number), number as usize)).collect(),
        }
    }

    /// The `n`th initiation of a flood: with another ephemeral key each time.
    fn initiation(&mut self, now: Duration, n: usize) -> (IpAddr, Vec<u8>) {
        let network = n % NETWORKS as usize;
        let mut stamped = self.message.clone();
        stamped[8..16].copy_from_slice(&(n as u64 + 1).to_be_bytes());
        self.jars[network].stamp(now, &mut stamped);
        ((self.host)(network as u32), stamped)
    }

    fn send(&self, flood: &[(IpAddr, Vec<u8>)]) {
        let all: Vec<_> = flood.iter().map(|(from, bytes)| transmit(self.hub, Some(*from), bytes)).collect();
        let failures = self.socket.send(&all);
        assert!(failures.is_empty(), "{:?}", failures.first());
    }

    /// Takes the cookies that have come.
    fn take(&mut self, now: Duration, batch: &mut RecvBatch) {
        let Self { socket, jars, places, .. } = self;
        let mut some = true;
        while some {
            let received = socket.recv(batch, |meta, datagram| {
                let Some(place) = meta.local.and_then(|to| places.get(&to).copied()) else { return };
                jars[place].accept(now, datagram);
            });
            some = received.is_ok();
        }
    }

    /// Asks until every host has a cookie.
    fn get_cookies(&mut self) {
        let (mut batch, deadline) = (RecvBatch::default(), boottime() + common::PATIENCE);
        let mut n = 0;
        loop {
            let now = boottime();
            self.take(now, &mut batch);
            let without: Vec<_> = (0..NETWORKS as usize)
                .filter(|network| !self.jars[*network].has_cookie(now))
                .take(64)
                .collect();
            if without.is_empty() {
                return;
            }
            assert!(now < deadline, "host {} never gets a cookie", without[0]);
            n += NETWORKS as usize;
            let some: Vec<_> = without.iter().map(|network| self.initiation(now, n + network)).collect();
            self.send(&some);
            pause(TURN);
        }
    }
}

#[test]
fn a_peer_shakes_hands_amid_a_flood() {
    let Some(_alone) = namespaces_or_skip("a_peer_shakes_hands_amid_a_flood") else { return };
    let net = Net::new(FLOODS);
    // All hosts of 10.96.0.0/12 are this one.
    net.peers.ip("route add local 10.96.0.0/12 dev lo");
    net.hub.ip("route add 10.96.0.0/12 via 10.5.0.2");
    let _hub = net.start();
    let took = net.peers.within(|| {
        let mut batch = RecvBatch::default();
        let mut strangers = Strangers::new(&net, HUB.into(), host);
        strangers.get_cookies();
        let mut took = Vec::new();
        for at in 0..FLOODS {
            // The hub knows where the peer is, and the peer begins anew.
            let mut peer = Peer::new(&net, at);
            peer.become_known(&mut batch);
            peer.end = net.end(at);
            let now = boottime();
            let flood: Vec<_> = (0..INITIATIONS).map(|n| strangers.initiation(now, n)).collect();
            let (start, mut sent, mut begun, mut done) = (boottime(), 0, None, None);
            while done.is_none() {
                let now = boottime();
                let due =
                    INITIATIONS.min((INITIATIONS as f64 * (now - start).div_duration_f64(TIME)) as usize);
                strangers.send(&flood[sent..due]);
                sent = due;
                if now > start + TIME / 4 {
                    let begun = *begun.get_or_insert(now);
                    peer.turn(now, &mut batch);
                    done = peer.has_session(now).then(|| now - begun);
                    assert!(now < begun + common::PATIENCE, "a session amid the flood");
                }
                pause(TURN);
            }
            took.extend(done);
            // What is left of it is not the next one's.
            while boottime() < start + 2 * TIME {
                pause(TURN);
            }
        }
        took
    });
    let state = net.state();
    println!(
        "{INITIATIONS} initiations with cookies from {NETWORKS} networks in {TIME:?}: a peer's handshake amid them takes {took:.1?}; {}",
        state["tunnel"]["counters"]
    );
    // A flood that was none shows nothing.
    let limited = state["tunnel"]["counters"]["limited_handshakes"].as_u64().expect("a number");
    assert!(limited > INITIATIONS as u64, "{limited} handshakes limited");
}

/// What the hub has counted of handshakes: those that it did for nobody, and those that it did not do.
fn counted(net: &Net) -> [u64; 2] {
    let state = net.state();
    ["refused_handshakes", "limited_handshakes"]
        .map(|name| state["tunnel"]["counters"][name].as_u64().expect("a number"))
}

/// Whoever has a network of IPv6 has 2^64 addresses, and a cookie for each that he likes. He counts as one host.
#[test]
fn a_peer_shakes_hands_amid_a_flood_from_all_over_one_network_of_ipv6() {
    let name = "a_peer_shakes_hands_amid_a_flood_from_all_over_one_network_of_ipv6";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let net = Net::new(1);
    let (hub, peer) = (HUB_V6.0, place_v6(0));
    net.hub.ip(&format!("address add {hub}/64 dev eth0 nodad"));
    net.peers.ip("address add fd05::2/64 dev eth0 nodad");
    net.peers.ip(&format!("address add {peer}/64 dev eth0 nodad"));
    // All hosts of fd96::/64 are this one.
    net.peers.ip("-6 route add local fd96::/64 dev lo");
    shell(&net.peers, "echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind");
    net.hub.ip("route add fd96::/64 via fd05::2");
    let _hub = net.start();
    let (before, since, took, sent) = net.peers.within(|| {
        let mut batch = RecvBatch::default();
        let mut strangers = Strangers::new(&net, HUB_V6.into(), host_v6);
        strangers.get_cookies();
        let mut peer = Peer::to(&net, 0, HUB_V6.into(), peer.into());
        peer.become_known(&mut batch);
        let (since, before) = (boottime(), counted(&net));
        peer.end = net.end_to(0, HUB_V6.into());
        let (start, mut sent, mut begun, mut done) = (boottime(), 0, None, None);
        while done.is_none() || boottime() < start + LEAST || sent < LEAST_INITIATIONS {
            let now = boottime();
            // What this thread could not send in time is not made up for: a burst shows less.
            let flood: Vec<_> = (sent..sent + EACH_MS).map(|n| strangers.initiation(now, n)).collect();
            strangers.send(&flood);
            sent += EACH_MS;
            if now > start + LEAST / 4 {
                let begun = *begun.get_or_insert(now);
                peer.turn(now, &mut batch);
                done = done.or(peer.has_session(now).then(|| now - begun));
                assert!(now < begun + common::PATIENCE, "a session amid the flood");
            }
            pause(TURN);
        }
        (before, since, done, sent)
    });
    let after = counted(&net);
    let [refused, limited] = [0, 1].map(|of| after[of] - before[of]);
    let time = (boottime() - since).as_secs_f64();
    println!(
        "{sent} initiations with cookies from one network of IPv6 in {time:.1} s: {refused} are done, {limited} are not; a peer's handshake \
         amid them takes {took:.1?}"
    );
    // Of a flood of single hosts there are 400 in a second, after a burst of 100.
    let most = [UNASKED, OF_A_HOST].iter().map(|[burst, rate]| burst + rate * time).sum::<f64>();
    assert!((refused as f64) < most + 1.0, "{refused} handshakes are done in {time} s, not {most}");
    // A flood that was none shows nothing.
    assert!(limited > 1000, "{limited} of {sent} handshakes limited");
}
