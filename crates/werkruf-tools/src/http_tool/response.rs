//! Parses the response of the service: plain data, a whole `ToolOutput`, or an error.
//!
//! The body of an error response never reaches the model: it is truncated and stored as the cause. The one exception is
//! the `message` of a `ToolOutput` error, which the author of the tool wrote for the model and the user.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use werkruf_contract::{ErrorCode, Failure, Reply, State, ToolErrorType};

/// Most bytes of a body that are stored as a cause.
pub(super) const EXCERPT_BYTES: usize = 512;
/// Most characters of the message of a `ToolOutput` error.
const MESSAGE_CHARS: usize = 2_000;

/// Status and `Retry-After` of a response.
pub(super) struct ResponseHead {
    status: StatusCode,
    retry_after: Option<Duration>,
}

impl ResponseHead {
    pub(super) fn new(response: &Response, now: Timestamp) -> Self {
        Self { status: response.status(), retry_after: retry_after(response.headers(), now) }
    }

    /// The failure for a status other than 2xx.
    pub(super) fn refusal(&self, excerpt: &str) -> Failure {
        let code = self.status.as_u16();
        let failure = match code {
            429 => Failure::new(
                ToolErrorType::RateLimit,
                ErrorCode::RateLimited,
                "The service behind this tool takes no more requests right now.",
            ),
            400..=499 => {
                Failure::fatal(ErrorCode::UpstreamRefused, format!("The service behind this tool refused the request (status {code})."))
                    .nothing_happened()
            }
            500..=599 => Failure::upstream(ErrorCode::UpstreamError, format!("The service behind this tool failed (status {code}).")),
            300..=399 => bad_response("The service behind this tool answered with a redirect, which is not followed."),
            _ => bad_response("The service behind this tool answered with an unexpected status."),
        };
        let mut failure = failure.retry_after(self.retry_after);
        failure.upstream_status = Some(code);
        if excerpt.is_empty() { failure } else { failure.because(excerpt) }
    }

    /// The reply for a 2xx body.
    pub(super) fn reply(&self, body: &[u8]) -> Result<Reply, Failure> {
        let outcome = if self.status == StatusCode::NO_CONTENT { Ok(Reply::new(Value::Null)) } else { read(body) };
        outcome.map_err(|mut failure| {
            failure.upstream_status.get_or_insert(self.status.as_u16());
            failure
        })
    }
}

fn read(body: &[u8]) -> Result<Reply, Failure> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        let cause = format!("{error}; it began: {}", cut(body));
        bad_response("The service behind this tool answered something that is not JSON.").because(cut(cause.as_bytes()))
    })?;
    let Value::Object(mut object) = value else { return Ok(Reply::new(value)) };
    let state_patch = take_patch(&mut object);
    let mut reply = match object.get("status").and_then(Value::as_str) {
        Some("ok") if object.contains_key("data") => envelope(object),
        Some("error") if object.contains_key("error") => return Err(refused(&object["error"])),
        _ => {
            let message = text(&object, "message");
            Reply { message, ..Reply::new(Value::Object(object)) }
        }
    };
    reply.state_patch = state_patch;
    Ok(reply)
}

/// Removes the patch from the data. A null patch counts as absent.
fn take_patch(object: &mut Map<String, Value>) -> Option<State> {
    match object.get("state_patch")? {
        Value::Object(_) | Value::Null => match object.shift_remove("state_patch") {
            Some(Value::Object(patch)) => Some(patch),
            _ => None,
        },
        _ => {
            tracing::warn!("the state_patch of an HTTP tool is not an object and is treated as data");
            None
        }
    }
}

/// The reply for a `ToolOutput` with status `ok`.
fn envelope(mut object: Map<String, Value>) -> Reply {
    let data = object.shift_remove("data").unwrap_or_default();
    let message = text(&object, "message").or_else(|| data.as_object().and_then(|data| text(data, "message")));
    let meta = object.get("meta");
    Reply {
        message,
        source_counts: meta_field::<BTreeMap<String, u64>>(meta, "source_counts"),
        routing: meta_field(meta, "routing"),
        token_usage: meta_field::<BTreeMap<String, i64>>(meta, "token_usage"),
        ..Reply::new(data)
    }
}

/// The failure for a `ToolOutput` with status `error`.
fn refused(error: &Value) -> Failure {
    let field = |name: &str| error.get(name).and_then(Value::as_str);
    let Some(kind) = field("type").and_then(ToolErrorType::parse) else {
        return bad_response("The service behind this tool answered with an error of no known type.")
            .because(cut(error.to_string().as_bytes()));
    };
    let code = field("code").filter(|code| is_code(code)).unwrap_or_else(|| default_code(kind).as_str()).to_owned();
    let message: String = field("message").unwrap_or("The tool failed and gave no reason.").chars().take(MESSAGE_CHARS).collect();
    // FATAL means that the service refused and did nothing, unless the code is `outcome_unknown`.
    let refused = kind == ToolErrorType::Fatal && !ErrorCode::OutcomeUnknown.is(&code);
    let mut failure = Failure::new(kind, code, message);
    failure.cause = field("cause").map(|cause| cut(cause.as_bytes()));
    failure.retry_after = error.get("retry_after_ms").and_then(Value::as_u64).map(Duration::from_millis);
    failure.upstream_status = error.get("upstream_status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    failure.details = error.get("details").and_then(Value::as_object).cloned();
    if refused { failure.nothing_happened() } else { failure }
}

/// Codes are metric labels, so they must be short and simple.
fn is_code(code: &str) -> bool {
    !code.is_empty() && code.len() <= 64 && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

const fn default_code(kind: ToolErrorType) -> ErrorCode {
    match kind {
        ToolErrorType::RateLimit => ErrorCode::RateLimited,
        ToolErrorType::Timeout => ErrorCode::ToolTimeout,
        ToolErrorType::Upstream | ToolErrorType::Retryable => ErrorCode::UpstreamError,
        ToolErrorType::Validation | ToolErrorType::Fatal => ErrorCode::UpstreamRefused,
    }
}

/// The response is longer than the declaration allows. Fatal, because a retry would not make the response shorter.
pub(super) fn too_large(status: u16, max_bytes: usize) -> Failure {
    let mut failure = Failure::fatal(
        ErrorCode::ResponseTooLarge,
        format!("The answer of the service behind this tool is longer than the allowed {max_bytes} bytes."),
    );
    failure.upstream_status = Some(status);
    failure
}

/// The response is not a valid tool response.
pub(super) fn bad_response(message: &'static str) -> Failure {
    Failure::upstream(ErrorCode::BadResponse, message)
}

/// The first `EXCERPT_BYTES` bytes, as text.
pub(super) fn cut(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]).into_owned();
    // The replacement character is longer than the byte that it replaces.
    text.truncate(text.floor_char_boundary(EXCERPT_BYTES));
    text
}

fn text(object: &Map<String, Value>, name: &str) -> Option<String> {
    object.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn meta_field<T: DeserializeOwned>(meta: Option<&Value>, name: &str) -> Option<T> {
    serde_json::from_value(meta?.get(name)?.clone()).ok()
}

/// Seconds, or a date relative to the `Date` header of the response if there is one.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let value = header(RETRY_AFTER)?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = rfc2822::parse(value).ok()?.timestamp();
    let from = header(DATE).and_then(|date| rfc2822::parse(date).ok()).map_or(now, |date| date.timestamp());
    Some(Duration::try_from(until.duration_since(from)).unwrap_or_default())
}
