//! `werkruf backup` and `werkruf restore`. A backup can be made while a server runs; a restore needs exclusive access to the
//! database.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use werkruf_contract::Clock;
use werkruf_runtime::RecoveryCloser;
use werkruf_store::{MaintenanceError, Restored, SecretKeys, SqliteStore};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, print};
use crate::config::{Config, Variable};
use crate::modules::MODULES;
use crate::secret_key;

#[derive(Debug, Args)]
pub(super) struct File {
    /// The backup file
    file: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

pub(super) async fn back_up(session: &Session, File { file, force }: File) -> Outcome {
    let remote = names_server(session);
    if remote && !file.is_absolute() {
        return Err(CliError::Usage("the file is written by the server; give it an absolute path there".to_owned()));
    }
    if !remote {
        let database = file_of(&session.config()?)?;
        if !database.exists() {
            return Err(CliError::refused("not_found", format!("there is no database {}", database.display())));
        }
    }
    let path = std::path::absolute(&file).map_err(|error| unusable(&file, &error))?;
    let path = path.to_str().ok_or_else(|| CliError::Usage("the path must be UTF-8".to_owned()))?;
    // A backup belongs to no tenant and no user.
    let backend = Backend::open(&session.without_tenant()).await?;
    let response = backend.post("/api/admin/backup", &json!({"path": path, "force": force})).await;
    backend.close().await;
    let response = response?;
    if session.globals.json {
        print::json(&response);
    } else {
        print::line(&format!("Wrote {} ({} bytes, schema {}), read back and verified", path, response["bytes"], response["schema"]));
        print::table(&["TABLE", "ROWS"], rows(&response["rows"]));
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces the database with a backup.
pub(super) async fn restore(session: &Session, File { file, force }: File) -> Outcome {
    if names_server(session) {
        return Err(CliError::Usage("a restore works on files; run it where the database is, without --server".to_owned()));
    }
    let config = session.config()?;
    let clock = Clock::system(config.clock_offset_s);
    let database = file_of(&config)?;
    let (closer, keys) = (RecoveryCloser::new(clock.clone()), SecretKeys::new(secret_key::keys(&config)?));
    let restoring = tokio::task::spawn_blocking(move || SqliteStore::restore(&file, &database, force, &closer, &clock, MODULES, &keys));
    let restored = restoring.await.map_err(|error| CliError::refused("internal", format!("the restore did not end: {error}")))?;
    let restored = restored.map_err(|error| refused(&error))?;
    let warning = missing_key(&restored, config.secret_key.is_some());
    if session.globals.json {
        let mut answer = json!(restored);
        answer["warnings"] = json!(warning.iter().collect::<Vec<_>>());
        print::json(&answer);
    } else {
        report(&restored);
    }
    if let Some(warning) = warning {
        print::error_line(&format!("warning: {warning}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The warning about a backup that was made with a key that is not there, and what to do about it.
fn missing_key(restored: &Restored, from_environment: bool) -> Option<String> {
    let names = restored.missing_keys.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let place =
        if from_environment { Variable::WERKRUF_SECRET_KEY.name().to_owned() } else { format!("{}.key", restored.database.display()) };
    (!names.is_empty()).then(|| {
        format!(
            "key_missing: the key of this backup ({names}) is not in {place}. `werkruf audit verify` will fail, and stored tokens cannot be \
             read. Put the key that belonged to the backup into {place} and restore again with --force, before the server is used."
        )
    })
}

/// The SQLite file to copy or replace; PostgreSQL has its own tools for that.
fn file_of(config: &Config) -> Result<PathBuf, CliError> {
    let why = "this command copies SQLite files; PostgreSQL has pg_dump and pg_restore, then `werkruf migrate --hold` (docs/operations.md)";
    config.database.file().map(Path::to_path_buf).ok_or_else(|| CliError::Usage(why.to_owned()))
}

fn report(restored: &Restored) {
    print::line(&format!("Restored {} (schema {})", restored.database.display(), restored.schema));
    if let Some(kept) = &restored.kept {
        print::line(&format!("The database that was there is now {}", kept.display()));
    }
    let held = restored.held;
    print::line(&format!(
        "Held: {} turn(s), {} call(s), {} approval(s), {} outgoing message(s); none of these is sent automatically",
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
