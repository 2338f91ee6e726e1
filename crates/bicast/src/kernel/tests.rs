//! The programs in the kernel: packet in, packet out.

mod frames;
mod hostile;
mod paths;
mod rules;
mod ways;
mod world;

use packet::checksum::{self, Sum};
use packet::sctp::kind;
use packet::{Ip, Sctp};

use crate::core::Mode;
use crate::kernel::Settings;
use frames::{Carrier, ETHERNET, IN, MAC, OUT, chunk, data, deletes, heartbeat, init, sack};
use world::{SETTINGS, World, in_world};

/// Has the association's two links known to either end: each end's HEARTBEATs are answered.
fn learn(world: &World, carrier: Carrier) {
    for nth in [1, 2] {
        let at = usize::from(nth) - 1;
        world.send_from(at, &carrier.out(nth, OUT, &heartbeat(kind::HEARTBEAT, nth)));
        world.receive(at, &carrier.incoming(nth, IN, &heartbeat(kind::HEARTBEAT_ACK, nth)));
    }
}

/// The copies that leave from the second interface when `frame` is sent from the first; none leaves from that.
#[track_caller]
fn copies(world: &World, frame: &[u8]) -> usize {
    let [first, second] = world.send(frame);
    assert_eq!(first.len(), 0, "a copy goes another way than the packet");
    second.len()
}

#[test]
fn a_retransmission_leaves_twice() {
    in_world("a_retransmission_leaves_twice", |world| {
        for carrier in Carrier::ALL {
            learn(world, carrier);
            let frame = carrier.out(1, OUT, &data(10));
            assert_eq!(copies(world, &frame), 0, "{carrier:?}: the first time");
            let [_, copies] = world.send(&frame);
            let [copy] = &copies[..] else { panic!("{carrier:?}: {copies:?}") };
            assert_eq!(copy[..6], MAC, "{carrier:?}: to the neighbour");
            // The other pair of addresses, with all checksums right, and all else as it was.
            let expected = carrier.out(2, OUT, &data(10));
            assert_eq!(copy[ETHERNET..], expected[ETHERNET..], "{carrier:?}");
            let ip = Ip::parse(&copy[ETHERNET..]).expect("a packet");
            let header = &copy[ETHERNET..ETHERNET + 20];
            assert!(ip.version() == 6 || checksum::verify(Sum::default(), header));
            assert!(Sctp::parse(&ip, 9899).expect("SCTP").checksum_right());
            // The next carrier's is another association of the same ports and tags.
            world.send(&carrier.out(1, OUT, &chunk(kind::SHUTDOWN_COMPLETE, 0, &[])));
            assert_eq!(world.watch.associations(), [], "{carrier:?}");
        }
    });
}

#[test]
fn what_controls_retransmission_is_copied_and_nothing_else() {
    in_world("what_controls_retransmission_is_copied_and_nothing_else", |world| {
        learn(world, Carrier::V4);
        let beat = heartbeat(kind::HEARTBEAT, 9);
        let cases: [(&str, Vec<u8>, usize); 8] = [
            ("new data", data(10), 0),
            ("a SACK without gaps", sack(0, 0), 0),
            ("a SACK with gaps", sack(2, 0), 1),
            ("old data bundled with new", [data(10), data(11)].concat(), 1),
            ("old data bundled with a HEARTBEAT", [data(10), beat].concat(), 0),
            ("a SACK with gaps bundled with new data", [sack(1, 1), data(12)].concat(), 1),
            ("SHUTDOWN", chunk(kind::SHUTDOWN, 0, &[0; 4]), 0),
            ("data below, after SHUTDOWN has forgotten it", data(3), 0),
        ];
        let mut copied = 0;
        for (what, chunks, expected) in cases {
            assert_eq!(copies(world, &Carrier::V4.out(1, OUT, &chunks)), expected, "{what}");
            copied += expected as u64;
        }
        let known = world.only();
        assert_eq!(known.copies["request"] + known.copies["retransmission"], copied);
        assert_eq!(known.sent_packets, 2 + 8);
        assert!(known.extra_bytes > 0 && known.extra_bytes < known.sent_bytes);
        let counters = world.watch.counters();
        // What made the paths known went twice as well.
        assert_eq!((counters.sent_packets, counters.copies), (2 + 8, copied + 2));
        assert_eq!((counters.sent_bytes, counters.extra_bytes), (known.sent_bytes, known.extra_bytes));
    });
}

