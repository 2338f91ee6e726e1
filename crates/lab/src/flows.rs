//! TCP flows from client to server, each with a congestion control of its own: one thread moves the bytes of all.
//!
//! The sockets are this process's own, made in the hosts' namespaces, so that each flow's congestion control, start and
//! advertised window can be set and its state read ([`device::tcp`]). Nothing in here knows which congestion control it
//! times.

mod guests;
pub(crate) mod socket;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use device::poller::{Interest, Poller};
use device::tcp::{self, TcpInfo};
use link::{QueueStats, Stats};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::clock;
use crate::error::{Doing, Error};
use crate::guest::Job;
use crate::network::{Network, SERVER};

pub(crate) use guests::{Guests, check as check_origin};

/// The server's port for the first flow; each has its own.
const PORT: u16 = 5001;

/// What the kernel may tune a socket's buffers to, in bytes, so that they limit no flow.
pub const BUFFER_MAX: u32 = 32 << 20;

/// What a sender's socket holds from the start, in bytes: on a busy machine the lab's thread may come by only after seconds, and a
/// socket that has run dry by then sends in bursts.
const SEND_BUFFER: u32 = 4 << 20;

/// Flows, and when they are measured. Times count from the links' restart.
#[derive(Clone, Debug)]
pub struct FlowTest {
    /// The flows.
    pub flows: Vec<FlowSpec>,
    /// The senders' initial window, in segments; `None` is the kernel's.
    pub initial_window: Option<u32>,
    /// The greatest receive buffer, in bytes, that the kernel tunes a flow to which has none of its own (`tcp_rmem`).
    pub receive_buffer_max: u32,
    /// When measuring begins.
    pub from: Duration,
    /// When it ends; `None` is when every flow's bytes have arrived.
    pub until: Option<Duration>,
    /// When flows that have not ended are given up.
    pub limit: Duration,
}

/// One flow.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// As `cubic`.
    pub congestion_control: &'static str,
    /// Whose TCP sends it.
    pub origin: Origin,
    /// It starts at a time between these, drawn from the seed.
    pub start: [Duration; 2],
    /// What it sends; `None` is until the end.
    pub bytes: Option<u64>,
    /// The receiver's buffer (`SO_RCVBUF`), in bytes, which decides the window that it advertises; `None` leaves it to
    /// the kernel's tuning.
    pub receive_buffer: Option<u32>,
}

/// Whose TCP sends a flow. The receiver is always the running kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// That of the running kernel, in the client's namespace.
    #[default]
    Host,
    /// A guest's, one hop before the client, for congestion controls that the running kernel lacks.
    Guest {
        /// The module that has the congestion control, as `modprobe` takes it, unless the guest's kernel itself does.
        module: Option<&'static str>,
    },
}

/// What flows did while they were measured.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// In the order of the specification.
    pub(crate) flows: Vec<FlowOutcome>,
    /// When measuring began and ended.
    pub(crate) from: Duration,
    pub(crate) until: Duration,
    /// The queue towards the server.
    pub(crate) queue: QueueStats,
    /// The most frames that ever waited in it, since the links' restart.
    pub(crate) queue_max: u64,
    /// What the link towards the server has delivered while it was measured, in bytes of frames.
    pub(crate) delivered: u64,
    /// Frames that it was handed meanwhile, and those of them that its policer and its queue dropped.
    pub(crate) offered: u64,
    pub(crate) dropped: u64,
}

/// What one flow did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowOutcome {
    /// Payload that reached the receiving program while it was measured.
    pub(crate) bytes: u64,
    /// From its start, or that of the measurement, to the end, or its last byte.
    pub(crate) time: Duration,
    /// The sender's state at the end; a guest's is not known.
    pub(crate) info: Option<TcpInfo>,
}

impl FlowOutcome {
    /// Payload over time, in Mbit/s.
    pub(crate) fn goodput_mbps(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.time.as_secs_f64().max(1e-9)
    }
}

/// Told, every [`LOOK_EVERY`], what the flows do.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Look);

/// What the flows do at a time.
pub(crate) struct Look {
    /// Since the links' restart.
    pub(crate) time: Duration,
    /// Frames in the queue towards the server.
    pub(crate) queued: u64,
    /// The state of each flow that has started.
    pub(crate) infos: Vec<Option<TcpInfo>>,
}

/// How often a [`Watch`] is told.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs `test` over the first path of `network`; starts are drawn from `seed`. `guests` are those of the test.
pub(crate) fn run(
    network: &Network,
    guests: &mut Guests,
    test: &FlowTest,
    seed: u64,
    watch: Option<Watch>,
) -> Result<Outcome, Error> {
    network.server.sysctl("ipv4/tcp_rmem", &buffer_limits(test.receive_buffer_max))?;
    network.client.sysctl("ipv4/tcp_wmem", &format!("4096 {SEND_BUFFER} {BUFFER_MAX}"))?;
    test.initial_window.map_or(Ok(()), |segments| network.set_initial_window(segments))?;
    let mut running = Running::listen(network, guests, test, seed)?;
    network.restart_links();
    running.started = clock::now();
    running.until_end(test, watch)
}

