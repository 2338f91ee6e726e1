//! The thread behind [`super::Emulator`].

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use device::Tap;
use link::{Link, LinkConfig, QueueStats, Stats};
use rustix::event::{Timespec, epoll};

use super::spares::Spares;
use crate::clock;

/// SCHED_RR priority: above every program under test, below what the system itself needs.
const PRIORITY: i32 = 10;

/// Frames read from one TAP before the others get their turn.
const BATCH: usize = 64;

/// The longest frame: an Ethernet header and the largest MTU.
const FRAME_MAX: usize = 65_550;

/// The event that means "look at the commands".
const WAKE: u64 = u64::MAX;

#[derive(Debug)]
pub(super) enum Command {
    Join {
        id: u64,
        taps: [Tap; 2],
        links: Box<[LinkConfig; 2]>,
        seed: u64,
        spares: Option<Arc<dyn Spares>>,
        reply: Sender<io::Result<()>>,
    },
    SetUp {
        id: u64,
        up: bool,
    },
    Restart {
        id: u64,
    },
    Stats {
        id: u64,
        reply: Sender<[Stats; 2]>,
    },
    Queues {
        id: u64,
        reply: Sender<[QueueStats; 2]>,
    },
    Remove {
        id: u64,
        reply: Sender<()>,
    },
    Stop,
}

pub(super) struct Worker {
    commands: Receiver<Command>,
    waker: Arc<OwnedFd>,
    epoll: OwnedFd,
    started: Instant,
    joints: BTreeMap<u64, Joint>,
    buffer: Vec<u8>,
}

/// Two TAPs and the links between them.
struct Joint {
    taps: [Tap; 2],
    configs: [LinkConfig; 2],
    seed: u64,
    spares: Option<Arc<dyn Spares>>,
    up: bool,
    lanes: [Lane; 2],
}

/// One direction: the link that takes frames, before it those that a restart left with frames under way.
struct Lane {
    links: VecDeque<Clocked>,
}

/// A link and the time, since the thread's start, that is zero for it.
struct Clocked {
    zero: Duration,
    link: Link,
}

impl Worker {
    pub(super) fn new(commands: Receiver<Command>, waker: Arc<OwnedFd>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*waker, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let buffer = vec![0; FRAME_MAX];
        Ok(Self { commands, waker, epoll, started: clock::now(), joints: BTreeMap::new(), buffer })
    }

    pub(super) fn run(mut self) {
        device::process::real_time(PRIORITY);
        let mut events = Vec::with_capacity(256);
        while self.wait(&mut events) {
            for event in &events {
                match event.data.u64() {
                    WAKE => {
                        if !self.obey() {
                            return;
                        }
                    }
                    tap => self.read(tap),
                }
            }
            self.deliver();
        }
    }

    fn now(&self) -> Duration {
        clock::now() - self.started
    }

