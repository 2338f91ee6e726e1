//! A node running: the thread between an interface's [`Medium`] and the applications of this host. Begin with [`start`].

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bpf::xdp;
use device::nl80211::Radio;
use device::poller::{Interest, REST};
use device::worker::{self, Asked, Inbox, Worker, watch};
use device::{Net, PacketSocket, Poller, monotonic};
use rand_core::RngCore;
use serde::Serialize;

use crate::driver::Listening;
use crate::frame::{Frame, Header, Kind, Padding, Verdict, Wire};
use crate::local::{Application, Ask, CLIENTS, LONGEST, Listener, Waiting, Welcome};
use crate::medium::{Delivery, Heard, Medium};
use crate::sequence::Sequence;
use crate::suppression::Suppression;

pub use crate::settings::{Mode, Settings};

const WAKER: u64 = 0;
const MEDIUM: u64 = 1;
const LISTENER: u64 = 2;
const NFTABLES: u64 = 3;
/// Tokens of applications are this and more.
const FIRST_CLIENT: u64 = 16;
/// Packets taken from one application before others have their turn.
const TURN: usize = 64;
/// How often it looks whether the frame has left that the next one waits for: less than a frame takes at 802.11b's 1 Mbit/s.
const LOOK: Duration = Duration::from_millis(1);

/// What a node knows of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The interface.
    pub interface: String,
    /// The node's ID.
    pub id: u32,
    /// Of this life; null in wire version 0.
    pub epoch: Option<u32>,
    /// The wire version.
    pub wire: u8,
    /// What the file asks for: `driver`, `kernel`, `application`.
    pub mode: &'static str,
    /// What does it: `xdp-native`, `xdp-generic`, `packet-socket`, `nftables`, `udp-socket`.
    pub relay: &'static str,
    /// Why that is not what the file asks for.
    pub fallback: Option<String>,
    /// What goes wrong, or may, a sentence each.
    pub warnings: Vec<String>,
    /// Whether frames carry tags.
    pub authenticated: bool,
    /// Bytes that a message may have.
    pub data_max_bytes: usize,
    /// Messages of this host.
    pub sent_frames: u64,
    /// Messages of this host that the interface did not take.
    pub unsent_frames: u64,
    /// Frames of others that were new: heard for the first time.
    pub new_frames: u64,
    /// Frames of others that this node gave to its interface to be sent again.
    pub relayed_frames: u64,
    /// Of those new, how many were not relayed because neighbours had relayed them.
    pub suppressed_frames: u64,
    /// Sent once more, because too few copies were heard.
    pub repeated_frames: u64,
    /// Who delivers messages to applications: `driver` or `node`; null before the first listens.
    pub delivery: Option<&'static str>,
    /// Put where applications read them, once for all of them.
    pub delivered_messages: u64,
    /// Lost by applications that read too slowly, each for itself, and for want of room between driver and node.
    pub undelivered_messages: u64,
    /// Pings for this node that it answered.
    pub answered_pings: u64,
    /// Applications that listen.
    pub receivers: usize,
    /// Frames that went no further, by reason; this host's own as well where too many waited (`full`).
    pub dropped_frames: BTreeMap<&'static str, u64>,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The interface, the kernel or privileges.
    #[error("cannot flood on `{0}`: {1}")]
    Medium(String, io::Error),
    /// The name of the local socket.
    #[error(
        "cannot open the socket @nawa-flood-{0}: {1}; where it is in use, another node runs on this interface"
    )]
    Name(String, io::Error),
    /// Descriptors or memory.
    #[error("cannot start the thread that floods: {0}; see the limits on open files and memory")]
    Resources(#[from] io::Error),
}

/// A running node. Dropping it stops it, and returns when what it made is gone.
#[derive(Debug)]
pub struct Running(Worker<Status>);

/// Asks a running node for its state.
pub type Watch = worker::Watch<Status>;

impl Running {
    /// What asks for the state.
    pub fn watch(&self) -> Watch {
        self.0.watch().clone()
    }
}

