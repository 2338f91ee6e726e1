//! The tunnel as a network that hosts with TCP use.

use std::time::Duration;

use tcp_sim::Network;

use crate::sim::Net;

impl Network for Net {
    fn now(&self) -> Duration {
        self.now
    }

    fn send(&mut self, end: usize, mut packet: Vec<u8>) {
        self.ends[end].handle_inner(self.clock(end), &mut packet);
    }

    fn receive(&mut self, end: usize) -> Vec<Vec<u8>> {
        self.turn(end);
        std::mem::take(&mut self.received[end])
    }

    fn poll_timeout(&self) -> Option<Duration> {
        Some(self.next()).filter(|next| *next < Duration::MAX)
    }

    fn pass_to(&mut self, now: Duration) {
        self.now = now;
        self.deliver();
    }
}
