//! Emulated links in real time: one thread that moves frames between pairs of TAPs through [`link::Link`].
//!
//! The thread only reads, asks the links, writes and sleeps until a frame arrives or is due; it runs at real-time
//! priority, because a late wake-up would be measured as delay. All networks of a process share it.

mod spares;
mod thread;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use device::Tap;
use link::{LinkConfig, QueueStats, Stats};
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Doing, Error};
use thread::{Command, Worker};

pub use spares::Spares;

/// The thread that carries frames; it ends when this and every [`Wire`] of it are dropped.
#[derive(Debug)]
pub struct Emulator {
    control: Arc<Control>,
    next: AtomicU64,
}

/// Both directions of an emulated link between two TAPs. Dropping it removes the TAPs.
#[derive(Debug)]
pub struct Wire {
    id: u64,
    control: Arc<Control>,
}

impl Emulator {
    /// Starts the thread.
    pub fn start() -> Result<Self, Error> {
        let waker = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from);
        let waker = Arc::new(waker.doing(|| "make an eventfd".into())?);
        let (sender, receiver) = channel();
        let worker = Worker::new(receiver, waker.clone()).doing(|| "prepare the emulated links".into())?;
        let thread = std::thread::Builder::new().name("links".into()).spawn(|| worker.run());
        let thread = Some(thread.doing(|| "start a thread".into())?);
        let control = Control { sender: Mutex::new(sender), waker, thread };
        Ok(Self { control: Arc::new(control), next: AtomicU64::new(0) })
    }

    /// Joins two TAPs. `links[0]` carries what `taps[0]` sends to `taps[1]`, `links[1]` the other way; each draws its
    /// chances from its own stream of `seed`. Time is zero now.
    pub fn join(&self, taps: [Tap; 2], links: [LinkConfig; 2], seed: u64) -> Result<Wire, Error> {
        self.join_sparing(taps, links, seed, None)
    }

    /// The same, with frames that are not lost.
    pub fn join_sparing(
        &self,
        taps: [Tap; 2],
        links: [LinkConfig; 2],
        seed: u64,
        spares: Option<Arc<dyn Spares>>,
    ) -> Result<Wire, Error> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let wire = Wire { id, control: self.control.clone() };
        wire.control
            .ask(|reply| Command::Join { id, taps, links: Box::new(links), seed, spares, reply })?
            .doing(|| "join two TAPs".into())?;
        Ok(wire)
    }
}

impl Wire {
    /// Cuts (`false`) or restores (`true`) both directions, as a blackout does.
    pub fn set_up(&self, up: bool) {
        self.control.tell(Command::SetUp { id: self.id, up });
    }

    /// Sets time to zero again, with the links as new: traces and chances begin anew. What is under way still arrives.
    pub fn restart(&self) {
        self.control.tell(Command::Restart { id: self.id });
    }

    /// What each direction carried and dropped since it was joined or restarted.
    pub fn stats(&self) -> Result<[Stats; 2], Error> {
        self.control.ask(|reply| Command::Stats { id: self.id, reply })
    }

    /// What has waited in each direction's queue since it was joined or restarted, until now.
    pub fn queues(&self) -> Result<[QueueStats; 2], Error> {
        self.control.ask(|reply| Command::Queues { id: self.id, reply })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let id = self.id;
        // Wait, so that whoever removes the namespaces next finds no TAP left in them.
        let _ = self.control.ask(|reply| Command::Remove { id, reply });
    }
}

#[derive(Debug)]
struct Control {
    sender: Mutex<Sender<Command>>,
    waker: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    fn tell(&self, command: Command) {
        // The receiver is gone only if the thread panicked; `ask` reports that.
        let _ = self.sender.lock().unwrap_or_else(PoisonError::into_inner).send(command);
        let _ = rustix::io::write(&*self.waker, &1u64.to_ne_bytes());
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = channel();
        self.tell(command(reply));
        answer.recv().map_err(|_| Error::program("emulated links", "their thread has ended"))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
