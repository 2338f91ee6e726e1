//! The thread's event loop: wait, take what came from the network and from the TUN; then hand out what the core has for
//! either.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use device::Tun;
use device::poller::{Interest, Poller, boottime, realtime};
use device::udp::{Meta, RecvBatch, Transmit};
use device::worker::{Asked, Inbox, Watch};
use rand_core::{OsRng, TryRngCore};

use super::captures::{CaptureSender, Captures};
use super::handshake_thread::HandshakeThread;
use super::host_watch::{Order, Told, What};
use super::interface::mark;
use super::return_routes::ReturnRoutes;
use super::sockets::{Family, PLACES, Sockets, is_for_room, may_be_gone, too_large};
use crate::capture::TrainNotes;
use crate::config::Config;
use crate::endpoint::{Arrival, Endpoint};
use crate::keys::PrivateKey;
use crate::status::TunnelStatus;
use crate::why::{Larger, Why};
use crate::wire::address::LocalAddress;
use crate::wire::train::Train;

const WAKER: u64 = 0;
/// The sockets' tokens start here, and those of the TUN's queues.
const SOCKETS: u64 = 1;
const TUN: u64 = 64;
/// Reads of the TUN in an iteration, of up to 64 KiB each, but one at least of each queue: the network's datagrams wait meanwhile.
const READS: usize = 4;
/// A thread that is later by so much was not merely kept from a processor: the host was suspended, or the process stopped.
const STOPPED: Duration = Duration::from_secs(1);
/// Trains sent at once.
const TRAINS: usize = 32;

/// What is ready.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    /// A bit for each of the TUN's queues.
    tun: u32,
    waker: bool,
    /// A bit for each socket, as [`token`] counts them.
    sockets: u32,
}

/// The token of a socket.
fn token(family: Family, place: u8) -> u64 {
    SOCKETS + 2 * u64::from(place) + u64::from(family == Family::V6)
}

/// What a running tunnel is told.
#[derive(Debug)]
pub enum Change {
    /// Whether it would take this up.
    Check(Config),
    /// To take this up, the configuration of this number, which it has been asked about.
    TakeUp(u64, Config),
    /// To let somebody capture.
    Capture(CaptureSender),
}

/// The thread that asks the host, and what it says.
pub struct Host {
    /// To ask it.
    pub watch: Watch<(), Order>,
    /// Its answers.
    pub news: Receiver<Told>,
    /// The mark that the file gives the outer packets; 0: none.
    pub fwmark: u32,
}

/// All that the thread owns.
pub struct EventLoop {
    state: State,
    tun: Tun,
    inbox: Inbox<TunnelStatus, Change>,
    handshakes: HandshakeThread,
    poller: Poller,
    batch: RecvBatch,
    trains: Vec<Train>,
    inner: Vec<Vec<u8>>,
}

/// What the configuration is about.
struct State {
    now: Duration,
    generation: u64,
    endpoint: Endpoint,
    sockets: Sockets,
    return_routes: ReturnRoutes,
    host: Host,
    mark: u32,
    /// The interface's, as last asked for.
    mtu: u16,
    /// Whether packets of default routes go beside the tunnel, as last asked for.
    open: bool,
    captures: Captures,
}

