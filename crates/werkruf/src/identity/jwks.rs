//! Parses the public keys of an issuer (RFC 7517). No I/O.
//!
//! Unsupported keys (other curves, other algorithms, encryption, shared secrets) are skipped: a key set may contain keys for other
//! purposes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::jwt::{Algorithm, Key};

/// Half of a P-256 point.
const COORDINATE_BYTES: usize = 32;

/// A public key with its key id.
#[derive(Debug, Clone)]
pub(super) struct NamedKey {
    pub(super) id: Option<String>,
    pub(super) key: Key,
}

/// The keys of one issuer, as last read.
#[derive(Debug, Clone, Default)]
pub(super) struct KeySet(Vec<NamedKey>);

#[derive(Deserialize)]
struct JwksDocument {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    key_ops: Option<Vec<String>>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
}

impl KeySet {
    /// Parses a key set; `None` if the bytes are not a key set.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let document: JwksDocument = serde_json::from_slice(bytes).ok()?;
        let keys = document.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).filter_map(|key: Jwk| key.into_key());
        Some(Self(keys.collect()))
    }

    /// The key for a token: by key id and algorithm. Without a key id, the only key with that algorithm.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self.0.iter().filter(|named| named.key.algorithm() == algorithm);
        let found = match id {
            Some(id) => fitting.find(|named| named.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        };
        found.map(|named| &named.key)
    }

    /// Whether a key with any algorithm has this key id.
    pub(super) fn has_key_id(&self, id: &str) -> bool {
        self.0.iter().any(|named| named.id.as_deref() == Some(id))
    }
}

impl Jwk {
    fn into_key(self) -> Option<NamedKey> {
        let signs = self.purpose.as_deref().is_none_or(|purpose| purpose == "sig");
        let verifies = self.key_ops.as_ref().is_none_or(|uses| uses.iter().any(|one| one == "verify"));
        if !(signs && verifies) {
            return None;
        }
        let key = match (self.kty.as_str(), self.crv.as_deref()) {
            ("EC", Some("P-256")) => Key::Curve { point: point(&self.x?, &self.y?)? },
            ("RSA", _) => Key::Rsa { modulus: number(&self.n?)?, exponent: number(&self.e?)? },
            _ => return None,
        };
        let fits = self.alg.as_deref().is_none_or(|alg| Algorithm::parse(alg) == Some(key.algorithm()));
        fits.then_some(NamedKey { id: self.kid, key })
    }
}

fn point(x: &str, y: &str) -> Option<Vec<u8>> {
    let mut point = vec![4];
    for coordinate in [x, y] {
        let bytes = URL_SAFE_NO_PAD.decode(coordinate).ok().filter(|bytes| bytes.len() == COORDINATE_BYTES)?;
        point.extend(bytes);
    }
    Some(point)
}

/// A big-endian number without leading zeros.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let start = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[start..].to_vec())
}
