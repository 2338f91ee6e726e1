//! The keys shared with one peer: handshakes, confirmation, rotation.
//!
//! The end that starts a handshake sends the same initiation over every path; the first response wins. Its responder has
//! a *pending* session until a transport packet opens under it; only that packet makes it a session to send on. Several
//! pending sessions are kept, one for each life, so that a replayed initiation evicts nothing. Old sessions still open what was
//! sent under them for [`REJECT_AFTER`] and longer than any path delays.

use std::collections::HashMap;
use std::time::Duration;

use rand_core::{RngCore, SeedableRng};

use crate::config::MAX_PATHS;
use crate::handshake::erasing_rng::ErasingRng;
use crate::handshake::freshness::Freshness;
use crate::handshake::noise::{Finished, InitiationPayload, Initiator, Prologue, Responder, ResponsePayload};
use crate::handshake::session::{Cipher, OpeningKey, SealingKey, aes_gcm_is_fast};
use crate::keys::{PresharedKey, PrivateKey, PublicKey};

/// A session older than this is renewed by the end that started it (WireGuard §6.1: Rekey-After-Time).
const REKEY_AFTER: Duration = Duration::from_secs(120);
/// If that end did not, the other does after this.
const REKEY_AFTER_AS_RESPONDER: Duration = Duration::from_secs(150);
/// Up to so much later.
const REKEY_JITTER: Duration = Duration::from_secs(10);
/// Nothing is sent on a session older than this (Reject-After-Time).
pub const REJECT_AFTER: Duration = Duration::from_secs(180);
/// What was sent at the last moment is still opened so much later: longer than the slowest path.
const LAST_ARRIVAL: Duration = Duration::from_secs(30);
/// A pending session that nothing has confirmed is forgotten.
const PENDING_LIFE: Duration = Duration::from_secs(15);
/// A full table of pending sessions takes a new one in place of one of at least this age.
const PENDING_PROTECTED: Duration = Duration::from_secs(3);
/// What comes in that time without a cookie, and more.
const MAX_PENDING: usize = 256;
const MAX_SESSIONS: usize = 4;
/// A response is repeated to so many addresses that the same initiation came from.
const MAX_REPEATS: u8 = 32;
/// Two hosts with one key take the session from each other every few seconds: without that for so long, one has gone.
const TWO_LIVES: Duration = Duration::from_secs(60);
/// The same initiation is sent again after these times, then a new one is made.
const RETRIES: [Duration; 4] =
    [Duration::from_millis(400), Duration::from_millis(800), Duration::from_secs(2), Duration::from_secs(4)];

/// Keys in use between two daemons.
pub struct Session {
    /// This end's name for it.
    pub index: u32,
    /// The other end's.
    pub remote_index: u32,
    /// For what this end sends.
    pub sealing: SealingKey,
    /// For what it receives.
    pub opening: OpeningKey,
    /// What both seal with.
    pub cipher: Cipher,
    /// The other daemon's life.
    pub incarnation: u64,
    /// The other end takes inner packets in pieces.
    pub pieces: bool,
    created: Duration,
    initiator: bool,
}

impl Session {
    /// How old it is.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.created)
    }

    /// When it is to be renewed. Its index, which is random, spreads the sessions of a hub that began all at once.
    fn rekey_at(&self) -> Duration {
        let after = if self.initiator { REKEY_AFTER } else { REKEY_AFTER_AS_RESPONDER };
        self.created + after + REKEY_JITTER * (self.index % 1000) / 1000
    }
}

/// How to answer an initiation.
pub struct Reply {
    responder: Box<Responder>,
    preshared: PresharedKey,
    index: u32,
    cipher: Cipher,
    incarnation: u64,
    life: u64,
    pieces: bool,
    rng: ErasingRng,
}

/// The answer to an initiation.
pub struct Answer {
    /// Who that is from.
    pub peer: PublicKey,
    /// Agreed on, if something confirms it.
    pub session: Session,
    /// To be stamped and sent.
    pub response: Vec<u8>,
    ephemeral: [u8; 32],
}

