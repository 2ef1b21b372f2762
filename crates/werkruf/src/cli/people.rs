//! `werkruf people …`: the people a tenant knows.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::backend::Backend;
use super::{Globals, Outcome, Session, encode, print};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Erase what a person said and is called; ids, times and bills stay
    #[command(after_help = "Examples:\n  werkruf people erase 7 --tenant demo\n  werkruf people erase ext:auth0-31 --cancel --json\n\n\
                            This cannot be undone. Backups made before still hold the data; a restore erases the person again.")]
    Erase {
        /// The user's number, or ext: and their external id
        #[arg(value_name = "USER")]
        person: String,
        /// Cancel the person's running turns first
        #[arg(long)]
        cancel: bool,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let Command::Erase { person, cancel } = command;
    // The operator acts, not the person.
    let operator =
        Session { globals: Globals { user: None, ..session.globals.clone() }, listen: None, environment: session.environment.clone() };
    let backend = Backend::open(&operator).await?;
    let answer = backend.post(&format!("/api/people/users/{}/erase", encode(&person)), &json!({"cancel": cancel})).await;
    backend.close().await;
    let answer = answer?;
    if session.globals.json {
        print::json(&answer);
    } else {
        tell(&answer);
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(answer: &Value) {
    let field = |name| print::field(answer, name);
    print::line(&format!(
        "Erased user {}: {} conversation(s), {} message(s), {} call(s), {} key(s)",
        field("user_id"),
        field("conversations"),
        field("messages"),
        field("calls"),
        field("keys")
    ));
    if answer["compacted"] != true {
        print::line("Another program was reading the database, so traces may be left in its files; erase again to finish");
    }
    for copy in answer["copies"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        print::line(&format!("An older copy may still hold the person's data: {copy}"));
    }
}