impl EventLoop {
    /// Everything is made; nothing has been sent yet. The network namespace is the calling thread's.
    pub fn new(
        config: Config,
        key: PrivateKey,
        tun: Tun,
        sockets: Sockets,
        host: Host,
        inbox: Inbox<TunnelStatus, Change>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (token, queue) in (TUN..).zip(tun.queues()) {
            poller.add(queue, token, Interest::Read)?;
        }
        poller.add(&inbox.waker, WAKER, Interest::Read)?;
        for family in [Family::V4, Family::V6] {
            if let Some(socket) = sockets.get(family, 0) {
                poller.add(socket, token(family, 0), Interest::Read)?;
            }
        }
        let mark = mark(host.fwmark, &config);
        let (now, return_routes) = (boottime(), ReturnRoutes::new(mark)?);
        let endpoint = Endpoint::new(config, key, &mut OsRng.unwrap_err());
        let mtu = endpoint.inner_mtu();
        Ok(Self {
            state: State {
                now,
                generation: 0,
                endpoint,
                sockets,
                return_routes,
                host,
                mark,
                mtu,
                open: false,
                captures: Captures::default(),
            },
            tun,
            handshakes: HandshakeThread::start(inbox.waker.clone())?,
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
            let (ready, due) = self.wait()?;
            let now = boottime();
            self.state.now = now;
            // Before what has come meanwhile is looked at.
            if due.is_some_and(|due| now > due + STOPPED) {
                self.state.endpoint.handle_stop(now);
            }
            if ready.waker && self.inbox.answer(&mut self.state) {
                return Ok(());
            }
            self.state.hear(&self.poller);
            self.take_datagrams(now, ready);
            self.take_inner(now, ready)?;
            self.run_handshakes(now);
            self.state.endpoint.handle_timeout(now);
            self.send_datagrams(now);
            self.send_inner()?;
            self.give_captured();
            self.state.tell();
        }
    }

    /// Waits until something is ready, or due; when that was.
    fn wait(&mut self) -> io::Result<(Ready, Option<Duration>)> {
        let due = self.state.endpoint.poll_timeout(self.state.now);
        let timeout = due.map(|due| due.saturating_sub(boottime()));
        let mut all = Ready::default();
        for ready in self.poller.wait(timeout)? {
            match ready.token {
                queue if queue >= TUN => all.tun |= 1 << (queue - TUN),
                WAKER => all.waker = true,
                socket => all.sockets |= 1 << (socket - SOCKETS),
            }
        }
        Ok((all, due))
    }

    /// One batch of each socket that is ready; more comes with the next iteration.
    fn take_datagrams(&mut self, now: Duration, ready: Ready) {
        let (State { endpoint, sockets, .. }, batch) = (&mut self.state, &mut self.batch);
        let places = (0..PLACES).flat_map(|place| [(Family::V4, place), (Family::V6, place)]);
        let ready =
            places.filter(|(family, place)| ready.sockets & 1 << (token(*family, *place) - SOCKETS) != 0);
        for (socket, place) in ready.filter_map(|(family, place)| Some((sockets.get(family, place)?, place)))
        {
            let received = socket.recv(batch, |meta, datagram| {
                let Meta { remote, local, tos, .. } = meta;
                let interface = Some(meta.interface).filter(|index| *index != 0);
                let arrival =
                    Arrival { remote, local: LocalAddress { ip: local, interface, socket: place }, tos };
                endpoint.handle_datagram(now, &arrival, datagram);
            });
            // What a socket reports here is what became of an earlier datagram, or short memory: it passes.
            if let Err(error) = received {
                tracing::trace!("cannot receive: {error}");
            }
        }
    }

    fn run_handshakes(&mut self, now: Duration) {
        let endpoint = &mut self.state.endpoint;
        self.handshakes.done().for_each(|done| endpoint.handle_work(now, done));
        while let Some(work) = endpoint.poll_work() {
            if let Err(work) = self.handshakes.give(work) {
                endpoint.handle_work(now, work.run());
            }
        }
    }

    /// The TUN's queues share the reads.
    fn take_inner(&mut self, now: Duration, ready: Ready) -> io::Result<()> {
        let reads = READS.div_ceil(ready.tun.count_ones().max(1) as usize);
        let endpoint = &mut self.state.endpoint;
        for queue in (0..32).filter(|queue| ready.tun & 1 << queue != 0) {
            for _ in 0..reads {
                match self.tun.recv_from(queue, |packet| endpoint.handle_inner(now, packet)) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(gone(&error)),
                }
            }
        }
        Ok(())
    }

    fn send_datagrams(&mut self, now: Duration) {
        loop {
            let State { endpoint, sockets, return_routes, captures, .. } = &mut self.state;
            let empty = self.trains.iter_mut().position(|train| !endpoint.poll_transmit(now, train));
            let filled = empty.unwrap_or(self.trains.len());
            self.trains[..filled]
                .iter_mut()
                .filter_map(|train| train.to.as_mut())
                .for_each(|to| return_routes.settle(to));
            let trains = self.trains[..filled].iter().filter_map(transmit);
            if !captures.is_empty() {
                let (time, port) = (realtime(), port_of(sockets));
                for train in &self.trains[..filled] {
                    train.tell(|one| captures.put(time, &port, &one));
                }
            }
            sockets.send(trains, |transmit, error| {
                let to = transmit.remote;
                // What a stranger gets concerns no path.
                if !endpoint.leads_to(now, to) {
                    return;
                }
                if let Some(source) = transmit.local.filter(|_| may_be_gone(error)) {
                    endpoint.handle_source_gone(to, source);
                }
                match too_large(transmit, error) {
                    Some(size) => endpoint.handle_too_large(to, size, Larger::NotSent),
                    None if is_for_room(error) => {}
                    None => {
                        endpoint.handle_trouble(now, to, &Why::NotSent { to, error: error.to_string() });
                    }
                }
            });
            if filled < self.trains.len() {
                return;
            }
        }
    }

    /// Gives readers what was noted, and makes notes only while there are readers.
    fn give_captured(&mut self) {
        let State { endpoint, sockets, captures, .. } = &mut self.state;
        if captures.is_empty() {
            return;
        }
        let (time, port) = (realtime(), port_of(sockets));
        endpoint.take_captured().iter().for_each(|one| captures.put(time, &port, one));
        captures.forget();
        if captures.is_empty() {
            endpoint.set_captured(false);
        }
        let noted = !captures.is_empty();
        if self.trains.iter().any(|train| train.notes.is_some() != noted) {
            self.trains.iter_mut().for_each(|train| train.notes = noted.then(TrainNotes::default));
        }
    }

