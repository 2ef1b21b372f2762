//! `werkruf chat`: one message, or a dialogue line by line.
//!
//! A message that was sent is one turn, however often the connection breaks: it carries an idempotency key, and the turn
//! is followed by its events until it has ended.

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
use super::{Outcome, Session, encode, ids, print};
use screen::{Look, Screen};
use turn::{End, Turn};

/// What a shell calls an end by Ctrl-C.
const INTERRUPTED: u8 = 130;

const PROMPT: &str = "› ";

const COMMANDS: &str =
    "/new   begin a new conversation\n/quit  leave (so does Ctrl-D)\n/help  say this\nCtrl-C stops the answer; twice leaves.";

#[derive(Debug, Args)]
pub(super) struct Command {
    /// What to say; without it lines are read from stdin, one message each
    message: Option<String>,
    /// Go on with this conversation: an id, the beginning of one, or `last`
    #[arg(long, value_name = "ID|last")]
    conversation: Option<String>,
    /// The assistant that answers
    #[arg(long, value_name = "NAME")]
    assistant: Option<String>,
    /// No colours, also on a terminal (or NO_COLOR)
    #[arg(long)]
    no_color: bool,
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let interrupts = signal(SignalKind::interrupt()).map_err(|error| CliError::refused("io", format!("cannot hear Ctrl-C: {error}")))?;
    let backend = Backend::open_with_model(session).await?.for_a_person()?;
    let screen = Screen::new(look(session, command.no_color));
    let mut dialogue = Dialogue { backend, screen, interrupts, conversation: None, assistant: command.assistant, reached: false };
    let ended = match dialogue.find(command.conversation.as_deref()).await {
        Ok(()) => match command.message {
            Some(message) => dialogue.once(&message).await,
            None => dialogue.converse(session.globals.json).await,
        },
        Err(error) => Err(error),
    };
    // Whoever leaves by Ctrl-C does not wait for a turn in this process; the next start goes on with it.
    if !matches!(ended, Ok(Parting::Left)) {
        dialogue.backend.close().await;
    }
    Ok(match ended? {
        Parting::Done => ExitCode::SUCCESS,
        Parting::SomeFailed => ExitCode::FAILURE,
        Parting::Stopped | Parting::Left => ExitCode::from(INTERRUPTED),
    })
}

fn look(session: &Session, no_color: bool) -> Look {
    let variable = |name: &str| session.environment.lookup(name);
    if session.globals.json {
        Look::Json
    } else if !std::io::stdout().is_terminal() || variable("TERM") == Some("dumb") {
        Look::Pipe
    } else {
        Look::Terminal { color: !no_color && variable("NO_COLOR").is_none() }
    }
}

/// How the command ends.
enum Parting {
    Done,
    /// Lines came from a pipe and a turn failed.
    SomeFailed,
    /// The one message was stopped.
    Stopped,
    Left,
}

/// What was typed at the prompt.
#[derive(Debug, PartialEq, Eq)]
enum Typed<'a> {
    Nothing,
    New,
    Quit,
    Help,
    Unknown(&'a str),
    Message(&'a str),
}

impl<'a> Typed<'a> {
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        match line {
            "" => Self::Nothing,
            "/new" => Self::New,
            "/quit" => Self::Quit,
            "/help" => Self::Help,
            // A slipped command is not worth a model's answer; a path or a sentence is a message.
            _ => match line.strip_prefix('/') {
                Some(word) if !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase()) => Self::Unknown(line),
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
    /// The server has answered before, so a refused connection is a restart and no wrong address.
    reached: bool,
}

impl Dialogue {
    /// Finds the conversation to go on with.
    async fn find(&mut self, typed: Option<&str>) -> Result<(), CliError> {
        self.conversation = match typed {
            None => None,
            Some("last") => Some(last(&self.backend).await?),
            Some(typed) => Some(ids::conversation(&self.backend, typed).await?),
        };
        Ok(())
    }

    async fn once(&mut self, message: &str) -> Result<Parting, CliError> {
        Ok(match self.say(message).await? {
            End::Answered | End::Waits => Parting::Done,
            End::Stopped => Parting::Stopped,
            End::Left => Parting::Left,
        })
    }

    async fn say(&mut self, message: &str) -> Result<End, CliError> {
        let mut body = json!({"message": message});
        for (field, value) in [("conversation_id", &self.conversation), ("assistant", &self.assistant)] {
            if let Some(value) = value {
                body[field] = value.as_str().into();
            }
        }
        let mut turn = Turn::new(&mut self.backend, &mut self.screen, &mut self.interrupts, body, self.reached);
        let end = turn.run().await;
        let (conversation, reached) = turn.into_place();
        self.conversation = conversation.or_else(|| self.conversation.take());
        self.reached |= reached;
        end
    }

    async fn converse(&mut self, json: bool) -> Result<Parting, CliError> {
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
            match Typed::of(&line) {
                Typed::Nothing => {}
                Typed::New => self.conversation = None,
                Typed::Quit => break,
                Typed::Help => print::error_line(COMMANDS),
                Typed::Unknown(word) => print::error_line(&format!("there is no {word}; /help says what there is")),
                Typed::Message(message) => match self.say(message).await {
                    Ok(End::Left) => return Ok(Parting::Left),
                    Ok(End::Answered | End::Waits | End::Stopped) => {}
                    Err(error) => {
                        failed = true;
                        let _ = error.report(json);
                    }
                },
            }
        }
        Ok(if failed && !typing { Parting::SomeFailed } else { Parting::Done })
    }
}

/// A line of stdin; none at its end.
async fn read_line() -> Result<Option<String>, CliError> {
    let read = || {
        let mut line = Vec::new();
        std::io::stdin().lock().read_until(b'\n', &mut line).map(|count| (count > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
    };
    // A read that nobody answers is left behind when the program ends.
    let line = tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other);
    line.and_then(|line| line).map_err(|error| CliError::refused("unreadable", format!("cannot read stdin: {error}")))
}

/// The newest conversation of the person.
async fn last(backend: &Backend) -> Result<String, CliError> {
    let mut path = "/api/conversations?order=desc&limit=1".to_owned();
    if let Some(user) = backend.user() {
        path.push_str(&format!("&user_id={}", encode(user)));
    }
    let answer = backend.get(&path).await?;
    let newest = answer["conversations"].get(0).and_then(|row| row["id"].as_str());
    newest.map(str::to_owned).ok_or_else(|| CliError::refused("not_found", "there is no conversation to go on with yet"))
}

/// As much of an id as a person needs to name it again.
fn short(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}

/// A field of an event as text.
fn word<'a>(data: &'a Value, field: &str) -> &'a str {
    data[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_single_words_and_everything_else_is_said() {
        assert_eq!(Typed::of("  \n"), Typed::Nothing);
        assert_eq!(Typed::of("/new\n"), Typed::New);
        assert_eq!(Typed::of("/nwe\n"), Typed::Unknown("/nwe"));
        assert_eq!(Typed::of("/etc/hosts?\n"), Typed::Message("/etc/hosts?"));
        assert_eq!(Typed::of("/new idea\r\n"), Typed::Message("/new idea"));
    }
}
