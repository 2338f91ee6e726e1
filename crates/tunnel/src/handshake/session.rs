//! Sealing and opening packets in place.

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::wire::{HEADER_LEN, TAG_LEN};

/// What data packets are sealed with; the number is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[repr(u8)]
pub enum Cipher {
    /// RFC 8439. Fast everywhere.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305 = 0,
    /// NIST SP 800-38D. Faster with AES instructions.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm = 1,
}

/// Whether this processor has instructions for AES and carry-less multiplication.
pub fn aes_gcm_is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// The packet is forged, damaged, or sealed under another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this packet does not fit the session's key")]
pub struct OpenError;

/// Seals what this end sends. The caller never gives it the same path and sequence twice.
#[derive(Debug)]
pub struct SealingKey(LessSafeKey);

impl SealingKey {
    pub(crate) fn new(cipher: Cipher, key: &[u8; 32]) -> Self {
        Self(aead(cipher, key))
    }

    /// Encrypts `body` but for its last 16 bytes in place and writes the tag over those. Authenticates `header`.
    ///
    /// # Panics
    /// If `body` has no room for the tag.
    pub fn seal(&self, path: u16, sequence: u64, header: &[u8; HEADER_LEN], body: &mut [u8]) {
        let (plaintext, tag) =
            body.split_last_chunk_mut::<TAG_LEN>().expect("the caller leaves room for the tag");
        let sealed = self
            .0
            .seal_in_place_separate_tag(nonce(path, sequence), Aad::from(header), plaintext)
            .expect("a packet is far shorter than the cipher's limit");
        tag.copy_from_slice(sealed.as_ref());
    }
}

/// Opens what the other end sent.
#[derive(Debug)]
pub struct OpeningKey(LessSafeKey);

impl OpeningKey {
    pub(crate) fn new(cipher: Cipher, key: &[u8; 32]) -> Self {
        Self(aead(cipher, key))
    }

    /// Decrypts `body`, ciphertext and tag, in place and gives the plaintext. After an error `body` is worthless.
    pub fn open<'a>(
        &self,
        path: u16,
        sequence: u64,
        header: &[u8; HEADER_LEN],
        body: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        self.0.open_in_place(nonce(path, sequence), Aad::from(header), body).map_err(|_| OpenError)
    }
}

fn aead(cipher: Cipher, key: &[u8; 32]) -> LessSafeKey {
    let algorithm = match cipher {
        Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        Cipher::Aes256Gcm => &AES_256_GCM,
    };
    LessSafeKey::new(UnboundKey::new(algorithm, key).expect("both ciphers take 32 bytes"))
}

/// Path id (4 bytes) and path sequence (8 bytes).
fn nonce(path: u16, sequence: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[2..4].copy_from_slice(&path.to_be_bytes());
    bytes[4..].copy_from_slice(&sequence.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIPHERS: [Cipher; 2] = [Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm];
    const HEADER: [u8; HEADER_LEN] = [3; HEADER_LEN];

    fn keys(cipher: Cipher) -> (SealingKey, OpeningKey) {
        (SealingKey::new(cipher, &[9; 32]), OpeningKey::new(cipher, &[9; 32]))
    }

    fn sealed(key: &SealingKey) -> Vec<u8> {
        let mut body = b"some plaintext".to_vec();
        body.extend([0; TAG_LEN]);
        key.seal(1, 2, &HEADER, &mut body);
        body
    }

    #[test]
    fn opens_what_was_sealed() {
        for cipher in CIPHERS {
            let (sealing, opening) = keys(cipher);
            let mut body = sealed(&sealing);
            assert_eq!(opening.open(1, 2, &HEADER, &mut body).unwrap(), b"some plaintext");
        }
    }

    #[test]
    fn refuses_another_path_sequence_header_or_key() {
        for cipher in CIPHERS {
            let (sealing, opening) = keys(cipher);
            let mut header = HEADER;
            header[15] ^= 1;
            for (path, sequence, header) in [(2, 2, HEADER), (1, 3, HEADER), (1, 2, header)] {
                assert_eq!(opening.open(path, sequence, &header, &mut sealed(&sealing)), Err(OpenError));
            }
            let other = OpeningKey::new(cipher, &[8; 32]);
            assert_eq!(other.open(1, 2, &HEADER, &mut sealed(&sealing)), Err(OpenError));
        }
    }

    #[test]
    fn refuses_damage_and_short_bodies() {
        for cipher in CIPHERS {
            let (sealing, opening) = keys(cipher);
            for at in 0..sealed(&sealing).len() {
                let mut body = sealed(&sealing);
                body[at] ^= 1;
                assert_eq!(opening.open(1, 2, &HEADER, &mut body), Err(OpenError));
                let mut body = sealed(&sealing);
                assert_eq!(opening.open(1, 2, &HEADER, &mut body[..at]), Err(OpenError));
            }
        }
    }

    #[test]
    fn path_and_sequence_do_not_overlap_in_the_nonce() {
        assert_ne!(nonce(1, 0).as_ref(), nonce(0, 1 << 56).as_ref());
        assert_eq!(nonce(0x0102, 3).as_ref(), &[0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
    }
}
