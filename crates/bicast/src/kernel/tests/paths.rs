//! Which of several paths copies take, and what others have on the hooks beside them.

use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::ObjectBuilder;
use packet::sctp::kind;

use super::frames::{Carrier, IN, OUT, adds, data, heartbeat};
use super::world::{World, in_world};
use super::{copies, learn};
use crate::kernel::vectors::VECTORS;

#[expect(clippy::disallowed_methods, reason = "a path takes its time")]
fn delay(time: Duration) {
    std::thread::sleep(time);
}

/// How many copies of a retransmission on the first path leave from each interface.
fn leave(world: &World) -> Vec<usize> {
    let again = Carrier::V4.out(1, OUT, &data(10));
    world.send_among_all(0, &again).iter().map(Vec::len).collect()
}

#[test]
fn of_more_paths_the_other_with_the_shortest_round_trip_is_taken() {
    in_world("of_more_paths_the_other_with_the_shortest_round_trip_is_taken", |world| {
        world.add_third();
        let carrier = Carrier::V4;
        let answered_after = |world: &World, nth: u8, time| {
            world.send_from(usize::from(nth) - 1, &carrier.out(nth, OUT, &heartbeat(kind::HEARTBEAT, nth)));
            delay(time);
            let answer = carrier.incoming(nth, IN, &heartbeat(kind::HEARTBEAT_ACK, nth));
            world.receive(usize::from(nth) - 1, &answer);
        };
        answered_after(world, 1, Duration::ZERO);
        leave(world);
        for (near, far, expected) in [(2, 3, [0, 1, 0]), (3, 2, [0, 0, 1])] {
            // A busy machine may take long for the nearer one, too.
            let taken = (0..20).any(|_| {
                answered_after(world, far, Duration::from_millis(100));
                answered_after(world, near, Duration::ZERO);
                leave(world) == expected
            });
            assert!(taken, "path {near} is nearer");
        }
        // Three HEARTBEATs without an answer, and it is the next best.
        let beat = carrier.out(3, OUT, &heartbeat(kind::HEARTBEAT, 9));
        (0..3).for_each(|_| drop(world.send_from(2, &beat)));
        assert_eq!(leave(world), [0, 1, 0]);
    });
}

#[test]
fn an_address_that_is_added_is_used_once_it_has_answered() {
    in_world("an_address_that_is_added_is_used_once_it_has_answered", |world| {
        let carrier = Carrier::V4;
        let again = |world: &World| copies(world, &carrier.out(1, OUT, &data(10)));
        world.send(&carrier.out(1, OUT, &heartbeat(kind::HEARTBEAT, 1)));
        world.receive(0, &carrier.incoming(1, IN, &heartbeat(kind::HEARTBEAT_ACK, 1)));
        again(world);
        assert_eq!(again(world), 0, "there is one path");
        world.send(&carrier.out(1, OUT, &adds([10, 0, 1, 1], [10, 0, 2, 1])));
        world.receive(0, &carrier.incoming(1, IN, &adds([10, 0, 1, 2], [10, 0, 2, 2])));
        assert_eq!(again(world), 0, "anybody may claim an address");
        learn(world, carrier);
        assert_eq!(again(world), 1);
    });
}

#[test]
fn two_filters_of_ours_do_not_replace_each_other() {
    in_world("two_filters_of_ours_do_not_replace_each_other", |world| {
        let filters = || world.tc("filter show dev a0 egress").matches(" handle ").count();
        let first = world.attach_filter();
        let second = world.attach_filter();
        assert_eq!(filters(), 2);
        drop(first);
        assert_eq!(filters(), 1, "each takes off its own");
        drop(second);
        assert_eq!(filters(), 0);
    });
}

#[test]
fn another_filter_that_ends_the_chain_does_not_silence_ours() {
    in_world("another_filter_that_ends_the_chain_does_not_silence_ours", |world| {
        let mut others = world.filter_of_others(2);
        let ours = world.attach_filter();
        let filters = world.tc("filter show dev a0 egress");
        let at = |what: &str| filters.find(what).unwrap_or_else(|| panic!("no {what} in {filters}"));
        assert!(at("handle 0x6e77") < at("handle 0x1 "), "{filters}");
        assert!(others.query().is_ok());
        drop(ours);
    });
}

/// By links (TCX), and as filters, which kernels before 6.6 have alone: ours sees a packet before what was there, leaves the verdict to
/// it, and sees none that what comes later, before ours, ends.
#[test]
fn ours_sees_packets_before_programs_that_were_there() {
    in_world("ours_sees_packets_before_programs_that_were_there", |world| {
        // A hook takes a program once.
        let load = || ObjectBuilder::default().open_memory(VECTORS).and_then(|open| open.load());
        let objects = [load(), load()].map(|object| object.expect("the kernel takes it"));
        let [one, other] = objects
            .each_ref()
            .map(|object| object.progs().find(|one| one.name() == "drops_all").expect("a program"));
        let again = Carrier::V4.out(1, OUT, &data(10));
        learn(world, Carrier::V4);
        leave(world);
        for by_link in [true, false] {
            world.detach(0);
            let there = world.attach_others(one.as_fd(), 0, by_link);
            if by_link {
                world.attach_all()
            } else {
                world.attach_first_as_filters()
            }
            assert_eq!(
                world.leave(&again),
                [0, 1],
                "theirs drops it, once ours has copied it; links: {by_link}"
            );
            let later = world.attach_others(other.as_fd(), 0, by_link);
            assert_eq!(world.leave(&again), [0, 0], "theirs came before ours; links: {by_link}");
            drop((there, later));
            assert_eq!(world.leave(&again), [1, 1], "nobody drops; links: {by_link}");
            let beyond = world.attach_others(one.as_fd(), 1, by_link);
            assert_eq!(
                world.leave(&again),
                [1, 0],
                "theirs drops the copy where it leaves; links: {by_link}"
            );
            drop(beyond);
        }
    });
}

#[test]
fn what_others_have_on_the_hooks_stays() {
    in_world("what_others_have_on_the_hooks_stays", |world| {
        let mut others = world.filter_of_others(1);
        let theirs = others.query().expect("it is there");
        let mut stays = |what: &str| assert_eq!(others.query().ok(), Some(theirs), "{what}");
        drop(world.attach_filter());
        stays("after a filter of ours");
        assert!(crate::kernel::remove_left(world.leave_filter()));
        stays("after what a crash left");
        let interface = world.leave_filter();
        assert!(!bpf::tc::remove_left(interface, "other_"), "a program of another name is not ours");
        assert!(crate::kernel::remove_left(interface));
        world.programs.attach(&Default::default()).expect("they come off");
        stays("after links of ours");
        assert_eq!(leave(world), [0, 0]);
    });
}
