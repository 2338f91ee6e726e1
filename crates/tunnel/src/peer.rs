//! One other end: its sessions, paths and order stream, brought together.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rand_core::RngCore;

use crate::address::{Address, LocalAddress, Train};
use crate::config::{MAX_PATHS, Mtu, PeerConfig, Scheduler};
use crate::flow_queue::{FlowQueue, Next};
use crate::frame::{self, Announced, Data, Frame, Order, Report};
use crate::keys::{PrivateKey, PublicKey};
use crate::packet_queue::PacketQueue;
use crate::path::{MIN_INNER_MTU, MtuSizes, Path};
use crate::recv_enqueue::{Received, micros};
use crate::registration::Registration;
use crate::replay::ReplayWindow;
use crate::sent::{Content, Outcome};
use crate::sessions::{Identities, Indices, Sessions};
use crate::unconfirmed::Unconfirmed;
use crate::wire::{Direction, HEADER_LEN, RELAY_HEADER_LEN, TAG_LEN, TransportHeader};
use crate::{weights, xmit};

/// Bytes of packets that wait behind gaps, at most.
const MAX_HELD: usize = 16 << 20;
/// Bytes of packets kept for sending again, at most.
const MAX_UNCONFIRMED: usize = 16 << 20;
/// Bytes of inner packets kept until there are keys and a path: the first of a connection.
const MAX_EARLY: usize = 32 << 10;
/// A gap waits at least and at most so long (RFC 6298's least RTO is one second: then its sender sends it again itself).
const MIN_HOLD: Duration = Duration::from_millis(150);
const MAX_HOLD: Duration = Duration::from_secs(1);
/// A report waits for more to report between these times, a quarter of the least round trip in between.
const MIN_REPORT: Duration = Duration::from_millis(4);
const MAX_REPORT: Duration = Duration::from_millis(20);
/// So many packets are reported at once.
const REPORT_PACKETS: u32 = 128;
/// Markers follow the last packet on a path after this (`paper`: gaps wait for them; `auto`: they measure).
const MARKER_PAPER: Duration = Duration::from_millis(20);
const MARKER_AUTO: Duration = Duration::from_millis(100);
const MARKER_LONGEST: Duration = Duration::from_millis(250);
/// A new session begins with so many announcements on each path.
const ANNOUNCEMENTS: u8 = 3;
/// Without data for so long, the tunnel is idle: markers stop.
const IDLE: Duration = Duration::from_secs(5);
/// Bytes of a packet that is no data, at least for what an unproved address may be sent; of an announcement or feedback.
const SMALL: usize = 100;
const LARGE: usize = MIN_INNER_MTU as usize + RELAY_HEADER_LEN + HEADER_LEN + TAG_LEN;
/// One-way delays change by more only when a clock has been set or stood still, as in a suspended host: on all paths.
const CLOCK_STEP: i64 = 1_000_000;
/// A path that was not heard on for so long has no say about gaps.
const LIVE: Duration = Duration::from_secs(1);
/// Every path silent for so long: perhaps the peer has lost its keys.
const RENEW_AFTER: Duration = Duration::from_secs(3);
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
    /// Inner packets from the peer with a source that is not its own.
    pub received_foreign_source: u64,
    /// Inner packets dropped because of congestion marked on a packet that cannot carry the mark (RFC 6040 §4.2).
    pub dropped_congestion: u64,
}

/// One other end.
pub struct Peer {
    /// What this end was told of it.
    pub config: PeerConfig,
    scheduler: Scheduler,
    sizes: MtuSizes,
    /// Keys.
    pub sessions: Sessions,
    /// Ways to it, this end's first, in the order of the configuration.
    pub paths: Vec<Path>,
    /// Ids of the peer's that it has ceased to list. They are not learned again in its life: this end's sequences would
    /// begin anew under the same keys, and with them the nonces.
    retired: BTreeSet<u16>,
    /// The parity of the ids that this end gives its paths.
    parity: u16,
    next_id: u16,
    queue: FlowQueue,
    /// The packet to be sent next, taken from the queue.
    staged: Option<Next>,
    unconfirmed: Unconfirmed,
    ordered: PacketQueue,
    peer_repeats: bool,
    /// Bytes that the burst under way may still carry.
    run: usize,
    outbox: VecDeque<(Address, Vec<u8>)>,
    outcome: Outcome,
    /// Packets given up that the peer was told of.
    given_up_announced: u64,
    last_data: Option<Duration>,
    last_heard: Option<Duration>,
    next_weights: Duration,
    delay_base: Option<u32>,
    reports_sent: u64,
    /// Counts.
    pub counters: PeerCounters,
}

