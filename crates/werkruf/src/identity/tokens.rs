//! Verifies the tokens of trusted issuers.
//!
//! Claims are checked before the signature, because checking a claim is cheap, while the signature may need a key that must be fetched.

use secrecy::ExposeSecret;
use werkruf_contract::Clock;

use super::claims::{self, TokenUser};
use super::jwt::{Algorithm, Key, Token, TokenFault};
use super::key_cache::KeyCache;
use crate::config::TokenIssuer;

struct TrustedIssuer {
    issuer: TokenIssuer,
    secret: Option<Key>,
    keys: Option<KeyCache>,
}

/// The trusted token issuers.
pub struct Tokens {
    trusted: Vec<TrustedIssuer>,
    clock: Clock,
    guest_role: String,
}

impl Tokens {
    /// Keeps the configured issuers. Keys are fetched when the first token needs one.
    pub fn new(issuers: &[TokenIssuer], guest_role: &str, client: &reqwest::Client, clock: &Clock) -> Self {
        let trust = |issuer: &TokenIssuer| TrustedIssuer {
            issuer: issuer.clone(),
            secret: issuer.secret.as_ref().map(|secret| Key::secret(secret.expose_secret())),
            keys: issuer.jwks_url.clone().map(|url| KeyCache::new(url, client.clone(), clock.clone())),
        };
        Self { trusted: issuers.iter().map(trust).collect(), clock: clock.clone(), guest_role: guest_role.to_owned() }
    }

    /// Whether no issuer is trusted.
    pub fn is_empty(&self) -> bool {
        self.trusted.is_empty()
    }

    /// Verifies a token; returns its user and its issuer.
    pub(super) async fn verify(&self, text: &str) -> Result<(TokenUser, &TokenIssuer), TokenFault> {
        let token = Token::parse(text)?;
        let trusted = self.trusted.iter().find(|trusted| claims::is_from(&trusted.issuer, &token.claims));
        let trusted = trusted.ok_or(TokenFault::Refused("its issuer is not trusted here"))?;
        match claims::check(&trusted.issuer, &token.claims, self.clock.now()) {
            Err(TokenFault::Expired) => return Err(trusted.expired(&token).await),
            checked => checked?,
        }
        let key = trusted.key(&token).await?;
        if !token.is_signed_by(&key) {
            return Err(TokenFault::Refused("its signature is wrong"));
        }
        Ok((claims::token_user(&trusted.issuer, &token.claims, &self.guest_role)?, &trusted.issuer))
    }
}

impl TrustedIssuer {
    /// The fault of a token that has expired. With a wrong signature, or one that cannot be checked, it is as wrong as any other.
    async fn expired(&self, token: &Token<'_>) -> TokenFault {
        match self.key(token).await {
            Ok(key) if token.is_signed_by(&key) => TokenFault::Expired,
            Ok(_) | Err(_) => TokenFault::Refused("it has expired"),
        }
    }

    async fn key(&self, token: &Token<'_>) -> Result<Key, TokenFault> {
        const NO_KEY: TokenFault = TokenFault::Refused("no key of its issuer fits it");
        let id = token.key_id.as_deref();
        match token.algorithm {
            Algorithm::Hs256 => {
                // HS256 with the key id of a public key is an attack: the public key would be used as the secret.
                let confused = id.is_some_and(|id| self.keys.as_ref().is_some_and(|keys| keys.has_key_id(id)));
                self.secret.clone().filter(|_| !confused).ok_or(NO_KEY)
            }
            Algorithm::Rs256 | Algorithm::Es256 => match &self.keys {
                Some(keys) => keys.find(id, token.algorithm).await?.ok_or(NO_KEY),
                None => Err(NO_KEY),
            },
        }
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
