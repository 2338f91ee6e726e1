//! Emulated links in real time: one thread that moves frames between pairs of TAPs through [`link::Link`]. All networks of a process
//! share it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::Tap;
use device::poller::Interest;
use link::{Link, LinkConfig, QueueStats, Stats};

use crate::error::{Doing, Result};
use crate::real_time::{BATCH, Edge, FRAME_MAX, Model, RealTime};

/// The thread that carries frames; it ends when this and every [`Wire`] of it are dropped.
pub struct Emulator(Arc<RealTime<Links>>);

/// Both directions of an emulated link between two TAPs. Dropping it removes the TAPs.
pub struct Wire {
    id: u64,
    links: Arc<RealTime<Links>>,
}

impl Emulator {
    /// Starts the thread.
    pub fn start() -> Result<Self> {
        let links = || Links { joints: BTreeMap::new(), next: 0, buffer: vec![0; FRAME_MAX] };
        Ok(Self(Arc::new(RealTime::start("links", |_| Ok(links()))?)))
    }

    /// Joins two TAPs. `links[0]` carries what `taps[0]` sends to `taps[1]`, `links[1]` the other way; each draws its
    /// chances from its own stream of `seed`. Time is zero now.
    pub fn join(&self, taps: [Tap; 2], links: [LinkConfig; 2], seed: u64) -> Result<Wire> {
        let joint = Joint { taps, links, seed, up: true, lanes: Default::default() };
        let id = self.0.ask(move |links, edge| links.add(joint, edge))?.doing(|| "join two TAPs".into())?;
        Ok(Wire { id, links: self.0.clone() })
    }
}

impl Wire {
    /// Cuts (`false`) or restores (`true`) both directions, as a blackout does.
    pub fn set_up(&self, up: bool) {
        self.tell(move |joint, now| joint.set_up(now, up));
    }

    /// Sets time to zero again, with the links as new: traces and chances begin anew. What is under way still arrives.
    pub fn restart(&self) {
        self.tell(Joint::restart);
    }

    /// What each direction carried and dropped since it was joined or restarted.
    pub fn stats(&self) -> Result<[Stats; 2]> {
        self.ask(|lane, _| lane.0.back().map(|clocked| *clocked.link.stats()))
    }

    /// What has waited in each direction's queue since it was joined or restarted, until now.
    pub fn queues(&self) -> Result<[QueueStats; 2]> {
        let stats = |clocked: &mut Clocked, now| clocked.link.queue_stats(clocked.time(now));
        self.ask(move |lane, now| lane.0.back_mut().map(|clocked| stats(clocked, now)))
    }

    fn tell(&self, work: impl FnOnce(&mut Joint, Duration) + Send + 'static) {
        let id = self.id;
        self.links.tell(move |links, edge| {
            if let Some(joint) = links.joints.get_mut(&id) {
                work(joint, edge.now());
            }
        });
    }

    /// What `of` says of each direction.
    fn ask<T: Default + Send + 'static>(
        &self,
        of: impl Fn(&mut Lane, Duration) -> Option<T> + Send + 'static,
    ) -> Result<[T; 2]> {
        let id = self.id;
        self.links.ask(move |links, edge| {
            let both = links.joints.get_mut(&id).map(|joint| joint.lanes.each_mut());
            both.map(|lanes| lanes.map(|lane| of(lane, edge.now()).unwrap_or_default())).unwrap_or_default()
        })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let id = self.id;
        // Wait, so that whoever removes the namespaces next finds no TAP left in them.
        let _ = self.links.ask(move |links, _| drop(links.joints.remove(&id)));
    }
}

/// What the thread has: pairs of TAPs by the number of their wire.
struct Links {
    joints: BTreeMap<u64, Joint>,
    next: u64,
    buffer: Vec<u8>,
}

/// Two TAPs and the links between them.
struct Joint {
    taps: [Tap; 2],
    links: [LinkConfig; 2],
    seed: u64,
    up: bool,
    lanes: [Lane; 2],
}

/// One direction: the link that takes frames, before it those that a restart left with frames under way.
#[derive(Default)]
struct Lane(VecDeque<Clocked>);

/// A link and the time, since the thread's start, that is zero for it.
struct Clocked {
    zero: Duration,
    link: Link,
}

impl Clocked {
    fn time(&self, now: Duration) -> Duration {
        now.saturating_sub(self.zero)
    }
}

impl Links {
    /// A TAP's token is the wire's id times two, plus the end.
    fn add(&mut self, mut joint: Joint, edge: &Edge) -> io::Result<u64> {
        let id = self.next;
        self.next += 1;
        for (end, tap) in (0..).zip(&joint.taps) {
            edge.poller.add(tap, id * 2 + end, Interest::Read)?;
        }
        joint.restart(edge.now());
        self.joints.insert(id, joint);
        Ok(id)
    }
}

impl Model for Links {
    fn poll_timeout(&self) -> Option<Duration> {
        let links = self.joints.values().flat_map(|joint| &joint.lanes).flat_map(|lane| &lane.0);
        links.filter_map(|clocked| clocked.link.poll_timeout().map(|due| clocked.zero + due)).min()
    }

    fn deliver(&mut self, edge: &Edge) -> io::Result<()> {
        let now = edge.now();
        for Joint { lanes: [there, back], taps, .. } in self.joints.values_mut() {
            there.deliver(now, &taps[1]);
            back.deliver(now, &taps[0]);
        }
        Ok(())
    }

    /// Takes what a TAP sends into its link.
    fn read(&mut self, token: u64, edge: &Edge) -> io::Result<()> {
        let (now, end) = (edge.now(), usize::from(token % 2 == 1));
        let Some(joint) = self.joints.get_mut(&(token / 2)) else { return Ok(()) };
        for _ in 0..BATCH {
            let Ok(length) = joint.taps[end].recv(&mut self.buffer) else { break };
            let Some(clocked) = joint.lanes[end].0.back_mut() else { break };
            let time = clocked.time(now);
            clocked.link.send(time, self.buffer[..length].to_vec());
        }
        Ok(())
    }
}

impl Joint {
    fn restart(&mut self, now: Duration) {
        for (stream, (lane, config)) in (0..).zip(self.lanes.iter_mut().zip(&self.links)) {
            let mut link = Link::new(config.clone(), self.seed.wrapping_mul(2).wrapping_add(stream));
            link.set_up(Duration::ZERO, self.up);
            lane.0.push_back(Clocked { zero: now, link });
        }
    }

    fn set_up(&mut self, now: Duration, up: bool) {
        self.up = up;
        for clocked in self.lanes.iter_mut().flat_map(|lane| &mut lane.0) {
            let time = clocked.time(now);
            clocked.link.set_up(time, up);
        }
    }
}

impl Lane {
    /// Hands over every frame that is due. One that the kernel refuses is lost, as in a full receive ring.
    fn deliver(&mut self, now: Duration, tap: &Tap) {
        for clocked in &mut self.0 {
            let time = clocked.time(now);
            while let Some((_, frame)) = clocked.link.poll(time) {
                let _ = tap.send(&frame);
            }
        }
        while self.0.len() > 1 && self.0.front().is_some_and(|old| old.link.poll_timeout().is_none()) {
            self.0.pop_front();
        }
    }
}
