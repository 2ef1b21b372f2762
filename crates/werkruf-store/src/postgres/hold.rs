//! Ends turns that no process will resume: those of a person who is erased, and all of a database that was restored.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::types::Type;
use werkruf_contract::TurnStatus;

use super::PostgresStore;
use super::fault::Fault;
use super::flush::{DbRole, Statement, Transaction};
use super::param::{ms, p};
use super::row::{self, all, only};
use super::turn_write::{WRITE, write_document};
use crate::turn_closer::OWNER;
use crate::{CloseReason, Fence, HeldWork, MaintenanceError, StoreError, TurnCloser, TurnRow, UnfinishedTurn};

/// The lease ends with its transaction, so any short time will do.
const TTL_S: f64 = 15.0;

impl PostgresStore {
    /// Ends all pending work of a database that was restored, so that no server resumes it: for use after a restore, before any server
    /// starts. [`StoreError::Busy`] while a server has a valid lease, unless `force`.
    pub async fn hold_pending(&self, force: bool, closer: Arc<dyn TurnCloser>, now: Timestamp) -> Result<HeldWork, MaintenanceError> {
        let now = ms(now);
        let held = self.with(DbRole::System, move |transaction| {
            let closer = Arc::clone(&closer);
            Box::pin(async move { hold_all(transaction, force, &*closer, now).await })
        });
        Ok(held.await?)
    }
}

async fn hold_all(transaction: &Transaction, force: bool, closer: &dyn TurnCloser, now: Timestamp) -> Result<HeldWork, Fault> {
    transaction.query("SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)", &[]).await?;
    let valid = "SELECT count(*) FROM leases WHERE owner <> '' AND expires_at > clock_timestamp()";
    if !force && only(&transaction.query(valid, &[]).await?, |columns| columns.int())? > 0 {
        return Err(StoreError::Busy.into());
    }
    let at = [p(&now)];
    let approvals = "UPDATE approvals SET status = 'canceled', decided_at = $1 WHERE status = 'pending' RETURNING true";
    let restored =
        "INSERT INTO settings (name, value) VALUES ('restored_at', to_char($1 AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'))
                    ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    let done = transaction
        .run(&[
            Statement { sql: "UPDATE leases SET owner = NULL WHERE owner IS NOT NULL", params: &[] },
            Statement { sql: approvals, params: &at },
            Statement { sql: restored, params: &at },
        ])
        .await?;
    let count = |place: usize| done.get(place).map_or(0, |rows| changed(rows.len()));
    let mut held = HeldWork { approvals: count(1), ..HeldWork::default() };
    // Turns that had started come first: messages of waiting turns get their seq after the results of these.
    let sql = format!("SELECT {} FROM turns WHERE finished_at IS NULL ORDER BY status = 'accepted', id", row::TURN);
    for turn in all(&transaction.query(&sql, &[]).await?, row::turn)? {
        held.calls += end_turn(transaction, turn, CloseReason::Restored, closer, now).await?;
        held.turns += 1;
    }
    // After the turns: what the ends of turns announce is held too. A row that was being sent may have arrived.
    let rows = "UPDATE outbox SET status = 'held', owner = NULL, updated_at = $1,
                  ambiguous = ambiguous OR (status = 'sending' AND NOT repeatable) WHERE status IN ('pending', 'sending') RETURNING true";
    let done = transaction.run(&[Statement { sql: rows, params: &at }, Statement { sql: "DELETE FROM outbox_lanes", params: &[] }]).await?;
    held.outbox = done.first().map_or(0, |rows| changed(rows.len()));
    Ok(held)
}

pub(super) fn changed(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

/// Ends one turn that no process holds; returns how many of its calls were open.
pub(super) async fn end_turn(
    transaction: &Transaction,
    turn: TurnRow,
    reason: CloseReason,
    closer: &dyn TurnCloser,
    now: Timestamp,
) -> Result<u64, Fault> {
    let (ttl, key) = ((&TTL_S as _, Type::FLOAT8), [p(&turn.tenant_id), p(&turn.id)]);
    let [tenant, id] = key.clone();
    let claimed = match turn.status {
        TurnStatus::Accepted => {
            let sql = "SELECT * FROM start_turn($1, $2, $3, $4, make_interval(secs => $5), false)";
            transaction.query(sql, &[tenant, id, p(&OWNER), p(&now), ttl.clone()]).await?
        }
        _ => {
            let sql = "SELECT * FROM take_over($1, $2, $3, make_interval(secs => $4), false)";
            transaction.query(sql, &[tenant, id, p(&OWNER), ttl.clone()]).await?
        }
    };
    let (stream_id, epoch) = only(&claimed, |columns| Ok((columns.id()?, columns.int()?)))?;
    let fence = Fence { tenant_id: turn.tenant_id, stream_id, owner: OWNER.to_owned(), epoch };
    let calls = format!("SELECT {} FROM tool_calls WHERE tenant_id = $1 AND turn_id = $2 ORDER BY step, output_index", row::CALL);
    let messages = format!(
        "SELECT {} FROM messages WHERE tenant_id = $1 AND conversation_id = $3 AND turn_id = $2 AND seq IS NOT NULL ORDER BY seq",
        row::MESSAGE
    );
    let [tenant, id] = key.clone();
    let of_conversation = [tenant, id, p(&turn.conversation_id)];
    let found = transaction.run(&[Statement { sql: &calls, params: &key }, Statement { sql: &messages, params: &of_conversation }]).await?;
    let [calls, messages] = &found[..] else { return Err(StoreError::Broken("a result is missing".to_owned()).into()) };
    let (calls, messages) = (all(calls, row::call)?, all(messages, row::message)?);
    let mut write = closer.close(UnfinishedTurn { turn, calls, messages }, fence, reason, now)?;
    write.release_reservations = true;
    let open = changed(write.ends.len());
    let doc = write_document(&write)?;
    transaction.query(WRITE, &[(&doc, Type::TEXT), ttl]).await?;
    Ok(open)
}
