//! What happens to inner packets: sources, sizes, marks, and which paths they take.

mod sim;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use link::LinkConfig;
use sim::{Datagram, Net, Options, inner, inner6, plain, record, udp_packet};
use tunnel::{Config, Cost, Mtu, Scheduler};

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const TRANSPORT: u8 = 4;
/// Outer IPv4, UDP, transport header, tag and data header.
const AROUND: u16 = 20 + 8 + 16 + 16 + 12;

fn net(wires: usize, tweak: impl Fn(usize, &mut Config)) -> Net {
    net_over(false, wires, tweak)
}

fn net_over(v6: bool, wires: usize, tweak: impl Fn(usize, &mut Config)) -> Net {
    let mut net = Net::quick_over(v6, wires, 10 * MS, tweak);
    net.pass(3 * S);
    net
}

/// Gives `end` an inner packet and lets it arrive.
fn give(net: &mut Net, end: usize, mut packet: Vec<u8>) {
    net.ends[end].handle_inner(net.now, &mut packet);
    net.pass(300 * MS);
}

/// Data packets of `log`, by their size.
fn data(log: &Rc<RefCell<Vec<Datagram>>>, least: usize) -> Vec<Datagram> {
    log.borrow().iter().filter(|d| d.kind() == TRANSPORT && d.bytes.len() >= least).cloned().collect()
}

/// Loses what is larger than `mtu` bytes of outer IPv4 packet.
fn limit(net: &mut Net, wire: usize, mtu: usize) {
    net.tap = Some(Box::new(move |d| d.wire != wire || d.bytes.len() + 28 <= mtu));
}

/// A TCP SYN that announces `mss`.
fn syn(mss: u16) -> Vec<u8> {
    let mut p = udp_packet(inner(0), inner(1), 44);
    p[9] = 6;
    p[20..].fill(0);
    (p[32], p[33]) = (6 << 4, 2);
    p[40..44].copy_from_slice(&[2, 4, (mss >> 8) as u8, mss as u8]);
    p
}

