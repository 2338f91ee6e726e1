//! What goes out to a peer: handshakes, control packets, reports, data, and which path each takes.

use std::time::Duration;

use super::{LAST_RESORT, LEAST_REORDERING, Peer, tier_of};
use crate::address::Train;
use crate::config::Scheduler;
use crate::copies::Copy;
use crate::frame::{self, Data, Order, Report};
use crate::path::{MIN_INNER_MTU, Path};
use crate::recv_enqueue::{Received, micros};
use crate::sent::Content;
use crate::sessions::Session;
use crate::unconfirmed::{Unconfirmed, Way};
use crate::wire::{HEADER_LEN, RELAY_HEADER_LEN, TAG_LEN};
use crate::xmit;

/// A report waits for more to report between these times, a quarter of the least round trip in between.
const MIN_REPORT: Duration = Duration::from_millis(4);
const MAX_REPORT: Duration = Duration::from_millis(20);
/// So many packets are reported at once.
const REPORT_PACKETS: u32 = 128;
/// Markers follow the last packet on a path after this (`paper`: gaps wait for them; `auto`: they measure).
const MARKER_PAPER: Duration = Duration::from_millis(20);
const MARKER_AUTO: Duration = Duration::from_millis(100);
const MARKER_LONGEST: Duration = Duration::from_millis(250);
/// Of a path whose round trip was never measured.
const UNKNOWN_RTT: Duration = Duration::from_secs(1);
/// Bytes of a packet that is no data, at least for what an unproved address may be sent; of an announcement or feedback.
const SMALL: usize = 100;
const LARGE: usize = MIN_INNER_MTU as usize + RELAY_HEADER_LEN + HEADER_LEN + TAG_LEN;

