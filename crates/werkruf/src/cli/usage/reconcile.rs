//! `werkruf usage reconcile FILE`: compares the stored requests with a provider's export.

use std::collections::HashMap;
use std::process::ExitCode;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::export::{Entry, read};
use super::{Span, usd};
use crate::cli::backend::Backend;
use crate::cli::error::CliError;
use crate::cli::{Outcome, Session, encode, not_utf8, print, read_input};

/// The two clocks, and the time between a request and its row, differ by less.
const MARGIN: SignedDuration = SignedDuration::from_hours(1);

/// A stored request, as the API lists it.
#[derive(Debug, Clone, Deserialize)]
struct Stored {
    request_id: Option<String>,
    at: Timestamp,
    model: String,
    operation: String,
    tokens_prompt: i64,
    tokens_cached: i64,
    tokens_completion: i64,
    estimated: bool,
    cost_nano_usd: Option<i64>,
}

impl Stored {
    const fn tokens(&self) -> [i64; 3] {
        [self.tokens_prompt, self.tokens_cached, self.tokens_completion]
    }

    /// A refused request: it has a row here, and no line in an export.
    fn is_free(&self) -> bool {
        self.tokens() == [0, 0, 0]
    }
}

pub(super) async fn run(session: &Session, file: &str, span: &Span) -> Outcome {
    let text = String::from_utf8(read_input(file)?).map_err(|_| not_utf8(file))?;
    let entries = read(&text)?;
    let (from, to) = covered(&entries, span)?;
    let backend = Backend::open(session).await?;
    let stored = requests(&backend, from, to).await;
    backend.close().await;
    let report = report(&entries, &stored?, (from, to));
    let differences = print::rows(&report, "differences");
    if session.globals.json {
        print::json(&report);
    } else {
        show(&report, differences);
    }
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The time that the export covers: as named, else the whole days of its rows.
fn covered(entries: &[Entry], span: &Span) -> Result<(Timestamp, Timestamp), CliError> {
    let day = |time: Timestamp| time.to_zoned(TimeZone::UTC).date();
    let start = |day: Date| day.to_zoned(TimeZone::UTC).map_err(|error| CliError::Usage(error.to_string())).map(|start| start.timestamp());
    let named = |text: &str| match text.parse::<Date>().ok().filter(|_| text.len() == 10) {
        Some(day) => start(day),
        None => text.parse().map_err(|_| CliError::Usage(format!("{text:?} is neither a day nor a time with its offset"))),
    };
    let (first, last) = (entries.iter().map(|entry| entry.at).min(), entries.iter().map(|entry| entry.at).max());
    let empty = || CliError::Usage("the export has no rows; --from and --to say which time it covers".to_owned());
    let from = match &span.from {
        Some(text) => named(text)?,
        None => start(day(first.ok_or_else(empty)?))?,
    };
    let to = match &span.to {
        Some(text) => named(text)?,
        None => start(day(last.ok_or_else(empty)?).tomorrow().map_err(|error| CliError::Usage(error.to_string()))?)?,
    };
    Ok((from, to))
}

/// The stored requests of a time and a little around it.
async fn requests(backend: &Backend, from: Timestamp, to: Timestamp) -> Result<Vec<Stored>, CliError> {
    let time = |time: Timestamp| encode(&time.to_string());
    let (from, to) = (from.checked_sub(MARGIN).unwrap_or(from), to.checked_add(MARGIN).unwrap_or(to));
    let (mut after, mut stored) = (String::new(), Vec::new());
    loop {
        let path = format!("/api/usage/requests?limit=1000&from={}&to={}{after}", time(from), time(to));
        let mut answer = backend.get(&path).await?;
        let page: Vec<Stored> =
            serde_json::from_value(answer["requests"].take()).map_err(|error| CliError::refused("unreadable", error.to_string()))?;
        // Calls of tools with a price are no requests to a model provider.
        stored.extend(page.into_iter().filter(|row| row.operation != "tool"));
        match answer["next_after"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(stored),
        }
    }
}

/// Finds for every line of the export its stored request, as an index.
fn matches(entries: &[Entry], stored: &[Stored]) -> Vec<Option<usize>> {
    let mut found = vec![None; entries.len()];
    let mut free = vec![true; stored.len()];
    let mut by_id: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut by_minute: HashMap<(&str, i64), Vec<usize>> = HashMap::new();
    for (at, row) in stored.iter().enumerate() {
        if let Some(id) = &row.request_id {
            by_id.entry(id).or_default().push(at);
        }
        by_minute.entry((&row.model, minute(row.at))).or_default().push(at);
    }
    for (entry, found) in entries.iter().zip(&mut found) {
        let rows = entry.request_id.as_deref().and_then(|id| by_id.get(id)).map(Vec::as_slice).unwrap_or_default();
        take(rows, &mut free, found, |_| true);
    }
    // The same tokens first, also across the edge of a minute. Two different ids are two different requests unless the tokens are the same.
    for (same_tokens, minutes) in [(true, &[0, -1, 1][..]), (false, &[0][..])] {
        for (entry, found) in entries.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
            let fits = |row: &Stored| {
                let may_be = entry.request_id.is_none() || row.request_id.is_none();
                if same_tokens { row.tokens() == entry.tokens } else { may_be && !row.is_free() }
            };
            for shift in minutes {
                let rows = by_minute.get(&(entry.model.as_str(), minute(entry.at) + shift)).map(Vec::as_slice).unwrap_or_default();
                take(rows, &mut free, found, |at| fits(&stored[at]));
            }
        }
    }
    found
}

