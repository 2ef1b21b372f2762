//! The Responses client against the fake model.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{FakeModel, Gate, Reply, call, call_raw};
use werkruf_contract::CallKind;
use werkruf_llm::{
    ConfigError, Delta, HistoryCall, Message, ModelError, ModelFault, ModelRequest, Provider, ResponsesProvider, ServerConfig, ToolChoice,
    WireApi, inspect,
};

use super::{IMPATIENT, KEY, PATIENT, answer, config, hello, request};

async fn fake(replies: Vec<Reply>) -> (FakeModel, ResponsesProvider) {
    let fake = FakeModel::start().await;
    fake.script(replies);
    let provider = ResponsesProvider::new(config(fake.base_url())).unwrap();
    (fake, provider)
}

async fn fails_with(reply: Reply) -> ModelError {
    let (_fake, provider) = fake(vec![reply]).await;
    answer(&provider, hello()).await.1.unwrap_err()
}

#[tokio::test]
async fn streams_text_and_sends_the_request() {
    let (fake, provider) = fake(vec![Reply::text("Good morning to you").usage(12, 4)]).await;
    let (texts, end) = answer(&provider, hello()).await;
    assert_eq!(texts, ["Good ", "morning ", "to ", "you"]);
    let end = end.unwrap();
    assert_eq!((end.text.as_str(), end.finish.as_deref(), end.executable), ("Good morning to you", Some("completed"), true));
    assert_eq!(end.usage.map(|usage| (usage.input_tokens, usage.output_tokens, usage.total_tokens)), Some((12, 4, 16)));
    assert_eq!((end.model.as_deref(), end.response_id.as_deref()), (Some("fake-1"), Some("resp_fake_1")));

    let sent = &fake.requests()[0];
    assert_eq!(sent.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(sent.headers["x-extra"], "header-secret");
    assert_eq!((sent.user_text(), sent.tool_names()), ("Hello", vec!["test_echo"]));
    let body = &sent.body;
    assert_eq!((&body["max_output_tokens"], &body["store"], &body["instructions"]), (&json!(1000), &json!(false), &json!("Be brief.")));
}

#[tokio::test]
async fn text_arrives_before_the_answer_ends() {
    let gate = Gate::after(1);
    let (_fake, provider) = fake(vec![Reply::text("one two").gate(gate.clone())]).await;
    let mut stream = provider.stream(hello()).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Ok(Delta::Text("one ".into())), "the rest is still held by the gate");
    gate.open();
    assert_eq!(stream.next().await.unwrap(), Ok(Delta::Text("two".into())));
}

#[tokio::test]
async fn calls_are_assembled_with_their_ids_and_indexes() {
    let calls = || vec![call("test_echo", json!({"value": "ä 1"})), call("test_echo", json!({"value": "2"}))];
    let replies = vec![
        Reply::calls(calls()).with_text("Wait."),
        Reply::calls(calls()).without_index(),
        Reply::calls(calls()).object_arguments(),
        Reply::calls(calls()).thinks("sealed").finish("stop"),
    ];
    let indexes = [(1, 2), (0, 1), (0, 1), (1, 2)];
    let (_fake, provider) = fake(replies).await;
    for (reply, (first, second)) in indexes.into_iter().enumerate() {
        let end = answer(&provider, hello()).await.1.unwrap();
        assert!(end.executable, "reply {reply}");
        let found: Vec<_> = end
            .calls
            .iter()
            .map(|call| (call.call_id.clone().unwrap(), call.output_index, serde_json::from_str::<Value>(&call.arguments).unwrap()))
            .collect();
        let id = |n: usize| format!("call_{}", reply * 2 + n);
        assert_eq!(found, [(id(1), first, json!({"value": "ä 1"})), (id(2), second, json!({"value": "2"}))], "reply {reply}");
        assert!(end.calls.iter().all(|call| call.item_id.as_ref().is_some_and(|id| id.starts_with("fc_fake_"))));
    }
}

