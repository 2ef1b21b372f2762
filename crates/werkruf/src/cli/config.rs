//! `werkruf config check`.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use futures_util::StreamExt;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use werkruf_contract::Clock;
use werkruf_llm::{Answer, Delta, HttpLimits, Message, ModelRequest, Provider, ToolChoice, ToolDefinition, http_client};

use super::error::CliError;
use super::{Outcome, Session, print};
use crate::config::{Config, ConfigViolation, ModelConfig};
use crate::{provider, setup};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List everything that is wrong with the configuration; exit 1 when anything is
    #[command(
        after_help = "Examples:\n  werkruf config check\n  werkruf config check --config /etc/werkruf.toml --json\n  werkruf config check --live"
    )]
    Check {
        /// Also request one tool call from the model (this may cost a little)
        #[arg(long)]
        live: bool,
    },
}

pub(super) async fn run(session: &Session, command: &Command) -> Outcome {
    let Command::Check { live } = command;
    let json = session.globals.json;
    let client = http_client(&HttpLimits::default()).map_err(|error| CliError::refused("http_client", error.to_string()))?;
    let config = match setup::read(&session.flags(), &session.environment, &client) {
        Ok((config, _)) => config,
        Err(violations) => {
            let (config, _) = Config::examine(&session.flags(), &session.environment);
            return Ok(print_violations(&violations, &config.warnings, json));
        }
    };
    let live = if *live { Some(check_model(&config, &client).await?) } else { None };
    let works = live.as_ref().is_none_or(|live| live["ok"] == true);
    if json {
        let mut report = as_json(&[], &config.warnings);
        if let Some(live) = live {
            report["live"] = live;
        }
        print::json(&report);
    } else {
        config.warnings.iter().for_each(|warning| print::line(&format!("warning: {warning}")));
        let file = config.file.as_ref().map_or_else(|| "no config file".to_owned(), |file| file.display().to_string());
        print::line(&format!("valid ({file}); model: {}", provider::describe(&config.model)));
        if let Some(live) = live {
            print::line(&format!("live: {}", print::harmless(&print::field(&live, "text"))));
        }
    }
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_json(violations: &[ConfigViolation], warnings: &[ConfigViolation]) -> Value {
    let mut report = json!({"valid": violations.is_empty(), "violations": violations});
    if !warnings.is_empty() {
        report["warnings"] = json!(warnings);
    }
    report
}

fn print_violations(violations: &[ConfigViolation], warnings: &[ConfigViolation], json: bool) -> ExitCode {
    if json {
        print::json(&as_json(violations, warnings));
    } else {
        warnings.iter().for_each(|warning| print::line(&format!("warning: {warning}")));
        violations.iter().for_each(|violation| print::line(&violation.to_string()));
    }
    ExitCode::FAILURE
}

/// Requests one call of a tool that does nothing from the configured model, and reports the result.
pub(super) async fn check_model(config: &Config, client: &reqwest::Client) -> Result<Value, CliError> {
    if matches!(config.model, ModelConfig::Offline) {
        return Ok(json!({"ok": false, "text": "no language model is connected; set OPENAI_API_KEY or OPENAI_BASE_URL"}));
    }
    let provider = provider::build(config, client).await?;
    let tool = ToolDefinition {
        name: "ping".to_owned(),
        description: "Answers pong. Call it when asked to.".to_owned(),
        parameters: json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
        strict: true,
        texts: None,
    };
    let request = ModelRequest {
        model: None,
        system: "You test a connection. Call the function ping once.".into(),
        messages: Arc::new(vec![Message::user("Call ping.")]),
        tools: Arc::new(vec![tool]),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        options: Default::default(),
        client_max_tokens: None,
        locale: "en-US".to_owned(),
        today: Clock::system(config.clock_offset_s).now().to_zoned(TimeZone::UTC).date(),
        temperature: None,
        max_output_tokens: None,
        approvals: Arc::default(),
    };
    Ok(match answer(provider.as_ref(), request).await {
        Ok(answer) => verdict(&answer),
        Err(reason) => json!({"ok": false, "text": format!("{} {reason}", provider::host(&config.model))}),
    })
}

async fn answer(provider: &dyn Provider, request: ModelRequest) -> Result<Answer, String> {
    let mut deltas = provider.stream(request).await.map_err(|error| error.to_string())?;
    while let Some(delta) = deltas.next().await {
        if let Delta::Done(answer) = delta.map_err(|error| error.to_string())? {
            return Ok(*answer);
        }
    }
    Err("broke off: the stream ended before the answer did".to_owned())
}

fn verdict(answer: &Answer) -> Value {
    let calls: Vec<Value> = answer.calls.iter().map(|call| json!({"name": call.name, "arguments": call.arguments})).collect();
    let ok = answer.executable && answer.calls.iter().any(|call| call.name == "ping");
    let summary = if ok {
        "the model called the tool".to_owned()
    } else if answer.calls.is_empty() {
        format!("the model answered with text instead of a tool call: {}", answer.text)
    } else {
        format!("the model's calls cannot run: {}", answer.errors.join("; "))
    };
    json!({"ok": ok, "text": summary, "model": answer.model, "finish": answer.finish, "tool_calls": calls})
}
