//! `werkruf doctor`: says what is wrong and what to do. It changes nothing, and works with and without a server.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use werkruf_contract::{Clock, Deadline};
use werkruf_llm::{HttpLimits, http_client};
use werkruf_store::{Diagnosis, PostgresStore, SqliteStore};

use super::backend::Backend;
use super::config::check_model;
use super::error::CliError;
use super::status::schema;
use super::{Outcome, Session, print};
use crate::app::postgres_options;
use crate::config::{Config, Database, ModelConfig, Variable};
use crate::doctor::{Report, Severity, check_configuration, check_database, check_files, check_secrets};
use crate::lockfile::LockNote;
use crate::modules::MODULES;
use crate::planner::Planner;
use crate::start_error::StartError;
use crate::{provider, setup, version};

/// The embedding model answers within this time.
const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(super) struct Command {
    /// Also send a request to the model and to the embedding model (this may cost a little)
    #[arg(long)]
    live: bool,
}

pub(super) async fn run(session: &Session, command: &Command) -> Outcome {
    let session = session.without_tenant();
    let mut report = Report::default();
    let remote = session.globals.server.is_some() || session.environment.get(Variable::WERKRUF_SERVER).is_some();
    let config = if remote { None } else { read_configuration(&session, &mut report)? };
    // With errors in the configuration nothing more can be found.
    if remote || config.is_some() {
        match (Backend::find(&session).await?, &config) {
            (Some(backend), _) => ask_server(&backend, &mut report).await,
            (None, Some(config)) => examine_without_server(config, &mut report).await,
            (None, None) => {}
        }
    }
    if command.live {
        match &config {
            Some(config) => ask_models(config, &mut report).await?,
            None => report.checked("the models: not asked; --live needs the configuration, without --server"),
        }
    }
    report.add(Report::default());
    let healthy = report.is_healthy();
    if session.globals.json {
        let mut answer = json!({"ok": healthy});
        answer["checked"] = json!(report.checked);
        answer["findings"] = json!(report.findings);
        print::json(&answer);
    } else {
        show(&report);
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The configuration of this machine; `None` with errors, which are reported.
fn read_configuration(session: &Session, report: &mut Report) -> Result<Option<Config>, CliError> {
    let client = http_client(&HttpLimits::default()).map_err(|error| CliError::refused("http_client", error.to_string()))?;
    match setup::read(&session.flags(), &session.environment, &client) {
        Ok((config, _)) => Ok(Some(config)),
        Err(violations) => {
            report.checked("configuration");
            for violation in violations {
                let code = violation.code.unwrap_or(StartError::INVALID_CONFIG);
                let advice = "Correct it; `werkruf config check` shows the place.";
                report.find(Severity::Error, "config", code, violation.to_string(), advice);
            }
            Ok(None)
        }
    }
}

/// What the server says of itself.
async fn ask_server(backend: &Backend, report: &mut Report) {
    let address = backend.address();
    let ready = backend.readiness().await;
    match backend.get("/api/admin/doctor").await {
        Ok(answer) => {
            report.checked(format!("server: {address}"));
            match serde_json::from_value(answer) {
                Ok(found) => report.add(found),
                Err(error) => {
                    let advice = "Use the command of the same version as the server.";
                    report.find(Severity::Error, "server", "", format!("The answer of {address} cannot be read: {error}."), advice);
                }
            }
        }
        Err(error) => {
            let advice = "Read the log of the server; `werkruf status` shows more. The command needs the operator's key.";
            let message = format!("The server at {address} gives no diagnosis: {}", error.into_message());
            report.find(Severity::Error, "server", "server_unavailable", message, advice);
        }
    }
    if let Ok(status) = backend.get("/api/admin/status").await
        && status["version"] != version::VERSION
    {
        let message = format!("The server has version {}, this command {}.", print::field(&status, "version"), version::VERSION);
        report.find(Severity::Warning, "server", "", message, "Restart the server with the installed version.");
    }
    let warnings = ready.ok().map(|mut ready| ready["warnings"].take());
    for warning in warnings.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str) {
        let (code, text) = warning.split_once(": ").unwrap_or(("", warning));
        let severity = if code == "knowledge_index" { Severity::Note } else { Severity::Warning };
        // Only some of these have a page.
        let code = if ["storage_full", "database_replaced", "database_unavailable"].contains(&code) { code } else { "" };
        report.find(
            severity,
            "server",
            code,
            format!("The server says: {text}."),
            "Wait if it is starting or stopping; otherwise read its log.",
        );
    }
}

/// Looks at what the server would use.
async fn examine_without_server(config: &Config, report: &mut Report) {
    check_configuration(config, report);
    check_files(config, report);
    check_lock(config, report);
    match schema(config).await {
        Ok(None) => {
            let message = format!("There is no database {} yet.", config.database);
            let advice = "`werkruf serve` makes it; if there should be one, correct --database (WERKRUF_DATABASE).";
            report.find(Severity::Note, "database", "database_missing", message, advice);
        }
        Ok(Some(found)) if !found.pending.is_empty() || found.found != found.known => {
            let message = format!("The database has schema {}, this binary {}.", found.found, found.known);
            report.find(
                Severity::Error,
                "database",
                "",
                message,
                "`werkruf migrate` updates an older one; a newer one needs a newer binary.",
            );
        }
        Ok(Some(_)) => {
            check_secrets(config, report);
            let clock = Clock::system(config.clock_offset_s);
            match diagnose(config, &clock).await {
                Ok(diagnosis) => check_database(&diagnosis, config, clock.now(), report),
                Err(error) => report.unusable_database(&error),
            }
        }
        Err(error) => report.unusable_database(&error),
    }
}

/// A server that was killed leaves its lock file; one that hangs does not answer.
fn check_lock(config: &Config, report: &mut Report) {
    // Only a SQLite file has a note that names its server.
    let Some(path) = config.lock_path() else { return report.checked("server: not named; --server asks one of this database's") };
    let Some(note) = LockNote::read(&path) else { return report.checked("server: none runs on this database") };
    let pid = i32::try_from(note.pid).ok().and_then(Pid::from_raw);
    if pid.is_some_and(|pid| test_kill_process(pid).is_ok()) {
        let message = format!("A server runs as process {} but does not answer at {}.", note.pid, note.address);
        report.find(Severity::Error, "server", "server_unavailable", message, "Read its log; restart it if it hangs.");
    } else {
        let message = format!("The server at {} ended without saying so: it was killed, or the machine stopped.", note.address);
        report.find(
            Severity::Warning,
            "server",
            "server_unavailable",
            message,
            "Start it again; it continues the turns that were running.",
        );
    }
}

async fn diagnose(config: &Config, clock: &Clock) -> Result<Diagnosis, StartError> {
    match &config.database {
        Database::Sqlite(file) => {
            let (file, now) = (file.clone(), clock.now());
            // Reads the whole file.
            let reading = tokio::task::spawn_blocking(move || SqliteStore::diagnose_file(&file, now));
            let ended = reading.await.map_err(|error| StartError::Unusable(format!("the diagnosis did not end: {error}")))?;
            Ok(ended?)
        }
        Database::Postgres(url) => {
            let found = PostgresStore::diagnose_at(postgres_options(config, url), clock, MODULES).await;
            found.map_err(|error| StartError::of_postgres(config, error))
        }
    }
}

/// One request to the model, and one to the embedding model.
async fn ask_models(config: &Config, report: &mut Report) -> Result<(), CliError> {
    let client = http_client(&HttpLimits::default()).map_err(|error| CliError::refused("http_client", error.to_string()))?;
    if !matches!(config.model, ModelConfig::Offline) {
        let answer = match check_model(config, &client).await {
            Ok(answer) => answer,
            Err(error) => json!({"ok": false, "text": error.into_message()}),
        };
        let text = print::field(&answer, "text");
        report.checked(format!("model, live: {text}"));
        if answer["ok"] != true {
            let advice = "Check OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL; `werkruf config check --live` asks the same.";
            report.find(Severity::Error, "model", "model_unavailable", format!("The model made no tool call: {text}."), advice);
        }
    }
    if config.embedding.is_some() {
        let chat = Arc::new(Planner::default().provider());
        let embeddings = provider::providers(config, &client, chat)?.embeddings;
        let deadline = Deadline::after(EMBEDDING_TIMEOUT);
        let answer = match &embeddings {
            Some(embeddings) => embeddings.embed(&["ping".to_owned()], None, deadline).await.map(|_| embeddings.model().to_owned()),
            None => return Ok(()),
        };
        match answer {
            Ok(model) => report.checked(format!("embedding model, live: {model} answers")),
            Err(error) => {
                let advice = "Check OPENAI_EMBEDDING_BASE_URL, OPENAI_EMBEDDING_API_KEY and OPENAI_EMBEDDING_MODEL; until then searches use words only.";
                report.find(Severity::Error, "embedder", "", format!("The embedding model gives no vectors: {error}."), advice);
            }
        }
    }
    Ok(())
}

fn show(report: &Report) {
    for what in &report.checked {
        print::line(&format!("checked   {}", print::harmless(what)));
    }
    for finding in &report.findings {
        let word = match finding.severity {
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
            Severity::Note => "note",
        };
        let code = finding.code.as_ref().map(|code| format!(" (docs/errors/{code}.md)")).unwrap_or_default();
        print::line(&format!("{word:<10}{}{}", print::harmless(&finding.message), print::harmless(&code)));
        print::line(&format!("          {}", print::harmless(&finding.advice)));
    }
    if report.is_healthy() {
        print::line("Nothing is wrong.");
    }
}
