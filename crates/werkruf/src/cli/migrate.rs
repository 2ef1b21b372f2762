//! `werkruf migrate`: updates or checks the schema of either database. It works on the database itself, not on a server.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use werkruf_contract::Clock;
use werkruf_runtime::RecoveryCloser;
use werkruf_store::{Act, Audit, Author, HeldWork, PostgresStore, SERVER_CHAIN, SchemaReport, SqliteStore};

use super::backup::refused;
use super::error::CliError;
use super::{Outcome, Session, print};
use crate::app::postgres_options;
use crate::config::Database;
use crate::database_file;
use crate::modules::MODULES;
use crate::secret_key;
use crate::start_error::StartError;

#[derive(Debug, Args)]
pub(super) struct Command {
    /// Report missing migrations and change nothing; exit 1 if there are any
    #[arg(long)]
    check: bool,
    /// Put the views chats, tool_call and api_usage_by_chat into the schema public too (PostgreSQL)
    #[arg(long, conflicts_with = "check")]
    compat_views: bool,
    /// Hold pending work in a database that was restored with pg_restore, so that nothing is sent again automatically (PostgreSQL)
    #[arg(long, conflicts_with = "check")]
    hold: bool,
    /// With --hold: even if a server seems to use the database
    #[arg(long, requires = "hold")]
    force: bool,
}

pub(super) async fn run(session: &Session, command: &Command) -> Outcome {
    let config = session.config()?;
    let clock = Clock::system(config.clock_offset_s);
    let only_postgres =
        |flag: &str| CliError::Usage(format!("{flag} is for PostgreSQL; `werkruf restore` holds what a SQLite backup would send"));
    let mut held = None;
    let report = match &config.database {
        Database::Sqlite(_) if command.compat_views => return Err(only_postgres("--compat-views")),
        Database::Sqlite(_) if command.hold => return Err(only_postgres("--hold")),
        Database::Sqlite(file) => {
            let (file, check) = (file.clone(), command.check);
            let opening = move || -> Result<SchemaReport, StartError> {
                let opened = |error| database_file::diagnose(&file, error);
                if !check {
                    database_file::prepare(&file)?;
                    SqliteStore::open(&file, &clock, MODULES).map_err(opened)?;
                }
                SqliteStore::schema_report(&file, MODULES).map_err(opened)
            };
            let opened = tokio::task::spawn_blocking(opening).await;
            opened.map_err(|error| CliError::refused("internal", format!("the migration did not end: {error}")))??
        }
        Database::Postgres(url) => {
            let options = postgres_options(&config, url);
            let failed = |error| StartError::of_postgres(&config, error);
            if !command.check {
                let store = PostgresStore::open(options.clone(), &clock, MODULES).await.map_err(failed)?;
                if command.compat_views {
                    store.add_compat_views().await.map_err(StartError::from)?;
                }
                if command.hold {
                    let now = clock.now();
                    let closer = Arc::new(RecoveryCloser::new(clock));
                    let work = store.hold_pending(command.force, closer, now).await.map_err(|error| refused(&error))?;
                    store.secret_keys().replace(secret_key::keys(&config)?);
                    let act = Act::new("database.hold", "all tenants").after(json!(work));
                    store.record(SERVER_CHAIN, Author::operator(), act, now).await.map_err(StartError::from)?;
                    held = Some(work);
                }
            }
            PostgresStore::schema_report(&options, MODULES).await.map_err(failed)?
        }
    };
    print_report(session, &report, held.as_ref());
    Ok(if report.pending.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_report(session: &Session, report: &SchemaReport, held: Option<&HeldWork>) {
    if session.globals.json {
        let mut line = json!(report);
        if let Some(held) = held {
            line["held"] = json!(held);
        }
        return print::json(&line);
    }
    let SchemaReport { found, known, pending } = report;
    match pending.as_slice() {
        [] => print::line(&format!("The schema is at {found}; this binary knows {known}")),
        missing => print::line(&format!("The schema is at {found}, this binary knows {known}; missing: {}", missing.join(", "))),
    }
    if let Some(HeldWork { turns, calls, approvals, outbox }) = held {
        print::line(&format!("Held: {turns} turns, {calls} calls, {approvals} approvals, {outbox} messages to send"));
    }
}
