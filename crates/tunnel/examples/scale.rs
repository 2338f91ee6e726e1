//! What a hub's core costs with many peers: quiet ones, ones that carry packets, and strangers.
//!
//! `cargo run --release -p tunnel --example scale -- [peers=300]`. Time is virtual but for the processor's, which is measured of the
//! hub alone, around the calls of its core; sealing is included, sockets and the TUN are not.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use tunnel::endpoint::{Arrival, Endpoint};
use tunnel::handshake::cookie::CookieJar;
use tunnel::handshake::noise::{InitiationPayload, Initiator, Prologue};
use tunnel::wire::train::Train;
use tunnel::{Bicast, Config, Local, PathConfig, PeerConfig, PresharedKey, PrivateKey};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const DELAY: Duration = Duration::from_millis(10);
const HUB: usize = usize::MAX;
/// Packets that come together.
const BURST: usize = 8;
/// A flood of so many initiations, from so many hosts.
const INITIATIONS: usize = 16_384;
const HOSTS: u32 = 4096;

fn main() {
    let argument = std::env::args().nth(1);
    let peers: usize = match argument.as_deref().map(|text| text.strip_prefix("peers=").map(str::parse)) {
        None => 300,
        Some(Some(Ok(peers))) if peers > 0 => peers,
        _ => {
            eprintln!("expected peers=NUMBER, at least 1");
            std::process::exit(2);
        }
    };
    let mut many = Net::new(peers);
    many.pass(5 * S);
    println!("{} of {peers} peers have a session", many.sessions());
    for every in [None, Some(10 * S), Some(S)] {
        let used = many.talk(600 * S, every);
        let talk = every.map_or("nothing".into(), |every| format!("a packet each {} s", every.as_secs()));
        println!("{peers} peers, {talk}: {:.2} % of a processor", 100.0 * used.as_secs_f64() / 600.0);
    }
    let mut one = Net::new(1);
    one.pass(5 * S);
    // In turn, that what else the machine does meets all.
    let mut costs = [const { Vec::new() }; 3];
    for _ in 0..15 {
        costs[0].push(one.bulk(2 * S, 1));
        costs[1].push(many.bulk(2 * S, 1));
        costs[2].push(many.bulk(2 * S, peers));
        // Who has had its turn is not quiet for some seconds.
        many.pass(6 * S);
    }
    let median = |costs: &[Bulk], of: fn(&Bulk) -> f64| {
        let mut values: Vec<_> = costs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let [alone, ..] = costs.each_ref().map(|costs| median(costs, |bulk| bulk.us));
    for (to, costs) in ["the only peer", "one of many", "all in turn"].iter().zip(&costs) {
        let (us, turns) = (median(costs, |bulk| bulk.us), median(costs, |bulk| bulk.turns));
        println!("a packet to {to}: {us:.2} us, {turns:.3} turns, {:.3} times", us / alone);
    }
    let state = (0..20).map(|_| many.state()).min().unwrap_or_default();
    println!("the state of {peers} peers takes {:.2} ms of the data thread", state.as_secs_f64() * 1e3);
    many.flood();
}

/// What a packet takes of the hub.
struct Bulk {
    /// Microseconds of processor.
    us: f64,
    /// Times that its thread wakes up.
    turns: f64,
}

struct Net {
    now: Duration,
    hub: Endpoint,
    peers: Vec<Endpoint>,
    /// When each peer wants to be called.
    timers: Vec<Duration>,
    /// Datagrams on their way: to whom, from where, what.
    flying: BTreeMap<(Duration, u64), (usize, SocketAddr, Vec<u8>)>,
    sent: u64,
    used: Duration,
    /// How often the hub's thread would have woken up.
    turns: u64,
    /// What a look at the clock takes.
    looking: Duration,
    train: Train,
    /// What the hub sent to strangers.
    strays: Vec<(SocketAddr, Vec<u8>)>,
    flooder: ChaCha20Rng,
}

/// This thread's time of a processor.
fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn hub() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 51900))
}

fn place(peer: usize) -> SocketAddr {
    SocketAddr::from(([10, (peer >> 8) as u8, peer as u8, 1], 1000))
}

fn inner(peer: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, (peer >> 8) as u8, peer as u8)
}

fn config(name: &str, key: &PrivateKey, net: &str, paths: Vec<PathConfig>) -> PeerConfig {
    PeerConfig {
        name: name.into(),
        public_key: key.public(),
        preshared_key: PresharedKey::default(),
        routes: vec![net.parse().expect("a network")],
        keepalive: None,
        resend: true,
        bicast: Bicast::Off,
        paths,
    }
}

fn end(peers: Vec<PeerConfig>, key: &PrivateKey, rng: &mut ChaCha20Rng) -> Endpoint {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    Endpoint::new(Config { peers, ..Config::default() }, key.clone(), &mut ChaCha20Rng::from_seed(seed))
}

