//! `werkruf workspace …`: the tenant's own business data.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};
use werkruf_store::import::{ImportFault, ImportRefusal, add_lines, parse_batch};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, not_utf8, print, read_input};
use crate::modules::MODULES;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Import branches, roles, users, requests, tasks, working times and articles; all of the file or nothing
    #[command(after_help = "Examples:\n  werkruf workspace import office.json\n  ./export.py | werkruf workspace import - --json\n\n\
                            The file names its tenant; a new slug makes the tenant. The same id replaces, a missing list changes nothing.")]
    Import {
        /// A JSON file, or - for stdin
        file: String,
    },
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let Command::Import { file } = command;
    let text = String::from_utf8(read_input(&file)?).map_err(|_| not_utf8(&file))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // Faults in the file's structure are reported without a server, and the tenant must be known before the request. Only the server knows
    // which modules are on.
    let tenant = match parse_batch(text, MODULES, |_| true) {
        Ok(batch) => batch.tenant,
        Err(ImportRefusal::Faults(faults)) => return Err(invalid(&faults)),
        Err(ImportRefusal::ModuleOff { module, .. }) => return Err(CliError::refused("module_off", format!("the module {module} is off"))),
    };
    if let Some(other) = session.globals.tenant.as_ref().filter(|named| **named != tenant) {
        return Err(CliError::Usage(format!("the file is for tenant `{tenant}`, not for `{other}`; leave --tenant out")));
    }
    let body: Value = serde_json::from_str(text).map_err(|error| CliError::refused("unreadable", format!("{file}: {error}")))?;
    // The tenant may be new, so the request cannot be made for this tenant.
    let backend = Backend::open(&session.without_tenant()).await?;
    let response = backend.post("/api/workspace/import", &body).await.map_err(|error| with_lines(error, text));
    backend.close().await;
    let response = response?;
    if session.globals.json {
        print::json(&response)
    } else {
        show(&tenant, &response)
    }
    Ok(ExitCode::SUCCESS)
}

fn show(tenant: &str, response: &Value) {
    print::line(&format!("Imported into {tenant} ({})", print::field(response, "tenant_id")));
    let rows: Vec<Vec<String>> =
        response["written"].as_object().into_iter().flatten().map(|(table, count)| vec![table.clone(), count.to_string()]).collect();
    if rows.is_empty() {
        print::line("The file has no rows.");
    } else {
        print::table(&["TABLE", "ROWS"], rows);
    }
}

fn invalid(faults: &[ImportFault]) -> CliError {
    let message = format!("the file has {} error(s), so nothing was written", faults.len());
    CliError::Refused { code: "import_invalid".to_owned(), message, details: Some(json!(faults)) }
}

/// Replaces the line numbers: the server received the rows on one line, but the user needs the lines of the file.
fn with_lines(error: CliError, text: &str) -> CliError {
    match error {
        CliError::Refused { code, details: Some(Value::Array(details)), .. } if code == "import_invalid" => {
            let field = |detail: &Value, name: &str| detail[name].as_str().unwrap_or_default().to_owned();
            let mut faults: Vec<ImportFault> = details
                .iter()
                .map(|detail| ImportFault { path: field(detail, "path"), line: None, message: field(detail, "message") })
                .collect();
            add_lines(text, &mut faults);
            invalid(&faults)
        }
        other => other,
    }
}
