//! One other end: its sessions, paths and order stream, brought together. What comes from it is in [`receive`], what goes
//! to it in [`transmit`]; here is what it knows and what time does to it.

mod memory;
mod notice;
mod receive;
mod reconfigure;
mod transmit;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rand_core::RngCore;

use crate::capture::Opened;
use crate::config::{Bicast, MAX_PATHS, Marks, Mtu, PeerConfig, Scheduler};
use crate::flow::copies::Copies;
use crate::flow::queue::FlowQueue;
use crate::flow::unconfirmed::{self, Unconfirmed};
use crate::handshake::noise::{Finished, Initiator};
use crate::handshake::sessions::{Identities, Indices, Sessions};
use crate::keys::PrivateKey;
use crate::packet_queue::PacketQueue;
use crate::path::mtu_search::{MIN_CARRIED, MtuSizes};
use crate::path::pieces::Pieces;
use crate::path::recv_enqueue::Received;
use crate::path::registration::Registration;
use crate::path::replay::ReplayWindow;
use crate::path::rtt::MAX_RTT;
use crate::path::sent::Outcome;
use crate::path::{MIN_INNER_MTU, Path};
use crate::schedule::backups::Help;
use crate::schedule::choice::{LAST_RESORT, tier_of};
use crate::schedule::clock_skew::ClockSkew;
use crate::schedule::weights;
use crate::why::Why;
use crate::wire::Direction;
use crate::wire::address::{Address, Way};
use crate::wire::frame::{MAX_PIECES, Report};

pub use memory::Memory;
pub use notice::{Others, why_of};

pub use crate::path::state::{Change, State};
pub use reconfigure::Common;

/// Bytes of inner packets kept until there are keys and a path: the first of a connection, the last of a call.
const MAX_EARLY: usize = 32 << 10;
/// Where nothing is sent again, a gap waits for what packets may overtake one another by: how much paths differ, a
/// quarter of the round trip (RFC 8985 §6.2 has the same), and at least this.
const LEAST_REORDERING: Duration = Duration::from_millis(10);
/// A new session and a changed list begin with so many announcements on each path.
const ANNOUNCEMENTS: u8 = 3;
/// Until the peer has reported one, the list goes once more over one path after this, then after four times as long each time;
/// a new session begins with it anyway.
const ANNOUNCE_AGAIN: Duration = Duration::from_millis(500);
const ANNOUNCE_LONGEST: Duration = Duration::from_secs(32);
/// Without data for so long, the tunnel is idle: markers stop.
const IDLE: Duration = Duration::from_secs(5);
/// Markers of a path that is quiet come this often, at least while there is a choice.
const MARKER_LONGEST: Duration = Duration::from_millis(250);
/// On the only path there is no choice that markers could measure for. They show that it still leads there, as data does, and come so
/// long after it; sooner only where a pause is a surprise.
const ALONE: Duration = Duration::from_secs(1);
/// An end that lists paths keeps them open with at least this, as NATs forget (RFC 4787 §4.3: two minutes at least; many
/// take thirty seconds).
const KEEPALIVE: Duration = Duration::from_secs(25);

/// Counts of what was refused or given up.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct PeerCounters {
    /// Inner packets taken from the TUN for this peer.
    pub sent_packets: u64,
    /// Inner packets dropped because no path in use carries their size any more.
    pub dropped_too_big: u64,
    /// Inner packets dropped for want of a session or a path.
    pub dropped_no_session: u64,
    /// Packets from the peer that no key opened.
    pub received_forged: u64,
    /// Packets from the peer that had come before.
    pub received_replayed: u64,
    /// Packets from the peer that made no sense though it had sealed them.
    pub received_malformed: u64,
    /// Paths beyond the limit that the peer tried to add.
    pub refused_paths: u64,
    /// Inner packets from the peer of which a piece came, and not all.
    pub received_incomplete: u64,
    /// Inner packets from the peer with a source that is not its own.
    pub received_foreign_source: u64,
}

