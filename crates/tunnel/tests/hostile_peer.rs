//! A peer that has the right key and lies: what an endpoint believes of it, keeps for it, and sends for it is bounded.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use tunnel::endpoint::{Arrival, Endpoint};
use tunnel::handshake::cookie::CookieJar;
use tunnel::handshake::noise::{InitiationPayload, Initiator, Prologue, ResponsePayload};
use tunnel::handshake::session::{OpeningKey, SealingKey};
use tunnel::schedule::weights::Delay;
use tunnel::status::PeerStatus;
use tunnel::wire::frame::{self, Data, Frame, MAX_PIECES, MAX_RANGES, Order, Piece, Report};
use tunnel::wire::train::Train;
use tunnel::wire::{HEADER_LEN, Message, TAG_LEN, TransportHeader};
use tunnel::{Bicast, Config, Local, PathConfig, PeerConfig, PresharedKey, PrivateKey, Scheduler};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// Bounds that the endpoint sets itself, with what one packet may go beyond them.
const MAX_REORDER: usize = 17 << 20;
const MAX_UNCONFIRMED: usize = 17 << 20;
const MAX_QUEUE: usize = 8 << 20;
const MAX_PATHS: usize = 16;
/// A path of the liar's: the end with the smaller key gives even ids.
const OWN: u16 = 1000;

/// An honest endpoint that lists one path to the liar, and the liar.
struct Liar {
    now: Duration,
    end: Endpoint,
    peer: PrivateKey,
    rng: ChaCha20Rng,
    life: u64,
    made: u64,
    keys: Option<(SealingKey, OpeningKey, u32)>,
    /// The next sequence of each path.
    sequences: HashMap<u16, u64>,
    /// The path that the endpoint lists, once it has been seen.
    listed: u16,
    /// Bytes that each address sent to the endpoint and got from it.
    exchanged: HashMap<SocketAddr, (usize, usize)>,
    /// Frames that the endpoint sent, with their paths and sequences.
    heard: Vec<(TransportHeader, Vec<u8>)>,
    /// Inner packets that came out.
    inner: Vec<Vec<u8>>,
    train: Train,
    /// Bytes of the largest frame that comes over the listed path.
    carries: usize,
    /// It says that it takes packets in pieces.
    pieces: bool,
}

fn home() -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 1], 4000))
}

fn elsewhere(n: u32) -> SocketAddr {
    SocketAddr::from(((0x0b00_0000 + n).to_be_bytes(), 4000))
}

impl Liar {
    fn new(scheduler: Scheduler) -> Self {
        let liar = Liar::over(scheduler, 1500, true, "10.77.0.0/24");
        assert!(liar.status().paths.iter().any(|path| path.id == liar.listed && path.state == "up"));
        liar
    }

