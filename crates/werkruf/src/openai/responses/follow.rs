//! A response as a stream: what is stored, what is shown right now, and what comes, with nothing missing and nothing twice.
//!
//! Invariants: listening begins before the last look at what is stored; a reader that was too slow is brought up from the rows
//! and goes on; the stream ends early only when the server drains, or where a person must decide and the client did not ask to wait.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, stream};
use tokio::time::{Interval, interval};
use werkruf_contract::{EventType, TurnStatus, Uuid};
use werkruf_runtime::{LiveEvent, SubscribeOptions};
use werkruf_store::{StoreError, StreamKey};

use super::encode::{Encoder, Said};
use super::told::{self, Told};
use crate::api::lookup;
use crate::api::sse::{AT_ONCE, COME_BACK, response};
use crate::app::App;
use crate::openai::heard::Events;

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A reader of one turn.
pub(crate) struct Follow {
    app: Arc<App>,
    tenant_id: Uuid,
    stream_id: Uuid,
    turn_id: Uuid,
    encoder: Encoder,
    /// The last stored event that was told.
    last: i64,
    events: Option<Events>,
    /// Whether a decision is waited for; otherwise the stream ends there.
    patient: bool,
    parked: bool,
    /// Bytes that are ready.
    out: BytesMut,
    ticks: Interval,
    ended: bool,
}

impl Follow {
    /// A turn that has just begun, or one that is told again under its idempotency key.
    pub(crate) fn begun(app: &Arc<App>, tenant_id: Uuid, ids: (Uuid, Uuid), encoder: Encoder, events: Events) -> Self {
        let (stream_id, turn_id) = ids;
        let mut follow = Self {
            app: Arc::clone(app),
            tenant_id,
            stream_id,
            turn_id,
            encoder,
            last: 0,
            events: Some(events),
            patient: false,
            parked: false,
            out: BytesMut::new(),
            ticks: interval(KEEP_ALIVE),
            ended: false,
        };
        follow.ticks.reset();
        follow.encoder.begin(&mut follow.out);
        follow
    }

    /// A stored turn from an event on, and what comes.
    pub(crate) fn resumed(app: &Arc<App>, told: Told, after: Option<u64>) -> Self {
        let Told { subject, turn, said, last, .. } = told;
        let ids = (subject.conversation_id, turn.id);
        let none = Events::Stored(std::collections::VecDeque::new());
        let mut follow = Self::begun(app, turn.tenant_id, ids, Encoder::new(subject, after), none);
        (follow.events, follow.patient, follow.last) = (None, true, last);
        follow.parked = turn.status == TurnStatus::AwaitingApproval;
        for one in said {
            follow.encoder.take(&mut follow.out, one);
        }
        follow
    }

    /// Ends where a person must decide.
    pub(crate) fn hasty(mut self) -> Self {
        self.ended |= self.parked;
        self.patient = false;
        self
    }

    /// As a response.
    pub(crate) fn respond(self) -> Response {
        let pieces = stream::unfold(self, |mut follow| async move {
            let piece = follow.next().await?;
            Some((Ok::<_, Infallible>(piece), follow))
        });
        response(Body::from_stream(pieces))
    }

    /// The next piece; asked for only when the client has taken the last.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.out.is_empty() {
                return Some(self.out.split().freeze());
            }
            if self.ended || self.encoder.is_ended() {
                return None;
            }
            let Some(events) = &mut self.events else {
                if let Err(error) = self.catch_up().await {
                    tracing::warn!(%error, turn_id = %self.turn_id, "a stream ended early: what is stored could not be read");
                    self.ended = true;
                    self.out.extend_from_slice(COME_BACK);
                }
                continue;
            };
            tokio::select! {
                biased;
                event = events.recv() => self.heard(event),
                _ = self.ticks.tick() => self.out.extend_from_slice(b": keep-alive\n\n"),
            }
        }
    }

    /// One event, and those that are there already.
    fn heard(&mut self, first: Option<LiveEvent>) {
        let mut next = first;
        while let Some(event) = next {
            self.write(&event);
            if self.out.len() >= AT_ONCE || self.encoder.is_ended() {
                return;
            }
            let Some(events) = &mut self.events else { return };
            match events.recv().now_or_never() {
                Some(more) => next = more,
                None => return,
            }
        }
        // The feed is over and the turn is not: the server drains, a person must decide, or this reader was too slow.
        self.events = None;
        if self.app.runtime.is_draining() {
            self.out.extend_from_slice(COME_BACK);
            self.ended = true;
        }
        self.ended |= self.parked && !self.patient;
    }

    fn write(&mut self, event: &LiveEvent) {
        let known = event.seq.is_some_and(|seq| seq <= self.last);
        // A reset that is stored was heard before the text it takes back, if that text came from those who listen.
        if known && event.kind != EventType::AssistantReset {
            return;
        }
        self.last = self.last.max(event.seq.unwrap_or(0));
        self.parked = event.kind == EventType::ApprovalRequired || (self.parked && event.seq.is_none());
        match Said::read(event.kind, &event.data) {
            // No row: the text of the open step as another process has kept it.
            Ok(Some(Said::Snapshot(shown))) if event.seq.is_none() => self.encoder.take_shown(&mut self.out, shown.step, &shown.content),
            Ok(Some(said)) => self.encoder.take(&mut self.out, said),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, turn_id = %self.turn_id, "an event cannot be read");
                self.ended = true;
            }
        }
    }

    /// Listens, then looks at what is stored and shown: whatever is in neither will be heard.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let stream = StreamKey { tenant_id: self.tenant_id, stream_id: self.stream_id };
        let (feed, shown) =
            self.app.runtime.subscribe(stream, SubscribeOptions { turn_id: Some(self.turn_id), debug: false, after: self.last });
        let rows = lookup::all_events(self.app.records(), self.tenant_id, self.stream_id, Some(self.turn_id), self.last).await?;
        self.last = rows.last().map_or(self.last, |row| row.seq);
        for said in told::said(&rows)? {
            self.encoder.take(&mut self.out, said);
        }
        let shown = match shown {
            Some(shown) => Some((shown.turn_id, shown.step, shown.content)),
            // Nobody has said anything since this process began; an earlier one may have.
            None => {
                let kept = self.app.streams().partial(self.tenant_id, self.stream_id).await?;
                kept.map(|kept| (kept.turn_id, kept.step, kept.content))
            }
        };
        if let Some((_, step, content)) = shown.filter(|(turn_id, ..)| *turn_id == self.turn_id) {
            self.encoder.take_shown(&mut self.out, step, &content);
        }
        self.events = Some(Events::Live(feed));
        Ok(())
    }
}
