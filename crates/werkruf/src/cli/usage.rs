//! `werkruf usage`: what the requests to model providers used and cost; and the comparison with a provider's export.

mod export;
mod reconcile;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::backend::Backend;
use super::{Outcome, Session, encode, print};

const GROUPS: [&str; 5] = ["day", "month", "model", "tool", "user"];
const NUMBERS: [&str; 9] = [
    "calls",
    "tokens_prompt",
    "tokens_cached",
    "tokens_completion",
    "tokens_reasoning",
    "tokens_total",
    "cost_nano_usd",
    "unpriced_calls",
    "estimated_calls",
];
/// Terminals at least this wide show all kinds of tokens.
const WIDE: usize = 100;
const LONGEST_BAR: usize = 30;
const SHORTEST_BAR: usize = 4;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  werkruf usage                                   the last 30 days\n  werkruf usage --by model --from 2026-11-01 --to 2026-12-01\n  \
                  werkruf usage --by user --csv > usage.csv\n  werkruf usage reconcile export.csv"
)]
pub(super) struct Command {
    #[command(subcommand)]
    action: Option<Action>,
    /// What a row stands for
    #[arg(long, value_name = "GROUP", default_value = "day", value_parser = GROUPS)]
    by: String,
    #[command(flatten)]
    span: Span,
    /// Print as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(Debug, Args)]
struct Span {
    /// First day, or a time with its offset (UTC)
    #[arg(long, value_name = "DAY")]
    from: Option<String>,
    /// The day or time after the last one
    #[arg(long, value_name = "DAY")]
    to: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Compare with a provider's export, by request id, else by model and minute; exit code 1 at any difference
    #[command(
        after_help = "The file: CSV with a heading, or JSON lines, with timestamp, request_id (may be absent), model, input_tokens, cached_tokens, output_tokens, \
                      cost_usd.\nWithout --from and --to it covers the whole days (UTC) of its rows.\n\nExamples:\n  werkruf usage reconcile export.csv\n  \
                      werkruf usage reconcile november.jsonl --from 2026-11-01 --to 2026-12-01 --json"
    )]
    Reconcile {
        /// The export; - reads stdin
        file: String,
        #[command(flatten)]
        span: Span,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    match command.action {
        Some(Action::Reconcile { file, span }) => reconcile::run(session, &file, &span).await,
        None => {
            let backend = Backend::open(session).await?;
            let answer = backend.get(&format!("/api/usage?group_by={}{}", command.by, command.span.query())).await;
            backend.close().await;
            show(&answer?, session.globals.json, command.csv);
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Span {
    fn query(&self) -> String {
        let named = [("from", &self.from), ("to", &self.to)];
        named.iter().filter_map(|(name, value)| value.as_ref().map(|value| format!("&{name}={}", encode(value)))).collect()
    }
}

fn show(answer: &Value, json: bool, csv: bool) {
    let rows = print::rows(answer, "rows");
    if json {
        print::json(answer);
    } else if csv {
        print::piece(&comma_separated(rows));
    } else if rows.is_empty() {
        print::line("No requests in this time.");
    } else {
        table(answer, rows);
    }
}

fn comma_separated(rows: &[Value]) -> String {
    let mut out = format!("key,{}\n", NUMBERS.join(","));
    for row in rows {
        let key = row["key"].as_str().unwrap_or_default();
        let key = if key.contains([',', '"', '\n', '\r']) { format!("\"{}\"", key.replace('"', "\"\"")) } else { key.to_owned() };
        let numbers = NUMBERS.map(|name| row[name].to_string()).join(",");
        out.push_str(&format!("{key},{numbers}\n"));
    }
    out
}

fn table(answer: &Value, rows: &[Value]) {
    let width = print::width();
    let names: &[(&str, &str)] = if width.is_none_or(|width| width >= WIDE) {
        &[("CALLS", "calls"), ("PROMPT", "tokens_prompt"), ("CACHED", "tokens_cached"), ("COMPLETION", "tokens_completion")]
    } else {
        &[("CALLS", "calls"), ("TOKENS", "tokens_total")]
    };
    let by = answer["group_by"].as_str().unwrap_or_default().to_uppercase();
    let mut heading = vec![by.as_str()];
    heading.extend(names.iter().map(|(title, _)| *title));
    heading.push("USD");
    let cells = |key: String, row: &Value| {
        let mut cells = vec![key];
        cells.extend(names.iter().map(|(_, name)| row[*name].to_string()));
        cells.push(usd(number(row, "cost_nano_usd")));
        cells
    };
    let mut lines: Vec<Vec<String>> = rows.iter().map(|row| cells(print::cell(row, "key"), row)).collect();
    lines.push(cells("total".to_owned(), &answer["total"]));
    // Where nothing has a price, the bars show tokens.
    let measure = if number(&answer["total"], "cost_nano_usd") > 0 { "cost_nano_usd" } else { "tokens_total" };
    if let Some(longest) = bar_width(width, &heading, &lines) {
        let most = rows.iter().map(|row| number(row, measure)).max().unwrap_or(0);
        heading.push("");
        for (line, row) in lines.iter_mut().zip(rows) {
            line.push(bar(number(row, measure), most, longest));
        }
    }
    print::table(&heading, lines);
    for (name, text) in [("unpriced_calls", "without a price, not in the cost"), ("estimated_calls", "with estimated tokens")] {
        let calls = number(&answer["total"], name);
        if calls > 0 {
            print::line(&format!("{calls} {} {text}", if calls == 1 { "call" } else { "calls" }));
        }
    }
}

/// What the other columns leave for bars; `None` where that is too little.
fn bar_width(width: Option<usize>, heading: &[&str], lines: &[Vec<String>]) -> Option<usize> {
    let column = |at: usize, title: &str| {
        let cells = lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(title.chars().count()) + 2
    };
    let taken: usize = heading.iter().enumerate().map(|(at, title)| column(at, title)).sum();
    let left = width.map_or(LONGEST_BAR, |width| width.saturating_sub(taken + 2)).min(LONGEST_BAR);
    (left >= SHORTEST_BAR).then_some(left)
}

/// A bar in eighths of a character. What is not zero is visible.
fn bar(value: i64, most: i64, longest: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let (value, most) = (u128::try_from(value).unwrap_or(0), u128::try_from(most).unwrap_or(0));
    if value == 0 || most == 0 {
        return String::new();
    }
    let eighths = usize::try_from((value * 8 * longest as u128).div_ceil(most)).unwrap_or(0).min(8 * longest);
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

fn number(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap_or(0)
}

/// US dollars to the millionth, rounded half up.
fn usd(nano: i64) -> String {
    let micro = (i128::from(nano) + 500).div_euclid(1000);
    format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_relative_to_the_longest() {
        assert_eq!(
            (bar(10, 10, 4), bar(5, 10, 4), bar(1, 1_000_000, 4), bar(0, 10, 4)),
            ("████".into(), "██".into(), "▏".into(), String::new())
        );
        let lines = [vec!["2026-11-16".to_owned(), "1".to_owned()]];
        assert_eq!(bar_width(Some(40), &["DAY", "CALLS"], &lines), Some(19));
        assert_eq!(bar_width(Some(22), &["DAY", "CALLS"], &lines), None);
        assert_eq!(bar_width(None, &["DAY", "CALLS"], &lines), Some(LONGEST_BAR));
    }

    #[test]
    fn dollars_are_rounded_half_up() {
        assert_eq!(
            (usd(2_437_500), usd(499), usd(500), usd(12_000_000_000)),
            ("0.002438".into(), "0.000000".into(), "0.000001".into(), "12.000000".into())
        );
    }
}