fn packet6(source: usize, destination: usize, payload: usize) -> Vec<u8> {
    let mut p = vec![0; 40 + payload];
    p[0] = 0x60;
    p[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    (p[6], p[7]) = (59, 64);
    p[8..24].copy_from_slice(&inner6(source).octets());
    p[24..40].copy_from_slice(&inner6(destination).octets());
    p
}

#[test]
fn a_source_that_is_not_the_peers_is_dropped() {
    let mut net = net(1, |_, _| ());
    give(&mut net, 0, udp_packet([10, 77, 0, 9].into(), inner(1), 100));
    give(&mut net, 0, udp_packet(inner(1), inner(1), 100));
    give(&mut net, 0, packet6(1, 1, 60));
    assert!(net.received[1].is_empty());
    assert_eq!(net.peer(1).counters.received_foreign_source, 3);
    give(&mut net, 0, udp_packet(inner(0), inner(1), 100));
    assert_eq!(net.received[1].len(), 1);
}

#[test]
fn a_destination_without_a_route_is_counted_and_its_sender_told() {
    let mut net = net(1, |_, _| ());
    give(&mut net, 0, udp_packet(inner(0), [10, 99, 0, 1].into(), 100));
    // Multicast, of which a host sends some without being asked, is not.
    give(&mut net, 0, udp_packet(inner(0), [224, 0, 0, 22].into(), 100));
    assert_eq!(net.ends[0].counters().dropped_no_route, 1);
    let answer = net.received[0].remove(0);
    assert_eq!((answer[9], answer[20], answer[21]), (1, 3, 1), "ICMP, unreachable, the host");
    assert_eq!(answer[16..20], inner(0).octets());
    assert!(net.received[1].is_empty());
}

#[test]
fn what_is_no_ip_packet_is_ignored() {
    let mut net = net(1, |_, _| ());
    for bytes in [vec![], vec![0x45], vec![0; 100], vec![0xff; 1500], vec![0x60; 39]] {
        give(&mut net, 0, bytes);
    }
    assert_eq!(net.peer(0).counters.sent_packets, 0);
}

#[test]
fn packet_too_big_goes_back_to_the_inner_host() {
    let mut net = net(1, |_, _| ());
    let mtu = net.ends[0].inner_mtu();
    let mut large = udp_packet(inner(0), inner(1), usize::from(mtu) + 1);
    large[6] = 0x40;
    give(&mut net, 0, large);
    let answer = net.received[0].remove(0);
    assert_eq!((answer[9], answer[20], answer[21]), (1, 3, 4), "ICMP, unreachable, fragmentation needed");
    assert_eq!(u16::from_be_bytes([answer[26], answer[27]]), mtu);
    assert_eq!(answer[16..20], inner(0).octets());
    give(&mut net, 0, packet6(0, 1, usize::from(mtu)));
    let answer = net.received[0].remove(0);
    assert_eq!((answer[6], answer[40]), (58, 2), "ICMPv6, packet too big");
    assert_eq!(answer[44..48], u32::from(mtu).to_be_bytes());
    assert_eq!(net.ends[0].counters().dropped_too_big, 2);
    assert!(net.received[1].is_empty());
}

#[test]
fn the_mss_is_clamped_both_ways() {
    for clamping in 0..2 {
        // Only one end has the smaller MTU: it clamps what it sends and what it receives.
        let mut net = net(1, |end, config| {
            config.mtu = Mtu::Fixed(if end == clamping { 1300 } else { 1400 });
        });
        give(&mut net, 0, syn(1460));
        assert_eq!(net.received[1][0][42..44], 1260u16.to_be_bytes());
        give(&mut net, 0, syn(1000));
        assert_eq!(net.received[1][1][42..44], 1000u16.to_be_bytes());
    }
}

#[test]
fn dscp_and_ecn_are_carried_and_congestion_is_combined() {
    // Inner ECN, outer ECN on arrival (None: untouched), inner ECN on arrival; RFC 6040 §4.2, but for the last.
    for (before, outer, after) in [
        (0b00, None, 0b00),
        (0b10, None, 0b10),
        (0b01, None, 0b01),
        (0b11, None, 0b11),
        (0b10, Some(0b11), 0b11),
        (0b01, Some(0b11), 0b11),
        (0b10, Some(0b00), 0b10),
        (0b10, Some(0b01), 0b01),
        (0b00, Some(0b11), 0b00),
    ] {
        for from in 0..2 {
            let mut net = net(1, |_, _| ());
            let seen = Rc::new(RefCell::new(None));
            let noted = seen.clone();
            net.tap = Some(Box::new(move |d| {
                if d.bytes.len() >= 400 {
                    noted.replace(Some(d.tos));
                    d.tos = d.tos & 0xfc | outer.unwrap_or(d.tos & 3);
                }
                true
            }));
            let mut packet = udp_packet(inner(from), inner(1 - from), 400);
            packet[1] = 46 << 2 | before;
            give(&mut net, from, packet);
            assert_eq!(*seen.borrow(), Some(46 << 2 | before), "the outer header carries the inner marks");
            let arrived = net.received[1 - from].first().map(|p| p[1]);
            assert_eq!(arrived, Some(46 << 2 | after), "{before:02b} in {outer:?}");
        }
    }
}

/// Row 12 d of the trials.
#[test]
fn a_box_that_marks_everything_as_congested_is_not_believed() {
    for (from, v6) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut net = net_over(v6, 1, |_, _| ());
        net.tap = Some(Box::new(|d| {
            d.tos |= 3;
            true
        }));
        let mut send = |ecn: u8| {
            let mut packet = udp_packet(inner(from), inner(1 - from), 400);
            packet[1] = ecn;
            give(&mut net, from, packet);
            net.received[1 - from].last().map(|p| p[1])
        };
        // Whatever is capable of ECN would have its sender slow down to nothing.
        assert_eq!([send(0b00), send(0b10), send(0b01), send(0b11)], [0, 2, 1, 3].map(Some));
    }
}

