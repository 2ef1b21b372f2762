//! Commit A, and the start of a turn that waited.

use rusqlite::{Connection, params};
use werkruf_contract::{State, TurnStatus, Uuid};

use super::budget_counters::CounterChanges;
use super::client_requests;
use super::insert::{Lease, WriteContext, call, check_call_turn, count, lease, lease_end};
use super::outbox_rows;
use super::row::first;
use super::text::{Id, Stamp, id_or_null};
use super::waiting;
use crate::{ConversationRef, Fence, InboxEntry, OpenTurn, Opened, StoreError, TurnKind, crash};

/// Writes inbox, conversation, lease, turn, message, calls and events, or nothing.
pub(super) fn open(c: &Connection, open: &OpenTurn) -> Result<Opened, StoreError> {
    let (tenant, turn, now) = (Id::from(open.tenant_id), Id::from(open.turn_id), Stamp::from(open.now));
    let (conversation_id, stored) = match &open.conversation {
        ConversationRef::New { id, .. } => (Some(*id), None),
        ConversationRef::None => (None, None),
        ConversationRef::Existing { id, any_user } => {
            let Some(found) = existing(c, &tenant, *id, (!any_user).then_some(open.user_id.as_str()))? else {
                // A second copy is reported as a duplicate even where the user can no longer see the conversation.
                return copy_or(c, open, &tenant, &now, Opened::UnknownConversation);
            };
            (Some(*id), Some(found))
        }
    };
    if let (Some(after), Some(id)) = (open.expected_last_turn, conversation_id)
        && client_requests::newest(c, &tenant, &Id::from(id))? != Some(after)
    {
        return copy_or(c, open, &tenant, &now, Opened::Superseded);
    }
    if let Some(call_id) = earlier_retry(c, &tenant, open)? {
        return Ok(Opened::Retried { call_id });
    }
    // Read before anything is written: a refused turn leaves no row.
    let mut changes = CounterChanges::new(c, &tenant);
    if let Some(refused) = budgets_refuse(c, open, &mut changes)? {
        return copy_or(c, open, &tenant, &now, refused);
    }
    if let Some(entry) = &open.inbox
        && let Some(duplicate) = receive(c, &tenant, &turn, entry, &now)?
    {
        return Ok(duplicate);
    }
    if let ConversationRef::New { id, channel, title } = &open.conversation {
        make_conversation(c, open, &Id::from(*id), channel, title, &now)?;
    }
    let stream_id = conversation_id.unwrap_or(open.turn_id);
    let context = WriteContext { tenant: &tenant, turn: &turn, now: &now };
    let (state, of_conversation) = stored.unwrap_or_default();
    let assistant = if open.assistant.is_empty() { of_conversation } else { open.assistant.clone() };
    let (fence, event_seqs) = fill(c, open, conversation_id, stream_id, &assistant, &context)?;
    if let Some(reservation) = open.reservation.as_ref().filter(|_| fence.is_some()) {
        changes.begin(reservation, Some(open.turn_id), |_| 0)?;
        changes.write()?;
    }
    crash::point("inside_a");
    Ok(Opened::Stored { fence, event_seqs, state, assistant })
}

/// Whether the budgets are others than the process knows, or have no room for the first model request.
fn budgets_refuse(c: &Connection, open: &OpenTurn, changes: &mut CounterChanges<'_>) -> Result<Option<Opened>, StoreError> {
    let Some(known) = open.budgets_version else { return Ok(None) };
    let mut statement = c.prepare_cached("SELECT budgets_version FROM tenants WHERE id = ?1")?;
    let version = first(&mut statement, params![Id::from(open.tenant_id)], |columns| columns.int())?.unwrap_or(0);
    if version != known {
        return Ok(Some(Opened::StaleBudgets));
    }
    let claims = open.reservation.as_ref().map_or(&[][..], |reservation| &reservation.claims);
    Ok(changes.refusal(claims)?.map(Opened::OverBudget))
}

