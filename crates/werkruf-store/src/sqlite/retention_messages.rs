//! What a conversation may lose of its beginning: whole turns, up to the first that stays, so that no call is ever without its result,
//! numbers have no hole, and what is left begins with a person's word.

use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::insert::count;
use super::retention::{BATCH, Freedom, is_busy};
use super::row::{Columns, all, first};
use super::text::{Id, Stamp};
use crate::{RowKey, StoreError, Sweep};

/// One conversation under a sweep.
pub(super) struct Conversation<'a> {
    c: &'a Connection,
    sweep: &'a Sweep,
    id: Uuid,
    tenant: Id,
    own: Id,
}

/// What went.
pub(super) struct Lost {
    pub(super) messages: u64,
    /// Nothing is left, and the conversation went too.
    pub(super) whole: bool,
    /// There is more than fits into a batch.
    pub(super) more: bool,
}

/// The number below which messages may go, and whether it is only as far as was looked.
struct End {
    at: i64,
    capped: bool,
}

/// Everything goes.
const ALL: i64 = i64::MAX;

const FIRST: &str = "SELECT seq, turn_id, created_at < ?3 FROM messages WHERE conversation_id = ?2 AND seq > 0 AND tenant_id = ?1
    ORDER BY seq";
const WAITING: &str = "SELECT id, turn_id, created_at < ?3 FROM messages WHERE conversation_id = ?2 AND seq IS NULL AND tenant_id = ?1";
const SPOKEN: &str = "SELECT seq FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq <= ?3 AND role IN ('user', 'system')
    AND tenant_id = ?1 ORDER BY seq DESC LIMIT 1";
/// One that waited for a word may have said its last after others.
const ACROSS: &str = "SELECT min(seq) FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq < ?3 AND tenant_id = ?1 AND turn_id IN
    (SELECT turn_id FROM messages WHERE conversation_id = ?2 AND seq >= ?3 AND tenant_id = ?1)";
const BELOW: &str = "SELECT count(*) FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq < ?3 AND tenant_id = ?1";
const TURNS_BELOW: &str = "SELECT DISTINCT turn_id FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq < ?3 AND tenant_id = ?1
    AND turn_id IS NOT NULL";
/// Ended turns with neither messages nor calls.
const SHELLS: &str = "SELECT id FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2 AND finished_at < ?3
    AND NOT EXISTS (SELECT 1 FROM tool_calls WHERE tool_calls.turn_id = turns.id AND tool_calls.tenant_id = ?1)
    AND id NOT IN (SELECT turn_id FROM messages WHERE conversation_id = ?2 AND tenant_id = ?1 AND turn_id IS NOT NULL) LIMIT ?4";
const EMPTY: &str = "SELECT updated_at < ?3 AND created_at < ?3
    AND NOT EXISTS (SELECT 1 FROM messages WHERE conversation_id = ?2 AND tenant_id = ?1)
    AND NOT EXISTS (SELECT 1 FROM turns WHERE tenant_id = ?1 AND conversation_id = ?2) FROM conversations WHERE tenant_id = ?1 AND id = ?2";

// ?1 tenant, ?2 turn.
const OF_TURN: [&str; 2] = [
    "DELETE FROM inbox WHERE turn_id = ?2 AND tenant_id = ?1",
    "UPDATE turns SET message = NULL, partial = NULL, client = NULL, seen = NULL, sent = NULL WHERE tenant_id = ?1 AND id = ?2",
];
/// The title is the beginning of the first message, and the summary tells of messages; it stays while one of them does.
const WORDS: &str = "UPDATE conversations SET title = coalesce((SELECT substr(content, 1, 80) FROM messages WHERE conversation_id = ?2
      AND seq > 0 AND role = 'user' AND tenant_id = ?1 ORDER BY seq LIMIT 1), ''),
    summary = CASE WHEN summary_until >= ?3 THEN summary END, summary_until = CASE WHEN summary_until >= ?3 THEN summary_until END
    WHERE tenant_id = ?1 AND id = ?2";
