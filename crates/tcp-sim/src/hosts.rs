//! The applications at both ends of a network: TCP flows, pings and calls.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use packet::checksum::Sum;
use packet::{Ip, ip};

use crate::connection::Connection;
use crate::segment::{Segment, ipv4_header};

/// A ping is so long, as `ping`'s own.
const PING_BYTES: usize = 84;
/// A call's packets: 160 bytes of G.711 with RTP.
const CALL_BYTES: usize = 200;

/// What both ends run.
#[derive(Debug)]
pub struct Hosts {
    /// The addresses of the ends.
    pub addresses: [Ipv4Addr; 2],
    /// Connections, each with its two ends.
    pub connections: Vec<[Connection; 2]>,
    /// Pings, from the end that asks.
    pub pings: Vec<(usize, Ping)>,
    /// Calls, from the end that sends.
    pub calls: Vec<(usize, Call)>,
    outgoing: [VecDeque<Vec<u8>>; 2],
}

/// Echo requests at an interval, and when they were answered.
#[derive(Debug)]
pub struct Ping {
    every: Duration,
    next: Duration,
    until: Duration,
    /// When each was sent, and its round trip.
    pub sent: Vec<(Duration, Option<Duration>)>,
}

impl Ping {
    /// From `now` to `until`.
    pub fn new(now: Duration, every: Duration, until: Duration) -> Ping {
        Ping { every, next: now, until, sent: Vec::new() }
    }

    /// Round trips of those sent in a time, in order of length, and the share that was not answered.
    pub fn round_trips(&self, from: Duration, until: Duration) -> (Vec<Duration>, usize) {
        let sent = self.sent.iter().filter(|(at, _)| (from..until).contains(at));
        let mut answered: Vec<_> = sent.clone().filter_map(|(_, rtt)| *rtt).collect();
        answered.sort_unstable();
        let lost = sent.count() - answered.len();
        (answered, lost)
    }
}

/// UDP packets at an interval, and when they arrived.
#[derive(Debug)]
pub struct Call {
    every: Duration,
    next: Duration,
    until: Duration,
    /// When each was sent, and when it arrived.
    pub sent: Vec<(Duration, Option<Duration>)>,
}

impl Call {
    /// From `now` to `until`.
    pub fn new(now: Duration, every: Duration, until: Duration) -> Call {
        Call { every, next: now, until, sent: Vec::new() }
    }

    /// Of those sent in a time: how many, how many were lost, and the longest time without an arrival.
    pub fn outcome(&self, from: Duration, until: Duration) -> (usize, usize, Duration) {
        let sent: Vec<_> = self.sent.iter().filter(|(at, _)| (from..until).contains(at)).collect();
        let mut arrived: Vec<_> = sent.iter().filter_map(|(_, at)| *at).collect();
        arrived.sort_unstable();
        let gap = arrived.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(until - from);
        (sent.len(), sent.len() - arrived.len(), gap)
    }
}

