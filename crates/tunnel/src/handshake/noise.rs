//! The handshake `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s` (Noise Protocol Framework, revision 34, §7.5 and §9), thin
//! over `snow`. Both messages carry a payload of `PAYLOAD_LEN` bytes; `CookieJar::stamp` fills in their macs.

mod primitives;

use rand_core::RngCore;
use snow::{Builder, HandshakeState};
use zeroize::{Zeroize, ZeroizeOnDrop};

use self::primitives::{Randomness, Resolver};
use crate::{
    handshake::session::{Cipher, OpeningKey, SealingKey},
    keys::{PresharedKey, PrivateKey, PublicKey},
    wire::{self, INITIATION_LEN, Kind, PAYLOAD_LEN, RESPONSE_LEN, WireError},
};

const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const MACS_LEN: usize = 32;
const INITIATION_HEADER_LEN: usize = 8;
const RESPONSE_HEADER_LEN: usize = 12;

/// What a handshake message carries, see `InitiationPayload` and the others.
pub type Payload = [u8; PAYLOAD_LEN];

/// Why a handshake message is worth nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoiseError {
    /// It is not a message of the expected type.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It answers another initiation.
    #[error("this response answers another initiation")]
    OtherIndex,
    /// Forged, damaged, or meant for another key or preshared key.
    #[error("this handshake message does not fit the keys: check both ends' public and preshared keys")]
    Rejected,
    /// A content that this version does not know.
    #[error("this handshake message's payload is unknown; update the older end")]
    Payload,
}

impl From<snow::Error> for NoiseError {
    fn from(_: snow::Error) -> Self {
        Self::Rejected
    }
}

/// What the two ends talk about; mixed into the handshake, so that a message for one never passes for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prologue {
    /// Peer with peer.
    Tunnel,
    /// Client with relay.
    Relay,
    /// Who joins with who invited ([`crate::handshake::enrol`]).
    Enrol,
}

impl Prologue {
    fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Tunnel => b"nawa tunnel v1",
            Self::Relay => b"nawa relay v1",
            Self::Enrol => b"nawa enrol v1",
        }
    }
}

/// The two keys of a session as one end sees them. Wiped when dropped.
#[derive(ZeroizeOnDrop)]
pub struct SessionKeys {
    send: [u8; 32],
    receive: [u8; 32],
}

impl SessionKeys {
    /// Makes them usable with the cipher that the responder chose.
    pub fn with(&self, cipher: Cipher) -> (SealingKey, OpeningKey) {
        (SealingKey::new(cipher, &self.send), OpeningKey::new(cipher, &self.receive))
    }

    /// The initiator sends with the first key (Noise §5.2, `Split`).
    fn split(state: &mut HandshakeState) -> Self {
        let (mut first, mut second) = state.dangerously_get_raw_split();
        let (send, receive) = if state.is_initiator() { (first, second) } else { (second, first) };
        first.zeroize();
        second.zeroize();
        Self { send, receive }
    }
}

/// What a completed handshake gives its initiator.
pub struct Finished {
    /// The session's keys.
    pub keys: SessionKeys,
    /// The responder's index, the `receiver` of what is sent to it.
    pub remote_index: u32,
    /// The response's payload.
    pub payload: Payload,
}

/// One initiation that waits for its response.
pub struct Initiator {
    state: HandshakeState,
    index: u32,
}

impl Initiator {
    /// Starts a handshake with `peer`: the state to keep, and the message to stamp and send. 32 bytes are drawn from
    /// `rng`. Fails only with a `peer` or `psk` that is no usable key.
    pub fn new(
        rng: &mut impl RngCore,
        prologue: Prologue,
        me: &PrivateKey,
        peer: &PublicKey,
        psk: &PresharedKey,
        index: u32,
        payload: &Payload,
    ) -> Result<(Self, Vec<u8>), NoiseError> {
        let randomness = Randomness::default();
        randomness.seed(rng);
        let mut state = builder(&randomness, prologue, me)?
            .remote_public_key(peer.as_bytes())?
            .psk(2, psk.as_bytes())?
            .build_initiator()?;
        let mut message = vec![0; INITIATION_LEN];
        message[0] = Kind::Initiation.first_byte();
        message[4..8].copy_from_slice(&index.to_be_bytes());
        state.write_message(payload, &mut message[INITIATION_HEADER_LEN..INITIATION_LEN - MACS_LEN])?;
        Ok((Self { state, index }, message))
    }

