//! The benchmark's model: no script, the same behaviour for every request, hardly any work per request.
//!
//! A user message with tools offered is answered with a call; `calls=3` in its text asks for three at once, `steps=10` for ten
//! one after another, `tool=NAME` for another tool. When the steps are done, or nothing fits, 31 pieces of text are answered.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Tools it knows how to call, the favourite first.
const TOOLS: [(&str, &str); 5] =
    [("test_echo", ""), ("get_requests", "{}"), ("get_todos", "{}"), ("get_worktime", "{}"), ("get_user_info", "{}")];
const TEXT_PIECES: usize = 31;
const HEAD: &str =
    r#"data: {"id":"chatcmpl-fixed","object":"chat.completion.chunk","created":1700000000,"model":"fixed","choices":[{"index":0,"delta":"#;
const END: &str = concat!(
    r#"data: {"id":"chatcmpl-fixed","object":"chat.completion.chunk","created":1700000000,"model":"fixed","choices":[],"#,
    r#""usage":{"prompt_tokens":100,"completion_tokens":31,"total_tokens":131}}"#,
    "\n\ndata: [DONE]\n\n"
);

struct Fixed {
    text: Bytes,
    calls: AtomicU64,
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    #[serde(default)]
    tools: Vec<Offered>,
}

#[derive(Deserialize)]
struct Offered {
    function: OfferedFunction,
}

#[derive(Deserialize)]
struct OfferedFunction {
    name: String,
}

#[derive(Deserialize)]
struct AskedMessage {
    role: String,
    #[serde(default)]
    content: Option<serde_json::Value>,
}

/// The benchmark's routes, under `/v1`.
pub fn fixed_router() -> Router {
    let state = Arc::new(Fixed { text: Bytes::from(text_stream()), calls: AtomicU64::new(0) });
    let models =
        || async { ([(header::CONTENT_TYPE, "application/json")], r#"{"object":"list","data":[{"id":"fixed","object":"model"}]}"#) };
    Router::new()
        .route("/v1/chat/completions", post(completions))
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

async fn completions(State(fixed): State<Arc<Fixed>>, body: Bytes) -> Response {
    let Ok(asked) = serde_json::from_slice::<Asked<'_>>(&body) else {
        return (StatusCode::BAD_REQUEST, r#"{"error":{"message":"not a chat request","type":"invalid_request_error"}}"#).into_response();
    };
    let body = match calls_wanted(&asked) {
        Some(wanted) => Body::from(call_stream(&wanted, &fixed.calls)),
        None => Body::from(fixed.text.clone()),
    };
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

struct Wanted {
    tool: String,
    arguments: &'static str,
    step: u64,
    calls: u64,
}

/// Which calls come next, from the last user message and how many steps followed it.
fn calls_wanted(asked: &Asked<'_>) -> Option<Wanted> {
    let mut step = 0;
    let mut text = String::new();
    // A step is an assistant message after the last user message; only these few messages are read.
    for raw in asked.messages.iter().rev() {
        let message: AskedMessage = serde_json::from_str(raw.get()).ok()?;
        match message.role.as_str() {
            "user" => {
                text = message.content.and_then(|content| content.as_str().map(str::to_owned)).unwrap_or_default();
                break;
            }
            "assistant" => step += 1,
            _ => {}
        }
    }
    if step >= number_after(&text, "steps=").unwrap_or(1) {
        return None;
    }
    let offered = |name: &str| asked.tools.iter().any(|tool| tool.function.name == name);
    let named = text.split_once("tool=").map(|(_, rest)| rest.split_whitespace().next().unwrap_or_default());
    let (tool, arguments) = TOOLS.into_iter().find(|(name, _)| named.is_none_or(|named| named == *name) && offered(name))?;
    Some(Wanted { tool: tool.to_owned(), arguments, step, calls: number_after(&text, "calls=").unwrap_or(1).min(128) })
}

fn number_after(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.split_once(word)?;
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

fn call_stream(wanted: &Wanted, counter: &AtomicU64) -> String {
    let mut out = format!("{HEAD}{{\"role\":\"assistant\",\"content\":null}},\"finish_reason\":null}}]}}\n\n");
    for index in 0..wanted.calls {
        let id = counter.fetch_add(1, Ordering::Relaxed);
        let Wanted { tool, arguments, step, .. } = wanted;
        let arguments = match *arguments {
            // Different every time: equal calls would be answered from the first one's result.
            "" => format!("{{\\\"value\\\":\\\"step {step} call {index}\\\"}}"),
            fixed => fixed.to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "{HEAD}{{\"tool_calls\":[{{\"index\":{index},\"id\":\"call_{id}\",\"type\":\"function\",\"function\":{{\"name\":\"{tool}\",\"arguments\":\"\"}}}}]}},\"finish_reason\":null}}]}}\n\n\
             {HEAD}{{\"tool_calls\":[{{\"index\":{index},\"function\":{{\"arguments\":\"{arguments}\"}}}}]}},\"finish_reason\":null}}]}}\n\n"
        );
    }
    let _ = write!(out, "{HEAD}{{}},\"finish_reason\":\"tool_calls\"}}]}}\n\n{END}");
    out
}

fn text_stream() -> String {
    let mut out = format!("{HEAD}{{\"role\":\"assistant\",\"content\":\"\"}},\"finish_reason\":null}}]}}\n\n");
    for piece in 1..=TEXT_PIECES {
        let _ = write!(out, "{HEAD}{{\"content\":\"piece {piece} \"}},\"finish_reason\":null}}]}}\n\n");
    }
    let _ = write!(out, "{HEAD}{{}},\"finish_reason\":\"stop\"}}]}}\n\n{END}");
    out
}
