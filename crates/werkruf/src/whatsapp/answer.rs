//! What an answer of the Graph API means for a message. The code of the error decides, never the HTTP status alone: the same error comes
//! with different ones.

use std::time::Duration;

use serde_json::Value;
use werkruf_runtime::SendResult;

use super::split::shortened;

/// The pair rate: about one message in six seconds to the same person.
const PAIR_RATE: i64 = 131_056;
const PAIR_RATE_WAIT: Duration = Duration::from_secs(6);
/// The wait for each attempt so far after a report of another temporary failure.
const REPORT_WAIT: Duration = Duration::from_secs(30);
/// Free text is allowed for 24 hours after the person's last message.
pub(super) const WINDOW_CLOSED: i64 = 131_047;
/// Throughput, limits of the account or the app, and faults of Meta's own.
const TEMPORARY: [i64; 9] = [130_429, 80_007, 4, 1, 2, 131_000, 131_016, 131_048, 133_004];
/// The code of a message that may have arrived.
pub(super) const NO_ANSWER: &str = "no_answer";
const MAX_TEXT: usize = 300;

/// The meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Settled(SendResult),
    /// Only a template may be sent now.
    WindowClosed {
        message: String,
    },
}

/// How long a message waits that Meta accepted and then reported as failed, by the attempts so far; `None` if another attempt is of no use.
pub(super) fn wait_after_report(code: i64, attempts: u32) -> Option<Duration> {
    match code {
        PAIR_RATE => Some(pair_rate_wait(attempts)),
        code => TEMPORARY.contains(&code).then(|| REPORT_WAIT * attempts.max(1)),
    }
}

/// Grows with the attempts: the person may be getting many messages.
fn pair_rate_wait(attempts: u32) -> Duration {
    PAIR_RATE_WAIT * attempts.max(1)
}

/// What the answer to an attempt, the first or a later one, means.
pub(super) fn read(status: u16, retry_after: Option<Duration>, body: &[u8], attempts: u32) -> Answer {
    let body: Option<Value> = serde_json::from_slice(body).ok();
    if (200..300).contains(&status) {
        let id = body.as_ref().and_then(|body| body.pointer("/messages/0/id")).and_then(Value::as_str);
        return Answer::Settled(match id {
            Some(id) => SendResult::Sent { external_id: Some(id.to_owned()) },
            None => {
                SendResult::Unknown { code: NO_ANSWER.to_owned(), message: format!("Meta answered {status} without the id of a message") }
            }
        });
    }
    let error = body.as_ref().and_then(|body| body.get("error"));
    let code = error.and_then(|error| error.get("code")).and_then(Value::as_i64);
    let text = error.and_then(|error| error.pointer("/error_data/details").or_else(|| error.get("message"))).and_then(Value::as_str);
    let message = text.map_or_else(|| format!("Meta answered {status}"), |text| shortened(text, MAX_TEXT));
    let after = retry_after.filter(|wait| !wait.is_zero());
    let code = match code {
        Some(WINDOW_CLOSED) => return Answer::WindowClosed { message },
        Some(code) => code,
        None => return Answer::Settled(by_status(status, after, message)),
    };
    let (name, server_fault) = (code.to_string(), status >= 500);
    Answer::Settled(match code {
        PAIR_RATE => SendResult::Retry { after: Some(after.unwrap_or_default().max(pair_rate_wait(attempts))), code: name, message },
        code if TEMPORARY.contains(&code) || server_fault => SendResult::Retry { after, code: name, message },
        _ => SendResult::Dead { code: name, message },
    })
}

/// An error without a code, such as one of a proxy on the way.
fn by_status(status: u16, after: Option<Duration>, message: String) -> SendResult {
    match status {
        // A proxy that gave up may have passed the message on.
        408 | 502 | 504 => SendResult::Unknown { code: NO_ANSWER.to_owned(), message },
        429 | 500.. => SendResult::Retry { after, code: "upstream_error".to_owned(), message },
        _ => SendResult::Dead { code: "upstream_refused".to_owned(), message },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meaning(status: u16, code: i64) -> SendResult {
        let body = json!({"error": {"message": "m", "type": "OAuthException", "code": code, "error_data": {"details": "d"}}});
        match read(status, None, body.to_string().as_bytes(), 1) {
            Answer::Settled(result) => result,
            Answer::WindowClosed { message } => SendResult::Dead { code: String::new(), message },
        }
    }

    fn retry(code: &str, after: Option<u64>) -> SendResult {
        SendResult::Retry { after: after.map(Duration::from_secs), code: code.to_owned(), message: "d".to_owned() }
    }

    fn dead(code: &str) -> SendResult {
        SendResult::Dead { code: code.to_owned(), message: "d".to_owned() }
    }

    #[test]
    fn the_code_decides_whatever_the_status() {
        for status in [400, 403, 429, 500] {
            assert_eq!(meaning(status, 131_056), retry("131056", Some(6)));
            assert_eq!(meaning(status, 130_429), retry("130429", None));
            assert_eq!(meaning(status, 131_047), dead(""));
        }
        for code in [80_007, 4, 1, 2] {
            assert_eq!(meaning(400, code), retry(&code.to_string(), None));
        }
        for code in [131_026, 131_051, 190, 100, 132_001, 424_242] {
            assert_eq!(meaning(400, code), dead(&code.to_string()));
        }
        assert_eq!(meaning(503, 424_242), retry("424242", None), "a fault of the server");
    }

    #[test]
    fn answers_without_a_code_are_read_by_their_status() {
        let settled = |status, body: &str| match read(status, None, body.as_bytes(), 1) {
            Answer::Settled(result) => result,
            Answer::WindowClosed { .. } => panic!(),
        };
        let sent = SendResult::Sent { external_id: Some("wamid.1".to_owned()) };
        assert_eq!(settled(200, r#"{"messages": [{"id": "wamid.1"}]}"#), sent);
        assert!(matches!(settled(200, "<html>"), SendResult::Unknown { .. }));
        assert!(matches!(settled(200, "{}"), SendResult::Unknown { .. }));
        for status in [408, 502, 504] {
            assert!(matches!(settled(status, "<html>"), SendResult::Unknown { .. }), "{status}: it may have been passed on");
        }
        for status in [429, 500, 503] {
            assert!(matches!(settled(status, ""), SendResult::Retry { .. }), "{status}");
        }
        assert!(matches!(settled(404, ""), SendResult::Dead { .. }));
        assert!(matches!(settled(302, ""), SendResult::Dead { .. }), "redirects are not followed");
    }

    #[test]
    fn the_wait_for_one_person_grows_and_the_server_may_ask_for_a_longer_one() {
        let body = json!({"error": {"code": 131_056, "message": "d"}}).to_string();
        let wait = Some(Duration::from_secs(30));
        for (attempts, expected) in [(1, 30), (5, 30), (9, 54)] {
            assert_eq!(read(429, wait, body.as_bytes(), attempts), Answer::Settled(retry("131056", Some(expected))));
        }
        let waits = [0, 1, 2, 9].map(|attempts| wait_after_report(PAIR_RATE, attempts).map(|wait| wait.as_secs()));
        assert_eq!(waits, [Some(6), Some(6), Some(12), Some(54)]);
        assert_eq!(
            [130_429, 131_000, 131_047, 131_026].map(|code| wait_after_report(code, 2).map(|wait| wait.as_secs())),
            [Some(60), Some(60), None, None]
        );
    }
}
