//! What an end is told while it runs: which paths to list, and how the other end is to use them.

mod sim;

use std::net::SocketAddr;
use std::time::Duration;

use link::{Bitrate, Capacity, Jitter, LinkConfig, Loss, Probability, Queue};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use sim::{Net, Options, once_and_in_order};
use tunnel::config::ConfigError;
use tunnel::wire::address::{LocalAddress, Way};
use tunnel::{Mtu, PathConfig, PeerConfig, PresharedKey, Scheduler};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// Packets from `end`, a millisecond apart.
fn send(net: &mut Net, end: usize, numbers: std::ops::Range<u64>) {
    for number in numbers {
        net.send(end, number, 1000);
        net.pass(MS);
    }
}

/// Bytes that `end` has sent on each of its paths.
fn sent_bytes(net: &Net, end: usize) -> Vec<u64> {
    net.peer(end).paths.iter().map(|path| path.sent_bytes).collect()
}

#[test]
fn on_a_path_not_for_receiving_the_peer_sends_only_for_want_of_another() {
    let mut net = Net::quick(2, 10 * MS, |end, config| {
        if end == 0 {
            config.peers[0].paths[1].receive = false;
        }
    });
    net.pass(1000 * MS);
    assert_eq!(net.peer(0).paths.iter().map(|path| path.backup).collect::<Vec<_>>(), [false, false]);
    assert_eq!(net.peer(1).paths.iter().map(|path| path.backup).collect::<Vec<_>>(), [false, true]);

    let before = sent_bytes(&net, 1);
    send(&mut net, 1, 0..500);
    let sent: Vec<u64> =
        sent_bytes(&net, 1).iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(sent[0] > 500_000 && sent[1] < 50_000, "{sent:?}");
    let before = sent_bytes(&net, 0);
    send(&mut net, 0, 0..500);
    let sent: Vec<u64> =
        sent_bytes(&net, 0).iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(sent.iter().all(|bytes| *bytes > 100_000), "this end uses both: {sent:?}");

    net.set_up(0, false);
    net.pass(2000 * MS);
    let before = sent_bytes(&net, 1);
    send(&mut net, 1, 500..1000);
    net.pass(1000 * MS);
    assert!(sent_bytes(&net, 1)[1] - before[1] > 500_000, "what else there is, is used");
    assert_eq!(net.numbers(0).len(), 1000);
}

/// Every packet that came out had gone in, once and in order, and the order stream accounts for every one.
fn check(net: &Net, offered: [u64; 2], what: &str) {
    for end in 0..2 {
        let (status, other) = (net.peer(end), net.peer(1 - end));
        let numbers = net.numbers(end);
        let order = status.order;
        assert!(
            once_and_in_order(&numbers, order.lost_packets > 0),
            "{what}: a packet twice or out of order"
        );
        assert_eq!(order.delivered_packets, numbers.len() as u64, "{what}");
        let dropped = other.counters.dropped_no_session + other.queue_dropped_packets;
        let too_big = net.ends[1 - end].counters().dropped_too_big + other.counters.dropped_too_big;
        let accounted = order.delivered_packets + order.lost_packets + dropped + too_big;
        assert_eq!(accounted, offered[1 - end], "{what}: {status:#?} {other:#?}");
        assert_eq!((status.reorder_bytes, other.queue_bytes, other.unconfirmed_bytes), (0, 0, 0), "{what}");
        assert_eq!(status.counters.received_malformed, 0, "{what}");
        assert_eq!(status.counters.refused_paths, 0, "{what}: neither has many");
    }
}

fn names(net: &Net, end: usize) -> Vec<String> {
    let mut names: Vec<_> = net.peer(end).paths.into_iter().map(|path| path.name).collect();
    names.sort();
    names
}

#[test]
fn a_path_that_is_added_is_used_and_one_that_goes_loses_nothing() {
    let mut net = Net::quick(3, 20 * MS, |end, config| {
        if end == 0 {
            config.peers[0].paths.truncate(1);
        }
    });
    net.pass(1000 * MS);
    let third = net.path(2);
    let mut add = Some(third);
    for number in 0..3000 {
        match number {
            1000 => {
                net.reconfigure(0, |c| c.peers[0].paths.extend(add.take())).expect("a good configuration")
            }
            2000 => net.reconfigure(0, |c| drop(c.peers[0].paths.remove(0))).expect("a good configuration"),
            _ => {}
        }
        net.send(0, number, 1000);
        net.send(1, number, 1000);
        net.pass(MS);
    }
    assert!(net.peer(1).paths.iter().all(|path| path.sent_bytes > 500_000), "the new one was used");
    net.pass(3000 * MS);
    check(&net, [3000, 3000], "three paths");
    assert_eq!([net.peer(0), net.peer(1)].map(|peer| peer.order.lost_packets), [0, 0]);
    // Ids are not used again, and the other end has forgotten the first path.
    let ids =
        |end: usize| net.peer(end).paths.iter().map(|path| (path.id, path.name.clone())).collect::<Vec<_>>();
    assert_eq!((ids(0).len(), ids(0)), (1, ids(1)));
    assert_eq!(net.peer(0).paths[0].name, "wire2");
}

