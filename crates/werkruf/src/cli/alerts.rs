//! `werkruf alerts list`: what the operator was told.

use clap::Subcommand;
use serde_json::Value;

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Alerts, the newest first: of the tenant, and for the operator of the server
    #[command(
        after_help = "Examples:\n  werkruf alerts list --open\n  werkruf alerts list --tenant server --json   only those of the server"
    )]
    List {
        /// Only those whose condition holds
        #[arg(long)]
        open: bool,
        /// Maximum number of rows
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    // The tenant is part of the question here, because alerts of the server belong to none.
    let named = session.globals.tenant.clone();
    let json = session.globals.json;
    Backend::run(&session.without_tenant(), async |backend| execute(backend, command, named.as_deref(), json).await).await
}

async fn execute(backend: &Backend, command: Command, named: Option<&str>, json: bool) -> Result<(), CliError> {
    let Command::List { open, limit } = command;
    let status = if open { "&status=open" } else { "" };
    let tenant = named.map_or_else(String::new, |named| format!("&tenant={}", encode(named)));
    let response = backend.get(&format!("/api/alerts?order=desc&limit={limit}{status}{tenant}")).await?;
    if json {
        print::json(&response)
    } else {
        list(&response)
    }
    Ok(())
}

fn list(response: &Value) {
    let heading = ["OPENED", "TYPE", "STATUS", "SUBJECT", "MESSAGE"];
    let cells = |row: &Value| print::fields(row, &["opened_at", "type", "status", "subject", "message"]);
    print::list(print::rows(response, "alerts"), "No alerts.", &heading, cells);
}
