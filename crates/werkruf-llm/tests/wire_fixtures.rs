//! Recorded streams are decoded as expected: those of the project's own corpus, and recordings of real providers if they are beside the checkout.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

use std::path::Path;

use serde_json::Value;
use werkruf_llm::{WireApi, inspect};

fn same_arguments(got: &Value, want: &Value) -> bool {
    let json = |text: &Value| serde_json::from_str::<Value>(text.as_str().filter(|text| !text.is_empty()).unwrap_or("{}"));
    got == want || matches!((json(got), json(want)), (Ok(got), Ok(want)) if got == want)
}

/// The differences, one line each.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare(&mut self, what: &str, got: &Value, want: &Value) {
        if got != want {
            self.0.push(format!("{what}: {got} instead of {want}"));
        }
    }

    fn common(&mut self, got: &Value, fact: &Value, usage: [(&str, &str); 3]) {
        let text = |value: &Value| Value::from(value.as_str().unwrap_or_default());
        self.compare("text", &text(&got["text"]), &text(&fact["final_text"]));
        self.compare("refusal", &text(&got["refusal"]), &text(&fact["refusal"]));
        for (ours, theirs) in usage {
            if let Some(tokens) = fact["usage"].get(theirs).filter(|tokens| !tokens.is_null()) {
                self.compare(ours, &got["usage"][ours], tokens);
            }
        }
    }
}

fn chat(got: &Value, fact: &Value) -> Vec<String> {
    let mut out = Differences::default();
    out.common(got, fact, [("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"), ("total_tokens", "total_tokens")]);
    out.compare("finish", &got["finish"], &fact["finish_reason"]);
    let (have, want) = (got["tool_calls"].as_array().unwrap(), fact["tool_calls"].as_array().unwrap());
    out.compare("calls", &have.len().into(), &want.len().into());
    for (have, want) in have.iter().zip(want) {
        out.compare("kind", &have["kind"], &"function_call".into());
        out.compare("position", &have["output_index"], &want["position"]);
        out.compare("name", &have["name"], &want["name"]);
        match want["id"].as_str().unwrap_or_default() {
            "" => out.compare("made-up id", &have["call_id"].as_str().unwrap_or_default().is_empty().into(), &false.into()),
            id => out.compare("call id", &have["call_id"], &id.into()),
        }
        out.compare("arguments", &same_arguments(&have["arguments"], &want["arguments"]).into(), &true.into());
    }
    let forbidden = fact["must_not_execute_tools"] == true;
    if forbidden || !want.is_empty() {
        out.compare("executable", &got["executable"], &(!forbidden).into());
    }
    let no_errors = |value: &Value| Value::from(value.as_array().unwrap().is_empty());
    out.compare("errors reported", &no_errors(&got["errors"]), &no_errors(&fact["errors"]));
    out.0
}

/// Compares all tool calls, both those that the server runs and those that the provider ran.
fn responses(got: &Value, fact: &Value) -> Vec<String> {
    let mut out = Differences::default();
    out.common(got, fact, [("input_tokens", "input_tokens"), ("output_tokens", "output_tokens"), ("total_tokens", "total_tokens")]);
    out.compare("finish", &got["finish"], &fact["status"]);
    let want: Vec<&Value> = fact["tool_calls"].as_array().unwrap().iter().collect();
    let kinds: Vec<&Value> = want.iter().map(|call| &call["type"]).collect();
    let have: Vec<&Value> = got["tool_calls"].as_array().unwrap().iter().filter(|call| kinds.contains(&&call["kind"])).collect();
    out.compare("calls", &have.len().into(), &want.len().into());
    for (have, want) in have.into_iter().zip(want) {
        for (ours, theirs) in [("kind", "type"), ("item_id", "item_id"), ("call_id", "call_id"), ("output_index", "output_index")] {
            out.compare(ours, &have[ours], &want[theirs]);
        }
        for name in ["name", "status", "error"] {
            out.compare(name, &have[name], &want[name]);
        }
        // The expected outputs of other item types have another format.
        if want["type"] == "mcp_call" {
            out.compare("output", &have["output"], &want["output"]);
        }
        let expected = if want["arguments"].is_string() { &want["arguments"] } else { &want["input"] };
        if expected.is_string() {
            out.compare("arguments", &same_arguments(&have["arguments"], expected).into(), &true.into());
        }
    }
    out.compare("executable", &got["executable"], &(fact["must_not_execute_tools"] != true).into());
    let failed = !fact["error"].is_null() || !fact["error_events"].as_array().unwrap().is_empty();
    if failed {
        out.compare("errors reported", &got["errors"].as_array().unwrap().is_empty().into(), &false.into());
    }
    out.0
}

/// Compares the recordings of a folder; returns how many there are.
fn replay(folder: &Path, api: WireApi, differences: impl Fn(&Value, &Value) -> Vec<String>) -> usize {
    let index: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("index.json")).unwrap()).unwrap();
    let mut failed = Vec::new();
    let mut compared = 0;
    for entry in index["entries"].as_array().unwrap() {
        let (file, fact) = (entry["file"].as_str().unwrap(), &entry["expected"]);
        if !file.starts_with("streams/") || (fact["api"] == "responses") != (api == WireApi::Responses) {
            continue;
        }
        let bytes = std::fs::read(folder.join(file)).unwrap();
        let whole = inspect(api, &bytes, 0);
        failed.extend(differences(&whole, fact).into_iter().map(|difference| format!("{file}: {difference}")));
        for chunk in [1, 7, 1024] {
            assert_eq!(inspect(api, &bytes, chunk), whole, "{file} in pieces of {chunk}");
        }
        compared += 1;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    compared
}

/// Compares the project's corpus, and the recordings beside the checkout.
fn replay_all(api: WireApi, own: usize, differences: impl Fn(&Value, &Value) -> Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(replay(&root.join("tests/corpus/wire"), api, &differences), own);
    let beside = root.join("../shared/fixtures/wire");
    if beside.join("index.json").exists() {
        println!("{} streams beside the checkout compared", replay(&beside, api, &differences));
    }
}

#[test]
fn recorded_chat_streams_are_decoded_as_expected() {
    replay_all(WireApi::Chat, 19, chat);
}

#[test]
fn recorded_responses_streams_are_decoded_as_expected() {
    replay_all(WireApi::Responses, 15, responses);
}

/// A comparison that finds nothing proves nothing: a wrong fact is reported.
#[test]
fn a_wrong_fact_is_reported() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/wire");
    let bytes = std::fs::read(root.join("streams/chat-one-call.sse")).unwrap();
    let fact =
        serde_json::json!({"final_text": "no", "finish_reason": "stop", "tool_calls": [], "errors": [], "usage": {"prompt_tokens": 1}});
    assert_eq!(chat(&inspect(WireApi::Chat, &bytes, 0), &fact).len(), 4);
}
