//! `/v1/conversations`, as the sessions of OpenAI's Agents SDK use it.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply};

use crate::client::CLARA;
use crate::support::{TestServer, body, refusal};

async fn send(server: &TestServer, user: i64, method: Method, path: &str, request: Option<Value>) -> Response {
    let path = format!("/v1/conversations{path}");
    let builder = server.as_user(user, method, &path);
    match request {
        Some(request) => builder.json(&request),
        None => builder,
    }
    .send()
    .await
    .unwrap()
}

async fn ok(server: &TestServer, method: Method, path: &str, request: Option<Value>) -> Value {
    let response = send(server, CLARA, method, path, request).await;
    let status = response.status();
    let answer = body(response).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

async fn create(server: &TestServer, request: Value) -> String {
    ok(server, Method::POST, "", Some(request)).await["id"].as_str().unwrap().to_owned()
}

fn types(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_conversation_is_created_changed_and_deleted() {
    let server = TestServer::open().await;
    let made =
        ok(&server, Method::POST, "", Some(json!({"metadata": {"topic": "demo"}, "items": [{"role": "user", "content": "Hello!"}]}))).await;
    let id = made["id"].as_str().unwrap();
    assert!(
        id.starts_with("conv_")
            && made["object"] == "conversation"
            && made["created_at"].is_i64()
            && made["metadata"] == json!({"topic": "demo"}),
        "{made}"
    );
    let path = format!("/{id}");
    assert_eq!(ok(&server, Method::GET, &path, None).await, made);
    let changed = ok(&server, Method::POST, &path, Some(json!({"metadata": {"topic": "other"}}))).await;
    assert_eq!((&changed["metadata"], &changed["id"]), (&json!({"topic": "other"}), &made["id"]));
    for wrong in [json!({}), json!({"metadata": {"a": 1}}), json!({"metadata": {"a": "x".repeat(513)}}), json!({"metadata": []})] {
        assert_eq!(refusal(send(&server, CLARA, Method::POST, &path, Some(wrong)).await).await, (400, "invalid_request".to_owned()));
    }
    for (method, tail, request) in [
        (Method::GET, "", None),
        (Method::POST, "", Some(json!({"metadata": {}}))),
        (Method::DELETE, "", None),
        (Method::GET, "/items", None),
        (Method::POST, "/items", Some(json!({"items": [{"role": "user", "content": "x"}]}))),
        (Method::GET, "/items/msg_1", None),
        (Method::DELETE, "/items/msg_1", None),
    ] {
        let foreign = send(&server, 4, method.clone(), &format!("{path}{tail}"), request.clone()).await;
        assert_eq!(refusal(foreign).await, (404, "not_found".to_owned()), "{method} {tail} of another user");
    }
    let deleted = ok(&server, Method::DELETE, &path, None).await;
    assert_eq!(deleted, json!({"id": id, "object": "conversation.deleted", "deleted": true}));
    assert_eq!(refusal(send(&server, CLARA, Method::GET, &path, None).await).await, (404, "not_found".to_owned()));
}

#[tokio::test]
async fn items_are_listed_in_pages_both_ways() {
    let server = TestServer::open().await;
    let items: Vec<Value> = (0..7).map(|n| json!({"role": "user", "content": format!("{n}")})).collect();
    let mut items = items;
    items.extend([
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]}),
        json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}),
        json!({"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "c1", "output": "1"}),
        json!({"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]}),
    ]);
    let id = create(&server, json!({})).await;
    let added = ok(&server, Method::POST, &format!("/{id}/items"), Some(json!({"items": items}))).await;
    assert_eq!((added["object"].as_str(), added["data"].as_array().unwrap().len()), (Some("list"), 12));
    let whole = ok(&server, Method::GET, &format!("/{id}/items?order=asc&limit=100"), None).await;
    assert_eq!(whole["data"], added["data"]);
    assert_eq!(
        (&whole["has_more"], &whole["first_id"], &whole["last_id"]),
        (&json!(false), &whole["data"][0]["id"], &whole["data"][11]["id"])
    );
    for order in ["asc", "desc"] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = ok(&server, Method::GET, &format!("/{id}/items?order={order}&limit=2{after}"), None).await;
            found.extend(page["data"].as_array().unwrap().clone());
            after = format!("&after={}", page["last_id"].as_str().unwrap());
            if page["has_more"] == false {
                break;
            }
        }
        if order == "desc" {
            found.reverse();
        }
        assert_eq!(json!(found), whole["data"], "{order}");
    }
    let newest = ok(&server, Method::GET, &format!("/{id}/items"), None).await;
    assert_eq!(newest["data"][0], whole["data"][11], "the newest first without order");
    let item = whole["data"][9]["id"].as_str().unwrap();
    assert_eq!(ok(&server, Method::GET, &format!("/{id}/items/{item}"), None).await, whole["data"][9]);
    assert_eq!(refusal(send(&server, CLARA, Method::GET, &format!("/{id}/items?order=up"), None).await).await.0, 400);
}

