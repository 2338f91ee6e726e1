//! A medium that many nodes share, in namespaces: one XDP program between veths, each node's the only interface that it
//! has.
//!
//! ```text
//!   node 0: f0 ── n0 ┐
//!   node 1: f0 ── n1 ┼ the medium's namespace: enter → all others → leave, if they hear the sender
//!   node 2: f0 ── n2 ┘
//! ```
//!
//! Nothing is lost and nothing waits: XDP cannot hold a frame back. [`crate::dcf`] has all that a link has, and is slower.

use std::time::Duration;

use bpf::xdp::{Attached, Loaded};
use link::Adjacency;

use crate::error::{Error, Result};
use crate::namespace::{Namespace, interface_index};
use crate::program::output;

/// Every node's interface.
pub const INTERFACE: &str = "f0";

const OBJECT: &[u8] = bpf::object!("medium.bpf.o");

// As in bpf/medium.h.
const NODES_MAX: usize = 256;
const FIRST: u32 = 10;
const DELAYS: u32 = 1 << 18;
const HEAD: usize = 64;

/// Of a stream's program in one call, which takes some milliseconds to begin and to end by itself.
const RUNS: u32 = 100_000;

/// Native XDP takes no more on a veth.
const MTU: u32 = 3000;

/// An MTU at which it takes none.
const TOO_LARGE: u32 = 3600;

/// A medium that is up; dropping it removes it.
pub struct Medium {
    // Dropped in this order.
    _attached: Vec<Attached>,
    loaded: Loaded,
    nodes: Vec<Namespace>,
    host: Namespace,
}

/// A message that a node has sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Who.
    pub node: usize,
    /// From its coming into the medium to its coming in again from the node.
    pub hop: Duration,
    /// The part of it from its leaving the medium towards the node.
    pub relay: Duration,
    /// The ID of who sent the message first.
    pub source: u32,
}

impl Medium {
    /// One namespace for each node of `adjacency` (at most 256), with the interface [`INTERFACE`] and the address that
    /// [`address`] names. Where it is `timed`, so are relays of messages of wire version 1.
    pub fn build(adjacency: &Adjacency, timed: bool) -> Result<Self> {
        if adjacency.nodes() > NODES_MAX {
            let reason = format!("{} nodes are more than {NODES_MAX}", adjacency.nodes());
            return Err(Error::program("medium", reason));
        }
        let host = Namespace::create("m")?;
        let numbers = 0..adjacency.nodes();
        let nodes = numbers.map(|node| Namespace::create(&format!("n{node}"))).collect::<Result<Vec<_>>>()?;
        host.without_ipv6()?;
        nodes.iter().try_for_each(Namespace::without_ipv6)?;
        host.ip(&(0..).zip(&nodes).map(|(node, to)| veth(node, to)).collect::<Vec<_>>())?;
        host.ip(&nodes.iter().enumerate().map(|(n, _)| format!("link set n{n} up")).collect::<Vec<_>>())?;
        (0..).zip(&nodes).try_for_each(|(node, host)| bring_up(node, host))?;
        let setup = [u32::from(timed), 0].map(u32::to_ne_bytes);
        let loaded = host.run(|| bpf::xdp::load(OBJECT, &[("setup", setup.as_flattened())]))??;
        let ports = (0..).map(|node| FIRST + node).take(nodes.len());
        let attach = |port| {
            loaded.set_port("ports", port, port, "leave")?;
            Ok(loaded.attach("enter", port)?)
        };
        let attached = host.run(|| ports.map(attach).collect::<Result<_>>())??;
        (0..nodes.len()).try_for_each(|node| set_hearers(&loaded, node, adjacency.hearers(node)))?;
        Ok(Self { _attached: attached, loaded, nodes, host })
    }

    /// The namespace of `node` (from 0).
    pub fn node(&self, node: usize) -> &Namespace {
        &self.nodes[node]
    }

    /// All nodes' namespaces.
    pub fn nodes(&self) -> &[Namespace] {
        &self.nodes
    }

    /// Has the driver of `node`'s interface refuse XDP, by an MTU of its other end that is too large for it.
    pub(crate) fn refuse_native(&self, node: usize) -> Result<()> {
        self.host.ip(&[format!("link set n{node} mtu {TOO_LARGE}")])
    }

    pub(crate) fn host(&self) -> &Namespace {
        &self.host
    }

