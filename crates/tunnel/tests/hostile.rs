//! Packets that are copied, reflected, cut, forged or sent from elsewhere, and ends that never answer.

mod sim;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use link::{Bitrate, Capacity, LinkConfig};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use sim::{Datagram, Net, Options, path, record, stranger};
use tunnel::{Local, Scheduler};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const TRANSPORT: u8 = 4;

fn net(wires: usize) -> Net {
    Net::quick(wires, 10 * MS, |_, _| ())
}

/// Sends `count` packets each way, ten milliseconds apart, numbered from `first`.
fn chatter(net: &mut Net, first: u64, count: u64) {
    for n in first..first + count {
        (0..2).for_each(|end| net.send(end, n, 300));
        net.pass(10 * MS);
    }
    net.pass(200 * MS);
}

/// What `end` knows of its peer, without counts of what it refused.
fn state(net: &Net, end: usize) -> String {
    let mut peer = net.peer(end);
    peer.counters = Default::default();
    format!("{peer:?} {}", net.received[end].len())
}

#[test]
fn a_replayed_transport_packet_changes_nothing() {
    let mut net = net(2);
    let log = record(&mut net, |_| true);
    net.pass(S);
    chatter(&mut net, 0, 100);
    net.tap = None;
    net.pass(S);
    let all: Vec<_> = log.borrow().iter().filter(|d| d.kind() == TRANSPORT).cloned().collect();
    let before = [state(&net, 0), state(&net, 1)];
    for d in &all {
        let to = 1 - d.from;
        let replayed = net.peer(to).counters.received_replayed;
        net.inject(to, stranger(1), &d.bytes);
        assert_eq!(net.peer(to).counters.received_replayed, replayed + 1);
    }
    assert_eq!([state(&net, 0), state(&net, 1)], before);
    assert!(net.strays.is_empty());
}

#[test]
fn a_reflected_transport_packet_changes_nothing() {
    let mut net = net(2);
    let log = record(&mut net, |_| true);
    net.pass(S);
    chatter(&mut net, 0, 50);
    let all: Vec<_> = log.borrow().iter().filter(|d| d.kind() == TRANSPORT).cloned().collect();
    let before = [state(&net, 0), state(&net, 1)];
    for d in &all {
        let (server, client) = (net.server, net.seen_at[d.wire]);
        let mut bytes = d.bytes.clone();
        net.inject(d.from, if d.from == 0 { server } else { client }, &bytes);
        // And with the index that the end itself would be named by.
        let other = all.iter().find(|o| o.from != d.from).expect("both ends sent");
        bytes[4..8].copy_from_slice(&other.bytes[4..8]);
        let forged = net.peer(d.from).counters.received_forged;
        let replayed = net.peer(d.from).counters.received_replayed;
        net.inject(d.from, server, &bytes);
        let counters = net.peer(d.from).counters;
        assert_eq!(counters.received_forged + counters.received_replayed, forged + replayed + 1);
    }
    assert_eq!([state(&net, 0), state(&net, 1)], before);
    assert!(net.strays.is_empty());
}

/// Cuts, lengthens, or changes bits of what was on the wire, or makes it up.
fn spoil(rng: &mut ChaCha20Rng, all: &[Datagram]) -> Vec<u8> {
    let mut any = |n: usize| rng.next_u32() as usize % n;
    let mut bytes = all[any(all.len())].bytes.clone();
    match any(4) {
        0 => bytes.truncate(any(bytes.len())),
        1 => bytes.resize(bytes.len() + 1 + any(65_000 - bytes.len()), 0),
        2 => (0..1 + any(8)).for_each(|_| {
            let at = any(bytes.len());
            bytes[at] ^= 1 << any(8);
        }),
        _ => {
            bytes.resize(any(300), 0);
            bytes.iter_mut().for_each(|b| *b = any(256) as u8);
            if let Some(first) = bytes.first_mut() {
                *first = 0x10 | any(16) as u8;
            }
        }
    }
    bytes
}

#[test]
fn truncated_random_and_oversized_datagrams_change_nothing_but_counters() {
    let mut net = net(2);
    let log = record(&mut net, |_| true);
    net.pass(S);
    chatter(&mut net, 0, 50);
    let all = log.borrow().clone();
    let before = [state(&net, 0), state(&net, 1)];
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    for n in 0..20_000 {
        let end = n as usize % 2;
        net.inject(end, stranger(n), &spoil(&mut rng, &all));
    }
    assert_eq!([state(&net, 0), state(&net, 1)], before);
    // Only a relay's challenge is answered without being verified, by as many bytes.
    assert!(net.strays.iter().all(|s| s.bytes[0] == 0x1b && s.bytes.len() == 28));
    chatter(&mut net, 50, 50);
    assert_eq!(net.numbers(1), (0..100).collect::<Vec<_>>());
}

