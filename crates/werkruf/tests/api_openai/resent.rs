//! Requests with results of the client's tools that are sent again: what was lost is joined or repeated, everything else is a new request.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};
use werkruf_contract::Clock;

use crate::client::{CLARA, answer, completion, message, own_tool, user};
use crate::responses::client::{answered, send, streamed, text};
use crate::service::Service;
use crate::support::{TestServer, body};

const REPLAYED: &str = "idempotent-replayed";

fn result(content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": "call_0", "content": content})
}

fn asks() -> Reply {
    Reply::calls(vec![
        call("mine", json!({"city": "Bonn"})).with_id("call_0"),
        call("test_echo", json!({"value": "tea"})).with_id("call_s"),
    ])
}

/// A chat whose first answer has asked for a client's tool and used one of the server's. Returns the request with the result, and the conversation.
async fn asked(server: &TestServer) -> (Value, String) {
    server.model.script(vec![asks()]);
    let (first, conversation) = answer(server, json!({"tools": [own_tool("mine")], "messages": [user("hi")]})).await;
    let messages = json!([user("hi"), message(&first), result("sunny")]);
    (json!({"tools": [own_tool("mine")], "messages": messages}), conversation)
}

async fn post(server: &TestServer, request: &Value) -> Response {
    completion(server).json(request).send().await.unwrap()
}

fn conversation_of(response: &Response) -> String {
    response.headers()["x-conversation-id"].to_str().unwrap().to_owned()
}

fn with(request: &Value, name: &str, value: Value) -> Value {
    let mut changed = request.clone();
    changed[name] = value;
    changed
}

/// The roles and results of the last model request, without the system message.
fn sent(server: &TestServer) -> Vec<(String, String)> {
    let request = server.model.requests().pop().unwrap();
    let text = |message: &Value, name: &str| message[name].as_str().unwrap_or_default().to_owned();
    request.messages()[1..].iter().map(|message| (text(message, "role"), text(message, "content"))).collect()
}

fn roles(sent: &[(String, String)]) -> Vec<&str> {
    sent.iter().map(|(role, _)| role.as_str()).collect()
}

#[tokio::test]
async fn a_failed_continuation_runs_again_in_its_conversation() {
    let server = TestServer::open().await;
    let (request, conversation) = asked(&server).await;
    server.model.script(vec![Reply::status(401), Reply::status(401), Reply::text("Sunny.")]);
    for attempt in 0..2 {
        let failed = post(&server, &request).await;
        assert_eq!((failed.status().as_u16(), failed.headers().get(REPLAYED)), (502, None), "{attempt}");
    }
    let again = post(&server, &request).await;
    assert_eq!((conversation_of(&again), again.headers().get(REPLAYED)), (conversation.clone(), None));
    assert_eq!(message(&body(again).await)["content"], "Sunny.");
    assert_eq!(server.model.requests().len(), 4, "every request has asked the model");
    let sent = sent(&server);
    assert_eq!(roles(&sent), ["user", "assistant", "tool", "tool"]);
    assert!(
        sent[2..].iter().any(|(_, content)| content == "sunny") && sent[2..].iter().any(|(_, content)| content.contains("tea")),
        "{sent:?}"
    );
    // The chat goes on from the new answer.
    server.model.script(vec![Reply::text("Bye.")]);
    let mut messages = request["messages"].as_array().unwrap().clone();
    messages.extend([json!({"role": "assistant", "content": "Sunny."}), user("Thanks")]);
    assert_eq!(answer(&server, json!({"messages": messages})).await.1, conversation);
}

#[tokio::test]
async fn what_must_not_be_repeated_is_not_when_a_failed_continuation_runs_again() {
    let service = Service::start(&[("book", json!({"booked": 7}))]).await;
    let server = TestServer::open_with(&service.tool("book", "once", "")).await;
    let (request, conversation) = asked(&server).await;
    // A model that books where it sees no booking, and whose server fails after it.
    server.model.script_fn(|request| match request.messages().iter().any(|message| message.to_string().contains("booked")) {
        true => Reply::status(401),
        false => Reply::calls(vec![call("book", json!({})).with_id("call_b")]),
    });
    assert_eq!(post(&server, &request).await.status(), 502);
    server.model.script_fn(|request| match request.messages().iter().any(|message| message.to_string().contains("booked")) {
        true => Reply::text("Booked."),
        false => Reply::calls(vec![call("book", json!({})).with_id("call_b")]),
    });
    let again = post(&server, &request).await;
    assert_eq!(conversation_of(&again), conversation);
    assert_eq!(message(&body(again).await)["content"], "Booked.");
    assert_eq!(service.received("book"), 1);
}

