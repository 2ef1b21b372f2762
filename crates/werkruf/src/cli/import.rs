//! `werkruf import`: the conversations and tool calls of an older program.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, print};
use crate::config::Variable;

/// At most this many skipped rows are listed; --json has all of them.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(super) struct Command {
    /// Source: sqlite:FILE or postgres://…
    #[arg(long, value_name = "DATABASE")]
    from: String,
    /// Report what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(session: &Session, command: &Command) -> Outcome {
    let from = source(session, &command.from)?;
    Backend::run(session, async |backend| {
        let response = backend.post("/api/admin/import", &json!({"from": from, "dry_run": command.dry_run})).await?;
        if session.globals.json {
            print::json(&response)
        } else {
            report(&response, command.dry_run)
        }
        Ok(())
    })
    .await
}

/// The source as the server can open it: a file gets its absolute path.
fn source(session: &Session, from: &str) -> Result<String, CliError> {
    let Some(file) = from.strip_prefix("sqlite://").or_else(|| from.strip_prefix("sqlite:")) else {
        if from.contains("://") {
            return Ok(from.to_owned());
        }
        return Err(CliError::Usage(format!("`{from}` names no database; write sqlite:FILE or postgres://…")));
    };
    let remote = session.globals.server.is_some() || session.environment.get(Variable::WERKRUF_SERVER).is_some();
    if remote && !Path::new(file).is_absolute() {
        return Err(CliError::Usage("the file is read by the server; give its absolute path there".to_owned()));
    }
    let path = std::path::absolute(file).map_err(|error| CliError::refused("source_unusable", format!("{file}: {error}")))?;
    Ok(format!("sqlite:{}", path.display()))
}

fn report(response: &Value, dry_run: bool) {
    let counts = |name: &str| -> Vec<Vec<String>> {
        response[name].as_object().into_iter().flatten().map(|(table, count)| vec![table.clone(), count.to_string()]).collect()
    };
    print::table(&["READ FROM", "ROWS"], counts("read"));
    print::table(&[if dry_run { "WOULD WRITE TO" } else { "WROTE TO" }, "ROWS"], counts("written"));
    let skipped = print::rows(response, "skipped");
    for row in skipped.iter().take(SHOWN) {
        print::line(&print::harmless(&format!(
            "skipped {} {}: {}",
            print::field(row, "table"),
            print::field(row, "id"),
            print::field(row, "reason")
        )));
    }
    if skipped.len() > SHOWN {
        print::line(&format!("… and {} more; --json lists all", skipped.len() - SHOWN));
    }
}
