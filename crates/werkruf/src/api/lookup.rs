//! Finds rows by id. A row that the caller may not see is reported as missing.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::Uuid;
use werkruf_runtime::{Decider, Refusal};
use werkruf_store::{
    CallRow, ConversationRow, EventRow, IdOf, MessageRow, Order, OutboxFilter, OutboxRow, Page, ReadLimit, Records, StoreError, Streams,
    TurnRow,
};

use super::ApiState;
use super::error::ApiError;
use super::view::Iso;
use crate::identity::Identity;

/// The batch size for reading all rows.
const BATCH_ROWS: u32 = 1000;
/// The length of the shortest part of an id.
const MIN_PART: usize = 4;
/// At most this many ids are compared and named where a part of an id fits several.
const MAX_CANDIDATES: u32 = 100;

/// A conversation by id, or by a beginning or end that only its id has.
pub(crate) async fn conversation(api: &ApiState, identity: &Identity, id: &str) -> Result<ConversationRow, ApiError> {
    let records = api.app.records();
    let meant = Meant::of(records, identity.tenant_id, IdOf::Conversation, id).await?;
    let mut rows = Vec::new();
    for id in &meant.ids {
        let Some(row) = records.conversation(identity.tenant_id, *id).await? else { continue };
        if identity.visibility()?.covers(&row.user_id) {
            rows.push(row);
        }
    }
    meant.only(rows, "conversation", |row| candidate(row.id, &row.title, row.created_at))
}

/// A turn by id.
pub(crate) async fn turn(api: &ApiState, identity: &Identity, id: &str) -> Result<TurnRow, ApiError> {
    let unknown = || ApiError::not_found("turn");
    let id = Uuid::parse_str(id).map_err(|_| unknown())?;
    let row = api.app.records().turn(identity.tenant_id, id).await?.ok_or_else(unknown)?;
    if identity.visibility()?.covers(&row.user_id) { Ok(row) } else { Err(unknown()) }
}

/// A call by id, or by a beginning or end that only its id has; with the turn it belongs to.
pub(crate) async fn call(api: &ApiState, identity: &Identity, id: &str) -> Result<(CallRow, TurnRow), ApiError> {
    let records = api.app.records();
    let meant = Meant::of(records, identity.tenant_id, IdOf::Call, id).await?;
    let mut rows = Vec::new();
    for id in &meant.ids {
        let Some(call) = records.call(identity.tenant_id, *id).await? else { continue };
        let Some(turn) = records.turn(identity.tenant_id, call.turn_id).await? else { continue };
        if identity.visibility()?.covers(&turn.user_id) {
            rows.push((call, turn));
        }
    }
    meant.only(rows, "tool call", |(call, _)| candidate(call.id, &call.tool_name, call.created_at))
}

/// The id of an approval, from the id, or from a beginning or end that only its id has. The runtime checks who may see the approval.
pub(crate) async fn approval_id(api: &ApiState, decider: Decider<'_>, id: &str) -> Result<Uuid, ApiError> {
    let meant = Meant::of(api.app.records(), decider.tenant_id, IdOf::Approval, id).await?;
    if let ([only], false) = (meant.ids.as_slice(), meant.more) {
        return Ok(*only);
    }
    let mut rows = Vec::new();
    for id in &meant.ids {
        match api.app.runtime.approval(decider, *id).await {
            Ok(row) => rows.push(row),
            // The asker may know of the approval, and nobody else.
            Err(Refusal::NotTheApprover { .. } | Refusal::UnknownApproval) => {}
            Err(other) => return Err(other.into()),
        }
    }
    meant.only(rows, "approval", |row| candidate(row.id, &row.tool_name, row.created_at)).map(|row| row.id)
}

