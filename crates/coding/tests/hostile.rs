//! Frames that nobody should send, and more of them than anybody should keep.

mod common;

use std::time::Duration;

use coding::ethernet::{self, Frame};
use coding::{Config, MAX_FLOWS, MAX_WQ_LEN, Mode, NcLayer};
use common::{LATER, Tcp, ack, config, data, forwarded, frame, heard, ip_frame, layer, mac, ms, relay, sent};

const THERE: [usize; 3] = [1, 2, 3];
const BACK: [usize; 3] = [3, 2, 1];

/// What `layer` sends when IP gives it `frame` to forward or send.
fn passed(layer: &mut NcLayer, frame: &[u8]) -> Vec<Vec<u8>> {
    layer.handle_master(ms(0), frame.to_vec());
    sent(layer, ms(0))
}

fn nc(payload: &[u8]) -> Vec<u8> {
    frame(1, mac(2), ethernet::NC, payload)
}

/// A sum that relay 2 sends to 3, for 1 to overhear.
fn sum() -> Vec<u8> {
    let mut relay_layer = layer(2, Mode::Delayed);
    relay(&mut relay_layer, ms(0), THERE, &data(1));
    relay(&mut relay_layer, ms(0), [3, 2, 1], &ack(0));
    sent(&mut relay_layer, ms(0)).remove(0)
}

#[test]
fn malformed_nc_frames_are_dropped_and_counted() {
    let mut layer = layer(2, Mode::Controlled);
    let plain = |packet: &[u8]| [&[0x20, 0, 0, 1, 0, 0, 0, 1, 0, 1], packet].concat();
    let bad: [&[u8]; 9] = [
        b"",
        &[0x20],
        &[0x30; 60],
        &[0x2f, 0, 0, 0],
        &[0x20, 7, 0, 0],
        &[0x21; 27],
        &plain(b""),
        &plain(&data(1)[..900]),
        &plain(&[0x50; 60]),
    ];
    for payload in bad {
        assert_eq!(heard(&mut layer, &[nc(payload)]), [[0; 0]; 0], "{payload:x?}");
    }
    assert_eq!(layer.stats().malformed, 9);
    assert_eq!(heard(&mut layer, &[nc(&plain(&data(1)))]), [data(1)]);
}

#[test]
fn frames_shorter_than_ethernets_header_are_ignored() {
    let mut layer = layer(2, Mode::Controlled);
    for length in 0..ethernet::HEADER {
        assert_eq!(heard(&mut layer, &[nc(b"")[..length].to_vec()]), [[0; 0]; 0]);
        assert_eq!(passed(&mut layer, &nc(b"")[..length]), [&nc(b"")[..length]]);
    }
}

#[test]
fn foreign_ethertypes_pass_both_ways() {
    for mode in Mode::ALL {
        foreign_ethertypes_pass(&mut layer(2, mode));
    }
}

fn foreign_ethertypes_pass(layer: &mut NcLayer) {
    for ethertype in [0x0806, 0x88b5, 0x88cc, 0x0026] {
        let out = frame(2, mac(3), ethertype, b"content");
        assert_eq!(passed(layer, &out), [out]);
        let broadcast = frame(1, coding::Mac::BROADCAST, ethertype, b"content");
        assert_eq!(heard(layer, &[broadcast]), [b"content"]);
        let overheard = frame(1, mac(9), ethertype, b"content");
        assert_eq!(heard(layer, &[overheard]), [[0; 0]; 0], "{ethertype:#x} for another node");
    }
}

#[test]
fn vlan_tags_are_not_looked_behind() {
    let tagged = [&[0, 5, 8, 0], &*data(1)].concat();
    for mode in Mode::ALL {
        let mut layer = layer(2, mode);
        let out = frame(2, mac(3), 0x8100, &tagged);
        assert_eq!(passed(&mut layer, &out), [out]);
        assert_eq!(heard(&mut layer, &[frame(1, mac(2), 0x8100, &tagged)]), [&*tagged]);
        assert_eq!(layer.kept(ms(0)), coding::Kept::default(), "{mode:?}");
    }
}

