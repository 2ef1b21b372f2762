//! A new subscriber of a conversation or of one turn: the stored events that it lacks, the text that is being written, and live events from now on.
//!
//! Invariants: saved text is read before the subscription, because text that this process begins afterwards arrives as tokens; rows are read after it,
//! so no event is missing. Where one of these rows settles a text, the subscriber joins again: the text of the subscription, and tokens
//! that wait in it, may be those that the row discards.

use werkruf_store::{EventRow, ReadLimit, StoreError, StreamKey, Streams};

use super::broadcast::Broadcast;
use super::event::{PartialAnswer, SubscribeOptions};
use super::subscriber::Subscription;

/// How a new subscriber goes on.
#[derive(Debug)]
pub enum Joined {
    /// It takes these rows first, then joins again after the last of them.
    Behind(Vec<EventRow>),
    /// It takes the rows, then the text so far, then live events. Some of them may have been among the rows.
    Live { rows: Vec<EventRow>, partial: Option<PartialAnswer>, events: Subscription },
}

/// Subscribes after the event that `options` name.
pub(crate) async fn join(
    streams: &dyn Streams,
    broadcast: &Broadcast,
    stream: StreamKey,
    options: SubscribeOptions,
    limit: ReadLimit,
) -> Result<Joined, StoreError> {
    let StreamKey { tenant_id, stream_id } = stream;
    // Text of an earlier process or of another replica.
    let saved = streams.partial(tenant_id, stream_id).await?;
    let (events, partial) = broadcast.subscribe(stream, options);
    let rows = streams.events(tenant_id, stream_id, options.turn_id, options.after, limit).await?;
    if limit.is_reached_by(&rows) || rows.iter().any(|row| row.kind.settles_text()) {
        return Ok(Joined::Behind(rows));
    }
    let wanted = |partial: &PartialAnswer| options.turn_id.is_none_or(|turn_id| turn_id == partial.turn_id);
    Ok(Joined::Live { rows, partial: partial.or_else(|| saved.map(PartialAnswer::from)).filter(wanted), events })
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
