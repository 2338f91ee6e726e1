//! One path: its address and whether the peer is known to receive there, the packet size it carries, and when it has
//! something to say.

pub mod cubic;
pub mod mark_loss;
pub mod mtu_search;
pub mod pieces;
pub mod rate;
pub mod recv_enqueue;
pub mod registration;
pub mod remote;
pub mod replay;
pub mod rtt;
pub mod sent;
pub mod state;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand_core::RngCore;

use crate::capture::Opened;
use crate::config::{Cost, PathConfig};
use crate::handshake::cookie::CookieJar;
use crate::handshake::sessions::Session;
use crate::keys::PublicKey;
use crate::path::mark_loss::MarkLoss;
use crate::path::mtu_search::{MtuSearch, MtuSizes};
use crate::path::recv_enqueue::Received;
use crate::path::registration::Registration;
use crate::path::remote::{Proved, Remote};
use crate::path::replay::ReplayWindow;
use crate::path::sent::{Content, Outcome, Sent};
use crate::path::state::StateLog;
use crate::schedule::weights::Weight;
use crate::why::Why;
use crate::wire::address::{Address, LocalAddress, Way};
use crate::wire::frame::{DATA_HEADER, put_challenge};
use crate::wire::train::Train;
use crate::wire::{HEADER_LEN, TAG_LEN, TransportHeader};

/// What the inner interface has at least, in bytes, unless only IPv4 is routed into it and a path carries less.
pub const MIN_INNER_MTU: u16 = packet::ip::LEAST_MTU_V6;
/// After more probe time-outs in which nothing came back a path is not up.
const SILENCES: u32 = 2;
/// One-way delays change by more only when a clock has been set or stood still, as in a suspended host: on all paths.
const CLOCK_STEP: i64 = 1_000_000;
/// How long the least one-way delay counts: clocks drift.
const LEAST_DELAY_LIFE: Duration = Duration::from_secs(10);
/// From sending a packet to having sent it again, in round trips: it is lost when later ones have been reported.
const REPAIR: f64 = 1.25;
/// A loss as likely as one in so many is as good as certain: the delay that counts is the one that 95 of 100 packets keep.
const LIKELY: f64 = 20.0;
/// Bytes of a full packet.
const PACKET: f64 = 1400.0;
/// Markers keep at least this distance.
pub const SHORTEST_MARKER: Duration = Duration::from_millis(20);

fn micros(t: Duration) -> i64 {
    i64::try_from(t.as_micros()).unwrap_or(i64::MAX / 4)
}

/// What tells a path's links from others: where they leave this host, by whichever socket; the peer or the relay that they lead to, and
/// the relay if they do by TLS; and the peer behind a relay.
type Links = (LocalAddress, IpAddr, Option<SocketAddr>, Option<IpAddr>);

/// A way to the peer.
pub struct Path {
    /// Unique in the life of the daemon that lists it.
    pub id: u16,
    /// Its name, as its lister calls it.
    pub name: String,
    /// Used only while no other path works, or to help.
    pub backup: bool,
    /// What goes over the other paths comes too late: a backup is used beside them.
    pub helps: bool,
    /// What using it costs.
    pub cost: Cost,
    /// How this end was told to reach the peer; `None` on a path that the peer lists.
    pub config: Option<PathConfig>,
    /// The session at the relay, on a path that this end lists through one.
    pub registration: Option<Registration>,
    /// What keeps it from leaving this host.
    pub obstacle: Option<Why>,
    /// What was last heard to be amiss on the way, and when.
    pub trouble: Option<(Duration, Why)>,
    /// Its state, and how that changed.
    pub log: StateLog,
    /// When it last began to lead somewhere.
    pub tried_since: Duration,
    /// Cookies for handshakes over this path.
    pub jar: CookieJar,
    /// What was sent.
    pub sent: Sent,
    /// What was received.
    pub received: Received,
    /// Which marks do not arrive.
    pub marked: MarkLoss,
    /// Which sequences were received.
    pub replay: ReplayWindow,
    /// The paper's weight.
    pub weight: Weight,
    /// Bytes given to it over its weight.
    pub virtual_time: f64,
    /// Smoothed one-way delay to the peer, µs, with an offset common to all paths.
    pub delay: Option<i64>,
    /// The least of late, and when it was seen.
    pub least_delay: Option<(i64, Duration)>,
    /// A probe is to be sent, for whatever reason.
    pub probe_wanted: bool,
    /// Announcements still to be sent in place of probes.
    pub announcements: u8,
    /// The sequences of those that were sent of the present list.
    pub announced: Vec<u64>,
    /// Takes part in the rotation by weight.
    pub in_rotation: bool,
    /// When to say that nothing more was sent.
    pub next_marker: Option<Duration>,
    marker_step: Duration,
    /// When something was last sent.
    pub(crate) last_sent: Duration,
    places: Remote,
    /// A challenge to answer, to where it came from.
    response: Option<(Address, u64)>,
    way: Option<Way>,
    /// Whose delays and rates are known.
    known_links: Option<Links>,
    /// What size of packets it carries.
    pub mtu: MtuSearch,
    /// In how many pieces the peer takes a packet.
    most_pieces: u8,
}

