use serde_json::json;
use werkruf_contract::CallKind;

use super::*;
use crate::reader::ReadOutcome;
use crate::responses::ResponsesReader;
use crate::{ModelFault, ProviderItem, ToolCall};

fn read(payloads: &[Value]) -> (Vec<Delta>, ReadOutcome) {
    let mut reader = ResponsesReader::default();
    let mut deltas = Vec::new();
    for payload in payloads {
        deltas.extend(reader.push(format!("data: {payload}\n\n").as_bytes()));
    }
    let (late, outcome) = reader.finish();
    deltas.extend(late);
    (deltas, outcome)
}

fn answer(payloads: &[Value]) -> Answer {
    read(payloads).1.answer
}

fn texts(deltas: &[Delta]) -> Vec<&str> {
    deltas.iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(text.as_str()) } else { None }).collect()
}

fn added(at: u32, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": at, "item": item})
}

fn done(at: u32, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": at, "item": item})
}

fn delta(at: u32, id: &str, piece: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "output_index": at, "item_id": id, "delta": piece})
}

fn text_delta(at: u32, piece: &str) -> Value {
    json!({"type": "response.output_text.delta", "output_index": at, "content_index": 0, "item_id": "m", "delta": piece})
}

fn completed(output: &Value) -> Value {
    json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}})
}

fn call(id: &str, call_id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": "f", "arguments": arguments, "status": "completed"})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

#[test]
fn interleaved_calls_are_distinguished_by_index() {
    let found = answer(&[
        added(0, &call("x1", "a", "")),
        added(1, &call("y1", "b", "")),
        delta(1, "y2", "{\"n\""),
        delta(0, "x2", "{\"n\":0}"),
        delta(1, "y3", ":1}"),
        done(1, &call("y4", "b", "{\"n\":1}")),
        done(0, &call("x4", "a", "{\"n\":0}")),
        completed(&json!([call("x5", "a", "{\"n\":0}"), call("y5", "b", "{\"n\":1}")])),
    ]);
    assert!(found.executable);
    let calls: Vec<_> = found.calls.iter().map(|call| (call.output_index, call.item_id.as_deref(), call.arguments.as_str())).collect();
    assert_eq!(calls, [(0, Some("x5"), "{\"n\":0}"), (1, Some("y5"), "{\"n\":1}")], "the final response has the final ids");
}

#[test]
fn a_finished_item_replaces_the_added_one() {
    let search = |id: &str, call_id: &str| json!({"type": "tool_search_call", "id": id, "call_id": call_id, "execution": "client"});
    let found = answer(&[added(0, &search("t", "first")), done(0, &search("t", "second")), completed(&json!([]))]);
    assert_eq!(found.items[0].call_id.as_deref(), Some("second"));
}

#[test]
fn the_final_response_adds_items_and_removes_none() {
    let lists = |id: &str| json!({"type": "mcp_list_tools", "id": id, "server_label": id, "tools": []});
    let reconciled = answer(&[
        added(0, &lists("l0")),
        added(1, &lists("l1")),
        done(1, &lists("l1")),
        completed(&json!([lists("l0"), lists("l1"), call("fc", "c", "{}")])),
    ]);
    let kinds: Vec<_> = reconciled.items.iter().map(|item| (item.output_index, item.item_id.as_deref())).collect();
    assert_eq!(kinds, [(0, Some("l0")), (1, Some("l1"))]);
    assert_eq!((reconciled.calls[0].output_index, reconciled.executable), (2, true));
    let kept = answer(&[done(3, &call("fc", "c", "{}")), completed(&json!([]))]);
    assert_eq!((kept.calls[0].output_index, kept.executable), (3, true), "gaps are kept");
    let missing = json!({"type": "response.completed", "response": {"id": "r"}});
    assert!(answer(&[done(0, &call("fc", "c", "{}")), missing]).executable);
}

#[test]
fn a_lagging_status_does_not_block_execution() {
    let lagging = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}", "status": "in_progress"});
    let found = answer(&[done(0, &lagging), completed(&json!([lagging]))]);
    assert!(found.executable);
    assert_eq!(found.calls[0].status.as_deref(), Some("in_progress"));
}

