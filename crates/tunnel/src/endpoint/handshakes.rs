//! Handshakes that strangers may ask for: what they cost is bounded for all together, and most of it, X25519, is left to
//! another thread ([`Work`]), where who comes from an address of a peer's is first.

use std::time::Duration;

use super::answers::Ask;
use super::{Done, Endpoint, Work};
use crate::handshake::cookie::CookieJar;
use crate::handshake::noise::{self, Responder};
use crate::handshake::sessions::Answer;
use crate::path::registration::Registration;
use crate::wire::address::Address;

/// Cookie replies, relay echoes and repeated responses wait to be sent if fewer than so many messages do. The response of a handshake that
/// has been done always waits: so many come of a flood in one turn.
const MAX_REPLIES: usize = 256;
/// A line about strangers, at most this often.
const WORDS_INTERVAL: Duration = Duration::from_secs(10);

impl Endpoint {
    pub(super) fn handle_initiation(&mut self, now: Duration, from: Address, message: &[u8]) {
        let loaded = self.limits.gauge.is_spent(now);
        let proven = loaded && self.checker.check_mac2(now, from.remote, message);
        // What most of a flood comes to ends here, before mac1 costs a hash as well.
        if loaded && !proven && self.limits.cookies.is_spent(now) && !self.is_known(now, &from) {
            self.counters.limited_handshakes += 1;
            return;
        }
        if !self.checker.check_mac1(message) {
            self.counters.received_bad_mac1 += 1;
            self.say(now, || {
                let line = format!(
                    "a handshake from {} is for another key than this end's, {}; correct the file there",
                    from.remote, self.public
                );
                (from.remote.ip().to_string(), line)
            });
            return;
        }
        if self.limits.gauge.under_load(now) && !self.is_welcome(now, &from, message, proven) {
            return;
        }
        let ephemeral = noise::ephemeral(message);
        if let Some(at) = self.names.of_ephemeral(&ephemeral) {
            if let Some(response) = self.peers[at].sessions.repeat_response(&ephemeral) {
                let response = self.stamped(now, at, response);
                self.reply(from, response);
            }
            return;
        }
        let known = self.is_known(now, &from);
        self.counters.limited_handshakes += u64::from(!self.answers.ask(ephemeral, message, from, known));
    }

    /// The next step of a handshake, to be done by whoever has time for it; `None` while enough are being done. What comes of
    /// it is for [`handle_work`](Self::handle_work).
    pub fn poll_work(&mut self) -> Option<Work> {
        let (names, peers) = (&self.names, &mut self.peers);
        let lend = |from: &Address, index| {
            let Some(at) = names.of_index(index) else {
                return peers.iter_mut().find_map(|peer| peer.registration(from, index))?.lend(index);
            };
            let sessions = &mut peers[at].sessions;
            sessions.is_attempted(index).then(|| sessions.lend(index))
        };
        self.responses.poll(lend).or_else(|| self.answers.poll(&self.me))
    }

    /// A step of a handshake is done.
    pub fn handle_work(&mut self, now: Duration, done: Done) {
        // What is not known any more was asked for before the peers became others.
        match done {
            Done::Read(ephemeral, responder) => match (self.answers.take(&ephemeral), responder) {
                (Some(ask), Some(responder)) => self.handle_read(now, ask, responder),
                (Some(_), None) => self.counters.refused_handshakes += 1,
                (None, _) => {}
            },
            Done::Answered(ephemeral, answer) => match (self.answers.take(&ephemeral), answer) {
                (Some(ask), Some(answer)) => self.handle_answered(now, ask, *answer),
                (Some(_), None) => self.counters.refused_handshakes += 1,
                (None, _) => {}
            },
            Done::Finished(from, initiator, finished) => {
                let (index, finished) = (initiator.index(), finished.map(|finished| *finished));
                if let Some(at) = self.names.of_index(index) {
                    self.roster.wake(at);
                    self.peers[at].handle_finished(now, &from, *initiator, finished);
                    self.names.note(at, &self.peers[at].sessions);
                } else if let Some((at, registration)) = self.registration(&from, index) {
                    registration.handle_finished(now, *initiator, finished);
                    self.roster.wake(at);
                }
            }
        }
    }

    /// Does all steps at once, for who has nobody else to do them.
    pub fn work(&mut self, now: Duration) {
        while let Some(work) = self.poll_work() {
            self.handle_work(now, work.run());
        }
    }

