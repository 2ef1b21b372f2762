//! `werkruf wire inspect`: decodes a recorded model stream with the decoder that a turn uses.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use serde_json::Value;
use werkruf_llm::{WireApi, inspect};

use super::{Outcome, print, read_input};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print text, calls, usage and damage of a recorded stream
    #[command(
        after_help = "Examples:\n  werkruf wire inspect --api responses stream.sse\n  werkruf wire inspect --api chat --chunk 1 --json - < stream.sse"
    )]
    Inspect {
        /// API of the recording
        #[arg(long)]
        api: Api,
        /// Bytes to decode at a time; 0 decodes all at once
        #[arg(long, value_name = "N", default_value_t = 0)]
        chunk: usize,
        /// A file, or - for stdin
        file: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Api {
    Responses,
    Chat,
}

pub(super) fn run(command: &Command, json: bool) -> Outcome {
    let Command::Inspect { api, chunk, file } = command;
    let api = match api {
        Api::Responses => WireApi::Responses,
        Api::Chat => WireApi::Chat,
    };
    let decoded = inspect(api, &read_input(file)?, *chunk);
    if json {
        print::json(&decoded)
    } else {
        print_decoded(&decoded)
    }
    Ok(ExitCode::SUCCESS)
}

fn print_decoded(decoded: &Value) {
    for name in ["text", "refusal", "finish", "executable", "usage"] {
        print::line(&format!("{name}: {}", print::field(decoded, name)));
    }
    for call in decoded["tool_calls"].as_array().into_iter().flatten() {
        let field = |name| print::field(call, name);
        let (index, kind, id) = (field("output_index"), field("kind"), field("call_id"));
        print::line(&format!("call {index} {kind} {id}: {} {}", field("name"), field("arguments")));
        // A call that the provider ran itself has a result.
        for name in ["status", "output", "error"].into_iter().filter(|name| !call[*name].is_null()) {
            print::line(&format!("  {name}: {}", field(name)));
        }
    }
    for error in decoded["errors"].as_array().into_iter().flatten() {
        print::line(&format!("error: {}", error.as_str().map_or_else(|| error.to_string(), str::to_owned)));
    }
}
