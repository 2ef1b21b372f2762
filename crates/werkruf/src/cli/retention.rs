//! `werkruf retention run`: deletes what was kept long enough, beside a running server or without one.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::backend::Backend;
use super::{Globals, Outcome, Session, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Delete now what is older than [retention] wants; a running server does it by itself every hour
    #[command(after_help = "Examples:\n  werkruf retention run\n  werkruf retention run --json")]
    Run,
}

pub(super) async fn run(session: &Session, Command::Run: Command) -> Outcome {
    // It is about every tenant and nobody in particular.
    let operator = Session {
        globals: Globals { user: None, tenant: None, ..session.globals.clone() },
        listen: None,
        environment: session.environment.clone(),
    };
    let backend = Backend::open(&operator).await?;
    let answer = backend.post("/api/admin/retention", &json!({})).await;
    backend.close().await;
    let answer = answer?;
    if session.globals.json {
        print::json(&answer);
    } else {
        match answer["events_before"].as_str() {
            Some(before) => print::line(&format!("Deleted {} event(s) from before {before}", answer["events"])),
            None => print::line("Nothing is ever deleted; [retention] events_days says for how long to keep events"),
        }
    }
    Ok(ExitCode::SUCCESS)
}
