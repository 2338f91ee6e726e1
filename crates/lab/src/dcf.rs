//! A medium that nodes share, in real time, each in a namespace: 802.11 ([`link::dcf`]), or links with all that a link has
//! ([`link::Medium`]).
//!
//! ```text
//!   node 0: w0 ── a0 ▸ t0 ┐
//!   node 1: w0 ── a1 ▸ t1 ┼ the medium's namespace: one thread with the model
//!   node 2: w0 ── a2 ▸ t2 ┘
//! ```
//!
//! Each node has one interface, a veth whose other end a macvtap takes. The thread reads a node's next frame when the
//! station has room for it, as a driver fills its device; what waits until then stays charged to the socket that sent
//! it. A station hands its node every frame that it reads off the air, those for others as well: who wants to overhear
//! sets its interface to promiscuous mode.

use std::io;
use std::path::Path;
use std::time::Duration;

use bpf::xdp::Attached;
use device::Tap;
use device::poller::Interest;
use link::dcf::{DcfConfig, Destination, Position, StationStats};
use link::{Adjacency, LinkConfig, PacketCount};

use crate::error::{Doing, Error, Result};
use crate::ether::Ether;
use crate::namespace::{Namespace, interface_index};
use crate::program::output;
use crate::real_time::{Edge, Model, RealTime};

/// Every node's interface.
pub const INTERFACE: &str = "w0";

/// The interfaces' MTU: room for what a layer between IP and MAC adds to 1500 bytes.
pub const MTU: u32 = 1600;

/// The MTU of an interface's other end, for which the driver refuses native XDP, with pages of 4 KiB, as radios' drivers do.
const REFUSED_MTU: u32 = 4000;

/// How many frames may wait in a node's interface queue, a driver's usual `txqueuelen`.
pub const INTERFACE_QUEUE: u32 = 1000;

/// The index of the first macvtap in the medium's namespace.
const FIRST: usize = 100;

/// More than the interfaces' MTU and an Ethernet header.
const FRAME_MAX: usize = 2048;

/// What is kept of a frame: enough for the headers of those who look at it, of `flood`'s in datagrams too.
const HEAD: usize = 66;
/// Frames of a log, a few MB; of more, nothing is kept.
const KEPT: usize = 1 << 16;

/// A frame was sent or heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, since the medium began.
    pub time: Duration,
    /// By whom.
    pub node: usize,
    /// Heard, not sent.
    pub heard: bool,
    /// The frame's beginning, from its Ethernet header on.
    pub head: Vec<u8>,
}

/// A medium that is up; dropping it removes it.
pub struct Medium {
    // Dropped in this order: the thread and its taps, then the namespaces that they are in.
    thread: RealTime<Shared>,
    passing: Vec<Attached>,
    nodes: Vec<Namespace>,
    host: Namespace,
}

/// What a medium did.
#[derive(Clone, Debug, Default)]
pub struct MediumStats {
    /// Of each station.
    pub stations: Vec<StationStats>,
    /// By how much frames came later to their node than the model says, in the mean.
    pub lateness: Duration,
}

impl Medium {
    /// 802.11: one namespace for each station of `config` (at most 200), with the interface [`INTERFACE`] and the MAC address
    /// that [`mac`] names. A station's own queue is for one frame, or, where several go as one, for those on the air and for as many that
    /// are ready, whatever `config` says: what waits, waits in the node, unless it waits by flow.
    pub fn build(config: DcfConfig, seed: u64) -> Result<Self> {
        let nodes = config.stations.len();
        let below = match config.aggregate {
            _ if config.fq_codel => INTERFACE_QUEUE as usize,
            1 => 1,
            several => 2 * several,
        };
        Self::start(nodes, Ether::dcf(DcfConfig { queue: PacketCount(below as u64), ..config }, seed))
    }

    /// Links between those that hear each other: a namespace for each node of `adjacency`, likewise.
    pub(crate) fn of_links(adjacency: &Adjacency, link: LinkConfig, seed: u64) -> Result<Self> {
        Self::start(adjacency.nodes(), Ether::links(adjacency, link, seed))
    }

