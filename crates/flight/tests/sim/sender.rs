//! A sender with SACK, loss detection by the order of transmission (RFC 8985 without its timer), an RTO
//! that is undone if it was spurious, and FS-AT on any base.

use std::collections::VecDeque;
use std::time::Duration;

use flight::{Ack, Additions, FsAt};

use super::base::{Base, Kind};

/// Payload of a packet, and what it is on the link.
pub const MSS: u32 = 1448;
pub const FRAME: usize = 1500;

/// How a flow behaves.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// `None`: the base alone.
    pub fsat: Option<Additions>,
    pub base: Kind,
    pub initial: f64,
    /// The advertised window, packets.
    pub rwnd: u64,
    /// Whether FS-AT's pacing rate is obeyed.
    pub pace: bool,
    /// The application hands over so many packets a second; `None`: always more.
    pub app: Option<f64>,
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
            pace: true,
            app: None,
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
    fate: Fate,
}

/// A sender. Time is that of the simulation.
#[derive(Debug)]
pub struct Sender {
    profile: Profile,
    base: Base,
    pub fsat: Option<FsAt>,
    window: f64,
    una: u64,
    slots: VecDeque<Slot>,
    next_tx: u64,
    newest_tx: u64,
    flying: u64,
    lost: u64,
    recovery: Option<u64>,
    srtt: f64,
    rttvar: f64,
    backoff: u32,
    /// First transmission after an RTO, and the cwnd and ssthresh before it.
    undo: Option<(u64, f64, f64)>,
    pub rto_at: Option<Duration>,
    pub next_send: Duration,
    cwnd_limited: bool,
    app_limited: bool,
    started: Duration,
    pub timeouts: u64,
    pub delivered: u64,
}

impl Sender {
    pub fn new(profile: Profile, now: Duration) -> Sender {
        let limit = profile.rwnd * u64::from(MSS);
        Sender {
            base: Base::new(profile.base, profile.initial),
            fsat: profile.fsat.map(|additions| FsAt::new(additions, now, limit)),
            profile,
            window: profile.initial,
            una: 0,
            slots: VecDeque::new(),
            next_tx: 1,
            newest_tx: 0,
            flying: 0,
            lost: 0,
            recovery: None,
            srtt: 0.0,
            rttvar: 0.0,
            backoff: 0,
            undo: None,
            rto_at: None,
            next_send: now,
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
        if now < self.next_send {
            return None;
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
        self.app_limited = next >= offered;
        (!self.app_limited && (self.slots.len() as u64) < self.profile.rwnd).then_some(next)
    }

    fn transmit(&mut self, now: Duration, seq: u64) -> Packet {
        let slot = Slot { tx: self.next_tx, fate: Fate::Flying };
        let index = (seq - self.una) as usize;
        if index == self.slots.len() {
            self.slots.push_back(slot);
        } else {
            self.slots[index] = slot;
            self.lost -= 1;
        }
        self.next_tx += 1;
        self.flying += 1;
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rto());
        }
        if let Some(rate) = self.pacing_rate() {
            // Two packets at once, as TCP does; sooner is not worth a timer.
            let gap = Duration::from_secs_f64(f64::from(MSS) / rate);
            self.next_send = self.next_send.max(now.saturating_sub(gap)) + gap;
        }
        Packet { seq, tx: slot.tx, sent: now }
    }

    fn pacing_rate(&self) -> Option<f64> {
        let fsat = self.fsat.as_ref().filter(|_| self.profile.pace)?;
        fsat.pacing_rate().map(|rate| rate as f64)
    }

    /// What newly arrived, the newest last.
    pub fn handle_ack(&mut self, now: Duration, arrived: &[Packet]) {
        let before = self.delivered;
        for packet in arrived {
            self.arrive(packet);
        }
        let Some(newest) = arrived.last() else { return };
        let rtt = (now - newest.sent).as_secs_f64();
        self.measure_rtt(rtt);
        self.undo_spurious(arrived);
        let was_recovering = self.recovery.is_some();
        self.advance();
        let lost = self.detect();
        if lost > 0 && self.recovery.is_none() {
            self.enter_recovery();
        }
        let packets = self.delivered - before;
        if self.recovery.is_some() {
            self.base.cwnd =
                (self.base.cwnd - packets as f64 / 2.0).max(self.base.ssthresh.min(self.base.cwnd));
        }
        let growing = self.base.cwnd < self.base.ssthresh || !was_recovering;
        if packets > 0 && self.cwnd_limited && growing {
            self.base.grow(now.as_secs_f64(), packets as f64, self.srtt);
            self.base.cwnd = self.base.cwnd.min(self.profile.rwnd as f64);
        }
        self.tell_fsat(now, rtt, packets);
        self.rto_at = (!self.slots.is_empty()).then(|| now + self.rto());
    }

