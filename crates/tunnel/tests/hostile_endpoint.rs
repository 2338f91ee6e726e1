//! Somebody without the peer's key sends datagrams to an endpoint: nothing changes but counters, little is answered.

mod sim;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use sim::{Datagram, Net, record, stranger};
use tunnel::endpoint::Arrival;
use tunnel::handshake::cookie::CookieJar;
use tunnel::handshake::noise::{InitiationPayload, Initiator, Prologue, Responder};
use tunnel::path::registration::SessionPayload;
use tunnel::wire::address::LocalAddress;
use tunnel::{Host, PresharedKey, PrivateKey, PublicKey, Via};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE_REPLY: u8 = 3;
const TRANSPORT: u8 = 4;
const TYPES: std::ops::RangeInclusive<u8> = 1..=4;

/// Two ends with a session, and one datagram of each type that was on the wire.
fn established() -> (Net, HashMap<u8, Datagram>) {
    let mut net = Net::quick(2, 10 * MS, |_, _| ());
    let log = record(&mut net, |_| true);
    net.pass(S);
    for n in 0..20 {
        (0..2).for_each(|end| net.send(end, n, 300));
        net.pass(10 * MS);
    }
    net.pass(S);
    net.tap = None;
    let mut samples: HashMap<_, _> = log.borrow().iter().map(|d| (d.kind(), d.clone())).collect();
    // Cookie replies come under load only.
    let bytes = [&[0x13, 0, 0, 0][..], &[0x77; 60]].concat();
    let of_cookie = Datagram { bytes, ..samples[&2].clone() };
    samples.insert(COOKIE_REPLY, of_cookie);
    (net, samples)
}

/// What both ends know of each other, but for counts of what they refused.
fn state(net: &Net) -> [String; 2] {
    [0, 1].map(|end| {
        let mut peer = net.peer(end);
        peer.counters = Default::default();
        format!("{peer:?} {}", net.received[end].len())
    })
}

fn initiation(rng: &mut ChaCha20Rng, key: &PrivateKey, to: &PublicKey, life: u64, counter: u64) -> Vec<u8> {
    let payload = InitiationPayload { incarnation: life, counter, fast_aes: false, pieces: true }.encode();
    let none = PresharedKey::default();
    let index = rng.next_u32();
    Initiator::new(rng, Prologue::Tunnel, key, to, &none, index, &payload).expect("usable keys").1
}

fn stamped(net: &Net, mut message: Vec<u8>) -> Vec<u8> {
    CookieJar::new(net.ends[1].public_key()).stamp(net.now, &mut message);
    message
}

#[test]
fn a_datagram_cut_to_any_length_changes_nothing() {
    let (mut net, samples) = established();
    let before = state(&net);
    for kind in TYPES {
        let sample = &samples[&kind];
        for length in 0..sample.bytes.len() {
            net.inject(1 - sample.from, stranger(7), &sample.bytes[..length]);
        }
    }
    assert_eq!(state(&net), before);
    assert!(net.strays.is_empty());
}

#[test]
fn a_datagram_with_anything_appended_changes_nothing() {
    let (mut net, samples) = established();
    let before = state(&net);
    for kind in TYPES {
        let sample = &samples[&kind];
        for length in [1, 2, 15, 16, 17, 100, 1000, 9000, 65_507 - sample.bytes.len()] {
            let longer = [&sample.bytes[..], &vec![0; length]].concat();
            net.inject(1 - sample.from, stranger(7), &longer);
        }
    }
    assert_eq!(state(&net), before);
    assert!(net.strays.is_empty());
}

#[test]
fn a_datagram_with_any_bit_flipped_changes_nothing() {
    let (mut net, samples) = established();
    let before = state(&net);
    for kind in TYPES {
        let sample = &samples[&kind];
        // mac2 matters under load only: what has nothing wrong but that is a copy.
        let end = sample.bytes.len() - if kind < COOKIE_REPLY { 16 } else { 0 };
        for bit in 0..8 * end {
            let mut flipped = sample.bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            net.inject(1 - sample.from, stranger(7), &flipped);
        }
    }
    assert_eq!(state(&net), before);
    assert!(net.strays.is_empty());
}

