//! A sender as Linux's: SACK, loss detection by the order of transmission and a probe for a lost tail (RFC 8985),
//! proportional rate reduction (RFC 9937), an RTO that is undone if it was spurious, and FS-AT on any base.

use std::collections::VecDeque;
use std::time::Duration;

use flight::{Ack, Algorithm, Answer, FsAt, Mode};

use super::base::{Base, Kind};

/// Payload of a packet.
pub const MSS: u32 = 1448;
/// What it is on the link, as in the lab. With 1500 it would take exactly a fifteenth of 180 ms on 1 Mbit/s, so that what an
/// ACK lets go would always find the place of what just left, and not be lost.
pub const FRAME: usize = 1514;

/// How a flow behaves.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// `None`: the base alone.
    pub fsat: Option<Algorithm>,
    pub base: Kind,
    pub initial: f64,
    /// The advertised window, packets.
    pub rwnd: u64,
    /// The application hands over so many packets a second; `None`: always more.
    pub app: Option<f64>,
    /// It hands over nothing from then on; `None`: it never ends.
    pub until: Option<Duration>,
    /// Reports instead of ACKs: the receiver tells what arrived every so often.
    pub report: Option<Duration>,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            fsat: None,
            base: Kind::Cubic,
            initial: 10.0,
            rwnd: 4000,
            app: None,
            until: None,
            report: None,
        }
    }
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    pub seq: u64,
    /// Number of the transmission.
    pub tx: u64,
    pub sent: Duration,
    /// The receiver is asked to answer at once.
    pub push: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Flying,
    Arrived,
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    tx: u64,
    sent: Duration,
    fate: Fate,
}

/// What expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timer {
    Retransmission,
    /// Of a tail that may be lost.
    Probe,
    /// Fewer than three packets arrived after one that did not: by now it would have.
    Reordering,
}

/// The rate at which packets leave, bytes per second, if there is one; since when, and the window then.
#[derive(Debug, Clone, Copy)]
struct Pace {
    rate: Option<f64>,
    since: Duration,
    window: f64,
}

/// From a loss until what was sent before has arrived.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    until: u64,
    /// cwnd before; `None` after a timeout, when it grows from one packet.
    reducing: Option<f64>,
    /// Packets since it began.
    arrived: f64,
    sent: f64,
}

/// The RTTs of a round of slow start, by which CUBIC ends it (HyStart).
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    end: u64,
    samples: u32,
    least: f64,
}

/// RACK's reordering window is at most so many quarters of the least RTT.
const REORDERING_MAX: u32 = 16;

/// HyStart works from this cwnd on, and takes so many samples of a round.
const HYSTART_CWND: f64 = 16.0;
const HYSTART_SAMPLES: u32 = 8;

/// A sender. Time is that of the simulation.
#[derive(Debug)]
pub struct Sender {
    profile: Profile,
    base: Base,
    pub fsat: Option<FsAt>,
    window: f64,
    /// `window` is a slowdown's, which the base's cwnd does not follow.
    slowed: bool,
    una: u64,
    slots: VecDeque<Slot>,
    next_tx: u64,
    newest_tx: u64,
    flying: u64,
    lost: u64,
    /// Of `slots`, those that have arrived.
    sacked: usize,
    recovery: Option<Recovery>,
    newest_rtt: f64,
    /// RACK's reordering window in quarters of the least RTT; 0: no reordering seen, three packets are enough.
    reordering: u32,
    rtt_min: f64,
    srtt: f64,
    rttvar: f64,
    backoff: u32,
    /// Before the last loss.
    prior_cwnd: f64,
    /// First transmission after an RTO, and the cwnd and ssthresh before it.
    undo: Option<(u64, f64, f64)>,
    timer: Option<(Duration, Timer)>,
    /// A probe has to be sent, whatever the window; one was sent since the last ACK.
    probe: bool,
    probed: bool,
    round: Round,
    pub next_send: Duration,
    pace: Option<Pace>,
    /// When the first of a pair left, whose second does not wait for pacing.
    first_at: Option<Duration>,
    cwnd_limited: bool,
    app_limited: bool,
    started: Duration,
    pub timeouts: u64,
    pub delivered: u64,
}

