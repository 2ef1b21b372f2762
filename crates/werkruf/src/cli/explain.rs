//! `werkruf explain CALL`: everything recorded about one call, from the message to the outcome.

use serde_json::Value;

use super::backend::Backend;
use super::{Outcome, Session, ids, print};

pub(super) async fn run(session: &Session, typed: &str) -> Outcome {
    let path = ids::call_path(typed)?;
    Backend::run(session, async |backend| {
        let explanation = backend.get(&format!("{path}/explain")).await?;
        if session.globals.json {
            print::json(&explanation);
        } else {
            report(&explanation).iter().for_each(|line| print::line(line));
        }
        Ok(())
    })
    .await
}

/// One section per stage of the call, in order; empty sections are left out.
fn report(explanation: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    message(&mut lines, "The message", &explanation["message"]);
    message(&mut lines, "The model answered", &explanation["model_answer"]);
    section(&mut lines, "Run by", &explanation["runner"]);
    section(&mut lines, "Arguments as the model sent them", &explanation["raw_arguments"]);
    list(&mut lines, "Repairs", &explanation["repairs"]);
    section(&mut lines, "Arguments as run", &explanation["arguments"]);
    section(&mut lines, "Permission", &explanation["permission"]);
    list(&mut lines, "Untrusted content read before", &explanation["taint"]);
    section(&mut lines, "Approval", &explanation["approval"]);
    list(&mut lines, "Attempts", &explanation["attempts"]);
    section(&mut lines, "Outcome", &explanation["outcome"]);
    list(&mut lines, "Events", &explanation["events"]);
    lines
}

/// A message and the tool calls it requests.
fn message(lines: &mut Vec<String>, title: &str, message: &Value) {
    if message.is_null() {
        return;
    }
    lines.push(title.to_owned());
    lines.extend(message["content"].as_str().unwrap_or_default().lines().map(|line| format!("  {line}")));
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        lines.push(format!("  calls {} with {}", plain(&call["name"]), plain(&call["args"])));
    }
}

fn section(lines: &mut Vec<String>, title: &str, value: &Value) {
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

/// `name value` pairs on one line, without null values.
fn one_line(item: &Value) -> String {
    match item.as_object() {
        Some(fields) => {
            let pairs: Vec<String> =
                fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| format!("{name} {}", plain(value))).collect();
            pairs.join(", ")
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
    fn sections_are_in_order_and_never_empty() {
        let explanation = json!({
            "message": {"role": "user", "content": "wo ist A-7?"},
            "model_answer": {"content": "", "tool_calls": [{"id": "call_1", "name": "find", "args": {"n": "7"}}]}, "raw_arguments": "{\"n\":\"7\"}",
            "repairs": [{"path": "/n", "from": "7", "to": 7, "rule": "integer"}], "arguments": {"n": 7}, "permission": null,
            "taint": [{"tool": "web", "job_id": "j1"}],
            "attempts": [{"attempt": 1, "status": "failed", "error": null}], "outcome": {"status": "failed"}, "events": [],
        });
        let lines = report(&explanation).join("\n");
        assert!(lines.starts_with("The message\n  wo ist A-7?\nThe model answered\n  calls find with {\"n\":\"7\"}\n"), "{lines}");
        assert!(lines.contains("Repairs\n  - path /n, from 7, to 7, rule integer\nArguments as run\n  n: 7"), "{lines}");
        assert!(lines.contains("Untrusted content read before\n  - tool web, job_id j1\nAttempts"), "{lines}");
        assert!(lines.contains("Attempts\n  - attempt 1, status failed\nOutcome\n  status: failed"), "{lines}");
        assert!(!lines.contains("Permission") && !lines.contains("Events") && !lines.contains("null"), "{lines}");
    }
}
