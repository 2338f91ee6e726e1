//! What an acknowledgement does to a sender, as Linux's `tcp_ack`.

use std::time::Duration;

use crate::bbr::Seen;
use crate::cubic::Sample;
use crate::rate::RateSample;
use crate::recovery::Told;
use crate::sender::{Control, Next, Sender, Timer};
use crate::state::State;

/// An acknowledgement, in bytes from the first of data.
#[derive(Debug, Clone, Default)]
pub struct Acknowledgement {
    /// The next byte expected.
    pub ack: u64,
    /// The receiver's window.
    pub window: u64,
    /// What arrived beyond, or twice, the newest first.
    pub blocks: Vec<(u64, u64)>,
    /// The timestamp echoed, ms.
    pub echo: Option<u32>,
}

/// What was found while the acknowledgement was read.
#[derive(Debug, Default)]
struct Found {
    /// Round trips of the first and last segment acknowledged in order, and of those SACKed; retransmissions do not count.
    first: Option<Duration>,
    last: Option<Duration>,
    first_sacked: Option<Duration>,
    last_sacked: Option<Duration>,
    /// A retransmission was acknowledged.
    again: bool,
    /// The lowest segment that was overtaken.
    overtaken: Option<u64>,
}

impl Sender {
    /// An acknowledgement arrives.
    pub fn handle_ack(&mut self, now: Duration, ack: &Acknowledgement) {
        let acked = if ack.ack >= self.total { self.segments() } else { ack.ack / self.mss };
        if acked > self.end() {
            return;
        }
        let (before_una, before_delivered, before_lost) = (self.una, self.rate.delivered, self.rate.lost);
        let mut sample = RateSample::default();
        sample.prior_in_flight = self.in_flight();
        let mut told = Told { advanced: acked > self.una, echo: ack.echo, ..Told::default() };
        let mut found = Found::default();
        let sacked_before = self.sacked_before;
        if told.advanced {
            (self.backoff, self.expired) = (0, 0);
        }
        // A pure acknowledgement that does not advance can only widen the window.
        let edge = ack.ack + ack.window;
        if told.advanced || (acked == self.una && edge > self.edge) {
            self.edge = edge;
        }
        let had_out = !self.slots.is_empty();
        self.read_blocks(now, ack, acked, &mut sample, &mut told, &mut found);
        let prior_sacked = self.sacked_out;
        self.take_acknowledged(now, acked, sacked_before, &mut sample, &mut told, &mut found);
        told.duplicate = !told.advanced && told.newly_sacked;
        self.note_reordering(&found);
        let delivered = self.rate.delivered - before_delivered;
        sample.maybe_delayed =
            told.advanced && self.una - before_una == 1 && prior_sacked == 0 && delivered == 1;
        let rearm = self.measure(now, &mut sample, &told, &found, ack.echo);
        if !had_out {
            self.probe_closed_window(now);
            return;
        }
        if told.duplicate_reported || told.advanced || told.newly_sacked {
            self.rack_widen(sample.prior_delivered());
        }
        self.end_probe(acked, &told);
        if rearm || (told.advanced && matches!(self.timer, Some((_, Timer::Probe)))) {
            self.schedule(now);
        }
        if !told.advanced && !told.newly_sacked && self.state == State::Open && !told.duplicate_reported {
            return;
        }
        if self.state != State::Loss {
            self.next = Next::Lost;
        }
        self.judge(now, &mut told);
        self.rate.finish(now, &mut sample, before_delivered, self.rtt.min());
        sample.lost = self.rate.lost - before_lost;
        self.control(now, &sample, &told);
        if self.slots.is_empty() {
            self.timer = None;
        }
    }

