//! `werkruf retention run`: deletes what was kept long enough, beside a running server or without one.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::backend::Backend;
use super::{Globals, Outcome, Session, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Delete now what is older than [retention] wants; a running server does it by itself every hour
    #[command(after_help = "Examples:\n  werkruf retention run --dry-run\n  werkruf retention run --json")]
    Run(Run),
}

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Count what would go, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

/// What is kept, as the configuration and the answer name it.
const KINDS: [&str; 4] = ["messages", "events", "calls", "usage"];

pub(super) async fn run(session: &Session, Command::Run(Run { dry_run }): Command) -> Outcome {
    // It is about every tenant and nobody in particular.
    let operator = Session {
        globals: Globals { user: None, tenant: None, ..session.globals.clone() },
        listen: None,
        environment: session.environment.clone(),
    };
    let backend = Backend::open(&operator).await?;
    let answer = backend.post("/api/admin/retention", &json!({"dry_run": dry_run})).await;
    backend.close().await;
    let answer = answer?;
    if session.globals.json {
        print::json(&answer);
    } else {
        show(&answer, dry_run);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(answer: &Value, dry_run: bool) {
    let rows: Vec<Vec<String>> = KINDS
        .iter()
        .map(|kind| match answer[format!("{kind}_before")].as_str() {
            Some(before) => vec![(*kind).to_owned(), answer[*kind].to_string(), before.to_owned()],
            None => vec![(*kind).to_owned(), "-".to_owned(), "kept for good".to_owned()],
        })
        .collect();
    print::table(&["KEPT", if dry_run { "WOULD GO" } else { "DELETED" }, "OLDER THAN"], rows);
    if KINDS.iter().all(|kind| answer[format!("{kind}_before")].is_null()) {
        print::line(
            "Nothing is ever deleted; [retention] messages_days, events_days, calls_days and usage_days say for how long to keep it",
        );
    } else if answer["conversations"].as_u64().is_some_and(|gone| gone > 0) {
        print::line(&format!("{} conversation(s) were left with nothing and went too", answer["conversations"]));
    }
}
