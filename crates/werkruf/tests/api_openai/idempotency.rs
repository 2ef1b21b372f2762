//! Idempotency keys: each route has its own.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::client::{CLARA, user};
use crate::support::{TestServer, body, refusal};

/// A body that every route takes.
fn request(text: &str) -> Value {
    json!({"message": text, "messages": [user(text)], "input": text})
}

async fn send(server: &TestServer, path: &str, request: &Value) -> Response {
    let call = server.as_user(CLARA, Method::POST, path).header("idempotency-key", "k").header("accept", "application/json");
    call.json(request).send().await.unwrap()
}

#[tokio::test]
async fn a_key_counts_for_its_route() {
    let server = TestServer::open().await;
    for (path, object) in [("/api/chat", None), ("/v1/chat/completions", Some("chat.completion")), ("/v1/responses", Some("response"))] {
        let first = send(&server, path, &request("hi")).await;
        assert!(first.status() == 200 && !first.headers().contains_key("idempotent-replayed"), "{path}");
        let first = body(first).await;
        assert_eq!(first["object"].as_str(), object, "{path}");
        let again = send(&server, path, &request("hi")).await;
        assert_eq!(again.headers()["idempotent-replayed"], "true", "{path}");
        assert_eq!(body(again).await, first, "{path}");
        assert_eq!(refusal(send(&server, path, &request("ho")).await).await, (422, "idempotency_key_reused".to_owned()), "{path}");
    }
    assert_eq!(server.model.requests().len(), 3, "one turn for each route");
}

#[tokio::test]
async fn the_older_path_of_the_chat_is_the_same_route() {
    let server = TestServer::open().await;
    let first = body(send(&server, "/api/chat", &request("hi")).await).await;
    let alias = send(&server, "/functions/v1/chat-rag", &request("hi")).await;
    assert_eq!(alias.headers()["idempotent-replayed"], "true");
    assert_eq!(body(alias).await["turn_id"], first["turn_id"]);
}