#[test]
fn only_a_completed_response_is_executable() {
    let open = [added(0, &call("fc", "c", "")), delta(0, "fc", "{\"status\":\"o")];
    let cut = answer(&open);
    assert_eq!((cut.executable, cut.calls[0].arguments.as_str()), (false, ""), "deltas do not count before the call is finished");
    let error = read(&open).1.into_result().unwrap_err();
    assert_eq!(error.fault, ModelFault::Incomplete);

    let finished = [done(0, &call("fc", "c", "{}"))];
    assert_eq!(read(&finished).1.into_result().unwrap_err().fault, ModelFault::Incomplete, "a finished item does not end the answer");

    let half = call("fc", "c", "{\"origin\":\"FRA\",\"destin");
    let incomplete = json!({"type": "response.incomplete", "response": {"status": "incomplete", "output": [half],
        "incomplete_details": {"reason": "max_output_tokens"}}});
    let found = answer(&[incomplete]);
    assert_eq!((found.executable, found.finish.as_deref()), (false, Some("incomplete")));
    assert_eq!(
        (found.calls[0].arguments.as_str(), found.errors),
        ("{\"origin\":\"FRA\",\"destin", vec!["incomplete: max_output_tokens".into()])
    );

    let unfinished = answer(&[open[0].clone(), open[1].clone(), completed(&json!([message("Hi")]))]);
    assert!(!unfinished.executable, "a call that was started and never finished");
    let nameless = answer(&[delta(0, "fc", "{}"), completed(&json!([]))]);
    assert!(!nameless.executable, "arguments without a call");
}

#[test]
fn done_alone_does_not_end_an_answer() {
    let mut reader = ResponsesReader::default();
    reader.push(format!("data: {}\n\ndata: [DONE]\n\n", done(0, &call("fc", "c", "{}"))).as_bytes());
    assert!(!reader.is_finished());
    assert_eq!(reader.finish().1.into_result().unwrap_err().fault, ModelFault::Incomplete);
}

#[test]
fn a_failure_is_reported_once_and_is_not_executable() {
    let error = json!({"type": "error", "error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "no money"}});
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "output": [],
        "error": {"code": "insufficient_quota", "message": "no money"}}});
    let (_, outcome) = read(&[text_delta(0, "So"), done(1, &call("fc", "c", "{}")), error, failed.clone()]);
    assert_eq!((outcome.answer.errors.len(), outcome.answer.finish.as_deref()), (1, Some("failed")));
    assert!(!outcome.answer.executable);
    let error = outcome.into_result().unwrap_err();
    assert_eq!((error.fault, error.received.as_str()), (ModelFault::Refused { status: 429 }, "So"));
    assert_eq!(read(&[failed]).1.into_result().unwrap_err().fault, ModelFault::Refused { status: 429 });
    let silent = json!({"type": "response.failed", "response": {"status": "failed"}});
    assert_eq!(read(&[silent]).1.into_result().unwrap_err().fault, ModelFault::Refused { status: 502 });
    let flat = json!({"type": "error", "code": "server_error", "message": "oh", "param": null});
    assert_eq!(read(&[flat, completed(&json!([]))]).1.into_result().unwrap_err().fault, ModelFault::Refused { status: 500 });
}