    /// Over a path that carries frames of so many bytes, and with `net` routed to it.
    fn over(scheduler: Scheduler, carries: usize, pieces: bool, net: &str) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let (me, peer) = (PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng));
        let path = PathConfig {
            name: "a".into(),
            local: Local::Any,
            remote: home().into(),
            via: None,
            backup: false,
            receive: true,
            cost: Default::default(),
        };
        let config = |public_key, net: &str, paths| PeerConfig {
            name: "peer".into(),
            public_key,
            preshared_key: PresharedKey::default(),
            routes: vec![net.parse().expect("a net")],
            keepalive: None,
            resend: true,
            bicast: Bicast::Off,
            paths,
        };
        let other = PrivateKey::generate(&mut rng).public();
        let peers = vec![config(peer.public(), net, vec![path]), config(other, "10.88.0.0/24", vec![])];
        let mut end = Endpoint::new(
            Config { scheduler, peers, ..Config::default() },
            me,
            &mut ChaCha20Rng::from_seed([3; 32]),
        );
        let now = S;
        end.set_local(now, 0, 0, Some(Default::default()));
        let mut liar = Liar {
            now,
            end,
            peer,
            rng,
            life: 5,
            made: 0,
            keys: None,
            sequences: HashMap::new(),
            listed: 0,
            exchanged: HashMap::new(),
            heard: Vec::new(),
            inner: Vec::new(),
            train: Train::default(),
            carries,
            pieces,
        };
        liar.shake_hands();
        liar.probe(OWN, home());
        liar.pass(S);
        let named = |h: &TransportHeader| h.path != OWN;
        liar.listed = liar.heard.iter().map(|(h, _)| *h).find(named).expect("its path's packets").path;
        for _ in 0..if carries < 1500 { 30 } else { 5 } {
            liar.acknowledge(|report| report);
            liar.pass(300 * MS);
        }
        liar
    }

    /// Reports all that has come over the listed path, after a change.
    fn acknowledge(&mut self, change: impl FnOnce(Report) -> Report) {
        let came = |(header, frame): &&(TransportHeader, Vec<u8>)| {
            header.path == self.listed && frame.len() <= self.carries
        };
        let mut came: Vec<_> = self.heard.iter().filter(came).map(|(header, _)| header.sequence).collect();
        came.sort_unstable_by(|a, b| b.cmp(a));
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for sequence in came {
            match ranges.last_mut().filter(|range| *range.start() == sequence + 1) {
                Some(range) => *range = sequence..=*range.end(),
                None => ranges.push(sequence..=sequence),
            }
        }
        ranges.truncate(MAX_RANGES);
        if ranges.is_empty() {
            return;
        }
        let report = Report { path: self.listed, arrival: self.micros(), ranges, ..Report::default() };
        self.report(Order::default(), &[change(report)]);
    }

    /// A handshake in the liar's present life.
    fn shake_hands(&mut self) {
        self.made += 1;
        let (incarnation, counter, pieces) = (self.life, self.made, self.pieces);
        let payload = InitiationPayload { incarnation, counter, fast_aes: false, pieces };
        let (key, none, index) = (*self.end.public_key(), PresharedKey::default(), self.rng.next_u32());
        let (peer, payload) = (self.peer.clone(), payload.encode());
        let started = Initiator::new(&mut self.rng, Prologue::Tunnel, &peer, &key, &none, index, &payload);
        let (mut initiator, mut message) = started.expect("usable keys");
        CookieJar::new(&key).stamp(self.now, &mut message);
        self.give(home(), &mut message);
        self.end.work(self.now);
        while self.end.poll_transmit(self.now, &mut self.train) {
            let Ok(finished) = initiator.finish(&self.train.contents) else { continue };
            let cipher = ResponsePayload::decode(&finished.payload).expect("a payload").cipher;
            let (sealing, opening) = finished.keys.with(cipher);
            self.keys = Some((sealing, opening, finished.remote_index));
            return;
        }
        panic!("a genuine handshake was refused");
    }

    fn give(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        self.exchanged.entry(from).or_default().0 += datagram.len();
        self.end.handle_datagram(
            self.now,
            &Arrival { remote: from, local: Default::default(), tos: 0 },
            datagram,
        );
    }

    /// Seals a frame and sends it.
    fn say(&mut self, path: u16, from: SocketAddr, plain: &[u8]) {
        let sequence = self.sequences.entry(path).or_default();
        *sequence += 1;
        let (key, _, receiver) = self.keys.as_ref().expect("a session");
        let header = TransportHeader { path, receiver: *receiver, sequence: *sequence };
        let mut datagram = header.to_bytes().to_vec();
        datagram.extend(plain);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        let (head, body) = datagram.split_at_mut(HEADER_LEN);
        key.seal(path, header.sequence, head.first_chunk().expect("a header"), body);
        self.give(from, &mut datagram);
        self.turn();
    }

    /// Lets the endpoint do what it has to, and reads what it sends.
    fn turn(&mut self) {
        self.end.work(self.now);
        self.end.handle_timeout(self.now);
        let mut trains = 0;
        while self.end.poll_transmit(self.now, &mut self.train) {
            trains += 1;
            assert!(trains < 100_000, "it never stops sending");
            let to = self.train.to.expect("a train goes somewhere").remote;
            let (_, opening, _) = self.keys.as_ref().expect("a session");
            for datagram in self.train.datagrams() {
                self.exchanged.entry(to).or_default().1 += datagram.len();
                let mut bytes = datagram.to_vec();
                let Ok(Message::Transport(header)) = Message::parse(datagram) else { continue };
                let (head, body) = bytes.split_at_mut(HEADER_LEN);
                let head = head.first_chunk().expect("a header");
                if let Ok(plain) = opening.open(header.path, header.sequence, head, body) {
                    self.heard.push((header, plain.to_vec()));
                }
            }
        }
        self.inner.extend(std::iter::from_fn(|| self.end.poll_inner()));
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.end.poll_timeout(self.now).filter(|due| *due < end) {
            self.now = due.max(self.now + 10 * Duration::from_micros(1));
            self.turn();
        }
        self.now = self.now.max(end);
        self.turn();
    }

    fn probe(&mut self, path: u16, from: SocketAddr) {
        let mut plain = Vec::new();
        frame::put_probe(&mut plain, Order::default(), 0, 16);
        self.say(path, from, &plain);
    }

    fn data(&mut self, path: u16, from: SocketAddr, order: u32, inner: &[u8]) {
        self.piece(path, from, order, Piece::WHOLE, inner);
    }

    fn piece(&mut self, path: u16, from: SocketAddr, order: u32, piece: Piece, inner: &[u8]) {
        let mut plain = Vec::new();
        let header = Data { resend: false, resends: true, piece, behind: 1, order, time: self.micros() };
        frame::put_data(&mut plain, &header);
        plain.extend(inner);
        self.say(path, from, &plain);
    }

    fn report(&mut self, order: Order, reports: &[Report]) {
        let mut plain = Vec::new();
        frame::put_feedback(&mut plain, order, self.micros(), reports, 60_000);
        self.say(self.listed, home(), &plain);
    }

    fn micros(&self) -> u32 {
        self.now.as_micros() as u32
    }

    /// The endpoint's host sends `count` packets to the liar's net.
    fn offer(&mut self, count: usize) {
        for _ in 0..count {
            let mut packet = inner_packet([10, 99, 0, 1], [10, 77, 0, 1], 1200);
            self.end.handle_inner(self.now, &mut packet);
        }
        self.turn();
    }

    fn status(&self) -> PeerStatus {
        self.end.status(self.now).peers.remove(0)
    }

    /// Everything that has to hold whatever the liar does.
    #[track_caller]
    fn check(&self) {
        let status = self.status();
        assert!(status.reorder_bytes <= MAX_REORDER, "{status:#?}");
        assert!(status.unconfirmed_bytes <= MAX_UNCONFIRMED, "{status:#?}");
        assert!(status.queue_bytes <= MAX_QUEUE, "{status:#?}");
        assert!(status.paths.len() <= MAX_PATHS + 1, "{status:#?}");
        for path in &status.paths {
            assert!((0.0..=1.0).contains(&path.weight), "{path:#?}");
            assert!(path.rtt_ms.is_none_or(|ms| ms.is_finite() && ms >= 0.0), "{path:#?}");
            assert!(path.rate_bps.is_none_or(|bps| bps.is_finite() && bps >= 0.0), "{path:#?}");
            assert!(path.lost_packets <= path.sent_packets, "{path:#?}");
            assert!(path.in_flight_bytes <= MAX_UNCONFIRMED + MAX_QUEUE, "{path:#?}");
        }
        let total: f64 = status.paths.iter().filter(|path| path.state == "up").map(|path| path.weight).sum();
        assert!(total <= 1.0 + 1e-6, "weights are shares: {status:#?}");
        for (address, (there, back)) in self.exchanged.iter().filter(|(address, _)| **address != home()) {
            assert!(back <= &(3 * there), "{address}: {back} bytes for {there}");
        }
    }

    /// It is still served once it has begun a new, honest life.
    #[track_caller]
    fn check_alive(&mut self) {
        self.be_reborn();
        let before = self.inner.len();
        self.data(self.listed, home(), 0, &inner_packet([10, 77, 0, 1], [10, 99, 0, 1], 100));
        self.pass(3 * S);
        assert!(self.inner.len() > before, "{:#?}", self.status());
    }

    fn be_reborn(&mut self) {
        self.life += 1;
        self.made = 0;
        self.sequences.clear();
        self.shake_hands();
    }
}

