//! A model in virtual time that a thread carries through real time: it reads from devices what the model takes, writes what is due,
//! and sleeps until a frame arrives or is due. It runs at real-time priority, because a late wake-up would be measured as delay.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use device::poller::Interest;
use device::{Poller, Waker, monotonic};

use crate::background::spawn;
use crate::error::{Doing, Error, Result};

/// SCHED_RR priority: above every program under test, below what the system itself needs.
const PRIORITY: i32 = 10;

/// Frames that a model reads from one TAP before the others get their turn.
pub(crate) const BATCH: usize = 64;

/// The longest frame of a TAP, in bytes: an Ethernet header and the largest MTU.
pub(crate) const FRAME_MAX: usize = 65_550;

/// The token that means "somebody asks".
const WAKE: u64 = u64::MAX;

/// What the thread drives. Errors end it.
pub(crate) trait Model: Send + 'static {
    /// When something is due.
    fn poll_timeout(&self) -> Option<Duration>;

    /// Lets happen what is due.
    fn deliver(&mut self, edge: &Edge) -> io::Result<()>;

    /// Takes what waits at the device that is watched by `token`.
    fn read(&mut self, token: u64, edge: &Edge) -> io::Result<()>;
}

/// The thread's clock, and what it waits for.
pub(crate) struct Edge {
    pub(crate) poller: Poller,
    started: Duration,
}

impl Edge {
    /// Since the thread's start.
    pub(crate) fn now(&self) -> Duration {
        monotonic().saturating_sub(self.started)
    }
}

type Request<M> = Box<dyn FnOnce(&mut M, &Edge) + Send>;

/// The thread of a model; dropping it ends it.
pub(crate) struct RealTime<M> {
    name: &'static str,
    /// `None` while it ends.
    requests: Option<Sender<Request<M>>>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl<M: Model> RealTime<M> {
    /// Starts the thread `name` with what `make` makes.
    pub(crate) fn start(name: &'static str, make: impl FnOnce(&Edge) -> io::Result<M>) -> Result<Self> {
        let (requests, asked) = channel();
        let waker = Waker::new().doing(|| "make an eventfd".into())?;
        let edge = Poller::new().and_then(|poller| {
            poller.add(&waker, WAKE, Interest::Read)?;
            Ok(Edge { poller, started: monotonic() })
        });
        let edge = edge.doing(|| "make an epoll instance".into())?;
        let model = make(&edge).doing(|| format!("prepare the emulated {name}"))?;
        let woken = waker.clone();
        let run = move || {
            device::process::real_time(PRIORITY);
            if let Err(error) = run(model, edge, &asked, &woken) {
                eprintln!("the emulated {name} stops: {error}");
            }
        };
        let thread = spawn(name, run)?;
        Ok(Self { name, requests: Some(requests), waker, thread: Some(thread) })
    }
}

impl<M> RealTime<M> {
    /// Has the thread do something with the model.
    pub(crate) fn tell(&self, request: impl FnOnce(&mut M, &Edge) + Send + 'static) {
        // The receiver is gone only if the thread has ended; `ask` reports that.
        let _ = self.requests.as_ref().map(|requests| requests.send(Box::new(request)));
        self.waker.wake();
    }

    /// The same, and waits for what comes of it.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut M, &Edge) -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = channel();
        self.tell(move |model, edge| drop(reply.send(request(model, edge))));
        answer.recv().map_err(|_| Error::program(&format!("emulated {}", self.name), "its thread has ended"))
    }
}

impl<M> Drop for RealTime<M> {
    fn drop(&mut self) {
        self.requests = None;
        self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Until nobody can ask any more.
fn run<M: Model>(
    mut model: M,
    mut edge: Edge,
    asked: &Receiver<Request<M>>,
    waker: &Waker,
) -> io::Result<()> {
    loop {
        let timeout = model.poll_timeout().map(|due| due.saturating_sub(edge.now()));
        let ready: Vec<u64> = edge.poller.wait(timeout)?.map(|ready| ready.token).collect();
        model.deliver(&edge)?;
        for token in ready {
            if token != WAKE {
                model.read(token, &edge)?;
                continue;
            }
            waker.reset();
            loop {
                match asked.try_recv() {
                    Ok(request) => request(&mut model, &edge),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
        }
        model.deliver(&edge)?;
    }
}
