//! `bench`: compares Werkruf with the floor in one run, as ratios, each with its bar.
//!
//! Both servers, the fake model and the load share this machine, so absolute figures vary with its noise; the ratio
//! of one round hardly does. Everything runs on loopback with database files in a temporary folder. A missed bar is a
//! finding, not a failure: only a run that could not be completed, or left wrong rows, ends with an error.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use werkruf_bench::load::Comparison;
use werkruf_bench::scenario::{Findings, NAMES, Plan, SearchReport, run};

const USAGE: &str =
    "usage: bench [--rounds N] [--seconds N] [--chats N] [--only NAME]... [--chunks N] [--million] [--postgres URL] [--program PATH]
             [--against PATH] [--json]
  --only      one-call, ten-calls, history, thousand, stored, budgets, search, postgres, replicas; all by default
  --chunks    searches only in a collection of this size: 10000 or 100000
  --million   measures with a million stored calls too, which takes some minutes to write
  --postgres  measures on this PostgreSQL too, in schemas of the run's own that are removed afterwards
  --program   measures this program instead of the one beside `bench`
  --against   compares only with this program, another build of the server, in turns with one and ten calls";

fn options() -> Option<(Plan, bool)> {
    let mut plan = Plan {
        rounds: 5,
        seconds: 4,
        chats: 16,
        only: Vec::new(),
        chunks: None,
        million: false,
        postgres: None,
        program: None,
        against: None,
    };
    let mut as_json = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).map(|number| number.max(1));
        match argument.as_str() {
            "--rounds" => plan.rounds = usize::try_from(number()?).ok()?,
            "--seconds" => plan.seconds = number()?,
            "--chats" => plan.chats = usize::try_from(number()?).ok()?,
            "--only" => plan.only.push(arguments.next().filter(|name| NAMES.contains(&name.as_str()))?),
            "--chunks" => plan.chunks = Some(usize::try_from(number()?).ok()?),
            "--million" => plan.million = true,
            "--postgres" => plan.postgres = Some(arguments.next()?),
            "--program" => plan.program = Some(PathBuf::from(arguments.next()?)),
            "--against" => plan.against = Some(PathBuf::from(arguments.next()?)),
            "--json" => as_json = true,
            _ => return None,
        }
    }
    Some((plan, as_json))
}

#[tokio::main]
#[expect(clippy::print_stderr, clippy::print_stdout, reason = "a command line program talks to its terminal")]
async fn main() -> ExitCode {
    let Some((plan, as_json)) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    werkruf_bench::install_tls();
    let findings = match run(&plan).await {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", if as_json { in_json(&findings).to_string() } else { as_text(&findings) });
    if findings.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn as_text(findings: &Findings) -> String {
    let tables = findings.comparisons.iter().map(Comparison::table).chain(findings.searches.iter().map(SearchReport::table));
    let tables: Vec<String> = tables.collect();
    let audit = if findings.wrong.is_empty() {
        format!("auditor: nothing wrong in {}", findings.audited.join(", "))
    } else {
        format!("auditor: WRONG\n  {}", findings.wrong.join("\n  "))
    };
    format!("{}\n{audit}", tables.join("\n"))
}

fn in_json(findings: &Findings) -> Value {
    let comparisons: Vec<Value> = findings.comparisons.iter().map(Comparison::json).collect();
    let searches: Vec<Value> = findings.searches.iter().map(SearchReport::json).collect();
    json!({"comparisons": comparisons, "searches": searches, "audited": findings.audited, "wrong": findings.wrong})
}
