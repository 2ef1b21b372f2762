//! `werkruf explain CALL`: the story of one call, from the message to the outcome.

use std::process::ExitCode;

use serde_json::Value;

use super::backend::Backend;
use super::{Outcome, Session, ids, print};

pub(super) async fn run(session: &Session, typed: &str) -> Outcome {
    let place = ids::call_path(typed)?;
    let backend = Backend::open(session).await?;
    let told = backend.get(&format!("{place}/explain")).await;
    backend.close().await;
    let told = told?;
    if session.globals.json {
        print::json(&told);
    } else {
        story(&told).iter().for_each(|line| print::line(line));
    }
    Ok(ExitCode::SUCCESS)
}

/// The chapters in the order things happened; a chapter about nothing is left out.
fn story(told: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    message(&mut lines, "The message", &told["message"]);
    message(&mut lines, "The model answered", &told["model_answer"]);
    chapter(&mut lines, "Arguments as the model sent them", &told["raw_arguments"]);
    list(&mut lines, "Repairs", &told["repairs"]);
    chapter(&mut lines, "Arguments as run", &told["arguments"]);
    chapter(&mut lines, "Permission", &told["permission"]);
    chapter(&mut lines, "Approval", &told["approval"]);
    list(&mut lines, "Attempts", &told["attempts"]);
    chapter(&mut lines, "Outcome", &told["outcome"]);
    list(&mut lines, "Events", &told["events"]);
    lines
}

/// What was said, and the calls asked for with it.
fn message(lines: &mut Vec<String>, title: &str, told: &Value) {
    if told.is_null() {
        return;
    }
    lines.push(title.to_owned());
    lines.extend(told["content"].as_str().unwrap_or_default().lines().map(|line| format!("  {line}")));
    for call in told["tool_calls"].as_array().into_iter().flatten() {
        lines.push(format!("  calls {} with {}", plain(&call["name"]), plain(&call["args"])));
    }
}

fn chapter(lines: &mut Vec<String>, title: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(fields) if fields.values().all(Value::is_null) => {}
        Value::Object(fields) => {
            lines.push(title.to_owned());
            lines.extend(fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| format!("  {name}: {}", plain(value))));
        }
        other => {
            lines.push(title.to_owned());
            lines.extend(plain(other).lines().map(|line| format!("  {line}")));
        }
    }
}

fn list(lines: &mut Vec<String>, title: &str, value: &Value) {
    let Some(items) = value.as_array().filter(|items| !items.is_empty()) else { return };
    lines.push(title.to_owned());
    lines.extend(items.iter().map(|item| format!("  - {}", one_line(item))));
}

/// `name: value` pairs on one line, without what is null.
fn one_line(item: &Value) -> String {
    match item.as_object() {
        Some(fields) => {
            let told: Vec<String> =
                fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| format!("{name} {}", plain(value))).collect();
            told.join(", ")
        }
        None => plain(item),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tells_what_happened_in_order_and_nothing_empty() {
        let told = json!({
            "message": {"role": "user", "content": "wo ist A-7?"},
            "model_answer": {"content": "", "tool_calls": [{"id": "call_1", "name": "find", "args": {"n": "7"}}]}, "raw_arguments": "{\"n\":\"7\"}",
            "repairs": [{"path": "/n", "from": "7", "to": 7, "rule": "integer"}], "arguments": {"n": 7}, "permission": null,
            "attempts": [{"attempt": 1, "status": "failed", "error": null}], "outcome": {"status": "failed"}, "events": [],
        });
        let lines = story(&told).join("\n");
        assert!(lines.starts_with("The message\n  wo ist A-7?\nThe model answered\n  calls find with {\"n\":\"7\"}\n"), "{lines}");
        assert!(lines.contains("Repairs\n  - path /n, from 7, to 7, rule integer\nArguments as run\n  n: 7"), "{lines}");
        assert!(lines.contains("Attempts\n  - attempt 1, status failed\nOutcome\n  status: failed"), "{lines}");
        assert!(!lines.contains("Permission") && !lines.contains("Events") && !lines.contains("null"), "{lines}");
    }
}
