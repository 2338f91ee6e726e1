//! Sockets that one thread moves bytes through: as much as they take, from each sender to its receiver.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use device::poller::{Interest, Poller};
use device::tcp;

use super::socket;
use crate::clock;
use crate::error::{Doing, Error};

/// One connection's sockets, and how far it is.
pub(crate) struct Pipe {
    listener: OwnedFd,
    pub(crate) receiver: Option<OwnedFd>,
    /// None until it is there, and for one that another program has.
    pub(crate) sender: Option<OwnedFd>,
    /// What the receiver is to advertise at most, in bytes.
    window: Option<u32>,
    /// Still to be handed to the kernel.
    unsent: u64,
    pub(crate) received: u64,
    /// When the last byte came.
    pub(crate) last: Duration,
}

/// All connections of a test, and the time since its start.
pub(crate) struct Pipes {
    poller: Poller,
    pub(crate) all: Vec<Pipe>,
    started: Instant,
    buffer: Vec<u8>,
}

/// What of a connection a token of the poller is: the token is three times the connection's index, plus this.
const LISTENER: u64 = 0;
const RECEIVER: u64 = 1;
const SENDER: u64 = 2;

impl Pipes {
    pub(crate) fn new() -> Result<Self, Error> {
        let poller = Poller::new().doing(|| "make an epoll instance".into())?;
        Ok(Self { poller, all: Vec::new(), started: clock::now(), buffer: vec![0; 1 << 16] })
    }

    /// The next connection is accepted at `listener` and carries so many bytes at most.
    pub(crate) fn listen(
        &mut self,
        listener: OwnedFd,
        bytes: Option<u64>,
        window: Option<u32>,
    ) -> Result<(), Error> {
        let token = 3 * self.all.len() as u64 + LISTENER;
        self.poller.add(&listener, token, Interest::Read).doing(|| "wait for a socket".into())?;
        let unsent = bytes.unwrap_or(u64::MAX);
        let (receiver, sender, last) = (None, None, Duration::ZERO);
        self.all.push(Pipe { listener, receiver, sender, window, unsent, received: 0, last });
        Ok(())
    }

    /// Connection `index` begins to send.
    pub(crate) fn send_by(&mut self, index: usize, sender: OwnedFd) -> Result<(), Error> {
        let token = 3 * index as u64 + SENDER;
        self.poller.add(&sender, token, Interest::Write).doing(|| "wait for a socket".into())?;
        self.all[index].sender = Some(sender);
        Ok(())
    }

    /// Time begins.
    pub(crate) fn restart(&mut self) {
        self.started = clock::now();
    }

    pub(crate) fn now(&self) -> Duration {
        clock::now() - self.started
    }

    /// Moves what can be moved, waiting at most for `timeout`.
    pub(crate) fn step(&mut self, timeout: Duration) -> Result<(), Error> {
        let ready = self.poller.wait(Some(timeout)).doing(|| "wait for sockets".into())?;
        let tokens: Vec<u64> = ready.map(|ready| ready.token).collect();
        let now = self.now();
        for token in tokens {
            let Some(pipe) = self.all.get_mut((token / 3) as usize) else { continue };
            let moved = match token % 3 {
                LISTENER => pipe.accept(&self.poller, token - LISTENER + RECEIVER),
                RECEIVER => pipe.receive(&mut self.buffer, now),
                _ => pipe.send(&self.poller, &self.buffer),
            };
            moved.doing(|| format!("transfer by flow {}", token / 3))?;
        }
        Ok(())
    }
}

impl Pipe {
    fn accept(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        if let Some(receiver) = socket::accept(&self.listener)? {
            poller.add(&receiver, token, Interest::Read)?;
            self.receiver = Some(receiver);
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], now: Duration) -> io::Result<()> {
        let Some(receiver) = &self.receiver else { return Ok(()) };
        let bytes = socket::receive(receiver, buffer)?;
        self.window.map_or(Ok(()), |window| tcp::clamp_window(receiver, window))?;
        if bytes > 0 {
            self.received += bytes;
            self.last = now;
        }
        Ok(())
    }

    fn send(&mut self, poller: &Poller, content: &[u8]) -> io::Result<()> {
        let Some(sender) = &self.sender else { return Ok(()) };
        let length = content.len().min(usize::try_from(self.unsent).unwrap_or(usize::MAX));
        self.unsent -= socket::send(sender, &content[..length])?;
        if self.unsent == 0 { poller.remove(sender) } else { Ok(()) }
    }
}