impl Peer {
    /// A peer that nothing was heard of.
    pub fn new(config: PeerConfig, scheduler: Scheduler, mtu: Mtu, ids: Identities, seed: u64) -> Self {
        let parity = u16::from(ids.me.public() > config.public_key);
        let sizes = match mtu {
            Mtu::Auto => MtuSizes { least: MIN_INNER_MTU, search: true },
            Mtu::Fixed(mtu) => MtuSizes { least: mtu, search: false },
        };
        let mut peer = Peer {
            scheduler,
            sizes,
            sessions: Sessions::new(ids),
            paths: Vec::new(),
            retired: BTreeSet::new(),
            parity,
            next_id: parity,
            queue: FlowQueue::new(seed),
            staged: None,
            unconfirmed: Unconfirmed::new(scheduler == Scheduler::Auto, MAX_UNCONFIRMED),
            ordered: PacketQueue::new(MAX_HELD),
            peer_repeats: false,
            run: 0,
            outbox: VecDeque::new(),
            outcome: Outcome::default(),
            given_up_announced: 0,
            last_data: None,
            last_heard: None,
            next_weights: Duration::ZERO,
            delay_base: None,
            reports_sent: 0,
            counters: PeerCounters::default(),
            config,
        };
        for path in peer.config.paths.clone() {
            let path = Path::new(peer.next_id, &peer.config.public_key, Some(path));
            peer.next_id += 2;
            peer.paths.push(path);
        }
        peer
    }

    // ---- what this end's configuration and interfaces say -------------------------------------------------------

    /// The interface or address that this end's path `index` leaves by came, changed or (`None`) went.
    pub fn set_local(
        &mut self,
        now: Duration,
        index: usize,
        local: Option<LocalAddress>,
        me: &PrivateKey,
        rng: &mut impl RngCore,
    ) {
        let Some(path) = self.paths.get_mut(index) else { return };
        let Some(config) = path.config.clone() else { return };
        path.set_local(local);
        match (&config.via, local) {
            (_, None) => path.set_address(now, None),
            (None, Some(local)) => path.set_address(now, Some(Address::direct(config.remote, local))),
            (Some(via), Some(_)) => match &mut path.registration {
                Some(registration) => registration.refresh(now),
                none => *none = Some(Registration::new(now, me, &via.public_key, config.remote, rng)),
            },
        }
    }

    // ---- what arrives -------------------------------------------------------------------------------------------

    /// A relay answered; true if one of this peer's registrations knows the message.
    pub fn handle_relay(&mut self, now: Duration, from: &Address, message: &[u8]) -> bool {
        for path in &mut self.paths {
            let Some(via) = path.config.as_ref().and_then(|c| c.via.clone()) else { continue };
            let Some(registration) = path.registration.as_mut().filter(|_| via.address == from.remote) else {
                continue;
            };
            if !registration.handle_message(now, message) {
                continue;
            }
            adopt_session(now, path);
            return true;
        }
        false
    }

    /// A handshake message for this peer's sessions is to be sent to an address.
    pub fn send_message(&mut self, to: Address, message: Vec<u8>) {
        if self.outbox.len() < 4 * MAX_PATHS {
            self.outbox.push_back((to, message));
        }
    }

    /// A response came.
    pub fn handle_response(&mut self, now: Duration, response: &[u8]) {
        if let Some(reborn) = self.sessions.handle_response(now, response) {
            self.begin_session(now, reborn);
        }
    }

    /// A transport packet that names one of this peer's sessions.
    pub fn handle_transport(
        &mut self,
        now: Duration,
        from: &Address,
        tos: u8,
        header: TransportHeader,
        datagram: &mut [u8],
        rng: &mut impl RngCore,
    ) {
        let size = datagram.len() + from.relay_header_len();
        let Some((session, confirmed)) = self.sessions.find(header.receiver) else { return };
        let known = self.paths.iter().position(|p| p.id == header.path);
        // A packet of a new life meets the old life's windows: only a confirmed session's packets are held against them.
        if confirmed && known.is_some_and(|i| !self.paths[i].replay.would_accept(header.sequence)) {
            self.counters.received_replayed += 1;
            return;
        }
        let (head, body) = datagram.split_at_mut(HEADER_LEN);
        let Some(head) = head.first_chunk() else { return };
        let Ok(plain) = session.opening.open(header.path, header.sequence, head, body) else {
            self.counters.received_forged += 1;
            return;
        };
        if !confirmed {
            let reborn = self.sessions.confirm(header.receiver);
            self.begin_session(now, reborn);
        }
        let Some(at) = self.find_path(header.path) else { return };
        let reportable = plain.first() != Some(&2);
        let path = &mut self.paths[at];
        if !path.replay.accept(header.sequence) {
            self.counters.received_replayed += 1;
            return;
        }
        let newest = path.received.handle_packet(now, header.sequence, size, reportable);
        path.handle_arrival(now, from, size, newest, rng);
        self.last_heard = Some(now);
        match Frame::parse(plain) {
            Ok(frame) => self.handle_frame(now, at, from, tos, header.sequence, frame),
            Err(_) => self.counters.received_malformed += 1,
        }
    }

