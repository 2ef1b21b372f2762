//! `werkruf calls …`: the registry of tool calls.

use clap::Subcommand;
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, ids, print};

const STATUSES: [&str; 6] = ["queued", "running", "succeeded", "failed", "timeout", "canceled"];

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Calls, the newest first
    #[command(after_help = "Examples:\n  werkruf calls list\n  werkruf calls list --tool order_status --status failed --limit 5")]
    List {
        /// Only of this conversation (id, or a unique beginning or end of it)
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
        /// Only of this tool
        #[arg(long, value_name = "NAME")]
        tool: Option<String>,
        /// Only with this status
        #[arg(long, value_parser = STATUSES)]
        status: Option<String>,
        /// Maximum number of rows
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Everything recorded of one call
    #[command(after_help = "Examples:\n  werkruf calls show 0197f2c4-77aa")]
    Show {
        /// Id of the call, or a unique beginning or end of it
        call: String,
    },
    /// Run a failed call again, as a new call
    #[command(after_help = "Examples:\n  werkruf calls retry 0197f2c4-77aa\n  werkruf calls retry 0197f2c4-77aa --force")]
    Retry {
        /// Id of the call, or a unique beginning or end of it
        call: String,
        /// Retry even if it is unknown whether the first attempt took effect
        #[arg(long)]
        force: bool,
    },
    /// Stop a running call
    #[command(after_help = "Examples:\n  werkruf calls cancel 0197f2c4-77aa")]
    Cancel {
        /// Id of the call, or a unique beginning or end of it
        call: String,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    Backend::run(session, async |backend| execute(backend, command, session.globals.json).await).await
}

async fn execute(backend: &Backend, command: Command, json: bool) -> Result<(), CliError> {
    match command {
        Command::List { conversation, tool, status, limit } => {
            let mut path = format!("/api/tool-calls?order=desc&limit={limit}");
            if let Some(typed) = conversation {
                path.push_str(&format!("&conversation_id={}", ids::conversation(backend, &typed).await?));
            }
            for (name, value) in [("tool", tool), ("status", status)] {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", encode(&value)));
                }
            }
            let response = backend.get(&path).await?;
            if json { print::json(&response) } else { list(&response) }
        }
        Command::Show { call } => {
            let call = backend.get(&ids::call_path(&call)?).await?;
            if json { print::json(&call) } else { print::object(&call) }
        }
        Command::Retry { call, force } => {
            let response = backend.post(&format!("{}/retry", ids::call_path(&call)?), &json!({"force": force})).await?;
            let line = format!("runs again as {}", ids::text(&response, "job_id")?);
            if json { print::json(&response) } else { print::line(&line) }
        }
        Command::Cancel { call } => {
            let response = backend.post(&format!("{}/cancel", ids::call_path(&call)?), &json!({})).await?;
            if json { print::json(&response) } else { print::line("asked to stop") }
        }
    }
    Ok(())
}

fn list(response: &Value) {
    let heading = ["CALL", "TOOL", "STATUS", "ATTEMPT", "ERROR", "CREATED"];
    let cells = |call: &Value| print::fields(call, &["id", "tool_name", "status", "attempt", "error_code", "created_at"]);
    print::list(print::rows(response, "tool_calls"), "No calls.", &heading, cells);
}
