//! What `snow` computes with.

use std::sync::{Arc, Mutex};

use rand_core::{RngCore, SeedableRng};
use snow::{
    params::{CipherChoice, DHChoice, HashChoice},
    resolvers::{CryptoResolver, DefaultResolver},
    types,
};
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

use crate::{handshake::erasing_rng::ErasingRng, wire};

/// The generator of one handshake; a responder seeds it only when it replies.
#[derive(Clone, Default)]
pub(super) struct Randomness(Arc<Mutex<Option<ErasingRng>>>);

impl Randomness {
    pub(super) fn seed(&self, rng: &mut impl RngCore) {
        if let Ok(mut slot) = self.0.lock() {
            *slot = Some(ErasingRng::from_rng(rng));
        }
    }
}

impl types::Random for Randomness {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let mut slot = self.0.lock().map_err(|_| snow::Error::Rng)?;
        slot.as_mut().ok_or(snow::Error::Rng)?.fill_bytes(dest);
        Ok(())
    }
}

/// `snow`'s algorithms with the caller's randomness and a Diffie-Hellman that wipes its keys.
pub(super) struct Resolver(pub Randomness);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn types::Random>> {
        Some(Box::new(self.0.clone()))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn types::Dh>> {
        (*choice == DHChoice::Curve25519).then(|| Box::new(X25519::default()) as Box<dyn types::Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn types::Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn types::Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// X25519 that refuses points of low order (RFC 7748 §6.1) and wipes the private key.
#[derive(Default)]
struct X25519 {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl types::Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.public = x25519_dalek::PublicKey::from(&StaticSecret::from(*self.private)).to_bytes();
    }

    fn generate(&mut self, rng: &mut dyn types::Random) -> Result<(), snow::Error> {
        let mut private = Zeroizing::new([0; 32]);
        rng.try_fill_bytes(&mut *private)?;
        self.set(&*private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let public = x25519_dalek::PublicKey::from(wire::array::<32>(public, 0));
        let shared = StaticSecret::from(*self.private).diffie_hellman(&public);
        if !shared.was_contributory() {
            return Err(snow::Error::Dh);
        }
        out[..32].copy_from_slice(shared.as_bytes());
        Ok(())
    }
}
