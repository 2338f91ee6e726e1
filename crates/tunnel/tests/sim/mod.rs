//! Two endpoints over emulated links, in virtual time, and whoever listens, delays and forges between them.
//!
//! Each test file uses a part of this.
#![allow(dead_code, reason = "each test file uses a part of this")]

mod busy;
mod clock;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

pub use busy::Busy;
pub use clock::Clock;
use link::{Bitrate, Capacity, Link, LinkConfig, Queue};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use tunnel::config::ConfigError;
use tunnel::endpoint::{Arrival, Endpoint};
use tunnel::status::PeerStatus;
use tunnel::wire::address::LocalAddress;
use tunnel::wire::train::Train;
use tunnel::{Bicast, Config, Local, PathConfig, PeerConfig, PresharedKey, PrivateKey, Scheduler};

/// Bytes that a link counts around a UDP payload, unless [`Net::around`] is told otherwise: Ethernet, IPv4, UDP. IPv6 has 20 more.
const AROUND: usize = 14 + 20 + 8;

/// The first byte of an IPv4 packet without options, which no frame of the tunnel's begins with.
const IPV4: u8 = 0x45;

/// One path: a link each way.
pub struct Wire {
    pub there: Link,
    pub back: Link,
    /// What has a DSCP goes by these, there and back, past all that waits at the others.
    pub ahead: Option<[Link; 2]>,
}

/// Two endpoints, 0 (lists the paths) and 1, and what lies between.
pub struct Net {
    pub now: Duration,
    /// What the ends' clocks make of it.
    pub clocks: [Clock; 2],
    /// Whether they share their processors with others.
    pub busy: Option<[Busy; 2]>,
    pub ends: [Endpoint; 2],
    pub wires: Vec<Wire>,
    /// Inner packets that came out at each end.
    pub received: [Vec<Vec<u8>>; 2],
    /// Inner packets that went in at each end.
    pub offered: [u64; 2],
    /// A running hash of every datagram and the time it left at.
    pub transcript: u64,
    /// Where end 1 sees each of end 0's paths come from: a NAT may change it.
    pub seen_at: Vec<SocketAddr>,
    /// Where end 1 is.
    pub server: SocketAddr,
    /// Bytes that links count around a UDP payload, at least 3.
    pub around: usize,
    /// All paths go over the first wire.
    pub shared: bool,
    /// Sees every datagram that leaves an end for the other, may change it, and decides whether it goes on.
    pub tap: Option<Tap>,
    /// Nobody does the handshakes' work but who asks the ends for it.
    pub idle_workers: bool,
    /// What was sent to addresses that are neither end's.
    pub strays: Vec<Stray>,
    /// IP packets of others that came over the wires to each end's side.
    pub beside: [Vec<Vec<u8>>; 2],
    configs: [Config; 2],
    keys: [PrivateKey; 2],
    train: Train,
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// When it left.
    pub at: Duration,
    /// Who sent it.
    pub from: usize,
    /// Over which path.
    pub wire: usize,
    pub tos: u8,
    pub bytes: Vec<u8>,
}

impl Datagram {
    /// The lower half of byte 0: 1 initiation, 2 response, 3 cookie reply, 4 transport.
    pub fn kind(&self) -> u8 {
        self.bytes[0] & 15
    }
}

/// A datagram to an address of somebody else.
#[derive(Clone, Debug)]
pub struct Stray {
    pub from: usize,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

/// False: the datagram is lost.
pub type Tap = Box<dyn FnMut(&mut Datagram) -> bool>;

/// What waits to be sent waits for something that comes sooner: a report, or its time-out, or the pacer.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub struct Options {
    pub scheduler: Scheduler,
    pub seed: u64,
}

/// A link of this rate and one-way delay with a queue of 100 packets, that does nothing else to packets.
pub fn plain(mbps: f64, delay: Duration) -> LinkConfig {
    let capacity = Capacity::Fixed(Bitrate::from_mbps(mbps));
    LinkConfig { capacity, delay, queue: Queue::Packets(100), ..LinkConfig::default() }
}

