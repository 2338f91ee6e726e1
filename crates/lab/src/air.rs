//! A medium that many nodes share in real time, with all that a link has: [`link::Medium`] between TAPs, each a node's only
//! interface. [`crate::medium`] is faster and cannot hold a frame back.
//!
//! ```text
//!   node 0: f0 ┐
//!   node 1: f0 ┼ one thread: what comes out of one goes into those that hear it, when it is due
//!   node 2: f0 ┘
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::poller::Interest;
use device::{Poller, Tap, Waker};
use link::{Adjacency, LinkConfig};

use crate::clock;
use crate::error::{Doing, Error};
use crate::medium::{INTERFACE, bring_up, quiet};
use crate::namespace::Namespace;

/// As [`crate::emulator`]'s: a late wake-up would be measured as delay.
const PRIORITY: i32 = 10;
/// Frames read from one TAP before the others get their turn.
const BATCH: usize = 64;
/// The longest frame.
const FRAME_MAX: usize = 65_550;
/// What is kept of a frame: enough for the headers of those who look at it, of `flood`'s in datagrams too.
const HEAD: usize = 66;
/// Frames that are kept, a few MB; of more, only the numbers.
const KEPT: usize = 1 << 16;
const WAKER: u64 = u64::MAX;

/// A medium that is up; dropping it removes it.
#[derive(Debug)]
pub struct Air {
    shared: Arc<Shared>,
    waker: Waker,
    // Ended before its nodes go.
    thread: Option<JoinHandle<()>>,
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

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<Log>,
    stop: AtomicBool,
}

struct Worker {
    taps: Vec<Tap>,
    medium: link::Medium,
    poller: Poller,
    waker: Waker,
    shared: Arc<Shared>,
    began: Instant,
}

impl Air {
    /// One namespace for each node of `adjacency`, with interface, MAC address and address as [`crate::medium`]'s have. All
    /// chances are drawn from `seed`, as [`link::Medium`] draws them in virtual time.
    pub fn build(adjacency: &Adjacency, link: LinkConfig, seed: u64) -> Result<Self, Error> {
        let numbers = 0..adjacency.nodes();
        let nodes = numbers.map(|node| Namespace::create(&format!("n{node}")));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let taps = (0..).zip(&nodes).map(|(number, node)| tap(number, node)).collect::<Result<_, Error>>()?;
        let waker = Waker::new().doing(|| "make an eventfd".into())?;
        let shared = Arc::new(Shared::default());
        let medium = link::Medium::new(adjacency, link, seed);
        let worker = Worker::new(taps, medium, waker.clone(), shared.clone());
        let worker = worker.doing(|| "prepare the medium".into())?;
        let thread = std::thread::Builder::new().name("air".into()).spawn(|| worker.run());
        Ok(Self { shared, waker, thread: Some(thread.doing(|| "start a thread".into())?), nodes })
    }

    /// All nodes' namespaces.
    pub fn nodes(&self) -> &[Namespace] {
        &self.nodes
    }

    /// What has happened until now.
    pub fn log(&self) -> Log {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many frames nodes have sent, all together.
    pub fn sent(&self) -> u64 {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).sent
    }
}

impl Drop for Air {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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

impl Worker {
    fn new(taps: Vec<Tap>, medium: link::Medium, waker: Waker, shared: Arc<Shared>) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&waker, WAKER, Interest::Read)?;
        for (token, tap) in (0..).zip(&taps) {
            poller.add(tap, token, Interest::Read)?;
        }
        Ok(Self { taps, medium, poller, waker, shared, began: clock::now() })
    }

    fn run(mut self) {
        device::process::real_time(PRIORITY);
        let mut buffer = vec![0; FRAME_MAX];
        while !self.shared.stop.load(Ordering::Relaxed) {
            let now = self.began.elapsed();
            let timeout = self.medium.poll_timeout().map(|due| due.saturating_sub(now));
            let ready: Vec<u64> = match self.poller.wait(timeout) {
                Ok(ready) => ready.map(|ready| ready.token).collect(),
                Err(error) => return eprintln!("the medium stops: epoll_pwait2: {error}"),
            };
            for token in ready {
                match token {
                    WAKER => self.waker.reset(),
                    node => self.read(node as usize, &mut buffer),
                }
            }
            self.deliver();
        }
    }

    /// Takes what a node sends.
    fn read(&mut self, node: usize, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            let Ok(length) = self.taps[node].recv(buffer) else { return };
            let now = self.began.elapsed();
            self.log(|log| log.add(now, node, false, &buffer[..length]));
            self.medium.send(now, node, &buffer[..length]);
        }
    }

    /// Hands over what is due. A frame that the kernel refuses is lost, as in a full receive ring.
    fn deliver(&mut self) {
        let now = self.began.elapsed();
        while let Some(arrival) = self.medium.poll(now) {
            self.log(|log| log.add(arrival.time, arrival.at, true, &arrival.frame));
            let _ = self.taps[arrival.at].send(&arrival.frame);
        }
    }

    fn log(&self, add: impl FnOnce(&mut Log)) {
        add(&mut self.shared.log.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn tap(number: u32, node: &Namespace) -> Result<Tap, Error> {
    quiet(node)?;
    let tap = node.run(|| Tap::create(INTERFACE))?;
    let tap = tap.doing(|| format!("make the TAP {INTERFACE} in {}", node.name()))?;
    let mac = crate::medium::mac(number as usize);
    node.ip(&[format!("link set {INTERFACE} address {mac}")])?;
    bring_up(number, node)?;
    Ok(tap)
}
