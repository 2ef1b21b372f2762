//! [`Streams`] on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::insert::{count, lease_end};
use super::row::{self, Columns, all, first};
use super::text::{Id, Stamp, id_or_null};
use crate::{DeletedEvents, EventRow, NewPartial, PartialText, ReadLimit, StoreError, StoreFuture, StreamKey, Streams, crash};

impl Streams for SqliteStore {
    fn events(
        &self,
        tenant_id: Uuid,
        stream_id: Uuid,
        turn_id: Option<Uuid>,
        after: i64,
        limit: ReadLimit,
    ) -> StoreFuture<'_, Vec<EventRow>> {
        Box::pin(self.readers.list(move |c| {
            let mut statement = c.prepare_cached(EVENTS_AFTER)?;
            let values = params![Id::from(tenant_id), Id::from(stream_id), id_or_null(turn_id), after, limit.rows];
            let mut rows = statement.query(values)?;
            let (mut found, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let event = row::event(&mut Columns::new(row))?;
                bytes += event.data.len();
                found.push(event);
                if bytes >= limit.bytes {
                    break;
                }
            }
            Ok(found)
        }))
    }

    fn first_event(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, i64> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(FIRST_EVENT)?;
            let found = first(&mut statement, params![Id::from(tenant_id), Id::from(stream_id)], |columns| columns.int())?;
            Ok(found.unwrap_or(1))
        }))
    }

    fn partial(&self, tenant_id: Uuid, stream_id: Uuid) -> StoreFuture<'_, Option<PartialText>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(&format!(
                "SELECT id, step + 1, partial FROM ({NEWEST}) WHERE partial IS NOT NULL AND finished_at IS NULL LIMIT 1"
            ))?;
            first(&mut statement, params![Id::from(tenant_id), Id::from(stream_id)], |columns| {
                Ok(PartialText { turn_id: columns.id()?, step: columns.small()?, content: columns.text()? })
            })
        }))
    }

    fn save_partials(&self, partials: Vec<NewPartial>, now: Timestamp) -> StoreFuture<'_, usize> {
        Box::pin(self.writer.submit(move |c| {
            let mut saved = 0;
            for partial in &partials {
                saved += usize::from(save(c, partial, now)?);
            }
            crash::point("inside_partial");
            Ok(saved)
        }))
    }
}

impl SqliteStore {
    /// Deletes a batch of old events; `after` is the last stream of the previous batch.
    pub(super) async fn delete_events(&self, before: Timestamp, after: Option<StreamKey>) -> Result<DeletedEvents, StoreError> {
        let delete = move |c: &Connection| {
            let deleted = delete_batch(c, &Stamp::from(before), after)?;
            crash::point("inside_retention");
            Ok(deleted)
        };
        self.writer.submit(delete).await
    }
}

const EVENTS_AFTER: &str = "SELECT seq, type, turn_id, data, created_at FROM events
    WHERE conversation_id = ?2 AND seq > ?4 AND tenant_id = ?1 AND (?3 IS NULL OR turn_id = ?3) ORDER BY seq LIMIT ?5";

/// The first event of an empty stream is the next number of its lease.
const FIRST_EVENT: &str = "SELECT coalesce((SELECT min(seq) FROM events WHERE conversation_id = ?2 AND tenant_id = ?1),
    (SELECT next_event_seq FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2), 1)";

/// Turns run one after another, so the running turn is among the newest; newer ones wait.
const NEWEST: &str = "SELECT id, step, partial, finished_at FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2
    ORDER BY id DESC LIMIT 64";

/// The first event of a stream that is not old enough, or whose turn has not ended. All later events stay too, without a gap.
const FIRST_KEPT_EVENT: &str =
    "SELECT min(seq) FROM events WHERE conversation_id = ?2 AND tenant_id = ?1 AND (created_at >= ?3 OR turn_id IN
    (SELECT id FROM turns WHERE tenant_id = ?1 AND id = events.turn_id AND finished_at IS NULL))";

/// Events on both sides of a number that belong to the same turn: the first one below it, and the number after the last one above it.
const SAME_TURN_BELOW: &str = "SELECT min(seq) FROM events WHERE conversation_id = ?2 AND seq < ?3 AND tenant_id = ?1 AND turn_id IN
    (SELECT turn_id FROM events WHERE conversation_id = ?2 AND seq >= ?3 AND tenant_id = ?1)";
const SAME_TURN_ABOVE: &str = "SELECT max(seq) + 1 FROM events WHERE conversation_id = ?2 AND seq >= ?3 AND tenant_id = ?1 AND turn_id IN
    (SELECT turn_id FROM events WHERE conversation_id = ?2 AND seq < ?3 AND tenant_id = ?1)";

/// The most streams and deleted events of one batch, which occupies the writer for milliseconds.
const STREAMS: usize = 200;
const EVENTS: i64 = 2_000;