impl Path {
    /// A path of the peer's or, with `config`, of this end's.
    pub fn new(id: u16, peer: &PublicKey, config: Option<PathConfig>) -> Self {
        Path {
            id,
            name: config.as_ref().map_or_else(|| format!("path{id}"), |c| c.name.clone()),
            backup: config.as_ref().is_some_and(PathConfig::is_backup),
            helps: false,
            cost: config.as_ref().map(|c| c.cost).unwrap_or_default(),
            config,
            registration: None,
            obstacle: None,
            trouble: None,
            log: StateLog::default(),
            tried_since: Duration::ZERO,
            jar: CookieJar::new(peer),
            sent: Sent::default(),
            received: Received::default(),
            marked: MarkLoss::default(),
            replay: ReplayWindow::default(),
            weight: Weight::default(),
            virtual_time: 0.0,
            delay: None,
            least_delay: None,
            probe_wanted: false,
            announcements: 0,
            announced: Vec::new(),
            in_rotation: false,
            next_marker: None,
            marker_step: Duration::ZERO,
            last_sent: Duration::ZERO,
            places: Remote::default(),
            response: None,
            way: None,
            known_links: None,
            mtu: MtuSearch::default(),
            most_pieces: 1,
        }
    }

    /// Whether nothing goes over it that can go elsewhere: copies, markers, second reports.
    pub fn is_spared(&self) -> bool {
        self.is_kept() || self.cost.metered
    }

    /// Whether it waits until no other path works.
    pub fn is_kept(&self) -> bool {
        self.backup && !self.helps
    }

    /// Where to send, if anywhere is known.
    pub fn address(&self) -> Option<&Address> {
        self.places.address()
    }

    /// Where this path leaves the host and where it leads; `None` while its interface is not there, or its peer's name has
    /// no address.
    pub fn way(&self) -> Option<Way> {
        self.way
    }

    /// A path of this end's has a way, another one, or (`None`) none any more.
    pub fn set_way(&mut self, way: Option<Way>) {
        if self.way.map(|way| (way.remote, way.relay)) != way.map(|way| (way.remote, way.relay)) {
            self.registration = None;
        }
        self.places.rival = way.and_then(|way| way.rival).map(|(to, local)| Address::direct(to, local));
        self.way = way;
    }

    /// How the relay is reached, on a path that this end lists through one.
    pub fn relay(&self) -> Option<Address> {
        let way = self.way?;
        way.relay.map(|relay| Address::direct(relay, way.local))
    }

    /// Whether its relay is at `place`.
    pub fn is_relayed_by(&self, place: &Address) -> bool {
        self.relay().is_some_and(|relay| relay.remote == place.remote)
    }

    /// Where its relay is, if its datagrams go there by TLS.
    pub fn tls(&self) -> Option<SocketAddr> {
        self.way.and_then(|way| way.tls)
    }

    /// Sends to `address` from now on, which this end's configuration or relay vouches for.
    pub fn set_address(&mut self, now: Duration, address: Option<Address>) {
        if self.places.set_home(now, address) {
            self.mtu.look_again(now);
        }
    }

    /// Of two addresses of its peer's name the path leads to the one that answers a handshake first.
    pub fn handle_answer(&mut self, now: Duration, from: &Address) {
        if !self.is_up() && self.places.handle_answer(now, from) {
            self.mtu.look_again(now);
        }
    }

