//! What one path has in flight, what of it was lost, and when the path is taken to be silent.
//!
//! Loss is told per path, by its own sequence (RFC 9002 §6.1 in spirit): a packet is lost when one sent three packets later has
//! arrived, or one sent later at all a quarter of a round trip ago (RFC 8985 §6.2). On a path that has been seen to reorder
//! only the time counts, and more of it: as much as the path reorders by, which is forgotten by halves.
//!
//! A path on which data is overdue, and from which nothing has come back for its probe time-out, is silent: it gets nothing but
//! probes until it answers, if there is another path, and what is in flight is handed back for that. It stays in flight here
//! until something tells its fate: the path may be slow, and what it holds is not to be sent into it once more. A packet or two
//! that are not reported only put the path in doubt: they may be lost, or the report elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use packet::ip::LEAST_MTU_V6;

use crate::path::rate::{Rate, Snapshot};
use crate::path::rtt::{INITIAL_RTT, MIN_VARIATION, Rtt};
use crate::wire::frame::{Piece, Report};

/// RFC 9002 §6.1.1.
const THRESHOLD: u64 = 3;
/// By how much a path reorders halves each so many round trips in which it does not (RFC 8985 §6.2 forgets after as many).
const FORGET_REORDERING: u32 = 16;
/// Less is no reordering.
const LEAST_REORDERING: Duration = Duration::from_millis(1);
/// Who says that a report waited for longer is not believed that the round trip was shorter than any.
const USUAL_WAIT: Duration = Duration::from_millis(30);
/// So many packets overdue, and the path is silent.
const MANY: usize = 3;
/// A path that was silent for less is what it was.
const SHORT_SILENCE: Duration = Duration::from_secs(1);
/// A silent path is probed at least this often.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of UDP payload beyond which a packet is large: the first is more than a path needs for inner packets of IPv6's least MTU; the
/// second, on a path that carries no such, more than passes a link of 576 bytes.
const LARGE: [u32; 2] = [LEAST_MTU_V6 as u32 + 12 + 44, 576 - 28];
/// So many large packets lost over so long, and none arrived though smaller ones did: large ones do not pass (RFC 8899
/// §4.3).
const SWALLOWED: u32 = 8;
const SWALLOWED_FOR: Duration = Duration::from_millis(300);
/// What a path forgets of packets that nothing was heard of.
const MAX_TRACKED: usize = 1 << 16;
/// Lost packets are remembered until so many later ones have arrived, for they may yet come.
const REMEMBERED: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// And whether the path's losses count it.
    Lost(bool),
    Acked,
}

#[derive(Debug)]
struct Packet {
    state: State,
    bytes: u32,
    /// The order sequence of the data it carries, and which piece of it that is.
    order: Option<u64>,
    piece: Piece,
    /// It was handed back, to be sent again.
    handed_back: bool,
    /// The size it probes, as an outer IP packet.
    probed: Option<u16>,
    /// So many from it on have arrived.
    arrived: u32,
    snapshot: Snapshot,
    at: Duration,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A piece of the inner packet of this order sequence. It has arrived when all have, and is lost when one is.
    Data(u64, Piece),
    /// Something to be acknowledged; it may probe this size of an outer IP packet.
    Probe(Option<u16>),
    /// Feedback.
    Report,
}

/// What a report or a time-out says about what was sent. Reused, so that no allocation is made per report.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Order sequences that arrived.
    pub confirmed: Vec<u64>,
    /// Order sequences whose packet is taken to be lost.
    pub lost: Vec<u64>,
    /// Probed sizes that arrived.
    pub probed: Vec<u16>,
    /// Whether anything new was acknowledged.
    pub progress: bool,
}

impl Outcome {
    /// Empties it.
    pub fn clear(&mut self) {
        self.confirmed.clear();
        self.lost.clear();
        self.probed.clear();
        self.progress = false;
    }
}

