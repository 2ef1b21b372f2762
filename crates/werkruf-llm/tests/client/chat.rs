//! The Chat Completions client against the fake model.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{FakeModel, Gate, Reply, call, call_raw};
use werkruf_llm::{
    ChatProvider, ConfigError, Delta, HistoryCall, Message, ModelError, ModelFault, ModelRequest, Provider, ServerConfig, ToolChoice,
};

use super::{IMPATIENT, KEY, PATIENT, answer, config, hello, request};

async fn fake(replies: Vec<Reply>) -> (FakeModel, ChatProvider) {
    let fake = FakeModel::start().await;
    fake.script(replies);
    let provider = ChatProvider::new(config(fake.base_url())).unwrap();
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
    assert_eq!((end.text.as_str(), end.finish.as_deref(), end.executable), ("Good morning to you", Some("stop"), true));
    assert_eq!(end.usage.map(|usage| (usage.input_tokens, usage.output_tokens, usage.total_tokens)), Some((12, 4, 16)));
    assert_eq!((end.model.as_deref(), end.response_id.is_some()), (Some("fake-1"), true));

    let sent = &fake.requests()[0];
    assert_eq!(sent.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(sent.headers["x-extra"], "header-secret");
    assert_eq!((sent.user_text(), sent.tool_names()), ("Hello", vec!["test_echo"]));
    assert_eq!((&sent.body["stream_options"]["include_usage"], &sent.body["max_tokens"]), (&json!(true), &json!(1000)));
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
async fn calls_are_assembled_from_any_server_variant() {
    let calls = || vec![call("test_echo", json!({"value": "ä 1"})), call("test_echo", json!({"value": "2"}))];
    let replies = vec![
        Reply::calls(calls()).with_text("Wait."),
        Reply::calls(calls()).without_index(),
        Reply::calls(calls()).index_zero().finish("stop"),
        Reply::calls(calls()).repeat_ids().without_done(),
        Reply::calls(calls()).object_arguments(),
    ];
    let count = replies.len();
    let (_fake, provider) = fake(replies).await;
    for reply in 0..count {
        let end = answer(&provider, hello()).await.1.unwrap();
        assert!(end.executable, "reply {reply}");
        let found: Vec<_> =
            end.calls.iter().map(|call| (call.call_id.clone().unwrap(), serde_json::from_str::<Value>(&call.arguments).unwrap())).collect();
        let id = |n: usize| format!("call_{}", reply * 2 + n);
        assert_eq!(found, [(id(1), json!({"value": "ä 1"})), (id(2), json!({"value": "2"}))], "reply {reply}");
    }
}

#[tokio::test]
async fn invalid_calls_are_not_changed() {
    let calls = vec![call_raw("test_echo", "{\"value\": ").with_id(""), call_raw("test_echo", "").with_id("")];
    let (_fake, provider) = fake(vec![Reply::calls(calls)]).await;
    let end = answer(&provider, hello()).await.1.unwrap();
    let found: Vec<_> = end.calls.iter().map(|call| (call.call_id.as_deref(), call.arguments.as_str())).collect();
    assert_eq!(found, [(None, "{\"value\": "), (None, "{}")]);
}

#[tokio::test]
async fn a_refusal_is_not_text() {
    let (_fake, provider) = fake(vec![Reply::refusal("I will not.")]).await;
    let (texts, end) = answer(&provider, hello()).await;
    assert!(texts.is_empty());
    assert_eq!(end.unwrap().refusal.as_deref(), Some("I will not."));
}

#[tokio::test]
async fn a_body_that_is_not_streamed_is_read() {
    let body = json!({"id": "c", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}});
    let (_fake, provider) = fake(vec![Reply::bytes("application/json", body.to_string())]).await;
    let (texts, end) = answer(&provider, hello()).await;
    let end = end.unwrap();
    assert_eq!((texts, end.calls[0].arguments.as_str(), end.executable), (vec!["Hi".to_owned()], "{\"x\":1}", true));
    assert_eq!(end.usage.map(|usage| usage.total_tokens), Some(3));
}

#[tokio::test]
async fn a_call_without_a_result_is_rejected() {
    let (fake, provider) = fake(vec![Reply::text("Fine")]).await;
    let calls = vec![HistoryCall { id: "call_1".into(), name: "test_echo".into(), arguments: "{}".into() }];
    let mut history = vec![Message::user("Hello"), Message::Assistant { content: String::new(), calls, carry: None }];
    let error = answer(&provider, request(history.clone())).await.1.unwrap_err();
    assert_eq!(error.fault, ModelFault::Refused { status: 400 });
    assert!(error.message.contains("call_1") && !error.is_retryable());
    assert_eq!(fake.replies_left(), 1, "a rejected request uses no reply");

    history.push(Message::Tool { call_id: "call_1".into(), name: "test_echo".into(), content: "ok".into() });
    assert_eq!(answer(&provider, request(history)).await.1.unwrap().text, "Fine");
    assert_eq!(fake.requests()[1].tool_results().len(), 1);
    let orphan = vec![Message::Tool { call_id: "x".into(), name: "f".into(), content: "ok".into() }];
    assert_eq!(answer(&provider, request(orphan)).await.1.unwrap_err().fault, ModelFault::Refused { status: 400 });
}

#[tokio::test]
async fn error_statuses_have_retry_after_and_redacted_messages() {
    let text = format!("{}bad key {KEY} and header-secret", "x".repeat(440));
    let error = fails_with(Reply::status(429).retry_after(7).message(&text)).await;
    assert_eq!((error.fault, error.retry_after), (ModelFault::Refused { status: 429 }, Some(Duration::from_secs(7))));
    assert!(
        error.message.contains("[redacted]") && !error.message.contains("sk-test") && !error.message.contains("header-secret"),
        "{}",
        error.message
    );
    assert!(error.message.len() <= 512);
    assert_eq!(fails_with(Reply::status(500)).await.fault, ModelFault::Refused { status: 500 });
    assert_eq!(fails_with(Reply::status(302)).await.fault, ModelFault::Refused { status: 302 });
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
        [(calls().cut_before_finish(), "I look"), (calls().cut_after(650), "I look"), (Reply::bytes("text/event-stream", ""), "")];
    for (reply, expected) in replies {
        let error = fails_with(reply).await;
        assert_eq!((error.fault, error.received.as_str()), (ModelFault::Incomplete, expected), "{error}");
        assert!(error.is_retryable() && error.was_sent());
    }
}

#[tokio::test]
async fn a_web_page_is_a_protocol_error() {
    assert_eq!(fails_with(Reply::bytes("text/html", "<html>Sign in</html>")).await.fault, ModelFault::Protocol);
}

#[tokio::test]
async fn deadlines_end_the_request() {
    let fake = FakeModel::start().await;
    fake.script(vec![Reply::text("never").hang(), Reply::text("one two").hang_mid_stream()]);
    let quick = ChatProvider::new(ServerConfig { first_byte: IMPATIENT, ..config(fake.base_url()) }).unwrap();
    let error = quick.stream(hello()).await.err().unwrap();
    assert_eq!((error.fault, error.was_sent()), (ModelFault::FirstByte, true));
    let quick = ChatProvider::new(ServerConfig { idle: IMPATIENT, ..config(fake.base_url()) }).unwrap();
    let (texts, end) = answer(&quick, hello()).await;
    let error = end.unwrap_err();
    assert_eq!((texts, error.fault, error.received.as_str()), (vec!["one ".to_owned()], ModelFault::Idle, "one "));
    fake.quiet().await;
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let (fake, provider) = fake(vec![Reply::text("one two").hang_mid_stream()]).await;
    let mut stream = provider.stream(hello()).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Ok(Delta::Text("one ".into())));
    drop(stream);
    tokio::time::timeout(PATIENT, fake.quiet()).await.expect("the fake model notices the closed connection");
}