    /// It is known who an initiation is from.
    fn handle_read(&mut self, now: Duration, ask: Ask, responder: Box<Responder>) {
        let Some(&at) = self.places.get(&responder.peer) else {
            self.counters.refused_handshakes += 1;
            self.say(now, || {
                let (from, key) = (ask.from[0].remote, responder.peer);
                let line =
                    format!("a handshake from {from} is of the key {key}, which no peer in the file has");
                (key.to_string(), line)
            });
            return;
        };
        let sessions = &mut self.peers[at].sessions;
        match sessions.handle_initiation(now, responder, &mut self.rng, self.names.indices()) {
            Some(reply) => self.answers.go_on(ask, reply),
            None => self.counters.refused_handshakes += 1,
        }
    }

    fn handle_answered(&mut self, now: Duration, ask: Ask, answer: Answer) {
        let Some(&at) = self.places.get(&answer.peer) else { return };
        if self.names.of_index(answer.session.index).is_some() {
            self.counters.refused_handshakes += 1;
            return;
        }
        let response = answer.response.clone();
        self.peers[at].sessions.handle_answer(now, answer);
        self.roster.wake(at);
        self.names.note(at, &self.peers[at].sessions);
        let response = self.stamped(now, at, response);
        self.replies.extend(ask.from.into_iter().map(|from| (from, response.clone())));
    }

    /// A response with its MACs.
    fn stamped(&self, now: Duration, peer: usize, mut response: Vec<u8>) -> Vec<u8> {
        CookieJar::new(&self.peers[peer].config.public_key).stamp(now, &mut response);
        response
    }

    /// Under load, who cannot show that it receives at its address gets a cookie and nothing else, and who can may do a
    /// few handshakes per second. The proof (mac2) is of the address as this end sees it: through a relay, the relay's.
    fn is_welcome(&mut self, now: Duration, from: &Address, message: &[u8], proven: bool) -> bool {
        let host = from.remote.ip();
        if proven {
            // Whoever is at many addresses has many cookies: peers where they are known to be do not wait behind him.
            let known = self.is_known(now, from);
            let hosts = if known { &mut self.limits.known } else { &mut self.limits.sources };
            let welcome = hosts.take(now, host);
            self.counters.limited_handshakes += u64::from(!welcome);
            return welcome;
        }
        // A flood from made-up addresses does not keep a cookie from where a peer is known to be.
        if self.limits.cookies.under_load(now)
            && !(self.is_known(now, from) && self.limits.known_cookies.take(now, host))
        {
            self.counters.limited_handshakes += 1;
        } else if let Some(reply) = self.checker.reply(now, from.remote, message) {
            self.counters.cookies_sent += 1;
            self.reply(*from, reply.to_vec());
        }
        false
    }

    /// Whether a path of a peer's leads there.
    fn is_known(&mut self, now: Duration, from: &Address) -> bool {
        self.known.contains(now, from, &self.peers)
    }

    pub(super) fn handle_response(&mut self, now: Duration, from: Address, receiver: u32, message: &[u8]) {
        if !self.checker.check_mac1(message) {
            self.counters.received_bad_mac1 += 1;
            self.handle_stranger(now, from.remote);
            return;
        }
        let known = self.names.of_index(receiver).is_some()
            || (self.leads_to(now, from.remote) && self.registration(&from, receiver).is_some());
        if known {
            let taken = self.responses.take(receiver, from, message);
            self.counters.limited_handshakes += u64::from(!taken);
        }
    }

    /// A registration with the relay at `from` that waits for a response to its initiation `index`, and whose it is.
    fn registration(&mut self, from: &Address, index: u32) -> Option<(usize, &mut Registration)> {
        let peers = self.peers.iter_mut().enumerate();
        peers.into_iter().find_map(|(at, peer)| Some((at, peer.registration(from, index)?)))
    }

    pub(super) fn handle_cookie(&mut self, now: Duration, from: Address, receiver: u32, message: &[u8]) {
        let Some(peer) = self.names.of_index(receiver) else {
            self.handle_relay(now, &from, message);
            return;
        };
        self.roster.wake(peer);
        self.peers[peer].handle_cookie(now, &from, message);
    }

    pub(super) fn handle_relay(&mut self, now: Duration, from: &Address, message: &[u8]) {
        if !self.leads_to(now, from.remote) {
            self.counters.received_unknown_session += 1;
            return;
        }
        if let Some(at) = self.peers.iter_mut().position(|peer| peer.handle_relay(now, from, message)) {
            self.roster.wake(at);
        }
    }

    pub(super) fn reply(&mut self, to: Address, message: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((to, message));
        }
    }

    /// Says what strangers do wrong, a few times a minute at most, and the same (what it is about, and the line) once.
    fn say(&self, now: Duration, word: impl FnOnce() -> (String, String)) {
        let mut words = self.word.borrow_mut();
        if words.last.as_ref().is_none_or(|(at, _)| now >= *at + WORDS_INTERVAL) {
            let (what, line) = word();
            if words.is_new(now, what) {
                tracing::info!("{line}");
            }
            words.last = Some((now, line));
        }
    }
}