#[test]
fn a_key_that_is_no_peers_gets_nothing_but_counted() {
    let (mut net, _) = established();
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    let before = state(&net);
    let to = *net.ends[1].public_key();
    for n in 0..20 {
        let other = PrivateKey::generate(&mut rng);
        let message = initiation(&mut rng, &other, &to, 1, 1);
        let message = stamped(&net, message);
        net.inject(1, stranger(n), &message);
    }
    assert_eq!(net.ends[1].counters().refused_handshakes, 20);
    assert_eq!(state(&net), before);
    assert!(net.strays.is_empty());
}

/// The largest flood that a link of 100 Mbit/s carries, for ten seconds, in virtual time.
#[test]
fn a_flood_of_handshakes_from_spoofed_addresses_is_neither_amplified_nor_remembered() {
    let (mut net, _) = established();
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let before = state(&net);
    let mut jar = CookieJar::new(net.ends[1].public_key());
    for n in 0..100_000u32 {
        let mut message = vec![0; 168];
        rng.fill_bytes(&mut message[4..]);
        message[0] = 0x11;
        jar.stamp(net.now, &mut message);
        net.inject(1, stranger(n), &message);
    }
    assert_eq!(state(&net), before);
    let counters = *net.ends[1].counters();
    assert_eq!(net.strays.len() as u64, counters.cookies_sent);
    assert!(counters.limited_handshakes > 90_000, "{counters:?}");
    assert!(net.strays.iter().all(|s| s.bytes.len() == 64), "cookie replies, less than what asked for them");
    let tried = net.ends[1].counters().refused_handshakes;
    assert!(tried <= 100, "{tried} handshakes cost exponentiations");
}

/// Neither one that asks anew from where the peer is known to be, nor one whose address nobody knows.
#[test]
fn a_peer_gets_in_through_a_flood_of_handshakes() {
    for moved in [false, true] {
        let (mut net, _) = established();
        let mut rng = ChaCha20Rng::seed_from_u64(5);
        let mut jar = CookieJar::new(net.ends[1].public_key());
        let mut flood = |net: &mut Net, count: u32| {
            for n in 0..count {
                let mut message = vec![0; 168];
                rng.fill_bytes(&mut message[4..]);
                message[0] = 0x11;
                jar.stamp(net.now, &mut message);
                net.inject(1, stranger(n), &message);
            }
        };
        flood(&mut net, 1000);
        if moved {
            net.seen_at = vec![stranger(60_001), stranger(60_002)];
        }
        net.restart(0, 99);
        let start = net.now;
        while net.peer(0).session_age_s.is_none() {
            // 20,000 per second.
            flood(&mut net, 20);
            net.pass(MS);
            let limit = if moved { 60 * S } else { 2 * S };
            assert!(net.now < start + limit, "no session, moved: {moved}");
        }
    }
}

/// Not even in its own name: what has a cookie does not wait for what has none.
#[test]
fn a_peer_with_a_cookie_gets_in_through_a_flood_in_its_name() {
    let (mut net, _) = established();
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut jar = CookieJar::new(net.ends[1].public_key());
    let mut flood = |net: &mut Net, from: &dyn Fn(u32) -> SocketAddr, count: u32| {
        for n in 0..count {
            let mut message = vec![0; 168];
            rng.fill_bytes(&mut message[4..]);
            message[0] = 0x11;
            jar.stamp(net.now, &mut message);
            net.inject(1, from(n), &message);
        }
    };
    flood(&mut net, &stranger, 1000);
    net.restart(0, 99);
    net.turn(0);
    // Its first message is at the other end, and the cookie on its way back.
    net.pass(15 * MS);
    let (seen, start) = (net.seen_at.clone(), net.now);
    let mut said = false;
    while net.peer(0).session_age_s.is_none() {
        said |= net.peer(0).paths.iter().any(|path| path.cause == "limited");
        // 20,000 per second in others' names, and as many in the peer's.
        flood(&mut net, &stranger, 20);
        flood(&mut net, &|n| seen[n as usize % seen.len()], 20);
        net.pass(MS);
        assert!(net.now < start + S / 10, "its next message was not answered");
    }
    assert!(said, "the peer does not say that it is made to wait");
}

