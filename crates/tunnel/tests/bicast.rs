//! Packets that control retransmission over two paths, in virtual time.

mod sim;

use std::collections::BTreeSet;
use std::iter::zip;
use std::time::Duration;

use link::{Jitter, LinkConfig, Loss, Probability, Reorder};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use sim::{Net, Options, inner, plain, record};
use tunnel::{Bicast, Config, Scheduler};

const MS: Duration = Duration::from_millis(1);
/// Payload of an inner segment, with the number of the packet in it.
const DATA: usize = 1000;

/// A segment of TCP's from `end`, of flow `port`, that begins at `sequence`; `number` tells it from every other packet.
fn segment(end: usize, port: u16, sequence: u32, number: u64) -> Vec<u8> {
    let mut p = vec![0; 40 + DATA];
    let length = p.len() as u16;
    (p[0], p[8], p[9]) = (0x45, 64, 6);
    p[2..4].copy_from_slice(&length.to_be_bytes());
    p[12..16].copy_from_slice(&inner(end).octets());
    p[16..20].copy_from_slice(&inner(1 - end).octets());
    p[20..22].copy_from_slice(&port.to_be_bytes());
    p[24..28].copy_from_slice(&sequence.to_be_bytes());
    (p[32], p[33]) = (5 << 4, 0x10);
    p[40..48].copy_from_slice(&number.to_be_bytes());
    p
}

fn send(net: &mut Net, end: usize, mut packet: Vec<u8>) {
    net.ends[end].handle_inner(net.clock(end), &mut packet);
}

/// The numbers of the segments that came out at `end`.
fn numbers(net: &Net, end: usize) -> Vec<u64> {
    net.received[end].iter().map(|p| u64::from_be_bytes(p[40..48].try_into().unwrap())).collect()
}

/// Copies of the end 0's packets, by this reason.
fn copies(net: &Net, reason: &str) -> u64 {
    copies_of(net, 0, reason)
}

fn copies_of(net: &Net, end: usize, reason: &str) -> u64 {
    let counters = net.peer(end).bicast.expect("copies are made");
    counters.duplicated_packets.get(reason).copied().unwrap_or(0)
}

fn copying(bicast: Bicast, resend: bool) -> impl Fn(usize, &mut Config) {
    move |_, config| {
        let peer = &mut config.peers[0];
        (peer.bicast, peer.resend) = (bicast, resend);
    }
}

/// Two perfect links between ends that know each other, and that copy what is worth it and send nothing again.
fn two_paths() -> Net {
    two_paths_with(Bicast::Selective)
}

fn two_paths_with(bicast: Bicast) -> Net {
    let mut net = Net::quick(2, 20 * MS, copying(bicast, false));
    net.pass(2000 * MS);
    net
}

/// The first large datagram of end 0 is lost from now on.
fn lose_one(net: &mut Net) {
    let mut lost = false;
    record(net, move |datagram| {
        let hit = !lost && datagram.from == 0 && datagram.bytes.len() > DATA;
        lost |= hit;
        !hit
    });
}

#[test]
fn a_retransmission_arrives_though_a_path_loses_it() {
    let mut net = two_paths();
    send(&mut net, 0, segment(0, 1, u32::MAX - 500, 1));
    send(&mut net, 0, segment(0, 1, 499, 2));
    net.pass(1000 * MS);
    lose_one(&mut net);
    // What was sent before, behind the wrap of the sequence numbers, once more.
    send(&mut net, 0, segment(0, 1, u32::MAX - 500, 3));
    net.pass(1000 * MS);
    assert_eq!(numbers(&net, 1), [1, 2, 3]);
    assert_eq!(copies(&net, "retransmission"), 1);
    assert_eq!(net.peer(0).bicast.map(|copies| copies.extra_bytes), Some(40 + DATA as u64));
}

