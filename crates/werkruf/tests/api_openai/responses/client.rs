//! A client of the Responses endpoints.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::{Event, Stream, TestServer, body};

pub const PATH: &str = "/v1/responses";

pub async fn send(server: &TestServer, user: i64, request: Value) -> Response {
    server.as_user(user, Method::POST, PATH).json(&request).send().await.unwrap()
}

/// The body of a successful response.
pub async fn answered(server: &TestServer, request: Value) -> Value {
    let response = send(server, 3, request).await;
    assert_eq!(response.status(), 200);
    body(response).await
}

pub async fn streamed(server: &TestServer, mut request: Value) -> Stream {
    request["stream"] = json!(true);
    Stream::new(send(server, 3, request).await)
}

pub async fn get(server: &TestServer, user: i64, path: &str) -> Response {
    server.as_user(user, Method::GET, &format!("{PATH}/{path}")).send().await.unwrap()
}

pub async fn resumed(server: &TestServer, id: &str, after: u64) -> Stream {
    Stream::new(get(server, 3, &format!("{id}?stream=true&starting_after={after}")).await)
}

/// The whole text of a response.
pub fn text(response: &Value) -> String {
    let parts = response["output"].as_array().unwrap().iter().flat_map(|item| item["content"].as_array().cloned().unwrap_or_default());
    parts.map(|part| part["text"].as_str().unwrap().to_owned()).collect()
}

/// The data of the events, whose numbers must be consecutive from `first`.
pub fn numbered(events: Vec<Event>, first: u64) -> Vec<Value> {
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event.data["sequence_number"], json!(first + at as u64), "{event:?}");
        assert_eq!(event.data["type"], json!(event.name));
    }
    events.into_iter().map(|event| event.data).collect()
}

/// Status and code of an error in OpenAI's format.
pub async fn refusal(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let error = body(response).await["error"].clone();
    assert!(error["message"].is_string() && error["type"].is_string() && error.get("param").is_some(), "{error}");
    (status, error["code"].as_str().unwrap().to_owned())
}