/// Who receives at one address may use the cookie that it got there.
#[test]
fn one_host_with_a_cookie_does_not_starve_others() {
    let (mut net, _) = established();
    let mut rng = ChaCha20Rng::seed_from_u64(6);
    let flooder = PrivateKey::generate(&mut rng);
    let to = *net.ends[1].public_key();
    let mut jar = CookieJar::new(&to);
    for n in 0..5000u32 {
        let mut message = initiation(&mut rng, &flooder, &to, 1, u64::from(n));
        jar.stamp(net.now, &mut message);
        let port = 1 + (n % 50) as u16;
        // One address for all: a cookie is bound to the port too.
        net.inject(1, SocketAddr::from(([203, 0, 113, 1], if n < 200 { 1 } else { port })), &message);
        while let Some(stray) = net.strays.pop() {
            assert!(jar.accept(net.now, &stray.bytes) || stray.to.port() != 1);
        }
        net.pass(MS);
    }
    let counters = *net.ends[1].counters();
    assert!(counters.limited_handshakes > 0, "{counters:?}");
    // 50 per second for all, and 20 for the host that has a cookie, beside the bursts.
    assert!(counters.refused_handshakes <= 100 + 5 * (50 + 20) + 5, "{counters:?}");
    // Another life of the peer gets in all the same.
    net.restart(0, 99);
    net.pass(3 * S);
    assert!(net.peer(0).session_age_s.is_some_and(|age| age < 4.0));
}

/// Each of a thousand hosts keeps to what one host may do.
#[test]
fn hosts_with_cookies_are_bounded_together() {
    let (mut net, _) = established();
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let flooder = PrivateKey::generate(&mut rng);
    let to = *net.ends[1].public_key();
    let mut jars: Vec<_> = (0..1000).map(|_| CookieJar::new(&to)).collect();
    let message = initiation(&mut rng, &flooder, &to, 1, 1);
    for round in 0..3 {
        for (host, jar) in jars.iter_mut().enumerate() {
            let mut message = message.clone();
            jar.stamp(net.now, &mut message);
            net.inject(1, stranger(host as u32), &message);
            while let Some(stray) = net.strays.pop() {
                jar.accept(net.now, &stray.bytes);
            }
            // A thousand in a fifth of a second.
            net.pass(MS / 5);
        }
        // What is read is refused: nobody here has that key. 50 and 400 per second, beside the bursts.
        let refused = net.ends[1].counters().refused_handshakes;
        assert!(refused <= 100 + 100 + (round + 1) * 90 + 10, "{refused} in round {round}");
    }
    // The peer that has an address here gets in all the same.
    net.restart(0, 99);
    net.pass(3 * S);
    assert!(net.peer(0).session_age_s.is_some_and(|age| age < 4.0));
}

/// Hosts that have cookies, 4096 at least: the last few would be answered without.
fn with_cookies(net: &mut Net, mut initiation: impl FnMut() -> Vec<u8>) -> Vec<(u32, CookieJar)> {
    let to = *net.ends[1].public_key();
    let mut jars: Vec<_> = (0..4200).map(|host| (host, CookieJar::new(&to))).collect();
    while jars.iter().filter(|(_, jar)| jar.has_cookie(net.now)).count() < 4096 {
        let (message, now) = (initiation(), net.now);
        for (host, jar) in jars.iter_mut().filter(|(_, jar)| !jar.has_cookie(now)) {
            let mut message = message.clone();
            jar.stamp(net.now, &mut message);
            net.inject(1, stranger(*host), &message);
            for stray in net.strays.drain(..) {
                jar.accept(net.now, &stray.bytes);
            }
        }
        net.pass(S / 10);
    }
    jars.retain(|(_, jar)| jar.has_cookie(net.now));
    jars
}

#[test]
fn a_peer_is_answered_while_strangers_take_all_there_is_to_remember_hosts() {
    let (mut net, _) = established();
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let (flooder, to) = (PrivateKey::generate(&mut rng), *net.ends[1].public_key());
    let mut initiation = || initiation(&mut rng, &flooder, &to, 1, 1);
    let mut jars = with_cookies(&mut net, &mut initiation);
    for _ in 0..4 {
        for (host, jar) in &mut jars {
            let mut message = initiation();
            jar.stamp(net.now, &mut message);
            net.inject(1, stranger(*host), &message);
        }
    }
    net.restart(0, 99);
    net.turn(0);
    for (host, jar) in jars.iter_mut().take(100) {
        let mut message = initiation();
        jar.stamp(net.now, &mut message);
        net.inject(1, stranger(*host), &message);
        net.pass(MS);
    }
    assert!(net.peer(0).session_age_s.is_some(), "the peer was not answered within 100 ms");
}

