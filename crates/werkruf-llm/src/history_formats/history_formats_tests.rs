use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::HistoryFormat::{Langchain, Openai, Responses};
use super::{HistoryCall, HistoryFormat, ResultStatus, Role, StoredMessage, read, write};

/// Reads with numbered new ids, and converts every message to its columns and back, as a store would.
fn stored(format: HistoryFormat, values: &[Value]) -> Vec<StoredMessage> {
    let mut created = 0;
    let mut new_id = || {
        created += 1;
        format!("call_made{created}")
    };
    let mut messages = read(format, values, &mut new_id).unwrap();
    for message in &mut messages {
        let column = message.tool_calls_column();
        message.calls = column.map(|text| HistoryCall::of_column(&text).unwrap()).unwrap_or_default();
        message.metadata = serde_json::from_str(&Value::Object(message.metadata.clone()).to_string()).unwrap();
    }
    messages
}

/// First format → store → other format → store → first format, with the other format's JSON text parsed and printed on the way.
fn round_trip(first: HistoryFormat, other: HistoryFormat, values: &[Value]) -> Vec<Value> {
    let converted = write(other, &stored(first, values));
    let converted: Vec<Value> = serde_json::from_str(&Value::Array(converted).to_string()).unwrap();
    write(first, &stored(other, &converted))
}

fn history() -> Vec<Value> {
    vec![
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "developer", "content": "Really."}),
        json!({"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "https://e.org/a.png", "detail": "low"}}]}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"a\": [1, 2.50], \"b\": \"ü\"}"}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{\"broken\":"}},
            {"id": "c3", "type": "function", "function": {"name": "look", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "xyz"}}}]}),
        json!({"role": "tool", "tool_call_id": "c2", "content": "no"}),
        json!({"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a cat"}]}),
        json!({"role": "tool", "tool_call_id": "c3", "name": "look", "content": "nothing"}),
        json!({"role": "assistant", "content": "A cat.", "refusal": null}),
        json!({"role": "user", "content": "And now?", "name": "Ana"}),
        json!({"role": "assistant", "tool_calls": [{"id": "", "type": "function", "function": {"name": "t", "arguments": ""}}]}),
        json!({"role": "tool", "tool_call_id": "", "content": "x"}),
        json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": " {} "}}]}),
        json!({"role": "tool", "tool_call_id": "c1", "content": "y"}),
    ]
}

#[test]
fn columns_hold_what_they_can() {
    let messages = stored(Openai, &history());
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    use Role::{Assistant as A, System as S, Tool as T, User as U};
    assert_eq!(roles, [S, S, U, A, T, T, T, A, U, A, T, A, T]);
    assert_eq!(messages[2].content, "What is this?");
    assert_eq!(messages[3].calls[0].arguments, "{\"a\": [1, 2.50], \"b\": \"ü\"}");
    assert_eq!((messages[4].tool_name.as_deref(), messages[4].status), (Some("look"), Some(ResultStatus::Success)));
    assert_eq!(messages[5].content, "a cat");
    assert!(messages[0].metadata.is_empty() && messages[4].metadata.is_empty(), "data in the columns is not stored twice");
    let ids: Vec<&str> = [&messages[9], &messages[11]].iter().map(|message| message.calls[0].id.as_str()).collect();
    assert_eq!(ids, ["call_made1", "call_made2"], "a missing id, and one that was used before");
    assert_eq!((messages[10].call_id.as_deref(), messages[12].call_id.as_deref()), (Some("call_made1"), Some("call_made2")));
}

#[test]
fn a_history_survives_a_round_trip() {
    let history = history();
    assert_eq!(write(Openai, &stored(Openai, &history)), history);
    assert_eq!(round_trip(Openai, Langchain, &history), history);
    let texts = |values: &[Value]| values.iter().map(|value| value["tool_calls"].to_string()).collect::<Vec<_>>();
    assert_eq!(texts(&round_trip(Openai, Langchain, &history)), texts(&history), "to the last space");
}

#[test]
fn langchain_messages_have_the_fields_of_its_classes() {
    let written = write(Langchain, &stored(Openai, &history()));
    let ai = &written[3]["data"];
    assert_eq!(ai["tool_calls"][0], json!({"name": "look", "args": {"a": [1, 2.50], "b": "ü"}, "id": "c1", "type": "tool_call"}));
    assert_eq!((ai["tool_calls"].as_array().unwrap().len(), &ai["invalid_tool_calls"][0]["id"]), (2, &json!("c2")));
    assert_eq!(
        (&written[3]["type"], &ai["type"], &ai["content"], &ai["usage_metadata"]),
        (&json!("ai"), &json!("ai"), &json!(""), &Value::Null)
    );
    let tool = &written[4]["data"];
    assert_eq!(
        (&tool["name"], &tool["tool_call_id"], &tool["status"], &tool["artifact"]),
        (&json!("look"), &json!("c2"), &json!("success"), &Value::Null)
    );
    assert!(
        written.iter().all(|message| message["data"]["additional_kwargs"].is_object() && message["data"]["response_metadata"].is_object())
    );
    assert!(written.iter().filter(|message| message["type"] == "tool").all(|message| message["data"]["tool_call_id"].is_string()));
    let mut named = StoredMessage::text(Role::User, "hi");
    named.id = Some("0197".to_owned());
    assert_eq!(write(Langchain, &[named])[0]["data"]["id"], "0197");
}

