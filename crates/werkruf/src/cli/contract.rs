//! `werkruf contract …`: the JSON envelopes of tool calls. Works offline.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Map, Value, json};
use werkruf_contract::{ENVELOPES, Violation, check, schema_of};

use super::error::CliError;
use super::{Outcome, print, read_input};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// JSON Schema of one envelope, or of all of them
    #[command(after_help = "Examples:\n  werkruf contract schema ToolContext\n  werkruf contract schema > envelopes.json")]
    Schema {
        /// Name of the envelope, such as ToolContext
        name: Option<String>,
    },
    /// Check whether a JSON file is a valid envelope; exit 1 if it is not
    #[command(
        after_help = "Examples:\n  werkruf contract check ToolOutput answer.json\n  curl … | werkruf contract check ToolOutput - --json"
    )]
    Check {
        /// Name of the envelope, such as ToolContext
        name: String,
        /// A file, or - for stdin
        file: String,
    },
}

pub(super) fn run(command: &Command, json: bool) -> Outcome {
    match command {
        Command::Schema { name: Some(name) } => {
            print::json(&schema_of(name).ok_or_else(|| unknown(name))?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Schema { name: None } => {
            let all: Map<String, Value> = ENVELOPES.iter().filter_map(|name| Some(((*name).to_owned(), schema_of(name)?))).collect();
            print::json(&Value::Object(all));
            Ok(ExitCode::SUCCESS)
        }
        Command::Check { name, file } => {
            if !ENVELOPES.contains(&name.as_str()) {
                return Err(unknown(name));
            }
            let violations = match serde_json::from_slice::<Value>(&read_input(file)?) {
                Ok(value) => check(name, &value).ok_or_else(|| unknown(name))?,
                Err(error) => vec![Violation::new("", format!("is not JSON: {error}"))],
            };
            Ok(verdict(name, &violations, json))
        }
    }
}

fn verdict(name: &str, violations: &[Violation], json: bool) -> ExitCode {
    let valid = violations.is_empty();
    if json {
        print::json(&json!({"valid": valid, "violations": violations}));
    } else if valid {
        print::line(&format!("valid {name}"));
    } else {
        for violation in violations {
            print::line(&format!("{}: {}", if violation.path.is_empty() { "/" } else { &violation.path }, violation.message));
        }
    }
    if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn unknown(name: &str) -> CliError {
    CliError::Usage(format!("there is no envelope named {name}; there are {}", ENVELOPES.join(", ")))
}
