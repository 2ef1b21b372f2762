//! `werkruf chat`: one message, or a dialogue line by line.
//!
//! A message is one turn, however often the connection breaks: the request carries an idempotency key, and after a break
//! the command continues to read the turn's events until the turn has ended.

mod frames;
mod screen;
mod turn;

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, ids, not_utf8, print};
use crate::api::body::BODY_LIMIT;
use screen::{OutputMode, Screen};
use turn::{End, Turn};

/// The exit code that shells use for an end by Ctrl-C.
const INTERRUPTED: u8 = 130;

const PROMPT: &str = "› ";

const COMMANDS: &str =
    "/new   begin a new conversation\n/quit  exit (or Ctrl-D)\n/help  show this help\nCtrl-C stops the answer; pressed twice it exits.";

#[derive(Debug, Args)]
pub(super) struct Command {
    /// The message; without it every line of stdin is a message
    message: Option<String>,
    /// Continue this conversation: an id, a unique beginning or end of one, or `last`
    #[arg(long, value_name = "ID|last")]
    conversation: Option<String>,
    /// The assistant that answers
    #[arg(long, value_name = "NAME")]
    assistant: Option<String>,
    /// No colours, even on a terminal (or NO_COLOR)
    #[arg(long)]
    no_color: bool,
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    if command.message.as_deref().is_some_and(|message| message.trim().is_empty()) {
        return Err(CliError::Usage("the message is empty; write it in quotes, or leave it out to write line by line".to_owned()));
    }
    let interrupts =
        signal(SignalKind::interrupt()).map_err(|error| CliError::refused("io", format!("cannot listen for Ctrl-C: {error}")))?;
    let backend = Backend::open_with_model(session).await?.for_user().await?;
    let screen = Screen::new(output_mode(session, command.no_color));
    let mut dialogue = Dialogue { backend, screen, interrupts, conversation: None, assistant: command.assistant, reached: false };
    let result = match dialogue.find_conversation(command.conversation.as_deref()).await {
        Ok(()) => match command.message {
            Some(message) => dialogue.send_once(&message).await,
            None => dialogue.read_lines(session.globals.json).await,
        },
        Err(error) => Err(error),
    };
    // After Ctrl-C the process exits without waiting for a turn that runs in it; the next start resumes the turn.
    if !matches!(result, Ok(Exit::Left)) {
        dialogue.backend.close().await;
    }
    Ok(match result? {
        Exit::Done => ExitCode::SUCCESS,
        Exit::SomeFailed => ExitCode::FAILURE,
        Exit::Stopped | Exit::Left => ExitCode::from(INTERRUPTED),
    })
}

fn output_mode(session: &Session, no_color: bool) -> OutputMode {
    let variable = |name: &str| session.environment.lookup(name);
    if session.globals.json {
        OutputMode::Json
    } else if !std::io::stdout().is_terminal() || variable("TERM") == Some("dumb") {
        OutputMode::Pipe
    } else {
        OutputMode::Terminal { color: !no_color && variable("NO_COLOR").is_none() }
    }
}

/// How the command ended.
enum Exit {
    Done,
    /// The input was not a terminal and a turn failed.
    SomeFailed,
    /// The one message was stopped.
    Stopped,
    Left,
}

/// One line of input.
#[derive(Debug, PartialEq, Eq)]
enum Input<'a> {
    Nothing,
    New,
    Quit,
    Help,
    Unknown(&'a str),
    Message(&'a str),
}

impl<'a> Input<'a> {
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        match line {
            "" => Self::Nothing,
            "/new" => Self::New,
            "/quit" => Self::Quit,
            "/help" => Self::Help,
            // A mistyped command is not sent to the model; a path or a sentence is a message.
            _ => match line.strip_prefix('/') {
                Some(name) if !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase()) => Self::Unknown(line),
                Some(_) | None => Self::Message(line),
            },
        }
    }
}

struct Dialogue {
    backend: Backend,
    screen: Screen,
    interrupts: Signal,
    conversation: Option<String>,
    assistant: Option<String>,
    /// The server has answered before, so a refused connection means a restart, not a wrong address.
    reached: bool,
}