    /// Where it leads by other links than before, nothing is known of them. The same ones may have been away for a while.
    pub fn follow(&mut self, out: &mut Outcome) {
        let Some(links) = self.links() else { return };
        if self.known_links.replace(links).is_some_and(|known| known != links) {
            self.handle_move(false, out);
        }
    }

    fn links(&self) -> Option<Links> {
        let Address { remote, local, .. } = self.address()?;
        let relayed = self.way.filter(|way| way.relay.is_some()).map(|way| way.remote.ip());
        Some((LocalAddress { socket: 0, ..*local }, remote.ip(), self.tls(), relayed))
    }

    /// What was in flight is handed back as lost, and unless it is the same host nothing is known of its links (RFC 9000 §9.4).
    fn handle_move(&mut self, same_host: bool, out: &mut Outcome) {
        self.sent.handle_move(same_host, out);
        if !same_host {
            (self.delay, self.least_delay) = (None, None);
        }
    }

    /// An authenticated packet came from `from`. `newest`: none sent later on this path has come before.
    pub fn handle_arrival(
        &mut self,
        now: Duration,
        from: &Address,
        bytes: usize,
        newest: bool,
        rng: &mut impl RngCore,
    ) {
        // While its interface is not there it leads nowhere, whatever comes in by another.
        if self.config.is_none() || self.address().is_some() {
            self.places.handle_arrival(now, from, bytes, newest, rng);
        }
    }

    /// A challenge came from `from`, which the answer goes back to.
    pub fn handle_challenge(&mut self, from: &Address, token: u64) {
        self.response = Some((self.places.way_back(from), token));
    }

    /// The peer answered a challenge from `from`: it receives there. On another host the path may be any other; what was
    /// in flight to the old one is handed back as lost.
    pub fn handle_response(&mut self, now: Duration, from: &Address, token: u64, out: &mut Outcome) {
        match self.places.handle_response(from, token) {
            Proved::Nothing => return,
            Proved::Here => {}
            Proved::Moved { same_host } => {
                self.handle_move(same_host, out);
                self.sent.end_silence(now);
                self.known_links = self.links();
            }
        }
        self.mtu.look_again(now);
        self.next_marker = Some(now);
    }

    /// The address `source` that datagrams to `remote` left from is gone: unless this end was told to leave from there, it
    /// leaves from wherever the routing table says, and tells the peer.
    pub fn handle_source_gone(&mut self, remote: SocketAddr, source: IpAddr) {
        self.probe_wanted |= self.places.forget_source(remote, source);
    }

    /// Nothing comes back: perhaps the peer is where the configuration says, and perhaps the relay has forgotten.
    pub fn handle_silence(&mut self, now: Duration, rng: &mut impl RngCore) {
        self.probe_wanted = true;
        if !self.sent.is_silent() {
            return;
        }
        self.places.look_at_home(now, rng);
        if let Some(registration) = &mut self.registration {
            registration.refresh(now);
        }
    }

    /// The path answers where it leads: the peer is not looked for elsewhere any more.
    pub fn end_look(&mut self) {
        self.places.end_look();
    }

    /// Where a handshake finds the peer: where the path leads, and where the configuration says, at both addresses if it has two.
    pub fn handshake_addresses(&self) -> impl Iterator<Item = Address> + use<> {
        let here = self.places.address().filter(|_| self.is_validated());
        let home = self.places.home.filter(|home| here.is_none_or(|here| !here.is_same_place(home)));
        let rival = self.places.rival.filter(|_| !self.is_up());
        [here.copied(), home, rival].into_iter().flatten()
    }

    /// When a packet sent now is there unless it is lost, µs, with an offset common to all paths: as delays are reported or, if that
    /// is later, behind what is in flight, by the path's jitter late.
    pub fn queued_arrival(&self) -> Option<i64> {
        self.arrival(self.sent.rate.jitter())
    }

    fn arrival(&self, late: Duration) -> Option<i64> {
        let queue = self.sent.rate.queue_delay(self.sent.in_flight());
        Some(self.delay?.max(self.least_delay?.0 + micros(queue + late)))
    }

