//! One turn as the person who asked sees it: sent, followed, gone on with after a break, stopped.

use std::time::Duration;

use futures_util::StreamExt;
use http::Method;
use serde_json::{Value, json};
use tokio::signal::unix::Signal;
use werkruf_contract::{Clock, Deadline};

use super::frames::{Frames, Heard};
use super::screen::{self, Look, Screen};
use super::{short, word};
use crate::cli::backend::{Backend, Broken, Pieces};
use crate::cli::error::CliError;
use crate::cli::print;

/// How long a server may be away.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two knocks at its door.
const PAUSE: Duration = Duration::from_millis(250);
/// A living server says something every 15 s.
const SILENCE: Duration = Duration::from_secs(50);

/// How a turn ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    /// A person must approve first; the turn goes on later.
    Waits,
    /// Ctrl-C.
    Stopped,
    /// Ctrl-C twice: nobody waits for the end.
    Left,
}

pub(super) struct Turn<'a> {
    backend: &'a mut Backend,
    screen: &'a mut Screen,
    interrupts: &'a mut Signal,
    body: Value,
    key: String,
    conversation: Option<String>,
    id: Option<String>,
    /// The last number heard.
    last: i64,
    /// The server has been heard, so it is worth waiting for.
    reached: bool,
    /// Since the connection broke.
    away: Option<Deadline>,
    /// Another turn of the conversation still runs, and events without a turn are its.
    behind: bool,
    waits: bool,
    stopping: bool,
}

impl<'a> Turn<'a> {
    pub(super) fn new(backend: &'a mut Backend, screen: &'a mut Screen, interrupts: &'a mut Signal, body: Value, reached: bool) -> Self {
        let key = Clock::system(0).new_id().to_string();
        Self {
            backend,
            screen,
            interrupts,
            body,
            key,
            conversation: None,
            id: None,
            last: 0,
            reached,
            away: None,
            behind: false,
            waits: false,
            stopping: false,
        }
    }

    /// The conversation, once known, and whether the server was there.
    pub(super) fn into_place(self) -> (Option<String>, bool) {
        (self.conversation, self.reached)
    }

    /// Until its end; an error when it failed.
    pub(super) async fn run(&mut self) -> Result<End, CliError> {
        loop {
            let Some(connected) = self.connect().await else { return Ok(End::Left) };
            match connected {
                Ok(pieces) => {
                    if let Some(end) = self.follow(pieces).await? {
                        return Ok(end);
                    }
                }
                Err(Broken::Refused { status, place, error }) => self.refused(status, place, error).await?,
                Err(Broken::Gone { sent, error }) => {
                    if !sent && !self.reached {
                        return Err(error);
                    }
                }
            }
            if let Some(end) = self.wait_for_server().await? {
                return Ok(end);
            }
        }
    }