/// The last transport packet, and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// What it was; none if it names no session.
    pub opened: Option<Opened>,
}

/// Over which path one more copy goes.
#[derive(Clone, Copy, Debug)]
enum Second {
    /// The best but the one with this id.
    But(u16),
    /// The one with this id, to see what it carries.
    Tried(u16),
}

/// One other end.
pub struct Peer {
    /// What this end was told of it.
    pub config: PeerConfig,
    pub(crate) scheduler: Scheduler,
    marks: Marks,
    memory: Memory,
    sizes: MtuSizes,
    inner_mtu: u16,
    /// Keys.
    pub sessions: Sessions,
    /// Ways to it, this end's first, in the order of the configuration.
    pub paths: Vec<Path>,
    /// Ids of the peer's that it has ceased to list. They are not learned again in its life: this end's sequences would
    /// begin anew under the same keys, and with them the nonces.
    retired: BTreeSet<u16>,
    /// The id of the next path that this end lists. It begins as the parity of all of them.
    next_id: u16,
    /// The edition of this end's list of paths, and of the peer's that was taken up last.
    generation: u8,
    /// When to announce that list again, and how long after that once more.
    announce_again: Option<(Duration, Duration)>,
    peer_generation: Option<u8>,
    pub(crate) queue: FlowQueue,
    /// What has been sent and is not confirmed.
    pub unconfirmed: Unconfirmed,
    /// `None` if nothing goes over two paths.
    pub(crate) copies: Option<Copies>,
    pub(crate) ordered: PacketQueue,
    pieces: Pieces,
    help: Help,
    peer_repeats: bool,
    /// What is to go over a second path as well: its order sequence, its bytes, which path. Bytes sent, and of them so.
    twice: VecDeque<(u64, Vec<u8>, Second)>,
    twice_bytes: (u64, u64),
    /// Order sequences that were sent again, and go once more if a path has nothing else to do.
    repeated: VecDeque<u64>,
    /// No report goes before this: more would take too much of a way back that is full.
    next_report: Duration,
    /// Reports to be sent once more, over another path.
    report_again: Option<(usize, Vec<Report>)>,
    outbox: VecDeque<(Address, Vec<u8>)>,
    outcome: Outcome,
    /// Packets given up that the peer was told of.
    given_up_announced: u64,
    /// When data last went or came, and since when without a pause.
    last_data: Option<Duration>,
    flows_since: Duration,
    next_weights: Duration,
    /// Something was sent or has come since the paths were measured last.
    stirred: bool,
    delay_base: Option<u32>,
    /// How much faster the peer's clock runs than this end's.
    pub(crate) skew: ClockSkew,
    reports_sent: u64,
    /// Why packets that are routed to it do not come to this end, if some do not.
    pub(crate) beside: Option<Why>,
    /// What was said of it last.
    said: Option<Why>,
    /// What came in last, while somebody captures; `None` while nobody does.
    pub(crate) noted: Option<Noted>,
    /// Counts.
    pub counters: PeerCounters,
}

impl Peer {
    /// A peer that nothing was heard of.
    pub fn new(config: PeerConfig, common: Common, ids: Identities, seed: u64) -> Self {
        let Common { scheduler, mtu, marks, memory } = common;
        let next_id = u16::from(ids.me.public() > config.public_key);
        let mut peer = Peer {
            scheduler,
            marks,
            sizes: sizes_of(mtu, &config, 1),
            inner_mtu: sizes_of(mtu, &config, 1).least,
            sessions: Sessions::new(ids),
            paths: Vec::new(),
            retired: BTreeSet::new(),
            next_id,
            generation: 0,
            announce_again: None,
            peer_generation: None,
            queue: FlowQueue::new(seed, memory.waiting()),
            unconfirmed: Unconfirmed::new(repeats(scheduler, &config), memory.kept()),
            copies: (config.bicast != Bicast::Off)
                .then(|| Copies::new(seed, config.bicast == Bicast::Adaptive)),
            ordered: PacketQueue::new(memory.held()),
            pieces: Pieces::default(),
            help: Help::default(),
            memory,
            peer_repeats: false,
            twice: VecDeque::new(),
            twice_bytes: (0, 0),
            repeated: VecDeque::new(),
            next_report: Duration::ZERO,
            report_again: None,
            outbox: VecDeque::new(),
            outcome: Outcome::default(),
            given_up_announced: 0,
            last_data: None,
            flows_since: Duration::ZERO,
            next_weights: Duration::ZERO,
            stirred: false,
            delay_base: None,
            skew: ClockSkew::default(),
            reports_sent: 0,
            beside: None,
            said: None,
            noted: None,
            counters: PeerCounters::default(),
            config,
        };
        for config in peer.config.paths.clone() {
            let path = peer.new_path(&config);
            peer.paths.push(path);
        }
        peer
    }

