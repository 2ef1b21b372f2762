//! The benchmark's model: no script, the same behaviour for every request, hardly any work per request.
//!
//! A request with tools is answered with a call. In the user message `calls=3` requests three calls at once, `steps=10` ten calls
//! one after another, and `tool=NAME` another tool. With `history=200` a request without that many earlier messages is rejected, so
//! that a server cannot save work by leaving them out. After the last step, or if no tool fits, 31 pieces of text are answered.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::fixed_response;

/// The tools that it can call, the preferred one first.
const TOOLS: [(&str, &str); 5] =
    [("test_echo", ""), ("get_requests", "{}"), ("get_todos", "{}"), ("get_worktime", "{}"), ("get_user_info", "{}")];
const TEXT_PIECES: usize = 31;
const HEAD: &str =
    r#"data: {"id":"chatcmpl-fixed","object":"chat.completion.chunk","created":1700000000,"model":"fixed","choices":[{"index":0,"delta":"#;
pub(super) const TEXT: &str = "piece ";
const END: &str = concat!(
    r#"data: {"id":"chatcmpl-fixed","object":"chat.completion.chunk","created":1700000000,"model":"fixed","choices":[],"#,
    r#""usage":{"prompt_tokens":100,"completion_tokens":31,"total_tokens":131}}"#,
    "\n\ndata: [DONE]\n\n"
);

struct Fixed {
    text: Bytes,
    response: Bytes,
    calls: AtomicU64,
    latency: Duration,
}

impl Fixed {
    async fn wait(&self) {
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
    }
}

#[derive(Deserialize)]
struct RequestBody<'a> {
    #[serde(borrow, default)]
    messages: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    input: Vec<&'a RawValue>,
    #[serde(default)]
    tools: Vec<OfferedTool>,
}

#[derive(Deserialize)]
struct OfferedTool {
    /// Set in Chat Completions; Responses has `name`.
    function: Option<OfferedFunction>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct OfferedFunction {
    name: String,
}

#[derive(Deserialize)]
struct RequestMessage {
    #[serde(default)]
    role: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    content: Option<serde_json::Value>,
}

/// The benchmark's routes, under `/v1`; each response starts after `latency` and is then sent at once.
pub fn fixed_router(latency: Duration) -> Router {
    let (text, response) = (Bytes::from(text_stream()), Bytes::from(fixed_response::text_stream(TEXT_PIECES)));
    let state = Arc::new(Fixed { text, response, calls: AtomicU64::new(0), latency });
    let models =
        || async { ([(header::CONTENT_TYPE, "application/json")], r#"{"object":"list","data":[{"id":"fixed","object":"model"}]}"#) };
    Router::new()
        .route("/v1/chat/completions", post(completions))
        .route("/v1/responses", post(responses))
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

async fn completions(State(fixed): State<Arc<Fixed>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<RequestBody<'_>>(&body) else {
        return refused("not a chat request");
    };
    fixed.wait().await;
    let body = match calls_wanted(&request) {
        Ok(Some(wanted)) => Body::from(call_stream(&wanted, &fixed.calls)),
        Ok(None) => Body::from(fixed.text.clone()),
        Err(reason) => return refused(reason),
    };
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

async fn responses(State(fixed): State<Arc<Fixed>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<RequestBody<'_>>(&body) else {
        return refused("not a request");
    };
    fixed.wait().await;
    let body = match calls_wanted(&request) {
        Ok(Some(wanted)) => Body::from(fixed_response::call_stream(&wanted, &fixed.calls)),
        Ok(None) => Body::from(fixed.response.clone()),
        Err(reason) => return refused(reason),
    };
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn refused(message: &'static str) -> Response {
    (StatusCode::BAD_REQUEST, format!(r#"{{"error":{{"message":"{message}","type":"invalid_request_error"}}}}"#)).into_response()
}

/// The calls of a response.
pub(super) struct Wanted {
    pub(super) tool: String,
    arguments: &'static str,
    step: u64,
    pub(super) calls: u64,
}

impl Wanted {
    /// The arguments of one call, escaped for a JSON string.
    pub(super) fn quoted_arguments(&self, index: u64) -> String {
        match self.arguments {
            // Different every time: identical calls would share one result.
            "" => format!("{{\\\"value\\\":\\\"step {} call {index}\\\"}}", self.step),
            fixed => fixed.to_owned(),
        }
    }
}

/// The next calls, from the last user message and the number of steps after it. The error is the reason of a rejection.
fn calls_wanted(request: &RequestBody<'_>) -> Result<Option<Wanted>, &'static str> {
    let mut step = 0;
    let mut text = String::new();
    let mut after = String::new();
    // A step is an assistant message after the last user message, or a run of calls before their outputs; only these messages are parsed.
    for raw in request.messages.iter().chain(&request.input).rev() {
        let message: RequestMessage = serde_json::from_str(raw.get()).map_err(|_| "not a message")?;
        step += u64::from(message.kind == "function_call" && after == "function_call_output");
        after = message.kind;
        match message.role.as_str() {
            "user" => {
                text = message.content.and_then(|content| content.as_str().map(str::to_owned)).unwrap_or_default();
                break;
            }
            "assistant" if request.input.is_empty() => step += 1,
            _ => {}
        }
    }
    let earlier = request.messages.len() + request.input.len();
    if number_after(&text, "history=").is_some_and(|wanted| (earlier as u64) <= wanted) {
        return Err("earlier messages are missing");
    }
    if step >= number_after(&text, "steps=").unwrap_or(1) {
        return Ok(None);
    }
    let offered = |name: &str| {
        request.tools.iter().any(|tool| tool.function.as_ref().map(|f| &f.name).or(tool.name.as_ref()).is_some_and(|own| own == name))
    };
    let named = text.split_once("tool=").map(|(_, rest)| rest.split_whitespace().next().unwrap_or_default());
    let favourite = TOOLS.into_iter().find(|(name, _)| named.is_none_or(|named| named == *name) && offered(name));
    let calls = number_after(&text, "calls=").unwrap_or(1).min(128);
    Ok(favourite.map(|(tool, arguments)| Wanted { tool: tool.to_owned(), arguments, step, calls }))
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

fn call_stream(wanted: &Wanted, counter: &AtomicU64) -> String {
    let mut out = format!("{HEAD}{{\"role\":\"assistant\",\"content\":null}},\"finish_reason\":null}}]}}\n\n");
    for index in 0..wanted.calls {
        let id = counter.fetch_add(1, Ordering::Relaxed);
        let (tool, arguments) = (&wanted.tool, wanted.quoted_arguments(index));
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
        let _ = write!(out, "{HEAD}{{\"content\":\"{TEXT}{piece} \"}},\"finish_reason\":null}}]}}\n\n");
    }
    let _ = write!(out, "{HEAD}{{}},\"finish_reason\":\"stop\"}}]}}\n\n{END}");
    out
}
