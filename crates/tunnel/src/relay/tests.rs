//! The relay's rules, one test each. `Net` holds a relay and its clients on virtual time; whatever the relay answers
//! or sends is checked on the way for its size.

use std::collections::HashMap;

use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::{
    noise::Initiator,
    registration::Registration,
    wire::{Direction, RELAY_HEADER_LEN, relay_header},
};

const RELAY_IDLE: Duration = IDLE;

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
    let psk = PresharedKey::default();
    let (initiator, mut message) =
        Initiator::new(&mut net.rng, Prologue::Relay, &key(seed), &net.relay_key, &psk, 7, &payload.encode())
            .unwrap();
    CookieJar::new(&net.relay_key).stamp(net.now, &mut message);
    (initiator, message)
}

fn to_office(session: u64) -> RegisterPayload {
    RegisterPayload { destination: office(), session }
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
    let (psk, payload) = (PresharedKey::default(), to_office(0).encode());
    let (key, relay) = (key(1), net.relay_key);
    let mut message =
        Initiator::new(&mut net.rng, Prologue::Tunnel, &key, &relay, &psk, 7, &payload).unwrap().1;
    CookieJar::new(&net.relay_key).stamp(net.now, &mut message);
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
    let reader = table.read();
    assert_eq!(reader.forward(net.now, home(), &transport), Action::Drop(DropReason::NotForRelay));
    assert_eq!(reader.forward(net.now, home(), &[0x18; 5]), Action::Drop(DropReason::Malformed));
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
fn a_destination_gets_only_challenges_until_it_consents() {
    let mut net = Net::new();
    let client = net.waiting(1, home(), office());
    let (session, token) = net.challenge_to(office());
    assert_eq!(client.session(), None);
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::NotOpen));
    assert_eq!(net.down(office(), session), Action::Drop(DropReason::NotOpen));
    net.give(office(), &wire::echo(session, token));
    assert_eq!(net.up(home(), session), Action::Forward { to: office() });
}

#[test]
fn an_echo_needs_the_token_and_the_destinations_address() {
    let mut net = Net::new();
    net.waiting(1, home(), office());
    let (session, token) = net.challenge_to(office());
    let wrong = std::array::from_fn(|i| token[i] ^ 1);
    assert_eq!(net.give(office(), &wire::echo(session, wrong)), Action::Drop(DropReason::Token));
    let right = wire::echo(session, token);
    assert_eq!(net.give(home(), &right), Action::Drop(DropReason::WrongSource));
    let other = wire::echo(session ^ 1, token);
    assert_eq!(net.give(office(), &other), Action::Drop(DropReason::UnknownSession));
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::NotOpen));
}

#[test]
fn a_token_is_good_for_one_session_only() {
    let mut net = Net::new();
    net.waiting(1, home(), office());
    net.waiting(2, away(), office());
    let (first, token) = net.challenge_to(office());
    let (second, _) = net.challenge_to(office());
    assert_ne!(first, second);
    assert_eq!(net.give(office(), &wire::echo(second, token)), Action::Drop(DropReason::Token));
}

#[test]
fn challenges_end_and_never_exceed_what_the_client_sent() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let mut given = 0;
    for _ in 0..4 {
        client.refresh(net.now);
        let third = net.third(&mut client, home());
        net.give(home(), &third);
        given += INITIATION_LEN + REGISTERED_LEN;
        assert!(net.sent[&office()] <= given);
        net.pass(Duration::from_secs(60));
        assert!(net.sent[&office()] <= given);
        while client.poll_transmit(net.now).is_some_and(|message| message.len() != INITIATION_LEN) {}
        client = net.client(1, office());
    }
    let sent = net.sent[&office()];
    assert_eq!(sent, 4 * CHALLENGE_INTERVALS.len() * CHALLENGE_LEN);
    net.pass(RELAY_IDLE);
    assert_eq!(net.sent[&office()], sent);
}

#[test]
fn a_challenge_is_paid_for_by_the_client() {
    let entry = Entry::new(Duration::ZERO, home(), office(), CHALLENGE_LEN + 1);
    assert!(entry.spend(CHALLENGE_LEN));
    assert!(!entry.spend(CHALLENGE_LEN));
    entry.add_credit(CHALLENGE_LEN - 1);
    assert!(entry.spend(CHALLENGE_LEN));
}

