//! What a provider's refusal means. Providers use their own codes and texts for the same few reasons.

use serde_json::Value;

use crate::error::excerpt;
use crate::reader::cut;
use crate::{ModelError, ModelFault};

/// How much of a provider's message is kept. Together with its code it is below the limit of an error's message.
const MAX_MESSAGE_BYTES: usize = 300;
const MAX_CODE_BYTES: usize = 64;
/// What keys of providers begin with. A refusal may quote a part of a key that this server does not know.
const KEY_STARTS: [&str; 4] = ["sk-", "key-", "gsk_", "xai-"];

/// Why a provider refuses a request for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The request has more tokens than the model reads.
    ContextLength,
    /// A picture of the request cannot be used.
    Image,
    /// The server has no such model, or no such path.
    UnknownModel,
    /// The server does not accept the key.
    Credentials,
    Other,
}

/// Parts of codes and texts that mean a request is too long for the model.
const TOO_LONG: [&str; 9] = [
    "context_length",
    "context length",
    "context window",
    "context size",
    "exceed_context",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "too many tokens",
];
/// Words beside "image" that mean that the picture is at fault.
const FAULTY: [&str; 8] = ["invalid", "unsupported", "not support", "could not", "cannot", "unable", "failed", "too large"];

impl ModelError {
    /// Why the provider refuses the request; `None` if the same request may succeed later.
    pub fn refusal(&self) -> Option<RefusalReason> {
        let ModelFault::Refused { status } = self.fault else { return None };
        if !(400..500).contains(&status) || self.is_retryable() {
            return None;
        }
        Some(match status {
            401 | 403 => RefusalReason::Credentials,
            404 => RefusalReason::UnknownModel,
            _ => reason(&self.message),
        })
    }

    /// The provider's own text: one line of at most 200 bytes, with keys redacted.
    pub fn provider_text(&self) -> String {
        let is_key = |word: &str| KEY_STARTS.iter().any(|start| word.trim_start_matches(['"', '\'', '`', '(']).starts_with(start));
        let words = excerpt(&self.message);
        words.split(' ').map(|word| if is_key(word) { "[redacted]" } else { word }).collect::<Vec<_>>().join(" ")
    }
}

/// The error of a response body with only its message, code and type, so that a long body still is JSON after it is cut.
pub(crate) fn short_error(body: &str) -> String {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    let error = parsed.get("error").unwrap_or(&parsed);
    let Some(message) = error["message"].as_str() else { return body.to_owned() };
    let mut short = serde_json::Map::new();
    short.insert("message".to_owned(), cut(message, MAX_MESSAGE_BYTES).into());
    for field in ["code", "type"] {
        if let Some(code) = error[field].as_str() {
            short.insert(field.to_owned(), cut(code, MAX_CODE_BYTES).into());
        }
    }
    serde_json::json!({"error": short}).to_string()
}

fn reason(message: &str) -> RefusalReason {
    let body: Value = serde_json::from_str(message).unwrap_or_default();
    let error = body.get("error").unwrap_or(&body);
    let code = [&error["code"], &error["type"]].map(|field| field.as_str().unwrap_or_default().to_ascii_lowercase());
    let text = error["message"].as_str().unwrap_or(message).to_ascii_lowercase();
    let is_faulty_image = || text.contains("image") && FAULTY.iter().any(|word| text.contains(word));
    let lacks_model = || text.contains("model") && ["does not exist", "not found", "unknown model"].iter().any(|part| text.contains(part));
    if TOO_LONG.iter().any(|part| text.contains(part) || code.iter().any(|code| code.contains(part))) {
        RefusalReason::ContextLength
    } else if code.iter().any(|code| code.contains("image")) || is_faulty_image() {
        RefusalReason::Image
    } else if code.iter().any(|code| code.contains("model_not_found")) || lacks_model() {
        RefusalReason::UnknownModel
    } else {
        RefusalReason::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, message: &str) -> Option<RefusalReason> {
        ModelError::new(ModelFault::Refused { status }, message).refusal()
    }

    #[test]
    fn refusals_of_known_servers_have_a_reason() {
        let known = [
            (400, r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
            ),
            (400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens"}}"#),
            (413, r#"{"error":{"message":"input is too long","code":"request_too_large"}}"#),
            // From inside a stream.
            (400, "context_length_exceeded: too much"),
        ];
        for (status, message) in known {
            assert_eq!(refused(status, message), Some(RefusalReason::ContextLength), "{message}");
        }
        for message in [
            r#"{"error":{"message":"You uploaded an unsupported image.","code":"invalid_image_format"}}"#,
            r#"{"error":{"message":"Could not process image","type":"invalid_request_error"}}"#,
        ] {
            assert_eq!(refused(400, message), Some(RefusalReason::Image), "{message}");
        }
        assert_eq!(refused(400, r#"{"error":{"message":"The model `x` does not exist"}}"#), Some(RefusalReason::UnknownModel));
        assert_eq!(refused(404, ""), Some(RefusalReason::UnknownModel));
        assert_eq!((refused(401, ""), refused(403, "")), (Some(RefusalReason::Credentials), Some(RefusalReason::Credentials)));
        assert_eq!(refused(422, r#"{"detail":"no"}"#), Some(RefusalReason::Other));
        assert_eq!((refused(408, ""), refused(429, ""), refused(500, ""), refused(302, "")), (None, None, None, None));
        assert_eq!(ModelError::new(ModelFault::Idle, "context length").refusal(), None);
    }

    #[test]
    fn the_text_of_a_provider_is_short_and_has_no_keys() {
        let text = |body: &str| ModelError::new(ModelFault::Refused { status: 400 }, short_error(body)).provider_text();
        let long = serde_json::json!({"error": {"message": format!("No {}", "x".repeat(900)), "code": "c", "param": "y".repeat(900)}});
        assert!(text(&long.to_string()).starts_with("No xxx") && text(&long.to_string()).len() < 210);
        let quoted = r#"{"error":{"message":"Incorrect API key provided: sk-abc***xyz. Look at https://example.com."}}"#;
        assert_eq!(text(quoted), "Incorrect API key provided: [redacted] Look at https://example.com.");
        assert_eq!(text("plain text"), "plain text");
    }
}
