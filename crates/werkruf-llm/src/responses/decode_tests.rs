use serde_json::json;

use super::*;
use crate::raw::name as text;

fn event(payload: &str) -> Event {
    decode(payload, None).unwrap()
}

fn ended(payload: &str) -> FinalResponse {
    match event(payload) {
        Event::Ended(ending) => *ending,
        other => panic!("{other:?} is not a final response"),
    }
}

fn item(json: &serde_json::Value) -> Item {
    match event(&json!({"type": "response.output_item.done", "output_index": 0, "item": json}).to_string()) {
        Event::Finished(_, item) => *item,
        other => panic!("{other:?} is not an item"),
    }
}

#[test]
fn fragments_refer_to_items_by_index_and_id() {
    let target = ItemRef { index: Some(2), item_id: Some("fc_1".into()) };
    let arguments =
        r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{\"a","obfuscation":"xx"}"#;
    assert_eq!(event(arguments), Event::Arguments(target.clone(), Fragment::Delta("{\"a".into())));
    let all = r#"{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":2,"arguments":"{}"}"#;
    assert_eq!(event(all), Event::Arguments(target.clone(), Fragment::Full("{}".into())), "without the name the schema promises");
    let input = r#"{"type":"response.custom_tool_call_input.done","item_id":"fc_1","output_index":2,"input":"print(1)"}"#;
    assert_eq!(event(input), Event::Arguments(target.clone(), Fragment::Full("print(1)".into())));
    let text_delta = r#"{"type":"response.output_text.delta","item_id":"fc_1","output_index":2,"content_index":1,"delta":"Hi"}"#;
    assert_eq!(event(text_delta), Event::Text { target: target.clone(), part: 1, refusal: false, piece: Fragment::Delta("Hi".into()) });
    let refused = r#"{"type":"response.refusal.done","item_id":"fc_1","output_index":2,"content_index":0,"refusal":"No."}"#;
    assert_eq!(event(refused), Event::Text { target: target.clone(), part: 0, refusal: true, piece: Fragment::Full("No.".into()) });
    let searching = r#"{"type":"response.web_search_call.searching","item_id":"fc_1","output_index":2}"#;
    assert_eq!(event(searching), Event::Progress(target, "searching".into()));
}

