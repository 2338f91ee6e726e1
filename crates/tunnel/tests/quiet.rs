//! What a tunnel costs that has little or nothing to carry.

mod bond;
mod sim;

use std::collections::BTreeSet;
use std::time::Duration;

use bond::network::Marked;
use bond::{Load, backups, net_over, net_with, run_marked, run_net, run_single};
use sim::{Datagram, Net, Options, inner, plain, record, udp_packet};
use tcp_sim::{Hosts, Ping};
use tunnel::{Cost, Marks, PathConfig, Scheduler};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// IPv4 and UDP around a payload, in bytes.
const HEADERS: usize = 28;
/// IPv6 instead, in bytes more.
const MORE: usize = 20;

/// As IP packets, of those recorded, what went over a wire.
fn bytes_over(log: &[Datagram], wire: usize, v6: bool) -> usize {
    let of = |d: &Datagram| d.bytes.len() + HEADERS + MORE * usize::from(v6);
    log.iter().filter(|d| d.wire == wire).map(of).sum()
}

/// One path out of reach, as any van has that leaves a wireless network: no more handshakes than rekeying needs.
#[test]
fn an_idle_tunnel_with_a_dead_link_makes_no_handshakes() {
    for v6 in [false, true] {
        let mut net = Net::quick_over(v6, 2, 10 * MS, |_, _| ());
        net.pass(5 * S);
        net.set_up(0, false);
        let log = record(&mut net, |_| true);
        net.pass(600 * S);
        let log = log.borrow();
        let handshakes = log.iter().filter(|d| d.from == 0 && d.wire == 1 && d.kind() == 1).count();
        assert!(handshakes <= 6, "{handshakes} handshakes in ten minutes");
        let bytes = bytes_over(&log, 1, v6);
        assert!(bytes * 144 < 2_000_000, "{bytes} bytes in ten minutes over the path that works");
    }
}

/// An uplink that blocks UDP from the beginning is asked as one that died, a small packet each second.
#[test]
fn a_link_that_never_answered_is_asked_in_few_words() {
    for mtu in [None, Some(1420)] {
        let mut net = Net::quick_over(false, 2, 10 * MS, |_, config| {
            config.mtu = mtu.map_or(config.mtu, tunnel::Mtu::Fixed);
        });
        net.set_up(0, false);
        let log = record(&mut net, |_| true);
        net.pass(600 * S);
        let bytes = bytes_over(&log.borrow(), 0, false);
        assert!(bytes * 144 < 20_000_000, "{} MB a day, both ways", bytes * 144 / 1_000_000);
    }
}

/// Also before anything was measured, and while a path is silent.
#[test]
fn weights_are_shares_of_one_among_paths_that_are_up() {
    let mut net = Net::quick(3, 10 * MS, |_, _| ());
    let mut seen = BTreeSet::new();
    for step in 0..400 {
        net.pass(10 * MS);
        net.set_up(0, step < 200);
        if step % 4 == 0 {
            net.send(0, step, 1000);
        }
        for end in 0..2 {
            let paths = net.peer(end).paths;
            let sum: f64 = paths.iter().map(|path| path.weight).sum();
            let up = paths.iter().filter(|path| path.state == "up").count();
            assert!(up == 0 || (sum - 1.0).abs() < 1e-9, "{up} are up, and the sum is {sum}");
            assert!(paths.iter().all(|path| path.state == "up" || path.weight == 0.0));
            seen.insert(up);
        }
    }
    assert!(seen.contains(&2) && seen.contains(&3), "{seen:?}");
}

