//! That a copy goes nowhere that this host's firewall, NAT and IPsec policies keep its stack from. Here HEARTBEATs pass the stack itself,
//! as raw SCTP, and so its rules.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use packet::sctp::kind;
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketType, bind, sendto, socket};
use rustix::time::{ClockId, clock_gettime};

use super::copies;
use super::frames::{Carrier, ETHERNET, IN, OUT, chunk, data, heartbeat};
use super::world::{World, in_world};
use crate::kernel::records::{ADDRESS, ADDRESSES, LOCAL, LOCALS};

/// Has the stack send a HEARTBEAT, or an answer to one, from the address `from` to the peer's second one; whether it leaves.
fn stack_sends(world: &World, from: IpAddr, kind: u8) -> bool {
    let to = Carrier::V4.address(2, 2);
    let frame = Carrier::V4.frame([from, to], [5000, 6000], OUT, &heartbeat(kind, 7));
    let sctp = Protocol::from_raw(u32::from(packet::ip::SCTP).try_into().expect("a protocol"));
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(sctp)).expect("a raw socket");
    bind(&socket, &SocketAddr::new(from, 0)).expect("an address of this host");
    world.copies();
    // A rule may have the call fail, or not.
    let _ = sendto(&socket, &frame[ETHERNET + 20..], SendFlags::empty(), &SocketAddr::new(to, 0));
    !world.copies()[1].is_empty()
}

/// The second path's HEARTBEAT leaves this host, by its stack, and is answered; the stack answers one, too. Whether either left.
fn second_path_answers(world: &World) -> bool {
    let local = Carrier::V4.address(2, 1);
    let left = stack_sends(world, local, kind::HEARTBEAT);
    if left {
        world.receive(1, &Carrier::V4.incoming(2, IN, &heartbeat(kind::HEARTBEAT_ACK, 7)));
    }
    world.receive(1, &Carrier::V4.incoming(2, IN, &heartbeat(kind::HEARTBEAT, 8)));
    stack_sends(world, local, kind::HEARTBEAT_ACK) || left
}

/// The first path is known, and what is sent by it from now on is sent again.
fn first_path_answers(world: &World) {
    world.send(&Carrier::V4.out(1, OUT, &heartbeat(kind::HEARTBEAT, 1)));
    world.receive(0, &Carrier::V4.incoming(1, IN, &heartbeat(kind::HEARTBEAT_ACK, 1)));
    world.send(&Carrier::V4.out(1, OUT, &data(10)));
}

/// How many copies a retransmission by the first path makes.
fn again(world: &World) -> usize {
    copies(world, &Carrier::V4.out(1, OUT, &data(10)))
}

/// Rules of which each keeps SCTP from the second interface: how each comes, and goes.
const RULES: [[&str; 2]; 4] = [
    [
        "chain inet n c { type filter hook output priority 0; }; add rule inet n c oifname b0 meta l4proto sctp drop",
        "",
    ],
    [
        "chain inet n c { type filter hook postrouting priority 0; }; add rule inet n c oifname b0 ip daddr 10.0.2.2 drop",
        "",
    ],
    ["xfrm policy add dir out src 10.0.2.1 dst 10.0.2.2 action block", "xfrm policy flush"],
    [
        "xfrm policy add dir out src 10.0.2.1 dst 10.0.2.2 tmpl src 10.0.2.1 dst 10.0.2.2 proto esp mode transport",
        "xfrm policy flush",
    ],
];

fn come(world: &World, [rule, _]: [&str; 2]) {
    match rule.strip_prefix("chain") {
        Some(chain) => world.nft(&format!("add table inet n; add chain{chain}")),
        None => world.ip(rule),
    }
}

fn go(world: &World, [_, end]: [&str; 2]) {
    if end.is_empty() { world.nft("delete table inet n") } else { world.ip(end) }
}

#[test]
fn no_copy_goes_where_a_rule_keeps_the_stack_from() {
    in_world("no_copy_goes_where_a_rule_keeps_the_stack_from", |world| {
        for rule in RULES {
            come(world, rule);
            first_path_answers(world);
            assert!(!second_path_answers(world), "{rule:?}");
            assert_eq!(again(world), 0, "{rule:?}");
            assert_eq!(world.only().skipped["no-path"], 1, "{rule:?}: status says so");
            go(world, rule);
            assert!(second_path_answers(world), "{rule:?}");
            assert_eq!(again(world), 1, "{rule:?}: it is gone");
            world.send(&Carrier::V4.out(1, OUT, &chunk(kind::SHUTDOWN_COMPLETE, 0, &[])));
        }
    });
}