fn inner_packet(source: [u8; 4], destination: [u8; 4], size: usize) -> Vec<u8> {
    let mut p = vec![0; size];
    p[0] = 0x45;
    p[2..4].copy_from_slice(&(size as u16).to_be_bytes());
    p[8..10].copy_from_slice(&[64, 17]);
    p[12..16].copy_from_slice(&source);
    p[16..20].copy_from_slice(&destination);
    p[24..26].copy_from_slice(&((size - 20) as u16).to_be_bytes());
    p
}

/// Numbers at which arithmetic breaks, and any.
fn number(rng: &mut ChaCha20Rng) -> u64 {
    let any = rng.next_u64();
    match any % 6 {
        0 => 0,
        1 => u64::MAX,
        2 => (1 << (any >> 32 & 63)) - 1,
        3 => 1 << (any >> 32 & 63),
        4 => any >> 8 & 0xffff,
        _ => any.rotate_left(17),
    }
}

#[test]
fn a_peer_that_lies_in_its_feedback_only_harms_itself() {
    for scheduler in [Scheduler::Auto, Scheduler::Paper] {
        let mut liar = Liar::new(scheduler);
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        for round in 0..3000 {
            liar.offer(3);
            let mut any = || number(&mut rng);
            let top = any();
            let delay = Delay {
                samples: any() as u32,
                min: any() as u32,
                mean_over_min: any() as u32,
                max_over_min: any() as u32,
            };
            let report = Report {
                path: if round % 4 == 3 { any() as u16 } else { liar.listed },
                arrival: any() as u32,
                report_delay: any() as u32,
                bytes: any(),
                delay,
                ranges: vec![top.saturating_sub(any() % 1000)..=top],
            };
            let order = Order { floor: any() as u32, next: any() as u32 };
            liar.report(order, &vec![report; 1 + round % 5]);
            liar.pass(3 * MS);
            liar.check();
        }
        assert!(liar.status().paths.len() <= 2, "no path came of a report");
        liar.check_alive();
        liar.check();
    }
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    let mut liar = Liar::new(Scheduler::Auto);
    liar.offer(50);
    let waiting = liar.status().unconfirmed_bytes;
    assert!(waiting > 0);
    let ahead = 1 << 40;
    let report = Report { path: liar.listed, ranges: vec![ahead..=ahead + 1000], ..Report::default() };
    for _ in 0..100 {
        liar.report(Order::default(), std::slice::from_ref(&report));
    }
    assert_eq!(liar.status().unconfirmed_bytes, waiting);
    liar.check();
}