#[test]
fn arguments_come_from_deltas_or_the_full_event_or_the_item() {
    let bare = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f"});
    let all = json!({"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "fc", "arguments": "{\"a\":1}"});
    let arguments = |events: &[Value]| answer(events).calls[0].arguments.clone();
    assert_eq!(arguments(&[delta(0, "fc", "{\"a\""), all, done(0, &bare), completed(&json!([]))]), "{\"a\":1}");
    assert_eq!(
        arguments(&[delta(0, "fc", "{\"a\""), delta(0, "fc", ":2}"), done(0, &call("fc", "c", "")), completed(&json!([]))]),
        "{\"a\":2}"
    );
    assert_eq!(arguments(&[done(0, &bare), completed(&json!([]))]), "{}");
    assert_eq!(arguments(&[done(0, &bare)]), "", "missing arguments stay missing before the end");
    let custom = json!({"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "sql", "input": ""});
    let found = answer(&[done(0, &custom), completed(&json!([custom]))]);
    assert_eq!((found.calls[0].kind, found.calls[0].arguments.as_str()), (CallKind::Custom, ""), "free text may be empty");
}

#[test]
fn text_is_emitted_once() {
    let whole = [text_delta(0, "Gr"), text_delta(0, "üß"), done(0, &message("Grüß Gott")), completed(&json!([message("Grüß Gott")]))];
    let (deltas, outcome) = read(&whole);
    assert_eq!((texts(&deltas), outcome.answer.text.as_str()), (vec!["Gr", "üß", " Gott"], "Grüß Gott"));
    let (deltas, outcome) = read(&[completed(&json!([message("All at once")]))]);
    assert_eq!((texts(&deltas), outcome.answer.text.as_str()), (vec!["All at once"], "All at once"));
    let resumed = read(&[text_delta(0, " world"), done(0, &message("Hello world")), completed(&json!([message("Hello world")]))]);
    assert_eq!(resumed.1.answer.text, "Hello world", "the final response has the whole text");
    let unindexed = json!({"type": "response.output_text.delta", "item_id": "m1", "delta": "x"});
    assert_eq!(answer(&[unindexed.clone(), unindexed, completed(&json!([]))]).text, "xx");
}

#[test]
fn a_message_with_changed_part_indexes_is_not_emitted_twice() {
    let second = json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 1, "item_id": "m", "delta": "Hel"});
    let (deltas, outcome) = read(&[second, done(0, &message("Hello")), completed(&json!([message("Hello")]))]);
    assert_eq!((texts(&deltas), outcome.answer.text.as_str()), (vec!["Hel", "lo"], "Hello"));
    let bare = json!({"type": "message", "id": "m", "role": "assistant"});
    assert_eq!(
        answer(&[text_delta(0, "Hi"), done(0, &bare), completed(&json!([bare]))]).text,
        "Hi",
        "a finished item without its contents"
    );
}

#[test]
fn fields_missing_in_the_finished_item_are_kept() {
    let short = json!({"type": "function_call", "arguments": "{}"});
    let found = answer(&[added(0, &call("fc", "c", "")), done(0, &short), completed(&json!([short]))]);
    let call = &found.calls[0];
    assert_eq!((call.item_id.as_deref(), call.call_id.as_deref(), call.name.as_str()), (Some("fc"), Some("c"), "f"));
    assert!(found.executable);
}

#[test]
fn refusals_and_reasoning_are_not_text() {
    let refused = json!({"type": "response.refusal.delta", "output_index": 1, "content_index": 0, "delta": "I will not."});
    let item = json!({"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "I will not."}]});
    let reasoning_delta = json!({"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "hm"});
    let reasoning = json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]});
    let (deltas, outcome) = read(&[reasoning_delta, done(0, &reasoning), refused, done(1, &item), completed(&json!([reasoning, item]))]);
    assert!(deltas.is_empty());
    assert_eq!((outcome.answer.text.as_str(), outcome.answer.refusal.as_deref()), ("", Some("I will not.")));
    assert!(outcome.answer.items.is_empty());
    let turn = json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "No."});
    let both = answer(&[text_delta(0, "Well."), turn, completed(&json!([]))]);
    assert_eq!((both.text.as_str(), both.refusal.as_deref()), ("Well.", Some("No.")), "one part for both");
}