/// As many as a link of 100 Mbit/s brings in a fifth of a second, each with a cookie for its address, four from each network: the
/// peer's new keys wait for the few steps that are being done, and for no others.
#[test]
fn a_peers_new_keys_wait_for_few_of_a_flood_with_cookies() {
    const STEP: Duration = Duration::from_micros(200);
    let (mut net, _) = established();
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let flooder = PrivateKey::generate(&mut rng);
    let to = *net.ends[1].public_key();
    let mut initiation = || initiation(&mut rng, &flooder, &to, 1, 1);
    let mut jars = with_cookies(&mut net, &mut initiation);
    net.idle_workers = true;
    let refused = net.ends[1].counters().refused_handshakes;
    let (mut steps, mut asked_at) = (0, None);
    for n in 0..16_384 {
        let mut message = initiation();
        let (host, jar) = &mut jars[n % 4096];
        jar.stamp(net.now, &mut message);
        net.inject(1, stranger(*host), &message);
        net.pass(S / 5 / 16_384);
        if n == 8_192 {
            net.restart(0, 99);
            net.turn(0);
            asked_at = Some(steps);
        }
        if n % 16 == 0 {
            // One thread does a step in so long.
            for end in 0..2 {
                let done = net.ends[end].poll_work().map(|work| work.run());
                done.into_iter().for_each(|done| net.ends[end].handle_work(net.now, done));
            }
            steps += 1;
            net.pass(STEP.saturating_sub(16 * S / 5 / 16_384));
        }
        if net.peer(0).session_age_s.is_some_and(|age| age < 0.1) && asked_at.is_some() {
            let waited = steps - asked_at.take().unwrap_or_default();
            assert!(
                waited <= 210,
                "{waited} steps of 200 us; two round trips, a cookie's and its own, are 200"
            );
        }
    }
    assert!(asked_at.is_none(), "the peer was not answered");
    let counters = *net.ends[1].counters();
    let tried = counters.refused_handshakes - refused;
    assert!(tried <= 100 + 400 / 4 + 50, "{tried} of a flood cost exponentiations: {counters:?}");
}

/// First messages of `lives` lives of end 0, `each` of each, none of which arrived.
fn recorded(net: &mut Net, lives: u64, each: usize) -> Vec<Vec<u8>> {
    let log = record(net, |_| false);
    for life in 0..lives {
        net.restart(0, 1000 + life);
        let start = log.borrow().len();
        let fresh = |log: &[Datagram]| log.iter().map(|d| d.bytes.clone()).collect::<HashSet<_>>().len();
        while fresh(&log.borrow()[start..]) < each {
            net.pass(S);
        }
    }
    net.tap = None;
    let mut seen = HashSet::new();
    let all = log.borrow();
    all.iter()
        .filter(|d| d.from == 0 && d.kind() == INITIATION && seen.insert(d.bytes.clone()))
        .map(|d| d.bytes.clone())
        .collect()
}

#[test]
fn an_initiation_older_than_one_that_was_taken_is_refused_without_an_answer() {
    let mut net = Net::quick(1, 10 * MS, |_, _| ());
    let of_one_life = recorded(&mut net, 1, 5);
    net.inject(1, stranger(1), of_one_life.last().unwrap());
    assert_eq!(net.strays.len(), 1, "the newest is answered");
    net.pass(20 * S);
    let before = state(&net)[1].clone();
    let refused = net.ends[1].counters().refused_handshakes;
    for message in &of_one_life {
        net.inject(1, stranger(2), message);
    }
    assert_eq!(net.ends[1].counters().refused_handshakes, refused + of_one_life.len() as u64);
    assert_eq!(net.strays.len(), 1);
    assert_eq!(state(&net)[1], before);
}

#[test]
fn a_thousand_recorded_initiations_work_once_each_and_delay_a_handshake_by_little() {
    let mut net = Net::quick(1, 10 * MS, |_, _| ());
    let all = recorded(&mut net, 1000, 1);
    assert!(all.len() >= 1000);
    let mut n = 0;
    let mut replay = |net: &mut Net, count: usize| {
        for _ in 0..count {
            net.inject(1, stranger(n as u32), &all[n % all.len()]);
            net.pass(21 * MS);
            n += 1;
        }
    };
    // Each once, slowly enough that no cookies are asked for; then they are worth nothing.
    replay(&mut net, all.len());
    net.strays.clear();
    net.restart(0, 77);
    let start = net.now;
    while net.peer(1).session_age_s.is_none() {
        replay(&mut net, 1);
        assert!(net.now < start + 5 * S, "no session within five seconds");
    }
    replay(&mut net, 500);
    let kinds: HashSet<_> = net.strays.iter().map(|s| (s.bytes[0], s.from)).collect();
    assert!(net.strays.is_empty(), "no recording is answered again: {kinds:?}");
}

