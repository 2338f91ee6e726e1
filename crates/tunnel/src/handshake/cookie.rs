//! mac1, mac2 and cookies, as WireGuard's paper §5.3 and §5.4.7: who does not know the receiver's public key costs it
//! one hash; under load, who cannot receive at its source address costs it one more.

use std::{net::SocketAddr, time::Duration};

use blake2::{
    Blake2s256, Blake2sMac, Digest,
    digest::{KeyInit, Mac, consts::U16},
};
use chacha20poly1305::{AeadInPlace, Key, Tag, XChaCha20Poly1305, XNonce};
use rand_chacha::{
    ChaCha20Rng,
    rand_core::{RngCore, SeedableRng},
};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::{
    keys::PublicKey,
    wire::{self, COOKIE_REPLY_LEN, Kind, TAG_LEN},
};

/// How long a cookie, and the secret it comes from, is good for.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(120);
const MACS_LEN: usize = 2 * TAG_LEN;
const NONCE_LEN: usize = 24;

type Mac16 = [u8; TAG_LEN];

/// The responder's side.
pub struct CookieChecker {
    mac1_key: [u8; 32],
    cookie_key: [u8; 32],
    rng: ChaCha20Rng,
    secret: Zeroizing<[u8; 32]>,
    secret_since: Option<Duration>,
}

impl CookieChecker {
    /// For messages to `me`. 32 bytes are drawn from `rng`.
    pub fn new(me: &PublicKey, rng: &mut impl RngCore) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *seed);
        Self {
            mac1_key: key(b"nawa mac1", me),
            cookie_key: key(b"nawa cookie", me),
            rng: ChaCha20Rng::from_seed(*seed),
            secret: Zeroizing::new([0; 32]),
            secret_since: None,
        }
    }

    /// Whether the sender of a handshake message knows this end's public key.
    pub fn check_mac1(&self, message: &[u8]) -> bool {
        check_mac1(&self.mac1_key, message)
    }

    /// Whether the sender of a handshake message has got a cookie of the last two minutes at `source`.
    pub fn check_mac2(&mut self, now: Duration, source: SocketAddr, message: &[u8]) -> bool {
        let Some((_, _, mac2)) = split(message) else { return false };
        // Zeroes are what who has no cookie sends.
        if mac2 == [0; TAG_LEN] {
            return false;
        }
        let cookie = self.cookie(now, source);
        verify(&cookie, &message[..message.len() - TAG_LEN], mac2)
    }

    /// The cookie reply to a handshake message whose mac1 is good. `None` if `message` is too short to be one.
    pub fn reply(
        &mut self,
        now: Duration,
        source: SocketAddr,
        message: &[u8],
    ) -> Option<[u8; COOKIE_REPLY_LEN]> {
        let mut cookie = self.cookie(now, source);
        let (_, mac1, _) = split(message)?;
        let mut reply = [0; COOKIE_REPLY_LEN];
        reply[0] = Kind::CookieReply.first_byte();
        reply[4..8].copy_from_slice(&message[4..8]);
        self.rng.fill_bytes(&mut reply[8..8 + NONCE_LEN]);
        let nonce = XNonce::clone_from_slice(&reply[8..8 + NONCE_LEN]);
        let tag = XChaCha20Poly1305::new(Key::from_slice(&self.cookie_key))
            .encrypt_in_place_detached(&nonce, mac1, &mut cookie)
            .ok()?;
        reply[32..48].copy_from_slice(&cookie);
        reply[48..].copy_from_slice(&tag);
        Some(reply)
    }

    /// The cookie of a source address, port included.
    fn cookie(&mut self, now: Duration, source: SocketAddr) -> Mac16 {
        if self.secret_since.is_none_or(|since| now.saturating_sub(since) >= COOKIE_LIFETIME) {
            self.rng.fill_bytes(&mut *self.secret);
            self.secret_since = Some(now);
        }
        mac(&*self.secret, &address_bytes(source))
    }
}

/// The sender's side: fills in the macs. One for each (local address, receiver), as a cookie is bound to the source.
#[derive(ZeroizeOnDrop)]
pub struct CookieJar {
    /// Of a relay's client it is a secret.
    mac1_key: [u8; 32],
    cookie_key: [u8; 32],
    last_mac1: Option<Mac16>,
    #[zeroize(skip)]
    cookie: Option<(Mac16, Duration)>,
}

impl CookieJar {
    /// For handshake messages to `receiver`.
    pub fn new(receiver: &PublicKey) -> Self {
        Self::with_mac1_key(receiver, key(b"nawa mac1", receiver))
    }

    /// The same with another key for mac1.
    pub(crate) fn with_mac1_key(receiver: &PublicKey, mac1_key: [u8; 32]) -> Self {
        Self { mac1_key, cookie_key: key(b"nawa cookie", receiver), last_mac1: None, cookie: None }
    }

