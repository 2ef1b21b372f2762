//! `werkruf retention run`: deletes rows older than `[retention]` allows, with or without a running server.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::backend::Backend;
use super::{Outcome, Session, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Delete rows older than [retention] allows now; a running server does this every hour
    #[command(after_help = "Examples:\n  werkruf retention run --dry-run\n  werkruf retention run --json")]
    Run(Run),
}

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Count the rows that would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

/// The kinds of rows, as the configuration and the response name them.
const KINDS: [&str; 5] = ["messages", "outbox", "events", "calls", "usage"];

pub(super) async fn run(session: &Session, Command::Run(Run { dry_run }): Command) -> Outcome {
    // The request concerns every tenant and no single user.
    let backend = Backend::open(&session.without_tenant()).await?;
    let response = backend.post("/api/admin/retention", &json!({"dry_run": dry_run})).await;
    backend.close().await;
    let response = response?;
    if session.globals.json {
        print::json(&response);
    } else {
        show(&response, dry_run);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(response: &Value, dry_run: bool) {
    let rows: Vec<Vec<String>> = KINDS
        .iter()
        .map(|kind| match response[format!("{kind}_before")].as_str() {
            Some(before) => {
                vec![(*kind).to_owned(), response[*kind].to_string(), print::local_time(before).unwrap_or_else(|| before.to_owned())]
            }
            None => vec![(*kind).to_owned(), "-".to_owned(), "never deleted".to_owned()],
        })
        .collect();
    print::table(&["ROWS", if dry_run { "WOULD GO" } else { "DELETED" }, "OLDER THAN"], rows);
    if KINDS.iter().all(|kind| response[format!("{kind}_before")].is_null()) {
        print::line(
            "Nothing is ever deleted; set messages_days, events_days, calls_days and usage_days in [retention] to limit the age of rows",
        );
    } else if response["conversations"].as_u64().is_some_and(|count| count > 0) {
        print::line(&format!("{} conversation(s) had nothing left and were deleted too", response["conversations"]));
    }
}