/// A row of the outbox by id, or by a beginning or end that only its id has.
pub(crate) async fn outbox_row(api: &ApiState, identity: &Identity, id: &str) -> Result<OutboxRow, ApiError> {
    let meant = Meant::of(api.app.records(), identity.tenant_id, IdOf::Outbox, id).await?;
    let mut rows = Vec::new();
    for id in &meant.ids {
        rows.extend(api.app.store.outbox(identity.tenant_id, OutboxFilter::of_id(*id), Page::default()).await?);
    }
    meant.only(rows, "outbox row", |row| candidate(row.id, &row.recipient.channel, row.created_at))
}

/// The ids that a text may mean.
struct Meant {
    ids: Vec<Uuid>,
    /// There may be more of them.
    more: bool,
}

impl Meant {
    async fn of(records: &dyn Records, tenant_id: Uuid, of: IdOf, text: &str) -> Result<Self, StoreError> {
        if let Ok(id) = Uuid::parse_str(text) {
            return Ok(Self { ids: vec![id], more: false });
        }
        let Some(part) = part(text) else { return Ok(Self { ids: Vec::new(), more: false }) };
        let ids = records.ids_like(tenant_id, of, part, MAX_CANDIDATES).await?;
        let more = ids.len() >= MAX_CANDIDATES as usize;
        Ok(Self { ids, more })
    }

    /// The only one of the rows that the caller may see; otherwise the error says which ones the text fits.
    fn only<T>(&self, mut rows: Vec<T>, what: &str, candidate: impl Fn(&T) -> Value) -> Result<T, ApiError> {
        match rows.pop() {
            None => Err(ApiError::not_found(what)),
            Some(row) if rows.is_empty() && !self.more => Ok(row),
            Some(last) => {
                rows.push(last);
                let message = format!("More than one {what} has an id that begins or ends like this; give more characters of the id.");
                let candidates = rows.iter().map(candidate).collect();
                Err(ApiError::new(StatusCode::BAD_REQUEST, "ambiguous_id", message).details(candidates))
            }
        }
    }
}

fn candidate(id: Uuid, name: &str, created_at: Timestamp) -> Value {
    json!({"id": id, "name": name, "created_at": Iso(created_at)})
}

fn part(text: &str) -> Option<String> {
    let fits = (MIN_PART..36).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    fits.then(|| text.to_ascii_lowercase())
}

/// The stream of a turn's events: its conversation, or the turn itself if it has none.
pub(crate) fn stream_of(turn: &TurnRow) -> Uuid {
    turn.conversation_id.unwrap_or(turn.id)
}

/// All events of a stream after a sequence number, optionally of one turn only.
pub(crate) async fn all_events(
    streams: &dyn Streams,
    tenant_id: Uuid,
    stream_id: Uuid,
    turn_id: Option<Uuid>,
    after: i64,
) -> Result<Vec<EventRow>, StoreError> {
    let mut rows: Vec<EventRow> = Vec::new();
    loop {
        let last = rows.last().map_or(after, |row| row.seq);
        let batch = streams.events(tenant_id, stream_id, turn_id, last, ReadLimit::rows(BATCH_ROWS)).await?;
        let done = batch.len() < BATCH_ROWS as usize;
        rows.extend(batch);
        if done {
            return Ok(rows);
        }
    }
}

/// The messages of one turn, in order.
pub(crate) async fn messages_of_turn(records: &dyn Records, turn: &TurnRow) -> Result<Vec<MessageRow>, StoreError> {
    let Some(conversation_id) = turn.conversation_id else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let mut page = Page::of(BATCH_ROWS, Order::OldestFirst);
    loop {
        let batch = records.messages(turn.tenant_id, conversation_id, page).await?;
        let done = batch.len() < BATCH_ROWS as usize;
        page.after = batch.last().map(|message| message.id);
        found.extend(batch.into_iter().filter(|message| message.turn_id == Some(turn.id)));
        if done {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_part_is_hexadecimal_and_not_too_short() {
        assert_eq!(part("019A-bc").as_deref(), Some("019a-bc"));
        assert_eq!(part("019"), None);
        assert_eq!(part("019%"), None);
    }
}