#[test]
fn langchain_fields_are_stored_with_the_message() {
    let values = [
        json!({"type": "human", "data": {"content": "hi", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": "Ana", "id": "h1"}}),
        json!({"type": "ai", "data": {"content": "", "additional_kwargs": {"refusal": null}, "response_metadata": {"model": "m"}, "type": "ai", "name": null,
            "id": "run-1", "tool_calls": [{"name": "t", "args": {"b": 1, "a": 2}, "id": "c1", "type": "tool_call"}], "invalid_tool_calls": [],
            "usage_metadata": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}}),
        json!({"type": "tool", "data": {"content": "out", "additional_kwargs": {}, "response_metadata": {}, "type": "tool", "name": "t", "id": null,
            "tool_call_id": "c1", "artifact": {"raw": [1]}, "status": "error"}}),
        json!({"type": "ai", "data": {"content": "done", "additional_kwargs": {}, "response_metadata": {}, "type": "ai", "name": null, "id": "run-2",
            "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": null}}),
    ];
    let messages = stored(Langchain, &values);
    assert_eq!(messages[2].status, Some(ResultStatus::Error));
    assert_eq!(messages[3].metadata, *json!({"langchain": {"id": "run-2"}}).as_object().unwrap(), "only the id is stored");
    assert_eq!(write(Langchain, &messages), values);
    assert_eq!(write(Openai, &messages)[1]["tool_calls"][0]["function"]["arguments"], r#"{"b":1,"a":2}"#);
}

#[test]
fn all_three_langchain_formats_are_read() {
    let dumped = json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "ToolMessage"],
        "kwargs": {"content": "3", "type": "tool", "name": "t", "tool_call_id": "c", "status": "error"}});
    let flat = json!({"content": "hi", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": null, "id": null});
    let messages = stored(Langchain, &[dumped, flat]);
    assert_eq!((messages[0].role, messages[0].status, messages[0].content.as_str()), (Role::Tool, Some(ResultStatus::Error), "3"));
    assert_eq!((messages[1].role, messages[1].content.as_str()), (Role::User, "hi"));
}

#[test]
fn an_answer_of_several_items_is_one_message() {
    let items = [
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "https://e.org/a.png"}]}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz"}),
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]}),
        json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "t", "arguments": "{\"x\": 1}", "status": "completed"}),
        json!({"type": "function_call", "call_id": "c2", "name": "t", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "c1", "output": "one"}),
        json!({"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]}),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}),
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}),
        json!({"role": "assistant", "content": "Really."}),
        json!({"type": "custom_tool_call", "call_id": "c3", "name": "sql", "input": "drop it"}),
        json!({"type": "custom_tool_call_output", "call_id": "c3", "output": "no"}),
        json!({"type": "reasoning", "id": "rs_2", "summary": []}),
    ];
    let messages = stored(Responses, &items);
    let summary: Vec<(Role, &str, usize)> =
        messages.iter().map(|message| (message.role, message.content.as_str(), message.calls.len())).collect();
    assert_eq!(
        summary,
        [
            (Role::User, "a", 0),
            (Role::Assistant, "I look.", 2),
            (Role::Tool, "one", 0),
            (Role::Tool, "two", 0),
            (Role::Assistant, "Done.", 0),
            (Role::Assistant, "Really.", 1),
            (Role::Tool, "no", 0),
            (Role::Assistant, "", 0),
        ]
    );
    assert_eq!(write(Responses, &messages), items);
    assert_eq!(round_trip(Responses, Langchain, &items), items);
    let chat = write(Openai, &messages);
    assert_eq!(chat[0]["content"][1], json!({"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}));
    assert_eq!((chat.len(), &chat[1]["tool_calls"][0]["id"]), (8, &json!("c1")));
}

#[test]
fn a_stored_original_is_ignored_after_a_change() {
    let mut messages = stored(Openai, &[json!({"role": "user", "content": "old", "name": "Ana"})]);
    messages[0].content = "new".to_owned();
    assert_eq!(write(Openai, &messages), [json!({"role": "user", "content": "new"})]);
    let mut messages = stored(Openai, &history()[2..3]);
    messages[0].content = "other".to_owned();
    assert_eq!(write(Langchain, &messages)[0]["data"]["content"], "other");
}

#[test]
fn every_call_has_a_result_before_the_next_message() {
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "t", "arguments": "{}"}}]});
    let history =
        [call.clone(), json!({"role": "tool", "tool_call_id": "b", "content": "1"}), json!({"role": "user", "content": "so?"}), call];
    let messages = stored(Openai, &history);
    let written = write(Openai, &messages);
    assert_eq!(written.len(), 5, "one result is synthetic; the calls at the end may still get results");
    assert_eq!((&written[2]["role"], &written[2]["tool_call_id"]), (&json!("tool"), &json!("a")));
    assert!(written[2]["content"].as_str().unwrap().contains("interrupted"));
    assert_eq!(stored(Langchain, &write(Langchain, &messages)).len(), 4, "the synthetic result is not read back");
    let mut waits = messages[1].clone();
    waits.status = Some(ResultStatus::Pending);
    assert_eq!(write(Langchain, &[waits.clone()])[0]["data"]["status"], "success", "LangChain has no pending status");
    assert_eq!(write(Openai, &[waits])[0]["content"], "1", "a placeholder is written as it is");
}

