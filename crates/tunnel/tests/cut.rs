//! The best of three bad links dies without notice under load, and returns: the demo's links in virtual time.

mod sim;

use std::sync::Arc;
use std::time::Duration;

use link::{Capacity, CellularConfig, LinkConfig, Loss, Probability, Queue, Trace};
use sim::{Net, Options, inner, plain, udp_packet};
use tunnel::Scheduler;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// From one packet of a call to the next.
const EVERY: Duration = Duration::from_millis(20);
/// The place of the Wi-Fi link in [`links`].
const WIFI: usize = 1;

/// Cellular, Wi-Fi with fades, and a satellite.
fn links(seed: u64) -> Vec<(LinkConfig, LinkConfig)> {
    let lte = |way: u64| LinkConfig {
        capacity: Capacity::Trace(Arc::new(Trace::cellular(2 * seed + way, &CellularConfig::default()))),
        queue: Queue::Bytes(500_000),
        ..plain(10.0, 45 * MS)
    };
    let share = |v| Probability::new(v).expect("a share");
    let loss = Loss::GilbertElliott {
        good_to_bad: share(0.008),
        bad_to_good: share(0.2),
        loss_good: Probability::ZERO,
        loss_bad: share(0.5),
    };
    let wifi = LinkConfig { loss, ..plain(15.0, 10 * MS) };
    vec![(lte(0), lte(1)), (wifi.clone(), wifi), (plain(5.0, 150 * MS), plain(5.0, 150 * MS))]
}

/// A download, acknowledged every second packet, with the Wi-Fi link dead from 3 s to 6 s: the longest time between two
/// packets, and the link's bytes before, during and in the 3 s after.
fn stall(seed: u64) -> (Duration, [u64; 3]) {
    let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed }, links(seed));
    net.pass(S);
    let (mut sent, mut acknowledged, mut last, mut stall) = (0, 0, (0, net.now), Duration::ZERO);
    let bytes = [4, 7, 10].map(|until| {
        net.set_up(WIFI, until != 7);
        let before = net.peer(0).paths[WIFI].received_bytes;
        net.run(until * S, |net| {
            let received = net.received[0].len();
            if received > last.0 {
                if net.now - last.1 > 150 * MS {
                    eprintln!("STALL {:?} to {:?} received {}", last.1, net.now, last.0);
                }
                stall = stall.max(net.now - last.1);
                last = (received, net.now);
            }
            while net.ends[1].peers()[0].queue_bytes() < 150_000 {
                net.send(1, sent, 1200);
                sent += 1;
            }
            while acknowledged + 2 <= received {
                acknowledged += 2;
                net.send(0, acknowledged as u64, 60);
            }
        });
        net.peer(0).paths[WIFI].received_bytes - before
    });
    // What comes after more than a second is late, for then others do not wait for it any more.
    let mut numbers = net.numbers(0);
    let late = numbers.windows(2).filter(|w| w[0] > w[1]).count();
    assert!(late * 100 < numbers.len(), "seed {seed}: {late} of {} are late", numbers.len());
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|w| w[0] < w[1]), "seed {seed}: once");
    (stall, bytes)
}

#[test]
fn a_cut_stalls_for_less_than_half_a_second_and_the_link_is_used_again() {
    // With 54, the cellular link has an outage soon after the return; with 89, another one during the cut.
    for seed in (1..=8).chain([54, 89]) {
        let (stall, [before, _, after]) = stall(seed);
        // Virtual time: not timings but arithmetic, with room.
        assert!(stall < 500 * MS, "seed {seed}: {stall:?}");
        assert!(
            after > before / 2,
            "seed {seed}: {after} bytes in the 3 s after its return, {before} before"
        );
    }
}

