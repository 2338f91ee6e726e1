//! TCP over a chain of nodes with an NC layer each, over the 802.11 medium, in virtual time.
#![allow(dead_code, reason = "each test uses what it needs")]

pub mod tcp;

use std::time::Duration;

use coding::ethernet::Frame;
use coding::{Config, Mode, NcLayer, Stats};
use link::dcf::{DcfConfig, Destination, Medium, Phy, Position};
use link::{PacketCount, Probability};
use packet::ip::UDP;

use crate::common::{config, forwarded, ip_frame, mac, udp};
use tcp::{Connection, MSS, mean_ms};

/// Frames that an interface's own queue takes.
const OWN_QUEUE: u64 = 1000;
/// A call, as G.711 has it: 20 ms of speech with RTP's header, in bytes.
const CALL_EVERY: Duration = Duration::from_millis(20);
const CALL_BYTES: usize = 172;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub mode: Mode,
    pub hops: usize,
    pub wait: Duration,
    pub thin_acks: bool,
    /// Segments.
    pub window: u32,
    pub flows: u16,
    pub both_ways: bool,
    /// Whether host 1 calls the last: a datagram every 20 ms.
    pub call: bool,
    pub overhearing_loss: f64,
    /// Frames that go as one transmission at most.
    pub aggregate: usize,
    /// Frames that the layer leaves to the interface's queue.
    pub below: u64,
    /// Whether a layer that cannot code leaves it all of them; they wait there by flow, with CoDel.
    pub fq_codel: bool,
    pub phy: Phy,
    /// How far the medium is sensed, in metres, where stations are 90 apart: less than 180, and those beside one are hidden from each
    /// other. `None`: as far as the basic rate is decoded, which all here are.
    pub sense_m: Option<f64>,
    pub seconds: u64,
    pub seed: u64,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            mode: Mode::Off,
            hops: 2,
            wait: Duration::from_millis(10),
            thin_acks: false,
            window: 64,
            flows: 1,
            both_ways: false,
            call: false,
            overhearing_loss: 0.0,
            aggregate: 1,
            below: 1,
            fq_codel: false,
            phy: Phy::g54(),
            sense_m: None,
            seconds: 10,
            seed: 1,
        }
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub goodput_mbps: f64,
    pub rtt_ms: f64,
    /// The 95th percentile of the call's delays, in ms; of those lost as of none.
    pub call_ms: f64,
    /// Of the call's datagrams, in percent.
    pub call_lost: f64,
    /// By all nodes, per segment delivered.
    pub sent_per_segment: f64,
    pub data_per_ack: f64,
    pub retransmitted: u64,
    pub stats: Vec<Stats>,
}

impl Outcome {
    pub fn coded(&self) -> u64 {
        self.stats.iter().map(|stats| stats.sent_coded).sum()
    }
}

/// A call's datagrams: when each was sent, and how long those that arrived took.
#[derive(Default)]
struct Call {
    sent: Vec<Duration>,
    delays: Vec<Duration>,
}

struct World {
    medium: Medium,
    call: Option<Call>,
    layers: Vec<NcLayer>,
    connections: Vec<Connection>,
    below: u64,
    now: Duration,
}

pub fn run(scenario: &Scenario) -> Outcome {
    let mut dcf = DcfConfig::new(scenario.phy, Position::chain(scenario.hops + 1, 90.0));
    dcf.queue = PacketCount(if scenario.fq_codel { OWN_QUEUE } else { scenario.below });
    dcf.reach.sense_m = scenario.sense_m;
    dcf.aggregate = scenario.aggregate;
    dcf.fq_codel = scenario.fq_codel;
    dcf.overhearing_loss = Probability::new(scenario.overhearing_loss).unwrap();
    let last = scenario.hops as u8 + 1;
    let there = (0..scenario.flows).map(|port| Connection::new(1, last, port, scenario.window));
    let back = (100..100 + scenario.flows).map(|port| Connection::new(last, 1, port, scenario.window));
    let back = back.filter(|_| scenario.both_ways);
    let mut world = World {
        medium: Medium::new(dcf, scenario.seed),
        call: scenario.call.then(Call::default),
        layers: (1..=scenario.hops + 1)
            .map(|n| Config { thin_acks: scenario.thin_acks, ..config(n, scenario.mode, scenario.wait) })
            .zip(1..)
            .map(|(config, secret)| NcLayer::new(config, secret))
            .collect(),
        connections: there.chain(back).collect(),
        below: scenario.below,
        now: Duration::ZERO,
    };
    world.run(Duration::from_secs(scenario.seconds));
    world.outcome(scenario)
}

impl Call {
    fn next(&self) -> Duration {
        CALL_EVERY * self.sent.len() as u32
    }

    fn p95_ms(&self) -> f64 {
        let mut delays = self.delays.clone();
        delays.sort();
        delays[delays.len() * 95 / 100].as_secs_f64() * 1e3
    }

    /// Those still under way count as well.
    fn lost_percent(&self) -> f64 {
        (1.0 - self.delays.len() as f64 / self.sent.len() as f64) * 100.0
    }
}

