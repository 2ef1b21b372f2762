//! Recorded streams of real providers give their known facts. The recordings live outside the repository.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use serde_json::Value;
use werkruf_llm::{WireApi, inspect};

fn same_arguments(got: &Value, want: &Value) -> bool {
    let json = |text: &Value| serde_json::from_str::<Value>(text.as_str().filter(|text| !text.is_empty()).unwrap_or("{}"));
    got == want || matches!((json(got), json(want)), (Ok(got), Ok(want)) if got == want)
}

fn differences(got: &Value, fact: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let mut compare = |what: &str, got: &Value, want: &Value| {
        if got != want {
            out.push(format!("{what}: {got} instead of {want}"));
        }
    };
    let text = |value: &Value| Value::from(value.as_str().unwrap_or_default());
    compare("text", &text(&got["text"]), &text(&fact["final_text"]));
    compare("refusal", &text(&got["refusal"]), &text(&fact["refusal"]));
    compare("finish", &got["finish"], &fact["finish_reason"]);
    let (have, want) = (got["tool_calls"].as_array().unwrap(), fact["tool_calls"].as_array().unwrap());
    compare("calls", &have.len().into(), &want.len().into());
    for (have, want) in have.iter().zip(want) {
        compare("kind", &have["kind"], &"function_call".into());
        compare("position", &have["output_index"], &want["position"]);
        compare("name", &have["name"], &want["name"]);
        match want["id"].as_str().unwrap_or_default() {
            "" => compare("made-up id", &have["call_id"].as_str().unwrap_or_default().is_empty().into(), &false.into()),
            id => compare("call id", &have["call_id"], &id.into()),
        }
        compare("arguments", &same_arguments(&have["arguments"], &want["arguments"]).into(), &true.into());
    }
    for (ours, theirs) in [("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"), ("total_tokens", "total_tokens")] {
        if let Some(tokens) = fact["usage"].get(theirs).filter(|tokens| !tokens.is_null()) {
            compare(ours, &got["usage"][ours], tokens);
        }
    }
    let forbidden = fact["must_not_execute_tools"] == true;
    if forbidden || !want.is_empty() {
        compare("executable", &got["executable"], &(!forbidden).into());
    }
    compare("errors told", &(got["errors"].as_array().unwrap().is_empty()).into(), &(fact["errors"].as_array().unwrap().is_empty()).into());
    out
}

#[test]
fn recorded_chat_streams_match_their_facts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/wire");
    let Ok(index) = std::fs::read_to_string(folder.join("index.json")) else {
        println!("no recordings at {}: nothing compared", folder.display());
        return;
    };
    let index: Value = serde_json::from_str(&index).unwrap();
    let mut failed = Vec::new();
    let mut compared = 0;
    for entry in index["entries"].as_array().unwrap() {
        let (file, fact) = (entry["file"].as_str().unwrap(), &entry["expected"]);
        if !file.starts_with("streams/") || fact["api"] == "responses" {
            continue;
        }
        let bytes = std::fs::read(folder.join(file)).unwrap();
        let whole = inspect(WireApi::Chat, &bytes, 0).unwrap();
        failed.extend(differences(&whole, fact).into_iter().map(|difference| format!("{file}: {difference}")));
        for chunk in [1, 7, 1024] {
            assert_eq!(inspect(WireApi::Chat, &bytes, chunk).unwrap(), whole, "{file} in pieces of {chunk}");
        }
        compared += 1;
    }
    println!("{compared} recorded chat streams compared");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