/// Reports about a path may take another, and that one may have died.
#[test]
fn a_path_that_answers_is_not_silent_when_another_dies() {
    for (dies, lives) in [(0, 1), (1, 0)] {
        for every in [20, 200, 1000].map(|ms| ms * MS) {
            for delays in [[10, 40], [10, 200], [20, 20]] {
                let links = delays.map(|ms| (plain(10.0, ms * MS), plain(10.0, ms * MS)));
                let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, links.into());
                net.pass(S);
                let (mut number, mut next, mut silent) = (0, 2 * S, Vec::new());
                let lives = format!("wire{lives}");
                for (until, up) in [(6, true), (12, false)] {
                    net.set_up(dies, up);
                    net.run(until * S, |net| {
                        while net.now >= next {
                            (0..2).for_each(|end| net.send(end, number, 100));
                            (number, next) = (number + 1, next + every);
                        }
                        for end in 0..2 {
                            let paths = net.peer(end).paths;
                            let is_silent = paths.iter().any(|p| p.name == lives && p.state == "silent");
                            silent.extend(is_silent.then_some((end, net.now)));
                        }
                    });
                }
                assert!(
                    silent.is_empty(),
                    "{delays:?}, {dies} dies, a packet each {every:?}: the other is silent at {:?} to {:?}",
                    silent[0],
                    silent[silent.len() - 1]
                );
            }
        }
    }
}

/// All paths fall silent, so nothing can be handed over; then one answers, and the other never does.
#[test]
fn what_a_dead_path_held_goes_down_the_first_that_answers() {
    let mut net = Net::quick(2, 20 * MS, |_, _| ());
    net.pass(2 * S);
    (0..200).for_each(|number| net.send(0, number, 1000));
    [0, 1].into_iter().for_each(|wire| net.set_up(wire, false));
    net.pass(300 * MS);
    assert!(net.peer(0).paths.iter().all(|path| path.state != "up"), "{:#?}", net.peer(0).paths);
    net.set_up(1, true);
    net.pass(2 * S);
    assert_eq!(net.peer(0).unconfirmed_bytes, 0, "nothing waits for the dead path to tell its fate");
    (200..300).for_each(|number| net.send(0, number, 1000));
    net.pass(1 * S);
    let numbers = net.numbers(1);
    assert_eq!(numbers.iter().filter(|number| **number >= 200).count(), 100, "{numbers:?}");
}

/// What a path that dies had in flight is more than the other carries in a while. What was lost of a call does not wait for the rest.
#[test]
fn a_call_does_not_wait_for_the_download_that_was_lost_with_it() {
    let links = [plain(20.0, 20 * MS), plain(2.0, 40 * MS)].map(|link| (link.clone(), link));
    let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, links.into());
    net.pass(S);
    let began = net.now;
    let (mut sent, mut heard, mut longest) = (0, 0, Duration::ZERO);
    for (until, up) in [(4000, true), (5500, false), (7000, true)] {
        net.set_up(0, up);
        net.run(until * MS, |net| {
            while net.ends[1].peers()[0].queue_bytes() < 150_000 {
                net.send(1, 0, 1200);
            }
            while net.now >= began + EVERY * sent {
                let mut packet = udp_packet(inner(1), inner(0), 100);
                packet[20] = 1;
                packet[28..32].copy_from_slice(&sent.to_be_bytes());
                net.ends[1].handle_inner(net.clock(1), &mut packet);
                sent += 1;
            }
            for packet in net.received[0].drain(..).filter(|packet| packet[20] == 1) {
                let number = u32::from_be_bytes(packet[28..32].try_into().unwrap());
                longest = longest.max(net.now - (began + EVERY * number));
                heard += 1;
            }
        });
    }
    assert!(sent - heard < 10, "{heard} of {sent} packets come");
    assert!(longest < 250 * MS, "one comes after {longest:?}");
}

/// A long path dies, and a backup that has carried nothing takes over: what the long one held is not given up before that.
#[test]
fn what_a_long_path_held_is_there_by_the_backup() {
    let links = [plain(8.0, 325 * MS), plain(20.0, 30 * MS)].map(|link| (link.clone(), link));
    let mut net =
        Net::with(&Options { scheduler: Scheduler::Auto, seed: 1 }, links.into(), false, |_, config| {
            config.peers[0].paths.iter_mut().skip(1).for_each(|path| path.backup = true);
        });
    net.pass(8 * S);
    let mut number = 0;
    for (time, up) in [(3, true), (4, false)] {
        net.set_up(0, up);
        net.run(net.now + time * S, |net| {
            while net.ends[1].peers()[0].queue_bytes() < 30_000 {
                net.send(1, number, 1200);
                number += 1;
            }
        });
    }
    let order = &net.peer(0).order;
    assert!(order.lost_packets < 20, "{} packets are given up of {number}", order.lost_packets);
}

