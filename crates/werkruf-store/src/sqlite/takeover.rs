//! Turns that somebody must go on with: found, claimed, given back.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::{Usage, Uuid};

use super::insert::lease_end;
use super::row::{self, all, first};
use super::text::Id;
use crate::{Fence, StoreError, TurnRow};

/// The owner of a lease whose turn has begun and is not over, with nobody at work on it: free to take over, closed to other turns.
pub(super) const LEFT: &str = "";

/// Read through the narrow index of turns without an end. One that waits for a person's word is left alone until a
/// decision has come for one of its calls.
pub(super) fn unfinished(c: &Connection, owner: &str) -> Result<Vec<TurnRow>, StoreError> {
    let mut statement = c.prepare_cached(&format!(
        "SELECT {} FROM turns INDEXED BY turns_open WHERE finished_at IS NULL AND (status <> 'awaiting_approval' OR cancel_requested = 1 OR EXISTS
           (SELECT 1 FROM approvals JOIN tool_calls ON tool_calls.tenant_id = approvals.tenant_id AND tool_calls.id = approvals.call_id
              WHERE approvals.tenant_id = turns.tenant_id AND approvals.turn_id = turns.id AND approvals.status <> 'pending'
                AND tool_calls.status = 'queued')) AND NOT EXISTS
           (SELECT 1 FROM leases WHERE leases.tenant_id = turns.tenant_id AND leases.owner NOT IN (?1, ?2)
              AND leases.conversation_id = coalesce(turns.conversation_id, turns.id)) ORDER BY id",
        row::TURN
    ))?;
    all(&mut statement, params![owner, LEFT], row::turn)
}

pub(super) fn take_over(c: &Connection, tenant_id: Uuid, turn_id: Uuid, owner: String, now: Timestamp) -> Result<Fence, StoreError> {
    let (tenant, turn) = (Id::from(tenant_id), Id::from(turn_id));
    let mut statement = c.prepare_cached("SELECT conversation_id FROM turns WHERE tenant_id = ?1 AND id = ?2 AND finished_at IS NULL")?;
    let moved = || StoreError::Moved { what: "turn", id: turn_id.to_string() };
    let stream_id = first(&mut statement, params![tenant, turn], |columns| columns.id_or_null())?.ok_or_else(moved)?.unwrap_or(turn_id);
    // A lease that still has an owner was lost by a task, not given back: that counts.
    c.prepare_cached(
        "UPDATE turns SET takeovers = takeovers + 1, stalled = stalled + 1 WHERE tenant_id = ?1 AND id = ?2 AND EXISTS
           (SELECT 1 FROM leases WHERE tenant_id = ?1 AND conversation_id = ?3 AND owner <> ?4)",
    )?
    .execute(params![tenant, turn, Id::from(stream_id), LEFT])?;
    // From here on a crash counts, also for a turn that had waited.
    let waited = c
        .prepare_cached("UPDATE turns SET status = 'acting' WHERE tenant_id = ?1 AND id = ?2 AND status = 'awaiting_approval'")?
        .execute(params![tenant, turn])?
        == 1;
    // One that waited begins like any other: nothing may come between the call and the result of a turn that was left.
    let mut statement = c.prepare_cached(
        "UPDATE leases SET owner = ?3, epoch = epoch + 1, expires_at = ?4
         WHERE tenant_id = ?1 AND conversation_id = ?2 AND (owner IS NULL OR (owner IN (?3, ?5) AND NOT ?6)) RETURNING epoch",
    )?;
    let epoch = first(&mut statement, params![tenant, Id::from(stream_id), owner, lease_end(now), LEFT, waited], |columns| columns.int())?;
    Ok(Fence { tenant_id, stream_id, epoch: epoch.ok_or(StoreError::Busy)?, owner })
}

pub(super) fn release(c: &Connection, fence: &Fence) -> Result<(), StoreError> {
    let released = c
        .prepare_cached("UPDATE leases SET owner = ?5 WHERE tenant_id = ?1 AND conversation_id = ?2 AND owner = ?3 AND epoch = ?4")?
        .execute(params![Id::from(fence.tenant_id), Id::from(fence.stream_id), fence.owner, fence.epoch, LEFT])?;
    if released == 1 { Ok(()) } else { Err(StoreError::Fenced) }
}

/// Ids sort by time, so a turn's bills all come after the turn: the walk begins there.
pub(super) fn usage(c: &Connection, tenant_id: Uuid, turn_id: Uuid) -> Result<Usage, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT coalesce(sum(tokens_prompt), 0), coalesce(sum(tokens_cached), 0), coalesce(sum(tokens_completion), 0),
           coalesce(sum(tokens_reasoning), 0), coalesce(sum(tokens_total), 0),
           CASE WHEN count(cost_nano_usd) = count(*) THEN sum(cost_nano_usd) END, count(*)
         FROM api_usage WHERE tenant_id = ?1 AND turn_id = ?2 AND id > ?2 AND operation = 'chat'",
    )?;
    let sums = first(&mut statement, params![Id::from(tenant_id), Id::from(turn_id)], |columns| {
        Ok(Usage {
            input_tokens: columns.int()?,
            cached_tokens: columns.int()?,
            output_tokens: columns.int()?,
            reasoning_tokens: columns.int()?,
            total_tokens: columns.int()?,
            cost_usd: columns.int_or_null()?.map(Usage::dollars),
            model_calls: columns.small()?,
        })
    })?;
    Ok(sums.unwrap_or_default())
}
