//! The headers in which OpenAI's clients read how many requests they may send. There is no limit of tokens per minute, so no header names one.

use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::model::CHANNEL;
use crate::api::ApiState;
use crate::api::policy::Authenticated;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");

/// Says how many turns the caller may start, as far as a limit counts them.
pub(crate) fn set(api: &ApiState, Authenticated(identity): &Authenticated, response: &mut Response) {
    let Some(room) = identity.caller().ok().and_then(|caller| api.app.runtime.turn_room(&caller, CHANNEL)) else { return };
    let headers = response.headers_mut();
    headers.insert(LIMIT, room.limit.into());
    headers.insert(REMAINING, room.remaining.into());
    put_text(headers, RESET, &span(room.reset));
}

fn put_text(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// A span as OpenAI writes it: `120ms`, `6s`, `1m0s`.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 60, seconds % 60, span.subsec_millis()) {
        (0, 0, millis) => format!("{millis}ms"),
        (0, seconds, 0) => format!("{seconds}s"),
        (0, seconds, millis) => format!("{seconds}.{millis:03}s"),
        (minutes, seconds, _) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::span;

    #[test]
    fn a_span_is_written_as_openai_writes_it() {
        for (millis, text) in [(0, "0ms"), (120, "120ms"), (6000, "6s"), (1070, "1.070s"), (60_000, "1m0s"), (61_500, "1m1s")] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }
}
