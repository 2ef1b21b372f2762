//! [`Alerts`] on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::outbox_rows::put;
use super::records::List;
use super::row::{ALERT, alert, all};
use super::text::{Id, Stamp};
use crate::alerts::MAX_CONDITIONS;
use crate::{AlertRow, Alerts, NewAlert, NewOutboxRow, Page, PoisonTurn, StoreError, StoreFuture, StoredConditions, WaitingApproval};

impl Alerts for SqliteStore {
    fn open_alert(&self, alert: NewAlert) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| open(c, &alert)))
    }

    fn resolve_alert(&self, tenant_id: Uuid, id: Uuid, rows: Vec<NewOutboxRow>, now: Timestamp) -> StoreFuture<'_, bool> {
        Box::pin(self.writer.submit(move |c| {
            let (tenant, now) = (Id::from(tenant_id), Stamp::from(now));
            let resolved = c.prepare_cached(RESOLVE)?.execute(params![tenant, Id::from(id), now])? == 1;
            if resolved {
                put(c, &tenant, &rows, &now)?;
            }
            Ok(resolved)
        }))
    }

    fn open_alerts(&self) -> StoreFuture<'_, Vec<AlertRow>> {
        Box::pin(self.readers.look_up(|c| all(&mut *c.prepare_cached(&open_sql())?, [], alert)))
    }

    fn touch_alerts(&self, ids: Vec<Uuid>, now: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            for id in ids {
                c.prepare_cached(TOUCH)?.execute(params![Id::from(id), Stamp::from(now)])?;
            }
            Ok(())
        }))
    }

    fn alerts(&self, tenant_id: Uuid, open_only: bool, page: Page) -> StoreFuture<'_, Vec<AlertRow>> {
        Box::pin(self.readers.list(move |c| {
            let mut list = List::new(ALERT, "alerts", tenant_id);
            if open_only {
                list.only("resolved_at IS NULL AND once = ?", false);
            }
            list.page(c, page, alert)
        }))
    }

    fn stored_conditions(&self, asked_until: Timestamp, poison_since: Timestamp) -> StoreFuture<'_, StoredConditions> {
        Box::pin(self.readers.look_up(move |c| conditions(c, asked_until, poison_since)))
    }
}

const OPEN: &str = "INSERT INTO alerts (tenant_id, id, kind, subject, once, source, detail, opened_at, seen_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8) ON CONFLICT DO NOTHING";
const RESOLVE: &str =
    "UPDATE alerts SET resolved_at = ?3, seen_at = ?3 WHERE tenant_id = ?1 AND id = ?2 AND resolved_at IS NULL AND NOT once";
const TOUCH: &str = "UPDATE alerts SET seen_at = ?2 WHERE id = ?1 AND resolved_at IS NULL AND NOT once";
const DEAD_LETTERS: &str = "SELECT tenant_id, count(*) FROM outbox WHERE status = 'dead' AND attempts > 0 GROUP BY tenant_id";
// The index has pending ones only.
const WAITING: &str = "SELECT tenant_id, id, tool_name, created_at FROM approvals INDEXED BY approvals_pending
    WHERE status = 'pending' AND created_at <= ?1 ORDER BY created_at, id LIMIT ?2";
const POISON: &str =
    "SELECT tenant_id, id, finished_at FROM turns WHERE error_code = 'poison' AND finished_at > ?1 ORDER BY finished_at LIMIT ?2";

fn open_sql() -> String {
    format!("SELECT {ALERT} FROM alerts WHERE resolved_at IS NULL AND NOT once ORDER BY id")
}

fn open(c: &Connection, alert: &NewAlert) -> Result<bool, StoreError> {
    let (tenant, now) = (Id::from(alert.key.tenant_id), Stamp::from(alert.now));
    let values = params![tenant, Id::from(alert.id), alert.key.kind, alert.key.subject, alert.once, alert.source, alert.detail, now];
    let opened = c.prepare_cached(OPEN)?.execute(values)? == 1;
    if opened {
        put(c, &tenant, &alert.rows, &now)?;
    }
    Ok(opened)
}

fn conditions(c: &Connection, asked_until: Timestamp, poison_since: Timestamp) -> Result<StoredConditions, StoreError> {
    let dead_letters =
        all(&mut *c.prepare_cached(DEAD_LETTERS)?, [], |columns| Ok((columns.id()?, u64::try_from(columns.int()?).unwrap_or(0))))?;
    let approvals = all(&mut *c.prepare_cached(WAITING)?, params![Stamp::from(asked_until), MAX_CONDITIONS], |columns| {
        Ok(WaitingApproval { tenant_id: columns.id()?, id: columns.id()?, tool_name: columns.text()?, created_at: columns.time()? })
    })?;
    let poison = all(&mut *c.prepare_cached(POISON)?, params![Stamp::from(poison_since), MAX_CONDITIONS], |columns| {
        Ok(PoisonTurn { tenant_id: columns.id()?, id: columns.id()?, finished_at: columns.time()? })
    })?;
    Ok(StoredConditions { dead_letters, approvals, poison })
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let fixed = [RESOLVE, TOUCH, DEAD_LETTERS, POISON].map(str::to_owned);
    fixed.into_iter().chain([open_sql()]).collect()
}