    /// SACK blocks (`tcp_sacktag_write_queue`), newest segments last.
    fn read_blocks(
        &mut self,
        now: Duration,
        ack: &Acknowledgement,
        acked: u64,
        sample: &mut RateSample,
        told: &mut Told,
        found: &mut Found,
    ) {
        let mut blocks = &ack.blocks[..];
        if let [first, rest @ ..] = blocks {
            let inside = rest.first().is_some_and(|second| second.0 <= first.0 && first.1 <= second.1);
            if first.1 <= ack.ack || inside {
                blocks = rest;
                self.handle_duplicate(*first, told);
            }
        }
        let mut ranges: Vec<_> = blocks
            .iter()
            .map(|(start, end)| ((start.div_ceil(self.mss)).max(acked.max(self.una)), self.segment_end(*end)))
            .filter(|(start, end)| start < end)
            .collect();
        ranges.sort_unstable();
        for (start, end) in ranges {
            for (start, end) in self.note_sacked(start, end) {
                for segment in start..end {
                    self.sack(now, segment, sample, told, found);
                }
            }
        }
    }

    fn segment_end(&self, byte: u64) -> u64 {
        let end = if byte >= self.total { self.segments() } else { byte / self.mss };
        end.min(self.end())
    }

    /// `tcp_dsack_seen`, and what `tcp_check_dsack` makes of it.
    fn handle_duplicate(&mut self, (start, end): (u64, u64), told: &mut Told) {
        let count = (end - start).div_ceil(self.mss);
        self.duplicates += count;
        // The network's own duplicates tell nothing.
        if self.duplicates > self.counters.retransmitted {
            return;
        }
        told.duplicate_reported = true;
        let by_probe = self.probe.is_some_and(|(probed, _)| probed == end.div_ceil(self.mss));
        self.rack.duplicate_seen |= self.rack.reordering_seen && !by_probe;
        self.rate.delivered += count;
        if self.undo.is_some_and(|from| end > from * self.mss) {
            self.undo_again = self.undo_again.map(|again| again.saturating_sub(count));
        }
    }

    /// What of it was not known to have arrived.
    fn note_sacked(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut new = Vec::new();
        let mut merged = (start, end);
        let mut at = start;
        let touching: Vec<_> = self
            .sacked
            .range(..=end)
            .rev()
            .take_while(|(_, to)| **to >= start)
            .map(|(from, to)| (*from, *to))
            .collect();
        for &(from, to) in touching.iter().rev() {
            if from > at {
                new.push((at, from.min(end)));
            }
            at = at.max(to);
            merged = (merged.0.min(from), merged.1.max(to));
            self.sacked.remove(&from);
        }
        if at < end {
            new.push((at, end));
        }
        self.sacked.insert(merged.0, merged.1);
        new
    }

    fn sack(
        &mut self,
        now: Duration,
        segment: u64,
        sample: &mut RateSample,
        told: &mut Told,
        found: &mut Found,
    ) {
        let highest = self.sacked_before;
        let slot = &mut self.slots[(segment - self.una) as usize];
        if slot.sacked {
            return;
        }
        slot.sacked = true;
        let (sent, tx, ever) = (slot.sent, slot.tx, slot.ever_again);
        let snapshot = slot.rate;
        let lost = std::mem::replace(&mut slot.lost, false);
        let again = std::mem::replace(&mut slot.again, false);
        self.sacked_out += 1;
        self.lost_out -= u64::from(lost);
        self.again_out -= u64::from(again);
        self.to_repeat.remove(&segment);
        told.newly_sacked = true;
        if !ever {
            if segment < highest {
                found.overtaken = Some(found.overtaken.map_or(segment, |low| low.min(segment)));
            }
            told.orig_sacked |= segment < self.high;
            found.first_sacked.get_or_insert(now - sent);
            found.last_sacked = Some(now - sent);
        }
        self.rate.deliver(sample, &snapshot, sent, tx);
        self.rack_advance(now, sent, tx, ever, was_echoed(told.echo, sent));
        self.sacked_before = self.sacked_before.max(segment + 1);
    }

