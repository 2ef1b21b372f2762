//! Commits B, C and D: the writes of a running turn, under its fence.

use rusqlite::{Connection, params};
use werkruf_contract::{State, Uuid, json_bytes, merge_state};

use super::insert::{WriteContext, call, check_call_turn, count, lease, lease_end};
use super::outbox_rows;
use super::row::first;
use super::text::{Id, Stamp};
use super::turn_open::message_without_conversation;
use super::usage::put_usage_row;
use crate::{
    CallEnd, CallRetry, CallStart, ProviderCallUpdate, Replacement, StoreError, TurnChange, TurnWrite, UsageOwner, Written, crash,
};

/// Writes all of it, or nothing: a lost fence or a row in an unexpected state is an error, and the job is rolled back.
pub(super) fn write(c: &Connection, write: &TurnWrite) -> Result<Written, StoreError> {
    let (tenant, turn, now) = (Id::from(write.fence.tenant_id), Id::from(write.turn_id), Stamp::from(write.now));
    let stream = Id::from(write.fence.stream_id);
    let context = WriteContext { tenant: &tenant, turn: &turn, now: &now };
    let (next_event, next_message) = renew(c, write, &tenant, &stream)?;
    if !write.messages.is_empty() {
        let conversation = write.conversation_id.map(Id::from).ok_or_else(|| message_without_conversation(write.turn_id))?;
        for (message, seq) in write.messages.iter().zip(next_message - count(write.messages.len())..) {
            context.message(c, &conversation, message, Some(seq))?;
        }
    }
    for result in &write.replacements {
        replace(c, &context, result)?;
    }
    // A state patch below writes the same row with the same time.
    if write.releases_lease() && write.state_patches.is_empty() {
        context.touch(c, write.conversation_id)?;
    }
    for row in &write.calls {
        check_call_turn(row, write.fence.tenant_id, write.turn_id)?;
        call(c, row)?;
    }
    for approval in &write.approvals {
        context.approval(c, write.conversation_id, approval)?;
    }
    for call_id in &write.withdrawn {
        context.withdraw(c, *call_id)?;
    }
    for change in &write.starts {
        start_call(c, &context, change)?;
    }
    for change in &write.retries {
        retry_call(c, &context, change)?;
    }
    for change in &write.provider_updates {
        update_provider_call(c, &context, change)?;
    }
    for change in &write.ends {
        end_call(c, &context, change)?;
    }
    for usage in &write.usage {
        let owner = UsageOwner {
            tenant_id: write.fence.tenant_id,
            user_id: write.user_id.clone(),
            conversation_id: write.conversation_id,
            turn_id: Some(write.turn_id),
        };
        put_usage_row(c, &owner, usage, write.now)?;
    }
    if let Some(conversation_id) = write.conversation_id {
        write_counts_and_summary(c, &tenant, conversation_id, write)?;
    }
    let event_seqs = context.events(c, &stream, &write.events, next_event - count(write.events.len()))?;
    outbox_rows::put(c, &tenant, &write.outbox, &now)?;
    let state = match write.conversation_id {
        Some(id) if !write.state_patches.is_empty() => merge(c, &tenant, id, &write.state_patches, usize::MAX, &now)?,
        Some(_) | None => None,
    };
    let cancel_requested = match &write.turn {
        Some(change) => change_turn(c, &context, write.turn_id, change)?,
        None => cancel_requested(c, &context)?,
    };
    if let Some(step) = write.abandoned_step {
        abandon_step(c, &context, write.turn_id, step)?;
    }
    if write.turn.is_none() && write.events.iter().any(|event| event.kind.settles_text()) {
        clear_partial(c, &context)?;
    }
    crash::point("inside_write");
    Ok(Written { event_seqs, state, cancel_requested, over_budget: None })
}

/// Allocates the numbers and checks the ownership; a turn that ends or waits also releases the lease. There is no `RETURNING`: SQLite
/// builds and drops a table for its rows each time, which costs more than a second query.
fn renew(c: &Connection, write: &TurnWrite, tenant: &Id, stream: &Id) -> Result<(i64, i64), StoreError> {
    let mut statement = c.prepare_cached(
        "UPDATE leases SET next_event_seq = next_event_seq + ?5, next_message_seq = next_message_seq + ?6, expires_at = ?7,
           owner = CASE WHEN ?8 THEN NULL ELSE owner END
         WHERE tenant_id = ?1 AND conversation_id = ?2 AND owner = ?3 AND epoch = ?4",
    )?;
    let numbers = params![
        tenant,
        stream,
        write.fence.owner,
        write.fence.epoch,
        count(write.events.len()),
        count(write.messages.len()),
        lease_end(write.now),
        write.releases_lease(),
    ];
    if statement.execute(numbers)? != 1 {
        return Err(StoreError::Fenced);
    }
    let lease = lease(c, tenant, stream)?;
    Ok((lease.next_event, lease.next_message))
}

