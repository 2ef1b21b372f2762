//! The one place that writes to the terminal. A closed pipe (`werkruf … | head`) is no fault of ours.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

/// One line on stdout.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that left is done reading; there is nobody to tell.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Text on stdout as it comes, without a line of its own.
pub(super) fn piece(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Text that only prints: what a model or a person wrote must not steer the terminal.
pub(super) fn harmless(text: &str) -> String {
    text.replace('\t', "    ").chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect()
}

/// One line on stderr.
pub(crate) fn error_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A value on stdout, indented.
pub(super) fn json(value: &Value) {
    line(&format!("{value:#}"));
}

/// Rows under a heading.
pub(super) fn table(heading: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(heading.to_vec());
    for row in rows {
        table.add_row(row);
    }
    line(&table.trim_fmt());
}

/// A field as a person reads it: text bare, nothing as a dash.
pub(super) fn field(value: &Value, name: &str) -> String {
    match value.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
