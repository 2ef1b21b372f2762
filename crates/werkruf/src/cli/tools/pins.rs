//! `werkruf tools accept|changes|servers|lock`: the tools of MCP servers and their pinned definitions.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::backend::Backend;
use crate::cli::error::CliError;
use crate::cli::{Outcome, Session, encode, print};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Command {
    /// Accept the changed definition of a tool of an MCP server, which is then offered again
    #[command(after_help = "Examples:\n  werkruf tools changes\n  werkruf tools accept office_book_room")]
    Accept {
        /// Name of the tool, with the prefix of its server
        name: String,
        /// Only if this is the definition that the server offers
        #[arg(long, value_name = "SHA256")]
        digest: Option<String>,
    },
    /// Tools of MCP servers whose definition has changed: the pinned one and the new one
    #[command(after_help = "Examples:\n  werkruf tools changes\n  werkruf tools changes --json")]
    Changes,
    /// The MCP servers of a running server, and what they offer
    #[command(after_help = "Examples:\n  werkruf tools servers")]
    Servers,
    /// Write the pinned definitions of the tools of MCP servers to a file
    #[command(after_help = "Examples:\n  werkruf tools lock\n  werkruf tools lock -    # to stdout")]
    Lock {
        /// The file, or - for stdout
        #[arg(default_value = "werkruf-tools.lock")]
        file: String,
    },
}

pub(in crate::cli) async fn run(session: &Session, command: Command) -> Outcome {
    let json = session.globals.json;
    // The definitions belong to no tenant and no user.
    Backend::run(&session.without_tenant(), async |backend| execute(backend, command, json).await).await
}

async fn execute(backend: &Backend, command: Command, json: bool) -> Result<(), CliError> {
    if let Command::Accept { name, digest } = command {
        let accepted = backend.post(&format!("/api/admin/tools/{}/accept", encode(&name)), &json!({"digest": digest})).await?;
        if json {
            print::json(&accepted);
        } else {
            print::line(&format!("{name} is accepted as {} and offered again", print::field(&accepted, "digest")));
        }
        return Ok(());
    }
    let response = backend.get("/api/admin/tools").await?;
    match command {
        Command::Lock { file } => lock(&response, &file)?,
        Command::Servers if json => print::json(&json!({"servers": response["servers"]})),
        Command::Servers => servers(&response),
        Command::Changes | Command::Accept { .. } => changes(&response, json),
    }
    Ok(())
}

fn servers(response: &Value) {
    let count = |row: &Value, list: &str| row[list].as_array().map_or(0, Vec::len).to_string();
    let cells = |row: &Value| {
        let mut cells = print::fields(row, &["name", "state", "protocol"]);
        cells.extend([count(row, "tools"), count(row, "changed"), count(row, "refused"), print::field(row, "error")]);
        cells
    };
    let none = "No MCP servers; `werkruf serve` connects to those of [[tools]] with kind = \"mcp\".";
    print::list(print::rows(response, "servers"), none, &["NAME", "STATE", "PROTOCOL", "TOOLS", "CHANGED", "LEFT OUT", "ERROR"], cells);
}

fn changes(response: &Value, json: bool) {
    let changed: Vec<&Value> = print::rows(response, "pins").iter().filter(|pin| pin["status"] == "changed").collect();
    if json {
        return print::json(&json!({"changes": changed}));
    }
    if changed.is_empty() {
        return print::line("No tool of an MCP server has changed.");
    }
    for pin in changed {
        print::line(&format!(
            "{} of the server {}, changed since {}",
            print::field(pin, "name"),
            print::field(pin, "server"),
            print::field(pin, "changed_at")
        ));
        print::line(&format!("- {}", pin["definition"]));
        print::line(&format!("+ {}", pin["changed_definition"]));
        print::line(&format!(
            "`werkruf tools accept {} --digest {}` accepts it",
            print::field(pin, "name"),
            print::field(pin, "changed_digest")
        ));
    }
}

/// The pinned digests, in a form that shows changes line by line in version control.
fn lock(response: &Value, file: &str) -> Result<(), CliError> {
    let pins: Vec<Value> = print::rows(response, "pins")
        .iter()
        .map(|pin| json!({"name": pin["name"], "server": pin["server"], "digest": pin["digest"], "definition": pin["definition"]}))
        .collect();
    let text = serde_json::to_string_pretty(&json!({"version": 1, "tools": pins})).unwrap_or_default() + "\n";
    if file == "-" {
        print::line(text.trim_end());
        return Ok(());
    }
    std::fs::write(file, text).map_err(|error| CliError::refused("io", format!("cannot write {file}: {error}")))?;
    print::line(&format!("{} tools are in {file}", pins.len()));
    Ok(())
}
