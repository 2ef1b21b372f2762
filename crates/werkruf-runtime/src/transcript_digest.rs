//! A digest of everything a client has sent and received, folded message by message, so that a history sent again is recognised.
//!
//! Texts are trimmed, and calls count by their ids alone, because clients write both in their own way.

use sha2::{Digest, Sha256};
use werkruf_contract::hex;

/// The digest after a message of the user.
pub fn digest_after_message(digest: &str, text: &str) -> String {
    fold(digest, "user", text, &[])
}

/// The digest after the result of a call that the client ran.
pub fn digest_after_result(digest: &str, call_id: &str) -> String {
    fold(digest, "tool", call_id, &[])
}

/// The digest after an answer: all its text, and the calls left to the client.
pub fn digest_after_answer(digest: &str, text: &str, call_ids: &[&str]) -> String {
    fold(digest, "assistant", text, call_ids)
}

fn fold(previous: &str, role: &str, text: &str, ids: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in [previous, role, text.trim()].iter().chain(ids) {
        // The length keeps two neighbours from being read as one.
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::{digest_after_answer, digest_after_message, digest_after_result};

    #[test]
    fn equal_transcripts_have_equal_digests_and_others_do_not() {
        let digest = |text: &str, ids: &[&str]| digest_after_answer(&digest_after_message("", "hi"), text, ids);
        assert_eq!(digest("Hello", &[]), digest(" Hello\n", &[]));
        assert_ne!(digest("Hello", &[]), digest("Hello", &["a"]));
        assert_ne!(digest("Hello", &["a", "b"]), digest("Hello", &["ab"]));
        assert_ne!(digest_after_message("", "x"), digest_after_result("", "x"));
    }
}