#[tokio::test]
async fn a_gate_before_the_head_holds_the_answer() {
    let gate = Gate::before_head();
    let (fake, provider) = fake(vec![Reply::text("now").gate(gate.clone())]).await;
    let held = answer(&provider, hello());
    let test = async {
        fake.received(1).await;
        gate.reached().await;
        gate.open();
    };
    let ((_, end), ()) = futures_util::future::join(held, test).await;
    assert_eq!(end.unwrap().text, "now");
}

#[tokio::test]
async fn a_refused_connection_means_nothing_was_sent() {
    let (fake, provider) = fake(vec![]).await;
    fake.stop().await;
    let error = answer(&provider, hello()).await.1.unwrap_err();
    assert_eq!((error.fault, error.was_sent()), (ModelFault::Connect, false));
    assert!(!error.message.contains("127.0.0.1:") || !error.message.contains("/v1"), "no URL in messages: {}", error.message);
}

#[tokio::test]
async fn lists_models_and_rejects_bad_configuration() {
    let (_fake, provider) = fake(vec![]).await;
    assert_eq!(provider.models().await.unwrap(), ["fake-1", "fake-2"]);
    assert_eq!((provider.name(), provider.default_model()), ("fake", "fake-1"));
    for bad in ["", "localhost:80", "ftp://host/v1"] {
        assert_eq!(ChatProvider::new(config(bad.into())).unwrap_err(), ConfigError::BaseUrl(bad.into()));
    }
    let headers = vec![("bad name".to_owned(), "x".into())];
    assert_eq!(
        ChatProvider::new(ServerConfig { headers, ..config("http://h/v1".into()) }).unwrap_err(),
        ConfigError::Header("bad name".into())
    );
}

#[tokio::test]
async fn answers_can_depend_on_the_request() {
    let (fake, provider) = fake(vec![]).await;
    fake.script_fn(|request| Reply::text(&request.user_text().to_uppercase()));
    assert_eq!(answer(&provider, hello()).await.1.unwrap().text, "HELLO");
}

#[tokio::test]
async fn the_benchmark_model_follows_its_rules() {
    let fixed = FakeModel::start_fixed().await.unwrap();
    let provider = ChatProvider::new(config(fixed.base_url())).unwrap();
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
    assert_eq!((texts.len(), end.unwrap().calls.len()), (31, 0));
    let untooled = ModelRequest { tool_choice: ToolChoice::None, ..hello() };
    assert_eq!(answer(&provider, untooled).await.0.len(), 31);
}
