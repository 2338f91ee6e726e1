//! The tunnel in virtual time: the same seed gives the same bytes, and every packet is delivered once or counted.

mod sim;

use std::collections::BTreeSet;
use std::time::Duration;

use link::{Bitrate, Jitter, LinkConfig, Loss, Probability, Queue, Reorder};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use sim::{Net, Options, once_and_in_order, plain};
use tunnel::{Config, Host, PeerConfig, PublicKey, Scheduler, Via};

const MS: Duration = Duration::from_millis(1);

fn share(v: f64) -> Probability {
    Probability::new(v).expect("a share")
}

/// A link that does everything a link may do to packets, as `rng` likes.
fn nasty(rng: &mut ChaCha20Rng) -> LinkConfig {
    let mut upto = |n: u32| rng.next_u32() % n;
    let mbps = 1.0 + f64::from(upto(200)) / 10.0;
    LinkConfig {
        jitter: Jitter::Uniform(upto(20) * MS),
        reorder: Some(Reorder { probability: share(f64::from(upto(5)) / 100.0), extra_delay: upto(30) * MS }),
        loss: Loss::gilbert_elliott(share(f64::from(upto(10)) / 100.0 + 1e-6), 3.0).expect("a loss"),
        duplicate: share(f64::from(upto(3)) / 100.0),
        corrupt: share(f64::from(upto(3)) / 100.0),
        queue: Queue::Packets(10 + upto(100) as usize),
        ..plain(mbps, upto(100) * MS)
    }
}

fn run(seed: u64, scheduler: Scheduler) -> Net {
    run_with(seed, scheduler, |_| ())
}

/// One run: both ends send for a second, at random, over three nasty links; one of them dies for a while.
fn run_with(seed: u64, scheduler: Scheduler, tweak: impl Fn(&mut PeerConfig)) -> Net {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let links = (0..3).map(|_| (nasty(&mut rng), nasty(&mut rng))).collect();
    let tweak = |_, config: &mut Config| config.peers.iter_mut().for_each(&tweak);
    let mut net = Net::with(&Options { scheduler, seed }, links, false, tweak);
    net.run(3000 * MS, |_| ());
    let mut numbers = [0, 0];
    let mut next = net.now;
    let victim = (rng.next_u32() % 3) as usize;
    net.run(4000 * MS, |net| {
        let dead = (3300 * MS..3700 * MS).contains(&net.now);
        net.set_up(victim, !dead);
        while net.now >= next {
            next += Duration::from_micros(u64::from(rng.next_u32() % 4000));
            let end = (rng.next_u32() % 2) as usize;
            net.send(end, numbers[end], 40 + (rng.next_u32() % 1300) as usize);
            numbers[end] += 1;
        }
    });
    net.run(12_000 * MS, |_| ());
    net.offered = numbers;
    net
}

/// Every packet that came out had gone in, once and in order, and the order stream accounts for every one.
fn check(net: &Net, seed: u64) {
    for end in 0..2 {
        let numbers = net.numbers(end);
        let status = &net.ends[end].status(net.now).peers[0];
        let other = &net.ends[1 - end].status(net.now).peers[0];
        let lost = status.order.lost_packets > 0;
        assert!(once_and_in_order(&numbers, lost), "seed {seed}: a packet twice or out of order");
        assert!(
            numbers.last().is_none_or(|n| *n < net.offered[1 - end]),
            "seed {seed}: a packet from nowhere"
        );
        assert_eq!(status.order.delivered_packets, numbers.len() as u64, "seed {seed}");
        assert_eq!(status.reorder_bytes, 0, "seed {seed}: a packet still waits");
        let dropped = other.counters.dropped_no_session + other.queue_dropped_packets;
        let too_big = net.ends[1 - end].counters().dropped_too_big + other.counters.dropped_too_big;
        let accounted = status.order.delivered_packets + status.order.lost_packets + dropped + too_big;
        assert_eq!(accounted, net.offered[1 - end], "seed {seed}: {status:#?} {other:#?}");
        assert_eq!((other.queue_bytes, other.unconfirmed_bytes), (0, 0), "seed {seed}: memory kept");
        assert_eq!(status.counters.received_malformed, 0, "seed {seed}");
    }
}

