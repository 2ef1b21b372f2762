//! The keys of the installation: they encrypt stored secrets and sign the heads of the audit log. The first key is used for new values;
//! older ones stay until `werkruf secrets rotate` has replaced everything that was made with them.

use std::sync::{Arc, PoisonError, RwLock};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use werkruf_contract::hex;

/// One key of 32 bytes and its id, which tells nothing about the key.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey {
    id: [u8; 4],
    bytes: [u8; 32],
}

impl SecretKey {
    /// Takes the bytes of a key.
    pub fn new(bytes: [u8; 32]) -> Self {
        let mut id = [0; 4];
        id.copy_from_slice(&Sha256::new().chain_update(b"werkruf key id").chain_update(bytes).finalize()[..4]);
        Self { id, bytes }
    }

    /// The id that values made with this key carry.
    pub const fn id(&self) -> [u8; 4] {
        self.id
    }

    /// The id as text.
    pub fn name(&self) -> String {
        hex(&self.id)
    }

    /// The key itself, for an encryption.
    pub const fn expose(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The signature of a text.
    pub(crate) fn sign(&self, text: &[u8]) -> Option<String> {
        self.mac(text).map(|mac| hex(&mac.finalize().into_bytes()))
    }

    fn mac(&self, text: &[u8]) -> Option<Hmac<Sha256>> {
        // A key of its own, so that a signature tells nothing about encrypted values.
        let mut derived = Hmac::<Sha256>::new_from_slice(&self.bytes).ok()?;
        derived.update(b"werkruf audit head");
        let mut mac = Hmac::<Sha256>::new_from_slice(&derived.finalize().into_bytes()).ok()?;
        mac.update(text);
        Some(mac)
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretKey({})", self.name())
    }
}

/// The keys of a process, newest first; empty where none is configured. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct SecretKeys(Arc<RwLock<Arc<[SecretKey]>>>);

impl SecretKeys {
    /// Takes keys, newest first.
    pub fn new(keys: Vec<SecretKey>) -> Self {
        Self(Arc::new(RwLock::new(keys.into())))
    }

    /// The keys as they are now.
    pub fn all(&self) -> Arc<[SecretKey]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key for new values.
    pub fn newest(&self) -> Option<SecretKey> {
        self.all().first().cloned()
    }

    /// The key with this id.
    pub fn by_id(&self, id: &[u8]) -> Option<SecretKey> {
        self.all().iter().find(|key| key.id == id).cloned()
    }

    /// The key with this id as text.
    pub(crate) fn named(&self, name: &str) -> Option<SecretKey> {
        self.all().iter().find(|key| key.name() == name).cloned()
    }

    /// Takes other keys, for everything that shares them.
    pub fn replace(&self, keys: Vec<SecretKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
    }
}

#[cfg(test)]
mod tests {
    use super::{SecretKey, SecretKeys};

    #[test]
    fn keys_are_found_by_id_and_never_printed() {
        let keys = SecretKeys::new(vec![SecretKey::new([1; 32]), SecretKey::new([2; 32])]);
        let shared = keys.clone();
        let (new, old) = (SecretKey::new([1; 32]), SecretKey::new([2; 32]));
        assert_ne!(new.id(), old.id());
        assert_eq!(
            (keys.newest(), keys.by_id(&old.id()), keys.named(&old.name())),
            (Some(new.clone()), Some(old.clone()), Some(old.clone()))
        );
        assert_ne!(new.sign(b"a"), old.sign(b"a"));
        assert_eq!(format!("{new:?}"), format!("SecretKey({})", new.name()));
        keys.replace(vec![new]);
        assert_eq!(shared.by_id(&old.id()), None);
    }
}