impl Dialogue {
    /// Finds the conversation to continue.
    async fn find_conversation(&mut self, typed: Option<&str>) -> Result<(), CliError> {
        self.conversation = match typed {
            None => None,
            Some("last") => Some(last_conversation(&self.backend).await?),
            Some(typed) => Some(ids::conversation(&self.backend, typed).await?),
        };
        Ok(())
    }

    async fn send_once(&mut self, message: &str) -> Result<Exit, CliError> {
        Ok(match self.send(message).await? {
            End::Answered | End::Waits => Exit::Done,
            End::Stopped => Exit::Stopped,
            End::Left => Exit::Left,
        })
    }

    async fn send(&mut self, message: &str) -> Result<End, CliError> {
        if message.len() > BODY_LIMIT {
            let (size, limit) = (message.len(), BODY_LIMIT);
            let message = format!(
                "the message has {size} bytes, and a server takes {limit}; `werkruf knowledge add FILE` makes long texts searchable"
            );
            return Err(CliError::refused("invalid_request", message));
        }
        let mut body = json!({"message": message});
        for (field, value) in [("conversation_id", &self.conversation), ("assistant", &self.assistant)] {
            if let Some(value) = value {
                body[field] = value.as_str().into();
            }
        }
        let mut turn = Turn::new(&mut self.backend, &mut self.screen, &mut self.interrupts, body, self.reached);
        let end = turn.run().await;
        let (conversation, reached) = turn.into_conversation();
        self.conversation = conversation.or_else(|| self.conversation.take());
        self.reached |= reached;
        end
    }

    async fn read_lines(&mut self, json: bool) -> Result<Exit, CliError> {
        let typing = std::io::stdin().is_terminal();
        let mut failed = false;
        loop {
            if typing && !json {
                print::piece(PROMPT);
            }
            let line = tokio::select! {
                line = read_line() => line?,
                _ = self.interrupts.recv() => None,
            };
            let Some(line) = line else {
                if typing && !json {
                    // The shell's own prompt begins on a line of its own.
                    print::line("");
                }
                break;
            };
            match Input::of(&line) {
                Input::Nothing => {}
                Input::New => self.conversation = None,
                Input::Quit => break,
                Input::Help => print::error_line(COMMANDS),
                Input::Unknown(command) => print::error_line(&format!("there is no command {command}; /help lists the commands")),
                Input::Message(message) => match self.send(message).await {
                    Ok(End::Left) => return Ok(Exit::Left),
                    Ok(End::Answered | End::Waits | End::Stopped) => {}
                    Err(error) => {
                        failed = true;
                        let _ = error.report(json);
                    }
                },
            }
        }
        Ok(if failed && !typing { Exit::SomeFailed } else { Exit::Done })
    }
}

/// Reads a line of stdin; `None` at its end.
async fn read_line() -> Result<Option<String>, CliError> {
    let read = || {
        let mut line = Vec::new();
        std::io::stdin().lock().read_until(b'\n', &mut line).map(|count| (count > 0).then_some(line))
    };
    // A read that is still blocked is abandoned when the program ends.
    let line = tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other);
    let line = line.and_then(|line| line).map_err(|error| CliError::refused("unreadable", format!("cannot read stdin: {error}")))?;
    line.map(|line| String::from_utf8(line).map_err(|_| not_utf8("stdin"))).transpose()
}

/// The conversation that the user used last.
async fn last_conversation(backend: &Backend) -> Result<String, CliError> {
    let mut path = "/api/conversations?order=recent&limit=1".to_owned();
    if let Some(user) = backend.user() {
        path.push_str(&format!("&user_id={}", encode(user)));
    }
    let response = backend.get(&path).await?;
    let last = response["conversations"].get(0).and_then(|row| row["id"].as_str());
    last.map(str::to_owned).ok_or_else(|| CliError::refused("not_found", "there is no conversation to continue yet"))
}

/// A text field of an event; empty if it is missing.
fn text<'a>(data: &'a Value, field: &str) -> &'a str {
    data[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_single_words_and_everything_else_is_a_message() {
        assert_eq!(Input::of("  \n"), Input::Nothing);
        assert_eq!(Input::of("/new\n"), Input::New);
        assert_eq!(Input::of("/nwe\n"), Input::Unknown("/nwe"));
        assert_eq!(Input::of("/etc/hosts?\n"), Input::Message("/etc/hosts?"));
        assert_eq!(Input::of("/new idea\r\n"), Input::Message("/new idea"));
    }
}