/// The sending side of one path.
#[derive(Debug, Default)]
pub struct Sent {
    base: u64,
    packets: VecDeque<Packet>,
    in_flight: usize,
    largest_acked: Option<u64>,
    /// When that was sent, and when it arrived by the receiver's clock, µs.
    newest: (Duration, u32),
    /// How long ago that was sent when it was reported.
    newest_age: Duration,
    /// By how much the path reorders, and when it was last seen to or was forgotten.
    reordering: (Duration, Duration),
    rtt: Rtt,
    /// The same with what reports wait for, of the oldest packet in each.
    age: Rtt,
    /// The oldest packet in flight, or where to look for it.
    oldest: u64,
    /// When something was last acknowledged, or sent while nothing was in flight.
    last_progress: Duration,
    /// A probe was not reported, and nothing since.
    in_doubt: bool,
    /// Probes wanted since the path fell silent, when that was, and when the next is due.
    silent: u32,
    silent_since: Duration,
    next_probe: Duration,
    /// What was sent before says nothing of how long the path is: the last silence ended, or this host stood still.
    known_since: Duration,
    /// Since the silence began, all that is in flight has been handed back.
    handed_over: bool,
    sent_bytes: u64,
    lost_packets: u64,
    /// Large packets lost since one arrived: how many, when the first and the last of them were sent.
    swallowed: (u32, Duration, Duration),
    /// When the last large packet that arrived was sent.
    large_arrived: Duration,
    /// Whether only what is smaller than the least inner MTU passes.
    small: bool,
    /// By how much later a report comes that takes this path itself, not the quickest: that one may have died.
    pub detour: Duration,
    /// The path's model.
    pub rate: Rate,
}