/// The result keeps the `seq` of its placeholder: no message ever comes between a call and its result.
fn replace(c: &Connection, context: &WriteContext<'_>, result: &Replacement) -> Result<(), StoreError> {
    let replaced = c
        .prepare_cached(
            "UPDATE messages SET content = ?4, status = ?5, tokens = NULL, metadata = coalesce(?6, metadata)
             WHERE tenant_id = ?1 AND turn_id = ?2 AND tool_call_id = ?3 AND status = 'pending'",
        )?
        .execute(params![context.tenant, context.turn, result.tool_call_id, result.content, result.status, result.metadata])?;
    if replaced == 1 { Ok(()) } else { Err(StoreError::Moved { what: "message", id: result.tool_call_id.clone() }) }
}

fn start_call(c: &Connection, context: &WriteContext<'_>, start: &CallStart) -> Result<(), StoreError> {
    let started = c
        .prepare_cached(
            // A call that waited for an identical call and now runs itself has no idempotency key yet.
            "UPDATE tool_calls SET status = 'running', attempt = 1, started_at = ?4, updated_at = ?5, dedupe_of = NULL,
               idempotency_key = coalesce(idempotency_key, id)
             WHERE tenant_id = ?1 AND id = ?2 AND turn_id = ?3 AND status = 'queued'",
        )?
        .execute(params![context.tenant, Id::from(start.id), context.turn, Stamp::from(start.started_at), context.now])?;
    exactly_one(started, start.id)
}

fn retry_call(c: &Connection, context: &WriteContext<'_>, retry: &CallRetry) -> Result<(), StoreError> {
    let id = Id::from(retry.id);
    let again = c
        .prepare_cached(
            "UPDATE tool_calls SET attempt = attempt + 1, started_at = ?5, updated_at = ?6
             WHERE tenant_id = ?1 AND id = ?2 AND turn_id = ?3 AND status = 'running' AND attempt = ?4",
        )?
        .execute(params![context.tenant, id, context.turn, retry.attempt, Stamp::from(retry.next_started_at), context.now])?;
    exactly_one(again, retry.id)?;
    c.prepare_cached(
        "INSERT INTO call_attempts (tenant_id, call_id, attempt, started_at, finished_at, status, error)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        context.tenant,
        id,
        retry.attempt,
        Stamp::from(retry.started_at),
        Stamp::from(retry.finished_at),
        retry.status.as_str(),
        retry.error,
    ])?;
    Ok(())
}

fn update_provider_call(c: &Connection, context: &WriteContext<'_>, update: &ProviderCallUpdate) -> Result<(), StoreError> {
    let changed = c
        .prepare_cached(
            "UPDATE tool_calls SET tool_name = ?4, response_id = coalesce(?5, response_id), item_id = coalesce(?6, item_id),
               call_id = coalesce(?7, call_id), request = coalesce(?8, request), raw_arguments = coalesce(?9, raw_arguments), updated_at = ?10
             WHERE tenant_id = ?1 AND id = ?2 AND turn_id = ?3 AND status = 'running'",
        )?
        .execute(params![
            context.tenant,
            Id::from(update.id),
            context.turn,
            update.tool_name,
            update.response_id,
            update.item_id,
            update.call_id,
            update.request,
            update.raw_arguments,
            context.now,
        ])?;
    exactly_one(changed, update.id)
}

/// Writes the token counts of messages, and the summary. A count of a deleted message is ignored.
fn write_counts_and_summary(c: &Connection, tenant: &Id, conversation_id: Uuid, write: &TurnWrite) -> Result<(), StoreError> {
    let conversation = Id::from(conversation_id);
    for (message_id, tokens) in &write.counted {
        c.prepare_cached("UPDATE messages SET tokens = ?4 WHERE tenant_id = ?1 AND conversation_id = ?2 AND id = ?3")?.execute(params![
            tenant,
            conversation,
            Id::from(*message_id),
            tokens
        ])?;
    }
    let Some(summary) = &write.summary else { return Ok(()) };
    let written = c
        .prepare_cached(
            "UPDATE conversations SET summary = ?3, summary_until = ?4, summary_untrusted = ?5 WHERE tenant_id = ?1 AND id = ?2",
        )?
        .execute(params![tenant, conversation, summary.text, summary.until, summary.untrusted])?;
    if written == 1 { Ok(()) } else { Err(StoreError::Moved { what: "conversation", id: conversation_id.to_string() }) }
}

/// Only advances the step number and keeps `stalled`: a turn that crashes every process must still be recognized by its takeovers.
fn abandon_step(c: &Connection, context: &WriteContext<'_>, turn_id: Uuid, step: u32) -> Result<(), StoreError> {
    let moved = c
        .prepare_cached(
            "UPDATE turns SET step = ?3, updated_at = ?4 WHERE tenant_id = ?1 AND id = ?2 AND step < ?3 AND finished_at IS NULL",
        )?
        .execute(params![context.tenant, context.turn, step, context.now])?;
    if moved == 1 { Ok(()) } else { Err(StoreError::Moved { what: "turn", id: turn_id.to_string() }) }
}