#[test]
fn what_was_never_sent_before_is_not_copied() {
    let mut net = two_paths();
    lose_one(&mut net);
    send(&mut net, 0, segment(0, 1, 1499, 1));
    net.pass(1000 * MS);
    assert_eq!(numbers(&net, 1), []);
    assert_eq!(net.peer(0).bicast.map(|copies| copies.extra_bytes), Some(0));
}

#[test]
fn the_last_segment_arrives_in_adaptive_mode_though_a_path_loses_it() {
    for (bicast, arrived) in [(Bicast::Selective, 2), (Bicast::Adaptive, 3)] {
        let mut net = two_paths_with(bicast);
        let acknowledge = |net: &mut Net, number: u32| {
            let mut ack = segment(1, 0, 0, 0);
            ack[22..24].copy_from_slice(&1u16.to_be_bytes());
            ack[28..32].copy_from_slice(&number.to_be_bytes());
            send(net, 1, ack);
            net.pass(1000 * MS);
        };
        send(&mut net, 0, segment(0, 1, 0, 1));
        acknowledge(&mut net, DATA as u32);
        send(&mut net, 0, segment(0, 1, DATA as u32, 2));
        acknowledge(&mut net, 2 * DATA as u32);
        lose_one(&mut net);
        send(&mut net, 0, segment(0, 1, 2 * DATA as u32, 3));
        net.pass(1000 * MS);
        assert_eq!(numbers(&net, 1).len(), arrived, "{bicast:?}");
        assert_eq!(copies(&net, "tail"), if bicast == Bicast::Adaptive { 2 } else { 0 });
    }
}

/// What end 0 sends with data is lost, `count` times.
fn lose(net: &mut Net, count: u32) {
    let mut left = count;
    record(net, move |datagram| {
        let hit = left > 0 && datagram.from == 0 && datagram.bytes.len() > DATA;
        left -= u32::from(hit);
        !hit
    });
}

/// End 0 sends these segments, one after the other, and waits until all have arrived.
fn flow(net: &mut Net, segments: std::ops::Range<u32>) {
    for number in segments {
        send(net, 0, segment(0, 1, 1000 * number, number.into()));
        net.pass(10 * MS);
    }
    net.pass(500 * MS);
}

#[test]
fn a_retransmission_arrives_in_adaptive_mode_though_both_paths_lose_it() {
    for (bicast, arrived) in [(Bicast::Selective, 8), (Bicast::Adaptive, 9)] {
        let mut net = two_paths_with(bicast);
        flow(&mut net, 0..5);
        lose(&mut net, 2);
        send(&mut net, 0, segment(0, 1, 0, 99));
        // The flow goes on: the gap has been given up by the time that it is filled.
        flow(&mut net, 5..8);
        let numbers = numbers(&net, 1);
        assert_eq!(numbers.len(), arrived, "{bicast:?} {numbers:?}");
        assert_eq!(numbers.contains(&99), bicast == Bicast::Adaptive);
    }
}

#[test]
fn what_a_silent_flow_has_lost_arrives_in_adaptive_mode() {
    for (bicast, arrived) in [(Bicast::Selective, 20), (Bicast::Adaptive, 26)] {
        let mut net = two_paths_with(bicast);
        flow(&mut net, 0..20);
        lose(&mut net, 6);
        (20..26).for_each(|number| send(&mut net, 0, segment(0, 1, 1000 * number, number.into())));
        // Sooner than a sender's timer.
        net.pass(150 * MS);
        assert_eq!(numbers(&net, 1).len(), arrived, "{bicast:?}");
        net.pass(1000 * MS);
        assert_eq!(numbers(&net, 1).len(), arrived, "{bicast:?}");
        assert_eq!(copies(&net, "late"), if bicast == Bicast::Adaptive { 12 } else { 0 });
    }
}

