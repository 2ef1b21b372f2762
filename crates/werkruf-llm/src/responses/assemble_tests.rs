use serde_json::json;
use werkruf_contract::CallKind;

use super::*;
use crate::reading::Verdict;
use crate::responses::ResponsesReader;
use crate::{ModelFault, ProviderItem};

fn read(payloads: &[Value]) -> (Vec<Delta>, Verdict) {
    let mut reader = ResponsesReader::default();
    let mut deltas = Vec::new();
    for payload in payloads {
        deltas.extend(reader.push(format!("data: {payload}\n\n").as_bytes()));
    }
    let (late, verdict) = reader.finish();
    deltas.extend(late);
    (deltas, verdict)
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

fn said(at: u32, piece: &str) -> Value {
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
fn interleaved_calls_are_told_apart_by_place_whatever_their_ids_do() {
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
    assert_eq!(calls, [(0, Some("x5"), "{\"n\":0}"), (1, Some("y5"), "{\"n\":1}")], "the end knows the ids best");
}

#[test]
fn what_is_finished_wins_over_what_was_added() {
    let search = |id: &str, call_id: &str| json!({"type": "tool_search_call", "id": id, "call_id": call_id, "execution": "client"});
    let found = answer(&[added(0, &search("t", "first")), done(0, &search("t", "second")), completed(&json!([]))]);
    assert_eq!(found.items[0].call_id.as_deref(), Some("second"));
}

#[test]
fn items_only_the_end_knows_are_there_and_an_empty_end_takes_nothing_away() {
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
    assert_eq!((kept.calls[0].output_index, kept.executable), (3, true), "gaps are as the wire has them");
    let missing = json!({"type": "response.completed", "response": {"id": "r"}});
    assert!(answer(&[done(0, &call("fc", "c", "{}")), missing]).executable);
}

#[test]
fn a_status_that_lags_is_no_reason_not_to_run() {
    let lagging = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}", "status": "in_progress"});
    let found = answer(&[done(0, &lagging), completed(&json!([lagging]))]);
    assert!(found.executable);
    assert_eq!(found.calls[0].status.as_deref(), Some("in_progress"));
}

#[test]
fn only_a_completed_response_runs_anything() {
    let open = [added(0, &call("fc", "c", "")), delta(0, "fc", "{\"status\":\"o")];
    let cut = answer(&open);
    assert_eq!((cut.executable, cut.calls[0].arguments.as_str()), (false, ""), "pieces are no arguments before the call is finished");
    let error = read(&open).1.into_result().unwrap_err();
    assert_eq!(error.fault, ModelFault::Incomplete);

    let finished = [done(0, &call("fc", "c", "{}"))];
    assert_eq!(read(&finished).1.into_result().unwrap_err().fault, ModelFault::Incomplete, "the item alone is no end");

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
    assert!(!unfinished.executable, "a call that was begun and never finished");
    let nameless = answer(&[delta(0, "fc", "{}"), completed(&json!([]))]);
    assert!(!nameless.executable, "pieces of a call nobody named");
}

#[test]
fn done_without_an_end_is_no_end() {
    let mut reader = ResponsesReader::default();
    reader.push(format!("data: {}\n\ndata: [DONE]\n\n", done(0, &call("fc", "c", "{}"))).as_bytes());
    assert!(!reader.is_over());
    assert_eq!(reader.finish().1.into_result().unwrap_err().fault, ModelFault::Incomplete);
}

#[test]
fn a_failure_is_told_once_and_runs_nothing() {
    let error = json!({"type": "error", "error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "no money"}});
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "output": [],
        "error": {"code": "insufficient_quota", "message": "no money"}}});
    let (_, verdict) = read(&[said(0, "So"), done(1, &call("fc", "c", "{}")), error, failed.clone()]);
    assert_eq!((verdict.answer.errors.len(), verdict.answer.finish.as_deref()), (1, Some("failed")));
    assert!(!verdict.answer.executable);
    let error = verdict.into_result().unwrap_err();
    assert_eq!((error.fault, error.received.as_str()), (ModelFault::Refused { status: 429 }, "So"));
    assert_eq!(read(&[failed]).1.into_result().unwrap_err().fault, ModelFault::Refused { status: 429 });
    let silent = json!({"type": "response.failed", "response": {"status": "failed"}});
    assert_eq!(read(&[silent]).1.into_result().unwrap_err().fault, ModelFault::Refused { status: 502 });
    let flat = json!({"type": "error", "code": "server_error", "message": "oh", "param": null});
    assert_eq!(read(&[flat, completed(&json!([]))]).1.into_result().unwrap_err().fault, ModelFault::Refused { status: 500 });
}