/// Starts a node in the calling thread's network namespace. `rng` draws the waits before relays. `on_end` is called, with
/// the reason, only if the node ends without being told to.
///
/// # Errors
/// [`StartError`]; then nothing is left behind.
pub fn start(
    settings: Settings,
    rng: impl RngCore + Send + 'static,
    on_end: impl FnOnce(String) + Send + 'static,
) -> Result<Running, StartError> {
    let interface = settings.interface.clone();
    let listener = Listener::bind(&interface).map_err(|error| StartError::Name(interface.clone(), error))?;
    let cannot = |error| StartError::Medium(interface.clone(), error);
    let link = Net::open()?.link(&interface).map_err(cannot)?;
    let (medium, fallback) = Medium::open(&settings).map_err(cannot)?;
    if let Some(why) = &fallback {
        tracing::warn!(interface, "does not relay in the driver: {why}");
    }
    // Hosts without radios are not asked again and again: that has their kernel look for a module each time.
    let radio = matches!(Radio::of(link.index), Ok(Some(_))).then_some(link.index);
    if let Some(why) = radio.and_then(|index| resent(index, &interface)) {
        tracing::warn!("{why}");
    }
    let (watch, inbox) = watch()?;
    let poller = Poller::new()?;
    poller.add(&inbox.waker, WAKER, Interest::Read)?;
    poller.add(&medium, MEDIUM, Interest::Read)?;
    poller.add(&listener, LISTENER, Interest::Read)?;
    if let Medium::Kernel { table, .. } = &medium {
        poller.add(table.changes(), NFTABLES, Interest::Read)?;
    }
    let data_max = medium.data_max(link.mtu, settings.rules.format.wire());
    let (sequence, sequence_file) = Sequence::create(&settings.rules.format)?;
    let node = Node {
        suppression: settings.waits().then(|| Suppression::new(settings.suppression, rng)),
        below: None,
        dropped_before: dropped(&interface),
        radio,
        settings,
        medium,
        fallback,
        data_max,
        poller,
        listener,
        rests: None,
        failed: false,
        clients: BTreeMap::new(),
        next_client: FIRST_CLIENT,
        delivery: None,
        sequence,
        sequence_file,
        counts: Counts::default(),
    };
    Ok(Running(Worker::start("flood", watch, on_end, move || node.run(&inbox))?))
}

/// What this program counts itself.
#[derive(Default)]
struct Counts {
    relayed: u64,
    delivered: u64,
    answered: u64,
    /// Lost by applications that are gone.
    undelivered: u64,
    verdicts: [u64; Verdict::ALL.len()],
}

/// Tells messages apart: ID, epoch, SEQ.
type Key = (u32, u32, u32);

struct Node<R> {
    settings: Settings,
    medium: Medium,
    fallback: Option<String>,
    data_max: usize,
    suppression: Option<Suppression<Key, Vec<u8>, R>>,
    /// Since when a frame of the suppression's is on its way out; the next one waits for it, where copies can still cancel it.
    below: Option<Duration>,
    /// Frames that the interface had dropped before this node began.
    dropped_before: u64,
    /// The interface's index, where it is a radio's.
    radio: Option<u32>,
    poller: Poller,
    listener: Listener,
    /// Until then no application is taken.
    rests: Option<Duration>,
    /// The last could not be taken, and the log says so.
    failed: bool,
    clients: BTreeMap<u64, Application>,
    next_client: u64,
    /// Since the first application listened.
    delivery: Option<Delivery>,
    sequence: Sequence,
    sequence_file: OwnedFd,
    counts: Counts,
}

