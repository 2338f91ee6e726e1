//! What should not be sent, and too much of what may be.

use packet::ip::SCTP;
use packet::sctp::kind;

use super::frames::{Carrier, ETHERNET, IN, OUT, chunk, data, heartbeat, ip, sack};
use super::world::{World, in_world};
use super::{copies, learn};

#[test]
fn malformed_packets_pass_and_change_nothing() {
    in_world("malformed_packets_pass_and_change_nothing", |world| {
        learn(world, Carrier::V4);
        world.send(&Carrier::V4.out(1, OUT, &data(10)));
        let before = world.only();
        let cut = |mut chunk: Vec<u8>, length: u8| {
            chunk[3] = length;
            chunk
        };
        let cases: [(&str, Vec<u8>); 8] = [
            ("a chunk of length 0", cut(chunk(9, 0, &[]), 0)),
            ("a chunk of length 3", cut(chunk(9, 0, &[]), 3)),
            ("a chunk longer than the packet", cut(chunk(9, 0, &[0; 4]), 200)),
            ("a header cut off", [data(10), vec![0, 0]].concat()),
            ("DATA without its fields", chunk(kind::DATA, 3, &[0; 8])),
            (
                "a SACK that announces more gaps than it has",
                chunk(kind::SACK, 0, &[0, 0, 0, 1, 0, 0, 0, 1, 0, 9, 0, 0]),
            ),
            ("INIT ACK without its fields", chunk(kind::INIT_ACK, 0, &[0; 12])),
            ("old data before something that cannot be", [data(10), vec![9, 0, 0, 1]].concat()),
        ];
        for (what, chunks) in &cases {
            assert_eq!(copies(world, &Carrier::V4.out(1, OUT, chunks)), 0, "{what}");
            world.receive(0, &Carrier::V4.incoming(1, IN, chunks));
        }
        assert_eq!(world.only(), before);
        assert_eq!(world.watch.counters().malformed_packets, cases.len() as u64);
    });
}

#[test]
fn truncated_packets_pass() {
    in_world("truncated_packets_pass", |world| {
        for carrier in Carrier::ALL {
            learn(world, carrier);
            // The test-run call itself refuses less than the IP header.
            let header = if carrier.address(1, 1).is_ipv4() { 20 } else { 40 };
            let whole = carrier.out(1, OUT, &[data(1), sack(2, 0)].concat());
            for length in ETHERNET + header..whole.len() {
                assert_eq!(copies(world, &whole[..length]), 0, "{carrier:?}, {length} bytes");
                world.receive(0, &whole[..length]);
            }
        }
    });
}

#[test]
fn chunks_are_looked_at_up_to_a_bound() {
    in_world("chunks_are_looked_at_up_to_a_bound", |world| {
        learn(world, Carrier::V4);
        let stuffed = |count: usize| [chunk(11 + 9, 0, &[]).repeat(count - 1), sack(1, 0)].concat();
        assert_eq!(copies(world, &Carrier::V4.out(1, OUT, &stuffed(300))), 1);
        assert_eq!(world.watch.counters().malformed_packets, 0);
        assert_eq!(copies(world, &Carrier::V4.out(1, OUT, &stuffed(600))), 0);
        assert_eq!(world.watch.counters().malformed_packets, 1);
    });
}

#[test]
fn fragments_pass() {
    in_world("fragments_pass", |world| {
        learn(world, Carrier::V4);
        let mut first = Carrier::V4.out(1, OUT, &sack(1, 0));
        first[ETHERNET + 6] = 0x20;
        let mut later = Carrier::V4.out(1, OUT, &sack(1, 0));
        later[ETHERNET + 7] = 3;
        let v6 = [Carrier::V6.address(1, 1), Carrier::V6.address(1, 2)];
        let sctp = &Carrier::V6.out(1, OUT, &sack(1, 0))[ETHERNET + 40..];
        let v6 = ip(v6, 44, &[&[SCTP, 0, 0, 1, 0, 0, 0, 7][..], sctp].concat());
        for frame in [first, later, v6] {
            assert_eq!(copies(world, &frame), 0);
        }
        assert_eq!(world.watch.counters().fragments, 3);
    });
}