#[tokio::test]
async fn invalid_calls_are_not_changed() {
    let calls = vec![call_raw("test_echo", "{\"value\": ").with_id(""), call_raw("test_echo", "").with_id("")];
    let (_fake, provider) = fake(vec![Reply::calls(calls)]).await;
    let end = answer(&provider, hello()).await.1.unwrap();
    let found: Vec<_> = end.calls.iter().map(|call| (call.call_id.as_deref(), call.arguments.as_str())).collect();
    assert_eq!(found, [(Some(""), "{\"value\": "), (Some(""), "{}")]);
}

#[tokio::test]
async fn a_refusal_is_not_text() {
    let (_fake, provider) = fake(vec![Reply::refusal("I will not.")]).await;
    let (texts, end) = answer(&provider, hello()).await;
    assert!(texts.is_empty());
    assert_eq!(end.unwrap().refusal.as_deref(), Some("I will not."));
}

#[tokio::test]
async fn provider_items_are_emitted_while_they_run() {
    let item = json!({"type": "mcp_call", "id": "mcp_1", "name": "search", "server_label": "crm", "arguments": "{}", "output": "3 found",
        "error": null, "status": "completed"});
    let gate = Gate::after(1);
    let (_fake, provider) = fake(vec![Reply::text("Three").runs(item).gate(gate.clone())]).await;
    let mut stream = provider.stream(hello()).await.unwrap();
    let Delta::ItemStarted(started) = stream.next().await.unwrap().unwrap() else { panic!("the item started") };
    assert_eq!((started.status.as_deref(), started.output), (Some("in_progress"), None));
    gate.open();
    let Delta::ItemFinished(finished) = stream.next().await.unwrap().unwrap() else { panic!("the item finished") };
    assert_eq!((finished.output.clone(), finished.call_kind(), finished.output_index), (Some(json!("3 found")), Some(CallKind::Mcp), 0));
    let mut end = None;
    while let Some(delta) = stream.next().await {
        if let Delta::Done(answer) = delta.unwrap() {
            end = Some(answer);
        }
    }
    let end = end.unwrap();
    assert_eq!((end.items, end.text.as_str()), (vec![*finished], "Three"));
}

