//! A relay: `RelayControl` decides who has which session, `RelayTable` forwards. Both are sans-IO.
//!
//! - A client that `allow` lists registers by a handshake of three messages. Its session, and the client's address
//!   in it, exist or change only with the third, sealed under the handshake's fresh key and taken once, from the
//!   address that the first came from.
//! - The destination gets nothing but challenges until it has echoed one or has itself registered from that address,
//!   and no more bytes of them than the client sent for it.
//! - No answer is larger than its question; a message whose mac1 is wrong costs one hash.
//! - All is bounded: sessions and pending handshakes per key and in total. What is idle is forgotten.

mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{RngCore, SeedableRng},
};
use zeroize::Zeroizing;

use self::table::Entry;
pub use self::table::{Counters, RelayReader, RelayTable};
use crate::{
    cookie::{self, CookieChecker, CookieJar, LoadGauge},
    keys::{PresharedKey, PrivateKey, PublicKey},
    noise::{HandshakeSeen, Prologue, Responder, SessionKeys},
    registration::{self, RegisterPayload, SessionPayload},
    wire::{self, CHALLENGE_LEN, INITIATION_LEN, Message, REGISTERED_LEN, TAG_LEN},
};

/// A session whose client is not heard for so long is forgotten.
pub const IDLE: Duration = Duration::from_secs(180);
/// A handshake waits so long for its third message: a slow link's round trips, several times.
const PENDING_LIFETIME: Duration = Duration::from_secs(10);
/// Times between the challenges after one registration.
const CHALLENGE_INTERVALS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// More handshakes per second than this, after a burst of twice as many, and cookies are asked for. One costs about
/// 0.2 ms of a processor.
const HANDSHAKES_PER_SECOND: u32 = 200;

/// What is bounded how.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Sessions of one key.
    pub sessions_per_key: usize,
    /// Sessions in all.
    pub sessions: usize,
    /// Handshakes of one key that wait for their third message; a newer one takes the oldest one's place.
    pub pending_per_key: usize,
    /// Such handshakes in all; more are refused.
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions_per_key: 32, sessions: 65536, pending_per_key: 64, pending: 4096 }
    }
}

/// What is to be done with a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send it on, byte for byte.
    Forward {
        /// Where to.
        to: SocketAddr,
    },
    /// Send this to where it came from.
    Reply(Vec<u8>),
    /// It has been taken; nothing to send to where it came from.
    Taken,
    /// It is worth nothing; it has been counted.
    Drop(DropReason),
}

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// No message of this version.
    Malformed,
    /// A message of a type that a relay does not take.
    NotForRelay,
    /// The sender does not know the relay's public key.
    Mac1,
    /// The handshake does not fit the relay's key.
    Handshake,
    /// The key is not in `allow`.
    NotAllowed,
    /// An initiation that came before.
    Replayed,
    /// An address that cannot be a destination.
    Destination,
    /// Too many sessions, of the key or in all.
    SessionLimit,
    /// Too many handshakes wait for their third message.
    PendingLimit,
    /// A third message without its handshake.
    UnknownHandshake,
    /// A third message that does not fit its handshake.
    Confirmation,
    /// Data for a session that does not exist.
    UnknownSession,
    /// From another address than the session's.
    WrongSource,
    /// Data for a destination that has not consented.
    NotOpen,
    /// An echo with a wrong token.
    Token,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Malformed,
        Self::NotForRelay,
        Self::Mac1,
        Self::Handshake,
        Self::NotAllowed,
        Self::Replayed,
        Self::Destination,
        Self::SessionLimit,
        Self::PendingLimit,
        Self::UnknownHandshake,
        Self::Confirmation,
        Self::UnknownSession,
        Self::WrongSource,
        Self::NotOpen,
        Self::Token,
    ];
}

/// A handshake that waits for its third message.
#[derive(Debug)]
struct Pending {
    key: PublicKey,
    source: SocketAddr,
    destination: SocketAddr,
    session: u64,
    remote_index: u32,
    keys: SessionKeys,
    expires: Duration,
}

/// A session as its registration sees it.
#[derive(Debug)]
struct Session {
    key: PublicKey,
    client: SocketAddr,
    destination: SocketAddr,
    open: bool,
    index: u32,
    remote_index: u32,
    keys: SessionKeys,
    /// The next counter that a repeated third message may carry.
    next_counter: u64,
    answers: u64,
    /// When to look whether the session is idle.
    idle_due: Duration,
    /// When the next challenge is due, and how many have been sent.
    challenge: Option<(Duration, usize)>,
}

