//! How a client of OpenAI speaks to the house.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::{House, body};

/// Somebody with a role in the sample data.
pub const CLARA: i64 = 3;

/// A request for a completion.
pub fn completion(house: &House) -> RequestBuilder {
    house.as_user(CLARA, Method::POST, "/v1/chat/completions")
}

/// One object, or a panic.
pub async fn answer(house: &House, request: Value) -> (Value, String) {
    let response = completion(house).json(&request).send().await.unwrap();
    let status = response.status();
    let conversation = response.headers().get("x-conversation-id").map(|id| id.to_str().unwrap().to_owned());
    let answer = body(response).await;
    assert_eq!(status, 200, "{answer}");
    (answer, conversation.unwrap())
}

/// What the chunks of a stream say.
#[derive(Debug, Default)]
pub struct Told {
    pub chunks: Vec<Value>,
    pub text: String,
    pub done: bool,
}

/// Reads a stream to its end.
pub async fn chunks(response: Response) -> Told {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut told = Told::default();
    for line in response.text().await.unwrap().lines().filter_map(|line| line.strip_prefix("data: ")) {
        if line == "[DONE]" {
            told.done = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(line).unwrap();
        told.text.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        told.chunks.push(chunk);
    }
    told
}

/// A tool the client runs.
pub fn own_tool(name: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!({"type": "function", "function": {"name": name, "description": "Mine", "parameters": parameters}})
}

/// A person's message.
pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The message of a completion.
pub fn message(answer: &Value) -> &Value {
    &answer["choices"][0]["message"]
}
