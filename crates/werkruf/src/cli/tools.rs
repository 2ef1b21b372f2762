//! `werkruf tools …`: lists tools and calls them without a model.

mod pins;

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};
use werkruf_contract::TurnStatus;

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, ids, not_utf8, print, read_input};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the tools
    #[command(after_help = "Examples:\n  werkruf tools list\n  werkruf tools list --json | jq -r '.tools[].name'")]
    List,
    /// JSON Schema of a tool's arguments
    #[command(after_help = "Examples:\n  werkruf tools schema order_status")]
    Schema {
        /// Name of the tool
        name: String,
    },
    /// Call a tool for a user; exit 1 if the call fails, 0 if it waits for approval
    #[command(after_help = "Examples:\n  werkruf tools call order_status --input '{\"number\": \"A-7\"}' --user 3\n  \
                            echo '{\"number\": \"A-7\"}' | werkruf tools call order_status --input -")]
    Call {
        /// Name of the tool
        name: String,
        /// The arguments as JSON, or - for stdin
        #[arg(long, value_name = "JSON", default_value = "{}")]
        input: String,
        /// Conversation whose state the tool reads and patches (id, or a unique beginning or end of it)
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
    },
    #[command(flatten)]
    Pins(pins::Command),
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let json = session.globals.json;
    match command {
        Command::List => {
            let backend = Backend::open(session).await?;
            let response = backend.get("/api/tools").await?;
            if json {
                print::json(&response)
            } else {
                list(&response)
            }
            backend.close().await;
            Ok(ExitCode::SUCCESS)
        }
        Command::Schema { name } => {
            let backend = Backend::open(session).await?;
            let response = backend.get("/api/tools").await?;
            backend.close().await;
            let tools = print::rows(&response, "tools");
            let tool = tools.iter().find(|tool| tool["name"] == name.as_str());
            let tool = tool.ok_or_else(|| CliError::refused("unknown_tool", format!("there is no tool named {name}")))?;
            print::json(&tool["parameters"]);
            Ok(ExitCode::SUCCESS)
        }
        Command::Call { name, input, conversation } => {
            // A called tool may use the model; listing tools must work without one.
            let backend = Backend::open_with_model(session).await?.for_user().await?;
            let output = call(&backend, &name, &input, conversation.as_deref()).await;
            backend.close().await;
            show_output(&output?, json)
        }
        Command::Pins(command) => pins::run(session, command).await,
    }
}

fn list(response: &Value) {
    let none = "There are no tools; [[tools]] in the config file adds some.";
    let cells = |tool: &Value| print::fields(tool, &["name", "effect", "description"]);
    print::list(print::rows(response, "tools"), none, &["NAME", "EFFECT", "DESCRIPTION"], cells);
}

async fn call(backend: &Backend, name: &str, input: &str, conversation: Option<&str>) -> Result<Value, CliError> {
    let text = if input == "-" { String::from_utf8(read_input("-")?).map_err(|_| not_utf8("stdin"))? } else { input.to_owned() };
    let input: Value = serde_json::from_str(&text).map_err(|error| CliError::Usage(format!("--input is not JSON: {error}")))?;
    let mut body = json!({"input": input});
    if let Some(typed) = conversation {
        body["conversation_id"] = ids::conversation(backend, typed).await?.into();
    }
    backend.post(&format!("/api/tools/{}/invoke", encode(name)), &body).await
}

fn show_output(output: &Value, json: bool) -> Outcome {
    let ok = output["status"] == "ok";
    let waits = output["status"] == TurnStatus::AwaitingApproval.as_str();
    if json {
        print::json(output);
    } else if waits {
        let (approval, call) = (ids::text(output, "approval_id")?, ids::text(output, "job_id")?);
        print::line(&format!("The call waits for approval {approval}."));
        print::line(&format!(
            "Decide: `werkruf approvals approve {0}` or `deny {0}`; the result: `werkruf calls show {1}`",
            print::short_id(approval),
            print::short_id(call)
        ));
    } else if ok {
        print::json(&output["data"]);
    } else {
        let error = &output["error"];
        return Err(CliError::refused(print::field(error, "code"), print::field(error, "message")));
    }
    Ok(if ok || waits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
