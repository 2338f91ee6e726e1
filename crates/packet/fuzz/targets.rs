//! What the fuzzers call, and `tests/corpus.rs` on stable Rust. No bytes may make it panic.
#![allow(dead_code, reason = "each fuzzer calls one of these")]

use packet::gro::{Accepts, Trains};
use packet::gso::{self, Segmentation};
use packet::sctp::{self, Content};
use packet::{DataFrame, Ecn, Ip, Sctp, Tcp};

/// Every view and every rewrite of one packet.
pub fn views(data: &[u8]) {
    if let Ok(ip) = Ip::parse(data) {
        let _ = (ip.source(), ip.destination(), ip.tos(), ip.ecn(), ip.dont_fragment(), ip.is_fragment());
        let _ = (packet::flow_hash(&ip, 1), packet::reverse_flow_hash(&ip, 1));
        let _ = Tcp::parse(&ip).map(|tcp| (tcp.sequence(), tcp.payload().len(), tcp.window_scale()));
    }
    let mut reply = Vec::new();
    if packet::packet_too_big(data, 1280, &mut reply) || packet::unreachable(data, &mut reply) {
        assert!(Ip::parse(&reply).is_ok() && reply.len() <= 1280, "an answer is a packet");
    }
    let mut changed = data.to_vec();
    if packet::clamp_mss(&mut changed, 1280) {
        assert!(!packet::clamp_mss(&mut changed, 1280), "once is enough");
    }
    packet::set_ecn(&mut changed, Ecn::from_tos(3));
    packet::set_window(&mut changed, 7);
    assert_eq!(changed.len(), data.len());
}

/// What a monitor interface hands out: no more comes out than went in.
pub fn dot11(data: &[u8]) {
    let mut out = 0;
    if let Ok(frame) = DataFrame::parse(data) {
        frame.ethernet(|ethernet| {
            assert!(ethernet.len() >= 14, "a frame has a header");
            out += ethernet.len();
        });
    }
    assert!(out <= data.len());
}

/// Byte 0: the kind; bytes 1 and 2: the segment size; then the super-packet.
pub fn gso(data: &[u8]) {
    let Some(([kind, high, low], packet)) = data.split_first_chunk::<3>().map(|(head, rest)| (*head, rest))
    else {
        return;
    };
    let kind = if kind & 1 == 0 { Segmentation::Tcp } else { Segmentation::Udp };
    let size = usize::from(u16::from_be_bytes([high, low]));
    let mut packet = packet.to_vec();
    let (mut count, whole) = (0, packet.len());
    let result = gso::split(&mut packet, kind, size, |segment| {
        assert!(Ip::parse(segment).is_ok() && segment.len() <= whole, "a segment is a packet");
        count += 1;
    });
    assert_eq!(result.unwrap_or(0), count);
}

/// An SCTP packet from its common header on, and an IP packet that may carry one.
pub fn sctp(data: &[u8]) {
    if let Ok(ip) = Ip::parse(data) {
        let _ = Sctp::parse(&ip, sctp::UDP_PORT).map(|sctp| (sctp.verification_tag(), sctp.chunks().count()));
    }
    let Ok(sctp) = Sctp::from_bytes(data) else { return };
    let mut length = 0;
    for chunk in sctp.chunks().flatten() {
        length += 4 + chunk.value.len();
        match chunk.content() {
            Ok(Content::Init(init) | Content::InitAck(init)) => {
                let _ = sctp::addresses(init.parameters).count();
            }
            Ok(Content::Asconf(_, parameters)) => {
                let _ = sctp::changes(parameters).count();
            }
            Ok(Content::Sack(sack)) => {
                let lists = sack.gap_blocks().count() + sack.duplicates().count();
                assert_eq!(12 + 4 * lists, chunk.value.len().min(12 + 4 * lists), "no more than it has");
            }
            Ok(Content::Heartbeat(info) | Content::HeartbeatAck(info)) => {
                let _ = info.count();
            }
            _ => {}
        }
    }
    assert!(12 + length <= data.len(), "chunks do not overlap");
    let mut changed = data.to_vec();
    sctp::fill_checksum(&mut changed);
    assert!(Sctp::from_bytes(&changed).is_ok_and(|sctp| sctp.checksum_right()));
}

/// Packets, each behind its length in two bytes.
pub fn gro(mut data: &[u8]) {
    let mut packets = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk::<2>() {
        let (packet, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        packets.push(packet);
        data = rest;
    }
    let mut trains = Trains::default();
    trains.group(&packets, Accepts { tcp: true, udp: true });
    let mut members: Vec<_> =
        trains.iter().flat_map(|train| trains.members(&train).collect::<Vec<_>>()).collect();
    for train in trains.iter() {
        let first = trains.members(&train).next().expect("a train has a packet");
        let _ = train.header(packets[first]);
    }
    members.sort_unstable();
    assert!(members.into_iter().eq(0..packets.len()), "every packet is in one train");
}