#[test]
fn modes_say_what_is_copied() {
    in_world("modes_say_what_is_copied", |world| {
        after_init(world, &[&ADDRESS[..], &EXTENSIONS].concat());
        learn(world, Carrier::V4);
        let mut tsn = 100;
        let mut send = |mode, budget_percent, chunks: fn(u32) -> Vec<u8>| {
            world.programs.set(&Settings { mode, budget_percent, ..SETTINGS }).expect("a map");
            tsn += 1;
            copies(world, &Carrier::V4.out(1, OUT, &chunks(tsn)))
        };
        let old = |_| data(1);
        let tail = |tsn| {
            let mut tail = data(tsn);
            tail[1] |= 8;
            tail
        };
        assert_eq!([send(Mode::Off, 20, data), send(Mode::Off, 20, old)], [0, 0]);
        assert_eq!([send(Mode::Selective, 0, data), send(Mode::Selective, 0, old)], [0, 1]);
        assert_eq!([send(Mode::Full, 0, data), send(Mode::Full, 0, old)], [1, 1]);
        assert_eq!([send(Mode::Adaptive, 20, data), send(Mode::Adaptive, 20, tail)], [0, 1]);
        // The allowance lasts for a while, until the budget ends it.
        let request = |_| sack(1, 0);
        let sent = (0..1000).take_while(|_| send(Mode::Adaptive, 0, request) == 1).count();
        assert!((50..1000).contains(&sent), "{sent}");
        assert_eq!(world.only().skipped["budget"], 1);
    });
}

/// `cargo test -p bicast --features kernel -- --ignored --nocapture what_a_packet_costs`
#[test]
#[ignore = "measures"]
fn what_a_packet_costs() {
    in_world("what_a_packet_costs", |world| {
        let carrier = Carrier::V4;
        let old = carrier.out(1, OUT, &data(1));
        let cost = |world: &World, what: &str, frame: &[u8]| {
            let [least, mean] = world.cost(frame);
            println!("{what}: {least} ns, {mean} in the mean");
        };
        world.send(&carrier.out(1, OUT, &data(10)));
        cost(world, "a retransmission without another path", &old);
        learn(world, carrier);
        world.programs.set(&Settings { mode: Mode::Off, ..SETTINGS }).expect("a map");
        cost(world, "a packet that is not copied", &old);
        world.programs.set(&SETTINGS).expect("a map");
        cost(world, "a packet that is copied, and its copy", &old);
        world.send(&carrier.out(1, OUT, &chunk(kind::SHUTDOWN_COMPLETE, 0, &[])));
        after_init(world, &[&ADDRESS[..], &EXTENSIONS].concat());
        learn(world, carrier);
        world
            .programs
            .set(&Settings { mode: Mode::Adaptive, budget_percent: 1000, ..SETTINGS })
            .expect("a map");
        (0..20).for_each(|_| drop(world.send(&old)));
        cost(world, "a packet that is copied twice, and its copies", &old);
    });
}

#[test]
fn nothing_goes_where_no_heartbeat_was_answered() {
    in_world("nothing_goes_where_no_heartbeat_was_answered", |world| {
        let carrier = Carrier::V4;
        let again = |world: &World| copies(world, &carrier.out(1, OUT, &data(10)));
        again(world);
        assert_eq!(again(world), 0, "no address is known");
        world.send_from(1, &carrier.out(2, OUT, &heartbeat(kind::HEARTBEAT, 7)));
        assert_eq!(again(world), 0, "not answered yet");
        world.receive(1, &carrier.incoming(2, IN, &heartbeat(kind::HEARTBEAT_ACK, 8)));
        assert_eq!(again(world), 0, "answered, but not what was asked");
        world.receive(1, &carrier.incoming(2, IN, &heartbeat(kind::HEARTBEAT_ACK, 7)));
        assert_eq!(again(world), 1);
        assert_eq!(world.only().skipped["no-path"], 3);
    });
}

