//! A client's side of one session at a relay: sans-IO.
//!
//! Initiation (destination, session id or 0) → response (session id, lifetime) → third message, which proves that the
//! client holds the fresh key and receives at its address. The relay answers that with a message of the same type
//! once the destination has consented: only then is there a session. Each question is repeated with a growing,
//! jittered interval; the whole is repeated before the session's lifetime ends.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use rand_core::{RngCore, SeedableRng};

use crate::{
    handshake::client_mac::ClientMac,
    handshake::cookie::{self, CookieJar},
    handshake::erasing_rng::ErasingRng,
    handshake::noise::{self, Finished, Initiator, Payload, Prologue, SessionKeys},
    handshake::session::Cipher,
    keys::{PresharedKey, PrivateKey, PublicKey},
    wire::{self, HEADER_LEN, Kind, Message, REGISTERED_LEN},
};

/// Before the first repetition: most round trips are shorter. It doubles with each.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);
/// The interval grows no further than this.
const LONGEST_INTERVAL: Duration = Duration::from_secs(8);
/// A response to an earlier initiation is good as well: the round trip may be longer than the interval.
const INITIATIONS_IN_FLIGHT: usize = 4;
/// Third messages per handshake; then the relay is asked anew.
const CONFIRMATIONS: u64 = 3;

/// What the initiation to a relay says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterPayload {
    /// Where the client's datagrams are to go.
    pub destination: SocketAddr,
    /// The session that the client has, or 0.
    pub session: u64,
    /// A random name for this client since it started.
    pub life: u32,
    /// Initiations that this life has made, this one included.
    pub counter: u16,
}

impl RegisterPayload {
    /// Address 16 (IPv4 mapped), port 2, session id 8, life 4, counter 2.
    pub fn encode(&self) -> Payload {
        let (life, counter) = (self.life.to_be_bytes(), self.counter.to_be_bytes());
        let destination = cookie::address_bytes(self.destination);
        noise::payload(&[&destination, &self.session.to_be_bytes(), &life, &counter])
    }

    /// Any payload is one.
    pub fn decode(payload: &Payload) -> Self {
        let ip = std::net::Ipv6Addr::from(wire::array::<16>(payload, 0)).to_canonical();
        let destination = SocketAddr::new(ip, u16::from_be_bytes(wire::array(payload, 16)));
        Self {
            destination,
            session: u64::from_be_bytes(wire::array(payload, 18)),
            life: u32::from_be_bytes(wire::array(payload, 26)),
            counter: u16::from_be_bytes(wire::array(payload, 30)),
        }
    }
}

/// What a relay's response says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPayload {
    /// The relay's name for the session.
    pub session: u64,
    /// The relay forgets a session that is idle for so long; whole seconds.
    pub lifetime: Duration,
}

impl SessionPayload {
    /// Session id 8, lifetime in seconds 4, zeroes.
    pub fn encode(&self) -> Payload {
        let seconds = u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX);
        noise::payload(&[&self.session.to_be_bytes(), &seconds.to_be_bytes()])
    }

    /// Any payload is one.
    pub fn decode(payload: &Payload) -> Self {
        let seconds = u32::from_be_bytes(wire::array(payload, 8));
        let lifetime = Duration::from_secs(seconds.into());
        Self { session: u64::from_be_bytes(wire::array(payload, 0)), lifetime }
    }
}

/// A message of type 5: the session id sealed with the handshake's key, path id 0 and `counter` as nonce.
pub(crate) fn registered(keys: &SessionKeys, receiver: u32, counter: u64, session: u64) -> Vec<u8> {
    let mut header = [0; HEADER_LEN];
    header[0] = Kind::Registered.first_byte();
    header[4..8].copy_from_slice(&receiver.to_be_bytes());
    header[8..].copy_from_slice(&counter.to_be_bytes());
    let mut message = vec![0; REGISTERED_LEN];
    message[..HEADER_LEN].copy_from_slice(&header);
    message[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&session.to_be_bytes());
    keys.with(Cipher::ChaCha20Poly1305).0.seal(0, counter, &header, &mut message[HEADER_LEN..]);
    message
}