/// Relays `packet` in every mode while an ACK, or a datagram, goes the other way: all leave at once, and by themselves.
fn passes_as_it_is(packet: &[u8]) {
    for mode in Mode::ALL {
        let mut layer = if mode == Mode::Any { common::trying_relay() } else { layer(2, mode) };
        let before = layer.stats().sent_coded;
        relay(&mut layer, LATER, THERE, packet);
        let opposing = if mode == Mode::Any { common::udp(3, 1, &[7; 200]) } else { ack(0) };
        relay(&mut layer, LATER, BACK, &opposing);
        let frames = sent(&mut layer, LATER);
        assert!(frames.contains(&ip_frame(2, 3, &forwarded(packet.to_vec()))), "{mode:?}");
        sent(&mut layer, LATER + ms(10));
        assert_eq!((layer.stats().sent_coded, layer.kept(LATER).held), (before, 0), "{mode:?}");
    }
}

/// Data of `length` bytes.
fn segment(length: usize) -> Vec<u8> {
    let payload = vec![7; length];
    let flags = common::ACK;
    common::tcp(Tcp { six: false, from: 1, to: 3, port: 5001, flags, seq: 0, ack: 0, payload: &payload })
}

#[test]
fn fragments_pass_as_they_are() {
    for [flags, offset] in [[0x20, 0], [0x20, 5], [0, 5]] {
        let mut fragment = data(1);
        fragment[6..8].copy_from_slice(&[flags, offset]);
        passes_as_it_is(&forwarded(fragment));
    }
}

#[test]
fn fragments_of_ipv6_pass_as_they_are() {
    let whole = common::data_of(1, true);
    // The offset in units of eight bytes and, in the last bit, whether more follow.
    for place in [1u16, 5 << 3 | 1, 5 << 3] {
        let [high, low] = place.to_be_bytes();
        let behind = [&[packet::ip::TCP, 0, high, low, 0, 0, 0, 7], &whole[40..]].concat();
        passes_as_it_is(&common::ip(common::address(true, 1), common::address(true, 3), 44, &behind));
    }
}

#[test]
fn jumbo_packets_pass_as_they_are() {
    for length in [common::MTU - coding::header::PLAIN + 1 - 40, 9000 - 40] {
        passes_as_it_is(&segment(length));
    }
}

#[test]
fn tso_packets_pass_as_they_are() {
    for length in [2 * 1448, 65_000] {
        passes_as_it_is(&segment(length));
    }
}

/// What a slave carries, jumbo frames as well. A plain packet fits where its sum with any other, whose header is longer, would not.
#[test]
fn a_sum_is_made_up_to_the_mtu_and_no_longer() {
    for mtu in [common::MTU, 1600, 9000] {
        for (longer, sums) in [(0, 1), (1, 0), (coding::header::CODED - coding::header::PLAIN, 0)] {
            for mode in [Mode::Delayed, Mode::Piggy] {
                let mut layer = NcLayer::new(Config { mtu, ..config(2, mode, ms(10)) }, 2);
                relay(&mut layer, ms(0), THERE, &segment(mtu - coding::header::CODED - 40 + longer));
                relay(&mut layer, ms(0), BACK, &ack(0));
                let frames = sent(&mut layer, ms(10));
                let counts = (frames.len() as u64, layer.stats().sent_coded);
                assert_eq!(counts, (2 - sums, sums), "{mode:?}, {mtu}, {longer}");
                assert!(frames.iter().all(|frame| frame.len() <= ethernet::HEADER + mtu), "{mode:?}, {mtu}");
            }
        }
    }
}

#[test]
fn a_wrong_header_checksum_passes_as_it_is() {
    let mut layer = layer(2, Mode::Delayed);
    let mut packet = data(1);
    packet[10] ^= 1;
    let out = ip_frame(2, 3, &packet);
    assert_eq!(passed(&mut layer, &out), [out]);
}

#[test]
fn own_frames_that_come_back_are_ignored() {
    let mut layer = layer(2, Mode::Controlled);
    assert_eq!(heard(&mut layer, &[ip_frame(2, 2, &data(1)), ip_frame(2, 3, &data(1))]), [[0; 0]; 0]);
}