/// Takes the first free row that fits, unless one was found before.
fn take(rows: &[usize], free: &mut [bool], found: &mut Option<usize>, fits: impl Fn(usize) -> bool) {
    if found.is_none() {
        *found = rows.iter().copied().find(|at| free[*at] && fits(*at));
        if let Some(at) = *found {
            free[at] = false;
        }
    }
}

fn minute(time: Timestamp) -> i64 {
    time.as_second().div_euclid(60)
}

fn report(entries: &[Entry], stored: &[Stored], (from, to): (Timestamp, Timestamp)) -> Value {
    let found = matches(entries, stored);
    let mut differences = Vec::new();
    for (entry, found) in entries.iter().zip(&found) {
        let row = found.map(|at| &stored[at]);
        let kind = match row {
            None => "missing_here",
            Some(row) if row.tokens() != entry.tokens => "tokens_differ",
            Some(row) if entry.cost_nano_usd.is_some() && row.cost_nano_usd != entry.cost_nano_usd => "price_differs",
            Some(_) => continue,
        };
        differences.push(difference(kind, row, Some(entry)));
    }
    let is_covered = |row: &Stored| row.at >= from && row.at < to;
    let mut is_matched = vec![false; stored.len()];
    found.iter().flatten().for_each(|at| is_matched[*at] = true);
    for (at, row) in stored.iter().enumerate() {
        if is_covered(row) && !row.is_free() && !is_matched[at] {
            differences.push(difference("missing_there", Some(row), None));
        }
    }
    let counted = |kind: &str| differences.iter().filter(|difference| difference["kind"] == kind).count();
    let counts: serde_json::Map<String, Value> = KINDS.iter().map(|(kind, _)| ((*kind).to_owned(), json!(counted(kind)))).collect();
    let matched = found.iter().flatten().count();
    let here: i64 =
        stored.iter().enumerate().filter(|(at, row)| is_covered(row) || is_matched[*at]).filter_map(|(_, row)| row.cost_nano_usd).sum();
    let there: i64 = entries.iter().filter_map(|entry| entry.cost_nano_usd).sum();
    json!({"from": from, "to": to, "matched": matched, "counts": counts, "cost_nano_usd_here": here, "cost_nano_usd_there": there,
        "differences": differences})
}

const KINDS: [(&str, &str); 4] = [
    ("missing_here", "missing here"),
    ("missing_there", "missing there"),
    ("tokens_differ", "tokens differ"),
    ("price_differs", "price differs"),
];

fn difference(kind: &str, row: Option<&Stored>, entry: Option<&Entry>) -> Value {
    let side = |[input, cached, output]: [i64; 3], cost: Option<i64>| json!({"input_tokens": input, "cached_tokens": cached, "output_tokens": output, "cost_nano_usd": cost});
    let at = entry.map(|entry| entry.at).or_else(|| row.map(|row| row.at));
    let request_id = entry.and_then(|entry| entry.request_id.as_ref()).or_else(|| row.and_then(|row| row.request_id.as_ref()));
    json!({"kind": kind, "at": at, "request_id": request_id, "model": entry.map(|entry| &entry.model).or_else(|| row.map(|row| &row.model)),
        "estimated": row.is_some_and(|row| row.estimated), "here": row.map(|row| side(row.tokens(), row.cost_nano_usd)),
        "there": entry.map(|entry| side(entry.tokens, entry.cost_nano_usd))})
}

fn show(report: &Value, differences: &[Value]) {
    if !differences.is_empty() {
        let rows = differences.iter().map(|difference| {
            let kind = KINDS.iter().find(|(kind, _)| difference["kind"] == *kind).map_or("", |(_, text)| text);
            let note = if difference["estimated"] == true { " (estimated here)" } else { "" };
            let mut cells = vec![format!("{kind}{note}")];
            cells.extend(print::fields(difference, &["at", "request_id", "model"]));
            cells.extend([side(&difference["here"]), side(&difference["there"])]);
            cells
        });
        print::table(&["DIFFERENCE", "AT", "REQUEST", "MODEL", "HERE", "THERE"], rows.collect());
    }
    let amount = |name: &str| usd(report[name].as_i64().unwrap_or(0));
    let counts = KINDS.iter().map(|(kind, text)| format!("{} {text}", report["counts"][*kind])).collect::<Vec<_>>().join(", ");
    print::line(&format!("{} requests matched; {counts}", report["matched"]));
    print::line(&format!("USD here {}, there {}", amount("cost_nano_usd_here"), amount("cost_nano_usd_there")));
}

/// Input, cached and output tokens, and the cost.
fn side(side: &Value) -> String {
    if side.is_null() {
        return "-".to_owned();
    }
    let tokens = ["input_tokens", "cached_tokens", "output_tokens"].map(|name| side[name].to_string()).join("/");
    let cost = side["cost_nano_usd"].as_i64().map_or_else(|| "no price".to_owned(), |nano| format!("{} USD", usd(nano)));
    format!("{tokens} {cost}")
}