    /// An inner packet for this peer. False if it was dropped.
    pub fn handle_inner(&mut self, now: Duration, packet: &[u8]) -> bool {
        if self.queue.bytes() >= MAX_EARLY && !self.can_send(now) {
            self.counters.dropped_no_session += 1;
            return false;
        }
        self.last_data = Some(now);
        self.counters.sent_packets += 1;
        self.queue.push(now, packet);
        true
    }

    /// Whether there are keys and a path to send on.
    pub fn can_send(&self, now: Duration) -> bool {
        self.sessions.current(now).is_some() && self.tier() != u8::MAX
    }

    /// Whether inner packets wait to be sent (again).
    fn is_waiting(&self) -> bool {
        self.staged.is_some() || !self.queue.is_empty() || self.unconfirmed.has_resend()
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
        self.notice_silence(now);
        self.join_rotation();
        self.unconfirmed.handle_timeout(now);
        let hold = self.hold();
        self.ordered.handle_timeout(now, hold);
        self.give_up_passed(now);
        if now >= self.next_weights && self.is_active(now) {
            self.next_weights = now + weights::PERIOD;
            weights::update(self.paths.iter_mut().filter(|p| p.is_up()).map(|p| &mut p.weight));
            self.measure_paths();
        }
    }

    /// When something is due.
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        let mut next = Earliest(None);
        next.add(self.sessions.poll_timeout());
        next.add(self.sessions.poll_rekey().filter(|_| self.can_reach(now)));
        next.add(self.unconfirmed.poll_timeout());
        next.add(self.ordered.poll_timeout(self.hold()));
        // Without an interface there is no way to ask a relay.
        for path in self.paths.iter().filter(|p| p.local().is_some()) {
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
        next.add(self.report_due().filter(|_| self.report_path().is_some()));
        next.add(active.then_some(self.next_weights));
        for path in &self.paths {
            next.add(path.poll_timeout());
            next.add(path.sent.poll_timeout().filter(|_| path.address().is_some()));
            next.add(path.next_marker.filter(|_| active && path.is_validated()));
            next.add(self.keepalive_at(path));
            // What could be sent by now has been; a path that is due and was not chosen waits for another.
            let next_send = path.sent.rate.next_send();
            if waiting && next_send > now && path.sent.in_flight() < path.sent.rate.window() {
                next.add(Some(next_send));
            }
        }
    }

    // ---- what goes out ------------------------------------------------------------------------------------------

    /// Fills `train` with what is to be sent next to one address; false if nothing is.
    pub fn poll_transmit(&mut self, now: Duration, train: &mut Train) -> bool {
        self.poll_handshake(now, train)
            || self.poll_control(now, train)
            || self.poll_report(now, train)
            || self.poll_data(now, train)
            || self.note_app_limited(now)
    }

    fn poll_handshake(&mut self, now: Duration, train: &mut Train) -> bool {
        if let Some((to, message)) = self.outbox.pop_front() {
            train.put(&to, 0, |out| out.extend(message));
            return true;
        }
        for path in &mut self.paths {
            let (Some(config), Some(local)) = (&path.config, path.local()) else { continue };
            let (Some(via), Some(registration)) = (&config.via, &mut path.registration) else { continue };
            if let Some(message) = registration.poll_transmit(now) {
                train.put(&Address::direct(via.address, local), 0, |out| out.extend(message));
                return true;
            }
        }
        false
    }

