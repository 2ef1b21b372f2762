//! Answers in a JSON format: only the last step, valid, or a refusal.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::{CLARA, answer, chunks, completion, message, user};
use crate::responses::client::{answered, get, numbered, resumed, send, streamed};
use crate::support::{TestServer, body};

const VALID: &str = r#"{"n": 1}"#;

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false})
}

fn chat_format() -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "number", "schema": schema(), "strict": true}})
}

fn responses_format() -> Value {
    json!({"format": {"type": "json_schema", "name": "number", "schema": schema(), "strict": true}})
}

/// Text before a call of a server tool, then the answer.
fn with_earlier_text(last: &str) -> Vec<Reply> {
    vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("Let me look. "), Reply::text(last)]
}

#[tokio::test]
async fn a_completion_is_the_text_of_the_last_step_alone() {
    let server = TestServer::open().await;
    for format in [chat_format(), json!({"type": "json_object"})] {
        let request = json!({"messages": [user("hi")], "response_format": format});
        server.model.script(with_earlier_text(VALID));
        let (completion_object, conversation) = answer(&server, request.clone()).await;
        assert_eq!(message(&completion_object)["content"], VALID);
        // The client resends what it has, and so finds its conversation.
        let messages = json!([user("hi"), message(&completion_object), user("again")]);
        let (_, same) = answer(&server, json!({"messages": messages})).await;
        assert_eq!(same, conversation);

        server.model.script(with_earlier_text(VALID));
        let mut streaming = request;
        streaming["stream"] = json!(true);
        let stream = chunks(completion(&server).json(&streaming).send().await.unwrap()).await;
        assert_eq!((stream.text.as_str(), stream.done), (VALID, true));
    }
}

#[tokio::test]
async fn a_response_is_the_text_of_the_last_step_alone() {
    let server = TestServer::open().await;
    let request = json!({"input": "hi", "text": responses_format()});
    server.model.script(with_earlier_text(VALID));
    let object = answered(&server, request.clone()).await;
    assert_eq!(object["output"].as_array().unwrap().len(), 1);
    assert_eq!(object["output"][0]["content"][0]["text"], VALID);
    assert_eq!(body(get(&server, 3, object["id"].as_str().unwrap()).await).await, object);

    server.model.script(with_earlier_text(VALID));
    let events = numbered(streamed(&server, request).await.rest().await, 0);
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, VALID);
    let end = &events.last().unwrap()["response"];
    assert_eq!((&end["output"][0]["content"][0]["text"], end["output"].as_array().unwrap().len()), (&json!(VALID), 1));
    let id = end["id"].as_str().unwrap();
    for after in 0..events.len() as u64 {
        assert_eq!(numbered(resumed(&server, id, after).await.rest().await, after + 1), events[after as usize + 1..], "after {after}");
    }
}

