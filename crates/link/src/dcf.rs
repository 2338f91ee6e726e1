//! A shared 802.11 medium without I/O: stations that contend by the distributed coordination function
//! (IEEE 802.11-2020 §10.3), in virtual or real time as [`Link`](crate::Link) does.
//!
//! A frame waits in its station's interface queue until the station's turn: the medium idle for DIFS (EIFS after a
//! frame that could not be read), then a backoff that counts only idle slots. Stations whose countdowns end in the same
//! slot collide. A unicast frame is answered by a link ACK or repeated with a doubled window; a broadcast goes once, at
//! the basic rate. Every other station that can read a unicast frame overhears it, and keeps silent until its ACK is
//! over. Who can read what follows from distance ([`Reach`]): the signal against noise and all interference. Frames for one
//! station may go as one transmission ([`DcfConfig::aggregate`]), with one link ACK; what follows a frame of it that was lost is sent
//! again with that, so that nobody has to bring frames into their order. What waits may do so by flow, with
//! CoDel ([`DcfConfig::fq_codel`]).
//!
//! Not modelled: RTS/CTS, fragments, rate adaptation, time of flight.
//!
//! ```
//! use std::time::Duration;
//! use link::dcf::{DcfConfig, Destination, Medium, Phy, Position};
//!
//! let mut medium = Medium::new(DcfConfig::new(Phy::g54(), Position::chain(3, 45.0)), 1);
//! let now = Duration::from_millis(1);
//! medium.send(now, 0, Destination::Station(1), vec![7; 1514]).unwrap();
//!
//! let late = Duration::from_millis(2);
//! let (first, second) = (medium.poll(late).unwrap(), medium.poll(late).unwrap());
//! assert_eq!((first.station, first.overheard), (1, false));
//! assert_eq!((second.station, second.overheard), (2, true));
//! assert_eq!(first.at, now + Phy::g54().data_time(1514));
//! ```
//!
//! Begin reading at [`Medium`], then `station.rs` (when), `air.rs` (who reads what) and `phy.rs` (how long).

mod air;
mod config;
mod phy;
mod station;

use std::collections::VecDeque;
use std::time::Duration;

pub use config::{DcfConfig, Position, Reach};
pub use phy::{Phy, Rate};

use crate::dice::Dice;
use crate::units::{PacketCount, Probability};
use air::{Air, Carries, Signal};
use config::Strengths;
pub use station::{Destination, StationStats};
use station::{Outgoing, Station};

/// Streams of randomness: losses first, then one per station for its backoffs.
const LOSS_STREAM: u64 = 0;
const FIRST_BACKOFF_STREAM: u64 = 1;

/// A frame that a station could read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// When its last bit was on the air.
    pub at: Duration,
    /// The station that read it.
    pub station: usize,
    /// The station that sent it.
    pub from: usize,
    /// Whether it was for another station.
    pub overheard: bool,
    /// The frame as it was sent.
    pub frame: Vec<u8>,
}

/// Why a frame was not taken; it comes back, so that it can be sent later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the interface queue of station {station} is full; send again when it has room")]
pub struct QueueFull {
    /// The station.
    pub station: usize,
    /// The frame.
    pub frame: Vec<u8>,
}

/// A shared medium and its stations.
///
/// `now` never goes back between calls; if it does, the latest one seen counts. What happens depends only on the
/// configuration, the seed, and when frames were sent, never on when [`Medium::poll`] was called. A station's number
/// out of range is a caller's bug and panics.
#[derive(Debug)]
pub struct Medium {
    config: DcfConfig,
    strengths: Strengths,
    now: Duration,
    air: Air,
    stations: Vec<Station>,
    losses: Dice,
    arrivals: VecDeque<Arrival>,
    /// Stations have moved since `strengths` were worked out.
    moved: bool,
}

impl Medium {
    /// A silent medium. The same seed and the same calls give the same frames at the same times.
    pub fn new(config: DcfConfig, seed: u64) -> Medium {
        let count = config.stations.len();
        let below = config.fq_codel.then_some(config.aggregate);
        let backoffs = (FIRST_BACKOFF_STREAM..).map(|stream| Dice::new(seed, stream));
        Medium {
            strengths: Strengths::new(&config),
            now: Duration::ZERO,
            air: Air::default(),
            stations: backoffs.take(count).map(|dice| Station::new(dice, count, below)).collect(),
            losses: Dice::new(seed, LOSS_STREAM),
            arrivals: VecDeque::new(),
            moved: false,
            config,
        }
    }

    /// `station` is at `position` from `now` on, or, while something is on the air, from when the air is silent.
    pub fn place(&mut self, now: Duration, station: usize, position: Position) {
        self.advance(now);
        self.config.stations[station] = position;
        self.moved = true;
        self.settle();
    }

