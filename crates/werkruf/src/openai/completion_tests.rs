use bytes::BytesMut;
use serde_json::{Value, json};
use werkruf_contract::{ChatMessage, ClientCall, FinishReason, Texts, ToolErrorType, Usage, Uuid};

use super::{ChunkWriter, CommonFields, completion_object};
use crate::openai::chat_request::ResponseOptions;
use crate::openai::client_events::{ClientEvent, PendingApproval, TurnAnswer, TurnFailure};

fn common(include_usage: bool, legacy: bool) -> CommonFields {
    let options = ResponseOptions { stream: true, include_usage, legacy, model: Some("m".to_owned()), custom_tools: Vec::new() };
    CommonFields { id: "chatcmpl-1".to_owned(), created: 7, model: "m".to_owned(), options, texts: Texts::of("en") }
}

fn text(text: &str) -> ClientEvent {
    ClientEvent::Text { step: 0, text: text.to_owned() }
}

fn answered(calls: &[&str]) -> ClientEvent {
    let call = |id: &&str| ClientCall { id: (*id).to_owned(), name: "f".to_owned(), arguments: "{\"a\": 1}".to_owned() };
    let usage = Usage {
        input_tokens: 10,
        cached_tokens: 4,
        output_tokens: 5,
        reasoning_tokens: 2,
        total_tokens: 15,
        cost_usd: None,
        model_calls: 2,
    };
    let message = ChatMessage::assistant("");
    ClientEvent::Answered(TurnAnswer { message, client_calls: calls.iter().map(call).collect(), finish_reason: FinishReason::Stop, usage })
}

fn failed() -> TurnFailure {
    let (code, message) = ("model_unavailable".to_owned(), "It does not answer.".to_owned());
    TurnFailure { kind: ToolErrorType::Upstream, code, message, retry_after_ms: None, turn_id: Uuid::nil() }
}

fn written(common: CommonFields, events: &[ClientEvent]) -> (Vec<Value>, bool) {
    let mut chunks = ChunkWriter::new(common);
    let mut out = BytesMut::new();
    chunks.begin(&mut out);
    events.iter().for_each(|event| chunks.write(&mut out, event));
    let text = String::from_utf8(out.to_vec()).unwrap();
    let mut lines: Vec<&str> =
        text.split("\n\n").filter(|line| !line.is_empty()).map(|line| line.strip_prefix("data: ").unwrap()).collect();
    let finished = lines.last() == Some(&"[DONE]");
    if finished {
        lines.pop();
    }
    (lines.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect(), finished)
}

#[test]
fn the_object_has_all_fields() {
    let answer = completion_object(&common(false, false), &[text("Hel"), text("lo"), answered(&[])]).unwrap();
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2}});
    let message = json!({"role": "assistant", "content": "Hello", "refusal": null});
    let choices = json!([{"index": 0, "message": message, "finish_reason": "stop", "logprobs": null}]);
    assert_eq!(
        answer,
        json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "m", "choices": choices, "usage": usage,
            "system_fingerprint": null})
    );
}

#[test]
fn calls_alone_have_no_content() {
    let answer = completion_object(&common(false, false), &[answered(&["a", "b"])]).unwrap();
    let choice = &answer["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
    assert_eq!(
        choice["message"]["tool_calls"][1],
        json!({"id": "b", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}})
    );
    let with_text = completion_object(&common(false, false), &[text("Wait."), answered(&["a"])]).unwrap();
    assert_eq!(with_text["choices"][0]["message"]["content"], "Wait.");
    let legacy_answer = completion_object(&common(false, true), &[answered(&["a"])]).unwrap();
    assert_eq!(legacy_answer["choices"][0]["message"]["function_call"]["name"], "f");
    assert_eq!(
        (&legacy_answer["choices"][0]["finish_reason"], &legacy_answer["choices"][0]["message"]["tool_calls"]),
        (&json!("function_call"), &Value::Null)
    );
}

#[test]
fn the_finish_reason_is_the_one_of_the_provider() {
    for (reason, name) in [(FinishReason::Stop, "stop"), (FinishReason::Length, "length"), (FinishReason::ContentFilter, "content_filter")]
    {
        let ClientEvent::Answered(mut last) = answered(&[]) else { panic!("done") };
        last.finish_reason = reason;
        assert_eq!(completion_object(&common(false, false), &[ClientEvent::Answered(last)]).unwrap()["choices"][0]["finish_reason"], name);
    }
}

#[test]
fn a_failed_turn_is_an_error_and_a_pending_approval_is_an_answer() {
    assert_eq!(completion_object(&common(false, false), &[text("x"), ClientEvent::Failed(failed())]), Err(failed()));
    let id = Uuid::from_u128(5);
    let usage = Usage { total_tokens: 15, ..Usage::default() };
    let waiting = ClientEvent::AwaitingApproval(vec![PendingApproval { approval_id: id, tool: "pay".to_owned(), usage }]);
    let answer = completion_object(&common(false, false), std::slice::from_ref(&waiting)).unwrap();
    assert_eq!(answer["usage"]["total_tokens"], 15, "what was spent so far");
    let (streamed_chunks, _) = written(common(true, false), std::slice::from_ref(&waiting));
    assert_eq!(streamed_chunks.last().unwrap()["usage"]["total_tokens"], 15);
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(content.contains(&id.to_string()) && content.contains("pay"), "{content}");
    let (chunks, finished) = written(common(false, false), &[text("Well."), waiting]);
    assert!(finished && chunks.iter().any(|chunk| chunk["choices"][0]["finish_reason"] == "stop"));
    let streamed: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(streamed, format!("Well.\n\n{content}"));
}

#[test]
fn chunks_have_the_fields_that_clients_need() {
    let (chunks, finished) = written(common(true, false), &[text("Hi"), text("!"), answered(&["a", "b"])]);
    assert!(finished);
    let (last, before) = chunks.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(15)));
    assert!(
        before
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["choices"][0]["index"] == 0 && chunk["usage"].is_null())
    );
    assert_eq!(before[0]["choices"][0]["delta"]["role"], "assistant");
    let deltas: Vec<&Value> = before.iter().flat_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
    let ids: Vec<_> = deltas.iter().filter_map(|delta| delta["id"].as_str()).collect();
    assert_eq!((ids, deltas.len()), (vec!["a", "b"], 4));
    assert_eq!(deltas[3], &json!({"index": 1, "function": {"arguments": "{\"a\": 1}"}}));
    let finishes: Vec<_> = before.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(finishes, ["tool_calls"]);
    // Without include_usage no chunk has usage.
    let (plain, _) = written(common(false, false), &[answered(&[])]);
    assert!(plain.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[test]
fn a_failure_after_the_first_chunk_is_sent_in_the_stream() {
    let (chunks, finished) = written(common(false, false), &[text("Hi"), ClientEvent::Failed(failed())]);
    let last = chunks.last().unwrap();
    assert!(!finished);
    assert_eq!((&last["error"]["code"], &last["error"]["type"]), (&json!("model_unavailable"), &json!("server_error")));
}
