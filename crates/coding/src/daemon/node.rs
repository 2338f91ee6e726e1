//! The thread between master and slave: frames in, frames out, and what becomes of the slave.

use std::io;
use std::time::Duration;

use device::nl80211::Radio;
use device::poller::Interest;
use device::worker::{Asked, Inbox};
use device::{Changes, Poller, Waker, monotonic};
use rand_core::{OsRng, TryRngCore};
use rustix::io::Errno;

use super::master::Master;
use super::slave::{self, Facts, Slave};
use super::state::{Change, Deaf, NeighbourStatus, Settings, Status, Unusable};
use crate::config::{Config, Mode};
use crate::layer::NcLayer;

const WAKER: u64 = 0;
const CHANGES: u64 = 1;
const MASTER: u64 = 2;
const SLAVE: u64 = 3;
const MONITOR: u64 = 4;
/// Frames taken from one side before the other has its turn.
const TURN: usize = 64;
/// When to offer a frame again that the interface had no room for: some interfaces say so, but not when that changes. A
/// fraction of a frame's time on the air.
const AGAIN: Duration = Duration::from_micros(100);
/// When to look at the slave again where it could not be opened, for want of descriptors or memory perhaps.
const RETRY: Duration = Duration::from_secs(1);
/// The longest frame that is taken from the master.
const LONGEST: usize = 65_535 + 18;

/// A node.
pub struct Node {
    settings: Settings,
    layer: NcLayer,
    master: Master,
    /// None while it cannot be used, for the reason in `because`.
    slave: Option<Slave>,
    /// The monitor's interface when the slave was opened: its index, and whether it was up and no Ethernet's, which monitors never are.
    monitor: Option<(u32, bool)>,
    because: Option<String>,
    /// When it is looked at again without news of it.
    retry: Option<Duration>,
    /// Why nothing is coded, and what else is wrong, as they were last said.
    deaf: Option<Deaf>,
    warning: Option<String>,
    /// Encoded, and refused by the slave until now.
    pending: Option<Vec<u8>>,
    poller: Poller,
    /// Whether the poller waits for room at the slave.
    waits_for_room: bool,
    changes: Changes,
    buffer: Box<[u8]>,
    unsent: u64,
    undelivered: u64,
}

impl Node {
    /// A node that has no slave yet; [`Node::refresh`] looks for it.
    pub fn new(settings: Settings, master: Master, waker: &Waker) -> io::Result<Self> {
        let Change { wait, thin_acks, .. } = settings.change;
        let poller = Poller::new()?;
        let changes = Changes::subscribe()?;
        poller.add(waker, WAKER, Interest::Read)?;
        poller.add(&changes, CHANGES, Interest::Read)?;
        poller.add(&master.tap, MASTER, Interest::Read)?;
        let secret = OsRng.try_next_u64().map_err(|error| io::Error::other(error.to_string()))?;
        let config = Config { mode: Mode::Off, wait, thin_acks, ..Config::default() };
        let layer = NcLayer::new(config, secret);
        let buffer = vec![0; LONGEST].into();
        Ok(Self {
            settings,
            layer,
            master,
            slave: None,
            monitor: None,
            because: None,
            retry: None,
            deaf: None,
            warning: None,
            pending: None,
            poller,
            waits_for_room: false,
            changes,
            buffer,
            unsent: 0,
            undelivered: 0,
        })
    }

    /// Works until it is told to stop. Fails where the master is gone, or the system's resources are.
    pub fn run(mut self, inbox: &Inbox<Status, Change>) -> io::Result<()> {
        loop {
            let timeout = self.transmit()?;
            let ready: Vec<_> = self.poller.wait(timeout)?.collect();
            for ready in ready {
                match ready.token {
                    WAKER if inbox.answer(&mut self) => return Ok(()),
                    CHANGES => {
                        let news = self.changes.take()?;
                        // Routes by the master change often, and concern nobody here.
                        let own = |slave: &Slave| news.interfaces.contains(&slave.facts.index);
                        let links = news.links || news.overrun || !news.changed.is_empty();
                        if links || self.slave.as_ref().is_some_and(own) {
                            self.look();
                        }
                    }
                    MASTER => self.take()?,
                    SLAVE if ready.readable => self.hear()?,
                    MONITOR => self.overhear()?,
                    _ => {}
                }
            }
            if self.retry.is_some_and(|due| due <= monotonic()) {
                self.look();
            }
        }
    }