#[test]
fn a_relays_challenge_gets_one_echo_of_its_size_and_nothing_else() {
    let (mut net, _) = established();
    let before = state(&net);
    let challenge = [&[0x1a, 0, 0, 0][..], &[7; 24]].concat();
    for _ in 0..1000 {
        net.inject(1, stranger(1), &challenge);
    }
    assert_eq!(net.strays.len(), 100, "no more than a hundred at once");
    for n in 2..1000 {
        net.inject(1, stranger(n), &challenge);
    }
    assert_eq!(state(&net), before);
    assert!(net.strays.iter().all(|s| s.bytes.len() == challenge.len()));
    assert_eq!(net.strays[100].to, stranger(2), "others do not wait for that one");
    assert_eq!(net.strays.len(), 500, "nor are there more for all together");
}

/// All arrive with the handshake, before anything is sent, and from more hosts than have to share what is for all.
#[test]
fn relays_challenges_keep_no_handshake_from_its_answer() {
    let (mut net, _) = established();
    let log = record(&mut net, |d| d.from == 1);
    net.restart(0, 99);
    net.pass(100 * MS);
    let asks = |d: &&Datagram| d.from == 0 && d.kind() == INITIATION;
    let asked = log.borrow().iter().find(asks).expect("an initiation").clone();
    let local = LocalAddress { ip: Some(net.server.ip()), ..LocalAddress::default() };
    let (now, from, end) = (net.now, net.seen_at[asked.wire], &mut net.ends[1]);
    let mut arrive = |remote, mut bytes: Vec<u8>| {
        end.handle_datagram(now, &Arrival { remote, local, tos: 0 }, &mut bytes);
    };
    for n in 0..1000 {
        arrive(stranger(n), [&[0x1a, 0, 0, 0][..], &[7; 24]].concat());
    }
    arrive(from, asked.bytes);
    log.borrow_mut().clear();
    net.turn(1);
    assert!(log.borrow().iter().any(|d| d.kind() == RESPONSE), "no answer");
    assert!((1..500).contains(&net.strays.len()), "{} echoes: the queue was not full", net.strays.len());
}

#[test]
fn relay_headers_around_anything_change_nothing() {
    let (mut net, samples) = established();
    let before = state(&net);
    for kind in TYPES {
        for first in [0x18, 0x19] {
            let sample = &samples[&kind];
            let wrapped = [&[first, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8][..], &sample.bytes].concat();
            let twice = [&wrapped[..12], &wrapped].concat();
            for bytes in [&wrapped[..12], &wrapped[..13], &twice] {
                net.inject(1 - sample.from, stranger(9), bytes);
            }
            // What was on the wire is a copy, whatever is around it.
            if kind == TRANSPORT {
                net.inject(1 - sample.from, stranger(9), &wrapped);
            }
        }
    }
    assert_eq!(state(&net), before);
    assert!(net.strays.is_empty());
}

#[test]
fn a_response_is_read_by_whoever_has_time_and_a_forged_one_spoils_nothing() {
    let mut net = Net::quick(1, 10 * MS, |_, _| ());
    net.pass(S);
    net.restart(0, 99);
    net.idle_workers = true;
    let log = record(&mut net, |datagram| datagram.kind() != RESPONSE);
    net.turn(0);
    net.pass(20 * MS);
    // The other end reads the initiation and answers it.
    for _ in 0..2 {
        let work = net.ends[1].poll_work().expect("an initiation is to be answered");
        net.ends[1].handle_work(net.now, work.run());
    }
    net.turn(1);
    let response = log.borrow().iter().rfind(|d| d.kind() == RESPONSE).expect("a response").bytes.clone();
    let mut forged = response.clone();
    forged[20] ^= 1;
    CookieJar::new(net.ends[0].public_key()).stamp(net.now, &mut forged);
    for message in [&forged, &response] {
        net.inject(0, stranger(1), message);
    }
    let has_session = |net: &Net| net.peer(0).session_age_s.is_some();
    for is_right in [false, true] {
        assert!(!has_session(&net), "nothing is read in passing");
        let work = net.ends[0].poll_work().expect("a response is to be read");
        assert!(net.ends[0].poll_work().is_none(), "one at a time of a peer");
        net.ends[0].handle_work(net.now, work.run());
        assert_eq!(has_session(&net), is_right);
    }
    // More than are kept of one.
    net.restart(0, 100);
    net.turn(0);
    let index = log.borrow().iter().rfind(|d| d.from == 0).expect("an initiation").bytes[4..8].to_vec();
    forged[8..12].copy_from_slice(&index);
    CookieJar::new(net.ends[0].public_key()).stamp(net.now, &mut forged);
    (0..1000).for_each(|_| net.inject(0, stranger(1), &forged));
    let steps = std::iter::from_fn(|| {
        let work = net.ends[0].poll_work()?;
        net.ends[0].handle_work(net.now, work.run());
        Some(())
    });
    assert!((1..=16).contains(&steps.count()), "what is kept of a flood");
}