#[test]
fn arguments_come_from_wherever_they_were_told_and_are_made_up_only_for_nothing() {
    let bare = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f"});
    let all = json!({"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "fc", "arguments": "{\"a\":1}"});
    let arguments = |events: &[Value]| answer(events).calls[0].arguments.clone();
    assert_eq!(arguments(&[delta(0, "fc", "{\"a\""), all, done(0, &bare), completed(&json!([]))]), "{\"a\":1}");
    assert_eq!(
        arguments(&[delta(0, "fc", "{\"a\""), delta(0, "fc", ":2}"), done(0, &call("fc", "c", "")), completed(&json!([]))]),
        "{\"a\":2}"
    );
    assert_eq!(arguments(&[done(0, &bare), completed(&json!([]))]), "{}");
    assert_eq!(arguments(&[done(0, &bare)]), "", "nothing is made up before the end");
    let custom = json!({"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "sql", "input": ""});
    let found = answer(&[done(0, &custom), completed(&json!([custom]))]);
    assert_eq!((found.calls[0].kind, found.calls[0].arguments.as_str()), (CallKind::Custom, ""), "free text may be empty");
}

#[test]
fn text_is_shown_once_however_it_comes() {
    let whole = [said(0, "Gr"), said(0, "üß"), done(0, &message("Grüß Gott")), completed(&json!([message("Grüß Gott")]))];
    let (deltas, verdict) = read(&whole);
    assert_eq!((texts(&deltas), verdict.answer.text.as_str()), (vec!["Gr", "üß", " Gott"], "Grüß Gott"));
    let (deltas, verdict) = read(&[completed(&json!([message("All at once")]))]);
    assert_eq!((texts(&deltas), verdict.answer.text.as_str()), (vec!["All at once"], "All at once"));
    let resumed = read(&[said(0, " world"), done(0, &message("Hello world")), completed(&json!([message("Hello world")]))]);
    assert_eq!(resumed.1.answer.text, "Hello world", "a stream joined late still has the whole text at its end");
    let placeless = json!({"type": "response.output_text.delta", "item_id": "m1", "delta": "x"});
    assert_eq!(answer(&[placeless.clone(), placeless, completed(&json!([]))]).text, "xx");
}

#[test]
fn a_message_whose_parts_move_is_not_said_twice() {
    let second = json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 1, "item_id": "m", "delta": "Hel"});
    let (deltas, verdict) = read(&[second, done(0, &message("Hello")), completed(&json!([message("Hello")]))]);
    assert_eq!((texts(&deltas), verdict.answer.text.as_str()), (vec!["Hel", "lo"], "Hello"));
    let bare = json!({"type": "message", "id": "m", "role": "assistant"});
    assert_eq!(answer(&[said(0, "Hi"), done(0, &bare), completed(&json!([bare]))]).text, "Hi", "a finished item without its contents");
}

#[test]
fn what_a_finished_item_leaves_out_still_holds() {
    let short = json!({"type": "function_call", "arguments": "{}"});
    let found = answer(&[added(0, &call("fc", "c", "")), done(0, &short), completed(&json!([short]))]);
    let call = &found.calls[0];
    assert_eq!((call.item_id.as_deref(), call.call_id.as_deref(), call.name.as_str()), (Some("fc"), Some("c"), "f"));
    assert!(found.executable);
}

#[test]
fn refusals_are_no_text_and_thoughts_are_neither() {
    let refused = json!({"type": "response.refusal.delta", "output_index": 1, "content_index": 0, "delta": "I will not."});
    let item = json!({"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "I will not."}]});
    let thought = json!({"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "hm"});
    let reasoning = json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]});
    let (deltas, verdict) = read(&[thought, done(0, &reasoning), refused, done(1, &item), completed(&json!([reasoning, item]))]);
    assert!(deltas.is_empty());
    assert_eq!((verdict.answer.text.as_str(), verdict.answer.refusal.as_deref()), ("", Some("I will not.")));
    assert!(verdict.answer.items.is_empty());
    let turn = json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "No."});
    let both = answer(&[said(0, "Well."), turn, completed(&json!([]))]);
    assert_eq!((both.text.as_str(), both.refusal.as_deref()), ("Well.", Some("No.")), "one part for both");
}

#[test]
fn what_the_provider_runs_is_told_live_and_kept() {
    let begun = json!({"type": "mcp_call", "id": "mcp_1", "name": "search", "arguments": "", "server_label": "crm"});
    let failed = json!({"type": "mcp_call", "id": "mcp_1", "name": "search", "arguments": "{}", "status": "failed", "output": null,
        "error": {"type": "http_error", "code": 500, "message": "down"}});
    let stopped = json!({"type": "response.mcp_call.failed", "output_index": 0, "item_id": "mcp_1"});
    let (deltas, verdict) = read(&[added(0, &begun), stopped, done(0, &failed), completed(&json!([failed, message("Sorry")]))]);
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
    };
    assert!(matches!(&deltas[0], Delta::ItemStarted(started) if started.arguments.as_deref() == Some("")), "{deltas:?}");
    assert_eq!(deltas[1], Delta::ItemFinished(Box::new(item.clone())));
    assert_eq!((texts(&deltas), deltas.len()), (vec!["Sorry"], 3));
    assert!(!item.succeeded() && item.call_kind() == Some(CallKind::Mcp));
    assert_eq!((verdict.answer.items, verdict.answer.executable), (vec![ProviderItem { response_id: Some("r".into()), ..item }], true));
}

