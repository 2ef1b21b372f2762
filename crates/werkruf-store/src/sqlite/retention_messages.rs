//! Deletes messages from the start of a conversation: whole turns, up to the first turn that stays. So every call keeps its result, the
//! numbers have no gap, and the remaining history starts with a message of the user.

use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::insert::count;
use super::retention::{BATCH, DeletableTurns, is_busy};
use super::row::{Columns, all, first};
use super::text::{Id, Stamp};
use crate::{RowKey, StoreError, Sweep};

/// One conversation under a sweep.
pub(super) struct Conversation<'a> {
    c: &'a Connection,
    sweep: &'a Sweep,
    id: Uuid,
    tenant: Id,
    conversation: Id,
}

/// What was deleted.
pub(super) struct Deleted {
    pub(super) messages: u64,
    /// The conversation became empty and was deleted too.
    pub(super) whole: bool,
    /// There is more to delete than fits into a batch.
    pub(super) more: bool,
}

/// Messages below the number `at` may be deleted; `capped` is true when the scan stopped there.
struct End {
    at: i64,
    capped: bool,
}

/// All messages may be deleted.
const ALL: i64 = i64::MAX;

const FIRST: &str = "SELECT seq, turn_id, created_at < ?3 FROM messages WHERE conversation_id = ?2 AND seq > 0 AND tenant_id = ?1
    ORDER BY seq";
const WAITING: &str = "SELECT id, turn_id, created_at < ?3 FROM messages WHERE conversation_id = ?2 AND seq IS NULL AND tenant_id = ?1";
const TURN_START: &str = "SELECT seq FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq <= ?3 AND role IN ('user', 'system')
    AND tenant_id = ?1 ORDER BY seq DESC LIMIT 1";
/// A turn that waited for an approval may have written its last message after other turns.
const OVERLAPPING: &str =
    "SELECT min(seq) FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq < ?3 AND tenant_id = ?1 AND turn_id IN
    (SELECT turn_id FROM messages WHERE conversation_id = ?2 AND seq >= ?3 AND tenant_id = ?1)";
const BELOW: &str = "SELECT count(*) FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq < ?3 AND tenant_id = ?1";
const TURNS_BELOW: &str = "SELECT DISTINCT turn_id FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq < ?3 AND tenant_id = ?1
    AND turn_id IS NOT NULL";
/// Ended turns without messages and calls.
const EMPTY_TURNS: &str = "SELECT id FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 AND finished_at < ?3
    AND NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_calls.turn_id = turns.id AND tool_calls.tenant_id = ?1)
    AND id NOT IN (SELECT turn_id FROM messages WHERE conversation_id = ?2 AND tenant_id = ?1 AND turn_id IS NOT NULL) LIMIT ?4";
const EMPTY: &str = "SELECT updated_at < ?3 AND created_at < ?3
    AND NOT EXISTS (SELECT 1 FROM messages WHERE conversation_id = ?2 AND tenant_id = ?1)
    AND NOT EXISTS (SELECT 1 FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2) FROM conversations WHERE tenant_id = ?1 AND id = ?2";

// ?1 tenant, ?2 turn.
const OF_TURN: [&str; 2] = [
    "DELETE FROM inbox WHERE turn_id = ?2 AND tenant_id = ?1",
    "UPDATE turns SET message = NULL, partial = NULL, client = NULL, transcript_digest = NULL, request_digest = NULL, context = NULL, inbound = NULL WHERE tenant_id = ?1 AND id = ?2",
];
/// The title is the start of the first message that is left. The summary stays while one of its messages is left.
const TITLE_AND_SUMMARY: &str =
    "UPDATE conversations SET title = coalesce((SELECT substr(content, 1, 80) FROM messages WHERE conversation_id = ?2
      AND seq > 0 AND role = 'user' AND tenant_id = ?1 ORDER BY seq LIMIT 1), ''),
    summary = CASE WHEN summary_until >= ?3 THEN summary END, summary_until = CASE WHEN summary_until >= ?3 THEN summary_until END,
    summary_untrusted = CASE WHEN summary_until >= ?3 THEN summary_untrusted END
    WHERE tenant_id = ?1 AND id = ?2";
