//! The link: a policer, a drop-tail queue, one transmitter, and what happens behind it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::aqm::Manager;
use crate::config::{Jitter, LinkConfig, Queue};
use crate::delay::Delay;
use crate::dice::Dice;
use crate::flight::Flight;
use crate::loss::LossProcess;
use crate::outage::Blackouts;
use crate::policer::Policer;
use crate::queue::QueueStats;
use crate::stats::Stats;
use crate::transmitter::Transmitter;

/// Streams of randomness: which frames are lost does not depend on the other impairments, so that links
/// that differ in these only lose the same frames.
const LOSS_STREAM: u64 = 0;
const WIRE_STREAM: u64 = 1;
const AQM_STREAM: u64 = 2;

/// One direction of an emulated link.
///
/// Frames go in by [`Link::send`] and come out of [`Link::poll`], which is due at
/// [`Link::poll_timeout`]. `now` never goes back between calls; if it does, the latest one seen counts.
///
/// **A link that is down** (in a blackout of its configuration, or by [`Link::set_up`]) drops what is sent,
/// and the frame in transmission when it went down. What waits in the queue stays and goes on when the
/// link is up again; frames whose transmission was over arrive.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    /// The latest time seen.
    now: Duration,
    /// Taken down by `set_up`.
    cut: bool,
    blackouts: Blackouts,
    loss: LossProcess,
    dice: Dice,
    policer: Option<Policer>,
    /// When each came, and the frame.
    waiting: VecDeque<(Duration, Vec<u8>)>,
    queue: QueueStats,
    manager: Manager,
    transmitter: Transmitter,
    transmission: Option<Transmission>,
    delay: Delay,
    flight: Flight,
    stats: Stats,
}

/// A frame that is being transmitted.
#[derive(Debug)]
struct Transmission {
    frame: Vec<u8>,
    /// When the last attempt is over.
    done: Duration,
    /// How long repetitions delay the frame, beyond the time they take to transmit.
    hold: Duration,
    /// Whether all attempts fail.
    lost: bool,
}