const REST: [&str; 4] = [
    "DELETE FROM approvals WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM events WHERE conversation_id = ?2 AND tenant_id = ?1",
    "DELETE FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2",
    "DELETE FROM conversations WHERE tenant_id = ?1 AND id = ?2",
];

impl<'a> Conversation<'a> {
    pub(super) fn new(c: &'a Connection, sweep: &'a Sweep, key: RowKey) -> Self {
        Self { c, sweep, id: key.id, tenant: Id::from(key.tenant_id), own: Id::from(key.id) }
    }

    /// How many messages may go; `None` where there is nothing to do.
    pub(super) fn may_lose(&self) -> Result<Option<u64>, StoreError> {
        let End { at: end, .. } = self.end(i64::MAX)?;
        let waiting = if end == ALL { self.waiting()?.len() } else { 0 };
        let messages = self.number(BELOW, end)?.unwrap_or(0).saturating_add(count(waiting));
        let worth = messages > 0 || (!self.sweep.dry_run && (!self.shells(1)?.is_empty() || self.is_empty()?));
        if !worth || is_busy(self.c, &self.tenant, Some(self.id))? {
            return Ok(None);
        }
        Ok(u64::try_from(messages).ok())
    }

    /// Deletes what may go, about a batch of it.
    pub(super) fn lose(&self) -> Result<Lost, StoreError> {
        let mut lost = Lost { messages: 0, whole: false, more: false };
        // The reader saw it a moment ago; a turn may have begun since.
        if is_busy(self.c, &self.tenant, Some(self.id))? {
            return Ok(lost);
        }
        let End { at: end, capped } = self.batch_end()?;
        lost.messages = self.lose_placed(end)?;
        if end == ALL {
            lost.messages += self.lose_waiting()?;
        }
        if lost.messages > 0 {
            self.c.prepare_cached(WORDS)?.execute(params![self.tenant, self.own, end])?;
        }
        let shells = self.shells(BATCH)?;
        for turn in &shells {
            self.c
                .prepare_cached("DELETE FROM inbox WHERE turn_id = ?2 AND tenant_id = ?1")?
                .execute(params![self.tenant, Id::from(*turn)])?;
            self.c.prepare_cached("DELETE FROM turns WHERE tenant_id = ?1 AND id = ?2")?.execute(params![self.tenant, Id::from(*turn)])?;
        }
        lost.more = capped || count(shells.len()) == i64::from(BATCH);
        if !lost.more && self.is_empty()? {
            for sql in REST {
                self.c.prepare_cached(sql)?.execute(params![self.tenant, self.own])?;
            }
            lost.whole = true;
        }
        Ok(lost)
    }

    /// The number below which messages may go, among the first so many.
    fn end(&self, most: i64) -> Result<End, StoreError> {
        let (mut freedom, mut begin, mut at, mut capped, mut seen) = (Freedom::default(), None, ALL, false, 0);
        {
            let mut statement = self.c.prepare_cached(FIRST)?;
            let mut rows = statement.query(params![self.tenant, self.own, Stamp::from(self.sweep.before)])?;
            while let Some(row) = rows.next()? {
                let mut columns = Columns::new(row);
                let (seq, turn, old) = (columns.int()?, columns.id_or_null()?, columns.flag()?);
                begin = begin.or(Some(seq));
                let free = self.may_go(&mut freedom, turn, old)?;
                if !free || seen == most {
                    (at, capped) = (seq, free);
                    break;
                }
                seen += 1;
            }
        }
        let Some(begin) = begin else { return Ok(End { at: ALL, capped: false }) };
        while at != ALL && at > begin {
            at = self.number(SPOKEN, at)?.unwrap_or(begin);
            match self.number(ACROSS, at)? {
                Some(lower) => at = lower,
                None => break,
            }
        }
        Ok(End { at, capped })
    }

