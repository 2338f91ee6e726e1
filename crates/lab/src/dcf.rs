//! The 802.11 medium of [`link::dcf`] in real time, its stations namespaces.
//!
//! ```text
//!   node 0: w0 ── a0 ▸ t0 ┐
//!   node 1: w0 ── a1 ▸ t1 ┼ the medium's namespace: one thread with a `link::dcf::Medium`
//!   node 2: w0 ── a2 ▸ t2 ┘
//! ```
//!
//! Each node has one interface, a veth whose other end a macvtap takes. The thread reads a node's next frame when the
//! station has room for it, as a driver fills its device; what waits until then stays charged to the socket that sent
//! it. A station hands its node every frame that it reads off the air, those for others as well: who wants to overhear
//! sets its interface to promiscuous mode.

mod stats;
mod thread;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use bpf::xdp::Attached;
use device::{Macvtap, Waker};
use link::PacketCount;
use link::dcf::{DcfConfig, Position};

use crate::air::Log;
use crate::error::{Doing, Error};
use crate::namespace::Namespace;
use crate::program::output;
use thread::{Command, Worker};

pub use stats::{Lateness, MediumStats};

/// Every node's interface.
pub const INTERFACE: &str = "w0";

/// The interfaces' MTU: room for what a layer between IP and MAC adds to 1500 bytes.
pub const MTU: u32 = 1600;

/// How many frames may wait in a node's interface queue, a driver's usual `txqueuelen`.
pub const INTERFACE_QUEUE: u32 = 1000;

/// The index of the first macvtap in the medium's namespace.
const FIRST: usize = 100;

/// A medium that is up; dropping it removes it.
#[derive(Debug)]
pub struct Medium {
    // Dropped in this order: the thread and its taps, then the namespaces that they are in.
    thread: Thread,
    passing: Vec<Attached>,
    nodes: Vec<Namespace>,
    host: Namespace,
}

impl Medium {
    /// One namespace for each station of `config` (at most 200), with the interface [`INTERFACE`] and the MAC address
    /// that [`mac`] names. A station's own queue is for as many frames as go as one, whatever `config` says: what waits, waits in the
    /// node, unless it waits by flow.
    pub fn build(config: DcfConfig, seed: u64) -> Result<Self, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let host = Namespace::create(&format!("air{number}"))?;
        quiet(&host)?;
        let node = |n| Namespace::create(&format!("air{number}-{n}"));
        let nodes = (0..config.stations.len()).map(node).collect::<Result<Vec<_>, _>>()?;
        let taps = nodes.iter().enumerate().map(|(n, node)| connect(&host, n, node));
        let taps = taps.collect::<Result<Vec<_>, _>>()?;
        let below = if config.fq_codel { INTERFACE_QUEUE as usize } else { config.aggregate };
        let config = DcfConfig { queue: PacketCount(below as u64), ..config };
        Ok(Self { thread: Thread::start(config, seed, taps)?, passing: Vec::new(), nodes, host })
    }

    /// From now on also takes what nodes' drivers send before the kernel has made a packet of it (XDP_TX), which vanishes
    /// where a veth's other end has no program. Their queues are not stopped then.
    pub fn take_from_drivers(&mut self) -> Result<(), Error> {
        let pass = || {
            let mut net = device::Net::open().doing(|| "open a netlink socket".into())?;
            let mut pass = |n| {
                let end = format!("a{n}");
                let link = net.link(&end).doing(|| format!("find the interface {end}"))?;
                Ok(bpf::xdp::pass(link.index)?)
            };
            (0..self.nodes.len()).map(&mut pass).collect::<Result<Vec<_>, Error>>()
        };
        self.passing = self.host.run(pass)??;
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
    pub fn log(&self) -> Result<Log, Error> {
        self.thread.ask(|reply| Command::Log { reply })
    }

    /// `node` is at `position` from now on.
    pub fn place(&self, node: usize, position: Position) {
        self.thread.tell(Command::Place { station: node, position });
    }

    /// What happened since the medium was built.
    pub fn stats(&self) -> Result<MediumStats, Error> {
        self.thread.ask(|reply| Command::Stats { reply })
    }
}