impl Sender {
    pub fn new(profile: Profile, now: Duration) -> Sender {
        let limit = (profile.initial * f64::from(MSS)) as u64;
        Sender {
            base: Base::new(profile.base, profile.initial),
            fsat: profile.fsat.map(|algorithm| FsAt::new(algorithm, now, limit)),
            profile,
            window: profile.initial,
            slowed: false,
            una: 0,
            slots: VecDeque::new(),
            next_tx: 1,
            newest_tx: 0,
            flying: 0,
            lost: 0,
            sacked: 0,
            recovery: None,
            newest_rtt: 0.0,
            reordering: 0,
            rtt_min: f64::INFINITY,
            srtt: 0.0,
            rttvar: 0.0,
            backoff: 0,
            prior_cwnd: 0.0,
            undo: None,
            timer: None,
            probe: false,
            probed: false,
            round: Round::default(),
            next_send: now,
            pace: None,
            first_at: None,
            cwnd_limited: false,
            app_limited: false,
            started: now,
            timeouts: 0,
            delivered: 0,
        }
    }

    pub fn cwnd(&self) -> f64 {
        self.base.cwnd
    }

    /// The next packet that may leave at `now`.
    pub fn poll(&mut self, now: Duration) -> Option<Packet> {
        let second = self.first_at.take() == Some(now);
        if now < self.next_send && !second {
            return None;
        }
        self.first_at = (!second).then_some(now);
        if self.probe {
            let last = self.una + (self.slots.len() as u64).saturating_sub(1);
            let seq = self.next_seq(now).unwrap_or(last);
            return Some(self.transmit(now, seq));
        }
        if self.flying as f64 + 1.0 > self.window.max(1.0) {
            self.cwnd_limited = self.base.cwnd <= self.window;
            self.app_limited = false;
            return None;
        }
        let seq = self.next_seq(now)?;
        Some(self.transmit(now, seq))
    }

    fn next_seq(&mut self, now: Duration) -> Option<u64> {
        if self.lost > 0 {
            let index = self.slots.iter().position(|slot| slot.fate == Fate::Lost)?;
            return Some(self.una + index as u64);
        }
        let next = self.una + self.slots.len() as u64;
        let offered = self
            .profile
            .app
            .map_or(u64::MAX, |rate| ((now.saturating_sub(self.started)).as_secs_f64() * rate) as u64);
        self.app_limited = next >= offered || self.profile.until.is_some_and(|until| now >= until);
        (!self.app_limited && (self.slots.len() as u64) < self.profile.rwnd).then_some(next)
    }

    fn transmit(&mut self, now: Duration, seq: u64) -> Packet {
        let slot = Slot { tx: self.next_tx, sent: now, fate: Fate::Flying };
        let index = (seq - self.una) as usize;
        if index == self.slots.len() {
            self.slots.push_back(slot);
            self.flying += 1;
        } else {
            let was = std::mem::replace(&mut self.slots[index], slot);
            if was.fate == Fate::Lost {
                self.lost -= 1;
                self.flying += 1;
            }
        }
        self.next_tx += 1;
        if let Some(recovery) = &mut self.recovery {
            recovery.sent += 1.0;
        }
        if self.probe {
            (self.probe, self.probed) = (false, true);
            self.timer = Some((now + self.rto(), Timer::Retransmission));
        } else if self.timer.is_none_or(|(_, timer)| timer == Timer::Probe) {
            self.set_timer(now);
        }
        if let Some(rate) = self.pace.and_then(|pace| pace.rate) {
            self.next_send = self.next_send.max(now) + Duration::from_secs_f64(f64::from(MSS) / rate);
        }
        Packet { seq, tx: slot.tx, sent: now, push: false }
    }

    fn pacing_rate(&self) -> Option<f64> {
        self.fsat.as_ref()?.pacing_rate().map(|rate| rate as f64)
    }

    /// As often as `pace` in `bpf/fsat.bpf.c`.
    fn set_pace(&mut self, now: Duration) {
        let least = Duration::from_micros(250) + Duration::from_secs_f64(self.rtt_min / 4.0);
        let keeps = |pace: &Pace| now - pace.since < least && self.window <= pace.window * 1.125;
        if !self.pace.as_ref().is_some_and(keeps) {
            self.pace = Some(Pace { rate: self.pacing_rate(), since: now, window: self.window });
        }
    }

