//! [`Retention`] on SQLite: readers find rows that may be deleted, and the writer checks them again and deletes a few hundred at a time.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::insert::count;
use super::retention_messages::{self, Conversation};
use super::row::{all, first};
use super::text::{Id, Stamp, id_or_null};
use super::turns::message_since_sql;
use super::usage_statistics::delete_summed;
use super::{SqliteStore, erase, streams};
use crate::budgets::COUNTER_AGE;
use crate::module::expiring;
use crate::retention::{ALERT_AGE, CONTACT_AGE, NOTIFICATION_AGE};
use crate::{DeletedEvents, Retention, RowKey, StoreError, StoreFuture, StreamKey, Sweep, Sweepable, Swept, crash};

/// Rows that one scan reads, and rows that one job of the writer deletes. A job delays other jobs by milliseconds.
const SCAN: usize = 1_000;
pub(super) const BATCH: u32 = 500;

impl Retention for SqliteStore {
    fn sweep(&self, sweep: Sweep, after: Option<RowKey>) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            if sweep.rows == Sweepable::Events && !sweep.dry_run {
                return self.delete_event_batch(sweep, after).await;
            }
            let candidates = self.readers.list(move |c| find_candidates(c, &sweep, after)).await?;
            let next = candidates.next;
            if sweep.dry_run {
                return Ok(Swept { rows: candidates.found.iter().map(|found| found.rows).sum(), conversations: 0, next });
            }
            let swept = Swept { next, ..self.delete(sweep, candidates.found).await? };
            if next.is_none() {
                self.writer.submit_alone(checkpoint).await?;
            }
            Ok(swept)
        })
    }

    fn delete_expired(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        let modules = self.modules;
        Box::pin(self.writer.submit(move |c| {
            let mut deleted = c.execute(EXPIRED_ENTRIES, params![Stamp::from(now), BATCH])? as u64;
            let forgotten = Stamp::from(now.checked_sub(CONTACT_AGE).unwrap_or(now));
            deleted += c.execute(FORGOTTEN_CONTACTS, params![forgotten, BATCH])? as u64;
            let arrived = Stamp::from(now.checked_sub(NOTIFICATION_AGE).unwrap_or(now));
            deleted += c.execute(ARRIVED_NOTIFICATIONS, params![arrived, BATCH])? as u64;
            let ended = Stamp::from(now.checked_sub(ALERT_AGE).unwrap_or(now));
            deleted += c.execute(ENDED_ALERTS, params![ended, BATCH])? as u64;
            let old = now.checked_sub(COUNTER_AGE).unwrap_or(now);
            deleted += c.execute(OLD_COUNTERS, params![Stamp::from(old), BATCH])? as u64;
            deleted += c.execute(EXPIRED_LINKS, params![Stamp::from(now), BATCH])? as u64;
            for (table, column) in expiring(modules) {
                let sql = format!("DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {column} <= ?1 LIMIT {BATCH})");
                deleted += c.execute(&sql, params![Stamp::from(now)])? as u64;
            }
            Ok(deleted)
        }))
    }
}

impl SqliteStore {
    async fn delete_event_batch(&self, sweep: Sweep, after: Option<RowKey>) -> Result<Swept, StoreError> {
        let after = after.map(|key| StreamKey { tenant_id: key.tenant_id, stream_id: key.id });
        let DeletedEvents { events, next } = self.delete_events(sweep.before, after).await?;
        let next = next.map(|key| RowKey { tenant_id: key.tenant_id, id: key.stream_id });
        Ok(Swept { rows: u64::try_from(events).unwrap_or(u64::MAX), conversations: 0, next })
    }

    /// Runs one job after another, so that turns write in between.
    async fn delete(&self, sweep: Sweep, mut found: Vec<Candidate>) -> Result<Swept, StoreError> {
        found.reverse();
        let mut swept = Swept::default();
        while !found.is_empty() {
            let (mut batch, mut rows) = (Vec::new(), 0);
            while let Some(next) = found.pop_if(|next| rows == 0 || rows + next.rows <= u64::from(BATCH)) {
                rows += next.rows.max(1);
                batch.push(next.key);
            }
            let (deleted, unfinished) = self
                .writer
                .submit(move |c| {
                    let done = delete_batch(c, &sweep, &batch)?;
                    crash::point("inside_retention");
                    Ok(done)
                })
                .await?;
            swept.rows += deleted.rows;
            swept.conversations += deleted.conversations;
            found.extend(unfinished.map(|key| Candidate { key, rows: u64::from(BATCH) }));
        }
        Ok(swept)
    }
}

