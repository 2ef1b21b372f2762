//! A conversation followed from a number on: what is stored, in bites the client has room for, then what comes.
//!
//! Invariants: nothing is read ahead of the client, so a long log costs a slow reader one bite; listening begins before the last
//! look at what is stored, so going over to live events leaves no gap, and numbers tell what would be a repeat.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde_json::json;
use werkruf_contract::{AssistantSnapshot, EventType, Uuid};
use werkruf_runtime::{PartialAnswer, SubscribeOptions, complete_event};
use werkruf_store::{EventRow, PartialText, ReadLimit, StoreError, StreamKey};

use super::error::ApiError;
use super::sse::{CHUNK_BYTES, LiveBody, RETRY_HINT, StreamCursor, frame, response};
use crate::app::App;

/// Read at once; the client takes it in pieces of [`AT_ONCE`].
const READ_LIMIT: ReadLimit = ReadLimit { rows: 256, bytes: 32 * 1024 };

/// A reader on its way through a log.
pub(crate) struct ConversationStream {
    app: Arc<App>,
    tenant_id: Uuid,
    conversation_id: Uuid,
    cursor: StreamCursor,
    phase: Phase,
}

enum Phase {
    /// Rows that were read; whether there may be more behind them.
    Stored(std::vec::IntoIter<EventRow>, bool),
    Live(LiveBody),
    Ended,
}

impl ConversationStream {
    /// Begins after this number, or with what is kept where none is given.
    pub(crate) async fn after(app: &Arc<App>, tenant_id: Uuid, conversation_id: Uuid, after: Option<i64>) -> Result<Self, ApiError> {
        let streams = app.streams();
        let from = match after {
            Some(after) => after,
            None => streams.first_event(tenant_id, conversation_id).await? - 1,
        };
        let rows = streams.read_events(tenant_id, conversation_id, from, READ_LIMIT).await?;
        check_retained(app, tenant_id, conversation_id, from, rows.first()).await?;
        let more = is_full(&rows);
        let phase = Phase::Stored(rows.into_iter(), more);
        Ok(Self { app: Arc::clone(app), tenant_id, conversation_id, cursor: StreamCursor::up_to(from), phase })
    }

    /// As a response without an end.
    pub(crate) fn respond(self) -> Response {
        let pieces = stream::unfold(self, |mut stream| async move {
            let piece = stream.next().await?;
            Some((Ok::<_, Infallible>(piece), stream))
        });
        response(Body::from_stream(pieces))
    }

    /// The next piece; asked for only when the client has taken the last.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let piece = match &mut self.phase {
                Phase::Live(live) => return live.next().await.map(|Ok(piece)| piece),
                Phase::Ended => return None,
                Phase::Stored(..) => self.stored().await,
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Some(piece),
                Err(error) => {
                    tracing::warn!(%error, "a stream ended early: what is stored could not be read");
                    self.phase = Phase::Ended;
                    return Some(Bytes::from_static(RETRY_HINT));
                }
            }
        }
    }

    /// A piece of what was read; when it is used up, the next bite, or over to what comes.
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
        let rows = self.app.streams().read_events(self.tenant_id, self.conversation_id, self.cursor.last, READ_LIMIT).await?;
        self.accept_rows(rows);
        Ok(BytesMut::new())
    }

    fn accept_rows(&mut self, rows: Vec<EventRow>) {
        // The beginning was deleted under the reader: it comes back and is told where the log begins now.
        let gap = rows.first().is_some_and(|row| row.seq != self.cursor.last + 1);
        let more = is_full(&rows);
        self.phase = if gap { Phase::Ended } else { Phase::Stored(rows.into_iter(), more) };
    }

    /// Listens, then looks once more at what is stored: whatever is not in there will be heard.
    async fn subscribe(&mut self) -> Result<BytesMut, StoreError> {
        let (runtime, streams) = (&self.app.runtime, self.app.streams());
        let stream = StreamKey { tenant_id: self.tenant_id, stream_id: self.conversation_id };
        let (subscription, partial) = runtime.subscribe(stream, SubscribeOptions { turn_id: None, debug: false, after: self.cursor.last });
        let rows = streams.read_events(self.tenant_id, self.conversation_id, self.cursor.last, READ_LIMIT).await?;
        if is_full(&rows) {
            self.accept_rows(rows);
            return Ok(BytesMut::new());
        }
        let mut out = BytesMut::new();
        for row in &rows {
            write(&self.app, self.tenant_id, self.conversation_id, &mut self.cursor, &mut out, row).await?;
        }
        // The text of the step that is being written is no row yet: it comes whole, and what follows adds to it.
        let partial = match partial {
            Some(partial) => Some(partial),
            // Nobody has said anything since this process began; an earlier one may have, or one beside it.
            None => streams.partial(self.tenant_id, self.conversation_id).await?.map(partial_answer),
        };
        if let Some(PartialAnswer { turn_id, step, content }) =
            partial.filter(|partial| !self.cursor.is_stored(partial.turn_id, partial.step))
        {
            let data = serde_json::to_string(&AssistantSnapshot { content, step, turn_id });
            frame(&mut out, None, EventType::AssistantSnapshot, &data.map_err(|error| StoreError::Broken(error.to_string()))?);
        }
        self.phase = Phase::Live(LiveBody::of_conversation(runtime, subscription, std::mem::take(&mut self.cursor)));
        Ok(out)
    }
}

fn partial_answer(partial: PartialText) -> PartialAnswer {
    PartialAnswer { turn_id: partial.turn_id, step: partial.step, content: partial.content }
}

fn is_full(rows: &[EventRow]) -> bool {
    rows.len() >= READ_LIMIT.rows as usize || rows.iter().map(|row| row.data.len()).sum::<usize>() >= READ_LIMIT.bytes
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

/// 410 where events after `after` are gone. `next` is the first one found behind it.
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
        format!("Events before {first} are no longer kept; go on with after={} and read the messages for what came before.", first - 1);
    Err(ApiError::new(StatusCode::GONE, "events_gone", message).details(json!({"first_seq": first})))
}
