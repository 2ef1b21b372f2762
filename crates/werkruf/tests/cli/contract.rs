//! `contract`, `wire`, `completions`, `--version`: commands that need no server and no database.

use crate::support::TestFolder;
use serde_json::{Value, json};

const ENVELOPES: [&str; 8] =
    ["ToolContext", "ToolResultMeta", "ToolResult", "ToolErrorMeta", "ToolErrorDetail", "ToolError", "ToolErrorType", "ToolOutput"];

fn context() -> Value {
    json!({
        "tenant_id": "5aa31da6-9278-4da0-9f1a-61b8d3edc5cc", "request_id": "8607a8d9-0f3f-43df-bf86-37e845e1574c", "trace_id": "trace-123",
        "run_id": "graph_run_cfe213", "workflow_id": "retrieval_augmented_generation",
        "invocation_id": "0f4e6712-6d04-4514-b6cb-943b0667d45c", "now_iso": "2024-05-03T12:34:56.123456+00:00",
        "collection_id": "hr-onboarding", "case_id": "crm-7421", "locale": "de-DE", "timeouts_ms": 120_000, "budget_tokens": 4096
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut context = context();
    context[field] = value;
    context
}

/// The exit code, and the paths of the violations.
fn check(folder: &TestFolder, name: &str, value: &Value) -> (i32, Vec<String>) {
    let done = folder.run_with_input(&["contract", "check", name, "-", "--json"], value.to_string());
    let verdict = done.json();
    assert_eq!(verdict["valid"], done.code == 0, "{done:?}");
    let paths = verdict["violations"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect();
    (done.code, paths)
}

#[test]
fn envelopes_are_checked_against_their_rules() {
    let folder = TestFolder::new();
    let wrong = |path: &str| (1, vec![path.to_owned()]);
    assert_eq!(check(&folder, "ToolContext", &context()), (0, vec![]));
    assert_eq!(check(&folder, "ToolContext", &with("unknown_field", json!(1))), (0, vec![]));
    assert_eq!(check(&folder, "ToolContext", &with("ingestion_run_id", json!("ingest_1"))), wrong("/ingestion_run_id"));
    assert_eq!(check(&folder, "ToolContext", &with("run_id", Value::Null)), wrong("/run_id"));
    assert_eq!(check(&folder, "ToolContext", &with("now_iso", json!("2024-05-03T12:34:56"))), wrong("/now_iso"));
    assert_eq!(check(&folder, "ToolContext", &with("timeouts_ms", json!(0))), wrong("/timeouts_ms"));
    assert_eq!(check(&folder, "ToolResultMeta", &json!({"took_ms": -1})), wrong("/took_ms"));
    let ok = json!({"status": "ok", "input": {"query": "hello"}, "data": {"hits": []}, "meta": {"took_ms": 42}});
    assert_eq!(check(&folder, "ToolOutput", &ok), (0, vec![]));
}

#[test]
fn a_check_prints_text_without_json() {
    let folder = TestFolder::new();
    folder.file("context.json", &with("timeouts_ms", json!(0)).to_string());
    let done = folder.run(&["contract", "check", "ToolContext", "context.json"]).exits(1);
    assert!(done.stdout.starts_with("/timeouts_ms: "), "{done:?}");
    let done = folder.run_with_input(&["contract", "check", "ToolContext", "-", "--json"], "{not json").exits(1);
    assert_eq!(done.json()["valid"], false);
    folder.run(&["contract", "check", "ToolContext", "missing.json"]).exits(1);
    folder.run(&["contract", "check", "Nonsense", "context.json"]).exits(2);
}

#[test]
fn schemas_have_examples_that_are_valid() {
    let folder = TestFolder::new();
    let all = folder.run(&["contract", "schema"]).exits(0).json();
    for name in ENVELOPES {
        let schema = folder.run(&["contract", "schema", name]).exits(0).json();
        assert_eq!(schema, all[name]);
        for example in schema["examples"].as_array().into_iter().flatten() {
            assert_eq!(check(&folder, name, example), (0, vec![]), "{name}");
        }
        assert!(name == "ToolErrorType" || schema["examples"].as_array().is_some_and(|all| !all.is_empty()), "{name}");
    }
}

#[test]
fn a_recorded_stream_is_inspected_whole_and_in_single_bytes() {
    let folder = TestFolder::new();
    let chunk = json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "Grüße"}, "finish_reason": null}]});
    let end = json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    folder.file("stream.sse", &format!("data: {chunk}\n\ndata: {end}\n\ndata: [DONE]\n\n"));
    let whole = folder.run(&["wire", "inspect", "--api", "chat", "--json", "stream.sse"]).exits(0).json();
    let bytes = folder.run(&["wire", "inspect", "--api", "chat", "--chunk", "1", "--json", "stream.sse"]).exits(0).json();
    assert_eq!(
        (whole["text"].as_str(), whole["finish"].as_str(), whole["executable"].as_bool()),
        (Some("Grüße"), Some("stop"), Some(true))
    );
    assert_eq!(whole, bytes);
}

#[test]
fn a_recorded_response_is_inspected_with_what_the_provider_ran() {
    let folder = TestFolder::new();
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tea"}});
    let call =
        json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{\"a\":1}", "status": "completed"});
    let end = json!({"type": "response.completed", "response": {"status": "completed", "output": [search, call]}});
    folder.file("stream.sse", &format!("event: response.completed\ndata: {end}\n\n"));
    let inspect = |more: &[&str]| folder.run(&[&["wire", "inspect", "--api", "responses", "stream.sse"], more].concat()).exits(0);
    let decoded = inspect(&["--json"]).json();
    assert_eq!(decoded, inspect(&["--json", "--chunk", "1"]).json());
    assert_eq!((&decoded["finish"], &decoded["executable"]), (&json!("completed"), &json!(true)));
    let ids = |at: usize| (decoded["tool_calls"][at]["kind"].as_str(), decoded["tool_calls"][at]["call_id"].as_str());
    assert_eq!((ids(0), ids(1)), ((Some("web_search_call"), None), (Some("function_call"), Some("call_1"))));
    assert!(inspect(&[]).stdout.contains("web_search_call"));
}

#[test]
fn the_version_is_printed() {
    let folder = TestFolder::new();
    let version = folder.run(&["--version", "--json"]).exits(0).json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["commit"].is_string() && version["console"].is_boolean(), "{version}");
    assert!(folder.run(&["--version"]).exits(0).stdout.starts_with("werkruf "));
}

#[test]
fn shell_completions_are_printed() {
    let folder = TestFolder::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(folder.run(&["completions", shell]).exits(0).stdout.contains("explain"), "{shell}");
    }
    folder.run(&["completions", "abacus"]).exits(2);
}

#[test]
fn usage_errors_exit_2() {
    let folder = TestFolder::new();
    folder.run(&[]).exits(2);
    folder.run(&["sing"]).exits(2);
    folder.run(&["calls", "list", "--status", "lost"]).exits(2);
    folder.run(&["keys", "create", "--scopes", "everything"]).exits(2);
    folder.run(&["explain", "not-an-id"]).exits(2);
    folder.run(&["tools", "list", "--server", "http://127.0.0.1:1"]).exits(2);
    assert!(folder.run(&["calls", "retry", "--help"]).exits(0).stdout.contains("Examples:"));
}
