//! Finds unfinished turns, takes over their leases, and releases them.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::insert::lease_end;
use super::row::{self, all, first};
use super::text::Id;
use crate::{Fence, StoreError, TurnRow};

/// The owner of a lease whose turn has started and not ended, while no process runs it. The turn may be taken over; other turns of
/// the conversation may not start.
pub(super) const ABANDONED: &str = "";

/// Read through the small index of unfinished turns. A turn that waits for an approval is left out until there is a
/// decision for one of its calls; where the provider runs that call, until there is one for each.
pub(super) fn unfinished(c: &Connection, owner: &str) -> Result<Vec<TurnRow>, StoreError> {
    let mut statement = c.prepare_cached(&format!(
        "SELECT {} FROM turns INDEXED BY turns_open WHERE finished_at IS NULL AND (status <> 'awaiting_approval' OR cancel_requested = 1 OR EXISTS
           (SELECT 1 FROM approvals JOIN tool_calls ON tool_calls.tenant_id = approvals.tenant_id AND tool_calls.id = approvals.call_id
              WHERE approvals.tenant_id = turns.tenant_id AND approvals.turn_id = turns.id AND approvals.status <> 'pending'
                AND tool_calls.status = 'queued' AND (tool_calls.runner <> 'provider' OR NOT EXISTS
                  (SELECT 1 FROM approvals AS others WHERE others.tenant_id = turns.tenant_id AND others.turn_id = turns.id
                     AND others.status = 'pending')))) AND NOT EXISTS
           (SELECT 1 FROM leases WHERE leases.tenant_id = turns.tenant_id AND leases.owner NOT IN (?1, ?2)
              AND leases.conversation_id = coalesce(turns.conversation_id, turns.id)) ORDER BY id",
        row::TURN
    ))?;
    all(&mut statement, params![owner, ABANDONED], row::turn)
}

pub(super) fn take_over(c: &Connection, tenant_id: Uuid, turn_id: Uuid, owner: String, now: Timestamp) -> Result<Fence, StoreError> {
    let (tenant, turn) = (Id::from(tenant_id), Id::from(turn_id));
    let mut statement = c.prepare_cached("SELECT conversation_id FROM turns WHERE tenant_id = ?1 AND id = ?2 AND finished_at IS NULL")?;
    let moved = || StoreError::Moved { what: "turn", id: turn_id.to_string() };
    let stream_id = first(&mut statement, params![tenant, turn], |columns| columns.id_or_null())?.ok_or_else(moved)?.unwrap_or(turn_id);
    // A lease that still has an owner was not released by its task, so this counts as a takeover.
    c.prepare_cached(
        "UPDATE turns SET takeovers = takeovers + 1, stalled = stalled + 1 WHERE tenant_id = ?1 AND id = ?2 AND EXISTS
           (SELECT 1 FROM leases WHERE tenant_id = ?1 AND conversation_id = ?3 AND owner <> ?4)",
    )?
    .execute(params![tenant, turn, Id::from(stream_id), ABANDONED])?;
    // From here on a crash counts as a takeover, also for a turn that waited for an approval.
    let waited = c
        .prepare_cached("UPDATE turns SET status = 'acting' WHERE tenant_id = ?1 AND id = ?2 AND status = 'awaiting_approval'")?
        .execute(params![tenant, turn])?
        == 1;
    // A turn that waited needs a free lease, as a new turn does: no message may come between a call and its result in an abandoned turn.
    let mut statement = c.prepare_cached(
        "UPDATE leases SET owner = ?3, epoch = epoch + 1, expires_at = ?4
         WHERE tenant_id = ?1 AND conversation_id = ?2 AND (owner IS NULL OR (owner IN (?3, ?5) AND NOT ?6)) RETURNING epoch",
    )?;
    let epoch =
        first(&mut statement, params![tenant, Id::from(stream_id), owner, lease_end(now), ABANDONED, waited], |columns| columns.int())?;
    Ok(Fence { tenant_id, stream_id, epoch: epoch.ok_or(StoreError::Busy)?, owner })
}

pub(super) fn release(c: &Connection, fence: &Fence) -> Result<(), StoreError> {
    let released = c
        .prepare_cached("UPDATE leases SET owner = ?5 WHERE tenant_id = ?1 AND conversation_id = ?2 AND owner = ?3 AND epoch = ?4")?
        .execute(params![Id::from(fence.tenant_id), Id::from(fence.stream_id), fence.owner, fence.epoch, ABANDONED])?;
    if released == 1 { Ok(()) } else { Err(StoreError::Fenced) }
}
