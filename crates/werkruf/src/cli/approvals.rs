//! `werkruf approvals …`: calls that wait for approval.

use clap::Subcommand;
use serde_json::{Value, json};

use super::backend::Backend;
use super::{Outcome, Session, ids, print};

const STATUSES: [&str; 6] = ["pending", "approved", "denied", "expired", "canceled", "all"];

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Approvals, the oldest first
    #[command(after_help = "Examples:\n  werkruf approvals list\n  werkruf approvals list --status all --limit 50")]
    List {
        /// Only with this status
        #[arg(long, default_value = "pending", value_parser = STATUSES)]
        status: String,
        /// Maximum number of rows
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Let the call run, once
    #[command(after_help = "Examples:\n  werkruf approvals approve 0197f2c4-77aa\n  werkruf approvals approve 0197f2c4-77aa --user 2")]
    Approve {
        /// Id of the approval, or a unique beginning or end of it
        approval: String,
    },
    /// Refuse the call; the assistant gets the refusal as the result
    #[command(after_help = "Examples:\n  werkruf approvals deny 0197f2c4-77aa")]
    Deny {
        /// Id of the approval, or a unique beginning or end of it
        approval: String,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let json = session.globals.json;
    Backend::run(session, async |backend| match command {
        Command::List { status, limit } => {
            let filter = if status == "all" { String::new() } else { format!("&status={status}") };
            let response = backend.get(&format!("/api/approvals?limit={limit}{filter}")).await?;
            if json {
                print::json(&response)
            } else {
                list(&response)
            }
            Ok(())
        }
        Command::Approve { approval } => decide(backend, &approval, "approve", json).await,
        Command::Deny { approval } => decide(backend, &approval, "deny", json).await,
    })
    .await
}

async fn decide(backend: &Backend, typed: &str, decision: &str, json: bool) -> Result<(), super::CliError> {
    let row = backend.post(&ids::approval_path(typed)?, &json!({"decision": decision})).await?;
    let line = format!("{} {}: {}", print::field(&row, "tool"), print::field(&row, "status"), print::field(&row, "id"));
    if json {
        print::json(&row)
    } else {
        print::line(&line)
    }
    Ok(())
}

fn list(response: &Value) {
    let heading = ["APPROVAL", "TOOL", "ARGUMENTS", "ASKED BY", "STATUS", "EXPIRES"];
    let cells = |row: &Value| {
        let mut cells = print::fields(row, &["id", "tool", "arguments", "asked_by", "status", "expires_at"]);
        if row["server_label"].is_string() {
            // The tool is one of a server that the model's provider calls.
            cells[1] = format!("{} ({})", cells[1], print::cell(row, "server_label"));
        }
        cells
    };
    print::list(print::rows(response, "approvals"), "No approvals.", &heading, cells);
}
