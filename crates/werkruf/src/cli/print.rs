//! All output to stdout and stderr. A closed pipe (`werkruf … | head`) is not an error.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

/// Prints one line to stdout.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that closed the pipe needs no more output.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints text to stdout without a line break.
pub(super) fn piece(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Removes control characters: text of a model or a user must not control the terminal.
pub(super) fn harmless(text: &str) -> String {
    text.replace('\t', "    ").chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect()
}

/// Prints one line to stderr.
pub(crate) fn error_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a value to stdout as indented JSON.
pub(super) fn json(value: &Value) {
    line(&format!("{value:#}"));
}

/// Prints rows under a heading.
pub(super) fn table(heading: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(heading.to_vec());
    for row in rows {
        table.add_row(row);
    }
    line(&table.trim_fmt());
}

/// The rows in a field of an answer.
pub(super) fn rows<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Prints rows under a heading, or a line where there are none.
pub(super) fn list(rows: &[Value], none: &str, heading: &[&str], cells: impl Fn(&Value) -> Vec<String>) {
    if rows.is_empty() {
        line(none);
    } else {
        table(heading, rows.iter().map(cells).collect());
    }
}

/// A row's fields for display.
pub(super) fn fields(row: &Value, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| field(row, name)).collect()
}

/// A field for display: text without quotes, null as a dash.
pub(super) fn field(value: &Value, name: &str) -> String {
    match value.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