#[test]
fn a_search_that_ends_searching_and_one_only_the_end_knows_are_both_finished() {
    let searching = json!({"type": "web_search_call", "id": "ws", "status": "searching", "action": {"type": "search", "query": "q"}});
    let (deltas, verdict) = read(&[done(0, &searching), completed(&json!([searching]))]);
    assert_eq!(deltas.len(), 2);
    let item = &verdict.answer.items[0];
    assert!(item.succeeded() && item.call_kind() == Some(CallKind::WebSearch) && item.name.is_none());
    let (deltas, _) = read(&[completed(&json!([searching]))]);
    assert!(matches!(&deltas[..], [Delta::ItemStarted(_), Delta::ItemFinished(_)]));
}

#[test]
fn questions_for_approval_are_kept_but_are_no_work() {
    let question = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "arguments": "{\"n\":1}", "server_label": "bank"});
    let (deltas, verdict) = read(&[added(0, &question), done(0, &question), completed(&json!([question]))]);
    assert!(deltas.is_empty());
    let item = &verdict.answer.items[0];
    assert_eq!((item.call_kind(), item.arguments.as_deref(), item.status.as_deref()), (None, Some("{\"n\":1}"), None));
}

#[test]
fn damage_is_never_executed() {
    let whole = done(0, &call("fc", "c", "{}"));
    let lost = r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"\ud83d"}"#;
    let mut reader = ResponsesReader::default();
    reader.push(format!("data: {whole}\n\ndata: {lost}\n\ndata: {}\n\n", completed(&json!([]))).as_bytes());
    assert!(!reader.finish().1.answer.executable);

    let mut reader = ResponsesReader::default();
    reader.push(b"data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"function_call\",\"name\":\"f\xff\",\"arguments\":\"{}\"}}\n\n");
    reader.push(format!("data: {}\n\n", completed(&json!([]))).as_bytes());
    assert!(!reader.finish().1.answer.executable, "bytes that are no text");

    let mut reader = ResponsesReader::default();
    reader.push(format!("data: {whole}\n\ndata: {{\"type\":\"resp\n\ndata: {}\n\n", completed(&json!([]))).as_bytes());
    assert_eq!(reader.finish().1.into_result().unwrap_err().fault, ModelFault::Protocol);

    let twice = answer(&[whole.clone(), added(0, &call("fc2", "d", "")), completed(&json!([]))]);
    assert!(!twice.executable, "two calls at one place would hide one another");
    let two = answer(&[whole.clone(), done(0, &call("fc2", "d", "{}")), completed(&json!([]))]);
    assert!(!two.executable && two.calls.len() == 1, "also when both come finished");
    let apart = answer(&[whole.clone(), completed(&json!([call("x", "d", "{}"), call("y", "c", "{}")]))]);
    let ids: Vec<_> = apart.calls.iter().map(|call| (call.output_index, call.call_id.as_deref())).collect();
    assert_eq!(ids, [(0, Some("c")), (1, Some("d"))], "ids rotate, calls do not");
    let again = answer(&[whole.clone(), added(0, &call("fc", "c", "")), whole, completed(&json!([]))]);
    assert!(again.executable, "a stream that repeats itself");
}

#[test]
fn many_calls_are_all_there_and_too_many_are_refused() {
    let calls: Vec<Value> = (0..129).map(|n| call(&format!("fc_{n}"), "call_0", "{}")).collect();
    let found = answer(&[completed(&json!(calls))]);
    assert_eq!((found.calls.len(), found.executable), (129, true), "one call id for all is what some servers send");
    let flood: Vec<Value> = (0..=MAX_ITEMS).map(|_| json!({"type": "function_call"})).collect();
    let found = answer(&[completed(&json!(flood))]);
    assert_eq!((found.calls.len(), found.executable), (MAX_ITEMS, false));
}

#[test]
fn sealed_thoughts_are_kept_with_their_places() {
    let sealed = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA", "status": null, "content": null});
    let found = answer(&[completed(&json!([sealed, message("Wait."), call("fc", "c", "{}")]))]);
    let expected = json!({"items": [
        {"item": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}},
        {"message": {"bytes": 5, "id": "m", "phase": null}},
        {"call": 0},
    ]});
    assert_eq!(found.carry, Some(expected));
    let unsealed = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    assert_eq!(answer(&[completed(&json!([unsealed, message("Hi")]))]).carry, None, "it would be refused");
    let worded = json!({"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}], "status": "completed"});
    let kept = answer(&[completed(&json!([worded, message("Hi")]))]).carry.unwrap();
    assert_eq!(kept["items"][0]["item"].get("status"), None, "the API does not take it back");
    let phased = json!({"type": "message", "id": "m", "phase": "commentary", "content": [{"type": "output_text", "text": "Hm"}]});
    assert!(answer(&[completed(&json!([phased]))]).carry.is_some());
}