/// What nobody sends anything over, by what it costs and how often the ends want to hear from each other: docs/tunnel.md has it, both
/// directions together. `--nocapture` prints it.
#[test]
fn an_idle_link_costs_a_few_megabytes_a_day() {
    type Change = fn(&mut PathConfig);
    let costs: [(&str, Change); 3] = [
        ("first", |_| ()),
        ("backup", |path| path.backup = true),
        ("metered", |path| path.cost = Cost { metered: true, ..Cost::default() }),
    ];
    for keepalive in [None, Some(20 * S)] {
        for (name, cost) in costs {
            let mut net = Net::quick(2, 10 * MS, |end, config| {
                config.peers[0].keepalive = keepalive;
                if end == 0 {
                    config.peers[0].paths.iter_mut().skip(1).for_each(cost);
                }
            });
            net.pass(30 * S);
            let log = record(&mut net, |_| true);
            net.pass(3600 * S);
            let log = log.borrow();
            let day = |wire: usize| {
                let bytes: usize = bytes_over(&log, wire, false);
                bytes as f64 * 24.0 / 1e6
            };
            println!(
                "{name}, keepalive {keepalive:?}: {:.2} MB a day, beside a first link of {:.2}",
                day(1),
                day(0)
            );
            assert!(
                day(0) < 3.0 && day(1) < 3.0,
                "{name}, {keepalive:?}: {:.2} and {:.2} MB",
                day(0),
                day(1)
            );
        }
    }
}

/// Where each path is paid for by the byte, all of them are measured while there is traffic: one of them has to do the work.
#[test]
fn metered_paths_without_another_are_measured() {
    let links = [10, 40].map(|ms| (plain(10.0, ms * MS), plain(10.0, ms * MS)));
    let options = Options { scheduler: Scheduler::Auto, seed: 1 };
    let mut net = Net::with(&options, links.to_vec(), false, |_, config| {
        config.peers[0].paths.iter_mut().for_each(|path| path.cost.metered = true);
    });
    net.pass(10 * S);
    let log = record(&mut net, |_| true);
    for number in 0..20 {
        net.send(0, number, 500);
        net.pass(S);
    }
    let sent = log.borrow().iter().filter(|datagram| datagram.wire == 1 && datagram.from == 0).count();
    assert!(sent >= 10, "{sent} datagrams over the path that nothing else takes");
}

#[test]
fn a_backup_costs_less_than_a_megabyte_a_day() {
    costs_less_than_a_megabyte_a_day(|path| path.backup = true);
}

#[test]
fn a_metered_path_that_is_not_needed_costs_less_than_a_megabyte_a_day() {
    costs_less_than_a_megabyte_a_day(|path| path.cost = Cost { metered: true, prefer: 1, ..Cost::default() });
}

/// A packet each second over the main path, for ten minutes: the other one stays below a megabyte a day, also after it has
/// stood in.
fn costs_less_than_a_megabyte_a_day(spare: impl Fn(&mut PathConfig)) {
    for v6 in [false, true] {
        let mut net = Net::quick_over(v6, 2, 10 * MS, |_, config| {
            config.peers[0].paths.iter_mut().skip(1).for_each(&spare);
        });
        let mut number = 0;
        let mut talk = |net: &mut Net, seconds: u32| {
            for _ in 0..seconds {
                number += 1;
                (0..2).for_each(|end| net.send(end, number, 100));
                net.pass(S);
            }
        };
        talk(&mut net, 10);
        for stands_in in [false, true] {
            if stands_in {
                net.set_up(0, false);
                talk(&mut net, 10);
                net.set_up(0, true);
                talk(&mut net, 10);
            }
            let log = record(&mut net, |_| true);
            talk(&mut net, 600);
            let log = log.borrow();
            let bytes = bytes_over(&log, 1, v6);
            assert!(bytes * 144 < 1_000_000, "{bytes} bytes in ten minutes");
        }
    }
}

/// The same backup on a long way, beside a ping each second, one each ten seconds, and a flow that fills the main path.
#[test]
fn a_backup_costs_as_little_whatever_the_main_path_carries() {
    let links = [15, 300].map(|ms| (plain(5.0, ms * MS), plain(5.0, ms * MS)));
    for v6 in [false, true] {
        for every in [Some(S), Some(10 * S), None] {
            let mut net = net_with(v6, links.to_vec(), 1, backups);
            net.pass(10 * S);
            let log = record(&mut net, |_| true);
            let from = net.now;
            if let Some(every) = every {
                let mut hosts = Hosts::new([inner(0), inner(1)]);
                hosts.pings.push((0, Ping::new(from, every, from + 600 * S)));
                tcp_sim::run(&mut net, &mut hosts, from + 600 * S);
            } else {
                run_net(&mut net, &Load { probes: false, time: 120 * S, ..Load::default() });
            }
            let a_day = bytes_over(&log.borrow(), 1, v6) as f64 * 86_400.0 / (net.now - from).as_secs_f64();
            assert!(a_day < 1e6, "a ping each {every:?}: {:.2} MB a day", a_day / 1e6);
        }
    }
}

