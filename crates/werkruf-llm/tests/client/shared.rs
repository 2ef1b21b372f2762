//! Tests of what both clients do alike, run with each of them.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{FakeModel, Gate, Reply, call};
use werkruf_llm::{
    ChatProvider, ConfigError, Delta, HistoryCall, Message, ModelError, ModelFault, ModelRequest, Provider, ResponsesProvider,
    ServerConfig, ToolChoice,
};

use super::{IMPATIENT, KEY, PATIENT, answer, config, hello, request};

/// A client under test.
pub(super) trait Client: Provider + std::fmt::Debug + Sized {
    /// A length that cuts a stream with text and a call inside the arguments of the call.
    const CUT: usize;
    fn connect(config: ServerConfig) -> Result<Self, ConfigError>;
}

impl Client for ChatProvider {
    const CUT: usize = 650;
    fn connect(config: ServerConfig) -> Result<Self, ConfigError> {
        Self::new(config)
    }
}

impl Client for ResponsesProvider {
    const CUT: usize = 2000;
    fn connect(config: ServerConfig) -> Result<Self, ConfigError> {
        Self::new(config)
    }
}

pub(super) async fn fake<C: Client>(replies: Vec<Reply>) -> (FakeModel, C) {
    let fake = FakeModel::start().await;
    fake.script(replies);
    let provider = C::connect(config(fake.base_url())).unwrap();
    (fake, provider)
}

pub(super) async fn fails_with<C: Client>(reply: Reply) -> ModelError {
    let (_fake, provider) = fake::<C>(vec![reply]).await;
    answer(&provider, hello()).await.1.unwrap_err()
}

async fn text_arrives_before_the_answer_ends<C: Client>() {
    let gate = Gate::after(1);
    let (_fake, provider) = fake::<C>(vec![Reply::text("one two").gate(gate.clone())]).await;
    let mut stream = provider.stream(hello()).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Ok(Delta::Text("one ".into())), "the rest is still held by the gate");
    gate.open();
    assert_eq!(stream.next().await.unwrap(), Ok(Delta::Text("two".into())));
}

async fn a_refusal_is_not_text<C: Client>() {
    let (_fake, provider) = fake::<C>(vec![Reply::refusal("I will not.")]).await;
    let (texts, end) = answer(&provider, hello()).await;
    assert!(texts.is_empty());
    assert_eq!(end.unwrap().refusal.as_deref(), Some("I will not."));
}

async fn a_call_without_a_result_is_rejected<C: Client>() {
    let (fake, provider) = fake::<C>(vec![Reply::text("Fine")]).await;
    let calls = vec![HistoryCall { id: "call_1".into(), name: "test_echo".into(), arguments: "{}".into() }];
    let mut history = vec![Message::user("Hello"), Message::Assistant { content: String::new(), calls, carry: None }];
    let error = answer(&provider, request(history.clone())).await.1.unwrap_err();
    assert_eq!(error.fault, ModelFault::Refused { status: 400 });
    assert!(error.message.contains("call_1") && !error.is_retryable());
    assert_eq!(fake.replies_left(), 1, "a rejected request uses no reply");

    history.push(Message::result("call_1", "test_echo", "ok"));
    assert_eq!(answer(&provider, request(history)).await.1.unwrap().text, "Fine");
    assert_eq!(fake.requests()[1].tool_results().len(), 1);
    let orphan = vec![Message::result("x", "f", "ok")];
    assert_eq!(answer(&provider, request(orphan)).await.1.unwrap_err().fault, ModelFault::Refused { status: 400 });
}

async fn error_statuses_have_retry_after_and_redacted_messages<C: Client>() {
    // The last text is cut off inside the key.
    for (length, is_shown) in [(0, true), (440, false), (330, false)] {
        let text = format!("{}bad key {KEY} and header-secret", "x".repeat(length));
        let error = fails_with::<C>(Reply::status(429).retry_after(7).message(&text)).await;
        assert_eq!((error.fault, error.retry_after), (ModelFault::Refused { status: 429 }, Some(Duration::from_secs(7))));
        assert!(!error.message.contains("sk-t") && !error.message.contains("header-secret"), "{}", error.message);
        assert!(!is_shown || error.message.contains("[redacted]"), "{}", error.message);
        assert!(error.message.len() <= 512);
    }
    assert_eq!(fails_with::<C>(Reply::status(500)).await.fault, ModelFault::Refused { status: 500 });
    assert_eq!(fails_with::<C>(Reply::status(302)).await.fault, ModelFault::Refused { status: 302 });
}

async fn an_error_inside_the_stream_is_an_error_status<C: Client>() {
    let error = fails_with::<C>(Reply::text("So far").error_in_stream(json!({"message": format!("no {KEY}"), "code": 429}))).await;
    assert_eq!((error.fault, error.received.as_str()), (ModelFault::Refused { status: 429 }, "So far"));
    assert_eq!(error.message, "no [redacted]");
}

