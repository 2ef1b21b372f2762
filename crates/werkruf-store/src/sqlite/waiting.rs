//! Turns that wait behind another turn: their cancellation, and the messages of canceled turns.
//!
//! A message that waits has no `seq` while another turn runs, because no message may come between a call and its result. If its
//! turn is canceled meanwhile, the message gets its `seq` when the next turn starts.

use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::insert::WriteContext;
use super::outbox_rows;
use super::row::{all, first};
use super::text::{Id, Stamp};
use super::turn_open::append;
use crate::{StoreError, TurnCancellation, crash};

/// Ends a turn that has not started. Returns the number of its last event, or `None` when the turn does not wait (any more).
pub(super) fn cancel(c: &Connection, tenant_id: Uuid, turn_id: Uuid, by: &TurnCancellation) -> Result<Option<i64>, StoreError> {
    let (tenant, turn, now) = (Id::from(tenant_id), Id::from(turn_id), Stamp::from(by.at));
    let mut statement = c.prepare_cached(
        "UPDATE turns SET status = 'canceled', cancel_requested = 1, error = ?3, error_code = ?4, updated_at = ?5, finished_at = ?5
         WHERE tenant_id = ?1 AND id = ?2 AND status = 'accepted' RETURNING conversation_id",
    )?;
    let ended = first(&mut statement, params![tenant, turn, by.error, by.error_code, now], |columns| columns.id_or_null())?;
    let Some(conversation_id) = ended else { return Ok(None) };
    let stream = Id::from(conversation_id.unwrap_or(turn_id));
    // This only allocates an event number, as commit A does; it does not touch the lease of the running turn.
    let seq = append(c, &tenant, &stream, 1)? - 1;
    WriteContext { tenant: &tenant, turn: &turn, now: &now }.events(c, &stream, std::slice::from_ref(&by.event), seq)?;
    outbox_rows::put(c, &tenant, &by.outbox, &now)?;
    crash::point("inside_cancel");
    Ok(Some(seq))
}

/// Messages without a `seq` whose turn has ended, oldest first. `own` is the waiting message of the next turn: only messages before it.
pub(super) fn unnumbered(c: &Connection, tenant: &Id, conversation: &Id, own: Option<&Id>) -> Result<Vec<Uuid>, StoreError> {
    let mut statement = c.prepare_cached(UNNUMBERED)?;
    all(&mut statement, params![tenant, conversation, own], |columns| columns.id())
}

/// Numbers these messages from `seq` on.
pub(super) fn assign_numbers(c: &Connection, conversation: &Id, messages: &[Uuid], seq: i64) -> Result<(), StoreError> {
    for (id, seq) in messages.iter().zip(seq..) {
        let numbered = c
            .prepare_cached("UPDATE messages SET seq = ?3 WHERE conversation_id = ?1 AND id = ?2 AND seq IS NULL")?
            .execute(params![conversation, Id::from(*id), seq])?;
        if numbered != 1 {
            return Err(StoreError::Broken(format!("message {id} is already numbered")));
        }
    }
    Ok(())
}

const UNNUMBERED: &str = "SELECT id FROM messages WHERE conversation_id = ?2 AND seq IS NULL AND tenant_id = ?1 AND (?3 IS NULL OR id < ?3)
    AND EXISTS (SELECT 1 FROM turns WHERE turns.tenant_id = ?1 AND turns.id = messages.turn_id AND turns.finished_at IS NOT NULL)
    ORDER BY id";

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    vec![UNNUMBERED.to_owned()]
}
