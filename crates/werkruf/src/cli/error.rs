//! Errors of commands: the exit code tells usage errors from refusals, the text says what to do.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::print;
use crate::config::ConfigViolation;
use crate::start_error::StartError;

/// Why a command failed.
#[derive(Debug)]
pub enum CliError {
    /// The command line cannot be understood: exit 2.
    Usage(String),
    /// Refused or not found: exit 1.
    Refused { code: String, message: String, details: Option<Value> },
}

impl CliError {
    /// A refusal with this code.
    pub fn refused(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Refused { code: code.into(), message: message.into(), details: None }
    }

    /// The message without the code.
    pub(super) fn into_message(self) -> String {
        match self {
            Self::Usage(message) | Self::Refused { message, .. } => message,
        }
    }

    /// Adds structured details.
    #[must_use]
    pub(super) fn with_details(mut self, more: Value) -> Self {
        if let Self::Refused { details, .. } = &mut self {
            *details = Some(more);
        }
        self
    }

    /// Prints the error to stderr, as JSON with `--json`, and returns the exit code.
    pub(super) fn report(&self, json: bool) -> ExitCode {
        let (status, code, message, details) = match self {
            Self::Usage(message) => (2, "usage", message, None),
            Self::Refused { code, message, details } => (1, code.as_str(), message, details.as_ref()),
        };
        if json {
            let mut error = json!({"code": code, "message": message});
            if let Some(details) = details {
                error["details"] = details.clone();
            }
            print::error_line(&json!({"error": error}).to_string());
        } else {
            print::error(code, message);
            for detail in details.and_then(Value::as_array).into_iter().flatten() {
                print::error_line(&format!("  {}", detail_line(detail)));
            }
        }
        ExitCode::from(status)
    }
}

fn detail_line(detail: &Value) -> String {
    print::harmless(&detail_text(detail))
}

fn detail_text(detail: &Value) -> String {
    let text = |field: &str| detail.get(field).and_then(Value::as_str);
    match (text("path"), text("message"), detail.get("line").and_then(Value::as_u64)) {
        (Some(path), Some(message), Some(line)) => format!("{path} (line {line}): {message}"),
        (Some(path), Some(message), None) => format!("{path}: {message}"),
        // One of several objects that an ambiguous id may mean.
        _ if text("id").is_some() => {
            let fields = [text("id"), text("created_at"), text("name")];
            fields.into_iter().flatten().collect::<Vec<_>>().join("  ")
        }
        _ => detail.to_string(),
    }
}

impl From<Vec<ConfigViolation>> for CliError {
    fn from(violations: Vec<ConfigViolation>) -> Self {
        let message = format!("the configuration has {} error(s)", violations.len());
        let code = StartError::code_of(&violations).to_owned();
        Self::Refused { code, message, details: serde_json::to_value(violations).ok() }
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Config(violations) => violations.into(),
            other => Self::refused(other.code(), other.to_string()),
        }
    }
}