/// Writes the rows of the turn, after the checks.
fn fill(
    c: &Connection,
    open: &OpenTurn,
    conversation_id: Option<Uuid>,
    stream_id: Uuid,
    assistant: &str,
    context: &WriteContext<'_>,
) -> Result<(Option<Fence>, Vec<i64>), StoreError> {
    let stream = Id::from(stream_id);
    let (events, messages) = (count(open.events.len()), i64::from(open.message.is_some()));
    let unnumbered = match &open.conversation {
        ConversationRef::Existing { .. } if open.start => waiting::unnumbered(c, context.tenant, &stream, None)?,
        _ => Vec::new(),
    };
    let numbers = messages + count(unnumbered.len());
    let claimed = if open.start { claim(c, context.tenant, &stream, open, events, numbers)? } else { None };
    if let Some(claim) = &claimed {
        waiting::assign_numbers(c, &stream, &unnumbered, claim.next_message - numbers)?;
    } else if !open.calls.is_empty() {
        // The rows of these calls have a start time of now, but the calls cannot start.
        return Err(StoreError::Busy);
    }
    let (first_event, seq) = match &claimed {
        Some(claim) => (claim.next_event - events, open.message.is_some().then_some(claim.next_message - 1)),
        None => (append(c, context.tenant, &stream, events)? - events, None),
    };
    insert_turn(c, open, conversation_id, assistant, claimed.is_some(), context)?;
    client_requests::store_results(c, context.tenant, &stream, open)?;
    if let Some(message) = &open.message {
        let conversation = conversation_id.map(Id::from).ok_or_else(|| message_without_conversation(open.turn_id))?;
        context.message(c, &conversation, message, seq)?;
    }
    if open.message.is_some() || open.unanswered.is_some() {
        context.touch(c, conversation_id)?;
    }
    for row in &open.calls {
        check_call_turn(row, open.tenant_id, open.turn_id)?;
        call(c, row)?;
    }
    for approval in &open.approvals {
        context.approval(c, conversation_id, approval)?;
    }
    let event_seqs = context.events(c, &stream, &open.events, first_event)?;
    outbox_rows::put(c, context.tenant, &open.outbox, context.now)?;
    let fence = claimed.map(|claim| Fence { tenant_id: open.tenant_id, stream_id, owner: open.owner.clone(), epoch: claim.epoch });
    Ok((fence, event_seqs))
}

/// A message must belong to a conversation, because it is only read through one.
pub(super) fn message_without_conversation(turn_id: Uuid) -> StoreError {
    StoreError::Broken(format!("turn {turn_id} has a message but no conversation"))
}

fn existing(c: &Connection, tenant: &Id, id: Uuid, user_id: Option<&str>) -> Result<Option<(State, String)>, StoreError> {
    let mut statement =
        c.prepare_cached("SELECT state, assistant FROM conversations WHERE tenant_id = ?1 AND id = ?2 AND (?3 IS NULL OR user_id = ?3)")?;
    first(&mut statement, params![tenant, Id::from(id), user_id], |columns| Ok((columns.state()?, columns.text()?)))
}

/// The call that has retried the unknown outcome which this turn is to retry. One that ended without being sent does not count.
fn earlier_retry(c: &Connection, tenant: &Id, open: &OpenTurn) -> Result<Option<Uuid>, StoreError> {
    let Some(original) = open.calls.iter().find_map(|call| call.retry_of) else { return Ok(None) };
    first(&mut *c.prepare_cached(EARLIER_RETRY)?, params![tenant, Id::from(original)], |columns| columns.id())
}

const EARLIER_RETRY: &str = "SELECT retry.id FROM tool_calls AS original JOIN tool_calls AS retry
      ON retry.tenant_id = original.tenant_id AND retry.retry_of = original.id
    WHERE original.tenant_id = ?1 AND original.id = ?2 AND original.error_code = 'outcome_unknown'
      AND NOT (retry.attempt = 0 AND retry.finished_at IS NOT NULL) LIMIT 1";

/// Stores the inbox entry, or returns that the message is a second copy.
fn receive(c: &Connection, tenant: &Id, turn: &Id, entry: &InboxEntry, now: &Stamp) -> Result<Option<Opened>, StoreError> {
    if put_entry(c, tenant, Some(turn), entry, now)? {
        return Ok(None);
    }
    match stored_copy(c, tenant, entry, None)? {
        Some((turn_id, same_body)) => Ok(Some(Opened::copy(turn_id, same_body))),
        None => Err(StoreError::Broken("the inbox refused a message that it does not have".to_owned())),
    }
}