    /// Challenges, responses, announcements, probes and markers.
    fn poll_control(&mut self, now: Duration, train: &mut Train) -> bool {
        self.ask_for_probes(now);
        let Some(session) = self.sessions.current(now) else { return false };
        let order = position(&self.unconfirmed);
        for at in 0..self.paths.len() {
            let sizes = self.sizes;
            let path = &mut self.paths[at];
            if path.pack_challenge(now, session, train) {
                return true;
            }
            if !path.may_take(SMALL) {
                continue;
            }
            if let Some(token) = path.response.take() {
                return path.pack(now, session, 0, Content::Probe(None), train, |out| {
                    frame::put_challenge(out, token, true);
                });
            }
            if let Some((size, plain)) = path.poll_mtu_probe(now, sizes) {
                return path.pack(now, session, 0, Content::Probe(Some(size)), train, |out| {
                    frame::put_probe(out, order, micros(now), plain);
                });
            }
            if std::mem::take(&mut path.probe_wanted) {
                path.back_off_marker(now, MARKER_LONGEST);
                return self.pack_probe(now, at, order, train);
            }
        }
        false
    }

    /// Marks the paths that have been quiet for so long that a probe, a marker or a keepalive is due.
    fn ask_for_probes(&mut self, now: Duration) {
        let active = self.is_active(now);
        let given_up = self.unconfirmed.totals().0;
        if self.unconfirmed.repeats() && given_up != self.given_up_announced {
            self.given_up_announced = given_up;
            if let Some(at) = self.report_path() {
                self.paths[at].probe_wanted = true;
            }
        }
        for at in 0..self.paths.len() {
            let keepalive = self.keepalive_at(&self.paths[at]);
            let path = &mut self.paths[at];
            let marker = path.next_marker.filter(|_| active && path.is_validated());
            path.probe_wanted |= keepalive.into_iter().chain(marker).any(|t| t <= now);
        }
    }

    /// A probe; the first few after a session began say which paths this end lists instead.
    fn pack_probe(&mut self, now: Duration, at: usize, order: Order, train: &mut Train) -> bool {
        let Some(session) = self.sessions.current(now) else { return false };
        let listed: Vec<_> = self
            .paths
            .iter()
            .filter_map(|p| p.config.as_ref().map(|c| (p.id, c.name.clone(), c.backup)))
            .collect();
        let path = &mut self.paths[at];
        if path.announcements > 0 && !listed.is_empty() && path.may_take(LARGE) {
            path.announcements -= 1;
            path.next_marker = Some(now + MARKER_AUTO);
            let listed = listed.iter().map(|(id, name, backup)| (*id, name.as_str(), *backup));
            return path
                .pack(now, session, 0, Content::Probe(None), train, |out| frame::put_announce(out, listed));
        }
        path.pack(now, session, 0, Content::Probe(None), train, |out| {
            frame::put_probe(out, order, micros(now), 0);
        })
    }

    fn poll_report(&mut self, now: Duration, train: &mut Train) -> bool {
        if self.report_due().is_none_or(|t| t > now) {
            return false;
        }
        let Some(session) = self.sessions.current(now) else { return false };
        let Some(at) = self.report_path() else { return false };
        let mut due: Vec<_> =
            (0..self.paths.len()).filter(|&i| self.paths[i].received.unreported().0 > 0).collect();
        due.sort_by_key(|&i| self.paths[i].received.unreported().1);
        // As many as fit for certain: a full report is 300 bytes.
        due.truncate(4);
        let reports: Vec<Report> = due
            .into_iter()
            .filter_map(|i| {
                let id = self.paths[i].id;
                self.paths[i].received.report(now, id)
            })
            .collect();
        let order = position(&self.unconfirmed);
        self.reports_sent += 1;
        self.paths[at].pack(now, session, 0, Content::Report, train, |out| {
            frame::put_feedback(out, order, micros(now), &reports, usize::from(MIN_INNER_MTU));
        })
    }

    fn poll_data(&mut self, now: Duration, train: &mut Train) -> bool {
        if self.sessions.current(now).is_none() {
            return false;
        }
        // What has to be sent again comes first, unless its path is to be waited for.
        let again = self.unconfirmed.peek_resend().is_some().then(|| self.choose(now, true)).flatten();
        let (at, resend) = match again {
            Some(at) => (at, true),
            None if self.stage(now) => match self.choose(now, false) {
                Some(at) => (at, false),
                None => return false,
            },
            None => return false,
        };
        while (resend || self.stage(now)) && self.pack_next(now, at, resend, train) {}
        !train.is_empty()
    }

    /// Makes the next fresh packet ready; false if there is none or no memory to keep it in.
    fn stage(&mut self, now: Duration) -> bool {
        if self.staged.is_none() && !self.unconfirmed.is_full() {
            self.staged = self.queue.pop(now);
        }
        self.staged.is_some()
    }