    /// Works out who hears whom after a move. Not in the middle of a signal, whose beginning and end must be sensed by the same
    /// stations.
    fn settle(&mut self) {
        if self.moved && self.air.next_end().is_none() {
            self.strengths = Strengths::new(&self.config);
            self.moved = false;
        }
    }

    /// A frame, Ethernet header included, enters the interface queue of `station`; if that is full, it comes back.
    pub fn send(
        &mut self,
        now: Duration,
        station: usize,
        to: Destination,
        frame: Vec<u8>,
    ) -> Result<(), QueueFull> {
        self.advance(now);
        if self.room(station) == PacketCount(0) {
            return Err(QueueFull { station, frame });
        }
        let sender = &mut self.stations[station];
        sender.stats.queued.add(&frame);
        sender.enqueue(self.now, to, frame, &self.config.phy);
        self.advance(self.now);
        Ok(())
    }

    /// How many frames an interface queue takes.
    pub fn queue(&self) -> PacketCount {
        self.config.queue
    }

    /// How many more frames the interface queue of `station` takes, as of the last call of a method that takes `now`.
    pub fn room(&self, station: usize) -> PacketCount {
        PacketCount(self.config.queue.0.saturating_sub(self.stations[station].waiting() as u64))
    }

    /// The next frame that some station has read by `now`. The times of successive ones never fall.
    pub fn poll(&mut self, now: Duration) -> Option<Arrival> {
        self.advance(now);
        self.arrivals.pop_front()
    }