/// Bytes of transport packets both ways between end 1 and each address of end 0's.
fn exchanged(log: &[Datagram], wire: usize) -> impl Iterator<Item = (u64, u64)> {
    let of_wire = log.iter().filter(move |d| d.wire == wire && d.kind() == TRANSPORT);
    of_wire.scan([0, 0], |bytes, d| {
        bytes[d.from] += d.bytes.len() as u64;
        Some((bytes[0], bytes[1]))
    })
}

#[test]
fn an_address_that_never_answers_gets_at_most_three_times_what_it_sent() {
    for both_list in [false, true] {
        let long = |n: usize| format!("a-name-of-thirty-two-bytes-no-{n:02}");
        let mut net = Net::quick(4, 10 * MS, |end, config| {
            let server = SocketAddr::from(([192, 0, 2, 1], 51900));
            if end == 1 && both_list {
                config.peers[0].paths = (0..16).map(|n| path(n, server, stranger(n as u32))).collect();
                config.peers[0].paths.iter_mut().enumerate().for_each(|(n, p)| p.name = long(n));
            }
        });
        // Loss makes reports long.
        let mut n = 0;
        let log = record(&mut net, move |d| {
            n += 1;
            (d.wire == 0 || d.from == 0) && (n % 3 > 0 || d.kind() != TRANSPORT)
        });
        net.pass(S);
        chatter(&mut net, 0, 300);
        for n in 0..4000 {
            net.send(1, 1000 + n, 1200);
            net.pass(MS);
        }
        for wire in 1..4 {
            assert!(exchanged(&log.borrow(), wire).last().is_some_and(|(there, back)| there > 0 && back > 0));
            for (there, back) in exchanged(&log.borrow(), wire) {
                assert!(back <= 3 * there, "{back} bytes for {there} on wire {wire}, both list: {both_list}");
            }
        }
    }
}

#[test]
fn a_path_moves_once_the_new_address_has_answered_a_challenge() {
    let mut net = net(1);
    net.pass(S);
    chatter(&mut net, 0, 20);
    let (old, new) = (net.seen_at[0], stranger(7));
    let log = record(&mut net, |d| d.from == 0);
    net.seen_at[0] = new;
    for n in 20..320 {
        (0..2).for_each(|end| net.send(end, n, 1000));
        net.pass(10 * MS);
    }
    assert_eq!(net.peer(1).paths[0].remote, Some(old), "it has answered nothing");
    let (mut there, mut back) = (0, 0);
    for d in log.borrow().iter().filter(|d| d.kind() == TRANSPORT) {
        *(if d.from == 0 { &mut there } else { &mut back }) += d.bytes.len();
        assert!(back <= 3 * there);
    }
    assert!(back > 0, "challenges");
    net.tap = None;
    chatter(&mut net, 320, 300);
    assert_eq!(net.peer(1).paths[0].remote, Some(new));
    assert_eq!(*net.numbers(0).last().unwrap(), 619);
}

#[test]
fn a_rebinding_costs_little() {
    let mut net = net(1);
    net.pass(S);
    chatter(&mut net, 0, 20);
    net.seen_at[0] = stranger(7);
    chatter(&mut net, 20, 100);
    assert_eq!(net.peer(1).paths[0].remote, Some(stranger(7)));
    assert_eq!(net.numbers(1), (0..120).collect::<Vec<_>>(), "nothing towards the listener is lost");
    assert_eq!(*net.numbers(0).last().unwrap(), 119);
}

/// Sends packets both ways for half a second and hands a copy of each, before it arrives, to the other end as from
/// `attacker`, who, if `hands_on`, does the same with what the ends send him.
fn race_copies(net: &mut Net, attacker: SocketAddr, hands_on: bool) -> usize {
    let log = record(net, |_| true);
    let (mut seen, mut sent, mut forwarded) = (0, 0, 0);
    for n in 0..500 {
        (0..2).for_each(|end| net.send(end, n, 300));
        net.pass(MS);
        let fresh: Vec<_> = log.borrow()[seen..].to_vec();
        seen = log.borrow().len();
        for d in fresh.iter().filter(|d| d.kind() == TRANSPORT) {
            sent += d.bytes.len();
            net.inject(1 - d.from, attacker, &d.bytes);
        }
        let strays: Vec<_> = net.strays[forwarded..].to_vec();
        forwarded = net.strays.len();
        strays.iter().filter(|_| hands_on).for_each(|s| net.inject(1 - s.from, attacker, &s.bytes));
    }
    net.tap = None;
    net.pass(S);
    sent
}

