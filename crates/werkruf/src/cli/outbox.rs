//! `werkruf outbox …`: what the server sends to people and programs.

use clap::Subcommand;
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, ids, print};

const STATUSES: [&str; 7] = ["pending", "sending", "sent", "delivered", "read", "dead", "held"];

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Rows, the newest first
    #[command(after_help = "Examples:\n  werkruf outbox list\n  werkruf outbox list --status dead --limit 5")]
    List {
        /// Only with this status
        #[arg(long, value_parser = STATUSES)]
        status: Option<String>,
        /// Maximum number of rows
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// One row, with what it carries
    #[command(after_help = "Examples:\n  werkruf outbox show 0197f2c4-77aa\n  werkruf outbox show 0197f2c4-77aa --json | jq .body")]
    Show {
        /// Id of the row, or a unique beginning or end of it
        row: String,
    },
    /// Send a dead row again
    #[command(after_help = "Examples:\n  werkruf outbox retry 0197f2c4-77aa")]
    Retry {
        /// Id of the row, or a unique beginning or end of it
        row: String,
    },
    /// Send what a restore holds: one row, or all of the tenant
    #[command(
        after_help = "Examples:\n  werkruf outbox release                          all held rows of the tenant\n  werkruf outbox release 0197f2c4-77aa"
    )]
    Release {
        /// Id of the row, or a unique beginning or end of it; left out: all
        row: Option<String>,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    Backend::run(session, async |backend| execute(backend, command, session.globals.json).await).await
}

async fn execute(backend: &Backend, command: Command, json: bool) -> Result<(), CliError> {
    match command {
        Command::List { status, limit } => {
            let filter = status.map(|status| format!("&status={status}")).unwrap_or_default();
            let response = backend.get(&format!("/api/outbox?order=desc&limit={limit}{filter}")).await?;
            if json { print::json(&response) } else { list(&response) }
        }
        Command::Show { row } => {
            let row = backend.get(&ids::outbox_path(&row)?).await?;
            if json { print::json(&row) } else { print::object(&row) }
        }
        Command::Retry { row } => {
            let row = backend.post(&format!("{}/retry", ids::outbox_path(&row)?), &json!({})).await?;
            let line = format!("is sent again: {}", ids::text(&row, "id")?);
            if json { print::json(&row) } else { print::line(&line) }
        }
        Command::Release { row } => {
            let path = row.map(|row| ids::outbox_path(&row)).transpose()?.unwrap_or_else(|| "/api/outbox".to_owned());
            let response = backend.post(&format!("{path}/release"), &json!({})).await?;
            if json { print::json(&response) } else { print::line(&format!("released: {}", print::field(&response, "released"))) }
        }
    }
    Ok(())
}

fn list(response: &Value) {
    let heading = ["ROW", "CHANNEL", "RECIPIENT", "PART", "STATUS", "ATTEMPTS", "ERROR", "CREATED"];
    let cells = |row: &Value| print::fields(row, &["id", "channel", "recipient", "part", "status", "attempts", "error_code", "created_at"]);
    print::list(print::rows(response, "outbox"), "The outbox is empty.", &heading, cells);
}
