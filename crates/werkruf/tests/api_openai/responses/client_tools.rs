//! Calls that the client runs, and the ways a client can continue.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use super::client::{answered, numbered, send, streamed, text};
use crate::support::{TestServer, body};

fn weather() -> Value {
    json!([{"type": "function", "name": "weather", "description": "Weather.", "strict": true,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}}])
}

fn mixed() -> Vec<Reply> {
    let calls = vec![call("test_echo", json!({"value": 1})).with_id("call_s"), call("weather", json!({"city": "Bonn"})).with_id("call_c")];
    vec![Reply::calls(calls).with_text("I look."), Reply::text("Rain.")]
}

fn result() -> Value {
    json!({"type": "function_call_output", "call_id": "call_c", "output": "rain"})
}

/// Checks the last model request; it does not depend on how the client continued.
fn check(server: &TestServer, response: &Value, first: &Value) {
    assert_eq!(text(response), "Rain.");
    assert_eq!(response["conversation"], first["conversation"]);
    let model_request = server.model.requests().pop().unwrap();
    let roles: Vec<&str> = model_request.messages().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(model_request.messages()[2]["tool_calls"].as_array().unwrap().len(), 2, "the stored message with all calls");
    let results: Vec<&str> = model_request.tool_results().iter().filter_map(|result| result["tool_call_id"].as_str()).collect();
    assert_eq!(results, ["call_s", "call_c"]);
    assert_eq!(model_request.messages()[4]["content"], "rain");
}

#[tokio::test]
async fn a_mixed_turn_shows_only_the_clients_call_and_continues_with_its_result() {
    let server = TestServer::open().await;
    server.model.script(mixed());
    let first = answered(&server, json!({"input": "Weather?", "tools": weather()})).await;
    let output = first["output"].as_array().unwrap();
    assert_eq!(output.iter().map(|item| &item["type"]).collect::<Vec<_>>(), ["message", "function_call"]);
    let shown = &output[1];
    assert_eq!((&shown["call_id"], &shown["name"], &shown["status"]), (&json!("call_c"), &json!("weather"), &json!("completed")));
    assert_eq!(serde_json::from_str::<Value>(shown["arguments"].as_str().unwrap()).unwrap(), json!({"city": "Bonn"}));
    assert_eq!(first["status"], "completed");
    assert_eq!(first["tools"], weather());
    let request = json!({"input": [result()], "previous_response_id": first["id"], "tools": weather()});
    let second = answered(&server, request).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    check(&server, &second, &first);
}

#[tokio::test]
async fn a_client_that_resends_everything_continues_the_same_conversation() {
    let server = TestServer::open().await;
    server.model.script(mixed());
    let input = json!({"role": "user", "content": "Weather?"});
    let events = numbered(streamed(&server, json!({"input": [input], "tools": weather()})).await.rest().await, 0);
    let first = events.last().unwrap()["response"].clone();
    let arguments: Vec<&Value> = events.iter().filter(|event| event["type"] == "response.function_call_arguments.delta").collect();
    assert_eq!(arguments.len(), 1);
    let mut items = vec![input];
    items.extend(first["output"].as_array().unwrap().iter().cloned());
    items.push(result());
    let second = answered(&server, json!({"input": items.clone(), "tools": weather()})).await;
    check(&server, &second, &first);
    // Then a message, again with everything before it.
    server.model.script(vec![Reply::text("Take an umbrella.")]);
    items.extend(second["output"].as_array().unwrap().iter().cloned());
    items.push(json!({"role": "user", "content": "And now?"}));
    let third = answered(&server, json!({"input": items, "tools": weather(), "store": false})).await;
    assert_eq!(third["conversation"], first["conversation"]);
}

#[tokio::test]
async fn items_may_be_referenced_instead_of_sent() {
    let server = TestServer::open().await;
    server.model.script(mixed());
    let input = json!({"role": "user", "content": "Weather?"});
    let first = answered(&server, json!({"input": [input], "tools": weather()})).await;
    let reference = |item: &Value| json!({"type": "item_reference", "id": item["id"]});
    let mut items = vec![input, json!({"type": "item_reference", "id": "rs_of_another_server"})];
    items.extend(first["output"].as_array().unwrap().iter().map(reference));
    items.push(result());
    let second = answered(&server, json!({"input": items, "tools": weather()})).await;
    check(&server, &second, &first);
}

#[tokio::test]
async fn a_request_continues_an_earlier_response_or_a_conversation() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("One."), Reply::text("Two."), Reply::text("Three."), Reply::text("Four.")]);
    let first = answered(&server, json!({"input": "1?"})).await;
    let second = answered(&server, json!({"input": "2?", "previous_response_id": first["id"]})).await;
    let third = answered(&server, json!({"input": "3?", "previous_response_id": second["id"]})).await;
    let fourth = answered(&server, json!({"input": "4?", "conversation": {"id": first["conversation"]["id"]}})).await;
    // Without new input the conversation continues.
    server.model.script(vec![Reply::text("Five.")]);
    let fifth = answered(&server, json!({"input": [], "previous_response_id": fourth["id"]})).await;
    assert_eq!(text(&fifth), "Five.");
    for later in [&second, &third, &fourth, &fifth] {
        assert_eq!(later["conversation"], first["conversation"]);
    }
    assert_eq!(server.model.requests().pop().unwrap().messages().len(), 1 + 8);
    let operator = send(&server, 1, json!({"input": "5?", "conversation": first["conversation"]["id"]})).await;
    // The operator may use every conversation; a user's key may not.
    assert_eq!(operator.status(), 200);
    let key = server.key(Some(1), &["chat"]).await;
    let request = json!({"input": "5?", "conversation": first["conversation"]["id"]});
    let refused = server.with_key(&key, reqwest::Method::POST, "/v1/responses").json(&request).send().await.unwrap();
    assert_eq!(refused.status(), 404);
    assert_eq!(body(refused).await["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn a_repeated_idempotency_key_returns_the_same_response() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("One and only.")]);
    let post = async |stream: bool| {
        let request = server.as_user(3, reqwest::Method::POST, "/v1/responses").header("idempotency-key", format!("k{stream}"));
        request.json(&json!({"input": "x", "stream": stream})).send().await.unwrap()
    };
    let first = body(post(false).await).await;
    let again = post(false).await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(body(again).await, first);
    server.model.script(vec![Reply::text("Streamed once.")]);
    let events = crate::support::Stream::new(post(true).await).rest().await;
    assert_eq!(crate::support::Stream::new(post(true).await).rest().await, events);
}