    /// Gives this end another index, in the state and in its message.
    pub(crate) fn rename(&mut self, index: u32, message: &mut [u8]) {
        self.index = index;
        message[4..8].copy_from_slice(&index.to_be_bytes());
    }

    /// This end's index, which the response names.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Takes the response. After an error the initiation still waits for the right one.
    pub fn finish(&mut self, response: &[u8]) -> Result<Finished, NoiseError> {
        let wire::Message::Response { sender, receiver } = wire::Message::parse(response)? else {
            return Err(WireError::Type(response[0] & 15).into());
        };
        if receiver != self.index {
            return Err(NoiseError::OtherIndex);
        }
        let mut payload = [0; PAYLOAD_LEN];
        self.state.read_message(&response[RESPONSE_HEADER_LEN..RESPONSE_LEN - MACS_LEN], &mut payload)?;
        Ok(Finished { keys: SessionKeys::split(&mut self.state), remote_index: sender, payload })
    }
}

/// An initiation that has been read and can be replied to. Its sender holds the private key of `peer` or replays a
/// message of somebody who does.
pub struct Responder {
    /// Who sent the initiation.
    pub peer: PublicKey,
    /// The initiation's payload.
    pub payload: Payload,
    /// The initiator's index, the `receiver` of what is sent to it.
    pub remote_index: u32,
    /// Tells one initiation from every other: what a memory of replays keeps.
    pub ephemeral: [u8; 32],
    state: HandshakeState,
    randomness: Randomness,
}

impl Responder {
    /// Reads an initiation; the caller has checked its mac1. Costs two X25519 operations.
    pub fn read(prologue: Prologue, me: &PrivateKey, initiation: &[u8]) -> Result<Self, NoiseError> {
        let wire::Message::Initiation { sender } = wire::Message::parse(initiation)? else {
            return Err(WireError::Type(initiation[0] & 15).into());
        };
        let randomness = Randomness::default();
        let mut state = builder(&randomness, prologue, me)?.build_responder()?;
        let mut payload = [0; PAYLOAD_LEN];
        state.read_message(&initiation[INITIATION_HEADER_LEN..INITIATION_LEN - MACS_LEN], &mut payload)?;
        let peer: [u8; 32] =
            state.get_remote_static().and_then(|key| key.try_into().ok()).ok_or(NoiseError::Rejected)?;
        let ephemeral = ephemeral(initiation);
        Ok(Self { peer: peer.into(), payload, remote_index: sender, ephemeral, state, randomness })
    }

    /// The response to stamp and send, and the session's keys. 32 bytes are drawn from `rng`.
    pub fn reply(
        mut self,
        rng: &mut impl RngCore,
        psk: &PresharedKey,
        index: u32,
        payload: &Payload,
    ) -> Result<(Vec<u8>, SessionKeys), NoiseError> {
        self.randomness.seed(rng);
        self.state.set_psk(2, psk.as_bytes())?;
        let mut message = vec![0; RESPONSE_LEN];
        message[0] = Kind::Response.first_byte();
        message[4..8].copy_from_slice(&index.to_be_bytes());
        message[8..12].copy_from_slice(&self.remote_index.to_be_bytes());
        self.state.write_message(payload, &mut message[RESPONSE_HEADER_LEN..RESPONSE_LEN - MACS_LEN])?;
        Ok((message, SessionKeys::split(&mut self.state)))
    }
}