    /// And later by what a repair takes, as likely as one is lost of what its flow sends in a round trip at `rate`, bytes per second:
    /// all that the flow sends waits for that one. What is `sparse` has to be there though it comes late; to a flow that sends much,
    /// the mean matters, which is half of that. What is `copied` if this path is late or loses hardly ever waits for either: one
    /// part in [`LIKELY`] counts.
    pub fn expected_arrival(&self, rate: f64, sparse: bool, copied: bool) -> Option<i64> {
        let counts = |time: Duration| if copied { time.div_f64(LIKELY) } else { time };
        let late = self.sent.rate.jitter() / if sparse { 1 } else { 2 };
        Some(self.arrival(counts(late))? + micros(counts(self.repair(rate))))
    }

    /// When it would be there if nothing were in flight.
    pub fn least_arrival(&self, rate: f64) -> Option<i64> {
        let (least, _) = self.least_delay?;
        Some(least + micros(self.sent.rate.jitter() + self.repair(rate)))
    }

    fn repair(&self, rate: f64) -> Duration {
        if rate == 0.0 {
            return Duration::ZERO;
        }
        let rtt = self.sent.rtt().smoothed().unwrap_or_default();
        let packet = f64::from(self.inner_mtu()).clamp(1.0, PACKET);
        let packets = (rate * rtt.as_secs_f64() / packet).max(1.0);
        rtt.mul_f64(REPAIR * (LIKELY * self.sent.rate.loss() * packets).min(1.0))
    }

    /// A report gave `delay` as the mean, and `least` as the least one-way delay, µs, over a common offset.
    pub fn handle_delay(&mut self, now: Duration, delay: i64, least: i64) {
        self.delay = match self.delay {
            // Jitter and queues raise it slowly; that a path has become faster is believed at once.
            Some(old) if (delay - old).abs() < CLOCK_STEP => Some(delay.min(old + (delay - old) / 4)),
            _ => Some(delay),
        };
        let holds = |(old, at): &(i64, Duration)| {
            least > *old && least - *old < CLOCK_STEP && now < *at + LEAST_DELAY_LIFE
        };
        if !self.least_delay.as_ref().is_some_and(holds) {
            self.least_delay = Some((least, now));
        }
    }

    /// Whether the peer is known to receive at the path's address.
    pub fn is_validated(&self) -> bool {
        self.places.is_validated()
    }

    /// Whether data may be sent: somewhere to go, room for an inner packet of the least size, no silence.
    pub fn is_up(&self) -> bool {
        self.is_validated() && self.mtu.suffices() && !self.sent.is_silent()
    }

    /// Whether data may be tried for want of anything better: as [`is_up`](Self::is_up), but silent for a moment.
    pub fn is_perhaps_up(&self) -> bool {
        self.is_validated() && self.mtu.suffices() && self.sent.silences() <= SILENCES
    }

    /// The largest inner packet that is known to pass in one datagram, 0 before any was.
    pub fn inner_mtu(&self) -> u16 {
        let carried = usize::from(self.mtu.carried());
        carried.saturating_sub(self.overhead()) as u16
    }

    /// A size that was probed passed.
    pub fn handle_probed(&mut self, size: u16) {
        self.mtu.handle_carried(size);
        self.sent.set_small(self.inner_mtu() < MIN_INNER_MTU);
    }

    /// In how many datagrams an inner packet of `size` bytes goes; `None` if it does not.
    pub fn pieces(&self, size: usize) -> Option<usize> {
        let each = usize::from(self.inner_mtu());
        if size <= each {
            return Some(1);
        }
        (size <= each * usize::from(self.most_pieces)).then(|| size.div_ceil(each))
    }

    /// Bytes of UDP payload for `inner` bytes of inner packet, in all its datagrams.
    pub fn payload_size(&self, inner: usize) -> usize {
        let relay = self.address().map_or(0, Address::relay_header_len);
        inner + self.pieces(inner).unwrap_or(1) * (relay + HEADER_LEN + DATA_HEADER + TAG_LEN)
    }

    /// Bytes around an inner packet.
    pub fn overhead(&self) -> usize {
        self.address().map_or(28, Address::overhead) + HEADER_LEN + DATA_HEADER + TAG_LEN
    }

