//! Two endpoints over emulated links, in virtual time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use link::{Link, LinkConfig};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use tunnel::address::{LocalAddress, Train};
use tunnel::endpoint::{Arrival, Endpoint};
use tunnel::{Config, Local, Mtu, PathConfig, PeerConfig, PresharedKey, PrivateKey, Scheduler};

/// Bytes that a link counts around a UDP payload: Ethernet, IPv4, UDP.
const AROUND: usize = 14 + 20 + 8;

/// One path: a link each way.
pub struct Wire {
    pub there: Link,
    pub back: Link,
}

/// Two endpoints, 0 (lists the paths) and 1, and what lies between.
pub struct Net {
    pub now: Duration,
    pub ends: [Endpoint; 2],
    pub wires: Vec<Wire>,
    /// Inner packets that came out at each end.
    pub received: [Vec<Vec<u8>>; 2],
    /// Inner packets that went in at each end.
    pub offered: [u64; 2],
    /// A running hash of every datagram and the time it left at.
    pub transcript: u64,
    train: Train,
}

pub struct Options {
    pub scheduler: Scheduler,
    pub seed: u64,
}

fn inner(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 1 + end as u8)
}

fn outer(end: usize, wire: usize) -> SocketAddr {
    match end {
        0 => SocketAddr::from(([10, 1, wire as u8, 1], 1000)),
        _ => SocketAddr::from(([192, 0, 2, 1], 51900)),
    }
}

impl Net {
    /// Two ends that have not spoken yet, over links of these kinds (there, back).
    pub fn new(options: &Options, links: Vec<(LinkConfig, LinkConfig)>) -> Net {
        let mut rng = ChaCha20Rng::seed_from_u64(options.seed);
        let keys = [PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng)];
        let paths = |end: usize| match end {
            0 => (0..links.len())
                .map(|wire| PathConfig {
                    name: format!("wire{wire}"),
                    local: Local::Address(outer(0, wire).ip()),
                    remote: outer(1, wire),
                    via: None,
                    backup: false,
                })
                .collect(),
            _ => Vec::new(),
        };
        let end = |end: usize| {
            let peer = PeerConfig {
                name: "other".into(),
                public_key: keys[1 - end].public(),
                preshared_key: PresharedKey::default(),
                routes: vec![IpAddr::V4(inner(1 - end)).into()],
                keepalive: None,
                paths: paths(end),
            };
            let config = Config { scheduler: options.scheduler, mtu: Mtu::Auto, peers: vec![peer] };
            let mut seed = [end as u8; 32];
            seed[..8].copy_from_slice(&options.seed.to_be_bytes());
            Endpoint::new(config, keys[end].clone(), seed)
        };
        let mut ends = [end(0), end(1)];
        let now = Duration::from_secs(1);
        for wire in 0..links.len() {
            let local = LocalAddress { ip: Some(outer(0, wire).ip()), interface: None };
            ends[0].set_local(now, 0, wire, Some(local));
        }
        let wire = |(i, (there, back)): (usize, (LinkConfig, LinkConfig))| Wire {
            there: Link::new(there, options.seed.wrapping_mul(1000) + 2 * i as u64),
            back: Link::new(back, options.seed.wrapping_mul(1000) + 2 * i as u64 + 1),
        };
        let wires = links.into_iter().enumerate().map(wire).collect();
        Net {
            now,
            ends,
            wires,
            received: [Vec::new(), Vec::new()],
            offered: [0; 2],
            transcript: 0,
            train: Train::default(),
        }
    }

    /// Lets everything happen up to `until`; `source(net, end)` may send inner packets whenever an end has been woken.
    pub fn run(&mut self, until: Duration, mut source: impl FnMut(&mut Net)) {
        loop {
            source(self);
            (0..2).for_each(|end| self.turn(end));
            let next = self.next().min(until);
            if next >= until {
                self.now = until;
                return;
            }
            // Time goes on by at least a microsecond, so that a timer that does not move is seen and not waited for.
            self.now = next.max(self.now + Duration::from_micros(1));
            self.deliver();
        }
    }

    /// Cuts a path, or mends it.
    pub fn set_up(&mut self, wire: usize, up: bool) {
        let now = self.now;
        self.wires[wire].there.set_up(now, up);
        self.wires[wire].back.set_up(now, up);
    }

    /// An inner packet into the TUN of `end`, `size` bytes long, that carries `number`.
    pub fn send(&mut self, end: usize, number: u64, size: usize) {
        let mut packet = udp_packet(inner(end), inner(1 - end), size);
        packet[28..36].copy_from_slice(&number.to_be_bytes());
        self.ends[end].handle_inner(self.now, &mut packet);
    }

    /// The numbers in what came out at `end`.
    pub fn numbers(&self, end: usize) -> Vec<u64> {
        self.received[end].iter().map(|p| u64::from_be_bytes(p[28..36].try_into().unwrap())).collect()
    }

    fn turn(&mut self, end: usize) {
        let endpoint = &mut self.ends[end];
        endpoint.handle_timeout(self.now);
        while endpoint.poll_transmit(self.now, &mut self.train) {
            let to = self.train.to.expect("a train goes somewhere");
            let wire = match end {
                0 => (0..self.wires.len()).find(|&w| to.local.ip == Some(outer(0, w).ip())),
                _ => (0..self.wires.len()).find(|&w| to.remote == outer(0, w)),
            };
            let Some(wire) = wire.map(|w| &mut self.wires[w]) else { continue };
            let link = if end == 0 { &mut wire.there } else { &mut wire.back };
            for datagram in self.train.datagrams() {
                let mut hasher = DefaultHasher::new();
                (self.transcript, self.now, end, datagram).hash(&mut hasher);
                self.transcript = hasher.finish();
                let mut frame = vec![0; AROUND];
                frame[0] = self.train.tos;
                frame.extend_from_slice(datagram);
                link.send(self.now, frame);
            }
        }
        while let Some(packet) = endpoint.poll_inner() {
            self.received[end].push(packet);
        }
    }

    fn next(&self) -> Duration {
        let timers = self.ends.iter().filter_map(|e| e.poll_timeout(self.now));
        let links = self.wires.iter().flat_map(|w| [w.there.poll_timeout(), w.back.poll_timeout()]).flatten();
        timers.chain(links).min().unwrap_or(Duration::MAX)
    }

    fn deliver(&mut self) {
        for (i, wire) in self.wires.iter_mut().enumerate() {
            for (link, end) in [(&mut wire.there, 1), (&mut wire.back, 0)] {
                while let Some((_, mut frame)) = link.poll(self.now) {
                    let arrival =
                        Arrival { remote: outer(1 - end, i), local: Some(outer(end, i).ip()), tos: frame[0] };
                    self.ends[end].handle_datagram(self.now, &arrival, &mut frame[AROUND..]);
                }
            }
        }
    }
}

fn udp_packet(source: Ipv4Addr, destination: Ipv4Addr, size: usize) -> Vec<u8> {
    let mut p = vec![0; size.max(36)];
    let length = p.len() as u16;
    p[0] = 0x45;
    p[2..4].copy_from_slice(&length.to_be_bytes());
    p[8..10].copy_from_slice(&[64, 17]);
    p[12..16].copy_from_slice(&source.octets());
    p[16..20].copy_from_slice(&destination.octets());
    p[24..26].copy_from_slice(&(length - 20).to_be_bytes());
    p
}