/// What a tunnel's initiation says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitiationPayload {
    /// The initiator's daemon's life.
    pub incarnation: u64,
    /// Initiations that this life has made for this peer, this one included.
    pub counter: u64,
    /// AES-GCM is fast at the initiator.
    pub fast_aes: bool,
    /// The initiator takes inner packets in pieces.
    pub pieces: bool,
}

impl InitiationPayload {
    /// Incarnation 8, counter 8, flags 1 (bit 0: AES-GCM is fast, 1: takes pieces), zeroes.
    pub fn encode(&self) -> Payload {
        let (incarnation, counter) = (self.incarnation.to_be_bytes(), self.counter.to_be_bytes());
        payload(&[&incarnation, &counter, &[u8::from(self.fast_aes) | u8::from(self.pieces) << 1]])
    }

    /// Unknown flags are ignored.
    pub fn decode(payload: &Payload) -> Self {
        let long = |at| u64::from_be_bytes(wire::array(payload, at));
        let (fast_aes, pieces) = (payload[16] & 1 != 0, payload[16] & 2 != 0);
        Self { incarnation: long(0), counter: long(8), fast_aes, pieces }
    }

    /// The cipher for a responder that is itself `fast_aes` or not.
    pub fn choose(&self, fast_aes: bool) -> Cipher {
        if self.fast_aes && fast_aes { Cipher::Aes256Gcm } else { Cipher::ChaCha20Poly1305 }
    }
}

/// What a tunnel's response says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponsePayload {
    /// The responder's daemon's life.
    pub incarnation: u64,
    /// What both ends seal data with.
    pub cipher: Cipher,
    /// The responder takes inner packets in pieces.
    pub pieces: bool,
}

impl ResponsePayload {
    /// Incarnation 8, cipher 1 (0: ChaCha20-Poly1305, 1: AES-256-GCM), flags 1 (bit 0: takes pieces), zeroes.
    pub fn encode(&self) -> Payload {
        payload(&[&self.incarnation.to_be_bytes(), &[self.cipher as u8, u8::from(self.pieces)]])
    }

    /// Fails on a cipher that this version does not know.
    pub fn decode(payload: &Payload) -> Result<Self, NoiseError> {
        let cipher = match payload[8] {
            0 => Cipher::ChaCha20Poly1305,
            1 => Cipher::Aes256Gcm,
            _ => return Err(NoiseError::Payload),
        };
        let (incarnation, pieces) = (u64::from_be_bytes(wire::array(payload, 0)), payload[9] & 1 != 0);
        Ok(Self { incarnation, cipher, pieces })
    }
}