#[test]
fn a_peer_that_reports_infinite_rates_is_sent_no_more_than_it_was_offered() {
    let mut liar = Liar::new(Scheduler::Auto);
    let start = liar.exchanged[&home()].1;
    let mut offered = 0;
    for n in 0..2000u64 {
        liar.offer(2);
        offered += 2 * 1200;
        // Everything arrived, at once, and far more than was sent.
        liar.acknowledge(|report| Report { bytes: n << 40, ..report });
        liar.pass(MS);
        liar.check();
    }
    let sent = liar.exchanged[&home()].1 - start;
    assert!(sent < offered * 5 / 4 + 200_000, "{sent} bytes sent for {offered} offered");
}

#[test]
fn a_peer_that_announces_a_thousand_paths_gets_sixteen() {
    let mut liar = Liar::new(Scheduler::Auto);
    for round in 0..4u16 {
        let names: Vec<String> = (0..250).map(|n| format!("path-{n}")).collect();
        let ids = |n: usize| OWN + 2 * (250 * round + n as u16);
        let paths: Vec<_> = names.iter().enumerate().map(|(n, name)| (ids(n), name.as_str(), 0)).collect();
        let mut plain = Vec::new();
        frame::put_announce(&mut plain, round as u8 + 1, paths.into_iter());
        liar.say(liar.listed, home(), &plain);
        liar.pass(S);
        liar.check();
    }
    assert!(liar.status().paths.len() <= MAX_PATHS + 1);
    liar.check_alive();
}

#[test]
fn a_peer_that_uses_every_path_id_from_everywhere_gets_sixteen() {
    let mut liar = Liar::new(Scheduler::Auto);
    for id in 0..=u16::MAX {
        liar.probe(id, elsewhere(id.into()));
        if id % 4096 == 0 {
            liar.pass(100 * MS);
            liar.check();
        }
    }
    liar.pass(5 * S);
    liar.check();
    let status = liar.status();
    assert!(status.counters.refused_paths > 30_000, "{status:#?}");
    liar.check_alive();
}

#[test]
fn a_peer_that_moves_all_the_time_makes_nobody_get_more_than_three_times_its_bytes() {
    let mut liar = Liar::new(Scheduler::Auto);
    for n in 0..5000 {
        liar.offer(2);
        liar.probe(OWN, elsewhere(n));
        liar.pass(MS);
    }
    liar.pass(20 * S);
    liar.check();
    assert!(liar.status().paths.len() <= 3);
}

