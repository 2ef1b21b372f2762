//! `werkruf doctor`: what is wrong with an installation, and what to do about it. Nothing here changes anything.
//!
//! The checks take a configuration, a look at files, or numbers of the database; a running server and the command use the same ones.

mod configuration;
mod database;
mod files;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use configuration::{check_configuration, check_secrets};
pub(crate) use database::check_database;
pub(crate) use files::check_files;

use crate::app::App;
use crate::loops::Loops;
use crate::routing::ToSchema;
use crate::start_error::StartError;

/// A database that has not answered after this time does not answer. The check of all pages of a large file takes a while.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(60);

/// How bad a finding is. The worst one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// Something does not work.
    Error,
    /// Something will not work, or is not safe.
    Warning,
    /// Worth knowing; nothing has to be done.
    Note,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// What was looked at: `config`, `files`, `database`, `server`, `model` or `embedder`.
    pub(crate) check: String,
    /// The page in docs/errors, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) code: Option<String>,
    /// One sentence.
    pub(crate) message: String,
    /// What to do.
    pub(crate) advice: String,
}

/// Everything that was looked at, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Report {
    /// What was looked at, in a few words each.
    pub(crate) checked: Vec<String>,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn checked(&mut self, what: impl Into<String>) {
        self.checked.push(what.into());
    }

    /// Adds a finding. The code may be empty.
    pub(crate) fn find(&mut self, severity: Severity, check: &str, code: &str, message: impl Into<String>, advice: impl Into<String>) {
        let code = (!code.is_empty()).then(|| code.to_owned());
        let (check, message, advice) = (check.to_owned(), message.into(), advice.into());
        self.findings.push(Finding { severity, check, code, message, advice });
    }

    /// The findings of both, the worst first.
    pub(crate) fn add(&mut self, other: Self) {
        self.checked.extend(other.checked);
        self.findings.extend(other.findings);
        self.findings.sort_by_key(|finding| finding.severity);
    }

    /// Whether something is wrong. Notes do not count.
    pub(crate) fn is_healthy(&self) -> bool {
        !self.findings.iter().any(|finding| finding.severity < Severity::Note)
    }

    /// A database that could not be looked at.
    pub(crate) fn unusable_database(&mut self, error: &StartError) {
        let advice = "Check the address or the file in --database (WERKRUF_DATABASE), and that the database runs there.";
        self.find(Severity::Error, "database", error.code(), format!("The database cannot be used: {error}."), advice);
    }
}

/// Looks at a running server from inside.
pub(crate) async fn examine(app: &App) -> Report {
    let mut report = Report::default();
    check_configuration(&app.config, &mut report);
    check_secrets(&app.config, &mut report);
    check_files(&app.config, &mut report);
    let now = app.clock.now();
    match tokio::time::timeout(DATABASE_TIMEOUT, app.monitoring_store.diagnose(now)).await {
        Ok(Ok(diagnosis)) => check_database(&diagnosis, &app.config, now, &mut report),
        Ok(Err(error)) => report.unusable_database(&error.into()),
        Err(_) => {
            let advice = "Look at the load of the database and of its disk, and try again.";
            report.find(
                Severity::Error,
                "database",
                "database_unavailable",
                "The database did not answer the questions within a minute.",
                advice,
            );
        }
    }
    check_loops(app, &mut report);
    report.add(Report::default());
    report
}

fn check_loops(app: &App, report: &mut Report) {
    let loops = Loops::of(app);
    let names: Vec<&str> = loops.background().map(|(name, _)| name).collect();
    report.checked(format!("background loops: {}", names.join(", ")));
    for (name, _) in loops.background().filter(|(_, found)| !found.ok) {
        let advice = "Read the log for the reason; restart the server if it does not say one.";
        report.find(Severity::Error, "server", "", format!("The background loop {name} has made no progress for too long."), advice);
    }
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
