//! Erases a person's content from every table. Ids, times, statuses and usage rows stay, so that the list of calls remains readable.
//!
//! Invariants: one transaction; a running turn is never changed; rows of other people keep their content. A new TEXT column must be
//! handled here, or be listed with a reason in `erase_tests.rs`; a module says in its list of tables what happens with its rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use werkruf_contract::Uuid;

use super::budgets::delete_budgets_of;
use super::erased_list::{self, Line};
use super::hold::{changed, end_turn};
use super::row::{self, all};
use super::text::{Id, Stamp};
use super::{SqliteStore, audit, backup, outbox_rows};
use crate::module::rows_to_erase;
use crate::reading::CONNECTION;
use crate::{Author, CloseReason, Erased, Maintenance, MaintenanceFuture, Modules, Recorder, StoreError, TurnCloser, TurnRow, crash};

impl Maintenance for SqliteStore {
    fn back_up(&self, target: PathBuf, force: bool) -> MaintenanceFuture<'_, crate::Backup> {
        let database = self.path.clone();
        Box::pin(async move {
            let copying = tokio::task::spawn_blocking(move || backup::back_up(&database, &target, force));
            copying.await.map_err(|error| StoreError::Broken(format!("a backup did not end: {error}")))?
        })
    }
    fn erase_person(
        &self,
        tenant_id: Uuid,
        user_id: String,
        cancel: bool,
        closer: Arc<dyn TurnCloser>,
        by: Author,
        now: Timestamp,
    ) -> MaintenanceFuture<'_, Option<Erased>> {
        Box::pin(async move {
            let (path, modules, recorder) = (self.path.clone(), self.modules, self.recorder.clone());
            let erasing = self.writer.submit(move |c| {
                let Some(erased) = erase(c, &Person { tenant_id, user_id: &user_id }, cancel, &*closer, modules, now)? else {
                    return Ok(None);
                };
                let line = Line { tenant_id, user_id, erased_at: now };
                mark(c, &line)?;
                record_erasure(c, &recorder, &erased, &by)?;
                crash::point("inside_erase");
                // Before the commit: an erasure must not be reported as done when a restore would not repeat it.
                erased_list::append(&path, &line).map_err(|error| StoreError::Unavailable(error.to_string()))?;
                crash::point("erase_listed");
                Ok(Some(erased))
            });
            let erased = erasing.await?;
            crash::point("erased");
            self.cache.clear();
            let Some(mut erased) = erased else { return Ok(None) };
            match self.writer.submit_alone(compact).await {
                Ok(compacted) => erased.compacted = compacted,
                Err(error) => tracing::error!(%error, "the person is erased, but the files could not be compacted"),
            }
            erased.copies = copies(&self.path);
            Ok(Some(erased))
        })
    }
    fn unfinished_turns_of(&self, tenant_id: Uuid, user_id: String) -> MaintenanceFuture<'_, Vec<Uuid>> {
        Box::pin(async move {
            let turns = self.readers.list(move |c| unfinished(c, &Id::from(tenant_id), &user_id)).await?;
            Ok(turns.into_iter().map(|turn| turn.id).collect())
        })
    }
}

fn unfinished(c: &Connection, tenant: &Id, user_id: &str) -> Result<Vec<TurnRow>, StoreError> {
    let sql = format!(
        "SELECT {} FROM turns INDEXED BY turns_open WHERE finished_at IS NULL AND tenant_id = ?1 AND (user_id = ?2 OR conversation_id IN
           (SELECT id FROM conversations WHERE tenant_id = ?1 AND user_id = ?2)) ORDER BY status = 'accepted', id",
        row::TURN
    );
    all(&mut c.prepare(&sql)?, params![tenant, user_id], row::turn)
}

// ?1 tenant, ?2 user.
const CONVERSATIONS: &str = "SELECT id FROM conversations WHERE tenant_id = ?1 AND user_id = ?2";
/// The flag is true when the conversation belongs to another user.
const TURNS: &str = "SELECT id, conversation_id IS NOT NULL AND conversation_id NOT IN
      (SELECT id FROM conversations WHERE tenant_id = ?1 AND user_id = ?2)
    FROM turns WHERE tenant_id = ?1 AND (user_id = ?2
      OR conversation_id IN (SELECT id FROM conversations WHERE tenant_id = ?1 AND user_id = ?2))";
const PERSON: &str = "UPDATE users SET first_name = 'erased', last_name = '', email = NULL, phone = NULL, phone_key = NULL, whatsapp_user_id = NULL,
    external_id = NULL, token_roles = NULL, token_roles_until = NULL, locale = 'en-US', time_zone = NULL WHERE tenant_id = ?1 AND id = CAST(?2 AS INTEGER)";