#[test]
fn unknown_events_and_reasoning_are_ignored() {
    for kind in [
        "response.apply_patch_call_operation_diff.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_part.added",
        "response.content_part.added",
        "response.output_text.annotation.added",
        "response.code_interpreter_call_code.delta",
        "response.something_new",
        "keepalive",
        "ping",
    ] {
        assert_eq!(event(&json!({"type": kind, "delta": "x", "output_index": 0}).to_string()), Event::Ignored, "{kind}");
    }
    assert_eq!(event(r#"{"choices":[]}"#), Event::Ignored);
    // These events have an index and no id; the commands arrive with the finished item.
    let shell = r#"{"type":"response.shell_call_command.delta","output_index":0,"command_index":0,"delta":"ls"}"#;
    assert_eq!(event(shell), Event::Ignored);
}

#[test]
fn an_error_is_read_flat_and_nested_and_without_a_type() {
    for payload in [
        r#"{"type":"error","code":"rate_limit_exceeded","message":"slow","param":null,"sequence_number":3}"#,
        r#"{"type":"error","error":{"type":"tokens","code":"rate_limit_exceeded","message":"slow","param":null}}"#,
        r#"{"error":{"code":"rate_limit_exceeded","message":"slow"}}"#,
    ] {
        let Event::Error(error) = event(payload) else { panic!("{payload}") };
        assert_eq!((error.status, error.message.as_str()), (429, "rate_limit_exceeded: slow"), "{payload}");
    }
    let Event::Error(error) = decode(r#"{"message":"no"}"#, Some("error")).unwrap() else { panic!("named by the stream only") };
    assert_eq!((error.status, error.message.as_str()), (502, "no"));
}

#[test]
fn the_stream_may_name_an_event_whose_payload_does_not() {
    let created = decode(r#"{"response":{"id":"r","model":"m"}}"#, Some("response.created")).unwrap();
    assert_eq!(created, Event::Created { response_id: Some("r".into()), model: Some("m".into()) });
}

#[test]
fn final_responses_have_a_reason_and_usage() {
    let usage = r#"{"input_tokens":7,"input_tokens_details":{"cached_tokens":2},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":10}"#;
    let payload = format!(
        r#"{{"type":"response.incomplete","response":{{"id":"r","model":"m","status":"incomplete","incomplete_details":{{"reason":"max_output_tokens"}},"error":null,"output":[],"usage":{usage}}}}}"#
    );
    let ending = ended(&payload);
    assert_eq!((ending.status.as_str(), ending.reason.as_deref(), ending.failure), ("incomplete", Some("max_output_tokens"), None));
    let expected = TokenUsage { input_tokens: 7, cached_tokens: 2, output_tokens: 3, reasoning_tokens: 1, total_tokens: 10 };
    assert_eq!(ending.usage, Some(expected));
    let failed = ended(r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"oh"}}}"#);
    assert_eq!(failed.failure, Some(StreamError { status: 500, message: "server_error: oh".into() }));
    let lagging = ended(r#"{"type":"response.completed","response":{"status":"in_progress","output":[]}}"#);
    assert_eq!(lagging.status, "completed", "the event is the end");
}

#[test]
fn a_whole_body_is_a_final_response() {
    for (body, status) in [
        (r#"{"object":"response","status":"completed","output":[],"error":null}"#, "completed"),
        (r#"{"object":"response","status":"complete","output":[]}"#, "completed"),
        (r#"{"output":[{"type":"message","content":"Hi"}]}"#, "completed"),
        (r#"{"object":"response","status":"queued","output":[]}"#, "queued"),
        (r#"{"object":"response","status":"failed","error":{"message":"no"},"output":[]}"#, "failed"),
        (r#"{"object":"response","error":{"message":"no"},"output":[]}"#, "failed"),
    ] {
        assert_eq!(ended(body).status, status, "{body}");
    }
}

#[test]
fn items_keep_their_ids_exactly() {
    let call = item(&json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{\"a\": 1}"}));
    assert_eq!((call.id.as_deref(), call.call_id.as_deref()), (Some("fc_1"), Some("call_1")));
    assert_eq!((call.arguments.as_deref(), call.requested_call()), (Some("{\"a\": 1}"), Some(werkruf_contract::CallKind::Function)));
    let ran = item(&json!({"type": "mcp_call", "id": "mcp_1", "name": "f", "arguments": "{}", "approval_request_id": null}));
    assert_eq!((ran.call_id, ran.id.as_deref()), (None, Some("mcp_1")), "nothing is copied in place of an id");
    let xai = item(&json!({"type": "web_search_call", "id": "ws", "call_id": "", "name": "web_search"}));
    assert_eq!(xai.call_id.as_deref(), Some(""), "an empty id is what the wire has");
    let bare = item(&json!({"type": "function_call", "id": 7, "call_id": "call_0", "name": "f"}));
    assert_eq!((bare.id.as_deref(), bare.arguments), (Some("7"), None));
}

#[test]
fn arguments_and_output_are_read_for_every_item_type() {
    let content = |json| {
        let item = item(&json);
        (item.arguments.unwrap_or_default(), item.output)
    };
    assert_eq!(content(json!({"type": "function_call", "arguments": {"a": [1]}})).0, r#"{"a":[1]}"#, "an object in place of a string");
    assert_eq!(content(json!({"type": "custom_tool_call", "input": "SELECT 1"})).0, "SELECT 1");
    assert_eq!(content(json!({"type": "web_search_call", "action": {"type": "search"}})).0, r#"{"type":"search"}"#);
    assert_eq!(content(json!({"type": "code_interpreter_call", "code": "1+1", "outputs": ["2"]})), ("1+1".into(), Some(json!(["2"]))));
    assert_eq!(content(json!({"type": "file_search_call", "queries": ["q"], "results": null})), (r#"["q"]"#.into(), None));
    assert_eq!(content(json!({"type": "tool_search_call", "arguments": {"q": 1}})).0, r#"{"q":1}"#);
    assert_eq!(content(json!({"type": "local_shell_call", "action": {"command": ["ls"]}})).0, r#"{"command":["ls"]}"#);
    assert_eq!(content(json!({"type": "apply_patch_call", "operation": {"type": "x"}})).0, r#"{"type":"x"}"#);
    assert_eq!(content(json!({"type": "mcp_call", "arguments": "{}", "output": "out"})).1, Some(json!("out")));
    assert_eq!(content(json!({"type": "mcp_list_tools", "tools": [{"name": "f"}]})).1, Some(json!([{"name": "f"}])));
    let failed = item(&json!({"type": "mcp_call", "status": "failed", "error": {"type": "http_error", "code": 500}}));
    assert_eq!((failed.status.as_deref(), failed.error), (Some("failed"), Some(json!({"type": "http_error", "code": 500}))));
}

#[test]
fn an_invalid_field_does_not_affect_the_others() {
    let odd = r#"{"type":"response.output_item.done","output_index":"1","item":{"type":"function_call","id":{"odd":1},"call_id":"c","name":[],"arguments":"{}","status":false}}"#;
    let Event::Finished(target, item) = event(odd) else { panic!("an item") };
    assert_eq!((target.index, item.id, item.call_id.as_deref(), item.name), (Some(1), None, Some("c"), None));
    assert!(decode("{\"type\":", None).is_err());
    assert_eq!(text(None), None);
}

#[test]
fn undecodable_values_are_damage() {
    assert_eq!(event(r#"{"type":"response.output_text.delta","output_index":0,"delta":"\ud83d"}"#), Event::Damaged);
    assert_eq!(event(r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"\ud83d"}"#), Event::Damaged);
    assert_eq!(event(r#"{"type":"response.output_item.done","output_index":0,"item":[1]}"#), Event::Damaged);
    assert_eq!(event(r#"{"type":"response.output_item.done","output_index":0}"#), Event::Damaged);
    let lost = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","arguments":"\ud83d"}}"#;
    let Event::Finished(_, item) = event(lost) else { panic!("an item") };
    assert!(item.damaged && item.arguments.is_none());
    assert!(ended(r#"{"type":"response.completed","response":{"output":[3]}}"#).damaged);
}