#[tokio::test]
async fn without_tools_of_the_server_the_text_is_streamed_as_it_comes() {
    let server = TestServer::open().await;
    let gate = werkruf_bench::fake_model::Gate::after(1);
    server.model.script(vec![Reply::text(VALID).gate(gate.clone())]);
    let request = json!({"messages": [user("hi")], "response_format": chat_format(), "stream": true});
    let mut response = completion(&server).header("x-werkruf-tools", "none").json(&request).send().await.unwrap();
    let mut text = String::new();
    while !text.contains("{\\\"n\\\":") {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().expect("text before the end")).unwrap());
    }
    gate.open();
    assert!(response.text().await.unwrap().contains("[DONE]"));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_delivered_as_it_is() {
    let server = TestServer::open().await;
    for said in ["{\"n\": \"one\"}", "Here: {\"n\": 1}"] {
        server.model.script(vec![Reply::text(said)]);
        let (completed, _) = answer(&server, json!({"messages": [user("hi")], "response_format": chat_format()})).await;
        assert_eq!((&message(&completed)["content"], &completed["choices"][0]["finish_reason"]), (&json!(said), &json!("stop")));
        server.model.script(vec![Reply::text(said)]);
        let response = body(send(&server, 3, json!({"input": "hi", "text": responses_format()})).await).await;
        assert_eq!((&response["status"], &response["output"][0]["content"][0]["text"]), (&json!("completed"), &json!(said)));
    }
    // What a limit cut off is marked as such.
    server.model.script(vec![Reply::text("{\"n\":").finish("length")]);
    let (cut, _) = answer(&server, json!({"messages": [user("hi")], "response_format": chat_format()})).await;
    assert_eq!((&message(&cut)["content"], &cut["choices"][0]["finish_reason"]), (&json!("{\"n\":"), &json!("length")));
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused_before_the_model_is_asked() {
    let server = TestServer::open().await;
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strange"}}});
    let refused = completion(&server).json(&json!({"messages": [user("hi")], "response_format": format})).send().await.unwrap();
    assert_eq!(refused.status(), 400);
    assert_eq!(body(refused).await["error"]["code"], "invalid_request");
    let text = json!({"format": {"type": "json_schema", "name": "x", "schema": {"type": "strange"}}});
    assert_eq!(send(&server, 3, json!({"input": "hi", "text": text})).await.status(), 400);
    assert_eq!(server.model.requests().len(), 0);
}

async fn refusals_of(server: &TestServer, script: impl Fn(), text: &str) {
    script();
    let request = json!({"messages": [user("hi")], "response_format": chat_format()});
    let (completion_object, conversation) = answer(server, request.clone()).await;
    let expected = json!({"role": "assistant", "content": null, "refusal": text});
    assert_eq!((message(&completion_object), &completion_object["choices"][0]["finish_reason"]), (&expected, &json!("stop")));
    let (_, same) = answer(server, json!({"messages": [user("hi"), expected, user("why?")]})).await;
    assert_eq!(same, conversation, "the refusal is part of the transcript");

    script();
    let mut streaming = request;
    streaming["stream"] = json!(true);
    let stream = chunks(completion(server).json(&streaming).send().await.unwrap()).await;
    let refusal: String = stream.chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["refusal"].as_str()).collect();
    assert_eq!((stream.text.as_str(), refusal.as_str(), stream.done), ("", text, true));

    let request = json!({"input": "hi", "text": responses_format()});
    script();
    let object = answered(server, request.clone()).await;
    assert_eq!((&object["status"], &object["output"][0]["content"]), (&json!("completed"), &json!([{"type": "refusal", "refusal": text}])));
    assert_eq!(body(get(server, 3, object["id"].as_str().unwrap()).await).await, object);
    script();
    let events = numbered(streamed(server, request).await.rest().await, 0);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = ["response.content_part.added", "response.refusal.delta", "response.refusal.done", "response.content_part.done"];
    assert_eq!(kinds[3..7], expected, "{kinds:?}");
    assert_eq!((&events[4]["delta"], &events[5]["refusal"]), (&json!(text), &json!(text)));
    assert_eq!(events.last().unwrap()["response"]["output"], json!([events[7]["item"]]));
}

#[tokio::test]
async fn a_refusal_of_the_model_is_a_refusal_in_both_apis() {
    let server = TestServer::open().await;
    refusals_of(&server, || server.model.script(vec![Reply::refusal("I will not.")]), "I will not.").await;
    // People read it as the answer.
    server.model.script(vec![Reply::refusal("I will not.")]);
    let native = body(server.chat(CLARA, json!({"message": "hi"})).await).await;
    assert_eq!(native["message"]["content"], "I will not.");
}

#[tokio::test]
async fn the_offline_planner_says_that_it_cannot() {
    let server = TestServer::open_in("", &[("WERKRUF_MODEL", "offline")]).await;
    let text = "Ich bin ein einfacher Planer und kein Sprachmodell und kann deshalb nicht in einem vorgegebenen JSON-Format antworten.";
    refusals_of(&server, || {}, text).await;
}
