use super::*;
use crate::ModelFault;
use crate::chat::ChatReader;
use crate::reading::Verdict;

/// The calls of a stream of such `tool_calls` lists, as (id, name, arguments).
fn folded(lists: &[&str]) -> Vec<(Option<String>, String, String)> {
    let mut assembly = Assembly::default();
    for list in lists {
        assembly.add(decode(&format!(r#"{{"choices":[{{"delta":{{"tool_calls":{list}}}}}]}}"#), false).unwrap());
    }
    let answer = assembly.into_answer(true);
    let places: Vec<u32> = answer.calls.iter().map(|call| call.output_index).collect();
    assert_eq!(places, (0..).take(places.len()).collect::<Vec<u32>>());
    answer.calls.into_iter().map(|call| (call.call_id, call.name, call.arguments)).collect()
}

fn call(id: &str, name: &str, arguments: &str) -> (Option<String>, String, String) {
    ((!id.is_empty()).then(|| id.to_owned()), name.to_owned(), arguments.to_owned())
}

#[test]
fn joins_fragments_by_index_even_when_interleaved() {
    let found = folded(&[
        r#"[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]"#,
        r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{\"x\""}}]"#,
        r#"[{"index":0,"function":{"arguments":"{\"y\":1}"}},{"index":1,"function":{"arguments":":2}"}}]"#,
    ]);
    assert_eq!(found, [call("a", "f", r#"{"y":1}"#), call("b", "g", r#"{"x":2}"#)]);
}

#[test]
fn a_new_id_on_a_taken_index_is_a_new_call() {
    let found = folded(&[
        r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#,
        r#"[{"index":0,"id":"b","function":{"name":"f","arguments":"{"}}]"#,
        r#"[{"index":0,"function":{"arguments":"}"}}]"#,
    ]);
    assert_eq!(found, [call("a", "f", "{}"), call("b", "f", "{}")]);
}

#[test]
fn repeated_ids_and_names_change_nothing() {
    let found = folded(&[
        r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"q\":"}}]"#,
        r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}]"#,
        r#"[{"index":0,"id":"","function":{"name":"","arguments":"}"}}]"#,
    ]);
    assert_eq!(found, [call("a", "f", r#"{"q":1}"#)]);
}

#[test]
fn without_index_the_latest_goes_on_and_a_new_id_or_name_begins() {
    let by_id = folded(&[
        r#"[{"id":"a","function":{"name":"f","arguments":"{"}}]"#,
        r#"[{"function":{"arguments":"}"}}]"#,
        r#"[{"id":"b","function":{"name":"f","arguments":"{}"}}]"#,
    ]);
    assert_eq!(by_id, [call("a", "f", "{}"), call("b", "f", "{}")]);
    let nameless = folded(&[
        r#"[{"id":"","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"","function":{"name":"f","arguments":"{\"a\":2}"}}]"#,
        r#"[{"function":{"name":"g"}}]"#,
    ]);
    assert_eq!(nameless, [call("", "f", r#"{"a":1}"#), call("", "f", r#"{"a":2}"#), call("", "g", "{}")]);
}

#[test]
fn an_id_that_comes_late_joins_its_call() {
    let found =
        folded(&[r#"[{"index":1,"function":{"name":"f","arguments":"{"}}]"#, r#"[{"index":1,"id":"a","function":{"arguments":"}"}}]"#]);
    assert_eq!(found, [call("a", "f", "{}")]);
}

#[test]
fn one_id_for_two_calls_is_told_apart_by_index() {
    let found = folded(&[
        r#"[{"index":0,"id":"0","function":{"name":"f","arguments":"{\"a\":1}"}}]"#,
        r#"[{"index":1,"id":"0","function":{"name":"f","arguments":"{\"a\":2}"}}]"#,
    ]);
    assert_eq!(found, [call("0", "f", r#"{"a":1}"#), call("0", "f", r#"{"a":2}"#)]);
}

fn read(payloads: &[&str]) -> Verdict {
    let mut reader = ChatReader::default();
    for payload in payloads {
        reader.push(format!("data: {payload}\n\n").as_bytes());
    }
    reader.finish().1
}

const HALF_CALL: &str = r#"{"choices":[{"index":0,"delta":{"content":"So","tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}"#;

#[test]
fn arguments_are_made_up_only_when_nothing_came_and_all_was_said() {
    let whole = read(&[HALF_CALL, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#]);
    assert!(whole.fault.is_none() && whole.answer.executable, "calls decide, not the finish reason");
    assert_eq!(whole.answer.calls[0].arguments, "{}");

    let open = read(&[HALF_CALL]);
    assert_eq!(open.answer.calls[0].arguments, "");
    let error = open.into_result().unwrap_err();
    assert_eq!((error.fault, error.received.as_str()), (ModelFault::Incomplete, "So"));
}

#[test]
fn a_cut_answer_is_shown_but_its_calls_never_run() {
    for (reasons, ok) in
        [(&["length"][..], false), (&["content_filter"], false), (&["length", "tool_calls"], false), (&["tool_calls", "tool_calls"], true)]
    {
        let mut payloads = vec![HALF_CALL.to_owned()];
        payloads.extend(reasons.iter().map(|reason| format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)));
        let verdict = read(&payloads.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(verdict.fault.is_none());
        assert_eq!(verdict.answer.executable, ok, "{reasons:?}");
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
    let verdict = read(&[
        HALF_CALL,
        r#"{"error":{"message":"bad","code":"tool_use_failed"}}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ]);
    assert!(!verdict.answer.executable);
    let error = verdict.into_result().unwrap_err();
    assert_eq!((error.fault, error.received.as_str()), (ModelFault::Refused { status: 400 }, "So"));
    assert_eq!(
        read(&[HALF_CALL, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#]).into_result().unwrap_err().fault,
        ModelFault::Refused { status: 502 }
    );
}

#[test]
fn damage_is_never_executed() {
    let stop = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
    let lost = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ud83d"}}]}}]}"#;
    assert!(!read(&[HALF_CALL, lost, stop, "[DONE]"]).answer.executable);
    let broken = read(&[HALF_CALL, r#"{"choices":[{"ind"#, stop, "[DONE]"]).into_result().unwrap_err();
    assert_eq!(broken.fault, ModelFault::Protocol);
    assert_eq!(read(&["<html>", "hello"]).into_result().unwrap_err().fault, ModelFault::Protocol);
}

#[test]
fn heartbeats_that_are_no_chunk_are_survived() {
    let verdict = read(&["", "ping", r#"{"choices":[{"index":0,"delta":{"content":"So"},"finish_reason":"stop"}]}"#]);
    assert_eq!((verdict.answer.text.as_str(), verdict.answer.executable, verdict.answer.errors.len()), ("So", true, 1));
}

#[test]
fn signatures_and_thoughts_are_kept_for_the_next_request_only_beside_calls() {
    let thought = r#"{"choices":[{"delta":{"reasoning_content":"Let me "}}]}"#;
    let thoughts = r#"{"choices":[{"delta":{"reasoning_content":"look","content":"So"}}]}"#;
    let signed = r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"g","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    let stop = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let answer = read(&[thought, thoughts, signed, "[DONE]"]).answer;
    let expected = json!({"extra_content": [null, {"google": {"thought_signature": "s"}}], "reasoning_content": "Let me look"});
    assert_eq!((answer.carry, answer.text.as_str()), (Some(expected), "So"));
    assert_eq!(read(&[thought, thoughts, stop, "[DONE]"]).answer.carry, None);
    assert_eq!(read(&[HALF_CALL, stop, "[DONE]"]).answer.carry, None);
}