#[test]
fn inner_packets_with_a_source_that_is_not_the_peers_are_dropped() {
    let mut liar = Liar::new(Scheduler::Auto);
    let to = [10, 99, 0, 1];
    let sources =
        [[10, 88, 0, 1], [10, 99, 0, 1], [127, 0, 0, 1], [0; 4], [255; 4], [224, 0, 0, 1], [192, 0, 2, 1]];
    for (order, source) in (0..).zip(sources) {
        liar.data(liar.listed, home(), order, &inner_packet(source, to, 100));
    }
    liar.pass(2 * S);
    assert_eq!(liar.status().counters.received_foreign_source, sources.len() as u64);
    assert!(liar.inner.is_empty());
    liar.check_alive();
}

#[test]
fn inner_packets_that_are_none_are_dropped() {
    let mut liar = Liar::new(Scheduler::Auto);
    let good = inner_packet([10, 77, 0, 1], [10, 99, 0, 1], 100);
    let mut order = 0;
    for length in 0..20 {
        liar.data(liar.listed, home(), order, &good[..length]);
        order += 1;
    }
    for (at, value) in [(0, 0x55), (0, 0x44), (0, 0x4f), (0, 0x65), (3, 19), (2, 0xff)] {
        let mut bad = good.clone();
        bad[at] = value;
        liar.data(liar.listed, home(), order, &bad);
        order += 1;
    }
    liar.pass(2 * S);
    let valid = |p: &Vec<u8>| packet::Ip::parse(p).is_ok();
    assert!(liar.inner.iter().all(valid), "{:?}", liar.inner);
    liar.check();
    liar.check_alive();
}

/// First pieces only, pieces of packets that contradict each other, and such as are larger together than a packet is.
#[test]
fn pieces_that_make_no_packet_hold_bounded_memory() {
    let mut liar = Liar::new(Scheduler::Auto);
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let good = inner_packet([10, 77, 0, 1], [10, 99, 0, 1], 1000);
    let whole = |liar: &mut Liar, order| {
        let before = liar.inner.len();
        for (index, bytes) in (0..).zip(good.chunks(400)) {
            liar.piece(liar.listed, home(), order, Piece { index, of: 3 }, bytes);
        }
        liar.pass(3 * S);
        assert_eq!(liar.inner[before..], [&good[..]], "an honest packet in pieces comes out");
    };
    whole(&mut liar, 0);
    for round in 0..20_000u32 {
        let of = 1 + rng.next_u32() as u8 % MAX_PIECES as u8;
        let piece = match round % 4 {
            0 | 1 => Piece { index: 0, of: MAX_PIECES as u8 },
            _ => Piece { index: rng.next_u32() as u8 % of, of },
        };
        let size = [0, 1, 1400, 8191, 60_000][rng.next_u32() as usize % 5];
        liar.piece(liar.listed, home(), round + 1, piece, &vec![0x45; size]);
        if round % 100 == 0 {
            liar.pass(MS);
            liar.check();
        }
    }
    // All eight at once, each as large as a datagram.
    for index in 0..8 {
        liar.piece(liar.listed, home(), 30_000, Piece { index, of: 8 }, &vec![0x45; 60_000]);
    }
    liar.pass(5 * S);
    let counters = liar.status().counters;
    assert!(counters.received_incomplete > 9000, "{counters:?}");
    assert!(liar.inner.len() < 10, "{}", liar.inner.len());
    whole(&mut liar, 30_001);
    liar.check_alive();
}

#[test]
fn only_a_peer_that_takes_pieces_gets_them() {
    for pieces in [true, false] {
        // Of 1280 bytes outside.
        let mut liar = Liar::over(Scheduler::Auto, 1280 - 28 - HEADER_LEN - TAG_LEN, pieces, "fd77::/64");
        let mut packet = vec![0; 1280];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&1240u16.to_be_bytes());
        packet[6] = 59;
        packet[24..26].copy_from_slice(&[0xfd, 0x77]);
        liar.heard.clear();
        liar.end.handle_inner(liar.now, &mut packet);
        liar.turn();
        let sizes: Vec<_> =
            liar.heard.iter().filter(|(_, frame)| frame[0] == 1).map(|(_, frame)| frame.len()).collect();
        assert_eq!(sizes, if pieces { vec![652; 2] } else { Vec::new() });
        let path = liar.status().paths.into_iter().find(|path| path.id == liar.listed).unwrap();
        let why = path.why.unwrap();
        let (state, word) = if pieces { ("up", "in 2 datagrams") } else { ("checking", "needs 1352") };
        assert!(path.state == state && why.contains(word), "{}: {why}", path.state);
    }
}

