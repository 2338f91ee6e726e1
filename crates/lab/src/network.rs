//! Hosts `a` (client) and `b` (server) and what lies between them, as namespaces.
//!
//! ```text
//!   a ─p1─[emulated link 1]─c1─ r1 ─s1─(veth)─p1─ b      10.1.1.1 ─ 10.1.1.2 │ 10.1.2.1 ─ 10.1.2.2
//!   a ─p2─[emulated link 2]─c1─ r2 ─s1─(veth)─p2─ b      10.2.1.1 ─ …
//! ```
//!
//! `b` has the address [`SERVER`] on its loopback and is reached at it over every path: the source address decides
//! which, so that plain programs can be bound to one (`curl --interface`). The relay hosts forward plain IP, so that
//! every system crosses the same hops. Neighbours are static: no ARP is lost on a link. IPv6 is off on the links, so
//! that nothing but the systems under test uses them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use link::{Bitrate, Capacity, LinkConfig, Loss, Probability, Queue, QueueStats, Stats};

use crate::command::{end, mac, neighbour};
use crate::congestion;
use crate::emulator::{Emulator, Wire};
use crate::error::Result;
use crate::namespace::Namespace;
use crate::program::output;

/// The server's address, the same over every path.
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// The two ends of one path's emulated link.
#[derive(Clone, Debug)]
pub struct PathSpec {
    /// Its name in reports and in Nawa's configuration.
    pub name: String,
    /// From the client towards the server.
    pub up: LinkConfig,
    /// From the server towards the client.
    pub down: LinkConfig,
}

impl PathSpec {
    /// A path of so many Mbit/s and milliseconds one way, with drop-tail queues of 100 packets, alike in both directions.
    pub fn plain(name: impl Into<String>, mbps: f64, delay_ms: u64) -> Self {
        Self::symmetric(name, fixed(mbps, Duration::from_millis(delay_ms), Queue::Packets(100)))
    }

    /// A path whose ways up and down have these capacities, and are alike otherwise.
    pub(crate) fn of(
        name: impl Into<String>,
        capacities: [Capacity; 2],
        delay: Duration,
        queue: Queue,
    ) -> Self {
        let way = |capacity| LinkConfig { capacity, delay, queue, ..LinkConfig::default() };
        let [up, down] = capacities.map(way);
        Self { name: name.into(), up, down }
    }

    /// A path that is alike in both directions.
    pub fn symmetric(name: impl Into<String>, link: LinkConfig) -> Self {
        Self { name: name.into(), up: link.clone(), down: link }
    }
}

/// One way of a link of so many Mbit/s that loses nothing.
pub(crate) fn fixed(mbps: f64, delay: Duration, queue: Queue) -> LinkConfig {
    let capacity = Capacity::Fixed(Bitrate::from_mbps(mbps));
    LinkConfig { capacity, delay, queue, ..LinkConfig::default() }
}

/// Of all frames so many percent are lost, independently of each other.
pub(crate) fn percent_lost(percent: f64) -> Loss {
    match Probability::new(percent / 100.0) {
        Ok(probability) if percent > 0.0 => Loss::Bernoulli(probability),
        _ => Loss::None,
    }
}

/// What lies between client and server.
#[derive(Clone, Debug)]
pub enum Topology {
    /// One path per entry (at most 200), each an emulated link, a relay host and an unshaped hop.
    Relayed(Vec<PathSpec>),
    /// One emulated link from host to host.
    Single(Box<PathSpec>),
    /// One veth pair and nothing else.
    Direct,
}

impl Topology {
    /// One emulated link from host to host, `up` from the client to the server.
    pub(crate) fn single(up: LinkConfig, down: LinkConfig) -> Self {
        Topology::Single(Box::new(PathSpec { name: "link".into(), up, down }))
    }

    pub(crate) fn links(&self) -> &[PathSpec] {
        match self {
            Topology::Relayed(paths) => paths,
            Topology::Single(path) => std::slice::from_ref(path),
            Topology::Direct => &[],
        }
    }

    /// The paths' names, in order.
    pub fn path_names(&self) -> Vec<String> {
        match self {
            Topology::Direct => vec!["direct".into()],
            _ => self.links().iter().map(|path| path.name.clone()).collect(),
        }
    }

    /// What all its links together carry in the faster direction of each, behind a policer what that lets through; none where
    /// nothing limits it.
    pub(crate) fn rate(&self) -> Bitrate {
        let rate = |link: &LinkConfig| match &link.capacity {
            Capacity::Unlimited => link.policer.as_ref().map_or(0, |policer| policer.rate.as_bps()),
            Capacity::Fixed(rate) => rate.as_bps(),
            Capacity::Trace(trace) => trace.mean().as_bps(),
        };
        Bitrate::from_bps(self.links().iter().map(|path| rate(&path.up).max(rate(&path.down))).sum())
    }
}