#[test]
fn provider_items_are_emitted_live_and_are_in_the_answer() {
    let started = json!({"type": "mcp_call", "id": "mcp_1", "name": "search", "arguments": "", "server_label": "crm"});
    let failed = json!({"type": "mcp_call", "id": "mcp_1", "name": "search", "arguments": "{}", "status": "failed", "output": null,
        "error": {"type": "http_error", "code": 500, "message": "down"}});
    let stopped = json!({"type": "response.mcp_call.failed", "output_index": 0, "item_id": "mcp_1"});
    let (deltas, outcome) = read(&[added(0, &started), stopped, done(0, &failed), completed(&json!([failed, message("Sorry")]))]);
    let item = ProviderItem {
        kind: "mcp_call".into(),
        response_id: None,
        item_id: Some("mcp_1".into()),
        call_id: None,
        output_index: 0,
        name: Some("search".into()),
        arguments: Some("{}".into()),
        output: None,
        status: Some("failed".into()),
        error: Some(json!({"type": "http_error", "code": 500, "message": "down"})),
        approval_request_id: None,
    };
    assert!(matches!(&deltas[0], Delta::ItemStarted(started) if started.arguments.as_deref() == Some("")), "{deltas:?}");
    assert_eq!(deltas[1], Delta::ItemFinished(Box::new(item.clone())));
    assert_eq!((texts(&deltas), deltas.len()), (vec!["Sorry"], 3));
    assert!(!item.succeeded() && item.call_kind() == Some(CallKind::Mcp));
    assert_eq!((outcome.answer.items, outcome.answer.executable), (vec![ProviderItem { response_id: Some("r".into()), ..item }], true));
}

#[test]
fn items_with_a_lagging_status_or_without_events_are_finished() {
    let searching = json!({"type": "web_search_call", "id": "ws", "status": "searching", "action": {"type": "search", "query": "q"}});
    let (deltas, outcome) = read(&[done(0, &searching), completed(&json!([searching]))]);
    assert_eq!(deltas.len(), 2);
    let item = &outcome.answer.items[0];
    assert!(item.succeeded() && item.call_kind() == Some(CallKind::WebSearch) && item.name.is_none());
    let (deltas, _) = read(&[completed(&json!([searching]))]);
    assert!(matches!(&deltas[..], [Delta::ItemStarted(_), Delta::ItemFinished(_)]));
}

#[test]
fn approval_requests_are_calls_that_are_carried_and_what_they_ran_is_not() {
    let question = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "arguments": "{\"n\":1}", "server_label": "bank"});
    let (deltas, outcome) = read(&[added(0, &question), done(0, &question), completed(&json!([question]))]);
    assert!(deltas.is_empty());
    let Answer { calls, items, carry, executable, .. } = outcome.answer;
    let expected = ToolCall {
        kind: CallKind::Mcp,
        item_id: Some("mcpr_1".into()),
        call_id: None,
        output_index: 0,
        name: "pay".into(),
        arguments: "{\"n\":1}".into(),
        status: None,
        server_label: Some("bank".into()),
    };
    assert!(executable && items.is_empty() && expected.is_approval_request());
    assert_eq!((expected.pairing_id(), calls), (Some("mcpr_1"), vec![expected.clone()]));
    assert_eq!(carry.unwrap(), json!({"items": [{"call": 0, "request": question}]}));

    let reasoning = |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "g"});
    let ran = json!({"type": "mcp_call", "id": "mcp_1", "name": "pay", "arguments": "{\"n\":1}", "output": "paid", "error": null,
        "approval_request_id": "mcpr_1", "status": "completed"});
    let answer = answer(&[completed(&json!([reasoning("rs_1"), ran, reasoning("rs_2"), message("Paid.")]))]);
    assert_eq!(answer.items[0].approval_request_id.as_deref(), Some("mcpr_1"));
    let kept = answer.carry.unwrap()["items"].to_string();
    assert!(kept.contains("rs_2") && !kept.contains("mcp_call"), "{kept}");
    assert!(!kept.contains("rs_1"), "reasoning goes with the item that followed it: {kept}");
}