#[test]
fn a_destination_that_has_registered_needs_no_challenge() {
    let mut net = Net::new();
    net.open(1, home(), office());
    net.mail.clear();
    let mut client = net.client(2, home());
    let third = net.third(&mut client, away());
    let answer = net.reply(away(), &third);
    assert!(client.handle_message(net.now, &answer));
    assert!(net.mail.is_empty());
    let session = client.session().unwrap();
    assert_eq!(net.up(away(), session), Action::Forward { to: home() });
    assert_eq!(net.down(home(), session), Action::Forward { to: away() });
}

#[test]
fn a_destination_that_registers_consents_to_those_who_wait() {
    let mut net = Net::new();
    let mut first = net.waiting(1, home(), away());
    net.mail.clear();
    net.waiting(2, away(), office());
    let answer = net.mail_to(home()).expect("an answer to who has waited");
    assert!(first.handle_message(net.now, &answer));
    assert_eq!(net.up(home(), first.session().unwrap()), Action::Forward { to: away() });
}

#[test]
fn a_replayed_initiation_moves_nothing() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let first = client.poll_transmit(net.now).unwrap();
    let response = net.reply(home(), &first);
    for source in [home(), away()] {
        assert_eq!(net.give(source, &first), Action::Drop(DropReason::Replayed));
    }
    assert!(client.handle_message(net.now, &response));
    let third = client.poll_transmit(net.now).unwrap();
    assert_eq!(net.give(home(), &third), Action::Taken);
    assert_eq!(net.give(away(), &first), Action::Drop(DropReason::Replayed));
    assert_eq!(net.relay.sessions.values().next().unwrap().client, home());
}

/// Also one that is too old to be remembered.
#[test]
fn a_replayed_initiation_evicts_no_handshake() {
    let mut net = Net::new();
    let old = initiation(&mut net, 1, to_office(0)).1;
    net.reply(home(), &old);
    for _ in 0..64 {
        let newer = initiation(&mut net, 1, to_office(0)).1;
        net.reply(home(), &newer);
    }
    net.pass(PENDING_LIFETIME);
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    net.reply(away(), &old);
    assert_eq!(net.give(home(), &third), Action::Taken);
    assert_eq!(net.relay.sessions.values().next().unwrap().client, home());
}

#[test]
fn a_replayed_third_message_moves_nothing() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    net.give(home(), &third);
    assert_eq!(net.give(away(), &third), Action::Drop(DropReason::WrongSource));
    assert_eq!(net.give(home(), &third), Action::Drop(DropReason::Replayed));
    let before = net.sizes();
    client.refresh(net.now);
    net.pass(RELAY_IDLE + PENDING_LIFETIME);
    assert_eq!(net.give(home(), &third), Action::Drop(DropReason::UnknownHandshake));
    assert_ne!(net.sizes(), before);
    assert_eq!(net.sizes(), [0; 7]);
}

#[test]
fn a_third_message_counts_only_from_where_the_first_came() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    assert_eq!(net.give(away(), &third), Action::Drop(DropReason::WrongSource));
    assert!(net.relay.table().is_empty());
    assert_eq!(net.give(home(), &third), Action::Taken);
}

#[test]
fn a_forged_third_message_spoils_nothing() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    for at in 8..REGISTERED_LEN {
        let mut forged = third.clone();
        forged[at] ^= 1;
        assert_eq!(net.give(home(), &forged), Action::Drop(DropReason::Confirmation), "byte {at}");
    }
    let mut unknown = third.clone();
    unknown[4] ^= 1;
    assert_eq!(net.give(home(), &unknown), Action::Drop(DropReason::UnknownHandshake));
    assert_eq!(net.give(home(), &third), Action::Taken);
    let mut forged = third;
    forged[15] = 9;
    assert_eq!(net.give(home(), &forged), Action::Drop(DropReason::Confirmation));
}

#[test]
fn a_third_message_that_comes_too_late_is_unknown() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    net.pass(PENDING_LIFETIME);
    assert_eq!(net.give(home(), &third), Action::Drop(DropReason::UnknownHandshake));
    assert_eq!(net.sizes(), [0; 7]);
}

