//! What comes from a peer: transport packets and the frames in them.

use std::time::Duration;

use rand_core::RngCore;

use super::Peer;
use crate::capture::Opened;
use crate::config::{MAX_PATHS, Scheduler};
use crate::path::Path;
use crate::wire::address::Address;
use crate::wire::frame::{Announced, Data, Frame, Order, Piece, Report};
use crate::wire::{HEADER_LEN, TransportHeader};

/// A silent path that something comes in on is probed at most this often.
const RETURN_PROBE: Duration = Duration::from_millis(50);

impl Peer {
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
            self.note_unopened(header, "it has come before");
            return;
        }
        let (head, body) = datagram.split_at_mut(HEADER_LEN);
        let Some(head) = head.first_chunk() else { return };
        let Ok(plain) = session.opening.open(header.path, header.sequence, head, body) else {
            self.counters.received_forged += 1;
            self.note_unopened(header, "no key opens it");
            return;
        };
        if !confirmed {
            let reborn = self.sessions.confirm(header.receiver);
            self.begin_session(now, reborn);
        }
        let Some(at) = self.find_path(header.path) else {
            self.note_unopened(header, "its path is unknown");
            return;
        };
        let reportable = plain.first() != Some(&2);
        if let Some(noted) = &mut self.noted {
            let (path, sequence) = (self.paths[at].name.clone(), header.sequence);
            noted.opened = Some(Opened { path, sequence, frame: plain.to_vec(), ..Opened::default() });
        }
        let path = &mut self.paths[at];
        if !path.replay.accept(header.sequence) {
            self.counters.received_replayed += 1;
            self.note_unopened(header, "it has come before");
            return;
        }
        let newest = path.received.handle_packet(now, header.sequence, size, reportable);
        path.handle_arrival(now, from, size, newest, rng);
        // What comes in suggests that something gets out again.
        path.probe_wanted |= path.sent.is_silent() && now >= path.last_sent + RETURN_PROBE;
        self.stirred = true;
        match Frame::parse(plain) {
            Ok(Frame::Data(data, piece)) if data.piece != Piece::WHOLE => {
                self.handle_piece(now, at, from, (header.sequence, tos), data, piece);
            }
            Ok(frame) => {
                self.look_at_mark(now, at, tos, &frame);
                self.handle_frame(now, at, from, tos, frame);
            }
            Err(_) => self.counters.received_malformed += 1,
        }
    }

    /// A piece of an inner packet. Whoever sends it waits for a report of it as of any other.
    fn handle_piece(
        &mut self,
        now: Duration,
        at: usize,
        from: &Address,
        (sequence, tos): (u64, u8),
        data: Data,
        piece: &[u8],
    ) {
        let path = &mut self.paths[at];
        let Some((mut packet, tos)) = self.pieces.join(now, (path.id, sequence), data.piece, piece, tos)
        else {
            path.received.handle_time(now, data.time);
            self.remark(|| "waits for the other pieces".into());
            return;
        };
        if let Some(opened) = self.noted.as_mut().and_then(|noted| noted.opened.as_mut()) {
            opened.joined.clone_from(&packet);
        }
        let frame = Frame::Data(data, &mut packet);
        self.look_at_mark(now, at, tos, &frame);
        self.handle_frame(now, at, from, tos, frame);
    }

    fn note_unopened(&mut self, header: TransportHeader, why: &str) {
        let known = self.paths.iter().find(|path| path.id == header.path).map(|path| path.name.clone());
        self.note(|| Opened {
            path: known.unwrap_or_else(|| format!("path{}", header.path)),
            sequence: header.sequence,
            why: why.to_owned(),
            ..Opened::default()
        });
    }

    /// Outer packets have the inner one's ECN field or none, and only what is capable of ECN may be marked on the way.
    fn look_at_mark(&mut self, now: Duration, at: usize, tos: u8, frame: &Frame<'_>) {
        if packet::Ecn::from_tos(tos) != packet::Ecn::Ce {
            return;
        }
        let capable = match frame {
            Frame::Data(_, packet) => {
                packet::Ip::parse(packet).is_ok_and(|ip| ip.ecn() != packet::Ecn::NotEct)
            }
            _ => false,
        };
        if !capable && self.paths[at].marked.handle_forged(now) {
            let (path, peer) = (&self.paths[at].name, &self.config.name);
            tracing::info!(
                "path {path} to {peer} marks packets as congested that may not be marked: its marks are ignored"
            );
        }
    }

    fn handle_frame(&mut self, now: Duration, at: usize, from: &Address, tos: u8, frame: Frame<'_>) {
        match frame {
            Frame::Data(header, packet) => self.handle_data(now, at, tos, &header, packet),
            Frame::Feedback(order, reports) => {
                self.handle_order(order);
                for report in &reports {
                    self.handle_report(now, report);
                }
            }
            Frame::Announce(generation, paths) => self.handle_announce(now, generation, &paths),
            Frame::Probe(order, time) => {
                self.paths[at].received.handle_time(now, time);
                self.handle_order(order);
            }
            Frame::Challenge(token) => self.paths[at].handle_challenge(from, token),
            Frame::Response(token) => {
                self.outcome.clear();
                self.paths[at].handle_response(now, from, token, &mut self.outcome);
                self.settle(now);
            }
        }
    }

    fn handle_data(&mut self, now: Duration, at: usize, tos: u8, header: &Data, packet: &mut [u8]) {
        self.note_data(now);
        self.peer_repeats = header.resends;
        if let Some(copies) = &mut self.copies {
            copies.handle_received(now, packet);
        }
        let received = &mut self.paths[at].received;
        received.handle_time(now, header.time);
        let order = self.ordered.unwrap(header.order);
        if self.marks.ecn && !self.paths[at].marked.is_forged(now) {
            combine_ecn(packet, tos);
        }
        // A copy says nothing new; that of a SYN would make a connection of before begin again.
        let late = header.resend && !header.resends && self.ordered.gave_up(order);
        let is_new = late || !self.ordered.knows(order);
        let passes = self.scheduler != Scheduler::Auto || !is_new || self.queue.handle_returned(now, packet);
        let packet = if passes { &packet[..] } else { &[] };
        let held = self.ordered.held_bytes();
        if late {
            self.ordered.insert_late(order, packet);
        } else {
            self.ordered.insert(now, order, header.behind, packet);
        }
        let waits = self.ordered.held_bytes() > held;
        self.remark(|| {
            let became = match (is_new, passes) {
                (false, _) => "dropped: it has come before",
                (_, false) => "dropped: a later acknowledgement says as much",
                _ if late => "handed on late",
                _ if waits => "waits for the one before",
                _ => "handed on",
            };
            became.into()
        });
    }

    fn handle_order(&mut self, order: Order) {
        let floor = self.ordered.unwrap(order.floor);
        self.ordered.handle_floor(floor);
    }

    fn handle_report(&mut self, now: Duration, report: &Report) {
        let Some(path) = self.paths.iter_mut().find(|p| p.id == report.path) else { return };
        let was_silent = path.sent.is_silent();
        if path.announced.iter().any(|one| report.ranges.iter().any(|range| range.contains(one))) {
            self.announce_again = None;
        }
        if let Some(mark) = path.marked.handle_report(now, &report.ranges) {
            let (path, peer) = (&path.name, &self.config.name);
            tracing::info!("path {path} to {peer} drops packets with a mark of {mark}: they go without it");
        }
        self.outcome.clear();
        path.sent.handle_report(now, report, &mut self.outcome);
        // A report that confirms nothing is an old one, and so are its delays.
        if self.outcome.progress {
            path.weight.handle_delay(&report.delay);
        }
        if self.outcome.progress && report.delay.samples > 0 {
            let base = *self.delay_base.get_or_insert(report.delay.min);
            let over = |delay: u32| i64::from(delay.wrapping_sub(base) as i32);
            let least = over(report.delay.min);
            path.handle_delay(now, least + i64::from(report.delay.mean_over_min), least);
        }
        for &size in &self.outcome.probed {
            path.handle_probed(size);
        }
        if was_silent && !path.sent.is_silent() {
            path.end_look();
        }
        let calls = path.sent.rate.take_call();
        if path.sent.take_swallowing() {
            path.mtu.restart(now);
        } else if was_silent && self.outcome.progress {
            path.mtu.look_again(now);
        }
        if calls {
            self.paths.iter_mut().for_each(|path| path.sent.rate.join_probe_rtt(now));
        }
        self.settle(now);
    }

    /// The peer lists its paths. Editions come over paths of different delays: one that is not newer says nothing new,
    /// and an older one would retire a path that has been added since.
    fn handle_announce(&mut self, now: Duration, generation: u8, announced: &[Announced]) {
        let newer = |last: u8| generation.wrapping_sub(last).cast_signed() > 0;
        if !self.peer_generation.is_none_or(newer) {
            return;
        }
        self.peer_generation = Some(generation);
        // Before the new ones, which may need their places.
        let gone = |p: &Path| p.config.is_none() && !announced.iter().any(|a| a.id == p.id);
        self.retired.extend(self.paths.iter().filter(|p| gone(p)).map(|p| p.id));
        self.forget_learned(now, gone);
        for one in announced.iter().take(MAX_PATHS) {
            if one.id % 2 == self.next_id % 2 {
                self.counters.received_malformed += 1;
                continue;
            }
            if let Some(at) = self.find_path(one.id) {
                let path = &mut self.paths[at];
                (path.name, path.backup, path.cost) = (one.name.clone(), one.backup, one.cost);
            }
        }
    }
}

/// RFC 6040 §4.2: congestion marked outside is carried inside. A packet that is not capable of ECN and has come marked goes on
/// as it is: RFC 6040 drops it for the sake of ends that make all outer packets capable, which none of this tunnel's does.
fn combine_ecn(inner: &mut [u8], outer_tos: u8) {
    let Ok(ip) = packet::Ip::parse(inner) else { return };
    let before = ip.ecn();
    let after = packet::ecn::decapsulate(before, packet::Ecn::from_tos(outer_tos));
    if let Some(after) = after.filter(|after| *after != before) {
        packet::set_ecn(inner, after);
    }
}
