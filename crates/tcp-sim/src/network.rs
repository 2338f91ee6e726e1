//! What carries packets between two ends, and how time passes.

use std::time::Duration;

use link::{Link, LinkConfig};

use crate::hosts::Hosts;

/// Carries IPv4 packets between ends 0 and 1.
pub trait Network {
    /// The time.
    fn now(&self) -> Duration;
    /// A packet enters at `end`.
    fn send(&mut self, end: usize, packet: Vec<u8>);
    /// Whatever is due is done: the packets that came out at `end`.
    fn receive(&mut self, end: usize) -> Vec<Vec<u8>>;
    /// When something happens next.
    fn poll_timeout(&self) -> Option<Duration>;
    /// Time passes.
    fn pass_to(&mut self, now: Duration);
}

/// Lets everything happen up to `until`.
pub fn run(network: &mut impl Network, hosts: &mut Hosts, until: Duration) {
    loop {
        turn(network, hosts);
        let next = [network.poll_timeout(), hosts.poll_timeout(network.now())].into_iter().flatten().min();
        match next.filter(|next| *next < until) {
            // Time goes on by at least a microsecond, so that a timer that does not move is seen and not waited for.
            Some(next) => network.pass_to(next.max(network.now() + Duration::from_micros(1))),
            None => return network.pass_to(until),
        }
    }
}

/// All that happens at this time.
fn turn(network: &mut impl Network, hosts: &mut Hosts) {
    let now = network.now();
    hosts.handle_timeout(now);
    loop {
        let mut quiet = true;
        for end in 0..2 {
            for packet in network.receive(end) {
                quiet = false;
                hosts.handle(now, end, &packet);
                // A host answers packet by packet, also those that come at once.
                transmit(network, hosts, end);
            }
            quiet &= !transmit(network, hosts, end);
        }
        if quiet {
            return;
        }
    }
}

/// Whether `end` had anything to send.
fn transmit(network: &mut impl Network, hosts: &mut Hosts, end: usize) -> bool {
    let mut any = false;
    while let Some(packet) = hosts.poll_transmit(network.now(), end) {
        network.send(end, packet);
        any = true;
    }
    any
}

/// A link each way, that carries IP packets as they are.
#[derive(Debug)]
pub struct LinkPair {
    now: Duration,
    /// From end 0, and from end 1.
    pub links: [Link; 2],
}

impl LinkPair {
    /// Two links of these kinds.
    pub fn new(there: LinkConfig, back: LinkConfig, seed: u64) -> LinkPair {
        let links = [Link::new(there, seed.wrapping_mul(2)), Link::new(back, seed.wrapping_mul(2) + 1)];
        LinkPair { now: Duration::from_secs(1), links }
    }
}

impl Network for LinkPair {
    fn now(&self) -> Duration {
        self.now
    }

    fn send(&mut self, end: usize, packet: Vec<u8>) {
        self.links[end].send(self.now, packet);
    }

    fn receive(&mut self, end: usize) -> Vec<Vec<u8>> {
        let link = &mut self.links[1 - end];
        std::iter::from_fn(|| link.poll(self.now)).map(|(_, packet)| packet).collect()
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.links.iter().filter_map(Link::poll_timeout).min()
    }

    fn pass_to(&mut self, now: Duration) {
        self.now = now;
    }
}
