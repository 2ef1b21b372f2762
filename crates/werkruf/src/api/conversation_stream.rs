//! The event stream of a conversation: the stored events after a sequence number, then live events.
//!
//! Invariants: rows are read only when the client has taken the ones before, so a slow client costs at most one batch of memory. No event is missing
//! or repeated (`Runtime::join`).

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde_json::json;
use werkruf_contract::{AssistantSnapshot, EventType, Uuid};
use werkruf_runtime::{Joined, PartialAnswer, SubscribeOptions, complete_event};
use werkruf_store::{EventRow, ReadLimit, StoreError, StreamKey};

use super::error::ApiError;
use super::sse::{CHUNK_BYTES, LiveBody, RETRY_HINT, StreamCursor, frame, response};
use crate::app::App;

/// The size of one batch of rows. The client receives it in chunks of [`CHUNK_BYTES`].
const READ_LIMIT: ReadLimit = ReadLimit { rows: 256, bytes: 32 * 1024 };

/// The event stream of one conversation.
pub(crate) struct ConversationStream {
    app: Arc<App>,
    tenant_id: Uuid,
    conversation_id: Uuid,
    cursor: StreamCursor,
    phase: Phase,
}

enum Phase {
    /// Rows that were read, and whether more rows may follow.
    Stored(std::vec::IntoIter<EventRow>, bool),
    Live(LiveBody),
    Ended,
}

impl ConversationStream {
    /// Streams the events after this sequence number, or from the first event that exists.
    pub(crate) async fn after(app: &Arc<App>, tenant_id: Uuid, conversation_id: Uuid, after: Option<i64>) -> Result<Self, ApiError> {
        let streams = app.streams();
        let from = match after {
            Some(after) => after,
            None => streams.first_event(tenant_id, conversation_id).await? - 1,
        };
        let rows = streams.events(tenant_id, conversation_id, None, from, READ_LIMIT).await?;
        check_retained(app, tenant_id, conversation_id, from, rows.first()).await?;
        let more = READ_LIMIT.is_reached_by(&rows);
        let phase = Phase::Stored(rows.into_iter(), more);
        Ok(Self { app: Arc::clone(app), tenant_id, conversation_id, cursor: StreamCursor::up_to(from), phase })
    }

    /// The HTTP response with this stream as its body.
    pub(crate) fn respond(self) -> Response {
        let chunks = stream::unfold(self, |mut stream| async move {
            let chunk = stream.next().await?;
            Some((Ok::<_, Infallible>(chunk), stream))
        });
        response(Body::from_stream(chunks))
    }

    /// The next chunk of the body. hyper polls for it only after the client took the one before.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match &mut self.phase {
                Phase::Live(live) => return live.next().await.map(|Ok(chunk)| chunk),
                Phase::Ended => return None,
                Phase::Stored(..) => self.stored().await,
            };
            match chunk {
                Ok(chunk) if chunk.is_empty() => {}
                Ok(chunk) => return Some(chunk),
                Err(error) => {
                    tracing::warn!(conversation_id = %self.conversation_id, %error, "a stream ended early: the stored events could not be read");
                    self.phase = Phase::Ended;
                    return Some(Bytes::from_static(RETRY_HINT));
                }
            }
        }
    }

    /// The next chunk of the rows that were read. After the last row it reads the next batch or subscribes to live events.
    async fn stored(&mut self) -> Result<Bytes, StoreError> {
        let mut out = BytesMut::new();
        let Phase::Stored(rows, more) = &mut self.phase else { return Ok(Bytes::new()) };
        let more = *more;
        while out.len() < CHUNK_BYTES {
            let Some(row) = rows.next() else { break };
            write(&self.app, self.tenant_id, self.conversation_id, &mut self.cursor, &mut out, &row).await?;
        }
        if out.is_empty() {
            out = if more { self.read_more().await? } else { self.subscribe().await? };
        }
        Ok(out.freeze())
    }

    async fn read_more(&mut self) -> Result<BytesMut, StoreError> {
        let rows = self.app.streams().events(self.tenant_id, self.conversation_id, None, self.cursor.last, READ_LIMIT).await?;
        self.accept_rows(rows);
        Ok(BytesMut::new())
    }

    fn accept_rows(&mut self, rows: Vec<EventRow>) {
        // Retention deleted rows that the client has not received: the stream ends, and the next request gets 410 with the first row.
        let gap = rows.first().is_some_and(|row| row.seq != self.cursor.last + 1);
        let more = READ_LIMIT.is_reached_by(&rows);
        self.phase = if gap { Phase::Ended } else { Phase::Stored(rows.into_iter(), more) };
    }

    /// Continues with live events, after the rows that were stored meanwhile.
    async fn subscribe(&mut self) -> Result<BytesMut, StoreError> {
        let stream = StreamKey { tenant_id: self.tenant_id, stream_id: self.conversation_id };
        let options = SubscribeOptions { turn_id: None, debug: false, after: self.cursor.last };
        let (rows, partial, events) = match self.app.runtime.join(stream, options, READ_LIMIT).await? {
            Joined::Live { rows, partial, events } => (rows, partial, events),
            Joined::Behind(rows) => {
                self.accept_rows(rows);
                return Ok(BytesMut::new());
            }
        };
        let mut out = BytesMut::new();
        for row in &rows {
            write(&self.app, self.tenant_id, self.conversation_id, &mut self.cursor, &mut out, row).await?;
        }
        // The text of the current step is not stored yet: the client receives all of it so far, and later tokens append to it.
        if let Some(PartialAnswer { turn_id, step, content }) =
            partial.filter(|partial| !self.cursor.is_stored(partial.turn_id, partial.step))
        {
            let data = serde_json::to_string(&AssistantSnapshot::text(content, step, turn_id));
            frame(&mut out, None, EventType::AssistantSnapshot, &data.map_err(|error| StoreError::Broken(error.to_string()))?);
        }
        self.phase = Phase::Live(LiveBody::of_conversation(events, std::mem::take(&mut self.cursor)));
        Ok(out)
    }
}

async fn write(
    app: &App,
    tenant_id: Uuid,
    conversation_id: Uuid,
    cursor: &mut StreamCursor,
    out: &mut BytesMut,
    row: &EventRow,
) -> Result<(), StoreError> {
    let data = complete_event(app.records(), tenant_id, conversation_id, row).await?;
    frame(out, Some(row.seq), row.kind, &data);
    cursor.sent(row.seq, row.kind, row.turn_id, &data);
    Ok(())
}

/// Fails with 410 if events after `after` were deleted. `next` is the first stored event after it.
pub(crate) async fn check_retained(
    app: &App,
    tenant_id: Uuid,
    conversation_id: Uuid,
    after: i64,
    next: Option<&EventRow>,
) -> Result<(), ApiError> {
    let first = match next {
        Some(row) => row.seq,
        None => app.streams().first_event(tenant_id, conversation_id).await?,
    };
    if after.saturating_add(1) >= first {
        return Ok(());
    }
    let message =
        format!("Events before {first} were deleted; continue with after={} and read the messages for what came before.", first - 1);
    Err(ApiError::new(StatusCode::GONE, "events_gone", message).details(json!({"first_seq": first})))
}
