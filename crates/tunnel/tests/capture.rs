//! What a capture is told of two ends in virtual time, and that an endpoint does the same whether anybody captures or not.

use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use tunnel::capture::{Captured, Direction, Layer, TrainNotes};
use tunnel::endpoint::{Arrival, Endpoint};
use tunnel::wire::train::Train;
use tunnel::{Bicast, Config, Local, PathConfig, PeerConfig, PresharedKey, PrivateKey};

const MS: Duration = Duration::from_millis(1);
const ADDRESSES: [([u8; 4], u16); 2] = [([192, 0, 2, 1], 4000), ([203, 0, 113, 1], 4000)];

/// A van that lists the path `lte` to its office, and the office.
struct Pair {
    now: Duration,
    ends: [Endpoint; 2],
    train: Train,
    /// Datagrams under way: to which end, and the datagram.
    under_way: Vec<(usize, Vec<u8>)>,
    /// All that was sent, for comparing.
    sent: Vec<Vec<u8>>,
    delivered: Vec<Vec<u8>>,
    captured: [Vec<Captured>; 2],
    /// Larger datagrams are lost.
    largest: usize,
}

impl Pair {
    fn new(captured: bool) -> Pair {
        let mut pair = Pair::over(captured, usize::MAX);
        pair.pass(1000);
        pair
    }

    /// Over a link that carries datagrams of so many bytes.
    fn over(captured: bool, largest: usize) -> Pair {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let keys = [PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng)];
        let path = PathConfig {
            name: "lte".into(),
            local: Local::Any,
            remote: SocketAddr::from(ADDRESSES[1]).into(),
            via: None,
            backup: false,
            receive: true,
            cost: Default::default(),
        };
        let end = |at: usize| {
            let peer = PeerConfig {
                name: ["office", "van"][at].into(),
                public_key: keys[1 - at].public(),
                preshared_key: PresharedKey::default(),
                routes: [["10.77.0.2/32", "fd77::2/128"], ["10.77.0.1/32", "fd77::1/128"]][at]
                    .map(|net| net.parse().expect("a net"))
                    .to_vec(),
                keepalive: None,
                resend: true,
                bicast: Bicast::Off,
                paths: if at == 0 { vec![path.clone()] } else { Vec::new() },
            };
            let config = Config { peers: vec![peer], ..Config::default() };
            Endpoint::new(config, keys[at].clone(), &mut ChaCha20Rng::from_seed([at as u8; 32]))
        };
        let mut pair = Pair {
            now: Duration::from_secs(1),
            ends: [end(0), end(1)],
            train: Train::default(),
            under_way: Vec::new(),
            sent: Vec::new(),
            delivered: Vec::new(),
            captured: Default::default(),
            largest,
        };
        pair.train.notes = captured.then(TrainNotes::default);
        pair.ends.iter_mut().for_each(|end| end.set_captured(captured));
        pair.ends[0].set_local(pair.now, 0, 0, Some(Default::default()));
        pair
    }

    /// So many milliseconds; each datagram takes one.
    fn pass(&mut self, milliseconds: u32) {
        for _ in 0..milliseconds {
            self.now += MS;
            let arrived = std::mem::take(&mut self.under_way);
            for (to, datagram) in arrived {
                self.give(to, datagram);
            }
            for at in 0..2 {
                let end = &mut self.ends[at];
                end.work(self.now);
                end.handle_timeout(self.now);
                while end.poll_transmit(self.now, &mut self.train) {
                    let captured = &mut self.captured[at];
                    self.train.tell(|one| captured.push(one));
                    for datagram in self.train.datagrams() {
                        self.sent.push(datagram.to_vec());
                        if datagram.len() <= self.largest {
                            self.under_way.push((1 - at, datagram.to_vec()));
                        }
                    }
                }
                self.delivered.extend(std::iter::from_fn(|| end.poll_inner()));
                self.captured[at].extend(end.take_captured());
            }
        }
    }

    fn give(&mut self, to: usize, mut datagram: Vec<u8>) {
        let arrival =
            Arrival { remote: SocketAddr::from(ADDRESSES[1 - to]), local: Default::default(), tos: 0 };
        self.ends[to].handle_datagram(self.now, &arrival, &mut datagram);
    }

    fn comments(&self, at: usize, layer: Layer, direction: Direction) -> Vec<&str> {
        let wanted = |one: &&Captured| one.layer == layer && one.direction == direction;
        self.captured[at].iter().filter(wanted).map(|one| one.comment.as_str()).collect()
    }

    fn forget(&mut self) {
        self.captured.iter_mut().for_each(Vec::clear);
    }
}

/// From the van to `destination`.
fn packet(destination: [u8; 4], size: usize) -> Vec<u8> {
    let mut packet = vec![0; size];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(size as u16).to_be_bytes());
    (packet[8], packet[9]) = (64, 17);
    packet[12..16].copy_from_slice(&[10, 77, 0, 1]);
    packet[16..20].copy_from_slice(&destination);
    packet[24..26].copy_from_slice(&(size as u16 - 20).to_be_bytes());
    packet
}

