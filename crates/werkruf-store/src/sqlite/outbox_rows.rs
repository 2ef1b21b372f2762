//! The rows of the outbox that other operations write, and their lanes.

use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::hold::changed;
use super::row::{OUTBOX, first, outbox};
use super::text::{Id, Stamp, id_or_null};
use crate::{EARLIER_PART_DEAD, NewOutboxRow, OutboxRow, StoreError};

const INSERT: &str =
    "INSERT INTO outbox (tenant_id, id, channel, account, recipient, lane, user_id, conversation_id, turn_id, approval_id, part,
      status, repeatable, error_code, next_at, created_at, updated_at, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?16, ?17)";

/// Written like the condition of its index.
const LAST_PART: &str = "SELECT coalesce(max(part), 0) FROM outbox WHERE tenant_id = ?1 AND turn_id = ?2 AND channel = ?3
    AND turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook'";

const PUT_LANE: &str = "INSERT INTO outbox_lanes (tenant_id, lane, next_at, channel, account) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (tenant_id, lane) DO UPDATE SET next_at = excluded.next_at WHERE excluded.next_at < next_at";

/// Writes rows, and says in their lanes when they are due.
pub(super) fn put(c: &Connection, tenant: &Id, rows: &[NewOutboxRow], now: &Stamp) -> Result<(), StoreError> {
    for row in rows {
        let to = &row.recipient;
        let part = match row.turn_id.filter(|_| row.approval_id.is_none() && to.channel != "webhook") {
            Some(turn) => {
                1 + first(&mut *c.prepare_cached(LAST_PART)?, params![tenant, Id::from(turn), to.channel], |columns| columns.int())?
                    .unwrap_or(0)
            }
            None => 1,
        };
        let next_at = Stamp::from(row.next_at);
        c.prepare_cached(INSERT)?.execute(params![
            tenant,
            Id::from(row.id),
            to.channel,
            to.account,
            to.address,
            to.lane,
            to.user_id,
            id_or_null(row.conversation_id),
            id_or_null(row.turn_id),
            id_or_null(row.approval_id),
            part,
            if row.dead.is_some() { "dead" } else { "pending" },
            row.repeatable,
            row.dead,
            next_at,
            now,
            row.body,
        ])?;
        if row.dead.is_none() {
            put_lane(c, tenant, (&to.lane, &to.channel, &to.account), &next_at)?;
        }
    }
    Ok(())
}

/// A lane, with the account that its rows leave by, is due not later than then.
pub(super) fn put_lane(
    c: &Connection,
    tenant: &Id,
    (lane, channel, account): (&str, &str, &str),
    next_at: &Stamp,
) -> Result<(), StoreError> {
    c.prepare_cached(PUT_LANE)?.execute(params![tenant, lane, next_at, channel, account])?;
    Ok(())
}

