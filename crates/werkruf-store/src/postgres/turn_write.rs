//! Commits B, C and D: everything that a turn writes at once, under its fence.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use werkruf_contract::{State, Uuid};

use super::PostgresStore;
use super::flush::DbRole;
use super::outbox::OutboxItem;
use super::param::ms;
use super::row::only;
use super::text::clean_json;
use super::turn_documents::{
    Approval, Call, CallResult, End, Event, Message, ProviderUpdate, Retry, Start, UsageRow, check_conversation, check_owner, document,
};
use crate::{StoreError, TurnChange, TurnWrite, Written, crash};

#[derive(Serialize)]
struct WriteDocument<'a> {
    id: Uuid,
    tenant_id: Uuid,
    stream_id: Uuid,
    owner: &'a str,
    epoch: i64,
    conversation_id: Option<Uuid>,
    turn_id: Uuid,
    user_id: &'a str,
    now: Timestamp,
    releases_lease: bool,
    clears_partial: bool,
    // `write_turn` skips the keys that do not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replacements: Vec<CallResult<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<Approval<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    withdrawn: &'a [Uuid],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    starts: Vec<Start>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retries: Vec<Retry<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    provider_updates: Vec<ProviderUpdate<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ends: Vec<End<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    patches: &'a [State],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    usage: Vec<UsageRow<'a>>,
    /// Messages with the number of their tokens.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    counted: &'a [(Uuid, i64)],
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outbox: Vec<OutboxItem<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<Change<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    abandoned_step: Option<u32>,
}

#[derive(Serialize)]
struct Summary<'a> {
    until: i64,
    text: &'a str,
    untrusted: Option<&'a str>,
}

#[derive(Serialize)]
struct Change<'a> {
    status: &'static str,
    step: u32,
    ends: bool,
    error: Option<std::borrow::Cow<'a, str>>,
    error_code: Option<&'a str>,
    message: Option<&'a str>,
    transcript_digest: Option<&'a str>,
}

impl<'a> From<&'a TurnChange> for Change<'a> {
    fn from(change: &'a TurnChange) -> Self {
        Self {
            status: change.status.as_str(),
            step: change.step,
            ends: change.status.is_terminal(),
            error: change.error.as_ref().map(|(error, _)| clean_json(error)),
            error_code: change.error.as_ref().map(|(_, code)| code.as_str()),
            message: change.message.as_deref(),
            transcript_digest: change.transcript_digest.as_deref(),
        }
    }
}

impl<'a> From<&'a TurnWrite> for WriteDocument<'a> {
    fn from(write: &'a TurnWrite) -> Self {
        Self {
            id: write.id,
            tenant_id: write.fence.tenant_id,
            stream_id: write.fence.stream_id,
            owner: &write.fence.owner,
            epoch: write.fence.epoch,
            conversation_id: write.conversation_id,
            turn_id: write.turn_id,
            user_id: &write.user_id,
            now: ms(write.now),
            releases_lease: write.releases_lease(),
            clears_partial: write.events.iter().any(|event| event.kind.settles_text()),
            messages: write.messages.iter().map(Message::from).collect(),
            replacements: write.replacements.iter().map(CallResult::from).collect(),
            calls: write.calls.iter().map(Call::from).collect(),
            approvals: write.approvals.iter().map(Approval::from).collect(),
            withdrawn: &write.withdrawn,
            starts: write.starts.iter().map(Start::from).collect(),
            retries: write.retries.iter().map(Retry::from).collect(),
            provider_updates: write.provider_updates.iter().map(ProviderUpdate::from).collect(),
            ends: write.ends.iter().map(End::from).collect(),
            patches: if write.conversation_id.is_some() { &write.state_patches } else { &[] },
            usage: write.usage.iter().map(UsageRow::from).collect(),
            counted: if write.conversation_id.is_some() { &write.counted } else { &[] },
            summary: write.summary.as_ref().filter(|_| write.conversation_id.is_some()).map(|sum| Summary {
                until: sum.until,
                text: &sum.text,
                untrusted: sum.untrusted.as_deref(),
            }),
            events: write.events.iter().map(Event::from).collect(),
            outbox: write.outbox.iter().map(OutboxItem::from).collect(),
            turn: write.turn.as_ref().map(Change::from),
            abandoned_step: write.abandoned_step,
        }
    }
}

/// Takes the text of [`write_document`], and for how long the lease is renewed.
pub(super) const WRITE: &str = "SELECT * FROM write_turn($1::text::jsonb, make_interval(secs => $2))";

/// The document of a write, after checks for defects of the caller.
pub(super) fn write_document(write: &TurnWrite) -> Result<String, StoreError> {
    check_owner(&write.calls, write.fence.tenant_id, write.turn_id)?;
    check_conversation(write.messages.len(), write.conversation_id, write.turn_id)?;
    if let Some(end) = write.ends.iter().find(|end| !end.status.is_terminal()) {
        return Err(StoreError::Broken(format!("call {} cannot end as {}", end.id, end.status)));
    }
    document(&WriteDocument::from(write))
}

impl PostgresStore {
    /// Writes everything or nothing: a lost fence or a row in another state is an error. A write that was committed already returns the
    /// same as the first time.
    pub(super) async fn put_turn(&self, write: &TurnWrite) -> Result<Written, StoreError> {
        let doc = write_document(write)?;
        let rows = self.query(DbRole::Tenant(write.fence.tenant_id), WRITE, &[(&doc, Type::TEXT), (&self.ttl, Type::FLOAT8)]).await?;
        crash::point("inside_write");
        only(&rows, |columns| {
            let first = columns.int_or_null()?.unwrap_or(1);
            let (state, cancel_requested) = (columns.state_or_null()?, columns.flag_or_null()?.unwrap_or(false));
            Ok(Written { event_seqs: (first..).take(write.events.len()).collect(), state, cancel_requested, over_budget: None })
        })
    }
}