#[test]
fn a_sum_without_its_partner_is_dropped_and_counted() {
    let mut left = layer(1, Mode::Controlled);
    assert_eq!(heard(&mut left, &[sum()]), [[0; 0]; 0]);
    assert_eq!((left.stats().missing_partner, left.stats().wrong_partner), (1, 0));
}

#[test]
fn a_damaged_sum_is_dropped_and_counted() {
    let mut left = layer(1, Mode::Controlled);
    left.handle_master(ms(0), ip_frame(1, 2, &data(1)));
    sent(&mut left, ms(0));
    let mut damaged = sum();
    damaged[ethernet::HEADER + coding::header::CODED + 25] ^= 1;
    assert_eq!(heard(&mut left, &[damaged]), [[0; 0]; 0]);
    assert_eq!((left.stats().missing_partner, left.stats().wrong_partner), (0, 1));
    assert_eq!(heard(&mut left, &[sum()]), [forwarded(ack(0))]);
}

/// A sum heard twice is two packets for IP, as a frame heard twice is.
#[test]
fn a_replayed_sum_is_no_worse_than_a_replayed_packet() {
    let mut left = layer(1, Mode::Controlled);
    left.handle_master(ms(0), ip_frame(1, 2, &data(1)));
    sent(&mut left, ms(0));
    assert_eq!(heard(&mut left, &[sum(), sum()]).len(), 2);
    assert_eq!(Frame::parse(&sum()).unwrap().destination, mac(3));
}

#[test]
fn memory_is_bounded_whatever_comes() {
    for mode in [Mode::Piggy, Mode::Delayed, Mode::Controlled, Mode::Any] {
        let mut layer = layer(2, mode);
        for n in 0..20_000u32 {
            let (port, payload) = ((n % 700) as u16, [1; 30]);
            let tcp = Tcp {
                six: false,
                from: 1,
                to: 3,
                port,
                flags: common::ACK,
                seq: n,
                ack: 0,
                payload: &payload,
            };
            relay(&mut layer, ms(u64::from(n) / 5000), THERE, &common::tcp(tcp));
        }
        let kept = layer.kept(ms(0));
        assert!(kept.queued <= 1000 && kept.arrivals <= 1024 && kept.copies <= 4096, "{kept:?}");
        assert!(kept.flows <= MAX_FLOWS && kept.held <= MAX_FLOWS * MAX_WQ_LEN, "{kept:?}");
        assert!(layer.stats().queue_dropped > 0, "{mode:?}");
        let left = sent(&mut layer, ms(100)).len();
        // What waited, and a question to each of two neighbours.
        assert!(left <= 1002 && layer.kept(ms(0)).held == 0, "{mode:?} {left}");
    }
}

#[test]
fn one_flow_too_many_takes_the_place_of_the_most_silent() {
    let mut layer = layer(2, Mode::Delayed);
    let data_of = |port: usize| {
        let (port, payload) = (port as u16, [1; 30]);
        let flags = common::ACK;
        common::tcp(Tcp { six: false, from: 1, to: 3, port, flags, seq: 0, ack: 0, payload: &payload })
    };
    for port in 0..MAX_FLOWS {
        relay(&mut layer, Duration::from_micros(port as u64), THERE, &data_of(port));
    }
    assert_eq!((sent(&mut layer, ms(1)).len(), layer.flows().len()), (0, MAX_FLOWS));
    relay(&mut layer, ms(1), THERE, &data_of(MAX_FLOWS));
    let frames = sent(&mut layer, ms(1));
    assert_eq!((frames.len(), layer.flows().len()), (1, MAX_FLOWS), "what it held is not lost");
    assert!(frames[0].ends_with(&forwarded(data_of(0))));
}

#[test]
fn a_flow_has_a_bounded_wait_queue() {
    let mut layer = layer(2, Mode::Delayed);
    for n in 0..200 {
        relay(&mut layer, ms(0), THERE, &data(n));
    }
    assert_eq!((layer.kept(ms(0)).held, sent(&mut layer, ms(0)).len()), (MAX_WQ_LEN, 200 - MAX_WQ_LEN));
}
