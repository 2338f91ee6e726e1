//! The thread that does the steps of handshakes: data does not wait for X25519.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use device::Waker;

use crate::endpoint::{Done, Work};

/// The channels to that thread, and from it.
#[derive(Debug)]
pub struct HandshakeThread {
    work: Sender<Work>,
    done: Receiver<Done>,
}

impl HandshakeThread {
    /// Starts the thread, which wakes `waker` whenever something is done and ends with this value.
    pub fn start(waker: Waker) -> io::Result<Self> {
        let (work, to_do) = channel::<Work>();
        let (finished, done) = channel();
        let run = move || {
            for work in to_do {
                // Nobody listens any more when the tunnel has ended.
                let _ = finished.send(work.run());
                waker.wake();
            }
        };
        Builder::new().name("handshakes".into()).spawn(run)?;
        Ok(Self { work, done })
    }

    /// What has been done since the last time.
    pub fn done(&self) -> impl Iterator<Item = Done> {
        self.done.try_iter()
    }

    /// Has it done; gives it back where the thread has ended.
    pub fn give(&self, work: Work) -> Result<(), Work> {
        self.work.send(work).map_err(|refused| refused.0)
    }
}