/// The session id in a message of type 5, if it fits the keys.
pub(crate) fn open_registered(keys: &SessionKeys, message: &[u8]) -> Option<u64> {
    let Ok(Message::Registered { counter, sealed, .. }) = Message::parse(message) else { return None };
    let mut body = *sealed;
    let opening = keys.with(Cipher::ChaCha20Poly1305).1;
    let plaintext = opening.open(0, counter, &wire::array(message, 0), &mut body).ok()?;
    Some(u64::from_be_bytes(wire::array(plaintext, 0)))
}

/// A handshake whose third message has been sent.
struct Confirming {
    keys: SessionKeys,
    index: u32,
    remote_index: u32,
    offer: SessionPayload,
    /// No later than the relay's own start of the lifetime: before the first third message.
    since: Duration,
    /// Third messages sent.
    sent: u64,
    /// The way to the relay has changed since: an answer makes a session, but the relay is to be asked anew.
    outdated: bool,
}

/// One session at one relay, kept alive. After any `handle_*` or `refresh`, and when `poll_timeout` has come, drain
/// `poll_transmit`; what it gives goes to the relay, over the path that the session is for.
pub struct Registration {
    me: PrivateKey,
    relay: PublicKey,
    destination: SocketAddr,
    rng: ErasingRng,
    /// `None`: the relay's key is unusable, and nothing is ever sent.
    client_mac: Option<(ClientMac, CookieJar)>,
    life: u32,
    /// Initiations made in this life.
    made: u16,
    /// Initiations without a response yet: their indices, and what reads one, unless that is lent.
    initiators: VecDeque<(u32, Option<Initiator>)>,
    confirming: Option<Confirming>,
    /// Id and the time at which it is no longer known to be good.
    session: Option<(u64, Duration)>,
    /// The session's id, also after that time.
    last_id: u64,
    /// Asking, as opposed to resting until the lifetime's end comes near.
    asking: bool,
    interval: Duration,
    due: Duration,
    last_initiation: Option<Duration>,
}

impl Registration {
    /// Asks `relay` for a session with `destination`, at once. 32 bytes are drawn from `rng`.
    pub fn new(
        now: Duration,
        me: &PrivateKey,
        relay: &PublicKey,
        destination: SocketAddr,
        rng: &mut impl RngCore,
    ) -> Self {
        let mut rng = ErasingRng::from_rng(rng);
        let client_mac = ClientMac::of_client(me, relay);
        Self {
            me: me.clone(),
            relay: *relay,
            destination,
            life: rng.next_u32(),
            rng,
            client_mac: client_mac.map(|client_mac| {
                let jar = client_mac.jar();
                (client_mac, jar)
            }),
            made: 0,
            initiators: VecDeque::new(),
            confirming: None,
            session: None,
            last_id: 0,
            asking: true,
            interval: FIRST_INTERVAL,
            due: now,
            last_initiation: None,
        }
    }

    /// Takes a datagram of type 2, 3 or 5 from the relay's address; false if it is not for this registration.
    pub fn handle_message(&mut self, now: Duration, message: &[u8]) -> bool {
        match Message::parse(message) {
            Ok(Message::Response { receiver, .. }) => {
                let Some(Some(mut initiator)) = self.lend(receiver) else { return false };
                let finished = initiator.finish(message).ok();
                finished.is_some() & self.handle_finished(now, initiator, finished)
            }
            Ok(Message::CookieReply { .. }) => {
                self.client_mac.as_mut().is_some_and(|(_, jar)| jar.accept(now, message))
            }
            Ok(Message::Registered { receiver, .. }) => self.handle_answer(now, receiver, message),
            _ => false,
        }
    }

    /// Whether this names an initiation that waits for its response.
    pub fn is_attempted(&self, index: u32) -> bool {
        self.initiators.iter().any(|(of, _)| *of == index)
    }

