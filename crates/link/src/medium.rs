//! A shared medium: what one node sends, all that hear it get, each over a [`Link`] of its own.
//!
//! There is no contention: frames do not collide, and a node's transmissions wait for nobody else's. Each hearer has
//! its own loss, delay and jitter, as [`LinkConfig`] says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::adjacency::Adjacency;
use crate::config::LinkConfig;
use crate::link::Link;

/// A frame that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub time: Duration,
    /// At which node.
    pub at: usize,
    /// Who sent it.
    pub from: usize,
    /// What was sent, unless the links corrupt.
    pub frame: Vec<u8>,
}

/// A medium that nodes share. The same seed and the same calls give the same frames at the same times.
#[derive(Debug)]
pub struct Medium {
    config: LinkConfig,
    seed: u64,
    hearers: Vec<Vec<usize>>,
    /// By sender and hearer; those that no longer hear each other keep theirs.
    links: BTreeMap<(usize, usize), Link>,
    /// When to look at which link; there may be entries too many, never too few.
    due: BTreeSet<(Duration, usize, usize)>,
    transmissions: u64,
}

impl Medium {
    /// A medium on which nodes hear each other as `adjacency` says, each pair in each direction over a link of `config`.
    pub fn new(adjacency: &Adjacency, config: LinkConfig, seed: u64) -> Medium {
        Medium {
            config,
            seed,
            hearers: hearers(adjacency),
            links: BTreeMap::new(),
            due: BTreeSet::new(),
            transmissions: 0,
        }
    }

    /// From now on nodes hear each other as `adjacency` says, which has as many. What is on its way arrives.
    pub fn set_adjacency(&mut self, adjacency: &Adjacency) {
        self.hearers = hearers(adjacency);
    }

    /// How many frames were sent, by all nodes together.
    pub fn transmissions(&self) -> u64 {
        self.transmissions
    }

    /// `from` sends a frame. `now` never goes back.
    pub fn send(&mut self, now: Duration, from: usize, frame: &[u8]) {
        self.transmissions += 1;
        for &to in &self.hearers[from] {
            let seed = self.seed.wrapping_add(((from as u64) << 32) + to as u64);
            let link = self.links.entry((from, to)).or_insert_with(|| Link::new(self.config.clone(), seed));
            link.send(now, frame.to_vec());
            self.due.extend(link.poll_timeout().map(|time| (time, from, to)));
        }
    }

    /// When to call [`Medium::poll`] next, unless something is sent before. It may find nothing then.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.due.first().map(|&(time, ..)| time)
    }

    /// The next frame that has arrived by `now`, in the order of time; at the same time in that of senders and hearers.
    pub fn poll(&mut self, now: Duration) -> Option<Arrival> {
        while let Some((time, from, to)) = self.due.first().copied().filter(|&(time, ..)| time <= now) {
            self.due.pop_first();
            let link = self.links.get_mut(&(from, to)).expect("what is due was sent over a link");
            // Only up to its own time: what arrives later may have to stand behind other links' frames.
            let arrived = link.poll(time);
            self.due.extend(link.poll_timeout().map(|time| (time, from, to)));
            if let Some((time, frame)) = arrived {
                return Some(Arrival { time, at: to, from, frame });
            }
        }
        None
    }
}

fn hearers(adjacency: &Adjacency) -> Vec<Vec<usize>> {
    (0..adjacency.nodes()).map(|node| adjacency.hearers(node).to_vec()).collect()
}