#[test]
fn the_last_path_may_go_and_another_come() {
    let mut net = Net::quick(2, 20 * MS, |end, config| {
        if end == 0 {
            config.peers[0].paths.truncate(1);
        }
    });
    net.pass(1000 * MS);
    net.reconfigure(0, |config| config.peers[0].paths.clear()).expect("a good configuration");
    net.pass(1000 * MS);
    assert_eq!(names(&net, 0), Vec::<String>::new());
    let path = net.path(1);
    net.reconfigure(0, |config| config.peers[0].paths.push(path)).expect("a good configuration");
    net.pass(1000 * MS);
    send(&mut net, 1, 0..10);
    send(&mut net, 0, 0..10);
    net.pass(1000 * MS);
    assert_eq!((net.numbers(0).len(), net.numbers(1).len()), (10, 10));
    assert_eq!((names(&net, 0), names(&net, 1)), (vec!["wire1".into()], vec!["wire1".into()]));
}

/// A name with two addresses, the first of which leads nowhere: at the start, and for a path that comes while others work.
#[test]
fn of_two_addresses_of_a_name_the_one_that_answers_is_used() {
    let nowhere: SocketAddr = "[2001:db8::99]:9".parse().expect("an address");
    let mut net = Net::quick(2, 10 * MS, |_, _| ());
    let raced = |net: &mut Net, path: usize| {
        let ip = Some(sim::client(path).ip());
        let local = LocalAddress { ip, ..LocalAddress::default() };
        let way = Way { local, remote: nowhere, relay: None, tls: None, rival: Some((net.server, local)) };
        net.ends[0].set_way(net.now, 0, path, Ok(way));
    };
    raced(&mut net, 0);
    net.ends[0].set_local(net.now, 0, 1, None);
    net.pass(300 * MS);
    assert_eq!(net.peer(0).paths[0].state, "up");
    raced(&mut net, 1);
    net.pass(3 * S);
    assert_eq!(net.peer(0).paths[1].state, "up");
    assert_eq!(net.peer(0).paths[1].remote, Some(net.server));
    // It does not stay away for good from an address that answers again.
    let back = net.server;
    net.server = SocketAddr::from(([192, 0, 2, 2], 51900));
    net.pass(60 * S);
    assert_ne!(net.peer(0).paths[0].state, "up");
    net.server = back;
    net.pass(60 * S);
    assert!(net.peer(0).paths.iter().all(|path| path.state == "up"));
    // And looks for the peer nowhere else then, but for a handshake.
    net.strays.clear();
    net.pass(60 * S);
    assert!(net.strays.len() <= 2, "{} datagrams to nowhere", net.strays.len());
}

#[test]
fn what_is_the_same_is_not_touched() {
    let mut net = Net::quick(2, 20 * MS, |_, _| ());
    send(&mut net, 0, 0..200);
    let before = format!("{:?}", net.peer(0));
    let config = net.config(0).clone();
    net.ends[0].reconfigure(net.now, config).expect("a good configuration");
    assert_eq!(format!("{:?}", net.peer(0)), before);
    // Another order in the file is no change either.
    let shown = |net: &Net| {
        let mut paths: Vec<_> = net.peer(0).paths.iter().map(|path| format!("{path:?}")).collect();
        paths.sort();
        paths
    };
    let before = shown(&net);
    let mut config = net.config(0).clone();
    config.peers[0].paths.reverse();
    net.ends[0].reconfigure(net.now, config).expect("a good configuration");
    assert_eq!(shown(&net), before);
    assert_eq!(net.peer(0).paths[0].name, "wire1");
    net.pass(1000 * MS);
    check(&net, [200, 0], "the same");
}

#[test]
fn a_bad_configuration_changes_nothing() {
    let mut net = Net::quick(1, 20 * MS, |_, _| ());
    net.pass(1000 * MS);
    let before = format!("{:?}", net.peer(0));
    let one = net.path(0);
    let twice = net.reconfigure(0, |config| config.peers[0].paths.push(one.clone()));
    assert_eq!(twice, Err(ConfigError::PathName("other".into(), "wire0".into())));
    let many = net.reconfigure(0, |config| {
        let numbered = (0..17).map(|n| PathConfig { name: n.to_string(), ..one.clone() });
        config.peers[0].paths = numbered.collect();
    });
    assert_eq!(many, Err(ConfigError::TooManyPaths("other".into())));
    let peers = net.reconfigure(0, |config| config.peers.push(config.peers[0].clone()));
    assert_eq!(peers, Err(ConfigError::PeerName("other".into())));
    assert_eq!(format!("{:?}", net.peer(0)), before);
}