    /// When to call [`Medium::poll`] next, and to look for [room](Medium::room) again. `None`: the medium is silent.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let arrived = self.arrivals.front().map(|arrival| arrival.at);
        arrived.or_else(|| self.next_event())
    }

    /// Counters of `station`, as of the last call of a method that takes `now`.
    pub fn stats(&self, station: usize) -> &StationStats {
        &self.stations[station].stats
    }

    fn next_event(&self) -> Option<Duration> {
        let ends = self.air.next_end().into_iter().chain(self.stations.iter().filter_map(Station::ack_due));
        ends.chain(self.next_start()).min()
    }

    /// When some station transmits next.
    fn next_start(&self) -> Option<Duration> {
        self.stations.iter().filter_map(|station| self.start(station)).min()
    }

    fn start(&self, station: &Station) -> Option<Duration> {
        let response = station.response.map(|(at, ..)| at);
        response.into_iter().chain(station.turn(&self.config.phy)).min()
    }

    /// Lets everything happen that happens until `now`: at one instant ends first, then what follows from an ACK that
    /// did not come, then all beginnings together, for none of them can hear the others in time.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some(time) = self.next_event().filter(|time| *time <= self.now) {
            self.settle();
            if let Some(signal) = self.air.end(time) {
                self.end(time, &signal);
            } else if !self.give_up_waiting(time) {
                self.begin_all(time);
            }
        }
    }

    /// Takes back the hope for link ACKs that should have begun by `time`. Whether there were any.
    fn give_up_waiting(&mut self, time: Duration) -> bool {
        let mut any = false;
        for station in &mut self.stations {
            if station.ack_due() == Some(time) {
                station.unacknowledged(time, self.config.attempts, &self.config.phy);
                any = true;
            }
        }
        any
    }

    fn begin_all(&mut self, time: Duration) {
        let due = |station: &Station| self.start(station) == Some(time);
        let beginning: Vec<usize> = (0..self.stations.len()).filter(|n| due(&self.stations[*n])).collect();
        for station in beginning {
            match self.stations[station].response.take_if(|(at, ..)| *at == time) {
                Some((_, to, frames)) => self.begin_ack(time, station, to, frames),
                None => self.begin_frame(time, station),
            }
        }
    }

    fn begin_frame(&mut self, time: Duration, station: usize) {
        let phy = &self.config.phy;
        self.stations[station].begin(self.config.aggregate);
        let Station { stats, queue, frames, .. } = &mut self.stations[station];
        let Some(outgoing) = queue.front() else { return };
        let (length, rate) = match outgoing.to {
            Destination::Station(_) => {
                (phy.aggregate_time(queue.range(..*frames).map(|one| one.frame.len())), phy.data())
            }
            Destination::Broadcast => (phy.broadcast_time(outgoing.frame.len()), phy.broadcast()),
        };
        queue.range(..*frames).for_each(|outgoing| stats.transmitted.add(&outgoing.frame));
        self.begin(time, station, Carries::Frame, time + length, rate);
    }

    fn begin_ack(&mut self, time: Duration, station: usize, to: usize, frames: usize) {
        let sent = self.stations[to].frames;
        let (end, rate) = (time + self.config.phy.ack_time_of(sent), self.config.phy.control());
        self.begin(time, station, Carries::Ack { to, frames }, end, rate);
    }

    fn begin(&mut self, time: Duration, from: usize, carries: Carries, end: Duration, rate: Rate) {
        self.air.begin(from, carries, end, rate.min_sinr_db, &self.strengths, self.stations.len());
        for (number, station) in self.stations.iter_mut().enumerate() {
            if number == from || self.strengths.senses(from, number) {
                station.hear(time, &self.config.phy);
            }
        }
    }

    /// A signal is over: those that can read it do, the others that sensed it know that they could not.
    fn end(&mut self, time: Duration, signal: &Signal) {
        for number in 0..self.stations.len() {
            let senses = self.strengths.senses(signal.from, number);
            if senses || number == signal.from {
                self.stations[number].hear_end(time);
            }
            let readable = signal.read_by(number, &self.strengths);
            if readable {
                self.read(time, signal, number);
            } else if senses {
                self.stations[number].note_readable(false);
            }
        }
        if signal.carries == Carries::Frame {
            self.stations[signal.from].sent(time, &self.config.phy);
        }
    }

    /// `reader` could read the signal.
    fn read(&mut self, time: Duration, signal: &Signal, reader: usize) {
        self.stations[reader].note_readable(true);
        match signal.carries {
            Carries::Ack { to, frames } if to == reader => {
                self.stations[reader].acknowledged(time, frames, self.config.attempts, &self.config.phy);
            }
            Carries::Ack { .. } => {}
            Carries::Frame => self.read_frame(time, signal.from, reader),
        }
    }

    fn read_frame(&mut self, time: Duration, from: usize, reader: usize) {
        let phy = self.config.phy;
        let Some(to) = self.stations[from].queue.front().map(|outgoing| outgoing.to) else { return };
        let overheard = !matches!(to, Destination::Broadcast) && to != Destination::Station(reader);
        let sent = self.stations[from].frames;
        let mut taken = 0;
        for at in 0..sent {
            let lost = self.loses(overheard);
            // Who overhears takes what it can.
            if lost && !overheard {
                break;
            }
            if !lost {
                taken += 1;
                self.take(time, from, reader, at, overheard);
            }
        }
        let station = &mut self.stations[reader];
        if taken == 0 {
            return station.note_readable(overheard);
        }
        if overheard {
            station.reserve(time + phy.sifs() + phy.ack_time_of(sent));
        } else if to == Destination::Station(reader) {
            station.response = Some((time + phy.sifs(), from, taken));
        }
    }

    /// `reader` has read this frame of the queue of `from`.
    fn take(&mut self, time: Duration, from: usize, reader: usize, at: usize, overheard: bool) {
        let Outgoing { sequence, .. } = self.stations[from].queue[at];
        let station = &mut self.stations[reader];
        if station.last_read[from] >= sequence {
            return;
        }
        station.last_read[from] = sequence;
        let frame = self.stations[from].queue[at].frame.clone();
        let stats = &mut self.stations[reader].stats;
        let tally = if overheard { &mut stats.overheard } else { &mut stats.received };
        tally.add(&frame);
        self.arrivals.push_back(Arrival { at: time, station: reader, from, overheard, frame });
    }

    /// Whether chance takes a frame that could be read.
    fn loses(&mut self, overheard: bool) -> bool {
        let probability: Probability =
            if overheard { self.config.overhearing_loss } else { self.config.loss };
        self.losses.chance(probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What station 1 has read of a frame that station 0 sends at `at`.
    fn reads(medium: &mut Medium, at: Duration) -> usize {
        medium.send(at, 0, Destination::Broadcast, vec![7; 1000]).unwrap();
        std::iter::from_fn(|| medium.poll(at + Duration::from_millis(50))).count()
    }

    #[test]
    fn a_station_that_moves_away_reads_nothing_until_it_is_back() {
        let chain = Position::chain(2, 90.0);
        let mut medium = Medium::new(DcfConfig::new(Phy::g54(), chain.clone()), 1);
        let ms = Duration::from_millis;
        assert_eq!(reads(&mut medium, ms(1)), 1);
        medium.place(ms(100), 1, Position { x: 5000.0, y: 0.0 });
        assert_eq!(reads(&mut medium, ms(101)), 0);
        medium.place(ms(200), 1, chain[1]);
        assert_eq!(reads(&mut medium, ms(201)), 1);
    }

    #[test]
    fn a_move_while_a_frame_is_on_the_air_waits_for_its_end() {
        let mut medium = Medium::new(DcfConfig::new(Phy::g54(), Position::chain(2, 90.0)), 1);
        let begin = Duration::from_millis(1);
        medium.send(begin, 0, Destination::Broadcast, vec![7; 1000]).unwrap();
        medium.place(begin + Duration::from_micros(100), 1, Position { x: 5000.0, y: 0.0 });
        let late = begin + Duration::from_millis(50);
        assert!(medium.poll(late).is_some(), "it began within reach, and is sensed to its end");
        assert_eq!(reads(&mut medium, late), 0);
    }
}