    /// Fills in mac1, and mac2 if there is a cookie of the last two minutes, over the last 32 bytes of a handshake
    /// message.
    ///
    /// # Panics
    /// If `message` is shorter than a handshake message.
    pub fn stamp(&mut self, now: Duration, message: &mut [u8]) {
        let at = message.len() - MACS_LEN;
        let mac1 = mac(&self.mac1_key, &message[..at]);
        message[at..at + TAG_LEN].copy_from_slice(&mac1);
        self.last_mac1 = Some(mac1);
        let mac2 = match self.cookie.filter(|_| self.has_cookie(now)) {
            Some((cookie, _)) => mac(&cookie, &message[..at + TAG_LEN]),
            None => [0; TAG_LEN],
        };
        message[at + TAG_LEN..].copy_from_slice(&mac2);
    }

    /// Whether there is a cookie of the last two minutes.
    pub fn has_cookie(&self, now: Duration) -> bool {
        self.cookie.is_some_and(|(_, since)| now.saturating_sub(since) < COOKIE_LIFETIME)
    }

    /// Takes a cookie reply to the last stamped message; false if it is not one. That message can then be sent again, stamped
    /// again.
    pub fn accept(&mut self, now: Duration, reply: &[u8]) -> bool {
        let Ok(wire::Message::CookieReply { .. }) = wire::Message::parse(reply) else { return false };
        let Some(mac1) = self.last_mac1 else { return false };
        let mut cookie: Mac16 = wire::array(reply, 32);
        let opened = XChaCha20Poly1305::new(Key::from_slice(&self.cookie_key)).decrypt_in_place_detached(
            XNonce::from_slice(&reply[8..32]),
            &mac1,
            &mut cookie,
            Tag::from_slice(&reply[48..]),
        );
        if opened.is_err() {
            return false;
        }
        self.cookie = Some((cookie, now));
        true
    }
}

/// Says when handshakes come faster than they should: a bucket of tokens that refills at a constant rate.
#[derive(Debug)]
pub struct LoadGauge {
    /// Tokens per second.
    rate: f64,
    burst: f64,
    tokens: f64,
    last: Duration,
}

impl LoadGauge {
    /// Up to `burst` handshakes at once and `rate` per second for long are no load.
    pub fn new(rate: u32, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { rate: f64::from(rate), burst, tokens: burst, last: Duration::ZERO }
    }

    /// Counts one handshake message; true if there have been too many.
    pub fn under_load(&mut self, now: Duration) -> bool {
        let spent = self.is_spent(now);
        if !spent {
            self.tokens -= 1.0;
        }
        spent
    }

