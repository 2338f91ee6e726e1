//! One station: its queue, and when its turn is (IEEE 802.11-2020 §10.3).

use std::collections::VecDeque;
use std::time::Duration;

use fq_codel::Flows;
use serde::Serialize;

use super::phy::Phy;
use crate::dice::Dice;
use crate::stats::Tally;
use crate::units::PacketCount;

/// A flow's name: IPv4's addresses and the ports behind them, in a frame without options; all others are one flow.
type Flow = [u8; 12];
const FLOW_AT: usize = 26;

/// Whom a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// One station, by its number: with link ACKs, at the data rate.
    Station(usize),
    /// All that can read it: sent once, at the basic rate.
    Broadcast,
}

/// What a station counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct StationStats {
    /// Taken into its queue.
    pub queued: Tally,
    /// On the air, repetitions included.
    pub transmitted: Tally,
    /// Repetitions for want of a link ACK.
    pub repeated: PacketCount,
    /// Given up after the last attempt.
    pub given_up: PacketCount,
    /// Dropped by CoDel, having waited for too long.
    pub dropped: PacketCount,
    /// Read, meant for it.
    pub received: Tally,
    /// Read, meant for another.
    pub overheard: Tally,
}

/// A frame in a station's queue.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: Destination,
    pub(super) frame: Vec<u8>,
    /// Tells a repetition from a new frame at the receiver: in the order of first transmissions; `None` before that.
    pub(super) sequence: Option<u64>,
    /// Failed attempts.
    failures: u32,
}

/// What a station does with the first frame of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for its turn, or for a frame.
    Contending,
    /// Transmits it.
    Sending,
    /// Waits until then for a link ACK to begin.
    Awaiting(Duration),
}

#[derive(Debug)]
pub(super) struct Station {
    /// What waits above the hardware, and how many frames that has at most, if it waits by flow.
    flows: Option<(Flows<Flow, Outgoing>, usize)>,
    pub(super) queue: VecDeque<Outgoing>,
    pub(super) stats: StationStats,
    /// When to answer a transmission, whom, and how many of its frames.
    pub(super) response: Option<(Duration, usize, usize)>,
    /// Frames that its transmission has, the first of its queue.
    pub(super) frames: usize,
    /// The sequence of the last frame read, by sender.
    pub(super) last_read: Vec<Option<u64>>,
    phase: Phase,
    dice: Dice,
    /// Transmissions that failed, since one did not.
    failures: u32,
    /// Slots of backoff left when the medium was last seen to become idle.
    slots: u32,
    /// No slot counts before this: when the last attempt, of whatever frame, was seen to be over.
    counts_from: Duration,
    /// When the first frame of the queue came.
    came: Duration,
    /// Signals of others that are sensed, and one for an own transmission.
    busy: usize,
    /// When `busy` became 0.
    idle_from: Duration,
    /// The network allocation vector: others have reserved the medium until then (§10.3.2.4).
    nav: Duration,
    /// The last signal could not be read, so that EIFS takes the place of DIFS.
    unreadable: bool,
    next_sequence: u64,
}

impl Station {
    pub(super) fn new(dice: Dice, stations: usize, below: Option<usize>) -> Station {
        Station {
            flows: below.map(|below| (Flows::default(), below)),
            queue: VecDeque::new(),
            stats: StationStats::default(),
            response: None,
            frames: 0,
            last_read: vec![None; stations],
            phase: Phase::Contending,
            dice,
            failures: 0,
            slots: 0,
            counts_from: Duration::ZERO,
            came: Duration::ZERO,
            busy: 0,
            idle_from: Duration::ZERO,
            nav: Duration::ZERO,
            unreadable: false,
            next_sequence: 0,
        }
    }

    /// A frame comes into the queue. The first one goes at once if the medium has been idle for long enough, and backs
    /// off if it has not (§10.3.4.2).
    pub(super) fn enqueue(&mut self, now: Duration, to: Destination, frame: Vec<u8>, phy: &Phy) {
        if self.queue.is_empty() {
            self.came = now;
            if self.slots == 0 && (self.busy > 0 || now < self.access(phy)) {
                self.back_off(now, phy);
            }
        }
        let outgoing = Outgoing { to, frame, sequence: None, failures: 0 };
        match &mut self.flows {
            Some((flows, _)) => {
                let flow = outgoing.frame.get(FLOW_AT..).and_then(|from| from.first_chunk().copied());
                flows.push(now, flow.unwrap_or_default(), outgoing.frame.len() as u64, outgoing);
            }
            None => self.queue.push_back(outgoing),
        }
        self.refill(now);
    }