/// So many seconds pass in which the stack sends by no path.
fn pass(world: &World, seconds: u64) {
    let map = &world.watch.associations;
    let key = map.keys().next().expect("an association");
    let mut value = map.lookup(&key, MapFlags::ANY).expect("a map").expect("an association");
    for local in value[LOCALS..].chunks_exact_mut(LOCAL).take(ADDRESSES) {
        // Each way's interface, and when it was used.
        for way in local[ADDRESS..].chunks_exact_mut(16).take(ADDRESSES) {
            let seen = u64::from_ne_bytes(way[8..].try_into().expect("two words"));
            way[8..].copy_from_slice(&seen.saturating_sub(seconds * 1_000_000_000).to_ne_bytes());
        }
    }
    map.update(&key, &value, MapFlags::ANY).expect("a map");
}

#[test]
fn a_rule_that_comes_later_binds_copies_after_five_minutes() {
    in_world("a_rule_that_comes_later_binds_copies_after_five_minutes", |world| {
        for rule in &RULES[..2] {
            let rule = *rule;
            first_path_answers(world);
            assert!(second_path_answers(world), "{rule:?}");
            come(world, rule);
            pass(world, 299);
            println!("{rule:?}: {} before", again(world));
            assert!(!second_path_answers(world), "{rule:?}");
            pass(world, 302);
            assert_eq!(again(world), 0, "{rule:?}");
            assert_eq!(world.only().skipped["no-path"], 1, "{rule:?}: status says so");
            go(world, rule);
            world.send(&Carrier::V4.out(1, OUT, &chunk(kind::SHUTDOWN_COMPLETE, 0, &[])));
        }
    });
}

/// Another test, of the whole daemon, has it hear that they change.
#[test]
fn rules_that_change_bind_copies_at_once() {
    in_world("rules_that_change_bind_copies_at_once", |world| {
        first_path_answers(world);
        for rule in &RULES {
            assert!(second_path_answers(world), "{rule:?}");
            assert_eq!(again(world), 1, "{rule:?}");
            come(world, *rule);
            let now = device::monotonic();
            world.programs.rules_changed(now).expect("a map");
            assert_eq!(again(world), 0, "{rule:?}: what the stack has sent before says nothing");
            assert!(!second_path_answers(world), "{rule:?}");
            assert_eq!(again(world), 0, "{rule:?}");
            go(world, *rule);
            // The programs' clock is the coarse one.
            while Duration::try_from(clock_gettime(ClockId::MonotonicCoarse)).expect("a time") <= now {}
        }
        assert!(second_path_answers(world));
        assert_eq!(again(world), 1, "the stack sends there again");
    });
}

#[test]
fn a_copy_leaves_from_what_its_path_is_masqueraded_to() {
    in_world("a_copy_leaves_from_what_its_path_is_masqueraded_to", |world| {
        world.ip("address add 10.0.9.1/32 dev a0");
        world.nft("add table ip n; add chain ip n c { type nat hook postrouting priority 100; }");
        world.nft("add rule ip n c oifname b0 ip saddr 10.0.9.1 masquerade");
        first_path_answers(world);
        assert!(stack_sends(world, IpAddr::from([10, 0, 9, 1]), kind::HEARTBEAT));
        assert_eq!(world.only().remotes.len(), 2, "it left between addresses as they are behind the NAT");
        world.receive(1, &Carrier::V4.incoming(2, IN, &heartbeat(kind::HEARTBEAT_ACK, 7)));
        let [_, left] = world.send(&Carrier::V4.out(1, OUT, &data(10)));
        assert_eq!(left.len(), 1);
        assert_eq!(left[0][ETHERNET..], Carrier::V4.out(2, OUT, &data(10))[ETHERNET..]);
    });
}

#[test]
fn no_copy_goes_where_a_nat_gives_another_port() {
    in_world("no_copy_goes_where_a_nat_gives_another_port", |world| {
        world.nft("add table ip n; add chain ip n c { type nat hook postrouting priority 100; }");
        world.nft("add rule ip n c oifname b0 meta l4proto sctp masquerade to :7000");
        first_path_answers(world);
        assert!(stack_sends(world, Carrier::V4.address(2, 1), kind::HEARTBEAT));
        let pair = [Carrier::V4.address(2, 2), Carrier::V4.address(2, 1)];
        let answer = |port| Carrier::V4.frame(pair, [6000, port], IN, &heartbeat(kind::HEARTBEAT_ACK, 7));
        // The one that comes, and one that does not.
        world.receive(1, &answer(7000));
        world.receive(1, &answer(5000));
        assert_eq!(again(world), 0, "the peer knows that port of the other address alone");
        let known = world.watch.associations();
        let no_path: Vec<_> = known.iter().map(|one| (one.local_port, one.skipped["no-path"])).collect();
        assert_eq!(no_path, [(5000, 1), (7000, 0)]);
    });
}