#[test]
fn a_thousand_seeds_deliver_every_packet_once_or_count_it_lost() {
    let mut delivered = 0;
    let mut offered = 0;
    for seed in 0..1000 {
        let net = run(seed, Scheduler::Auto);
        check(&net, seed);
        delivered += net.numbers(0).len() + net.numbers(1).len();
        offered += net.offered.iter().sum::<u64>();
    }
    // Not a rate: three links that lose 5 % each, repaired, lose far less than one.
    assert!(delivered as f64 > 0.97 * offered as f64, "{delivered} of {offered}");
}

#[test]
fn the_papers_scheduler_delivers_every_packet_once_or_counts_it_lost() {
    for seed in 0..200 {
        check(&run(seed, Scheduler::Paper), seed);
    }
}

#[test]
fn without_resends_every_packet_is_delivered_once_or_counted_lost() {
    for seed in 0..200 {
        let net = run_with(seed, Scheduler::Auto, |peer| peer.resend = false);
        check(&net, seed);
        for end in 0..2 {
            assert_eq!((net.peer(end).resend, net.peer(end).resent_packets), (false, 0), "seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in [3, 4] {
        let (one, two) = (run(seed, Scheduler::Auto), run(seed, Scheduler::Auto));
        assert_eq!(one.transcript, two.transcript);
        assert!(one.received == two.received);
    }
    assert_ne!(run(3, Scheduler::Auto).transcript, run(4, Scheduler::Auto).transcript);
}

/// Offers `mbps` from end 1 to end 0 for `seconds` after a second of quiet; Mbit/s of inner packets that came.
fn offer(net: &mut Net, mbps: f64, seconds: u64) -> f64 {
    net.run(net.now + 1000 * MS, |_| ());
    let (start, begin) = (net.received[0].len(), net.now);
    let size = usize::from(net.ends[1].inner_mtu());
    let gap = Bitrate::from_mbps(mbps).transmit_time(size);
    let mut number = 0;
    net.run(net.now + Duration::from_secs(seconds), |net| {
        while net.now >= begin + gap * number as u32 {
            net.send(1, number, size);
            number += 1;
        }
    });
    let bytes: usize = net.received[0][start..].iter().map(Vec::len).sum();
    bytes as f64 * 8.0 / seconds as f64 / 1e6
}

#[test]
fn windows_fill_every_path_without_being_told_its_rate() {
    let bursty = |link: LinkConfig| LinkConfig {
        loss: Loss::gilbert_elliott(share(0.02), 4.0).expect("a loss"),
        ..link
    };
    for (links, capacity) in [
        (vec![plain(10.0, 10 * MS)], 10.0),
        (vec![plain(50.0, 10 * MS), plain(10.0, 10 * MS)], 60.0),
        (vec![plain(10.0, Duration::ZERO); 10], 100.0),
        (vec![plain(10.0, 45 * MS), bursty(plain(15.0, 10 * MS)), plain(5.0, 150 * MS)], 30.0),
    ] {
        let links = links.into_iter().map(|l| (l.clone(), l)).collect();
        let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, links);
        let rate = offer(&mut net, 1.2 * capacity, 10);
        if std::env::var_os("NAWA_SHOW").is_some() {
            println!("{rate:.2} of {capacity} Mbit/s\n{:#?}", net.ends[1].status(net.now).peers);
        }
        // Virtual time: not a timing but arithmetic. Encapsulation leaves 93 %.
        assert!(rate > 0.85 * capacity && rate < 0.95 * capacity, "{rate} of {capacity}");
        let order = net.ends[0].status(net.now).peers[0].order;
        assert!(order.lost_packets * 100 < order.delivered_packets, "{order:?}");
    }
}

#[test]
fn a_gap_waits_for_a_link_that_is_long_in_one_direction() {
    let slow = plain(8.0, 1500 * MS);
    let links = vec![(plain(2.0, 20 * MS), plain(2.0, 20 * MS)), (plain(8.0, 20 * MS), slow)];
    let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, links);
    let mut order_after = |seconds| {
        offer(&mut net, 7.0, seconds);
        net.run(net.now + Duration::from_secs(5), |_| ());
        net.ends[0].status(net.now).peers[0].order
    };
    // What the start loses is found out after 1.5 s, and some of it again.
    let start = order_after(20);
    assert!(start.lost_packets * 50 < start.delivered_packets, "{start:?}");
    let end = order_after(20);
    let (lost, timed_out) =
        (end.lost_packets - start.lost_packets, end.timed_out_packets - start.timed_out_packets);
    assert_eq!((lost, timed_out), (0, 0), "{start:?}, {end:?}");
}