#[test]
fn orders_that_jump_hold_bounded_memory() {
    let mut liar = Liar::new(Scheduler::Auto);
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let inner = inner_packet([10, 77, 0, 1], [10, 99, 0, 1], 1400);
    for round in 0..30_000u32 {
        let order = match round % 3 {
            0 => round + 2 + rng.next_u32() % 100_000,
            1 => round.wrapping_mul(1 << 30),
            _ => number(&mut rng) as u32,
        };
        liar.data(liar.listed, home(), order, &inner);
        if round % 100 == 0 {
            liar.pass(MS);
            liar.check();
        }
    }
    liar.pass(5 * S);
    assert!(liar.status().reorder_bytes <= MAX_REORDER);
    assert!(liar.inner.len() <= 30_000, "each at most once");
    liar.check_alive();
}

#[test]
fn floors_and_nexts_far_ahead_only_lose_the_liars_own_packets() {
    let mut liar = Liar::new(Scheduler::Auto);
    for step in [1u32 << 10, 1 << 20, 1 << 30, (1 << 31) - 1, 1 << 31, u32::MAX] {
        for (floor, next) in [(step, step), (step, 0), (0, step)] {
            let order = Order { floor, next };
            let mut plain = Vec::new();
            frame::put_probe(&mut plain, order, 0, 16);
            liar.say(liar.listed, home(), &plain);
            liar.pass(100 * MS);
            liar.check();
        }
    }
    liar.check_alive();
}

#[test]
fn a_flood_of_challenges_is_answered_one_at_a_time() {
    let mut liar = Liar::new(Scheduler::Auto);
    liar.heard.clear();
    for token in 0..20_000 {
        let mut plain = Vec::new();
        frame::put_challenge(&mut plain, token, false);
        liar.say(liar.listed, home(), &plain);
    }
    let responses = liar.heard.iter().filter(|(_, plain)| plain.first() == Some(&6)).count();
    assert!(responses > 0 && responses <= 20_000);
    let (there, back) = liar.exchanged[&home()];
    assert!(back <= 3 * there, "{back} bytes for {there}");
    // Responses that nobody asked for move nothing.
    let before = liar.status().paths.iter().map(|p| p.remote).collect::<Vec<_>>();
    for token in 0..2000 {
        let mut plain = Vec::new();
        frame::put_challenge(&mut plain, token, true);
        liar.say(liar.listed, elsewhere(1), &plain);
    }
    assert_eq!(liar.status().paths.iter().map(|p| p.remote).collect::<Vec<_>>(), before);
    liar.check();
}

#[test]
fn frames_cut_at_any_length_are_counted_and_nothing_else() {
    let mut liar = Liar::new(Scheduler::Auto);
    let mut frames = vec![Vec::new(); 4];
    let report = Report { path: liar.listed, ranges: vec![1..=5, 0..=0], ..Report::default() };
    frame::put_feedback(&mut frames[0], Order::default(), 0, &[report], 60_000);
    frame::put_announce(&mut frames[1], 1, [(OWN, "name", 0)].into_iter());
    frame::put_probe(&mut frames[2], Order::default(), 0, 16);
    frame::put_challenge(&mut frames[3], 7, true);
    let mut cut = 0;
    for whole in &frames {
        for length in 0..whole.len() {
            liar.say(liar.listed, home(), &whole[..length]);
            let mut bytes = whole[..length].to_vec();
            assert!(Frame::parse(&mut bytes).is_err());
            cut += 1;
        }
    }
    assert_eq!(liar.status().counters.received_malformed, cut);
    liar.check();
    liar.check_alive();
}

#[test]
fn a_peer_that_is_reborn_all_the_time_leaves_nothing_behind() {
    let mut liar = Liar::new(Scheduler::Auto);
    for life in 0..300 {
        liar.be_reborn();
        if life % 2 == 0 {
            liar.probe(OWN, home());
        }
        liar.offer(5);
        liar.pass(500 * MS);
        liar.check();
        let sessions = liar.end.peers()[0].sessions.indices().count();
        assert!(sessions <= 4 + 256 + 1, "{sessions} sessions");
    }
}