/// Deleted rows are overwritten with zeros in their pages; after a checkpoint the WAL has no older copy of these pages either. It does not
/// wait for a reader, because the next run does another checkpoint.
fn checkpoint(c: &Connection) -> Result<(), StoreError> {
    if !erase::brief_checkpoint(c)? {
        tracing::debug!("a reader still uses older pages of the WAL");
    }
    Ok(())
}

/// A row key whose rows may be deleted, and how many rows these are.
struct Candidate {
    key: RowKey,
    rows: u64,
}

/// The result of a scan.
struct Candidates {
    found: Vec<Candidate>,
    next: Option<RowKey>,
}

fn find_candidates(c: &Connection, sweep: &Sweep, after: Option<RowKey>) -> Result<Candidates, StoreError> {
    // No row has the nil id, so a scan that starts after it misses nothing.
    let after = after.unwrap_or(RowKey { tenant_id: Uuid::nil(), id: Uuid::nil() });
    let sql = match sweep.rows {
        Sweepable::Messages => CONVERSATIONS,
        Sweepable::Events => STREAMS,
        Sweepable::Calls => TURNS,
        Sweepable::Outbox => OUTBOX,
        Sweepable::Usage => return find_usage(c, sweep, after),
    };
    let values = params![Id::from(after.tenant_id), Id::from(after.id), count(SCAN), Stamp::from(sweep.before)];
    let scanned =
        all(&mut *c.prepare_cached(sql)?, values, |columns| Ok((RowKey { tenant_id: columns.id()?, id: columns.id()? }, columns.flag()?)))?;
    let next = scanned.last().filter(|_| scanned.len() == SCAN).map(|(key, _)| *key);
    let mut found = Vec::new();
    for (key, _) in scanned.into_iter().filter(|(_, relevant)| *relevant) {
        let rows = match sweep.rows {
            Sweepable::Messages => retention_messages::Conversation::new(c, sweep, key).deletable_messages()?,
            Sweepable::Events => old_events(c, sweep, key)?,
            Sweepable::Outbox => Some(1),
            Sweepable::Calls | Sweepable::Usage => calls_of(c, sweep, key)?,
        };
        found.extend(rows.map(|rows| Candidate { key, rows }));
    }
    Ok(Candidates { found, next })
}

/// The flag is false where nothing can be deleted.
const CONVERSATIONS: &str = "SELECT tenant_id, id, created_at < ?4 FROM conversations WHERE (tenant_id, id) > (?1, ?2)
    ORDER BY tenant_id, id LIMIT ?3";
const STREAMS: &str = "SELECT tenant_id, conversation_id, ?4 IS NOT NULL FROM leases WHERE (tenant_id, conversation_id) > (?1, ?2)
    ORDER BY tenant_id, conversation_id LIMIT ?3";
const TURNS: &str = "SELECT tenant_id, id, coalesce(finished_at < ?4, 0) AND (conversation_id IS NULL OR EXISTS
      (SELECT 1 FROM tool_calls WHERE tool_calls.turn_id = turns.id AND tool_calls.tenant_id = turns.tenant_id))
    FROM turns WHERE (tenant_id, id) > (?1, ?2) ORDER BY tenant_id, id LIMIT ?3";
const OUTBOX: &str =
    "SELECT tenant_id, id, created_at < ?4 AND status <> 'pending' AND status <> 'sending' AND status <> 'held' FROM outbox
    WHERE (tenant_id, id) > (?1, ?2) ORDER BY tenant_id, id LIMIT ?3";
const EXPIRED_ENTRIES: &str = "DELETE FROM inbox WHERE (tenant_id, channel, account, external_id) IN
    (SELECT tenant_id, channel, account, external_id FROM inbox WHERE turn_id IS NULL AND expires_at <= ?1 LIMIT ?2)";
const EXPIRED_LINKS: &str = "DELETE FROM connection_requests WHERE (tenant_id, id) IN
    (SELECT tenant_id, id FROM connection_requests WHERE expires_at <= ?1 LIMIT ?2)";
const FORGOTTEN_CONTACTS: &str = "DELETE FROM contacts WHERE (tenant_id, channel, account, person) IN
    (SELECT tenant_id, channel, account, person FROM contacts
       WHERE user_id IS NULL AND conversation_id IS NULL AND updated_at <= ?1 LIMIT ?2)";
const ARRIVED_NOTIFICATIONS: &str = "DELETE FROM outbox WHERE (tenant_id, id) IN
    (SELECT tenant_id, id FROM outbox WHERE channel = 'webhook' AND status = 'sent' AND updated_at <= ?1 LIMIT ?2)";
// All alerts are few, so no index is needed.
const ENDED_ALERTS: &str = "DELETE FROM alerts WHERE (tenant_id, id) IN
    (SELECT tenant_id, id FROM alerts WHERE (once OR resolved_at IS NOT NULL) AND seen_at <= ?1 LIMIT ?2)";