const RIGHTS: &str = "DELETE FROM user_roles WHERE tenant_id = ?1 AND user_id = CAST(?2 AS INTEGER)";
/// A login that is being finished needs its request, so it stores nothing afterwards.
const LINKS: &str = "DELETE FROM connection_requests WHERE tenant_id = ?1 AND user_id = ?2";
const KEYS: &str = "DELETE FROM api_keys WHERE tenant_id = ?1 AND user_id = ?2";

// ?1 tenant, ?2 conversation.
const MESSAGES: &str = "DELETE FROM messages WHERE tenant_id = ?1 AND conversation_id = ?2";
const OF_CONVERSATION: [&str; 2] = [
    "DELETE FROM events WHERE tenant_id = ?1 AND conversation_id = ?2",
    "UPDATE conversations SET title = '', state = '{}', metadata = '{}', summary = NULL, summary_until = NULL, summary_untrusted = NULL WHERE tenant_id = ?1 AND id = ?2",
];

// ?1 tenant, ?2 turn. The name of an unknown tool was made up by the model, so it is content.
const CALLS: &str = "UPDATE tool_calls SET request = NULL, raw_arguments = NULL, repairs = NULL, response = NULL, error = NULL,
    error_detail = NULL, context = '{}', meta = NULL, permission = NULL, dedupe_key = NULL, idempotency_key = NULL,
    tool_name = CASE error_code WHEN 'unknown_tool' THEN 'erased' ELSE tool_name END WHERE tenant_id = ?1 AND turn_id = ?2";
const OF_TURN: [&str; 6] = [
    "UPDATE conversations SET summary = NULL, summary_until = NULL, summary_untrusted = NULL WHERE tenant_id = ?1
       AND id = (SELECT conversation_id FROM turns WHERE tenant_id = ?1 AND id = ?2)",
    "UPDATE call_attempts SET error = '{}' WHERE tenant_id = ?1
       AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = ?1 AND turn_id = ?2)",
    "UPDATE approvals SET arguments = '{}', arguments_digest = '' WHERE tenant_id = ?1
       AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = ?1 AND turn_id = ?2)",
    "DELETE FROM inbox WHERE tenant_id = ?1 AND turn_id = ?2",
    // A turn without a conversation is its own stream.
    "DELETE FROM events WHERE tenant_id = ?1 AND conversation_id = ?2",
    "UPDATE turns SET partial = NULL, error = NULL, message = NULL, client = NULL, transcript_digest = NULL, request_digest = NULL, context = NULL, inbound = NULL WHERE tenant_id = ?1 AND id = ?2",
];
/// The person's messages and events in another user's conversation lose their content and keep their rows, so that the history stays valid.
const IN_FOREIGN: [&str; 2] = [
    "UPDATE messages SET content = '[erased]', metadata = '{}', tool_calls = CASE WHEN tool_calls IS NOT NULL THEN
       (SELECT json_group_array(json_object('id', value ->> 'id', 'name', value ->> 'name', 'args', json('{}')) ORDER BY key)
          FROM json_each(tool_calls)) END
     WHERE tenant_id = ?1 AND turn_id = ?2 AND conversation_id = (SELECT conversation_id FROM turns WHERE tenant_id = ?1 AND id = ?2)",
    "UPDATE events SET data = json_object('turn_id', turn_id, 'erased', json('true')) WHERE tenant_id = ?1 AND turn_id = ?2
       AND conversation_id = (SELECT conversation_id FROM turns WHERE tenant_id = ?1 AND id = ?2)",
];

/// Whose content is erased.
pub(super) struct Person<'a> {
    pub(super) tenant_id: Uuid,
    pub(super) user_id: &'a str,
}

