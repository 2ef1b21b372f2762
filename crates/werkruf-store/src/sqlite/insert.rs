//! The inserts that opening and writing a turn share.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::row::first;
use super::text::{Id, Stamp, id_or_null, stamp_or_null};
use crate::{CallRow, NewEvent, NewMessage, StoreError};

/// The tenant, turn and time of the rows that are written.
pub(super) struct WriteContext<'a> {
    pub(super) tenant: &'a Id,
    pub(super) turn: &'a Id,
    pub(super) now: &'a Stamp,
}

impl WriteContext<'_> {
    /// `seq` is `None` while the message waits.
    pub(super) fn message(&self, c: &Connection, conversation: &Id, message: &NewMessage, seq: Option<i64>) -> Result<(), StoreError> {
        self::message(c, (self.tenant, conversation, Some(self.turn)), message, seq, self.now)
    }

    /// Says that the conversation has new messages. A turn does so when it begins and when it ends or waits, not at every step: the row
    /// is large when its state is. A clock that was set back does not move the time back.
    pub(super) fn touch(&self, c: &Connection, conversation_id: Option<Uuid>) -> Result<(), StoreError> {
        c.prepare_cached("UPDATE conversations SET updated_at = ?3 WHERE tenant_id = ?1 AND id = ?2 AND updated_at < ?3")?
            .execute(params![self.tenant, id_or_null(conversation_id), self.now])?;
        Ok(())
    }

    /// Inserts the events with numbers from `first` on, and returns the numbers.
    pub(super) fn events(&self, c: &Connection, stream: &Id, events: &[NewEvent], first: i64) -> Result<Vec<i64>, StoreError> {
        let mut seqs = Vec::with_capacity(events.len());
        for (event, seq) in events.iter().zip(first..) {
            c.prepare_cached(
                "INSERT INTO events (conversation_id, seq, tenant_id, turn_id, type, data, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![stream, seq, self.tenant, self.turn, event.kind.as_str(), event.data, self.now])?;
            seqs.push(seq);
        }
        Ok(seqs)
    }
}

/// Inserts a message of a tenant and conversation; an imported message has no turn.
pub(super) fn message(
    c: &Connection,
    (tenant, conversation, turn): (&Id, &Id, Option<&Id>),
    message: &NewMessage,
    seq: Option<i64>,
    now: &Stamp,
) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role, tool_calls, tool_call_id, tool_name,
           status, metadata, seq, turn_id, tokens) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute(params![
        Id::from(message.id),
        tenant,
        now,
        conversation,
        message.content,
        message.role,
        message.tool_calls,
        message.tool_call_id,
        message.tool_name,
        message.status,
        message.metadata.as_deref().unwrap_or("{}"),
        seq,
        turn,
        message.tokens,
    ])?;
    Ok(())
}

/// Inserts a call row, in the column order of [`super::row::CALL`].
pub(super) fn call(c: &Connection, call: &CallRow) -> Result<(), StoreError> {
    c.prepare_cached(concat!(
        "INSERT INTO tool_calls (id, tenant_id, conversation_id, turn_id, step, output_index, response_id, kind, runner, tool_name, call_id, ",
        "item_id, status, request, raw_arguments, repairs, response, error, error_type, error_code, error_detail, effect, attempt, ",
        "cache_hit, dedupe_key, dedupe_of, retry_of, idempotency_key, permission, context, trace_id, run_id, ingestion_run_id, ",
        "workflow_id, case_id, meta, taint, created_at, updated_at, started_at, finished_at) ",
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ",
        "?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41)"
    ))?
    .execute(params![
        Id::from(call.id),
        Id::from(call.tenant_id),
        id_or_null(call.conversation_id),
        Id::from(call.turn_id),
        call.step,
        call.output_index,
        call.response_id,
        call.kind.as_str(),
        call.runner.as_str(),
        call.tool_name,
        call.call_id,
        call.item_id,
        call.status.as_str(),
        call.request,
        call.raw_arguments,
        call.repairs,
        call.response,
        call.error,
        call.error_type,
        call.error_code,
        call.error_detail,
        call.effect.as_str(),
        call.attempt,
        call.cache_hit,
        call.dedupe_key,
        id_or_null(call.dedupe_of),
        id_or_null(call.retry_of),
        call.idempotency_key,
        call.permission,
        call.context,
        call.trace_id,
        call.run_id,
        call.ingestion_run_id,
        call.workflow_id,
        call.case_id,
        call.meta,
        call.taint,
        Stamp::from(call.created_at),
        Stamp::from(call.updated_at),
        stamp_or_null(call.started_at),
        stamp_or_null(call.finished_at),
    ])?;
    Ok(())
}

/// A call row belongs to the turn that writes it; another one is a defect of the caller.
pub(super) fn check_call_turn(call: &CallRow, tenant_id: Uuid, turn_id: Uuid) -> Result<(), StoreError> {
    if call.tenant_id == tenant_id && call.turn_id == turn_id {
        return Ok(());
    }
    Err(StoreError::Broken(format!("call {} was written by turn {turn_id}, to which it does not belong", call.id)))
}

/// How long a lease lasts after a write. SQLite stores the time but never checks it, because one process owns the file.
const LEASE_S: i64 = 15;

/// The counters of a lease.
pub(super) struct Lease {
    pub(super) epoch: i64,
    pub(super) next_event: i64,
    pub(super) next_message: i64,
}

/// The lease of a stream that has one.
pub(super) fn lease(c: &Connection, tenant: &Id, stream: &Id) -> Result<Lease, StoreError> {
    let mut statement =
        c.prepare_cached("SELECT epoch, next_event_seq, next_message_seq FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2")?;
    let found = first(&mut statement, params![tenant, stream], |columns| {
        Ok(Lease { epoch: columns.int()?, next_event: columns.int()?, next_message: columns.int()? })
    })?;
    found.ok_or_else(|| StoreError::Broken("a lease row vanished".to_owned()))
}

/// When a lease that is renewed now expires.
pub(super) fn lease_end(now: Timestamp) -> Stamp {
    Stamp::from(now.checked_add(jiff::SignedDuration::from_secs(LEASE_S)).unwrap_or(now))
}

/// A count as a parameter.
pub(super) fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