const OF_CONVERSATION: [&str; 5] = [
    "DELETE FROM approvals WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM events WHERE conversation_id = ?2 AND tenant_id = ?1",
    "DELETE FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2",
    "UPDATE contacts INDEXED BY contacts_by_conversation SET conversation_id = NULL WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM conversations WHERE tenant_id = ?1 AND id = ?2",
];

impl<'a> Conversation<'a> {
    pub(super) fn new(c: &'a Connection, sweep: &'a Sweep, key: RowKey) -> Self {
        Self { c, sweep, id: key.id, tenant: Id::from(key.tenant_id), conversation: Id::from(key.id) }
    }

    /// How many messages may be deleted; `None` where there is nothing to do.
    pub(super) fn deletable_messages(&self) -> Result<Option<u64>, StoreError> {
        let End { at: end, .. } = self.end(i64::MAX)?;
        let waiting = if end == ALL { self.waiting()?.len() } else { 0 };
        let messages = self.number(BELOW, end)?.unwrap_or(0).saturating_add(count(waiting));
        let relevant = messages > 0 || (!self.sweep.dry_run && (!self.empty_turns(1)?.is_empty() || self.is_empty()?));
        if !relevant || is_busy(self.c, &self.tenant, Some(self.id))? {
            return Ok(None);
        }
        Ok(u64::try_from(messages).ok())
    }

    /// Deletes about one batch of what may be deleted.
    pub(super) fn delete(&self) -> Result<Deleted, StoreError> {
        let mut deleted = Deleted { messages: 0, whole: false, more: false };
        // Checked again: a turn may have started since the scan.
        if is_busy(self.c, &self.tenant, Some(self.id))? {
            return Ok(deleted);
        }
        let End { at: end, capped } = self.batch_end()?;
        deleted.messages = self.delete_numbered(end)?;
        if end == ALL {
            deleted.messages += self.delete_waiting()?;
        }
        if deleted.messages > 0 {
            self.c.prepare_cached(TITLE_AND_SUMMARY)?.execute(params![self.tenant, self.conversation, end])?;
        }
        let empty_turns = self.empty_turns(BATCH)?;
        for turn in &empty_turns {
            self.c
                .prepare_cached("DELETE FROM inbox WHERE turn_id = ?2 AND tenant_id = ?1")?
                .execute(params![self.tenant, Id::from(*turn)])?;
            self.c.prepare_cached("DELETE FROM turns WHERE tenant_id = ?1 AND id = ?2")?.execute(params![self.tenant, Id::from(*turn)])?;
        }
        deleted.more = capped || count(empty_turns.len()) == i64::from(BATCH);
        if !deleted.more && self.is_empty()? {
            for sql in OF_CONVERSATION {
                self.c.prepare_cached(sql)?.execute(params![self.tenant, self.conversation])?;
            }
            deleted.whole = true;
        }
        Ok(deleted)
    }

    /// The number below which messages may be deleted, within the first `most` messages.
    fn end(&self, most: i64) -> Result<End, StoreError> {
        let (mut deletable, mut begin, mut at, mut capped, mut scanned) = (DeletableTurns::default(), None, ALL, false, 0);
        {
            let mut statement = self.c.prepare_cached(FIRST)?;
            let mut rows = statement.query(params![self.tenant, self.conversation, Stamp::from(self.sweep.before)])?;
            while let Some(row) = rows.next()? {
                let mut columns = Columns::new(row);
                let (seq, turn, old) = (columns.int()?, columns.id_or_null()?, columns.flag()?);
                begin = begin.or(Some(seq));
                let free = self.may_delete(&mut deletable, turn, old)?;
                if !free || scanned == most {
                    (at, capped) = (seq, free);
                    break;
                }
                scanned += 1;
            }
        }
        let Some(begin) = begin else { return Ok(End { at: ALL, capped: false }) };
        while at != ALL && at > begin {
            at = self.number(TURN_START, at)?.unwrap_or(begin);
            match self.number(OVERLAPPING, at)? {
                Some(lower) => at = lower,
                None => break,
            }
        }
        Ok(End { at, capped })
    }