    fn start(count: usize, ether: Ether) -> Result<Self> {
        let host = Namespace::create("air")?;
        host.without_ipv6()?;
        let node = |n| Namespace::create(&format!("w{n}"));
        let nodes = (0..count).map(node).collect::<Result<Vec<_>>>()?;
        let taps = nodes.iter().enumerate().map(|(n, node)| connect(&host, n, node));
        let taps = taps.collect::<Result<Vec<_>>>()?;
        let thread = RealTime::start("medium", |edge| {
            (0..).zip(&taps).try_for_each(|(token, tap)| edge.poller.add(tap, token, Interest::Read))?;
            let station = |(n, tap)| Station { tap, mac: address(n), watched: true };
            let stations = taps.into_iter().enumerate().map(station).collect();
            Ok(Shared { ether, stations, late: (0, Duration::ZERO), log: None, buffer: vec![0; FRAME_MAX] })
        })?;
        Ok(Self { thread, passing: Vec::new(), nodes, host })
    }

    /// From now on nodes' drivers do native XDP, and the medium takes what they send before the kernel has made a packet of it
    /// (XDP_TX), which vanishes where a veth's other end has no program. Their queues are not stopped then.
    pub fn take_from_drivers(&mut self) -> Result<()> {
        let shorten = |n| format!("link set a{n} mtu {MTU}");
        self.host.ip(&(0..self.nodes.len()).map(shorten).collect::<Vec<_>>())?;
        let pass = |n| Ok(bpf::xdp::pass(interface_index(&format!("a{n}"))?)?);
        self.passing = self.host.run(|| (0..self.nodes.len()).map(pass).collect::<Result<_>>())??;
        Ok(())
    }

    /// The namespace of `node` (from 0).
    pub fn node(&self, node: usize) -> &Namespace {
        &self.nodes[node]
    }

    /// All nodes' namespaces.
    pub fn nodes(&self) -> &[Namespace] {
        &self.nodes
    }

    /// What nodes have sent and heard since this was called last, by the clock of the emulating thread: when it took a frame
    /// and when it handed it over. The first call begins that.
    pub fn log(&self) -> Result<Vec<Event>> {
        self.thread.ask(|shared, _| shared.log.replace(Vec::new()).unwrap_or_default())
    }

    /// Frames that all nodes have sent.
    pub fn sent(&self) -> Result<u64> {
        self.thread.ask(|shared, _| shared.ether.transmissions(shared.stations.len()))
    }

    /// The station `node` is at `position` from now on.
    pub fn place(&self, node: usize, position: Position) {
        self.thread.tell(move |shared, edge| {
            if let Ether::Dcf(medium) = &mut shared.ether {
                medium.place(edge.now(), node, position);
            }
        });
    }

    /// What happened since the medium was built; of links, their lateness.
    pub fn stats(&self) -> Result<MediumStats> {
        self.thread.ask(|shared, _| {
            let stations = match &shared.ether {
                Ether::Dcf(medium) => (0..shared.stations.len()).map(|n| *medium.stats(n)).collect(),
                Ether::Links(_) => Vec::new(),
            };
            let (count, sum) = shared.late;
            MediumStats { stations, lateness: sum / count.max(1) }
        })
    }
}

/// What the thread has.
///
/// The model's clock is the schedule's, not the thread's: what is due at a time happens at that time, however late the
/// thread wakes up, and a frame that waits when a station gets room is taken at the time at which it got it. So being
/// late by some microseconds for each of the frames does not add up to idle air.
struct Shared {
    ether: Ether,
    stations: Vec<Station>,
    /// How many frames have come to their nodes, and by how much all together later than the model says.
    late: (u32, Duration),
    /// If somebody wants one.
    log: Option<Vec<Event>>,
    buffer: Vec<u8>,
}

struct Station {
    tap: Tap,
    mac: [u8; 6],
    /// Whether the thread is to be woken when the node has a frame: only while none waits and the station has room.
    watched: bool,
}

impl Model for Shared {
    fn poll_timeout(&self) -> Option<Duration> {
        self.ether.poll_timeout()
    }

