//! The Responses client against the fake model.

use futures_util::StreamExt;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{FakeModel, Gate, Reply, call, call_raw};
use werkruf_contract::CallKind;
use werkruf_llm::{Delta, HistoryCall, Message, ModelFault, Provider, ResponsesProvider, ServerConfig, WireApi, inspect};

use super::shared::{fails_with, fake};
use super::{KEY, answer, config, hello, request};

#[tokio::test]
async fn streams_text_and_sends_the_request() {
    let (fake, provider) = fake::<ResponsesProvider>(vec![Reply::text("Good morning to you").usage(12, 4)]).await;
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
async fn calls_are_assembled_with_their_ids_and_indexes() {
    let calls = || vec![call("test_echo", json!({"value": "ä 1"})), call("test_echo", json!({"value": "2"}))];
    let replies = vec![
        Reply::calls(calls()).with_text("Wait."),
        Reply::calls(calls()).without_index(),
        Reply::calls(calls()).object_arguments(),
        Reply::calls(calls()).thinks("sealed").finish("stop"),
    ];
    let indexes = [(1, 2), (0, 1), (0, 1), (1, 2)];
    let (_fake, provider) = fake::<ResponsesProvider>(replies).await;
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
    let (_fake, provider) = fake::<ResponsesProvider>(vec![Reply::calls(calls)]).await;
    let end = answer(&provider, hello()).await.1.unwrap();
    let found: Vec<_> = end.calls.iter().map(|call| (call.call_id.as_deref(), call.arguments.as_str())).collect();
    assert_eq!(found, [(Some(""), "{\"value\": "), (Some(""), "{}")]);
}

#[tokio::test]
async fn provider_items_are_emitted_while_they_run() {
    let item = json!({"type": "mcp_call", "id": "mcp_1", "name": "search", "server_label": "crm", "arguments": "{}", "output": "3 found",
        "error": null, "status": "completed"});
    let gate = Gate::after(1);
    let (_fake, provider) = fake::<ResponsesProvider>(vec![Reply::text("Three").runs(item).gate(gate.clone())]).await;
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
    let (_fake, provider) = fake::<ResponsesProvider>(vec![Reply::bytes("application/json", body.to_string())]).await;
    let (texts, end) = answer(&provider, hello()).await;
    let end = end.unwrap();
    assert_eq!((texts, end.calls[0].arguments.as_str(), end.executable), (vec!["Hi".to_owned()], "{\"x\":1}", true));
    assert_eq!(end.usage.map(|usage| usage.total_tokens), Some(3));
    let queued = json!({"id": "r", "object": "response", "status": "queued", "output": []}).to_string();
    assert_eq!(fails_with::<ResponsesProvider>(Reply::bytes("application/json", queued)).await.fault, ModelFault::Incomplete);
}

#[tokio::test]
async fn encrypted_reasoning_goes_back_with_the_next_request() {
    let (fake, provider) = fake::<ResponsesProvider>(vec![
        Reply::calls(vec![call("test_echo", json!({}))]).with_text("Wait.").thinks("sealed"),
        Reply::text("Fine"),
    ])
    .await;
    let first = answer(&provider, hello()).await.1.unwrap();
    let calls = vec![HistoryCall { id: first.calls[0].call_id.clone().unwrap(), name: "test_echo".into(), arguments: "{}".into() }];
    let carry = first.carry;
    assert!(carry.is_some());
    let history = vec![
        Message::user("Hello"),
        Message::Assistant { content: first.text, calls, carry },
        Message::result("call_1", "test_echo", "ok"),
    ];
    assert_eq!(answer(&provider, request(history)).await.1.unwrap().text, "Fine");
    let sent = fake.requests()[1].clone();
    let kinds: Vec<&str> = sent.messages().iter().map(|item| item["type"].as_str().unwrap_or("user")).collect();
    assert_eq!(kinds, ["user", "reasoning", "message", "function_call", "function_call_output"]);
    assert_eq!(sent.messages()[1]["encrypted_content"], "sealed");
}

#[tokio::test]
async fn a_truncated_answer_is_shown_but_not_executable() {
    let (_fake, provider) =
        fake::<ResponsesProvider>(vec![Reply::calls(vec![call("test_echo", json!({}))]).with_text("I look").finish("length")]).await;
    let end = answer(&provider, hello()).await.1.unwrap();
    assert_eq!((end.text.as_str(), end.finish.as_deref(), end.executable, end.calls.len()), ("I look", Some("incomplete"), false, 1));
    assert_eq!(end.errors, ["incomplete: max_output_tokens"]);
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
