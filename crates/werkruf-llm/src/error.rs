//! The errors of model requests.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::TokenUsage;
use crate::reader::cut;

/// How much of a provider's text is shown.
const MAX_EXCERPT_BYTES: usize = 200;

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFault {
    /// No connection; nothing was sent.
    Connect,
    /// The provider returned an error status or an error inside the stream.
    Refused { status: u16 },
    /// The first byte did not arrive in time.
    FirstByte,
    /// No further bytes arrived in time.
    Idle,
    /// The stream ended or broke before the provider reported the end of the answer.
    Incomplete,
    /// The bytes are not a valid answer.
    Protocol,
}

/// A model request without a usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError {
    pub fault: ModelFault,
    /// For the log; may contain text from the provider, cut to 512 bytes, with keys redacted.
    pub message: String,
    pub retry_after: Option<Duration>,
    /// The text that was received before the failure.
    pub received: String,
    /// The id that the provider gave the request, where its response had one.
    pub request_id: Option<String>,
    /// The tokens that the provider reported although it failed.
    pub usage: Option<TokenUsage>,
}

impl ModelError {
    /// An error of this kind.
    pub fn new(fault: ModelFault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into(), retry_after: None, received: String::new(), request_id: None, usage: None }
    }

    /// Status 4xx except 408 and 429 is not retried; all other failures may be transient.
    pub const fn is_retryable(&self) -> bool {
        match self.fault {
            ModelFault::Refused { status } => matches!(status, 408 | 429) || status >= 500,
            ModelFault::Connect | ModelFault::FirstByte | ModelFault::Idle | ModelFault::Incomplete | ModelFault::Protocol => true,
        }
    }

    /// For a request that got no answer at all: whether the provider may have carried something out. It has not if it was not reached, or
    /// rejected the request.
    pub const fn may_have_acted(&self) -> bool {
        match self.fault {
            ModelFault::Connect => false,
            ModelFault::Refused { status } => status == 408 || status >= 500,
            ModelFault::FirstByte | ModelFault::Idle | ModelFault::Incomplete | ModelFault::Protocol => true,
        }
    }

    /// Whether the request may have reached the provider, and so may have cost money.
    pub const fn was_sent(&self) -> bool {
        !matches!(self.fault, ModelFault::Connect)
    }
}

/// What the server did, as a sentence without its subject, on one line.
impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = excerpt(&self.message);
        match self.fault {
            ModelFault::Connect => write!(f, "cannot be reached: {said}"),
            ModelFault::Refused { status } => {
                let hint = match status {
                    401 | 403 => " (check the API key)",
                    404 => " (check the base URL, which usually ends in /v1, and the name of the model)",
                    _ => "",
                };
                let colon = if said.is_empty() { "" } else { ": " };
                write!(f, "answered {status}{hint}{colon}{said}")
            }
            ModelFault::FirstByte | ModelFault::Idle => write!(f, "did not answer in time: {said}"),
            ModelFault::Incomplete => write!(f, "broke off: {said}"),
            ModelFault::Protocol => write!(f, "did not answer like a model (check the base URL, which usually ends in /v1): {said}"),
        }
    }
}

impl std::error::Error for ModelError {}

/// The message inside a JSON error, or the text itself; on one line and not too long.
pub(crate) fn excerpt(text: &str) -> String {
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    let inner = parsed.as_ref().and_then(|body| {
        let error = body.get("error").unwrap_or(body);
        error.get("message").unwrap_or(error).as_str()
    });
    if text.trim_start().trim_start_matches("the body is not an answer: ").starts_with('<') {
        return "an HTML page".to_owned();
    }
    let line = inner.unwrap_or(text).split_whitespace().collect::<Vec<_>>().join(" ");
    let start = cut(&line, MAX_EXCERPT_BYTES);
    if start.len() < line.len() { format!("{start}…") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_rejected_or_never_arrived_had_no_effect() {
        let acted = |fault| ModelError::new(fault, "").may_have_acted();
        let rejected = [400, 401, 404, 409, 429].map(|status| acted(ModelFault::Refused { status }));
        assert_eq!((acted(ModelFault::Connect), rejected), (false, [false; 5]));
        let unclear = [408, 500, 503, 529].map(|status| acted(ModelFault::Refused { status }));
        assert_eq!(unclear, [true; 4]);
        assert!([ModelFault::FirstByte, ModelFault::Idle, ModelFault::Incomplete, ModelFault::Protocol].into_iter().all(acted));
    }

    #[test]
    fn an_error_is_one_line_in_words() {
        let shown = |fault, message: &str| ModelError::new(fault, message).to_string();
        let refused = |status, message| shown(ModelFault::Refused { status }, message);
        assert_eq!(refused(401, "{\"error\": {\"message\": \"Incorrect\\nkey\"}}"), "answered 401 (check the API key): Incorrect key");
        assert_eq!(refused(500, ""), "answered 500");
        assert_eq!(refused(501, "<!DOCTYPE html>\n<title>No</title>"), "answered 501: an HTML page");
        assert_eq!(refused(418, "{\"error\": \"no\"}"), "answered 418: no");
        assert_eq!(shown(ModelFault::Connect, "Connection refused"), "cannot be reached: Connection refused");
        assert_eq!(refused(502, &"é".repeat(300)).chars().filter(|letter| *letter == 'é').count(), 100);
    }
}
