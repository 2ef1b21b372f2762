//! Formats a conversation for reading: the messages in order, with tool calls and their results.

use serde_json::Value;

use crate::cli::print;

/// Longer results are cut; `explain` shows them whole.
const RESULT_CHARS: usize = 300;

/// Plain text, for a terminal.
pub(super) fn plain(conversation: &Value, messages: &[Value]) -> String {
    let mut lines = vec![heading(conversation)];
    for message in messages {
        let content = text(message, "content");
        if message["role"] == "tool" {
            lines.push(format!("  {} {} {}", mark(message), text(message, "tool_name"), cut(content)));
            continue;
        }
        lines.push(String::new());
        lines.push(format!("{} {}", time(message, "created_at"), text(message, "role")));
        lines.extend(content.lines().map(|line| format!("  {line}")));
        lines.extend(calls(message).map(|call| format!("  ⚙ {} {}", text(call, "name"), call["args"])));
    }
    lines.join("\n")
}

/// Markdown, for a file.
pub(super) fn markdown(conversation: &Value, messages: &[Value]) -> String {
    let title = text(conversation, "title").replace('\n', " ");
    let mut out = format!("# {title}\n\n{}\n", heading(conversation));
    for message in messages {
        let content = text(message, "content");
        if message["role"] == "tool" {
            out.push_str(&format!("\n{} `{}`\n\n{}\n", mark(message), text(message, "tool_name"), fenced(content)));
            continue;
        }
        out.push_str(&format!("\n## {} · {}\n", text(message, "role"), time(message, "created_at")));
        if !content.is_empty() {
            out.push_str(&format!("\n{content}\n"));
        }
        for call in calls(message) {
            out.push_str(&format!("\n⚙ `{}`\n\n{}\n", text(call, "name"), fenced(&format!("{:#}", call["args"]))));
        }
    }
    out
}

fn heading(conversation: &Value) -> String {
    let field = |name| print::field(conversation, name);
    format!(
        "{} · user {} · {} · {} · {}",
        field("id"),
        field("user_id"),
        field("channel"),
        field("assistant"),
        time(conversation, "created_at")
    )
}

fn calls(message: &Value) -> impl Iterator<Item = &Value> {
    message["tool_calls"].as_array().into_iter().flatten()
}

fn mark(message: &Value) -> &'static str {
    match message["status"].as_str() {
        Some("success") => "✓",
        Some("error") => "✗",
        Some(_) | None => "…",
    }
}

/// A code block with a fence that does not occur in the text.
fn fenced(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}\n{text}\n{fence}")
}

fn cut(text: &str) -> String {
    let flat = text.replace('\n', " ");
    match flat.char_indices().nth(RESULT_CHARS) {
        Some((at, _)) => format!("{}… ({} characters more)", &flat[..at], flat[at..].chars().count()),
        None => flat,
    }
}

/// A time to the second.
fn time(row: &Value, field: &str) -> String {
    text(row, field).get(..19).map(|time| time.replace('T', " ")).unwrap_or_default()
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> (Value, Vec<Value>) {
        let conversation = json!({"id": "0197", "user_id": "1", "channel": "web", "assistant": "default", "title": "wo ist\nA-7?",
            "created_at": "2026-11-15T08:00:00.000Z"});
        let at = "2026-11-15T08:00:01.123Z";
        let messages = vec![
            json!({"role": "user", "content": "wo ist\nA-7?", "created_at": at}),
            json!({"role": "assistant", "content": "", "created_at": at, "tool_calls": [{"id": "c", "name": "find", "args": {"n": 7}}]}),
            json!({"role": "tool", "content": "a ``` b", "created_at": at, "tool_name": "find", "status": "error"}),
            json!({"role": "assistant", "content": "Hier.", "created_at": at, "tool_calls": null}),
        ];
        (conversation, messages)
    }

    #[test]
    fn calls_and_results_are_shown_in_order() {
        let (conversation, messages) = example();
        let expected = "0197 · user 1 · web · default · 2026-11-15 08:00:00\n\n2026-11-15 08:00:01 user\n  wo ist\n  A-7?\n\n\
            2026-11-15 08:00:01 assistant\n  ⚙ find {\"n\":7}\n  ✗ find a ``` b\n\n2026-11-15 08:00:01 assistant\n  Hier.";
        assert_eq!(plain(&conversation, &messages), expected);
    }

    #[test]
    fn markdown_is_not_broken_by_its_contents() {
        let (conversation, messages) = example();
        let text = markdown(&conversation, &messages);
        assert!(text.starts_with("# wo ist A-7?\n\n0197 · user 1"), "{text}");
        assert!(text.contains("## assistant · 2026-11-15 08:00:01\n\n⚙ `find`\n\n```\n{\n  \"n\": 7\n}\n```\n"), "{text}");
        assert!(text.contains("✗ `find`\n\n````\na ``` b\n````\n"), "{text}");
    }

    #[test]
    fn a_long_result_is_cut_between_letters() {
        let cut = cut(&"ö".repeat(305));
        assert!(cut.ends_with("ö… (5 characters more)"), "{cut}");
    }
}
