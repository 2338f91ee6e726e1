//! How much one path may have in flight, and how fast: what the path has been seen to need.
//!
//! A model of the path as BBR's (draft-cardwell-iccrg-bbr-congestion-control-00 §4): r, the greatest delivery rate of the last
//! rounds; t, how long ago the newest packet that was reported was sent, no longer than a report may take; q, how long that one
//! waited on the path beyond jitter, by its one-way delay; m, the least round trip of the last round without such a wait. In flight is
//! r · max(m, t − q), a tenth more for probes, and one packet. So what has arrived and is not reported yet makes room for more, whether
//! the way back is long or full or releases reports in bunches; a queue on the path takes it. Delivery rates are sampled as draft-cheng-iccrg-delivery-rate-estimation-02 has them, but the time in which
//! packets arrived is taken from the receiver's clock, so that a slow or bunched way back does not blur it.
//!
//! A queue is told by the one-way delay, for the way back is no part of the path: were both ways full, each end would take the
//! other's queue for a longer path. Clocks drift and step, but no packet waits for longer than its round trip exceeds the least one.
//!
//! Two signs say that the model is too great. A queue, where *every* packet of a round is too long (one long delay proves nothing):
//! then only the last round counts, and a round ends after a few least round trips, for a queue would make it as long as itself.
//! And losses beyond the path's own, for a policer holds no queue and lets pass at once what its bucket holds: the more is lost
//! of the last packets, the less the greatest rate counts, and the more what was delivered on the average. The path's own loss
//! is what is lost even of packets that are sent at less than its rate: sending less does not help there, so the path carries
//! what it carries however much it loses.
//!
//! A queue that stands although next to nothing of this end's is in flight is another's. There the model would take ever less, so
//! the path has in flight at least what a CUBIC flow would, until two probes in a row find the same delay.

use std::collections::VecDeque;
use std::time::Duration;

use super::cubic::Cubic;

/// Growth per round trip that doubles the rate each time: 2/ln 2.
const STARTUP_GAIN: f64 = 2.885;
/// In-flight limit over the bandwidth-delay product meanwhile: at most as much again queues on the path.
const STARTUP_WINDOW: f64 = 2.0;
/// Pacing gains, one round each: probe for more, drain what the probe queued, cruise.
const CYCLE: [f64; 4] = [1.25, 0.9, 1.0, 1.0];
/// In-flight limit over the bandwidth-delay product after start-up.
const WINDOW: f64 = 1.1;
/// A probe that found so much more is followed by another.
const GREW: f64 = 1.05;
/// Rounds over which the greatest delivery rate counts.
const ROUNDS: u64 = 10;
/// A round ends after so many of the path's least round trips at the latest.
const LONGEST_ROUND: u32 = 4;
/// How long the path's times count if no packet comes near the least delay.
const MIN_RTT_LIFE: Duration = Duration::from_secs(10);
/// For so long, and a round trip, half of the window is left empty, to see the delay without a queue of this end's.
const PROBE_RTT: Duration = Duration::from_millis(100);
/// A queue for so many rounds running is none: the path has become longer, or the queue is another's.
const LONGER: u32 = 5;
/// Round trips vary by so much for reasons that are no queue: reports and timers.
const SLACK: Duration = Duration::from_millis(6);
/// In flight before anything was measured, packets: as TCP's initial window (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// Where such a share is lost beyond the path's own loss, the path carries no more than it delivers on the average.
const EXCESS_LOSS: f64 = 0.1;
/// No path's own loss is taken for more.
const MOST_OWN_LOSS: f64 = 0.5;
/// After a pause so many bytes go at once.
const CREDIT: f64 = 4.0 * PACKET;
/// What a path carries meanwhile goes at once, so that nothing wakes for each packet.
const BURST: Duration = Duration::from_micros(500);
/// Bytes of a full packet.
const PACKET: f64 = 1400.0;

/// What the path had delivered when a packet was sent: kept with the packet until it is acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    sent: Duration,
    delivered: u64,
    /// The receiver's clock at the arrival that `delivered` counts up to, µs.
    delivered_arrival: u32,
    first_sent: Duration,
    app_limited: bool,
    /// Sent at less than the path's rate.
    easy: bool,
    /// Sent at no more than it.
    calm: bool,
}