#[test]
fn what_makes_a_path_known_is_repeated_on_it() {
    in_world("what_makes_a_path_known_is_repeated_on_it", |world| {
        let carrier = Carrier::V4;
        let beat = carrier.out(2, OUT, &heartbeat(kind::HEARTBEAT, 7));
        let answer = carrier.out(2, OUT, &heartbeat(kind::HEARTBEAT_ACK, 9));
        assert_eq!(world.send_from(1, &beat), [vec![], vec![beat.clone()]]);
        assert_eq!(world.send_from(1, &answer), [vec![], vec![answer.clone()]]);
        world.receive(1, &carrier.incoming(2, IN, &heartbeat(kind::HEARTBEAT_ACK, 7)));
        assert_eq!(world.send_from(1, &beat).concat().len(), 0, "it is known");
        let cookies =
            [kind::COOKIE_ECHO, kind::COOKIE_ACK].map(|kind| carrier.out(1, OUT, &chunk(kind, 0, &[1; 8])));
        for cookie in &cookies {
            assert_eq!(world.send(cookie), [vec![cookie.clone()], vec![]]);
        }
        assert_eq!(world.only().copies["begin"], 4);
        world.programs.set(&Settings { mode: Mode::Off, ..SETTINGS }).expect("a map");
        for frame in [&answer, &cookies[0]] {
            assert_eq!(world.send_from(1, frame).concat().len(), 0);
        }
    });
}

#[test]
fn a_path_that_fails_is_left_until_it_answers() {
    in_world("a_path_that_fails_is_left_until_it_answers", |world| {
        let carrier = Carrier::V4;
        learn(world, carrier);
        world.send(&carrier.out(1, OUT, &data(10)));
        let beat = |world: &World| {
            world.send_from(1, &carrier.out(2, OUT, &heartbeat(kind::HEARTBEAT, 7)));
            copies(world, &carrier.out(1, OUT, &data(10)))
        };
        // The other address is then the packet's own, by another interface than its HEARTBEATs take: not in this net.
        assert_eq!([beat(world), beat(world), beat(world), beat(world)], [1, 1, 0, 0]);
        world.receive(1, &carrier.incoming(2, IN, &heartbeat(kind::HEARTBEAT_ACK, 7)));
        assert_eq!(copies(world, &carrier.out(1, OUT, &data(10))), 1);
    });
}

#[test]
fn hosts_behind_a_router_are_helped_if_it_may() {
    in_world("hosts_behind_a_router_are_helped_if_it_may", |world| {
        let carrier = Carrier::V4;
        let host = |nth: u8| std::net::IpAddr::from([10, 8, nth, 1]);
        let out = |nth: u8, chunks: &[u8]| {
            carrier.frame([host(nth), carrier.address(nth, 2)], [5000, 6000], OUT, chunks)
        };
        for (forwarding, expected) in [(false, 0), (true, 1)] {
            world.programs.set(&Settings { forwarding, ..SETTINGS }).expect("a map");
            for nth in [1, 2] {
                let answer = heartbeat(kind::HEARTBEAT_ACK, nth);
                let answer = carrier.frame([carrier.address(nth, 2), host(nth)], [6000, 5000], IN, &answer);
                let at = usize::from(nth) - 1;
                let repeated = world.send_from(at, &out(nth, &heartbeat(kind::HEARTBEAT, nth)));
                assert_eq!(repeated[at].len(), expected, "{forwarding}: on its own path");
                world.receive(at, &answer);
            }
            world.send(&out(1, &data(10)));
            let [first, second] = world.send(&out(1, &data(10)));
            assert_eq!((first.len(), second.len()), (0, expected), "{forwarding}");
            for copy in second {
                assert_eq!(copy[ETHERNET..], out(2, &data(10))[ETHERNET..]);
            }
        }
    });
}