    /// `tcp_clean_rtx_queue`.
    fn take_acknowledged(
        &mut self,
        now: Duration,
        acked: u64,
        sacked_before: u64,
        sample: &mut RateSample,
        told: &mut Told,
        found: &mut Found,
    ) {
        while self.una < acked {
            let Some(slot) = self.slots.pop_front() else { return };
            let segment = self.una;
            self.una += 1;
            self.to_repeat.remove(&segment);
            self.again_out -= u64::from(slot.again);
            self.lost_out -= u64::from(slot.lost);
            if slot.ever_again {
                found.again = true;
            } else if !slot.sacked {
                found.last = Some(now - slot.sent);
                found.first.get_or_insert(now - slot.sent);
                if segment < sacked_before {
                    found.overtaken = Some(found.overtaken.map_or(segment, |low| low.min(segment)));
                }
                told.orig_sacked |= segment < self.high;
            }
            if slot.sacked {
                self.sacked_out -= 1;
            } else {
                self.rate.deliver(sample, &slot.rate, slot.sent, slot.tx);
                let echoed = was_echoed(told.echo, slot.sent);
                self.rack_advance(now, slot.sent, slot.tx, slot.ever_again, echoed);
            }
        }
        self.refill();
        while let Some((&from, &to)) = self.sacked.first_key_value()
            && from < acked
        {
            self.sacked.remove(&from);
            if to > acked {
                self.sacked.insert(acked, to);
            }
        }
        self.sacked_before = self.sacked_before.max(self.una);
    }

    /// `tcp_check_sack_reordering`.
    fn note_reordering(&mut self, found: &Found) {
        if let Some(low) = found.overtaken {
            self.rack.reordering_seen = true;
            self.reordering = self.reordering.max((self.sacked_before - low).min(300));
        }
    }

    /// `tcp_ack_update_rtt`; whether the timer starts anew.
    fn measure(
        &mut self,
        now: Duration,
        sample: &mut RateSample,
        told: &Told,
        found: &Found,
        echo: Option<u32>,
    ) -> bool {
        let in_order = found.first.filter(|_| !found.again);
        let newest = found.last_sacked.or(found.last.filter(|_| !found.again));
        let echoed = echo.filter(|_| told.advanced).map(|echo| {
            let age = crate::segment::timestamp(now).wrapping_sub(echo);
            Duration::from_millis(u64::from(age).max(1))
        });
        sample.rtt = newest;
        if let Some(rtt) = newest {
            self.rtt.note_min(now, rtt);
        }
        if let Some(rtt) = in_order.or(found.first_sacked).or(echoed) {
            self.rtt.measure(rtt, self.una, self.end());
            self.backoff = 0;
        }
        let rate = self.pacing_rate();
        if let (Control::Cubic(cubic), Some(rtt), Some(rate)) = (&mut self.control, newest, rate) {
            let train = Duration::from_secs_f64(262_144.0 / rate);
            let una = self.una;
            let next = self.una + self.slots.len() as u64;
            cubic.handle_rtt(Sample { now, rtt, una, next, train }, &mut self.window);
        }
        let head_is_older = || matches!((found.first_sacked, self.slots.front()), (Some(rtt), Some(head)) if rtt > now - head.sent);
        told.advanced || head_is_older()
    }

    /// `tcp_cong_control`.
    fn control(&mut self, now: Duration, sample: &RateSample, told: &Told) {
        let in_flight = self.in_flight();
        if let Control::Bbr(bbr) = &mut self.control {
            let (delivered, lost, srtt) = (self.rate.delivered, self.rate.lost, self.rtt.smoothed());
            let seen = Seen { state: self.state, cwnd: self.window.cwnd, in_flight, delivered, lost, srtt };
            self.window.cwnd = bbr.handle_ack(now, sample, &seen);
            if bbr.probes_rtt() {
                self.rate.note_app_limited(in_flight);
            }
            return;
        }
        if self.in_reduction() {
            self.reduce(sample.acked, sample.lost, told.advanced);
            return;
        }
        let forward = told.advanced || (self.reordering > 3 && told.newly_sacked);
        if forward && sample.acked > 0 && self.is_cwnd_limited() {
            let Control::Cubic(cubic) = &mut self.control else { return };
            cubic.grow(now, sample.acked, &mut self.window);
        }
    }
}

/// Whether what was sent at `sent` can be what the timestamp tells of.
fn was_echoed(echo: Option<u32>, sent: Duration) -> bool {
    echo.is_none_or(|echo| echo.wrapping_sub(crate::segment::timestamp(sent)).cast_signed() >= 0)
}
