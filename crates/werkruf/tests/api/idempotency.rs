//! Idempotency keys: a repeated request is answered with the first result.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::support::{Stream, TestServer, body, refusal};

async fn chat(server: &TestServer, key: &str, accept: &str, message: &str) -> Response {
    let request = server.as_user(3, Method::POST, "/api/chat").header("idempotency-key", key).header("accept", accept);
    request.json(&json!({"message": message})).send().await.unwrap()
}

#[tokio::test]
async fn a_running_turn_is_not_started_again_and_a_finished_one_is_replayed() {
    replays("").await;
    // Nothing is counted, so the copy is found when it would be stored.
    replays("[limits]\nturns_per_minute_user = 0\nturns_per_minute_key = 0\n").await;
}

async fn replays(file: &str) {
    let server = TestServer::open_with(file).await;
    let gate = Gate::before_head();
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]), Reply::text("Once.").gate(gate.clone())]);
    let mut first = Stream::new(chat(&server, "k1", "*/*", "do it").await);
    let mut events = vec![first.next().await.unwrap()];
    gate.reached().await;
    let turn = events[0].data["turn_id"].as_str().unwrap().to_owned();

    let running = chat(&server, "k1", "*/*", "do it").await;
    assert_eq!(running.headers()["location"], format!("/api/turns/{turn}"));
    assert_eq!(refusal(running).await, (409, "turn_running".to_owned()));
    let other = chat(&server, "k1", "*/*", "do something else").await;
    assert_eq!(refusal(other).await, (422, "idempotency_key_reused".to_owned()));

    gate.open();
    events.extend(first.rest().await);
    events.retain(|event| event.id.is_some());
    let again = chat(&server, "k1", "*/*", "do it").await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(Stream::new(again).rest().await, events);
    let json = chat(&server, "k1", "application/json", "do it").await;
    assert_eq!((json.status().as_u16(), json.headers()["idempotent-replayed"].to_str().unwrap()), (200, "true"));
    assert_eq!(body(json).await, events.last().unwrap().data);
    assert_eq!(server.model.requests().len(), 2, "the model got no further request");
}

#[tokio::test]
async fn keys_are_per_user_and_invalid_keys_are_refused() {
    let server = TestServer::open().await;
    let first = body(chat(&server, "k", "application/json", "x").await).await;
    let request = server.as_user(4, Method::POST, "/api/chat").header("idempotency-key", "k").header("accept", "application/json");
    let second = body(request.json(&json!({"message": "x"})).send().await.unwrap()).await;
    assert_ne!(first["turn_id"], second["turn_id"]);
    for bad in ["", &"x".repeat(256)] {
        assert_eq!(refusal(chat(&server, bad, "*/*", "x").await).await, (400, "invalid_request".to_owned()));
    }
}

#[tokio::test]
async fn a_failed_turn_is_replayed_as_the_same_failure() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::status(400)]);
    let strip = |mut value: Value| {
        value["error"].as_object_mut().unwrap().remove("request_id");
        value
    };
    let first = chat(&server, "k", "application/json", "x").await;
    let status = first.status();
    let first = strip(body(first).await);
    let second = chat(&server, "k", "application/json", "x").await;
    assert_eq!(second.status(), status);
    assert_eq!(second.headers()["idempotent-replayed"], "true");
    assert_eq!(strip(body(second).await), first);
}

#[tokio::test]
async fn an_invoke_is_run_once() {
    let server = TestServer::open().await;
    let invoke = async |value: i64| {
        let request = server.as_user(3, Method::POST, "/api/tools/test_echo/invoke").header("idempotency-key", "k");
        request.json(&json!({"input": {"value": value}})).send().await.unwrap()
    };
    let first = invoke(1).await;
    let second = invoke(1).await;
    assert_eq!(second.headers()["idempotent-replayed"], "true");
    assert_eq!(first.headers()["x-tool-call-id"], second.headers()["x-tool-call-id"]);
    assert_eq!(body(first).await["data"], body(second).await["data"]);
    assert_eq!(refusal(invoke(2).await).await, (422, "idempotency_key_reused".to_owned()));
}
