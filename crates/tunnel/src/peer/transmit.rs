//! What goes out to a peer: handshakes, control packets, reports, data, and which path each takes.

use std::time::Duration;

use packet::ip;

use super::{LEAST_REORDERING, MARKER_LONGEST, Peer, Second};
use crate::config::{Marks, Scheduler};
use crate::flow::copies::Copy;
use crate::flow::queue::{Head, Next};
use crate::flow::unconfirmed::{Resend, Unconfirmed, Way};
use crate::handshake::sessions::Session;
use crate::path::recv_enqueue::{Received, micros};
use crate::path::rtt::INITIAL_RTT;
use crate::path::sent::Content;
use crate::path::{MIN_INNER_MTU, Path, SHORTEST_MARKER};
use crate::schedule::choice::{Want, best_tier, choose, explain, has_room, seen, tier_of};
use crate::schedule::xmit;
use crate::wire::frame::{self, Data, Order, Piece, Report};
use crate::wire::train::Train;
use crate::wire::{HEADER_LEN, RELAY_HEADER_LEN, TAG_LEN};

/// A report waits for more to report between these times, a quarter of the least round trip in between.
const MIN_REPORT: Duration = Duration::from_millis(4);
const MAX_REPORT: Duration = Duration::from_millis(20);
/// Where their way is full, reports take this share of the data that it delivers: of all that it carries 4.4 % where that is
/// acknowledgements, 5.5 % where it is full packets. They come at least each so many seconds.
const FEEDBACK_SHARE: f64 = 0.06;
const LONGEST_REPORT: f64 = 0.5;
/// IPv4 and UDP.
const AROUND: usize = 28;
/// So many packets are reported at once.
const REPORT_PACKETS: u32 = 128;
/// Markers follow the last packet on a path after this, in `auto`: they measure. In `paper`, where gaps wait for them, as soon as may be.
const MARKER_AUTO: Duration = Duration::from_millis(100);
/// Backups help paths that lose a greater share.
const MOST_LOST: f64 = 0.5;
/// What little is sent goes over a second path as well where the first loses a greater share, in all this much of the bytes.
const DOUBTFUL_LOSS: f64 = 0.01;
const TWICE_PERCENT: u32 = 3;
/// Bytes of a packet that says something by itself, at most: a datagram of 512 bytes (RFC 1035 §2.3.4) over IPv6.
const MOST_ALONE: usize = 560;
/// Bytes of a packet that is no data, at least for what an unproved address may be sent; of an announcement or feedback.
const SMALL: usize = 100;
const LARGE: usize = MIN_INNER_MTU as usize + RELAY_HEADER_LEN + HEADER_LEN + TAG_LEN;

impl Peer {
    /// Fills `train` with what is to be sent next to one address; false if nothing is.
    pub fn poll_transmit(&mut self, now: Duration, train: &mut Train) -> bool {
        if let Some(notes) = &mut train.notes {
            notes.set_peer(&self.config.name);
        }
        // Before a probe that says that the original was sent, or its loss would be taken for the copy's as well.
        self.poll_twice(now, train)
            || self.poll_copies(now, train)
            || self.poll_handshake(now, train)
            || self.poll_control(now, train)
            || self.poll_report(now, train)
            || self.poll_data(now, train)
            || self.poll_repeated(now, train)
            || self.note_turn_end(now)
    }

