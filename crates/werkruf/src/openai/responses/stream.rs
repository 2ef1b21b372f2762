//! A response as an event stream: the stored events, the partial text of the current step, then live events.
//!
//! Invariants: no event is missing or repeated (`Runtime::join`). A
//! client that read too slowly catches up from the stored rows and continues. The stream ends before the turn only when the server
//! drains, or when the turn waits for an approval and the client did not ask to wait.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, stream};
use tokio::time::Interval;
use werkruf_contract::{Deadline, ErrorEvent, EventType, TurnStatus, Uuid};
use werkruf_runtime::{Joined, LiveEvent, SubscribeOptions};
use werkruf_store::{EventRow, ReadLimit, StoreError, StreamKey};

use super::encode::{Encoder, TurnEvent, status_of_error};
use super::object::ResponseStatus;
use super::stored::{self, StoredResponse};
use crate::api::sse::{CHUNK_BYTES, KEEP_ALIVE, RETRY_HINT, keep_alive_timer, response};
use crate::app::App;
use crate::openai::client_events::TurnEvents;
use crate::openai::start::FIRST_EVENT_WAIT;
use crate::openai::stop_on_leave::StopOnLeave;

/// How many rows are read at once.
const READ_LIMIT: ReadLimit = ReadLimit::rows(256);

/// The event stream of one turn.
pub(crate) struct ResponseStream {
    app: Arc<App>,
    tenant_id: Uuid,
    stream_id: Uuid,
    turn_id: Uuid,
    encoder: Encoder,
    /// The sequence number of the last stored event that was sent.
    last: i64,
    events: Option<TurnEvents>,
    /// Whether the stream stays open while an approval is pending. Otherwise it ends there.
    waits_for_decision: bool,
    awaiting_approval: bool,
    /// Encoded bytes that are not sent yet.
    out: BytesMut,
    ticks: Interval,
    ended: bool,
    /// Why the turn ended, until what it used is known.
    failed: Option<ErrorEvent>,
    /// Stops the turn when the client leaves.
    stop: StopOnLeave,
}

impl ResponseStream {
    /// Streams a turn from its first event on.
    pub(crate) fn live(app: &Arc<App>, tenant_id: Uuid, ids: (Uuid, Uuid), encoder: Encoder, events: TurnEvents) -> Self {
        let (stream_id, turn_id) = ids;
        let mut reader = Self {
            app: Arc::clone(app),
            tenant_id,
            stream_id,
            turn_id,
            encoder,
            last: 0,
            events: Some(events),
            waits_for_decision: false,
            awaiting_approval: false,
            out: BytesMut::new(),
            ticks: keep_alive_timer(),
            ended: false,
            failed: None,
            stop: StopOnLeave::default(),
        };
        reader.encoder.start(&mut reader.out);
        reader
    }

    /// Streams the stored events after a sequence number, then the live ones.
    pub(crate) fn resumed(app: &Arc<App>, stored: StoredResponse, after: Option<u64>) -> Self {
        let StoredResponse { base, turn, events, last, .. } = stored;
        let ids = (base.conversation_id, turn.id);
        let none = TurnEvents::Stored(std::collections::VecDeque::new());
        let mut reader = Self::live(app, turn.tenant_id, ids, Encoder::new(base, after), none);
        (reader.events, reader.waits_for_decision, reader.last) = (None, true, last);
        reader.awaiting_approval = turn.status == TurnStatus::AwaitingApproval;
        for event in events {
            reader.encoder.take(&mut reader.out, event);
        }
        reader
    }

    /// Waits a short time for the model's server to answer. Returns the error of a turn that fails before that: it becomes the status of the answer,
    /// which a stream that has started cannot change. What else came is sent with the stream.
    pub(crate) async fn wait_for_first_event(&mut self) -> Result<(), ErrorEvent> {
        let end = Deadline::after(FIRST_EVENT_WAIT).instant();
        while let Some(events) = &mut self.events {
            let Ok(Some(event)) = tokio::time::timeout_at(end.into(), events.recv()).await else { break };
            self.write(&event);
            // A canceled turn is not an HTTP error: clients would retry the request automatically.
            if let Some(error) = self.failed.take_if(|error| status_of_error(error) == ResponseStatus::Failed) {
                self.stop.answered();
                return Err(error);
            }
            if !matches!(event.kind, EventType::Init | EventType::Debug) {
                break;
            }
        }
        Ok(())
    }

    /// Stops the turn when the client leaves before the end.
    pub(crate) fn stopping(mut self, stop: StopOnLeave) -> Self {
        self.stop = stop;
        self
    }

    /// Ends the stream where an approval is pending.
    pub(crate) fn ending_at_approval(mut self) -> Self {
        self.ended |= self.awaiting_approval;
        self.waits_for_decision = false;
        self
    }