impl Session {
    fn answer(&mut self, id: u64) -> Vec<u8> {
        let answer = registration::registered(&self.keys, self.remote_index, self.answers, id);
        self.answers += 1;
        answer
    }
}

/// An allowed key that has been heard.
#[derive(Debug, Default)]
struct Client {
    seen: HandshakeSeen,
    pending: VecDeque<u32>,
    sessions: BTreeSet<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Deadline {
    Pending(u32),
    Challenge(u64),
    Idle(u64),
}

/// Handshakes, challenges and expiry. After `handle_datagram`, and when `poll_timeout` has come, drain
/// `poll_transmit`.
#[derive(Debug)]
pub struct RelayControl {
    me: PrivateKey,
    allow: BTreeSet<PublicKey>,
    limits: Limits,
    table: Arc<RelayTable>,
    rng: ChaCha20Rng,
    checker: CookieChecker,
    gauge: LoadGauge,
    token_key: Zeroizing<[u8; 32]>,
    clients: BTreeMap<PublicKey, Client>,
    pending: BTreeMap<u32, Pending>,
    sessions: BTreeMap<u64, Session>,
    /// Sessions by the relay's index of the handshake that confirmed them last.
    indices: BTreeMap<u32, u64>,
    /// Confirmed clients' addresses: as destinations they need no challenge.
    addresses: BTreeSet<(SocketAddr, u64)>,
    /// Destinations that have not consented.
    waiting: BTreeSet<(SocketAddr, u64)>,
    deadlines: BTreeSet<(Duration, Deadline)>,
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
}

impl RelayControl {
    /// A relay with `me`'s key for the clients that `allow` lists. 32 bytes are drawn from `rng`.
    pub fn new(
        me: PrivateKey,
        allow: impl IntoIterator<Item = PublicKey>,
        limits: Limits,
        rng: &mut impl RngCore,
    ) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *seed);
        let mut rng = ChaCha20Rng::from_seed(*seed);
        let checker = CookieChecker::new(&me.public(), &mut rng);
        let mut token_key = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *token_key);
        Self {
            me,
            allow: allow.into_iter().collect(),
            limits,
            table: Arc::default(),
            rng,
            checker,
            gauge: LoadGauge::new(HANDSHAKES_PER_SECOND, 2 * HANDSHAKES_PER_SECOND),
            token_key,
            clients: BTreeMap::new(),
            pending: BTreeMap::new(),
            sessions: BTreeMap::new(),
            indices: BTreeMap::new(),
            addresses: BTreeSet::new(),
            waiting: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            outbox: VecDeque::new(),
        }
    }

    /// The forwarding table, for the threads that forward.
    pub fn table(&self) -> Arc<RelayTable> {
        self.table.clone()
    }

    /// Takes any datagram that came to the relay's port. Those of types 8 and 9 may go to the table directly.
    pub fn handle_datagram(&mut self, now: Duration, source: SocketAddr, datagram: &[u8]) -> Action {
        let source = canonical(source);
        let taken = match Message::parse(datagram) {
            Err(_) => Err(DropReason::Malformed),
            Ok(Message::Relayed { .. }) => return self.table.read().forward(now, source, datagram),
            Ok(Message::Initiation { .. }) => self.handle_initiation(now, source, datagram),
            Ok(Message::Registered { receiver, .. }) if self.pending.contains_key(&receiver) => {
                self.handle_confirmation(now, source, receiver, datagram)
            }
            Ok(Message::Registered { receiver, counter, .. }) => {
                self.handle_repeated(now, source, receiver, counter, datagram)
            }
            Ok(Message::Echo { session, token }) => self.handle_echo(source, session, token),
            Ok(_) => Err(DropReason::NotForRelay),
        };
        taken.unwrap_or_else(|reason| self.table.counters().drop(reason))
    }

    /// What to send, and where to: challenges to destinations, answers to clients.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(SocketAddr, Vec<u8>)> {
        while let Some((due, deadline)) = self.deadlines.first().copied()
            && due <= now
        {
            self.deadlines.pop_first();
            self.handle_deadline(now, deadline);
        }
        self.outbox.pop_front()
    }

    /// When to call `poll_transmit` again.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    fn handle_initiation(
        &mut self,
        now: Duration,
        source: SocketAddr,
        message: &[u8],
    ) -> Result<Action, DropReason> {
        if !self.checker.check_mac1(message) {
            return Err(DropReason::Mac1);
        }
        if self.gauge.under_load(now) && !self.checker.check_mac2(now, source, message) {
            let reply = self.checker.reply(now, source, message).ok_or(DropReason::Malformed)?;
            return Ok(Action::Reply(reply.to_vec()));
        }
        let handshake =
            Responder::read(Prologue::Relay, &self.me, message).map_err(|_| DropReason::Handshake)?;
        let asked = self.admit(&handshake)?;
        self.respond(now, source, handshake, asked).map(Action::Reply)
    }

    /// Whether an initiation deserves a response. Changes nothing but the memory of initiations.
    fn admit(&mut self, handshake: &Responder) -> Result<RegisterPayload, DropReason> {
        if !self.allow.contains(&handshake.peer) {
            return Err(DropReason::NotAllowed);
        }
        if !self.clients.entry(handshake.peer).or_default().seen.is_new(&handshake.ephemeral) {
            return Err(DropReason::Replayed);
        }
        let asked = RegisterPayload::decode(&handshake.payload);
        if !is_destination(asked.destination) {
            return Err(DropReason::Destination);
        }
        Ok(asked)
    }

    fn respond(
        &mut self,
        now: Duration,
        source: SocketAddr,
        handshake: Responder,
        asked: RegisterPayload,
    ) -> Result<Vec<u8>, DropReason> {
        let (key, remote_index) = (handshake.peer, handshake.remote_index);
        let session = match self.known_session(&key, source, &asked) {
            Some(session) => session,
            None => self.new_session(&key)?,
        };
        let index = self.new_index(&key)?;
        let payload = SessionPayload { session, lifetime: IDLE }.encode();
        let (mut response, keys) = handshake
            .reply(&mut self.rng, &PresharedKey::default(), index, &payload)
            .map_err(|_| DropReason::Handshake)?;
        CookieJar::new(&key).stamp(now, &mut response);
        let destination = asked.destination;
        let expires = now + PENDING_LIFETIME;
        self.deadlines.insert((expires, Deadline::Pending(index)));
        self.clients.entry(key).or_default().pending.push_back(index);
        let pending = Pending { key, source, destination, session, remote_index, keys, expires };
        self.pending.insert(index, pending);
        Ok(response)
    }

    /// The session that the client names, or the one that it has already between the same addresses.
    fn known_session(&self, key: &PublicKey, source: SocketAddr, asked: &RegisterPayload) -> Option<u64> {
        let own = &self.clients.get(key)?.sessions;
        if own.contains(&asked.session) {
            return Some(asked.session);
        }
        let same = |id: &&u64| {
            self.sessions.get(id).is_some_and(|s| s.client == source && s.destination == asked.destination)
        };
        own.iter().find(same).copied()
    }

    /// The id of a session to be made when the handshake is confirmed.
    fn new_session(&mut self, key: &PublicKey) -> Result<u64, DropReason> {
        self.check_session_limits(key)?;
        loop {
            let session = self.rng.next_u64();
            if session != 0 && !self.sessions.contains_key(&session) {
                return Ok(session);
            }
        }
    }

    fn check_session_limits(&self, key: &PublicKey) -> Result<(), DropReason> {
        let own = self.clients.get(key).map_or(0, |client| client.sessions.len());
        if own >= self.limits.sessions_per_key || self.sessions.len() >= self.limits.sessions {
            return Err(DropReason::SessionLimit);
        }
        Ok(())
    }

    /// An index for a pending handshake of `key`, whose oldest one may have to go.
    fn new_index(&mut self, key: &PublicKey) -> Result<u32, DropReason> {
        let own = &self.clients.entry(*key).or_default().pending;
        if own.len() >= self.limits.pending_per_key {
            let oldest = own[0];
            self.forget_pending(oldest);
        }
        if self.pending.len() >= self.limits.pending {
            return Err(DropReason::PendingLimit);
        }
        loop {
            let index = self.rng.next_u32();
            if !self.pending.contains_key(&index) && !self.indices.contains_key(&index) {
                return Ok(index);
            }
        }
    }

    fn forget_pending(&mut self, index: u32) -> Option<Pending> {
        let pending = self.pending.remove(&index)?;
        self.deadlines.remove(&(pending.expires, Deadline::Pending(index)));
        if let Some(client) = self.clients.get_mut(&pending.key) {
            client.pending.retain(|other| *other != index);
        }
        Some(pending)
    }

    /// The third message of a handshake.
    fn handle_confirmation(
        &mut self,
        now: Duration,
        source: SocketAddr,
        index: u32,
        message: &[u8],
    ) -> Result<Action, DropReason> {
        let pending = self.pending.get(&index).ok_or(DropReason::UnknownHandshake)?;
        if pending.source != source {
            return Err(DropReason::WrongSource);
        }
        if registration::open_registered(&pending.keys, message) != Some(pending.session) {
            return Err(DropReason::Confirmation);
        }
        if !self.sessions.contains_key(&pending.session) {
            let key = pending.key;
            self.check_session_limits(&key)?;
        }
        let pending = self.forget_pending(index).ok_or(DropReason::UnknownHandshake)?;
        self.forget_older(&pending);
        let id = pending.session;
        self.confirm(now, index, pending, counter(message) + 1);
        self.open_if_registered(id);
        self.open_waiting_for(source);
        Ok(self.answer_or_ask(now, id))
    }

    /// The key's other handshakes for the same session must not move it back.
    fn forget_older(&mut self, confirmed: &Pending) {
        let own = self.clients.get(&confirmed.key).map(|client| client.pending.clone()).unwrap_or_default();
        for index in own {
            if self.pending.get(&index).is_some_and(|other| other.session == confirmed.session) {
                self.forget_pending(index);
            }
        }
    }

    /// Makes the session or moves it.
    fn confirm(&mut self, now: Duration, index: u32, pending: Pending, next_counter: u64) {
        let id = pending.session;
        let before = self.take_session(id);
        let open = before.is_some_and(|old| old.open && old.destination == pending.destination);
        let credit = INITIATION_LEN + REGISTERED_LEN;
        let mut entry = Entry::new(now, pending.source, pending.destination, credit);
        entry.open = open;
        self.table.write().insert(id, entry);
        self.clients.entry(pending.key).or_default().sessions.insert(id);
        self.addresses.insert((pending.source, id));
        self.indices.insert(index, id);
        if !open {
            self.waiting.insert((pending.destination, id));
        }
        let idle_due = now + IDLE;
        self.deadlines.insert((idle_due, Deadline::Idle(id)));
        let session = Session {
            key: pending.key,
            client: pending.source,
            destination: pending.destination,
            open,
            index,
            remote_index: pending.remote_index,
            keys: pending.keys,
            next_counter,
            answers: 0,
            idle_due,
            challenge: None,
        };
        self.sessions.insert(id, session);
    }

    fn open_if_registered(&mut self, id: u64) {
        let destination = self.sessions.get(&id).map(|session| session.destination);
        if destination.is_some_and(|address| of(&self.addresses, address).next().is_some()) {
            self.open(id);
        }
    }

    /// A client that registers from `address` consents to be a destination there.
    fn open_waiting_for(&mut self, address: SocketAddr) {
        let waiting: Vec<u64> = of(&self.waiting, address).collect();
        for id in waiting {
            self.open_and_tell(id);
        }
    }

    fn answer_or_ask(&mut self, now: Duration, id: u64) -> Action {
        match self.sessions.get_mut(&id) {
            Some(session) if session.open => Action::Reply(session.answer(id)),
            _ => {
                self.challenge(now, id, 0);
                Action::Taken
            }
        }
    }

    /// A third message that was repeated because no answer has come.
    fn handle_repeated(
        &mut self,
        now: Duration,
        source: SocketAddr,
        index: u32,
        counter: u64,
        message: &[u8],
    ) -> Result<Action, DropReason> {
        let id = *self.indices.get(&index).ok_or(DropReason::UnknownHandshake)?;
        let session = self.sessions.get_mut(&id).ok_or(DropReason::UnknownHandshake)?;
        if session.client != source {
            return Err(DropReason::WrongSource);
        }
        if counter < session.next_counter || counter == u64::MAX {
            return Err(DropReason::Replayed);
        }
        if registration::open_registered(&session.keys, message) != Some(id) {
            return Err(DropReason::Confirmation);
        }
        session.next_counter = counter + 1;
        self.table.with(id, |entry| {
            entry.hear(now);
            entry.add_credit(REGISTERED_LEN);
        });
        Ok(if session.open { Action::Reply(session.answer(id)) } else { Action::Taken })
    }

    /// A destination's consent.
    fn handle_echo(
        &mut self,
        source: SocketAddr,
        id: u64,
        token: [u8; TAG_LEN],
    ) -> Result<Action, DropReason> {
        let session = self.sessions.get(&id).ok_or(DropReason::UnknownSession)?;
        if session.destination != source {
            return Err(DropReason::WrongSource);
        }
        if !cookie::verify(&*self.token_key, &token_input(id, source), &token) {
            return Err(DropReason::Token);
        }
        self.open_and_tell(id);
        Ok(Action::Taken)
    }

    /// Opens a session and answers its client, who has been waiting.
    fn open_and_tell(&mut self, id: u64) {
        if !self.open(id) {
            return;
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            let answer = session.answer(id);
            self.outbox.push_back((session.client, answer));
        }
    }

    /// Lets data through; false if it was let through already.
    fn open(&mut self, id: u64) -> bool {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.open) else { return false };
        session.open = true;
        self.waiting.remove(&(session.destination, id));
        if let Some((due, _)) = session.challenge.take() {
            self.deadlines.remove(&(due, Deadline::Challenge(id)));
        }
        if let Some(entry) = self.table.write().get_mut(&id) {
            entry.open = true;
        }
        true
    }

    /// Sends a destination the `count`th challenge, if the client has sent enough for it, and plans the next.
    fn challenge(&mut self, now: Duration, id: u64, count: usize) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.challenge = None;
        let Some(interval) = CHALLENGE_INTERVALS.get(count) else { return };
        let due = now + *interval;
        session.challenge = Some((due, count + 1));
        self.deadlines.insert((due, Deadline::Challenge(id)));
        let to = session.destination;
        if self.table.with(id, |entry| entry.spend(CHALLENGE_LEN)) == Some(true) {
            let token = cookie::mac(&*self.token_key, &token_input(id, to));
            self.outbox.push_back((to, wire::challenge(id, token).to_vec()));
        }
    }

    fn handle_deadline(&mut self, now: Duration, deadline: Deadline) {
        match deadline {
            Deadline::Pending(index) => {
                self.forget_pending(index);
            }
            Deadline::Challenge(id) => {
                let count = self.sessions.get(&id).and_then(|session| session.challenge);
                self.challenge(now, id, count.map_or(usize::MAX, |(_, count)| count));
            }
            Deadline::Idle(id) => self.forget_if_idle(now, id),
        }
    }

    fn forget_if_idle(&mut self, now: Duration, id: u64) {
        let due = self.table.with(id, Entry::heard).map_or(now, |heard| heard + IDLE);
        match self.sessions.get_mut(&id) {
            Some(session) if due > now => {
                session.idle_due = due;
                self.deadlines.insert((due, Deadline::Idle(id)));
            }
            _ => {
                self.table.write().remove(&id);
                self.take_session(id);
            }
        }
    }

    /// Takes a session out of all but the forwarding table.
    fn take_session(&mut self, id: u64) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.indices.remove(&session.index);
        self.addresses.remove(&(session.client, id));
        self.waiting.remove(&(session.destination, id));
        self.deadlines.remove(&(session.idle_due, Deadline::Idle(id)));
        if let Some((due, _)) = session.challenge {
            self.deadlines.remove(&(due, Deadline::Challenge(id)));
        }
        if let Some(client) = self.clients.get_mut(&session.key) {
            client.sessions.remove(&id);
        }
        Some(session)
    }
}

/// The sessions of `address` in a set sorted by address.
fn of(set: &BTreeSet<(SocketAddr, u64)>, address: SocketAddr) -> impl Iterator<Item = u64> + '_ {
    set.range((address, 0)..=(address, u64::MAX)).map(|(_, id)| *id)
}

/// The counter of a third message.
fn counter(message: &[u8]) -> u64 {
    u64::from_be_bytes(wire::array(message, 8))
}

/// One form for an address, whatever socket it came through: no mapped IPv4, no flow label.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(mut v6) => match v6.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::from((ip, v6.port())),
            IpAddr::V6(_) => {
                v6.set_flowinfo(0);
                SocketAddr::V6(v6)
            }
        },
        v4 => v4,
    }
}

/// Whether one host can listen there; a link-local address would need an interface.
fn is_destination(address: SocketAddr) -> bool {
    let usable = match address.ip() {
        IpAddr::V4(ip) => !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    usable && address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
}

fn token_input(session: u64, destination: SocketAddr) -> [u8; 26] {
    let mut input = [0; 26];
    input[..8].copy_from_slice(&session.to_be_bytes());
    input[8..].copy_from_slice(&cookie::address_bytes(destination));
    input
}