#[test]
fn an_address_that_moves_is_left_until_packets_arrive_at_it() {
    in_world("an_address_that_moves_is_left_until_packets_arrive_at_it", |world| {
        let carrier = Carrier::V4;
        learn(world, carrier);
        let again = |world: &World| copies(world, &carrier.out(1, OUT, &data(10)));
        again(world);
        assert_eq!(again(world), 1);
        world.take_address(carrier.address(2, 1));
        assert_eq!([again(world), again(world)], [0, 0]);
        world.give_addresses();
        assert_eq!(again(world), 0);
        world.receive(1, &carrier.incoming(2, IN, &data(1)));
        assert_eq!(again(world), 0, "the stack has not sent from it yet");
        learn(world, carrier);
        assert_eq!(again(world), 1);
    });
}

#[test]
fn an_address_that_is_deleted_is_not_used() {
    in_world("an_address_that_is_deleted_is_not_used", |world| {
        let carrier = Carrier::V4;
        let again = |world: &World| copies(world, &carrier.out(1, OUT, &data(10)));
        for asconf in [deletes([10, 0, 1, 2], [10, 0, 2, 2]), deletes([10, 0, 1, 2], [0; 4])] {
            learn(world, carrier);
            again(world);
            assert_eq!(again(world), 1);
            world.receive(0, &carrier.incoming(1, 0x3333_3333, &asconf));
            assert_eq!(again(world), 1, "of another association");
            world.receive(0, &carrier.incoming(1, IN, &asconf));
            assert_eq!(again(world), 0, "the peer's");
        }
        learn(world, carrier);
        world.send(&carrier.out(1, OUT, &deletes([10, 0, 1, 1], [10, 0, 2, 1])));
        assert_eq!(again(world), 0, "this host's");
    });
}

#[test]
fn the_end_of_an_association_is_its_end() {
    in_world("the_end_of_an_association_is_its_end", |world| {
        let carrier = Carrier::V4;
        let abort = chunk(kind::ABORT, 0, &[]);
        let reflected = chunk(kind::ABORT, 1, &[]);
        let incoming = [
            ("ABORT", IN, abort.clone()),
            ("an ABORT with the T bit", OUT, reflected),
            ("SHUTDOWN COMPLETE", IN, chunk(kind::SHUTDOWN_COMPLETE, 0, &[])),
        ];
        for (what, tag, chunks) in incoming {
            learn(world, carrier);
            world.receive(0, &carrier.incoming(1, 0x3333_3333, &chunks));
            assert_eq!(world.watch.associations().len(), 1, "{what} with a tag that is not its own");
            world.receive(0, &carrier.incoming(1, tag, &chunks));
            assert_eq!(world.watch.associations().len(), 0, "{what}");
        }
        learn(world, carrier);
        assert_eq!(copies(world, &carrier.out(1, OUT, &abort)), 0);
        assert_eq!(world.watch.associations().len(), 0);
    });
}

#[test]
fn a_copy_whose_next_hop_is_asked_for_counts_and_ends_its_association() {
    in_world("a_copy_whose_next_hop_is_asked_for_counts_and_ends_its_association", |world| {
        world.programs.set(&Settings { mode: Mode::Full, ..SETTINGS }).expect("a map");
        learn(world, Carrier::V4);
        world.ip("neigh delete 10.0.2.2 dev b0");
        let end = Carrier::V4.out(1, OUT, &chunk(kind::SHUTDOWN_COMPLETE, 0, &[]));
        let before = world.watch.counters();
        world.send(&end);
        let after = world.watch.counters();
        let copied = (after.copies - before.copies, after.extra_bytes - before.extra_bytes);
        assert_eq!(copied, (1, (end.len() - ETHERNET) as u64));
        assert_eq!(world.watch.associations(), []);
    });
}

