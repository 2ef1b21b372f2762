//! `werkruf people …`: the users of a tenant.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::backend::Backend;
use super::{Outcome, Session, encode, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Erase a user's messages and personal data; ids, times and usage rows stay
    #[command(after_help = "Examples:\n  werkruf people erase 7 --tenant demo\n  werkruf people erase ext:auth0-31 --cancel --json\n\n\
                            This cannot be undone. Backups made before still hold the data; a restore erases the user again.")]
    Erase {
        /// The user's number, or ext: and their external id
        #[arg(value_name = "USER")]
        user_id: String,
        /// Cancel the user's running turns first
        #[arg(long)]
        cancel: bool,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let Command::Erase { user_id, cancel } = command;
    let backend = Backend::open(&session.without_user()).await?;
    let response = backend.post(&format!("/api/people/users/{}/erase", encode(&user_id)), &json!({"cancel": cancel})).await;
    backend.close().await;
    let response = response?;
    if session.globals.json {
        print::json(&response);
    } else {
        print_report(&response);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_report(response: &Value) {
    let field = |name| print::field(response, name);
    print::line(&format!(
        "Erased user {}: {} conversation(s), {} message(s), {} call(s), {} key(s)",
        field("user_id"),
        field("conversations"),
        field("messages"),
        field("calls"),
        field("keys")
    ));
    if response["compacted"] != true {
        print::line("Another program was reading the database, so deleted data may remain in its files; erase again to finish");
    }
    for copy in response["copies"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print::line(&format!("An older copy may still hold the user's data: {copy}"));
    }
}