#[test]
fn a_client_that_moves_keeps_its_open_session() {
    let mut net = Net::new();
    let mut client = net.open(1, home(), office());
    let session = client.session().unwrap();
    net.pass(Duration::from_secs(5));
    client.refresh(net.now);
    let third = net.third(&mut client, away());
    assert_eq!(net.up(away(), session), Action::Drop(DropReason::WrongSource));
    assert_eq!(net.up(home(), session), Action::Forward { to: office() });
    let answer = net.reply(away(), &third);
    assert!(client.handle_message(net.now, &answer));
    assert_eq!(client.session(), Some(session));
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::WrongSource));
    assert_eq!(net.up(away(), session), Action::Forward { to: office() });
    assert_eq!(net.down(office(), session), Action::Forward { to: away() });
}

/// Somebody holds the third message of an older handshake back.
#[test]
fn an_older_handshake_does_not_move_a_session_back() {
    let mut net = Net::new();
    let mut client = net.open(1, home(), office());
    net.pass(Duration::from_secs(5));
    client.refresh(net.now);
    let held_back = net.third(&mut client, home());
    net.pass(Duration::from_secs(5));
    while client.poll_transmit(net.now).is_some() {}
    let mut moved = net.client(1, office());
    let (mut initiator, message) = initiation(&mut net, 1, to_office(client.session().unwrap()));
    let response = net.reply(away(), &message);
    let finished = initiator.finish(&response).unwrap();
    let id = SessionPayload::decode(&finished.payload).session;
    assert_eq!(Some(id), client.session());
    let third = registration::registered(&finished.keys, finished.remote_index, 0, id);
    net.reply(away(), &third);
    assert_eq!(net.give(home(), &held_back), Action::Drop(DropReason::UnknownHandshake));
    assert_eq!(net.up(away(), id), Action::Forward { to: office() });
    assert!(moved.poll_transmit(net.now).is_some());
}

#[test]
fn a_new_destination_has_to_consent_again() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    let elsewhere = RegisterPayload { destination: address("203.0.113.8:1"), session };
    let (mut initiator, message) = initiation(&mut net, 1, elsewhere);
    let response = net.reply(home(), &message);
    let finished = initiator.finish(&response).unwrap();
    assert_eq!(SessionPayload::decode(&finished.payload).session, session);
    let third = registration::registered(&finished.keys, finished.remote_index, 0, session);
    assert_eq!(net.give(home(), &third), Action::Taken);
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::NotOpen));
    assert_eq!(net.down(office(), session), Action::Drop(DropReason::WrongSource));
}

#[test]
fn a_session_belongs_to_the_key_that_made_it() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    let (mut initiator, message) = initiation(&mut net, 2, to_office(session));
    let response = net.reply(away(), &message);
    let finished = initiator.finish(&response).unwrap();
    assert_ne!(SessionPayload::decode(&finished.payload).session, session);
    let third = registration::registered(&finished.keys, finished.remote_index, 0, session);
    assert_eq!(net.give(away(), &third), Action::Drop(DropReason::Confirmation));
    assert_eq!(net.up(home(), session), Action::Forward { to: office() });
}

#[test]
fn a_client_that_starts_anew_gets_its_session_again() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    let mut again = net.client(1, office());
    let third = net.third(&mut again, home());
    let answer = net.reply(home(), &third);
    assert!(again.handle_message(net.now, &answer));
    assert_eq!(again.session(), Some(session));
    assert_eq!(net.relay.table().len(), 1);
}

#[test]
fn sessions_per_key_are_limited() {
    let mut net = Net::with(Limits { sessions_per_key: 2, ..Limits::default() });
    let places = [1, 2, 3].map(|port| SocketAddr::new(home().ip(), port));
    net.waiting(1, places[0], office());
    let mut late = net.client(1, office());
    let third = net.third(&mut late, places[2]);
    net.waiting(1, places[1], office());
    assert_eq!(net.give(places[2], &third), Action::Drop(DropReason::SessionLimit));
    let initiation = net.client(1, office()).poll_transmit(net.now).unwrap();
    assert_eq!(net.give(places[2], &initiation), Action::Drop(DropReason::SessionLimit));
    net.waiting(2, places[2], office());
    assert_eq!(net.relay.table().len(), 3);
}

#[test]
fn sessions_in_all_are_limited() {
    let mut net = Net::with(Limits { sessions: 1, ..Limits::default() });
    net.waiting(1, home(), office());
    let initiation = net.client(2, office()).poll_transmit(net.now).unwrap();
    assert_eq!(net.give(away(), &initiation), Action::Drop(DropReason::SessionLimit));
}