    /// What reads a response to the initiation `index`, to be given back with what came of it; `Some(None)` while it is lent.
    pub fn lend(&mut self, index: u32) -> Option<Option<Initiator>> {
        self.initiators.iter_mut().find(|(of, _)| *of == index).map(|(_, initiator)| initiator.take())
    }

    /// A response was read, if it was one. False if its initiation is not waited for any more.
    pub fn handle_finished(
        &mut self,
        now: Duration,
        initiator: Initiator,
        finished: Option<Finished>,
    ) -> bool {
        let index = initiator.index();
        let Some(at) = self.initiators.iter().position(|(of, _)| *of == index) else { return false };
        self.initiators[at].1 = Some(initiator);
        let Some(Finished { keys, remote_index, payload }) = finished else { return true };
        let offer = SessionPayload::decode(&payload);
        self.initiators.clear();
        // The relay is there: it is the destination that may let us wait, and that should be noticed soon.
        self.interval = FIRST_INTERVAL;
        self.confirming =
            Some(Confirming { keys, index, remote_index, offer, since: now, sent: 0, outdated: false });
        self.due = now;
        true
    }

    /// Registers anew, but no more often than the interval allows: the own address has changed, or nothing comes
    /// back. The session keeps its id if the relay still knows it.
    pub fn refresh(&mut self, now: Duration) {
        if !self.asking {
            self.ask(self.last_initiation.map_or(now, |last| now.max(last + FIRST_INTERVAL)));
        }
    }

    /// Registers anew at once: the way to the relay is another, and what has been asked may have gone nowhere. If it is answered all the
    /// same there is a session: ways may change more often than a handshake takes.
    pub fn restart(&mut self, now: Duration) {
        self.confirming.iter_mut().for_each(|confirming| confirming.outdated = true);
        self.ask(now);
    }