/// Stores the inbox entry; false when the inbox has it already. An expired entry is replaced.
pub(super) fn put_entry(c: &Connection, tenant: &Id, turn: Option<&Id>, entry: &InboxEntry, now: &Stamp) -> Result<bool, StoreError> {
    let written = c
        .prepare_cached(
            "INSERT INTO inbox (tenant_id, channel, account, external_id, fingerprint, turn_id, created_at, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (tenant_id, channel, account, external_id) DO UPDATE SET fingerprint = excluded.fingerprint,
               turn_id = excluded.turn_id, created_at = excluded.created_at, expires_at = excluded.expires_at
             WHERE inbox.expires_at <= excluded.created_at",
        )?
        .execute(params![
            tenant,
            entry.channel,
            entry.account,
            entry.external_id,
            entry.fingerprint,
            turn,
            now,
            Stamp::from(entry.expires_at)
        ])?;
    Ok(written == 1)
}

/// That the message is a second copy, or else this.
fn copy_or(c: &Connection, open: &OpenTurn, tenant: &Id, now: &Stamp, otherwise: Opened) -> Result<Opened, StoreError> {
    let known = open.inbox.as_ref().map(|entry| stored_copy(c, tenant, entry, Some(now))).transpose()?.flatten();
    Ok(known.map_or(otherwise, |(turn_id, same_body)| Opened::copy(turn_id, same_body)))
}

/// The turn of a message that the inbox has.
pub(super) fn known_copy(c: &Connection, tenant: &Id, entry: &InboxEntry, now: &Stamp) -> Result<Option<(Uuid, bool)>, StoreError> {
    Ok(stored_copy(c, tenant, entry, Some(now))?.and_then(|(turn_id, same_body)| Some((turn_id?, same_body))))
}

/// The entry under this key: its turn, and whether its body was the same. With `now`, only an entry that has not expired.
fn stored_copy(c: &Connection, tenant: &Id, entry: &InboxEntry, now: Option<&Stamp>) -> Result<Option<(Option<Uuid>, bool)>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT turn_id, fingerprint FROM inbox
         WHERE tenant_id = ?1 AND channel = ?2 AND account = ?3 AND external_id = ?4 AND (?5 IS NULL OR expires_at > ?5)",
    )?;
    first(&mut statement, params![tenant, entry.channel, entry.account, entry.external_id, now], |columns| {
        Ok((columns.id_or_null()?, columns.text()? == entry.fingerprint))
    })
}

fn make_conversation(c: &Connection, open: &OpenTurn, id: &Id, channel: &str, title: &str, now: &Stamp) -> Result<(), StoreError> {
    c.prepare_cached(INSERT_CONVERSATION)?.execute(params![
        id,
        Id::from(open.tenant_id),
        open.user_id,
        channel,
        open.assistant,
        title,
        now
    ])?;
    Ok(())
}

/// Takes id, tenant, user, channel, assistant, title and time.
pub(super) const INSERT_CONVERSATION: &str =
    "INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, '{}', ?7, ?7)";

/// Claims the lease; `None` while another turn has started and not ended, because no message may come between a call and its result.
fn claim(c: &Connection, tenant: &Id, stream: &Id, open: &OpenTurn, events: i64, messages: i64) -> Result<Option<Lease>, StoreError> {
    let mut statement = c.prepare_cached(
        "INSERT INTO leases (tenant_id, conversation_id, owner, epoch, next_event_seq, next_message_seq, expires_at)
         VALUES (?1, ?2, ?3, 1, 1 + ?4, 1 + ?5, ?6)
         ON CONFLICT (tenant_id, conversation_id) DO UPDATE SET owner = excluded.owner, epoch = epoch + 1,
           next_event_seq = next_event_seq + ?4, next_message_seq = next_message_seq + ?5, expires_at = excluded.expires_at
         WHERE owner IS NULL",
    )?;
    match statement.execute(params![tenant, stream, open.owner, events, messages, lease_end(open.now)])? {
        0 => Ok(None),
        _ => lease(c, tenant, stream).map(Some),
    }
}