impl Link {
    /// A link that is up and empty. The same seed and the same calls give the same frames at the same times.
    pub fn new(mut config: LinkConfig, seed: u64) -> Link {
        Link {
            now: Duration::ZERO,
            cut: false,
            blackouts: Blackouts::new(std::mem::take(&mut config.blackouts)),
            loss: LossProcess::new(config.loss, Dice::new(seed, LOSS_STREAM)),
            dice: Dice::new(seed, WIRE_STREAM),
            policer: config.policer.map(Policer::new),
            waiting: VecDeque::new(),
            queue: QueueStats::default(),
            manager: Manager::new(config.aqm, Dice::new(seed, AQM_STREAM)),
            transmitter: Transmitter::new(config.capacity.clone()),
            transmission: None,
            delay: Delay::new(config.delay, &config.delay_steps),
            flight: Flight::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// Whether the link is up, as of the last call of a method that takes `now`.
    pub fn is_up(&self) -> bool {
        !self.cut && !self.blackouts.down()
    }

    /// Counters, as of the last call of a method that takes `now`.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// From when on the link has nothing to transmit, if nothing more is sent: the latest time seen if it has nothing now; `None`
    /// while a frame waits.
    pub fn idle_from(&self) -> Option<Duration> {
        let done = self.transmission.as_ref().map_or(self.now, |transmission| transmission.done);
        self.waiting.is_empty().then_some(done)
    }

    /// What has waited in the queue from time 0 until `now`.
    pub fn queue_stats(&mut self, now: Duration) -> QueueStats {
        self.advance(now);
        self.queue.at(self.now)
    }

    /// A frame enters the link.
    pub fn send(&mut self, now: Duration, frame: Vec<u8>) {
        self.advance(now);
        self.stats.offered.add(&frame);
        if !self.is_up() {
            self.stats.blackout_dropped.add(&frame);
        } else if self.loses_before_queue() {
            self.stats.lost.add(&frame);
        } else if self.policer.as_mut().is_some_and(|policer| !policer.passes(self.now, frame.len())) {
            self.stats.policer_dropped.add(&frame);
        } else if self.transmission.is_none() {
            self.queue.pass();
            self.manager.drops_departure(self.now, Duration::ZERO, 0);
            self.begin(self.now, frame);
            self.advance(now);
        } else if self.has_room(frame.len())
            && !self.manager.drops_arrival(self.now, self.stats.queue.bytes.get())
        {
            self.stats.enqueue(&frame);
            self.queue.enter(self.now);
            self.waiting.push_back((self.now, frame));
        } else {
            self.stats.queue_dropped.add(&frame);
        }
    }

    /// Cuts the link, or restores it. While a configured blackout lasts, the link stays down.
    pub fn set_up(&mut self, now: Duration, up: bool) {
        self.advance(now);
        self.cut = !up;
        self.after_change(self.now);
    }

    /// The next frame that has arrived by `now`, and when exactly it arrived; `None` if there is none (yet).
    /// The times of successive frames never fall, however late they are polled.
    pub fn poll(&mut self, now: Duration) -> Option<(Duration, Vec<u8>)> {
        self.advance(now);
        let (arrival, frame) = self.flight.pop(self.now)?;
        self.stats.delivered.add(&frame);
        Some((arrival, frame))
    }

    /// When to call [`Link::poll`] next, unless something is sent before: no frame arrives earlier. `None`
    /// if nothing is on its way.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let done = self.transmission.as_ref().map(|transmission| transmission.done);
        // A blackout may cut that transmission off, and be over before `done`: the frame behind it comes earlier then.
        let change =
            self.blackouts.next_change().filter(|_| done.is_some() || !(self.waiting.is_empty() || self.cut));
        let leaves = done.into_iter().chain(change).min().map(|time| time.saturating_add(self.delay.least()));
        let next = leaves.into_iter().chain(self.flight.next_arrival()).min();
        next.filter(|time| *time < Duration::MAX)
    }

    /// Lets everything happen that happens until `now`, in the order of time.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        loop {
            let due = |time: &Duration| *time <= self.now;
            let done = self.transmission.as_ref().map(|transmission| transmission.done).filter(due);
            let change = self.blackouts.next_change().filter(due);
            match (done, change) {
                (Some(done), change) if change.is_none_or(|change| done <= change) => self.finish(),
                (_, Some(change)) => {
                    self.blackouts.change();
                    self.after_change(change);
                }
                _ => return,
            }
        }
    }

    /// The link went up or down at `time`, or neither.
    fn after_change(&mut self, time: Duration) {
        if self.is_up() {
            self.begin_next(time);
        } else if let Some(transmission) = self.transmission.take() {
            self.transmitter.abort();
            self.stats.blackout_dropped.add(&transmission.frame);
        }
    }

    /// Begins to transmit the first waiting frame at `time`, if there is one and nothing else is transmitted.
    fn begin_next(&mut self, time: Duration) {
        if self.transmission.is_some() {
            return;
        }
        while let Some((entered, frame)) = self.waiting.pop_front() {
            self.stats.queue.remove(&frame);
            let (sojourn, behind) = (time.saturating_sub(entered), self.stats.queue.bytes.get());
            if self.manager.drops_departure(time, sojourn, behind) {
                self.queue.drop(time);
                self.stats.queue_dropped.add(&frame);
                continue;
            }
            self.queue.leave(time, entered);
            return self.begin(time, frame);
        }
    }

    fn begin(&mut self, time: Duration, frame: Vec<u8>) {
        let (attempts, lost) = self.attempts();
        for _ in 1..attempts {
            self.stats.repeated.add(&frame);
        }
        let retry_delay = self.config.arq.map_or(Duration::ZERO, |arq| arq.retry_delay);
        let done = self.transmitter.transmit(time, frame.len().saturating_mul(attempts as usize));
        let hold = retry_delay.saturating_mul(attempts - 1);
        self.transmission = Some(Transmission { frame, done, hold, lost });
    }

    /// How many times the next frame is transmitted, at least once, and whether it is lost all the same.
    fn attempts(&mut self) -> (u32, bool) {
        let Some(arq) = self.config.arq else {
            return (1, self.config.loss_after_queue && self.loss.loses());
        };
        let mut attempts = 1;
        while self.loss.loses() {
            if attempts >= arq.attempts {
                return (attempts, true);
            }
            attempts += 1;
        }
        (attempts, false)
    }

    /// The present transmission is over.
    fn finish(&mut self) {
        let Some(Transmission { frame, done, hold, lost }) = self.transmission.take() else { return };
        let arrival = done.saturating_add(hold).saturating_add(self.delay.at(done));
        if lost {
            self.stats.lost.add(&frame);
            self.flight.hold_order(arrival);
        } else {
            self.propagate(arrival, frame);
        }
        self.begin_next(done);
    }

    fn propagate(&mut self, arrival: Duration, frame: Vec<u8>) {
        let copy = self.dice.chance(self.config.duplicate).then(|| frame.clone());
        self.propagate_one(arrival, frame);
        if let Some(copy) = copy {
            self.stats.duplicated.add(&copy);
            self.propagate_one(arrival, copy);
        }
    }

    fn propagate_one(&mut self, arrival: Duration, mut frame: Vec<u8>) {
        if self.dice.chance(self.config.corrupt) {
            self.corrupt(&mut frame);
        }
        let jitter = self.jitter();
        let late = self.config.reorder.filter(|reorder| self.dice.chance(reorder.probability));
        let extra = late.map_or(Duration::ZERO, |reorder| reorder.extra_delay);
        let arrival = arrival.saturating_add(jitter).saturating_add(extra);
        if late.is_some() || matches!(self.config.jitter, Jitter::HalfNormalReordering(_)) {
            self.flight.push_held_back(arrival, frame);
        } else {
            self.flight.push(arrival, frame);
        }
    }

    fn jitter(&mut self) -> Duration {
        match self.config.jitter {
            Jitter::None => Duration::ZERO,
            Jitter::Uniform(most) => self.dice.duration(most),
            Jitter::HalfNormal(sigma) | Jitter::HalfNormalReordering(sigma) => {
                sigma.mul_f64(self.dice.normal().abs())
            }
        }
    }

    /// Flips one bit; an empty frame stays as it is.
    fn corrupt(&mut self, frame: &mut [u8]) {
        if frame.is_empty() {
            return;
        }
        let bit = self.dice.below(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        self.stats.corrupted.add(frame);
    }

    fn loses_before_queue(&mut self) -> bool {
        self.config.arq.is_none() && !self.config.loss_after_queue && self.loss.loses()
    }

    /// Whether a frame of `bytes` may wait.
    fn has_room(&self, bytes: usize) -> bool {
        match self.config.queue {
            Queue::Packets(limit) => self.waiting.len() < limit,
            Queue::Bytes(limit) => self.stats.queue.bytes.get().saturating_add(bytes as u64) <= limit as u64,
        }
    }
}