impl Reply {
    /// Costs three X25519 operations; `None` if the initiation's ephemeral key is no point of the large subgroup.
    pub fn run(self) -> Option<Answer> {
        let Reply { responder, preshared, index, cipher, incarnation, life, pieces, mut rng } = self;
        let (peer, ephemeral, remote_index) = (responder.peer, responder.ephemeral, responder.remote_index);
        let payload = ResponsePayload { incarnation, cipher, pieces: true }.encode();
        let (response, keys) = responder.reply(&mut rng, &preshared, index, &payload).ok()?;
        let (sealing, opening) = keys.with(cipher);
        let (created, initiator) = (Duration::ZERO, false);
        let incarnation = life;
        let session = Session {
            index,
            remote_index,
            sealing,
            opening,
            cipher,
            incarnation,
            pieces,
            created,
            initiator,
        };
        Some(Answer { peer, session, response, ephemeral })
    }
}

struct Pending {
    session: Session,
    ephemeral: [u8; 32],
    response: Vec<u8>,
    repeats: u8,
}

struct Attempt {
    index: u32,
    /// `None` while a response is being read ([`Sessions::lend`]).
    initiator: Option<Initiator>,
    message: Vec<u8>,
    started: Duration,
    /// How often it was sent.
    sent: usize,
    /// Cookies that it was sent again for.
    cookies: usize,
}

/// Both ends' identities, and how this end shows itself.
pub struct Identities {
    /// This end's key.
    pub me: PrivateKey,
    /// The peer's.
    pub peer: PublicKey,
    /// Zero if there is none.
    pub preshared: PresharedKey,
    /// This daemon's life.
    pub incarnation: u64,
}

/// The sessions with one peer.
pub struct Sessions {
    ids: Identities,
    /// Confirmed, the newest last.
    confirmed: Vec<Session>,
    pending: Vec<Pending>,
    attempt: Option<Attempt>,
    /// The peer's key is no point of the large subgroup (RFC 7748 §6.1): no handshake will ever begin.
    hopeless: bool,
    /// Initiations made.
    made: u64,
    /// Initiations taken: an old one that is replayed does nothing.
    taken: Freshness,
    /// The peer's life that the last session was with, and the one before.
    incarnation: Option<u64>,
    former: Option<u64>,
    /// When a life last returned that another had followed.
    returned: Option<Duration>,
}

/// The peer (its place in the list) of every session index that this endpoint has given out.
pub type Indices = HashMap<u32, usize>;

/// An index that names no session.
fn unused(rng: &mut impl RngCore, taken: &Indices) -> u32 {
    loop {
        let index = rng.next_u32();
        if !taken.contains_key(&index) {
            return index;
        }
    }
}

impl Sessions {
    /// None yet.
    pub fn new(ids: Identities) -> Self {
        Sessions {
            ids,
            confirmed: Vec::new(),
            pending: Vec::new(),
            attempt: None,
            hopeless: false,
            made: 0,
            taken: Freshness::default(),
            incarnation: None,
            former: None,
            returned: None,
        }
    }

    /// Whether two hosts have the peer's key: a daemon's life that has ended does not return.
    pub fn is_of_two(&self, now: Duration) -> bool {
        self.returned.is_some_and(|at| now < at + TWO_LIVES)
    }

    /// Another preshared key: what was agreed on under the old one is void, and the next handshake is under the new one.
    pub fn set_preshared_key(&mut self, key: &PresharedKey) {
        if key.as_bytes() == self.ids.preshared.as_bytes() {
            return;
        }
        self.ids.preshared = key.clone();
        self.confirmed.clear();
        self.pending.clear();
        self.attempt = None;
    }

    /// The session to send on.
    pub fn current(&self, now: Duration) -> Option<&Session> {
        self.confirmed.last().filter(|s| now < s.created + REJECT_AFTER)
    }

    /// The session that a transport packet names, and whether it is confirmed.
    pub fn find(&self, index: u32) -> Option<(&Session, bool)> {
        let confirmed = self.confirmed.iter().find(|s| s.index == index).map(|s| (s, true));
        confirmed
            .or_else(|| self.pending.iter().find(|p| p.session.index == index).map(|p| (&p.session, false)))
    }