    /// The HTTP response with this stream as its body.
    pub(crate) fn respond(self) -> Response {
        let chunks = stream::unfold(self, |mut reader| async move {
            let chunk = reader.next().await?;
            Some((Ok::<_, Infallible>(chunk), reader))
        });
        response(Body::from_stream(chunks))
    }

    /// The next chunk of the body. hyper polls for it only after the client took the one before.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.out.is_empty() {
                return Some(self.out.split().freeze());
            }
            if let Some(error) = self.failed.take() {
                self.fail(error).await;
                continue;
            }
            if self.ended || self.encoder.is_ended() {
                self.stop.answered();
                return None;
            }
            let Some(events) = &mut self.events else {
                if let Err(error) = self.catch_up().await {
                    tracing::warn!(%error, turn_id = %self.turn_id, "a stream ended early: the stored events could not be read");
                    self.ended = true;
                    self.out.extend_from_slice(RETRY_HINT);
                }
                continue;
            };
            tokio::select! {
                biased;
                event = events.recv() => self.receive(event),
                _ = self.ticks.tick() => self.out.extend_from_slice(KEEP_ALIVE),
            }
        }
    }

    /// Encodes one event and all events that are ready without waiting.
    fn receive(&mut self, first: Option<LiveEvent>) {
        let mut next = first;
        while let Some(event) = next {
            self.write(&event);
            if self.out.len() >= CHUNK_BYTES || self.encoder.is_ended() || self.failed.is_some() {
                return;
            }
            let Some(events) = &mut self.events else { return };
            match events.recv().now_or_never() {
                Some(more) => next = more,
                None => return,
            }
        }
        // The subscription ended before the turn: the server drains, an approval is pending, or the client read too slowly.
        self.events = None;
        if self.app.runtime.is_draining() {
            self.out.extend_from_slice(RETRY_HINT);
            self.ended = true;
        }
        self.ended |= self.awaiting_approval && !self.waits_for_decision;
    }

    fn write(&mut self, event: &LiveEvent) {
        if event.seq.is_some_and(|seq| seq <= self.last) {
            return;
        }
        self.last = self.last.max(event.seq.unwrap_or(0));
        self.awaiting_approval = event.kind == EventType::ApprovalRequired || (self.awaiting_approval && event.seq.is_none());
        match TurnEvent::read(event.kind, &event.data, event.at) {
            // A snapshot without a sequence number is the partial text of the current step, saved by another process.
            Ok(Some(TurnEvent::Snapshot(partial))) if event.seq.is_none() => {
                self.encoder.take_partial(&mut self.out, partial.step, &partial.content)
            }
            Ok(Some(turn_event)) => self.encode(turn_event),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, turn_id = %self.turn_id, "an event cannot be read");
                self.ended = true;
            }
        }
    }

    /// Encodes an event of the turn. An error waits until it is known what the turn used.
    fn encode(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::Error(error, None) => self.failed = Some(error),
            event => self.encoder.take(&mut self.out, event),
        }
    }

    /// Encodes the end of a turn that failed.
    async fn fail(&mut self, error: ErrorEvent) {
        let usage = stored::usage_of(&self.app, self.tenant_id, self.turn_id).await.unwrap_or_else(|cause| {
            tracing::warn!(error = %cause, turn_id = %self.turn_id, "a failed response has no usage: its rows could not be read");
            None
        });
        self.encoder.take(&mut self.out, TurnEvent::Error(error, usage));
    }

    /// Encodes the stored events and the partial text, and continues with live events.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let stream = StreamKey { tenant_id: self.tenant_id, stream_id: self.stream_id };
        loop {
            let options = SubscribeOptions { turn_id: Some(self.turn_id), debug: false, after: self.last };
            match self.app.runtime.join(stream, options, READ_LIMIT).await? {
                Joined::Behind(rows) => {
                    self.encode_rows(&rows)?;
                    if self.failed.is_some() || self.encoder.is_ended() {
                        return Ok(());
                    }
                }
                Joined::Live { rows, partial, events } => {
                    self.encode_rows(&rows)?;
                    if let Some(partial) = partial {
                        self.encoder.take_partial(&mut self.out, partial.step, &partial.content);
                    }
                    self.events = Some(TurnEvents::Live(events));
                    self.ended |= self.awaiting_approval && !self.waits_for_decision;
                    // Nothing more comes of a turn that was deleted.
                    self.ended |= self.app.records().turn(self.tenant_id, self.turn_id).await?.is_none();
                    return Ok(());
                }
            }
        }
    }

    fn encode_rows(&mut self, rows: &[EventRow]) -> Result<(), StoreError> {
        if let Some(last) = rows.last() {
            (self.last, self.awaiting_approval) = (last.seq, last.kind == EventType::ApprovalRequired);
        }
        for event in stored::turn_events(rows)? {
            self.encode(event);
        }
        Ok(())
    }
}
