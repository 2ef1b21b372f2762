//! `werkruf backup` and `werkruf restore`. A backup is made beside a running server; a restore needs the database for itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use werkruf_contract::Clock;
use werkruf_store::{MaintenanceError, Restored, SqliteStore};

use super::backend::Backend;
use super::error::CliError;
use super::{Globals, Outcome, Session, print};
use crate::config::{Config, Variable};

#[derive(Debug, Args)]
pub(super) struct File {
    /// The backup
    file: PathBuf,
    /// Replace what is there
    #[arg(long)]
    force: bool,
}

/// Makes a backup.
pub(super) async fn back_up(session: &Session, File { file, force }: File) -> Outcome {
    let elsewhere = names_server(session);
    if elsewhere && !file.is_absolute() {
        return Err(CliError::Usage("the file is written by the server; give it an absolute path there".to_owned()));
    }
    if !elsewhere {
        let database = file_of(&session.config()?)?;
        if !database.exists() {
            return Err(CliError::refused("not_found", format!("there is no database {}", database.display())));
        }
    }
    let path = std::path::absolute(&file).map_err(|error| unusable(&file, &error))?;
    let path = path.to_str().ok_or_else(|| CliError::Usage("the path must be UTF-8".to_owned()))?;
    // A backup belongs to no tenant and no person.
    let operator = Session {
        globals: Globals { user: None, tenant: None, ..session.globals.clone() },
        listen: None,
        environment: session.environment.clone(),
    };
    let backend = Backend::open(&operator).await?;
    let answer = backend.post("/api/admin/backup", &json!({"path": path, "force": force})).await;
    backend.close().await;
    let answer = answer?;
    if session.globals.json {
        print::json(&answer);
    } else {
        print::line(&format!("Wrote {} ({} bytes, schema {}), read back and whole", path, answer["bytes"], answer["schema"]));
        print::table(&["TABLE", "ROWS"], rows(&answer["rows"]));
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a backup in the place of the database.
pub(super) async fn restore(session: &Session, File { file, force }: File) -> Outcome {
    if names_server(session) {
        return Err(CliError::Usage("a restore works on files; run it where the database is, without --server".to_owned()));
    }
    let config = session.config()?;
    let clock = Clock::system(config.clock_offset_s);
    let database = file_of(&config)?;
    let restoring = tokio::task::spawn_blocking(move || SqliteStore::restore(&file, &database, force, &clock));
    let restored = restoring.await.map_err(|error| CliError::refused("internal", format!("the restore did not end: {error}")))?;
    let restored = restored.map_err(|error| refused(&error))?;
    if session.globals.json {
        print::json(&json!(restored));
    } else {
        tell(&restored);
    }
    Ok(ExitCode::SUCCESS)
}

/// The file to copy or replace; PostgreSQL has tools of its own for that.
fn file_of(config: &Config) -> Result<PathBuf, CliError> {
    let why = "this command copies SQLite files; PostgreSQL has pg_dump and pg_restore, then `werkruf migrate --hold` (docs/operations.md)";
    config.database.file().map(Path::to_path_buf).ok_or_else(|| CliError::Usage(why.to_owned()))
}

fn tell(restored: &Restored) {
    print::line(&format!("Restored {} (schema {})", restored.database.display(), restored.schema));
    if let Some(kept) = &restored.kept {
        print::line(&format!("The database that was there is now {}", kept.display()));
    }
    let held = restored.held;
    print::line(&format!(
        "HeldWork: {} turn(s), {} call(s), {} approval(s), {} outgoing message(s); nothing of it is sent by itself",
        held.turns, held.calls, held.approvals, held.outbox
    ));
    if held.calls > 0 {
        print::line("See them with `werkruf calls list --status failed`; send one again with `werkruf calls retry`");
    }
    if restored.erased_again > 0 {
        print::line(&format!("Erased again: {} person(s) erased after the backup was made", restored.erased_again));
    }
}

fn rows(counts: &Value) -> Vec<Vec<String>> {
    counts.as_object().into_iter().flatten().map(|(table, count)| vec![table.clone(), count.to_string()]).collect()
}

fn names_server(session: &Session) -> bool {
    session.globals.server.is_some() || session.environment.get(Variable::WERKRUF_SERVER).is_some()
}

pub(super) fn refused(error: &MaintenanceError) -> CliError {
    CliError::refused(error.code(), error.to_string())
}

fn unusable(file: &Path, error: &std::io::Error) -> CliError {
    CliError::refused("file_unusable", format!("{}: {error}", file.display()))
}