#[test]
fn pending_handshakes_are_limited_per_key_and_in_all() {
    let mut net = Net::with(Limits { pending_per_key: 2, pending: 3, ..Limits::default() });
    let mut clients = [0; 3].map(|_| net.client(1, office()));
    let thirds: Vec<_> = clients.iter_mut().map(|client| net.third(client, home())).collect();
    assert_eq!(net.relay.pending.len(), 2);
    assert_eq!(net.give(home(), &thirds[0]), Action::Drop(DropReason::UnknownHandshake));
    let first = net.client(2, office()).poll_transmit(net.now).unwrap();
    net.reply(away(), &first);
    let second = net.client(2, office()).poll_transmit(net.now).unwrap();
    assert_eq!(net.give(away(), &second), Action::Drop(DropReason::PendingLimit));
    assert_eq!(net.give(home(), &thirds[2]), Action::Taken);
}

#[test]
fn an_idle_session_is_forgotten_with_all_that_belongs_to_it() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    net.pass(RELAY_IDLE - Duration::from_secs(1));
    assert_eq!(net.down(office(), session), Action::Forward { to: home() });
    net.pass(Duration::from_secs(1));
    assert_eq!(net.up(home(), session), Action::Drop(DropReason::UnknownSession));
    assert_eq!(net.sizes(), [0; 7]);
    assert!(net.relay.clients[&key(1).public()].sessions.is_empty());
}

#[test]
fn a_client_that_sends_keeps_its_session() {
    let mut net = Net::new();
    let session = net.open(1, home(), office()).session().unwrap();
    for _ in 0..5 {
        net.pass(RELAY_IDLE - Duration::from_secs(1));
        assert_eq!(net.up(home(), session), Action::Forward { to: office() });
    }
}

#[test]
fn refreshing_often_leaves_nothing_behind() {
    let mut net = Net::new();
    let mut client = net.open(1, home(), office());
    let before = net.sizes();
    for _ in 0..50 {
        net.pass(Duration::from_secs(1));
        client.refresh(net.now);
        let third = net.third(&mut client, home());
        let answer = net.reply(home(), &third);
        assert!(client.handle_message(net.now, &answer));
    }
    assert_eq!(net.sizes(), before);
}

#[test]
fn a_repeated_third_message_is_answered_again() {
    let mut net = Net::new();
    let mut client = net.client(1, office());
    let third = net.third(&mut client, home());
    assert_eq!(net.give(home(), &third), Action::Taken);
    let (session, token) = net.challenge_to(office());
    net.give(office(), &wire::echo(session, token));
    net.mail.clear();
    net.now = client.poll_timeout().unwrap();
    let again = client.poll_transmit(net.now).unwrap();
    assert_eq!(again.len(), REGISTERED_LEN);
    let answer = net.reply(home(), &again);
    assert!(client.handle_message(net.now, &answer));
    assert_eq!(client.session(), Some(session));
}

#[test]
fn under_load_only_who_receives_at_its_address_gets_through() {
    let mut net = Net::new();
    let flood = initiation(&mut net, 1, to_office(0)).1;
    while !matches!(net.give(away(), &flood), Action::Reply(reply) if reply.len() == wire::COOKIE_REPLY_LEN) {
    }
    let mut client = net.client(1, office());
    let first = client.poll_transmit(net.now).unwrap();
    let cookie = net.reply(home(), &first);
    assert!(client.handle_message(net.now, &cookie));
    let next = client.poll_timeout().unwrap();
    let second = client.poll_transmit(next).unwrap();
    net.relay.gauge = LoadGauge::new(0, 0);
    assert_eq!(net.reply(away(), &second).len(), wire::COOKIE_REPLY_LEN);
    let response = net.reply(home(), &second);
    assert!(client.handle_message(next, &response));
}

#[test]
fn a_challenge_that_is_lost_is_repeated() {
    let mut net = Net::new();
    net.waiting(1, home(), office());
    net.mail.clear();
    net.pass(CHALLENGE_INTERVALS[0]);
    let (session, token) = net.challenge_to(office());
    assert_eq!(net.give(office(), &wire::echo(session, token)), Action::Taken);
    net.pass(Duration::from_secs(60));
    assert_eq!(net.sent[&office()], 2 * CHALLENGE_LEN);
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
                .filter(|_| matches!(table.read().forward(now, source, &datagram), Action::Forward { .. }))
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