    /// Sends one packet on path `at` if the path has room and it fits the train.
    fn pack_next(&mut self, now: Duration, at: usize, resend: bool, train: &mut Train) -> bool {
        let Some(session) = self.sessions.current(now) else { return false };
        let path = &mut self.paths[at];
        let Some(address) = path.address().copied() else { return false };
        let repeats = self.unconfirmed.repeats();
        let (order, packet) = match resend {
            true => match self.unconfirmed.peek_resend() {
                Some(found) => found,
                None => return false,
            },
            false => match &self.staged {
                Some(next) => (self.unconfirmed.next(), &next.packet[..]),
                None => return false,
            },
        };
        let tos = packet::Ip::parse(packet).map_or(0, |ip| ip.tos());
        let size = path.payload_size(packet.len());
        let first = train.is_empty();
        let goes_on = first || (self.run >= size && has_room(self.scheduler, path, now, true));
        if !train.takes(&address, tos, size) || !path.may_take(size) || !goes_on {
            return false;
        }
        let fits = packet.len() <= usize::from(path.inner_mtu());
        if fits {
            let header = Data { resend, resends: repeats, stream: 0, order: order as u32, time: micros(now) };
            path.pack(now, session, tos, Content::Data(order), train, |out| {
                frame::put_data(out, &header);
                out.extend_from_slice(packet);
            });
            path.virtual_time += size as f64 / path.weight.get().max(1e-3);
            path.restart_marker(now, if repeats { MARKER_AUTO } else { MARKER_PAPER });
            self.run = if first { path.sent.rate.burst() } else { self.run }.saturating_sub(size);
        }
        if resend {
            if fits {
                self.unconfirmed.pop_resend()
            } else {
                self.unconfirmed.give_up_resend()
            }
            return true;
        }
        self.counters.dropped_too_big += u64::from(!fits);
        if let Some(next) = self.staged.take().filter(|_| fits) {
            self.unconfirmed.push(now, next.packet);
        }
        true
    }

    /// A path that came up takes its turn where the others stand: it has no arrears.
    fn join_rotation(&mut self) {
        let least = self.paths.iter().filter(|p| p.in_rotation).map(|p| p.virtual_time).reduce(f64::min);
        for path in &mut self.paths {
            let up = path.is_up();
            if up && !path.in_rotation {
                path.virtual_time = path.virtual_time.max(least.unwrap_or(0.0));
            }
            path.in_rotation = up;
        }
    }

    // ---- choosing -----------------------------------------------------------------------------------------------

    fn choose(&self, now: Duration, resend: bool) -> Option<usize> {
        let tier = self.tier();
        // What has to be sent again, and the only packet of a flow, go before all that waits.
        let alone = self.staged.as_ref().is_none_or(|n| n.alone);
        let backlog = match (resend, alone) {
            (true, _) => self.unconfirmed.resend_packets().saturating_sub(1) * usize::from(MIN_INNER_MTU),
            (false, true) => 0,
            (false, false) => self.queue.bytes(),
        };
        let views = || {
            self.paths.iter().enumerate().filter(|(_, p)| tier_of(p) == Some(tier)).map(|(index, path)| {
                let rate = &path.sent.rate;
                let room = has_room(self.scheduler, path, now, false);
                let excess = (path.sent.in_flight() + 1500).saturating_sub(rate.window());
                let wait = rate.next_send().saturating_sub(now).max(rate.transmit_time(excess));
                xmit::View {
                    index,
                    room,
                    wait,
                    delay: path.delay,
                    rate: rate.pacing(),
                    virtual_time: path.virtual_time,
                }
            })
        };
        match self.scheduler {
            Scheduler::Paper => xmit::by_weight(views()),
            Scheduler::Auto => xmit::by_arrival(views(), backlog),
        }
    }

    /// The best kind of path there is now.
    fn tier(&self) -> u8 {
        self.paths.iter().filter_map(tier_of).min().unwrap_or(u8::MAX)
    }