    /// How many frames of any kind `node` has sent.
    pub fn sent(&self, node: usize) -> Result<u64> {
        Ok(word(&self.loaded.lookup("nodes", number(node))?.unwrap_or_default(), 0))
    }

    /// How many frames have crossed from one node to another, which hears it.
    pub fn crossed(&self, from: usize, to: usize) -> Result<u64> {
        Ok(word(&self.loaded.lookup("edges", index(from, to))?.unwrap_or_default(), 8))
    }

    /// The relays of timed messages since [`Medium::forget_delays`].
    pub fn relays(&self) -> Result<Vec<Relayed>> {
        let read = |slot| {
            let value = self.loaded.lookup("delays", slot)?.unwrap_or_default();
            let time = |at| Duration::from_nanos(half(&value, at).into());
            let (node, source) = (half(&value, 0) as usize, half(&value, 12));
            Ok(Relayed { node, hop: time(4), relay: time(8), source })
        };
        let taken = half(&self.loaded.lookup(".bss.taken", 0)?.unwrap_or_default(), 0);
        (0..taken.min(DELAYS)).map(read).collect()
    }

    /// Begins to time anew.
    pub fn forget_delays(&self) -> Result<()> {
        Ok(self.loaded.set(".bss.taken", &0u32.to_ne_bytes())?)
    }

    /// Attaches one of the lab's own programs to `node`'s interface.
    pub fn attach(&self, node: usize, program: &str) -> Result<Attached> {
        self.nodes[node].run(|| Ok(self.loaded.attach(program, interface_index(INTERFACE)?)?))?
    }

    /// Has `node` send `frame`, Ethernet header and all, from within the kernel, each time with the next SEQ (wire version
    /// 1): one every `interval` as nearly as the CPU manages, for `time` and a little more.
    pub fn stream(&self, node: usize, frame: &[u8], interval: Duration, time: Duration) -> Result<()> {
        let seq = half(&self.loaded.lookup(".bss.stream", 0)?.unwrap_or_default(), 0);
        let udp = u32::from(frame.get(12..14) == Some(&[8, 0]));
        let now = device::monotonic();
        let clocks = [now, interval].map(|time| (time.as_nanos() as u64).to_ne_bytes());
        let words = [seq, udp].map(u32::to_ne_bytes);
        let head = frame.get(..HEAD).unwrap_or_default();
        self.loaded.set(".bss.stream", &[words.as_flattened(), clocks.as_flattened(), head].concat())?;
        let send = || {
            let interface = interface_index(INTERFACE)?;
            while device::monotonic() < now + time {
                self.loaded.send("generate", frame, interface, RUNS)?;
            }
            Ok(())
        };
        self.nodes[node].run(send)?
    }
}

/// The IPv4 address of `node`'s interface, in a network of 24 bits.
pub fn address(node: usize) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::new(10, 99, 0, u8::try_from(node).unwrap_or(u8::MAX).saturating_add(1))
}

fn veth(node: u32, to: &Namespace) -> String {
    let (index, name, peer) =
        (FIRST + node, to.name(), format!("{INTERFACE} address 02:00:00:00:00:{node:02x}"));
    format!("link add n{node} index {index} mtu {MTU} type veth peer name {peer} mtu {MTU} netns {name}")
}

/// Checksums are written where the packet is made, and frames get to a node whether or not it has an XDP program.
pub(crate) fn bring_up(node: u32, host: &Namespace) -> Result<()> {
    let (address, last) = (address(node as usize), "brd 10.99.0.255");
    host.ip(&[format!("addr add {address}/24 {last} dev {INTERFACE}"), format!("link set {INTERFACE} up")])?;
    output(host, "ethtool", &["-K", INTERFACE, "tx", "off", "gro", "on"]).map(drop)
}

fn set_hearers(loaded: &Loaded, node: usize, hearers: &[usize]) -> Result<()> {
    let words = [0, 0, hearers.len(), hearers.first().copied().unwrap_or_default()];
    loaded.update("nodes", number(node), words.map(|word| number(word).to_ne_bytes()).as_flattened())?;
    let heard = [1u32, 0, 0, 0].map(u32::to_ne_bytes);
    hearers
        .iter()
        .try_for_each(|&hearer| Ok(loaded.update("edges", index(node, hearer), heard.as_flattened())?))
}

fn index(from: usize, to: usize) -> u32 {
    number(from * NODES_MAX + to)
}

fn number(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

/// Eight bytes from `at`.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// Four bytes from `at`.
fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}
