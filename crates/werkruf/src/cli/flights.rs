//! `werkruf flights inspect`: decodes a recorded payload of a flight provider with the code that a search uses.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use serde_json::Value;
use werkruf_flights::{Cabin, ProviderName, inspect};

use super::error::CliError;
use super::{Outcome, print, read_input};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the offers and trips of a recorded payload
    #[command(
        after_help = "Examples:\n  werkruf flights inspect --provider seatsaero search.json\n  werkruf flights inspect --provider amadeus --cabin business --json - < offers.json"
    )]
    Inspect {
        /// Provider of the payload
        #[arg(long)]
        provider: Provider,
        /// Only this cabin: economy, premium, business, first
        #[arg(long, value_name = "CABIN", value_parser = cabin)]
        cabin: Option<Cabin>,
        /// A file, or - for stdin
        file: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Provider {
    Seatsaero,
    Amadeus,
    Duffel,
}

fn cabin(text: &str) -> Result<Cabin, String> {
    Cabin::read(text).ok_or_else(|| "write economy, premium, business or first".to_owned())
}

pub(super) fn run(command: &Command) -> Outcome {
    let Command::Inspect { provider, cabin, file } = command;
    let provider = match provider {
        Provider::Seatsaero => ProviderName::Seatsaero,
        Provider::Amadeus => ProviderName::Amadeus,
        Provider::Duffel => ProviderName::Duffel,
    };
    let offers: Value =
        inspect(provider, &read_input(file)?, *cabin).map_err(|fault| CliError::refused("file_unusable", format!("{file} {fault}")))?;
    print::json(&offers);
    Ok(ExitCode::SUCCESS)
}
