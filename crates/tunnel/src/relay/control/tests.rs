//! The relay's rules, one test each. `Net` holds a relay and its clients on virtual time; whatever the relay answers
//! or sends is checked on the way for its size.

use std::collections::HashMap;

use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

mod destination;
mod handshake;
mod hostile;
mod limits;

use rand_chacha::ChaCha20Rng;

use super::*;
use crate::{
    handshake::client_mac::ClientMac,
    handshake::noise::{self, Initiator, Prologue},
    keys::PresharedKey,
    path::registration::{RegisterPayload, Registration, SessionPayload},
    wire::{Direction, RELAY_HEADER_LEN, relay_header},
};

struct Net {
    now: Duration,
    rng: ChaCha20Rng,
    relay: RelayControl,
    relay_key: PublicKey,
    /// Bytes that the relay took from clients and sent to each address.
    sent: HashMap<SocketAddr, usize>,
    /// What the relay sent unasked, by `poll_transmit`.
    mail: Vec<(SocketAddr, Vec<u8>)>,
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn home() -> SocketAddr {
    address("192.0.2.1:1000")
}

fn away() -> SocketAddr {
    address("198.51.100.1:2000")
}

fn office() -> SocketAddr {
    address("203.0.113.7:51900")
}

fn key(seed: u64) -> PrivateKey {
    PrivateKey::generate(&mut ChaCha20Rng::seed_from_u64(seed))
}

impl Net {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    /// A relay that allows the keys 1 and 2.
    fn with(limits: Limits) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(99);
        let me = PrivateKey::generate(&mut rng);
        let relay_key = me.public();
        let allow = [key(1).public(), key(2).public()];
        let relay = RelayControl::new(me, allow, limits, &mut rng);
        let (sent, mail) = (HashMap::new(), Vec::new());
        Self { now: Duration::from_secs(50), rng, relay, relay_key, sent, mail }
    }

    fn give(&mut self, source: SocketAddr, datagram: &[u8]) -> Action {
        let action = self.relay.handle_datagram(self.now, source, datagram);
        if let Action::Reply(reply) = &action {
            assert!(reply.len() <= datagram.len(), "a reply larger than its request");
        }
        self.collect();
        action
    }

    fn collect(&mut self) {
        while let Some((to, message)) = self.relay.poll_transmit(self.now) {
            *self.sent.entry(to).or_default() += message.len();
            self.mail.push((to, message));
        }
    }

    /// Lets time go by, deadline after deadline.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.relay.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.collect();
        }
        self.now = end;
        self.collect();
    }

    fn reply(&mut self, source: SocketAddr, datagram: &[u8]) -> Vec<u8> {
        match self.give(source, datagram) {
            Action::Reply(reply) => reply,
            other => panic!("{other:?} instead of a reply"),
        }
    }

    fn client(&mut self, seed: u64, destination: SocketAddr) -> Registration {
        Registration::new(self.now, &key(seed), &self.relay_key, destination, &mut self.rng)
    }

    /// The third message of a client who has asked from `source`.
    fn third(&mut self, client: &mut Registration, source: SocketAddr) -> Vec<u8> {
        let initiation = client.poll_transmit(self.now).expect("an initiation");
        let response = self.reply(source, &initiation);
        assert!(client.handle_message(self.now, &response));
        client.poll_transmit(self.now).expect("a third message")
    }

    /// A client with a session that waits for its destination's consent.
    fn waiting(&mut self, seed: u64, source: SocketAddr, destination: SocketAddr) -> Registration {
        let mut client = self.client(seed, destination);
        let third = self.third(&mut client, source);
        assert_eq!(self.give(source, &third), Action::Taken);
        client
    }

    /// A client with an open session.
    fn open(&mut self, seed: u64, source: SocketAddr, destination: SocketAddr) -> Registration {
        let mut client = self.waiting(seed, source, destination);
        let (session, token) = self.challenge_to(destination);
        assert_eq!(self.give(destination, &wire::echo(session, token)), Action::Taken);
        let answer = self.mail_to(source).expect("an answer");
        assert!(client.handle_message(self.now, &answer));
        assert_eq!(client.session(), Some(session));
        client
    }

    fn mail_to(&mut self, address: SocketAddr) -> Option<Vec<u8>> {
        let at = self.mail.iter().position(|(to, _)| *to == address)?;
        Some(self.mail.remove(at).1)
    }

    fn challenge_to(&mut self, destination: SocketAddr) -> (u64, [u8; TAG_LEN]) {
        let challenge = self.mail_to(destination).expect("a challenge");
        match Message::parse(&challenge) {
            Ok(Message::Challenge { session, token }) => (session, token),
            other => panic!("{other:?} instead of a challenge"),
        }
    }

    fn up(&mut self, source: SocketAddr, session: u64) -> Action {
        self.give(source, &data(Direction::Up, session))
    }

    fn down(&mut self, source: SocketAddr, session: u64) -> Action {
        self.give(source, &data(Direction::Down, session))
    }

    /// The pieces of state that grow.
    fn sizes(&self) -> [usize; 7] {
        let relay = &self.relay;
        [
            relay.pending.len(),
            relay.sessions.len(),
            relay.indices.len(),
            relay.addresses.len(),
            relay.waiting.len(),
            relay.deadlines.len(),
            relay.table.len(),
        ]
    }
}