    /// Frames from IP. They are all taken: what waited at the master for room here would be dropped there, uncounted.
    fn take(&mut self) -> io::Result<()> {
        for _ in 0..TURN {
            match self.master.tap.recv(&mut self.buffer) {
                Ok(length) => self.layer.handle_master(monotonic(), self.buffer[..length].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    let why = format!("its master `{}` is gone ({error})", self.settings.master);
                    return Err(io::Error::new(error.kind(), why));
                }
            }
        }
        Ok(())
    }

    /// Frames from the medium. Those that this host forwards are at the master as soon as it has been given them.
    fn hear(&mut self) -> io::Result<()> {
        let (Some(slave), layer) = (&mut self.slave, &mut self.layer) else { return Ok(()) };
        for _ in 0..TURN {
            let now = monotonic();
            // What fails is the interface, and then there are news of it.
            if slave.socket.recv(|frame| layer.handle_slave(now, frame)).is_err() {
                break;
            }
        }
        self.hand_up()
    }

    /// What the radio's monitor hears of neighbours' frames for each other.
    fn overhear(&mut self) -> io::Result<()> {
        let (Some(slave), layer) = (&mut self.slave, &mut self.layer) else { return Ok(()) };
        let Some(air) = &mut slave.air else { return Ok(()) };
        for _ in 0..TURN {
            let (now, own) = (monotonic(), slave.facts.mac);
            let Ok((socket, _)) = &mut air.monitor else { break };
            let overhearing = &mut air.overhearing;
            let heard =
                socket.recv(|bytes| overhearing.handle(own, bytes, |frame| layer.handle_slave(now, frame)));
            // What fails is the interface here, too, which may be up again by now, and the socket with it.
            if heard.is_err() {
                break;
            }
        }
        self.note_deafness();
        self.hand_up()
    }

    /// Codes, or does not, as what can be overheard allows.
    fn note_deafness(&mut self) {
        let deaf = self.slave.as_ref().and_then(Slave::deaf);
        if self.deaf == deaf {
            return;
        }
        let interface = &self.settings.interface;
        match &deaf {
            Some(why) => tracing::warn!(interface, "nothing is coded: {why}"),
            None => tracing::info!(interface, "neighbours can be overheard"),
        }
        self.deaf = deaf;
        let config = Config { mode: self.mode(), ..*self.layer.config() };
        self.layer.reconfigure(monotonic(), config);
    }

    /// Where nothing waits for anything here, the queue below is the interface's: aggregation and its own scheduling need it.
    fn set_queue(&mut self) {
        let thins = self.settings.change.thin_acks && self.deaf != Some(Deaf::Aggregating);
        let waits = self.layer.can_code(monotonic()) || thins;
        if let Some(slave) = &mut self.slave
            && let Err(error) = slave.socket.keep_short(waits)
        {
            tracing::warn!(interface = self.settings.interface, "the queue below stays as it is: {error}");
        }
    }

    /// As the file says, unless sums would be lost: neighbours are blamed for those that they do not report.
    fn mode(&self) -> Mode {
        if self.deaf.is_some() || self.slave.is_none() { Mode::Off } else { self.settings.change.mode }
    }

    fn hand_up(&mut self) -> io::Result<()> {
        let mut delivered = false;
        while let Some(frame) = self.layer.poll_master() {
            delivered = true;
            self.undelivered += u64::from(self.master.tap.send(&frame).is_err());
        }
        if delivered { self.take() } else { Ok(()) }
    }

    /// Frames for the medium, as long as it takes them; how long to wait for what comes next.
    fn transmit(&mut self) -> io::Result<Option<Duration>> {
        self.set_queue();
        let (timeout, full) = if self.slave.is_some() { self.send() } else { self.discard() };
        if let Some(slave) = self.slave.as_ref().filter(|_| full != self.waits_for_room) {
            self.poller.change(&slave.socket, SLAVE, if full { Interest::Both } else { Interest::Read })?;
            self.waits_for_room = full;
        }
        let retry = self.retry.map(|due| due.saturating_sub(monotonic()));
        Ok(timeout.into_iter().chain(retry).min())
    }