/// An inner UDP packet of this size to `to`.
fn packet(to: Ipv4Addr, size: u16) -> Vec<u8> {
    let mut packet = vec![0; size.into()];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&size.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&[10, 78, 0, 1]);
    packet[16..20].copy_from_slice(&to.octets());
    packet[24..26].copy_from_slice(&(size - 20).to_be_bytes());
    packet
}

impl Net {
    fn new(count: usize) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let key = PrivateKey::generate(&mut rng);
        let keys: Vec<_> = (0..count).map(|_| PrivateKey::generate(&mut rng)).collect();
        let listed = keys
            .iter()
            .enumerate()
            .map(|(at, key)| config(&format!("peer{at}"), key, &format!("{}/32", inner(at)), Vec::new()));
        let the_hub = end(listed.collect(), &key, &mut rng);
        let path = PathConfig {
            name: "path".into(),
            local: Local::Any,
            remote: hub().into(),
            via: None,
            backup: false,
            receive: true,
            cost: Default::default(),
        };
        let mut peer = |own| {
            let mut end = end(vec![config("hub", &key, "10.78.0.0/16", vec![path.clone()])], own, &mut rng);
            end.set_local(S, 0, 0, Some(Default::default()));
            end
        };
        let peers: Vec<_> = keys.iter().map(&mut peer).collect();
        Net {
            now: S,
            hub: the_hub,
            timers: vec![S; peers.len()],
            peers,
            flying: BTreeMap::new(),
            sent: 0,
            used: Duration::ZERO,
            turns: 0,
            looking: (0..10_000).map(|_| processor().abs_diff(processor())).min().unwrap_or_default(),
            train: Train::default(),
            strays: Vec::new(),
            flooder: ChaCha20Rng::seed_from_u64(2),
        }
    }

    fn sessions(&self) -> usize {
        self.hub.status(self.now).peers.iter().filter(|peer| peer.session_age_s.is_some()).count()
    }

    /// What `work` takes of the hub's processor is counted.
    fn timed<T>(&mut self, work: impl FnOnce(&mut Endpoint, Duration, &mut Train) -> T) -> T {
        let start = processor();
        let result = work(&mut self.hub, self.now, &mut self.train);
        self.used += (processor() - start).saturating_sub(self.looking);
        result
    }

    fn fly(&mut self, to: usize, from: SocketAddr) {
        let datagrams: Vec<_> = self.train.datagrams().map(<[u8]>::to_vec).collect();
        for bytes in datagrams {
            self.sent += 1;
            self.flying.insert((self.now + DELAY, self.sent), (to, from, bytes));
        }
    }

    fn turn_hub(&mut self) {
        self.turns += 1;
        self.timed(|hub, now, _| {
            hub.work(now);
            hub.handle_timeout(now);
        });
        while self.timed(|hub, now, train| hub.poll_transmit(now, train)) {
            let to = self.train.to.expect("a train goes somewhere").remote;
            match (0..self.peers.len()).find(|peer| place(*peer) == to) {
                Some(peer) => self.fly(peer, hub()),
                None => self.strays.push((to, self.train.contents.clone())),
            }
        }
        while self.timed(|hub, _, _| hub.poll_inner()).is_some() {}
    }

    fn turn(&mut self, peer: usize) {
        let (now, end) = (self.now, &mut self.peers[peer]);
        end.work(now);
        end.handle_timeout(now);
        while self.peers[peer].poll_transmit(now, &mut self.train) {
            self.fly(HUB, place(peer));
        }
        while self.peers[peer].poll_inner().is_some() {}
        self.timers[peer] = self.peers[peer].poll_timeout(now).unwrap_or(Duration::MAX);
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let hub_at = self.timed(|hub, now, _| hub.poll_timeout(now)).unwrap_or(Duration::MAX);
            let flying = self.flying.keys().next().map_or(Duration::MAX, |(at, _)| *at);
            let timer = self.timers.iter().min().copied().unwrap_or(Duration::MAX);
            let next = hub_at.min(flying).min(timer);
            if next >= until {
                self.now = until;
                return;
            }
            self.now = next.max(self.now + Duration::from_micros(1));
            let mut hub_turns = hub_at <= self.now;
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, remote, mut bytes) = entry.remove();
                let arrival = Arrival { remote, local: Default::default(), tos: 0 };
                if to == HUB {
                    self.timed(|hub, now, _| hub.handle_datagram(now, &arrival, &mut bytes));
                    hub_turns = true;
                } else {
                    self.peers[to].handle_datagram(self.now, &arrival, &mut bytes);
                    self.timers[to] = self.now;
                }
            }
            if hub_turns {
                self.turn_hub();
            }
            for peer in 0..self.peers.len() {
                if self.timers[peer] <= self.now {
                    self.turn(peer);
                }
            }
        }
    }

    /// The hub sends each peer a packet so often; the processor's time that it takes.
    fn talk(&mut self, time: Duration, every: Option<Duration>) -> Duration {
        self.used = Duration::ZERO;
        let (end, count) = (self.now + time, self.peers.len() as u32);
        let mut next = 0;
        while self.now < end {
            let Some(every) = every else {
                self.pass(time);
                break;
            };
            let mut packet = packet(inner(next), 200);
            self.timed(|hub, now, _| hub.handle_inner(now, &mut packet));
            self.turn_hub();
            next = (next + 1) % self.peers.len();
            self.pass(every / count);
        }
        self.used
    }

    /// The hub sends the first so many peers, in turn, eight packets of 1,200 bytes each four milliseconds.
    fn bulk(&mut self, time: Duration, peers: usize) -> Bulk {
        (self.used, self.turns) = (Duration::ZERO, 0);
        let (end, mut count) = (self.now + time, 0);
        while self.now < end {
            for _ in 0..BURST {
                let mut packet = packet(inner(count / BURST % peers), 1200);
                self.timed(|hub, now, _| hub.handle_inner(now, &mut packet));
                count += 1;
            }
            self.turn_hub();
            self.pass(4 * MS);
        }
        let each = |all: f64| all / count as f64;
        Bulk { us: each(self.used.as_secs_f64() * 1e6), turns: each(self.turns as f64) }
    }

    /// What asking for the state takes.
    fn state(&self) -> Duration {
        let start = processor();
        let state = self.hub.status(self.now);
        let took = processor() - start;
        assert_eq!(state.peers.len(), self.peers.len());
        took
    }

    /// Initiations with cookies from many hosts in a fifth of a second: what they cost the thread that carries data, and the
    /// one for handshakes.
    fn flood(&mut self) {
        let to = *self.hub.public_key();
        let key = PrivateKey::generate(&mut self.flooder);
        let payload =
            InitiationPayload { incarnation: 1, counter: 1, fast_aes: false, pieces: true }.encode();
        let none = PresharedKey::default();
        let message = Initiator::new(&mut self.flooder, Prologue::Tunnel, &key, &to, &none, 7, &payload);
        let message = message.expect("usable keys").1;
        let host = |n: u32| SocketAddr::from((Ipv4Addr::from(0xcb00_0000 + n * 7), 4000));
        let mut jars: Vec<_> = (0..HOSTS + 100).map(|n| (host(n), CookieJar::new(&to))).collect();
        while jars.iter().filter(|(_, jar)| jar.has_cookie(self.now)).count() < HOSTS as usize {
            for (from, jar) in &mut jars {
                if jar.has_cookie(self.now) {
                    continue;
                }
                let mut stamped = message.clone();
                jar.stamp(self.now, &mut stamped);
                let arrival = Arrival { remote: *from, local: Default::default(), tos: 0 };
                self.hub.handle_datagram(self.now, &arrival, &mut stamped);
                self.turn_hub();
                for (_, reply) in self.strays.drain(..).filter(|(to, _)| to == from) {
                    jar.accept(self.now, &reply);
                }
            }
            self.pass(S / 10);
        }
        jars.retain(|(_, jar)| jar.has_cookie(self.now));
        let (mut data, mut hands, mut steps, mut longest) =
            (Duration::ZERO, Duration::ZERO, 0, Duration::ZERO);
        for n in 0..INITIATIONS {
            let (from, jar) = &mut jars[n % HOSTS as usize];
            let mut stamped = message.clone();
            // Another ephemeral key each time.
            stamped[8..16].copy_from_slice(&(n as u64 + 1).to_be_bytes());
            jar.stamp(self.now, &mut stamped);
            let arrival = Arrival { remote: *from, local: Default::default(), tos: 0 };
            let start = processor();
            self.hub.handle_datagram(self.now, &arrival, &mut stamped);
            data += (processor() - start).saturating_sub(self.looking);
            while let Some(work) = self.hub.poll_work() {
                let start = processor();
                let done = work.run();
                let took = processor() - start;
                (hands, steps, longest) = (hands + took, steps + 1, longest.max(took));
                self.hub.handle_work(self.now, done);
            }
            self.now += S / 5 / INITIATIONS as u32;
        }
        println!(
            "{INITIATIONS} initiations with cookies in 0.2 s: {:.1} ms of the data thread, {steps} steps of the other, {:.1} ms, the longest {:.2}",
            data.as_secs_f64() * 1e3,
            hands.as_secs_f64() * 1e3,
            longest.as_secs_f64() * 1e3
        );
    }
}