#[test]
fn a_lost_packet_is_left_to_its_sender_while_others_of_its_flow_arrive_and_come_back() {
    let mut net = two_paths_with(Bicast::Adaptive);
    let ack = |net: &mut Net| {
        let mut ack = segment(1, 0, 0, 0);
        ack[22..24].copy_from_slice(&1u16.to_be_bytes());
        send(net, 1, ack);
        net.pass(20 * MS);
    };
    flow(&mut net, 0..5);
    lose(&mut net, 1);
    send(&mut net, 0, segment(0, 1, 5000, 5));
    send(&mut net, 0, segment(0, 1, 6000, 6));
    (0..20).for_each(|_| ack(&mut net));
    assert_eq!((numbers(&net, 1), copies(&net, "late")), (vec![0, 1, 2, 3, 4, 6], 0));
    net.pass(1000 * MS);
    assert_eq!((numbers(&net, 1), copies(&net, "late")), (vec![0, 1, 2, 3, 4, 6, 5], 2));
}

#[test]
fn what_follows_a_loss_is_not_held_until_its_senders_timer_runs_out() {
    let mut net = two_paths();
    for number in 0..20 {
        send(&mut net, 0, segment(0, 1, 1000 * number, number.into()));
        net.pass(10 * MS);
    }
    net.pass(100 * MS);
    lose_one(&mut net);
    (20..23).for_each(|number| send(&mut net, 0, segment(0, 1, 1000 * number, number.into())));
    // One way takes 20 ms; nothing that comes later shows that the first is lost.
    net.pass(45 * MS);
    assert_eq!(numbers(&net, 1)[20..], [21, 22]);
}

#[test]
fn both_copies_arrive_and_one_is_delivered() {
    let mut net = two_paths();
    for number in 0..10 {
        send(&mut net, 0, segment(0, 1, 7000, number));
        net.pass(100 * MS);
    }
    assert_eq!(numbers(&net, 1), (0..10).collect::<Vec<_>>());
    assert_eq!(copies(&net, "retransmission"), 9);
    let order = net.peer(1).order;
    assert_eq!((order.delivered_packets, order.duplicate_packets, order.lost_packets), (10, 9, 0));
}

#[test]
fn without_a_second_path_nothing_is_copied_and_it_says_so() {
    let mut net = Net::quick(1, 20 * MS, copying(Bicast::Selective, false));
    net.pass(2000 * MS);
    (0..3).for_each(|number| send(&mut net, 0, segment(0, 1, 7000, number)));
    net.pass(1000 * MS);
    let counters = net.peer(0).bicast.expect("copies are to be made");
    assert_eq!((counters.extra_bytes, &counters.not_duplicated_packets["no-path"]), (0, &2));
    assert_eq!(numbers(&net, 1), [0, 1, 2]);
}

#[test]
fn a_changed_configuration_begins_and_ends_it() {
    let mut net = two_paths();
    let change = |net: &mut Net, bicast| {
        net.reconfigure(0, |config| config.peers[0].bicast = bicast).expect("a good configuration");
        for number in 0..3 {
            send(net, 0, segment(0, 1, 7000, number));
            net.pass(100 * MS);
        }
    };
    change(&mut net, Bicast::Off);
    assert!(net.peer(0).bicast.is_none());
    assert_eq!(net.peer(1).order.duplicate_packets, 0);
    change(&mut net, Bicast::Selective);
    assert_eq!(copies(&net, "retransmission"), 2);
}

/// What little is sent goes over a second path too where the first loses, whether or not the tunnel sends again what is lost.
#[test]
fn what_little_is_sent_goes_twice_over_a_path_that_loses() {
    let share = Probability::new(0.2).expect("a share");
    let lossy = LinkConfig { loss: Loss::Bernoulli(share), ..plain(10.0, 10 * MS) };
    let links = [lossy, plain(10.0, 60 * MS)].map(|link| (link.clone(), link)).into();
    let options = Options { scheduler: Scheduler::Auto, seed: 1 };
    let mut net = Net::with(&options, links, false, copying(Bicast::Off, false));
    net.pass(2000 * MS);
    // Fewer than copies are free for.
    for number in 0..140 {
        net.send(0, number, 100);
        net.pass(50 * MS);
    }
    net.pass(2000 * MS);
    let came = net.numbers(1).into_iter().filter(|number| *number >= 40).count();
    assert!(came >= 97, "{came} of 100");
}

