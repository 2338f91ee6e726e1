//! What the fuzzers call, and `tests/corpus.rs` on stable Rust. No bytes may make it panic, or grow without bound.
#![allow(dead_code, reason = "each fuzzer calls one of these")]

use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};
use tunnel::capture::{self, Direction, Ends, Layer, Opened};
use tunnel::daemon::dns::{Question, Reply};
use tunnel::endpoint::{Arrival, Endpoint};
use tunnel::handshake::client_mac::{ClientMac, ClientMacs};
use tunnel::handshake::cookie::{CookieChecker, CookieJar};
use tunnel::handshake::noise::{self, InitiationPayload, Initiator, Prologue, Responder, ResponsePayload};
use tunnel::handshake::session::SealingKey;
use tunnel::path::pieces::{MAX_BYTES, Pieces};
use tunnel::path::registration::{RegisterPayload, Registration, SessionPayload};
use tunnel::relay::{Limits, RelayControl};
use tunnel::tls::frames::{self, Frames};
use tunnel::wire::frame::{Frame, MAX_PIECES, Piece};
use tunnel::wire::train::Train;
use tunnel::wire::{self, HEADER_LEN, INITIATION_LEN, Message, PAYLOAD_LEN, TAG_LEN, TransportHeader};
use tunnel::{Bicast, Config, Local, PathConfig, PeerConfig, PresharedKey, PrivateKey};

/// A datagram.
pub fn wire(data: &[u8]) {
    let parsed = Message::parse(data);
    assert_eq!(wire::peel(data).is_some(), matches!(parsed, Ok(Message::Relayed { .. })));
}

/// What a resolver answers to a question for addresses of IPv4, or with an odd first byte of IPv6.
pub fn dns(data: &[u8]) {
    let Some((first, message)) = data.split_first() else { return };
    let question = Question { id: 7, name: "office.example".into(), v6: first % 2 == 1 };
    if let Some(Reply::Addresses(found)) = question.reply(message) {
        assert!(found.len() <= 16 && found.iter().all(|ip| ip.is_ipv6() == question.v6));
    }
}

/// A stream of frames, in pieces of as many bytes as the first byte says.
pub fn tls_frames(data: &[u8]) {
    let Some((size, stream)) = data.split_first() else { return };
    let take = |size: usize| {
        let (mut frames, mut all) = (Frames::default(), Vec::new());
        let whole =
            stream.chunks(size).try_for_each(|piece| frames.take(piece, |one| all.push(one.to_vec())));
        (all, whole)
    };
    let (all, whole) = take(usize::from(*size).max(1));
    assert_eq!((&all, whole), (&take(usize::MAX).0, take(usize::MAX).1));
    let mut again = Vec::new();
    assert!(all.iter().all(|one| frames::put(&mut again, one)) && stream.starts_with(&again));
}

/// A plaintext.
pub fn frame(data: &[u8]) {
    if let Ok(Frame::Feedback(_, reports)) = Frame::parse(&mut data.to_vec()) {
        for ranges in reports.iter().map(|r| &r.ranges) {
            assert!(ranges.windows(2).all(|w| *w[1].end() < *w[0].start()), "downwards and disjoint");
        }
    }
}

/// Datagrams, each behind its length in two bytes and a byte that says who sends it, how much later, and whether mac1
/// is made right.
pub fn endpoint(data: &[u8]) {
    let mut end = Side::new();
    let mut jar = CookieJar::new(end.endpoint.public_key());
    for (how, bytes) in chunks(data) {
        let mut datagram = bytes.to_vec();
        if how & 0x80 != 0 && datagram.len() >= 32 {
            jar.stamp(end.now, &mut datagram);
        }
        end.take(how, &mut datagram);
    }
    end.check();
}

