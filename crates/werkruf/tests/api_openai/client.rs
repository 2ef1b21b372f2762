//! A client of the Chat Completions endpoint.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::{TestServer, body};

/// A user with a role in the sample data.
pub const CLARA: i64 = 3;

/// A request for a completion.
pub fn completion(server: &TestServer) -> RequestBuilder {
    server.as_user(CLARA, Method::POST, "/v1/chat/completions")
}

/// Sends a request; returns the completion and the conversation's id.
pub async fn answer(server: &TestServer, request: Value) -> (Value, String) {
    let response = completion(server).json(&request).send().await.unwrap();
    let status = response.status();
    let conversation = response.headers().get("x-conversation-id").map(|id| id.to_str().unwrap().to_owned());
    let answer = body(response).await;
    assert_eq!(status, 200, "{answer}");
    (answer, conversation.unwrap())
}

/// A stream that was read to its end.
#[derive(Debug, Default)]
pub struct ChunkStream {
    pub chunks: Vec<Value>,
    pub text: String,
    pub done: bool,
}

/// Reads a stream to its end.
pub async fn chunks(response: Response) -> ChunkStream {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = ChunkStream::default();
    for line in response.text().await.unwrap().lines().filter_map(|line| line.strip_prefix("data: ")) {
        if line == "[DONE]" {
            stream.done = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(line).unwrap();
        stream.text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        stream.chunks.push(chunk);
    }
    stream
}

/// A tool the client runs.
pub fn own_tool(name: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!({"type": "function", "function": {"name": name, "description": "Mine", "parameters": parameters}})
}

/// A user message.
pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The message of a completion.
pub fn message(answer: &Value) -> &Value {
    &answer["choices"][0]["message"]
}