impl Hosts {
    /// Two hosts that do nothing.
    pub fn new(addresses: [Ipv4Addr; 2]) -> Hosts {
        Hosts {
            addresses,
            connections: Vec::new(),
            pings: Vec::new(),
            calls: Vec::new(),
            outgoing: Default::default(),
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        for connection in self.connections.iter_mut().flatten() {
            connection.handle_timeout(now);
        }
        for (number, (end, ping)) in self.pings.iter_mut().enumerate() {
            while ping.next <= now && ping.next < ping.until {
                let packet = echo(self.addresses[*end], self.addresses[1 - *end], 8, number, ping.sent.len());
                self.outgoing[*end].push_back(packet);
                ping.sent.push((now, None));
                ping.next += ping.every;
            }
        }
        for (number, (end, call)) in self.calls.iter_mut().enumerate() {
            while call.next <= now && call.next < call.until {
                let packet = udp(self.addresses[*end], self.addresses[1 - *end], number, call.sent.len());
                self.outgoing[*end].push_back(packet);
                call.sent.push((now, None));
                call.next += call.every;
            }
        }
    }

    /// When [`Hosts::handle_timeout`] is due.
    pub fn poll_timeout(&self, now: Duration) -> Option<Duration> {
        let connections = self.connections.iter().flatten().filter_map(|c| c.poll_timeout(now));
        let pings = self.pings.iter().map(|(_, ping)| (ping.next, ping.until));
        let calls = self.calls.iter().map(|(_, call)| (call.next, call.until));
        let others = pings.chain(calls).filter(|(next, until)| next < until).map(|(next, _)| next);
        connections.chain(others).min()
    }

    /// The next packet that `end` sends.
    pub fn poll_transmit(&mut self, now: Duration, end: usize) -> Option<Vec<u8>> {
        let mut connections = self.connections.iter_mut();
        self.outgoing[end].pop_front().or_else(|| connections.find_map(|c| c[end].poll_transmit(now)))
    }

    /// A packet arrives at `end`.
    pub fn handle(&mut self, now: Duration, end: usize, packet: &[u8]) {
        let Ok(ip) = Ip::parse(packet) else { return };
        match ip.protocol() {
            ip::TCP => {
                let Some((from, to, segment)) = Segment::decode(packet) else { return };
                let mut ends = self.connections.iter_mut().map(|c| &mut c[end]);
                if let Some(connection) = ends.find(|c| c.is_between(from, to)) {
                    connection.handle(now, &segment);
                }
            }
            ip::ICMP => self.handle_echo(now, end, ip.payload()),
            ip::UDP => {
                let (number, place) = numbers(&ip.payload()[8..]);
                if let Some((_, call)) = self.calls.get_mut(number)
                    && let Some((_, arrived)) = call.sent.get_mut(place)
                {
                    arrived.get_or_insert(now);
                }
            }
            _ => {}
        }
    }

    fn handle_echo(&mut self, now: Duration, end: usize, message: &[u8]) {
        let (number, place) = numbers(&message[8..]);
        if message[0] == 8 {
            let answer = echo(self.addresses[end], self.addresses[1 - end], 0, number, place);
            self.outgoing[end].push_back(answer);
        } else if let Some((_, ping)) = self.pings.get_mut(number)
            && let Some((sent, rtt)) = ping.sent.get_mut(place)
        {
            rtt.get_or_insert(now - *sent);
        }
    }
}

fn numbers(data: &[u8]) -> (usize, usize) {
    let word = |at: usize| {
        data.get(at..at + 4).map_or(usize::MAX, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
    };
    (word(0), word(4))
}

fn put_numbers(data: &mut [u8], number: usize, place: usize) {
    data[0..4].copy_from_slice(&(number as u32).to_be_bytes());
    data[4..8].copy_from_slice(&(place as u32).to_be_bytes());
}

/// An ICMP echo request (8) or its answer (0).
fn echo(from: Ipv4Addr, to: Ipv4Addr, kind: u8, number: usize, place: usize) -> Vec<u8> {
    let mut packet = vec![0; PING_BYTES];
    ipv4_header(&mut packet, place as u16, ip::ICMP, from, to);
    packet[20] = kind;
    packet[24..26].copy_from_slice(&(number as u16).to_be_bytes());
    packet[26..28].copy_from_slice(&(place as u16).to_be_bytes());
    put_numbers(&mut packet[28..], number, place);
    let sum = Sum::default().bytes(&packet[20..]).finish();
    packet[22..24].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn udp(from: Ipv4Addr, to: Ipv4Addr, number: usize, place: usize) -> Vec<u8> {
    let mut packet = vec![0; CALL_BYTES];
    ipv4_header(&mut packet, place as u16, ip::UDP, from, to);
    let port = (4000 + number as u16).to_be_bytes();
    packet[20..22].copy_from_slice(&port);
    packet[22..24].copy_from_slice(&port);
    packet[24..26].copy_from_slice(&(CALL_BYTES as u16 - 20).to_be_bytes());
    put_numbers(&mut packet[28..], number, place);
    packet
}