/// What a relay answers, or somebody who sends as from it, is read by whoever has time as well.
#[test]
fn a_relays_response_is_read_by_whoever_has_time_and_a_forged_one_spoils_nothing() {
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let relay = PrivateKey::generate(&mut rng);
    let at: SocketAddr = "198.51.100.2:51901".parse().expect("an address");
    let via = Via { address: Host::Address(at), tls: false, public_key: relay.public() };
    let mut net = Net::quick(1, 10 * MS, |_, config| {
        config.peers[0].paths.iter_mut().for_each(|path| path.via = Some(via.clone()));
    });
    net.idle_workers = true;
    net.turn(0);
    let initiation = net.strays.pop().expect("the relay is asked").bytes;
    let offer = SessionPayload { session: 77, lifetime: 180 * S }.encode();
    let none = PresharedKey::default();
    let read = Responder::read(Prologue::Relay, &relay, &initiation).expect("a genuine initiation");
    let (mut response, _) = read.reply(&mut rng, &none, 5, &offer).expect("a response");
    let mut jar = CookieJar::new(net.ends[0].public_key());
    let mut forged = response.clone();
    forged[20] ^= 1;
    jar.stamp(net.now, &mut forged);
    jar.stamp(net.now, &mut response);
    (0..100).for_each(|_| net.inject(0, stranger(1), &forged));
    assert!(net.ends[0].poll_work().is_none(), "it does not come from the relay");
    (0..8).for_each(|_| net.inject(0, at, &forged));
    net.inject(0, at, &response);
    let work = net.ends[0].poll_work().expect("a response is to be read");
    assert!(net.ends[0].poll_work().is_none(), "one at a time");
    net.ends[0].handle_work(net.now, work.run());
    (0..1000).for_each(|_| net.inject(0, at, &forged));
    let mut steps = 0;
    while let Some(work) = net.ends[0].poll_work() {
        assert!(net.strays.is_empty(), "nothing is read in passing");
        net.ends[0].handle_work(net.now, work.run());
        net.turn(0);
        steps += 1;
    }
    assert_eq!((net.strays.len(), net.strays[0].bytes[0] & 15), (1, 5), "it is confirmed");
    assert_eq!(steps, 8, "what is kept of a flood is not read once the right one has been");
}

/// What looks like a relay's costs a look at all paths only where a relay is.
#[test]
fn relays_are_heard_where_a_path_is_registered_alone() {
    let at: SocketAddr = "198.51.100.2:51901".parse().expect("an address");
    let mut net = Net::quick(1, 10 * MS, |_, config| {
        let via = Via { address: Host::Address(at), tls: false, public_key: [7; 32].into() };
        config.peers[0].paths.iter_mut().for_each(|path| path.via = Some(via.clone()));
    });
    let now = net.now;
    assert!(!net.ends[0].leads_to(now, stranger(1)));
    let registered = [&[0x15, 0, 0, 0][..], &[7; 36]].concat();
    let cookie = [&[0x13, 0, 0, 0][..], &[7; 60]].concat();
    for message in [registered, cookie] {
        (0..100).for_each(|n| net.inject(0, stranger(n), &message));
        net.inject(0, at, &message);
    }
    assert_eq!(net.ends[0].counters().received_unknown_session, 200);
    // A way that has gone is forgotten at once, and one that comes is known at once.
    for local in [None, Some(Default::default())] {
        net.ends[0].set_local(now, 0, 0, local);
        assert_eq!(net.ends[0].leads_to(now, at), local.is_some());
    }
}
