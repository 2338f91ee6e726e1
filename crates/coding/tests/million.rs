//! A million packets through three nodes that lose, reorder and restart: what arrives is what was sent, byte for byte.

mod common;

use std::collections::HashMap;
use std::time::Duration;

use coding::ethernet::Frame;
use coding::{Mode, NcLayer};
use common::{Tcp, config, forwarded, ip_frame, ms};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Nodes 1, 2, 3 in a row; hosts 1 and 3 talk through 2.
struct World {
    mode: Mode,
    rng: ChaCha8Rng,
    now: Duration,
    layers: [NcLayer; 3],
    /// Frames on the air: the node that hears it, and the frame.
    air: Vec<(usize, Vec<u8>)>,
    /// What each host must not get but as it is here, by number, and whether it did.
    expected: HashMap<u32, (Vec<u8>, bool)>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    sent: u32,
    arrived: u32,
    decoded: u64,
    missing_partner: u64,
    wrong_partner: u64,
}

impl World {
    fn new(mode: Mode) -> World {
        let layers = [1, 2, 3].map(|n| NcLayer::new(config(n, mode, ms(2)), n as u64));
        World {
            mode,
            rng: ChaCha8Rng::seed_from_u64(mode as u64),
            now: Duration::ZERO,
            layers,
            air: Vec::new(),
            expected: HashMap::new(),
            totals: Totals::default(),
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.rng.next_u32() % bound
    }

    fn run(mut self, packets: u32) -> Totals {
        while self.totals.sent < packets {
            let pause = self.below(300);
            self.now += Duration::from_micros(pause.into());
            match self.below(10_000) {
                0 => self.restart(),
                1..4000 => self.send_something(),
                _ => self.hear_something(),
            }
            let node = self.below(3) as usize;
            self.transmit(node);
            while self.air.len() > 8 {
                self.hear_something();
            }
        }
        (0..3).for_each(|node| self.count(node));
        self.totals
    }

    /// A host sends a random packet, its number in front of random bytes.
    fn send_something(&mut self) {
        self.totals.sent += 1;
        let number = self.totals.sent;
        let (from, to) = if self.below(2) == 0 { (1, 3) } else { (3, 1) };
        let mut payload = vec![0; [0, 4, 60, 300][self.below(4) as usize]];
        self.rng.fill_bytes(&mut payload);
        let (port, draw) = (self.below(3) as u16, self.below(40));
        let flags = if draw == 0 {
            common::SYN
        } else if draw == 1 {
            common::FIN
        } else {
            common::ACK
        };
        let six = port == 2;
        let packet = if draw == 2 {
            common::udp(from, to, &[&number.to_be_bytes(), &*payload].concat())
        } else {
            common::tcp(Tcp { six, from, to, port, flags, seq: number, ack: number, payload: &payload })
        };
        self.expected.insert(number, (forwarded(packet.clone()), false));
        let node = usize::from(from);
        self.layers[node - 1].handle_master(self.now, ip_frame(node, 2, &packet));
    }

    /// A node sends a frame, which its neighbours hear, or do not.
    fn transmit(&mut self, node: usize) {
        let Some(frame) = self.layers[node].poll_slave(self.now) else { return };
        let neighbours: &[usize] = if node == 1 { &[0, 2] } else { &[1] };
        for neighbour in neighbours {
            if self.below(50) > 0 {
                self.air.push((*neighbour, frame.clone()));
            }
        }
    }

    /// A frame is heard, mostly one of the first; its packet is forwarded, or has arrived.
    fn hear_something(&mut self) {
        if self.air.is_empty() {
            return;
        }
        let among = self.air.len().min(4) as u32;
        let index = if self.below(4) == 0 { self.below(among) as usize } else { 0 };
        let (node, heard) = self.air.remove(index);
        self.layers[node].handle_slave(self.now, &heard);
        while let Some(handed) = self.layers[node].poll_master() {
            let packet = Frame::parse(&handed).unwrap().payload.to_vec();
            if node == 1 { self.forward(packet) } else { self.arrive(&packet) }
        }
    }

    fn forward(&mut self, packet: Vec<u8>) {
        let to = if to_host_3(&packet) { 3 } else { 1 };
        self.layers[1].handle_master(self.now, ip_frame(2, to, &forwarded(packet)));
    }

    fn arrive(&mut self, packet: &[u8]) {
        let number = number(packet);
        let (expected, arrived) =
            self.expected.get_mut(&number).unwrap_or_else(|| panic!("nobody sent {number}"));
        assert_eq!(packet, expected, "packet {number}");
        let again = std::mem::replace(arrived, true);
        assert!(!again || self.mode == Mode::Any, "{number} arrived twice");
        self.totals.arrived += u32::from(!again);
    }

    /// A node forgets everything.
    fn restart(&mut self) {
        let node = self.below(3) as usize;
        self.count(node);
        self.layers[node] = NcLayer::new(config(node + 1, self.mode, ms(2)), node as u64);
    }

    fn count(&mut self, node: usize) {
        let stats = self.layers[node].stats();
        assert_eq!(stats.malformed, 0);
        self.totals.decoded += stats.decoded;
        self.totals.missing_partner += stats.missing_partner;
        self.totals.wrong_partner += stats.wrong_partner;
    }
}

fn to_host_3(packet: &[u8]) -> bool {
    if packet[0] >> 4 == 6 { packet[39] == 3 } else { packet[19] == 3 }
}

/// TCP's sequence number, or what a UDP packet begins with.
fn number(packet: &[u8]) -> u32 {
    let transport = if packet[0] >> 4 == 6 { 40 } else { 20 };
    let at = if packet[9] == 17 && transport == 20 { 28 } else { transport + 4 };
    u32::from_be_bytes(packet[at..at + 4].try_into().unwrap())
}

fn check(mode: Mode, packets: u32) {
    let totals = World::new(mode).run(packets);
    println!("{mode:?}: {totals:?}");
    assert!(totals.arrived > packets / 2, "{totals:?}");
    assert!(totals.decoded > u64::from(packets) / 100, "{totals:?}");
    assert!(totals.missing_partner > 0, "restarts forget copies: {totals:?}");
    assert_eq!(totals.wrong_partner, 0, "{totals:?}");
}

#[test]
fn a_million_packets_arrive_as_they_were_sent() {
    check(Mode::Any, 1_000_000);
}

#[test]
fn the_other_modes_deliver_what_was_sent_too() {
    check(Mode::Controlled, 200_000);
    check(Mode::Delayed, 200_000);
    check(Mode::Piggy, 200_000);
}
