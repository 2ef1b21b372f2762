//! Encryption of secrets in the store: AES-256-GCM with a key of the installation. The format and the id of the key come first, so that a
//! key can be replaced; then a fresh nonce, then the ciphertext.

use jiff::Timestamp;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::{
    ConnectionChange, ConnectionRow, Connections, ProviderAccount, ProviderTokens, SealedToken, SecretKey, SecretKeys, StoreError,
};

const FORMAT: u8 = 1;
const ID_LEN: usize = 4;
/// How often a connection that changes meanwhile is encrypted again.
const RESEALS: usize = 5;

/// Encrypts with the newest key, and decrypts with every key. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Seal(SecretKeys);

impl Seal {
    /// Takes the keys of the installation.
    pub const fn new(keys: SecretKeys) -> Self {
        Self(keys)
    }

    /// Encrypts the secret for this purpose; `None` without a key, or if the system has no randomness.
    pub fn close(&self, purpose: &str, secret: &str) -> Option<Vec<u8>> {
        let key = self.0.newest()?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = secret.as_bytes().to_vec();
        cipher(&key)?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose.as_bytes()), &mut sealed).ok()?;
        Some([&[FORMAT], key.id().as_slice(), &nonce, &sealed].concat())
    }

    /// Decrypts a secret; `None` if it was encrypted with an unknown key or for another purpose, or not at all.
    pub fn open(&self, purpose: &str, sealed: &[u8]) -> Option<String> {
        let (id, rest) = sealed.strip_prefix(&[FORMAT])?.split_at_checked(ID_LEN)?;
        let (nonce, body) = rest.split_at_checked(NONCE_LEN)?;
        let (key, nonce) = (self.0.by_id(id)?, Nonce::try_assume_unique_for_key(nonce).ok()?);
        let mut body = body.to_vec();
        let plain = cipher(&key)?.open_in_place(nonce, Aad::from(purpose.as_bytes()), &mut body).ok()?;
        String::from_utf8(plain.to_vec()).ok()
    }

    /// Encrypts every stored token with the newest key. Returns how many were encrypted, and how many no key decrypts.
    pub async fn reseal<T: ProviderTokens + ?Sized>(&self, tokens: &T, now: Timestamp) -> Result<(u64, u64), StoreError> {
        let (mut sealed, mut unreadable) = (0, 0);
        for (account, token) in tokens.provider_tokens().await? {
            let purpose = account.purpose();
            match self.open(&purpose, &token.sealed).and_then(|secret| self.close(&purpose, &secret)) {
                Some(bytes) => {
                    // A process that stored a newer token meanwhile has encrypted it with the newest key.
                    let new = SealedToken { sealed: bytes, expires_at: token.expires_at };
                    sealed += u64::from(tokens.replace_provider_token(account, token.sealed, new, now).await?);
                }
                None => unreadable += 1,
            }
        }
        Ok((sealed, unreadable))
    }

    /// Encrypts every connection of a person with the newest key. Returns the same numbers. A request that waits for its person is not
    /// encrypted again: it lasts for minutes, and the person can ask for another.
    pub async fn reseal_connections<C: Connections + ?Sized>(&self, connections: &C, now: Timestamp) -> Result<(u64, u64), StoreError> {
        let (mut sealed, mut unreadable) = (0, 0);
        for row in connections.all_connections().await? {
            match self.reseal_connection(connections, row, now).await? {
                Some(done) => sealed += u64::from(done),
                None => unreadable += 1,
            }
        }
        Ok((sealed, unreadable))
    }

    /// Whether this connection was encrypted; `None` where no key decrypts it. A token that was renewed meanwhile is read again: another process may have
    /// encrypted it with an older key.
    async fn reseal_connection<C: Connections + ?Sized>(
        &self,
        connections: &C,
        mut row: ConnectionRow,
        now: Timestamp,
    ) -> Result<Option<bool>, StoreError> {
        let (key, purpose) = (row.key.clone(), row.key.purpose());
        for _ in 0..RESEALS {
            let Some(bytes) = self.open(&purpose, &row.sealed).and_then(|secret| self.close(&purpose, &secret)) else { return Ok(None) };
            let change = ConnectionChange { old: row.sealed, sealed: bytes, expires_at: row.expires_at };
            if connections.replace_connection(key.clone(), change, now).await? {
                return Ok(Some(true));
            }
            let Some(newer) = connections.connection(key.clone()).await? else { break };
            row = newer;
        }
        Ok(Some(false))
    }
}

impl ProviderAccount {
    /// What a token of the account is encrypted for.
    pub fn purpose(&self) -> String {
        format!("{}/{}", self.provider, self.account)
    }
}

fn cipher(key: &SecretKey) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key.expose()).ok().map(LessSafeKey::new)
}

#[cfg(test)]
mod tests {
    use super::{Seal, SecretKey, SecretKeys};

    #[test]
    fn only_a_known_key_and_the_same_purpose_decrypt() {
        let seal = |bytes: &[u8]| Seal::new(SecretKeys::new(bytes.iter().map(|byte| SecretKey::new([*byte; 32])).collect()));
        let (one, other, rotated) = (seal(&[1]), seal(&[2]), seal(&[2, 1]));
        let sealed = one.close("amadeus/test", "CpjU0sEe").unwrap();
        assert_eq!(one.open("amadeus/test", &sealed).as_deref(), Some("CpjU0sEe"));
        assert_eq!((one.open("amadeus/prod", &sealed), other.open("amadeus/test", &sealed)), (None, None));
        assert_eq!(rotated.open("amadeus/test", &sealed).as_deref(), Some("CpjU0sEe"), "an older key still decrypts");
        let newer = rotated.close("amadeus/test", "CpjU0sEe").unwrap();
        assert_eq!((other.open("amadeus/test", &newer).as_deref(), one.open("amadeus/test", &newer)), (Some("CpjU0sEe"), None));
        assert!(!sealed.windows(8).any(|part| part == b"CpjU0sEe"));
        assert_ne!(sealed, one.close("amadeus/test", "CpjU0sEe").unwrap());
        assert!(one.open("amadeus/test", &sealed[..8]).is_none() && seal(&[]).close("amadeus/test", "CpjU0sEe").is_none());
    }
}