/// A network that is up. Dropping it removes it.
pub struct Network {
    // Dropped in this order: the TAPs first, then the namespaces they are in.
    wires: Vec<Wire>,
    /// The client's host.
    pub client: Namespace,
    /// The server's host.
    pub server: Namespace,
    /// The relay hosts, one per path; none in a direct topology.
    pub relays: Vec<Namespace>,
    names: Vec<String>,
}

impl Network {
    /// Builds `topology`, its links' chances drawn from `seed`. Any number of networks may be up at once.
    pub fn build(emulator: &Emulator, topology: &Topology, seed: u64) -> Result<Self> {
        let (client, server) = (Namespace::create("a")?, Namespace::create("b")?);
        let names = topology.path_names();
        let mut network = Self { wires: Vec::new(), client, server, relays: Vec::new(), names };
        network.server.ip(&[format!("addr add {SERVER}/32 dev lo")])?;
        match topology {
            Topology::Direct => network.add_direct()?,
            Topology::Single(path) => network.add_single(emulator, path, seed)?,
            Topology::Relayed(paths) => {
                for (index, path) in (1..).zip(paths) {
                    network.add_path(emulator, Path { index }, path, seed.wrapping_add(index.into()))?;
                }
            }
        }
        Ok(network)
    }

    /// The paths' names, in order.
    pub fn path_names(&self) -> &[String] {
        &self.names
    }

    /// The client's address on path `path` (from 0): what it binds to leave by it.
    pub fn client_address(&self, path: usize) -> IpAddr {
        self.path(path).address(1, 1).into()
    }

    /// The relay host's address on the client's side of path `path` (from 0).
    pub fn relay_address(&self, path: usize) -> IpAddr {
        self.path(path).address(1, 2).into()
    }

    /// The client's interface of path `path` (from 0).
    pub fn interface(&self, path: usize) -> String {
        self.path(path).interface()
    }

    /// Sets the congestion control of both ends' TCP, as `cubic`, over the routes that there are now.
    pub fn set_congestion_control(&self, name: &str) -> Result<()> {
        [&self.client, &self.server].iter().try_for_each(|host| congestion::set(host, name))
    }

    /// Sets the initial window, in segments, of connections that the client makes from now on, over the routes that it
    /// has now.
    pub fn set_initial_window(&self, segments: u32) -> Result<()> {
        congestion::set_routes(&self.client, "initcwnd", &segments.to_string())
    }

    /// Cuts or restores the emulated link of path `path` (from 0). A direct path has none.
    pub fn set_up(&self, path: usize, up: bool) {
        if let Some(wire) = self.wires.get(path) {
            wire.set_up(up);
        }
    }

    /// Sets the time of all emulated links to zero, so that a measurement starts at the start of their traces.
    pub fn restart_links(&self) {
        self.wires.iter().for_each(Wire::restart);
    }

    /// What each emulated link carried since the last restart: up, down.
    pub fn stats(&self) -> Result<Vec<[Stats; 2]>> {
        self.wires.iter().map(Wire::stats).collect()
    }

    /// What has waited in the queues of each emulated link since the last restart: up, down.
    pub fn queues(&self) -> Result<Vec<[QueueStats; 2]>> {
        self.wires.iter().map(Wire::queues).collect()
    }

    /// The emulated links, in order.
    pub(crate) fn wires(&self) -> &[Wire] {
        &self.wires
    }

    fn path(&self, path: usize) -> Path {
        Path { index: u8::try_from(path + 1).unwrap_or(u8::MAX) }
    }

    fn add_direct(&mut self) -> Result<()> {
        let server = self.server.name();
        self.client.ip(&[format!("link add p1 type veth peer name p1 netns {server}")])?;
        self.address_neighbours()
    }

    fn add_single(&mut self, emulator: &Emulator, spec: &PathSpec, seed: u64) -> Result<()> {
        let taps = [self.client.tap("p1")?, self.server.tap("p1")?];
        self.address_neighbours()?;
        self.wires.push(emulator.join(taps, [spec.up.clone(), spec.down.clone()], seed)?);
        Ok(())
    }

    /// The interfaces `p1` of client and server are the two ends of one link.
    fn address_neighbours(&self) -> Result<()> {
        let path = Path { index: 1 };
        self.client.ip(&end("p1", path.address(1, 1), path.address(1, 2)))?;
        self.server.ip(&end("p1", path.address(1, 2), path.address(1, 1)))?;
        self.client.ip(&path.client_routes(CLIENT))
    }