/// Writes a checkpoint under the lease, and renews the lease; false, and nothing is written, where the fence or the step is outdated.
fn save(c: &Connection, partial: &NewPartial, now: Timestamp) -> Result<bool, StoreError> {
    let (fence, tenant) = (&partial.fence, Id::from(partial.fence.tenant_id));
    let owned = c
        .prepare_cached("UPDATE leases SET expires_at = ?5 WHERE tenant_id = ?1 AND conversation_id = ?2 AND owner = ?3 AND epoch = ?4")?
        .execute(params![tenant, Id::from(fence.stream_id), fence.owner, fence.epoch, lease_end(now)])?;
    if owned == 0 {
        return Ok(false);
    }
    let written = c
        .prepare_cached("UPDATE turns SET partial = ?4 WHERE tenant_id = ?1 AND id = ?2 AND step + 1 = ?3 AND finished_at IS NULL")?
        .execute(params![tenant, Id::from(partial.turn_id), partial.step, partial.content])?;
    Ok(written == 1)
}

/// Deletes one batch. A stream with more events than fit comes first in the next batch.
fn delete_batch(c: &Connection, before: &Stamp, after: Option<StreamKey>) -> Result<DeletedEvents, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT tenant_id, conversation_id FROM leases WHERE ?1 IS NULL OR (tenant_id, conversation_id) > (?1, ?2)
         ORDER BY tenant_id, conversation_id LIMIT ?3",
    )?;
    let (tenant, stream) = (after.map(|key| Id::from(key.tenant_id)), after.map(|key| Id::from(key.stream_id)));
    let keys = all(&mut statement, params![tenant, stream, count(STREAMS)], |columns| {
        Ok(StreamKey { tenant_id: columns.id()?, stream_id: columns.id()? })
    })?;
    let (mut events, mut last) = (0, after);
    for key in &keys {
        let (deleted, complete) = delete_of_stream(c, before, *key, EVENTS - count(events))?;
        events += deleted;
        if !complete {
            return Ok(DeletedEvents { events, next: last });
        }
        last = Some(*key);
    }
    Ok(DeletedEvents { events, next: last.filter(|_| keys.len() == STREAMS) })
}

/// The first and the first kept event of a stream; `None` without events. All events of a turn are on the same side: the events of turns
/// that overlap in a log, because one waited behind the other, go together.
pub(super) fn old_events(c: &Connection, before: &Stamp, key: StreamKey) -> Result<Option<(i64, i64)>, StoreError> {
    let (tenant, stream) = (Id::from(key.tenant_id), Id::from(key.stream_id));
    let mut statement = c.prepare_cached("SELECT min(seq), max(seq) FROM events WHERE conversation_id = ?2 AND tenant_id = ?1")?;
    let ends = first(&mut statement, params![tenant, stream], |columns| Ok((columns.int_or_null()?, columns.int_or_null()?)))?;
    let Some((Some(begin), Some(last))) = ends else { return Ok(None) };
    let mut statement = c.prepare_cached(FIRST_KEPT_EVENT)?;
    let kept = first(&mut statement, params![tenant, stream, before], |columns| columns.int_or_null())?.flatten().unwrap_or(last + 1);
    Ok(Some((begin, between_turns(c, SAME_TURN_BELOW, key, kept)?)))
}

/// Moves a number down or up until no turn has events on both sides of it.
fn between_turns(c: &Connection, same_turn: &str, key: StreamKey, mut seq: i64) -> Result<i64, StoreError> {
    let (tenant, stream) = (Id::from(key.tenant_id), Id::from(key.stream_id));
    let mut statement = c.prepare_cached(same_turn)?;
    while let Some(moved) = first(&mut statement, params![tenant, stream, seq], |columns| columns.int_or_null())?.flatten() {
        seq = moved;
    }
    Ok(seq)
}

/// Deletes events of one stream, whole turns only. Returns how many, and whether no more can be deleted.
fn delete_of_stream(c: &Connection, before: &Stamp, key: StreamKey, most: i64) -> Result<(usize, bool), StoreError> {
    let Some((begin, first_kept)) = old_events(c, before, key)? else { return Ok((0, true)) };
    let mut end = first_kept;
    if first_kept - begin > most {
        end = between_turns(c, SAME_TURN_BELOW, key, begin + most)?;
        if end == begin {
            if most < EVENTS {
                return Ok((0, false));
            }
            // A turn with more events than a batch is deleted at once.
            end = between_turns(c, SAME_TURN_ABOVE, key, begin + most)?;
        }
    }
    let deleted = c.prepare_cached("DELETE FROM events WHERE conversation_id = ?2 AND seq < ?3 AND tenant_id = ?1")?.execute(params![
        Id::from(key.tenant_id),
        Id::from(key.stream_id),
        end
    ])?;
    Ok((deleted, end == first_kept))
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    [EVENTS_AFTER, FIRST_EVENT, NEWEST, FIRST_KEPT_EVENT, SAME_TURN_BELOW, SAME_TURN_ABOVE].map(str::to_owned).to_vec()
}
