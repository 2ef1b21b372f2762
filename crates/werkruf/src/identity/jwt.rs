//! Parses a JSON Web Token and checks its signature. No I/O and no clock.
//!
//! Invariant: the algorithm is a property of the key. A token whose header names another algorithm is rejected, so a token signed
//! with HMAC over a public key, or with `none`, is never valid.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{hmac, signature};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Longer tokens are rejected without parsing.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Why a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFault {
    /// The token is invalid. The sentence says why and contains nothing from the token.
    Refused(&'static str),
    /// The token was valid until a time that has passed.
    Expired,
    /// The issuer's keys cannot be read, so the token cannot be checked.
    KeysUnavailable,
}

/// The supported signature algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Rs256,
    Es256,
}

impl Algorithm {
    /// Parses the name of an algorithm.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "HS256" => Some(Self::Hs256),
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that must be supported. None are.
    #[serde(default)]
    crit: Option<Value>,
}

/// A parsed token. Its claims must not be trusted before [`Token::is_signed_by`] returned true.
#[derive(Debug)]
pub(super) struct Token<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    pub(super) claims: Map<String, Value>,
    signed: &'a [u8],
    signature: Vec<u8>,
}

/// Whether a credential looks like a token: three parts, the first of them a JSON object.
pub(super) fn looks_like_token(credential: &str) -> bool {
    credential.starts_with("ey") && credential.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl<'a> Token<'a> {
    /// Parses a token.
    pub(super) fn parse(text: &'a str) -> Result<Self, TokenFault> {
        const BROKEN: TokenFault = TokenFault::Refused("it is not a JSON Web Token");
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenFault::Refused("it is too long"));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(BROKEN)?;
        let (header, claims) = signed.split_once('.').ok_or(BROKEN)?;
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| BROKEN);
        let header: Header = serde_json::from_slice(&bytes(header)?).map_err(|_| BROKEN)?;
        let claims = serde_json::from_slice(&bytes(claims)?).map_err(|_| BROKEN)?;
        if header.crit.is_some() {
            return Err(TokenFault::Refused("it needs an extension that is not supported"));
        }
        let algorithm = Algorithm::parse(&header.alg).ok_or(TokenFault::Refused("its algorithm is not one of HS256, RS256, ES256"))?;
        Ok(Self { algorithm, key_id: header.kid, claims, signed: signed.as_bytes(), signature: bytes(signature)? })
    }

    /// Whether the signature was made with this key and its algorithm.
    pub(super) fn is_signed_by(&self, key: &Key) -> bool {
        if key.algorithm() != self.algorithm {
            return false;
        }
        match key {
            Key::Secret(secret) => hmac::verify(secret, self.signed, &self.signature).is_ok(),
            Key::Curve { point } => {
                let key = signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point);
                key.verify(self.signed, &self.signature).is_ok()
            }
            Key::Rsa { modulus, exponent } => {
                let key = signature::RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, self.signed, &self.signature).is_ok()
            }
        }
    }
}

/// A key. Each kind of key has exactly one algorithm.
#[derive(Debug, Clone)]
pub(super) enum Key {
    Secret(hmac::Key),
    /// P-256, uncompressed.
    Curve {
        point: Vec<u8>,
    },
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

impl Key {
    /// A key of HS256.
    pub(super) fn secret(secret: &str) -> Self {
        Self::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
    }

    /// The algorithm this key is for.
    pub(super) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Secret(_) => Algorithm::Hs256,
            Self::Curve { .. } => Algorithm::Es256,
            Self::Rsa { .. } => Algorithm::Rs256,
        }
    }
}