/// All that a new session says first is lost: the other end hears of the backup all the same.
#[test]
fn an_announcement_that_is_lost_is_made_again() {
    let mut net = Net::quick(2, 10 * MS, |_, config| {
        config.peers[0].paths.iter_mut().skip(1).for_each(|path| path.backup = true);
    });
    net.pass(5 * S);
    assert!(net.peer(1).paths[1].backup);
    // An outage of 300 ms just when the list changes.
    (0..2).for_each(|wire| net.set_up(wire, false));
    net.reconfigure(0, |config| config.peers[0].paths[0].backup = true).expect("it is taken up");
    net.pass(300 * MS);
    (0..2).for_each(|wire| net.set_up(wire, true));
    net.pass(5 * S);
    assert!(net.peer(1).paths[0].backup, "the other end knows");
}

/// A hundred pairs that began at the same moment do not make their next keys at the same moment.
#[test]
fn keys_that_were_made_together_are_renewed_apart() {
    let renewed = |seed| {
        let options = Options { scheduler: Scheduler::Auto, seed };
        let link = plain(10.0, 10 * MS);
        let mut net = Net::new(&options, vec![(link.clone(), link)]);
        net.pass(100 * S);
        let log = record(&mut net, |_| true);
        net.pass(60 * S);
        let log = log.borrow();
        log.iter().find(|d| d.kind() == 1).expect("new keys").at
    };
    let times: BTreeSet<_> = (0..20).map(|seed| renewed(seed).as_secs()).collect();
    assert!(times.len() > 4, "{times:?}");
}

/// An end that only answers, and hears nothing more, has no reason to wake but its keys' age.
#[test]
fn keys_are_forgotten_on_time_where_nothing_happens() {
    let mut net = Net::quick(1, 10 * MS, |_, _| ());
    net.pass(5 * S);
    net.set_up(0, false);
    net.pass(400 * S);
    assert!(net.ends[1].poll_timeout(net.now).is_none_or(|at| at > net.now));
    assert!(net.ends[1].peers()[0].sessions.indices().next().is_none(), "no key is left");
}

/// One of two paths drops what has a mark: it carries the packets without it, the other with it.
#[test]
fn a_mark_that_a_path_drops_is_left_off_there() {
    for v6 in [false, true] {
        let cases = [(0xfc, 0x01, &["DSCP"][..]), (0x03, 0xb8, &["ECN"]), (0xff, 0, &["DSCP", "ECN"])];
        let tos = 0xb9;
        for (dropped, without, names) in cases {
            let mut net = Net::quick_over(v6, 2, 10 * MS, |_, _| ());
            let log = record(&mut net, move |d| d.wire != 0 || d.tos & dropped == 0);
            net.pass(5 * S);
            let talk = |net: &mut Net, numbers: std::ops::Range<u64>| {
                for number in numbers {
                    let mut packet = udp_packet(inner(0), inner(1), 700);
                    packet[1] = tos;
                    packet[28..36].copy_from_slice(&number.to_be_bytes());
                    net.ends[0].handle_inner(net.now, &mut packet);
                    net.pass(5 * MS);
                }
            };
            talk(&mut net, 0..2000);
            let carried = |wire: usize| {
                let log = log.borrow();
                let data = log
                    .iter()
                    .filter(|d| d.from == 0 && d.wire == wire && (701..800).contains(&d.bytes.len()));
                data.map(|d| d.tos).collect::<BTreeSet<_>>()
            };
            assert_eq!(carried(1), BTreeSet::from([tos]));
            assert!(net.peer(0).paths[1].marks_left_off.is_empty());
            // Where there is only the one that drops, all comes through.
            net.set_up(1, false);
            net.pass(2 * S);
            talk(&mut net, 2000..2900);
            log.borrow_mut().clear();
            talk(&mut net, 3000..4000);
            net.pass(S);
            assert_eq!(carried(0), BTreeSet::from([without]), "{dropped:x}");
            assert_eq!(net.peer(0).paths[0].marks_left_off, names);
            let arrived: BTreeSet<_> = net.numbers(1).into_iter().collect();
            assert!((3000..4000).all(|number| arrived.contains(&number)));
        }
    }
}

