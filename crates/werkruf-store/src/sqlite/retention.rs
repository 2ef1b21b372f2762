//! [`Retention`] on SQLite: readers find what may go, the writer looks again and deletes it, a few hundred rows at a time.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::insert::count;
use super::retention_messages::{self, Conversation};
use super::row::{all, first};
use super::streams::HORIZON;
use super::text::{Id, Stamp, id_or_null};
use super::{SqliteStore, erase};
use crate::{DeletedEvents, Retention, RowKey, StoreError, StoreFuture, StreamKey, Streams, Sweep, Sweepable, Swept, crash};

/// Rows one look reads, and rows one job of the writer deletes: it holds others up for milliseconds.
const LOOK: usize = 1_000;
pub(super) const BATCH: u32 = 500;

impl Retention for SqliteStore {
    fn sweep(&self, sweep: Sweep, after: Option<RowKey>) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            if sweep.rows == Sweepable::Events && !sweep.dry_run {
                return self.forget_batch(sweep, after).await;
            }
            let looked = self.readers.list(move |c| look(c, &sweep, after)).await?;
            let next = looked.next;
            if sweep.dry_run {
                return Ok(Swept { rows: looked.found.iter().map(|found| found.rows).sum(), conversations: 0, next });
            }
            let swept = Swept { next, ..self.delete(sweep, looked.found).await? };
            if next.is_none() {
                self.writer.submit_alone(fold).await?;
            }
            Ok(swept)
        })
    }
}

impl SqliteStore {
    async fn forget_batch(&self, sweep: Sweep, after: Option<RowKey>) -> Result<Swept, StoreError> {
        let after = after.map(|key| StreamKey { tenant_id: key.tenant_id, stream_id: key.id });
        let DeletedEvents { events, next } = self.delete_events(sweep.before, after).await?;
        let next = next.map(|key| RowKey { tenant_id: key.tenant_id, id: key.stream_id });
        Ok(Swept { rows: u64::try_from(events).unwrap_or(u64::MAX), conversations: 0, next })
    }

    /// Job after job, so that turns write in between.
    async fn delete(&self, sweep: Sweep, mut found: Vec<Found>) -> Result<Swept, StoreError> {
        found.reverse();
        let mut swept = Swept::default();
        while !found.is_empty() {
            let (mut batch, mut rows) = (Vec::new(), 0);
            while let Some(next) = found.pop_if(|next| rows == 0 || rows + next.rows <= u64::from(BATCH)) {
                rows += next.rows.max(1);
                batch.push(next.key);
            }
            let (gone, left) = self
                .writer
                .submit(move |c| {
                    let done = delete_batch(c, &sweep, &batch)?;
                    crash::point("inside_retention");
                    Ok(done)
                })
                .await?;
            swept.rows += gone.rows;
            swept.conversations += gone.conversations;
            found.extend(left.map(|key| Found { key, rows: u64::from(BATCH) }));
        }
        Ok(swept)
    }
}

/// Deleted rows are zeros in their pages; folded, the WAL holds no older page of them either. A reader in the way is not waited for:
/// the next run folds again.
fn fold(c: &Connection) -> Result<(), StoreError> {
    c.busy_timeout(Duration::from_millis(50))?;
    let folded = erase::fold(c);
    c.busy_timeout(Duration::from_secs(5))?;
    if !folded? {
        tracing::debug!("a reader keeps older pages of the WAL");
    }
    Ok(())
}

/// Something that may go, and how many rows that are.
struct Found {
    key: RowKey,
    rows: u64,
}

/// What a look came to.
struct Looked {
    found: Vec<Found>,
    next: Option<RowKey>,
}

fn look(c: &Connection, sweep: &Sweep, after: Option<RowKey>) -> Result<Looked, StoreError> {
    // Nothing bears the first of all ids, so whoever begins there misses nothing.
    let after = after.unwrap_or(RowKey { tenant_id: Uuid::nil(), id: Uuid::nil() });
    let sql = match sweep.rows {
        Sweepable::Messages => CONVERSATIONS,
        Sweepable::Events => STREAMS,
        Sweepable::Calls => TURNS,
        Sweepable::Usage => return look_at_usage(c, sweep, after),
    };
    let values = params![Id::from(after.tenant_id), Id::from(after.id), count(LOOK), Stamp::from(sweep.before)];
    let seen =
        all(&mut *c.prepare_cached(sql)?, values, |columns| Ok((RowKey { tenant_id: columns.id()?, id: columns.id()? }, columns.flag()?)))?;
    let next = seen.last().filter(|_| seen.len() == LOOK).map(|(key, _)| *key);
    let mut found = Vec::new();
    for (key, _) in seen.into_iter().filter(|(_, worth)| *worth) {
        let rows = match sweep.rows {
            Sweepable::Messages => retention_messages::Conversation::new(c, sweep, key).may_lose()?,
            Sweepable::Events => old_events(c, sweep, key)?,
            Sweepable::Calls | Sweepable::Usage => calls_of(c, sweep, key)?,
        };
        found.extend(rows.map(|rows| Found { key, rows }));
    }
    Ok(Looked { found, next })
}