impl World {
    fn run(&mut self, until: Duration) {
        while self.now < until {
            for index in 0..self.connections.len() {
                self.fill(index);
            }
            self.talk();
            self.transmit();
            let next = self.next();
            self.now = next.max(self.now);
            while let Some(arrival) = self.medium.poll(self.now) {
                self.layers[arrival.station].handle_slave(arrival.at, &arrival.frame);
                self.forward(arrival.station);
            }
            for index in 0..self.connections.len() {
                let connection = &mut self.connections[index];
                let (from, to) = (connection.from, connection.to);
                let [data, ack] = connection.handle_timers(self.now);
                [(data, from, to), (ack, to, from)].into_iter().for_each(|(packet, from, to)| {
                    packet.into_iter().for_each(|packet| self.originate(from, to, &packet));
                });
            }
        }
    }

    fn next(&self) -> Duration {
        let holds = self.layers.iter().enumerate().filter(|(n, _)| self.has_room(*n));
        let holds = holds.filter_map(|(_, layer)| layer.poll_timeout());
        let timers = self.connections.iter().map(Connection::next_timer);
        let call = self.call.as_ref().map(Call::next);
        holds.chain(timers).chain(call).chain(self.medium.poll_timeout()).min().unwrap()
    }

    /// The call's datagrams that are due, each with its number in it.
    fn talk(&mut self) {
        let last = self.layers.len() as u8;
        while let Some(call) = self.call.as_mut().filter(|call| call.next() <= self.now) {
            let number = call.sent.len() as u32;
            call.sent.push(self.now);
            let payload = [&number.to_be_bytes()[..], &[0; CALL_BYTES - 4]].concat();
            self.originate(1, last, &udp(1, last, &payload));
        }
    }

    fn fill(&mut self, index: usize) {
        let (from, to) = (self.connections[index].from, self.connections[index].to);
        while let Some(packet) = self.connections[index].poll_data(self.now) {
            self.originate(from, to, &packet);
        }
    }

    /// Host `from` sends a packet to host `to`, by its neighbour on the way.
    fn originate(&mut self, from: u8, to: u8, packet: &[u8]) {
        let from = usize::from(from);
        let next = if usize::from(to) > from { from + 1 } else { from - 1 };
        self.layers[from - 1].handle_master(self.now, ip_frame(from, next, packet));
    }

    /// Whether the interface of node `n` takes a frame, be it all that its queue is or what the layer leaves it of that.
    fn has_room(&self, n: usize) -> bool {
        let (room, all) = (self.medium.room(n).0, self.medium.queue().0);
        let most = if self.layers[n].can_code(self.now) { self.below } else { all };
        all - room < most
    }

    fn transmit(&mut self) {
        for n in 0..self.layers.len() {
            while self.has_room(n) {
                let Some(frame) = self.layers[n].poll_slave(self.now) else { break };
                let to = Frame::parse(&frame).unwrap().destination;
                let to = (0..self.layers.len()).find(|n| mac(n + 1) == to);
                let to = to.map_or(Destination::Broadcast, Destination::Station);
                self.medium.send(self.now, n, to, frame).expect("there is room");
            }
        }
    }

    /// What IP of node `n` does with what it is handed.
    fn forward(&mut self, n: usize) {
        while let Some(frame) = self.layers[n].poll_master() {
            let packet = Frame::parse(&frame).unwrap().payload.to_vec();
            let (to, own) = (usize::from(packet[19]), n + 1);
            if to == own {
                self.arrive(own, &packet);
            } else {
                let next = if to > own { own + 1 } else { own - 1 };
                self.layers[n].handle_master(self.now, ip_frame(own, next, &forwarded(packet)));
            }
        }
    }

    fn arrive(&mut self, host: usize, packet: &[u8]) {
        let now = self.now;
        if let Some(call) = self.call.as_mut().filter(|_| packet[9] == UDP) {
            let number = u32::from_be_bytes(packet[28..32].try_into().unwrap());
            call.delays.push(now - call.sent[number as usize]);
            return;
        }
        let Some((index, (seq, ack, data))) =
            self.connections.iter().enumerate().find_map(|(n, c)| Some((n, c.reads(packet)?)))
        else {
            return;
        };
        let connection = &mut self.connections[index];
        let other = if host == usize::from(connection.from) { connection.to } else { connection.from };
        let answer = if data { connection.handle_data(now, seq) } else { connection.handle_ack(now, ack) };
        answer.into_iter().for_each(|packet| self.originate(host as u8, other, &packet));
    }

    fn outcome(&self, scenario: &Scenario) -> Outcome {
        let segments: u64 = self.connections.iter().map(|c| u64::from(c.expected)).sum();
        let acks: u64 = self.connections.iter().map(|c| c.acks).sum();
        let rtts: Vec<Duration> = self.connections.iter().flat_map(|c| c.rtts.iter().copied()).collect();
        let stats: Vec<Stats> = self.layers.iter().map(|layer| *layer.stats()).collect();
        let sent: u64 = stats.iter().map(|stats| stats.sent).sum();
        Outcome {
            goodput_mbps: (segments * u64::from(MSS) * 8) as f64 / scenario.seconds as f64 / 1e6,
            rtt_ms: mean_ms(&rtts),
            call_ms: self.call.as_ref().map_or(0.0, Call::p95_ms),
            call_lost: self.call.as_ref().map_or(0.0, Call::lost_percent),
            sent_per_segment: sent as f64 / segments as f64,
            data_per_ack: segments as f64 / acks as f64,
            retransmitted: self.connections.iter().map(|c| c.retransmitted).sum(),
            stats,
        }
    }
}
