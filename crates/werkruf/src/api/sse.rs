//! Server-sent events, written straight into bytes: one buffer for everything that is ready at once.

use std::collections::HashMap;
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
use tokio::sync::mpsc;
use tokio::time::{Interval, interval};
use werkruf_contract::{EventType, Uuid};
use werkruf_runtime::{LiveEvent, Runtime};

const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Events written into one buffer at most.
const AT_ONCE: usize = 64;

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

/// A response whose body is these bytes or events.
pub(crate) fn response(body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (http::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

/// What a client has from stored rows already, so that live events neither repeat nor follow what they belong before.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The last number sent.
    pub(crate) last: i64,
    /// Per turn the last step whose text is settled.
    settled: HashMap<Uuid, u32>,
}

#[derive(Deserialize)]
struct Step {
    step: u32,
}

impl Known {
    /// Nothing yet but numbers up to this one.
    pub(crate) fn up_to(last: i64) -> Self {
        Self { last, settled: HashMap::new() }
    }

    /// A stored row was sent.
    pub(crate) fn sent(&mut self, seq: i64, kind: EventType, turn_id: Option<Uuid>, data: &str) {
        self.last = self.last.max(seq);
        let Some(turn_id) = turn_id else { return };
        if kind.ends_turn() {
            self.settled.insert(turn_id, u32::MAX);
        } else if kind == EventType::AssistantSnapshot
            && let Ok(Step { step }) = serde_json::from_str(data)
        {
            self.settled.insert(turn_id, step);
        }
    }

    /// Whether the text of this step is in what was sent already.
    pub(crate) fn is_settled(&self, turn_id: Uuid, step: u32) -> bool {
        self.settled.get(&turn_id).is_some_and(|settled| *settled >= step)
    }

    /// Whether events before this one have not been heard: one that was stored earlier is told later, or never was.
    fn misses(&self, event: &LiveEvent) -> bool {
        event.seq.is_some_and(|seq| seq > self.last + 1)
    }

    /// Whether a live event is news.
    fn wants(&self, event: &LiveEvent) -> bool {
        match event.seq {
            Some(seq) => seq > self.last,
            None => match self.settled.get(&event.turn_id) {
                None => true,
                Some(&u32::MAX) => false,
                Some(settled) => serde_json::from_str::<Step>(&event.data).map_or(true, |Step { step }| step > *settled),
            },
        }
    }
}

/// Live events as a body: what is stored first, then what comes.
pub(crate) struct LiveBody {
    events: mpsc::Receiver<LiveEvent>,
    known: Known,
    /// Bytes to send before anything live.
    first: Option<Bytes>,
    /// Ends with `final` or `error`, instead of following the conversation for good.
    one_turn: bool,
    ended: bool,
    batch: Vec<LiveEvent>,
    ticks: Interval,
    runtime: Runtime,
}

impl LiveBody {
    /// One turn, from its first event on.
    pub(crate) fn of_turn(runtime: &Runtime, events: mpsc::Receiver<LiveEvent>) -> Self {
        Self::new(runtime, events, Known::default(), None, true)
    }

    /// A conversation: what was stored, then what comes.
    pub(crate) fn of_conversation(runtime: &Runtime, events: mpsc::Receiver<LiveEvent>, known: Known, stored: Bytes) -> Self {
        Self::new(runtime, events, known, (!stored.is_empty()).then_some(stored), false)
    }

    fn new(runtime: &Runtime, events: mpsc::Receiver<LiveEvent>, known: Known, first: Option<Bytes>, one_turn: bool) -> Self {
        let mut ticks = interval(KEEP_ALIVE);
        ticks.reset();
        Self { events, known, first, one_turn, ended: false, batch: Vec::new(), ticks, runtime: runtime.clone() }
    }

    /// As a response.
    pub(crate) fn respond(self) -> Response {
        response(Body::from_stream(self))
    }

    fn write(&mut self) -> Bytes {
        let size = self.batch.iter().map(|event| event.data.len() + 64).sum();
        let mut out = BytesMut::with_capacity(size);
        for event in self.batch.drain(..) {
            if !self.known.wants(&event) {
                continue;
            }
            if !self.one_turn && self.known.misses(&event) {
                // The client comes back with the last number it has, and reads the rows.
                self.ended = true;
                break;
            }
            frame(&mut out, event.seq, event.kind, &event.data);
            if let Some(seq) = event.seq {
                self.known.last = seq;
            }
            self.ended |= self.one_turn && event.kind.ends_turn();
        }
        out.freeze()
    }
}

impl Stream for LiveBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        while !this.ended {
            match this.events.poll_recv_many(cx, &mut this.batch, AT_ONCE) {
                Poll::Ready(0) => {
                    this.ended = true;
                    // On drain the client is told to come back soon; otherwise it read too slowly and resumes by itself.
                    if this.runtime.is_draining() {
                        return Poll::Ready(Some(Ok(Bytes::from_static(b"retry: 1000\n\n"))));
                    }
                }
                Poll::Ready(_) => {
                    let bytes = this.write();
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Poll::Pending => {
                    return match this.ticks.poll_tick(cx) {
                        Poll::Ready(_) => Poll::Ready(Some(Ok(Bytes::from_static(b": keep-alive\n\n")))),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
