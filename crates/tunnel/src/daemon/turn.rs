//! The thread's loop. A turn: wait, take what came from the network and from the TUN; then
//! hand out what the core has for either.

use std::io;
use std::time::Duration;

use device::poller::{Interest, Poller, monotonic};
use device::udp::{RecvBatch, Transmit};
use rand_core::{OsRng, TryRngCore};

use super::interface::Interface;
use super::locals::{Change, Locals};
use super::sockets::Sockets;
use super::{Asked, Inbox, Reconfiguration};
use crate::address::Train;
use crate::config::Config;
use crate::endpoint::{Arrival, Endpoint};
use crate::keys::PrivateKey;
use crate::status::TunnelStatus;

const TUN: u64 = 0;
const WAKER: u64 = 1;
const CHANGES: u64 = 2;
/// The sockets' tokens start here.
const SOCKETS: u64 = 3;
/// Reads of the TUN in a turn, of up to 64 KiB each: the network's datagrams wait meanwhile.
const READS: usize = 4;
/// Trains sent at once.
const TRAINS: usize = 32;

/// What is ready.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    tun: bool,
    waker: bool,
    changes: bool,
    sockets: [bool; 2],
}

/// All that the thread owns.
pub struct Turn {
    ends: Ends,
    sockets: Sockets,
    inbox: Inbox<TunnelStatus, Reconfiguration>,
    poller: Poller,
    batch: RecvBatch,
    trains: Vec<Train>,
    inner: Vec<Vec<u8>>,
}

/// What the configuration is about.
struct Ends {
    now: Duration,
    endpoint: Endpoint,
    interface: Interface,
    locals: Locals,
}

impl Turn {
    /// Everything is made; nothing has been sent yet. The network namespace is the calling thread's.
    pub fn new(
        config: Config,
        key: PrivateKey,
        interface: Interface,
        sockets: Sockets,
        inbox: Inbox<TunnelStatus, Reconfiguration>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&interface.tun, TUN, Interest::Read)?;
        poller.add(&inbox.waker, WAKER, Interest::Read)?;
        for (token, socket) in (SOCKETS..).zip(sockets.iter()) {
            poller.add(socket, token, Interest::Read)?;
        }
        let locals = Locals::new(&config, interface.index())?;
        if let Some(changes) = locals.changes() {
            poller.add(changes, CHANGES, Interest::Read)?;
        }
        let mut seed = [0; 32];
        OsRng.try_fill_bytes(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self {
            ends: Ends { now: monotonic(), endpoint: Endpoint::new(config, key, seed), interface, locals },
            sockets,
            inbox,
            poller,
            batch: RecvBatch::default(),
            trains: (0..TRAINS).map(|_| Train::default()).collect(),
            inner: Vec::new(),
        })
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) -> io::Result<()> {
        device::process::precise_timers();
        loop {
            let ready = self.wait()?;
            let now = monotonic();
            self.ends.now = now;
            if ready.waker && self.inbox.answer(&mut self.ends) {
                return Ok(());
            }
            self.look_at_locals(now, ready);
            self.take_datagrams(now, ready);
            if ready.tun {
                self.take_inner(now)?;
            }
            self.ends.endpoint.handle_timeout(now);
            self.send_datagrams(now);
            self.send_inner()?;
            self.ends.interface.set_mtu(self.ends.endpoint.inner_mtu());
        }
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let Ends { now, endpoint, locals, .. } = &self.ends;
        let due = [endpoint.poll_timeout(*now), locals.due()].into_iter().flatten().min();
        let timeout = due.map(|due| due.saturating_sub(monotonic()));
        let mut all = Ready::default();
        for ready in self.poller.wait(timeout)? {
            match ready.token {
                TUN => all.tun = true,
                WAKER => all.waker = true,
                CHANGES => all.changes = true,
                socket => all.sockets[(socket - SOCKETS) as usize] = true,
            }
        }
        Ok(all)
    }

    fn look_at_locals(&mut self, now: Duration, ready: Ready) {
        let Ends { endpoint, locals, .. } = &mut self.ends;
        if ready.changes {
            locals.listen();
        }
        for (peer, path, change) in locals.look(now) {
            match change {
                Change::Local(local) => endpoint.set_local(now, peer, path, local),
                Change::Addresses => endpoint.handle_address_change(now, peer, path),
            }
        }
    }

    /// One batch of each socket that is ready; more comes with the next turn.
    fn take_datagrams(&mut self, now: Duration, ready: Ready) {
        let (endpoint, batch) = (&mut self.ends.endpoint, &mut self.batch);
        let ready = ready.sockets.iter();
        for (socket, _) in self.sockets.iter().zip(ready).filter(|(_, ready)| **ready) {
            let received = socket.recv(batch, |meta, datagram| {
                let arrival = Arrival { remote: meta.remote, local: meta.local, tos: meta.tos };
                endpoint.handle_datagram(now, &arrival, datagram);
            });
            // What a socket reports here is what became of an earlier datagram, or short memory: it passes.
            if let Err(error) = received {
                tracing::trace!("cannot receive: {error}");
            }
        }
    }

    fn take_inner(&mut self, now: Duration) -> io::Result<()> {
        for _ in 0..READS {
            let endpoint = &mut self.ends.endpoint;
            match self.ends.interface.tun.recv(|packet| endpoint.handle_inner(now, packet)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(gone(&error)),
            }
        }
        Ok(())
    }

    fn send_datagrams(&mut self, now: Duration) {
        loop {
            let endpoint = &mut self.ends.endpoint;
            let empty = self.trains.iter_mut().position(|train| !endpoint.poll_transmit(now, train));
            let filled = empty.unwrap_or(self.trains.len());
            let trains = self.trains[..filled].iter().filter_map(transmit);
            self.sockets.send(now, trains, |remote, source| endpoint.handle_source_gone(remote, source));
            if filled < self.trains.len() {
                return;
            }
        }
    }

    /// All in one batch, so that the packets of a flow go as one.
    fn send_inner(&mut self) -> io::Result<()> {
        let endpoint = &mut self.ends.endpoint;
        self.inner.extend(std::iter::from_fn(|| endpoint.poll_inner()));
        self.ends.interface.tun.send(&self.inner).map_err(|error| gone(&error))?;
        self.inner.clear();
        Ok(())
    }
}

impl Asked<TunnelStatus, Reconfiguration> for Ends {
    fn status(&self) -> TunnelStatus {
        self.endpoint.status(self.now)
    }

    /// What may be refused comes first and is undone; what remains cannot fail.
    fn change(&mut self, change: Reconfiguration) -> Result<(), String> {
        let Reconfiguration { addresses, config } = change;
        self.endpoint.check(&config).map_err(|error| error.to_string())?;
        self.interface.reconfigure(&addresses, &config).map_err(|error| error.to_string())?;
        self.locals.reconfigure(&config);
        self.endpoint.reconfigure(self.now, config).map_err(|error| error.to_string())
    }
}

fn gone(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("its TUN interface is gone: {error}"))
}

fn transmit(train: &Train) -> Option<Transmit<'_>> {
    let to = train.to?;
    Some(Transmit {
        remote: to.remote,
        local: to.local.ip,
        interface: to.local.interface,
        tos: train.tos,
        segment_size: Some(train.segment_size),
        contents: &train.contents,
    })
}