/// The quicker of two paths drops what has a mark, and the tunnel has yet to learn that: of pings that have it hardly any is lost, or takes
/// longer than over the other path, but for a repair as long as that.
#[test]
fn pings_with_a_mark_that_a_path_drops_arrive_all_the_same() {
    let links = [10, 30].map(|ms| (plain(20.0, ms * MS), plain(20.0, ms * MS)));
    for v6 in [false, true] {
        let mut net = net_over(v6, links.to_vec(), 1);
        record(&mut net, |d| d.wire != 0 || d.tos & 0xfc == 0);
        let mut hosts = Hosts::new([inner(0), inner(1)]);
        let until = net.now + 5 * S;
        hosts.pings.push((0, Ping::new(net.now, 100 * MS, until)));
        tcp_sim::run(&mut Marked { network: &mut net, tos: |_| 0x48 }, &mut hosts, until + S);
        let (pings, lost) = hosts.pings[0].1.round_trips(Duration::ZERO, until);
        let p95 = pings[pings.len() * 95 / 100];
        assert!(lost * 20 <= pings.len() + lost && p95 < 120 * MS, "{lost} are lost, others take {pings:?}");
    }
}

/// The quicker of two paths drops what says that its ends understand ECN: a flow of such ends gets what it would over the other alone.
#[test]
fn a_flow_with_ecn_that_a_path_drops_gets_what_the_other_carries() {
    let links = [10, 30].map(|ms| (plain(20.0, ms * MS), plain(20.0, ms * MS)));
    let load = Load { probes: false, ..Load::default() };
    let alone = run_single(&links[1], &load).goodput;
    for v6 in [false, true] {
        let mut net = net_over(v6, links.to_vec(), 1);
        let log = record(&mut net, |d| d.wire != 0 || d.tos & 3 == 0);
        // What has data says so, with ECT(0) (RFC 3168 §6.1).
        let goodput = run_marked(&mut net, |packet| if packet.len() > 100 { 2 } else { 0 }, &load).goodput;
        assert!(log.borrow().iter().any(|d| d.wire == 0 && d.tos & 3 == 2), "some are dropped");
        assert!(goodput >= 0.9 * alone, "{goodput:.1} of {alone:.1} Mbit/s");
    }
}

/// Marks that a network drops can be left out.
#[test]
fn marks_are_copied_unless_the_file_says_otherwise() {
    for v6 in [false, true] {
        for (dscp, ecn, expected) in
            [(true, true, 0xb9), (false, true, 0x01), (true, false, 0xb8), (false, false, 0)]
        {
            let mut net = Net::quick_over(v6, 1, 10 * MS, |_, config| config.marks = Marks { dscp, ecn });
            net.pass(S);
            let log = record(&mut net, |_| true);
            let mut packet = udp_packet(inner(0), inner(1), 700);
            packet[1] = 0xb9;
            net.ends[0].handle_inner(net.now, &mut packet);
            net.pass(S);
            let log = log.borrow();
            let data = log.iter().find(|d| d.from == 0 && d.bytes.len() > 700).expect("the packet");
            assert_eq!(data.tos, expected);
        }
    }
}

/// What the ends say to each other about a packet a second of end 0's, in ten seconds, by wire.
fn said_of_little(wires: usize) -> Vec<usize> {
    let mut net = Net::quick(wires, 10 * MS, |_, _| ());
    net.pass(30 * S);
    let log = record(&mut net, |_| true);
    for n in 0..10 {
        net.send(0, n, 300);
        net.pass(S);
    }
    let log = log.borrow();
    (0..wires).map(|wire| log.iter().filter(|d| d.wire == wire).count()).collect()
}

#[test]
fn markers_measure_where_there_is_a_choice() {
    // A packet and its report, and next to nothing else: a hub has hundreds of such peers.
    let alone = said_of_little(1);
    assert!(alone[0] <= 10 * 4, "{alone:?} datagrams");
    let two = said_of_little(2);
    assert!(two.iter().all(|count| *count >= 10 * 8), "{two:?} datagrams");
}
