//! A request that continues an older response does not see what came after it.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use super::client::{answered, refusal, send, text};
use crate::support::{TestServer, body};

fn said(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter(|message| message["role"] != "system").map(|message| message["content"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn an_older_response_is_continued_in_a_copy() {
    let server = TestServer::open().await;
    server.model.script(["One.", "Two.", "Other.", "Again."].map(Reply::text).to_vec());
    let first = answered(&server, json!({"input": "1?"})).await;
    let second = answered(&server, json!({"input": "2?", "previous_response_id": first["id"]})).await;
    assert_eq!(second["conversation"], first["conversation"], "the newest response is continued where it is");
    let other = answered(&server, json!({"input": "2 again?", "previous_response_id": first["id"]})).await;
    assert_ne!(other["conversation"], first["conversation"]);
    assert_eq!(said(server.model.requests().pop().unwrap().messages()), ["1?", "One.", "2 again?"], "its sibling is not seen");
    // The copy goes on as a conversation of its own, and the original does not know it.
    let again = answered(&server, json!({"input": "3?", "previous_response_id": other["id"]})).await;
    assert_eq!(again["conversation"], other["conversation"]);
    assert_eq!(said(server.model.requests().pop().unwrap().messages()), ["1?", "One.", "2 again?", "Other.", "3?"]);
    let id = other["conversation"]["id"].as_str().unwrap();
    let messages =
        server.as_user(3, reqwest::Method::GET, &format!("/api/conversations/{}/messages", &id["conv_".len()..])).send().await.unwrap();
    let messages = body(messages).await;
    let texts: Vec<&Value> = messages["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["1?", "One.", "2 again?", "Other.", "3?", "Again."]);
    let foreign = send(&server, 4, json!({"input": "x", "previous_response_id": first["id"]})).await;
    assert_eq!(refusal(foreign).await, (404, "previous_response_not_found".to_owned()));
}

#[tokio::test]
async fn a_copy_keeps_the_history_that_the_client_sent() {
    let server = TestServer::open().await;
    server.model.script(["One.", "Two.", "Other."].map(Reply::text).to_vec());
    let history = json!([{"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hello Ada."}, {"role": "user", "content": "1?"}]);
    let first = answered(&server, json!({"input": history})).await;
    answered(&server, json!({"input": "2?", "previous_response_id": first["id"]})).await;
    answered(&server, json!({"input": "Other?", "previous_response_id": first["id"]})).await;
    let request = server.model.requests().pop().unwrap();
    assert_eq!(said(request.messages()), ["I am Ada.", "Hello Ada.", "1?", "One.", "Other?"]);
}

#[tokio::test]
async fn a_result_for_an_older_response_answers_its_call_again() {
    let server = TestServer::open().await;
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]);
    server.model.script(vec![
        Reply::calls(vec![call("weather", json!({})).with_id("call_w"), call("test_echo", json!({"value": 1})).with_id("call_e")]),
        Reply::text("It rains."),
        Reply::text("It shines."),
    ]);
    let first = answered(&server, json!({"input": "Weather?", "tools": tools})).await;
    let result = |output: &str| json!([{"type": "function_call_output", "call_id": "call_w", "output": output}]);
    let rain = answered(&server, json!({"input": result("rain"), "tools": tools, "previous_response_id": first["id"]})).await;
    let sun = answered(&server, json!({"input": result("sun"), "tools": tools, "previous_response_id": first["id"]})).await;
    assert_eq!((text(&rain).as_str(), text(&sun).as_str()), ("It rains.", "It shines."));
    let request = server.model.requests().pop().unwrap();
    let results: Vec<(&Value, &Value)> = request
        .messages()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| (&message["tool_call_id"], &message["content"]))
        .collect();
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results.contains(&(&json!("call_w"), &json!("sun"))), "{results:?}");
    assert!(results.iter().any(|(id, content)| **id == "call_e" && content.as_str().unwrap().contains('1')), "{results:?}");
}

#[tokio::test]
async fn a_repeated_request_makes_no_second_copy() {
    let server = TestServer::open().await;
    server.model.script(["One.", "Two.", "Other."].map(Reply::text).to_vec());
    let first = answered(&server, json!({"input": "1?"})).await;
    answered(&server, json!({"input": "2?", "previous_response_id": first["id"]})).await;
    let post = async || {
        let request = server.as_user(3, reqwest::Method::POST, "/v1/responses").header("idempotency-key", "k1");
        body(request.json(&json!({"input": "Other?", "previous_response_id": first["id"]})).send().await.unwrap()).await
    };
    let (one, two) = (post().await, post().await);
    assert_eq!(one["id"], two["id"]);
    let list = body(server.as_user(3, reqwest::Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!(list["conversations"].as_array().unwrap().len(), 2, "{list}");
}