    // ---- what this end's configuration and interfaces say -------------------------------------------------------

    /// This end's path `index` has a way, another one, or (`None`) none any more.
    pub fn set_way(
        &mut self,
        now: Duration,
        index: usize,
        way: Option<Way>,
        me: &PrivateKey,
        rng: &mut impl RngCore,
    ) {
        let Some(path) = self.paths.get_mut(index).filter(|path| path.way() != way) else { return };
        path.set_way(way);
        self.find_way(now, index, me, rng);
    }

    /// Points this end's path `index` at where its way leads.
    fn find_way(&mut self, now: Duration, index: usize, me: &PrivateKey, rng: &mut impl RngCore) {
        let Some(path) = self.paths.get_mut(index) else { return };
        let via = path.config.as_ref().and_then(|config| config.via.as_ref());
        match (via, path.way()) {
            (_, None) => path.set_address(now, None),
            (None, Some(way)) => path.set_address(now, Some(Address::direct(way.remote, way.local))),
            (Some(via), Some(way)) => match &mut path.registration {
                Some(registration) => registration.restart(now),
                none => *none = Some(Registration::new(now, me, &via.public_key, way.remote, rng)),
            },
        }
        // The other end is to hear at once that it leads somewhere again.
        path.probe_wanted |= path.way().is_some();
    }

    // ---- what arrives -------------------------------------------------------------------------------------------

    /// A relay answered; true if one of this peer's registrations knows the message.
    pub fn handle_relay(&mut self, now: Duration, from: &Address, message: &[u8]) -> bool {
        for path in self.paths.iter_mut().filter(|path| path.is_relayed_by(from)) {
            if path.registration.as_mut().is_some_and(|r| r.handle_message(now, message)) {
                adopt_session(now, path);
                return true;
            }
        }
        false
    }

    /// The registration with the relay at `from` that waits for a response to its initiation `index`.
    pub fn registration(&mut self, from: &Address, index: u32) -> Option<&mut Registration> {
        let paths = self.paths.iter_mut().filter(|path| path.is_relayed_by(from));
        paths.filter_map(|path| path.registration.as_mut()).find(|r| r.is_attempted(index))
    }

    /// What came from `from` as a response was read.
    pub fn handle_finished(
        &mut self,
        now: Duration,
        from: &Address,
        initiator: Initiator,
        finished: Option<Finished>,
    ) {
        if let Some(reborn) = self.sessions.handle_finished(now, initiator, finished) {
            self.paths.iter_mut().for_each(|path| path.handle_answer(now, from));
            self.begin_session(now, reborn);
        }
    }

    /// The peer has many handshakes to answer, and gives a cookie for where it saw this end's initiation come from: with that it goes
    /// once more, at once.
    pub fn handle_cookie(&mut self, now: Duration, from: &Address, reply: &[u8]) {
        for path in &mut self.paths {
            if path.address().is_none_or(|address| !address.is_same_place(from)) {
                continue;
            }
            if !path.jar.accept(now, reply) {
                continue;
            }
            path.handle_trouble(now, Why::Limited(from.remote));
            let (Some(again), Some(to)) = (self.sessions.repeat_initiation(), path.address().copied()) else {
                continue;
            };
            let mut stamped = again.to_vec();
            path.jar.stamp(now, &mut stamped);
            self.outbox.push_back((to, stamped));
        }
    }