#[test]
fn an_invalid_history_is_rejected_with_its_position() {
    let refused = |format, values: &[Value]| read(format, values, &mut String::new).unwrap_err().path;
    let user = json!({"role": "user", "content": "x"});
    assert_eq!(refused(Openai, &[user.clone(), json!("x")]), "/1");
    assert_eq!(refused(Openai, &[json!({"content": "x"})]), "/0");
    assert_eq!(refused(Openai, &[json!({"role": "chef"})]), "/0");
    assert_eq!(refused(Langchain, &[json!({"type": "remove", "data": {}})]), "/0");
    assert_eq!(refused(Langchain, std::slice::from_ref(&user)), "/0");
    assert_eq!(refused(Responses, &[user, json!({"content": "x"})]), "/1");
}

/// Compares the histories of a folder; returns how many there are.
fn compare_histories(folder: &Path) -> usize {
    let mut compared = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let fixture: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let list = |name: &str| fixture[name].as_array().unwrap().clone();
        for name in ["openai_messages_core", "openai_messages_langchain_openai"] {
            assert_eq!(round_trip(Openai, Langchain, &list(name)), list(name), "{name} of {}", path.display());
        }
        let items = list("responses_input_langchain_openai");
        assert_eq!(round_trip(Responses, Langchain, &items), items, "{}", path.display());
        assert_eq!(round_trip(Responses, Openai, &items).is_empty(), items.is_empty());
        let messages = list("messages_to_dict");
        assert_eq!(write(Langchain, &stored(Langchain, &messages)), messages, "{}", path.display());
        assert_eq!(stored(Langchain, &list("dumpd")).len(), messages.len());
        compared += 1;
    }
    compared
}

/// The project's own corpus, and the histories beside the checkout if they exist.
#[test]
fn the_recorded_histories_survive_a_round_trip() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(compare_histories(&root.join("tests/corpus/histories")), 4);
    let beside = root.join("../shared/fixtures/wire/langchain");
    if beside.exists() {
        assert!(compare_histories(&beside) > 0);
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z ü\"\\\\]{0,8}", Just(String::new())]
}

fn any_content() -> impl Strategy<Value = Value> {
    prop_oneof![
        any_text().prop_map(Value::from),
        Just(Value::Null),
        proptest::collection::vec(any_text().prop_map(|text| json!({"type": "text", "text": text})), 0..3).prop_map(Value::from),
    ]
}

fn any_call() -> impl Strategy<Value = Value> {
    let arguments = prop_oneof![Just("{}"), Just("{ \"a\" : 1 }"), Just("{\"a\":"), Just(""), Just("[1]"), Just("3"), Just("{}\n")];
    ("[ab]{0,1}", "[a-z]{0,3}", arguments)
        .prop_map(|(id, name, arguments)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

fn any_message() -> impl Strategy<Value = Value> {
    prop_oneof![
        any_content().prop_map(|content| json!({"role": "user", "content": content})),
        (any_content(), proptest::collection::vec(any_call(), 0..3))
            .prop_map(|(content, calls)| { json!({"role": "assistant", "content": content, "tool_calls": calls}) }),
        ("[ab]{0,1}", any_content()).prop_map(|(id, content)| json!({"role": "tool", "tool_call_id": id, "content": content})),
    ]
}

proptest! {
    /// Every history survives the round trip, apart from the results that were added for unanswered calls.
    #[test]
    fn any_history_survives_a_round_trip(history in proptest::collection::vec(any_message(), 0..8)) {
        let mut back = round_trip(Openai, Langchain, &history);
        back.retain(|message| !message["content"].as_str().is_some_and(|text| text.contains("interrupted")));
        prop_assert_eq!(back, history);
    }
}