    /// Tells the queue what the paths in use carry, and how long they take.
    fn measure_paths(&mut self) {
        let tier = self.tier();
        let used = || self.paths.iter().filter(|p| tier_of(p) == Some(tier)).map(|p| &p.sent);
        let rate: f64 = used().filter_map(|s| s.rate.bytes_per_second()).sum();
        let rtt = used().filter_map(|s| s.rate.min_rtt()).max().unwrap_or_default();
        let mut delays: Vec<i64> =
            self.paths.iter().filter(|p| tier_of(p) == Some(tier)).filter_map(|p| p.delay).collect();
        delays.sort_unstable();
        let step = delays.windows(2).map(|d| d[1] - d[0]).max().unwrap_or(0);
        self.queue.set_paths(rtt, Duration::from_micros(step.unsigned_abs()), rate);
    }

    /// Nothing more is sent now though paths have room: what is in flight on them shows less than they carry.
    fn note_app_limited(&mut self, now: Duration) -> bool {
        for path in self.paths.iter_mut().filter(|p| has_room(self.scheduler, p, now, false)) {
            let in_flight = path.sent.in_flight();
            path.sent.rate.handle_app_limited(in_flight);
        }
        false
    }

    /// Reports take the path with the least round trip; every fourth the next best, for fear that the best has died.
    fn report_path(&self) -> Option<usize> {
        let rtt = |i: &usize| self.paths[*i].sent.rtt().smoothed().unwrap_or(Duration::MAX);
        let usable = |i: &usize| self.paths[*i].may_take(LARGE);
        let mut up: Vec<_> = (0..self.paths.len()).filter(usable).collect();
        up.sort_by_key(|i| (self.paths[*i].sent.silences(), rtt(i)));
        let second = self.reports_sent % 4 == 3;
        up.get(usize::from(second)).or(up.first()).copied()
    }

    fn report_due(&self) -> Option<Duration> {
        let rtt = self.paths.iter().filter_map(|p| p.sent.rate.min_rtt()).min().unwrap_or(MAX_REPORT);
        let wait = (rtt / 4).clamp(MIN_REPORT, MAX_REPORT);
        let due = |r: &Received| {
            let (packets, since) = r.unreported();
            since.map(|t| if packets >= REPORT_PACKETS { Duration::ZERO } else { t + wait })
        };
        self.paths.iter().filter_map(|p| due(&p.received)).min()
    }

    // ---- frames -------------------------------------------------------------------------------------------------

    fn handle_frame(
        &mut self,
        now: Duration,
        at: usize,
        from: &Address,
        tos: u8,
        sequence: u64,
        frame: Frame<'_>,
    ) {
        match frame {
            Frame::Data(header, packet) => self.handle_data(now, at, tos, sequence, &header, packet),
            Frame::Feedback(order, reports) => {
                self.handle_order(now, at, sequence, order);
                for report in &reports {
                    self.handle_report(now, report);
                }
            }
            Frame::Announce(paths) => self.handle_announce(now, &paths),
            Frame::Probe(order, time) => {
                self.paths[at].received.handle_time(now, time);
                self.handle_order(now, at, sequence, order);
            }
            Frame::Challenge(token) => self.paths[at].response = Some(token),
            Frame::Response(token) => {
                self.paths[at].handle_response(now, from, token);
            }
        }
    }

    fn handle_data(
        &mut self,
        now: Duration,
        at: usize,
        tos: u8,
        sequence: u64,
        header: &Data,
        packet: &mut [u8],
    ) {
        self.last_data = Some(now);
        self.peer_repeats = header.resends;
        let received = &mut self.paths[at].received;
        received.handle_time(now, header.time);
        let order = self.ordered.unwrap(header.order);
        if !header.resend {
            received.handle_mark(sequence, order + 1);
        }
        if !combine_ecn(packet, tos) {
            self.counters.dropped_congestion += 1;
            self.ordered.insert(now, order, &[]);
            return;
        }
        self.ordered.insert(now, order, packet);
        self.give_up_passed(now);
    }

    fn handle_order(&mut self, now: Duration, at: usize, sequence: u64, order: Order) {
        let floor = self.ordered.unwrap(order.floor);
        self.ordered.handle_floor(floor);
        let next = self.ordered.unwrap(order.next);
        self.paths[at].received.handle_mark(sequence, next);
        self.give_up_passed(now);
    }

    /// Where the peer repeats nothing, a gap that every live path has passed is lost.
    fn give_up_passed(&mut self, now: Duration) {
        if self.peer_repeats {
            return;
        }
        let live = |r: &&Received| r.last_arrival().is_some_and(|t| now < t + LIVE);
        if let Some(passed) = self.paths.iter().map(|p| &p.received).filter(live).map(Received::passed).min()
        {
            self.ordered.handle_passed(passed);
        }
    }