#[test]
fn the_tags_of_a_handshake_belong_together() {
    in_world("the_tags_of_a_handshake_belong_together", |world| {
        let carrier = Carrier::V4;
        let init_ack = |tag: u32| init(kind::INIT_ACK, tag, &[]);
        // As client: INIT ACK arrives, COOKIE ECHO goes. As server: INIT ACK goes, COOKIE ACK goes.
        world.receive(0, &carrier.incoming(1, IN, &init_ack(OUT)));
        assert_eq!(world.watch.associations(), [], "a stranger's INIT ACK makes nothing");
        world.send(&carrier.out(1, OUT, &chunk(kind::COOKIE_ECHO, 0, &[1; 8])));
        world.receive(1, &carrier.incoming(2, IN, &data(1)));
        let known = world.only();
        assert_eq!(known.locals, [carrier.address(2, 1)]);
        let [remote] = &known.remotes[..] else { panic!("{known:?}") };
        assert_eq!(
            (remote.address, remote.usable),
            (carrier.address(1, 2), true),
            "the handshake went there"
        );
        world.send(&carrier.out(1, OUT, &chunk(kind::SHUTDOWN_COMPLETE, 0, &[])));
        world.send(&carrier.out(1, OUT + 1, &init_ack(IN + 1)));
        world.send(&carrier.out(1, OUT + 1, &chunk(kind::COOKIE_ACK, 0, &[])));
        world.receive(1, &carrier.incoming(2, IN + 1, &sack(0, 3)));
        let known = world.only();
        assert_eq!((known.locals, known.duplicate_tsns), (vec![carrier.address(2, 1)], 3));
    });
}

/// Parameters of a handshake: addresses, extensions, and others.
const ADDRESS: [u8; 8] = [0, 5, 0, 8, 10, 0, 1, 1];
const ADDRESS_V6: [u8; 20] = [0, 6, 0, 20, 0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const EXTENSIONS: [u8; 12] = [0x80, 8, 0, 9, 0xc0, 0x0f, 0xc1, 0x80, 0x82, 0, 0, 0];
const FORWARD_TSN: [u8; 4] = [0xc0, 0, 0, 4];

/// As client: INIT goes, INIT ACK of the other stack arrives, COOKIE ECHO goes. What the association then knows.
fn after_init(world: &World, parameters: &[u8]) -> &'static str {
    let carrier = Carrier::V4;
    world.send(&carrier.out(1, 0, &init(kind::INIT, IN, parameters)));
    world.receive(0, &carrier.incoming(1, IN, &init(kind::INIT_ACK, OUT, &[])));
    world.send(&carrier.out(1, OUT, &chunk(kind::COOKIE_ECHO, 0, &[1; 8])));
    world.only().handshake
}

/// As server: INIT arrives, INIT ACK goes, COOKIE ACK goes.
fn after_init_ack(world: &World, parameters: &[u8]) -> &'static str {
    let carrier = Carrier::V4;
    world.receive(0, &carrier.incoming(1, 0, &init(kind::INIT, OUT, &[])));
    world.send(&carrier.out(1, OUT, &init(kind::INIT_ACK, IN, parameters)));
    world.send(&carrier.out(1, OUT, &chunk(kind::COOKIE_ACK, 0, &[])));
    world.only().handshake
}

#[test]
fn a_handshake_tells_stacks_apart() {
    in_world("a_handshake_tells_stacks_apart", |world| {
        // A parameter of length 5 is padded to 8.
        let odd = [0xc0, 9, 0, 5, 0, 0, 0, 0];
        let cases: [(&str, Vec<u8>, &str); 10] = [
            ("Linux", [&ADDRESS[..], &ADDRESS, &EXTENSIONS, &FORWARD_TSN].concat(), "addresses-first"),
            ("Linux with IPv6", [&ADDRESS_V6[..], &EXTENSIONS].concat(), "addresses-first"),
            ("usrsctp", [&FORWARD_TSN[..], &EXTENSIONS, &ADDRESS, &ADDRESS].concat(), "extensions-first"),
            ("padding", [&odd[..], &ADDRESS, &EXTENSIONS].concat(), "addresses-first"),
            ("neither", FORWARD_TSN.to_vec(), "unknown"),
            ("nothing", vec![], "unknown"),
            ("too many", [&FORWARD_TSN.repeat(16)[..], &ADDRESS].concat(), "unknown"),
            ("as many as are looked at", [&FORWARD_TSN.repeat(15)[..], &ADDRESS].concat(), "addresses-first"),
            ("a length of 0", [&[0xc0, 0, 0, 0][..], &ADDRESS].concat(), "unknown"),
            ("one longer than the chunk", [&[0xc0, 0, 0xff, 0xff][..], &ADDRESS].concat(), "unknown"),
        ];
        for (what, parameters, expected) in cases {
            for after in [after_init, after_init_ack] {
                assert_eq!(after(world, &parameters), expected, "{what}");
                world.send(&Carrier::V4.out(1, OUT, &chunk(kind::SHUTDOWN_COMPLETE, 0, &[])));
            }
        }
    });
}