fn data(direction: Direction, session: u64) -> Vec<u8> {
    [&relay_header(direction, session)[..], b"sealed"].concat()
}

/// An initiation made by hand.
fn initiation(net: &mut Net, seed: u64, payload: RegisterPayload) -> (Initiator, Vec<u8>) {
    knock(net, seed, seed, Prologue::Relay, payload)
}

/// The same by who knocks as client `knocker`, whose initiation is client `seed`'s.
fn knock(
    net: &mut Net,
    knocker: u64,
    seed: u64,
    prologue: Prologue,
    payload: RegisterPayload,
) -> (Initiator, Vec<u8>) {
    let psk = PresharedKey::default();
    let (mut initiator, mut message) =
        Initiator::new(&mut net.rng, prologue, &key(seed), &net.relay_key, &psk, 0, &payload.encode())
            .unwrap();
    let knock = ClientMac::of_client(&key(knocker), &net.relay_key).unwrap();
    initiator.rename(knock.index(&noise::ephemeral(&message)), &mut message);
    knock.jar().stamp(net.now, &mut message);
    (initiator, message)
}

fn to_office(session: u64) -> RegisterPayload {
    RegisterPayload { destination: office(), session, life: 7, counter: 1 }
}

#[test]
fn forwards_on_source_address_and_session_only() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    assert_eq!(net.up(home(), session), Action::Forward { to: office() });
    assert_eq!(net.down(office(), session), Action::Forward { to: home() });
    for source in [away(), address("192.0.2.1:1001"), office()] {
        assert_eq!(net.up(source, session), Action::Drop(DropReason::WrongSource));
    }
    for source in [away(), address("203.0.113.7:51901"), home()] {
        assert_eq!(net.down(source, session), Action::Drop(DropReason::WrongSource));
    }
    assert_eq!(net.up(home(), session ^ 1), Action::Drop(DropReason::UnknownSession));
    let bytes = data(Direction::Up, session).len() as u64;
    assert_eq!(net.relay.table().counters().forwarded_total(), (2, 2 * bytes));
    assert_eq!(net.relay.table().counters().dropped(DropReason::WrongSource), 6);
}

#[test]
fn an_ipv4_address_is_the_same_through_an_ipv6_socket() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    assert_eq!(net.up(address("[::ffff:192.0.2.1]:1000"), session), Action::Forward { to: office() });
}

#[test]
fn only_allowed_keys_are_answered() {
    let mut net = Net::new();
    let initiation = net.client(3, office()).poll_transmit(net.now).unwrap();
    assert_eq!(net.give(home(), &initiation), Action::Drop(DropReason::NotAllowed));
    assert!(net.relay.clients.is_empty());
}

#[test]
fn a_wrong_mac1_costs_one_hash() {
    let mut net = Net::new();
    let mut initiation = net.client(1, office()).poll_transmit(net.now).unwrap();
    initiation[136] ^= 1;
    assert_eq!(net.give(home(), &initiation), Action::Drop(DropReason::Mac1));
}

#[test]
fn a_handshake_for_a_tunnel_is_none_for_a_relay() {
    let mut net = Net::new();
    let message = knock(&mut net, 1, 1, Prologue::Tunnel, to_office(0)).1;
    assert_eq!(net.give(home(), &message), Action::Drop(DropReason::Handshake));
}

#[test]
fn malformed_and_foreign_messages_are_dropped() {
    let mut net = Net::new();
    assert_eq!(net.give(home(), &[]), Action::Drop(DropReason::Malformed));
    let transport = [&[0x14][..], &[0; 40]].concat();
    assert_eq!(net.give(home(), &transport), Action::Drop(DropReason::NotForRelay));
    let challenge = wire::challenge(1, [0; TAG_LEN]);
    assert_eq!(net.give(home(), &challenge), Action::Drop(DropReason::NotForRelay));
    let table = net.relay.table();
    assert_eq!(table.forward(net.now, home(), &transport), Action::Drop(DropReason::NotForRelay));
    assert_eq!(table.forward(net.now, home(), &[0x18; 5]), Action::Drop(DropReason::Malformed));
}