    /// What to send to the relay now.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.session.is_some_and(|(_, end)| end <= now) {
            self.session = None;
        }
        if self.due > now {
            return None;
        }
        if !self.asking {
            self.ask(now);
        }
        self.plan_repetition(now);
        if self.confirming.as_ref().is_some_and(|c| !c.outdated && c.sent < CONFIRMATIONS) {
            return self.confirm();
        }
        self.initiate(now)
    }

    /// When to call `poll_transmit` again.
    pub fn poll_timeout(&self) -> Option<Duration> {
        Some(self.session.map_or(self.due, |(_, end)| self.due.min(end)))
    }

    /// The session's id: from the relay's answer, which says that it forwards, to the end of the lifetime.
    pub fn session(&self) -> Option<u64> {
        self.session.map(|(id, _)| id)
    }

    /// Where the relay is to forward to.
    pub fn destination(&self) -> SocketAddr {
        self.destination
    }

    fn ask(&mut self, due: Duration) {
        self.asking = true;
        self.interval = FIRST_INTERVAL;
        self.due = due;
    }

    fn plan_repetition(&mut self, now: Duration) {
        self.due = now + self.jittered(self.interval);
        self.interval = (2 * self.interval).min(LONGEST_INTERVAL);
    }

    /// Between 1 and 1.25 times `interval`.
    fn jittered(&mut self, interval: Duration) -> Duration {
        interval + interval.mul_f64(f64::from(self.rng.next_u32()) / f64::from(u32::MAX) / 4.0)
    }

    fn initiate(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.last_initiation = Some(now);
        let payload = self.next_payload().encode();
        let psk = PresharedKey::default();
        let started =
            Initiator::new(&mut self.rng, Prologue::Relay, &self.me, &self.relay, &psk, 0, &payload);
        // A relay key that is no point of the curve's large subgroup never answers, as a wrong one.
        let (mut initiator, mut message) = started.ok()?;
        let (client_mac, jar) = self.client_mac.as_mut()?;
        initiator.rename(client_mac.index(&noise::ephemeral(&message)), &mut message);
        if self.initiators.len() == INITIATIONS_IN_FLIGHT {
            self.initiators.pop_front();
        }
        self.initiators.push_back((initiator.index(), Some(initiator)));
        jar.stamp(now, &mut message);
        Some(message)
    }

    /// A life whose counter has run out is followed by another.
    fn next_payload(&mut self) -> RegisterPayload {
        if self.made == u16::MAX {
            (self.life, self.made) = (self.rng.next_u32(), 0);
        }
        self.made += 1;
        let (destination, session) = (self.destination, self.last_id);
        RegisterPayload { destination, session, life: self.life, counter: self.made }
    }

    fn confirm(&mut self) -> Option<Vec<u8>> {
        let confirming = self.confirming.as_mut()?;
        let Confirming { keys, remote_index, offer, sent, .. } = confirming;
        let message = registered(keys, *remote_index, *sent, offer.session);
        *sent += 1;
        Some(message)
    }

    fn handle_answer(&mut self, now: Duration, receiver: u32, message: &[u8]) -> bool {
        let Some(confirming) = &self.confirming else { return false };
        let SessionPayload { session, lifetime } = confirming.offer;
        if confirming.index != receiver || open_registered(&confirming.keys, message) != Some(session) {
            return false;
        }
        self.session = Some((session, confirming.since + lifetime));
        self.last_id = session;
        if self.confirming.take().is_some_and(|confirming| confirming.outdated) {
            return true;
        }
        self.asking = false;
        self.due = now + self.jittered(lifetime / 2).max(FIRST_INTERVAL);
        true
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;

    use super::*;
    use crate::handshake::noise::Responder;

    const T: Duration = Duration::from_secs(10);
    const LIFETIME: Duration = Duration::from_secs(180);

    /// A relay with one session and no rules.
    struct Relay {
        key: PrivateKey,
        rng: ChaCha20Rng,
        keys: Option<SessionKeys>,
        named: u64,
    }

    impl Relay {
        fn new() -> Self {
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            Self { key: PrivateKey::generate(&mut rng), rng, keys: None, named: 0 }
        }

        fn client(&mut self) -> Registration {
            let me = PrivateKey::generate(&mut self.rng);
            Registration::new(T, &me, &self.key.public(), destination(), &mut self.rng)
        }

        fn respond(&mut self, initiation: &[u8]) -> Vec<u8> {
            let handshake = Responder::read(Prologue::Relay, &self.key, initiation).unwrap();
            let asked = RegisterPayload::decode(&handshake.payload);
            assert_eq!(asked.destination, destination());
            self.named = asked.session;
            let offer = SessionPayload { session: 77, lifetime: LIFETIME }.encode();
            let (response, keys) =
                handshake.reply(&mut self.rng, &PresharedKey::default(), 5, &offer).unwrap();
            self.keys = Some(keys);
            response
        }

        fn answer(&self, initiation: &[u8]) -> Vec<u8> {
            let index = u32::from_be_bytes(wire::array(initiation, 4));
            registered(self.keys.as_ref().unwrap(), index, 0, 77)
        }

        /// A client with a session, confirmed at T.
        fn registered(&mut self) -> Registration {
            let mut client = self.client();
            self.complete(&mut client, T);
            client
        }

        fn complete(&mut self, client: &mut Registration, now: Duration) {
            let initiation = client.poll_transmit(now).unwrap();
            let response = self.respond(&initiation);
            assert!(client.handle_message(now, &response));
            let third = client.poll_transmit(now).unwrap();
            assert_eq!(open_registered(self.keys.as_ref().unwrap(), &third), Some(77));
            assert!(client.handle_message(now, &self.answer(&initiation)));
        }
    }

    fn destination() -> SocketAddr {
        "203.0.113.7:51900".parse().unwrap()
    }

    /// What a client sends if nobody answers, and when.
    fn unanswered(client: &mut Registration, count: usize) -> Vec<(Duration, Vec<u8>)> {
        let next = |client: &mut Registration| {
            let due = client.poll_timeout().unwrap();
            client.poll_transmit(due).map(|message| (due, message))
        };
        std::iter::from_fn(|| Some(next(client))).flatten().take(count).collect()
    }

    #[test]
    fn payloads_and_back() {
        for text in ["203.0.113.7:51900", "[2001:db8::7]:1"] {
            let payload = RegisterPayload {
                destination: text.parse().unwrap(),
                session: u64::MAX - 1,
                life: 1 << 31,
                counter: 258,
            };
            assert_eq!(RegisterPayload::decode(&payload.encode()), payload);
        }
        let payload = SessionPayload { session: 1 << 60, lifetime: LIFETIME };
        assert_eq!(SessionPayload::decode(&payload.encode()), payload);
    }

    #[test]
    fn there_is_a_session_only_when_the_relay_has_answered_the_third_message() {
        let mut relay = Relay::new();
        let mut client = relay.client();
        let initiation = client.poll_transmit(T).unwrap();
        assert_eq!(relay.respond(&initiation).len(), wire::RESPONSE_LEN);
        let response = relay.respond(&initiation);
        assert!(client.handle_message(T, &response));
        assert!(client.poll_transmit(T).is_some());
        assert_eq!((client.session(), client.poll_transmit(T)), (None, None));
        let answer = relay.answer(&initiation);
        assert!(client.handle_message(T, &answer));
        assert_eq!(client.session(), Some(77));
        assert!(!client.handle_message(T, &answer));
    }

    #[test]
    fn repeats_with_a_growing_bounded_interval() {
        let sent = unanswered(&mut Relay::new().client(), 20);
        let gaps: Vec<Duration> = sent.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        let mut interval = FIRST_INTERVAL;
        for gap in gaps {
            assert!(gap >= interval && gap <= interval.mul_f64(1.25), "{gap:?}");
            interval = (2 * interval).min(LONGEST_INTERVAL);
        }
    }

    #[test]
    fn keeps_few_initiations_and_takes_a_late_response() {
        let mut relay = Relay::new();
        let mut client = relay.client();
        let sent = unanswered(&mut client, 6);
        assert_eq!(client.initiators.len(), INITIATIONS_IN_FLIGHT);
        let now = sent[5].0;
        let too_late = relay.respond(&sent[1].1);
        assert!(!client.handle_message(now, &too_late));
        let late = relay.respond(&sent[2].1);
        assert!(client.handle_message(now, &late));
        client.poll_transmit(now).unwrap();
        assert!(client.handle_message(now, &relay.answer(&sent[2].1)));
        assert_eq!(client.session(), Some(77));
    }

    #[test]
    fn a_bogus_response_or_answer_changes_nothing() {
        let mut relay = Relay::new();
        let mut client = relay.client();
        let initiation = client.poll_transmit(T).unwrap();
        let response = relay.respond(&initiation);
        let mut bogus = response.clone();
        bogus[50] ^= 1;
        assert!(!client.handle_message(T, &bogus));
        assert!(client.handle_message(T, &response));
        let mut bogus = relay.answer(&initiation);
        bogus[20] ^= 1;
        assert!(!client.handle_message(T, &bogus));
        assert!(client.handle_message(T, &relay.answer(&initiation)));
        assert!(!client.handle_message(T, &initiation));
        assert!(!client.handle_message(T, &[]));
    }

    #[test]
    fn asks_anew_when_the_third_message_stays_unanswered() {
        let mut relay = Relay::new();
        let mut client = relay.client();
        let initiation = client.poll_transmit(T).unwrap();
        let response = relay.respond(&initiation);
        assert!(client.handle_message(T, &response));
        let kinds: Vec<u8> = unanswered(&mut client, 5).iter().map(|(_, message)| message[0] & 15).collect();
        assert_eq!(kinds, [5, 5, 5, 1, 1]);
    }

    #[test]
    fn each_repeated_third_message_has_its_own_counter() {
        let mut relay = Relay::new();
        let mut client = relay.client();
        let initiation = client.poll_transmit(T).unwrap();
        let response = relay.respond(&initiation);
        client.handle_message(T, &response);
        let counters: Vec<u8> = unanswered(&mut client, 3).iter().map(|(_, message)| message[15]).collect();
        assert_eq!(counters, [0, 1, 2]);
    }

    #[test]
    fn registers_again_before_the_lifetime_ends_and_names_its_session() {
        let mut relay = Relay::new();
        let mut client = relay.registered();
        let due = client.poll_timeout().unwrap();
        assert!(due >= T + LIFETIME / 2 && due < T + LIFETIME);
        relay.complete(&mut client, due);
        assert_eq!((relay.named, client.session()), (77, Some(77)));
    }

    #[test]
    fn the_session_ends_with_its_lifetime() {
        let mut client = Relay::new().registered();
        let mut now = T;
        while now < T + LIFETIME {
            assert_eq!(client.session(), Some(77), "{now:?}");
            now = client.poll_timeout().unwrap();
            client.poll_transmit(now);
        }
        assert_eq!(client.session(), None);
    }

    #[test]
    fn refreshes_when_asked_but_not_too_often() {
        let mut relay = Relay::new();
        let mut client = relay.registered();
        client.refresh(T);
        assert_eq!(client.poll_transmit(T), None);
        assert_eq!(client.poll_timeout(), Some(T + FIRST_INTERVAL));
        relay.complete(&mut client, T + FIRST_INTERVAL);
        let later = T + Duration::from_secs(20);
        client.refresh(later);
        assert!(client.poll_transmit(later).is_some());
        for _ in 0..10 {
            client.refresh(later);
            assert_eq!(client.poll_transmit(later), None);
        }
        assert_eq!(client.session(), Some(77));
    }

    #[test]
    fn restarts_at_once_also_while_it_asks() {
        let mut relay = Relay::new();
        let mut client = relay.registered();
        let later = T + Duration::from_secs(20);
        client.refresh(later);
        assert!(client.poll_transmit(later).is_some());
        let then = later + FIRST_INTERVAL / 5;
        assert_eq!(client.poll_transmit(then), None);
        client.restart(then);
        relay.complete(&mut client, then);
        assert_eq!((relay.named, client.session()), (77, Some(77)));
    }

    #[test]
    fn a_session_comes_though_the_way_changes_more_often_than_a_handshake_takes() {
        let mut relay = Relay::new();
        let mut client = relay.client();
        // A message takes one step.
        let step = Duration::from_millis(100);
        let (mut asked, mut said, mut keys) = (Vec::<Vec<u8>>::new(), Vec::<Vec<u8>>::new(), Vec::new());
        let mut now = T;
        while client.session().is_none() {
            assert!(now < T + Duration::from_secs(2));
            client.restart(now);
            for message in said.drain(..) {
                // A response to an initiation that is not waited for any more is none.
                let _ = client.handle_message(now, &message);
            }
            for message in asked.drain(..) {
                if let Ok(Message::Initiation { .. }) = Message::parse(&message) {
                    said.push(relay.respond(&message));
                    keys.push((u32::from_be_bytes(wire::array(&message, 4)), relay.keys.take().unwrap()));
                } else {
                    let (index, keys) =
                        keys.iter().find(|(_, k)| open_registered(k, &message) == Some(77)).unwrap();
                    said.push(registered(keys, *index, 0, 77));
                }
            }
            asked.extend(std::iter::from_fn(|| client.poll_transmit(now)));
            now += step;
        }
        // By its last way the relay has still to hear of it.
        assert!(client.asking);
        relay.complete(&mut client, now + Duration::from_secs(20));
        assert!(!client.asking);
    }

    #[test]
    fn a_relay_key_of_low_order_is_never_answered_and_never_panics() {
        let mut relay = Relay::new();
        let me = PrivateKey::generate(&mut relay.rng);
        let mut client = Registration::new(T, &me, &[0; 32].into(), destination(), &mut relay.rng);
        assert_eq!(client.poll_transmit(T), None);
        assert!(client.poll_timeout() > Some(T));
    }
}
