//! Stored results of calls, for the tool that reads on in a result of which the model got the beginning only.

use uuid::Uuid;

use crate::error::Failure;
use crate::tool::BoxFuture;

/// The result of an earlier call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResult {
    pub tool: String,
    /// JSON.
    pub data: String,
    /// Strangers may have written it.
    pub untrusted: bool,
}

/// Access to the results of one conversation. The runtime implements it, so a tool cannot read those of others.
pub trait Results: std::fmt::Debug + Send + Sync {
    /// The result of a call; `None` where the conversation has no such call, or the call no result.
    fn result(&self, job_id: Uuid) -> BoxFuture<'_, Result<Option<StoredResult>, Failure>>;
    /// A result with at most this many bytes reaches the model whole.
    fn model_bytes(&self) -> usize;
}

/// No conversation, so no results.
#[derive(Debug, Clone, Copy)]
pub struct NoResults;

/// The most bytes of one result that a model gets whole.
pub const MODEL_BYTES: usize = 32 * 1024;

impl Results for NoResults {
    fn result(&self, _: Uuid) -> BoxFuture<'_, Result<Option<StoredResult>, Failure>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn model_bytes(&self) -> usize {
        MODEL_BYTES
    }
}

/// The longest part of a text from a byte on that has at most `most` bytes as a JSON string, without its quotes. A byte inside a character
/// means that character.
pub fn excerpt(text: &str, from: usize, most: usize) -> &str {
    let start = text.floor_char_boundary(from);
    let rest = text.get(start..).unwrap_or_default();
    let mut bytes = 0;
    for (at, character) in rest.char_indices() {
        bytes += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        };
        if bytes > most {
            return rest.get(..at).unwrap_or_default();
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn the_parts_of_a_text_fit_and_miss_nothing() {
        let text = "ä\"\\\n\u{1}€😀plain text".repeat(20);
        for most in 6..40 {
            let (mut at, mut whole) = (0, String::new());
            while at < text.len() {
                let part = excerpt(&text, at, most);
                assert!(serde_json::to_string(part).unwrap().len() <= most + 2, "{part:?}");
                at += part.len();
                whole.push_str(part);
            }
            assert_eq!(whole, text);
        }
        assert_eq!((excerpt("äb", 1, 9), excerpt("äb", 3, 9), excerpt("äb", 99, 9)), ("äb", "", ""));
    }
}
