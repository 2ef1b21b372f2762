//! One turn as a client sees it: sends the message, reads the events, resumes after a broken connection, cancels on Ctrl-C.

use std::time::Duration;

use futures_util::StreamExt;
use http::Method;
use serde_json::{Value, json};
use tokio::signal::unix::Signal;
use werkruf_contract::{Clock, Deadline, ErrorCode};

use super::frames::{Frames, ServerEvent};
use super::screen::{self, OutputMode, Screen};
use super::text;
use crate::cli::backend::Backend;
use crate::cli::error::CliError;
use crate::cli::print::{self, short_id};
use crate::cli::transport::{ByteStream, StreamError};

/// How long a server may be unreachable.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// A running server sends something every 15 s. A stream that is silent for longer than this is broken.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// How a turn ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    /// A call needs an approval first; the turn continues later.
    Waits,
    /// Ctrl-C.
    Stopped,
    /// Ctrl-C twice: the command does not wait for the end.
    Left,
}

pub(super) struct Turn<'a> {
    backend: &'a mut Backend,
    screen: &'a mut Screen,
    interrupts: &'a mut Signal,
    body: Value,
    /// The idempotency key of the message.
    key: String,
    conversation: Option<String>,
    id: Option<String>,
    /// The number of the last received event.
    last: i64,
    /// The server has answered before, so the command waits for it to come back.
    reached: bool,
    /// Until when to wait for a reconnect, if the connection is broken.
    reconnect_until: Option<Deadline>,
    /// Another turn of the conversation still runs; events without a turn id belong to that turn.
    queued: bool,
    /// The last event of the turn was a required approval.
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
            reconnect_until: None,
            queued: false,
            waits: false,
            stopping: false,
        }
    }

    /// The conversation, if known, and whether the server has answered.
    pub(super) fn into_conversation(self) -> (Option<String>, bool) {
        (self.conversation, self.reached)
    }

    /// Runs until the turn has ended; an error if the turn failed.
    pub(super) async fn run(&mut self) -> Result<End, CliError> {
        loop {
            let Some(connected) = self.connect().await else { return Ok(End::Left) };
            match connected {
                Ok(stream) => {
                    if let Some(end) = self.follow(stream).await? {
                        return Ok(end);
                    }
                }
                Err(StreamError::Refused { status, location, error }) => self.refused(status, location, error).await?,
                Err(StreamError::Unreachable { sent, error }) => {
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

    /// Sends the message, or subscribes again after the last received event. `None` if the user pressed Ctrl-C twice.
    async fn connect(&mut self) -> Option<Result<ByteStream, StreamError>> {
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

    /// Reads events until the turn or the connection has ended.
    async fn follow(&mut self, mut stream: ByteStream) -> Result<Option<End>, CliError> {
        if let (Some(id), Some(_)) = (&self.id, self.reconnect_until) {
            let turn = self.backend.get(&format!("/api/turns/{id}")).await;
            self.queued = turn.is_ok_and(|turn| turn["status"] == "accepted");
        }
        if self.stopping {
            self.stop().await;
        }
        let mut frames = Frames::default();
        loop {
            let received = tokio::select! {
                received = tokio::time::timeout(IDLE_TIMEOUT, stream.next()) => received,
                _ = self.interrupts.recv() => {
                    if std::mem::replace(&mut self.stopping, true) {
                        return Ok(Some(End::Left));
                    }
                    self.stop().await;
                    continue;
                }
            };
            let Ok(Some(Ok(bytes))) = received else { return Ok(self.waits.then_some(End::Waits)) };
            self.reached = true;
            if self.reconnect_until.take().is_some() {
                print::piece(&self.screen.reconnected());
            }
            for event in frames.push(&bytes) {
                if let Some(end) = self.receive(&event).await? {
                    return Ok(Some(end));
                }
            }
        }
    }

    async fn receive(&mut self, event: &ServerEvent) -> Result<Option<End>, CliError> {
        self.last = event.id.unwrap_or(self.last);
        let turn = event.data["turn_id"].as_str();
        if self.id.is_none() && event.event == "init" {
            self.id = turn.map(str::to_owned);
            self.conversation = event.data["conversation_id"].as_str().map(str::to_owned);
            if self.stopping {
                self.stop().await;
            }
        }
        let foreign = turn.is_some_and(|turn| self.id.as_deref() != Some(turn));
        if foreign {
            // The turns of a conversation run one after another, so the end of another turn may be the start of this one.
            self.queued &= !event.ends_turn();
        }
        if foreign || (turn.is_none() && self.queued) {
            return Ok(None);
        }
        self.waits = event.event == "approval_required";
        let code = self.error_code(event).await;
        print::piece(&self.screen.render(event, code.as_deref()));
        Ok(match event.event.as_str() {
            "final" => Some(End::Answered),
            "error" if self.stopping && ErrorCode::Canceled.is(text(&event.data, "code")) => Some(End::Stopped),
            "error" => return Err(self.failure(&event.data).await),
            _ => None,
        })
    }

    /// The error of the turn. The operator also learns the cause, which the turn's row has.
    async fn failure(&self, data: &Value) -> CliError {
        let message = text(data, "message");
        let turn = self.backend.get(&format!("/api/turns/{}", text(data, "turn_id"))).await.unwrap_or_default();
        let message = match turn["error"]["cause"].as_str() {
            Some(cause) => format!("{message} ({cause})"),
            None => message.to_owned(),
        };
        CliError::refused(text(data, "code"), message)
    }

    /// The error code of a failed call; the event itself has only the status.
    async fn error_code(&self, event: &ServerEvent) -> Option<String> {
        let failed = event.event == "tool_finished" && event.data["status"] != "succeeded";
        if !failed || self.screen.mode() == OutputMode::Json {
            return None;
        }
        let call = self.backend.get(&format!("/api/tool-calls/{}", text(&event.data, "job_id"))).await.ok()?;
        call["error_code"].as_str().map(str::to_owned)
    }

    /// Requests cancellation of the turn if its id is known. The turn's own events report when it has stopped.
    async fn stop(&mut self) {
        let Some(id) = &self.id else { return };
        // A refusal means that the turn has already ended; its last event is on the way.
        let _ = self.backend.post(&format!("/api/turns/{id}/cancel"), &json!({})).await;
    }

    /// Decides whether to try again after a refusal.
    async fn refused(&mut self, status: u16, location: Option<String>, error: CliError) -> Result<(), CliError> {
        match (status, location) {
            // The message had arrived before, and its turn runs.
            (409, Some(location)) if location.starts_with("/api/turns/") => self.adopt(&location).await,
            // A restarted server has a new token, and a stopping server accepts no new requests.
            (401, _) if self.reached && self.backend.found_by_lock_file() => Ok(()),
            (500.., _) if self.reached => Ok(()),
            _ => Err(error),
        }
    }

    /// Continues with the turn that an earlier request with the same message started.
    async fn adopt(&mut self, location: &str) -> Result<(), CliError> {
        let turn = self.backend.get(location).await?;
        let (id, conversation) = (text(&turn, "id").to_owned(), text(&turn, "conversation_id").to_owned());
        let mut after = 0;
        loop {
            let page = self.backend.get(&format!("/api/conversations/{conversation}/events?after={after}&limit=1000")).await?;
            let own = page["events"].as_array().into_iter().flatten().find(|event| event["turn_id"] == id.as_str());
            if let Some(first) = own.and_then(|event| event["seq"].as_i64()) {
                self.last = first - 1;
                break;
            }
            let Some(next) = page["next_after"].as_i64() else { break };
            after = next;
        }
        (self.id, self.conversation) = (Some(id), Some(conversation));
        Ok(())
    }

    /// Pauses before the next attempt to connect; an error if the server has been unreachable for too long.
    async fn wait_for_server(&mut self) -> Result<Option<End>, CliError> {
        let deadline = match self.reconnect_until {
            Some(deadline) => deadline,
            None => {
                match self.screen.mode() {
                    OutputMode::Terminal { .. } => print::piece(&self.screen.lost()),
                    OutputMode::Pipe | OutputMode::Json => print::error_line(screen::LOST),
                }
                *self.reconnect_until.insert(Deadline::after(RECONNECT_TIMEOUT))
            }
        };
        if deadline.passed() {
            let hint = self.conversation.as_deref().map(|id| format!("; `werkruf conversations show {}` shows the result", short_id(id)));
            let message = format!("the server did not come back within {} s{}", RECONNECT_TIMEOUT.as_secs(), hint.unwrap_or_default());
            return Err(CliError::refused("connection_lost", message));
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY_PAUSE) => {}
            _ = self.interrupts.recv() => return Ok(Some(End::Left)),
        }
        self.backend.reread_lock_file();
        Ok(None)
    }
}