    /// What newly arrived, the newest last.
    pub fn handle_ack(&mut self, now: Duration, arrived: &[Packet]) {
        let before = self.delivered;
        for packet in arrived {
            self.arrive(packet);
        }
        let Some(newest) = arrived.last() else { return };
        let rtt = (now - newest.sent).as_secs_f64();
        self.newest_rtt = rtt;
        self.measure_rtt(rtt);
        self.undo_spurious(arrived);
        let before_una = self.una;
        self.advance();
        let advanced = self.una > before_una;
        self.probed = false;
        let lost = self.detect(now);
        if lost > 0 && self.recovery.is_none() {
            self.enter_recovery();
        }
        let packets = self.delivered - before;
        let reducing = self.recovery.is_some_and(|recovery| recovery.reducing.is_some());
        if advanced && self.cwnd_limited && !reducing {
            self.end_slow_start(rtt);
            self.base.grow(now.as_secs_f64(), packets as f64, self.rtt_min);
            self.base.cwnd = self.base.cwnd.min(self.profile.rwnd as f64);
        }
        self.tell_fsat(now, rtt, [packets, lost]);
        self.reduce(packets as f64, advanced && lost == 0);
        self.set_pace(now);
        self.timer = None;
        if !self.slots.is_empty() {
            self.set_timer(now);
        }
    }

    /// CUBIC's own; FS-AT ends slow start by space.
    fn end_slow_start(&mut self, rtt: f64) {
        if self.una > self.round.end {
            self.round = Round { end: self.una + self.slots.len() as u64, samples: 0, least: f64::INFINITY };
        }
        self.round.samples += 1;
        if self.round.samples <= HYSTART_SAMPLES {
            self.round.least = self.round.least.min(rtt);
        }
        let own = self.fsat.is_none() && self.profile.base == Kind::Cubic;
        let later = self.round.least > self.rtt_min + (self.rtt_min / 8.0).clamp(0.004, 0.016);
        let known = self.round.samples >= HYSTART_SAMPLES && self.base.cwnd >= HYSTART_CWND;
        if own && later && known && self.base.cwnd < self.base.ssthresh {
            self.base.ssthresh = self.base.cwnd;
        }
    }

    /// In recovery: what may be in flight on the way to the window.
    fn reduce(&mut self, packets: f64, safe: bool) {
        let others = self.fsat.as_ref().is_none_or(FsAt::leaves_recovery);
        let Some(recovery) = self.recovery.as_mut().filter(|_| others) else { return };
        let Some(prior) = recovery.reducing.filter(|_| packets > 0.0) else { return };
        recovery.arrived += packets;
        let (flying, goal) = (self.flying as f64, self.window.floor());
        let send = if flying > goal {
            (recovery.arrived * goal / prior).ceil() - recovery.sent
        } else {
            let allowed = (recovery.arrived - recovery.sent).max(packets) + f64::from(safe);
            allowed.min(goal - flying)
        };
        let least = if recovery.sent == 0.0 { 1.0 } else { 0.0 };
        self.window = (flying + send.max(least)).max(1.0);
    }

    /// When something expires by itself.
    fn set_timer(&mut self, now: Duration) {
        let open = self.in_order() && self.lost == 0;
        let rto = now + self.rto();
        self.timer = Some((rto, Timer::Retransmission));
        if self.srtt == 0.0 {
            return;
        }
        if let Some(missing) = self.missing().map(|slot| slot.sent) {
            let time = missing + self.patience();
            self.timer = Some((time.max(now), Timer::Reordering));
        } else if open && !self.probed {
            let delayed = if self.slots.len() == 1 { 0.2 } else { 0.002 };
            let time = now + Duration::from_secs_f64(2.0 * self.srtt + delayed);
            self.timer = Some((time.min(rto), Timer::Probe));
        }
    }

    /// No packet has overtaken another, and none was sent again.
    fn in_order(&self) -> bool {
        self.recovery.is_none() && self.sacked == 0
    }