/// What a capture says of a frame, and of a datagram of the same bytes: one line, whoever made them up.
pub fn capture(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    let ends = Ends { remote: address(*how), local: Default::default(), tos: *how };
    let joined = if how & 4 == 0 { Vec::new() } else { bytes.to_vec() };
    let opened = Opened { path: "a".into(), sequence: 7, frame: bytes.to_vec(), joined, why: String::new() };
    let mut notes = vec![capture::other(Direction::Out, ends, bytes, "")];
    opened.note(Direction::In, "peer", ends, bytes, |note| notes.push(note));
    assert_eq!(notes.iter().filter(|note| note.layer == Layer::Outer && note.packet == bytes).count(), 2);
    assert!(notes.iter().all(|note| !note.comment.contains(char::is_control)), "{notes:?}");
    assert!(notes.iter().all(|note| note.layer == Layer::Outer || bytes.ends_with(&note.packet)));
}

/// Pieces of packets, four bytes each: path and number of pieces, sequence, place and time, size. What comes of them is of pieces of
/// one packet, each in its place, and what waits is little.
pub fn pieces(data: &[u8]) {
    let (mut pieces, mut now, mut came) = (Pieces::default(), Duration::ZERO, 0);
    for [which, sequence, place, size] in data.as_chunks().0 {
        let of = 1 + which % MAX_PIECES as u8;
        let piece = Piece { index: place % of, of };
        now += Duration::from_millis((place >> 3).into());
        pieces.handle_timeout(now, Duration::from_millis(100));
        let path = u16::from(which >> 3);
        // Each byte says whose it is.
        let bytes = vec![which ^ piece.index << 5; usize::from(*size) * 33];
        let joined = pieces.join(now, (path, (*sequence).into()), piece, &bytes, which & 3);
        if let Some((packet, _)) = joined {
            let runs: Vec<_> = packet.chunk_by(|a, b| a == b).map(|run| run[0]).collect();
            assert_eq!(runs, (0..of).map(|index| which ^ index << 5).collect::<Vec<_>>());
            came += 1;
        }
        assert!(pieces.bytes() <= MAX_BYTES && pieces.dropped() + came <= data.len() as u64 / 4);
    }
    pieces.clear();
    assert_eq!(pieces.bytes(), 0);
}

/// Frames under a good session, each behind its length in two bytes and a byte as for `endpoint`; the path and the
/// path sequence are the first three bytes.
pub fn session(data: &[u8]) {
    let mut end = Side::new();
    let Some((key, receiver)) = end.shake_hands() else { panic!("a genuine handshake was refused") };
    for (how, bytes) in chunks(data) {
        let Some(([path, high, low], plain)) = bytes.split_first_chunk::<3>() else { continue };
        let sequence = u64::from(u16::from_be_bytes([*high, *low]));
        let top = if how & 0x80 == 0 { 0 } else { u64::MAX << 16 };
        let header = TransportHeader { path: u16::from(*path), receiver, sequence: top | sequence };
        let mut datagram = header.to_bytes().to_vec();
        datagram.extend(plain);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        let (head, body) = datagram.split_at_mut(HEADER_LEN);
        key.seal(header.path, header.sequence, head.first_chunk().expect("a header"), body);
        end.take(how, &mut datagram);
    }
    end.check();
}

/// Datagrams to a relay, as for `endpoint`.
pub fn relay(data: &[u8]) {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let (me, client) = (PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng));
    let limits = Limits { sessions_per_key: 2, sessions: 4, pending_per_key: 2, pending: 4 };
    let mut now = Duration::from_secs(1);
    let knock = ClientMac::of_client(&client, &me.public()).expect("usable keys");
    let mut jar = knock.jar();
    let mut relay = RelayControl::new(me, [client.public()], limits, &mut rng);
    for (how, bytes) in chunks(data) {
        let mut datagram = bytes.to_vec();
        if how & 0x80 != 0 && datagram.len() >= INITIATION_LEN {
            let index = knock.index(&noise::ephemeral(&datagram));
            datagram[4..8].copy_from_slice(&index.to_be_bytes());
            jar.stamp(now, &mut datagram);
        }
        now += Duration::from_millis(1 << (how >> 2 & 15));
        let _ = relay.handle_datagram(now, address(how), &datagram);
        while relay.poll_transmit(now).is_some() {}
        assert!(relay.table().len() <= 4);
    }
}