    fn poll_handshake(&mut self, now: Duration, train: &mut Train) -> bool {
        if let Some((to, message)) = self.outbox.pop_front() {
            train.put(&to, 0, |out| out.extend(message));
            return true;
        }
        for path in &mut self.paths {
            let (Some(relay), Some(registration)) = (path.relay(), &mut path.registration) else { continue };
            if let Some(message) = registration.poll_transmit(now) {
                train.put(&relay, 0, |out| out.extend(message));
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
            if let Some(at) = self.report_paths(now)[0] {
                self.paths[at].probe_wanted = true;
            }
        }
        for at in 0..self.paths.len() {
            let keepalive = self.keepalive_at(&self.paths[at]);
            let marker = self.marker_at(&self.paths[at], active);
            let path = &mut self.paths[at];
            path.probe_wanted |= keepalive.into_iter().chain(marker).any(|t| t <= now);
        }
    }

    /// A probe or, for the first few after a session began, a list of this end's paths in its place.
    fn pack_probe(&mut self, now: Duration, at: usize, order: Order, train: &mut Train) -> bool {
        let Some(session) = self.sessions.current(now) else { return false };
        let (listed, generation) = (self.listed(), self.generation);
        let path = &mut self.paths[at];
        if path.announcements > 0 && path.may_take(LARGE) {
            path.announcements -= 1;
            path.announced.push(path.sent.next_sequence());
            path.next_marker = Some(now + MARKER_AUTO);
            let listed = listed.iter().map(|(id, name, flags)| (*id, name.as_str(), *flags));
            return path.pack(now, session, 0, Content::Probe(None), train, |out| {
                frame::put_announce(out, generation, listed);
            });
        }
        path.pack(now, session, 0, Content::Probe(None), train, |out| {
            frame::put_probe(out, order, micros(now), 0);
        })
    }

    fn poll_report(&mut self, now: Duration, train: &mut Train) -> bool {
        if let Some((at, reports)) = self.report_again.take() {
            return self.pack_report(now, at, &reports, train);
        }
        if self.report_due().is_none_or(|t| t > now) || self.sessions.current(now).is_none() {
            return false;
        }
        let [first, second] = self.report_paths(now);
        let Some(at) = first else { return false };
        let mut due: Vec<_> =
            (0..self.paths.len()).filter(|&i| self.paths[i].received.unreported().0 > 0).collect();
        due.sort_by_key(|&i| self.paths[i].received.unreported().1);
        // As many as fit for certain: what is taken is reported.
        due.truncate(frame::reports_in(self.paths[at].inner_mtu().into()).clamp(1, frame::MAX_REPORTS));
        let report = |i: usize| {
            let id = self.paths[i].id;
            self.paths[i].received.report(now, id)
        };
        let reports: Vec<Report> = due.into_iter().filter_map(report).collect();
        let packed = self.pack_report(now, at, &reports, train);
        let path = &self.paths[at];
        if let Some(rate) = path.sent.rate.capacity() {
            let gap = (train.contents.len() + AROUND) as f64 / (FEEDBACK_SHARE * rate);
            self.next_report = now + Duration::from_secs_f64(gap.min(LONGEST_REPORT));
        }
        self.reports_sent += 1;
        let again = self.reports_sent.is_multiple_of(4);
        self.report_again = second.filter(|at| again && !self.paths[*at].is_spared()).map(|at| (at, reports));
        packed
    }

    fn pack_report(&mut self, now: Duration, at: usize, reports: &[Report], train: &mut Train) -> bool {
        let order = position(&self.unconfirmed);
        let (Some(session), Some(path)) = (self.sessions.current(now), self.paths.get_mut(at)) else {
            return false;
        };
        let room = usize::from(path.inner_mtu()).clamp(frame::ONE_REPORT, MIN_INNER_MTU.into());
        path.pack(now, session, 0, Content::Report, train, |out| {
            frame::put_feedback(out, order, micros(now), reports, room);
        })
    }

    fn poll_data(&mut self, now: Duration, train: &mut Train) -> bool {
        if self.sessions.current(now).is_none() {
            return false;
        }
        self.judge_backups(now);
        // What has to be sent again comes first, unless its path is to be waited for.
        while self.pack_resend(now, train) {}
        // A burst may be of packets that no path carries any more.
        while train.is_empty() && !self.unconfirmed.is_full() && self.pack_fresh(now, train) {}
        !train.is_empty()
    }

    /// Sends the first of what has to be sent again, if a path takes it and it fits the train.
    fn pack_resend(&mut self, now: Duration, train: &mut Train) -> bool {
        let has_choice = self.has_choice();
        let behind_it = self.unconfirmed.resend_packets().saturating_sub(1) * usize::from(MIN_INNER_MTU);
        let Some(Resend { packet, sparse, path, overdue, .. }) = self.unconfirmed.peek_resend(now) else {
            return false;
        };
        let want = Want {
            size: packet.len(),
            rest: if sparse { 0.0 } else { behind_it as f64 },
            // All that is sent waits for it.
            rate: self.paths.iter().filter_map(|p| p.sent.rate.bytes_per_second()).sum(),
            sparse,
            copied: false,
            lost_by: Some(path),
            avoid: Some(path).filter(|_| overdue && has_choice),
            backlog: 0,
        };
        let Some((at, _)) = choose(&self.paths, self.scheduler, now, &want) else { return false };
        let (Some(session), Some(Resend { order, behind, packet, .. })) =
            (self.sessions.current(now), self.unconfirmed.peek_resend(now))
        else {
            return false;
        };
        let path = &mut self.paths[at];
        let tos = outer(path, self.marks, packet);
        if path.pieces(packet.len()).is_none() {
            self.unconfirmed.give_up_resend();
            return true;
        }
        if !takes(path, train, tos, packet.len()) {
            return false;
        }
        let data = Outgoing { order, behind, packet, tos, resend: true, resends: true, trial: false };
        let way = pack_data(path, now, session, &data, train);
        remark(train, || "it was lost, or is late".into());
        self.unconfirmed.pop_resend(way);
        self.repeated.push_back(order);
        true
    }

    /// Sends a burst of fresh packets over one path, if there are some that it takes.
    fn pack_fresh(&mut self, now: Duration, train: &mut Train) -> bool {
        let (paths, scheduler, marks) = (&self.paths, self.scheduler, self.marks);
        let (backlog, twice) = (self.queue.bytes(), self.twice_bytes);
        // Asked once: with many flows and full paths each packet would ask every path again for each flow.
        let any_room = paths.iter().any(|path| has_room(scheduler, path, now, false));
        // Else no second path takes what the first loses.
        let two_copy = paths.iter().filter(|p| p.is_up() && !p.backup && !p.cost.metered).count() > 1;
        let chosen = self.queue.pop(now, |head| {
            let Head { packet, sparse, rest, rate, .. } = *head;
            if !sparse && !any_room {
                return None;
            }
            let size = packet.len();
            let copied = sparse && two_copy && may_go_twice(twice, size);
            let want = Want { size, rest, rate, sparse, copied, lost_by: None, avoid: None, backlog };
            let (at, tried) = choose(paths, scheduler, now, &want)?;
            let takes = takes(&paths[at], train, outer(&paths[at], marks, packet), packet.len());
            takes.then_some((at, sparse, tried.map(|at| paths[at].id)))
        });
        let Some((mut next, (at, sparse, tried))) = chosen else { return false };
        let mut room = self.paths[at].sent.rate.burst();
        loop {
            let flow = next.flow;
            room = room.saturating_sub(self.paths[at].payload_size(next.packet.len()));
            self.pack_next(now, at, next, sparse, tried, train);
            let path = &self.paths[at];
            let goes_on = !self.unconfirmed.is_full() && has_room(self.scheduler, path, now, true);
            let takes = |packet: &[u8]| {
                goes_on
                    && path.payload_size(packet.len()) <= room
                    && takes(path, train, outer(path, marks, packet), packet.len())
            };
            match self.queue.pop_from(now, flow, takes) {
                Some(more) => next = more,
                None => return true,
            }
        }
    }

    fn pack_next(
        &mut self,
        now: Duration,
        at: usize,
        next: Next,
        sparse: bool,
        tried: Option<u16>,
        train: &mut Train,
    ) {
        let patience = self.patience();
        let Some(session) = self.sessions.current(now) else { return };
        let path = &self.paths[at];
        let packet = &next.packet[..];
        if path.pieces(packet.len()).is_none() {
            self.counters.dropped_too_big += 1;
            self.queue.note(next.packet, "no path in use carries its size any more");
            return;
        }
        let order = self.unconfirmed.next();
        let why = train.notes.is_some().then(|| explain(&self.paths, self.scheduler, now, at, sparse));
        let doubtful = sparse && self.scheduler == Scheduler::Auto && self.is_doubtful(now, at, packet.len());
        let path = &mut self.paths[at];
        let free = self.scheduler == Scheduler::Auto && waits_for_nothing(packet, sparse);
        let behind = if free { 0 } else { self.queue.chain(next.flow, order) };
        let resends = self.unconfirmed.repeats();
        let tos = outer(path, self.marks, packet);
        let data = Outgoing { order, behind, packet, tos, resend: false, resends, trial: false };
        let way = pack_data(path, now, session, &data, train);
        why.into_iter().for_each(|why| remark(train, || why));
        if let Some(copies) = &mut self.copies {
            copies.handle_sent(now, order, packet, way.path, patience);
        }
        if doubtful {
            self.twice.push_back((order, packet.to_vec(), Second::But(way.path)));
        }
        self.twice.extend(tried.map(|path| (order, packet.to_vec(), Second::Tried(path))));
        self.unconfirmed.push(now, behind, next.packet, sparse, way);
    }

    /// Whether a packet of `size` bytes for the path at `at` had better go over a second one too: `at` loses or may have died, or the
    /// packet may come so late that the copy is there before it.
    fn is_doubtful(&self, now: Duration, at: usize, size: usize) -> bool {
        let path = &self.paths[at];
        let second = || self.paths[self.second_path(now, path.id, size)?].queued_arrival();
        path.sent.is_late(now)
            || path.sent.rate.loss() > DOUBTFUL_LOSS
            || path.queued_arrival().zip(second()).is_some_and(|(first, second)| second < first)
    }

    /// One more copy of what went out last: of what little went over a path that loses, may be late or may have died, over the best of the
    /// others; or over one that is tried.
    fn poll_twice(&mut self, now: Duration, train: &mut Train) -> bool {
        while let Some((order, packet, second)) = self.twice.pop_front() {
            let at = match second {
                Second::Tried(path) => {
                    let takes = |p: &Path| p.id == path && self.has_room_for(now, p, packet.len());
                    self.paths.iter().position(takes)
                }
                Second::But(first) => {
                    let spare = may_go_twice(self.twice_bytes, packet.len());
                    let at = self.second_path(now, first, packet.len()).filter(|_| spare);
                    at.filter(|at| !self.paths[*at].backup)
                }
            };
            let Some(at) = at else { continue };
            let trial = matches!(second, Second::Tried(_));
            let Some(way) = self.pack_once_more(now, at, (order, &packet), (false, trial), train) else {
                return false;
            };
            if trial {
                remark(train, || "a copy: it shows what the path carries".into());
                return true;
            }
            remark(train, || "a copy: the other path loses, or may have died".into());
            self.unconfirmed.handle_copied(order, way);
            self.twice_bytes.1 += packet.len() as u64;
            return true;
        }
        false
    }

    /// One more copy of what was sent again, over the quickest path that has nothing else to do: where much is lost the receiver waits
    /// for what is lost twice, and a sender that goes by its round trips sends ever less.
    fn poll_repeated(&mut self, now: Duration, train: &mut Train) -> bool {
        if self.queue.bytes() > 0 || self.unconfirmed.has_resend() {
            self.repeated.clear();
        }
        while let Some(order) = self.repeated.pop_front() {
            let Some(packet) = self.unconfirmed.packet(order).map(<[u8]>::to_vec) else { continue };
            let is_idle = |p: &Path| {
                tier_of(p) == Some(self.tier()) && !p.cost.metered && self.has_room_for(now, p, packet.len())
            };
            let idle = self.paths.iter().enumerate().filter(|(_, p)| is_idle(p));
            let Some((at, _)) = idle.min_by_key(|(_, p)| p.queued_arrival()) else {
                self.repeated.push_front(order);
                return false;
            };
            let way = self.pack_once_more(now, at, (order, &packet), (true, false), train);
            let Some(way) = way else { return false };
            remark(train, || "a copy: it was lost before, and the path has nothing else to do".into());
            self.unconfirmed.handle_copied(order, way);
            return true;
        }
        false
    }

    /// Whether a packet of `size` bytes may go over `path` now.
    fn has_room_for(&self, now: Duration, path: &Path, size: usize) -> bool {
        has_room(self.scheduler, path, now, false)
            && path.pieces(size).is_some()
            && path.may_take(path.payload_size(size))
    }

    /// Sends the packet of an order sequence once more over the path at `at`, as one that was sent a while ago, or to see what the path
    /// carries.
    fn pack_once_more(
        &mut self,
        now: Duration,
        at: usize,
        (order, packet): (u64, &[u8]),
        (resend, trial): (bool, bool),
        train: &mut Train,
    ) -> Option<Way> {
        let session = self.sessions.current(now)?;
        let (behind, resends) = (self.unconfirmed.behind(order), self.unconfirmed.repeats());
        let path = &mut self.paths[at];
        let tos = outer(path, self.marks, packet);
        let data = Outgoing { order, behind, packet, tos, resend, resends, trial };
        Some(pack_data(path, now, session, &data, train))
    }

    /// One copy of what went out last, over the best of the paths that it did not take.
    fn poll_copies(&mut self, now: Duration, train: &mut Train) -> bool {
        while let Some(copy) = self.copies.as_mut().and_then(|copies| copies.take(now)) {
            let path = self.pack_copy(now, &copy, train);
            if let Some(copies) = &mut self.copies {
                match path {
                    Some(path) => copies.handle_copied(now, copy, path),
                    None => copies.count_missed("no-path"),
                }
            }
            if path.is_some() {
                return true;
            }
        }
        false
    }

    /// The id of the path that it was sent over.
    fn pack_copy(&mut self, now: Duration, copy: &Copy, train: &mut Train) -> Option<u16> {
        let packet = &copy.packet[..];
        let at = self.second_path(now, copy.path, packet.len())?;
        let way = self.pack_once_more(now, at, (copy.order, packet), (copy.late, false), train)?;
        remark(train, || "a copy: it controls retransmission (bicast)".into());
        self.unconfirmed.handle_copied(copy.order, way);
        Some(way.path)
    }

    /// How long it takes at most, if nothing is amiss, to hear that something has arrived: a round trip, a quarter that its
    /// report waits, as much again, and 10 ms. None where everything is sent again, or no round trip is known.
    fn patience(&self) -> Option<Duration> {
        if self.unconfirmed.repeats() {
            return None;
        }
        let rtts = self.paths.iter().filter(|p| p.is_up()).filter_map(|p| p.sent.rtt().smoothed());
        Some(rtts.max()? * 3 / 2 + LEAST_REORDERING)
    }

    /// The path on which a copy of `size` bytes arrives first, but not that with the id `first`. One that seems to have died
    /// comes last and is not left out: where little is sent, a path seems so after every burst of losses, which is when copies
    /// are needed. A copy may wait behind as much as the path holds, and no longer: it comes when it comes, whatever fits.
    fn second_path(&self, now: Duration, first: u16, size: usize) -> Option<usize> {
        let spare_backups = self.tier() == 0;
        let takes = |p: &Path| {
            p.is_perhaps_up()
                && !(p.backup && spare_backups)
                && !p.cost.metered
                && p.pieces(size).is_some()
                && p.may_take(p.payload_size(size))
                && p.sent.in_flight() < 2 * p.sent.window(now)
        };
        let order =
            |p: &Path| (p.sent.is_silent(), p.sent.is_late(now), p.queued_arrival().unwrap_or(i64::MAX));
        let others = self.paths.iter().enumerate().filter(|(_, p)| p.id != first && takes(p));
        others.min_by_key(|(_, p)| order(p)).map(|(at, _)| at)
    }

    /// A path that came up takes its turn where the others stand: it has no arrears.
    pub(super) fn join_rotation(&mut self) {
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

    /// The best kind of path there is now.
    pub(crate) fn tier(&self) -> u8 {
        best_tier(&self.paths)
    }

    /// Tells the queue what the paths in use carry, and how long they take.
    pub(super) fn measure_paths(&mut self) {
        let tier = self.tier();
        if tier == u8::MAX {
            return;
        }
        let used = || self.paths.iter().filter(|p| tier_of(p) == Some(tier));
        let rate: f64 = used().filter_map(|p| p.sent.rate.bytes_per_second()).sum();
        let rtts = || used().filter_map(|p| p.sent.rate.base_rtt());
        let view = |p: &Path| xmit::View {
            arrival: p.least_arrival(rate),
            rate: p.sent.rate.perhaps(),
            seen: seen(p),
            ..xmit::View::default()
        };
        let (quickest, slowest) = (rtts().min().unwrap_or_default(), rtts().max().unwrap_or_default());
        let steps = xmit::steps(&mut used().map(view).collect::<Vec<_>>());
        let full = used().map(|p| p.sent.rate.capacity()).sum::<Option<f64>>();
        self.queue.set_paths(quickest, slowest, rate, full, steps);
    }

    /// Has backups take part, or wait again.
    fn judge_backups(&mut self, now: Duration) {
        if self.scheduler != Scheduler::Auto || !self.paths.iter().any(|path| path.backup) {
            self.paths.iter_mut().for_each(|path| path.helps = false);
            return;
        }
        // Where all fall silent now and then, they are judged by what they were like before.
        let any_up = self.paths.iter().any(|path| !path.backup && path.is_up());
        let main = || self.paths.iter().filter(move |path| !path.backup && (path.is_up() || !any_up));
        let backups = || self.paths.iter().filter(|path| path.backup && path.is_up());
        let sent = backups().map(|path| path.sent.totals().1).sum();
        let rate = main().map(|path| path.sent.rate.perhaps()).sum();
        let never = |path: &Path| (path.sent.rate.loss() > MOST_LOST).then_some(i64::MAX);
        let there = main().filter_map(|path| never(path).or_else(|| path.queued_arrival())).min();
        let by_backup = backups().filter_map(|path| path.least_arrival(0.0)).min();
        let later = there.zip(by_backup).map(|(there, backup)| there.saturating_sub(backup) as f64 / 1e6);
        let helps = self.help.judge(now, sent, self.queue.bytes(), rate, later);
        self.paths.iter_mut().for_each(|path| path.helps = helps);
    }

    /// Ways back are taken to be as long as the ways there. No detour is longer than a round trip, though a clock that jumped says so.
    pub(super) fn measure_detours(&mut self) {
        let least = |p: &Path| p.least_arrival(0.0).filter(|_| p.is_validated());
        let quickest = self.paths.iter().filter_map(least).min().unwrap_or_default();
        for path in &mut self.paths {
            let over = least(path).unwrap_or(quickest).saturating_sub(quickest);
            let over = Duration::from_micros(over.unsigned_abs());
            path.sent.detour = path.sent.rate.min_rtt().map_or(over, |rtt| over.min(rtt));
        }
    }

    /// Nothing more is sent now: what is in flight on paths that have room shows less than they carry, and of others it is known
    /// whether the pacer alone holds back what waits.
    fn note_turn_end(&mut self, now: Duration) -> bool {
        let waits = self.is_waiting();
        for path in &mut self.paths {
            let [room, window] = [false, true].map(|in_burst| has_room(self.scheduler, path, now, in_burst));
            let in_flight = path.sent.in_flight();
            if room {
                path.sent.rate.handle_app_limited(in_flight);
            } else {
                path.sent.rate.handle_full(waits && window);
            }
        }
        false
    }

    /// Reports take the path with the least round trip and loss, if something came over it just now: a path that has died is left
    /// before its own silence is noticed, or the peer would take all others for silent too. A metered one is spared where no more
    /// than a marker came over it. Every fourth takes the next as well, unless that is a backup.
    pub(super) fn report_paths(&self, now: Duration) -> [Option<usize>; 2] {
        let quiet = |p: &Path| now.saturating_sub(p.received.last_arrival().unwrap_or_default());
        let late = |i: &usize| {
            let path = &self.paths[*i];
            let rtt = path.sent.rtt().smoothed().unwrap_or(INITIAL_RTT).mul_f64(1.0 + path.sent.rate.loss());
            let unused = path.cost.metered && path.received.unreported().0 <= 1;
            let spared = if path.is_kept() || unused { MARKER_LONGEST } else { Duration::ZERO };
            (path.sent.silences(), rtt + quiet(path) + spared)
        };
        let mut usable: Vec<_> = (0..self.paths.len()).filter(|i| self.paths[*i].may_take(LARGE)).collect();
        usable.sort_by_key(late);
        [usable.first().copied(), usable.get(1).copied()]
    }

    pub(super) fn report_due(&self) -> Option<Duration> {
        let rtt = self.paths.iter().filter_map(|p| p.sent.rate.min_rtt()).min().unwrap_or(MAX_REPORT);
        let wait = (rtt / 4).clamp(MIN_REPORT, MAX_REPORT);
        let due = |r: &Received| {
            let (packets, since) = r.unreported();
            let due = since.map(|t| if packets >= REPORT_PACKETS { Duration::ZERO } else { t + wait });
            due.map(|due| due.max(self.next_report))
        };
        self.paths.iter().filter_map(|p| due(&p.received)).min()
    }
}

/// An inner packet on its way out.
struct Outgoing<'a> {
    order: u64,
    behind: u16,
    packet: &'a [u8],
    tos: u8,
    /// It was sent before, and others since.
    resend: bool,
    /// What is lost is sent again.
    resends: bool,
    /// A copy that shows what the path carries: what becomes of it says nothing of the packet.
    trial: bool,
}

fn pack_data(path: &mut Path, now: Duration, session: &Session, data: &Outgoing, train: &mut Train) -> Way {
    let &Outgoing { order, behind, packet, tos, resend, resends, trial } = data;
    let pieces = path.pieces(packet.len()).unwrap_or(1);
    for (index, bytes) in (0..).zip(packet.chunks(packet.len().div_ceil(pieces).max(1))) {
        let piece = Piece { index, of: pieces as u8 };
        let content = if trial { Content::Probe(None) } else { Content::Data(order, piece) };
        let header = Data { resend, resends, piece, behind, order: order as u32, time: micros(now) };
        path.marked.handle_sent(now, path.sent.next_sequence(), tos);
        path.pack(now, session, tos, content, train, |out| {
            frame::put_data(out, &header);
            out.extend_from_slice(bytes);
        });
    }
    if pieces > 1 {
        train.notes.iter_mut().for_each(|notes| notes.join(packet));
    }
    path.virtual_time += path.payload_size(packet.len()) as f64 / path.weight.get().max(1e-3);
    path.restart_marker(now, if resends { MARKER_AUTO } else { SHORTEST_MARKER });
    Way { path: path.id, due: now + path.sent.report_expected_in() }
}

/// Says, to whoever captures, what decided about the last datagram of the train.
fn remark(train: &mut Train, why: impl FnOnce() -> String) {
    if let Some(notes) = &mut train.notes {
        notes.remark(why());
    }
}

/// Whether one more packet of `size` bytes may be copied, after so many bytes in all, and so many in copies.
fn may_go_twice((total, extra): (u64, u64), size: usize) -> bool {
    bicast::within_budget(total, extra, size as u32, TWICE_PERCENT)
}

/// A later acknowledgement says all that an earlier one does (RFC 9293 §3.10.7.4): were it to wait for one that is late, the sender at the
/// other end would stop, until it takes all for lost. A call, a game or a ping does not mind what overtakes it: were it to wait for
/// one that was lost, all that follow would be late as well. Full packets are of something larger, as of QUIC, which takes what
/// overtakes for a loss.
fn waits_for_nothing(packet: &[u8], sparse: bool) -> bool {
    let protocol = packet::Ip::parse(packet).map(|ip| ip.protocol());
    let alone = protocol.is_ok_and(|protocol| matches!(protocol, ip::UDP | ip::ICMP | ip::ICMPV6));
    (sparse && alone && packet.len() <= MOST_ALONE) || packet::is_pure_ack(packet)
}

/// The outer packet's traffic class on this path.
fn outer(path: &Path, marks: Marks, packet: &[u8]) -> u8 {
    path.marked.outer(marks.outer(packet::Ip::parse(packet).map_or(0, |ip| ip.tos())))
}

/// Whether a packet of `size` bytes for `path` fits the train.
fn takes(path: &Path, train: &Train, tos: u8, size: usize) -> bool {
    let pieces = path.pieces(size).unwrap_or(1);
    let (all, each) = (path.payload_size(size), path.payload_size(size.div_ceil(pieces)));
    path.address().is_some_and(|address| train.takes(address, tos, each, pieces)) && path.may_take(all)
}

fn position(unconfirmed: &Unconfirmed) -> Order {
    Order { floor: unconfirmed.floor() as u32, next: unconfirmed.next() as u32 }
}