#[test]
fn copies_from_an_attackers_address_do_not_move_a_path() {
    let mut net = net(1);
    net.pass(S);
    let sent = race_copies(&mut net, stranger(66), false);
    assert_eq!(net.peer(1).paths[0].remote, Some(net.seen_at[0]));
    assert_eq!(net.peer(0).paths[0].remote, Some(net.server));
    let answered: usize = net.strays.iter().map(|s| s.bytes.len()).sum();
    assert!(answered <= 3 * sent && !net.strays.is_empty());
    assert!(net.strays.len() < 20, "challenges are few: {}", net.strays.len());
    for end in 0..2 {
        assert_eq!(net.numbers(end), (0..500).collect::<Vec<_>>());
    }
}

/// Who hands everything on faster than the path does, both ways, is a path (RFC 9000 §9.3.3). It loses nothing while
/// he does, and when he stops the path moves back.
#[test]
fn a_path_that_a_faster_forwarder_took_over_comes_back() {
    let mut net = net(1);
    net.pass(S);
    race_copies(&mut net, stranger(66), true);
    for end in 0..2 {
        assert_eq!(net.numbers(end), (0..500).collect::<Vec<_>>());
    }
    chatter(&mut net, 500, 500);
    assert_eq!(net.peer(1).paths[0].remote, Some(net.seen_at[0]));
    assert_eq!(net.peer(0).paths[0].remote, Some(net.server));
    assert_eq!(*net.numbers(0).last().unwrap(), 999);
    assert_eq!(*net.numbers(1).last().unwrap(), 999);
}

#[test]
fn more_than_sixteen_paths_of_a_peer_are_refused() {
    let mut net = net(20);
    net.pass(3 * S);
    chatter(&mut net, 0, 100);
    assert_eq!(net.peer(1).paths.len(), 16);
    assert!(net.peer(1).counters.refused_paths > 0);
    assert_eq!(*net.numbers(0).last().unwrap(), 99);
    assert_eq!(*net.numbers(1).last().unwrap(), 99);
}

#[test]
fn both_ends_may_list_paths() {
    let mut net = Net::quick(2, 10 * MS, |end, config| {
        let server = SocketAddr::from(([192, 0, 2, 1], 51900));
        let paths = &mut config.peers[0].paths;
        match end {
            0 => paths.truncate(1),
            _ => *paths = vec![path(1, server, sim::client(1))],
        }
    });
    net.pass(S);
    chatter(&mut net, 0, 200);
    for end in 0..2 {
        let status = net.peer(end);
        let mut listed: Vec<_> = status.paths.iter().map(|p| (p.name.as_str(), p.listed, p.state)).collect();
        listed.sort_unstable();
        assert_eq!(listed, [("wire0", end == 0, "up"), ("wire1", end == 1, "up")], "at end {end}");
        assert_eq!(net.numbers(end), (0..200).collect::<Vec<_>>());
    }
    let ids: HashMap<_, _> = net.peer(0).paths.iter().map(|p| (p.name.clone(), p.id % 2)).collect();
    assert_ne!(ids["wire0"], ids["wire1"], "the ends' ids have different parity");
}

#[test]
fn memory_is_bounded_when_no_feedback_ever_comes() {
    for scheduler in [Scheduler::Auto, Scheduler::Paper] {
        let link = LinkConfig {
            capacity: Capacity::Fixed(Bitrate::from_mbps(100.0)),
            delay: 10 * MS,
            ..LinkConfig::default()
        };
        let options = Options { scheduler, seed: 1 };
        let mut net = Net::with(&options, vec![(link.clone(), link); 2], false, |_, _| ());
        net.pass(2 * S);
        net.tap = Some(Box::new(|d| d.from == 0 || d.kind() != TRANSPORT));
        let mut number = 0;
        for _ in 0..20_000 {
            for _ in 0..10 {
                net.send(0, number, 1200);
                number += 1;
            }
            net.pass(MS);
            let status = net.peer(0);
            assert!(status.queue_bytes <= 8 << 20 && status.unconfirmed_bytes <= 17 << 20, "{status:#?}");
            assert!(net.peer(1).reorder_bytes <= 16 << 20);
            let unconfirmed = &net.ends[0].peers()[0].unconfirmed;
            assert!(unconfirmed.next() - unconfirmed.floor() <= 1 << 18, "{scheduler:?}");
            net.received[1].clear();
        }
        net.tap = None;
        net.pass(10 * S);
        net.send(0, u64::MAX, 1200);
        net.pass(S);
        assert_eq!(net.numbers(1).last(), Some(&u64::MAX), "{scheduler:?}: it recovers");
        assert_eq!(net.peer(0).unconfirmed_bytes, 0);
    }
}

#[test]
fn an_interface_that_is_not_there_is_not_waited_for() {
    let mut net = Net::quick(2, 10 * MS, |end, config| {
        if end == 0 {
            config.peers[0].paths[1].local = Local::Interface("gone0".into());
        }
    });
    net.pass(S);
    chatter(&mut net, 0, 50);
    assert_eq!(net.peer(0).paths[1].state, "down");
    assert_eq!(net.numbers(1), (0..50).collect::<Vec<_>>());
}