    /// All in one batch, so that the packets of a flow go as one.
    fn send_inner(&mut self) -> io::Result<()> {
        let endpoint = &mut self.state.endpoint;
        self.inner.extend(std::iter::from_fn(|| endpoint.poll_inner()));
        self.tun.send(&self.inner).map_err(|error| gone(&error))?;
        self.inner.clear();
        Ok(())
    }
}

impl State {
    /// Takes in what is new about the host. What was said of another configuration is said again of this one.
    fn hear(&mut self, poller: &Poller) {
        for Told { generation, what } in self.host.news.try_iter() {
            let (now, endpoint) = (self.now, &mut self.endpoint);
            match what {
                What::Routes => self.return_routes.forget(self.mark),
                What::Unreachable(remote, why) => endpoint.handle_trouble(now, remote, &why),
                What::TooLarge(remote, size) => endpoint.handle_too_large(remote, size, Larger::Refused),
                _ if generation != self.generation => {}
                What::Way(peer, path, way) => {
                    if let Ok(way) = &way {
                        open(&mut self.sockets, way.local.socket, self.mark, poller);
                    }
                    endpoint.set_way(now, peer, path, way);
                    // What it has missed while the configuration was another.
                    let up = endpoint.is_up(peer, path);
                    self.host.watch.tell(Order::State(generation, (peer, path), up));
                }
                What::Beside(peer, why) => endpoint.set_beside(peer, why),
                What::Addresses(peer, path) => endpoint.handle_address_change(now, peer, path),
            }
        }
    }

    /// The interface takes what the paths carry, and names are asked for while their paths are not up.
    fn tell(&mut self) {
        while let Some((peer, path, up)) = self.endpoint.poll_state() {
            self.host.watch.tell(Order::State(self.generation, (peer, path), up));
        }
        let mtu = self.endpoint.inner_mtu();
        if std::mem::replace(&mut self.mtu, mtu) != mtu {
            self.host.watch.tell(Order::Mtu(mtu));
        }
        let open = self.endpoint.fails_open();
        if std::mem::replace(&mut self.open, open) != open {
            self.host.watch.tell(Order::Open(open));
        }
    }

    fn set_mark(&mut self, mark: u32) {
        if std::mem::replace(&mut self.mark, mark) == mark {
            return;
        }
        self.return_routes.forget(mark);
        for socket in self.sockets.iter() {
            if let Err(error) = socket.set_mark(mark) {
                tracing::warn!(
                    "{error}: the tunnel's packets keep their old mark until `nawa down && nawa up`"
                );
            }
        }
    }
}

impl Asked<TunnelStatus, Change> for State {
    fn status(&self) -> TunnelStatus {
        TunnelStatus { fwmark: self.mark, ..self.endpoint.status(self.now) }
    }

    fn change(&mut self, change: Change) -> Result<(), String> {
        let result = match change {
            Change::Check(config) => self.endpoint.check(&config),
            Change::TakeUp(generation, config) => {
                self.generation = generation;
                self.set_mark(mark(self.host.fwmark, &config));
                self.endpoint.reconfigure(self.now, config)
            }
            Change::Capture(sender) => {
                self.captures.add(sender)?;
                self.endpoint.set_captured(true);
                return Ok(());
            }
        };
        result.map_err(|error| error.to_string())
    }
}

/// Opens the sockets of a place, if they are not, and listens to them.
fn open(sockets: &mut Sockets, place: u8, mark: u32, poller: &Poller) {
    sockets.open(place, mark, |family, socket| {
        if let Err(error) = poller.add(socket, token(family, place), Interest::Read) {
            tracing::warn!("what comes to a path's new port is not heard: {error}");
        }
    });
}

fn gone(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("its TUN interface is gone: {error}"))
}

/// The ports of this end's sockets.
fn port_of(sockets: &Sockets) -> impl Fn(SocketAddr, u8) -> u16 {
    move |remote, place| {
        let family = Family::of(remote);
        let socket = sockets.get(family, place).or_else(|| sockets.get(family, 0));
        socket.and_then(|socket| socket.local_address().ok()).map_or(0, |address| address.port())
    }
}

fn transmit(train: &Train) -> Option<(u8, Transmit<'_>)> {
    let to = train.to?;
    let transmit = Transmit {
        remote: to.remote,
        local: to.local.ip,
        interface: to.local.interface,
        tos: train.tos,
        segment_size: Some(train.segment_size),
        contents: &train.contents,
    };
    Some((to.local.socket, transmit))
}