/// The inner IPv4 address of an end.
pub fn inner(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 1 + end as u8)
}

/// The inner IPv6 address of an end.
pub fn inner6(end: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1 + end as u16)
}

/// The local address of end 0's path; without a NAT it is where end 1 sees it.
pub fn client(wire: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, wire as u8, 1], 1000))
}

fn client6(wire: usize) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 1, wire as u16, 0, 0, 0, 1), 1000))
}

/// A path of `end`'s over wire `wire`.
pub fn path(wire: usize, local: SocketAddr, remote: SocketAddr) -> PathConfig {
    PathConfig {
        name: format!("wire{wire}"),
        local: Local::Address(local.ip()),
        remote: remote.into(),
        via: None,
        backup: false,
        receive: true,
        cost: Default::default(),
    }
}

impl Net {
    /// Two ends that have not spoken yet, over links of these kinds (there, back).
    pub fn new(options: &Options, links: Vec<(LinkConfig, LinkConfig)>) -> Net {
        Net::with(options, links, false, |_, _| ())
    }

    /// The same over perfect links of `delay`, with configurations changed by `tweak(end, configuration)`.
    pub fn quick(wires: usize, delay: Duration, tweak: impl Fn(usize, &mut Config)) -> Net {
        Net::quick_over(false, wires, delay, tweak)
    }

    /// The same with outer addresses of IPv6, if `v6`.
    pub fn quick_over(v6: bool, wires: usize, delay: Duration, tweak: impl Fn(usize, &mut Config)) -> Net {
        let link = LinkConfig { delay, ..LinkConfig::default() };
        let options = Options { scheduler: Scheduler::Auto, seed: 1 };
        Net::with(&options, vec![(link.clone(), link); wires], v6, tweak)
    }

