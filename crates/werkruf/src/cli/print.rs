//! All output to stdout and stderr. A closed pipe (`werkruf … | head`) is not an error.
//!
//! What people read is short: tables fit the terminal, ids are cut to their random end, times are local. `--json` has everything.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use werkruf_contract::Uuid;

use crate::config::{ConfigViolation, Environment};

/// How many characters of an id are shown. Among a million ids, one in 4,000 such ends is not unique.
const SHORT: usize = 8;

/// Narrower tables cannot be read.
const MIN_WIDTH: u16 = 40;

const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// The colours of states, in tables.
const STATES: [(&str, &str); 12] = [
    ("succeeded", GREEN),
    ("approved", GREEN),
    ("intact", GREEN),
    ("failed", RED),
    ("timeout", RED),
    ("denied", RED),
    ("expired", RED),
    ("running", YELLOW),
    ("queued", YELLOW),
    ("pending", YELLOW),
    ("held", YELLOW),
    ("canceled", DIM),
];

/// How this process writes; set once, at its start.
static STYLE: OnceLock<Style> = OnceLock::new();

#[derive(Debug, Clone, Copy, Default)]
struct Style {
    /// Columns of the terminal; `None`: as wide as the content.
    width: Option<u16>,
    /// Whether stdout and stderr may have colours.
    color: (bool, bool),
}

/// Reads how wide and how colourful the output may be. `NO_COLOR` and `TERM=dumb` forbid colours, `COLUMNS` overrides the width.
pub(super) fn set_style(environment: &Environment) {
    let plain = environment.lookup("NO_COLOR").is_some() || environment.lookup("TERM") == Some("dumb");
    let terminal = std::io::stdout().is_terminal();
    let named = environment.lookup("COLUMNS").and_then(|text| text.parse().ok());
    let found = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col).filter(|_| terminal);
    let width = named.or_else(found).filter(|width| *width > 0).map(|width| width.max(MIN_WIDTH));
    let color = (terminal && !plain, std::io::stderr().is_terminal() && !plain);
    let _ = STYLE.set(Style { width, color });
}

fn style() -> Style {
    STYLE.get().copied().unwrap_or_default()
}

/// Columns of the terminal, where there is one.
pub(super) fn width() -> Option<usize> {
    style().width.map(usize::from)
}

fn paint(on: bool, color: &str, text: &str) -> String {
    if on { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_owned() }
}

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

/// Prints an error to stderr.
pub(super) fn error(code: &str, message: &str) {
    error_line(&format!("{} {code}: {}", paint(style().color.1, RED, "error:"), harmless(message)));
}

/// Prints a warning about the configuration to stderr.
pub(super) fn warning(warning: &ConfigViolation, json: bool) {
    let text = || format!("{} {warning}", paint(style().color.1, YELLOW, "warning:"));
    error_line(&if json { json!({"warning": warning}).to_string() } else { text() });
}

/// Prints a value to stdout as indented JSON.
pub(super) fn json(value: &Value) {
    line(&format!("{value:#}"));
}

/// Prints rows under a heading.
pub(super) fn table(heading: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(heading.to_vec());
    let Style { width, color: (color, _) } = style();
    if let Some(width) = width {
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
    }
    for row in rows {
        table.add_row(row);
    }
    for (at, row) in table.trim_fmt().lines().enumerate() {
        line(&if color { painted(at, row) } else { row.to_owned() });
    }
}

/// A line of a table with colours: a dim heading, and the words for states.
fn painted(at: usize, row: &str) -> String {
    if at == 0 {
        return paint(true, DIM, row);
    }
    let words = row.split_inclusive(' ').map(|word| match STATES.iter().find(|(state, _)| *state == word.trim_end()) {
        Some((state, color)) => word.replacen(state, &paint(true, color, state), 1),
        None => word.to_owned(),
    });
    words.collect()
}

/// Prints the fields of an object, one per row; null fields are left out.
pub(super) fn object(value: &Value) {
    let Some(fields) = value.as_object() else { return json(value) };
    let present = fields.iter().filter(|(_, value)| !value.is_null());
    table(&["FIELD", "VALUE"], present.map(|(name, _)| vec![name.clone(), harmless(&field(value, name))]).collect());
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

/// A row's fields for a table: ids short, times local, without control characters.
pub(super) fn fields(row: &Value, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| cell(row, name)).collect()
}

/// A field for a table.
pub(super) fn cell(row: &Value, name: &str) -> String {
    let text = field(row, name);
    match row.get(name).and_then(Value::as_str) {
        Some(id) if Uuid::parse_str(id).is_ok() => short_id(id).to_owned(),
        Some(time) => local_time(time).unwrap_or_else(|| harmless(&text).replace('\n', " ")),
        None => harmless(&text),
    }
}

/// The end of an id, which commands take in place of the id. Ids begin with their time, so ids of one minute begin alike; their end is
/// random.
pub(super) fn short_id(id: &str) -> &str {
    id.len().checked_sub(SHORT).and_then(|start| id.get(start..)).unwrap_or(id)
}

/// A time of the API in the time zone of this machine, to the second.
pub(super) fn local_time(text: &str) -> Option<String> {
    let time: Timestamp = text.parse().ok()?;
    Some(time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// A field for display: text without quotes, null as a dash.
pub(super) fn field(value: &Value, name: &str) -> String {
    match value.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_short_and_cannot_control_the_terminal() {
        let row = json!({"id": "0197f2c4-77aa-7000-8000-0000000000ab", "title": "a\x1b[2J\nb", "user_id": "3", "none": null, "n": 4});
        assert_eq!(fields(&row, &["id", "title", "user_id", "none", "n"]), ["000000ab", "a[2J b", "3", "-", "4"]);
        assert_eq!((short_id("0197f2c4-77aa-7000-8000-0000000000ab"), short_id("ä")), ("000000ab", "ä"));
        let shown = cell(&json!({"at": "2026-11-16T10:00:00.123Z"}), "at");
        assert_eq!((shown.len(), &shown[13..]), (19, ":00:00"), "{shown}");
    }

    #[test]
    fn states_have_colours_and_other_words_have_none() {
        assert_eq!(painted(0, "CALL STATUS"), "\x1b[2mCALL STATUS\x1b[0m");
        assert_eq!(painted(1, " a1  failed   unfailed"), " a1  \x1b[31mfailed\x1b[0m   unfailed");
    }
}
