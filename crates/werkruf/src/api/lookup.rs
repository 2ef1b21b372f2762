//! Finds rows by id. A row that the caller may not see is reported as missing.

use werkruf_contract::Uuid;
use werkruf_store::{CallRow, ConversationRow, EventRow, IdOf, MessageRow, Order, Page, Records, StoreError, TurnRow};

use super::ApiState;
use super::error::ApiError;
use crate::identity::Identity;

/// The batch size for reading all rows.
const BATCH_ROWS: u32 = 1000;
/// The length of the shortest id prefix.
const MIN_PREFIX: usize = 4;

/// A conversation by id or unique prefix.
pub(crate) async fn conversation(api: &ApiState, identity: &Identity, id: &str) -> Result<ConversationRow, ApiError> {
    let unknown = || ApiError::not_found("conversation");
    let id = match Uuid::parse_str(id) {
        Ok(id) => id,
        Err(_) => only(&api.app.records().ids_with_prefix(identity.tenant_id, IdOf::Conversation, prefix(id).ok_or_else(unknown)?).await?)
            .ok_or_else(unknown)?,
    };
    let row = api.app.records().conversation(identity.tenant_id, id).await?.ok_or_else(unknown)?;
    if identity.visibility()?.covers(&row.user_id) { Ok(row) } else { Err(unknown()) }
}

/// A turn by id.
pub(crate) async fn turn(api: &ApiState, identity: &Identity, id: &str) -> Result<TurnRow, ApiError> {
    let unknown = || ApiError::not_found("turn");
    let id = Uuid::parse_str(id).map_err(|_| unknown())?;
    let row = api.app.records().turn(identity.tenant_id, id).await?.ok_or_else(unknown)?;
    if identity.visibility()?.covers(&row.user_id) { Ok(row) } else { Err(unknown()) }
}

/// A call by id or unique prefix, with the turn it belongs to.
pub(crate) async fn call(api: &ApiState, identity: &Identity, id: &str) -> Result<(CallRow, TurnRow), ApiError> {
    let unknown = || ApiError::not_found("tool call");
    let records = api.app.records();
    let id = match Uuid::parse_str(id) {
        Ok(id) => id,
        Err(_) => {
            only(&records.ids_with_prefix(identity.tenant_id, IdOf::Call, prefix(id).ok_or_else(unknown)?).await?).ok_or_else(unknown)?
        }
    };
    let call = records.call(identity.tenant_id, id).await?.ok_or_else(unknown)?;
    let turn = records.turn(identity.tenant_id, call.turn_id).await?.ok_or_else(unknown)?;
    if identity.visibility()?.covers(&turn.user_id) { Ok((call, turn)) } else { Err(unknown()) }
}

/// The id of an approval, from the id or a unique prefix. The runtime checks who may see the approval.
pub(crate) async fn approval_id(api: &ApiState, identity: &Identity, id: &str) -> Result<Uuid, ApiError> {
    let unknown = || ApiError::not_found("approval");
    match Uuid::parse_str(id) {
        Ok(id) => Ok(id),
        Err(_) => {
            let ids = api.app.records().ids_with_prefix(identity.tenant_id, IdOf::Approval, prefix(id).ok_or_else(unknown)?).await?;
            only(&ids).ok_or_else(unknown)
        }
    }
}

fn prefix(text: &str) -> Option<String> {
    let fits = (MIN_PREFIX..36).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    fits.then(|| text.to_ascii_lowercase())
}

fn only(ids: &[Uuid]) -> Option<Uuid> {
    match ids {
        [only] => Some(*only),
        _ => None,
    }
}

/// The stream of a turn's events: its conversation, or the turn itself if it has none.
pub(crate) fn stream_of(turn: &TurnRow) -> Uuid {
    turn.conversation_id.unwrap_or(turn.id)
}

/// All events of a stream after a sequence number, optionally of one turn only.
pub(crate) async fn all_events(
    records: &dyn Records,
    tenant_id: Uuid,
    stream_id: Uuid,
    turn_id: Option<Uuid>,
    after: i64,
) -> Result<Vec<EventRow>, StoreError> {
    let mut rows: Vec<EventRow> = Vec::new();
    loop {
        let last = rows.last().map_or(after, |row| row.seq);
        let batch = records.events(tenant_id, stream_id, turn_id, last, BATCH_ROWS).await?;
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
    use super::prefix;

    #[test]
    fn a_prefix_is_hexadecimal_and_not_too_short() {
        assert_eq!(prefix("019A-bc").as_deref(), Some("019a-bc"));
        assert_eq!(prefix("019"), None);
        assert_eq!(prefix("019%"), None);
    }
}