/// The row that the lane waits for: the one that is being sent, else the oldest pending one.
pub(super) fn head(c: &Connection, tenant: &Id, lane: &str) -> Result<Option<OutboxRow>, StoreError> {
    for status in ["sending", "pending"] {
        let found = first(&mut *c.prepare_cached(&head_sql(status))?, params![tenant, lane], outbox)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The status is written out, so that the planner can use the index of the open rows.
fn head_sql(status: &str) -> String {
    format!("SELECT {OUTBOX} FROM outbox WHERE tenant_id = ?1 AND lane = ?2 AND status = '{status}' ORDER BY id LIMIT 1")
}

/// Writes when the lane is due next, or deletes it when it has no open row.
pub(super) fn refresh_lane(c: &Connection, tenant: &Id, lane: &str) -> Result<(), StoreError> {
    match head(c, tenant, lane)? {
        Some(head) => {
            let due = "INSERT INTO outbox_lanes (tenant_id, lane, next_at, channel, account) VALUES (?1, ?2, ?3, ?4, ?5)
                       ON CONFLICT (tenant_id, lane) DO UPDATE SET next_at = excluded.next_at";
            let to = &head.recipient;
            c.prepare_cached(due)?.execute(params![tenant, lane, Stamp::from(head.next_at), to.channel, to.account])?;
        }
        None => {
            c.prepare_cached("DELETE FROM outbox_lanes WHERE tenant_id = ?1 AND lane = ?2")?.execute(params![tenant, lane])?;
        }
    }
    Ok(())
}

// ?1 tenant, ?2 turn, ?3 channel, ?4 lane, ?5 part, ?6 time, ?7 the code of parts that died with an earlier one.
const KILL_LATER: &str = "UPDATE outbox SET status = 'dead', error_code = ?7, updated_at = ?6
    WHERE tenant_id = ?1 AND turn_id = ?2 AND channel = ?3 AND lane = ?4 AND part > ?5 AND status = 'pending'
      AND turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook'";
// ?8 whether the parts before the row are revived too.
const REVIVE: &str =
    "UPDATE outbox SET status = 'pending', attempts = 0, error_code = NULL, error = NULL, external_id = NULL, first_at = NULL,
      next_at = ?6, updated_at = ?6
    WHERE tenant_id = ?1 AND turn_id = ?2 AND channel = ?3 AND lane = ?4 AND status = 'dead'
      AND ((part > ?5 AND error_code = ?7) OR (part < ?5 AND ?8))
      AND turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook'";
const RELEASE_EARLIER: &str = "UPDATE outbox SET status = 'pending', attempts = 0, first_at = NULL, next_at = ?6, updated_at = ?6
    WHERE tenant_id = ?1 AND turn_id = ?2 AND channel = ?3 AND lane = ?4 AND part < ?5 AND status = 'held'
      AND turn_id IS NOT NULL AND approval_id IS NULL AND channel <> 'webhook'";

/// The later parts of the row's turn die with it.
pub(super) fn kill_later(c: &Connection, tenant: &Id, row: &OutboxRow, now: &Stamp) -> Result<(), StoreError> {
    let Some(turn) = row.turn_id.filter(|_| row.is_part()) else { return Ok(()) };
    let to = &row.recipient;
    c.prepare_cached(KILL_LATER)?.execute(params![tenant, Id::from(turn), to.channel, to.lane, row.part, now, EARLIER_PART_DEAD])?;
    Ok(())
}

/// The later parts that died with the row become pending again; with `earlier`, also the dead ones before it, which must leave first.
pub(super) fn revive(c: &Connection, tenant: &Id, row: &OutboxRow, earlier: bool, now: &Stamp) -> Result<(), StoreError> {
    let Some(turn) = row.turn_id.filter(|_| row.is_part()) else { return Ok(()) };
    let to = &row.recipient;
    let values = params![tenant, Id::from(turn), to.channel, to.lane, row.part, now, EARLIER_PART_DEAD, earlier];
    c.prepare_cached(REVIVE)?.execute(values)?;
    Ok(())
}

/// A held row becomes pending, and so do the held parts of its turn before it, which must leave first. Returns how many.
pub(super) fn release_one(c: &Connection, tenant: &Id, row: &OutboxRow, now: &Stamp) -> Result<u64, StoreError> {
    let own = "UPDATE outbox SET status = 'pending', attempts = 0, first_at = NULL, next_at = ?3, updated_at = ?3
               WHERE tenant_id = ?1 AND id = ?2 AND status = 'held'";
    let mut released = c.prepare_cached(own)?.execute(params![tenant, Id::from(row.id), now])?;
    if let Some(turn) = row.turn_id.filter(|_| row.is_part()) {
        let to = &row.recipient;
        released += c.prepare_cached(RELEASE_EARLIER)?.execute(params![tenant, Id::from(turn), to.channel, to.lane, row.part, now])?;
    }
    Ok(changed(released))
}

/// Holds every row that was not sent. A row that was being sent may have arrived.
pub(super) fn hold(c: &Connection, now: &Stamp) -> Result<u64, StoreError> {
    let held = c.execute(
        "UPDATE outbox SET status = 'held', owner = NULL, updated_at = ?1, ambiguous = ambiguous OR (status = 'sending' AND NOT repeatable)
         WHERE status = 'pending' OR status = 'sending'",
        params![now],
    )?;
    c.execute("DELETE FROM outbox_lanes", [])?;
    Ok(changed(held))
}

// ?1 tenant, ?2 user. What was sent to the person's addresses before the person was a user has no user. Reports have the external id of their row at the beginning of their own.
const OF_PERSON: [&str; 4] = [
    "DELETE FROM inbox WHERE (tenant_id, channel, account, external_id) IN
       (SELECT inbox.tenant_id, inbox.channel, inbox.account, inbox.external_id FROM outbox JOIN inbox ON inbox.tenant_id = ?1
          AND inbox.channel = outbox.channel AND inbox.account = outbox.account
          AND inbox.external_id >= outbox.external_id || ':' AND inbox.external_id < outbox.external_id || ';'
        WHERE outbox.tenant_id = ?1 AND outbox.user_id = ?2 AND outbox.external_id IS NOT NULL AND inbox.turn_id IS NULL)",
    "DELETE FROM outbox WHERE tenant_id = ?1 AND (user_id = ?2 OR (user_id IS NULL AND channel <> 'webhook' AND recipient IN
         (SELECT address FROM contacts WHERE tenant_id = ?1 AND user_id = ?2
          UNION SELECT phone_key FROM users WHERE tenant_id = ?1 AND CAST(id AS TEXT) = ?2
          UNION SELECT whatsapp_user_id FROM users WHERE tenant_id = ?1 AND CAST(id AS TEXT) = ?2))
       OR conversation_id IN (SELECT id FROM conversations WHERE tenant_id = ?1 AND user_id = ?2) OR turn_id IN
       (SELECT id FROM turns WHERE tenant_id = ?1 AND (user_id = ?2
          OR conversation_id IN (SELECT id FROM conversations WHERE tenant_id = ?1 AND user_id = ?2))))",
    "DELETE FROM contacts WHERE tenant_id = ?1 AND user_id IS NULL AND address IN
         (SELECT address FROM contacts WHERE tenant_id = ?1 AND user_id = ?2
          UNION SELECT phone_key FROM users WHERE tenant_id = ?1 AND CAST(id AS TEXT) = ?2
          UNION SELECT whatsapp_user_id FROM users WHERE tenant_id = ?1 AND CAST(id AS TEXT) = ?2)",
    "DELETE FROM contacts WHERE tenant_id = ?1 AND (user_id = ?2 OR person = ?2)",
];
/// The name of a lane contains an address.
const EMPTY_LANES: &str = "DELETE FROM outbox_lanes WHERE tenant_id = ?1 AND NOT EXISTS (SELECT 1 FROM outbox
    WHERE outbox.tenant_id = ?1 AND outbox.lane = outbox_lanes.lane AND (status = 'pending' OR status = 'sending'))";