    /// Where a batch ends: at a turn, and never before it has begun.
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

    /// A message without a turn came from elsewhere and goes by its own age.
    fn may_go(&self, freedom: &mut Freedom, turn: Option<Uuid>, old: bool) -> Result<bool, StoreError> {
        let Some(turn) = turn else { return Ok(old) };
        Ok(freedom.of(self.c, self.sweep, &self.tenant, turn)?.unwrap_or(old))
    }

    fn number(&self, sql: &str, bound: i64) -> Result<Option<i64>, StoreError> {
        let mut statement = self.c.prepare_cached(sql)?;
        Ok(first(&mut statement, params![self.tenant, self.own, bound], |columns| columns.int_or_null())?.flatten())
    }

    /// Messages that never got a place and whose turns may go: they were canceled while they waited.
    fn waiting(&self) -> Result<Vec<(Uuid, Option<Uuid>)>, StoreError> {
        let mut statement = self.c.prepare_cached(WAITING)?;
        let found = all(&mut statement, params![self.tenant, self.own, Stamp::from(self.sweep.before)], |columns| {
            Ok((columns.id()?, columns.id_or_null()?, columns.flag()?))
        })?;
        let (mut freedom, mut free) = (Freedom::default(), Vec::new());
        for (id, turn, old) in found {
            if self.may_go(&mut freedom, turn, old)? {
                free.push((id, turn));
            }
        }
        Ok(free)
    }

    fn shells(&self, most: u32) -> Result<Vec<Uuid>, StoreError> {
        let values = params![self.tenant, self.own, Stamp::from(self.sweep.before), most];
        let found = all(&mut *self.c.prepare_cached(SHELLS)?, values, |columns| columns.id())?;
        let (mut freedom, mut free) = (Freedom::default(), Vec::new());
        for turn in found {
            if self.may_go(&mut freedom, Some(turn), false)? {
                free.push(turn);
            }
        }
        Ok(free)
    }

    fn is_empty(&self) -> Result<bool, StoreError> {
        let values = params![self.tenant, self.own, Stamp::from(self.sweep.before)];
        Ok(first(&mut *self.c.prepare_cached(EMPTY)?, values, |columns| columns.flag())? == Some(true))
    }

    fn lose_placed(&self, end: i64) -> Result<u64, StoreError> {
        let turns = all(&mut *self.c.prepare_cached(TURNS_BELOW)?, params![self.tenant, self.own, end], |columns| columns.id())?;
        let gone = self
            .c
            .prepare_cached("DELETE FROM messages WHERE conversation_id = ?2 AND seq > 0 AND seq < ?3 AND tenant_id = ?1")?
            .execute(params![self.tenant, self.own, end])?;
        self.silence(turns)?;
        Ok(gone as u64)
    }

    fn lose_waiting(&self) -> Result<u64, StoreError> {
        let waiting = self.waiting()?;
        for (id, _) in &waiting {
            self.c.prepare_cached("DELETE FROM messages WHERE conversation_id = ?2 AND id = ?3 AND tenant_id = ?1")?.execute(params![
                self.tenant,
                self.own,
                Id::from(*id)
            ])?;
        }
        self.silence(waiting.iter().filter_map(|(_, turn)| *turn))?;
        Ok(waiting.len() as u64)
    }

    /// The same words stand in these turns.
    fn silence(&self, turns: impl IntoIterator<Item = Uuid>) -> Result<(), StoreError> {
        for turn in turns {
            for sql in OF_TURN {
                self.c.prepare_cached(sql)?.execute(params![self.tenant, Id::from(turn)])?;
            }
        }
        Ok(())
    }
}

/// The statements whose plan a test looks at.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let fixed = [FIRST, WAITING, SPOKEN, ACROSS, BELOW, TURNS_BELOW, SHELLS, EMPTY, WORDS];
    fixed.iter().chain(&OF_TURN).chain(&REST).map(|sql| (*sql).to_owned()).collect()
}