/// Allocates event numbers without owning the lease. Returns the next free number.
pub(super) fn append(c: &Connection, tenant: &Id, stream: &Id, events: i64) -> Result<i64, StoreError> {
    let mut statement = c.prepare_cached(
        "INSERT INTO leases (tenant_id, conversation_id, epoch, next_event_seq, next_message_seq) VALUES (?1, ?2, 0, 1 + ?3, 1)
         ON CONFLICT (tenant_id, conversation_id) DO UPDATE SET next_event_seq = next_event_seq + ?3
         RETURNING next_event_seq",
    )?;
    first(&mut statement, params![tenant, stream, events], |columns| columns.int())?
        .ok_or_else(|| StoreError::Broken("a lease row vanished".to_owned()))
}

fn insert_turn(
    c: &Connection,
    open: &OpenTurn,
    conversation_id: Option<Uuid>,
    assistant: &str,
    started: bool,
    context: &WriteContext<'_>,
) -> Result<(), StoreError> {
    let status = match (started, open.kind) {
        (false, _) => TurnStatus::Accepted,
        (true, TurnKind::Invoke | TurnKind::Retry) if !open.calls.is_empty() => TurnStatus::Acting,
        (true, TurnKind::Chat | TurnKind::Invoke | TurnKind::Retry) => TurnStatus::Planning,
    };
    c.prepare_cached(
        "INSERT INTO turns (id, tenant_id, conversation_id, user_id, kind, assistant, key_id, status, created_at, updated_at, client, request_digest,
           credential, context, inbound)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute(params![
        context.turn,
        context.tenant,
        id_or_null(conversation_id),
        open.user_id,
        open.kind.as_str(),
        assistant,
        id_or_null(open.key_id),
        status.as_str(),
        context.now,
        open.client,
        open.request_digest,
        open.credential,
        open.context,
        open.inbound,
    ])?;
    Ok(())
}

/// Starts a turn that waited: claims the lease, numbers its message, sets its status.
pub(super) fn start(c: &Connection, tenant_id: Uuid, turn_id: Uuid, owner: &str, now: jiff::Timestamp) -> Result<Fence, StoreError> {
    let (tenant, turn) = (Id::from(tenant_id), Id::from(turn_id));
    let moved = || StoreError::Moved { what: "turn", id: turn_id.to_string() };
    let mut statement = c.prepare_cached("SELECT conversation_id FROM turns WHERE tenant_id = ?1 AND id = ?2 AND status = 'accepted'")?;
    let conversation_id = first(&mut statement, params![tenant, turn], |columns| columns.id_or_null())?.ok_or_else(moved)?;
    let stream_id = conversation_id.unwrap_or(turn_id);
    let stream = Id::from(stream_id);
    // Opening a turn writes one message at most.
    let mut statement = c.prepare_cached("SELECT id FROM messages WHERE conversation_id = ?1 AND seq IS NULL AND turn_id = ?2")?;
    let own = first(&mut statement, params![stream, turn], |columns| columns.id())?;
    let (waits, unnumbered) = (own.is_some(), waiting::unnumbered(c, &tenant, &stream, own.map(Id::from).as_ref())?);
    let numbers = count(unnumbered.len()) + i64::from(waits);
    let mut statement = c.prepare_cached(
        "UPDATE leases SET owner = ?3, epoch = epoch + 1, next_message_seq = next_message_seq + ?4, expires_at = ?5
         WHERE tenant_id = ?1 AND conversation_id = ?2 AND owner IS NULL RETURNING epoch, next_message_seq",
    )?;
    let (epoch, next_message) =
        first(&mut statement, params![tenant, stream, owner, numbers, lease_end(now)], |columns| Ok((columns.int()?, columns.int()?)))?
            .ok_or(StoreError::Busy)?;
    waiting::assign_numbers(c, &stream, &unnumbered, next_message - numbers)?;
    if waits {
        let placed = c
            .prepare_cached("UPDATE messages SET seq = ?3 WHERE conversation_id = ?1 AND seq IS NULL AND turn_id = ?2")?
            .execute(params![stream, turn, next_message - 1])?;
        if placed != 1 {
            return Err(StoreError::Broken(format!("turn {turn_id} has {placed} waiting messages")));
        }
    }
    let started = c
        .prepare_cached("UPDATE turns SET status = 'planning', updated_at = ?3 WHERE tenant_id = ?1 AND id = ?2 AND status = 'accepted'")?
        .execute(params![tenant, turn, Stamp::from(now)])?;
    if started != 1 {
        return Err(moved());
    }
    Ok(Fence { tenant_id, stream_id, owner: owner.to_owned(), epoch })
}