/// Deletes what was or will be sent to a person or about the person's turns, and the person's contacts.
pub(super) fn erase(c: &Connection, tenant: &Id, user_id: &str) -> Result<(), StoreError> {
    for sql in OF_PERSON {
        c.execute(sql, params![tenant, user_id])?;
    }
    c.execute(EMPTY_LANES, params![tenant])?;
    Ok(())
}

pub(super) fn moved(id: Uuid) -> StoreError {
    StoreError::Moved { what: "outbox row", id: id.to_string() }
}

pub(super) fn exactly_one(written: usize, id: Uuid) -> Result<(), StoreError> {
    if written == 1 { Ok(()) } else { Err(moved(id)) }
}

/// One row by its id.
pub(super) fn by_id(c: &Connection, tenant: &Id, id: Uuid) -> Result<Option<OutboxRow>, StoreError> {
    first(&mut *c.prepare_cached(&by_id_sql())?, params![tenant, Id::from(id)], outbox)
}

fn by_id_sql() -> String {
    format!("SELECT {OUTBOX} FROM outbox WHERE tenant_id = ?1 AND id = ?2")
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let fixed = [LAST_PART, KILL_LATER, REVIVE, RELEASE_EARLIER].map(str::to_owned);
    fixed.into_iter().chain([head_sql("pending"), head_sql("sending"), by_id_sql()]).collect()
}
