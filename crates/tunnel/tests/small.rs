//! Links that carry less than IPv6 asks for inside, around the tunnel's own bytes: IPv4 alone has smaller packets there, and with IPv6 a
//! packet goes in several datagrams.

mod sim;

use std::time::Duration;

use link::{Jitter, LinkConfig, Loss, Probability};
use sim::{Net, Options, inner, once_and_in_order, plain, record, udp_packet};
use tunnel::Scheduler;
use tunnel::config::MAX_PATHS;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// IPv4 and UDP around a payload, in bytes.
const HEADERS: usize = 28;

/// Two ends over a link that swallows what is larger than `mtu`; only IPv4 is routed inside, unless `v6`.
fn over(mtu: usize, v6: bool) -> Net {
    let mut net = Net::quick(1, 10 * MS, |_, config| {
        config.peers[0].routes.retain(|route| v6 || route.addr().is_ipv4());
    });
    record(&mut net, move |datagram| datagram.bytes.len() + HEADERS <= mtu);
    net.pass(10 * S);
    net
}

#[test]
fn a_small_link_carries_ipv4() {
    for (mtu, inside) in [(1500, 1428), (1352, 1280), (1340, 1268), (1280, 1208), (576, 504)] {
        let mut net = over(mtu, false);
        for end in 0..2 {
            assert_eq!((net.peer(end).paths[0].state, net.ends[end].inner_mtu()), ("up", inside), "{mtu}");
            (0..50).for_each(|number| net.send(end, number, usize::from(inside)));
        }
        net.pass(2 * S);
        for end in 0..2 {
            assert_eq!(net.numbers(end), (0..50).collect::<Vec<_>>(), "over {mtu} bytes");
        }
        // What is larger is told so.
        net.received[0].clear();
        let mut large = udp_packet(inner(0), inner(1), usize::from(inside) + 1);
        large[6] = 0x40;
        net.ends[0].handle_inner(net.now, &mut large);
        net.turn(0);
        let told = net.received[0].pop().expect("an answer");
        assert_eq!((told[20], told[21], u16::from_be_bytes([told[26], told[27]])), (3, 4, inside));
    }
}

#[test]
fn with_ipv6_inside_a_packet_goes_in_several_datagrams() {
    for (mtu, carries, pieces) in
        [(1352, 1352, 1), (1340, 1340, 2), (1330, 1320, 2), (1280, 1280, 2), (576, 576, 3)]
    {
        let mut net = over(mtu, true);
        for end in 0..2 {
            let path = net.peer(end).paths.remove(0);
            let why = format!(
                "it carries packets of {carries} bytes, so one of 1280 bytes inside goes in {pieces} datagrams: \
                 larger ones vanish without a word"
            );
            let why = Some(why).filter(|_| pieces > 1);
            assert_eq!((path.state, path.why, net.ends[end].inner_mtu()), ("up", why, 1280), "{mtu}");
        }
        let log = record(&mut net, move |datagram| datagram.bytes.len() + HEADERS <= mtu);
        for end in 0..2 {
            (0..50).for_each(|number| net.send(end, number, 1280));
        }
        net.pass(2 * S);
        for end in 0..2 {
            assert_eq!(net.numbers(end), (0..50).collect::<Vec<_>>(), "over {mtu} bytes");
            assert!(net.received[end].iter().all(|packet| packet.len() == 1280));
        }
        let large = log.borrow().iter().filter(|datagram| datagram.bytes.len() > 400).count();
        assert_eq!(large, 2 * 50 * pieces, "nothing was lost, and nothing sent again, over {mtu} bytes");
    }
}

/// What a report says of many losses goes over a small path beside a large one as well.
#[test]
fn reports_fit_the_smaller_of_two_paths() {
    let lossy = || LinkConfig {
        loss: Loss::Bernoulli(Probability::new(0.3).expect("a share")),
        ..plain(10.0, 10 * MS)
    };
    // What the small one carries would be sought anew if it lost as much.
    let small = plain(10.0, 10 * MS);
    let links = vec![(lossy(), lossy()), (small.clone(), small)];
    let options = Options { scheduler: Scheduler::Auto, seed: 1 };
    let mut net = Net::with(&options, links, false, |_, config| {
        config.peers[0].routes.retain(|route| route.addr().is_ipv4());
    });
    record(&mut net, |datagram| datagram.wire == 0 || datagram.bytes.len() + HEADERS <= 576);
    net.pass(20 * S);
    let log = record(&mut net, |datagram| datagram.wire == 0 || datagram.bytes.len() + HEADERS <= 576);
    for number in 0..5000 {
        net.send(0, number, 400);
        net.pass(MS);
    }
    let log = log.borrow();
    let mut back = log.iter().filter(|datagram| datagram.from == 1 && datagram.wire == 1).peekable();
    assert!(back.peek().is_some());
    assert_eq!(back.filter(|datagram| datagram.bytes.len() + HEADERS > 576).count(), 0);
}

