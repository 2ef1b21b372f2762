//! What a client has seen, as one digest: folded message by message, so that a history sent again is known again.
//!
//! Texts are trimmed and calls count by their ids alone: clients write both anew in their own way.

use sha2::{Digest, Sha256};
use werkruf_contract::hex;

/// After a message of the person.
pub fn digest_after_message(seen: &str, text: &str) -> String {
    fold(seen, "user", text, &[])
}

/// After the result of a call that the client ran.
pub fn digest_after_result(seen: &str, call_id: &str) -> String {
    fold(seen, "tool", call_id, &[])
}

/// After an answer: all its text, and the calls it left to the client.
pub fn digest_after_answer(seen: &str, text: &str, call_ids: &[&str]) -> String {
    fold(seen, "assistant", text, call_ids)
}

fn fold(seen: &str, who: &str, text: &str, ids: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in [seen, who, text.trim()].iter().chain(ids) {
        // The length keeps two neighbours from being read as one.
        digest.update(part.len().to_be_bytes());
        digest.update(part.as_bytes());
    }
    hex(&digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::{digest_after_answer, digest_after_message, digest_after_result};

    #[test]
    fn the_same_words_give_the_same_sight_and_others_another() {
        let sight = |text: &str, ids: &[&str]| digest_after_answer(&digest_after_message("", "hi"), text, ids);
        assert_eq!(sight("Hello", &[]), sight(" Hello\n", &[]));
        assert_ne!(sight("Hello", &[]), sight("Hello", &["a"]));
        assert_ne!(sight("Hello", &["a", "b"]), sight("Hello", &["ab"]));
        assert_ne!(digest_after_message("", "x"), digest_after_result("", "x"));
    }
}
