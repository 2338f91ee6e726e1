//! The tunnel as a network that hosts with TCP use.

use std::time::Duration;

use std::net::Ipv4Addr;

use packet::Ip;
use packet::checksum::Sum;
use tcp_sim::Network;

use crate::sim::Net;

/// Who is at this end of the first link and does not use the tunnel.
pub fn outsider(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, 1 + end as u8)
}

impl Network for Net {
    fn now(&self) -> Duration {
        self.now
    }

    fn send(&mut self, end: usize, packet: Vec<u8>) {
        match Ip::parse(&packet) {
            Ok(ip) if ip.source() == outsider(end) => self.send_beside(end, 0, packet),
            _ => self.give(end, None, packet),
        }
    }

    fn receive(&mut self, end: usize) -> Vec<Vec<u8>> {
        self.turn(end);
        let mut received = std::mem::take(&mut self.received[end]);
        received.append(&mut self.beside[end]);
        received
    }

    fn poll_timeout(&self) -> Option<Duration> {
        Some(self.next()).filter(|next| *next < Duration::MAX)
    }

    fn pass_to(&mut self, now: Duration) {
        self.now = now;
        self.deliver();
    }
}

/// A network whose hosts put into each packet the DSCP and ECN that `tos` says.
pub struct Marked<'a, N> {
    /// The network.
    pub network: &'a mut N,
    /// The second byte of an IPv4 header.
    pub tos: fn(&[u8]) -> u8,
}

impl<N: Network> Network for Marked<'_, N> {
    fn now(&self) -> Duration {
        self.network.now()
    }

    fn send(&mut self, end: usize, mut packet: Vec<u8>) {
        packet[1] = (self.tos)(&packet);
        packet[10..12].fill(0);
        let sum = Sum::default().bytes(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        self.network.send(end, packet);
    }

    fn receive(&mut self, end: usize) -> Vec<Vec<u8>> {
        self.network.receive(end)
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.network.poll_timeout()
    }

    fn pass_to(&mut self, now: Duration) {
        self.network.pass_to(now);
    }
}