/// With whether a closer look is worth it.
const CONVERSATIONS: &str = "SELECT tenant_id, id, created_at < ?4 FROM conversations WHERE (tenant_id, id) > (?1, ?2)
    ORDER BY tenant_id, id LIMIT ?3";
const STREAMS: &str = "SELECT tenant_id, conversation_id, ?4 IS NOT NULL FROM leases WHERE (tenant_id, conversation_id) > (?1, ?2)
    ORDER BY tenant_id, conversation_id LIMIT ?3";
const TURNS: &str = "SELECT tenant_id, id, coalesce(finished_at < ?4, 0) AND (conversation_id IS NULL OR EXISTS
      (SELECT 1 FROM tool_calls WHERE tool_calls.turn_id = turns.id AND tool_calls.tenant_id = turns.tenant_id))
    FROM turns WHERE (tenant_id, id) > (?1, ?2) ORDER BY tenant_id, id LIMIT ?3";
/// A turn that goes on counts what it has cost from these.
const USAGE: &str = "SELECT tenant_id, id, created_at < ?3 AND NOT EXISTS
      (SELECT 1 FROM turns WHERE turns.tenant_id = api_usage.tenant_id AND turns.id = api_usage.turn_id AND turns.finished_at IS NULL)
    FROM api_usage WHERE id > ?1 ORDER BY id LIMIT ?2";

fn look_at_usage(c: &Connection, sweep: &Sweep, after: RowKey) -> Result<Looked, StoreError> {
    let values = params![Id::from(after.id), count(LOOK), Stamp::from(sweep.before)];
    let seen = all(&mut *c.prepare_cached(USAGE)?, values, |columns| {
        Ok((RowKey { tenant_id: columns.id()?, id: columns.id()? }, columns.flag()?))
    })?;
    let next = seen.last().filter(|_| seen.len() == LOOK).map(|(key, _)| *key);
    let found = seen.into_iter().filter(|(_, old)| *old).map(|(key, _)| Found { key, rows: 1 }).collect();
    Ok(Looked { found, next })
}

fn old_events(c: &Connection, sweep: &Sweep, key: RowKey) -> Result<Option<u64>, StoreError> {
    let (tenant, stream) = (Id::from(key.tenant_id), Id::from(key.id));
    let mut statement = c.prepare_cached(HORIZON)?;
    let horizon = first(&mut statement, params![tenant, stream, Stamp::from(sweep.before)], |columns| columns.int_or_null())?.flatten();
    let mut statement = c.prepare_cached(EVENTS_BELOW)?;
    let below = first(&mut statement, params![tenant, stream, horizon.unwrap_or(i64::MAX)], |columns| columns.int())?;
    Ok(below.and_then(|rows| u64::try_from(rows).ok()).filter(|rows| *rows > 0))
}

const EVENTS_BELOW: &str = "SELECT count(*) FROM events WHERE conversation_id = ?2 AND seq < ?3 AND tenant_id = ?1";

/// The calls of a turn where they may go; `None` where they stay. A turn outside any conversation may go without having one.
fn calls_of(c: &Connection, sweep: &Sweep, key: RowKey) -> Result<Option<u64>, StoreError> {
    let (tenant, turn) = (Id::from(key.tenant_id), Id::from(key.id));
    let mut place = c.prepare_cached("SELECT conversation_id FROM turns WHERE tenant_id = ?1 AND id = ?2")?;
    let Some(conversation) = first(&mut place, params![tenant, turn], |columns| columns.id_or_null())? else { return Ok(None) };
    if is_busy(c, &tenant, conversation)? || is_free(c, sweep, &tenant, key.id)? != Some(true) {
        return Ok(None);
    }
    let mut counted = c.prepare_cached("SELECT count(*) FROM tool_calls WHERE turn_id = ?2 AND tenant_id = ?1")?;
    Ok(first(&mut counted, params![tenant, turn], |columns| columns.int())?.and_then(|rows| u64::try_from(rows).ok()))
}

const BUSY: &str = "SELECT EXISTS (SELECT 1 FROM turns INDEXED BY turns_by_conversation WHERE tenant_id = ?1 AND conversation_id = ?2
    AND finished_at IS NULL)";

/// Whether a turn of the conversation has not ended: what it may still look back at stays.
pub(super) fn is_busy(c: &Connection, tenant: &Id, conversation: Option<Uuid>) -> Result<bool, StoreError> {
    let Some(conversation) = id_or_null(conversation) else { return Ok(false) };
    Ok(first(&mut *c.prepare_cached(BUSY)?, params![tenant, conversation], |columns| columns.flag())? == Some(true))
}

