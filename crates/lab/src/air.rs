//! A medium that many nodes share in real time, with all that a link has: [`link::Medium`] between TAPs, each a node's only
//! interface. [`crate::medium`] is faster and cannot hold a frame back.
//!
//! ```text
//!   node 0: f0 ┐
//!   node 1: f0 ┼ one thread: what comes out of one goes into those that hear it, when it is due
//!   node 2: f0 ┘
//! ```

use std::io;
use std::time::Duration;

use device::Tap;
use device::poller::Interest;
use link::{Adjacency, LinkConfig};

use crate::error::Error;
use crate::medium::{INTERFACE, bring_up, mac};
use crate::namespace::Namespace;
use crate::real_time::{BATCH, Edge, FRAME_MAX, Model, RealTime};

/// What is kept of a frame: enough for the headers of those who look at it, of `flood`'s in datagrams too.
const HEAD: usize = 66;
/// Frames that are kept, a few MB; of more, only the numbers.
const KEPT: usize = 1 << 16;

/// A medium that is up; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Air {
    // Ended before its nodes go.
    thread: RealTime<Shared>,
    nodes: Vec<Namespace>,
}

/// What has happened on a medium.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Frames that nodes have sent.
    pub sent: u64,
    /// The first of these, and what was heard of them, in the order of time.
    pub events: Vec<Event>,
}

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

impl Air {
    /// One namespace for each node of `adjacency`, with interface, MAC address and address as [`crate::medium`]'s have. All
    /// chances are drawn from `seed`, as [`link::Medium`] draws them in virtual time.
    pub(crate) fn build(adjacency: &Adjacency, link: LinkConfig, seed: u64) -> Result<Self, Error> {
        let numbers = 0..adjacency.nodes();
        let nodes = numbers.map(|node| Namespace::create(&format!("n{node}")));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let taps = (0..).zip(&nodes).map(|(number, node)| tap(number, node));
        let taps = taps.collect::<Result<Vec<_>, Error>>()?;
        let medium = link::Medium::new(adjacency, link, seed);
        let thread = RealTime::start("air", |edge| {
            (0..).zip(&taps).try_for_each(|(token, tap)| edge.poller.add(tap, token, Interest::Read))?;
            Ok(Shared { taps, medium, log: Log::default(), buffer: vec![0; FRAME_MAX] })
        })?;
        Ok(Self { thread, nodes })
    }

    /// All nodes' namespaces.
    pub(crate) fn nodes(&self) -> &[Namespace] {
        &self.nodes
    }

    /// What has happened until now.
    pub(crate) fn log(&self) -> Result<Log, Error> {
        self.thread.ask(|shared, _| shared.log.clone())
    }

    /// How many frames nodes have sent, all together.
    pub(crate) fn sent(&self) -> Result<u64, Error> {
        self.thread.ask(|shared, _| shared.log.sent)
    }
}

impl Log {
    pub(crate) fn add(&mut self, time: Duration, node: usize, heard: bool, frame: &[u8]) {
        self.sent += u64::from(!heard);
        if self.events.len() < KEPT {
            let head = frame[..frame.len().min(HEAD)].to_vec();
            self.events.push(Event { time, node, heard, head });
        }
    }
}

/// What the thread has.
struct Shared {
    taps: Vec<Tap>,
    medium: link::Medium,
    log: Log,
    buffer: Vec<u8>,
}

impl Model for Shared {
    fn poll_timeout(&self) -> Option<Duration> {
        self.medium.poll_timeout()
    }

    /// A frame that the kernel refuses is lost, as in a full receive ring.
    fn deliver(&mut self, edge: &Edge) -> io::Result<()> {
        let now = edge.now();
        while let Some(arrival) = self.medium.poll(now) {
            self.log.add(arrival.time, arrival.at, true, &arrival.frame);
            let _ = self.taps[arrival.at].send(&arrival.frame);
        }
        Ok(())
    }

    fn read(&mut self, token: u64, edge: &Edge) -> io::Result<()> {
        let node = token as usize;
        for _ in 0..BATCH {
            let Ok(length) = self.taps[node].recv(&mut self.buffer) else { break };
            let (now, frame) = (edge.now(), &self.buffer[..length]);
            self.log.add(now, node, false, frame);
            self.medium.send(now, node, frame);
        }
        Ok(())
    }
}

fn tap(number: u32, node: &Namespace) -> Result<Tap, Error> {
    node.without_ipv6()?;
    let tap = node.tap(INTERFACE)?;
    node.ip(&[format!("link set {INTERFACE} address {}", mac(number as usize))])?;
    bring_up(number, node)?;
    Ok(tap)
}
