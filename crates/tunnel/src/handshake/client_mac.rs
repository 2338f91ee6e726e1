//! How a relay knows its clients before any Diffie-Hellman, so that it has no word for anybody else.
//!
//! An initiation to a relay is not authenticated by the relay's public key, which is no secret, but by what the two
//! static keys have in common: mac1's key is BLAKE2s("nawa relay mac1" ‖ X25519(own private, other's public)). That the
//! relay need not try the keys of all its clients, the initiation's sender index says which it is:
//! BLAKE2s("nawa relay client" ‖ relay's key ‖ client's key) xor BLAKE2s("nawa relay mask" ‖ relay's key ‖ ephemeral),
//! of either the first four bytes. To who does not know the relay's public key that is a random number.

use std::collections::BTreeMap;

use blake2::{Blake2s256, Digest};
use zeroize::ZeroizeOnDrop;

use crate::{
    handshake::cookie::{self, CookieJar},
    handshake::noise,
    keys::{PrivateKey, PublicKey},
    relay::DropReason,
    wire::{self, INITIATION_LEN},
};

/// What a relay and one of its clients share.
#[derive(ZeroizeOnDrop)]
pub struct ClientMac {
    #[zeroize(skip)]
    relay: PublicKey,
    hint: u32,
    mac1_key: [u8; 32],
}

impl ClientMac {
    /// The client's side. `None`: the relay's key is no point of the large subgroup (RFC 7748 §6.1).
    pub fn of_client(me: &PrivateKey, relay: &PublicKey) -> Option<Self> {
        Self::new(me, relay, relay, &me.public())
    }

    /// The relay's side. `None`: the client's key is no point of the large subgroup.
    pub fn of_relay(me: &PrivateKey, client: &PublicKey) -> Option<Self> {
        Self::new(me, client, &me.public(), client)
    }

    fn new(me: &PrivateKey, other: &PublicKey, relay: &PublicKey, client: &PublicKey) -> Option<Self> {
        let shared = me.agree(other)?;
        let mac1_key = Blake2s256::new().chain_update(b"nawa relay mac1").chain_update(*shared).finalize();
        let hint = first(b"nawa relay client", relay, client.as_bytes());
        Some(Self { relay: *relay, hint, mac1_key: mac1_key.into() })
    }

    /// The sender index of the initiation with this ephemeral key.
    pub fn index(&self, ephemeral: &[u8; 32]) -> u32 {
        self.hint ^ mask(&self.relay, ephemeral)
    }

    /// What stamps initiations to the relay.
    pub fn jar(&self) -> CookieJar {
        CookieJar::with_mac1_key(&self.relay, self.mac1_key)
    }
}

/// The clients that a relay knows.
pub struct ClientMacs {
    relay: PublicKey,
    /// By their hints, which may be the same for several.
    known: BTreeMap<u32, Vec<(PublicKey, ClientMac)>>,
}

impl ClientMacs {
    /// Knows `clients`, but for those whose keys are unusable. Costs an X25519 operation for each.
    pub fn new(me: &PrivateKey, clients: impl IntoIterator<Item = PublicKey>) -> Self {
        let mut known: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for client in clients {
            if let Some(knock) = ClientMac::of_relay(me, &client) {
                known.entry(knock.hint).or_default().push((client, knock));
            }
        }
        Self { relay: me.public(), known }
    }

    /// Whether it knows `client`.
    pub fn knows(&self, client: &PublicKey) -> bool {
        self.known.values().flatten().any(|(key, _)| key == client)
    }

    /// Whose initiation this is, or a copy of it. Costs a hash, and one more if its index is a client's.
    ///
    /// # Panics
    /// If `initiation` is shorter than an initiation.
    pub fn find(&self, initiation: &[u8]) -> Result<PublicKey, DropReason> {
        assert!(initiation.len() >= INITIATION_LEN, "its length has been checked");
        let index = u32::from_be_bytes(wire::array(initiation, 4));
        let hint = index ^ mask(&self.relay, &noise::ephemeral(initiation));
        let candidates = self.known.get(&hint).ok_or(DropReason::NotAllowed)?;
        let fits = |(_, knock): &&(PublicKey, ClientMac)| cookie::check_mac1(&knock.mac1_key, initiation);
        candidates.iter().find(fits).map(|(key, _)| *key).ok_or(DropReason::Mac1)
    }
}

fn mask(relay: &PublicKey, ephemeral: &[u8; 32]) -> u32 {
    first(b"nawa relay mask", relay, ephemeral)
}

/// The first four bytes of a hash.
fn first(label: &[u8], relay: &PublicKey, rest: &[u8; 32]) -> u32 {
    let hash = Blake2s256::new().chain_update(label).chain_update(relay.as_bytes()).chain_update(rest);
    u32::from_be_bytes(wire::array(&hash.finalize(), 0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};

    use super::*;
    use crate::handshake::cookie::CookieJar;

    fn key(seed: u64) -> PrivateKey {
        PrivateKey::generate(&mut ChaCha20Rng::seed_from_u64(seed))
    }

    fn initiation(client: &PrivateKey, relay: &PublicKey) -> Vec<u8> {
        let knock = ClientMac::of_client(client, relay).unwrap();
        let mut message = vec![7; INITIATION_LEN];
        let index = knock.index(&noise::ephemeral(&message));
        message[4..8].copy_from_slice(&index.to_be_bytes());
        knock.jar().stamp(Duration::ZERO, &mut message);
        message
    }

    #[test]
    fn a_client_is_known_by_its_initiation() {
        let relay = key(1);
        let clients = ClientMacs::new(&relay, [key(2).public(), key(3).public(), [0; 32].into()]);
        for seed in [2, 3] {
            let client = key(seed);
            assert_eq!(clients.find(&initiation(&client, &relay.public())), Ok(client.public()));
            assert!(clients.knows(&client.public()));
        }
        assert_eq!(clients.find(&initiation(&key(4), &relay.public())), Err(DropReason::NotAllowed));
        assert!(!clients.knows(&key(4).public()) && !clients.knows(&[0; 32].into()));
    }

    #[test]
    fn who_only_knows_the_public_keys_is_not_a_client() {
        let (relay, client) = (key(1), key(2));
        let clients = ClientMacs::new(&relay, [client.public()]);
        let mut message = initiation(&client, &relay.public());
        CookieJar::new(&relay.public()).stamp(Duration::ZERO, &mut message);
        assert_eq!(clients.find(&message), Err(DropReason::Mac1));
    }

    #[test]
    fn every_changed_byte_before_mac2_is_noticed() {
        let (relay, client) = (key(1), key(2));
        let clients = ClientMacs::new(&relay, [client.public()]);
        let message = initiation(&client, &relay.public());
        for at in 0..INITIATION_LEN - 16 {
            let mut changed = message.clone();
            changed[at] ^= 1;
            assert!(clients.find(&changed).is_err(), "byte {at}");
        }
    }
}