#[tokio::test]
async fn a_body_that_is_not_streamed_is_read() {
    let body = json!({"id": "r", "object": "response", "model": "m", "status": "completed", "error": null, "output": [
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "function_call", "id": "fc", "call_id": "a", "name": "f", "arguments": "{\"x\":1}"}],
        "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}});
    let (_fake, provider) = fake(vec![Reply::bytes("application/json", body.to_string())]).await;
    let (texts, end) = answer(&provider, hello()).await;
    let end = end.unwrap();
    assert_eq!((texts, end.calls[0].arguments.as_str(), end.executable), (vec!["Hi".to_owned()], "{\"x\":1}", true));
    assert_eq!(end.usage.map(|usage| usage.total_tokens), Some(3));
    let queued = json!({"id": "r", "object": "response", "status": "queued", "output": []}).to_string();
    assert_eq!(fails_with(Reply::bytes("application/json", queued)).await.fault, ModelFault::Incomplete);
}

#[tokio::test]
async fn a_call_without_a_result_is_rejected() {
    let (fake, provider) = fake(vec![Reply::text("Fine")]).await;
    let calls = vec![HistoryCall { id: "call_1".into(), name: "test_echo".into(), arguments: "{}".into() }];
    let mut history = vec![Message::user("Hello"), Message::Assistant { content: String::new(), calls, carry: None }];
    let error = answer(&provider, request(history.clone())).await.1.unwrap_err();
    assert_eq!(error.fault, ModelFault::Refused { status: 400 });
    assert!(error.message.contains("No tool output found for function call call_1") && !error.is_retryable());
    assert_eq!(fake.replies_left(), 1, "a rejected request uses no reply");

    history.push(Message::Tool { call_id: "call_1".into(), name: "test_echo".into(), content: "ok".into() });
    assert_eq!(answer(&provider, request(history)).await.1.unwrap().text, "Fine");
    assert_eq!(fake.requests()[1].tool_results().len(), 1);
    let orphan = vec![Message::Tool { call_id: "x".into(), name: "f".into(), content: "ok".into() }];
    assert_eq!(answer(&provider, request(orphan)).await.1.unwrap_err().fault, ModelFault::Refused { status: 400 });
}

#[tokio::test]
async fn encrypted_reasoning_goes_back_with_the_next_request() {
    let (fake, provider) =
        fake(vec![Reply::calls(vec![call("test_echo", json!({}))]).with_text("Wait.").thinks("sealed"), Reply::text("Fine")]).await;
    let first = answer(&provider, hello()).await.1.unwrap();
    let calls = vec![HistoryCall { id: first.calls[0].call_id.clone().unwrap(), name: "test_echo".into(), arguments: "{}".into() }];
    let carry = first.carry;
    assert!(carry.is_some());
    let history = vec![
        Message::user("Hello"),
        Message::Assistant { content: first.text, calls, carry },
        Message::Tool { call_id: "call_1".into(), name: "test_echo".into(), content: "ok".into() },
    ];
    assert_eq!(answer(&provider, request(history)).await.1.unwrap().text, "Fine");
    let sent = fake.requests()[1].clone();
    let kinds: Vec<&str> = sent.messages().iter().map(|item| item["type"].as_str().unwrap_or("user")).collect();
    assert_eq!(kinds, ["user", "reasoning", "message", "function_call", "function_call_output"]);
    assert_eq!(sent.messages()[1]["encrypted_content"], "sealed");
}

#[tokio::test]
async fn error_statuses_have_retry_after_and_redacted_messages() {
    let text = format!("{}bad key {KEY} and header-secret", "x".repeat(440));
    let error = fails_with(Reply::status(429).retry_after(7).message(&text)).await;
    assert_eq!((error.fault, error.retry_after), (ModelFault::Refused { status: 429 }, Some(Duration::from_secs(7))));
    assert!(error.message.contains("[redacted]") && !error.message.contains("sk-test") && !error.message.contains("header-secret"));
    assert_eq!(fails_with(Reply::status(500)).await.fault, ModelFault::Refused { status: 500 });
}

#[tokio::test]
async fn an_error_inside_the_stream_is_an_error_status() {
    let error = fails_with(Reply::text("So far").error_in_stream(json!({"message": format!("no {KEY}"), "code": 429}))).await;
    assert_eq!((error.fault, error.received.as_str()), (ModelFault::Refused { status: 429 }, "So far"));
    assert_eq!(error.message, "no [redacted]");
}

#[tokio::test]
async fn a_stream_that_ends_early_is_incomplete() {
    let calls = || Reply::calls(vec![call("test_echo", json!({"value": "long enough to be cut"}))]).with_text("I look");
    let replies =
        [(calls().cut_before_finish(), "I look"), (calls().cut_after(2000), "I look"), (Reply::bytes("text/event-stream", ""), "")];
    for (reply, expected) in replies {
        let error = fails_with(reply).await;
        assert_eq!((error.fault, error.received.as_str()), (ModelFault::Incomplete, expected), "{error}");
        assert!(error.is_retryable() && error.was_sent());
    }
}

#[tokio::test]
async fn a_truncated_answer_is_shown_but_not_executable() {
    let (_fake, provider) = fake(vec![Reply::calls(vec![call("test_echo", json!({}))]).with_text("I look").finish("length")]).await;
    let end = answer(&provider, hello()).await.1.unwrap();
    assert_eq!((end.text.as_str(), end.finish.as_deref(), end.executable, end.calls.len()), ("I look", Some("incomplete"), false, 1));
    assert_eq!(end.errors, ["incomplete: max_output_tokens"]);
}

#[tokio::test]
async fn a_web_page_is_a_protocol_error() {
    assert_eq!(fails_with(Reply::bytes("text/html", "<html>Sign in</html>")).await.fault, ModelFault::Protocol);
}

#[tokio::test]
async fn deadlines_end_the_request_and_dropping_the_stream_closes_the_connection() {
    let fake = FakeModel::start().await;
    fake.script(vec![Reply::text("never").hang(), Reply::text("one two").hang_mid_stream(), Reply::text("one two").hang_mid_stream()]);
    let quick = ResponsesProvider::new(ServerConfig { first_byte: IMPATIENT, ..config(fake.base_url()) }).unwrap();
    let error = quick.stream(hello()).await.err().unwrap();
    assert_eq!((error.fault, error.was_sent()), (ModelFault::FirstByte, true));
    let quick = ResponsesProvider::new(ServerConfig { idle: IMPATIENT, ..config(fake.base_url()) }).unwrap();
    let (texts, end) = answer(&quick, hello()).await;
    let error = end.unwrap_err();
    assert_eq!((texts, error.fault, error.received.as_str()), (vec!["one ".to_owned()], ModelFault::Idle, "one "));
    let patient = ResponsesProvider::new(config(fake.base_url())).unwrap();
    let mut stream = patient.stream(hello()).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Ok(Delta::Text("one ".into())));
    drop(stream);
    tokio::time::timeout(PATIENT, fake.quiet()).await.expect("the fake model notices the closed connection");
}

