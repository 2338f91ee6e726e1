//! Who has which session: the relay's state and what moves it. `handshake` holds the three messages.

mod handshake;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use rand_core::{RngCore, SeedableRng};
use zeroize::Zeroizing;

use super::{Action, DropReason, IDLE, Limits, RelayTable, canonical, table::Entry};
use crate::{
    handshake::client_mac::ClientMacs,
    handshake::cookie::{self, CookieChecker, LoadGauge},
    handshake::erasing_rng::ErasingRng,
    handshake::freshness::Freshness,
    handshake::noise::{HandshakeSeen, SessionKeys},
    handshake::rate_limit::RateLimit,
    keys::{PrivateKey, PublicKey},
    path::registration,
    wire::{self, CHALLENGE_LEN, INITIATION_LEN, Message, REGISTERED_LEN, TAG_LEN},
};

/// A handshake waits so long for its third message: a slow link's round trips, several times.
const PENDING_LIFETIME: Duration = Duration::from_secs(10);
/// A session whose client has not been heard for so long makes room for another of its key: an idle path sends every
/// 25 s.
const SILENT: Duration = Duration::from_secs(30);
/// Times between the challenges after one registration.
const CHALLENGE_INTERVALS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// More handshakes of one client per second than this, after a burst of twice as many, and cookies are asked for. A
/// client asks for all its sessions at once when it starts.
const HANDSHAKES_PER_SECOND: u32 = 20;
/// The same of all clients together. One costs up to a millisecond of a processor.
const ALL_HANDSHAKES_PER_SECOND: u32 = 200;
/// With a cookie, each host may do so often a handshake for a client; WireGuard's rate.
const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(50);
const HANDSHAKE_BURST: u32 = 5;
/// Cookies for one client in a second, after a burst of as many: only its initiations, and copies of them, get one.
const COOKIES_PER_SECOND: u32 = 10;
/// The same for all clients together; one costs a few microseconds of a processor.
const ALL_COOKIES_PER_SECOND: u32 = 1000;
/// A host that has not consented gets a challenge for one client so often, after a burst.
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(15);
const CHALLENGE_BURST: u32 = 8;
/// It gets as many as so many clients may ask for, whoever asks: one client takes a quarter of them at most.
const CHALLENGE_CLIENTS: u32 = 4;
/// Hosts that this is remembered of.
const MAX_HOSTS: usize = 4096;
/// Hosts that handshakes, cookies and challenges are remembered of for each client.
const MAX_HOSTS_OF_CLIENT: usize = 256;