#[test]
fn an_approval_request_that_never_ended_is_not_executable() {
    let question = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "arguments": "{}", "server_label": "bank"});
    assert!(!answer(&[added(0, &question), completed(&json!([]))]).executable);
}

#[test]
fn damaged_answers_are_not_executable() {
    let whole = done(0, &call("fc", "c", "{}"));
    let lost = r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"\ud83d"}"#;
    let mut reader = ResponsesReader::default();
    reader.push(format!("data: {whole}\n\ndata: {lost}\n\ndata: {}\n\n", completed(&json!([]))).as_bytes());
    assert!(!reader.finish().1.answer.executable);

    let mut reader = ResponsesReader::default();
    reader.push(b"data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"function_call\",\"name\":\"f\xff\",\"arguments\":\"{}\"}}\n\n");
    reader.push(format!("data: {}\n\n", completed(&json!([]))).as_bytes());
    assert!(!reader.finish().1.answer.executable, "bytes that are not text");

    let mut reader = ResponsesReader::default();
    reader.push(format!("data: {whole}\n\ndata: {{\"type\":\"resp\n\ndata: {}\n\n", completed(&json!([]))).as_bytes());
    assert_eq!(reader.finish().1.into_result().unwrap_err().fault, ModelFault::Protocol);

    let twice = answer(&[whole.clone(), added(0, &call("fc2", "d", "")), completed(&json!([]))]);
    assert!(!twice.executable, "two calls with one index would hide each other");
    let two = answer(&[whole.clone(), done(0, &call("fc2", "d", "{}")), completed(&json!([]))]);
    assert!(!two.executable && two.calls.len() == 1, "also when both are finished");
    let apart = answer(&[whole.clone(), completed(&json!([call("x", "d", "{}"), call("y", "c", "{}")]))]);
    let ids: Vec<_> = apart.calls.iter().map(|call| (call.output_index, call.call_id.as_deref())).collect();
    assert_eq!(ids, [(0, Some("c")), (1, Some("d"))], "item ids change, call ids do not");
    let again = answer(&[whole.clone(), added(0, &call("fc", "c", "")), whole, completed(&json!([]))]);
    assert!(again.executable, "a repeated stream");
}

#[test]
fn many_calls_are_read_and_too_many_are_rejected() {
    let calls: Vec<Value> = (0..129).map(|n| call(&format!("fc_{n}"), "call_0", "{}")).collect();
    let found = answer(&[completed(&json!(calls))]);
    assert_eq!((found.calls.len(), found.executable), (129, true), "one call id for all is what some servers send");
    let flood: Vec<Value> = (0..=MAX_ITEMS).map(|_| json!({"type": "function_call"})).collect();
    let found = answer(&[completed(&json!(flood))]);
    assert_eq!((found.calls.len(), found.executable), (MAX_ITEMS, false));
}

#[test]
fn encrypted_reasoning_is_carried_with_its_position() {
    let encrypted = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA", "status": null, "content": null});
    let found = answer(&[completed(&json!([encrypted, message("Wait."), call("fc", "c", "{}")]))]);
    let expected = json!({"items": [
        {"item": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}},
        {"message": {"bytes": 5, "id": "m", "phase": null}},
        {"call": 0},
    ]});
    assert_eq!(found.carry, Some(expected));
    let unencrypted = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    assert_eq!(answer(&[completed(&json!([unencrypted, message("Hi")]))]).carry, None, "it would be refused");
    let readable = json!({"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}], "status": "completed"});
    let kept = answer(&[completed(&json!([readable, message("Hi")]))]).carry.unwrap();
    assert_eq!(kept["items"][0]["item"].get("status"), None, "the API rejects a status");
    let phased = json!({"type": "message", "id": "m", "phase": "commentary", "content": [{"type": "output_text", "text": "Hm"}]});
    assert!(answer(&[completed(&json!([phased]))]).carry.is_some());
}