fn end_call(c: &Connection, context: &WriteContext<'_>, end: &CallEnd) -> Result<(), StoreError> {
    if !end.status.is_terminal() {
        return Err(StoreError::Broken(format!("call {} cannot end as {}", end.id, end.status)));
    }
    let ended = c
        .prepare_cached(
            "UPDATE tool_calls SET status = ?4, response = ?5, meta = ?6, error = ?7, error_type = ?8, error_code = ?9,
               error_detail = ?10, cache_hit = ?11, finished_at = ?12, updated_at = ?13, permission = coalesce(?14, permission)
             WHERE tenant_id = ?1 AND id = ?2 AND turn_id = ?3 AND status IN ('queued', 'running')",
        )?
        .execute(params![
            context.tenant,
            Id::from(end.id),
            context.turn,
            end.status.as_str(),
            end.response,
            end.meta,
            end.error,
            end.error_type,
            end.error_code,
            end.error_detail,
            end.cache_hit,
            Stamp::from(end.finished_at),
            context.now,
            end.permission,
        ])?;
    exactly_one(ended, end.id)
}

fn exactly_one(changed: usize, id: Uuid) -> Result<(), StoreError> {
    if changed == 1 { Ok(()) } else { Err(StoreError::Moved { what: "call", id: id.to_string() }) }
}

/// Changes the turn row. Returns whether the turn has a cancel request.
fn change_turn(c: &Connection, context: &WriteContext<'_>, turn_id: Uuid, change: &TurnChange) -> Result<bool, StoreError> {
    let mut statement = c.prepare_cached(
        // Written with AND: SQLite would build a table for a list of three values, for each turn.
        "UPDATE turns SET status = ?3, step = ?4, stalled = 0, partial = NULL, error = coalesce(?5, error), error_code = coalesce(?6, error_code),
           message = coalesce(?7, message), updated_at = ?8, finished_at = CASE WHEN ?9 THEN ?8 END, transcript_digest = coalesce(transcript_digest, ?10)
         WHERE tenant_id = ?1 AND id = ?2 AND status <> 'completed' AND status <> 'failed' AND status <> 'canceled'",
    )?;
    let (error, code) = change.error.as_ref().map(|(error, code)| (error, code)).unzip();
    let values = params![
        context.tenant,
        context.turn,
        change.status.as_str(),
        change.step,
        error,
        code,
        change.message,
        context.now,
        change.status.is_terminal(),
        change.transcript_digest,
    ];
    if statement.execute(values)? != 1 {
        return Err(StoreError::Moved { what: "turn", id: turn_id.to_string() });
    }
    cancel_requested(c, context)
}

/// Clears the checkpoint of a discarded partial text; in most cases there is none.
fn clear_partial(c: &Connection, context: &WriteContext<'_>) -> Result<(), StoreError> {
    c.prepare_cached("UPDATE turns SET partial = NULL WHERE tenant_id = ?1 AND id = ?2 AND partial IS NOT NULL")?
        .execute(params![context.tenant, context.turn])?;
    Ok(())
}

fn cancel_requested(c: &Connection, context: &WriteContext<'_>) -> Result<bool, StoreError> {
    let mut statement = c.prepare_cached("SELECT cancel_requested FROM turns WHERE tenant_id = ?1 AND id = ?2")?;
    Ok(first(&mut statement, params![context.tenant, context.turn], |columns| columns.flag())?.unwrap_or(false))
}

/// Merges the patches in order and writes once; `None` without such a conversation.
pub(super) fn merge(
    c: &Connection,
    tenant: &Id,
    id: Uuid,
    patches: &[State],
    max_bytes: usize,
    now: &Stamp,
) -> Result<Option<State>, StoreError> {
    let conversation = Id::from(id);
    let mut statement = c.prepare_cached("SELECT state FROM conversations WHERE tenant_id = ?1 AND id = ?2")?;
    let Some(mut state) = first(&mut statement, params![tenant, conversation], |columns| columns.state())? else {
        return Ok(None);
    };
    let before = if max_bytes == usize::MAX { 0 } else { json_bytes(&state) };
    for patch in patches {
        merge_state(&mut state, patch.clone());
    }
    let text = serde_json::to_string(&state).map_err(|error| StoreError::Broken(error.to_string()))?;
    if text.len() > max_bytes.max(before) {
        return Err(StoreError::StateTooLarge);
    }
    c.prepare_cached("UPDATE conversations SET state = ?3, updated_at = max(updated_at, ?4) WHERE tenant_id = ?1 AND id = ?2")?
        .execute(params![tenant, conversation, text, now])?;
    Ok(Some(state))
}
