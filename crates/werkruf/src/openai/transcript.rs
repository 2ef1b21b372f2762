//! Digests of a client's transcript. A client that sends no conversation id resends its whole history; the digest of that history
//! identifies the stored conversation.
//!
//! Invariant: the runtime computes the digest after an answer with [`digest_after_answer`]. This module uses the same functions, so
//! a resent history gives the same digest.

use serde_json::Value;
use werkruf_llm::history_formats::{Role, StoredMessage};
use werkruf_runtime::{digest_after_answer, digest_after_message, digest_after_result};

/// The digest of a transcript. The digest of an empty transcript is the empty string.
pub(crate) type TranscriptDigest = String;

/// Adds messages to a digest. Consecutive assistant messages count as one answer.
pub(crate) fn digest(start: TranscriptDigest, messages: &[StoredMessage]) -> TranscriptDigest {
    let mut digest = start;
    let mut answer: Option<(String, Vec<&str>)> = None;
    for message in messages {
        if message.role == Role::Assistant {
            let (text, ids) = answer.get_or_insert_default();
            text.push_str(&message.content);
            ids.extend(message.calls.iter().map(|call| call.id.as_str()));
            continue;
        }
        if let Some((text, ids)) = answer.take() {
            digest = digest_after_answer(&digest, &text, &ids);
        }
        digest = match (message.role, &message.call_id) {
            (Role::Tool, Some(id)) => digest_after_result(&digest, id),
            _ => digest_after_message(&digest, &message_text(message)),
        };
    }
    match answer {
        Some((text, ids)) => digest_after_answer(&digest, &text, &ids),
        None => digest,
    }
}

/// The text of a user message with its pictures and files, so that messages with different attachments have different digests.
fn message_text(message: &StoredMessage) -> String {
    let mut text = message.content.clone();
    for part in parts(message).into_iter().flatten() {
        text.push('\n');
        text.push_str(&part.to_string());
    }
    text
}

/// The content parts of a message; `None` if all of them are text.
pub(crate) fn parts(message: &StoredMessage) -> Option<&Vec<Value>> {
    let parts = message.metadata.get("content")?.as_array()?;
    parts.iter().any(|part| part["type"] != "text").then_some(parts)
}
