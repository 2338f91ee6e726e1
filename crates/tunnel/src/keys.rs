//! Keys as people see them: base64 of 32 bytes, as `wg genkey` and `wg pubkey` print them.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use rand_core::RngCore;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use x25519_dalek::StaticSecret;
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not base64 with padding.
    #[error("this key is not base64; expected 44 characters as `nawa keygen` or `nawa pubkey` print them")]
    NotBase64,
    /// Base64 of a wrong number of bytes.
    #[error("this key holds {0} bytes instead of 32; copy all 44 characters of it")]
    Length(usize),
    /// No private key has it.
    #[error("this is nobody's public key; copy what `nawa pubkey` prints at the other end")]
    SmallOrder,
}

/// Who a node is: an X25519 public key (RFC 7748).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for PublicKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    /// Of points of small order no private key has any, and whatever is agreed upon with one is known to all.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let key = Self(*decode(text)?);
        PrivateKey([0; 32]).agree(&key).map(|_| key).ok_or(KeyError::SmallOrder)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The X25519 private key of a node. Wiped when dropped; never shown by `Debug`.
#[derive(Clone, ZeroizeOnDrop)]
pub struct PrivateKey([u8; 32]);

impl PrivateKey {
    /// A new key from 32 bytes of `rng`, clamped as RFC 7748 §5 asks.
    pub fn generate(rng: &mut impl RngCore) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *bytes);
        bytes[0] &= 248;
        bytes[31] = bytes[31] & 127 | 64;
        Self(*bytes)
    }

    /// The public key that belongs to it.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::PublicKey::from(&StaticSecret::from(self.0)).to_bytes())
    }

    /// What this key and `other` have in common (X25519, RFC 7748 §6.1); `None` if `other` is no point of the large
    /// subgroup.
    pub(crate) fn agree(&self, other: &PublicKey) -> Option<Zeroizing<[u8; 32]>> {
        let shared = StaticSecret::from(self.0).diffie_hellman(&x25519_dalek::PublicKey::from(other.0));
        shared.was_contributory().then(|| Zeroizing::new(shared.to_bytes()))
    }

    /// The key as `nawa keygen` prints it.
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(|bytes| Self(*bytes))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// A key that two peers share besides their own (Noise §9). The default, 32 zero bytes, means none.
#[derive(Clone, Default, ZeroizeOnDrop)]
pub struct PresharedKey([u8; 32]);

impl PresharedKey {
    /// A new key from 32 bytes of `rng`.
    pub fn generate(rng: &mut impl RngCore) -> Self {
        let mut key = Self::default();
        rng.fill_bytes(&mut key.0);
        key
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for PresharedKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(|bytes| Self(*bytes))
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(…)")
    }
}

fn decode(text: &str) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| KeyError::NotBase64)?);
    bytes.as_slice().try_into().map(Zeroizing::new).map_err(|_| KeyError::Length(bytes.len()))
}

#[cfg(test)]
mod tests {
    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};

    use super::*;

    /// The expected value comes from a separate implementation of RFC 7748 §5.
    #[test]
    fn public_key_of_a_known_private_key() {
        let private = PrivateKey(std::array::from_fn(|i| i as u8 + 1));
        let hex: String = private.public().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "07a37cbc142093c8b755dc1b10e86cb426374ad16aa853ed0bdfc0b2b86d1c7c");
    }

    #[test]
    fn text_and_back() {
        let private = PrivateKey::generate(&mut ChaCha20Rng::seed_from_u64(1));
        let again: PrivateKey = private.to_base64().parse().unwrap();
        assert_eq!(again.as_bytes(), private.as_bytes());
        let public = private.public();
        assert_eq!(public.to_string().parse(), Ok(public));
        assert_eq!(public.to_string().len(), 44);
    }

    #[test]
    fn wrong_text_is_an_error() {
        assert_eq!("not a key".parse::<PublicKey>(), Err(KeyError::NotBase64));
        assert_eq!("AAAA".parse::<PublicKey>(), Err(KeyError::Length(3)));
        assert_eq!("AAAA".parse::<PrivateKey>().err(), Some(KeyError::Length(3)));
        // 0, 1, p - 1 (RFC 7748 §6.1 has them refused), and one of order eight.
        let ends = |first: u8, middle: u8, last: u8| {
            let mut bytes = [middle; 32];
            (bytes[0], bytes[31]) = (first, last);
            PublicKey(bytes)
        };
        let eight = "4Ot6fDtBuK4WVuP68Z/EatoJjeucMrH9hmIFFl9JuAA=";
        for key in [ends(0, 0, 0), ends(1, 0, 0), ends(0xec, 0xff, 0x7f)].map(|key| key.to_string()) {
            assert_eq!(key.parse::<PublicKey>(), Err(KeyError::SmallOrder), "{key}");
        }
        assert_eq!(eight.parse::<PublicKey>(), Err(KeyError::SmallOrder));
    }

    #[test]
    fn secrets_are_not_shown() {
        let private = PrivateKey::generate(&mut ChaCha20Rng::seed_from_u64(1));
        assert_eq!(format!("{private:?}"), "PrivateKey(…)");
        assert_eq!(format!("{:?}", PresharedKey::default()), "PresharedKey(…)");
    }
}