#[test]
fn ids_are_not_used_twice_in_a_life() {
    let mut net = Net::quick(1, 20 * MS, |_, _| ());
    let mut last = None;
    for number in 0.. {
        let named = PathConfig { name: format!("n{number}"), ..net.path(0) };
        let config = |c: &mut tunnel::Config| c.peers[0].paths = vec![named];
        let mut wanted = net.config(0).clone();
        config(&mut wanted);
        if let Err(error) = net.ends[0].reconfigure(net.now, wanted) {
            assert_eq!((error, number > 32_000), (ConfigError::NoIds("other".into()), true));
            break;
        }
        let id = net.peer(0).paths[0].id;
        assert!(last.is_none_or(|last| last < id), "{last:?} {id}");
        last = Some(id);
    }
}

#[test]
fn a_peer_that_goes_is_forgotten_and_comes_back_as_new() {
    let mut net = Net::quick(2, 20 * MS, |_, _| ());
    // Twice at each end: it comes back as somebody new each time.
    for end in [0, 1, 0, 1] {
        net.pass(1000 * MS);
        send(&mut net, 0, 0..100);
        let peers = net.config(end).peers.clone();
        net.reconfigure(end, |config| config.peers.clear()).expect("a good configuration");
        assert_eq!(net.ends[end].peers().len(), 0);
        send(&mut net, 0, 100..110);
        send(&mut net, 1, 100..110);
        assert!(net.ends[end].counters().dropped_no_route > 0, "{:?}", net.ends[end].counters());
        net.pass(5000 * MS);
        net.received = [Vec::new(), Vec::new()];
        net.reconfigure(end, |config| config.peers = peers).expect("a good configuration");
        net.pass(10_000 * MS);
        send(&mut net, 0, 200..300);
        send(&mut net, 1, 200..300);
        net.pass(2000 * MS);
        let fresh = |end: usize| {
            let dropped = net.peer(1 - end).queue_dropped_packets as usize;
            net.numbers(end).into_iter().filter(|n| *n >= 200).count() + dropped
        };
        assert_eq!((fresh(0), fresh(1)), (100, 100), "end {end}: {:#?}", net.peer(end));
        net.received = [Vec::new(), Vec::new()];
    }
}

#[test]
fn a_peer_that_is_listed_before_others_takes_nothing_from_them() {
    let mut net = Net::quick(1, 20 * MS, |_, _| ());
    net.pass(1000 * MS);
    send(&mut net, 0, 0..100);
    let stranger = PeerConfig {
        name: "stranger".into(),
        public_key: [9; 32].into(),
        routes: vec!["10.99.0.0/16".parse().expect("a prefix")],
        ..net.config(1).peers[0].clone()
    };
    net.reconfigure(1, |config| config.peers.insert(0, stranger)).expect("a good configuration");
    for number in 100..200 {
        net.send(0, number, 1000);
        net.send(1, number, 1000);
        net.pass(MS);
    }
    net.pass(1000 * MS);
    let there = |end: usize| net.numbers(end).len() + net.peer(1 - end).queue_dropped_packets as usize;
    assert_eq!((there(0), there(1)), (100, 200));
}