#[tokio::test]
async fn a_session_adds_pops_and_continues() {
    let server = TestServer::open().await;
    let id = create(&server, json!({"items": []})).await;
    let items = format!("/{id}/items");
    let add = async |new: Value| ok(&server, Method::POST, &items, Some(json!({"items": new}))).await;
    let pop = async || {
        let last = ok(&server, Method::GET, &format!("{items}?limit=1&order=desc"), None).await["data"][0].clone();
        let conversation = ok(&server, Method::DELETE, &format!("{items}/{}", last["id"].as_str().unwrap()), None).await;
        assert_eq!(conversation["id"], id.as_str());
        last
    };
    add(json!([{"role": "user", "content": "Weather?"}])).await;
    add(json!([{"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}])).await;
    add(json!([{"type": "function_call_output", "call_id": "c1", "output": "sun"}])).await;
    let listed = ok(&server, Method::GET, &format!("{items}?order=asc"), None).await;
    assert_eq!(types(&listed), ["message", "function_call", "function_call_output"]);
    let again = send(
        &server,
        CLARA,
        Method::POST,
        &items,
        Some(json!({"items": [{"type": "function_call_output", "call_id": "c1", "output": "rain"}]})),
    )
    .await;
    assert_eq!(refusal(again).await, (400, "invalid_request".to_owned()));
    assert_eq!(pop().await["output"], "sun");
    // The call waits again: a request with its result continues the conversation.
    server.model.script(vec![Reply::text("It is cloudy.")]);
    let result = json!([{"type": "function_call_output", "call_id": "c1", "output": "clouds"}]);
    let response =
        server.as_user(CLARA, Method::POST, "/v1/responses").json(&json!({"conversation": id, "input": result})).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(body(response).await["conversation"]["id"], id.as_str());
    let request = server.model.requests().pop().unwrap();
    let sent: Vec<(&str, &Value)> =
        request.messages().iter().skip(1).map(|message| (message["role"].as_str().unwrap(), &message["content"])).collect();
    assert_eq!(sent[0], ("user", &json!("Weather?")));
    assert_eq!(sent[2], ("tool", &json!("clouds")));
    let listed = ok(&server, Method::GET, &format!("{items}?order=asc"), None).await;
    assert_eq!(types(&listed), ["message", "function_call", "function_call_output", "message"]);
    assert_eq!(pop().await["content"][0]["text"], "It is cloudy.");
    assert_eq!(
        (pop().await["type"].clone(), pop().await["type"].clone(), pop().await["role"].clone()),
        (json!("function_call_output"), json!("function_call"), json!("user"))
    );
    assert_eq!(ok(&server, Method::GET, &items, None).await["data"], json!([]));
}

#[tokio::test]
async fn items_are_not_changed_while_a_turn_runs() {
    let server = TestServer::open().await;
    let id = create(&server, json!({"items": [{"role": "user", "content": "a"}]})).await;
    let items = format!("/{id}/items");
    let first = ok(&server, Method::GET, &items, None).await["data"][0]["id"].as_str().unwrap().to_owned();
    let gate = Gate::before_head();
    server.model.script(vec![Reply::text("Late.").gate(gate.clone())]);
    let request = json!({"conversation": id, "input": "b", "background": true});
    assert_eq!(server.as_user(CLARA, Method::POST, "/v1/responses").json(&request).send().await.unwrap().status(), 200);
    let refused = (409, "turn_running".to_owned());
    assert_eq!(
        refusal(send(&server, CLARA, Method::POST, &items, Some(json!({"items": [{"role": "user", "content": "c"}]}))).await).await,
        refused
    );
    assert_eq!(refusal(send(&server, CLARA, Method::DELETE, &format!("{items}/{first}"), None).await).await, refused);
    gate.open();
}
