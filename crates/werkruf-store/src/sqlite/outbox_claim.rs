//! Which rows of the outbox are due, and who takes them.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::hold::changed;
use super::outbox_rows::{by_id, exactly_one, head, moved, refresh_lane};
use super::row::all;
use super::text::{Id, Stamp};
use crate::{Account, Claim, Claimed, DueAccount, OutboxRow, OutboxStatus, StoreError};

const LANES: &str =
    "SELECT tenant_id, lane FROM outbox_lanes WHERE channel = ?1 AND account = ?2 AND next_at <= ?3 ORDER BY next_at LIMIT ?4";
const ACCOUNTS: &str = "SELECT channel, account, min(next_at) FROM outbox_lanes GROUP BY channel, account ORDER BY 3";

pub(super) fn due(c: &Connection) -> Result<Vec<DueAccount>, StoreError> {
    all(&mut *c.prepare_cached(ACCOUNTS)?, [], |columns| {
        Ok(DueAccount { account: Account { channel: columns.text()?, account: columns.text()? }, at: columns.time()? })
    })
}

pub(super) fn claim(c: &Connection, claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
    let Account { channel, account } = &claim.account;
    let values = params![channel, account, Stamp::from(claim.now), claim.limit];
    let lanes: Vec<(Uuid, String)> = all(&mut *c.prepare_cached(LANES)?, values, |columns| Ok((columns.id()?, columns.text()?)))?;
    let mut claimed = Vec::new();
    for (tenant_id, lane) in lanes {
        let tenant = Id::from(tenant_id);
        if let Some(row) = head(c, &tenant, &lane)?.filter(|head| head.next_at <= claim.now) {
            if claim.being_sent.contains(&row.id) {
                keep(c, &tenant, row.id, claim.until)?;
            } else {
                claimed.push(take(c, &row, claim)?);
            }
        }
        refresh_lane(c, &tenant, &lane)?;
    }
    Ok(claimed)
}

/// The row stays claimed.
fn keep(c: &Connection, tenant: &Id, id: Uuid, until: Timestamp) -> Result<(), StoreError> {
    let sql = "UPDATE outbox SET next_at = ?3 WHERE tenant_id = ?1 AND id = ?2";
    exactly_one(c.prepare_cached(sql)?.execute(params![tenant, Id::from(id), Stamp::from(until)])?, id)
}

/// Marks a row as being sent, unless it is to be given up.
fn take(c: &Connection, row: &OutboxRow, claim: &Claim) -> Result<Claimed, StoreError> {
    let (tenant, id, code) = (Id::from(row.tenant_id), row.id, row.give_up(claim.now));
    let ambiguous = row.ambiguous || (row.status == OutboxStatus::Sending && !row.repeatable);
    let written = c
        .prepare_cached(
            "UPDATE outbox SET status = 'sending', attempts = ?3, ambiguous = ?4, owner = ?5, next_at = ?6, first_at = coalesce(first_at, ?7),
               updated_at = ?7, error_code = ?8 WHERE tenant_id = ?1 AND id = ?2",
        )?
        .execute(params![
            tenant,
            Id::from(id),
            row.attempts + u32::from(code.is_none()),
            ambiguous,
            claim.owner,
            Stamp::from(claim.until),
            Stamp::from(claim.now),
            code,
        ])?;
    exactly_one(written, id)?;
    let row = by_id(c, &tenant, id)?.ok_or_else(|| moved(id))?;
    Ok(match code {
        None => Claimed::Send(row),
        Some(code) => Claimed::GiveUp { row, code },
    })
}

pub(super) fn adopt(c: &Connection, owner: &str, now: Timestamp, until: Timestamp) -> Result<u64, StoreError> {
    let (now, until) = (Stamp::from(now), Stamp::from(until));
    // A recipient that recognizes a repetition sends no reports to wait for.
    let adopted = c.execute(
        "UPDATE outbox SET owner = ?1, next_at = CASE WHEN repeatable THEN min(next_at, ?2) ELSE ?3 END
         WHERE (status = 'pending' OR status = 'sending') AND status = 'sending' AND owner IS NOT ?1",
        params![owner, now, until],
    )?;
    if adopted > 0 {
        // A lane that is due too early is corrected by the next claim.
        c.execute("UPDATE outbox_lanes SET next_at = ?1 WHERE next_at > ?1", params![now])?;
    }
    Ok(changed(adopted))
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    vec![LANES.to_owned()]
}
