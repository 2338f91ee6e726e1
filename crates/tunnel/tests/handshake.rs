//! Handshakes, keys and lives of daemons against a network that loses, repeats and forges.

mod sim;

use std::ops::Add;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use sim::{Datagram, Net, record, stranger};
use tunnel::PrivateKey;
use tunnel::handshake::cookie::CookieJar;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const TRANSPORT: u8 = 4;

fn net() -> Net {
    Net::quick(3, 10 * MS, |_, _| ())
}

fn has_session(net: &Net, end: usize) -> bool {
    net.peer(end).session_age_s.is_some()
}

/// Bytes 4 to 7 of a transport packet: the receiver's index of the session.
fn sessions(log: &[Datagram], from: usize) -> Vec<[u8; 4]> {
    let of = |d: &&Datagram| d.from == from && d.kind() == TRANSPORT;
    let mut indices: Vec<[u8; 4]> =
        log.iter().filter(of).map(|d| d.bytes[4..8].try_into().unwrap()).collect();
    indices.dedup();
    indices
}

/// First messages of `lives` lives of end 0, none of which arrived.
fn initiations(net: &mut Net, lives: u64) -> Vec<Vec<u8>> {
    let log = record(net, |_| false);
    for life in 0..lives {
        net.restart(0, 1000 + life);
        net.turn(0);
    }
    net.tap = None;
    let mut messages: Vec<_> = log.borrow().iter().map(|d| d.bytes.clone()).collect();
    messages.dedup();
    assert_eq!(messages.len() as u64, lives);
    messages
}

#[test]
fn one_handshake_is_raced_over_all_paths_and_one_response_wins() {
    let mut net = net();
    let log = record(&mut net, |_| true);
    net.pass(S);
    let log = log.borrow();
    for (from, kind) in [(0, INITIATION), (1, RESPONSE)] {
        let found: Vec<_> = log.iter().filter(|d| d.from == from && d.kind() == kind).collect();
        let mut wires: Vec<_> = found.iter().map(|d| d.wire).collect();
        wires.sort_unstable();
        assert_eq!(wires, [0, 1, 2], "kind {kind} over each path once");
        assert!(found.iter().all(|d| d.bytes == found[0].bytes), "kind {kind}: one message");
    }
    assert_eq!((sessions(&log, 0).len(), sessions(&log, 1).len()), (1, 1));
    assert!(net.peer(1).paths.iter().all(|p| p.state == "up"), "{:#?}", net.peer(1));
}

#[test]
fn another_preshared_key_gives_no_session() {
    let mut net = Net::quick(2, 10 * MS, |end, config| {
        config.peers[0].preshared_key = ["A", "E"][end].repeat(43).add("=").parse().expect("a key");
    });
    let log = record(&mut net, |_| true);
    net.pass(30 * S);
    assert!(!has_session(&net, 0) && !has_session(&net, 1));
    assert!(log.borrow().iter().all(|d| d.kind() != TRANSPORT));
}

#[test]
fn a_key_that_is_no_peers_gets_no_answer() {
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let other = PrivateKey::generate(&mut rng).public();
    let mut net = Net::quick(2, 10 * MS, move |end, config| {
        if end == 1 {
            config.peers[0].public_key = other;
        }
    });
    let log = record(&mut net, |_| true);
    net.pass(10 * S);
    assert!(log.borrow().iter().all(|d| d.from == 0));
    assert!(net.ends[1].counters().refused_handshakes > 0);
}

#[test]
fn the_responder_sends_nothing_on_a_session_that_no_packet_confirmed() {
    let mut net = net();
    let log = record(&mut net, |d| d.kind() != TRANSPORT);
    net.pass(S);
    (0..20).for_each(|n| net.send(1, n, 500));
    net.pass(20 * S);
    assert!(has_session(&net, 0), "the initiator has one, as the response came");
    assert!(log.borrow().iter().all(|d| d.from == 0 || d.kind() == RESPONSE));
    assert!(!has_session(&net, 1) && net.peer(1).paths.is_empty());
    assert!(net.peer(1).queue_bytes <= 64 << 10, "what waits is bounded");
}

