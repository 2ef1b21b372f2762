//! Names what a client has sent and seen, so that a conversation is found again by a client that only resends it.
//!
//! Invariant: what the runtime folds in after an answer ([`digest_after_answer`]) is what is folded here when that answer comes back.

use serde_json::Value;
use werkruf_llm::history_formats::{Role, StoredMessage};
use werkruf_runtime::{digest_after_answer, digest_after_message, digest_after_result};

/// A digest; empty before anything was said.
pub(crate) type Sight = String;

/// Folds messages into a sight. Assistant messages in a row are one answer.
pub(crate) fn of(start: Sight, messages: &[StoredMessage]) -> Sight {
    let mut seen = start;
    let mut answer: Option<(String, Vec<&str>)> = None;
    for message in messages {
        if message.role == Role::Assistant {
            let (text, ids) = answer.get_or_insert_default();
            text.push_str(&message.content);
            ids.extend(message.calls.iter().map(|call| call.id.as_str()));
            continue;
        }
        if let Some((text, ids)) = answer.take() {
            seen = digest_after_answer(&seen, &text, &ids);
        }
        seen = match (message.role, &message.call_id) {
            (Role::Tool, Some(id)) => digest_after_result(&seen, id),
            _ => digest_after_message(&seen, &words(message)),
        };
    }
    match answer {
        Some((text, ids)) => digest_after_answer(&seen, &text, &ids),
        None => seen,
    }
}

/// What a person said, with pictures and files: two different ones are not the same message.
fn words(message: &StoredMessage) -> String {
    let mut words = message.content.clone();
    for part in parts(message).into_iter().flatten() {
        words.push('\n');
        words.push_str(&part.to_string());
    }
    words
}

/// The content parts of a message, where they are more than text.
pub(crate) fn parts(message: &StoredMessage) -> Option<&Vec<Value>> {
    let parts = message.metadata.get("content")?.as_array()?;
    parts.iter().any(|part| part["type"] != "text").then_some(parts)
}
