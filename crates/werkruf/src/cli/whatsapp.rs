//! `werkruf whatsapp`: reads recorded payloads, and checks the connection to Meta.

use std::process::ExitCode;

use clap::Subcommand;

use super::error::CliError;
use super::{Outcome, print, read_input};
use crate::whatsapp::inspect::inspect;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the events of a recorded webhook payload
    #[command(after_help = "Examples:\n  werkruf whatsapp inspect payload.json\n  werkruf whatsapp inspect - < payload.json | jq .events")]
    Inspect {
        /// A file, or - for stdin
        file: String,
    },
}

pub(super) fn run(command: &Command) -> Outcome {
    let Command::Inspect { file } = command;
    let events = inspect(&read_input(file)?).map_err(|fault| CliError::refused("file_unusable", format!("{file} {fault}")))?;
    print::json(&events);
    Ok(ExitCode::SUCCESS)
}