#[test]
fn a_backup_is_used_only_while_nothing_else_works() {
    let mut net = net(3, |end, config| {
        if end == 0 {
            config.peers[0].paths[2].backup = true;
        }
    });
    let mut number = 0;
    let mut send = |net: &mut Net, cut: bool| {
        (0..2).for_each(|wire| net.set_up(wire, !cut));
        net.pass(5 * S);
        let log = record(net, |_| true);
        for _ in 0..100 {
            (0..2).for_each(|end| net.send(end, number, 1000));
            number += 1;
            net.pass(10 * MS);
        }
        data(&log, 1000)
    };
    assert!(send(&mut net, false).iter().all(|d| d.wire != 2), "others work");
    assert!(net.peer(1).paths.iter().any(|p| p.backup), "the other end knows");
    let sent = send(&mut net, true);
    assert!(
        sent.iter().any(|d| d.wire == 2 && d.from == 0) && sent.iter().any(|d| d.wire == 2 && d.from == 1)
    );
    assert!(sent.iter().all(|d| d.wire == 2), "nothing else works");
    assert!(send(&mut net, false).iter().all(|d| d.wire != 2), "others work again");
    net.pass(S);
    for end in 0..2 {
        assert_eq!(net.numbers(end), (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn everything_works_over_outer_ipv6() {
    let link = LinkConfig { delay: 10 * MS, ..LinkConfig::default() };
    let options = Options { scheduler: Scheduler::Auto, seed: 1 };
    let mut net = Net::with(&options, vec![(link.clone(), link); 2], true, |_, _| ());
    net.pass(3 * S);
    assert_eq!([0, 1].map(|end| net.ends[end].inner_mtu()), [1500 - AROUND - 20; 2]);
    for n in 0..100 {
        (0..2).for_each(|end| net.send(end, n, 1200));
        net.pass(10 * MS);
    }
    net.pass(S);
    for end in 0..2 {
        assert_eq!(net.numbers(end), (0..100).collect::<Vec<_>>());
        assert!(net.peer(end).paths.iter().all(|p| p.remote.is_some_and(|a| a.is_ipv6()) && p.state == "up"));
    }
}

#[test]
fn inner_ipv6_is_carried() {
    let mut net = net(2, |_, _| ());
    for end in 0..2 {
        let packet = packet6(end, 1 - end, 1000);
        give(&mut net, end, packet.clone());
        assert_eq!(net.received[1 - end], [packet]);
    }
}

#[test]
fn the_mtu_is_the_least_over_the_paths_in_use() {
    for (mtu, least) in [(1500, 1500), (1492, 1492), (1470, 1460), (1400, 1400), (1380, 1352)] {
        let mut net = Net::quick(2, 10 * MS, |_, _| ());
        limit(&mut net, 1, mtu);
        net.pass(20 * S);
        for end in 0..2 {
            assert_eq!(net.ends[end].inner_mtu(), least - AROUND, "a path of {mtu} bytes, end {end}");
            assert_eq!(net.peer(end).paths.iter().map(|p| p.mtu).max(), Some(1500));
        }
        let size = usize::from(least - AROUND);
        for n in 0..200 {
            (0..2).for_each(|end| net.send(end, n, size));
            net.pass(10 * MS);
        }
        net.pass(S);
        for end in 0..2 {
            assert_eq!(net.numbers(end), (0..200).collect::<Vec<_>>());
            assert_eq!(net.ends[end].counters().dropped_too_big, 0);
        }
    }
}

#[test]
fn a_path_that_carries_less_than_the_smallest_link_is_not_used() {
    let mut net = Net::quick(2, 10 * MS, |_, _| ());
    limit(&mut net, 1, 500);
    net.pass(20 * S);
    assert_eq!(net.ends[0].inner_mtu(), 1500 - AROUND);
    for n in 0..100 {
        net.send(0, n, 1400);
        net.pass(10 * MS);
    }
    net.pass(S);
    assert_eq!(net.numbers(1), (0..100).collect::<Vec<_>>());
}

/// A path that comes to carry less is noticed within two seconds, and what it swallowed is not lost.
#[test]
fn a_path_whose_mtu_falls_is_noticed() {
    for v6 in [false, true] {
        let mut net = net_over(v6, 1, |_, _| ());
        net.pass(10 * S);
        // An IPv6 header is 20 bytes longer.
        let longer = 20 * u16::from(v6);
        limit(&mut net, 0, 1400 - usize::from(longer));
        let (mut large, mut since, mut gap) = (0, net.now, Duration::ZERO);
        for n in 0..3000 {
            // Small ones pass all the time.
            let size = if n % 2 == 0 { net.ends[0].inner_mtu() } else { 100 };
            net.send(0, n, usize::from(size));
            net.pass(10 * MS);
            let arrived = net.received[1].iter().filter(|packet| packet.len() > 100).count();
            if arrived > large {
                (large, since) = (arrived, net.now);
            }
            gap = gap.max(net.now - since);
        }
        assert!(gap < 2 * S, "{gap:?} without a large packet");
        net.pass(5 * S);
        assert_eq!(net.ends[0].inner_mtu(), 1400 - AROUND - longer);
        assert_eq!(net.numbers(1).last(), Some(&2999));
    }
}

/// Landline first, 5G only when it is full: a stream that the first path carries stays on it, one of more goes over both, and both
/// ends keep to it.
#[test]
fn a_path_with_a_higher_prefer_is_used_only_where_the_lower_ones_are_full() {
    let link = || plain(10.0, 10 * MS);
    let options = Options { scheduler: Scheduler::Auto, seed: 1 };
    let mut net = Net::with(&options, vec![(link(), link()), (link(), link())], false, |end, config| {
        if end == 0 {
            config.peers[0].paths[1].cost = Cost { metered: true, prefer: 1, ..Cost::default() };
        }
    });
    net.pass(5 * S);
    let mut number = 0;
    // A packet of 1000 bytes from each end every so often: bytes over each path, of each end's.
    let mut offer = |net: &mut Net, every: Duration, count: u32| {
        let log = record(net, |_| true);
        for _ in 0..count {
            (0..2).for_each(|end| net.send(end, number, 1000));
            number += 1;
            net.pass(every);
        }
        let sent = data(&log, 1000);
        [0, 1].map(|end| [0, 1].map(|wire| sent.iter().filter(|d| d.from == end && d.wire == wire).count()))
    };
    // Half of what it carries: more than ten packets a round trip, which it takes until that has been measured.
    let below = offer(&mut net, 1600 * US, 2000);
    assert!(below.iter().all(|[first, second]| *first >= 1990 && *second <= 5), "{below:?}");
    // Half as much again.
    let above = offer(&mut net, 533 * US, 4000);
    assert!(above.iter().all(|[first, second]| *second > 500 && first > second), "{above:?}");
    assert!(net.peer(1).paths.iter().any(|path| path.metered && path.prefer == 1), "the other end knows");
}
