//! [`ConsoleSessions`] and [`Hints`] on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::{self, all, first};
use super::text::{Id, Stamp, id_or_null};
use crate::console::MAX_SESSIONS;
use crate::hints::{HintDialect, hints_sql};
use crate::reading::CONSOLE_SESSION;
use crate::{ConsoleSession, ConsoleSessions, HintRow, Hints, KeyDigest, LinkUse, NewConsoleSession, StoreError, StoreFuture};

impl ConsoleSessions for SqliteStore {
    fn put_console_session(&self, session: NewConsoleSession) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| put(c, &session)))
    }

    fn use_console_link(&self, link: KeyDigest, session: LinkUse) -> StoreFuture<'_, Option<ConsoleSession>> {
        let sql = format!(
            "UPDATE console_sessions SET digest = ?2, link = 0, created_at = ?3, expires_at = ?4 WHERE digest = ?1 AND link = 1 AND expires_at > ?3
             RETURNING {CONSOLE_SESSION}"
        );
        Box::pin(self.writer.submit(move |c| {
            let values = params![link.0, session.digest.0, Stamp::from(session.now), Stamp::from(session.expires_at)];
            first(&mut *c.prepare_cached(&sql)?, values, row::console_session)
        }))
    }

    fn console_session(&self, digest: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConsoleSession>> {
        let sql = format!("SELECT {CONSOLE_SESSION} FROM console_sessions WHERE digest = ?1 AND link = 0 AND expires_at > ?2");
        Box::pin(
            self.readers.look_up(move |c| first(&mut *c.prepare_cached(&sql)?, params![digest.0, Stamp::from(now)], row::console_session)),
        )
    }

    fn console_sessions_by_id(&self, ids: Vec<Uuid>) -> StoreFuture<'_, Vec<Uuid>> {
        Box::pin(self.readers.list(move |c| {
            let sql = "SELECT id FROM console_sessions WHERE id IN (SELECT value FROM json_each(?1))";
            all(&mut *c.prepare_cached(sql)?, params![serde_json::json!(ids).to_string()], |columns| columns.id())
        }))
    }

    fn delete_console_session(&self, id: Uuid) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            Ok(c.prepare_cached("DELETE FROM console_sessions WHERE id = ?1 AND link = 0")?.execute(params![Id::from(id)])? == 1)
        }))
    }
}

impl Hints for SqliteStore {
    fn hints(&self, tenant_id: Uuid, since: Uuid, named: Vec<Uuid>) -> StoreFuture<'_, Vec<HintRow>> {
        Box::pin(self.readers.list(move |c| {
            let named = serde_json::json!(named).to_string();
            all(&mut *c.prepare_cached(&sql())?, params![Id::from(tenant_id), Id::from(since), named], row::hint)
        }))
    }
}

fn sql() -> String {
    hints_sql(&HintDialect { parameter: '?', named: "IN (SELECT value FROM json_each(?3))", text: "", off_index: "+" })
}

fn put(c: &Connection, session: &NewConsoleSession) -> Result<(), StoreError> {
    let (tenant, key, operator) = session.holder.columns();
    let (tenant, now) = (Id::from(tenant), Stamp::from(session.created_at));
    c.prepare_cached("DELETE FROM console_sessions WHERE expires_at <= ?1")?.execute(params![now])?;
    let inserted = c
        .prepare_cached(
            "INSERT INTO console_sessions (tenant_id, id, digest, link, key_id, operator_digest, created_at, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            tenant,
            Id::from(session.id),
            session.digest.0,
            session.link,
            id_or_null(key),
            operator,
            now,
            Stamp::from(session.expires_at)
        ])?;
    if inserted != 1 {
        return Err(StoreError::Broken("a session of the console was not inserted".to_owned()));
    }
    let surplus = "DELETE FROM console_sessions WHERE tenant_id = ?1 AND link = ?2 AND key_id IS ?3 AND id NOT IN (
        SELECT id FROM console_sessions WHERE tenant_id = ?1 AND link = ?2 AND key_id IS ?3 ORDER BY created_at DESC, id DESC LIMIT ?4)";
    c.prepare_cached(surplus)?.execute(params![tenant, session.link, id_or_null(key), MAX_SESSIONS])?;
    Ok(())
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    vec![sql()]
}
