//! `werkruf conversations …`: lists, shows, exports, imports and deletes conversations.

mod dialogue;

use std::io::{BufRead, IsTerminal};

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, ids, print, read_input};

/// The largest page of the API.
const PAGE: u32 = 1000;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Conversations, the last used first (--user: only of this user)
    #[command(after_help = "Examples:\n  werkruf conversations list\n  werkruf conversations list --user 3 --limit 5")]
    List {
        /// Maximum number of rows
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Read a conversation
    #[command(after_help = "Examples:\n  werkruf conversations show 0197f2c4-77aa\n  werkruf conversations show 0197f2c4-77aa --json")]
    Show {
        /// Id of the conversation, or a unique beginning or end of it
        id: String,
    },
    /// Export a conversation: all data as JSON, the messages as Markdown, or messages in the format of another program
    #[command(after_help = "Examples:\n  werkruf conversations export 0197f2c4-77aa conversation.json\n  \
                            werkruf conversations export 0197f2c4-77aa --format langchain messages.json\n  \
                            werkruf conversations export 0197f2c4-77aa --format markdown > conversation.md")]
    Export {
        /// Id of the conversation, or a unique beginning or end of it
        id: String,
        /// Format of the output
        #[arg(long, default_value = "json")]
        format: Format,
        /// Output file; stdout without it
        file: Option<String>,
    },
    /// Import a conversation from another program
    #[command(after_help = "Examples:\n  werkruf conversations import messages.json --format langchain --user 3\n  \
                      werkruf conversations import - --format openai --user 3 --title 'From the old bot' < messages.json")]
    Import {
        /// A file with a list of messages, or - for stdin
        file: String,
        /// Format of the messages
        #[arg(long)]
        format: MessageFormat,
        /// Title of the conversation; without it the first words of the first message
        #[arg(long)]
        title: Option<String>,
    },
    /// Delete a conversation and everything in it
    #[command(after_help = "Examples:\n  werkruf conversations delete 0197f2c4-77aa\n  werkruf conversations delete 0197f2c4-77aa --yes")]
    Delete {
        /// Id of the conversation, or a unique beginning or end of it
        id: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Json,
    Markdown,
    Openai,
    Responses,
    Langchain,
}

/// A message format of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MessageFormat {
    Openai,
    Responses,
    Langchain,
}

impl MessageFormat {
    const fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Responses => "responses",
            Self::Langchain => "langchain",
        }
    }
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    Backend::run(session, async |backend| execute(backend, command, session.globals.json).await).await
}

async fn execute(backend: &Backend, command: Command, json: bool) -> Result<(), CliError> {
    match command {
        Command::List { limit } => {
            let mut path = format!("/api/conversations?order=recent&limit={limit}");
            if let Some(user) = backend.user() {
                path.push_str(&format!("&user_id={}", encode(user)));
            }
            let answer = backend.get(&path).await?;
            if json { print::json(&answer) } else { list(&answer) }
        }
        Command::Show { id } => {
            let (conversation, messages) = read(backend, &id).await?;
            if json {
                print::json(&json!({"conversation": conversation, "messages": messages}));
            } else {
                print::line(&shown(&dialogue::plain(&conversation, &messages)));
            }
        }
        Command::Export { id, format, file } => export(backend, &id, format, file.as_deref(), json).await?,
        Command::Import { file, format, title } => import(backend, &file, format, title, json).await?,
        Command::Delete { id, yes } => {
            let conversation = backend.get(&ids::conversation_path(&id)?).await?;
            let id = ids::text(&conversation, "id")?;
            if !yes {
                confirm(&format!("Delete conversation {id} \"{}\" for good?", shown(&print::field(&conversation, "title"))))?;
            }
            backend.delete(&format!("/api/conversations/{id}")).await?;
            if json { print::json(&json!({"deleted": id})) } else { print::line(&format!("deleted {id}")) }
        }
    }
    Ok(())
}

fn list(answer: &Value) {
    let row = |row: &Value| print::fields(row, &["id", "user_id", "channel", "updated_at", "title"]);
    print::list(print::rows(answer, "conversations"), "No conversations.", &["CONVERSATION", "USER", "CHANNEL", "LAST", "TITLE"], row);
}

/// Without control characters if stdout is a terminal.
fn shown(text: &str) -> String {
    if std::io::stdout().is_terminal() { print::harmless(text) } else { text.to_owned() }
}

async fn read(backend: &Backend, typed: &str) -> Result<(Value, Vec<Value>), CliError> {
    let conversation = backend.get(&ids::conversation_path(typed)?).await?;
    let id = ids::text(&conversation, "id")?;
    let messages = all(backend, &format!("/api/conversations/{id}/messages?limit={PAGE}"), "messages").await?;
    Ok((conversation, messages))
}