/// Handshake messages: the first byte says which genuine one the rest is xored over. One that has been changed before
/// its macs is refused by everybody; one that has not is taken.
pub fn handshake(data: &[u8]) {
    let Some((which, change)) = data.split_first() else { return };
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let (me, peer) = (PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng));
    let psk = PresharedKey::default();
    let mut payload = [0; PAYLOAD_LEN];
    payload.iter_mut().zip(change.iter().skip(INITIATION_LEN)).for_each(|(to, from)| *to = *from);
    payloads(&payload);
    let relay = which & 4 != 0;
    let prologue = if relay { Prologue::Relay } else { Prologue::Tunnel };
    let started = Initiator::new(&mut rng, prologue, &peer, &me.public(), &psk, 9, &payload);
    let (mut initiator, mut initiation) = started.expect("usable keys");
    CookieJar::new(&me.public()).stamp(Duration::ZERO, &mut initiation);
    let genuine = Responder::read(prologue, &me, &initiation).expect("a genuine initiation");
    let (mut response, _) = genuine.reply(&mut rng, &psk, 7, &payload).expect("a response");
    let mut checker = CookieChecker::new(&me.public(), &mut rng);
    let mut jar = CookieJar::new(&me.public());
    jar.stamp(Duration::ZERO, &mut initiation.clone());
    let mut cookie = checker.reply(Duration::ZERO, address(0), &initiation).expect("a cookie").to_vec();
    let message = match which & 3 {
        0 => &mut initiation,
        1 => &mut response,
        _ => &mut cookie,
    };
    let changed = |end: usize| change.iter().take(end).any(|byte| *byte != 0);
    let bytes = message.len();
    let (head, noise) = (changed(if which & 3 == 1 { 12 } else { 8 }), changed(bytes - 32));
    message.iter_mut().zip(change).for_each(|(to, from)| *to ^= *from);
    match which & 3 {
        0 => {
            let read = Responder::read(prologue, &me, message).is_ok();
            assert!(!noise || !read || head, "a changed initiation is read");
            assert!(noise || read, "a genuine initiation is refused");
            assert_eq!(checker.check_mac1(message), !changed(bytes - 16), "mac1 covers all before it");
            assert!(
                ClientMacs::new(&me, [peer.public()]).find(message).is_err(),
                "stamped for the public key only"
            );
        }
        1 => {
            let taken = initiator.finish(message).is_ok();
            assert!(!noise || !taken || head, "a changed response is taken");
            assert!(noise || taken, "a genuine response is refused");
        }
        _ => assert_eq!(
            jar.accept(Duration::ZERO, message),
            !changed(bytes) || only_index(change),
            "a cookie reply"
        ),
    }
    let mut client = Registration::new(Duration::ZERO, &peer, &me.public(), address(1), &mut rng);
    let _ = client.poll_transmit(Duration::ZERO);
    assert!(!client.handle_message(Duration::ZERO, message), "it answers nothing that this client has sent");
}

/// The receiver's index in a cookie reply is not authenticated: it only says who is to look.
fn only_index(change: &[u8]) -> bool {
    change.iter().enumerate().take(64).all(|(at, byte)| *byte == 0 || (4..8).contains(&at))
}

/// Any payload is one, and says the same when written again.
fn payloads(payload: &[u8; PAYLOAD_LEN]) {
    let initiation = InitiationPayload::decode(payload);
    assert_eq!(InitiationPayload::decode(&initiation.encode()), initiation);
    if let Ok(response) = ResponsePayload::decode(payload) {
        assert_eq!(ResponsePayload::decode(&response.encode()), Ok(response));
    }
    let register = RegisterPayload::decode(payload);
    assert_eq!(RegisterPayload::decode(&register.encode()), register);
    let session = SessionPayload::decode(payload);
    assert_eq!(SessionPayload::decode(&session.encode()), session);
}

