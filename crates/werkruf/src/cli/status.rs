//! `werkruf status`: what runs where. It makes no database and migrates none, and it also answers when the server is down.

use std::cmp::Ordering;
use std::process::ExitCode;

use serde_json::{Value, json};
use werkruf_store::{PostgresStore, SchemaReport, SqliteStore};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, print};
use crate::app::postgres_options;
use crate::config::{Config, Database};
use crate::modules::MODULES;
use crate::start_error::StartError;
use crate::{database_file, provider, version};

/// The counts, in the order in which they are shown.
const COUNTS: [(&str, &str); 8] = [
    ("tenants", "tenants"),
    ("users", "users"),
    ("api_keys", "keys"),
    ("conversations", "conversations"),
    ("open_turns", "open turns"),
    ("pending_approvals", "pending approvals"),
    ("recent_calls", "calls in 24 h"),
    ("recent_failed_calls", "of these failed"),
];

/// Exit code 1 if no server answers, or if the database cannot be used.
pub(super) async fn run(session: &Session) -> Outcome {
    let session = session.without_tenant();
    let mut report = json!({"version": version::VERSION, "commit": version::commit()});
    let mut healthy = false;
    match Backend::find(&session).await? {
        Some(backend) => {
            let answer = backend.get("/api/admin/status").await;
            healthy = !is_silent(&answer);
            let ready = backend.readiness().await;
            report["server"] = json!({"address": backend.address(), "answers": !is_silent(&answer), "ready": ready.as_ref().is_ok_and(|ready| ready["ready"] == true)});
            match answer {
                Ok(answer) => report["server"]["status"] = answer,
                Err(error) => report["server"]["error"] = error.into_message().into(),
            }
            if let Ok(Value::Array(warnings)) = ready.map(|mut ready| ready["warnings"].take()) {
                report["server"]["warnings"] = warnings.into();
            }
        }
        None => {
            report["server"] = Value::Null;
            describe_database(&session, &mut report).await?;
        }
    }
    if session.globals.json {
        print::json(&report);
    } else {
        show(&report);
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether no answer came at all; a refusal is an answer.
fn is_silent(answer: &Result<Value, CliError>) -> bool {
    matches!(answer, Err(CliError::Refused { code, .. }) if code == "server_unavailable")
}

/// What the configuration names, and what the database says without a server.
async fn describe_database(session: &Session, report: &mut Value) -> Result<(), CliError> {
    let config = session.config()?;
    report["model"] = provider::describe(&config.model).into();
    report["modules"] = json!(config.modules.names());
    report["database"] = json!({"name": config.database.to_string()});
    let database = &mut report["database"];
    match schema(&config).await {
        Ok(None) => database["error"] = "does not exist yet; `werkruf serve` makes it".into(),
        Ok(Some(schema)) => {
            let current = schema.pending.is_empty() && schema.found == schema.known;
            database["schema"] = json!(schema);
            if current {
                match counts_of_database(session).await {
                    Ok(counts) => database["counts"] = counts,
                    Err(error) => database["error"] = error.into_message().into(),
                }
            }
        }
        Err(error) => database["error"] = error.to_string().into(),
    }
    Ok(())
}

async fn counts_of_database(session: &Session) -> Result<Value, CliError> {
    let backend = Backend::open(session).await?;
    let answer = backend.get("/api/admin/status").await;
    backend.close().await;
    Ok(answer?["counts"].take())
}

/// The schema of the database; nothing if there is no database.
pub(super) async fn schema(config: &Config) -> Result<Option<SchemaReport>, StartError> {
    let report = match &config.database {
        Database::Sqlite(file) if !file.try_exists().unwrap_or(true) => return Ok(None),
        Database::Sqlite(file) => {
            database_file::prepare(file)?;
            SqliteStore::schema_report(file, MODULES).map_err(|error| database_file::diagnose(file, error))?
        }
        Database::Postgres(url) => {
            let report = PostgresStore::schema_report(&postgres_options(config, url), MODULES).await;
            report.map_err(|error| StartError::of_postgres(config, error))?
        }
    };
    Ok((report.found > 0).then_some(report))
}

fn show(report: &Value) {
    let line = |name: &str, text: &str| print::line(&format!("{name:<10}{text}"));
    let text = |value: &Value, name: &str| print::harmless(&print::field(value, name));
    line("Command", &format!("{} ({})", text(report, "version"), text(report, "commit")));
    let server = &report["server"];
    if server.is_null() {
        // Only a SQLite file has a note that names its server.
        let shared = print::field(&report["database"], "name").starts_with("postgres://");
        let unknown = "not named; --server asks one of the servers of this database";
        line("Server", if shared { unknown } else { "none runs on this database; `werkruf serve` starts one" });
        line("Model", &text(report, "model"));
        show_database(&report["database"], &line);
        line("Modules", &names(&report["modules"]));
        return;
    }
    let status = &server["status"];
    let state = match (server["answers"] == true, server["ready"] == true) {
        (true, true) => "ready",
        (true, false) => "answers, but is not ready",
        (false, _) => "does not answer",
    };
    line("Server", &format!("{} {state}", text(server, "address")));
    if let Some(error) = server["error"].as_str() {
        line("", &print::harmless(error));
    }
    for warning in server["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        line("Warning", &print::harmless(warning));
    }
    if status.is_object() {
        let since = status["started_at"].as_str().and_then(print::local_time).unwrap_or_default();
        line("Version", &format!("{} ({}), up since {since}", text(status, "version"), text(status, "commit")));
        line("Model", &text(status, "model"));
        line("Database", &text(status, "database"));
        line("Modules", &names(&status["modules"]));
        line("Rows", &counts(&status["counts"]));
    }
}

fn show_database(database: &Value, line: &dyn Fn(&str, &str)) {
    let name = print::field(database, "name");
    match (&database["error"], &database["schema"]) {
        (Value::String(error), _) => line("Database", &format!("{name}: {error}")),
        (_, schema) => {
            let (found, known) = (print::field(schema, "found"), print::field(schema, "known"));
            let state = match schema["found"].as_i64().cmp(&schema["known"].as_i64()) {
                Ordering::Equal => String::new(),
                Ordering::Less => format!(", this binary knows {known}; `werkruf migrate` updates it"),
                Ordering::Greater => format!(", but this binary knows only {known}; use a newer binary"),
            };
            line("Database", &format!("{name}, schema {found}{state}"));
        }
    }
    if database["counts"].is_object() {
        line("Rows", &counts(&database["counts"]));
    }
}

fn names(list: &Value) -> String {
    let names: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn counts(counts: &Value) -> String {
    let shown = COUNTS.iter().map(|(field, word)| format!("{} {word}", counts[*field].as_i64().unwrap_or(0)));
    shown.collect::<Vec<_>>().join(" · ")
}