    /// An inner packet for this peer.
    pub fn handle_inner(&mut self, now: Duration, packet: &[u8]) {
        self.note_data(now);
        self.counters.sent_packets += 1;
        self.twice_bytes.0 += packet.len() as u64;
        self.queue.push(now, packet);
        if !self.can_send(now) {
            self.counters.dropped_no_session +=
                self.queue.shrink(MAX_EARLY, "there are no keys or no path, and more than enough waits");
        }
    }

    /// Whether there are keys and a path to send on.
    pub fn can_send(&self, now: Duration) -> bool {
        self.sessions.current(now).is_some() && self.tier() != u8::MAX
    }

    /// Whether a path carries data.
    pub fn carries(&self) -> bool {
        self.paths.iter().any(Path::is_up)
    }

    /// The same, as was said last.
    pub fn leads_out(&self) -> bool {
        self.paths.iter().any(|path| path.log.state == State::Up)
    }

    /// Whether inner packets wait to be sent (again).
    pub fn is_waiting(&self) -> bool {
        self.queue.bytes() > 0 || self.unconfirmed.has_resend()
    }

    /// The next inner packet from the peer, in order.
    pub fn poll_inner(&mut self) -> Option<Vec<u8>> {
        self.ordered.poll_ready()
    }

    // ---- time ---------------------------------------------------------------------------------------------------

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration, rng: &mut impl RngCore, taken: &Indices) {
        self.sessions.handle_timeout(now);
        self.shake_hands(now, rng, taken);
        for path in &mut self.paths {
            adopt_session(now, path);
        }
        self.notice_silence(now, rng);
        self.announce_late(now);
        self.update_mtu();
        self.join_rotation();
        self.unconfirmed.handle_timeout(now);
        if self.has_choice() {
            self.unconfirmed.repeat_overdue(now);
        }
        let hold = self.hold();
        self.ordered.handle_timeout(now, hold);
        self.pieces.handle_timeout(now, hold);
        self.counters.received_incomplete = self.pieces.dropped();
        // Nobody is woken for it: it is done before anything is chosen by it.
        if self.stirred && now >= self.next_weights && self.is_active(now) {
            self.next_weights = now + weights::PERIOD;
            self.stirred = false;
            let weights = self.paths.iter_mut().filter(|p| p.is_up()).map(|p| &mut p.weight);
            // The paper's equations know no skew.
            let skew = if self.scheduler == Scheduler::Auto { self.skew.over(weights::PERIOD) } else { 0.0 };
            weights::update(weights, self.scheduler == Scheduler::PaperAbsolute, skew);
            self.skew.update(now, self.paths.iter_mut().map(|p| &mut p.weight.minima));
            self.measure_paths();
            self.measure_detours();
            self.unconfirmed.set_rtt(self.slowest_rtt());
        }
    }

    /// When something is due.
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        let mut next = Earliest(None);
        next.add(self.sessions.poll_timeout());
        next.add(self.sessions.poll_expiry());
        next.add(self.sessions.poll_rekey().filter(|_| self.can_reach(now)));
        next.add(self.unconfirmed.poll_timeout());
        next.add(self.copies.as_ref().and_then(Copies::poll_timeout));
        next.add(self.unconfirmed.front_due().filter(|_| self.has_choice()));
        next.add(self.ordered.poll_timeout(self.hold()));
        self.paths.iter().for_each(|path| next.add(path.log.due));
        // Without an interface there is no way to ask a relay.
        for path in self.paths.iter().filter(|p| p.way().is_some()) {
            next.add(path.registration.as_ref().and_then(Registration::poll_timeout));
        }
        if self.sessions.current(now).is_some() {
            self.poll_session_timeout(now, &mut next);
        } else if self.sessions.can_start() && self.can_reach(now) {
            next.add(Some(now));
        }
        next.0
    }

    fn poll_session_timeout(&self, now: Duration, next: &mut Earliest) {
        let active = self.is_active(now);
        let waiting = self.is_waiting();
        next.add(self.report_again.as_ref().map(|_| now));
        next.add(self.report_due().filter(|_| self.report_paths(now)[0].is_some()));
        next.add(self.announce_again.map(|(at, _)| at));
        for path in &self.paths {
            next.add(path.poll_timeout());
            next.add(path.sent.poll_timeout().filter(|_| path.address().is_some()));
            next.add(self.marker_at(path, active));
            next.add(self.keepalive_at(path));
            // What could be sent by now has been; a path that is due and was not chosen waits for another.
            next.add(path.sent.room_at(now).filter(|room| waiting && *room > now));
        }
    }

    /// Whether more than one path is in use.
    fn has_choice(&self) -> bool {
        let tier = self.tier();
        tier != LAST_RESORT && self.paths.iter().filter(|p| tier_of(p) == Some(tier)).count() > 1
    }

    // ---- captures -----------------------------------------------------------------------------------------------

    /// Notes what becomes of packets from now on, or no longer.
    pub(crate) fn set_noted(&mut self, on: bool) {
        self.noted = on.then(Noted::default);
        self.queue.set_noted(on);
    }

    fn note(&mut self, opened: impl FnOnce() -> Opened) {
        if let Some(noted) = &mut self.noted {
            noted.opened = Some(opened());
        }
    }

    /// Says what became of what was noted last.
    fn remark(&mut self, why: impl FnOnce() -> String) {
        if let Some(opened) = self.noted.as_mut().and_then(|noted| noted.opened.as_mut()) {
            opened.why = why();
        }
    }

    // ---- helpers ------------------------------------------------------------------------------------------------

    /// Takes over what a report or a silence said about inner packets.
    fn settle(&mut self, now: Duration) {
        for &order in &self.outcome.confirmed {
            self.unconfirmed.handle_confirmed(order);
            if let Some(copies) = &mut self.copies {
                copies.handle_confirmed(order);
            }
        }
        let soonest = self.paths.iter().filter(|p| p.is_up()).map(|p| p.sent.report_expected_in()).min();
        let again = now + soonest.unwrap_or_default();
        for &order in &self.outcome.lost {
            self.unconfirmed.handle_lost(now, again, order);
        }
    }

    /// Forgets those of the paths that the peer listed which `gone` names; what was on its way over them is lost.
    fn forget_learned(&mut self, now: Duration, gone: impl Fn(&Path) -> bool) {
        self.outcome.clear();
        let gone = |p: &Path| p.config.is_none() && gone(p);
        self.paths.iter_mut().filter(|p| gone(p)).for_each(|p| p.sent.abandon(&mut self.outcome));
        self.paths.retain(|p| !gone(p));
        self.settle(now);
    }

    fn notice_silence(&mut self, now: Duration, rng: &mut impl RngCore) {
        for at in 0..self.paths.len() {
            self.outcome.clear();
            let path = &mut self.paths[at];
            if path.address().is_none() {
                // Its interface went, or its session at the relay, and with it what was under way.
                if path.sent.in_flight() > 0 {
                    path.sent.abandon(&mut self.outcome);
                    self.settle(now);
                }
                continue;
            }
            path.follow(&mut self.outcome);
            if path.sent.poll_timeout().is_some_and(|t| t <= now)
                && path.sent.handle_timeout(now, &mut self.outcome)
            {
                path.handle_silence(now, rng);
            }
            self.settle(now);
        }
        // What a silent path holds goes down another one, as soon as there is one.
        if self.tier() < LAST_RESORT {
            self.outcome.clear();
            for path in self.paths.iter_mut().filter(|path| path.sent.is_silent()) {
                path.sent.hand_over(&mut self.outcome);
            }
            self.settle(now);
        }
    }

    fn shake_hands(&mut self, now: Duration, rng: &mut impl RngCore, taken: &Indices) {
        // Nothing comes back on any path: perhaps the peer has lost its keys.
        let mut used = self.paths.iter().filter(|p| p.address().is_some()).peekable();
        let lost = used.peek().is_some() && used.all(|p| p.sent.silences() > 1);
        if self.can_reach(now) && self.sessions.wants_handshake(now, lost) {
            self.sessions.start(now, rng, taken);
        }
        let Some(message) = self.sessions.poll_initiation(now).map(<[u8]>::to_vec) else { return };
        for path in &mut self.paths {
            for address in path.handshake_addresses() {
                let mut stamped = message.clone();
                path.jar.stamp(now, &mut stamped);
                self.outbox.push_back((address, stamped));
            }
        }
    }

    /// Whether there is an address to send a handshake to, and a reason: an end that lists no paths waits for data.
    fn can_reach(&self, now: Duration) -> bool {
        let wanted = !self.config.paths.is_empty() || self.is_active(now);
        wanted && self.paths.iter().any(Path::is_validated)
    }

    /// There is a new session; with `reborn`, with a new life of the peer's daemon.
    fn begin_session(&mut self, now: Duration, reborn: bool) {
        if reborn {
            self.ordered = PacketQueue::new(self.memory.held());
            self.pieces.clear();
            self.delay_base = None;
            self.skew = ClockSkew::default();
            self.retired.clear();
            self.peer_generation = None;
            self.forget_learned(now, |_| true);
            for path in &mut self.paths {
                path.received = Received::default();
                path.replay = ReplayWindow::default();
                (path.delay, path.least_delay) = (None, None);
            }
        }
        let takes = self.sessions.current(now).is_some_and(|session| session.pieces);
        self.sizes.pieces = if takes { MAX_PIECES as u8 } else { 1 };
        self.announce(now);
    }

    /// The path with `id`; a path of the peer's that is new is added, as long as it has not too many. What was under way over one that
    /// either end has forgotten still comes.
    fn find_path(&mut self, id: u16) -> Option<usize> {
        if let Some(at) = self.paths.iter().position(|p| p.id == id) {
            return Some(at);
        }
        if id % 2 == self.next_id % 2 || self.retired.contains(&id) {
            return None;
        }
        if self.paths.iter().filter(|p| p.config.is_none()).count() == MAX_PATHS {
            self.counters.refused_paths += 1;
            return None;
        }
        self.paths.push(Path::new(id, &self.config.public_key, None));
        Some(self.paths.len() - 1)
    }

    /// Data goes or has come.
    fn note_data(&mut self, now: Duration) {
        if self.last_data.is_none_or(|last| now >= last + MARKER_LONGEST) {
            self.flows_since = now;
        }
        self.last_data = Some(now);
        self.stirred = true;
    }

    fn is_active(&self, now: Duration) -> bool {
        self.last_data.is_some_and(|t| now < t + IDLE)
    }

    /// Markers measure the paths that are used: one that is kept for worse times or paid for by the byte is left alone, but for its
    /// keepalive.
    fn marker_at(&self, path: &Path, active: bool) -> Option<Duration> {
        let others = || self.paths.iter().any(|path| path.is_up() && !path.is_spared());
        let spared = path.is_kept() && self.tier() == 0 || path.cost.metered && others();
        let at = path.next_marker.filter(|_| active && path.is_validated() && !spared)?;
        let alone = self.paths.len() == 1 && self.unconfirmed.repeats() && path.announcements == 0;
        if !alone {
            return Some(at);
        }
        let last = self.last_data?;
        let surprise = last >= self.flows_since + MARKER_LONGEST;
        Some(at.max(last + if surprise { MARKER_LONGEST } else { ALONE }))
    }

    fn keepalive_at(&self, path: &Path) -> Option<Duration> {
        let listed = path.config.is_some().then_some(KEEPALIVE);
        let every = self.config.keepalive.into_iter().chain(listed).min()?;
        path.is_validated().then(|| path.last_sent + every)
    }

    /// How long a gap may wait. A peer that repeats says itself when it has given a packet up; of one that does not, the
    /// slowest path is waited for, and no longer: whoever is to send again should hear of it.
    fn hold(&self) -> Duration {
        let (rtt, spread) = (self.slowest_rtt(), self.spread());
        // A way here that is long makes the peer's round trips long, but not this end's, if another path's way back is short.
        let longest = unconfirmed::DEADLINE.max(unconfirmed::ROUNDS * rtt.max(spread));
        if self.peer_repeats { longest } else { (spread + rtt / 4).clamp(LEAST_REORDERING, longest) }
    }

    fn slowest_rtt(&self) -> Duration {
        let rtts = self.paths.iter().filter(|p| p.is_perhaps_up()).filter_map(|p| p.sent.rtt().smoothed());
        rtts.max().unwrap_or_default()
    }

    /// By how much one-way delays from the peer differ from path to path at present, as it says: at most what a round trip can be. The
    /// last delay of a path that has died is none.
    fn spread(&self) -> Duration {
        let mut delays = self.paths.iter().filter(|p| p.is_up()).filter_map(|p| p.received.last_delay());
        let Some(first) = delays.next() else { return Duration::ZERO };
        let (low, high) = delays.fold((0, 0), |(low, high): (i32, i32), delay| {
            let over = delay.wrapping_sub(first) as i32;
            (low.min(over), high.max(over))
        });
        Duration::from_micros(u64::from(high.abs_diff(low))).min(MAX_RTT)
    }

    /// Bytes of inner packets waiting to be sent.
    pub fn queue_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// The largest inner packet that every path in use carries, in bytes, but no less than what must pass, if need be in pieces, or what a
    /// wider path carries that the others take in pieces; as it was while there is none.
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu
    }

    fn update_mtu(&mut self) {
        let (tier, least) = (self.tier(), self.sizes.least);
        let used = || self.paths.iter().filter(|p| tier_of(p) == Some(tier));
        // A small path does not shrink what goes over a wide one beside it, be that down at present: it takes pieces.
        let wide = self.paths.iter().any(|p| !p.is_kept() && p.inner_mtu() >= least);
        let whole = wide && used().all(|p| p.pieces(least.into()).is_some());
        let floor = if whole { least } else { self.sizes.floor };
        let carried = used().map(Path::inner_mtu).min().filter(|_| self.sizes.search);
        self.inner_mtu = carried.map_or(self.inner_mtu, |mtu| mtu.max(floor));
    }
}