    /// Where a batch ends: at the end of a turn, and after at least one message.
    fn batch_end(&self) -> Result<End, StoreError> {
        let mut most = i64::from(BATCH);
        loop {
            let end = self.end(most)?;
            if !end.capped || self.number(BELOW, end.at)?.unwrap_or(0) > 0 {
                return Ok(end);
            }
            most = most.saturating_mul(2);
        }
    }

    /// A message without a turn was imported; only its own age counts.
    fn may_delete(&self, deletable: &mut DeletableTurns, turn: Option<Uuid>, old: bool) -> Result<bool, StoreError> {
        let Some(turn) = turn else { return Ok(old) };
        Ok(deletable.of(self.c, self.sweep, &self.tenant, turn)?.unwrap_or(old))
    }

    fn number(&self, sql: &str, bound: i64) -> Result<Option<i64>, StoreError> {
        let mut statement = self.c.prepare_cached(sql)?;
        Ok(first(&mut statement, params![self.tenant, self.conversation, bound], |columns| columns.int_or_null())?.flatten())
    }

    /// Messages without a `seq` whose turns may be deleted: these turns were canceled while they waited.
    fn waiting(&self) -> Result<Vec<(Uuid, Option<Uuid>)>, StoreError> {
        let mut statement = self.c.prepare_cached(WAITING)?;
        let found = all(&mut statement, params![self.tenant, self.conversation, Stamp::from(self.sweep.before)], |columns| {
            Ok((columns.id()?, columns.id_or_null()?, columns.flag()?))
        })?;
        let (mut deletable, mut free) = (DeletableTurns::default(), Vec::new());
        for (id, turn, old) in found {
            if self.may_delete(&mut deletable, turn, old)? {
                free.push((id, turn));
            }
        }
        Ok(free)
    }

    fn empty_turns(&self, most: u32) -> Result<Vec<Uuid>, StoreError> {
        let values = params![self.tenant, self.conversation, Stamp::from(self.sweep.before), most];
        let found = all(&mut *self.c.prepare_cached(EMPTY_TURNS)?, values, |columns| columns.id())?;
        let (mut deletable, mut free) = (DeletableTurns::default(), Vec::new());
        for turn in found {
            if self.may_delete(&mut deletable, Some(turn), false)? {
                free.push(turn);
            }
        }
        Ok(free)
    }

    fn is_empty(&self) -> Result<bool, StoreError> {
        let values = params![self.tenant, self.conversation, Stamp::from(self.sweep.before)];
        Ok(first(&mut *self.c.prepare_cached(EMPTY)?, values, |columns| columns.flag())? == Some(true))
    }

    fn delete_numbered(&self, end: i64) -> Result<u64, StoreError> {
        let turns = all(&mut *self.c.prepare_cached(TURNS_BELOW)?, params![self.tenant, self.conversation, end], |columns| columns.id())?;
        let removed = self
            .c
            .prepare_cached("DELETE FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq < ?3 AND tenant_id = ?1")?
            .execute(params![self.tenant, self.conversation, end])?;
        self.clear_turn_texts(turns)?;
        Ok(removed as u64)
    }

    fn delete_waiting(&self) -> Result<u64, StoreError> {
        let waiting = self.waiting()?;
        for (id, _) in &waiting {
            self.c.prepare_cached("DELETE FROM messages WHERE conversation_id = ?2 AND id = ?3 AND tenant_id = ?1")?.execute(params![
                self.tenant,
                self.conversation,
                Id::from(*id)
            ])?;
        }
        self.clear_turn_texts(waiting.iter().filter_map(|(_, turn)| *turn))?;
        Ok(waiting.len() as u64)
    }

    /// Removes the copies of deleted messages in these turns.
    fn clear_turn_texts(&self, turns: impl IntoIterator<Item = Uuid>) -> Result<(), StoreError> {
        for turn in turns {
            for sql in OF_TURN {
                self.c.prepare_cached(sql)?.execute(params![self.tenant, Id::from(turn)])?;
            }
        }
        Ok(())
    }
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let fixed = [FIRST, WAITING, TURN_START, OVERLAPPING, BELOW, TURNS_BELOW, EMPTY_TURNS, EMPTY, TITLE_AND_SUMMARY];
    fixed.iter().chain(&OF_TURN).chain(&OF_CONVERSATION).map(|sql| (*sql).to_owned()).collect()
}