    /// For how long one that was overtaken may still arrive.
    fn patience(&self) -> Duration {
        let window = f64::from(self.reordering.max(1)) * self.rtt_min / 4.0;
        Duration::from_secs_f64(self.newest_rtt + window.min(self.srtt.max(self.rtt_min / 4.0)))
    }

    /// The first packet that has not arrived, but one sent later.
    fn missing(&self) -> Option<&Slot> {
        let overtaken = |slot: &&Slot| slot.fate == Fate::Flying && slot.tx < self.newest_tx;
        if self.in_order() { None } else { self.slots.iter().find(overtaken) }
    }

    /// When something expires.
    pub fn timer_at(&self) -> Option<Duration> {
        self.timer.map(|(time, _)| time)
    }

    fn arrive(&mut self, packet: &Packet) {
        if packet.tx < self.newest_tx {
            self.reordering = self.reordering.max(1);
        }
        self.newest_tx = self.newest_tx.max(packet.tx);
        let Some(index) = packet.seq.checked_sub(self.una) else { return };
        let slot = &mut self.slots[index as usize];
        if packet.tx < slot.tx {
            self.reordering = (self.reordering + 1).min(REORDERING_MAX); // what was sent again was not lost
        }
        match slot.fate {
            Fate::Flying => self.flying -= 1,
            Fate::Lost => self.lost -= 1,
            Fate::Arrived => return,
        }
        slot.fate = Fate::Arrived;
        self.sacked += 1;
        self.delivered += 1;
    }

    fn measure_rtt(&mut self, rtt: f64) {
        if self.srtt == 0.0 {
            (self.srtt, self.rttvar) = (rtt, rtt / 2.0);
        } else {
            self.rttvar += ((rtt - self.srtt).abs() - self.rttvar) / 4.0;
            self.srtt += (rtt - self.srtt) / 8.0;
        }
        self.rtt_min = self.rtt_min.min(rtt);
        self.backoff = 0;
    }

    /// An original arrives after the RTO said it was lost.
    fn undo_spurious(&mut self, arrived: &[Packet]) {
        let Some((first, cwnd, ssthresh)) = self.undo else { return };
        self.undo = None;
        if arrived[0].tx < first {
            (self.base.cwnd, self.base.ssthresh) = (self.base.cwnd.max(cwnd), ssthresh);
            if let Some(fsat) = &mut self.fsat {
                fsat.undo((cwnd * f64::from(MSS)) as u64);
            }
            for slot in self.slots.iter_mut().filter(|slot| slot.fate == Fate::Lost) {
                slot.fate = Fate::Flying;
                self.lost -= 1;
                self.flying += 1;
            }
            self.recovery = None;
        }
    }

