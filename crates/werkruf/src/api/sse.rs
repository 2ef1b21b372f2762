//! Server-sent events. All events that are ready are written into one buffer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::Stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use tokio::time::{Interval, interval};
use werkruf_contract::{EventType, Uuid};
use werkruf_runtime::{LiveEvent, Subscription};

const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A comment that keeps proxies from closing an idle stream.
pub(crate) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";
/// A chunk of the body ends with the event that exceeds this size.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;
/// Tells the client to reconnect after one second.
pub(crate) const RETRY_HINT: &[u8] = b"retry: 1000\n\n";
/// How many turns a cursor remembers. The turns of a conversation run one after another, so only the newest can have live text.
const REMEMBERED_TURNS: usize = 8;

/// Ticks whenever a [`KEEP_ALIVE`] comment is due.
pub(crate) fn keep_alive_timer() -> Interval {
    let mut ticks = interval(KEEP_ALIVE_INTERVAL);
    ticks.reset();
    ticks
}

/// Writes one event.
pub(crate) fn frame(out: &mut BytesMut, seq: Option<i64>, kind: EventType, data: &str) {
    out.reserve(data.len() + 64);
    if let Some(seq) = seq {
        out.put_slice(b"id: ");
        out.put_slice(seq.to_string().as_bytes());
        out.put_u8(b'\n');
    }
    out.put_slice(b"event: ");
    out.put_slice(kind.as_str().as_bytes());
    out.put_u8(b'\n');
    for line in data.split('\n') {
        out.put_slice(b"data: ");
        out.put_slice(line.as_bytes());
        out.put_u8(b'\n');
    }
    out.put_u8(b'\n');
}

/// An event stream response with this body.
pub(crate) fn response(body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (http::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

/// What a client has received from stored rows. With it, live events that are repeats or outdated can be left out.
#[derive(Debug, Default)]
pub(crate) struct StreamCursor {
    /// The last sequence number sent.
    pub(crate) last: i64,
    /// For each of the newest turns: the last step whose complete text was sent from a stored row.
    stored_steps: VecDeque<(Uuid, u32)>,
}

#[derive(Deserialize)]
struct Step {
    step: u32,
}

impl StreamCursor {
    /// A client that has the events up to this sequence number.
    pub(crate) fn up_to(last: i64) -> Self {
        Self { last, stored_steps: VecDeque::new() }
    }

    /// Records that a stored row was sent.
    pub(crate) fn sent(&mut self, seq: i64, kind: EventType, turn_id: Option<Uuid>, data: &str) {
        self.last = self.last.max(seq);
        let Some(turn_id) = turn_id else { return };
        if kind.ends_turn() {
            self.mark_stored(turn_id, u32::MAX);
        } else if kind == EventType::AssistantSnapshot
            && let Ok(Step { step }) = serde_json::from_str(data)
        {
            self.mark_stored(turn_id, step);
        }
    }

    fn mark_stored(&mut self, turn_id: Uuid, step: u32) {
        self.stored_steps.retain(|(stored, _)| *stored != turn_id);
        if self.stored_steps.len() == REMEMBERED_TURNS {
            self.stored_steps.pop_front();
        }
        self.stored_steps.push_back((turn_id, step));
    }

    fn stored_step(&self, turn_id: Uuid) -> Option<u32> {
        self.stored_steps.iter().find(|(stored, _)| *stored == turn_id).map(|(_, step)| *step)
    }

    /// Whether the complete text of this step was sent.
    pub(crate) fn is_stored(&self, turn_id: Uuid, step: u32) -> bool {
        self.stored_step(turn_id).is_some_and(|stored_step| stored_step >= step)
    }

    /// Whether events before this one are missing: events may arrive out of order or get lost.
    fn skips_events(&self, event: &LiveEvent) -> bool {
        event.seq.is_some_and(|seq| seq > self.last + 1)
    }

    /// Whether the client does not have this live event yet.
    fn is_new(&self, event: &LiveEvent) -> bool {
        match event.seq {
            Some(seq) => seq > self.last,
            None => match self.stored_step(event.turn_id) {
                None => true,
                Some(u32::MAX) => false,
                Some(stored_step) => serde_json::from_str::<Step>(&event.data).map_or(true, |Step { step }| step > stored_step),
            },
        }
    }
}

/// A response body of live events.
pub(crate) struct LiveBody {
    events: Subscription,
    cursor: StreamCursor,
    /// Whether the body ends with `final` or `error`. Otherwise it follows the conversation without end.
    one_turn: bool,
    ended: bool,
    /// Whether the last numbered event requests an approval.
    awaiting_approval: bool,
    ticks: Interval,
}

impl LiveBody {
    /// One turn, from its first event on.
    pub(crate) fn of_turn(events: Subscription) -> Self {
        Self::new(events, StreamCursor::default(), true)
    }

    /// A conversation, after the position of a cursor.
    pub(crate) fn of_conversation(events: Subscription, cursor: StreamCursor) -> Self {
        Self::new(events, cursor, false)
    }

    fn new(events: Subscription, cursor: StreamCursor, one_turn: bool) -> Self {
        Self { events, cursor, one_turn, ended: false, awaiting_approval: false, ticks: keep_alive_timer() }
    }

    /// The HTTP response with this body.
    pub(crate) fn respond(self) -> Response {
        response(Body::from_stream(self))
    }

    fn write(&mut self, out: &mut BytesMut, event: &LiveEvent) {
        if !self.cursor.is_new(event) {
            return;
        }
        if !self.one_turn && self.cursor.skips_events(event) {
            // The client reconnects with its last sequence number and receives the missing rows.
            self.ended = true;
            out.put_slice(RETRY_HINT);
            return;
        }
        frame(out, event.seq, event.kind, &event.data);
        if let Some(seq) = event.seq {
            self.cursor.last = seq;
            self.awaiting_approval = event.kind == EventType::ApprovalRequired;
        }
        self.ended |= self.one_turn && event.kind.ends_turn();
    }

    /// Writes the events that are ready, up to one chunk.
    fn fill(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) {
        while !self.ended && out.len() < CHUNK_BYTES {
            match self.events.poll_recv(cx) {
                Poll::Ready(Some(event)) => self.write(out, &event),
                Poll::Ready(None) => {
                    self.ended = true;
                    // The server drains, or the client read too slowly: it should continue soon. After an approval request nothing follows
                    // until somebody decides.
                    if !self.awaiting_approval {
                        out.put_slice(RETRY_HINT);
                    }
                }
                Poll::Pending => return,
            }
        }
    }
}

impl Stream for LiveBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let mut out = BytesMut::new();
        this.fill(cx, &mut out);
        if !out.is_empty() {
            return Poll::Ready(Some(Ok(out.freeze())));
        }
        if this.ended {
            return Poll::Ready(None);
        }
        this.ticks.poll_tick(cx).map(|_| Some(Ok(Bytes::from_static(KEEP_ALIVE))))
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