    /// Sends; how long to wait, and whether for room.
    fn send(&mut self) -> (Option<Duration>, bool) {
        let Some(slave) = &self.slave else { return (None, false) };
        for _ in 0..TURN {
            let now = monotonic();
            if self.pending.is_none() {
                match self.layer.poll_timeout() {
                    None => return (None, false),
                    Some(due) if due > now => return (Some(due - now), false),
                    Some(_) if !slave.socket.has_room() => return (None, true),
                    Some(_) => self.pending = self.layer.poll_slave(now),
                }
            }
            let Some(frame) = self.pending.take() else { continue };
            match slave.socket.send(&frame).map_err(|error| Errno::from_io_error(&error)) {
                Ok(()) => {}
                Err(Some(Errno::AGAIN)) => {
                    self.pending = Some(frame);
                    return (None, true);
                }
                Err(Some(Errno::NOBUFS)) => {
                    self.pending = Some(frame);
                    return (Some(AGAIN), false);
                }
                Err(_) => self.unsent += 1,
            }
        }
        (Some(Duration::ZERO), false)
    }

    /// As an interface without a cable does.
    fn discard(&mut self) -> (Option<Duration>, bool) {
        self.unsent += u64::from(self.pending.take().is_some());
        while self.layer.poll_slave(monotonic()).is_some() {
            self.unsent += 1;
        }
        (self.layer.poll_timeout().map(|due| due.saturating_sub(monotonic())), false)
    }

    /// Looks at the slave, and again after a while if it cannot be opened.
    fn look(&mut self) {
        self.retry = None;
        if let Err(error) = self.refresh() {
            self.lose(error.to_string());
            self.retry = Some(monotonic() + RETRY);
        }
    }

    /// Looks at the slave, and uses it if that and the master allow it.
    ///
    /// # Errors
    /// It is as it should be, and cannot be opened.
    pub fn refresh(&mut self) -> io::Result<()> {
        let monitor = self.look_for_monitor();
        let looked = match self.master.taken() {
            Some(taken) => Err(Unusable::Port(taken)),
            None => slave::look(&mut self.master.net, &self.settings.interface),
        };
        // Where nobody can tell, for want of descriptors perhaps, a slave that works is let be.
        let same_network = |slave: &Slave| {
            let was = slave.air.as_ref().map(|air| air.network);
            Radio::of(slave.facts.index).map_or(true, |radio| radio.map(|radio| radio.network) == was)
        };
        let is_open =
            |facts| self.slave.as_ref().is_some_and(|slave| slave.facts == facts && same_network(slave));
        match looked {
            // A monitor that went, or came, is opened anew with the slave, and so is what has another network.
            Ok(facts) if self.monitor == monitor && is_open(facts) => {}
            Ok(facts) => self.adopt(facts)?,
            Err(unusable) => self.lose(unusable.to_string()),
        }
        let warning = self.wrong();
        if let Some(warning) = warning.as_ref().filter(|_| self.warning != warning) {
            tracing::warn!("{warning}");
        }
        self.warning = warning;
        Ok(())
    }