    fn handle_report(&mut self, now: Duration, report: &Report) {
        let Some(path) = self.paths.iter_mut().find(|p| p.id == report.path) else { return };
        let was_silent = path.sent.is_silent();
        self.outcome.clear();
        path.sent.handle_report(now, report, &mut self.outcome);
        path.weight.handle_delay(&report.delay);
        if report.delay.samples > 0 {
            let base = *self.delay_base.get_or_insert(report.delay.min);
            let mean = report.delay.min.wrapping_add(report.delay.mean_over_min);
            let delay = i64::from(mean.wrapping_sub(base) as i32);
            path.delay = match path.delay {
                // Jitter and queues raise it slowly; that a path has become faster is believed at once.
                Some(old) if (delay - old).abs() < CLOCK_STEP => Some(delay.min(old + (delay - old) / 4)),
                _ => Some(delay),
            };
        }
        for &size in &self.outcome.probed {
            path.handle_probed(size);
        }
        if was_silent && self.outcome.progress || path.sent.take_swallowing() {
            // It may lead elsewhere now.
            path.restart_mtu(now);
        }
        self.settle(now);
    }

    fn handle_announce(&mut self, now: Duration, announced: &[Announced]) {
        for one in announced.iter().take(MAX_PATHS) {
            if one.id % 2 == self.parity {
                self.counters.received_malformed += 1;
                continue;
            }
            if let Some(at) = self.find_path(one.id) {
                let path = &mut self.paths[at];
                (path.name, path.backup) = (one.name.clone(), one.backup);
            }
        }
        let gone = |p: &Path| p.config.is_none() && !announced.iter().any(|a| a.id == p.id);
        self.retired.extend(self.paths.iter().filter(|p| gone(p)).map(|p| p.id));
        self.forget_learned(now, gone);
    }

    // ---- helpers ------------------------------------------------------------------------------------------------

