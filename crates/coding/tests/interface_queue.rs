//! The interface queue, seen from outside: a relay whose neighbours do not decode, so that packets leave as they came.

mod common;

use std::time::Duration;

use coding::ethernet::Frame;
use coding::header::Header;
use coding::{Mode, NcLayer};
use common::{ACK, Tcp, address, forwarded, ip_frame, layer, ms, relay, tcp, udp};
use packet::ip::SCTP;

/// Number `seq` of a connection's segments.
fn segment(six: bool, port: u16, seq: u32) -> Vec<u8> {
    tcp(Tcp { six, from: 1, to: 3, port, flags: ACK, seq, ack: 0, payload: &[seq as u8; 1000] })
}

fn sctp(port: u8, n: u32) -> Vec<u8> {
    let payload = [&[0, port, 0, port, n as u8][..], &[0; 1000]].concat();
    common::ip(address(false, 1), address(false, 3), SCTP, &payload)
}

fn take(layer: &mut NcLayer, packets: impl IntoIterator<Item = Vec<u8>>) {
    packets.into_iter().for_each(|packet| relay(layer, ms(0), [1, 2, 3], &packet));
}

/// The next frame but for questions to neighbours.
fn next(layer: &mut NcLayer, now: Duration) -> Option<Vec<u8>> {
    let is_question = |frame: &Vec<u8>| {
        matches!(Header::parse(Frame::parse(frame).unwrap().payload), Ok(Header::Greeting(_)))
    };
    std::iter::from_fn(|| layer.poll_slave(now)).find(|frame| !is_question(frame))
}

fn all(layer: &mut NcLayer) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| next(layer, ms(0))).collect()
}

fn as_sent(packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    packets.into_iter().map(|packet| ip_frame(2, 3, &forwarded(packet))).collect()
}

#[test]
fn a_flow_that_begins_goes_first_and_each_keeps_its_order() {
    let of_tcp: Vec<_> = (0..10).map(|n| segment(false, 1, n)).collect();
    let of_sctp: Vec<_> = (0..10).map(|n| sctp(1, n)).collect();
    for (bulk, call) in [
        (&of_tcp, segment(false, 2, 0)),
        (&of_tcp, segment(true, 1, 0)),
        (&of_tcp, udp(1, 3, &[0; 200])),
        (&of_tcp, sctp(1, 0)),
        (&of_sctp, sctp(2, 0)),
    ] {
        let mut layer = layer(2, Mode::Any);
        take(&mut layer, bulk.clone());
        let before: Vec<_> = (0..2).filter_map(|_| next(&mut layer, ms(0))).collect();
        take(&mut layer, [call.clone()]);
        let order = [&bulk[..2], &[call], &bulk[2..]].concat();
        assert!([before, all(&mut layer)].concat() == as_sent(order));
    }
}

#[test]
fn a_full_queue_loses_the_first_of_the_longest_flow() {
    let mut layer = layer(2, Mode::Any);
    let call = udp(1, 3, &[0; 200]);
    take(&mut layer, (0..1001).map(|n| segment(false, 1, n)));
    take(&mut layer, [call.clone()]);
    assert_eq!(layer.kept(ms(0)).queued, 1000);
    let sent = all(&mut layer);
    assert_eq!((sent.len(), layer.stats().queue_dropped), (1000, 2));
    assert!(sent.contains(&as_sent([call])[0]) && sent[0] == as_sent([segment(false, 1, 2)])[0]);
}

/// Of 100 packets of one flow, of which one leaves every 10 ms.
fn dropped(mode: Mode) -> u64 {
    let mut layer = layer(2, mode);
    take(&mut layer, (0..100).map(|n| segment(false, 1, n)));
    let left = (0..100).filter_map(|n| next(&mut layer, ms(n * 10))).count() as u64;
    assert_eq!(left + layer.stats().queue_dropped, 100);
    layer.stats().queue_dropped
}

#[test]
fn what_waits_for_too_long_is_dropped_and_counted() {
    assert!(dropped(Mode::Any) > 0);
    assert_eq!(dropped(Mode::Piggy), 0);
}

#[test]
fn the_papers_modes_have_one_queue_for_all() {
    let mut layer = layer(2, Mode::Piggy);
    take(&mut layer, (0..1001).map(|n| segment(false, n as u16 % 2, n)));
    assert_eq!(layer.stats().queue_dropped, 1);
    let order = |frame: &Vec<u8>| {
        let packet = &Frame::parse(frame).unwrap().payload[coding::header::PLAIN..];
        u32::from_be_bytes(packet[24..28].try_into().unwrap())
    };
    assert!(all(&mut layer).iter().map(order).eq(1..1001));
}

#[test]
fn another_mode_changes_no_flows_order() {
    let mut layer = layer(2, Mode::Any);
    take(&mut layer, (0..10).map(|n| segment(false, n as u16 % 2, n)));
    let config = *layer.config();
    layer.reconfigure(ms(500), coding::Config { thin_acks: true, ..config });
    layer.reconfigure(ms(500), config);
    let sent = all(&mut layer);
    for port in 0..2 {
        let of_one = (0..10).filter(|n| n % 2 == port).map(|n| segment(false, port as u16, n));
        let ours: Vec<_> = sent.iter().filter(|frame| frame[35] == port as u8).cloned().collect();
        assert!(ours == as_sent(of_one), "{}", ours.len());
    }
}
