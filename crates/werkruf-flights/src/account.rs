//! Names of provider accounts that reveal no secret.

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use werkruf_contract::hex;
use werkruf_store::ProviderAccount;

/// An account identified by the digest of its key: each key has its own quota count.
pub(super) fn by_key(provider: &str, key: &SecretString) -> ProviderAccount {
    let digest = hex(&Sha256::digest(key.expose_secret().as_bytes()));
    ProviderAccount { provider: provider.to_owned(), account: digest.chars().take(16).collect() }
}