impl Peer {
    /// Fills `train` with what is to be sent next to one address; false if nothing is.
    pub fn poll_transmit(&mut self, now: Duration, train: &mut Train) -> bool {
        // Before a probe that says that the original was sent, or its loss would be taken for the copy's as well.
        self.poll_copies(now, train)
            || self.poll_handshake(now, train)
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
            if path.pack_challenge(now, session, train) || path.pack_response(now, session, train) {
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
            if let Some(at) = self.report_path(now) {
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

    /// A probe; the first few after a session began say which paths this end lists instead.
    fn pack_probe(&mut self, now: Duration, at: usize, order: Order, train: &mut Train) -> bool {
        let Some(session) = self.sessions.current(now) else { return false };
        let (listed, generation) = (self.listed(), self.generation);
        let path = &mut self.paths[at];
        if path.announcements > 0 && path.may_take(LARGE) {
            path.announcements -= 1;
            path.announced.push(path.sent.next_sequence());
            path.next_marker = Some(now + MARKER_AUTO);
            let listed = listed.iter().map(|(id, name, backup)| (*id, name.as_str(), *backup));
            return path.pack(now, session, 0, Content::Probe(None), train, |out| {
                frame::put_announce(out, generation, listed);
            });
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
        let Some(at) = self.report_path(now) else { return false };
        let mut due: Vec<_> =
            (0..self.paths.len()).filter(|&i| self.paths[i].received.unreported().0 > 0).collect();
        due.sort_by_key(|&i| self.paths[i].received.unreported().1);
        // As many as fit for certain: a full report is 300 bytes.
        due.truncate((usize::from(self.paths[at].inner_mtu()) / 300).clamp(1, 4));
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
        let size = self.unconfirmed.peek_resend().map(|(_, packet)| packet.len());
        let avoid = self.avoided();
        let again = size.and_then(|size| self.choose(now, true, size, avoid));
        let (at, resend) = match again {
            Some(at) => (at, true),
            None if self.stage(now) => match self.choose(now, false, self.staged_size(), None) {
                Some(at) => (at, false),
                None => return false,
            },
            None => return false,
        };
        while (resend || self.stage(now)) && self.pack_next(now, at, resend, train) {}
        !train.is_empty()
    }

    /// The id of the path that the packet to send again next is on already, if there are others.
    fn avoided(&mut self) -> Option<u16> {
        self.unconfirmed.resend_avoids().filter(|_| self.has_choice())
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
        let avoid = self.avoided().filter(|_| resend);
        let patience = self.patience();
        let Some(session) = self.sessions.current(now) else { return false };
        let path = &mut self.paths[at];
        let Some(address) = path.address().copied() else { return false };
        let resends = self.unconfirmed.repeats();
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
        let tos = self.marks.outer(packet::Ip::parse(packet).map_or(0, |ip| ip.tos()));
        let size = path.payload_size(packet.len());
        let first = train.is_empty();
        let goes_on = first || (self.run >= size && has_room(self.scheduler, path, now, true));
        if !train.takes(&address, tos, size) || !path.may_take(size) || !goes_on || avoid == Some(path.id) {
            return false;
        }
        let way = way_by(path, now);
        let fits = packet.len() <= usize::from(path.inner_mtu());
        if fits {
            let data = Outgoing { order, packet, tos, resend, resends };
            pack_data(path, now, session, &data, train);
            self.run = if first { path.sent.rate.burst() } else { self.run }.saturating_sub(size);
        }
        if resend {
            if fits {
                self.unconfirmed.pop_resend(way)
            } else {
                self.unconfirmed.give_up_resend()
            }
            return true;
        }
        self.counters.dropped_too_big += u64::from(!fits);
        if let Some(next) = self.staged.take().filter(|_| fits) {
            if let Some(copies) = &mut self.copies {
                copies.handle_sent(now, self.unconfirmed.next(), &next.packet, way.path, patience);
            }
            self.unconfirmed.push(now, next.packet, way);
        }
        true
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
        let session = self.sessions.current(now)?;
        let path = &mut self.paths[at];
        let way = way_by(path, now);
        let tos = self.marks.outer(packet::Ip::parse(packet).map_or(0, |ip| ip.tos()));
        let resends = self.unconfirmed.repeats();
        let data = Outgoing { order: copy.order, packet, tos, resend: copy.late, resends };
        pack_data(path, now, session, &data, train);
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
                && usize::from(p.inner_mtu()) >= size
                && p.may_take(p.payload_size(size))
                && p.sent.in_flight() < 2 * p.sent.rate.window()
        };
        let order =
            |p: &Path| (p.sent.is_silent(), p.sent.is_late(now), p.predicted_delay().unwrap_or(i64::MAX));
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

    /// The path for a packet of `size` bytes, of those that carry it if any does; not the one with the id `avoid`.
    fn choose(&self, now: Duration, resend: bool, size: usize, avoid: Option<u16>) -> Option<usize> {
        let tier = self.tier();
        // Of paths that are all silent, the one that the peer was last heard on.
        let heard = |p: &Path| if tier == LAST_RESORT { p.received.last_arrival() } else { None };
        let last = self.paths.iter().filter(|p| tier_of(p) == Some(tier)).map(heard).max().flatten();
        let usable = |p: &&Path| tier_of(p) == Some(tier) && heard(p) == last && Some(p.id) != avoid;
        // What has been lost once is not entrusted to a path that may have died, if there is another.
        let sure = |p: &Path| !resend || !p.sent.is_late(now);
        let any_sure = self.paths.iter().filter(usable).any(sure);
        let usable = |p: &&Path| usable(p) && (sure(p) || !any_sure);
        let carries = |p: &Path| usize::from(p.inner_mtu()) >= size;
        let any_carries = self.paths.iter().filter(usable).any(carries);
        // What has to be sent again, and the only packet of a flow, go before all that waits.
        let alone = self.staged.as_ref().is_none_or(|n| n.alone);
        let backlog = match (resend, alone) {
            (true, _) => self.unconfirmed.resend_packets().saturating_sub(1) * usize::from(MIN_INNER_MTU),
            (false, true) => 0,
            (false, false) => self.queue.bytes(),
        };
        let views = || {
            let paths = self.paths.iter().enumerate();
            paths.filter(|(_, p)| usable(p) && (carries(p) || !any_carries)).map(|(index, path)| {
                let rate = &path.sent.rate;
                let room = has_room(self.scheduler, path, now, false);
                let excess = (path.sent.in_flight() + 1500).saturating_sub(rate.window());
                let wait = rate.next_send().saturating_sub(now).max(rate.transmit_time(excess));
                xmit::View {
                    index,
                    room,
                    wait,
                    delay: path.predicted_delay(),
                    rate: rate.pacing(),
                    virtual_time: path.virtual_time,
                }
            })
        };
        match self.scheduler {
            Scheduler::Paper | Scheduler::PaperAbsolute => xmit::by_weight(views()),
            Scheduler::Auto => xmit::by_arrival(views(), backlog),
        }
    }

    fn staged_size(&self) -> usize {
        self.staged.as_ref().map_or(0, |next| next.packet.len())
    }

    /// The best kind of path there is now.
    pub(super) fn tier(&self) -> u8 {
        self.paths.iter().filter_map(tier_of).min().unwrap_or(u8::MAX)
    }

    /// Tells the queue what the paths in use carry, and how long they take.
    pub(super) fn measure_paths(&mut self) {
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

    /// Reports take the path with the least round trip, if something came over it just now: a path that has died is left
    /// before its own silence is noticed, or the peer would take all others for silent too. Every fourth takes the next,
    /// unless that is a backup.
    pub(super) fn report_path(&self, now: Duration) -> Option<usize> {
        let quiet = |p: &Path| now.saturating_sub(p.received.last_arrival().unwrap_or_default());
        let late = |i: &usize| {
            let path = &self.paths[*i];
            let rtt = path.sent.rtt().smoothed().unwrap_or(UNKNOWN_RTT);
            let spared = if path.backup { MARKER_LONGEST } else { Duration::ZERO };
            (path.sent.silences(), rtt + quiet(path) + spared)
        };
        let mut usable: Vec<_> = (0..self.paths.len()).filter(|i| self.paths[*i].may_take(LARGE)).collect();
        usable.sort_by_key(late);
        let second = usable.get(1).filter(|i| self.reports_sent % 4 == 3 && !self.paths[**i].backup);
        second.or(usable.first()).copied()
    }

    pub(super) fn report_due(&self) -> Option<Duration> {
        let rtt = self.paths.iter().filter_map(|p| p.sent.rate.min_rtt()).min().unwrap_or(MAX_REPORT);
        let wait = (rtt / 4).clamp(MIN_REPORT, MAX_REPORT);
        let due = |r: &Received| {
            let (packets, since) = r.unreported();
            since.map(|t| if packets >= REPORT_PACKETS { Duration::ZERO } else { t + wait })
        };
        self.paths.iter().filter_map(|p| due(&p.received)).min()
    }
}

/// An inner packet on its way out.
struct Outgoing<'a> {
    order: u64,
    packet: &'a [u8],
    tos: u8,
    /// It was sent before, and others since.
    resend: bool,
    /// What is lost is sent again.
    resends: bool,
}

fn pack_data(path: &mut Path, now: Duration, session: &Session, data: &Outgoing, train: &mut Train) {
    let &Outgoing { order, packet, tos, resend, resends } = data;
    let header = Data { resend, resends, stream: 0, order: order as u32, time: micros(now) };
    path.pack(now, session, tos, Content::Data(order), train, |out| {
        frame::put_data(out, &header);
        out.extend_from_slice(packet);
    });
    path.virtual_time += path.payload_size(packet.len()) as f64 / path.weight.get().max(1e-3);
    path.restart_marker(now, if resends { MARKER_AUTO } else { MARKER_PAPER });
}

/// What is sent on `path` now goes this way.
fn way_by(path: &Path, now: Duration) -> Way {
    Way { path: path.id, due: now + path.sent.report_expected_in() }
}

/// The paper's scheduler knows no windows. A burst that has begun may go on though the pacer is not due again.
fn has_room(scheduler: Scheduler, path: &Path, now: Duration, in_burst: bool) -> bool {
    let rate = &path.sent.rate;
    scheduler != Scheduler::Auto
        || (path.sent.in_flight() < rate.window() && (in_burst || rate.next_send() <= now))
}

fn position(unconfirmed: &Unconfirmed) -> Order {
    Order { floor: unconfirmed.floor() as u32, next: unconfirmed.next() as u32 }
}