impl<R: RngCore> Node<R> {
    fn run(mut self, inbox: &Inbox<Status>) -> io::Result<()> {
        loop {
            let timeout = if self.settings.busy_poll { Some(Duration::ZERO) } else { self.timeout() };
            let ready: Vec<_> = self.poller.wait(timeout)?.collect();
            self.hear();
            for ready in ready {
                match ready.token {
                    WAKER if inbox.answer(&mut self) => return Ok(()),
                    LISTENER => self.accept()?,
                    NFTABLES => self.mend()?,
                    token @ FIRST_CLIENT.. => self.serve(token)?,
                    _ => {}
                }
            }
            self.transmit();
            if self.rests.take_if(|until| *until <= monotonic()).is_some() {
                self.poller.add(&self.listener, LISTENER, Interest::Read)?;
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let due = self.suppression.as_ref().and_then(Suppression::poll_timeout);
        wait(self.below.is_some(), due.into_iter().chain(self.rests).min(), monotonic())
    }

    /// What was heard: one batch, so that a flood of frames starves nobody.
    fn hear(&mut self) {
        for Heard { verdict, bytes } in self.medium.take(monotonic()) {
            self.counts.verdicts[verdict as usize] += 1;
            match verdict {
                Verdict::New => self.new_frame(&bytes),
                Verdict::Duplicate | Verdict::Own => self.copy(&bytes),
                _ => {}
            }
        }
    }

    /// Somebody has changed nftables' rules.
    fn mend(&mut self) -> io::Result<()> {
        if let Medium::Kernel { table, .. } = &mut self.medium
            && table.mend()?
        {
            let interface = &self.settings.interface;
            tracing::warn!(interface, "somebody has removed the nftables table that relays; it is back");
        }
        Ok(())
    }

    fn new_frame(&mut self, bytes: &[u8]) {
        let format = self.settings.rules.format;
        let Ok(frame) = format.read(bytes, Padding::None) else { return };
        let relayed = format.relayed(&frame, bytes);
        let now = monotonic();
        match (&mut self.suppression, relayed) {
            (Some(suppression), Some(relayed)) => suppression.handle_first(now, key(&frame.header), relayed),
            (None, Some(relayed)) if self.medium.relays_here() => {
                self.counts.relayed += u64::from(self.medium.send(&relayed).is_ok());
            }
            _ => {}
        }
        self.deliver(&frame, bytes);
    }

    /// Another copy of a message that is known; only its header is looked at.
    fn copy(&mut self, bytes: &[u8]) {
        if let (Some(suppression), Some(header)) =
            (&mut self.suppression, self.settings.rules.format.header(bytes))
        {
            suppression.handle_copy(key(&header), 1);
        }
    }

    fn deliver(&mut self, frame: &Frame, bytes: &[u8]) {
        if frame.header.kind == Kind::EchoRequest {
            let mine =
                frame.data.first_chunk().is_some_and(|id| u32::from_be_bytes(*id) == self.settings.rules.id);
            if mine {
                self.counts.answered += 1;
                self.send(Kind::EchoReply, 0, frame.data);
            }
            return;
        }
        if self.clients.values().any(|client| client.listening.is_some())
            && let Some(delivery) = &mut self.delivery
        {
            self.counts.delivered += u64::from(delivery.post(bytes));
        }
    }

    fn send(&mut self, kind: Kind, ttl: u8, data: &[u8]) {
        let (rules, epoch) = (self.settings.rules, self.epoch());
        let wire = rules.format.wire();
        if data.len() > self.data_max || (wire == Wire::Paper && kind != Kind::Data) {
            return self.sequence.count(ttl, false);
        }
        let ttl = if ttl == 0 { self.settings.ttl } else { ttl };
        let header = Header { id: rules.id, epoch, seq: self.sequence.take(wire), ttl, kind };
        let frame = rules.format.write(&header, data);
        match &mut self.suppression {
            Some(suppression) => {
                if let Medium::Driver { driver, .. } = &self.medium {
                    let _ = driver.expect_copies(&header);
                }
                suppression.handle_own(monotonic(), key(&header), frame);
            }
            None => self.sequence.count(ttl, self.medium.send(&frame).is_ok()),
        }
    }

    /// What suppression has kept until now.
    fn transmit(&mut self) {
        let Some(suppression) = &mut self.suppression else { return };
        if let Some(since) = self.below.take_if(|_| self.medium.has_sent()) {
            suppression.handle_sent(monotonic().saturating_sub(since));
        }
        if self.below.is_some() {
            return;
        }
        if let Medium::Driver { driver, .. } = &self.medium {
            for key in suppression.due(monotonic()).collect::<Vec<_>>() {
                suppression.set_copies(key, driver.copies(&header_of(key)).unwrap_or_default());
            }
        }
        while let Some(frame) = suppression.poll_transmit(monotonic()) {
            let Some(header) = self.settings.rules.format.header(&frame) else { continue };
            let went = self.medium.send(&frame).is_ok();
            if header.id == self.settings.rules.id {
                self.sequence.count(header.ttl, went);
            } else {
                self.counts.relayed += u64::from(went);
            }
            if !self.medium.has_sent() {
                self.below = Some(monotonic());
                return;
            }
            suppression.handle_sent(Duration::ZERO);
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let client = match self.listener.accept() {
                Ok(Some(client)) => client,
                Ok(None) => return Ok(()),
                Err(error) => return self.rest(&error),
            };
            self.failed = false;
            if self.clients.len() >= CLIENTS {
                continue;
            }
            let outlet = self.medium.outlet();
            let outlet = outlet.as_ref().map(|socket| [socket.as_fd(), self.sequence_file.as_fd()]);
            if client.welcome(&self.welcome(), outlet.as_ref().map_or(&[], |both| both.as_slice())).is_err() {
                continue;
            }
            self.poller.add(&client, self.next_client, Interest::Read)?;
            self.clients.insert(self.next_client, client);
            self.next_client += 1;
        }
    }

    fn rest(&mut self, error: &io::Error) -> io::Result<()> {
        if !std::mem::replace(&mut self.failed, true) {
            tracing::warn!(interface = self.settings.interface, "takes no applications for a while: {error}");
        }
        self.rests = Some(monotonic() + REST);
        self.poller.remove(&self.listener)
    }

    fn welcome(&self) -> Welcome {
        let Settings { rules, ttl, .. } = self.settings;
        let wire = rules.format.wire() as u8;
        Welcome { id: rules.id, epoch: self.epoch(), wire, ttl, data_max_bytes: self.data_max }
    }

    /// As this node's frames have it: the paper's have none.
    fn epoch(&self) -> u32 {
        if self.settings.rules.format.wire() == Wire::Paper { 0 } else { self.settings.epoch }
    }

    fn serve(&mut self, token: u64) -> io::Result<()> {
        let mut buffer = [0; LONGEST];
        for _ in 0..TURN {
            let Some(client) = self.clients.get_mut(&token) else { return Ok(()) };
            match client.next(&mut buffer) {
                Ok(None) => break,
                Err(_) => return self.leave(token),
                Ok(Some(packet)) => match Ask::parse(packet) {
                    Some(Ask::Deliver { busy }) => self.listen(token, busy)?,
                    Some(Ask::Dropped(messages)) => client.dropped = client.dropped.saturating_add(messages),
                    Some(Ask::Send { kind, ttl, data }) => self.send(kind, ttl, data),
                    None => self.sequence.count(0, false),
                },
            }
        }
        Ok(())
    }

    /// An application listens from now on. One that cannot is told so by the end of its connection.
    fn listen(&mut self, token: u64, busy: bool) -> io::Result<()> {
        if let Err(why) = self.hand_board(token, busy) {
            tracing::warn!(interface = self.settings.interface, "an application cannot listen: {why}");
            self.leave(token)?;
        }
        Ok(())
    }

    fn hand_board(&mut self, token: u64, busy: bool) -> io::Result<()> {
        if self.delivery.is_none() {
            self.delivery = Some(self.medium.delivery()?);
        }
        let Some(Delivery { board, bell, .. }) = &self.delivery else { return Ok(()) };
        let (board, bell) = (board.try_clone()?, bell.watch()?);
        if let Some(client) = self.clients.get_mut(&token) {
            client.listening = Some(if busy { Waiting::Busy } else { Waiting::Asleep });
        }
        self.set_listening()?;
        // It begins to read where the board is when it gets it.
        self.clients.get(&token).map_or(Ok(()), |client| client.deliver(board.as_fd(), bell.as_fd()))
    }

    /// An application is gone.
    fn leave(&mut self, token: u64) -> io::Result<()> {
        let lost = self.clients.remove(&token).map_or(0, |client| client.dropped);
        self.counts.undelivered = self.counts.undelivered.saturating_add(lost);
        self.set_listening()
    }

    /// Tells the medium who listens.
    fn set_listening(&self) -> io::Result<()> {
        let by_driver = self.delivery.as_ref().is_some_and(Delivery::is_by_driver);
        let listening: Vec<_> = self.clients.values().filter_map(|client| client.listening).collect();
        self.medium.listen(match (listening.is_empty(), by_driver, listening.contains(&Waiting::Asleep)) {
            (true, _, _) => Listening::Nobody,
            (_, false, _) => Listening::Node,
            (_, true, true) => Listening::Bell,
            (_, true, false) => Listening::Board,
        })
    }

    /// What goes wrong, where so many of its own frames came back and so many of others' were relayed.
    fn warnings(&self, own: u64, relayed: u64) -> Vec<String> {
        let interface = self.settings.interface.as_str();
        let dropped = dropped(interface).saturating_sub(self.dropped_before);
        let vanished = match &self.medium {
            Medium::Driver { attached, waits: false, .. } => vanished(dropped, relayed, attached.mode),
            _ => None,
        };
        let untagged = match &self.medium {
            Medium::Driver { socket, .. } => untagged(socket, interface),
            _ => None,
        };
        let to_relay = self.sequence.to_relay();
        // A table that was put back has forgotten how many it heard.
        let flushed = self.flushed();
        let unheard = (own == 0 && to_relay >= UNHEARD && flushed.is_none()).then(|| {
            format!(
                "nobody has relayed any of the {to_relay} messages of this node: nobody is in reach, or their `wire`, mode or key \
                 is another, or they take them for old ones (`old-epoch` there)"
            )
        });
        let resent = self.radio.and_then(|index| resent(index, interface));
        let found = [unheard, vanished, untagged, resent, flushed];
        self.settings.warnings.iter().cloned().chain(found.into_iter().flatten()).collect()
    }

    fn flushed(&self) -> Option<String> {
        let Medium::Kernel { table, .. } = &self.medium else { return None };
        (table.mended > 0).then(|| {
            format!(
                "somebody has removed this node's nftables table {} times, as `nft flush ruleset` does: it was put back, and forgot \
                 its counts and what was heard",
                table.mended
            )
        })
    }
}

impl<R: RngCore> Asked<Status, ()> for Node<R> {
    fn status(&self) -> Status {
        let Settings { rules, epoch, mode, .. } = self.settings;
        let wire = rules.format.wire();
        let (mut verdicts, mut relayed) = (self.counts.verdicts, self.counts.relayed);
        let (mut lost, mut posted) = (0, 0);
        let [sent, unsent] = self.sequence.counts();
        match &self.medium {
            Medium::Driver { driver, .. } => {
                let counts = driver.counts().unwrap_or_default();
                (verdicts, lost, posted) = (counts.verdicts, counts.lost, counts.posted);
                relayed += counts.relayed;
            }
            Medium::Kernel { table, .. } => {
                let [again, duplicate, own, limited, expired] = table.counts().unwrap_or_default();
                relayed = again;
                // The kernel hands back each broadcast of this host's.
                verdicts[Verdict::Duplicate as usize] += duplicate.saturating_sub(again);
                verdicts[Verdict::Own as usize] += own.saturating_sub(sent);
                verdicts[Verdict::Limited as usize] += limited;
                verdicts[Verdict::Expired as usize] += expired;
            }
            Medium::Packet { .. } | Medium::Application { .. } => {}
        }
        let delivery = self.delivery.as_ref();
        let waited = self.suppression.as_ref().map(Suppression::stats).unwrap_or_default();
        let dropped = Verdict::ALL.iter().filter(|verdict| **verdict != Verdict::New);
        Status {
            interface: self.settings.interface.clone(),
            id: rules.id,
            epoch: (wire == Wire::One).then_some(epoch),
            wire: wire as u8,
            mode: mode.name(),
            relay: self.medium.relay(),
            fallback: self.fallback.clone(),
            warnings: self.warnings(verdicts[Verdict::Own as usize], relayed),
            authenticated: rules.format.is_keyed(),
            data_max_bytes: self.data_max,
            sent_frames: sent,
            unsent_frames: unsent,
            new_frames: verdicts[Verdict::New as usize],
            relayed_frames: relayed,
            suppressed_frames: waited.suppressed,
            repeated_frames: waited.repeated,
            delivery: delivery.map(|delivery| if delivery.is_by_driver() { "driver" } else { "node" }),
            delivered_messages: posted + self.counts.delivered,
            undelivered_messages: self
                .clients
                .values()
                .fold(lost.saturating_add(self.counts.undelivered), |sum, one| {
                    sum.saturating_add(one.dropped)
                }),
            answered_pings: self.counts.answered,
            receivers: self.clients.values().filter(|client| client.listening.is_some()).count(),
            dropped_frames: dropped
                .map(|verdict| (verdict.name(), verdicts[*verdict as usize]))
                .chain([("full", waited.dropped)])
                .collect(),
        }
    }
}

/// From so many on it is no accident that no own frame came back, or that half of the relayed ones were dropped; one or two may be
/// lost, under way, or others'.
const UNHEARD: u64 = 3;

/// What is wrong where so many frames were dropped that the interface was to send, and so many relayed by XDP.
fn vanished(dropped: u64, relayed: u64, mode: xdp::Mode) -> Option<String> {
    let veth = match mode {
        xdp::Mode::Native => {
            "; on a veth what XDP sends back vanishes unless the other end has an XDP program too"
        }
        xdp::Mode::Generic => "",
    };
    (relayed >= UNHEARD && dropped.saturating_mul(2) >= relayed).then(|| {
        format!(
            "the interface has dropped {dropped} frames that it was to send since this node began, which relayed {relayed}: if more \
             come than it can send, `suppress = true` relays fewer{veth}"
        )
    })
}

/// What is wrong where a radio's network by itself sends on what is for all.
fn resent(index: u32, interface: &str) -> Option<String> {
    let mut radio = Radio::of(index).ok()??;
    let (who, change) = if !radio.network.is_of_peers() {
        ("an access point sends on what its stations send to all", "type ibss")
    } else if radio.forwards() {
        ("its own mesh sends on what is for all", "mesh_param mesh_fwding 0")
    } else {
        return None;
    };
    Some(format!(
        "on `{interface}`, {who}, so that each message goes round once more for every node that relays it: `iw dev {interface} set {change}`"
    ))
}

/// What is wrong where an interface carries VLANs and takes their tags off before XDP sees the frame.
fn untagged(socket: &PacketSocket, interface: &str) -> Option<String> {
    let table = std::fs::read_to_string("/proc/thread-self/net/vlan/config").unwrap_or_default();
    (carries_vlans(&table, interface) && socket.takes_tags_off(interface).unwrap_or(false)).then(|| {
        format!(
            "`{interface}` carries VLANs and takes their tags off before XDP sees a frame, so that a VLAN's floods are relayed into \
             this network: `ethtool -K {interface} rxvlan off`, and of a veth `txvlan off` at the other end"
        )
    })
}

/// Whether the kernel's table of VLANs has one over this interface: its name, which has no blanks, ends a line.
fn carries_vlans(table: &str, interface: &str) -> bool {
    table.lines().any(|line| line.ends_with(&format!(" | {interface}")))
}

/// How many frames that an interface was to send it has dropped; 0 if nobody knows. Of the thread's network namespace.
fn dropped(interface: &str) -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let counts = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        // Eight columns of what came in; then bytes, packets, errors, dropped.
        (name.trim() == interface).then(|| counts.split_whitespace().nth(11)?.parse().ok())?
    };
    table.lines().find_map(counts).unwrap_or(0)
}

