//! The Chat Completions client against the fake model.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call, call_raw};
use werkruf_llm::ChatProvider;

use super::shared::fake;
use super::{KEY, answer, hello};

#[tokio::test]
async fn streams_text_and_sends_the_request() {
    let (fake, provider) = fake::<ChatProvider>(vec![Reply::text("Good morning to you").usage(12, 4)]).await;
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
    let (_fake, provider) = fake::<ChatProvider>(replies).await;
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
    let (_fake, provider) = fake::<ChatProvider>(vec![Reply::calls(calls)]).await;
    let end = answer(&provider, hello()).await.1.unwrap();
    let found: Vec<_> = end.calls.iter().map(|call| (call.call_id.as_deref(), call.arguments.as_str())).collect();
    assert_eq!(found, [(None, "{\"value\": "), (None, "{}")]);
}

#[tokio::test]
async fn a_body_that_is_not_streamed_is_read() {
    let body = json!({"id": "c", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}});
    let (_fake, provider) = fake::<ChatProvider>(vec![Reply::bytes("application/json", body.to_string())]).await;
    let (texts, end) = answer(&provider, hello()).await;
    let end = end.unwrap();
    assert_eq!((texts, end.calls[0].arguments.as_str(), end.executable), (vec!["Hi".to_owned()], "{\"x\":1}", true));
    assert_eq!(end.usage.map(|usage| usage.total_tokens), Some(3));
}

#[tokio::test]
async fn a_gate_before_the_head_holds_the_answer() {
    let gate = Gate::before_head();
    let (fake, provider) = fake::<ChatProvider>(vec![Reply::text("now").gate(gate.clone())]).await;
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
async fn lists_models() {
    let (_fake, provider) = fake::<ChatProvider>(vec![]).await;
    assert_eq!(provider.models().await.unwrap(), ["fake-1", "fake-2"]);
}

#[tokio::test]
async fn answers_can_depend_on_the_request() {
    let (fake, provider) = fake::<ChatProvider>(vec![]).await;
    fake.script_fn(|request| Reply::text(&request.user_text().to_uppercase()));
    assert_eq!(answer(&provider, hello()).await.1.unwrap().text, "HELLO");
}