    /// What is wrong and does not stop it. Of sysctls and a mesh's settings nobody tells, so it is looked at whenever somebody asks.
    fn wrong(&self) -> Option<String> {
        let Settings { interface, monitor, .. } = &self.settings;
        let slave = self.slave.as_ref();
        let radio = slave.filter(|slave| slave.air.is_some());
        let radio = radio.and_then(|slave| Radio::of(slave.facts.index).ok()?);
        let unused = monitor.as_ref().filter(|_| slave.is_some_and(|slave| slave.air.is_none()));
        let all = [
            slave::own_address(interface).map(|address| {
                format!("`{interface}` has the address {address}, which nothing reaches, since IP runs on the master; take it off")
            }),
            self.master.is_too_small(interface),
            slave.and(self.master.redirects()),
            radio.is_some_and(|mut radio| radio.forwards()).then(|| {
                format!("`{interface}`'s own mesh forwards packets below coding; `iw dev {interface} set mesh_param mesh_fwding 0`")
            }),
            unused.map(|name| format!("`{interface}` is no radio's, and `{name}` is not used; leave `monitor` out")),
            self.layer.unheard(monotonic()).map(|whom| {
                let name = self.monitor_name();
                format!("`{name}` has heard nothing so far that {whom} sends to others, so that a relay's sums past this node are in vain; another driver may hand it up")
            }),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; besides, "))
    }

    fn monitor_name(&self) -> String {
        let own = || slave::own_monitor(&self.settings.master, self.master.index());
        self.settings.monitor.clone().unwrap_or_else(own)
    }

    fn look_for_monitor(&mut self) -> Option<(u32, bool)> {
        let link = self.master.net.link(&self.monitor_name()).ok()?;
        Some((link.index, link.up && !link.ethernet))
    }

    fn adopt(&mut self, facts: Facts) -> io::Result<()> {
        self.slave = None;
        let given = self.settings.monitor.is_some();
        let slave = Slave::open(facts, &self.monitor_name(), given)?;
        // A given one may have come or gone since it was opened: what it was then counts, so that the next look finds it changed.
        let was_up = |up| match slave.air.as_ref().filter(|_| given).map(|air| &air.monitor) {
            Some(Ok(_)) => true,
            Some(Err(Deaf::Down(_))) => false,
            _ => up,
        };
        self.monitor = self.look_for_monitor().map(|(index, up)| (index, was_up(up)));
        self.master.join(&facts)?;
        self.poller.add(&slave.socket, SLAVE, Interest::Read)?;
        if let Some(Ok((monitor, _))) = slave.air.as_ref().map(|air| &air.monitor) {
            self.poller.add(monitor, MONITOR, Interest::Read)?;
        }
        self.waits_for_room = false;
        let (mac, mtu, by_monitor) = (facts.mac, facts.mtu as usize, slave.air.is_some());
        (self.slave, self.because) = (Some(slave), None);
        let config = Config { mode: self.mode(), mac, mtu, by_monitor, ..*self.layer.config() };
        self.layer.reconfigure(monotonic(), config);
        self.note_deafness();
        let Settings { interface, master, .. } = &self.settings;
        tracing::info!(interface, master, mac = %mac, mtu = self.master.mtu(), "the slave is used");
        Ok(())
    }

    /// Does without the slave. What waits for it is dropped: it would come out when nobody wants it any more.
    fn lose(&mut self, because: String) {
        if self.because.as_ref() != Some(&because) {
            tracing::warn!(master = self.settings.master, "waits for its slave: {because}");
        }
        (self.slave, self.because) = (None, Some(because));
        self.master.part();
        let config = Config { mode: self.mode(), ..*self.layer.config() };
        self.layer.reconfigure(monotonic(), config);
    }
}

impl Asked<Status, Change> for Node {
    fn change(&mut self, change: Change) -> Result<(), String> {
        self.master.set_addresses(&change.addresses).map_err(|error| error.to_string())?;
        let Change { wait, thin_acks, .. } = change;
        self.settings.change = change;
        let config = Config { mode: self.mode(), wait, thin_acks, ..*self.layer.config() };
        self.layer.reconfigure(monotonic(), config);
        Ok(())
    }

    fn status(&self) -> Status {
        let now = monotonic();
        let (stats, kept) = (self.layer.stats(), self.layer.kept(now));
        let Settings { interface, master, change, .. } = &self.settings;
        let neighbours = self.layer.neighbours(now).into_iter().map(|(mac, one)| NeighbourStatus {
            address: mac.to_string(),
            overheard_frames: one.overheard,
            decodes: one.decodes,
            left_out: one.left_out,
        });
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let ratio = stats.sent_coded as f64 / stats.sent as f64;
        Status {
            interface: interface.clone(),
            master: master.clone(),
            mode: self.mode().name(),
            off_because: self.deaf.as_ref().map(Deaf::to_string),
            warning: self.wrong(),
            neighbours: neighbours.collect(),
            wait_ms: ms(change.wait),
            thin_acks: change.thin_acks,
            mtu_bytes: self.master.mtu(),
            waits_because: self.because.clone(),
            sent_frames: stats.sent.saturating_sub(self.unsent),
            sent_coded_frames: stats.sent_coded,
            coding_ratio: (stats.sent > 0).then_some(ratio),
            unsent_frames: self.unsent,
            queue_dropped_frames: stats.queue_dropped,
            relayed_packets: stats.relayed,
            held_packets: stats.held,
            held_1ms_packets: stats.held_1ms,
            held_10ms_packets: stats.held_10ms,
            held_time_ms: ms(stats.held_time),
            expired_packets: stats.expired,
            pushed_out_packets: stats.pushed_out,
            decoded_packets: stats.decoded,
            missing_partner_frames: stats.missing_partner,
            wrong_partner_frames: stats.wrong_partner,
            malformed_frames: stats.malformed,
            sent_again_packets: stats.sent_again,
            report_frames: stats.reports,
            thinned_packets: stats.thinned,
            undelivered_frames: self.undelivered,
            queued_frames: kept.queued,
            waiting_packets: kept.held,
            holds_nothing_because: self.layer.holds_nothing_because(now),
            flows: kept.flows,
            left_out_neighbours: kept.left_out,
            copies: kept.copies,
            arrivals: kept.arrivals,
        }
    }
}