#[test]
fn an_address_that_is_no_host_is_no_destination() {
    let mut net = Net::new();
    let bad = [
        "0.0.0.0:1",
        "255.255.255.255:1",
        "224.0.0.1:1",
        "192.0.2.1:0",
        "[::]:1",
        "[ff02::1]:1",
        "[fe80::1]:1",
    ];
    for destination in bad.map(address) {
        let initiation = net.client(1, destination).poll_transmit(net.now).unwrap();
        assert_eq!(net.give(home(), &initiation), Action::Drop(DropReason::Destination), "{destination}");
    }
}

#[test]
fn there_is_no_session_before_the_third_message() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    assert!(net.relay.table().is_empty() && net.mail.is_empty());
    assert_eq!(net.give(home(), &third), Action::Taken);
    assert_eq!(net.relay.table().len(), 1);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = || {
        let mut net = Net::new();
        let mut client = net.client(1, office());
        let third = net.third(&mut client, home());
        net.give(home(), &third);
        (third, net.mail)
    };
    assert_eq!(run(), run());
}

#[test]
fn two_threads_forward_at_once() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    let table = net.relay.table();
    let forward = |direction, source| {
        let (table, now) = (table.clone(), net.now);
        move || {
            let datagram = data(direction, session);
            (0..1000)
                .filter(|_| matches!(table.forward(now, source, &datagram), Action::Forward { .. }))
                .count()
        }
    };
    let threads = [(Direction::Up, home()), (Direction::Down, office())]
        .map(|(direction, source)| std::thread::spawn(forward(direction, source)));
    assert_eq!(threads.map(|thread| thread.join().unwrap()), [1000, 1000]);
    assert_eq!(table.counters().forwarded_total().0, 2000);
}

#[test]
fn every_reason_has_its_own_counter() {
    for (i, reason) in DropReason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, i);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn datagrams_never_panic(datagrams in proptest::collection::vec(
        (1u8..12, ::proptest::collection::vec(any::<u8>(), 0..180), any::<bool>()), 0..20,
    )) {
        let mut net = Net::new();
        let session = net.open(1, home(), office()).session().unwrap();
        for (kind, mut datagram, ours) in datagrams {
            if datagram.len() > RELAY_HEADER_LEN {
                datagram[..4].copy_from_slice(&[0x10 | kind, 0, 0, 0]);
                if ours {
                    datagram[4..12].copy_from_slice(&session.to_be_bytes());
                }
            }
            net.give(home(), &datagram);
        }
        prop_assert_eq!(net.relay.table().len(), 1);
    }

    /// Whatever is lost or doubled for a while, there is a session soon after.
    #[test]
    fn registers_after_any_loss(seed in any::<u64>(), lossy_steps in 0usize..40) {
        let mut fate = ChaCha20Rng::seed_from_u64(seed);
        let mut net = Net::new();
        let mut client = net.client(1, office());
        for _ in 0..lossy_steps {
            step(&mut net, &mut client, || fate.next_u32() % 3);
        }
        let deadline = net.now + Duration::from_secs(30);
        while client.session().is_none() && net.now < deadline {
            step(&mut net, &mut client, || 1);
        }
        prop_assert!(client.session().is_some());
        let session = client.session().unwrap();
        prop_assert_eq!(net.up(home(), session), Action::Forward { to: office() });
    }
}

/// One deadline of either end; `copies` says how often each datagram arrives.
fn step(net: &mut Net, client: &mut Registration, mut copies: impl FnMut() -> u32) {
    let due = client.poll_timeout().into_iter().chain(net.relay.poll_timeout()).min().unwrap();
    net.now = net.now.max(due);
    net.collect();
    if let Some(session) = client.session() {
        net.down(office(), session);
    }
    while let Some(message) = client.poll_transmit(net.now) {
        for _ in 0..copies() {
            if let Action::Reply(reply) = net.give(home(), &message) {
                net.mail.push((home(), reply));
            }
        }
        deliver(net, client, &mut copies);
    }
    deliver(net, client, &mut copies);
}

fn deliver(net: &mut Net, client: &mut Registration, copies: &mut impl FnMut() -> u32) {
    while let Some((_, message)) = net.mail.pop() {
        for _ in 0..copies() {
            match Message::parse(&message) {
                Ok(Message::Challenge { session, token }) => {
                    net.give(office(), &wire::echo(session, token));
                }
                _ => {
                    client.handle_message(net.now, &message);
                }
            }
        }
    }
}
