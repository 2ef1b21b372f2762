//! Names for accounts at providers that give no secret away.

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use werkruf_contract::hex;
use werkruf_store::ProviderAccount;

/// An account known by its key: another key has a count of its own.
pub(super) fn by_key(provider: &str, key: &SecretString) -> ProviderAccount {
    let digest = hex(&Sha256::digest(key.expose_secret().as_bytes()));
    ProviderAccount { provider: provider.to_owned(), account: digest.chars().take(16).collect() }
}