const OLD_COUNTERS: &str = "DELETE FROM budget_periods WHERE (tenant_id, budget_id, subject, period_start) IN
    (SELECT tenant_id, budget_id, subject, period_start FROM budget_periods WHERE period_start <= ?1 AND reserved = 0 LIMIT ?2)";
/// An unfinished turn computes its usage from these rows, so they stay.
const USAGE: &str = "SELECT tenant_id, id, created_at < ?3 AND NOT EXISTS
      (SELECT 1 FROM turns WHERE turns.tenant_id = api_usage.tenant_id AND turns.id = api_usage.turn_id AND turns.finished_at IS NULL)
    FROM api_usage WHERE id > ?1 ORDER BY id LIMIT ?2";

fn find_usage(c: &Connection, sweep: &Sweep, after: RowKey) -> Result<Candidates, StoreError> {
    let values = params![Id::from(after.id), count(SCAN), Stamp::from(sweep.before)];
    let scanned = all(&mut *c.prepare_cached(USAGE)?, values, |columns| {
        Ok((RowKey { tenant_id: columns.id()?, id: columns.id()? }, columns.flag()?))
    })?;
    let next = scanned.last().filter(|_| scanned.len() == SCAN).map(|(key, _)| *key);
    let found = scanned.into_iter().filter(|(_, old)| *old).map(|(key, _)| Candidate { key, rows: 1 }).collect();
    Ok(Candidates { found, next })
}

fn old_events(c: &Connection, sweep: &Sweep, key: RowKey) -> Result<Option<u64>, StoreError> {
    let stream = StreamKey { tenant_id: key.tenant_id, stream_id: key.id };
    let old = streams::old_events(c, &Stamp::from(sweep.before), stream)?;
    Ok(old.and_then(|(begin, first_kept)| u64::try_from(first_kept - begin).ok()).filter(|rows| *rows > 0))
}

/// The number of calls of a turn that may be deleted; `None` where they stay. A turn without a conversation may be deleted without calls.
fn calls_of(c: &Connection, sweep: &Sweep, key: RowKey) -> Result<Option<u64>, StoreError> {
    let (tenant, turn) = (Id::from(key.tenant_id), Id::from(key.id));
    let mut statement = c.prepare_cached("SELECT conversation_id FROM turns WHERE tenant_id = ?1 AND id = ?2")?;
    let Some(conversation) = first(&mut statement, params![tenant, turn], |columns| columns.id_or_null())? else { return Ok(None) };
    if is_busy(c, &tenant, conversation)? || is_deletable(c, sweep, &tenant, key.id)? != Some(true) {
        return Ok(None);
    }
    let mut counted = c.prepare_cached("SELECT count(*) FROM tool_calls WHERE turn_id = ?2 AND tenant_id = ?1")?;
    Ok(first(&mut counted, params![tenant, turn], |columns| columns.int())?.and_then(|rows| u64::try_from(rows).ok()))
}

const BUSY: &str = "SELECT EXISTS (SELECT 1 FROM turns INDEXED BY turns_by_conversation WHERE tenant_id = ?1 AND conversation_id = ?2
    AND finished_at IS NULL)";

/// Whether a turn of the conversation has not ended; such a turn may still read older rows.
pub(super) fn is_busy(c: &Connection, tenant: &Id, conversation: Option<Uuid>) -> Result<bool, StoreError> {
    let Some(conversation) = id_or_null(conversation) else { return Ok(false) };
    Ok(first(&mut *c.prepare_cached(BUSY)?, params![tenant, conversation], |columns| columns.flag())? == Some(true))
}

/// The turn ended long enough ago, the idempotency key of its message has expired, and the outcome of each of its
/// calls is known. An unknown outcome is settled by a later message of the user, or when the turn's own messages are already deleted.
fn deletable_sql() -> String {
    format!(
        "SELECT coalesce(finished_at < ?3, 0)
           AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.turn_id = ?2 AND inbox.tenant_id = ?1 AND inbox.expires_at > ?4)
           AND NOT EXISTS (SELECT 1 FROM tool_calls AS call WHERE call.turn_id = ?2 AND call.tenant_id = ?1 AND (call.finished_at IS NULL
             OR (call.error_code = 'outcome_unknown' AND call.conversation_id IS NOT NULL
               AND (turns.kind <> 'chat' OR EXISTS
                 (SELECT 1 FROM messages AS own WHERE own.conversation_id = call.conversation_id AND own.tenant_id = ?1 AND own.turn_id = ?2))
               AND NOT {})))
         FROM turns WHERE tenant_id = ?1 AND id = ?2",
        message_since_sql("call.conversation_id", "?2", "turns.finished_at")
    )
}