    /// Sends the message, or listens again from the last number on. None when the person left meanwhile.
    async fn connect(&mut self) -> Option<Result<Pieces, Broken>> {
        let backend = &*self.backend;
        let (id, conversation, last, body, key) = (&self.id, &self.conversation, self.last, &self.body, &self.key);
        let connecting = async {
            match (id, conversation) {
                (Some(_), Some(conversation)) => {
                    let path = format!("/api/conversations/{conversation}/events?after={last}");
                    backend.stream(Method::GET, &path, None, None).await
                }
                _ => backend.stream(Method::POST, "/api/chat", Some(body), Some(key)).await,
            }
        };
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                connected = &mut connecting => return Some(connected),
                _ = self.interrupts.recv() => {
                    if std::mem::replace(&mut self.stopping, true) {
                        return None;
                    }
                }
            }
        }
    }

    /// Reads until the turn has ended, or the connection has.
    async fn follow(&mut self, mut pieces: Pieces) -> Result<Option<End>, CliError> {
        if let (Some(id), Some(_)) = (&self.id, self.away) {
            let turn = self.backend.get(&format!("/api/turns/{id}")).await;
            self.behind = turn.is_ok_and(|turn| turn["status"] == "accepted");
        }
        if self.stopping {
            self.stop().await;
        }
        let mut frames = Frames::default();
        loop {
            let piece = tokio::select! {
                piece = tokio::time::timeout(SILENCE, pieces.next()) => piece,
                _ = self.interrupts.recv() => {
                    if std::mem::replace(&mut self.stopping, true) {
                        return Ok(Some(End::Left));
                    }
                    self.stop().await;
                    continue;
                }
            };
            let Ok(Some(Ok(bytes))) = piece else { return Ok(self.waits.then_some(End::Waits)) };
            self.reached = true;
            if self.away.take().is_some() {
                print::piece(&self.screen.back());
            }
            for heard in frames.push(&bytes) {
                if let Some(end) = self.hear(&heard).await? {
                    return Ok(Some(end));
                }
            }
        }
    }

    async fn hear(&mut self, heard: &Heard) -> Result<Option<End>, CliError> {
        self.last = heard.id.unwrap_or(self.last);
        let turn = heard.data["turn_id"].as_str();
        if self.id.is_none() && heard.event == "init" {
            self.id = turn.map(str::to_owned);
            self.conversation = heard.data["conversation_id"].as_str().map(str::to_owned);
            if self.stopping {
                self.stop().await;
            }
        }
        let foreign = turn.is_some_and(|turn| self.id.as_deref() != Some(turn));
        if foreign {
            // Turns of a conversation run one after another.
            self.behind &= !heard.ends_turn();
        }
        if foreign || (turn.is_none() && self.behind) {
            return Ok(None);
        }
        self.waits = heard.event == "approval_required";
        let code = self.error_code(heard).await;
        print::piece(&self.screen.hear(heard, code.as_deref()));
        Ok(match heard.event.as_str() {
            "final" => Some(End::Answered),
            "error" if self.stopping && word(&heard.data, "code") == "canceled" => Some(End::Stopped),
            "error" => return Err(CliError::refused(word(&heard.data, "code"), word(&heard.data, "message"))),
            _ => None,
        })
    }

    /// Why a call failed; the event itself says only that it did.
    async fn error_code(&self, heard: &Heard) -> Option<String> {
        let failed = heard.event == "tool_finished" && heard.data["status"] != "succeeded";
        if !failed || self.screen.look() == Look::Json {
            return None;
        }
        let call = self.backend.get(&format!("/api/tool-calls/{}", word(&heard.data, "job_id"))).await.ok()?;
        call["error_code"].as_str().map(str::to_owned)
    }

    /// Asks the turn to stop, once it is known. It says itself when it has.
    async fn stop(&mut self) {
        let Some(id) = &self.id else { return };
        // Refused means that it has ended already, and its end is on the way.
        let _ = self.backend.post(&format!("/api/turns/{id}/cancel"), &json!({})).await;
    }

    /// Whether a refusal is worth another try.
    async fn refused(&mut self, status: u16, place: Option<String>, error: CliError) -> Result<(), CliError> {
        match (status, place) {
            // The message arrived the first time, and its turn runs.
            (409, Some(place)) if place.starts_with("/api/turns/") => self.adopt(&place).await,
            // A server that just started has another token, and one that stops takes nothing new.
            (401, _) if self.reached && self.backend.is_beside_server() => Ok(()),
            (500.., _) if self.reached => Ok(()),
            _ => Err(error),
        }
    }

    /// Takes the turn over that an earlier copy of the message began.
    async fn adopt(&mut self, place: &str) -> Result<(), CliError> {
        let turn = self.backend.get(place).await?;
        let (id, conversation) = (word(&turn, "id").to_owned(), word(&turn, "conversation_id").to_owned());
        let mut after = 0;
        loop {
            let page = self.backend.get(&format!("/api/conversations/{conversation}/events?after={after}&limit=1000")).await?;
            let ours = page["events"].as_array().into_iter().flatten().find(|event| event["turn_id"] == id.as_str());
            if let Some(first) = ours.and_then(|event| event["seq"].as_i64()) {
                self.last = first - 1;
                break;
            }
            let Some(next) = page["next_after"].as_i64() else { break };
            after = next;
        }
        (self.id, self.conversation) = (Some(id), Some(conversation));
        Ok(())
    }

    /// A moment of patience with a server that is away.
    async fn wait_for_server(&mut self) -> Result<Option<End>, CliError> {
        let away = match self.away {
            Some(away) => away,
            None => {
                match self.screen.look() {
                    Look::Terminal { .. } => print::piece(&self.screen.lost()),
                    Look::Pipe | Look::Json => print::error_line(screen::LOST),
                }
                *self.away.insert(Deadline::after(PATIENCE))
            }
        };
        if away.passed() {
            let place =
                self.conversation.as_deref().map(|id| format!("; `werkruf conversations show {}` shows what came of it", short(id)));
            let message = format!("the server did not come back within {} s{}", PATIENCE.as_secs(), place.unwrap_or_default());
            return Err(CliError::refused("connection_lost", message));
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = self.interrupts.recv() => return Ok(Some(End::Left)),
        }
        self.backend.renew();
        Ok(None)
    }
}