    /// Takes over what a report or a silence said about inner packets.
    fn settle(&mut self, now: Duration) {
        for &order in &self.outcome.confirmed {
            self.unconfirmed.handle_confirmed(order);
        }
        for &order in &self.outcome.lost {
            self.unconfirmed.handle_lost(now, order);
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

    fn notice_silence(&mut self, now: Duration) {
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
            let silent = path.sent.poll_timeout().is_some_and(|t| t <= now);
            if silent && path.sent.handle_timeout(now, &mut self.outcome) {
                path.probe_wanted = true;
                if let Some(registration) = path.registration.as_mut().filter(|_| path.sent.silences() > 2) {
                    registration.refresh(now);
                }
                self.settle(now);
            }
        }
    }

    fn shake_hands(&mut self, now: Duration, rng: &mut impl RngCore, taken: &Indices) {
        let unheard = self.last_heard.is_none_or(|t| now > t + RENEW_AFTER);
        let lost = unheard && self.paths.iter().any(|p| p.sent.silences() > 1);
        if self.can_reach(now) && self.sessions.wants_handshake(now, lost) {
            self.sessions.start(now, rng, taken);
        }
        let Some(message) = self.sessions.poll_initiation(now).map(<[u8]>::to_vec) else { return };
        for path in &mut self.paths {
            let Some(address) = path.address().copied() else { continue };
            let mut stamped = message.clone();
            path.jar.stamp(now, &mut stamped);
            self.outbox.push_back((address, stamped));
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
            self.ordered = PacketQueue::new(MAX_HELD);
            self.delay_base = None;
            self.retired.clear();
            self.forget_learned(now, |_| true);
            for path in &mut self.paths {
                path.received = Received::default();
                path.replay = ReplayWindow::default();
                path.delay = None;
            }
        }
        for path in &mut self.paths {
            path.announcements = ANNOUNCEMENTS;
            path.probe_wanted = true;
            path.next_marker = Some(now);
        }
    }

    /// The path with `id`; a path of the peer's that is new is added, as long as it has not too many.
    fn find_path(&mut self, id: u16) -> Option<usize> {
        if let Some(at) = self.paths.iter().position(|p| p.id == id) {
            return Some(at);
        }
        let learned = self.paths.iter().filter(|p| p.config.is_none()).count();
        if id % 2 == self.parity || learned == MAX_PATHS || self.retired.contains(&id) {
            self.counters.refused_paths += 1;
            return None;
        }
        self.paths.push(Path::new(id, &self.config.public_key, None));
        Some(self.paths.len() - 1)
    }

    fn is_active(&self, now: Duration) -> bool {
        self.last_data.is_some_and(|t| now < t + IDLE)
    }

    fn keepalive_at(&self, path: &Path) -> Option<Duration> {
        let listed = path.config.is_some().then_some(KEEPALIVE);
        let every = self.config.keepalive.into_iter().chain(listed).min()?;
        path.is_validated().then(|| path.last_sent() + every)
    }

    /// How long a gap may wait. A peer that repeats says itself when it has given a packet up; of one that does not, the
    /// slowest path is waited for.
    fn hold(&self) -> Duration {
        if self.peer_repeats {
            return MAX_HOLD;
        }
        let rtt = self.paths.iter().filter(|p| p.is_up()).filter_map(|p| p.sent.rtt().smoothed()).max();
        let resend = rtt.unwrap_or_default() * 3 / 2 + Duration::from_millis(100);
        (resend + self.spread()).clamp(MIN_HOLD, MAX_HOLD)
    }

    /// By how much one-way delays from the peer differ from path to path at present.
    fn spread(&self) -> Duration {
        let mut delays = self.paths.iter().filter_map(|p| p.received.last_delay());
        let Some(first) = delays.next() else { return Duration::ZERO };
        let (low, high) = delays.fold((0, 0), |(low, high): (i32, i32), delay| {
            let over = delay.wrapping_sub(first) as i32;
            (low.min(over), high.max(over))
        });
        Duration::from_micros(u64::from(high.abs_diff(low)))
    }

    /// Bytes that wait behind gaps; what became of inner packets; bytes kept for resending.
    pub fn order_state(&self) -> (usize, &crate::packet_queue::Counters, &Unconfirmed) {
        (self.ordered.held_bytes(), self.ordered.counters(), &self.unconfirmed)
    }

    /// How packets are spread.
    pub fn scheduler(&self) -> Scheduler {
        self.scheduler
    }

    /// Bytes of inner packets waiting to be sent.
    pub fn queue_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Inner packets dropped, and marked, to keep the queue short.
    pub fn queue_totals(&self) -> (u64, u64) {
        self.queue.totals()
    }

    /// The least inner packet size over the paths in use, in bytes.
    pub fn inner_mtu(&self) -> Option<u16> {
        let tier = self.tier();
        self.paths.iter().filter(|p| tier_of(p) == Some(tier)).map(Path::inner_mtu).min()
    }

    /// The peer's key.
    pub fn public_key(&self) -> &PublicKey {
        &self.config.public_key
    }
}

/// Paths in use, backups, and what may be tried when there is neither.
fn tier_of(path: &Path) -> Option<u8> {
    match (path.is_up(), path.backup, path.is_perhaps_up()) {
        (true, false, _) => Some(0),
        (true, true, _) => Some(1),
        (false, _, true) => Some(2),
        _ => None,
    }
}

/// The paper's scheduler knows no windows. A burst that has begun may go on though the pacer is not due again.
fn has_room(scheduler: Scheduler, path: &Path, now: Duration, in_burst: bool) -> bool {
    let rate = &path.sent.rate;
    scheduler == Scheduler::Paper
        || (path.sent.in_flight() < rate.window() && (in_burst || rate.next_send() <= now))
}

fn position(unconfirmed: &Unconfirmed) -> Order {
    Order { floor: unconfirmed.floor() as u32, next: unconfirmed.next() as u32 }
}

/// The relay's session of a path, once there is one, is the path's address.
fn adopt_session(now: Duration, path: &mut Path) {
    let (Some(config), Some(registration), Some(local)) = (&path.config, &path.registration, path.local())
    else {
        return;
    };
    let Some(via) = &config.via else { return };
    let address = registration.session().map(|session| Address {
        remote: via.address,
        via: Some((Direction::Up, session)),
        local,
    });
    path.set_address(now, address);
}

/// RFC 6040 §4.2: congestion marked outside is carried inside. False if the packet has to be dropped.
fn combine_ecn(inner: &mut [u8], outer_tos: u8) -> bool {
    let Ok(ip) = packet::Ip::parse(inner) else { return true };
    let before = ip.ecn();
    match packet::ecn::decapsulate(before, packet::Ecn::from_tos(outer_tos)) {
        None => false,
        Some(after) => {
            if after != before {
                packet::set_ecn(inner, after);
            }
            true
        }
    }
}

/// The earliest of several times.
pub struct Earliest(pub Option<Duration>);

impl Earliest {
    /// Takes one more into account.
    pub fn add(&mut self, time: Option<Duration>) {
        self.0 = self.0.into_iter().chain(time).min();
    }
}