#[tokio::test]
async fn a_refused_connection_means_nothing_was_sent() {
    let (fake, provider) = fake(vec![]).await;
    assert_eq!(provider.models().await.unwrap(), ["fake-1", "fake-2"]);
    assert_eq!((provider.name(), provider.default_model()), ("fake", "fake-1"));
    fake.stop().await;
    let error = answer(&provider, hello()).await.1.unwrap_err();
    assert_eq!((error.fault, error.was_sent()), (ModelFault::Connect, false));
    assert_eq!(ResponsesProvider::new(config("ftp://host/v1".into())).unwrap_err(), ConfigError::BaseUrl("ftp://host/v1".into()));
}

#[tokio::test]
async fn recordings_have_no_keys_and_can_be_inspected() {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeModel::start().await;
    let calls = || Reply::calls(vec![call("test_echo", json!({"value": KEY}))]).with_text("Look: header-secret").without_index();
    fake.script(vec![calls(), calls().cut_before_finish(), Reply::status(500)]);
    let record = Some(folder.path().join("wire"));
    let provider = ResponsesProvider::new(ServerConfig { record, ..config(fake.base_url()) }).unwrap();
    assert!(answer(&provider, hello()).await.1.is_ok());
    assert!(answer(&provider, hello()).await.1.is_err());
    assert!(answer(&provider, hello()).await.1.is_err());
    let mut files: Vec<_> = std::fs::read_dir(folder.path().join("wire")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 2, "one file per answer that began");
    let bytes = std::fs::read(&files[0]).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(!text.contains("sk-test") && !text.contains("header-secret") && !text.to_lowercase().contains("authorization"), "{text}");
    let inspected = inspect(WireApi::Responses, &bytes, 7);
    assert_eq!((&inspected["text"], &inspected["executable"]), (&json!("Look: [redacted]"), &json!(true)));
    assert_eq!(inspected["tool_calls"][0]["arguments"], "{\"value\":\"[redacted]\"}");
    let cut = inspect(WireApi::Responses, &std::fs::read(&files[1]).unwrap(), 0);
    assert_eq!(cut["executable"], false);
}

#[tokio::test]
async fn the_benchmark_model_follows_its_rules() {
    let fixed = FakeModel::start_fixed().await.unwrap();
    let provider = ResponsesProvider::new(config(fixed.base_url())).unwrap();
    let mut history = vec![Message::user("Go steps=2 calls=3")];
    for step in 0..2 {
        let end = answer(&provider, request(history.clone())).await.1.unwrap();
        let values: Vec<Value> = end.calls.iter().map(|call| serde_json::from_str(&call.arguments).unwrap()).collect();
        assert_eq!(values, (0..3).map(|n| json!({"value": format!("step {step} call {n}")})).collect::<Vec<_>>());
        let calls: Vec<_> = end
            .calls
            .into_iter()
            .map(|call| HistoryCall { id: call.call_id.unwrap(), name: call.name, arguments: call.arguments })
            .collect();
        history.push(Message::Assistant { content: String::new(), calls: calls.clone(), carry: None });
        history.extend(calls.into_iter().map(|call| Message::Tool { call_id: call.id, name: call.name, content: "ok".into() }));
    }
    let (texts, end) = answer(&provider, request(history)).await;
    let end = end.unwrap();
    assert_eq!((texts.concat(), end.calls.len(), end.text.split_whitespace().count()), (end.text.clone(), 0, 62));
    let untooled = ModelRequest { tool_choice: ToolChoice::None, ..hello() };
    assert_eq!(answer(&provider, untooled).await.1.unwrap().calls.len(), 0);
}
