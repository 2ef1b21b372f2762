//! Ends turns that will not be resumed, on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::{TurnStatus, Uuid};

use super::row::{self, all};
use super::text::{Id, Stamp};
use super::{outbox_rows, takeover, turn_open, turn_write};
use crate::turn_closer::OWNER;
use crate::{CallRow, CloseReason, HeldWork, MessageRow, StoreError, TurnCloser, TurnRow, UnfinishedTurn};

/// Ends everything that a restored database would otherwise resume.
pub(super) fn hold_all(c: &Connection, closer: &dyn TurnCloser, now: Timestamp) -> Result<HeldWork, StoreError> {
    let stamp = Stamp::from(now);
    c.execute("UPDATE leases SET owner = NULL WHERE owner IS NOT NULL", [])?;
    let approvals = c.execute("UPDATE approvals SET status = 'canceled', decided_at = ?1 WHERE status = 'pending'", params![stamp])?;
    let mut held = HeldWork { approvals: changed(approvals), ..HeldWork::default() };
    // Started turns come first: a message that waits behind one gets its `seq` after the results of that turn.
    let sql = format!("SELECT {} FROM turns WHERE finished_at IS NULL ORDER BY status = 'accepted', id", row::TURN);
    for turn in all(&mut c.prepare(&sql)?, [], row::turn)? {
        held.calls += end_turn(c, turn, CloseReason::Restored, closer, now)?;
        held.turns += 1;
    }
    // After the turns: what the ends of turns announce is held too.
    held.outbox = outbox_rows::hold(c, &stamp)?;
    Ok(held)
}

pub(super) fn changed(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

/// Ends one turn that no process runs. Returns how many of its calls were open.
pub(super) fn end_turn(
    c: &Connection,
    turn: TurnRow,
    reason: CloseReason,
    closer: &dyn TurnCloser,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let fence = match turn.status {
        TurnStatus::Accepted => turn_open::start(c, turn.tenant_id, turn.id, OWNER, now)?,
        _ => takeover::take_over(c, turn.tenant_id, turn.id, OWNER.to_owned(), now)?,
    };
    let messages = match turn.conversation_id {
        Some(conversation_id) => messages_of(c, &turn, conversation_id)?,
        None => Vec::new(),
    };
    let calls = calls_of(c, &turn)?;
    let mut write = closer.close(UnfinishedTurn { turn, calls, messages }, fence, reason, now)?;
    write.release_reservations = true;
    let open = changed(write.ends.len());
    turn_write::write(c, &write)?;
    Ok(open)
}

fn calls_of(c: &Connection, turn: &TurnRow) -> Result<Vec<CallRow>, StoreError> {
    let sql = format!("SELECT {} FROM tool_calls WHERE tenant_id = ?1 AND turn_id = ?2 ORDER BY step, output_index", row::CALL);
    all(&mut *c.prepare_cached(&sql)?, params![Id::from(turn.tenant_id), Id::from(turn.id)], row::call)
}

fn messages_of(c: &Connection, turn: &TurnRow, conversation_id: Uuid) -> Result<Vec<MessageRow>, StoreError> {
    let sql = format!(
        "SELECT {} FROM messages WHERE tenant_id = ?1 AND conversation_id = ?2 AND turn_id = ?3 AND seq IS NOT NULL ORDER BY seq",
        row::MESSAGE
    );
    all(&mut *c.prepare_cached(&sql)?, params![Id::from(turn.tenant_id), Id::from(conversation_id), Id::from(turn.id)], row::message)
}