#[test]
fn other_protocols_are_not_looked_at() {
    in_world("other_protocols_are_not_looked_at", |world| {
        let sctp = &Carrier::V4.out(1, OUT, &sack(1, 0))[ETHERNET + 20..];
        let addresses = [Carrier::V4.address(1, 1), Carrier::V4.address(1, 2)];
        let mut arp = ip(addresses, SCTP, sctp);
        arp[13] = 6;
        let udp = [&[0, 53, 0, 54, 0, 60, 0, 0][..], sctp].concat();
        for frame in [arp, ip(addresses, 6, sctp), ip(addresses, 17, &udp)] {
            assert_eq!(copies(world, &frame), 0);
        }
        assert_eq!(world.watch.associations(), []);
        assert_eq!(world.watch.counters(), crate::kernel::Counters::default());
    });
}

#[test]
fn sequence_numbers_wrap() {
    in_world("sequence_numbers_wrap", |world| {
        learn(world, Carrier::V4);
        let send = |tsn| copies(world, &Carrier::V4.out(1, OUT, &data(tsn)));
        assert_eq!([u32::MAX - 1, u32::MAX, 0, 1].map(send), [0; 4]);
        assert_eq!([u32::MAX, 0, 1, 2].map(send), [1, 1, 1, 0]);
    });
}

#[test]
fn an_association_of_the_same_ports_is_another() {
    in_world("an_association_of_the_same_ports_is_another", |world| {
        let send = |tag, tsn| copies(world, &Carrier::V4.out(1, tag, &data(tsn)));
        learn(world, Carrier::V4);
        assert_eq!([send(OUT, 1000), send(OUT, 1000)], [0, 1]);
        assert_eq!([send(OUT + 1, 10), send(OUT + 1, 11)], [0, 0], "lower numbers, but new ones");
        assert_eq!(world.watch.associations().len(), 2);
    });
}

#[test]
fn a_hundred_thousand_associations_take_bounded_memory() {
    in_world("a_hundred_thousand_associations_take_bounded_memory", |world| {
        let mut frame = Carrier::V4.out(1, 0, &data(1));
        let tag_at = ETHERNET + 20 + 4;
        for tag in 0..100_000u32 {
            frame[tag_at..tag_at + 4].copy_from_slice(&tag.to_be_bytes());
            world.send(&frame);
        }
        let known = world.watch.associations().len();
        assert!((1..=16_384).contains(&known), "{known}");
        // What is new is taken up all the same.
        learn(world, Carrier::V4);
        let again = |world: &World| copies(world, &Carrier::V4.out(1, OUT, &data(5)));
        again(world);
        assert_eq!(again(world), 1);
    });
}

#[test]
fn answers_to_strangers_are_not_remembered() {
    in_world("answers_to_strangers_are_not_remembered", |world| {
        let init_ack = chunk(kind::INIT_ACK, 0, &[[7; 4].as_slice(), &[0; 12]].concat());
        let shutdown = chunk(kind::SHUTDOWN_COMPLETE, 1, &[]);
        for chunks in [init_ack, chunk(kind::ABORT, 1, &[]), shutdown, chunk(kind::SHUTDOWN_ACK, 0, &[])] {
            world.send(&Carrier::V4.out(1, OUT, &chunks));
        }
        world.receive(0, &Carrier::V4.incoming(1, IN, &heartbeat(kind::HEARTBEAT_ACK, 1)));
        assert_eq!(world.watch.associations(), []);
    });
}

#[test]
fn idle_associations_are_forgotten() {
    in_world("idle_associations_are_forgotten", |world| {
        use std::time::Duration;
        learn(world, Carrier::V4);
        let idle = Duration::from_secs(300);
        let now = device::monotonic();
        world.watch.forget_idle(now, idle);
        assert_eq!(world.watch.associations().len(), 1);
        world.watch.forget_idle(now + idle + idle, idle);
        assert_eq!(world.watch.associations().len(), 0);
    });
}