fn header_of((id, epoch, seq): Key) -> Header {
    Header { id, epoch, seq, ..Header::default() }
}

fn key(header: &Header) -> Key {
    (header.id, header.epoch, header.seq)
}

/// How long the poller may sleep: `LOOK` while a frame is with the medium, which tells nobody when it has left, else until something is due.
fn wait(below: bool, due: Option<Duration>, now: Duration) -> Option<Duration> {
    if below { Some(LOOK) } else { due.map(|due| due.saturating_sub(now)) }
}

#[cfg(test)]
mod tests {
    use device::Tap;

    use super::*;
    use crate::suppression::PENDING_MAX;
    use crate::{Format, Rules};

    #[test]
    fn relays_vanish_where_many_were_sent_back_and_half_of_them_dropped() {
        let told = [(1, 0), (1, 1), (1, 2), (1, 3), (2, 3), (20, 20)];
        let told = told.map(|(dropped, relayed)| vanished(dropped, relayed, xdp::Mode::Generic).is_some());
        assert_eq!(told, [false, false, false, false, true, true]);
    }

    #[test]
    fn vlans_are_found_in_the_kernels_table() {
        let table = "VLAN Dev name\t | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n\
                     air0.5         | 5  | air0\nair0.6         | 6  | air0\n";
        assert_eq!(["air0", "air0.5", "r0"].map(|name| carries_vlans(table, name)), [true, false, false]);
    }

