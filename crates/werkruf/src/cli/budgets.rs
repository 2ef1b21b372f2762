//! `werkruf budgets …`: what model requests may use in a day or a month.

use clap::Subcommand;
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, ids, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// The budgets of a tenant, and what their current period has used
    #[command(after_help = "Examples:\n  werkruf budgets list --tenant demo")]
    List,
    /// Make a budget
    #[command(after_help = "Examples:\n  werkruf budgets add --scope tenant --period month --unit nano_usd --limit 50000000000\n  \
                            werkruf budgets add --scope user --period day --unit tokens --limit 200000\n  \
                            werkruf budgets add --scope user --subject 3 --period day --unit model_calls --limit 100")]
    Add {
        /// Whose requests it counts
        #[arg(long, value_parser = ["tenant", "user", "key", "assistant"])]
        scope: String,
        /// Id of the user or key, or name of the assistant; without it each has the budget for itself
        #[arg(long)]
        subject: Option<String>,
        /// How long it lasts, in UTC
        #[arg(long, value_parser = ["day", "month"])]
        period: String,
        /// What it counts; a US dollar is 1000000000 nano_usd
        #[arg(long, value_parser = ["tokens", "nano_usd", "model_calls"])]
        unit: String,
        /// What may be used in a period
        #[arg(long)]
        limit: i64,
    },
    /// Delete a budget
    #[command(after_help = "Examples:\n  werkruf budgets delete 0197f2c4-77aa")]
    Delete {
        /// Id of the budget, or a unique beginning or end of it
        id: String,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let json = session.globals.json;
    Backend::run(&session.without_user(), async |backend| execute(backend, command, json).await).await
}

async fn execute(backend: &Backend, command: Command, json: bool) -> Result<(), CliError> {
    match command {
        Command::List => {
            let response = backend.get("/api/budgets").await?;
            if json { print::json(&response) } else { list(&response) }
        }
        Command::Add { scope, subject, period, unit, limit } => {
            let body = json!({"scope": scope, "subject": subject, "period": period, "unit": unit, "limit": limit});
            let response = backend.post("/api/budgets", &body).await?;
            if json { print::json(&response) } else { print::line(ids::text(&response, "id")?) }
        }
        Command::Delete { id } => {
            let response = backend.get("/api/budgets").await?;
            let id = ids::among(print::rows(&response, "budgets"), &id)?;
            backend.delete(&format!("/api/budgets/{id}")).await?;
            if json { print::json(&json!({"deleted": id})) } else { print::line(&format!("deleted {id}")) }
        }
    }
    Ok(())
}

fn list(response: &Value) {
    let row = |budget: &Value| {
        ["id", "scope", "subject", "period", "unit", "limit", "used", "reserved", "resets_at"]
            .map(|name| print::cell(budget, name))
            .to_vec()
    };
    let head = ["BUDGET", "SCOPE", "SUBJECT", "PERIOD", "UNIT", "LIMIT", "USED", "RESERVED", "RESETS"];
    print::list(print::rows(response, "budgets"), "No budgets.", &head, row);
}