#[test]
fn a_damaged_response_does_not_spoil_the_handshake() {
    let mut net = net();
    let log = record(&mut net, |d| d.from == 0);
    net.pass(50 * MS);
    let response = log.borrow().iter().find(|d| d.from == 1).expect("a response").bytes.clone();
    let server = net.server;
    for at in [12, 44, 60, 91] {
        let mut damaged = response.clone();
        damaged[at] ^= 1;
        let key = *net.ends[0].public_key();
        CookieJar::new(&key).stamp(net.now, &mut damaged);
        net.inject(0, server, &damaged);
        assert!(!has_session(&net, 0), "byte {at}");
    }
    net.inject(0, server, &response);
    assert!(has_session(&net, 0));
}

#[test]
fn the_same_initiation_gets_the_same_response_and_not_for_ever() {
    let mut net = net();
    let message = initiations(&mut net, 1).remove(0);
    (0..90).for_each(|n| net.inject(1, stranger(n), &message));
    assert!(net.strays.len() > 16 && net.strays.len() <= 33, "{} responses", net.strays.len());
    assert!(net.strays.iter().all(|s| s.bytes == net.strays[0].bytes));
}

#[test]
fn no_reply_is_larger_than_its_request() {
    let mut net = net();
    let messages = initiations(&mut net, 6);
    let mut challenge = vec![0x1a, 0, 0, 0];
    challenge.extend([7; 24]);
    let requests = messages.iter().chain([&challenge]).cycle().take(400);
    for (n, request) in requests.enumerate() {
        let before = net.strays.len();
        net.inject(1, stranger(n as u32), request);
        let replies = &net.strays[before..];
        assert!(replies.iter().map(|s| s.bytes.len()).sum::<usize>() <= request.len());
        assert!(replies.iter().all(|s| s.to == stranger(n as u32)));
    }
    let kinds = [2, 3, 11].map(|k| net.strays.iter().filter(|s| s.bytes[0] & 15 == k).count());
    assert!(kinds.iter().all(|n| *n > 0), "responses, cookies and echoes: {kinds:?}");
}

#[test]
fn a_replayed_initiation_evicts_nothing_and_the_genuine_handshake_completes() {
    let mut net = net();
    let old = initiations(&mut net, 6);
    net.restart(0, 77);
    for n in 0..3000u32 {
        net.inject(1, stranger(n), &old[n as usize % old.len()]);
        net.pass(MS);
    }
    assert!(has_session(&net, 0) && has_session(&net, 1));
    let log = record(&mut net, |_| true);
    for n in 0..2000u32 {
        net.inject(1, stranger(n), &old[n as usize % old.len()]);
        net.send(1, u64::from(n), 100);
        net.pass(10 * MS);
    }
    net.pass(S);
    assert_eq!(net.numbers(0), (0..2000).collect::<Vec<_>>());
    assert_eq!(sessions(&log.borrow(), 1).len(), 1, "the established session is untouched");
    assert!(net.peer(1).paths.iter().all(|p| p.remote.is_some_and(|a| net.seen_at.contains(&a))));
    assert!(net.strays.iter().all(|s| s.bytes[0] & 15 != TRANSPORT));
}

/// Somebody who has recorded more handshakes than an end remembers keeps its table of pending sessions full.
#[test]
fn many_recorded_initiations_do_not_keep_the_genuine_handshake_out() {
    for pause in [MS, 25 * MS] {
        let mut net = net();
        let old = initiations(&mut net, 100);
        for (n, initiation) in (0..).zip(&old) {
            net.inject(1, stranger(n), initiation);
            net.pass(pause);
        }
        net.restart(0, 77);
        let mut n = 0;
        while !has_session(&net, 1) {
            net.inject(1, stranger(n), &old[n as usize % old.len()]);
            net.pass(pause);
            n += 1;
            assert!(net.now < 60 * S, "no session within a minute, with a replay each {pause:?}");
        }
    }
}

#[test]
fn a_flood_of_handshakes_is_asked_for_cookies_and_a_peer_gets_through() {
    let mut net = net();
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut jar = CookieJar::new(net.ends[1].public_key());
    for n in 0..5000 {
        let mut message = vec![0; 168];
        rng.fill_bytes(&mut message[4..]);
        message[0] = 0x11;
        jar.stamp(net.now, &mut message);
        net.inject(1, stranger(n), &message);
        if n % 2 == 0 {
            net.pass(MS);
        }
    }
    let counters = net.ends[1].counters();
    assert!(counters.cookies_sent > 4000, "{counters:?}");
    // A burst of 100 and 50 per second for two and a half seconds cost the exponentiations of a handshake.
    assert!(counters.refused_handshakes <= 250, "{counters:?}");
    assert!(has_session(&net, 0) && has_session(&net, 1));
}