#[test]
fn a_path_that_dies_under_load_stalls_nothing_for_long() {
    let stalls: Vec<_> = (0..12).map(|n| stall_of_a_dead_path((4000 + 37 * n) * MS)).collect();
    println!("{stalls:?}");
    let mean = stalls.iter().sum::<Duration>() / stalls.len() as u32;
    assert!(mean < 300 * MS && stalls.iter().all(|stall| *stall < 700 * MS), "{stalls:?}");
}

/// The longest time between two packets, the path dying at `dies`, for 3 s.
fn stall_of_a_dead_path(dies: Duration) -> Duration {
    let links = vec![plain(10.0, 45 * MS), plain(15.0, 10 * MS), plain(5.0, 150 * MS)];
    let links = links.into_iter().map(|l| (l.clone(), l)).collect();
    let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, links);
    net.run(2000 * MS, |_| ());
    let (mut number, mut last, mut stall) = (0, net.now, Duration::ZERO);
    let mut seen = BTreeSet::new();
    net.run(10_000 * MS, |net| {
        net.set_up(1, !(dies..dies + 3000 * MS).contains(&net.now));
        if seen.insert(net.received[0].len()) {
            stall = stall.max(net.now - last);
            last = net.now;
        }
        while net.ends[1].peers()[0].queue_bytes() < 32_000 {
            net.send(1, number, 1200);
            number += 1;
        }
    });
    let order = net.ends[0].status(net.now).peers[0].order;
    assert_eq!(order.lost_packets, 0, "what died on the path was sent again: {order:?}");
    let path = &net.ends[1].status(net.now).peers[0].paths;
    assert!(path.iter().all(|p| p.state == "up"), "the path is used again");
    stall
}

#[test]
fn what_was_under_way_on_an_interface_that_goes_is_sent_again() {
    let mut net = Net::quick(2, 50 * MS, |_, _| ());
    net.run(2000 * MS, |_| ());
    for number in 0..500 {
        if number == 200 {
            net.set_up(1, false);
        }
        if number == 250 {
            assert!(net.peer(0).paths[1].in_flight_bytes > 0);
            net.ends[0].set_local(net.now, 0, 1, None);
        }
        net.send(0, number, 1000);
        net.pass(MS);
    }
    net.pass(3000 * MS);
    let order = net.peer(1).order;
    assert!(order.lost_packets == 0 && order.delivered_packets > 300, "{order:?}");
    let unconfirmed = &net.ends[0].peers()[0].unconfirmed;
    assert_eq!(unconfirmed.floor(), unconfirmed.next(), "nothing is waited for");
}

#[test]
fn a_relay_that_cannot_be_asked_for_want_of_an_interface_wakes_nobody() {
    let mut net = Net::quick(1, 10 * MS, |end, config| {
        let address = Host::Address("198.51.100.2:51901".parse().expect("an address"));
        let public_key = config.peers[0].public_key;
        config.peers[0]
            .paths
            .iter_mut()
            .for_each(|path| path.via = Some(Via { address: address.clone(), tls: false, public_key }));
        assert_eq!(config.peers[0].paths.is_empty(), end == 1);
    });
    net.pass(10 * MS);
    assert!(!net.strays.is_empty(), "the relay is asked");
    net.ends[0].set_local(net.now, 0, 0, None);
    net.now += 60_000 * MS;
    net.turn(0);
    assert!(net.ends[0].poll_timeout(net.now).is_none_or(|t| t > net.now));
}

#[test]
fn a_peer_whose_key_is_no_key_wakes_nobody() {
    let mut net = Net::quick(1, 10 * MS, |_, config| {
        config.peers[0].public_key = PublicKey::from([0; 32]);
    });
    net.turn(0);
    assert!(net.ends[0].poll_timeout(net.now).is_none_or(|t| t > net.now));
}