    /// Frames that wait, or are being sent.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + self.flows.as_ref().map_or(0, |(flows, _)| flows.len())
    }

    /// Gives the hardware what it has room for.
    fn refill(&mut self, now: Duration) {
        let Some((flows, below)) = &mut self.flows else { return };
        while self.queue.len() < *below {
            let Some(next) = flows.pop(now, |_| self.stats.dropped += PacketCount(1)) else { break };
            self.queue.push_back(next);
        }
    }

    /// When the first frame of the queue will be transmitted if the medium stays idle.
    pub(super) fn turn(&self, phy: &Phy) -> Option<Duration> {
        let contends = self.phase == Phase::Contending && self.busy == 0 && !self.queue.is_empty();
        contends.then(|| (self.access(phy) + self.slots * phy.slot()).max(self.came))
    }

    /// From when slots are counted.
    fn access(&self, phy: &Phy) -> Duration {
        let space = if self.unreadable { phy.eifs() } else { phy.difs() };
        (self.idle_from.max(self.nav) + space).max(self.counts_from)
    }

    /// When to give up waiting for a link ACK; while something is received, only when that is over.
    pub(super) fn ack_due(&self) -> Option<Duration> {
        match self.phase {
            Phase::Awaiting(until) if self.busy == 0 => Some(until.max(self.idle_from)),
            _ => None,
        }
    }

    /// A signal begins that this station senses or sends: the countdown stops.
    pub(super) fn hear(&mut self, now: Duration, phy: &Phy) {
        if self.busy == 0 {
            let counted = now.saturating_sub(self.access(phy)).as_nanos() / phy.slot().as_nanos();
            self.slots = self.slots.saturating_sub(u32::try_from(counted).unwrap_or(u32::MAX));
        }
        self.busy += 1;
    }

    /// A signal that it sensed or sent is over.
    pub(super) fn hear_end(&mut self, now: Duration) {
        self.busy -= 1;
        if self.busy == 0 {
            self.idle_from = now;
        }
    }

    /// Whether the signal that is just over could be read.
    pub(super) fn note_readable(&mut self, readable: bool) {
        self.unreadable = !readable;
    }

    /// Others have the medium until `until`.
    pub(super) fn reserve(&mut self, until: Duration) {
        self.nav = self.nav.max(until);
    }

    /// Its first frame goes on the air, with others for the same station, `most` at most.
    pub(super) fn begin(&mut self, most: usize) {
        self.slots = 0;
        self.phase = Phase::Sending;
        let Some(to) = self.queue.front().map(|outgoing| outgoing.to) else { return };
        let most = if to == Destination::Broadcast { 1 } else { most };
        self.frames = 0;
        // Those for others keep their order behind them.
        for at in 0..self.queue.len() {
            if self.frames < most && self.queue[at].to == to {
                if let Some(outgoing) = self.queue.remove(at) {
                    self.queue.insert(self.frames, outgoing);
                }
                self.frames += 1;
            }
        }
        for outgoing in self.queue.iter_mut().take(self.frames).filter(|outgoing| outgoing.sequence.is_none())
        {
            outgoing.sequence = Some(self.next_sequence);
            self.next_sequence += 1;
        }
    }

    /// Its first frame has been on the air.
    pub(super) fn sent(&mut self, now: Duration, phy: &Phy) {
        match self.queue.front().map(|outgoing| outgoing.to) {
            Some(Destination::Station(_)) => self.phase = Phase::Awaiting(now + phy.ack_timeout()),
            _ => {
                self.queue.pop_front();
                self.finish(now, phy);
            }
        }
    }

    /// A link ACK for its first `frames` frames was read. Those behind them failed.
    pub(super) fn acknowledged(&mut self, now: Duration, frames: usize, attempts: u32, phy: &Phy) {
        if matches!(self.phase, Phase::Awaiting(_)) {
            self.queue.drain(..frames.min(self.queue.len()));
            self.frames -= frames.min(self.frames);
            self.fail(attempts);
            self.finish(now, phy);
        }
    }

    /// No link ACK came: once more with a doubled window, or no more.
    pub(super) fn unacknowledged(&mut self, now: Duration, attempts: u32, phy: &Phy) {
        self.failures += 1;
        if self.fail(attempts) {
            self.phase = Phase::Contending;
            self.back_off(now, phy);
        } else {
            self.finish(now, phy);
        }
    }

    /// The frames of its transmission go once more, or no more. Whether any does.
    fn fail(&mut self, attempts: u32) -> bool {
        let mut again = false;
        for at in (0..self.frames).rev() {
            self.queue[at].failures += 1;
            if self.queue[at].failures >= attempts {
                self.stats.given_up += crate::PacketCount(1);
                self.queue.remove(at);
            } else {
                self.stats.repeated += crate::PacketCount(1);
                again = true;
            }
        }
        again
    }

    /// Done with a transmission, one way or the other. Before the next, a backoff, even if none waits (§10.3.4.3).
    fn finish(&mut self, now: Duration, phy: &Phy) {
        self.failures = 0;
        self.phase = Phase::Contending;
        self.refill(now);
        self.back_off(now, phy);
    }

    fn back_off(&mut self, now: Duration, phy: &Phy) {
        self.counts_from = now;
        let window = phy.contention_window(self.failures);
        self.slots = self.dice.below(window as usize + 1) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHY: Phy = Phy::g54();

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn station() -> Station {
        Station::new(Dice::new(1, 0), 2, None)
    }

    #[test]
    fn a_frame_goes_at_once_if_the_medium_was_idle() {
        let mut station = station();
        station.enqueue(us(1000), Destination::Broadcast, vec![], &PHY);
        assert_eq!(station.turn(&PHY), Some(us(1000)));
    }

    #[test]
    fn a_countdown_freezes_while_the_medium_is_busy() {
        let mut station = station();
        station.hear(us(0), &PHY);
        station.enqueue(us(50), Destination::Broadcast, vec![], &PHY);
        assert_eq!(station.turn(&PHY), None);
        station.slots = 5;
        station.hear_end(us(100));
        assert_eq!(station.turn(&PHY), Some(us(100 + 28 + 5 * 9)));
        station.hear(us(100 + 28 + 2 * 9 + 8), &PHY);
        station.hear_end(us(300));
        assert_eq!(station.turn(&PHY), Some(us(300 + 28 + 3 * 9)));
        station.reserve(us(400));
        assert_eq!(station.turn(&PHY), Some(us(400 + 28 + 3 * 9)));
        station.note_readable(false);
        assert_eq!(station.turn(&PHY), Some(us(400 + 88 + 3 * 9)));
    }

    #[test]
    fn a_frame_is_given_up_after_its_attempts() {
        let mut station = station();
        station.enqueue(us(0), Destination::Station(1), vec![], &PHY);
        for attempt in 1..=3 {
            assert_eq!(station.queue.len(), 1, "{attempt}");
            station.begin(1);
            station.sent(us(10), &PHY);
            assert_eq!(station.ack_due(), Some(us(10 + 39)));
            station.unacknowledged(us(49), 3, &PHY);
        }
        assert!(station.queue.is_empty() && station.failures == 0);
        assert_eq!((station.stats.repeated.0, station.stats.given_up.0), (2, 1));
    }

    #[test]
    fn frames_for_one_station_go_together_and_those_that_failed_again() {
        let mut station = station();
        for (to, byte) in [(1, 0), (2, 1), (1, 2), (1, 3), (1, 4)] {
            station.enqueue(us(0), Destination::Station(to), vec![byte], &PHY);
        }
        let bytes = |station: &Station| station.queue.iter().map(|one| one.frame[0]).collect::<Vec<_>>();
        station.begin(3);
        assert_eq!((station.frames, bytes(&station)), (3, vec![0, 2, 3, 1, 4]));
        station.sent(us(10), &PHY);
        station.acknowledged(us(54), 1, 7, &PHY);
        assert_eq!((bytes(&station), station.stats.repeated.0), (vec![2, 3, 1, 4], 2));
        station.begin(3);
        assert_eq!((station.frames, bytes(&station)), (3, vec![2, 3, 4, 1]));
        assert_eq!(
            station.queue.iter().map(|one| one.sequence).collect::<Vec<_>>(),
            [Some(1), Some(2), Some(3), None]
        );
        station.sent(us(10), &PHY);
        station.unacknowledged(us(49), 2, &PHY);
        assert_eq!((bytes(&station), station.stats.given_up.0), (vec![4, 1], 2));
    }

    #[test]
    fn an_ack_is_awaited_until_what_is_received_is_over() {
        let mut station = station();
        station.enqueue(us(0), Destination::Station(1), vec![], &PHY);
        station.begin(1);
        station.sent(us(10), &PHY);
        station.hear(us(20), &PHY);
        assert_eq!(station.ack_due(), None);
        station.hear_end(us(54));
        assert_eq!(station.ack_due(), Some(us(54)));
        station.acknowledged(us(54), 1, 7, &PHY);
        assert!(station.queue.is_empty() && station.ack_due().is_none());
    }
}