/// Every page of a list.
async fn all(backend: &Backend, path: &str, name: &str) -> Result<Vec<Value>, CliError> {
    let mut rows = Vec::new();
    let mut next = path.to_owned();
    loop {
        let mut page = backend.get(&next).await?;
        if let Some(page_rows) = page[name].as_array_mut() {
            rows.append(page_rows);
        }
        match &page["next_after"] {
            Value::Null => return Ok(rows),
            Value::String(after) => next = format!("{path}&after={after}"),
            after => next = format!("{path}&after={after}"),
        }
    }
}

async fn export(backend: &Backend, typed: &str, format: Format, file: Option<&str>, json: bool) -> Result<(), CliError> {
    let message_format = match format {
        Format::Json | Format::Markdown => None,
        Format::Openai => Some(MessageFormat::Openai),
        Format::Responses => Some(MessageFormat::Responses),
        Format::Langchain => Some(MessageFormat::Langchain),
    };
    let text = match (format, message_format) {
        (_, Some(message_format)) => format!("{:#}\n", in_message_format(backend, typed, message_format).await?),
        (Format::Markdown, None) => {
            let (conversation, messages) = read(backend, typed).await?;
            dialogue::markdown(&conversation, &messages)
        }
        (_, None) => {
            let (conversation, messages) = read(backend, typed).await?;
            format!("{:#}\n", whole(backend, conversation, messages).await?)
        }
    };
    match file {
        None | Some("-") => {
            if json && format == Format::Markdown {
                print::json(&json!({"markdown": text}));
            } else {
                print::piece(&text);
            }
        }
        Some(file) => {
            std::fs::write(file, text).map_err(|error| CliError::refused("io", format!("cannot write {file}: {error}")))?;
            if json { print::json(&json!({"written": file})) } else { print::line(&format!("wrote {file}")) }
        }
    }
    Ok(())
}

/// The messages in the format of another program.
async fn in_message_format(backend: &Backend, typed: &str, message_format: MessageFormat) -> Result<Value, CliError> {
    let conversation = backend.get(&ids::conversation_path(typed)?).await?;
    let id = ids::text(&conversation, "id")?;
    let path = format!("/api/conversations/{id}/messages?limit={PAGE}&format={}", message_format.name());
    Ok(Value::Array(all(backend, &path, "messages").await?))
}

async fn import(backend: &Backend, file: &str, format: MessageFormat, title: Option<String>, json: bool) -> Result<(), CliError> {
    let messages: Value = serde_json::from_slice(&read_input(file)?)
        .map_err(|error| CliError::refused("invalid_request", format!("{file} is not JSON: {error}")))?;
    let messages = match messages {
        Value::Array(messages) => messages,
        mut other => match other["messages"].take() {
            Value::Array(messages) => messages,
            _ => return Err(CliError::refused("invalid_request", format!("{file} holds no list of messages"))),
        },
    };
    let answer = backend.post("/api/conversations", &json!({"format": format.name(), "messages": messages, "title": title})).await?;
    if json {
        print::json(&answer);
    } else {
        print::line(&format!("imported {} message(s) as conversation {}", answer["messages"], print::field(&answer, "id")));
    }
    Ok(())
}

/// Everything the server has stored about a conversation.
async fn whole(backend: &Backend, conversation: Value, messages: Vec<Value>) -> Result<Value, CliError> {
    let id = ids::text(&conversation, "id")?;
    let state = backend.get(&format!("/api/conversations/{id}/state")).await?;
    let events = all(backend, &format!("/api/conversations/{id}/events?limit={PAGE}"), "events").await?;
    let mut calls = Vec::new();
    for row in all(backend, &format!("/api/tool-calls?conversation_id={id}&limit={PAGE}"), "tool_calls").await? {
        // The list has no attempts, so each call is read by itself. Its events are already in the conversation's events.
        let mut call = backend.get(&ids::call_path(ids::text(&row, "id")?)?).await?;
        if let Some(fields) = call.as_object_mut() {
            fields.remove("events");
        }
        calls.push(call);
    }
    let mut turn_ids: Vec<&str> = events.iter().chain(&messages).chain(&calls).filter_map(|row| row["turn_id"].as_str()).collect();
    // Ids sort by time.
    turn_ids.sort_unstable();
    turn_ids.dedup();
    let mut turns = Vec::new();
    for turn in turn_ids {
        turns.push(backend.get(&format!("/api/turns/{turn}")).await?);
    }
    Ok(json!({"conversation": conversation, "state": state, "messages": messages, "turns": turns, "tool_calls": calls, "events": events}))
}

/// Asks for confirmation; without a terminal the answer is no.
fn confirm(question: &str) -> Result<(), CliError> {
    let refused = |message: &str| Err(CliError::refused("not_confirmed", message));
    if !std::io::stdin().is_terminal() {
        return refused("stdin is not a terminal; --yes deletes without confirmation");
    }
    print::piece(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" if read.is_ok() => Ok(()),
        _ => refused("nothing was deleted"),
    }
}