/// Whether what a path loses is sent again.
fn repeats(scheduler: Scheduler, config: &PeerConfig) -> bool {
    scheduler == Scheduler::Auto && config.resend
}

fn sizes_of(mtu: Mtu, config: &PeerConfig, pieces: u8) -> MtuSizes {
    let v6 = config.routes.iter().any(|route| route.addr().is_ipv6());
    let (least, floor) = match mtu {
        Mtu::Auto => (MIN_INNER_MTU, if v6 { MIN_INNER_MTU } else { MIN_CARRIED }),
        Mtu::Fixed(mtu) => (mtu, mtu),
    };
    MtuSizes { least, floor, pieces, search: mtu == Mtu::Auto }
}

/// The relay's session of a path, once there is one, is the path's address.
fn adopt_session(now: Duration, path: &mut Path) {
    let (Some(relay), Some(registration)) = (path.relay(), &path.registration) else { return };
    let address =
        registration.session().map(|session| Address { via: Some((Direction::Up, session)), ..relay });
    path.set_address(now, address);
}

/// The earliest of several times.
pub struct Earliest(pub Option<Duration>);

impl Earliest {
    /// Takes one more into account.
    pub fn add(&mut self, time: Option<Duration>) {
        self.0 = self.0.into_iter().chain(time).min();
    }
}