/// Both ends send new segments of three flows, and old ones, over links that do everything to packets.
fn run(seed: u64, resend: bool) -> (Net, [u64; 2]) {
    let share = |v: f64| Probability::new(v).expect("a share");
    let link = |n: u64| LinkConfig {
        jitter: Jitter::Uniform(5 * MS),
        reorder: Some(Reorder { probability: share(0.02), extra_delay: 20 * MS }),
        loss: Loss::gilbert_elliott(share(0.05), 3.0).expect("a loss"),
        duplicate: share(0.02),
        corrupt: share(0.01),
        ..plain(4.0 + n as f64, (10 + 15 * n as u32) * MS)
    };
    let links = (0..3).map(|n| (link(n), link(n))).collect();
    let options = Options { scheduler: Scheduler::Auto, seed };
    let bicast = if seed.is_multiple_of(3) { Bicast::Adaptive } else { Bicast::Selective };
    let mut net = Net::with(&options, links, false, copying(bicast, resend));
    net.pass(3000 * MS);
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let (mut offered, mut next, mut at) = ([0; 2], net.now, [[u32::MAX - 3000; 3]; 2]);
    net.run(net.now + 1500 * MS, |net| {
        while net.now >= next {
            next += Duration::from_micros(u64::from(rng.next_u32() % 3000));
            let (end, flow) = ((rng.next_u32() % 2) as usize, (rng.next_u32() % 3) as usize);
            let back = if rng.next_u32().is_multiple_of(16) { DATA as u32 } else { 0 };
            let sequence = &mut at[end][flow];
            let packet = segment(end, flow as u16, sequence.wrapping_sub(back), offered[end]);
            *sequence = sequence.wrapping_add(if back == 0 { DATA as u32 } else { 0 });
            send(net, end, packet);
            offered[end] += 1;
        }
    });
    net.pass(8000 * MS);
    (net, offered)
}

#[test]
fn every_packet_is_delivered_once_or_counted_lost() {
    for seed in 0..100 {
        let (net, offered) = run(seed, seed % 2 == 0);
        assert!(copies(&net, "retransmission") > 0, "seed {seed}");
        for end in 0..2 {
            let numbers = numbers(&net, end);
            let distinct: BTreeSet<_> = numbers.iter().collect();
            assert_eq!(distinct.len(), numbers.len(), "seed {seed}: a packet twice");
            for flow in 0..3 {
                let numbers: Vec<_> =
                    zip(&net.received[end], &numbers).filter(|(p, _)| p[21] == flow).collect();
                // What is sent again late, and what was not waited for, comes late.
                let late = copies(&net, "late") + copies_of(&net, 1, "late") > 0;
                assert!(
                    late || net.peer(end).order.lost_packets > 0
                        || numbers.is_sorted_by_key(|(_, number)| **number),
                    "seed {seed}: out of order"
                );
            }
            let (order, other) = (net.peer(end).order, net.peer(1 - end));
            assert_eq!(order.delivered_packets, numbers.len() as u64, "seed {seed}");
            let accounted = order.delivered_packets + order.lost_packets + other.queue_dropped_packets;
            assert_eq!(accounted, offered[1 - end], "seed {seed}: {order:?} {other:#?}");
            assert_eq!((other.queue_bytes, other.unconfirmed_bytes), (0, 0), "seed {seed}: memory kept");
            let unconfirmed = &net.ends[end].peers()[0].unconfirmed;
            assert_eq!(unconfirmed.floor(), unconfirmed.next(), "seed {seed}: something is waited for");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let (one, two, other) = (run(3, false).0, run(3, false).0, run(4, false).0);
    assert_eq!(one.transcript, two.transcript);
    assert!(one.received == two.received);
    assert_ne!(one.transcript, other.transcript);
}
