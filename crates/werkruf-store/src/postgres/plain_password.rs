//! Watches a plain connection for a server that asks for a password it could read.

use std::io;

/// The message that tells the client how to authenticate.
const AUTHENTICATION: u8 = b'R';
/// The length of a message's type and length.
const HEAD: usize = 5;

/// Follows the messages of the server until it has accepted the client.
///
/// SCRAM-SHA-256 passes: it proves the password without showing it. A password in clear text does not, nor does MD5: a server that chooses
/// the salt itself can guess the password behind it.
#[derive(Debug, Default)]
pub(super) struct PasswordGuard {
    /// The start of the current message: type, length, and for an authentication its code.
    start: Vec<u8>,
    /// The bytes of the current message that do not matter.
    skip: usize,
    accepted: bool,
}

impl PasswordGuard {
    /// Checks received bytes before the driver sees them.
    pub(super) fn check(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !self.accepted {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let Some((byte, rest)) = bytes.get(skipped..).and_then(<[u8]>::split_first) else { return Ok(()) };
            bytes = rest;
            self.start.push(*byte);
            self.check_start()?;
        }
        Ok(())
    }

    fn check_start(&mut self) -> io::Result<()> {
        let number = |at: usize| self.start.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let Some(length) = number(1) else { return Ok(()) };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if self.start.first() == Some(&AUTHENTICATION) {
            match number(HEAD) {
                None => return Ok(()),
                Some(0) => self.accepted = true,
                // SASL, which is SCRAM, and its two further messages.
                Some(10..=12) => {}
                Some(_) => {
                    return Err(io::Error::other(
                        "the database asks for the password without TLS, and it was not sent; switch TLS on there, or use scram-sha-256, or allow it with sslmode=disable in the address",
                    ));
                }
            }
        }
        self.skip = (length + 1).saturating_sub(self.start.len());
        self.start.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::PasswordGuard;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    fn authentication(code: u32) -> Vec<u8> {
        message(b'R', &[&code.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat())
    }

    /// Whether these messages pass, whatever the size of the pieces in which they arrive.
    fn passes(messages: &[Vec<u8>]) -> bool {
        let bytes = messages.concat();
        let results: Vec<bool> = (1..=bytes.len())
            .map(|size| {
                let mut guard = PasswordGuard::default();
                bytes.chunks(size).all(|piece| guard.check(piece).is_ok())
            })
            .collect();
        assert!(results.iter().all(|result| *result == results[0]));
        results[0]
    }

    #[test]
    fn only_scram_and_no_password_pass() {
        let notice = message(b'N', b"SNOTICE\0R\0\0\0\x08\0\0\0\x03\0");
        for (code, expected) in [(0, true), (10, true), (3, false), (5, false), (7, false)] {
            assert_eq!(passes(&[notice.clone(), authentication(code)]), expected, "{code}");
        }
        assert!(!passes(&[authentication(10), authentication(11), authentication(3)]), "at any time before it accepts the client");
        assert!(passes(&[authentication(0), message(b'R', &[0, 0, 0, 3])]), "then data may look like anything");
    }
}
