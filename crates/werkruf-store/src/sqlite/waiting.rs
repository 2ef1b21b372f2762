//! Turns that wait behind another: ended before they begin, and what is left of them.
//!
//! A message that waited has no place while another turn runs, because nothing may stand between a call and its result. If its
//! turn is canceled meanwhile, the message gets its place when the next turn begins.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::insert::Place;
use super::row::{all, first};
use super::text::{Id, Stamp};
use super::turn_open::append;
use crate::{NewEvent, StoreError, crash};

/// Ends a turn that has not begun. The number of its last event; `None` when it does not wait (any more).
pub(super) fn cancel(
    c: &Connection,
    tenant_id: Uuid,
    turn_id: Uuid,
    error: (&str, &str),
    event: &NewEvent,
    now: Timestamp,
) -> Result<Option<i64>, StoreError> {
    let (tenant, turn, now) = (Id::from(tenant_id), Id::from(turn_id), Stamp::from(now));
    let mut statement = c.prepare_cached(
        "UPDATE turns SET status = 'canceled', cancel_requested = 1, error = ?3, error_code = ?4, updated_at = ?5, finished_at = ?5
         WHERE tenant_id = ?1 AND id = ?2 AND status = 'accepted' RETURNING conversation_id",
    )?;
    let ended = first(&mut statement, params![tenant, turn, error.0, error.1, now], |columns| columns.id_or_null())?;
    let Some(conversation_id) = ended else { return Ok(None) };
    let stream = Id::from(conversation_id.unwrap_or(turn_id));
    // Nobody's lease is touched: only a number is drawn, as for the event that began the turn.
    let seq = append(c, &tenant, &stream, 1)? - 1;
    Place { tenant: &tenant, turn: &turn, now: &now }.events(c, &stream, std::slice::from_ref(event), seq)?;
    crash::point("inside_cancel");
    Ok(Some(seq))
}

/// Messages without a place whose turn has ended, oldest first; only those before `own`, where the next turn has one that waited.
pub(super) fn left_behind(c: &Connection, tenant: &Id, conversation: &Id, own: Option<&Id>) -> Result<Vec<Uuid>, StoreError> {
    let mut statement = c.prepare_cached(LEFT_BEHIND)?;
    all(&mut statement, params![tenant, conversation, own], |columns| columns.id())
}

/// They get their places from `seq` on.
pub(super) fn place(c: &Connection, conversation: &Id, messages: &[Uuid], seq: i64) -> Result<(), StoreError> {
    for (id, seq) in messages.iter().zip(seq..) {
        let placed = c
            .prepare_cached("UPDATE messages SET seq = ?3 WHERE conversation_id = ?1 AND id = ?2 AND seq IS NULL")?
            .execute(params![conversation, Id::from(*id), seq])?;
        if placed != 1 {
            return Err(StoreError::Broken(format!("message {id} has no place to wait at")));
        }
    }
    Ok(())
}

const LEFT_BEHIND: &str =
    "SELECT id FROM messages WHERE conversation_id = ?2 AND seq IS NULL AND tenant_id = ?1 AND (?3 IS NULL OR id < ?3)
    AND EXISTS (SELECT 1 FROM turns WHERE turns.tenant_id = ?1 AND turns.id = messages.turn_id AND turns.finished_at IS NOT NULL)
    ORDER BY id";

/// The statements whose plan a test looks at.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    vec![LEFT_BEHIND.to_owned()]
}