/// What happened in a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    number: u64,
    /// `delivered` at which it ends.
    end: u64,
    /// The receiver's clock when it began, µs, if it is worth measuring.
    arrival: Option<u32>,
    min_rtt: Option<Duration>,
    min_delay: Option<u32>,
    /// The least round-trip time without a queue on the path: what the reports wait for on their way back is part of it.
    trip: Option<Duration>,
    app_limited: bool,
    acked: u32,
    lost: u32,
    /// The most bytes that were in flight.
    in_flight: usize,
    /// Bytes of the largest data packet.
    packet: usize,
    /// The share lost before it, if that was measured.
    loss_before: Option<f64>,
}

/// One path's model.
#[derive(Debug, Default)]
pub struct Rate {
    /// It was full once, or lossy: the start is over.
    was_full: bool,
    delivered: u64,
    delivered_arrival: u32,
    first_sent: Duration,
    /// `delivered` until which a want of data shows.
    app_limited_until: u64,
    /// The one that goes on, and the last.
    round: Round,
    last_round: Round,
    /// (round, bytes/s), falling: the first is the greatest.
    max: Greatest,
    /// What was delivered meanwhile that the losses are counted of.
    mean: Mean,
    min_rtt: Option<(Duration, Duration)>,
    /// The one-way delay without anybody's queue, as far as known, and what the last probe found, µs, with an unknown offset.
    shortest: Option<u32>,
    probed: Option<u32>,
    /// A probe of the round trip has begun, which the peer's other paths have not joined yet.
    calls_others: bool,
    /// What a CUBIC flow would have in flight, while another's queue stands.
    competing: Option<Cubic>,
    /// The least one-way delay since it was measured anew, likewise.
    min_delay: Option<u32>,
    probe_rtt_until: Option<Duration>,
    /// Rounds running that showed a queue.
    queued_rounds: u32,
    /// How much one-way delays vary: the mean of their successive differences, whose peaks decay slowly.
    jitter: Duration,
    /// The last one-way delay, µs, and round trip.
    last_delay: Option<(u32, Duration)>,
    /// How long the newest packet that was reported waited on the path, beyond jitter.
    queue: Duration,
    full: (f64, u8),
    /// The place in [`CYCLE`], since when, and the rate before the probe.
    cycle: (usize, Duration, f64),
    next_send: Duration,
    /// The pacer alone held back what waited when this was asked last: what goes later than it says is late because this host is.
    held: bool,
    /// The share of packets lost, and of those that were sent at less than the path's rate.
    loss: Share,
    own_loss: Share,
}