/// The list of as many paths as there can be, with names as long as they can be, goes over small paths as well.
#[test]
fn a_long_list_goes_over_small_links() {
    let name = |at: usize| format!("uplink-number-{at:02}-with-a-long-name");
    let mut net = Net::quick(MAX_PATHS, 10 * MS, |end, config| {
        config.peers[0].routes.retain(|route| route.addr().is_ipv4());
        let paths = config.peers[0].paths.iter_mut().filter(|_| end == 0);
        paths.enumerate().for_each(|(at, path)| path.name = name(at));
    });
    record(&mut net, |datagram| datagram.bytes.len() + HEADERS <= 576);
    net.pass(20 * S);
    for (at, path) in net.peer(1).paths.iter().enumerate() {
        assert!(path.name.len() > 20 && name(at).starts_with(&path.name), "{at}: {}", path.name);
    }
    assert_eq!(net.peer(1).paths.len(), MAX_PATHS);
}

/// A small path that comes to carry even less is noticed, with one large packet inside as with pieces of it.
#[test]
fn a_small_path_whose_mtu_falls_is_noticed() {
    for v6 in [false, true] {
        let mut net = over(1280, v6);
        record(&mut net, |datagram| datagram.bytes.len() + HEADERS <= 576);
        for number in 0..2000 {
            let size = if number % 2 == 0 { net.ends[0].inner_mtu() } else { 100 };
            net.send(0, number, size.into());
            net.pass(10 * MS);
        }
        net.pass(5 * S);
        assert_eq!((net.peer(0).paths[0].mtu, net.ends[0].inner_mtu()), (576, if v6 { 1280 } else { 504 }));
        assert_eq!(net.numbers(1).last(), Some(&1999));
    }
}

/// Of pieces that are lost and displaced, what was lost goes again, whole.
#[test]
fn pieces_are_lost_and_displaced_as_packets_are() {
    for (seed, mtu) in [(1, 1280), (2, 576), (3, 576)] {
        let link = LinkConfig {
            loss: Loss::Bernoulli(Probability::new(0.05).expect("a share")),
            jitter: Jitter::HalfNormalReordering(2 * MS),
            ..plain(10.0, 10 * MS)
        };
        let options = Options { scheduler: Scheduler::Auto, seed };
        let mut net = Net::with(&options, vec![(link.clone(), link); 2], false, |_, _| ());
        record(&mut net, move |datagram| datagram.bytes.len() + HEADERS <= mtu);
        net.pass(10 * S);
        let mut number = 0;
        while number < 3000 {
            (0..2).for_each(|end| net.send(end, number, if number % 3 == 0 { 300 } else { 1280 }));
            number += 1;
            net.pass(2 * MS);
        }
        net.pass(5 * S);
        for end in 0..2 {
            let numbers = net.numbers(end);
            assert!(once_and_in_order(&numbers, false), "seed {seed}, end {end}");
            assert_eq!(numbers.len(), 3000, "seed {seed}, end {end}");
            assert!(net.peer(end).counters.received_incomplete > 0, "some lacked a piece");
        }
    }
}

/// With IPv4 alone inside, too: what is sent over the normal one is not cut to the size of the small one.
#[test]
fn a_small_path_does_not_shrink_a_normal_one() {
    let link = plain(10.0, 10 * MS);
    let options = Options { scheduler: Scheduler::Auto, seed: 1 };
    let mut net = Net::with(&options, vec![(link.clone(), link); 2], false, |_, config| {
        config.peers[0].routes.retain(|route| route.addr().is_ipv4());
    });
    record(&mut net, |datagram| datagram.wire != 1 || datagram.bytes.len() + HEADERS <= 576);
    net.pass(20 * S);
    let mut number = 0;
    for alive in [true, false] {
        net.set_up(0, alive);
        assert!((0..2).all(|end| net.ends[end].inner_mtu() == 1280), "{alive}");
        for _ in 0..100 {
            (0..2).for_each(|end| net.send(end, number, 1280));
            number += 1;
            net.pass(20 * MS);
        }
        net.pass(2 * S);
    }
    for end in 0..2 {
        assert_eq!(net.numbers(end), (0..number).collect::<Vec<_>>());
        assert_eq!(net.ends[end].counters().dropped_too_big, 0);
    }
}

/// A small path beside a normal one carries its part, and takes over what was under way when that dies.
#[test]
fn a_small_path_beside_a_normal_one() {
    let link = plain(10.0, 10 * MS);
    let options = Options { scheduler: Scheduler::Auto, seed: 1 };
    let mut net = Net::with(&options, vec![(link.clone(), link); 2], false, |_, _| ());
    record(&mut net, |datagram| datagram.wire != 1 || datagram.bytes.len() + HEADERS <= 1280);
    net.pass(10 * S);
    assert!(net.peer(0).paths.iter().all(|path| path.state == "up"));
    // 16 Mbit/s, for four seconds; the normal one dies after three.
    let mut number = 0;
    for step in 0..6250 {
        if step == 4690 {
            let carried = net.peer(0).paths.iter().map(|path| path.sent_bytes).min().unwrap();
            assert!(carried > 1_500_000, "{carried} bytes over the one that carried less");
            net.set_up(0, false);
        }
        if step < 4690 || step % 4 == 0 {
            net.send(0, number, 1280);
            number += 1;
        }
        net.pass(640 * Duration::from_micros(1));
    }
    net.pass(5 * S);
    let numbers = net.numbers(1);
    assert!(
        once_and_in_order(&numbers, false) && numbers.len() as u64 == number,
        "{} of {number}",
        numbers.len()
    );
    assert_eq!(net.ends[0].counters().dropped_too_big, 0);
}