/// The MAC address of `node`'s interface.
pub fn mac(node: usize) -> String {
    let [.., last] = address(node);
    format!("02:00:00:00:00:{last:02x}")
}

fn address(node: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, u8::try_from(node + 1).unwrap_or(u8::MAX)]
}

/// Nobody says anything unasked.
fn quiet(host: &Namespace) -> Result<(), Error> {
    ["all", "default"].iter().try_for_each(|of| host.sysctl(&format!("ipv6/conf/{of}/disable_ipv6"), "1"))
}

/// Joins `node` to the medium's namespace `host`.
fn connect(host: &Namespace, n: usize, node: &Namespace) -> Result<Macvtap, Error> {
    quiet(node)?;
    let (name, mac, index) = (node.name(), mac(n), FIRST + n);
    host.ip(&[
        format!(
            "link add a{n} mtu {MTU} type veth peer name {INTERFACE} address {mac} mtu {MTU} netns {name}"
        ),
        format!("link set a{n} up"),
    ])?;
    let macvtap =
        host.ip(&[format!("link add link a{n} name t{n} index {index} type macvtap mode passthru")]);
    macvtap.map_err(|error| Error::NoMacvtap { reason: error.to_string() })?;
    host.ip(&[format!("link set t{n} txqueuelen {INTERFACE_QUEUE} allmulticast on up")])?;
    // Every packet is one frame, as on the air.
    output(node, "ethtool", &["-K", INTERFACE, "tx", "off", "gso", "off", "gro", "off"])?;
    node.ip(&[format!("link set {INTERFACE} up")])?;
    open(host, n, index)
}

fn open(host: &Namespace, n: usize, index: usize) -> Result<Macvtap, Error> {
    let name = format!("t{n}");
    // By a program, because a thread sees the /sys of the namespace that mounted it.
    let said = output(host, "cat", &[format!("/sys/class/net/{name}/tap{index}/dev")])?;
    let number = said.trim().split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let number = number.ok_or_else(|| Error::program("cat", format!("a macvtap's device is {said:?}")))?;
    let node = format!("/dev/{}-{n}", host.name());
    let opened = host.run(|| Macvtap::open(&name, number, Path::new(&node)))?;
    opened.doing(|| format!("open the macvtap {name} by a device at {node}"))
}

/// The thread that carries frames; dropping it ends it.
#[derive(Debug)]
struct Thread {
    commands: Mutex<Sender<Command>>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start(config: DcfConfig, seed: u64, taps: Vec<Macvtap>) -> Result<Self, Error> {
        let waker = Waker::new().doing(|| "make an eventfd".into())?;
        let (commands, receiver) = channel();
        let macs = (0..taps.len()).map(address).collect();
        let worker = Worker::new(config, seed, taps, macs, receiver, waker.clone());
        let worker = worker.doing(|| "prepare the emulated medium".into())?;
        let thread = std::thread::Builder::new().name("medium".into()).spawn(|| worker.run());
        let thread = Some(thread.doing(|| "start a thread".into())?);
        Ok(Self { commands: Mutex::new(commands), waker, thread })
    }

    fn tell(&self, command: Command) {
        // The receiver is gone only if the thread has ended; `ask` reports that.
        let _ = self.commands.lock().unwrap_or_else(PoisonError::into_inner).send(command);
        self.waker.wake();
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = channel();
        self.tell(command(reply));
        answer.recv().map_err(|_| Error::program("emulated medium", "its thread has ended"))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lateness_is_a_mean_and_a_maximum() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.mean(), Duration::ZERO);
        [1, 5].map(Duration::from_micros).into_iter().for_each(|late| lateness.note(late));
        assert_eq!((lateness.mean().as_micros(), lateness.max.as_micros()), (3, 5));
    }

    #[test]
    fn a_node_has_its_own_address() {
        assert_eq!((mac(0).as_str(), mac(9).as_str()), ("02:00:00:00:00:01", "02:00:00:00:00:0a"));
    }
}