    /// Each thing at its own time.
    fn deliver(&mut self, edge: &Edge) -> io::Result<()> {
        while let Some(due) = self.ether.poll_timeout().filter(|due| *due <= edge.now()) {
            while let Some(arrival) = self.ether.poll(due) {
                let now = edge.now();
                self.late = (self.late.0 + 1, self.late.1 + now.saturating_sub(arrival.time));
                note(&mut self.log, now, arrival.at, true, &arrival.frame);
                // What the kernel refuses is lost, as in a full receive ring.
                let _ = self.stations[arrival.at].tap.send(&arrival.frame);
            }
            for station in 0..self.stations.len() {
                self.fill(station, due, edge)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, token: u64, edge: &Edge) -> io::Result<()> {
        self.fill(token as usize, edge.now(), edge)
    }
}

impl Shared {
    /// Takes what the node of `station` sends at `time` as long as there is room for it.
    fn fill(&mut self, station: usize, time: Duration, edge: &Edge) -> io::Result<()> {
        while self.ether.has_room(station) {
            let Ok(length) = self.stations[station].tap.recv(&mut self.buffer) else {
                return self.watch(station, true, edge);
            };
            let frame = &self.buffer[..length];
            note(&mut self.log, edge.now(), station, false, frame);
            // Nobody has another address, and nobody would answer.
            if let Some(to) = destination(frame, &self.stations) {
                self.ether.send(time, station, to, frame.to_vec());
            }
        }
        self.watch(station, false, edge)
    }

    fn watch(&mut self, station: usize, wanted: bool, edge: &Edge) -> io::Result<()> {
        let Station { tap, watched, .. } = &mut self.stations[station];
        match std::mem::replace(watched, wanted) {
            before if before == wanted => Ok(()),
            true => edge.poller.remove(tap),
            false => edge.poller.add(tap, station as u64, Interest::Read),
        }
    }
}

fn note(log: &mut Option<Vec<Event>>, time: Duration, node: usize, heard: bool, frame: &[u8]) {
    if let Some(log) = log.as_mut().filter(|log| log.len() < KEPT) {
        log.push(Event { time, node, heard, head: frame[..frame.len().min(HEAD)].to_vec() });
    }
}

fn destination(frame: &[u8], stations: &[Station]) -> Option<Destination> {
    let to = frame.first_chunk::<6>()?;
    if to[0] & 1 == 1 {
        return Some(Destination::Broadcast);
    }
    stations.iter().position(|station| station.mac == *to).map(Destination::Station)
}

/// The MAC address of `node`'s interface.
pub fn mac(node: usize) -> String {
    let [.., last] = address(node);
    format!("02:00:00:00:00:{last:02x}")
}

fn address(node: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, u8::try_from(node + 1).unwrap_or(u8::MAX)]
}

/// Joins `node` to the medium's namespace `host`.
fn connect(host: &Namespace, n: usize, node: &Namespace) -> Result<Tap> {
    node.without_ipv6()?;
    let (name, mac, index) = (node.name(), mac(n), FIRST + n);
    host.ip(&[
        format!(
            "link add a{n} mtu {REFUSED_MTU} type veth peer name {INTERFACE} address {mac} mtu {MTU} netns {name}"
        ),
        format!("link set a{n} up"),
    ])?;
    let macvtap =
        host.ip(&[format!("link add link a{n} name t{n} index {index} type macvtap mode passthru")]);
    macvtap.map_err(|error| Error::NoMacvtap(error.to_string()))?;
    host.ip(&[format!("link set t{n} txqueuelen {INTERFACE_QUEUE} allmulticast on up")])?;
    // Every packet is one frame, as on the air.
    output(node, "ethtool", &["-K", INTERFACE, "tx", "off", "gso", "off", "gro", "off"])?;
    node.ip(&[format!("link set {INTERFACE} up")])?;
    open(host, n, index)
}

fn open(host: &Namespace, n: usize, index: usize) -> Result<Tap> {
    let name = format!("t{n}");
    // By a program, because a thread sees the /sys of the namespace that mounted it.
    let said = output(host, "cat", &[format!("/sys/class/net/{name}/tap{index}/dev")])?;
    let number = said.trim().split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let number = number.ok_or_else(|| Error::program("cat", format!("a macvtap's device is {said:?}")))?;
    let node = format!("/dev/{}-{n}", host.name());
    let opened = host.run(|| Tap::open_macvtap(&name, number, Path::new(&node)))?;
    opened.doing(|| format!("open the macvtap {name} by a device at {node}"))
}
