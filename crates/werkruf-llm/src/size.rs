//! What a request uses at most, counted before it is sent: its encoded text, its pictures and files, and the longest answer.

use serde_json::{Value, json};

use crate::tokens::count_tokens;
use crate::{Message, ModelRequest};

/// No model of OpenAI counts more tokens for a picture, except the one below.
const PICTURE_TOKENS: u64 = 10_000;
/// `gpt-4o-mini` counts a picture at its highest detail as this many tokens.
const MINI_PICTURE_TOKENS: u64 = 48_169;
/// A file that is only named (by an id or an address) counts as this many bytes.
const NAMED_FILE_BYTES: u64 = 1_000_000;

/// The size of a request. The default is a request that uses no tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// The encoded request without pictures and files. It is longer than what the model reads, so its count is an upper bound.
    pub(crate) text: String,
    /// The most tokens that pictures and files count as.
    pub(crate) attached_tokens: u64,
    pub(crate) max_output_tokens: u64,
}

impl RequestSize {
    /// The size of a request with only these texts, and no text as the answer.
    pub fn of_texts(texts: &[String]) -> Self {
        Self { text: texts.join("\n"), ..Self::default() }
    }

    /// The longest answer, in tokens.
    pub const fn max_output_tokens(&self) -> u64 {
        self.max_output_tokens
    }

    /// The bytes of the encoded request, without pictures and files.
    pub const fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// The most tokens that pictures and files count as.
    pub const fn attached_tokens(&self) -> u64 {
        self.attached_tokens
    }

    /// Adds tokens that the provider itself adds to the request.
    #[must_use]
    pub const fn with_more_tokens(mut self, tokens: u64) -> Self {
        self.attached_tokens = self.attached_tokens.saturating_add(tokens);
        self
    }

    /// The most tokens of the prompt.
    pub async fn prompt_tokens(self) -> u64 {
        if self.text.is_empty() {
            return self.attached_tokens;
        }
        // A token has at least one byte.
        let most = u64::try_from(self.text.len()).unwrap_or(u64::MAX);
        let counted = count_tokens(vec![self.text]).await.and_then(|counts| counts.first().copied());
        counted.unwrap_or(most).saturating_add(self.attached_tokens)
    }
}

/// The request without the data of its pictures and files, and the most tokens that these count as.
pub(crate) fn without_attachments(request: &ModelRequest, model: &str) -> (Option<ModelRequest>, u64) {
    let has_parts = |message: &Message| matches!(message, Message::User { parts, .. } | Message::Tool { parts, .. } if !parts.is_empty());
    if !request.messages.iter().any(has_parts) {
        return (None, 0);
    }
    let mut tokens = 0_u64;
    let mut plain = request.clone();
    for message in std::sync::Arc::make_mut(&mut plain.messages) {
        let (Message::User { parts, .. } | Message::Tool { parts, .. }) = message else { continue };
        for part in parts.iter_mut().filter(|part| part["type"] != "text") {
            tokens = tokens.saturating_add(attached_tokens(part, model));
            *part = json!({"type": "text", "text": ""});
        }
    }
    (Some(plain), tokens)
}

/// A file counts one token per byte: its text may be compressed, and each page may be read as a picture too.
fn attached_tokens(part: &Value, model: &str) -> u64 {
    if part["type"] == "image_url" {
        return if model.contains("gpt-4o-mini") { MINI_PICTURE_TOKENS } else { PICTURE_TOKENS };
    }
    let data = part["file"]["file_data"].as_str().or_else(|| part["input_audio"]["data"].as_str());
    data.map_or(NAMED_FILE_BYTES, |data| u64::try_from(data.len()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn request(parts: Vec<Value>) -> ModelRequest {
        ModelRequest { messages: Arc::new(vec![Message::User { content: "look".to_owned(), parts }]), ..ModelRequest::default() }
    }

    #[test]
    fn pictures_and_files_count_by_their_upper_bound_and_not_by_their_encoding() {
        let (plain, tokens) = without_attachments(&request(Vec::new()), "gpt-5");
        assert!(plain.is_none() && tokens == 0);
        let picture = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(100_000))}});
        let file = json!({"type": "file", "file": {"file_data": "A".repeat(1234)}});
        let text = json!({"type": "text", "text": "look"});
        let (plain, tokens) = without_attachments(&request(vec![text.clone(), picture.clone(), file]), "gpt-5");
        assert_eq!(tokens, PICTURE_TOKENS + 1234);
        let empty = json!({"type": "text", "text": ""});
        let Some(Message::User { parts, .. }) = plain.unwrap().messages.first().cloned() else { panic!("one message") };
        assert_eq!(parts, [text, empty.clone(), empty]);
        assert_eq!(without_attachments(&request(vec![picture]), "gpt-4o-mini-2024-07-18").1, MINI_PICTURE_TOKENS);
        assert_eq!(without_attachments(&request(vec![json!({"type": "file", "file": {"file_id": "f"}})]), "m").1, NAMED_FILE_BYTES);
    }

    #[tokio::test]
    async fn the_prompt_is_counted_in_tokens() {
        let size = RequestSize::of_texts(&["hello world".to_owned(), "hello world".to_owned()]);
        assert_eq!(size.clone().prompt_tokens().await, 5);
        assert_eq!(size.with_more_tokens(100).prompt_tokens().await, 105);
        assert_eq!(RequestSize::default().prompt_tokens().await, 0);
    }
}