    /// The same with outer addresses of IPv6, if `v6`.
    pub fn with(
        options: &Options,
        links: Vec<(LinkConfig, LinkConfig)>,
        v6: bool,
        tweak: impl Fn(usize, &mut Config),
    ) -> Net {
        let mut rng = ChaCha20Rng::seed_from_u64(options.seed);
        let keys = [PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng)];
        let seen_at: Vec<_> = (0..links.len()).map(|w| if v6 { client6(w) } else { client(w) }).collect();
        let ip = if v6 { "2001:db8::1" } else { "192.0.2.1" };
        let server = SocketAddr::new(ip.parse().expect("an address"), 51900);
        let config = |end: usize| {
            let paths = seen_at.iter().enumerate().map(|(wire, local)| path(wire, *local, server));
            let peer = PeerConfig {
                name: "other".into(),
                public_key: keys[1 - end].public(),
                preshared_key: PresharedKey::default(),
                routes: vec![IpAddr::V4(inner(1 - end)).into(), IpAddr::V6(inner6(1 - end)).into()],
                keepalive: None,
                resend: true,
                bicast: Bicast::Off,
                paths: paths.filter(|_| end == 0).collect(),
            };
            let mut config = Config { scheduler: options.scheduler, peers: vec![peer], ..Config::default() };
            tweak(end, &mut config);
            config
        };
        let configs = [config(0), config(1)];
        let end = |end: usize| {
            Endpoint::new(configs[end].clone(), keys[end].clone(), &mut rng_of(end, options.seed))
        };
        let wire = |(i, (there, back)): (usize, (LinkConfig, LinkConfig))| Wire {
            there: Link::new(there, options.seed.wrapping_mul(1000) + 2 * i as u64),
            back: Link::new(back, options.seed.wrapping_mul(1000) + 2 * i as u64 + 1),
            ahead: None,
        };
        let mut net = Net {
            now: Duration::from_secs(1),
            clocks: Default::default(),
            busy: None,
            ends: [end(0), end(1)],
            wires: links.into_iter().enumerate().map(wire).collect(),
            received: [Vec::new(), Vec::new()],
            offered: [0; 2],
            transcript: 0,
            seen_at,
            server,
            around: AROUND + 20 * usize::from(v6),
            shared: false,
            tap: None,
            idle_workers: false,
            strays: Vec::new(),
            beside: Default::default(),
            configs,
            keys,
            train: Train::default(),
        };
        (0..2).for_each(|end| net.set_locals(end));
        net
    }

    /// The daemon of `end` dies and starts again.
    pub fn restart(&mut self, end: usize, seed_of_life: u64) {
        let config = self.configs[end].clone();
        self.ends[end] = Endpoint::new(config, self.keys[end].clone(), &mut rng_of(end, seed_of_life));
        self.set_locals(end);
    }

    /// `end` is told a changed configuration, and where its paths leave.
    pub fn reconfigure(&mut self, end: usize, edit: impl FnOnce(&mut Config)) -> Result<(), ConfigError> {
        let mut config = self.configs[end].clone();
        edit(&mut config);
        self.ends[end].reconfigure(self.now, config.clone())?;
        self.configs[end] = config;
        self.set_locals(end);
        self.turn(end);
        Ok(())
    }

    /// What `end` was told last.
    pub fn config(&self, end: usize) -> &Config {
        &self.configs[end]
    }

    /// A path of end 0's over wire `wire`.
    pub fn path(&self, wire: usize) -> PathConfig {
        path(wire, self.local(wire), self.server)
    }

    /// Somebody sends `bytes` to `end` from `from`; what the end answers goes its way.
    pub fn inject(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) {
        let local = if end == 0 { client(0) } else { self.server };
        let arrival = Arrival { remote: from, local: at(local), tos: 0 };
        self.ends[end].handle_datagram(self.clock(end), &arrival, &mut bytes.to_vec());
        self.turn(end);
    }

    /// Lets `time` pass.
    pub fn pass(&mut self, time: Duration) {
        self.run(self.now + time, |_| ());
    }

    /// What the clock of `end` shows.
    pub fn clock(&self, end: usize) -> Duration {
        self.clocks[end].read(self.now)
    }

    /// What the peer of `end` is like.
    pub fn peer(&self, end: usize) -> PeerStatus {
        self.ends[end].status(self.clock(end)).peers.remove(0)
    }

    fn set_locals(&mut self, end: usize) {
        let paths = self.configs[end].peers.first().map_or(Vec::new(), |peer| peer.paths.clone());
        for (index, path) in paths.iter().enumerate() {
            if let Local::Address(ip) = path.local {
                let local = LocalAddress { ip: Some(ip), ..LocalAddress::default() };
                self.ends[end].set_local(self.clock(end), 0, index, Some(local));
            }
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

    /// From now on wire `wire` has these links, there and back; what is on its way is lost.
    pub fn replace(&mut self, wire: usize, there: &LinkConfig, back: &LinkConfig) {
        let seed = self.now.as_nanos() as u64 + wire as u64;
        let [there, back] = [there, back].map(|link| Link::new(link.clone(), seed));
        self.wires[wire] = Wire { there, back, ahead: None };
    }

    /// From now on wire `wire`, whose links are these, has a queue each way that goes first, for what has a DSCP: little of it, for it takes
    /// nothing of what the links carry.
    pub fn prioritize(&mut self, wire: usize, there: &LinkConfig, back: &LinkConfig) {
        self.wires[wire].ahead = Some([there, back].map(|link| Link::new(link.clone(), wire as u64)));
    }

    /// Cuts a path, or mends it.
    pub fn set_up(&mut self, wire: usize, up: bool) {
        let now = self.now;
        let Wire { there, back, ahead } = &mut self.wires[wire];
        let links = [there, back].into_iter().chain(ahead.iter_mut().flatten());
        links.for_each(|link| link.set_up(now, up));
    }

    /// An inner packet into the TUN of `end`, `size` bytes long, that carries `number`.
    pub fn send(&mut self, end: usize, number: u64, size: usize) {
        let mut packet = udp_packet(inner(end), inner(1 - end), size);
        // ESP: small datagrams of UDP may overtake one another.
        packet[9] = 50;
        packet[28..36].copy_from_slice(&number.to_be_bytes());
        self.ends[end].handle_inner(self.clock(end), &mut packet);
    }

    /// The numbers in what came out at `end`.
    pub fn numbers(&self, end: usize) -> Vec<u64> {
        self.received[end].iter().map(|p| u64::from_be_bytes(p[28..36].try_into().unwrap())).collect()
    }

    /// Lets `end` do and send what it has to.
    pub fn turn(&mut self, end: usize) {
        let now = self.now;
        self.busy.as_mut().into_iter().for_each(|busy| busy[end].pass_to(now));
        if self.still_until(end).is_some() {
            return;
        }
        let waiting = self.busy.as_mut().map(|busy| busy[end].take());
        waiting.into_iter().flatten().for_each(|(wire, bytes)| self.hand(end, wire, bytes));
        let now = self.clock(end);
        if !self.idle_workers {
            self.ends[end].work(now);
        }
        self.ends[end].handle_timeout(now);
        while self.ends[end].poll_transmit(now, &mut self.train) {
            let train = std::mem::take(&mut self.train);
            let to = train.to.expect("a train goes somewhere");
            let wire = match end {
                0 if to.remote != self.server => None,
                0 => {
                    self.seen_at.iter().enumerate().position(|(w, _)| to.local.ip == Some(self.local(w).ip()))
                }
                _ => self.seen_at.iter().position(|a| *a == to.remote),
            };
            for bytes in train.datagrams() {
                match wire {
                    Some(wire) => self.transmit(end, wire, train.tos, bytes),
                    None => self.strays.push(Stray { from: end, to: to.remote, bytes: bytes.to_vec() }),
                }
            }
            self.train = train;
        }
        // What waits is looked at again, or it would wait for ever.
        for peer in self.ends[end].peers().iter().filter(|peer| peer.is_waiting() && peer.can_send(now)) {
            let next = peer.poll_timeout(now);
            assert!(
                next.is_some_and(|next| next < now + LONGEST_WAIT),
                "packets wait at {now:?}, until {next:?}"
            );
        }
        while let Some(packet) = self.ends[end].poll_inner() {
            self.received[end].push(packet);
        }
    }

    fn transmit(&mut self, end: usize, wire: usize, tos: u8, bytes: &[u8]) {
        let mut hasher = DefaultHasher::new();
        (self.transcript, self.now, end, bytes).hash(&mut hasher);
        self.transcript = hasher.finish();
        let mut datagram = Datagram { at: self.now, from: end, wire, tos, bytes: bytes.to_vec() };
        if !self.tap.as_mut().is_none_or(|tap| tap(&mut datagram)) {
            return;
        }
        let mut frame = vec![0; self.around];
        (frame[1], frame[2]) = (datagram.tos, wire as u8);
        frame.extend(datagram.bytes);
        self.send_beside(end, if self.shared { 0 } else { wire }, frame);
    }

    /// An IP packet of others, or a frame of the tunnel's, leaves at the side of `end` over wire `wire`.
    pub fn send_beside(&mut self, end: usize, wire: usize, frame: Vec<u8>) {
        let Wire { there, back, ahead } = &mut self.wires[wire];
        // Where IPv4 and the tunnel's frames have their traffic class.
        let marked = frame[1] & 0xfc != 0;
        let link = match ahead {
            Some(ahead) if marked => &mut ahead[end],
            _ if end == 0 => there,
            _ => back,
        };
        link.send(self.now, frame);
    }

    /// The local address of end 0's path.
    fn local(&self, wire: usize) -> SocketAddr {
        if self.server.is_ipv6() { client6(wire) } else { client(wire) }
    }

    /// When something happens next.
    pub fn next(&self) -> Duration {
        let timers = [0, 1].map(|end| {
            let due = || self.ends[end].poll_timeout(self.clock(end)).map(|due| self.clocks[end].when(due));
            self.still_until(end).or_else(due)
        });
        let timers = timers.into_iter().flatten();
        let wires = self.wires.iter();
        let links = wires.flat_map(|w| [&w.there, &w.back].into_iter().chain(w.ahead.iter().flatten()));
        let links = links.filter_map(Link::poll_timeout);
        timers.chain(links).min().unwrap_or(Duration::MAX)
    }

    /// What arrived is handed to the ends.
    pub fn deliver(&mut self) {
        for i in 0..self.wires.len() {
            for end in [1, 0] {
                while let Some(frame) = self.poll_wire(i, end) {
                    self.deliver_frame(i, end, frame);
                }
            }
        }
    }

    fn poll_wire(&mut self, wire: usize, end: usize) -> Option<Vec<u8>> {
        let (now, Wire { there, back, ahead }) = (self.now, &mut self.wires[wire]);
        let link = if end == 0 { back } else { there };
        let first = ahead.as_mut().and_then(|ahead| ahead[1 - end].poll(now));
        first.or_else(|| link.poll(now)).map(|(_, frame)| frame)
    }

    /// Until when `end` stands still, if it does.
    fn still_until(&self, end: usize) -> Option<Duration> {
        self.busy.as_ref()?[end].still_until(self.now)
    }

    fn deliver_frame(&mut self, wire: usize, end: usize, frame: Vec<u8>) {
        match frame[0] {
            IPV4 => self.beside[end].push(frame),
            _ => self.give(end, Some(wire), frame),
        }
    }

    /// A frame comes to `end` over a wire, or an inner packet of its host: at once, or when it runs again.
    pub fn give(&mut self, end: usize, wire: Option<usize>, bytes: Vec<u8>) {
        let still = self.still_until(end).is_some();
        match self.busy.as_mut().filter(|_| still) {
            Some(busy) => busy[end].keep(wire, bytes),
            None => self.hand(end, wire, bytes),
        }
    }

    fn hand(&mut self, end: usize, wire: Option<usize>, mut frame: Vec<u8>) {
        let now = self.clock(end);
        let Some(wire) = wire else { return self.ends[end].handle_inner(now, &mut frame) };
        // A link may have damaged it.
        let wire = if self.shared { usize::from(frame[2]) } else { wire };
        let (remote, local) =
            if end == 0 { (self.server, self.local(wire)) } else { (self.seen_at[wire], self.server) };
        let arrival = Arrival { remote, local: at(local), tos: frame[1] };
        self.ends[end].handle_datagram(now, &arrival, &mut frame[self.around..]);
    }
}

fn at(local: SocketAddr) -> LocalAddress {
    LocalAddress { ip: Some(local.ip()), ..LocalAddress::default() }
}

fn rng_of(end: usize, life: u64) -> ChaCha20Rng {
    let mut seed = [end as u8; 32];
    seed[..8].copy_from_slice(&life.to_be_bytes());
    ChaCha20Rng::from_seed(seed)
}

/// An inner UDP packet of `size` bytes.
pub fn udp_packet(source: Ipv4Addr, destination: Ipv4Addr, size: usize) -> Vec<u8> {
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

/// Whether each number is there once, and in order unless something `lost` was not waited for: it may come behind what waited.
pub fn once_and_in_order(numbers: &[u64], lost: bool) -> bool {
    let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
    distinct.len() == numbers.len() && (lost || numbers.is_sorted())
}

/// Notes every datagram that leaves an end for the other; what `passes` refuses is lost.
pub fn record(
    net: &mut Net,
    mut passes: impl FnMut(&Datagram) -> bool + 'static,
) -> Rc<RefCell<Vec<Datagram>>> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let noted = log.clone();
    net.tap = Some(Box::new(move |datagram| {
        noted.borrow_mut().push(datagram.clone());
        passes(datagram)
    }));
    log
}

/// The `n`th address of somebody who has nothing to do here.
pub fn stranger(n: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0xcb00_7100 + (n & 0xffff)), 4000 + (n % 1000) as u16))
}
