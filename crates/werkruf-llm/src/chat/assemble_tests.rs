use super::*;
use crate::ModelFault;
use crate::chat::ChatReader;
use crate::reader::ReadOutcome;

/// The calls assembled from a stream of these `tool_calls` lists, as (id, name, arguments).
fn assembled(lists: &[&str]) -> Vec<(Option<String>, String, String)> {
    let mut assembly = Assembly::default();
    for list in lists {
        assembly.add(decode(&format!(r#"{{"choices":[{{"delta":{{"tool_calls":{list}}}}}]}}"#), false).unwrap());
    }
    let answer = assembly.into_answer(true);
    let indexes: Vec<u32> = answer.calls.iter().map(|call| call.output_index).collect();
    assert_eq!(indexes, (0..).take(indexes.len()).collect::<Vec<u32>>());
    answer.calls.into_iter().map(|call| (call.call_id, call.name, call.arguments)).collect()
}

fn call(id: &str, name: &str, arguments: &str) -> (Option<String>, String, String) {
    ((!id.is_empty()).then(|| id.to_owned()), name.to_owned(), arguments.to_owned())
}

#[test]
fn joins_fragments_by_index_even_when_interleaved() {
    let found = assembled(&[
        r#"[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]"#,
        r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{\"x\""}}]"#,
        r#"[{"index":0,"function":{"arguments":"{\"y\":1}"}},{"index":1,"function":{"arguments":":2}"}}]"#,
    ]);
    assert_eq!(found, [call("a", "f", r#"{"y":1}"#), call("b", "g", r#"{"x":2}"#)]);
}

#[test]
fn a_new_id_with_a_used_index_is_a_new_call() {
    let found = assembled(&[
        r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#,
        r#"[{"index":0,"id":"b","function":{"name":"f","arguments":"{"}}]"#,
        r#"[{"index":0,"function":{"arguments":"}"}}]"#,
    ]);
    assert_eq!(found, [call("a", "f", "{}"), call("b", "f", "{}")]);
}

#[test]
fn repeated_ids_and_names_change_nothing() {
    let found = assembled(&[
        r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"q\":"}}]"#,
        r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}]"#,
        r#"[{"index":0,"id":"","function":{"name":"","arguments":"}"}}]"#,
    ]);
    assert_eq!(found, [call("a", "f", r#"{"q":1}"#)]);
}

#[test]
fn without_index_the_latest_call_continues_until_a_new_id_or_name() {
    let by_id = assembled(&[
        r#"[{"id":"a","function":{"name":"f","arguments":"{"}}]"#,
        r#"[{"function":{"arguments":"}"}}]"#,
        r#"[{"id":"b","function":{"name":"f","arguments":"{}"}}]"#,
    ]);
    assert_eq!(by_id, [call("a", "f", "{}"), call("b", "f", "{}")]);
    let nameless = assembled(&[
        r#"[{"id":"","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"","function":{"name":"f","arguments":"{\"a\":2}"}}]"#,
        r#"[{"function":{"name":"g"}}]"#,
    ]);
    assert_eq!(nameless, [call("", "f", r#"{"a":1}"#), call("", "f", r#"{"a":2}"#), call("", "g", "{}")]);
}

#[test]
fn a_late_id_is_added_to_its_call() {
    let found =
        assembled(&[r#"[{"index":1,"function":{"name":"f","arguments":"{"}}]"#, r#"[{"index":1,"id":"a","function":{"arguments":"}"}}]"#]);
    assert_eq!(found, [call("a", "f", "{}")]);
}

#[test]
fn two_calls_with_one_id_are_distinguished_by_index() {
    let found = assembled(&[
        r#"[{"index":0,"id":"0","function":{"name":"f","arguments":"{\"a\":1}"}}]"#,
        r#"[{"index":1,"id":"0","function":{"name":"f","arguments":"{\"a\":2}"}}]"#,
    ]);
    assert_eq!(found, [call("0", "f", r#"{"a":1}"#), call("0", "f", r#"{"a":2}"#)]);
}

fn read(payloads: &[&str]) -> ReadOutcome {
    let mut reader = ChatReader::default();
    for payload in payloads {
        reader.push(format!("data: {payload}\n\n").as_bytes());
    }
    reader.finish().1
}

const HALF_CALL: &str = r#"{"choices":[{"index":0,"delta":{"content":"So","tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}"#;

#[test]
fn missing_arguments_become_empty_only_at_a_normal_end() {
    let whole = read(&[HALF_CALL, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#]);
    assert!(whole.fault.is_none() && whole.answer.executable, "calls decide, not the finish reason");
    assert_eq!(whole.answer.calls[0].arguments, "{}");

    let open = read(&[HALF_CALL]);
    assert_eq!(open.answer.calls[0].arguments, "");
    let error = open.into_result().unwrap_err();
    assert_eq!((error.fault, error.received.as_str()), (ModelFault::Incomplete, "So"));
}

#[test]
fn a_truncated_answer_is_shown_but_its_calls_never_run() {
    for (reasons, ok) in
        [(&["length"][..], false), (&["content_filter"], false), (&["length", "tool_calls"], false), (&["tool_calls", "tool_calls"], true)]
    {
        let mut payloads = vec![HALF_CALL.to_owned()];
        payloads.extend(reasons.iter().map(|reason| format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)));
        let outcome = read(&payloads.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(outcome.fault.is_none());
        assert_eq!(outcome.answer.executable, ok, "{reasons:?}");
    }
    let text = read(&[r#"{"choices":[{"index":0,"delta":{"content":"So"},"finish_reason":"length"}]}"#]);
    assert_eq!(text.answer.finish.as_deref(), Some("length"));
    assert!(text.fault.is_none());
}

#[test]
fn done_ends_an_answer_only_after_content() {
    assert!(read(&[HALF_CALL, "[DONE]"]).answer.executable);
    assert_eq!(read(&[r#"{"choices":[]}"#, "[DONE]"]).into_result().unwrap_err().fault, ModelFault::Incomplete);
}

#[test]
fn an_error_in_the_stream_never_completes() {
    let outcome = read(&[
        HALF_CALL,
        r#"{"error":{"message":"bad","code":"tool_use_failed"}}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ]);
    assert!(!outcome.answer.executable);
    let error = outcome.into_result().unwrap_err();
    assert_eq!((error.fault, error.received.as_str()), (ModelFault::Refused { status: 400 }, "So"));
    assert_eq!(
        read(&[HALF_CALL, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#]).into_result().unwrap_err().fault,
        ModelFault::Refused { status: 502 }
    );
}

#[test]
fn damaged_answers_are_not_executable() {
    let stop = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
    let lost = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ud83d"}}]}}]}"#;
    assert!(!read(&[HALF_CALL, lost, stop, "[DONE]"]).answer.executable);
    let broken = read(&[HALF_CALL, r#"{"choices":[{"ind"#, stop, "[DONE]"]).into_result().unwrap_err();
    assert_eq!(broken.fault, ModelFault::Protocol);
    assert_eq!(read(&["<html>", "hello"]).into_result().unwrap_err().fault, ModelFault::Protocol);
}

#[test]
fn keep_alive_payloads_are_ignored() {
    let outcome = read(&["", "ping", r#"{"choices":[{"index":0,"delta":{"content":"So"},"finish_reason":"stop"}]}"#]);
    assert_eq!((outcome.answer.text.as_str(), outcome.answer.executable, outcome.answer.errors.len()), ("So", true, 1));
}

#[test]
fn signatures_and_reasoning_are_carried_only_with_calls() {
    let reasoning = r#"{"choices":[{"delta":{"reasoning_content":"Let me "}}]}"#;
    let more_reasoning = r#"{"choices":[{"delta":{"reasoning_content":"look","content":"So"}}]}"#;
    let signed = r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"g","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    let stop = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let answer = read(&[reasoning, more_reasoning, signed, "[DONE]"]).answer;
    let expected = json!({"extra_content": [null, {"google": {"thought_signature": "s"}}], "reasoning_content": "Let me look"});
    assert_eq!((answer.carry, answer.text.as_str()), (Some(expected), "So"));
    assert_eq!(read(&[reasoning, more_reasoning, stop, "[DONE]"]).answer.carry, None);
    assert_eq!(read(&[HALF_CALL, stop, "[DONE]"]).answer.carry, None);
}
