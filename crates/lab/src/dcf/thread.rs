//! The thread behind [`super::Medium`].
//!
//! The model's clock is the schedule's, not the thread's: what is due at a time happens at that time, however late the
//! thread wakes up, and a frame that waits when a station gets room is taken at the time at which it got it. So being
//! late by some microseconds for each of the frames does not add up to idle air.

use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use device::poller::Interest;
use device::{Macvtap, Poller, Waker, monotonic};
use link::PacketCount;
use link::dcf::{DcfConfig, Destination, Medium, Position};

use super::stats::{Lateness, MediumStats};
use crate::air::Log;

/// SCHED_RR priority, as the emulated links have it.
const PRIORITY: i32 = 10;

/// More than the interfaces' MTU and an Ethernet header.
const FRAME_MAX: usize = 2048;

/// The event that means "look at the commands"; the others are stations' numbers.
const WAKE: u64 = u64::MAX;

#[derive(Debug)]
pub(super) enum Command {
    Stats {
        reply: Sender<MediumStats>,
    },
    /// Begins a log anew; the reply is what was in it.
    Log {
        reply: Sender<Log>,
    },
    Place {
        station: usize,
        position: Position,
    },
    Stop,
}

pub(super) struct Worker {
    medium: Medium,
    stations: Vec<Station>,
    commands: Receiver<Command>,
    waker: Waker,
    poller: Poller,
    started: Duration,
    lateness: Lateness,
    /// If somebody wants one.
    log: Option<Log>,
    buffer: Vec<u8>,
}

/// A station's node.
struct Station {
    tap: Macvtap,
    mac: [u8; 6],
    /// Whether the thread is to be woken when the node has a frame: only while none waits and the station has room.
    watched: bool,
}

impl Worker {
    /// `macs` are the addresses of the nodes behind `taps`.
    pub(super) fn new(
        config: DcfConfig,
        seed: u64,
        taps: Vec<Macvtap>,
        macs: Vec<[u8; 6]>,
        commands: Receiver<Command>,
        waker: Waker,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&waker, WAKE, Interest::Read)?;
        for (token, tap) in (0..).zip(&taps) {
            poller.add(tap, token, Interest::Read)?;
        }
        let station = |(tap, mac)| Station { tap, mac, watched: true };
        Ok(Self {
            medium: Medium::new(config, seed),
            stations: taps.into_iter().zip(macs).map(station).collect(),
            commands,
            waker,
            poller,
            started: monotonic(),
            lateness: Lateness::default(),
            log: None,
            buffer: vec![0; FRAME_MAX],
        })
    }

    pub(super) fn run(mut self) {
        device::process::real_time(PRIORITY);
        loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return eprintln!("the emulated medium stops: {error}"),
            }
        }
    }

    fn now(&self) -> Duration {
        monotonic().saturating_sub(self.started)
    }

    /// Sleeps until something is due or to be read, and does it; false to stop.
    fn turn(&mut self) -> io::Result<bool> {
        let timeout = self.medium.poll_timeout().map(|due| due.saturating_sub(self.now()));
        let mut woken = false;
        let mut ready = Vec::new();
        for event in self.poller.wait(timeout)? {
            match event.token {
                WAKE => woken = true,
                station => ready.push(station as usize),
            }
        }
        self.catch_up()?;
        let now = self.now();
        for station in ready {
            self.fill(station, now)?;
        }
        Ok(!woken || self.obey())
    }

    /// Lets everything happen that is due, each at its own time.
    fn catch_up(&mut self) -> io::Result<()> {
        while let Some(due) = self.medium.poll_timeout().filter(|due| *due <= self.now()) {
            while let Some(arrival) = self.medium.poll(due) {
                let now = self.now();
                self.lateness.note(now.saturating_sub(arrival.at));
                self.log.iter_mut().for_each(|log| log.add(now, arrival.station, true, &arrival.frame));
                // What the kernel refuses is lost, as in a full receive ring.
                let _ = self.stations[arrival.station].tap.send(&arrival.frame);
            }
            for station in 0..self.stations.len() {
                self.fill(station, due)?;
            }
        }
        Ok(())
    }

    /// Takes what the node of `station` sends at `time` as long as there is room for it.
    fn fill(&mut self, station: usize, time: Duration) -> io::Result<()> {
        while self.medium.room(station) > PacketCount(0) {
            let Ok(length) = self.stations[station].tap.recv(&mut self.buffer) else {
                return self.watch(station, true);
            };
            let (now, frame) = (self.now(), &self.buffer[..length]);
            self.log.iter_mut().for_each(|log| log.add(now, station, false, frame));
            // Nobody has another address, and nobody would answer.
            if let Some(to) = destination(frame, &self.stations) {
                let _ = self.medium.send(time, station, to, frame.to_vec());
            }
        }
        self.watch(station, false)
    }

    fn watch(&mut self, station: usize, wanted: bool) -> io::Result<()> {
        let Station { tap, watched, .. } = &mut self.stations[station];
        if *watched == wanted {
            return Ok(());
        }
        *watched = wanted;
        if wanted { self.poller.add(tap, station as u64, Interest::Read) } else { self.poller.remove(tap) }
    }

    /// Carries out what was asked; false to stop. Whoever asked may be gone; then nobody misses the answer.
    fn obey(&mut self) -> bool {
        self.waker.reset();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stop => return false,
                Command::Place { station, position } => {
                    let now = self.now();
                    self.medium.place(now, station, position);
                }
                Command::Stats { reply } => {
                    let stations = (0..self.stations.len()).map(|n| *self.medium.stats(n)).collect();
                    let _ = reply.send(MediumStats { stations, lateness: self.lateness });
                }
                Command::Log { reply } => {
                    let _ = reply.send(self.log.replace(Log::default()).unwrap_or_default());
                }
            }
        }
        true
    }
}

/// Whom a frame is for.
fn destination(frame: &[u8], stations: &[Station]) -> Option<Destination> {
    let to = frame.first_chunk::<6>()?;
    if to[0] & 1 == 1 {
        return Some(Destination::Broadcast);
    }
    stations.iter().position(|station| station.mac == *to).map(Destination::Station)
}