/// Puts the parts one after the other; they fit by construction.
pub(crate) fn payload(parts: &[&[u8]]) -> Payload {
    let mut out = [0; PAYLOAD_LEN];
    let mut at = 0;
    for part in parts {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    out
}

/// What tells an initiation, of the right length, from every other: its ephemeral key.
///
/// # Panics
/// If `initiation` is shorter than an initiation.
pub fn ephemeral(initiation: &[u8]) -> [u8; 32] {
    wire::array(initiation, INITIATION_HEADER_LEN)
}

/// A bounded memory of initiations, by their ephemeral keys: the last 64.
#[derive(Debug, Default)]
pub struct HandshakeSeen {
    last: std::collections::VecDeque<[u8; 32]>,
}

impl HandshakeSeen {
    const CAPACITY: usize = 64;

    /// Whether `ephemeral` is remembered.
    pub fn contains(&self, ephemeral: &[u8; 32]) -> bool {
        self.last.contains(ephemeral)
    }

    /// Remembers `ephemeral` in place of the oldest.
    pub fn remember(&mut self, ephemeral: [u8; 32]) {
        if self.last.len() == Self::CAPACITY {
            self.last.pop_front();
        }
        self.last.push_back(ephemeral);
    }
}

fn builder<'a>(
    randomness: &Randomness,
    prologue: Prologue,
    me: &'a PrivateKey,
) -> Result<Builder<'a>, NoiseError> {
    let params = PATTERN.parse().map_err(NoiseError::from)?;
    let builder = Builder::with_resolver(params, Box::new(Resolver(randomness.clone())));
    Ok(builder.prologue(prologue.as_bytes())?.local_private_key(me.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};

    use super::*;

    struct Ends {
        rng: ChaCha20Rng,
        here: PrivateKey,
        there: PrivateKey,
        psk: PresharedKey,
    }

    impl Ends {
        fn new() -> Self {
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            let (here, there) = (PrivateKey::generate(&mut rng), PrivateKey::generate(&mut rng));
            Self { rng, here, there, psk: PresharedKey::default() }
        }

        fn initiate(&mut self) -> (Initiator, Vec<u8>) {
            let peer = self.there.public();
            let payload = [7; PAYLOAD_LEN];
            Initiator::new(&mut self.rng, Prologue::Tunnel, &self.here, &peer, &self.psk, 1, &payload)
                .unwrap()
        }

        fn respond(&mut self, initiation: &[u8]) -> (Vec<u8>, SessionKeys) {
            let responder = Responder::read(Prologue::Tunnel, &self.there, initiation).unwrap();
            responder.reply(&mut self.rng, &self.psk, 2, &[8; PAYLOAD_LEN]).unwrap()
        }
    }

    fn assert_same(here: &SessionKeys, there: &SessionKeys) {
        assert_eq!((here.send, here.receive), (there.receive, there.send));
        assert_ne!(here.send, here.receive);
    }

    #[test]
    fn both_ends_get_the_same_keys_and_payloads() {
        let mut ends = Ends::new();
        let (mut initiator, initiation) = ends.initiate();
        assert_eq!(initiation.len(), INITIATION_LEN);
        let responder = Responder::read(Prologue::Tunnel, &ends.there, &initiation).unwrap();
        assert_eq!((responder.peer, responder.payload), (ends.here.public(), [7; PAYLOAD_LEN]));
        assert_eq!((responder.remote_index, &responder.ephemeral[..]), (1, &initiation[8..40]));
        let (response, keys) = responder.reply(&mut ends.rng, &ends.psk, 2, &[8; PAYLOAD_LEN]).unwrap();
        assert_eq!(response.len(), RESPONSE_LEN);
        let finished = initiator.finish(&response).unwrap();
        assert_eq!((finished.remote_index, finished.payload), (2, [8; PAYLOAD_LEN]));
        assert_same(&finished.keys, &keys);
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let run = || {
            let mut ends = Ends::new();
            let initiation = ends.initiate().1;
            (ends.respond(&initiation).0, initiation)
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn two_handshakes_share_nothing() {
        let mut ends = Ends::new();
        let (first, second) = (ends.initiate().1, ends.initiate().1);
        assert_ne!(first[8..40], second[8..40]);
        assert_ne!(ends.respond(&first).1.send, ends.respond(&first).1.send);
    }

    #[test]
    fn a_bogus_response_leaves_the_initiation_usable() {
        let mut ends = Ends::new();
        let (mut initiator, initiation) = ends.initiate();
        let (response, keys) = ends.respond(&initiation);
        for at in [RESPONSE_HEADER_LEN, RESPONSE_HEADER_LEN + 32, RESPONSE_LEN - MACS_LEN - 1] {
            let mut bogus = response.clone();
            bogus[at] ^= 1;
            assert_eq!(initiator.finish(&bogus).err(), Some(NoiseError::Rejected));
        }
        let mut low_order = response.clone();
        low_order[RESPONSE_HEADER_LEN..][..32].fill(0);
        assert_eq!(initiator.finish(&low_order).err(), Some(NoiseError::Rejected));
        assert_same(&initiator.finish(&response).unwrap().keys, &keys);
    }

    #[test]
    fn a_response_to_another_index_is_refused() {
        let mut ends = Ends::new();
        let (mut initiator, initiation) = ends.initiate();
        let mut response = ends.respond(&initiation).0;
        response[11] ^= 1;
        assert_eq!(initiator.finish(&response).err(), Some(NoiseError::OtherIndex));
    }

    #[test]
    fn another_type_is_refused() {
        let mut ends = Ends::new();
        let (mut initiator, initiation) = ends.initiate();
        let response = ends.respond(&initiation).0;
        assert_eq!(initiator.finish(&initiation).err(), Some(WireError::Type(1).into()));
        let read = Responder::read(Prologue::Tunnel, &ends.there, &response);
        assert_eq!(read.err(), Some(WireError::Type(2).into()));
    }

    #[test]
    fn a_damaged_initiation_is_refused() {
        let mut ends = Ends::new();
        let initiation = ends.initiate().1;
        for at in INITIATION_HEADER_LEN..INITIATION_LEN - MACS_LEN {
            let mut damaged = initiation.clone();
            damaged[at] ^= 1;
            let read = Responder::read(Prologue::Tunnel, &ends.there, &damaged);
            assert_eq!(read.err(), Some(NoiseError::Rejected), "byte {at}");
        }
    }

    #[test]
    fn another_prologue_or_key_is_refused() {
        let mut ends = Ends::new();
        let initiation = ends.initiate().1;
        let relay = Responder::read(Prologue::Relay, &ends.there, &initiation);
        assert_eq!(relay.err(), Some(NoiseError::Rejected));
        let other = Responder::read(Prologue::Tunnel, &ends.here, &initiation);
        assert_eq!(other.err(), Some(NoiseError::Rejected));
    }

    #[test]
    fn another_preshared_key_is_refused() {
        let mut ends = Ends::new();
        let (mut initiator, initiation) = ends.initiate();
        ends.psk = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".parse().unwrap();
        let response = ends.respond(&initiation).0;
        assert_eq!(initiator.finish(&response).err(), Some(NoiseError::Rejected));
    }

    #[test]
    fn a_peer_of_low_order_is_refused() {
        let mut ends = Ends::new();
        let peer = PublicKey::from([0; 32]);
        let payload = [0; PAYLOAD_LEN];
        let new = Initiator::new(&mut ends.rng, Prologue::Tunnel, &ends.here, &peer, &ends.psk, 1, &payload);
        assert_eq!(new.err(), Some(NoiseError::Rejected));
    }

    #[test]
    fn payloads_and_back() {
        for (fast_aes, pieces) in [(false, true), (true, false)] {
            let incarnation = 0x0102030405060708;
            let payload = InitiationPayload { incarnation, counter: 1 << 60, fast_aes, pieces };
            assert_eq!(InitiationPayload::decode(&payload.encode()), payload);
        }
        for (cipher, pieces) in [(Cipher::ChaCha20Poly1305, true), (Cipher::Aes256Gcm, false)] {
            let payload = ResponsePayload { incarnation: u64::MAX, cipher, pieces };
            assert_eq!(ResponsePayload::decode(&payload.encode()), Ok(payload));
        }
        assert_eq!(ResponsePayload::decode(&[2; PAYLOAD_LEN]), Err(NoiseError::Payload));
    }

    #[test]
    fn aes_is_chosen_only_if_both_ends_are_fast_with_it() {
        for (there, here, cipher) in [
            (true, true, Cipher::Aes256Gcm),
            (true, false, Cipher::ChaCha20Poly1305),
            (false, true, Cipher::ChaCha20Poly1305),
            (false, false, Cipher::ChaCha20Poly1305),
        ] {
            assert_eq!(
                InitiationPayload { incarnation: 0, counter: 1, fast_aes: there, pieces: true }.choose(here),
                cipher
            );
        }
    }

    #[test]
    fn the_memory_of_initiations_is_bounded() {
        let mut seen = HandshakeSeen::default();
        for ephemeral in (0..=64).map(|i| [i; 32]) {
            assert!(!seen.contains(&ephemeral));
            seen.remember(ephemeral);
            assert!(seen.contains(&ephemeral));
        }
        assert_eq!(seen.last.len(), 64);
        assert!(!seen.contains(&[0; 32]) && seen.contains(&[1; 32]));
    }
}