impl Sent {
    /// The next packet's path sequence.
    pub fn next_sequence(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// Records the packet that takes [`next_sequence`](Self::next_sequence). `size` is its UDP payload's.
    pub fn handle_sent(&mut self, now: Duration, size: usize, content: Content) {
        let (order, piece, probed) = match content {
            Content::Data(order, piece) => (Some(order), piece, None),
            Content::Probe(size) => (None, Piece::WHOLE, size),
            Content::Report => (None, Piece::WHOLE, None),
        };
        // Nobody reports the arrival of a report by itself, and a size that does not pass is no loss: neither is in flight.
        let bytes = if matches!(content, Content::Data(..) | Content::Probe(None)) { size } else { 0 };
        if bytes > 0 && self.in_flight == 0 && self.silent == 0 {
            self.last_progress = now;
        }
        self.handed_over &= order.is_none();
        let snapshot = self.rate.handle_sent(now, bytes, self.in_flight, order.is_some());
        if self.packets.len() == MAX_TRACKED {
            self.forget_first();
            self.find_oldest();
        }
        self.packets.push_back(Packet {
            state: State::InFlight,
            bytes: bytes as u32,
            order,
            piece,
            handed_back: false,
            probed,
            arrived: 0,
            snapshot,
            at: now,
        });
        self.in_flight += bytes;
        if self.in_flight == bytes {
            self.find_oldest();
        }
        self.sent_bytes += size as u64;
    }

    /// The receiver's report about this path.
    pub fn handle_report(&mut self, now: Duration, report: &Report, out: &mut Outcome) {
        let (mut acked, mut largest, mut oldest) = (0, None, None);
        for range in &report.ranges {
            let low = (*range.start()).max(self.base);
            let end = range.end().saturating_add(1).min(self.next_sequence());
            let mut sequence = low;
            while sequence < end {
                // Reports name what earlier ones did, perhaps all of it.
                let arrived = &mut self.packets[(sequence - self.base) as usize].arrived;
                let known = std::mem::replace(arrived, (*arrived).max((end - sequence) as u32));
                if known == 0 {
                    acked += self.ack(now, sequence, &mut oldest, out);
                }
                sequence += u64::from(known.max(1));
            }
            if low < end && out.progress && largest.is_none() {
                largest = Some(end - 1);
            }
        }
        if let Some(sequence) = largest {
            self.progress(now, report, sequence, acked);
        }
        if let Some(at) = oldest.filter(|at| *at >= self.known_since) {
            self.age.add(now.saturating_sub(at));
        }
        self.detect_lost(now, out);
        self.find_oldest();
        self.forget();
    }

    /// A packet or two that are overdue are handed back as lost, and the path is in doubt; if it was, or they are more, it is
    /// silent. True if it should be probed (again).
    pub fn handle_timeout(&mut self, now: Duration, out: &mut Outcome) -> bool {
        self.detect_lost(now, out);
        if self.overdue_at().is_some_and(|t| t <= now) {
            let overdue = |p: &&Packet| p.order.is_some() && p.at + self.probe_timeout() <= now;
            let behind = self.packets.range((self.oldest - self.base) as usize..);
            let many = behind.filter(|p| p.state == State::InFlight).filter(overdue).nth(MANY - 1).is_some();
            if !std::mem::replace(&mut self.in_doubt, true) && !many {
                self.lose_overdue(now, out);
                return true;
            }
            (self.silent_since, self.handed_over) = (now, false);
        } else if self.silent == 0 || now < self.next_probe {
            return false;
        }
        self.silent = self.silent.saturating_add(1);
        let backoff = self.age.timeout() * (1 << self.silent.min(6));
        self.next_probe = now + backoff.min(MAX_PROBE_INTERVAL);
        true
    }

    /// This host stood still until now, suspended or stopped: how long anything took meanwhile cannot be told.
    pub fn handle_stop(&mut self, now: Duration) {
        self.known_since = now;
        self.rate.resume();
    }

    /// The path is about to be forgotten, or there is no way to send on it any more: everything in flight is handed back as lost.
    pub fn abandon(&mut self, out: &mut Outcome) {
        (0..self.packets.len()).for_each(|i| self.lose(i, false, out));
        // Nothing has swallowed these.
        self.swallowed.0 = 0;
        self.find_oldest();
    }

    /// The path leads elsewhere from now on: what was in flight is handed back as lost, and unless it is the same host
    /// nothing is known of its links any more (RFC 9000 §9.4). One that is silent stays so until something comes back.
    pub fn handle_move(&mut self, same_host: bool, out: &mut Outcome) {
        self.abandon(out);
        if !same_host {
            // What arrives of it tells of the links before.
            self.base = self.next_sequence();
            self.packets.clear();
            (self.rtt, self.age) = (Rtt::default(), Rtt::default());
            self.reordering = (Duration::ZERO, Duration::ZERO);
            self.rate.handle_move();
        }
    }

    /// Something came back from where the path leads.
    pub fn end_silence(&mut self, now: Duration) {
        if std::mem::take(&mut self.silent) > 0 {
            self.known_since = now;
            if now > self.silent_since + SHORT_SILENCE {
                self.rate.restart();
            } else {
                self.rate.resume();
            }
        }
        (self.last_progress, self.in_doubt) = (now, false);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let probe = (self.silent > 0).then_some(self.next_probe);
        self.overdue_at().into_iter().chain(probe).chain(self.lost_at()).min()
    }

    /// How long from now a report on what is sent now should take at most.
    pub fn report_expected_in(&self) -> Duration {
        self.age.timeout() + self.detour
    }

    /// Whether something is in flight, and nothing was reported for longer than that takes: the path may have died.
    pub fn is_late(&self, now: Duration) -> bool {
        let since = self.oldest().map(|oldest| oldest.at.max(self.last_progress));
        since.is_some_and(|since| now > since + self.report_expected_in())
    }

    /// When the oldest packet in flight is overdue: not while others are acknowledged, for it may yet be.
    fn overdue_at(&self) -> Option<Duration> {
        let oldest = self.oldest().filter(|_| self.silent == 0)?;
        Some(oldest.at.max(self.last_progress) + self.probe_timeout())
    }

    fn probe_timeout(&self) -> Duration {
        self.report_expected_in() + MIN_VARIATION
    }

    /// When the oldest packet in flight is lost, for one that was sent later has arrived: later than that by more than the path
    /// reorders by, or a quarter of a round trip (RFC 8985 §6.2); at once where it does not reorder and a third one has.
    fn lost_at(&self) -> Option<Duration> {
        let overtaken = self.largest_acked?.checked_sub(self.oldest).filter(|by| *by > 0)?;
        let oldest = self.oldest()?;
        let (reordering, _) = self.reordering;
        if reordering.is_zero() && overtaken >= THRESHOLD {
            return Some(oldest.at);
        }
        let patience = reordering.max(self.rtt.smoothed().unwrap_or(INITIAL_RTT) / 4);
        Some(oldest.at + self.newest_age + patience)
    }

    /// Whether nothing has come back for a probe time-out.
    pub fn is_silent(&self) -> bool {
        self.silent > 0
    }

    /// Probe time-outs since something last came back.
    pub fn silences(&self) -> u32 {
        self.silent
    }

    /// The path carries inner packets of IPv6's least MTU in one datagram, or only smaller ones.
    pub fn set_small(&mut self, small: bool) {
        self.small = small;
    }

    /// Whether large packets have stopped to arrive while others did not. Once told, it takes as many again.
    pub fn take_swallowing(&mut self) -> bool {
        let (count, first, last) = self.swallowed;
        let swallows = count >= SWALLOWED && last >= first + SWALLOWED_FOR;
        if swallows {
            self.swallowed.0 = 0;
        }
        swallows
    }

    /// Bytes sent and neither acknowledged nor taken to be lost.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes that may be in flight.
    pub fn window(&self, now: Duration) -> usize {
        self.rate.window(now, self.report_expected_in())
    }

    /// When there will be room, if no report comes before that.
    pub fn room_at(&self, now: Duration) -> Option<Duration> {
        if self.in_flight < self.window(now) {
            return Some(self.rate.next_send());
        }
        let excess = self.rate.transmit_time(self.in_flight - self.window(now));
        let at = now + excess.max(self.rate.patience());
        (self.in_flight < self.window(at)).then_some(at)
    }

    /// Round-trip time.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Packets sent, bytes sent, packets lost.
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.next_sequence(), self.sent_bytes, self.lost_packets)
    }

    fn lose_overdue(&mut self, now: Duration, out: &mut Outcome) {
        let timeout = self.probe_timeout();
        while self.oldest().is_some_and(|p| p.at + timeout <= now) {
            self.lose_oldest(out);
        }
    }

    /// The oldest packet in flight that counts.
    fn oldest(&self) -> Option<&Packet> {
        self.packets.get(self.oldest.checked_sub(self.base)? as usize).filter(|_| self.in_flight > 0)
    }

    fn find_oldest(&mut self) {
        let counts = |p: &Packet| p.state == State::InFlight && p.bytes > 0;
        self.oldest = self.oldest.max(self.base);
        let behind = self.packets.range((self.oldest - self.base) as usize..);
        self.oldest += behind.take_while(|p| !counts(p)).count() as u64;
    }

    fn ack(
        &mut self,
        now: Duration,
        sequence: u64,
        oldest: &mut Option<Duration>,
        out: &mut Outcome,
    ) -> usize {
        let packet = &mut self.packets[(sequence - self.base) as usize];
        let was = std::mem::replace(&mut packet.state, State::Acked);
        if was == State::Acked {
            return 0;
        }
        if packet.bytes > LARGE[usize::from(self.small)] {
            self.swallowed.0 = 0;
            self.large_arrived = self.large_arrived.max(packet.at);
        }
        let bytes = packet.bytes as usize;
        out.progress = true;
        let (at, snapshot, order) = (packet.at, packet.snapshot, packet.order);
        out.probed.extend(packet.probed.take());
        if self.pieces(sequence).all(|piece| piece.state == State::Acked) {
            out.confirmed.extend(order);
        }
        if let State::Lost(counted) = was {
            self.lost_packets -= 1;
            if counted {
                self.rate.handle_found(&snapshot);
            }
            if counted && self.silent == 0 {
                let late = now.saturating_sub(at).saturating_sub(self.newest_age);
                let most = self.rtt.smoothed().unwrap_or(INITIAL_RTT);
                self.reordering =
                    (self.reordering.0.max(late).clamp(LEAST_REORDERING, most.max(LEAST_REORDERING)), now);
            }
            return 0;
        }
        if bytes > 0 {
            *oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
            self.rate.handle_fate(&snapshot, false);
        }
        self.in_flight -= bytes;
        bytes
    }

    fn progress(&mut self, now: Duration, report: &Report, sequence: u64, acked: usize) {
        let packet = &self.packets[(sequence - self.base) as usize];
        let waited = Duration::from_micros(u64::from(report.report_delay));
        // By the peer's clock, which may have been set meanwhile, or lie.
        let least = self.rate.min_rtt().filter(|_| waited > USUAL_WAIT).unwrap_or_default();
        let rtt = now.saturating_sub(packet.at).saturating_sub(waited).max(least);
        let snapshot = packet.snapshot;
        let is_new = self.largest_acked.is_none_or(|l| sequence > l);
        let at = packet.at;
        let arrived_late = self.grown(at, report.arrival);
        if is_new {
            (self.largest_acked, self.newest) = (Some(sequence), (at, report.arrival));
            self.newest_age = now.saturating_sub(at);
            self.forget_reordering(now);
        }
        let before_silence = self.silent > 0 && at < self.silent_since;
        if before_silence && now > at + arrived_late + self.probe_timeout() {
            // It was the report that took long. What it tells was so before the silence.
            self.rate.handle_acked_late(acked);
            return;
        }
        self.end_silence(now);
        // The round trips of what was sent into a silence say when it ended, not how long the path is.
        if is_new && at >= self.known_since {
            self.rtt.add(rtt);
            self.rate.handle_acked(now, acked, &snapshot, report.arrival, rtt, self.in_flight);
        } else {
            self.rate.handle_acked_late(acked);
        }
    }

    /// By how much longer than the newest before it a packet sent at `at` was under way.
    fn grown(&self, at: Duration, arrival: u32) -> Duration {
        let (sent, arrived) = self.newest;
        let between = arrival.wrapping_sub(arrived).cast_signed().max(0).cast_unsigned();
        let between = Duration::from_micros(between.into());
        if self.largest_acked.is_some() {
            between.saturating_sub(at.saturating_sub(sent))
        } else {
            Duration::ZERO
        }
    }

    fn forget_reordering(&mut self, now: Duration) {
        let (by, at) = self.reordering;
        let rtt = self.rtt.smoothed().unwrap_or(INITIAL_RTT);
        if !by.is_zero() && now > at + FORGET_REORDERING * rtt {
            let by = Some(by / 2).filter(|by| *by >= LEAST_REORDERING);
            self.reordering = (by.unwrap_or_default(), now);
        }
    }

    fn detect_lost(&mut self, now: Duration, out: &mut Outcome) {
        self.find_oldest();
        while self.lost_at().is_some_and(|due| due <= now) {
            self.lose_oldest(out);
        }
    }

    /// The oldest in flight is lost, as packets are on any path, unless a silence took it.
    fn lose_oldest(&mut self, out: &mut Outcome) {
        let at = (self.oldest - self.base) as usize;
        let counts = self.silent == 0 && self.packets[at].at >= self.known_since;
        if counts {
            self.rate.handle_fate(&self.packets[at].snapshot, true);
        }
        self.lose(at, counts, out);
        self.find_oldest();
    }

    fn lose(&mut self, i: usize, counted: bool, out: &mut Outcome) {
        let packet = &mut self.packets[i];
        if packet.state != State::InFlight || packet.bytes == 0 {
            return;
        }
        packet.state = State::Lost(counted);
        if packet.bytes > LARGE[usize::from(self.small)] && packet.at > self.large_arrived {
            let (count, first, _) = self.swallowed;
            self.swallowed = (count + 1, if count == 0 { packet.at } else { first }, packet.at);
        }
        self.in_flight -= packet.bytes as usize;
        self.lost_packets += 1;
        self.hand_back(i, out);
    }

    /// The packet that the one at `i` carries a piece of is to be sent again, unless that was said already.
    fn hand_back(&mut self, i: usize, out: &mut Outcome) {
        let packet = &mut self.packets[i];
        let (order, was) = (packet.order, std::mem::replace(&mut packet.handed_back, true));
        if !was && self.pieces(self.base + i as u64).filter(|piece| piece.handed_back).count() == 1 {
            out.lost.extend(order);
        }
    }

    /// What is in flight on a path that is silent is handed back, to be sent over another; it stays in flight here.
    pub fn hand_over(&mut self, out: &mut Outcome) {
        if !std::mem::replace(&mut self.handed_over, true) {
            let in_flight = |i: &usize| self.packets[*i].state == State::InFlight;
            let all: Vec<usize> = (0..self.packets.len()).filter(in_flight).collect();
            all.into_iter().for_each(|i| self.hand_back(i, out));
        }
    }

    /// The packets that carry what the one with `sequence` carries a piece of, that one among them, as far as they are remembered:
    /// what is forgotten arrived, or was taken to be lost long ago.
    fn pieces(&self, sequence: u64) -> impl Iterator<Item = &Packet> {
        let at = (sequence - self.base) as usize;
        let Piece { index, of } = self.packets[at].piece;
        let end = (at + usize::from(of - index)).min(self.packets.len());
        self.packets.range(at.saturating_sub(index.into())..end)
    }

    /// Forgets what is settled, but remembers for a while what was not acknowledged, to notice losses that were none. What takes no room
    /// on the path, as reports, is never lost for certain.
    fn forget(&mut self) {
        let keep = self.largest_acked.unwrap_or(0).saturating_sub(REMEMBERED);
        while let Some(first) = self.packets.front() {
            let awaited = first.state == State::InFlight && first.bytes > 0;
            if awaited || (first.state != State::Acked && self.base >= keep) {
                break;
            }
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.packets.pop_front() {
            self.base += 1;
            if first.state == State::InFlight {
                self.in_flight -= first.bytes as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests;