fn chunks(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let ([high, low, how], rest) = data.split_first_chunk::<3>()?;
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (chunk, rest) = rest.split_at(length);
        data = rest;
        Some((*how, chunk))
    })
}

/// The two lowest bits of `how` choose among four addresses.
fn address(how: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, how & 3], 4000))
}

/// An endpoint and its peer's keys.
struct Side {
    endpoint: Endpoint,
    peer: PrivateKey,
    rng: ChaCha20Rng,
    now: Duration,
    train: Train,
}

impl Side {
    fn new() -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let (me, peer) = (PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng));
        let path = PathConfig {
            name: "a".into(),
            local: Local::Any,
            remote: address(0).into(),
            via: None,
            backup: false,
            receive: true,
            cost: Default::default(),
        };
        let config = PeerConfig {
            name: "peer".into(),
            public_key: peer.public(),
            preshared_key: PresharedKey::default(),
            routes: vec!["10.77.0.0/24".parse().expect("a net")],
            keepalive: None,
            resend: true,
            bicast: Bicast::Off,
            paths: vec![path],
        };
        let config = Config { peers: vec![config], ..Config::default() };
        let mut endpoint = Endpoint::new(config, me, &mut ChaCha20Rng::from_seed([3; 32]));
        let now = Duration::from_secs(1);
        endpoint.set_local(now, 0, 0, Some(Default::default()));
        Side { endpoint, peer, rng, now, train: Train::default() }
    }

    /// The key that the peer seals with after a genuine handshake, and the index that its packets name.
    fn shake_hands(&mut self) -> Option<(SealingKey, u32)> {
        let payload =
            InitiationPayload { incarnation: 5, counter: 1, fast_aes: false, pieces: true }.encode();
        let key = *self.endpoint.public_key();
        let none = PresharedKey::default();
        let index = self.rng.next_u32();
        let (mut initiator, mut message) =
            Initiator::new(&mut self.rng, Prologue::Tunnel, &self.peer, &key, &none, index, &payload).ok()?;
        CookieJar::new(&key).stamp(self.now, &mut message);
        let arrival = Arrival { remote: address(0), local: Default::default(), tos: 0 };
        self.endpoint.handle_datagram(self.now, &arrival, &mut message);
        self.endpoint.work(self.now);
        while self.endpoint.poll_transmit(self.now, &mut self.train) {
            let Ok(finished) = initiator.finish(&self.train.contents) else { continue };
            let cipher = ResponsePayload::decode(&finished.payload).ok()?.cipher;
            return Some((finished.keys.with(cipher).0, finished.remote_index));
        }
        None
    }

    /// A datagram comes, after up to half a minute; inner packets go in; all that is to come out does.
    fn take(&mut self, how: u8, datagram: &mut [u8]) {
        self.now += Duration::from_millis(1 << (how >> 2 & 15));
        let arrival = Arrival { remote: address(how), local: Default::default(), tos: how & 3 };
        self.endpoint.handle_datagram(self.now, &arrival, datagram);
        self.endpoint.work(self.now);
        for size in [40, 1200] {
            let mut inner = vec![0; size];
            inner[0] = 0x45;
            inner[2..4].copy_from_slice(&(size as u16).to_be_bytes());
            inner[16..20].copy_from_slice(&[10, 77, 0, 1]);
            self.endpoint.handle_inner(self.now, &mut inner);
        }
        self.endpoint.handle_timeout(self.now);
        let mut trains = 0;
        while self.endpoint.poll_transmit(self.now, &mut self.train) {
            trains += 1;
            assert!(trains < 10_000, "it never stops sending");
        }
        while self.endpoint.poll_inner().is_some() {}
        let _ = self.endpoint.poll_timeout(self.now);
    }

    fn check(&self) {
        let peer = self.endpoint.status(self.now).peers.remove(0);
        assert!(peer.paths.len() <= 17 && peer.reorder_bytes <= 16 << 20 && peer.queue_bytes <= 8 << 20);
    }
}
