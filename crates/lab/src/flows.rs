//! TCP flows from client to server, each with a congestion control of its own: one thread moves the bytes of all.
//!
//! The sockets are this process's own, made in the hosts' namespaces, so that each flow's congestion control, start and
//! advertised window can be set and its state read ([`device::tcp`]). Nothing in here knows which congestion control it
//! times.

mod guests;
pub(crate) mod pipes;

use std::net::SocketAddr;
use std::time::Duration;

use device::tcp::{self, TcpInfo};
use link::{QueueStats, Stats};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::error::{Error, Result};
use crate::guest::Job;
use crate::network::{Network, SERVER};

pub(crate) use guests::{Guests, check as check_origin};
use pipes::{Pipe, Pipes};

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

impl FlowTest {
    /// Flows that are measured for a time, with the windows that the kernel gives them.
    pub(crate) fn lasting(flows: Vec<FlowSpec>, from: Duration, until: Duration) -> Self {
        let (initial_window, receive_buffer_max) = (None, BUFFER_MAX);
        Self { flows, initial_window, receive_buffer_max, from, until: Some(until), limit: until }
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// That of the running kernel, in the client's namespace.
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowOutcome {
    /// Payload that reached the receiving program while it was measured.
    pub(crate) bytes: u64,
    /// From its start, or that of the measurement, to the end, or its last byte.
    pub(crate) time: Duration,
    /// The sender's state at the end; a guest's is not known.
    pub(crate) info: Option<TcpInfo>,
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
) -> Result<Outcome> {
    network.server.sysctl("ipv4/tcp_rmem", &buffer_limits(test.receive_buffer_max))?;
    network.client.sysctl("ipv4/tcp_wmem", &format!("4096 {SEND_BUFFER} {BUFFER_MAX}"))?;
    test.initial_window.map_or(Ok(()), |segments| network.set_initial_window(segments))?;
    let mut running = Running::listen(network, guests, test, seed)?;
    network.restart_links();
    running.pipes.restart();
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
    pipes: Pipes,
    flows: Vec<Flow>,
}

/// One flow beside its sockets.
struct Flow {
    spec: FlowSpec,
    start: Duration,
    started: bool,
    /// What sends in a guest, out of reach.
    guest: Option<Job>,
}

/// What was counted when measuring began.
struct Mark {
    at: Duration,
    received: Vec<u64>,
    queue: QueueStats,
    stats: Stats,
}

impl<'a> Running<'a> {
    fn listen(network: &'a Network, guests: &'a mut Guests, test: &FlowTest, seed: u64) -> Result<Self> {
        let (mut dice, mut pipes) = (ChaCha8Rng::seed_from_u64(seed), Pipes::new()?);
        let mut flows = Vec::new();
        for (index, spec) in test.flows.iter().enumerate() {
            let at = (&network.server, address(index));
            pipes.listen(at, spec.bytes, (spec.receive_buffer, None))?;
            let start = draw(spec.start, &mut dice);
            flows.push(Flow { spec: spec.clone(), start, started: false, guest: None });
        }
        Ok(Self { network, guests, pipes, flows })
    }

    fn until_end(mut self, test: &FlowTest, mut watch: Option<Watch>) -> Result<Outcome> {
        let end = test.until.unwrap_or(test.limit);
        let (mut mark, mut look_at) = (None, Duration::ZERO);
        while !self.is_over(test, end)? {
            let now = self.pipes.now();
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
            let starts = self.flows.iter().filter(|flow| !flow.started).map(|flow| flow.start);
            let marks = mark.is_none().then_some(test.from);
            let next = starts.chain(marks).chain(looks).fold(end, Duration::min);
            self.pipes.step(next.saturating_sub(self.pipes.now()))?;
        }
        let mark = mark.map_or_else(|| self.mark(), Ok)?;
        self.outcome(mark)
    }

    /// Whether nothing more is to be measured. Fails where flows have not ended in time.
    fn is_over(&self, test: &FlowTest, end: Duration) -> Result<bool> {
        let mut both = self.flows.iter().zip(&self.pipes.all);
        let arrived = both.all(|(flow, pipe)| flow.spec.bytes == Some(pipe.received));
        let late = self.pipes.now() >= end;
        match test.until {
            None if late && !arrived => Err(Error::late("the transfer did not end", end)),
            None => Ok(arrived),
            Some(_) => Ok(late),
        }
    }

    fn start_due(&mut self, now: Duration) -> Result<()> {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            if !flow.started && now >= flow.start {
                flow.started = true;
                flow.guest = self.guests.start(index)?;
                if flow.guest.is_none() {
                    let way = (&self.network.client, address(index));
                    self.pipes.connect(index, way, flow.spec.congestion_control)?;
                }
            }
        }
        Ok(())
    }

    fn mark(&self) -> Result<Mark> {
        let received = self.pipes.all.iter().map(|pipe| pipe.received).collect();
        let ([queue, _], [stats, _]) = (self.network.queues()?.swap_remove(0), self.network.stats()?[0]);
        Ok(Mark { at: self.pipes.now(), received, queue, stats })
    }

    fn infos(&self) -> Vec<Option<TcpInfo>> {
        self.pipes.all.iter().map(|pipe| tcp::info(pipe.sender.as_ref()?).ok()).collect()
    }

    fn outcome(&self, mark: Mark) -> Result<Outcome> {
        let end = self.mark()?;
        let mut both = self.flows.iter().zip(&self.pipes.all);
        both.try_for_each(|(flow, pipe)| flow.check(pipe))?;
        let queue = end.queue.since(&mark.queue);
        let delivered = end.stats.delivered.bytes.get().saturating_sub(mark.stats.delivered.bytes.get());
        let flow = |(((flow, pipe), before), info): (((&Flow, &Pipe), &u64), Option<TcpInfo>)| {
            let ended = flow.spec.bytes == Some(pipe.received);
            let until = if ended { pipe.last } else { end.at };
            let time = until.saturating_sub(flow.start.max(mark.at));
            FlowOutcome { bytes: pipe.received - before, time, info }
        };
        let flows = self.flows.iter().zip(&self.pipes.all).zip(&mark.received).zip(self.infos());
        let flows = flows.map(flow).collect();
        let queue_max = end.stats.queue_max_frames.get();
        let since = |of: fn(&Stats) -> u64| of(&end.stats).saturating_sub(of(&mark.stats));
        let offered = since(|stats| stats.offered.frames.get());
        let dropped = since(|stats| stats.queue_dropped.frames.get() + stats.policer_dropped.frames.get());
        Ok(Outcome { flows, from: mark.at, until: end.at, queue, queue_max, delivered, offered, dropped })
    }
}

impl Flow {
    /// Fails if its guest has not brought a connection about.
    fn check(&self, pipe: &Pipe) -> Result<()> {
        match (&self.guest, &pipe.receiver) {
            (Some(job), None) => {
                // By now it has said what there is to say.
                let said = job.next_line(Duration::ZERO).ok().flatten();
                Err(Error::program("nc", said.unwrap_or_else(|| "no connection came from a guest".into())))
            }
            _ => Ok(()),
        }
    }
}

fn draw([earliest, latest]: [Duration; 2], dice: &mut ChaCha8Rng) -> Duration {
    let share = f64::from(dice.next_u32()) / f64::from(u32::MAX);
    earliest + latest.saturating_sub(earliest).mul_f64(share)
}