    /// A transport packet opened under the pending session `index`. True if the peer has begun a new life with it.
    pub fn confirm(&mut self, index: u32) -> bool {
        let Some(at) = self.pending.iter().position(|p| p.session.index == index) else { return false };
        let session = self.pending.swap_remove(at).session;
        self.admit(session)
    }

    /// Every index in use.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        let attempt = self.attempt.iter().map(|a| a.index);
        self.confirmed
            .iter()
            .map(|s| s.index)
            .chain(self.pending.iter().map(|p| p.session.index))
            .chain(attempt)
    }

    /// What the initiations that pending sessions answer are known by.
    pub fn ephemerals(&self) -> impl Iterator<Item = [u8; 32]> {
        self.pending.iter().map(|pending| pending.ephemeral)
    }

    /// Whether to begin a handshake: there is no session, it is due for renewal, or (`renew`) the peer does not answer on one older
    /// than the first retry.
    pub fn wants_handshake(&self, now: Duration, renew: bool) -> bool {
        self.attempt.is_none()
            && !self.hopeless
            && self
                .confirmed
                .last()
                .is_none_or(|s| now >= s.rekey_at() || (renew && now >= s.created + RETRIES[0]))
    }

    /// When [`wants_handshake`](Self::wants_handshake) without `renew` becomes true.
    pub fn poll_rekey(&self) -> Option<Duration> {
        let s = self.confirmed.last().filter(|_| self.attempt.is_none())?;
        Some(s.rekey_at())
    }

    /// When the next keys are forgotten, whatever else happens.
    pub fn poll_expiry(&self) -> Option<Duration> {
        let confirmed = self.confirmed.iter().map(|s| s.created + REJECT_AFTER + LAST_ARRIVAL);
        confirmed.chain(self.pending.iter().map(|p| p.session.created + PENDING_LIFE)).min()
    }

    /// Starts a handshake.
    pub fn start(&mut self, now: Duration, rng: &mut impl RngCore, taken: &Indices) {
        self.made += 1;
        let ids = &self.ids;
        let (incarnation, counter, fast_aes) = (ids.incarnation, self.made, aes_gcm_is_fast());
        let payload = InitiationPayload { incarnation, counter, fast_aes, pieces: true }.encode();
        let (me, peer, psk) = (&ids.me, &ids.peer, &ids.preshared);
        let index = unused(rng, taken);
        match Initiator::new(rng, Prologue::Tunnel, me, peer, psk, index, &payload) {
            Ok((initiator, message)) => {
                let initiator = Some(initiator);
                self.attempt = Some(Attempt { index, initiator, message, started: now, sent: 0, cookies: 0 });
            }
            Err(error) => {
                tracing::error!(peer = %ids.peer, %error, "cannot start a handshake: its key is unusable");
                self.hopeless = true;
            }
        }
    }

    /// The initiation, when it is time to send it (again) over every path.
    pub fn poll_initiation(&mut self, now: Duration) -> Option<&[u8]> {
        if self.attempt.as_ref().is_none_or(|a| now < a.due()) {
            return None;
        }
        self.attempt = self.attempt.take().filter(|a| a.sent < RETRIES.len());
        let attempt = self.attempt.as_mut()?;
        attempt.sent += 1;
        Some(&attempt.message)
    }

    /// The initiation that waits for its response, once for each path: there is a cookie for it.
    pub fn repeat_initiation(&mut self) -> Option<&[u8]> {
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.cookies < MAX_PATHS)?;
        attempt.cookies += 1;
        Some(&attempt.message)
    }

    /// When [`poll_initiation`](Self::poll_initiation) has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.attempt.as_ref().map(Attempt::due)
    }

    /// Whether a handshake may be started at once if there is no session.
    pub fn can_start(&self) -> bool {
        self.attempt.is_none() && !self.hopeless
    }

    /// Whether this names an initiation that waits for its response.
    pub fn is_attempted(&self, index: u32) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.index == index)
    }

    /// What reads a response to this end's initiation `index`, to be given back with what came of it; `None` while it is lent.
    pub fn lend(&mut self, index: u32) -> Option<Initiator> {
        self.attempt.as_mut().filter(|attempt| attempt.index == index)?.initiator.take()
    }

    /// A response was read, if it was one. `Some(true)`: there is a session and the peer has begun a new life.
    pub fn handle_finished(
        &mut self,
        now: Duration,
        initiator: Initiator,
        finished: Option<Finished>,
    ) -> Option<bool> {
        let index = initiator.index();
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.index == index)?;
        attempt.initiator = Some(initiator);
        let finished = finished?;
        let payload = ResponsePayload::decode(&finished.payload).ok()?;
        let (sealing, opening) = finished.keys.with(payload.cipher);
        let session = Session {
            index,
            remote_index: finished.remote_index,
            sealing,
            opening,
            cipher: payload.cipher,
            incarnation: payload.incarnation,
            pieces: payload.pieces,
            created: now,
            initiator: true,
        };
        self.attempt = None;
        Some(self.admit(session))
    }

    /// The same initiation came again, over another path or because the response was lost: the same response.
    pub fn repeat_response(&mut self, ephemeral: &[u8; 32]) -> Option<Vec<u8>> {
        let pending =
            self.pending.iter_mut().find(|p| p.ephemeral == *ephemeral && p.repeats < MAX_REPEATS)?;
        pending.repeats += 1;
        Some(pending.response.clone())
    }

    /// An initiation that proved its sender to hold the peer's key, now or when it was recorded: what is left to do to answer it.
    pub fn handle_initiation(
        &mut self,
        now: Duration,
        responder: Box<Responder>,
        rng: &mut impl RngCore,
        taken: &Indices,
    ) -> Option<Reply> {
        let offer = InitiationPayload::decode(&responder.payload);
        let (life, counter) = (offer.incarnation, offer.counter);
        if !self.taken.take(life, counter) || !self.make_room(now, life) {
            return None;
        }
        Some(Reply {
            responder,
            preshared: self.ids.preshared.clone(),
            index: unused(rng, taken),
            cipher: offer.choose(aes_gcm_is_fast()),
            incarnation: self.ids.incarnation,
            life,
            pieces: offer.pieces,
            rng: ErasingRng::from_rng(rng),
        })
    }

    /// It is answered: the session waits for what confirms it.
    pub fn handle_answer(&mut self, now: Duration, answer: Answer) {
        let Answer { mut session, ephemeral, response, .. } = answer;
        session.created = now;
        self.pending.push(Pending { session, ephemeral, response, repeats: 0 });
    }

    /// Forgets what is too old.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.confirmed.retain(|s| now < s.created + REJECT_AFTER + LAST_ARRIVAL);
        self.pending.retain(|p| now < p.session.created + PENDING_LIFE);
    }

    /// A life's newer initiation takes the place of its older one.
    fn make_room(&mut self, now: Duration, life: u64) -> bool {
        self.pending.retain(|p| p.session.incarnation != life);
        if self.pending.len() < MAX_PENDING {
            return true;
        }
        let oldest = (0..self.pending.len()).min_by_key(|&i| self.pending[i].session.created);
        let oldest = oldest.filter(|&i| now >= self.pending[i].session.created + PENDING_PROTECTED);
        oldest.map(|i| self.pending.swap_remove(i)).is_some()
    }

    /// A session to send on. The keys of the peer's former life go, or what was sent under them could be replayed into
    /// its new life's empty windows.
    fn admit(&mut self, session: Session) -> bool {
        let before = self.incarnation.replace(session.incarnation);
        let reborn = before.is_some_and(|life| life != session.incarnation);
        if reborn {
            if self.former == Some(session.incarnation) {
                self.returned = Some(session.created);
            }
            self.former = before;
            self.confirmed.clear();
        }
        self.pending.retain(|p| p.session.incarnation == session.incarnation);
        if self.confirmed.len() == MAX_SESSIONS {
            self.confirmed.remove(0);
        }
        self.confirmed.push(session);
        reborn
    }
}

impl Attempt {
    fn due(&self) -> Duration {
        match self.sent {
            0 => self.started,
            n => self.started + RETRIES[..n].iter().sum::<Duration>(),
        }
    }
}