    /// Sleeps until something is to be read or due. False if the kernel refuses, which it has no reason to.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> bool {
        let timeout = self.next_due().map(|due| timespec(due.saturating_sub(self.now())));
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => true,
            Err(error) => {
                eprintln!("the emulated links stop: epoll_pwait2: {error}");
                false
            }
        }
    }

    fn next_due(&self) -> Option<Duration> {
        self.joints.values().flat_map(|joint| &joint.lanes).filter_map(Lane::next_due).min()
    }

    /// Takes what a TAP sends into its link. `tap` is the wire's id times two, plus the end.
    fn read(&mut self, tap: u64) {
        let now = self.now();
        let end = usize::from(tap % 2 == 1);
        let Some(joint) = self.joints.get_mut(&(tap / 2)) else { return };
        for _ in 0..BATCH {
            let Ok(length) = joint.taps[end].recv(&mut self.buffer) else { break };
            let frame = &self.buffer[..length];
            let spared = joint.spares.as_ref().is_some_and(|spares| spares.spares(frame));
            joint.lanes[end].send(now, frame.to_vec(), spared);
        }
    }

    fn deliver(&mut self) {
        let now = self.now();
        for joint in self.joints.values_mut() {
            let [first, second] = &mut joint.lanes;
            first.deliver(now, &joint.taps[1]);
            second.deliver(now, &joint.taps[0]);
        }
    }

    /// Carries out what was asked; false to stop.
    fn obey(&mut self) -> bool {
        let _ = rustix::io::read(&*self.waker, &mut [0; 8]);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stop => return false,
                command => self.carry_out(command),
            }
        }
        true
    }

    /// Whoever asked may be gone; then nobody misses the answer.
    fn carry_out(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Join { id, taps, links, seed, spares, reply } => {
                let joint = Joint::new(taps, *links, seed, spares, now);
                let _ = reply.send(self.watch(id, &joint).map(|()| drop(self.joints.insert(id, joint))));
            }
            Command::Remove { id, reply } => {
                self.joints.remove(&id);
                let _ = reply.send(());
            }
            Command::Stats { id, reply } => {
                if let Some(joint) = self.joints.get(&id) {
                    let _ = reply.send(joint.lanes.each_ref().map(Lane::stats));
                }
            }
            Command::Queues { id, reply } => {
                if let Some(joint) = self.joints.get_mut(&id) {
                    let _ = reply.send(joint.lanes.each_mut().map(|lane| lane.queue(now)));
                }
            }
            Command::SetUp { id, up } => {
                if let Some(joint) = self.joints.get_mut(&id) {
                    joint.set_up(now, up);
                }
            }
            Command::Restart { id } => {
                if let Some(joint) = self.joints.get_mut(&id) {
                    joint.restart(now);
                }
            }
            Command::Stop => {}
        }
    }

    fn watch(&self, id: u64, joint: &Joint) -> io::Result<()> {
        for (end, tap) in (0..).zip(&joint.taps) {
            epoll::add(&self.epoll, tap, epoll::EventData::new_u64(id * 2 + end), epoll::EventFlags::IN)?;
        }
        Ok(())
    }
}

impl Joint {
    fn new(
        taps: [Tap; 2],
        configs: [LinkConfig; 2],
        seed: u64,
        spares: Option<Arc<dyn Spares>>,
        now: Duration,
    ) -> Self {
        let lanes = [Lane { links: VecDeque::new() }, Lane { links: VecDeque::new() }];
        let mut joint = Self { taps, configs, seed, spares, up: true, lanes };
        joint.restart(now);
        joint
    }

    fn restart(&mut self, now: Duration) {
        for (stream, (lane, config)) in (0..).zip(self.lanes.iter_mut().zip(&self.configs)) {
            let mut link = Link::new(config.clone(), self.seed.wrapping_mul(2).wrapping_add(stream));
            link.set_up(Duration::ZERO, self.up);
            lane.links.push_back(Clocked { zero: now, link });
        }
    }

    fn set_up(&mut self, now: Duration, up: bool) {
        self.up = up;
        for clocked in self.lanes.iter_mut().flat_map(|lane| &mut lane.links) {
            clocked.link.set_up(now.saturating_sub(clocked.zero), up);
        }
    }
}

impl Lane {
    fn send(&mut self, now: Duration, frame: Vec<u8>, spared: bool) {
        if let Some(Clocked { zero, link }) = self.links.back_mut() {
            let send = if spared { Link::send_spared } else { Link::send };
            send(link, now.saturating_sub(*zero), frame);
        }
    }

    /// Hands over every frame that is due. One that the kernel refuses is lost, as in a full receive ring.
    fn deliver(&mut self, now: Duration, tap: &Tap) {
        for clocked in &mut self.links {
            while let Some((_, frame)) = clocked.link.poll(now.saturating_sub(clocked.zero)) {
                let _ = tap.send(&frame);
            }
        }
        while self.links.len() > 1 && self.links.front().is_some_and(|old| old.link.poll_timeout().is_none())
        {
            self.links.pop_front();
        }
    }

    fn next_due(&self) -> Option<Duration> {
        let due = |clocked: &Clocked| clocked.link.poll_timeout().map(|due| clocked.zero + due);
        self.links.iter().filter_map(due).min()
    }

    fn queue(&mut self, now: Duration) -> QueueStats {
        let queue = |clocked: &mut Clocked| clocked.link.queue_stats(now.saturating_sub(clocked.zero));
        self.links.back_mut().map(queue).unwrap_or_default()
    }

    fn stats(&self) -> Stats {
        self.links.back().map(|clocked| *clocked.link.stats()).unwrap_or_default()
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}