    fn add_path(&mut self, emulator: &Emulator, path: Path, spec: &PathSpec, seed: u64) -> Result<()> {
        let relay = Namespace::create(&format!("r{}", path.index))?;
        let interface = path.interface();
        let taps = [self.client.tap(&interface)?, relay.tap("c1")?];
        relay.ip(&[format!("link add s1 type veth peer name {interface} netns {}", self.server.name())])?;
        for (host, device) in [(&relay, "s1"), (&self.server, &*interface)] {
            host.sysctl(&format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
        }
        relay.sysctl("ipv4/ip_forward", "1")?;
        self.client.ip(&end(&interface, path.address(1, 1), path.address(1, 2)))?;
        relay.ip(&end("c1", path.address(1, 2), path.address(1, 1)))?;
        relay.ip(&end("s1", path.address(2, 1), path.address(2, 2)))?;
        self.server.ip(&end(&interface, path.address(2, 2), path.address(2, 1)))?;
        self.client.ip(&path.client_routes(CLIENT))?;
        relay.ip(&[format!("route add {SERVER} via {}", path.address(2, 2))])?;
        self.server.ip(&[format!("route add 10.{}.1.0/24 via {}", path.index, path.address(2, 1))])?;
        self.wires.push(emulator.join(taps, [spec.up.clone(), spec.down.clone()], seed)?);
        self.relays.push(relay);
        Ok(())
    }
}

/// Addresses and `ip` lines of one path. Segment 1 is the client's link, segment 2 the server's.
#[derive(Clone, Copy)]
struct Path {
    /// From 1.
    index: u8,
}

impl Path {
    fn interface(self) -> String {
        format!("p{}", self.index)
    }

    fn address(self, segment: u8, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.index, segment, host)
    }

    /// What leaves with the client's address as host `number` on this path takes this path; the first path is the default for the
    /// rest. What led that way before is replaced.
    fn client_routes(self, number: u8) -> Vec<String> {
        let (own, next) = (self.address(1, number), self.address(1, 2));
        let (table, index) = (100 + u16::from(self.index), self.index);
        vec![
            format!("rule add from {own} table {table}"),
            format!("route replace default via {next} table {table}"),
            format!("route replace default via {next} metric {index}"),
        ]
    }
}

/// The client's host number on its links, and the one after [`Network::readdress_client`].
const CLIENT: u8 = 1;
const NEW_CLIENT: u8 = 101;

/// The server's address after [`Network::readdress_server`].
const NEW_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

/// The port that a client appears to send from after [`Network::rebind`].
const NEW_PORT: u16 = 40_001;

/// The ports of Nawa's daemon on the client, and of its relays.
const CLIENT_PORT: u16 = 51_900;
const RELAY_PORT: u16 = 51_901;

impl Network {
    /// Gives the client another address on path `path` (from 0), as a new lease does: the old one goes, with its routes.
    pub fn readdress_client(&self, path: usize) -> Result<()> {
        let (relay, path) = (self.relays.get(path), self.path(path));
        let [old, new] = [CLIENT, NEW_CLIENT].map(|host| path.address(1, host));
        relay.map_or(Ok(()), |relay| relay.ip(&[neighbour("c1", new, &mac(old))]))?;
        let (device, next) = (path.interface(), path.address(1, 2));
        // With its last address a link loses its routes and neighbours.
        let mut lines = vec![
            format!("addr del {old}/24 dev {device}"),
            format!("addr add {new}/24 dev {device}"),
            neighbour(&device, next, &mac(next)),
        ];
        lines.extend(path.client_routes(NEW_CLIENT));
        self.client.ip(&lines)
    }

    /// Gives the server another address instead of [`SERVER`]; every path reaches it.
    pub fn readdress_server(&self) -> Result<()> {
        for (index, relay) in (1..).zip(&self.relays) {
            relay.ip(&[format!("route add {NEW_SERVER} via {}", Path { index }.address(2, 2))])?;
        }
        let lines = [format!("addr add {NEW_SERVER}/32 dev lo"), format!("addr del {SERVER}/32 dev lo")];
        self.server.ip(&lines)
    }

    /// Lets path `path` (from 0) appear to come from another port, as after a NAT that has forgotten it: what the client
    /// sends reaches its relay from the new port, and what is sent to the old one is dropped. The client is not told.
    pub fn rebind(&self, path: usize) -> Result<()> {
        let relay = self.relays.get(path);
        relay.map_or(Ok(()), |relay| output(relay, "nft", &[rebinding()]).map(drop))
    }
}

/// A NAT without state, between the link and the relay.
fn rebinding() -> String {
    format!(
        "table ip rebinding {{
            chain in {{
                type filter hook prerouting priority raw;
                iifname c1 udp sport {CLIENT_PORT} udp dport {RELAY_PORT} udp sport set {NEW_PORT};
            }}
            chain out {{
                type filter hook output priority raw;
                oifname c1 udp sport {RELAY_PORT} udp dport {CLIENT_PORT} drop;
                oifname c1 udp sport {RELAY_PORT} udp dport {NEW_PORT} udp dport set {CLIENT_PORT};
            }}
        }}"
    )
}