    fn advance(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.fate == Fate::Arrived) {
            self.slots.pop_front();
            self.sacked -= 1;
            self.una += 1;
        }
        if self.recovery.is_some_and(|recovery| self.una >= recovery.until) {
            self.recovery = None;
        }
    }

    /// Packets newly judged lost: one sent later has arrived, in recovery, or three have, or it is long ago.
    fn detect(&mut self, now: Duration) -> u64 {
        if self.in_order() {
            return 0;
        }
        let at_once = self.reordering == 0 && (self.recovery.is_some() || self.sacked >= 3);
        let patience = self.patience();
        let mut lost = 0;
        for slot in self.slots.iter_mut() {
            if slot.fate == Fate::Flying
                && slot.tx < self.newest_tx
                && (at_once || now >= slot.sent + patience)
            {
                slot.fate = Fate::Lost;
                lost += 1;
            }
        }
        self.flying -= lost;
        self.lost += lost;
        lost
    }

    fn enter_recovery(&mut self) {
        let until = self.una + self.slots.len() as u64;
        self.recovery = Some(Recovery { until, reducing: Some(self.base.cwnd), arrived: 0.0, sent: 0.0 });
        self.judge();
        self.base.cwnd = self.base.cwnd.min(self.base.ssthresh);
    }

    /// ssthresh after a loss. What the radio loses, the base does not hear of.
    fn judge(&mut self) {
        let (cwnd, ssthresh) = (self.base.cwnd, self.base.ssthresh);
        self.prior_cwnd = cwnd;
        let bytes = |packets: f64| (packets * f64::from(MSS)) as u64;
        let packets = |bytes: u64| (bytes as f64 / f64::from(MSS)).floor().max(2.0);
        let fsat = self.fsat.as_mut();
        match fsat.map(|fsat| fsat.on_loss(bytes(cwnd), bytes(ssthresh.min(2e6)), MSS)) {
            Some(Answer::Spared(ssthresh)) => self.base.ssthresh = packets(ssthresh),
            Some(Answer::Reduce { least, base }) => {
                let cut = if base { self.base.cut() } else { 0.0 };
                self.base.reduce(packets(least).max(cut));
            }
            None => self.base.reduce(self.base.cut()),
        }
    }

    /// `reduce` in `bpf/fsat.bpf.c`.
    fn reduce_late(&mut self) {
        let cwnd = self.base.cwnd;
        if self.recovery.is_some_and(|recovery| recovery.reducing.is_none()) {
            self.base.cwnd = cwnd.max(self.prior_cwnd);
        }
        self.base.reduce(self.base.cut());
        self.base.cwnd = cwnd.min(self.base.ssthresh);
    }

    fn tell_fsat(&mut self, now: Duration, rtt: f64, [packets, lost]: [u64; 2]) {
        let limit = if self.slowed { self.window.floor().max(2.0) } else { self.base.cwnd };
        self.window = self.base.cwnd;
        let Some(fsat) = &mut self.fsat else { return };
        let ack = Ack {
            rtt: Some(Duration::from_secs_f64(rtt)),
            delivered: packets * u64::from(MSS),
            lost: lost * u64::from(MSS),
            flight: (self.flying + self.lost) * u64::from(MSS),
            cwnd: (limit * f64::from(MSS)) as u64,
            cwnd_max: self.profile.rwnd * u64::from(MSS),
            mss: MSS,
            app_limited: self.app_limited,
        };
        if fsat.on_ack(now, &ack) {
            self.reduce_late();
        }
        let Some(fsat) = &self.fsat else { return };
        let cwnd = (self.base.cwnd * f64::from(MSS)) as u64;
        let window = fsat.window(cwnd);
        if window != cwnd {
            self.window = window as f64 / f64::from(MSS);
        }
        let state = fsat.state();
        self.slowed = state.mode == Mode::Own && window < state.space;
        if state.mode == Mode::Own && !self.slowed {
            self.base.cwnd = self.window.floor().max(2.0);
        }
    }

    fn rto(&self) -> Duration {
        if self.srtt == 0.0 {
            return Duration::from_secs(1);
        }
        let rto = self.srtt + (4.0 * self.rttvar).max(0.2);
        Duration::from_secs_f64((rto * f64::from(1 << self.backoff.min(6))).min(60.0))
    }

    /// What was set expired.
    pub fn handle_timeout(&mut self, now: Duration) {
        match self.timer.take() {
            Some((_, Timer::Probe)) => self.probe = true,
            Some((_, Timer::Reordering)) => {
                if self.detect(now) > 0 && self.recovery.is_none() {
                    self.enter_recovery();
                    self.window = self.flying as f64 + 1.0;
                }
                self.set_timer(now);
            }
            _ => self.time_out(now),
        }
    }

    fn time_out(&mut self, now: Duration) {
        self.timeouts += 1;
        if self.backoff == 0 {
            let before = (self.base.cwnd, self.base.ssthresh);
            self.judge();
            self.undo = Some((self.next_tx, before.0, before.1));
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.fate == Fate::Flying) {
            slot.fate = Fate::Lost;
        }
        self.lost += self.flying;
        self.flying = 0;
        let until = self.una + self.slots.len() as u64;
        self.recovery = Some(Recovery { until, reducing: None, arrived: 0.0, sent: 0.0 });
        self.prior_cwnd = self.prior_cwnd.max(self.base.cwnd);
        if self.fsat.as_mut().is_some_and(|fsat| fsat.on_timeout(MSS.into(), MSS)) {
            self.reduce_late();
        }
        self.base.time_out();
        self.window = 1.0;
        self.backoff += 1;
        self.timer = Some((now + self.rto(), Timer::Retransmission));
        self.next_send = now;
    }
}