    fn arrive(&mut self, packet: &Packet) {
        self.newest_tx = self.newest_tx.max(packet.tx);
        let Some(index) = packet.seq.checked_sub(self.una) else { return };
        let slot = &mut self.slots[index as usize];
        match slot.fate {
            Fate::Flying => self.flying -= 1,
            Fate::Lost => self.lost -= 1,
            Fate::Arrived => return,
        }
        slot.fate = Fate::Arrived;
        self.delivered += 1;
    }

    fn measure_rtt(&mut self, rtt: f64) {
        if self.srtt == 0.0 {
            (self.srtt, self.rttvar) = (rtt, rtt / 2.0);
        } else {
            self.rttvar += ((rtt - self.srtt).abs() - self.rttvar) / 4.0;
            self.srtt += (rtt - self.srtt) / 8.0;
        }
        self.backoff = 0;
    }

    /// An original arrives after the RTO said it was lost.
    fn undo_spurious(&mut self, arrived: &[Packet]) {
        let Some((first, cwnd, ssthresh)) = self.undo else { return };
        self.undo = None;
        if arrived[0].tx < first {
            (self.base.cwnd, self.base.ssthresh) = (self.base.cwnd.max(cwnd), ssthresh);
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
            self.una += 1;
        }
        if self.recovery.is_some_and(|point| self.una >= point) {
            self.recovery = None;
            self.base.cwnd = self.base.cwnd.min(self.base.ssthresh);
        }
    }

    /// Packets newly judged lost: three sent later have arrived.
    fn detect(&mut self) -> u64 {
        let mut lost = 0;
        for slot in self.slots.iter_mut() {
            if slot.fate == Fate::Flying && slot.tx + 3 <= self.newest_tx {
                slot.fate = Fate::Lost;
                lost += 1;
            }
        }
        self.flying -= lost;
        self.lost += lost;
        lost
    }

    fn enter_recovery(&mut self) {
        self.recovery = Some(self.una + self.slots.len() as u64);
        let ssthresh = self.judge();
        self.base.reduced(ssthresh);
    }

    fn judge(&mut self) -> f64 {
        let cut = self.base.cut();
        let (cwnd, ssthresh) = (self.base.cwnd, self.base.ssthresh);
        let bytes = |packets: f64| (packets * f64::from(MSS)) as u64;
        self.fsat.as_mut().map_or(cut, |fsat| {
            let new = fsat.on_loss(bytes(cwnd), bytes(ssthresh.min(2e6)), MSS);
            new as f64 / f64::from(MSS)
        })
    }

    fn tell_fsat(&mut self, now: Duration, rtt: f64, packets: u64) {
        self.window = self.base.cwnd;
        let Some(fsat) = &mut self.fsat else { return };
        let cwnd = (self.base.cwnd * f64::from(MSS)) as u64;
        fsat.on_ack(
            now,
            &Ack {
                rtt: Some(Duration::from_secs_f64(rtt)),
                delivered: packets * u64::from(MSS),
                flight: (self.flying + self.lost) * u64::from(MSS),
                cwnd,
                cwnd_max: self.profile.rwnd * u64::from(MSS),
                mss: MSS,
                app_limited: self.app_limited,
            },
        );
        let window = fsat.window(cwnd);
        if window < cwnd {
            self.window = window as f64 / f64::from(MSS);
        }
    }

    fn rto(&self) -> Duration {
        if self.srtt == 0.0 {
            return Duration::from_secs(1);
        }
        let rto = self.srtt + (4.0 * self.rttvar).max(0.2);
        Duration::from_secs_f64((rto * f64::from(1 << self.backoff.min(6))).min(60.0))
    }

    /// The RTO expired.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.timeouts += 1;
        if self.backoff == 0 {
            let before = (self.base.cwnd, self.base.ssthresh);
            let ssthresh = self.judge();
            self.base.reduced(ssthresh);
            self.undo = Some((self.next_tx, before.0, before.1));
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.fate == Fate::Flying) {
            slot.fate = Fate::Lost;
        }
        self.lost += self.flying;
        self.flying = 0;
        (self.base.cwnd, self.window) = (1.0, 1.0);
        self.recovery = Some(self.una + self.slots.len() as u64);
        self.backoff += 1;
        self.rto_at = Some(now + self.rto());
        self.next_send = now;
    }
}