/// A handshake that waits for its third message.
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
pub(super) struct Session {
    pub key: PublicKey,
    pub client: SocketAddr,
    pub destination: SocketAddr,
    pub open: bool,
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

/// An allowed key that has been heard. Its initiations count here, for who has recorded some can send any number of
/// copies: they cost nobody else.
struct Client {
    seen: HandshakeSeen,
    taken: Freshness,
    pending: VecDeque<u32>,
    sessions: BTreeSet<u64>,
    /// Handshakes without a cookie.
    gauge: LoadGauge,
    cookies: LoadGauge,
    /// Cookies to addresses of its sessions.
    home_cookies: RateLimit,
    /// Hosts that do handshakes with a cookie.
    askers: RateLimit,
    /// All of them together, but for those where it has a session: as many as hosts without a cookie.
    proven: LoadGauge,
    /// Hosts that have been sent challenges for it.
    asked: RateLimit,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            seen: HandshakeSeen::default(),
            taken: Freshness::default(),
            pending: VecDeque::new(),
            sessions: BTreeSet::new(),
            gauge: LoadGauge::new(HANDSHAKES_PER_SECOND, 2 * HANDSHAKES_PER_SECOND),
            cookies: LoadGauge::new(COOKIES_PER_SECOND, COOKIES_PER_SECOND),
            home_cookies: RateLimit::cookies_at_home(MAX_HOSTS_OF_CLIENT),
            askers: RateLimit::new(HANDSHAKE_INTERVAL, HANDSHAKE_BURST, MAX_HOSTS_OF_CLIENT),
            proven: LoadGauge::new(HANDSHAKES_PER_SECOND, 2 * HANDSHAKES_PER_SECOND),
            asked: RateLimit::new(CHALLENGE_INTERVAL, CHALLENGE_BURST, MAX_HOSTS_OF_CLIENT),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Deadline {
    Pending(u32),
    Challenge(u64),
    Idle(u64),
}

/// Handshakes, challenges and expiry. After `handle_datagram`, and when `poll_timeout` has come, drain
/// `poll_transmit`.
pub struct RelayControl {
    me: PrivateKey,
    client_macs: ClientMacs,
    limits: Limits,
    table: Arc<RelayTable>,
    rng: ErasingRng,
    checker: CookieChecker,
    /// Handshakes and cookies of all clients.
    gauge: LoadGauge,
    cookies: LoadGauge,
    /// Hosts that have been sent challenges.
    asked: RateLimit,
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
        let mut rng = ErasingRng::from_rng(rng);
        let checker = CookieChecker::new(&me.public(), &mut rng);
        let mut token_key = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *token_key);
        Self {
            client_macs: ClientMacs::new(&me, allow),
            me,
            limits,
            table: Arc::default(),
            rng,
            checker,
            gauge: LoadGauge::new(ALL_HANDSHAKES_PER_SECOND, 2 * ALL_HANDSHAKES_PER_SECOND),
            cookies: LoadGauge::new(ALL_COOKIES_PER_SECOND, ALL_COOKIES_PER_SECOND),
            asked: RateLimit::new(
                CHALLENGE_INTERVAL / CHALLENGE_CLIENTS,
                CHALLENGE_BURST * CHALLENGE_CLIENTS,
                MAX_HOSTS,
            ),
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

    /// Changes who may relay. The sessions of those who no longer may end.
    pub fn set_allow(&mut self, allow: impl IntoIterator<Item = PublicKey>) {
        self.client_macs = ClientMacs::new(&self.me, allow);
        let gone: Vec<PublicKey> =
            self.clients.keys().filter(|key| !self.client_macs.knows(key)).copied().collect();
        for key in gone {
            self.forget_client(&key);
        }
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = (u64, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    pub(super) fn pending_handshakes(&self) -> usize {
        self.pending.len()
    }

    /// Takes any datagram that came to the relay's port. Those of types 8 and 9 may go to the table directly.
    pub fn handle_datagram(&mut self, now: Duration, source: SocketAddr, datagram: &[u8]) -> Action {
        let source = canonical(source);
        let taken = match Message::parse(datagram) {
            Err(_) => Err(DropReason::Malformed),
            Ok(Message::Relayed { .. }) => return self.table.forward(now, source, datagram),
            Ok(Message::Initiation { .. }) => self.handle_initiation(now, source, datagram),
            Ok(Message::Registered { receiver, .. }) if self.pending.contains_key(&receiver) => {
                self.handle_confirmation(now, source, receiver, datagram)
            }
            Ok(Message::Registered { receiver, counter, .. }) => {
                self.handle_repeated(now, source, receiver, counter, datagram)
            }
            Ok(Message::Echo { session, token }) => self.handle_echo(now, source, session, token),
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

    /// Makes the session or moves it.
    fn confirm(&mut self, now: Duration, index: u32, pending: Pending, next_counter: u64) {
        let id = pending.session;
        let before = self.take_session(id);
        let answered = self.table.with(id, Entry::answered).unwrap_or_default();
        let open = before.is_some_and(|old| old.open && old.destination == pending.destination)
            && now < answered + IDLE;
        let credit = INITIATION_LEN + REGISTERED_LEN;
        let mut entry = Entry::new(now, pending.source, pending.destination, credit);
        entry.open = open;
        entry.answer(answered);
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

    fn open_if_registered(&mut self, now: Duration, id: u64) {
        let destination = self.sessions.get(&id).map(|session| session.destination);
        if destination.is_some_and(|address| of(&self.addresses, address).next().is_some()) {
            self.open(now, id);
        }
    }

    /// A client that registers from `address` consents to be a destination there.
    fn open_waiting_for(&mut self, now: Duration, address: SocketAddr) {
        let waiting: Vec<u64> = of(&self.waiting, address).collect();
        for id in waiting {
            self.open_and_tell(now, id);
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

    /// A destination's consent.
    fn handle_echo(
        &mut self,
        now: Duration,
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
        self.asked.forgive(source.ip());
        if let Some(client) = self.clients.get_mut(&session.key) {
            client.asked.forgive(source.ip());
        }
        self.open_and_tell(now, id);
        Ok(Action::Taken)
    }

    /// Opens a session and answers its client, who has been waiting.
    fn open_and_tell(&mut self, now: Duration, id: u64) {
        if !self.open(now, id) {
            return;
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            let answer = session.answer(id);
            self.outbox.push_back((session.client, answer));
        }
    }

    /// Lets data through; false if it was let through already.
    fn open(&mut self, now: Duration, id: u64) -> bool {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.open) else { return false };
        session.open = true;
        self.waiting.remove(&(session.destination, id));
        if let Some((due, _)) = session.challenge.take() {
            self.deadlines.remove(&(due, Deadline::Challenge(id)));
        }
        if let Some(entry) = self.table.write().get_mut(&id) {
            entry.open = true;
            entry.answer(now);
        }
        true
    }

    /// Sends a destination the `count`th challenge, if the client has sent enough for it and the host has not had too
    /// many, of this client's and in all, and plans the next.
    fn challenge(&mut self, now: Duration, id: u64, count: usize) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.challenge = None;
        let Some(interval) = CHALLENGE_INTERVALS.get(count) else { return };
        let due = now + *interval;
        session.challenge = Some((due, count + 1));
        self.deadlines.insert((due, Deadline::Challenge(id)));
        let to = session.destination;
        let paid = self.table.with(id, |entry| entry.spend(CHALLENGE_LEN)) == Some(true);
        let client = self.clients.entry(session.key).or_default();
        if paid && client.asked.take(now, to.ip()) && self.asked.take(now, to.ip()) {
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
                self.close_if_unanswered(now, id);
            }
            _ => self.forget_session(id),
        }
    }

    /// Consent ends with who gave it: the address may be somebody else's by now.
    fn close_if_unanswered(&mut self, now: Duration, id: u64) {
        let answered = self.table.with(id, Entry::answered).unwrap_or_default();
        let Some(session) = self.sessions.get_mut(&id).filter(|s| s.open && answered + IDLE <= now) else {
            return;
        };
        session.open = false;
        self.waiting.insert((session.destination, id));
        if let Some(entry) = self.table.write().get_mut(&id) {
            entry.open = false;
        }
        self.open_if_registered(now, id);
        if self.sessions.get(&id).is_some_and(|session| !session.open) {
            self.challenge(now, id, 0);
        }
    }

    fn forget_session(&mut self, id: u64) {
        self.table.write().remove(&id);
        self.take_session(id);
    }

    fn forget_client(&mut self, key: &PublicKey) {
        let Some(client) = self.clients.get(key) else { return };
        let (pending, sessions) = (client.pending.clone(), client.sessions.clone());
        for index in pending {
            self.forget_pending(index);
        }
        for id in sessions {
            self.forget_session(id);
        }
        self.clients.remove(key);
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

fn token_input(session: u64, destination: SocketAddr) -> [u8; 26] {
    let mut input = [0; 26];
    input[..8].copy_from_slice(&session.to_be_bytes());
    input[8..].copy_from_slice(&cookie::address_bytes(destination));
    input
}
