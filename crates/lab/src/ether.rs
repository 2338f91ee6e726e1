//! What nodes share, as a model: links that lose and delay, or 802.11.

use std::time::Duration;

use link::dcf::{self, Destination};
use link::{Adjacency, Arrival, LinkConfig, PacketCount};

/// What frames go over.
pub(crate) enum Ether {
    /// A link for each two that hear each other: nobody waits for others, nothing collides, and all is for everybody.
    Links(Box<link::Medium>),
    Dcf(Box<dcf::Medium>),
}

impl Ether {
    pub(crate) fn links(adjacency: &Adjacency, link: LinkConfig, seed: u64) -> Self {
        Ether::Links(Box::new(link::Medium::new(adjacency, link, seed)))
    }

    pub(crate) fn dcf(config: dcf::DcfConfig, seed: u64) -> Self {
        Ether::Dcf(Box::new(dcf::Medium::new(config, seed)))
    }

    /// What a full interface queue refuses is lost.
    pub(crate) fn send(&mut self, now: Duration, from: usize, to: Destination, frame: Vec<u8>) {
        match self {
            Ether::Links(medium) => medium.send(now, from, &frame),
            Ether::Dcf(medium) => drop(medium.send(now, from, to, frame)),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        match self {
            Ether::Links(medium) => medium.poll_timeout(),
            Ether::Dcf(medium) => medium.poll_timeout(),
        }
    }

    pub(crate) fn poll(&mut self, now: Duration) -> Option<Arrival> {
        match self {
            Ether::Links(medium) => medium.poll(now),
            Ether::Dcf(medium) => {
                let dcf::Arrival { at: time, station: at, from, frame, .. } = medium.poll(now)?;
                Some(Arrival { time, at, from, frame })
            }
        }
    }

    /// Whether `node` may hand over another frame.
    pub(crate) fn has_room(&self, node: usize) -> bool {
        match self {
            Ether::Links(_) => true,
            Ether::Dcf(medium) => medium.room(node) > PacketCount(0),
        }
    }

    /// Whether all that `node` has handed over has been on the air.
    pub(crate) fn is_done(&self, node: usize) -> bool {
        match self {
            Ether::Links(_) => true,
            Ether::Dcf(medium) => medium.room(node) == medium.queue(),
        }
    }

    /// Frames that have been sent, by all of `nodes` together.
    pub(crate) fn transmissions(&self, nodes: usize) -> u64 {
        match self {
            Ether::Links(medium) => medium.transmissions(),
            Ether::Dcf(medium) => (0..nodes).map(|node| medium.stats(node).transmitted.frames.get()).sum(),
        }
    }
}
