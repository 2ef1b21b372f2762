//! `werkruf import`: the conversations and tool calls of an older program.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, print};
use crate::config::Variable;

/// So many skipped rows are listed one by one; --json has them all.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(super) struct Command {
    /// Where from: sqlite:FILE or postgres://…
    #[arg(long, value_name = "DATABASE")]
    from: String,
    /// Say what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(session: &Session, command: &Command) -> Outcome {
    let from = place(session, &command.from)?;
    let backend = Backend::open(session).await?;
    let answer = backend.post("/api/admin/import", &json!({"from": from, "dry_run": command.dry_run})).await;
    backend.close().await;
    let answer = answer?;
    if session.globals.json {
        print::json(&answer)
    } else {
        tell(&answer, command.dry_run)
    }
    Ok(ExitCode::SUCCESS)
}

/// The source as the server can find it: a file here has a full path.
fn place(session: &Session, from: &str) -> Result<String, CliError> {
    let Some(file) = from.strip_prefix("sqlite://").or_else(|| from.strip_prefix("sqlite:")) else {
        if from.contains("://") {
            return Ok(from.to_owned());
        }
        return Err(CliError::Usage(format!("`{from}` names no database; write sqlite:FILE or postgres://…")));
    };
    let elsewhere = session.globals.server.is_some() || session.environment.get(Variable::WERKRUF_SERVER).is_some();
    if elsewhere && !Path::new(file).is_absolute() {
        return Err(CliError::Usage("the file is read by the server; give its absolute path there".to_owned()));
    }
    let path = std::path::absolute(file).map_err(|error| CliError::refused("source_unusable", format!("{file}: {error}")))?;
    Ok(format!("sqlite:{}", path.display()))
}

fn tell(answer: &Value, dry_run: bool) {
    let counts = |name: &str| -> Vec<Vec<String>> {
        answer[name].as_object().into_iter().flatten().map(|(table, count)| vec![table.clone(), count.to_string()]).collect()
    };
    print::table(&["READ FROM", "ROWS"], counts("read"));
    print::table(&[if dry_run { "WOULD WRITE TO" } else { "WROTE TO" }, "ROWS"], counts("written"));
    let skipped = answer["skipped"].as_array().map(Vec::as_slice).unwrap_or_default();
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