#[test]
fn every_packet_is_noted_at_both_ends() {
    let mut pair = Pair::new(true);
    let shaken = pair.comments(0, Layer::Outer, Direction::Out);
    assert_eq!(shaken[0], "handshake: initiation");
    assert!(pair.comments(0, Layer::Outer, Direction::In).contains(&"handshake: response"));
    assert!(shaken.iter().any(|one| one.contains("announces, edition 0: lte")), "{shaken:?}");
    pair.forget();

    let inner = packet([10, 77, 0, 2], 200);
    pair.ends[0].handle_inner(pair.now, &mut inner.clone());
    pair.pass(50);
    assert_eq!(pair.delivered, std::slice::from_ref(&inner));
    let sent = pair.captured[0].iter().find(|one| one.layer == Layer::Inner).expect("it is sent");
    assert_eq!(
        (&sent.packet, sent.peer.as_deref(), sent.path.as_deref()),
        (&inner, Some("office"), Some("lte"))
    );
    assert!(sent.comment.starts_with("order "), "{}", sent.comment);
    let come = pair.captured[1].iter().find(|one| one.layer == Layer::Inner).expect("it comes");
    assert_eq!((&come.packet, come.peer.as_deref(), come.direction), (&inner, Some("van"), Direction::In));
    assert!(come.comment.ends_with("; handed on"), "{}", come.comment);
    let outer = pair.comments(1, Layer::Outer, Direction::In);
    assert!(
        outer.iter().any(|one| one.contains(": data, order ") && one.ends_with(", 200 bytes")),
        "{outer:?}"
    );
    let reports = pair.comments(1, Layer::Outer, Direction::Out);
    assert!(reports.iter().any(|one| one.contains(": feedback: path id ")), "{reports:?}");
    // What is noted as sent is what the other end gets, byte for byte.
    let bytes = |at: usize, direction| -> Vec<_> {
        let outer = pair.captured[at]
            .iter()
            .filter(move |one| one.layer == Layer::Outer && one.direction == direction);
        outer.map(|one| one.packet.clone()).collect()
    };
    assert_eq!(bytes(0, Direction::Out), bytes(1, Direction::In));
}

/// Each datagram is noted with its piece, and the inner packet once, whole.
#[test]
fn a_packet_in_pieces_is_noted_once() {
    let mut pair = Pair::over(true, 1280 - 28);
    pair.pass(5000);
    pair.forget();
    let inner = packet([10, 77, 0, 2], 1280);
    pair.ends[0].handle_inner(pair.now, &mut inner.clone());
    pair.pass(50);
    assert_eq!(pair.delivered, std::slice::from_ref(&inner));
    for (at, direction) in [(0, Direction::Out), (1, Direction::In)] {
        let whole: Vec<_> = pair.captured[at].iter().filter(|one| one.layer == Layer::Inner).collect();
        assert_eq!(whole.iter().map(|one| &one.packet).collect::<Vec<_>>(), [&inner]);
        assert!(whole[0].comment.starts_with("order "), "{}", whole[0].comment);
        let mut outer = pair.comments(at, Layer::Outer, direction);
        outer.retain(|comment| comment.contains(": data, "));
        assert!(outer.len() == 2, "{outer:?}");
        assert!(outer[0].ends_with(", piece 1 of 2, 640 bytes"), "{}", outer[0]);
        assert!(outer[1].ends_with(", piece 2 of 2, 640 bytes"), "{}", outer[1]);
    }
}

#[test]
fn what_goes_nowhere_says_why() {
    let mut pair = Pair::new(true);
    pair.ends[0].handle_inner(pair.now, &mut packet([10, 99, 0, 9], 200));
    pair.ends[0].handle_inner(pair.now, &mut packet([10, 77, 0, 2], 9000));
    pair.ends[0].handle_inner(pair.now, &mut packet([10, 77, 0, 2], 200));
    pair.pass(5);
    let mut inner = pair.comments(0, Layer::Inner, Direction::Out);
    inner.retain(|comment| comment.starts_with("dropped"));
    assert_eq!(inner[0], "dropped: no peer is routed its destination; its sender is told");
    assert_eq!(inner[1], "dropped: it is larger than the paths carry; its sender is told");
    // The last data datagram once more, and one that nobody's key opens.
    let data = pair.captured[1]
        .iter()
        .rev()
        .find(|one| one.comment.contains(": data, "))
        .expect("data")
        .packet
        .clone();
    pair.forget();
    pair.give(1, data.clone());
    let mut forged = data;
    forged[12] ^= 1;
    pair.give(1, forged);
    pair.give(1, b"nonsense".to_vec());
    pair.pass(1);
    let outer = pair.comments(1, Layer::Outer, Direction::In);
    assert!(outer[0].ends_with("; it has come before"), "{outer:?}");
    assert!(outer[1].ends_with("; no key opens it"), "{outer:?}");
    assert!(outer[2].starts_with("version 6 "), "{outer:?}");
}

#[test]
fn nothing_is_noted_unless_asked_and_nothing_else_changes() {
    let run = |captured| {
        let mut pair = Pair::new(captured);
        for _ in 0..200 {
            pair.ends[0].handle_inner(pair.now, &mut packet([10, 77, 0, 2], 1200));
            pair.pass(1);
        }
        pair
    };
    let (with, without) = (run(true), run(false));
    assert_eq!((&with.sent, &with.delivered), (&without.sent, &without.delivered));
    assert!(without.captured.iter().all(Vec::is_empty));
    assert!(with.captured[0].len() > 400);
}
