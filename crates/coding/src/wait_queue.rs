//! The wait queue: data of one flow that waits for an ACK.

use std::collections::VecDeque;
use std::time::Duration;

use crate::encoder::payload_len;
use crate::transit::Transit;

/// Packets that one flow may have waiting (`max_wq_len`, 4.2): a window of 64 kB and more.
pub const MAX_WQ_LEN: usize = 64;

/// Data in the order in which it came.
#[derive(Debug, Default)]
pub struct WaitQueue {
    held: VecDeque<(Duration, Transit)>,
}

impl WaitQueue {
    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// A packet waits until `until`.
    pub fn insert(&mut self, until: Duration, packet: Transit) {
        self.held.push_back((until, packet));
    }

    /// The head, whatever its time.
    pub fn push_out(&mut self) -> Option<Transit> {
        self.held.pop_front().map(|(_, packet)| packet)
    }

    /// The first packet that comes from where `ack` goes, goes where `ack` comes from, and whose sum with it fits `mtu`.
    pub fn take_partner(&mut self, ack: &Transit, mtu: usize) -> Option<Transit> {
        let fits = |packet: &Transit| payload_len(&packet.datagram, &ack.datagram) <= mtu;
        let index = self.held.iter().position(|(_, packet)| packet.opposes(ack) && fits(packet))?;
        self.held.remove(index).map(|(_, packet)| packet)
    }

    /// The head, if its time is over at `now`.
    pub fn expire(&mut self, now: Duration) -> Option<Transit> {
        if self.next_expiry()? <= now { self.push_out() } else { None }
    }

    /// When the head's time is over; those behind it have no less.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.held.front().map(|(until, _)| *until)
    }
}
