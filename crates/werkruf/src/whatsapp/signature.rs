//! Meta's signature of a webhook request: HMAC-SHA256 over the bytes as they were received.

use ring::hmac::{HMAC_SHA256, Key, verify};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// The header with the signature.
pub(super) const HEADER: &str = "x-hub-signature-256";

/// A signature that has the right form. Whether it is true says [`Signature::is_of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature([u8; 32]);

impl Signature {
    /// Reads `sha256=` and 64 hexadecimal digits.
    pub(super) fn read(header: &str) -> Option<Self> {
        let digits = header.strip_prefix("sha256=")?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = 16 * digit(*high)? + digit(*low)?;
        }
        Some(Self(bytes))
    }

    /// Whether the body was signed with this app secret. Takes the same time for every wrong signature.
    pub(super) fn is_of(&self, body: &[u8], app_secret: &SecretString) -> bool {
        verify(&Key::new(HMAC_SHA256, app_secret.expose_secret().as_bytes()), body, &self.0).is_ok()
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Whether two secrets are equal. Takes the same time for every wrong one of the same length.
pub(super) fn same_secret(given: &str, secret: &SecretString) -> bool {
    given.as_bytes().ct_eq(secret.expose_secret().as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bytes_and_the_secret_that_were_signed_verify() {
        let secret = SecretString::from("app-secret");
        let body = br#"{"text":"Gr\u00fc\u00dfe \/"}"#;
        let tag = ring::hmac::sign(&Key::new(HMAC_SHA256, b"app-secret"), body);
        let header = format!("sha256={}", werkruf_contract::hex(tag.as_ref()));
        let signature = Signature::read(&header).unwrap();
        assert!(signature.is_of(body, &secret));
        assert!(!signature.is_of("{\"text\":\"Grüße /\"}".as_bytes(), &secret), "written anew");
        assert!(!signature.is_of(body, &SecretString::from("app-secre")));
        assert_eq!(Signature::read(&header.to_uppercase().replace("SHA256", "sha256")), Some(signature));
    }

    #[test]
    fn a_header_of_another_form_is_no_signature() {
        let digits = "0".repeat(64);
        for header in
            ["", "sha256=", &digits, &format!("sha1={digits}"), &format!("sha256={digits}0"), &format!("sha256={}", "g".repeat(64))]
        {
            assert_eq!(Signature::read(header), None, "{header}");
        }
        assert_eq!(Signature::read(&format!("sha256={}é", "0".repeat(62))), None);
    }

    #[test]
    fn secrets_are_compared_whole() {
        let secret = SecretString::from("abc");
        assert_eq!(["abc", "ab", "abcd", ""].map(|given| same_secret(given, &secret)), [true, false, false, false]);
    }
}
