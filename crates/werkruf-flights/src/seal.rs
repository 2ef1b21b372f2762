//! Encryption of secrets in the store: AES-256-GCM with the server's key. A fresh nonce precedes the ciphertext.

use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

/// The server's encryption key. Cheap to clone.
#[derive(Clone)]
pub struct Seal(Arc<LessSafeKey>);

impl Seal {
    /// Takes a key of 32 bytes; `None` for any other length.
    pub fn new(key: &[u8]) -> Option<Self> {
        UnboundKey::new(&AES_256_GCM, key).ok().map(|key| Self(Arc::new(LessSafeKey::new(key))))
    }

    /// Encrypts the secret for this purpose; `None` only if the system has no randomness.
    pub(super) fn close(&self, purpose: &str, secret: &str) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = secret.as_bytes().to_vec();
        self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose.as_bytes()), &mut sealed).ok()?;
        Some([nonce.as_slice(), &sealed].concat())
    }

    /// Decrypts a secret; `None` if it was encrypted with another key or for another purpose, or not at all.
    pub(super) fn open(&self, purpose: &str, sealed: &[u8]) -> Option<String> {
        let (nonce, body) = sealed.split_at_checked(NONCE_LEN)?;
        let mut body = body.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.0.open_in_place(nonce, Aad::from(purpose.as_bytes()), &mut body).ok()?;
        String::from_utf8(plain.to_vec()).ok()
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

#[cfg(test)]
mod tests {
    use super::Seal;

    #[test]
    fn only_the_same_key_and_purpose_decrypt() {
        let (one, other) = (Seal::new(&[1; 32]).unwrap(), Seal::new(&[2; 32]).unwrap());
        let sealed = one.close("amadeus/test", "CpjU0sEe").unwrap();
        assert_eq!(one.open("amadeus/test", &sealed).as_deref(), Some("CpjU0sEe"));
        assert_eq!((one.open("amadeus/prod", &sealed), other.open("amadeus/test", &sealed)), (None, None));
        assert!(!sealed.windows(8).any(|part| part == b"CpjU0sEe"));
        assert_ne!(sealed, one.close("amadeus/test", "CpjU0sEe").unwrap());
        assert!(one.open("amadeus/test", &sealed[..8]).is_none() && Seal::new(&[0; 31]).is_none());
    }
}
