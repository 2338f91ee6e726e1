//! A hub that is flooded with handshakes by many hosts that have cookies: how long a peer's own handshake waits.
//!
//! `cargo test --release -p nawa --test hub_flood -- --nocapture` prints it. The peers are the tunnel's core, the hub is `nawa run`.

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::hub::{HUB, Net, place};
use common::namespaces_or_skip;
use device::poller::boottime;
use device::udp::{Options, RecvBatch, Transmit};
use device::{Poller, UdpSocket};
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

fn host(network: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a60_0001 + (network << 8))
}

/// A peer's core and its socket.
struct Peer {
    end: Endpoint,
    socket: UdpSocket,
    train: Train,
}

impl Peer {
    fn new(net: &Net, at: usize) -> Self {
        let socket = UdpSocket::bind((place(at), 4000).into(), Options::default()).expect("a socket");
        Self { end: net.end(at), socket, train: Train::default() }
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
}

fn transmit(remote: SocketAddr, local: Option<Ipv4Addr>, contents: &[u8]) -> Transmit<'_> {
    Transmit { remote, local: local.map(IpAddr::V4), interface: None, tos: 0, segment_size: None, contents }
}

/// The hosts that flood, and their cookies.
struct Strangers {
    socket: UdpSocket,
    message: Vec<u8>,
    jars: Vec<CookieJar>,
    hub: SocketAddr,
}

impl Strangers {
    fn new(net: &Net) -> Self {
        let to = net.node.public_key.parse().expect("the hub's key");
        let mut rng = OsRng.unwrap_err();
        let key = PrivateKey::generate(&mut rng);
        let payload =
            InitiationPayload { incarnation: 1, counter: 1, fast_aes: false, pieces: true }.encode();
        let none = PresharedKey::default();
        let started = Initiator::new(&mut rng, Prologue::Tunnel, &key, &to, &none, 7, &payload);
        Self {
            socket: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5000).into(), Options::default())
                .expect("a socket"),
            message: started.expect("usable keys").1,
            jars: (0..NETWORKS).map(|_| CookieJar::new(&to)).collect(),
            hub: HUB.into(),
        }
    }

    /// The `n`th initiation of a flood: with another ephemeral key each time.
    fn initiation(&mut self, now: Duration, n: usize) -> (Ipv4Addr, Vec<u8>) {
        let network = n % NETWORKS as usize;
        let mut stamped = self.message.clone();
        stamped[8..16].copy_from_slice(&(n as u64 + 1).to_be_bytes());
        self.jars[network].stamp(now, &mut stamped);
        (host(network as u32), stamped)
    }

    fn send(&self, flood: &[(Ipv4Addr, Vec<u8>)]) {
        let all: Vec<_> = flood.iter().map(|(from, bytes)| transmit(self.hub, Some(*from), bytes)).collect();
        let failures = self.socket.send(&all);
        assert!(failures.is_empty(), "{:?}", failures.first());
    }

    /// Takes the cookies that have come.
    fn take(&mut self, now: Duration, batch: &mut RecvBatch) {
        let Self { socket, jars, .. } = self;
        let mut some = true;
        while some {
            let received = socket.recv(batch, |meta, datagram| {
                let Some(IpAddr::V4(to)) = meta.local else { return };
                if let Some(jar) = jars.get_mut((u32::from(to) - u32::from(host(0))) as usize >> 8) {
                    jar.accept(now, datagram);
                }
            });
            some = received.is_ok();
        }
    }

    /// Asks until every host has a cookie.
    fn get_cookies(&mut self, pause: &mut impl FnMut()) {
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
            pause();
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
        let (mut poller, mut batch) = (Poller::new().expect("a poller"), RecvBatch::default());
        let mut pause = || poller.wait(Some(Duration::from_millis(1))).expect("waiting").for_each(drop);
        let mut strangers = Strangers::new(&net);
        strangers.get_cookies(&mut pause);
        let mut took = Vec::new();
        for at in 0..FLOODS {
            // The hub knows where the peer is, and the peer begins anew.
            let mut peer = Peer::new(&net, at);
            let deadline = boottime() + common::PATIENCE;
            while !peer.has_session(boottime()) {
                assert!(boottime() < deadline, "a session before the flood");
                peer.turn(boottime(), &mut batch);
                pause();
            }
            // It looks where its peers are once in a second, while handshakes are many.
            let known = boottime() + Duration::from_secs(1);
            while boottime() < known {
                peer.turn(boottime(), &mut batch);
                pause();
            }
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
                pause();
            }
            took.extend(done);
            // What is left of it is not the next one's.
            while boottime() < start + 2 * TIME {
                pause();
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