    /// Whether [`under_load`](Self::under_load) would say so; counts nothing.
    pub fn is_spent(&mut self, now: Duration) -> bool {
        let elapsed = now.saturating_sub(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.tokens = (self.tokens + elapsed * self.rate).min(self.burst);
        self.tokens < 1.0
    }
}

/// IP address as 16 bytes (IPv4 mapped) and port.
pub(crate) fn address_bytes(address: SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// Whether a handshake message's mac1 was made with `key`.
pub(crate) fn check_mac1(key: &[u8; 32], message: &[u8]) -> bool {
    split(message).is_some_and(|(body, mac1, _)| verify(key, body, mac1))
}

/// All before the macs, mac1, mac2.
fn split(message: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let at = message.len().checked_sub(MACS_LEN).filter(|at| *at >= 8)?;
    let (body, macs) = message.split_at(at);
    Some((body, &macs[..TAG_LEN], &macs[TAG_LEN..]))
}

fn key(label: &[u8], owner: &PublicKey) -> [u8; 32] {
    Blake2s256::new().chain_update(label).chain_update(owner.as_bytes()).finalize().into()
}

fn keyed(key: &[u8], data: &[u8]) -> Blake2sMac<U16> {
    let mut mac =
        <Blake2sMac<U16> as KeyInit>::new_from_slice(key).expect("keys of up to 32 bytes are taken");
    mac.update(data);
    mac
}

/// Keyed BLAKE2s of 16 bytes.
pub(crate) fn mac(key: &[u8], data: &[u8]) -> Mac16 {
    keyed(key, data).finalize().into_bytes().into()
}

/// Compares in constant time.
pub(crate) fn verify(key: &[u8], data: &[u8], expected: &[u8]) -> bool {
    keyed(key, data).verify_slice(expected).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{INITIATION_LEN, RESPONSE_LEN};

    const T: Duration = Duration::from_secs(1000);

    fn ends() -> (CookieChecker, CookieJar) {
        let me = PublicKey::from([5; 32]);
        (CookieChecker::new(&me, &mut ChaCha20Rng::seed_from_u64(1)), CookieJar::new(&me))
    }

    fn source(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn message(fill: u8) -> Vec<u8> {
        let mut message = vec![fill; INITIATION_LEN];
        message[0] = Kind::Initiation.first_byte();
        message
    }

    #[test]
    fn mac1_proves_knowledge_of_the_public_key() {
        let (checker, mut jar) = ends();
        let mut good = message(1);
        assert!(!checker.check_mac1(&good));
        jar.stamp(T, &mut good);
        assert!(checker.check_mac1(&good));
        CookieJar::new(&PublicKey::from([6; 32])).stamp(T, &mut good);
        assert!(!checker.check_mac1(&good));
    }

    #[test]
    fn mac1_covers_every_byte_before_it() {
        let (checker, mut jar) = ends();
        let mut good = message(1);
        jar.stamp(T, &mut good);
        for at in 0..INITIATION_LEN - TAG_LEN {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            assert!(!checker.check_mac1(&damaged), "byte {at}");
        }
        assert!((0..40).all(|len| !checker.check_mac1(&good[..len])));
    }

    #[test]
    fn mac2_needs_a_cookie_for_this_address_and_port() {
        let (mut checker, mut jar) = ends();
        let here = source("192.0.2.1:7");
        let mut message = message(1);
        jar.stamp(T, &mut message);
        assert!(!checker.check_mac2(T, here, &message));
        let reply = checker.reply(T, here, &message).unwrap();
        assert!(jar.accept(T, &reply));
        jar.stamp(T, &mut message);
        assert!(checker.check_mac1(&message) && checker.check_mac2(T, here, &message));
        assert!(!checker.check_mac2(T, source("192.0.2.1:8"), &message));
        assert!(!checker.check_mac2(T, source("192.0.2.2:7"), &message));
        message[9] ^= 1;
        assert!(!checker.check_mac2(T, here, &message));
    }

    #[test]
    fn a_cookie_ends_after_two_minutes_at_both_ends() {
        let (mut checker, mut jar) = ends();
        let here = source("[2001:db8::1]:7");
        let mut message = message(1);
        jar.stamp(T, &mut message);
        assert!(jar.accept(T, &checker.reply(T, here, &message).unwrap()));
        let late = T + COOKIE_LIFETIME - Duration::from_nanos(1);
        jar.stamp(late, &mut message);
        assert!(checker.check_mac2(late, here, &message));
        assert!(!checker.check_mac2(T + COOKIE_LIFETIME, here, &message));
        jar.stamp(T + COOKIE_LIFETIME, &mut message);
        assert_eq!(message[INITIATION_LEN - TAG_LEN..], [0; TAG_LEN]);
    }

    #[test]
    fn a_cookie_reply_fits_only_the_message_it_answers() {
        let (mut checker, mut jar) = ends();
        let here = source("192.0.2.1:7");
        let (mut first, mut second) = (message(1), message(2));
        assert!(!jar.accept(T, &checker.reply(T, here, &first).unwrap()));
        jar.stamp(T, &mut first);
        let reply = checker.reply(T, here, &first).unwrap();
        jar.stamp(T, &mut second);
        assert!(!jar.accept(T, &reply));
        let mut reply = checker.reply(T, here, &second).unwrap();
        reply[40] ^= 1;
        assert!(!jar.accept(T, &reply));
        reply[40] ^= 1;
        assert!(jar.accept(T, &reply));
    }

    #[test]
    fn a_cookie_reply_is_smaller_than_its_question_and_names_its_sender() {
        let (mut checker, _) = ends();
        let mut question = message(1);
        question[4..8].copy_from_slice(&9u32.to_be_bytes());
        let reply = checker.reply(T, source("192.0.2.1:7"), &question).unwrap();
        assert!(reply.len() < RESPONSE_LEN);
        assert_eq!(wire::Message::parse(&reply), Ok(wire::Message::CookieReply { receiver: 9 }));
        assert_eq!(checker.reply(T, source("192.0.2.1:7"), &question[..39]), None);
    }

    #[test]
    fn the_gauge_allows_a_burst_and_a_rate() {
        let mut gauge = LoadGauge::new(10, 5);
        let mut count = |now| (0..100).take_while(|_| !gauge.under_load(now)).count();
        assert_eq!(count(T), 5);
        assert_eq!(count(T), 0);
        assert_eq!(count(T + Duration::from_millis(350)), 3);
        assert_eq!(count(T), 0);
        assert_eq!(count(T + Duration::from_secs(60)), 5);
    }

    #[test]
    fn asking_the_gauge_counts_nothing() {
        let mut gauge = LoadGauge::new(10, 1);
        assert!((0..100).all(|_| !gauge.is_spent(T)));
        assert!(!gauge.under_load(T) && gauge.is_spent(T) && gauge.under_load(T));
    }
}
