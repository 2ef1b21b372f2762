//! A provider's export: CSV with a heading, or JSON lines.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::error::CliError;

/// One request in the export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Timestamp,
    pub(super) request_id: Option<String>,
    pub(super) model: String,
    /// Input, cached and output tokens.
    pub(super) tokens: [i64; 3],
    /// `None` where the export has no cost.
    pub(super) cost_nano_usd: Option<i64>,
}

#[derive(Deserialize)]
struct Line {
    timestamp: Value,
    #[serde(default)]
    request_id: Option<String>,
    model: String,
    input_tokens: Value,
    #[serde(default)]
    cached_tokens: Value,
    output_tokens: Value,
    #[serde(default)]
    cost_usd: Value,
}

/// Reads a whole export. JSON lines begin with `{`.
pub(super) fn read(text: &str) -> Result<Vec<Entry>, CliError> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        return lines
            .map(|(at, line)| {
                serde_json::from_str(line).map_err(|error| error.to_string()).and_then(entry).map_err(|error| unreadable(at + 1, &error))
            })
            .collect();
    }
    let mut records = records(text).into_iter();
    let heading = records.next().unwrap_or_default();
    let filled = records.enumerate().filter(|(_, record)| record.iter().any(|cell| !cell.is_empty()));
    filled.map(|(at, record)| row(&heading, record).and_then(entry).map_err(|error| unreadable(at + 2, &error))).collect()
}

/// A record under its heading; an empty cell is left out.
fn row(heading: &[String], record: Vec<String>) -> Result<Line, String> {
    let cells = heading.iter().cloned().zip(record).filter(|(_, cell)| !cell.is_empty());
    let fields = cells.map(|(name, cell)| (name, Value::String(cell))).collect();
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

/// The records of a CSV text (RFC 4180), cells without white space around them. The server has no parser of files, so this is its own.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut cell).trim().to_owned()),
            '\n' if !quoted => {
                record.push(std::mem::take(&mut cell).trim().to_owned());
                records.push(std::mem::take(&mut record));
            }
            other => cell.push(other),
        }
    }
    if !record.is_empty() || !cell.is_empty() {
        record.push(cell.trim().to_owned());
        records.push(record);
    }
    records
}

fn unreadable(line: usize, message: &str) -> CliError {
    CliError::refused("unreadable", format!("line {line} of the export: {message}"))
}

fn entry(line: Line) -> Result<Entry, String> {
    let count = |name: &str, value: &Value| match text(value) {
        None => Ok(0),
        Some(text) => text.parse::<i64>().ok().filter(|count| *count >= 0).ok_or_else(|| format!("{name} is no number of tokens: {text}")),
    };
    Ok(Entry {
        at: time(&line.timestamp)?,
        request_id: line.request_id.filter(|id| !id.is_empty()),
        model: line.model,
        tokens: [
            count("input_tokens", &line.input_tokens)?,
            count("cached_tokens", &line.cached_tokens)?,
            count("output_tokens", &line.output_tokens)?,
        ],
        cost_nano_usd: text(&line.cost_usd).map(|text| nano(&text).ok_or_else(|| format!("cost_usd is no amount: {text}"))).transpose()?,
    })
}

/// A number or a text as text; nothing for null and an empty cell.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        other => Some(other.to_string()),
    }
}

/// RFC 3339, or seconds since 1970.
fn time(value: &Value) -> Result<Timestamp, String> {
    let text = text(value).unwrap_or_default();
    let seconds = || text.parse::<i64>().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    text.parse().ok().or_else(seconds).ok_or_else(|| format!("timestamp takes a time with its offset, or seconds since 1970, not {text:?}"))
}

/// Dollars in nano-dollars, rounded.
fn nano(text: &str) -> Option<i64> {
    let dollars: f64 = text.parse().ok()?;
    // Formatting rounds, and refuses what does not fit.
    format!("{:.0}", dollars * 1e9).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let csv = "timestamp,request_id,model,input_tokens,cached_tokens,output_tokens,cost_usd\n2026-11-16T10:00:00Z,r1,gpt-5,750,0,150,0.0024375\n1763287200,,\"gpt-5\",1,,2,\r\n";
        let first = Entry {
            at: "2026-11-16T10:00:00Z".parse().unwrap(),
            request_id: Some("r1".to_owned()),
            model: "gpt-5".to_owned(),
            tokens: [750, 0, 150],
            cost_nano_usd: Some(2_437_500),
        };
        let second = Entry {
            at: Timestamp::from_second(1_763_287_200).unwrap(),
            request_id: None,
            tokens: [1, 0, 2],
            cost_nano_usd: None,
            ..first.clone()
        };
        assert_eq!(read(csv).unwrap(), [first.clone(), second.clone()]);
        let json = "{\"timestamp\": \"2026-11-16T10:00:00Z\", \"request_id\": \"r1\", \"model\": \"gpt-5\", \"input_tokens\": 750, \"cached_tokens\": 0, \"output_tokens\": 150, \"cost_usd\": 2.4375e-3}\n\n{\"timestamp\": 1763287200, \"model\": \"gpt-5\", \"input_tokens\": 1, \"output_tokens\": 2}\n";
        assert_eq!(read(json).unwrap(), [first, second]);
        for wrong in
            ["timestamp,model\n1,m\n", "{\"timestamp\": \"noon\", \"model\": \"m\", \"input_tokens\": 1, \"output_tokens\": 2}", "{}"]
        {
            assert!(read(wrong).unwrap_err().into_message().starts_with("line "), "{wrong}");
        }
    }
}
