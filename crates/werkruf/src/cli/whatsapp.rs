//! `werkruf whatsapp`: reads recorded payloads, and checks the connection to Meta.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use werkruf_llm::{HttpLimits, http_client};

use super::error::CliError;
use super::{Outcome, Session, print, read_input};
use crate::identity::new_secret;
use crate::setup;
use crate::whatsapp::check::check;
use crate::whatsapp::inspect::inspect;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the events of a recorded webhook payload
    #[command(after_help = "Examples:\n  werkruf whatsapp inspect payload.json\n  werkruf whatsapp inspect - < payload.json | jq .events")]
    Inspect {
        /// A file, or - for stdin
        file: String,
    },
    /// Check token, number, webhook and public address, and say the next step; exit 1 if something is missing
    #[command(after_help = "Examples:\n  werkruf whatsapp check\n  werkruf whatsapp check --config /etc/werkruf.toml --json")]
    Check,
}

pub(super) async fn run(session: &Session, command: &Command) -> Outcome {
    match command {
        Command::Inspect { file } => {
            let events = inspect(&read_input(file)?).map_err(|fault| CliError::refused("file_unusable", format!("{file} {fault}")))?;
            print::json(&events);
            Ok(ExitCode::SUCCESS)
        }
        Command::Check => run_check(session).await,
    }
}

async fn run_check(session: &Session) -> Outcome {
    let client = http_client(&HttpLimits::default()).map_err(|error| CliError::refused("http_client", error.to_string()))?;
    let (config, _) = setup::read(&session.flags(), &session.environment, &client)?;
    let challenge = new_secret(rand::random());
    let findings = check(&config.whatsapp, config.public_url.as_deref(), &client, &challenge).await;
    let ok = findings.iter().all(|finding| finding.ok != Some(false));
    if session.globals.json {
        print::json(&json!({"ok": ok, "findings": findings}));
    } else {
        for finding in &findings {
            let mark = match finding.ok {
                Some(true) => "ok     ",
                Some(false) => "missing",
                None => "unseen ",
            };
            print::line(&format!("{mark} {}: {}", finding.what, print::harmless(&finding.message)));
        }
        let next =
            findings.iter().find(|finding| finding.ok == Some(false)).or_else(|| findings.iter().find(|finding| finding.ok.is_none()));
        match next.and_then(|finding| finding.next.as_ref()) {
            Some(next) => print::line(&format!("Next: {next}")),
            None => print::line("Next: write to the number from a phone that a user of the tenant has (docs/whatsapp.md, step 5)"),
        }
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