/// Erases inside the caller's transaction; `None` when there is no user or content with this id.
pub(super) fn erase(
    c: &Connection,
    person: &Person<'_>,
    cancel: bool,
    closer: &dyn TurnCloser,
    modules: Modules,
    now: Timestamp,
) -> Result<Option<Erased>, StoreError> {
    let Person { tenant_id, user_id } = *person;
    let tenant = Id::from(tenant_id);
    for turn in unfinished(c, &tenant, user_id)? {
        if !cancel {
            return Err(StoreError::Busy);
        }
        // Fails with `Busy` where a process runs the turn.
        end_turn(c, turn, CloseReason::Canceled, closer, now)?;
    }
    let conversations = all(&mut c.prepare(CONVERSATIONS)?, params![tenant, user_id], |columns| columns.text())?;
    let turns = all(&mut c.prepare(TURNS)?, params![tenant, user_id], |columns| Ok((columns.text()?, columns.flag()?)))?;
    // It needs the addresses of the person.
    outbox_rows::erase(c, &tenant, user_id)?;
    let person = c.execute(PERSON, params![tenant, user_id])?;
    if person == 0 && conversations.is_empty() && turns.is_empty() {
        return Ok(None);
    }
    for sql in [RIGHTS, LINKS] {
        c.execute(sql, params![tenant, user_id])?;
    }
    let sql = format!("DELETE FROM connections WHERE tenant_id = ?1 AND user_id = ?2 RETURNING {CONNECTION}");
    let connections = all(&mut c.prepare(&sql)?, params![tenant, user_id], row::connection)?;
    for (table, column) in rows_to_erase(modules) {
        c.execute(&format!("DELETE FROM {table} WHERE tenant_id = ?1 AND CAST({column} AS TEXT) = ?2"), params![tenant, user_id])?;
    }
    delete_budgets_of(c, tenant_id, user_id)?;
    let keys = changed(c.execute(KEYS, params![tenant, user_id])?);
    let (mut messages, mut calls) = (0, 0);
    for (turn, foreign) in &turns {
        calls += changed(c.prepare_cached(CALLS)?.execute(params![tenant, turn])?);
        for sql in OF_TURN.iter().chain(IN_FOREIGN.iter().filter(|_| *foreign)) {
            c.prepare_cached(sql)?.execute(params![tenant, turn])?;
        }
    }
    for conversation in &conversations {
        messages += changed(c.prepare_cached(MESSAGES)?.execute(params![tenant, conversation])?);
        for sql in OF_CONVERSATION {
            c.prepare_cached(sql)?.execute(params![tenant, conversation])?;
        }
    }
    Ok(Some(Erased {
        tenant_id,
        user_id: user_id.to_owned(),
        erased_at: now,
        conversations: changed(conversations.len()),
        messages,
        turns: changed(turns.len()),
        calls,
        keys,
        compacted: false,
        copies: Vec::new(),
        connections,
    }))
}

/// Blanks the values about the person in the audit log, and adds an entry that says so.
pub(super) fn record_erasure(c: &Connection, recorder: &Recorder, erased: &Erased, by: &Author) -> Result<(), StoreError> {
    let blanked = audit::blank(c, erased.tenant_id, &erased.user_id)?;
    audit::record(c, recorder, erased.tenant_id, by, &[erased.act(&blanked)], erased.erased_at)
}

/// Records the erasure in the database too, so that a backup made afterwards has the record and is not erased again.
pub(super) fn mark(c: &Connection, line: &Line) -> Result<(), StoreError> {
    c.execute(
        "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
        params![mark_name(line), Stamp::from(line.erased_at)],
    )?;
    Ok(())
}

/// Whether this erasure, or a later one, is in the database.
pub(super) fn is_erased(c: &Connection, line: &Line) -> Result<bool, StoreError> {
    let sql = "SELECT value >= ?2 FROM settings WHERE name = ?1";
    let found = c.query_row(sql, params![mark_name(line), Stamp::from(line.erased_at)], |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(false))
}

fn mark_name(line: &Line) -> String {
    format!("erased:{}:{}", line.tenant_id, line.user_id)
}

/// Rewrites the file and empties the WAL, outside any transaction. False when a reader prevented the checkpoint.
pub(super) fn compact(c: &Connection) -> Result<bool, StoreError> {
    // The new file is built in a temporary file, not in memory, because it may be large. It has no erased content.
    c.execute_batch("PRAGMA temp_store = FILE")?;
    let written = c.execute_batch("VACUUM");
    c.execute_batch("PRAGMA temp_store = MEMORY")?;
    written?;
    checkpoint(c)
}

/// Copies the WAL into the file and empties it; false when a reader prevented that.
pub(super) fn checkpoint(c: &Connection) -> Result<bool, StoreError> {
    let busy: i64 = c.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(busy == 0)
}

/// Like [`checkpoint`], but waits for a reader only for a moment, because all writes wait meanwhile.
pub(super) fn brief_checkpoint(c: &Connection) -> Result<bool, StoreError> {
    c.busy_timeout(Duration::from_millis(50))?;
    let complete = checkpoint(c);
    c.busy_timeout(Duration::from_secs(5))?;
    complete
}

/// Copies that migrations and restores left beside the database.
fn copies(database: &Path) -> Vec<PathBuf> {
    let Some(name) = database.file_name().map(|name| format!("{}.before-", name.to_string_lossy())) else { return Vec::new() };
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)).map(|entry| entry.path()).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
#[path = "erase_tests.rs"]
mod tests;