impl Rate {
    /// Delivery rate in bytes per second, once one was measured.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let max = self.max.get()?;
        let mean = self.mean.get().map_or(max, |mean| mean.min(max));
        Some(mean + (max - mean) * self.trust())
    }

    /// How much the greatest rate counts, 0 to 1.
    fn trust(&self) -> f64 {
        // Before the path was full once, all that was lost before the round is its own.
        let own = if self.was_full { Some(self.own_loss.value) } else { self.round.loss_before };
        own.map_or(1.0, |own| (1.0 - (self.loss.value - own) / EXCESS_LOSS).clamp(0.0, 1.0))
    }

    /// What the path may carry, bytes per second: what it did, or as much as it is asked for until it was full once.
    pub fn perhaps(&self) -> f64 {
        if self.was_full { self.taken().unwrap_or(0.0) } else { self.pacing() }
    }

    /// Whether it was never full, so that it may carry more than has been seen.
    pub fn is_starting(&self) -> bool {
        !self.was_full
    }

    /// The delivery rate while all of the path is used: there is no want of data, or a queue stands.
    pub fn capacity(&self) -> Option<f64> {
        let full = self.was_full && (!self.wants() || self.queued_rounds > 0);
        self.bytes_per_second().filter(|_| full)
    }

    /// Whether what is acknowledged now was sent for want of more.
    fn wants(&self) -> bool {
        self.delivered < self.app_limited_until
    }

    /// The least round-trip time of the path.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|m| m.0)
    }

    /// The least round-trip time, with the queue of others that the last probe found.
    pub fn base_rtt(&self) -> Option<Duration> {
        let others = self.min_delay.zip(self.shortest).map(|(delay, shortest)| longer(delay, shortest));
        Some(self.min_rtt()? + others.unwrap_or_default())
    }

    /// The least round-trip time of the last round, without this end's queue on the path.
    pub fn trip(&self) -> Option<Duration> {
        self.last_round.trip.or(self.min_rtt())
    }

    /// By how much a round trip is longer than the least, without a queue.
    pub fn jitter(&self) -> Duration {
        2 * self.jitter
    }

    /// The share of packets that are lost, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.loss.value
    }

    /// What the path takes, bytes per second, to deliver what it delivers.
    fn taken(&self) -> Option<f64> {
        Some(self.bytes_per_second()? / (1.0 - self.own_loss.value.min(MOST_OWN_LOSS)))
    }

    /// Bytes that may be in flight, of which a report takes `expected` at most.
    pub fn window(&self, now: Duration, expected: Duration) -> usize {
        let (Some(rate), Some(trip)) = (self.taken(), self.trip()) else {
            return self.initial_window() as usize;
        };
        let unreported = now.saturating_sub(self.first_sent).min(expected).saturating_sub(self.queue);
        let full = rate * trip.max(unreported).as_secs_f64();
        let window = match (self.probe_rtt_until, self.was_full) {
            (Some(_), _) => rate * self.min_rtt().unwrap_or(trip).as_secs_f64() / 2.0,
            (None, false) => {
                // Reports may wait for longer than a short path takes.
                let reported = WINDOW * rate * trip.max(unreported.min(trip + SLACK)).as_secs_f64();
                let twice = STARTUP_WINDOW * rate * (trip + self.jitter()).as_secs_f64();
                twice.max(reported).max(self.initial_window())
            }
            (None, true) => (WINDOW * full).max(self.competing_window()),
        };
        (window + self.packet()) as usize
    }

    /// How long to wait for room at least, so that nothing wakes for each packet: as long as a timer may be late, but no longer than a
    /// round trip, for a report may come by then, and put off whatever waits for it.
    pub fn patience(&self) -> Duration {
        self.credit().min(self.trip().unwrap_or_default().max(BURST))
    }

    /// Bytes of the largest data packet of late. Ten full packets in place of ten acknowledgements would stand for half a second in an
    /// uplink of 256 kbit/s, and two for a tenth.
    fn packet(&self) -> f64 {
        match self.round.packet.max(self.last_round.packet) {
            0 => PACKET,
            bytes => bytes as f64,
        }
    }

    fn initial_window(&self) -> f64 {
        INITIAL_WINDOW * self.packet()
    }

    /// When the pacer lets the next packet go.
    pub fn next_send(&self) -> Duration {
        self.next_send
    }

    /// Whether what does not wait for window and pacer may go: it is ahead of them by no more than the pacer may be late.
    pub fn may_hurry(&self, now: Duration, in_flight: usize, window: usize) -> bool {
        in_flight < window + CREDIT as usize && self.next_send <= now + self.credit()
    }

    /// A timer that fires late costs no rate, up to a few milliseconds.
    pub fn credit(&self) -> Duration {
        Duration::from_millis(4).max(Duration::from_secs_f64(CREDIT / self.pacing()))
    }

    /// Bytes that may go in one burst.
    pub fn burst(&self) -> usize {
        (self.pacing() * BURST.as_secs_f64()) as usize
    }

    /// How long `bytes` take at the path's rate, as far as it is known.
    pub fn transmit_time(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.perhaps().max(1000.0))
    }

    /// How long a packet sent now waits on the path behind what is in flight.
    pub fn queue_delay(&self, in_flight: usize) -> Duration {
        let Some(min) = self.trip() else { return Duration::ZERO };
        self.transmit_time(in_flight).saturating_sub(min)
    }

    /// Sends a packet: takes its share of the pacer's time. Probes go whatever the window says, so that they show less than the path carries.
    /// What takes no room (`bytes` 0: reports, probes of a size) shows nothing of that.
    pub fn handle_sent(
        &mut self,
        now: Duration,
        bytes: usize,
        in_flight_before: usize,
        is_data: bool,
    ) -> Snapshot {
        if in_flight_before == 0 {
            (self.first_sent, self.queue) = (now, Duration::ZERO);
            // Nothing of this end's queues on the path, so the least delay needs no probe.
            self.min_rtt = self.min_rtt.map(|(min, _)| (min, now));
        }
        if !self.held {
            self.next_send = self.next_send.max(now.saturating_sub(self.credit()));
        }
        self.next_send += Duration::from_secs_f64(bytes as f64 / self.pacing());
        self.round.packet = self.round.packet.max(if is_data { bytes } else { 0 });
        let few = in_flight_before < 2 * PACKET as usize;
        Snapshot {
            sent: now,
            delivered: self.delivered,
            delivered_arrival: self.delivered_arrival,
            first_sent: self.first_sent,
            app_limited: (!is_data && bytes > 0) || self.probe_rtt_until.is_some() || self.wants(),
            easy: few || self.gain() < 1.0,
            calm: few || self.gain() <= 1.0,
        }
    }

    /// Nothing was waiting to be sent though the path had room: what is in flight now shows less than the path carries.
    pub fn handle_app_limited(&mut self, in_flight: usize) {
        self.app_limited_until = self.delivered + in_flight as u64 + 1;
        self.held = false;
    }

    /// The path has no room; `held`: for what waits, by the pacer alone. So a host that runs late sends at the path's rate all the same.
    pub fn handle_full(&mut self, held: bool) {
        self.held = held;
    }

    /// What became of a packet that was sent with this snapshot.
    pub fn handle_fate(&mut self, packet: &Snapshot, lost: bool) {
        self.loss.add(lost);
        if packet.easy {
            self.own_loss.add(lost);
        }
        self.round.acked += u32::from(!lost);
        self.round.lost += u32::from(lost);
        if let Some(cubic) = self.competing.as_mut().filter(|_| lost) {
            cubic.handle_lost(packet.sent);
        }
    }

    /// A packet that was taken to be lost has arrived.
    pub fn handle_found(&mut self, packet: &Snapshot) {
        self.loss.take_back();
        if packet.easy {
            self.own_loss.take_back();
        }
    }

    /// A report acknowledged `acked` bytes; `largest` belongs to the latest sent of them, which arrived at `arrival`
    /// (receiver's clock, µs) and whose round trip took `rtt`. `in_flight` is what remains.
    pub fn handle_acked(
        &mut self,
        now: Duration,
        acked: usize,
        largest: &Snapshot,
        arrival: u32,
        rtt: Duration,
        in_flight: usize,
    ) {
        self.delivered += acked as u64;
        let delay = arrival.wrapping_sub(largest.sent.as_micros() as u32);
        self.measure_jitter(delay, rtt, largest.calm);
        if self.probe_rtt_until.is_some_and(|until| now >= until) {
            self.end_probe_rtt(now, in_flight);
        }
        self.update_min(now, rtt, delay);
        self.compete(now, rtt, delay);
        self.round.app_limited |= largest.app_limited;
        self.round.in_flight = self.round.in_flight.max(acked + in_flight);
        self.sample(largest, arrival);
        self.delivered_arrival = arrival;
        let longest = LONGEST_ROUND * (self.base_rtt().unwrap_or_default() + self.slack());
        let took = self.round.arrival.map_or(Duration::ZERO, |began| longer(arrival, began));
        if largest.delivered >= self.round.end || took > longest {
            self.end_round(now);
        }
        self.first_sent = largest.sent;
        self.advance(now);
    }

    /// A report acknowledged `acked` bytes, all sent before something that was acknowledged earlier.
    pub fn handle_acked_late(&mut self, acked: usize) {
        self.delivered += acked as u64;
    }

    /// The path was silent for a while, and yet delivered what it held: the round shows less than it carries.
    pub fn resume(&mut self) {
        self.round.arrival = None;
    }

    /// The path was silent and answers again: forget its rate, keep its round-trip time.
    pub fn restart(&mut self) {
        *self = Rate {
            delivered: self.delivered,
            delivered_arrival: self.delivered_arrival,
            first_sent: self.first_sent,
            min_rtt: self.min_rtt,
            shortest: self.shortest,
            min_delay: self.min_delay,
            jitter: self.jitter,
            next_send: self.next_send,
            round: Round { end: self.delivered, ..Round::default() },
            ..Rate::default()
        };
    }

    /// The path leads elsewhere now: forget all that was measured.
    pub fn handle_move(&mut self) {
        self.restart();
        (self.min_rtt, self.min_delay, self.shortest) = (None, None, None);
        self.jitter = Duration::ZERO;
    }

    fn sample(&mut self, p: &Snapshot, arrival: u32) {
        if p.delivered == 0 {
            return; // The receiver's clock at the interval's start is not known yet.
        }
        let arrived = Duration::from_micros(u64::from(arrival.wrapping_sub(p.delivered_arrival)));
        let interval = arrived.max(p.sent.saturating_sub(p.first_sent));
        if interval < self.min_rtt().unwrap_or_default().min(Duration::from_millis(1)) || interval.is_zero() {
            return; // Too short to tell.
        }
        let rate = (self.delivered - p.delivered) as f64 / interval.as_secs_f64();
        // A want of data shows no less than the path carries.
        if !p.app_limited || self.bytes_per_second().is_none_or(|max| rate >= max) {
            self.max.add(self.round.number, rate);
        }
    }

    /// What varies while no more is sent than the path carries is no queue of this end's, but for the time that a packet itself takes: a
    /// full one delays a small one that follows. No delay is longer than its round trip: what differs by more is a clock that was set.
    fn measure_jitter(&mut self, delay: u32, rtt: Duration, calm: bool) {
        let (last, before) = self.last_delay.replace((delay, rtt)).unwrap_or((delay, rtt));
        let step = apart(delay, last).min(rtt.max(before));
        let step = step.saturating_sub(self.transmit_time(self.packet() as usize));
        if calm {
            let weight = if step > self.jitter { 8 } else { 64 };
            self.jitter = (self.jitter * (weight - 1) + step) / weight;
        }
    }

    fn update_min(&mut self, now: Duration, rtt: Duration, delay: u32) {
        self.round.min_rtt = self.round.min_rtt.into_iter().chain([rtt]).min();
        self.round.min_delay = Some(least(self.round.min_delay, delay));
        let (min_rtt, since) = self.min_rtt.map_or((rtt, now), |(min, since)| (min.min(rtt), since));
        // No packet waits for longer than its round trip exceeds the least: what a clock did since, drift or step, shows.
        let floor = delay.wrapping_sub((rtt - min_rtt).as_micros() as u32);
        let [min_delay, shortest] = [self.min_delay, self.shortest].map(|known| between(floor, known, delay));
        self.shortest = Some(shortest);
        let queue = longer(delay, min_delay);
        // A least that is too small by so little does not starve the path.
        let trip = rtt.saturating_sub(queue);
        let since = if queue <= trip.mul_f64(WINDOW - 1.0) { now } else { since };
        (self.min_rtt, self.min_delay) = (Some((min_rtt, since)), Some(min_delay));
        self.queue = queue.saturating_sub(self.jitter());
        self.round.trip = self.round.trip.into_iter().chain([trip]).min();
        if self.probe_rtt_until.is_none() && now > since + MIN_RTT_LIFE {
            self.probe_delay(now, rtt, delay);
        }
    }

    /// The path's least delay is measured anew, beginning with `delay`. The least round trip is not: the way back may be full.
    fn probe_delay(&mut self, now: Duration, rtt: Duration, delay: u32) {
        self.probe_rtt_until = Some(now + PROBE_RTT + rtt);
        self.min_rtt = self.min_rtt().map(|min| (min, now));
        self.min_delay = Some(delay);
        self.calls_others = true;
    }

    /// Whether a probe of the round trip has begun since this was asked last.
    pub fn take_call(&mut self) -> bool {
        std::mem::take(&mut self.calls_others)
    }

    /// Joins the probe of another path of the same peer, if a queue stands on this one: it may be the same queue, which goes only if
    /// both send less.
    pub fn join_probe_rtt(&mut self, now: Duration) {
        let Round { min_rtt: Some(rtt), min_delay: Some(delay), .. } = self.last_round else { return };
        if self.probe_rtt_until.is_none() && (self.is_queued(&self.last_round) || self.competing.is_some()) {
            self.probe_delay(now, rtt, delay);
            self.calls_others = false;
        }
    }

    /// The path's least delay was measured anew. A queue that is still there, though this end had next to nothing in flight, is another's.
    /// What two probes agree on is the path itself: others' queues change.
    fn end_probe_rtt(&mut self, now: Duration, in_flight: usize) {
        let drained = in_flight <= self.window(now, Duration::ZERO);
        self.probe_rtt_until = None;
        let queued = std::mem::take(&mut self.queued_rounds) >= LONGER;
        let (Some(delay), Some(shortest)) = (self.min_delay, self.shortest) else { return };
        if self.probed.replace(delay).is_some_and(|last| apart(delay, last) <= self.slack()) {
            self.min_rtt = self.base_rtt().zip(self.min_rtt).map(|(longer, (_, since))| (longer, since));
            self.shortest = Some(delay);
            self.competing = None;
        } else if self.competing.is_none() && queued && drained && self.is_longer(delay, shortest) {
            self.competing = Some(Cubic::new(now, self.last_round.in_flight as f64 / PACKET));
        }
    }

    /// Whether one delay is longer than another by more than varies without a queue.
    fn is_longer(&self, delay: u32, other: u32) -> bool {
        longer(delay, other) > self.slack()
    }

    /// Keeps the window of a path whose queue is another's.
    fn compete(&mut self, now: Duration, rtt: Duration, delay: u32) {
        // A radio that stopped for a moment looks like another's queue; what it held is gone before anything of this end's is lost.
        let gone = self.shortest.is_none_or(|shortest| !self.is_longer(delay, shortest));
        self.competing = self.competing.filter(|cubic| !(gone && cubic.is_in_slow_start()));
        let used = self.round.in_flight.max(self.last_round.in_flight) as f64 / PACKET;
        if let Some(cubic) = &mut self.competing {
            cubic.handle_acked(now, rtt, used);
        }
    }

    /// Whether the path has in flight what a CUBIC flow would, beside another's queue.
    pub fn competes(&self) -> bool {
        self.competing.is_some()
    }

    fn competing_window(&self) -> f64 {
        self.competing.map_or(0.0, |cubic| cubic.window() * PACKET)
    }

    /// Round trips vary by so much without a queue.
    fn slack(&self) -> Duration {
        SLACK + self.jitter()
    }

    fn end_round(&mut self, now: Duration) {
        let round = self.round;
        let queued = self.probe_rtt_until.is_none() && self.is_queued(&round);
        let lossy = self.trust() <= 0.0;
        // A want of data shows less than the path carries, unless it does not carry even that. A round of markers says nothing.
        let says = !round.app_limited || (lossy && round.lost > 0);
        if let Some(began) = round.arrival.filter(|_| says) {
            let took = self.delivered_arrival.wrapping_sub(began);
            self.mean.add(self.delivered - round.end, took, round.acked);
        }
        self.round = Round {
            number: round.number + 1,
            end: self.delivered,
            arrival: Some(self.delivered_arrival),
            loss_before: (self.loss.packets >= REMEMBERED).then_some(self.loss.value),
            ..Round::default()
        };
        // A queue of this end's grows while the path starts, or overflows; else the path has become longer.
        let delays = self.last_round.min_delay.zip(round.min_delay);
        let is_own = delays.is_some_and(|(before, delay)| longer(delay, before) > self.jitter())
            || f64::from(round.lost) > EXCESS_LOSS * f64::from(round.lost + round.acked);
        self.last_round = round;
        // What is not asked for does not age what is known.
        if queued || !round.app_limited {
            self.max.forget(self.round.number, if queued { 1 } else { ROUNDS });
        }
        if self.probe_rtt_until.is_none() {
            self.queued_rounds = if queued { self.queued_rounds + 1 } else { 0 };
        }
        if queued && self.queued_rounds >= LONGER {
            self.probe_delay(now, round.min_rtt.unwrap_or_default(), round.min_delay.unwrap_or_default());
        }
        let rate = self.bytes_per_second().unwrap_or(0.0);
        let filled = round.in_flight as f64 > (WINDOW * self.bdp()).max(self.initial_window() / 2.0);
        self.full = match rate >= self.full.0 * 1.25 {
            true => (rate, 0),
            false => (self.full.0, self.full.1.saturating_add(u8::from(filled && !round.app_limited))),
        };
        // Three rounds that brought no quarter more, or a queue of this end's, or losses.
        if !self.was_full && (self.full.1 >= 3 || (filled && ((self.queued_rounds > 1 && is_own) || lossy))) {
            // What the start has queued drains as a probe's does.
            (self.was_full, self.cycle) = (true, (1, now, rate));
        }
    }

    fn bdp(&self) -> f64 {
        self.taken().unwrap_or(0.0) * self.trip().unwrap_or_default().as_secs_f64()
    }

    fn advance(&mut self, now: Duration) {
        let rate = self.bytes_per_second().unwrap_or(0.0);
        let (at, since, before) = self.cycle;
        let rtt = self.min_rtt().unwrap_or_default().max(SLACK);
        if self.was_full && now >= since + rtt {
            // What a probe finds is reported while the next round drains. While it finds more, another follows: a link that recovers is
            // followed at once.
            let more = at == 1 && rate > GREW * before;
            let next = if more { 0 } else { (at + 1) % CYCLE.len() };
            self.cycle = (next, now, if at == 0 { before } else { rate });
        }
    }

    /// Whether the least delay of a round shows a queue on the path, beyond what jitter and two packets add.
    fn is_queued(&self, round: &Round) -> bool {
        let (Some(delay), Some(least)) = (round.min_delay, self.min_delay) else { return false };
        let allowed = self.transmit_time(2 * self.packet() as usize);
        let share = self.base_rtt().unwrap_or_default() / 4;
        longer(delay, least) > share + self.slack() + allowed
    }

    fn gain(&self) -> f64 {
        if self.was_full { CYCLE[self.cycle.0] } else { STARTUP_GAIN }
    }

    /// The pace of that window, but for while the round trip is probed.
    fn competing_rate(&self) -> f64 {
        let rtt = self.min_rtt().filter(|_| self.probe_rtt_until.is_none());
        rtt.map_or(0.0, |rtt| self.competing_window() / rtt.max(Duration::from_millis(1)).as_secs_f64())
    }

    /// Bytes per second that the pacer lets go.
    pub fn pacing(&self) -> f64 {
        // Whether losses are the path's own shows only where no more is sent than it delivers.
        let basis = if self.gain() < 1.0 { self.bytes_per_second() } else { self.taken() };
        let rate = (self.gain() * basis.unwrap_or(0.0)).max(self.competing_rate());
        // Until the path was full once, what it delivered is what it was asked for: the initial window goes at once.
        let rtt = self.min_rtt().unwrap_or(Duration::from_millis(10)).max(Duration::from_micros(100));
        let initial = if self.was_full { 1000.0 } else { self.initial_window() / rtt.as_secs_f64() };
        rate.max(initial)
    }
}

