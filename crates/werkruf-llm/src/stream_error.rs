//! An error that a provider sends in place of an answer, in any of the known formats.
//!
//! `{"error": {"message", "type", "code"}}`, `{"error": "message", "code": …}`, `{"object": "error", "message"}`, or a bare string.

use serde_json::Value;

/// The provider's message, and the HTTP status that corresponds to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamError {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl StreamError {
    /// Reads the value of `error`, or a whole payload that is the error. `around` is the payload that contains the `error` field.
    pub(crate) fn read(raw: &str, around: Option<&str>) -> Option<Self> {
        let error: Value = serde_json::from_str(raw).ok()?;
        if error.is_null() {
            return None;
        }
        let around: Value = around.and_then(|around| serde_json::from_str(around).ok()).unwrap_or(Value::Null);
        // The error's own message, that of an inner error, or the whole JSON: the log must show something.
        let message = error.as_str().or_else(|| error["message"].as_str()).or_else(|| error["error"]["message"].as_str());
        let message = message.or_else(|| error["error"].as_str()).map_or_else(|| raw.to_owned(), str::to_owned);
        let code = [&error["code"], &error["status"], &error["status_code"], &around["code"], &around["status"]];
        let kind = [&error["code"], &error["type"], &around["code"]];
        let status = code.iter().find_map(|code| http_status(code)).or_else(|| kind.iter().find_map(|kind| status_of_kind(kind.as_str()?)));
        let message = match error["code"].as_str().or_else(|| error["type"].as_str()) {
            Some(code) => format!("{code}: {message}"),
            None => message,
        };
        // An unknown error counts as a provider failure, so that it may be retried.
        Some(Self { status: status.unwrap_or(502), message })
    }
}

fn http_status(code: &Value) -> Option<u16> {
    let number = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

fn status_of_kind(kind: &str) -> Option<u16> {
    let known = [
        ("rate_limit", 429),
        ("insufficient_quota", 429),
        ("tool_use_failed", 400),
        ("context_length", 400),
        ("invalid_request", 400),
        ("authentication", 401),
        ("invalid_api_key", 401),
        ("permission", 403),
        ("not_found", 404),
        ("overloaded", 503),
        ("timeout", 504),
        ("server_error", 500),
        ("invalid", 400),
    ];
    let kind = kind.to_ascii_lowercase();
    known.iter().find(|(part, _)| kind.contains(part)).map(|(_, status)| *status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_and_message(raw: &str) -> (u16, String) {
        let error = StreamError::read(raw, None).unwrap();
        (error.status, error.message)
    }

    #[test]
    fn reads_every_format() {
        assert_eq!(status_and_message(r#"{"message":"slow","code":"rate_limit_exceeded"}"#), (429, "rate_limit_exceeded: slow".into()));
        assert_eq!(status_and_message(r#"{"message":"limit","code":400}"#), (400, "limit".into()));
        assert_eq!(status_and_message(r#"{"message":"key","code":"401"}"#), (401, "401: key".into()));
        assert_eq!(status_and_message(r#""message only""#), (502, "message only".into()));
        assert_eq!(status_and_message(r#"{"odd":1}"#), (502, r#"{"odd":1}"#.into()));
        let flat = StreamError::read(r#""no""#, Some(r#"{"code":429,"error":"no"}"#)).unwrap();
        assert_eq!(flat.status, 429);
        assert_eq!(StreamError::read("null", None), None);
    }
}