/// While nothing leads to the peer some packets are kept, and of a call the last.
#[test]
fn what_is_kept_through_an_outage_is_new() {
    let link = plain(10.0, 20 * MS);
    let mut net = Net::new(&Options { scheduler: Scheduler::Auto, seed: 1 }, vec![(link.clone(), link)]);
    net.pass(5 * S);
    net.set_up(0, false);
    net.pass(5 * S);
    for number in 0..1000 {
        net.send(1, number, 100);
        net.pass(20 * MS);
    }
    net.set_up(0, true);
    net.pass(3 * S);
    let numbers = net.numbers(0);
    let newest = numbers.iter().filter(|number| **number >= 900).count();
    assert!(newest >= 95, "{newest} of the last hundred come, {} in all", numbers.len());
}

/// Two of four links die together, over which the reports went. One of those that are left is paid for by the byte; it carries data, and
/// so reports. Though both ends send all they can, a call beside that is in time.
#[test]
fn two_links_that_die_together_take_no_other_with_them() {
    for metered in [false, true] {
        let links = [(3.0, 6.0, 40), (1.0, 3.0, 150), (2.0, 4.0, 20), (3.0, 5.0, 30)];
        let links = links.map(|(there, back, ms)| (plain(there, ms * MS), plain(back, ms * MS)));
        let options = Options { scheduler: Scheduler::Auto, seed: 1 };
        let mut net = Net::with(&options, links.into(), false, |end, config| {
            config.peers[0].paths.iter_mut().take(1 - end).for_each(|path| path.cost.metered = metered);
        });
        net.pass(4 * S);
        let began = net.now;
        let (mut sent, mut delays) = (0, [Vec::new(), Vec::new()]);
        let (mut look, mut silent) = (began, Vec::new());
        for (until, up) in [(12, true), (16, false)] {
            [2, 3].into_iter().for_each(|wire| net.set_up(wire, up));
            net.run(until * S, |net| {
                for end in 0..2 {
                    while net.ends[end].peers()[0].queue_bytes() < 60_000 {
                        net.send(end, 0, 1200);
                    }
                }
                while net.now >= began + EVERY * sent {
                    for end in 0..2 {
                        let mut packet = udp_packet(inner(end), inner(1 - end), 100);
                        packet[20] = 1;
                        packet[28..32].copy_from_slice(&sent.to_be_bytes());
                        net.ends[end].handle_inner(net.clock(end), &mut packet);
                    }
                    sent += 1;
                }
                for (received, delays) in net.received.iter_mut().zip(&mut delays) {
                    for packet in received.drain(..).filter(|packet| packet[20] == 1) {
                        let number = u32::from_be_bytes(packet[28..32].try_into().unwrap());
                        delays.push(net.now - (began + EVERY * number));
                    }
                }
                if net.now >= look {
                    look = net.now + 5 * MS;
                    let lives = |name: &str| name == "wire0" || name == "wire1";
                    let is_silent = |end: &usize| {
                        net.peer(*end).paths.iter().any(|p| lives(&p.name) && p.state == "silent")
                    };
                    silent.extend((0..2).filter(is_silent).map(|end| (end, net.now)));
                }
            });
        }
        delays.iter_mut().for_each(|delays| delays.sort());
        let slow = delays.each_ref().map(|delays| delays[delays.len() - 18]);
        assert!(silent.is_empty(), "metered {metered}: {:?} to {:?}", silent.first(), silent.last());
        assert!(slow.iter().all(|slow| *slow < 250 * MS), "metered {metered}: the 18th slowest: {slow:?}");
    }
}