/// Whether all rows of a turn may be deleted; `None` where there is no such turn.
pub(super) fn is_deletable(c: &Connection, sweep: &Sweep, tenant: &Id, turn: Uuid) -> Result<Option<bool>, StoreError> {
    let values = params![tenant, Id::from(turn), Stamp::from(sweep.before), Stamp::from(sweep.now)];
    first(&mut *c.prepare_cached(&deletable_sql())?, values, |columns| columns.flag())
}

/// Caches [`is_deletable`] for many messages of few turns.
#[derive(Default)]
pub(super) struct DeletableTurns {
    known: HashMap<Uuid, Option<bool>>,
}

impl DeletableTurns {
    pub(super) fn of(&mut self, c: &Connection, sweep: &Sweep, tenant: &Id, turn: Uuid) -> Result<Option<bool>, StoreError> {
        if let Some(known) = self.known.get(&turn) {
            return Ok(*known);
        }
        let free = is_deletable(c, sweep, tenant, turn)?;
        self.known.insert(turn, free);
        Ok(free)
    }
}

/// Deletes a batch. Returns the counts, and a key that has more rows than fit.
fn delete_batch(c: &Connection, sweep: &Sweep, batch: &[RowKey]) -> Result<(Swept, Option<RowKey>), StoreError> {
    let (mut swept, mut unfinished) = (Swept::default(), None);
    for key in batch {
        match sweep.rows {
            Sweepable::Messages => {
                let deleted = Conversation::new(c, sweep, *key).delete()?;
                swept.rows += deleted.messages;
                swept.conversations += u64::from(deleted.whole);
                unfinished = unfinished.or(deleted.more.then_some(*key));
            }
            Sweepable::Calls => swept.rows += delete_calls(c, sweep, *key)?,
            Sweepable::Usage => {
                swept.rows += u64::from(delete_summed(c, key.id)?);
            }
            Sweepable::Outbox => {
                swept.rows += c.prepare_cached(OLD_ROW)?.execute(params![Id::from(key.tenant_id), Id::from(key.id)])? as u64
            }
            Sweepable::Events => {}
        }
    }
    Ok((swept, unfinished))
}

/// Checked again: the row may have been retried since the scan.
const OLD_ROW: &str =
    "DELETE FROM outbox WHERE tenant_id = ?1 AND id = ?2 AND status <> 'pending' AND status <> 'sending' AND status <> 'held'";

// ?1 tenant, ?2 turn. Children first, each by its own index.
const CALLS: &str = "DELETE FROM tool_calls WHERE turn_id = ?2 AND tenant_id = ?1";
const OF_CALLS: [&str; 2] = [
    "DELETE FROM call_attempts WHERE tenant_id = ?1 AND call_id IN (SELECT id FROM tool_calls WHERE turn_id = ?2 AND tenant_id = ?1)",
    "DELETE FROM approvals WHERE tenant_id = ?1 AND turn_id = ?2",
];
/// A turn without a conversation is its own stream.
const OF_STREAM: [&str; 4] = [
    "DELETE FROM events WHERE conversation_id = ?2 AND tenant_id = ?1",
    "DELETE FROM inbox WHERE turn_id = ?2 AND tenant_id = ?1",
    "DELETE FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM turns WHERE tenant_id = ?1 AND id = ?2 AND conversation_id IS NULL",
];

fn delete_calls(c: &Connection, sweep: &Sweep, key: RowKey) -> Result<u64, StoreError> {
    // Checked again: a turn may have started since the scan.
    if calls_of(c, sweep, key)?.is_none() {
        return Ok(0);
    }
    let (tenant, turn) = (Id::from(key.tenant_id), Id::from(key.id));
    for sql in OF_CALLS {
        c.prepare_cached(sql)?.execute(params![tenant, turn])?;
    }
    let deleted = c.prepare_cached(CALLS)?.execute(params![tenant, turn])?;
    let mut alone = c.prepare_cached("SELECT conversation_id IS NULL FROM turns WHERE tenant_id = ?1 AND id = ?2")?;
    if first(&mut alone, params![tenant, turn], |columns| columns.flag())? == Some(true) {
        for sql in OF_STREAM {
            c.prepare_cached(sql)?.execute(params![tenant, turn])?;
        }
    }
    Ok(deleted as u64)
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let expired = [EXPIRED_ENTRIES, EXPIRED_LINKS, FORGOTTEN_CONTACTS, ARRIVED_NOTIFICATIONS];
    let fixed = [CONVERSATIONS, STREAMS, TURNS, OUTBOX, USAGE, BUSY, CALLS, OLD_ROW];
    let all = fixed.iter().chain(&expired).chain(&OF_CALLS).chain(&OF_STREAM);
    all.map(|sql| (*sql).to_owned()).chain([deletable_sql()]).collect()
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