/// Least, default and greatest, as `tcp_rmem` and `tcp_wmem` take them.
fn buffer_limits(max: u32) -> String {
    format!("4096 {} {max}", max.min(131_072))
}

/// What flow `index` connects to.
fn address(index: usize) -> SocketAddr {
    (SERVER, PORT.saturating_add(u16::try_from(index).unwrap_or(u16::MAX))).into()
}

struct Running<'a> {
    network: &'a Network,
    guests: &'a mut Guests,
    poller: Poller,
    flows: Vec<Flow>,
    started: Instant,
    buffer: Vec<u8>,
}

/// One flow's sockets, and how far it is.
struct Flow {
    spec: FlowSpec,
    start: Duration,
    address: SocketAddr,
    listener: OwnedFd,
    receiver: Option<OwnedFd>,
    sender: Option<Sender>,
    /// Still to be handed to the kernel.
    unsent: u64,
    received: u64,
    /// When the last byte came.
    last: Duration,
}

/// The end of a flow that sends.
enum Sender {
    Own(OwnedFd),
    Guest(Job),
}

impl Sender {
    /// A guest's is out of reach.
    fn socket(&self) -> Option<&OwnedFd> {
        match self {
            Sender::Own(socket) => Some(socket),
            Sender::Guest(_) => None,
        }
    }
}

/// What was counted when measuring began.
struct Mark {
    at: Duration,
    received: Vec<u64>,
    queue: QueueStats,
    stats: Stats,
}

/// What of a flow a token of the poller is: the token is three times the flow's index, plus this.
const LISTENER: u64 = 0;
const RECEIVER: u64 = 1;
const SENDER: u64 = 2;

impl<'a> Running<'a> {
    fn listen(
        network: &'a Network,
        guests: &'a mut Guests,
        test: &FlowTest,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let poller = Poller::new().doing(|| "make an epoll instance".into())?;
        let mut flows = Vec::new();
        for (index, spec) in test.flows.iter().enumerate() {
            let flow = Flow::listen(network, spec, address(index), draw(spec.start, &mut dice))?;
            let token = 3 * index as u64 + LISTENER;
            poller.add(&flow.listener, token, Interest::Read).doing(|| "wait for a socket".into())?;
            flows.push(flow);
        }
        Ok(Self { network, guests, poller, flows, started: clock::now(), buffer: vec![0; 1 << 16] })
    }

    fn now(&self) -> Duration {
        clock::now() - self.started
    }

    fn until_end(mut self, test: &FlowTest, mut watch: Option<Watch>) -> Result<Outcome, Error> {
        let end = test.until.unwrap_or(test.limit);
        let mut mark = test.from.is_zero().then(|| Mark::zero(self.flows.len()));
        let mut look_at = Duration::ZERO;
        while !self.is_over(test, end)? {
            let now = self.now();
            if mark.is_none() && now >= test.from {
                mark = Some(self.mark()?);
            }
            if let Some(watch) = watch.as_mut().filter(|_| now >= look_at) {
                look_at = now + LOOK_EVERY;
                let [up, _] = self.network.stats()?[0];
                watch(Look { time: now, queued: up.queue.frames.get(), infos: self.infos() });
            }
            self.start_due(now)?;
            let looks = watch.is_some().then_some(look_at);
            let starts = self.flows.iter().filter(|flow| flow.sender.is_none()).map(|flow| flow.start);
            let marks = mark.is_none().then_some(test.from);
            let next = starts.chain(marks).chain(looks).fold(end, Duration::min);
            self.step(next.saturating_sub(self.now()))?;
        }
        let mark = mark.map_or_else(|| self.mark(), Ok)?;
        self.outcome(mark)
    }

    /// Whether nothing more is to be measured. Fails where flows have not ended in time.
    fn is_over(&self, test: &FlowTest, end: Duration) -> Result<bool, Error> {
        let arrived = self.flows.iter().all(|flow| flow.spec.bytes == Some(flow.received));
        let late = self.now() >= end;
        match test.until {
            None if late && !arrived => {
                Err(Error::Late { what: "the transfer did not end".into(), seconds: end.as_secs() })
            }
            None => Ok(arrived),
            Some(_) => Ok(late),
        }
    }