async fn a_stream_that_ends_early_is_incomplete<C: Client>() {
    let calls = || Reply::calls(vec![call("test_echo", json!({"value": "long enough to be cut"}))]).with_text("I look");
    let replies =
        [(calls().cut_before_finish(), "I look"), (calls().cut_after(C::CUT), "I look"), (Reply::bytes("text/event-stream", ""), "")];
    for (reply, expected) in replies {
        let error = fails_with::<C>(reply).await;
        assert_eq!((error.fault, error.received.as_str()), (ModelFault::Incomplete, expected), "{error}");
        assert!(error.is_retryable() && error.was_sent());
    }
}

async fn a_web_page_is_a_protocol_error<C: Client>() {
    assert_eq!(fails_with::<C>(Reply::bytes("text/html", "<html>Sign in</html>")).await.fault, ModelFault::Protocol);
}

async fn deadlines_end_the_request<C: Client>() {
    let fake = FakeModel::start().await;
    fake.script(vec![Reply::text("never").hang(), Reply::text("one two").hang_mid_stream()]);
    let quick = C::connect(ServerConfig { first_byte: IMPATIENT, ..config(fake.base_url()) }).unwrap();
    let error = quick.stream(hello()).await.err().unwrap();
    assert_eq!((error.fault, error.was_sent()), (ModelFault::FirstByte, true));
    let quick = C::connect(ServerConfig { idle: IMPATIENT, ..config(fake.base_url()) }).unwrap();
    let (texts, end) = answer(&quick, hello()).await;
    let error = end.unwrap_err();
    assert_eq!((texts, error.fault, error.received.as_str()), (vec!["one ".to_owned()], ModelFault::Idle, "one "));
    fake.quiet().await;
}

async fn dropping_the_stream_closes_the_connection<C: Client>() {
    let (fake, provider) = fake::<C>(vec![Reply::text("one two").hang_mid_stream()]).await;
    let mut stream = provider.stream(hello()).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Ok(Delta::Text("one ".into())));
    drop(stream);
    tokio::time::timeout(PATIENT, fake.quiet()).await.expect("the fake model notices the closed connection");
}

async fn a_refused_connection_means_nothing_was_sent<C: Client>() {
    let (fake, provider) = fake::<C>(vec![]).await;
    assert_eq!((provider.name(), provider.default_model()), ("fake", "fake-1"));
    fake.stop().await;
    let error = answer(&provider, hello()).await.1.unwrap_err();
    assert_eq!((error.fault, error.was_sent()), (ModelFault::Connect, false));
    assert!(!error.message.contains("127.0.0.1:") || !error.message.contains("/v1"), "no URL in messages: {}", error.message);
}

async fn bad_configuration_is_rejected<C: Client>() {
    for bad in ["", "localhost:80", "ftp://host/v1"] {
        assert_eq!(C::connect(config(bad.into())).unwrap_err(), ConfigError::BaseUrl(bad.into()));
    }
    let headers = vec![("bad name".to_owned(), "x".into())];
    let error = C::connect(ServerConfig { headers, ..config("http://h/v1".into()) }).unwrap_err();
    assert_eq!(error, ConfigError::Header("bad name".into()));
}

async fn the_benchmark_model_follows_its_rules<C: Client>() {
    let fixed = FakeModel::start_fixed().await.unwrap();
    let provider = C::connect(config(fixed.base_url())).unwrap();
    let mut history = vec![Message::user("Go steps=2 calls=3")];
    for step in 0..2 {
        let end = answer(&provider, request(history.clone())).await.1.unwrap();
        let values: Vec<Value> = end.calls.iter().map(|call| serde_json::from_str(&call.arguments).unwrap()).collect();
        assert_eq!(values, (0..3).map(|n| json!({"value": format!("step {step} call {n}")})).collect::<Vec<_>>());
        let call = |call: werkruf_llm::ToolCall| HistoryCall { id: call.call_id.unwrap(), name: call.name, arguments: call.arguments };
        let calls: Vec<_> = end.calls.into_iter().map(call).collect();
        history.push(Message::Assistant { content: String::new(), calls: calls.clone(), carry: None });
        history.extend(calls.into_iter().map(|call| Message::result(call.id, call.name, "ok")));
    }
    let (texts, end) = answer(&provider, request(history)).await;
    let end = end.unwrap();
    assert_eq!((texts.concat(), end.calls.len(), end.text.split_whitespace().count()), (end.text.clone(), 0, 62));
    let untooled = ModelRequest { tool_choice: ToolChoice::None, ..hello() };
    assert_eq!(answer(&provider, untooled).await.1.unwrap().calls.len(), 0);
}

macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod chat {
            $(#[tokio::test] async fn $case() { super::$case::<werkruf_llm::ChatProvider>().await; })+
        }
        mod responses {
            $(#[tokio::test] async fn $case() { super::$case::<werkruf_llm::ResponsesProvider>().await; })+
        }
    };
}
cases! {
    text_arrives_before_the_answer_ends,
    a_refusal_is_not_text,
    a_call_without_a_result_is_rejected,
    error_statuses_have_retry_after_and_redacted_messages,
    an_error_inside_the_stream_is_an_error_status,
    a_stream_that_ends_early_is_incomplete,
    a_web_page_is_a_protocol_error,
    deadlines_end_the_request,
    dropping_the_stream_closes_the_connection,
    a_refused_connection_means_nothing_was_sent,
    bad_configuration_is_rejected,
    the_benchmark_model_follows_its_rules,
}