    /// Draws the longest waits.
    struct Longest;

    impl RngCore for Longest {
        fn next_u32(&mut self) -> u32 {
            u32::MAX
        }
        fn next_u64(&mut self) -> u64 {
            u64::MAX
        }
        fn fill_bytes(&mut self, to: &mut [u8]) {
            to.fill(u8::MAX);
        }
    }

    /// Runs `test` with a TAP and a node on it that waits as `rules` say, for as long as they may, unless it has to be skipped.
    fn waiting(name: &str, suppression: crate::suppression::Rules, test: impl FnOnce(&Tap, &Running) + Send) {
        if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
            return println!("SKIPPED: {name}: needs root and /dev/net/tun");
        }
        let inside = || {
            let (tap, mut net) = (Tap::create("air0").expect("a TAP"), Net::open().expect("netlink"));
            let index = net.link("air0").expect("it is there").index;
            net.set_up(index).expect("it can be switched on");
            let settings = Settings {
                interface: "air0".into(),
                rules: Rules { format: Format::new(Wire::One, None), id: 7, rate_limit: None },
                mode: Mode::Driver,
                ttl: 16,
                port: 51902,
                epoch: 1,
                suppression,
                busy_poll: false,
                warnings: Vec::new(),
            };
            test(&tap, &start(settings, Longest, |why| panic!("{why}")).expect("it starts"));
        };
        device::netns::run_in_new(inside).expect("root may");
    }

    /// Another's message arrives.
    fn hear(tap: &Tap, seq: u32) {
        let header = Header { id: 9, epoch: 1, seq, ttl: 3, ..Header::default() };
        let frame = Format::new(Wire::One, None).write(&header, b"other");
        tap.send(&crate::medium::ethernet([2, 0, 0, 0, 0, 9], &frame)).expect("it goes");
    }

    fn eventually(node: &Running, right: fn(&Status) -> bool) -> Status {
        let until = monotonic() + Duration::from_secs(30);
        loop {
            let status = node.watch().status().expect("it runs");
            if right(&status) {
                return status;
            }
            assert!(monotonic() < until, "{status:?}");
        }
    }

    #[test]
    fn what_is_not_relayed_is_no_message_of_this_host() {
        // Where the machine is busy with other things, the link may be down too late the first time.
        for jitter in [Duration::from_millis(500), Duration::from_secs(5)] {
            // The other's message is due once, so long after it came; the own one at once, and once more after twice as long.
            let rules = crate::suppression::Rules { jitter, threshold: 0, enough: 1, repeats: 1 };
            let mut relayed = 0;
            waiting("what_is_not_relayed_is_no_message_of_this_host", rules, |tap, node| {
                hear(tap, 0);
                eventually(node, |status| status.new_frames == 1);
                let down = std::process::Command::new("ip").args(["link", "set", "air0", "down"]).status();
                assert!(down.expect("ip starts").success());
                crate::Client::connect("air0").expect("a node").send(0, b"own").expect("it is taken");
                let status = eventually(node, |status| status.repeated_frames == 1);
                relayed = status.relayed_frames;
                assert_eq!((status.sent_frames, status.unsent_frames), (0, 2));
            });
            if relayed == 0 {
                return;
            }
        }
        panic!("what could not be sent counts as relayed");
    }

    #[test]
    fn what_too_many_wait_for_is_counted() {
        let rules = crate::suppression::Rules {
            jitter: Duration::from_secs(1000),
            ..crate::suppression::Rules::PURE
        };
        waiting("what_too_many_wait_for_is_counted", rules, |tap, node| {
            (0..PENDING_MAX as u32 + 5).for_each(|seq| hear(tap, seq));
            let status = eventually(node, |status| status.dropped_frames.get("full") == Some(&5));
            assert_eq!((status.new_frames, status.relayed_frames), (PENDING_MAX as u64 + 5, 0));
        });
    }

    #[test]
    fn the_last_frame_is_looked_after_as_well() {
        let now = Duration::from_secs(9);
        assert_eq!(wait(true, None, now), Some(LOOK), "its time on the air would be the silence behind it");
        assert_eq!(wait(true, Some(2 * now), now), Some(LOOK));
        assert_eq!((wait(false, Some(2 * now), now), wait(false, None, now)), (Some(now), None));
    }
}
