//! How a new node and the one that invited it come to know each other's keys: the tunnel's handshake, with the invite's
//! one-time secret as preshared key, and then sealed messages over the same stream. Sans-IO.
//!
//! The joiner's private key never travels. The inviter learns a key that its owner has proved to have, and from the first
//! message that it can open, that this owner has the invite; the joiner knows the inviter's key from the invite.

use rand_core::RngCore;

use crate::handshake::noise::{Initiator, NoiseError, Prologue, Responder, SessionKeys};
use crate::handshake::session::{Cipher, OpenError, OpeningKey, SealingKey};
use crate::wire::{HEADER_LEN, INITIATION_LEN, PAYLOAD_LEN, RESPONSE_LEN, TAG_LEN};
use crate::{PresharedKey, PrivateKey, PublicKey};

/// Bytes of the joiner's first message.
pub const REQUEST_LEN: usize = INITIATION_LEN;
/// Bytes of the inviter's answer.
pub const ANSWER_LEN: usize = RESPONSE_LEN;
/// Bytes that sealing adds.
pub const SEAL_LEN: usize = TAG_LEN;

/// A stream carries one handshake, and no message of it says anything but keys.
const INDEX: u32 = 0;
const EMPTY: [u8; PAYLOAD_LEN] = [0; PAYLOAD_LEN];

/// The joiner, until the inviter answers.
pub struct Joining(Initiator);

impl Joining {
    /// Who joins, and its first message. 32 bytes are drawn from `rng`.
    ///
    /// # Errors
    /// `inviter` is no usable key.
    pub fn new(
        rng: &mut impl RngCore,
        me: &PrivateKey,
        inviter: &PublicKey,
        secret: &PresharedKey,
    ) -> Result<(Self, Vec<u8>), NoiseError> {
        let (initiator, request) = Initiator::new(rng, Prologue::Enrol, me, inviter, secret, INDEX, &EMPTY)?;
        Ok((Self(initiator), request))
    }

    /// Takes the answer.
    ///
    /// # Errors
    /// It is from somebody else than the inviter, or of another invite.
    pub fn finish(mut self, answer: &[u8]) -> Result<Channel, NoiseError> {
        self.0.finish(answer).map(|finished| Channel::new(&finished.keys))
    }
}

/// The inviter's side of it: who asks, the answer, and what is then said. 32 bytes are drawn from `rng`. Whether the joiner has
/// the invite shows when a message of its can be opened.
///
/// # Errors
/// `request` is no such message, or meant for another key.
pub fn answer(
    rng: &mut impl RngCore,
    me: &PrivateKey,
    secret: &PresharedKey,
    request: &[u8],
) -> Result<(PublicKey, Vec<u8>, Channel), NoiseError> {
    let responder = Responder::read(Prologue::Enrol, me, request)?;
    let joiner = responder.peer;
    let (answer, keys) = responder.reply(rng, secret, INDEX, &EMPTY)?;
    Ok((joiner, answer, Channel::new(&keys)))
}

/// Sealed messages, in order.
#[derive(Debug)]
pub struct Channel {
    seal: SealingKey,
    open: OpeningKey,
    sent: u64,
    received: u64,
}

impl Channel {
    fn new(keys: &SessionKeys) -> Self {
        let (seal, open) = keys.with(Cipher::ChaCha20Poly1305);
        Self { seal, open, sent: 0, received: 0 }
    }

    /// The next message, sealed.
    pub fn seal(&mut self, text: &[u8]) -> Vec<u8> {
        let mut body = [text, &[0; SEAL_LEN]].concat();
        self.seal.seal(0, self.sent, &[0; HEADER_LEN], &mut body);
        self.sent += 1;
        body
    }

    /// The other end's next message.
    ///
    /// # Errors
    /// It is not, or the other end lacks the secret.
    pub fn open(&mut self, mut body: Vec<u8>) -> Result<Vec<u8>, OpenError> {
        let length = self.open.open(0, self.received, &[0; HEADER_LEN], &mut body)?.len();
        self.received += 1;
        body.truncate(length);
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};

    use super::*;

    fn rng() -> ChaCha20Rng {
        ChaCha20Rng::from_seed([4; 32])
    }

    #[test]
    fn both_learn_who_the_other_is() {
        let mut rng = rng();
        let (hub, van) = (PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng));
        let secret = PresharedKey::generate(&mut rng);
        let (joining, request) = Joining::new(&mut rng, &van, &hub.public(), &secret).expect("a key");
        assert_eq!(request.len(), REQUEST_LEN);
        let (who, reply, mut at_hub) = answer(&mut rng, &hub, &secret, &request).expect("a request");
        assert_eq!((who, reply.len()), (van.public(), ANSWER_LEN));
        let mut at_van = joining.finish(&reply).expect("the hub's answer");
        for text in [&b"10.77.0.2"[..], b"", b"again"] {
            let sealed = at_hub.seal(text);
            assert_eq!(at_van.open(sealed).expect("the hub's"), text);
        }
        let once = at_van.seal(b"done");
        assert_eq!(at_hub.open(once.clone()).expect("the van's"), b"done");
        assert!(at_hub.open(once).is_err(), "a message was taken twice");
    }

    #[test]
    fn without_the_secret_nothing_can_be_read_or_said() {
        let mut rng = rng();
        let (hub, thief) = (PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng));
        let secret = PresharedKey::generate(&mut rng);
        let (joining, request) =
            Joining::new(&mut rng, &thief, &hub.public(), &PresharedKey::default()).expect("a key");
        let (_, reply, mut at_hub) = answer(&mut rng, &hub, &secret, &request).expect("a request");
        assert!(joining.finish(&reply).is_err());
        assert!(at_hub.open(vec![0; 40]).is_err());
        assert!(at_hub.open(Vec::new()).is_err());
        let other = PrivateKey::generate(&mut rng);
        assert!(answer(&mut rng, &other, &secret, &request).is_err(), "a request for another hub");
        assert!(answer(&mut rng, &hub, &secret, &[0; REQUEST_LEN]).is_err());
        assert!(answer(&mut rng, &hub, &secret, &[]).is_err());
    }
}
