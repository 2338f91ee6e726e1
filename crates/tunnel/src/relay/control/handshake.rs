//! The three messages of a registration.

use std::{net::SocketAddr, time::Duration};

use rand_chacha::rand_core::RngCore;

use super::{Deadline, PENDING_LIFETIME, Pending, RelayControl, SILENT, of};
use crate::{
    handshake::cookie::CookieJar,
    handshake::noise::{self, Prologue, Responder},
    keys::{PresharedKey, PublicKey},
    path::registration::{self, RegisterPayload, SessionPayload},
    relay::{Action, DropReason, IDLE, is_destination, table::Entry},
    wire::{self, REGISTERED_LEN},
};

impl RelayControl {
    pub(super) fn handle_initiation(
        &mut self,
        now: Duration,
        source: SocketAddr,
        message: &[u8],
    ) -> Result<Action, DropReason> {
        let key = self.client_macs.find(message)?;
        let ephemeral = noise::ephemeral(message);
        let client = self.clients.entry(key).or_default();
        if client.seen.contains(&ephemeral) {
            return Err(DropReason::Replayed);
        }
        if client.gauge.under_load(now) || self.gauge.under_load(now) {
            if !self.checker.check_mac2(now, source, message) {
                return self.ask_for_cookie(now, &key, source, message);
            }
            let at_home = of(&self.addresses, source).any(|id| client.sessions.contains(&id));
            if !client.askers.take(now, source.ip()) || (!at_home && client.proven.under_load(now)) {
                return Err(DropReason::Load);
            }
        }
        // Whatever comes of it, a copy costs no second look.
        client.seen.remember(ephemeral);
        let handshake =
            Responder::read(Prologue::Relay, &self.me, message).map_err(|_| DropReason::Handshake)?;
        let asked = self.admit(&key, &handshake)?;
        self.respond(now, source, handshake, asked).map(Action::Reply)
    }

    fn ask_for_cookie(
        &mut self,
        now: Duration,
        key: &PublicKey,
        source: SocketAddr,
        message: &[u8],
    ) -> Result<Action, DropReason> {
        let client = self.clients.entry(*key).or_default();
        let at_home = of(&self.addresses, source).any(|id| client.sessions.contains(&id));
        if (client.cookies.under_load(now) || self.cookies.under_load(now))
            && !(at_home && client.home_cookies.take(now, source.ip()))
        {
            return Err(DropReason::Load);
        }
        let reply = self.checker.reply(now, source, message).ok_or(DropReason::Malformed)?;
        Ok(Action::Reply(reply.to_vec()))
    }

    /// Whether an initiation deserves a response. Changes nothing but the memory of initiations.
    fn admit(&mut self, key: &PublicKey, handshake: &Responder) -> Result<RegisterPayload, DropReason> {
        if handshake.peer != *key {
            return Err(DropReason::Handshake);
        }
        let asked = RegisterPayload::decode(&handshake.payload);
        let client = self.clients.entry(*key).or_default();
        if !client.taken.take(asked.life.into(), asked.counter.into()) {
            return Err(DropReason::Replayed);
        }
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
            None => self.new_session(now, &key)?,
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
    fn new_session(&mut self, now: Duration, key: &PublicKey) -> Result<u64, DropReason> {
        self.superfluous_session(now, key)?;
        loop {
            let session = self.rng.next_u64();
            if session != 0 && !self.sessions.contains_key(&session) {
                return Ok(session);
            }
        }
    }

    /// Which session of `key` has to go before it gets another, if one has to: the one that was heard least recently. A
    /// client whose address is another each time leaves sessions behind.
    fn superfluous_session(&self, now: Duration, key: &PublicKey) -> Result<Option<u64>, DropReason> {
        let own = self.clients.get(key).map(|client| &client.sessions);
        let Some(own) = own.filter(|own| own.len() >= self.limits.sessions_per_key) else {
            let full = self.sessions.len() >= self.limits.sessions;
            return if full { Err(DropReason::SessionLimit) } else { Ok(None) };
        };
        let heard = |id: &u64| (self.table.with(*id, Entry::heard).unwrap_or_default(), *id);
        match own.iter().map(heard).min() {
            Some((heard, id)) if heard + SILENT <= now => Ok(Some(id)),
            _ => Err(DropReason::SessionLimit),
        }
    }

    /// An index for a pending handshake of `key`, whose oldest one may have to go.
    fn new_index(&mut self, key: &PublicKey) -> Result<u32, DropReason> {
        let own = &self.clients.entry(*key).or_default().pending;
        if let Some(oldest) = own.front().copied().filter(|_| own.len() >= self.limits.pending_per_key) {
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

    pub(super) fn forget_pending(&mut self, index: u32) -> Option<Pending> {
        let pending = self.pending.remove(&index)?;
        self.deadlines.remove(&(pending.expires, Deadline::Pending(index)));
        if let Some(client) = self.clients.get_mut(&pending.key) {
            client.pending.retain(|other| *other != index);
        }
        Some(pending)
    }

    /// The third message of a handshake.
    pub(super) fn handle_confirmation(
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
        let next_counter = next(counter(message))?;
        if registration::open_registered(&pending.keys, message) != Some(pending.session) {
            return Err(DropReason::Confirmation);
        }
        if !self.sessions.contains_key(&pending.session) {
            let key = pending.key;
            if let Some(silent) = self.superfluous_session(now, &key)? {
                self.forget_session(silent);
            }
        }
        let pending = self.forget_pending(index).ok_or(DropReason::UnknownHandshake)?;
        self.forget_older(&pending);
        let id = pending.session;
        self.confirm(now, index, pending, next_counter);
        self.open_if_registered(now, id);
        self.open_waiting_for(now, source);
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

    /// A third message that was repeated because no answer has come.
    pub(super) fn handle_repeated(
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
        if counter < session.next_counter {
            return Err(DropReason::Replayed);
        }
        let next_counter = next(counter)?;
        if registration::open_registered(&session.keys, message) != Some(id) {
            return Err(DropReason::Confirmation);
        }
        session.next_counter = next_counter;
        self.table.with(id, |entry| {
            entry.hear(now);
            entry.add_credit(REGISTERED_LEN);
        });
        Ok(if session.open { Action::Reply(session.answer(id)) } else { Action::Taken })
    }
}

/// The counter of a third message.
fn counter(message: &[u8]) -> u64 {
    u64::from_be_bytes(wire::array(message, 8))
}

/// The counter behind it; nobody counts so far.
fn next(counter: u64) -> Result<u64, DropReason> {
    counter.checked_add(1).ok_or(DropReason::Confirmation)
}