/// By how much one delay, µs, with a clock's unknown offset, is longer than another, if it is.
fn longer(delay: u32, other: u32) -> Duration {
    Duration::from_micros(delay.wrapping_sub(other).cast_signed().max(0).unsigned_abs().into())
}

/// How much they differ.
fn apart(delay: u32, other: u32) -> Duration {
    longer(delay, other).max(longer(other, delay))
}

fn least(known: Option<u32>, delay: u32) -> u32 {
    known.filter(|known| longer(*known, delay).is_zero()).unwrap_or(delay)
}

/// What is known of the least delay, or the nearest that is no less than `floor` and no more than `delay`.
fn between(floor: u32, known: Option<u32>, delay: u32) -> u32 {
    least(known.map(|known| if longer(floor, known).is_zero() { known } else { floor }), delay)
}

/// The greatest of what was measured in the last rounds.
#[derive(Debug, Default)]
struct Greatest(VecDeque<(u64, f64)>);

impl Greatest {
    fn get(&self) -> Option<f64> {
        self.0.front().map(|m| m.1)
    }

    fn add(&mut self, round: u64, value: f64) {
        while self.0.back().is_some_and(|m| m.1 <= value) {
            self.0.pop_back();
        }
        self.0.push_back((round, value));
    }

    /// Forgets what is older than `memory` rounds, but for the newest.
    fn forget(&mut self, round: u64, memory: u64) {
        while self.0.len() > 1 && self.0.front().is_some_and(|m| m.0 + memory < round) {
            self.0.pop_front();
        }
    }
}

/// What was delivered in the last rounds, of about [`REMEMBERED`] packets: bytes, and the seconds that took.
#[derive(Debug, Default)]
struct Mean(f64, f64);

impl Mean {
    fn add(&mut self, bytes: u64, micros: u32, packets: u32) {
        let kept = (1.0 - f64::from(packets) / f64::from(REMEMBERED)).max(0.0);
        *self = Mean(self.0 * kept + bytes as f64, self.1 * kept + f64::from(micros) / 1e6);
    }

    fn get(&self) -> Option<f64> {
        (self.1 > 0.0).then(|| self.0 / self.1)
    }
}

/// So many packets make a share.
const MEASURED: u32 = 16;
/// About so many of the last ones count.
const REMEMBERED: u32 = 128;

/// A share of packets.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    value: f64,
    packets: u32,
}

impl Share {
    fn add(&mut self, is: bool) {
        self.packets = (self.packets + 1).min(REMEMBERED);
        self.value += (f64::from(u8::from(is)) - self.value) / f64::from(self.packets.max(MEASURED));
    }

    fn take_back(&mut self) {
        self.value = (self.value - 1.0 / f64::from(self.packets.max(MEASURED))).max(0.0);
    }
}
