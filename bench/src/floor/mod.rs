//! The floor: the minimal server for the same turn. It reads the conversation, requests the model, echoes a tool call,
//! repeats that until there is a text, and group-commits the same number of rows at the same points. It has no validation,
//! no permissions, no registry and no recovery. Werkruf is compared with it in the same run.

mod reader;
mod rows;
mod writer;

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use reader::Reader;
use rows::Turn;
use writer::Writer;

use crate::seed::Past;

/// The state of the floor.
pub struct Floor {
    client: reqwest::Client,
    model_url: String,
    writer: Writer,
    reader: Reader,
    tools: Value,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'static str,
    stream: bool,
    stream_options: Value,
    messages: &'a [Value],
    tools: &'a Value,
}

#[derive(Deserialize)]
struct ChatRequest {
    message: String,
    conversation_id: Option<Uuid>,
}

impl Floor {
    /// A floor with this model and this file.
    #[expect(clippy::disallowed_methods, reason = "the floor has its own HTTP client")]
    pub fn new(model_url: &str, file: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let parameters = json!({"type": "object", "properties": {"value": {}}, "required": ["value"]});
        let tools = json!([{"type": "function", "function": {"name": "test_echo", "description": "Echoes.", "parameters": parameters}}]);
        let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        let writer = Writer::open(file)?;
        Ok(Self { client, model_url: format!("{model_url}/chat/completions"), writer, reader: Reader::new(file), tools })
    }

    /// The two routes that the load generator uses.
    pub fn router(self) -> Router {
        Router::new().route("/readyz", get(|| async { "ok" })).route("/api/chat", post(chat)).with_state(Arc::new(self))
    }

    /// One model request; text deltas are forwarded to the client; returns the text and the first call.
    async fn request_model(&self, messages: &[Value], out: &mpsc::Sender<Bytes>) -> Option<(String, Option<Value>)> {
        let body = Request { model: "fixed", stream: true, stream_options: json!({"include_usage": true}), messages, tools: &self.tools };
        let answer = self.client.post(&self.model_url).body(serde_json::to_string(&body).ok()?).send().await.ok()?;
        let mut stream = answer.bytes_stream();
        let (mut rest, mut text, mut call) = (Vec::new(), String::new(), None);
        while let Some(piece) = stream.next().await {
            rest.extend_from_slice(&piece.ok()?);
            while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
                let line: Vec<u8> = rest.drain(..end + 2).collect();
                let Some(chunk) = line.strip_prefix(b"data: ").and_then(|data| serde_json::from_slice::<Value>(data).ok()) else {
                    continue;
                };
                let delta = &chunk["choices"][0]["delta"];
                if let Some(content) = delta["content"].as_str().filter(|content| !content.is_empty()) {
                    text.push_str(content);
                    let frame = format!("event: assistant_token\ndata: {}\n\n", json!({"content": content, "step": 1}));
                    out.send(Bytes::from(frame)).await.ok()?;
                }
                gather(&mut call, &delta["tool_calls"][0]);
            }
        }
        Some((text, call))
    }

    async fn turn(&self, request: ChatRequest, out: &mpsc::Sender<Bytes>) -> Option<()> {
        let mut turn = Turn::new(request.conversation_id, &request.message);
        self.writer.commit(turn.accepted()).await?;
        let conversation = turn.conversation;
        frame(out, "init", &json!({"conversation_id": conversation})).await?;
        let mut messages = match request.conversation_id {
            Some(id) => self.reader.history(id)?,
            None => vec![json!({"role": "user", "content": request.message})],
        };
        let text = loop {
            let (text, call) = self.request_model(&messages, out).await?;
            let Some(call) = call else { break text };
            let result = self.run_step(&mut turn, &call, out).await?;
            messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
            messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        };
        self.writer.commit(turn.completed(&text)).await?;
        frame(out, "final", &json!({"conversation_id": conversation, "message": {"role": "assistant", "content": text}})).await
    }

    /// One step: two commits around an echo.
    async fn run_step(&self, turn: &mut Turn, call: &Value, out: &mpsc::Sender<Bytes>) -> Option<String> {
        self.writer.commit(turn.acting(call)).await?;
        frame(out, "tool_started", &json!({"tool": "test_echo"})).await?;
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str()?).ok()?;
        let result = arguments.to_string();
        self.writer.commit(turn.acted(call, &result)).await?;
        frame(out, "tool_finished", &json!({"tool": "test_echo"})).await?;
        Some(result)
    }
}

/// Adds a fragment of a call: the first one has its name, later ones extend its arguments.
fn gather(call: &mut Option<Value>, piece: &Value) {
    match call {
        None if piece["function"]["name"].is_string() => *call = Some(piece.clone()),
        None => {}
        Some(call) => {
            let more = piece["function"]["arguments"].as_str().unwrap_or_default();
            let so_far = call["function"]["arguments"].as_str().unwrap_or_default();
            call["function"]["arguments"] = Value::from(format!("{so_far}{more}"));
        }
    }
}

async fn frame(out: &mpsc::Sender<Bytes>, event: &str, payload: &Value) -> Option<()> {
    out.send(Bytes::from(format!("event: {event}\ndata: {payload}\n\n"))).await.ok()
}

#[expect(clippy::disallowed_methods, reason = "the floor owns nothing: a turn ends with its connection")]
async fn chat(State(floor): State<Arc<Floor>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<ChatRequest>(&body) else { return axum::http::StatusCode::BAD_REQUEST.into_response() };
    let (out, events) = mpsc::channel(64);
    tokio::spawn(async move { floor.turn(request, &out).await });
    let stream =
        futures_util::stream::unfold(events, |mut events| async move { Some((Ok::<_, Infallible>(events.recv().await?), events)) });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}

/// Writes older conversations to the file of a floor before it starts.
pub async fn seed(file: &Path, conversations: &[Uuid], messages: &[Past]) -> Result<(), String> {
    let writer = Writer::open(file).map_err(|error| error.to_string())?;
    for conversation in conversations {
        writer.commit(rows::history(*conversation, messages)).await.ok_or("the floor's file takes no rows")?;
    }
    Ok(())
}