#[test]
fn another_preshared_key_takes_another_handshake() {
    let mut net = Net::quick(1, 20 * MS, |_, _| ());
    send(&mut net, 0, 0..100);
    let secret: PresharedKey = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=".parse().expect("a key");
    net.reconfigure(0, |config| config.peers[0].preshared_key = secret.clone())
        .expect("a good configuration");
    assert_eq!(net.peer(0).cipher, None);
    net.pass(3000 * MS);
    assert!(!net.peer(0).up, "the other end has the old one");
    net.reconfigure(1, |config| config.peers[0].preshared_key = secret).expect("a good configuration");
    net.pass(10_000 * MS);
    send(&mut net, 0, 100..200);
    send(&mut net, 1, 0..100);
    net.pass(2000 * MS);
    assert_eq!(net.numbers(1)[net.numbers(1).len() - 100..], (100..200).collect::<Vec<_>>());
    assert_eq!(net.numbers(0), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_list_that_comes_late_retires_no_newer_path() {
    let mut net = Net::quick(2, 20 * MS, |end, config| {
        if end == 0 {
            config.peers[0].paths.truncate(1);
        }
    });
    // A session begins with three lists; the network keeps all but the first until another has come.
    let begin = net.now;
    let held = sim::record(&mut net, move |datagram| datagram.from == 1 || datagram.at < begin + 100 * MS);
    // On an idle tunnel one list has to do.
    send(&mut net, 0, 0..500);
    let held = held.borrow().clone();
    let path = net.path(1);
    net.tap = None;
    net.reconfigure(0, |config| config.peers[0].paths.push(path)).expect("a good configuration");
    net.pass(500 * MS);
    assert_eq!(names(&net, 1), ["wire0", "wire1"]);
    let late = |datagram: &&sim::Datagram| datagram.from == 0 && datagram.at >= begin + 100 * MS;
    for datagram in held.iter().filter(late) {
        net.inject(1, sim::client(0), &datagram.bytes);
    }
    net.pass(500 * MS);
    assert_eq!(names(&net, 1), ["wire0", "wire1"]);
    assert!(net.peer(1).paths.iter().all(|path| path.state == "up"));
}

#[test]
fn a_changed_address_is_told_at_once_on_an_idle_tunnel() {
    let mut net = Net::quick(2, 20 * MS, |_, _| ());
    send(&mut net, 0, 0..100);
    net.pass(8000 * MS);
    let new = "198.51.100.9:4321".parse().expect("an address");
    net.seen_at[1] = new;
    net.ends[0].handle_address_change(net.now, 0, 1);
    net.pass(200 * MS);
    let remotes: Vec<_> = net.peer(1).paths.iter().map(|path| path.remote).collect();
    assert_eq!(remotes, [Some(sim::client(0)), Some(new)]);
    // A path that there is not, and one that the other end lists, have no addresses here.
    net.ends[0].handle_address_change(net.now, 0, 9);
    net.ends[1].handle_address_change(net.now, 0, 0);
}

/// A link that loses, delays and reorders.
fn rough(rng: &mut ChaCha20Rng) -> LinkConfig {
    let mut upto = |n: u32| rng.next_u32() % n;
    LinkConfig {
        capacity: Capacity::Fixed(Bitrate::from_mbps(2.0 + f64::from(upto(100)) / 10.0)),
        delay: upto(100) * MS,
        jitter: Jitter::Uniform(upto(20) * MS),
        loss: Loss::gilbert_elliott(Probability::new(0.03).expect("a share"), 3.0).expect("a loss"),
        queue: Queue::Packets(100),
        ..LinkConfig::default()
    }
}

/// Changes end 0's configuration in one of the ways that a user may.
fn edit(net: &mut Net, rng: &mut ChaCha20Rng) {
    let wire = (rng.next_u32() % 4) as usize;
    let how = rng.next_u32() % 8;
    let path = net.path(wire);
    let edited = net.reconfigure(0, |config| {
        let paths = &mut config.peers[0].paths;
        let at = paths.iter().position(|one| one.name == path.name);
        match (how, at) {
            (0..=2, None) => paths.push(path),
            (3..=4, Some(at)) if paths.len() > 1 => drop(paths.remove(at)),
            (5, Some(at)) => paths[at].backup ^= true,
            (6, Some(at)) => paths[at].receive ^= true,
            (7, _) => config.mtu = if config.mtu == Mtu::Auto { Mtu::Fixed(1280) } else { Mtu::Auto },
            _ => paths.rotate_left(1),
        }
    });
    edited.expect("a good configuration");
}

#[test]
fn whatever_is_changed_under_load_every_packet_comes_once_or_is_counted() {
    let (mut delivered, mut offered) = (0, 0);
    for seed in 0..200 {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let links = (0..4).map(|_| (rough(&mut rng), rough(&mut rng))).collect();
        let scheduler = if seed % 4 == 0 { Scheduler::Paper } else { Scheduler::Auto };
        let mut net = Net::new(&Options { scheduler, seed }, links);
        net.pass(2000 * MS);
        let (mut numbers, mut next, mut change) = ([0, 0], net.now, net.now + 100 * MS);
        net.run(net.now + 2000 * MS, |net| {
            while net.now >= next {
                next += Duration::from_micros(u64::from(rng.next_u32() % 6000));
                let end = (rng.next_u32() % 2) as usize;
                net.send(end, numbers[end], 40 + (rng.next_u32() % 1200) as usize);
                numbers[end] += 1;
            }
            if net.now >= change {
                change += 100 * MS;
                edit(net, &mut rng);
            }
        });
        net.pass(8000 * MS);
        check(&net, numbers, &format!("seed {seed}"));
        offered += numbers.iter().sum::<u64>();
        delivered += net.numbers(0).len() + net.numbers(1).len();
    }
    // Not a rate: what paths that go had under way is not lost with them.
    assert!(delivered as f64 > 0.9 * offered as f64, "{delivered} of {offered}");
}