/// Settings of `adaptive`.
fn adaptive(world: &World, budget_percent: u32) {
    world.programs.set(&Settings { mode: Mode::Adaptive, budget_percent, ..SETTINGS }).expect("a map");
}

#[test]
fn retransmissions_of_a_stack_that_lists_its_addresses_first_are_copied() {
    in_world("retransmissions_of_a_stack_that_lists_its_addresses_first_are_copied", |world| {
        adaptive(world, 15);
        for (parameters, expected) in
            [([&ADDRESS[..], &EXTENSIONS], [0, 1]), ([&EXTENSIONS[..], &ADDRESS], [0, 0])]
        {
            after_init(world, &parameters.concat());
            learn(world, Carrier::V4);
            let again = Carrier::V4.out(1, OUT, &data(10));
            world.send(&again);
            let [own, other] = world.send(&again);
            assert_eq!([own.len(), other.len()], expected, "by its own path, by the other");
            assert!(own.iter().all(|copy| *copy == again), "as it is");
            world.send(&Carrier::V4.out(1, OUT, &chunk(kind::SHUTDOWN_COMPLETE, 0, &[])));
        }
    });
}

#[test]
fn a_retransmission_leaves_a_third_time_if_nothing_is_owed() {
    in_world("a_retransmission_leaves_a_third_time_if_nothing_is_owed", |world| {
        let carrier = Carrier::V4;
        adaptive(world, 100);
        after_init(world, &[&ADDRESS[..], &EXTENSIONS].concat());
        learn(world, carrier);
        (10..1000).for_each(|tsn| drop(world.send(&carrier.out(1, OUT, &data(tsn)))));
        adaptive(world, 50);
        let before = world.only();
        let again = carrier.out(1, OUT, &data(10));
        let leave = |world: &World| world.send(&again).map(|copies| copies.len());
        let ways: Vec<_> = (0..2000).map(|_| leave(world)).take_while(|copies| copies[1] == 1).collect();
        let thrice = ways.iter().filter(|copies| copies[0] == 1).count();
        assert!(thrice > 100 && ways[..thrice].iter().all(|copies| *copies == [1, 1]), "{thrice}");
        assert!(ways[ways.len() - 100..].iter().all(|copies| *copies == [0, 1]), "{} owe", ways.len());
        let after = world.only();
        assert!(2 * after.extra_bytes <= after.sent_bytes + 30_000);
        let copies = after.copies["retransmission"] - before.copies["retransmission"];
        assert_eq!(copies as usize, thrice + ways.len(), "each copy counts");
        world.programs.set(&SETTINGS).expect("a map");
        assert_eq!(leave(world), [0, 1], "twice as published");
    });
}

#[test]
fn what_makes_paths_known_keeps_within_the_budget() {
    in_world("what_makes_paths_known_keeps_within_the_budget", |world| {
        let answer = Carrier::V4.out(1, OUT, &heartbeat(kind::HEARTBEAT_ACK, 9));
        adaptive(world, 15);
        learn(world, Carrier::V4);
        (0..2000).for_each(|_| drop(world.send(&answer)));
        let known = world.only();
        assert!(known.copies["begin"] > 100);
        assert!(known.extra_bytes * 100 <= known.sent_bytes * 15 + 1_500_000, "{known:?}");
    });
}

#[test]
fn a_filter_that_a_crash_left_is_replaced_and_removed() {
    in_world("a_filter_that_a_crash_left_is_replaced_and_removed", |world| {
        let interface = world.leave_filter();
        assert_eq!(world.leave_filter(), interface, "the next start's takes its place");
        assert!(crate::kernel::remove_left(interface));
        assert!(!crate::kernel::remove_left(interface), "there was one, and it is gone");
    });
}
