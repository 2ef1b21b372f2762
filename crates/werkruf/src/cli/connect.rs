//! `werkruf connect SERVER`: connects an account of a person at a server that wants a login of each person.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, print};

/// How often the server is asked whether the account is connected.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  werkruf connect calendar --user 3\n  werkruf connect --list --user 3\n  werkruf connect --remove calendar --user 3\n  \
                  WERKRUF_KEY=wk_… werkruf connect calendar --server https://chat.example.org"
)]
pub(super) struct Command {
    /// The server, by its name in [[tools]]
    #[arg(value_name = "SERVER", required_unless_present_any = ["list", "remove"], conflicts_with_all = ["list", "remove"])]
    name: Option<String>,
    /// List the servers that want a login of each person, and what the person has there
    #[arg(long, conflicts_with = "remove")]
    list: bool,
    /// Forget the account of the person at this server
    #[arg(long, value_name = "SERVER")]
    remove: Option<String>,
}

pub(super) async fn run(session: &Session, command: &Command) -> Outcome {
    // The browser comes back to a running server.
    let found = Backend::find(session).await?;
    let backend = found.ok_or_else(|| CliError::refused("server_unavailable", "no server runs; start one with `werkruf serve`"))?;
    let backend = backend.for_user().await?;
    let result = execute(&backend, command, session.globals.json).await;
    backend.close().await;
    result.map(|()| ExitCode::SUCCESS)
}

async fn execute(backend: &Backend, command: &Command, json: bool) -> Result<(), CliError> {
    match (&command.name, &command.remove) {
        (Some(name), _) => connect(backend, name, json).await,
        (None, Some(name)) => {
            backend.delete(&format!("/api/connections/{}", encode(name))).await?;
            if json {
                print::json(&json!({"server": name, "state": "needs_connection"}));
            } else {
                print::line(&format!("The account at {name} is forgotten"));
            }
            Ok(())
        }
        (None, None) => {
            let response = backend.get("/api/connections").await?;
            if json {
                print::json(&response);
            } else {
                let none = "No server wants a login of each person; auth = \"oauth\" in [[tools]] says that one does.";
                let cells = |row: &Value| print::fields(row, &["server", "state", "updated_at"]);
                print::list(print::rows(&response, "connections"), none, &["SERVER", "STATE", "SINCE"], cells);
            }
            Ok(())
        }
    }
}

async fn connect(backend: &Backend, name: &str, json: bool) -> Result<(), CliError> {
    let before = state(backend, name).await?;
    let link = backend.post("/api/connections", &json!({"server": name})).await?;
    let (url, until) = (print::field(&link, "url"), print::field(&link, "expires_at"));
    let until: jiff::Timestamp = until.parse().map_err(|_| CliError::refused("bad_answer", "the server answered without an end"))?;
    if json {
        print::json(&link);
    } else {
        print::line(&format!("Open this link in a browser and log in:\n{url}"));
    }
    print::error_line("waiting until the account is connected; Ctrl-C stops waiting, and the link goes on to work");
    let clock = werkruf_contract::Clock::system(0);
    while clock.now() < until {
        tokio::time::sleep(LOOK).await;
        let now = state(backend, name).await?;
        if now["state"] == "connected" && now["updated_at"] != before["updated_at"] {
            if json {
                print::json(&now);
            } else {
                print::line(&format!("The account at {name} is connected"));
            }
            return Ok(());
        }
    }
    Err(CliError::refused("needs_connection", "the link has expired before the account was connected; ask for another"))
}

/// What the person has at the server.
async fn state(backend: &Backend, name: &str) -> Result<Value, CliError> {
    let response = backend.get("/api/connections").await?;
    Ok(print::rows(&response, "connections").iter().find(|row| row["server"] == name).cloned().unwrap_or_default())
}