    fn start_due(&mut self, now: Duration) -> Result<(), Error> {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            if flow.sender.is_none() && now >= flow.start {
                if let Some(job) = self.guests.start(index)? {
                    flow.sender = Some(Sender::Guest(job));
                    continue;
                }
                let sender = flow.connect(self.network)?;
                let token = 3 * index as u64 + SENDER;
                self.poller.add(&sender, token, Interest::Write).doing(|| "wait for a socket".into())?;
                flow.sender = Some(Sender::Own(sender));
            }
        }
        Ok(())
    }

    /// Moves what can be moved, waiting at most for `timeout`.
    fn step(&mut self, timeout: Duration) -> Result<(), Error> {
        let ready = self.poller.wait(Some(timeout)).doing(|| "wait for sockets".into())?;
        let tokens: Vec<u64> = ready.map(|ready| ready.token).collect();
        let now = self.now();
        for token in tokens {
            let Some(flow) = self.flows.get_mut((token / 3) as usize) else { continue };
            let moved = match token % 3 {
                LISTENER => flow.accept(&self.poller, token - LISTENER + RECEIVER),
                RECEIVER => flow.receive(&mut self.buffer, now),
                _ => flow.send(&self.poller, &self.buffer),
            };
            moved.doing(|| format!("transfer by {}", flow.spec.congestion_control))?;
        }
        Ok(())
    }

    fn mark(&self) -> Result<Mark, Error> {
        let received = self.flows.iter().map(|flow| flow.received).collect();
        let ([queue, _], [stats, _]) = (self.network.queues()?.swap_remove(0), self.network.stats()?[0]);
        Ok(Mark { at: self.now(), received, queue, stats })
    }

    fn infos(&self) -> Vec<Option<TcpInfo>> {
        let info = |flow: &Flow| tcp::info(flow.sender.as_ref()?.socket()?).ok();
        self.flows.iter().map(info).collect()
    }

    fn outcome(&self, mark: Mark) -> Result<Outcome, Error> {
        let end = self.mark()?;
        self.flows.iter().try_for_each(Flow::check)?;
        let queue = end.queue.since(&mark.queue);
        let delivered = end.stats.delivered.bytes.get().saturating_sub(mark.stats.delivered.bytes.get());
        let flow = |((flow, before), info): ((&Flow, &u64), Option<TcpInfo>)| {
            let ended = flow.spec.bytes == Some(flow.received);
            let until = if ended { flow.last } else { end.at };
            let time = until.saturating_sub(flow.start.max(mark.at));
            FlowOutcome { bytes: flow.received - before, time, info }
        };
        let flows = self.flows.iter().zip(&mark.received).zip(self.infos()).map(flow).collect();
        let queue_max = end.stats.queue_max_frames.get();
        let since = |of: fn(&Stats) -> u64| of(&end.stats).saturating_sub(of(&mark.stats));
        let offered = since(|stats| stats.offered.frames.get());
        let dropped = since(|stats| stats.queue_dropped.frames.get() + stats.policer_dropped.frames.get());
        Ok(Outcome { flows, from: mark.at, until: end.at, queue, queue_max, delivered, offered, dropped })
    }
}

impl Mark {
    /// At the links' restart.
    fn zero(flows: usize) -> Self {
        let (queue, stats) = Default::default();
        Self { at: Duration::ZERO, received: vec![0; flows], queue, stats }
    }
}

impl Flow {
    fn listen(
        network: &Network,
        spec: &FlowSpec,
        address: SocketAddr,
        start: Duration,
    ) -> Result<Self, Error> {
        let listener = network.server.run(|| socket::listen(address, spec.receive_buffer))?;
        Ok(Self {
            spec: spec.clone(),
            start,
            address,
            listener: listener.doing(|| format!("listen at {address}"))?,
            receiver: None,
            sender: None,
            unsent: spec.bytes.unwrap_or(u64::MAX),
            received: 0,
            last: Duration::ZERO,
        })
    }

    fn connect(&self, network: &Network) -> Result<OwnedFd, Error> {
        let (name, address) = (self.spec.congestion_control, self.address);
        match network.client.run(|| socket::connect(address, name))? {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::NoCongestionControl(name.into()))
            }
            connected => connected.doing(|| format!("connect to {}", self.address)),
        }
    }

    /// Fails if its guest has not brought a connection about.
    fn check(&self) -> Result<(), Error> {
        match (&self.sender, &self.receiver) {
            (Some(Sender::Guest(job)), None) => {
                // By now it has said what there is to say.
                let said = job.next_line(Duration::ZERO).ok().flatten();
                Err(Error::program("nc", said.unwrap_or_else(|| "no connection came from a guest".into())))
            }
            _ => Ok(()),
        }
    }

    fn accept(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        if let Some(receiver) = socket::accept(&self.listener)? {
            poller.add(&receiver, token, Interest::Read)?;
            self.receiver = Some(receiver);
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], now: Duration) -> io::Result<()> {
        if let Some(receiver) = &self.receiver {
            let bytes = socket::receive(receiver, buffer)?;
            if bytes > 0 {
                self.received += bytes;
                self.last = now;
            }
        }
        Ok(())
    }

    fn send(&mut self, poller: &Poller, content: &[u8]) -> io::Result<()> {
        let Some(sender) = self.sender.as_ref().and_then(Sender::socket) else { return Ok(()) };
        let length = content.len().min(usize::try_from(self.unsent).unwrap_or(usize::MAX));
        self.unsent -= socket::send(sender, &content[..length])?;
        if self.unsent == 0 { poller.remove(sender) } else { Ok(()) }
    }
}

fn draw([earliest, latest]: [Duration; 2], dice: &mut ChaCha8Rng) -> Duration {
    let share = f64::from(dice.next_u32()) / f64::from(u32::MAX);
    earliest + latest.saturating_sub(earliest).mul_f64(share)
}
