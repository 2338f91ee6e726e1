//! Packets, and nodes that forward them as a kernel's IP does.
#![allow(dead_code, reason = "each test uses what it needs")]

use std::net::IpAddr;
use std::time::Duration;

use coding::ethernet::{self, Frame};
use coding::header::{Greeting, Header};
use coding::{Config, Mac, Mode, NcLayer};
use packet::checksum::Sum;
use packet::ip::{TCP, UDP};
pub const ACK: u8 = packet::tcp::ACK;
pub const FIN: u8 = packet::tcp::FIN;
pub const SYN: u8 = packet::tcp::SYN;

/// What a slave of these tests carries: a full-sized packet and any NC header.
pub const MTU: usize = 1560;

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The MAC address of node `n`.
pub fn mac(n: usize) -> Mac {
    Mac([2, 0, 0, 0, (n >> 8) as u8, n as u8])
}

pub fn config(n: usize, mode: Mode, wait: Duration) -> Config {
    Config { mode, wait, thin_acks: false, mac: mac(n), mtu: MTU, ..Config::default() }
}

pub fn layer(n: usize, mode: Mode) -> NcLayer {
    NcLayer::new(config(n, mode, ms(10)), n as u64)
}

/// An address of host `n`.
pub fn address(six: bool, n: u8) -> IpAddr {
    if six { format!("fd88::{n}") } else { format!("10.88.0.{n}") }.parse().unwrap()
}

/// A TCP segment, sent.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    pub six: bool,
    pub from: u8,
    pub to: u8,
    pub port: u16,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub payload: &'a [u8],
}

/// Data number `n` of host 1 for host 3.
pub fn data(n: u32) -> Vec<u8> {
    data_of(n, false)
}

pub fn data_of(n: u32, six: bool) -> Vec<u8> {
    let payload = [n as u8; 1000];
    tcp(Tcp { six, from: 1, to: 3, port: 5001, flags: ACK, seq: n * 1000, ack: 7, payload: &payload })
}

/// Host 3's ACK of data up to number `n`.
pub fn ack(n: u32) -> Vec<u8> {
    ack_of(n, false)
}

pub fn ack_of(n: u32, six: bool) -> Vec<u8> {
    let ack = (n + 1) * 1000;
    tcp(Tcp { six, from: 3, to: 1, port: 5001, flags: ACK, seq: 7, ack, payload: &[] })
}

/// The packet; the port is the same at both ends.
pub fn tcp(tcp: Tcp<'_>) -> Vec<u8> {
    let (source, destination) = (address(tcp.six, tcp.from), address(tcp.six, tcp.to));
    let mut segment = [tcp.port.to_be_bytes(), tcp.port.to_be_bytes()].concat();
    segment.extend(tcp.seq.to_be_bytes());
    segment.extend(tcp.ack.to_be_bytes());
    segment.extend([0x50, tcp.flags, 0x10, 0, 0, 0, 0, 0]);
    segment.extend(tcp.payload);
    let checksum = Sum::pseudo_header(source, destination, TCP, segment.len()).bytes(&segment).finish();
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    ip(source, destination, TCP, &segment)
}

pub fn udp(from: u8, to: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (address(false, from), address(false, to));
    let mut datagram = [9u16.to_be_bytes(), 9u16.to_be_bytes()].concat();
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    let checksum = Sum::pseudo_header(source, destination, UDP, datagram.len()).bytes(&datagram).finish_udp();
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    ip(source, destination, UDP, &datagram)
}

pub fn ip(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = (20 + payload.len() as u16).to_be_bytes();
            let mut header = vec![0x45, 0, length[0], length[1], 0, 7, 0x40, 0, 64, protocol, 0, 0];
            header.extend(source.octets());
            header.extend(destination.octets());
            let checksum = Sum::default().bytes(&header).finish();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let length = (payload.len() as u16).to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
            header.extend(source.octets());
            header.extend(destination.octets());
            header
        }
        _ => panic!("two versions in one packet"),
    };
    packet.extend(payload);
    packet
}

/// What a router does to a packet.
pub fn forwarded(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[8] -= 1;
        packet[10..12].fill(0);
        let header = usize::from(packet[0] & 15) * 4;
        let checksum = Sum::default().bytes(&packet[..header]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        packet[7] -= 1;
    }
    packet
}

/// A frame from one node to another with `payload` behind `ethertype`.
pub fn frame(from: usize, to: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &mac(from).0, &ethertype.to_be_bytes(), payload].concat()
}

/// A packet in a frame.
pub fn ip_frame(from: usize, to: usize, packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 6 { ethernet::IPV6 } else { ethernet::IPV4 };
    frame(from, mac(to), ethertype, packet)
}

/// Lets node `relay` receive `packet` from its neighbour `from` and forward it to `to`.
pub fn relay(layer: &mut NcLayer, now: Duration, [from, relay, to]: [usize; 3], packet: &[u8]) {
    layer.handle_slave(now, &ip_frame(from, relay, packet));
    let handed = layer.poll_master().expect("what is for the relay goes to its IP");
    let packet = Frame::parse(&handed).unwrap().payload.to_vec();
    layer.handle_master(now, ip_frame(relay, to, &forwarded(packet)));
}

/// All that is ready to leave.
pub fn sent(layer: &mut NcLayer, now: Duration) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| layer.poll_slave(now)).collect()
}

/// What node `layer` hands to IP when it hears `frames`.
pub fn heard(layer: &mut NcLayer, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().for_each(|frame| layer.handle_slave(ms(0), frame));
    let packet = |frame: Vec<u8>| Frame::parse(&frame).unwrap().payload.to_vec();
    std::iter::from_fn(|| layer.poll_master()).map(packet).collect()
}

/// A node's greeting to another, in mode `any`.
pub fn greeting(from: usize, to: Mac, greeting: Greeting) -> Vec<u8> {
    let mut payload = Vec::new();
    greeting.emit(&mut payload);
    frame(from, to, ethernet::NC, &payload)
}

/// What such a frame says.
pub fn greeting_in(bytes: &[u8]) -> Greeting {
    match Header::parse(Frame::parse(bytes).unwrap().payload) {
        Ok(Header::Greeting(greeting)) => greeting,
        other => panic!("{other:?} is no greeting"),
    }
}

/// Relay 2 in mode `any` asks its neighbours 1 and 3, and those of them answer that `decode`. Its nonce.
pub fn acquaint(layer: &mut NcLayer, decode: &[usize]) -> u64 {
    relay(layer, ms(0), [1, 2, 3], &data(100));
    let nonce = greeting_in(&sent(layer, ms(0))[0]).nonce;
    for n in decode {
        heard(layer, &[greeting(*n, mac(2), Greeting { asks: false, nonce })]);
    }
    nonce
}

/// When mode `any` tries data, and not only ACKs.
pub const LATER: Duration = Duration::from_millis(500);

/// Relay 2 between 1 and 3, which decode, in mode `any` when anything may be coded; and its nonce.
pub fn trying() -> (NcLayer, u64) {
    let mut layer = layer(2, Mode::Any);
    let nonce = acquaint(&mut layer, &[1, 3]);
    relay(&mut layer, LATER, [1, 2, 3], &data(100));
    sent(&mut layer, LATER);
    (layer, nonce)
}

/// The same relay.
pub fn trying_relay() -> NcLayer {
    trying().0
}