/// The turn ended long enough ago, the idempotency key of its message has expired, and the outcome of each of its
/// calls is known. An unknown outcome is settled by a later message of the user, or when the turn's own messages are already deleted.
const FREE: &str = "SELECT coalesce(finished_at < ?3, 0)
    AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.turn_id = ?2 AND inbox.tenant_id = ?1 AND inbox.expires_at > ?4)
    AND NOT EXISTS (SELECT 1 FROM tool_calls AS call WHERE call.turn_id = ?2 AND call.tenant_id = ?1 AND (call.finished_at IS NULL
      OR (call.error_code = 'outcome_unknown' AND call.conversation_id IS NOT NULL
        AND (turns.kind <> 'chat' OR EXISTS
          (SELECT 1 FROM messages AS own WHERE own.conversation_id = call.conversation_id AND own.tenant_id = ?1 AND own.turn_id = ?2))
        AND NOT EXISTS (SELECT 1 FROM messages AS later WHERE later.conversation_id = call.conversation_id AND later.tenant_id = ?1
          AND later.role = 'user' AND later.turn_id IS NOT ?2 AND later.created_at > call.created_at))))
    FROM turns WHERE tenant_id = ?1 AND id = ?2";

/// Whether everything of a turn may go; `None` where there is no such turn.
pub(super) fn is_free(c: &Connection, sweep: &Sweep, tenant: &Id, turn: Uuid) -> Result<Option<bool>, StoreError> {
    let values = params![tenant, Id::from(turn), Stamp::from(sweep.before), Stamp::from(sweep.now)];
    first(&mut *c.prepare_cached(FREE)?, values, |columns| columns.flag())
}

/// The same for many messages of few turns.
#[derive(Default)]
pub(super) struct Freedom {
    known: HashMap<Uuid, Option<bool>>,
}

impl Freedom {
    pub(super) fn of(&mut self, c: &Connection, sweep: &Sweep, tenant: &Id, turn: Uuid) -> Result<Option<bool>, StoreError> {
        if let Some(known) = self.known.get(&turn) {
            return Ok(*known);
        }
        let free = is_free(c, sweep, tenant, turn)?;
        self.known.insert(turn, free);
        Ok(free)
    }
}

/// What went, and what has more than fits.
fn delete_batch(c: &Connection, sweep: &Sweep, batch: &[RowKey]) -> Result<(Swept, Option<RowKey>), StoreError> {
    let (mut swept, mut left) = (Swept::default(), None);
    for key in batch {
        match sweep.rows {
            Sweepable::Messages => {
                let lost = Conversation::new(c, sweep, *key).lose()?;
                swept.rows += lost.messages;
                swept.conversations += u64::from(lost.whole);
                left = left.or(lost.more.then_some(*key));
            }
            Sweepable::Calls => swept.rows += delete_calls(c, sweep, *key)?,
            Sweepable::Usage => {
                let gone = c.prepare_cached("DELETE FROM api_usage WHERE id = ?1")?.execute(params![Id::from(key.id)])?;
                swept.rows += gone as u64;
            }
            Sweepable::Events => {}
        }
    }
    Ok((swept, left))
}

// ?1 tenant, ?2 turn. Children first, each by its own index.
const CALLS: &str = "DELETE FROM tool_calls WHERE turn_id = ?2 AND tenant_id = ?1";
const OF_CALLS: [&str; 2] = [
    "DELETE FROM call_attempts WHERE tenant_id = ?1 AND call_id IN (SELECT id FROM tool_calls WHERE turn_id = ?2 AND tenant_id = ?1)",
    "DELETE FROM approvals WHERE tenant_id = ?1 AND turn_id = ?2",
];
/// A turn outside any conversation is a stream of its own.
const OF_STREAM: [&str; 4] = [
    "DELETE FROM events WHERE conversation_id = ?2 AND tenant_id = ?1",
    "DELETE FROM inbox WHERE turn_id = ?2 AND tenant_id = ?1",
    "DELETE FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM turns WHERE tenant_id = ?1 AND id = ?2 AND conversation_id IS NULL",
];

fn delete_calls(c: &Connection, sweep: &Sweep, key: RowKey) -> Result<u64, StoreError> {
    // The reader saw it a moment ago; a turn may have begun since.
    if calls_of(c, sweep, key)?.is_none() {
        return Ok(0);
    }
    let (tenant, turn) = (Id::from(key.tenant_id), Id::from(key.id));
    for sql in OF_CALLS {
        c.prepare_cached(sql)?.execute(params![tenant, turn])?;
    }
    let gone = c.prepare_cached(CALLS)?.execute(params![tenant, turn])?;
    let mut alone = c.prepare_cached("SELECT conversation_id IS NULL FROM turns WHERE tenant_id = ?1 AND id = ?2")?;
    if first(&mut alone, params![tenant, turn], |columns| columns.flag())? == Some(true) {
        for sql in OF_STREAM {
            c.prepare_cached(sql)?.execute(params![tenant, turn])?;
        }
    }
    Ok(gone as u64)
}

/// The statements whose plan a test looks at.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let fixed = [CONVERSATIONS, STREAMS, TURNS, USAGE, EVENTS_BELOW, BUSY, FREE, CALLS];
    fixed.iter().chain(&OF_CALLS).chain(&OF_STREAM).map(|sql| (*sql).to_owned()).collect()
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