    /// Sends a packet whose plaintext `write` writes. Counts it as sent.
    pub fn pack(
        &mut self,
        now: Duration,
        session: &Session,
        tos: u8,
        content: Content,
        train: &mut Train,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let Some(address) = self.address().copied() else { return false };
        let size = self.seal(session, &address, tos, train, write);
        self.places.handle_sent(size);
        self.count(now, size, content);
        true
    }

    /// The challenge that is due, to the address that it is about; else the answer to one, to where that came from (RFC 9000 §8.2.2): no
    /// larger than it. Neither is in flight: that nothing comes back says nothing about the path's present address.
    pub fn pack_challenge(&mut self, now: Duration, session: &Session, train: &mut Train) -> bool {
        let due = self.places.poll_challenge(now).map(|challenge| (challenge, false));
        let next = due.or_else(|| Some((self.response.take()?, true)));
        let Some(((address, token), answers)) = next else { return false };
        let size = self.seal(session, &address, 0, train, |out| put_challenge(out, token, answers));
        let last_sent = self.last_sent;
        self.count(now, size, Content::Report);
        // What goes elsewhere keeps no NAT's mapping alive here.
        if self.places.address().is_none_or(|here| !here.is_same_place(&address)) {
            self.last_sent = last_sent;
        }
        true
    }

    /// Whether `bytes` may be sent to the path's address.
    pub fn may_take(&self, bytes: usize) -> bool {
        self.places.may_take(bytes)
    }

    /// The size of an outer packet to probe now, and the bytes of plaintext that make it so large.
    pub fn poll_mtu_probe(&mut self, now: Duration, sizes: MtuSizes) -> Option<(u16, usize)> {
        self.most_pieces = sizes.pieces;
        let around = self.address()?.overhead() + HEADER_LEN + TAG_LEN;
        if !self.takes_mtu_probes() {
            return None;
        }
        let outer = |inner: u16| inner + self.overhead() as u16;
        let (least, reserve) = (outer(sizes.least), outer(sizes.reserve()));
        let size = self.mtu.poll(now, least, reserve, sizes.search)?;
        Some((size, usize::from(size) - around))
    }

    /// Whether something passes, or may: where nothing comes back, a small probe finds out that something does.
    fn takes_mtu_probes(&self) -> bool {
        self.is_validated() && self.sent.silences() <= SILENCES
    }

    /// When [`poll_mtu_probe`](Self::poll_mtu_probe) or [`pack_challenge`](Self::pack_challenge) has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let probe = self.takes_mtu_probes().then_some(self.mtu.next());
        self.places.poll_timeout().into_iter().chain(probe).min()
    }

    /// Something that the peer has to see was sent: if nothing follows, a marker does after `step`, `4 step`, …
    pub fn restart_marker(&mut self, now: Duration, step: Duration) {
        self.marker_step = step;
        self.next_marker = Some(now + step);
    }

    /// The marker is being sent: the next comes later, at the latest after `longest`.
    pub fn back_off_marker(&mut self, now: Duration, longest: Duration) {
        self.marker_step = (self.marker_step * 4).clamp(SHORTEST_MARKER, longest);
        self.next_marker = Some(now + self.marker_step);
    }

    fn seal(
        &mut self,
        session: &Session,
        address: &Address,
        tos: u8,
        train: &mut Train,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let sequence = self.sent.next_sequence();
        let header = TransportHeader { path: self.id, receiver: session.remote_index, sequence }.to_bytes();
        let before = train.contents.len();
        let (place, mut notes) = (train.len(), train.notes.take());
        train.put(address, tos, |out| {
            out.extend(header);
            let body = out.len();
            write(out);
            if let Some(notes) = &mut notes {
                let (path, frame, why) = (self.name.clone(), out[body..].to_vec(), String::new());
                notes.push(place, Opened { path, sequence, frame, why, joined: Vec::new() });
            }
            out.resize(out.len() + TAG_LEN, 0);
            session.sealing.seal(self.id, sequence, &header, &mut out[body..]);
        });
        train.notes = notes;
        train.contents.len() - before
    }

    fn count(&mut self, now: Duration, size: usize, content: Content) {
        self.last_sent = now;
        self.sent.handle_sent(now, size, content);
    }
}