#[test]
fn rotation_under_traffic_loses_nothing_for_ten_minutes() {
    let mut net = net();
    net.pass(S);
    let log = record(&mut net, |_| true);
    let (mut next, mut number) = (net.now, 0);
    net.run(601 * S, |net| {
        while net.now >= next {
            (0..2).for_each(|end| net.send(end, number, 300));
            (next, number) = (next + 50 * MS, number + 1);
        }
    });
    net.pass(S);
    for end in 0..2 {
        assert_eq!(net.numbers(end), (0..number).collect::<Vec<_>>(), "at end {end}");
        assert!(sessions(&log.borrow(), end).len() >= 4, "keys rotate");
        let counters = net.peer(end).counters;
        assert_eq!((counters.received_forged, counters.received_replayed), (0, 0));
        assert_eq!(net.ends[end].counters().received_unknown_session, 0);
    }
}

#[test]
fn what_was_sealed_before_a_rotation_is_opened_after_it() {
    let mut net = net();
    net.pass(S);
    let log = record(&mut net, |d| d.bytes.len() < 500);
    net.send(0, 1, 600);
    net.pass(20 * MS);
    let late = log.borrow().iter().find(|d| d.bytes.len() >= 500).expect("the packet").clone();
    let log = record(&mut net, |_| true);
    net.pass(130 * S);
    assert_ne!(sessions(&log.borrow(), 0).last().unwrap()[..], late.bytes[4..8], "the keys have changed");
    let before = net.peer(1).paths[late.wire].received_packets;
    let from = net.seen_at[late.wire];
    net.inject(1, from, &late.bytes);
    assert_eq!(net.peer(1).paths[late.wire].received_packets, before + 1);
}

/// Sends ten packets a second both ways for `seconds`, numbered from `first`.
fn chatter(net: &mut Net, seconds: u32, first: u64) {
    for n in 0..u64::from(seconds) * 10 {
        (0..2).for_each(|end| net.send(end, first + n, 400));
        net.pass(100 * MS);
    }
}

#[test]
fn a_restarted_peer_is_accepted_and_what_its_former_life_sealed_is_refused() {
    for reborn in 0..2 {
        let mut net = net();
        let log = record(&mut net, |_| true);
        net.pass(S);
        chatter(&mut net, 5, 0);
        // The second time its session is young.
        for (life, first) in [(98, 500), (99, 1000)] {
            net.restart(reborn, life);
            net.received = Default::default();
            chatter(&mut net, 1, first);
            assert!(
                !net.numbers(reborn).is_empty(),
                "end {reborn} restarted, and nothing reaches it after a second"
            );
        }
        chatter(&mut net, 14, 1010);
        assert_eq!(*net.numbers(reborn).last().unwrap(), 1149, "end {reborn} restarted");
        assert_eq!(*net.numbers(1 - reborn).last().unwrap(), 1149, "end {reborn} restarted");
        net.pass(5 * S);
        let old: Vec<_> =
            log.borrow().iter().filter(|d| d.kind() == TRANSPORT && d.at < 6 * S).cloned().collect();
        let before = net.received[1 - reborn].len();
        let unknown = net.ends[1 - reborn].counters().received_unknown_session;
        let replays: Vec<_> = old.iter().filter(|d| d.from == reborn).collect();
        for d in &replays {
            net.inject(1 - reborn, stranger(d.wire as u32), &d.bytes);
        }
        assert_eq!(net.received[1 - reborn].len(), before);
        let refused = net.ends[1 - reborn].counters().received_unknown_session - unknown;
        assert_eq!(refused, replays.len() as u64);
    }
}

#[test]
fn what_was_on_its_way_when_the_peer_restarted_is_not_kept() {
    for reborn in 0..2 {
        let mut net = net();
        net.pass(S);
        for n in 0..200 {
            (0..2).for_each(|end| net.send(end, n, 1000));
        }
        net.pass(5 * MS);
        assert!(net.peer(1 - reborn).unconfirmed_bytes > 0, "something is on its way");
        net.restart(reborn, 99);
        net.pass(20 * S);
        chatter(&mut net, 5, 1000);
        net.pass(5 * S);
        let unconfirmed = &net.ends[1 - reborn].peers()[0].unconfirmed;
        assert_eq!(unconfirmed.next() - unconfirmed.floor(), 0, "end {reborn} restarted");
        assert_eq!(unconfirmed.bytes(), 0, "end {reborn} restarted");
    }
}