#[tokio::test]
async fn another_result_after_a_failure_keeps_what_the_servers_tools_did() {
    let service = Service::start(&[("book", json!({"booked": 7}))]).await;
    let server = TestServer::open_with(&service.tool("book", "once", "")).await;
    let (mut request, conversation) = asked(&server).await;
    server.model.script(vec![Reply::calls(vec![call("book", json!({})).with_id("call_b")]), Reply::status(401), Reply::text("Rain.")]);
    assert_eq!(post(&server, &request).await.status(), 502);
    request["messages"][2] = result("rainy");
    let (again, other) = answer(&server, request).await;
    assert_eq!(message(&again)["content"], "Rain.");
    assert_ne!(other, conversation);
    let sent = sent(&server);
    assert_eq!(roles(&sent), ["user", "assistant", "tool", "tool", "assistant", "tool"]);
    assert!(sent.iter().any(|(_, content)| content == "rainy") && !sent.iter().any(|(_, content)| content == "sunny"), "{sent:?}");
    assert!(sent[5].1.contains("booked"), "{sent:?}");
}

#[tokio::test]
async fn a_canceled_continuation_is_answered_anew_without_what_was_said() {
    let server = TestServer::open().await;
    let (request, conversation) = asked(&server).await;
    let gate = Gate::after(1);
    server.model.script(vec![Reply::text("Good morning to you.").gate(gate.clone()), Reply::text("Good evening.")]);
    let mut response = post(&server, &with(&request, "stream", json!(true))).await;
    let mut read = String::new();
    while !read.contains("Good ") {
        read.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    drop(response);
    let path = format!("/api/conversations/{conversation}/messages");
    while !body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await.to_string().contains("Good ") {
        tokio::task::yield_now().await;
    }
    let (again, same) = answer(&server, request).await;
    gate.open();
    assert_eq!((message(&again)["content"].as_str(), same), (Some("Good evening."), conversation));
    assert_eq!(roles(&sent(&server)), ["user", "assistant", "tool", "tool"], "the new answer does not know the one it replaces");
}

#[tokio::test]
async fn a_completed_answer_is_repeated_for_the_same_request_and_for_a_minute() {
    let now = Arc::new(AtomicI64::new(1_790_000_000));
    let read = Arc::clone(&now);
    let clock = Clock::driven(move || Timestamp::from_second(read.load(Ordering::SeqCst)).unwrap(), 7);
    let server = TestServer::open_at("[workspace]\n", &[], tempfile::tempdir().unwrap(), Some(clock)).await;
    let (request, conversation) = asked(&server).await;
    server.model.script(vec![Reply::text("Sunny.")]);
    let first = post(&server, &request).await;
    assert_eq!(first.headers().get(REPLAYED), None);
    let first = body(first).await;
    now.fetch_add(60, Ordering::SeqCst);
    let again = post(&server, &request).await;
    assert_eq!((again.headers()[REPLAYED].to_str().unwrap(), conversation_of(&again)), ("true", conversation.clone()));
    assert_eq!(body(again).await["id"], first["id"]);
    assert_eq!(server.model.requests().len(), 2);
    now.fetch_add(1, Ordering::SeqCst);
    server.model.script(vec![Reply::text("Still sunny.")]);
    let (later, other) = answer(&server, request).await;
    assert_eq!(message(&later)["content"], "Still sunny.");
    assert_ne!(other, conversation, "the conversation has its answer");
}

#[tokio::test]
async fn another_request_after_the_same_messages_gets_an_answer_of_its_own() {
    let server = TestServer::open().await;
    let (request, conversation) = asked(&server).await;
    server.model.script(vec![Reply::text("Sunny.")]);
    answer(&server, request.clone()).await;
    let mut with_system = request.clone();
    with_system["messages"].as_array_mut().unwrap().insert(0, json!({"role": "system", "content": "Be brief."}));
    let mut with_result = request.clone();
    with_result["messages"][2] = result("rainy");
    let others = [
        with(&request, "temperature", json!(0.1)),
        with(&request, "response_format", json!({"type": "json_object"})),
        with(&request, "tools", json!([own_tool("mine"), own_tool("yours")])),
        with(&request, "model", json!("another")),
        with_system,
        with_result,
    ];
    for (at, other) in others.iter().enumerate() {
        let content = format!("{{\"n\": {at}}}");
        server.model.script(vec![Reply::text(&content)]);
        let response = post(&server, other).await;
        assert_eq!(response.headers().get(REPLAYED), None, "{other}");
        assert_ne!(conversation_of(&response), conversation, "{other}");
        assert_eq!(message(&body(response).await)["content"], content.as_str(), "{other}");
        let sent = sent(&server);
        assert_eq!(roles(&sent), ["user", "assistant", "tool", "tool"], "with the result of the server's tool: {sent:?}");
        // Each of them may be lost and sent again too.
        let again = post(&server, other).await;
        assert_eq!(again.headers()[REPLAYED], "true", "{other}");
        assert_eq!(message(&body(again).await)["content"], content.as_str(), "{other}");
    }
    assert_eq!(post(&server, &request).await.headers()[REPLAYED], "true");
    // With keys the client itself says which requests are the same.
    server.model.script(vec![Reply::text("Keyed.")]);
    let keyed = completion(&server).header("idempotency-key", "k1").json(&request).send().await.unwrap();
    assert_eq!(message(&body(keyed).await)["content"], "Keyed.");
}

#[tokio::test]
async fn a_history_that_no_conversation_has_is_answered_each_time() {
    let server = TestServer::open().await;
    let call = json!({"id": "x", "type": "function", "function": {"name": "mine", "arguments": "{}"}});
    let unknown = json!({"role": "tool", "tool_call_id": "x", "content": "42"});
    let request = json!({"messages": [user("hi"), {"role": "assistant", "tool_calls": [call]}, unknown]});
    for content in ["One", "Two"] {
        server.model.script(vec![Reply::text(content)]);
        assert_eq!(message(&answer(&server, request.clone()).await.0)["content"], content);
    }
}

#[tokio::test]
async fn a_continuation_that_still_runs_is_joined() {
    let server = TestServer::open().await;
    let (request, _) = asked(&server).await;
    let gate = Gate::after(1);
    server.model.script(vec![Reply::text("Good morning.").gate(gate.clone())]);
    let whole = async || body(post(&server, &request).await).await;
    let (first, second, ()) = tokio::join!(whole(), whole(), async {
        gate.reached().await;
        gate.open();
    });
    assert_eq!((&first["id"], &message(&first)["content"]), (&second["id"], &json!("Good morning.")));
    assert_eq!(message(&second)["content"], "Good morning.");
    assert_eq!(server.model.requests().len(), 2);
}

/// Responses with all items sent again. Returns the request with the result.
async fn asked_for_items(server: &TestServer) -> Value {
    let tools = json!([{"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}]);
    server.model.script(vec![asks()]);
    let first = answered(server, json!({"input": [user("hi")], "tools": tools})).await;
    let mut items = vec![user("hi")];
    items.extend(first["output"].as_array().unwrap().iter().cloned());
    items.push(json!({"type": "function_call_output", "call_id": "call_0", "output": "sunny"}));
    json!({"input": items, "tools": tools})
}

#[tokio::test]
async fn responses_with_items_sent_again_are_joined_repeated_or_run_again() {
    let server = TestServer::open().await;
    let request = asked_for_items(&server).await;
    let gate = Gate::after(1);
    server.model.script(vec![Reply::status(401), Reply::text("Good morning.").gate(gate.clone())]);
    assert_eq!(send(&server, CLARA, request.clone()).await.status(), 502);
    let mut running = streamed(&server, request.clone()).await;
    let id = running.next().await.unwrap().data["response"]["id"].clone();
    let mut joined = streamed(&server, request.clone()).await;
    assert_eq!(joined.next().await.unwrap().data["response"]["id"], id, "before the turn has ended");
    gate.open();
    for stream in [running, joined] {
        let end = stream.rest().await.pop().unwrap().data;
        assert_eq!((end["type"].as_str(), text(&end["response"]).as_str()), (Some("response.completed"), "Good morning."));
    }
    let again = send(&server, CLARA, request.clone()).await;
    assert_eq!(again.headers()[REPLAYED], "true");
    assert_eq!(body(again).await["id"], id);
    assert_eq!(server.model.requests().len(), 3);
    server.model.script(vec![Reply::text("Hello.")]);
    assert_eq!(text(&answered(&server, with(&request, "temperature", json!(0.5))).await), "Hello.");
}
