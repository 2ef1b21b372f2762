//! Commit A, which stores a turn, and the later start of a turn that waited.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use werkruf_contract::{State, Uuid};

use super::PostgresStore;
use super::budgets::refusal;
use super::flush::DbRole;
use super::outbox::OutboxItem;
use super::param::ms;
use super::row::{Columns, only};
use super::text::{clean, clean_json};
use super::turn_documents::{Approval, Call, CallResult, Event, Message, check_conversation, check_owner, document};
use super::usage_documents::Reservation;
use crate::{ConversationRef, Fence, InboxEntry, OpenTurn, Opened, StoreError, crash};

#[derive(Serialize)]
struct OpenDocument<'a> {
    tenant_id: Uuid,
    turn_id: Uuid,
    user_id: &'a str,
    kind: &'static str,
    conversation_id: Option<Uuid>,
    existing: bool,
    any_user: bool,
    channel: Option<&'a str>,
    title: Option<&'a str>,
    assistant: &'a str,
    key_id: Option<Uuid>,
    credential: &'a str,
    context: Option<std::borrow::Cow<'a, str>>,
    inbound: Option<std::borrow::Cow<'a, str>>,
    start: bool,
    owner: &'a str,
    now: Timestamp,
    client: Option<std::borrow::Cow<'a, str>>,
    request_digest: Option<&'a str>,
    messages: Vec<Message<'a>>,
    events: Vec<Event<'a>>,
    // `open_turn` tests whether these keys exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    inbox: Option<Entry<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<Approval<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outbox: Vec<OutboxItem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    results: Vec<CallResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unanswered: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_last_turn: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budgets_version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<Reservation<'a>>,
}

#[derive(Serialize)]
pub(super) struct Entry<'a> {
    channel: &'a str,
    account: &'a str,
    external_id: &'a str,
    fingerprint: &'a str,
    expires_at: Timestamp,
}

impl<'a> From<&'a InboxEntry> for Entry<'a> {
    fn from(entry: &'a InboxEntry) -> Self {
        Self {
            channel: &entry.channel,
            account: &entry.account,
            external_id: &entry.external_id,
            fingerprint: &entry.fingerprint,
            expires_at: ms(entry.expires_at),
        }
    }
}

impl<'a> From<&'a OpenTurn> for OpenDocument<'a> {
    fn from(open: &'a OpenTurn) -> Self {
        let (conversation_id, existing, any_user, channel, title) = match &open.conversation {
            ConversationRef::New { id, channel, title } => (Some(*id), false, false, Some(channel.as_str()), Some(title.as_str())),
            ConversationRef::Existing { id, any_user } => (Some(*id), true, *any_user, None, None),
            ConversationRef::None => (None, false, false, None, None),
        };
        Self {
            tenant_id: open.tenant_id,
            turn_id: open.turn_id,
            user_id: &open.user_id,
            kind: open.kind.as_str(),
            conversation_id,
            existing,
            any_user,
            channel,
            title,
            assistant: &open.assistant,
            key_id: open.key_id,
            credential: &open.credential,
            context: open.context.as_deref().map(clean_json),
            inbound: open.inbound.as_deref().map(clean_json),
            start: open.start,
            owner: &open.owner,
            now: ms(open.now),
            client: open.client.as_deref().map(clean_json),
            request_digest: open.request_digest.as_deref(),
            messages: open.message.iter().map(Message::from).collect(),
            events: open.events.iter().map(Event::from).collect(),
            inbox: open.inbox.as_ref().map(Entry::from),
            calls: open.calls.iter().map(Call::from).collect(),
            approvals: open.approvals.iter().map(Approval::from).collect(),
            outbox: open.outbox.iter().map(OutboxItem::from).collect(),
            results: open.results.iter().map(CallResult::from).collect(),
            unanswered: open.unanswered.as_deref(),
            expected_last_turn: open.expected_last_turn.filter(|_| conversation_id.is_some()),
            budgets_version: open.budgets_version,
            reservation: open.reservation.as_ref().map(|reservation| Reservation::new(reservation, None)),
        }
    }
}

impl PostgresStore {
    /// Writes inbox entry, conversation, lease, turn, message, calls and events, or nothing.
    pub(super) async fn accept(&self, open: &OpenTurn) -> Result<Opened, StoreError> {
        let fields = OpenDocument::from(open);
        check_owner(&open.calls, open.tenant_id, open.turn_id)?;
        check_conversation(fields.messages.len(), fields.conversation_id, open.turn_id)?;
        let stream_id = fields.conversation_id.unwrap_or(open.turn_id);
        let doc = document(&fields)?;
        drop(fields);
        let rows = self
            .query_once(
                DbRole::Tenant(open.tenant_id),
                "SELECT * FROM open_turn($1::text::jsonb, make_interval(secs => $2), $3)",
                &[(&doc, Type::TEXT), (&self.ttl, Type::FLOAT8)],
            )
            .await?;
        crash::point("inside_a");
        only(&rows, |columns| opened(columns, open, stream_id))
    }

    /// A turn that waited starts: lease, seq of its message, status.
    pub(super) async fn start(&self, tenant_id: Uuid, turn_id: Uuid, owner: &str, now: Timestamp) -> Result<Fence, StoreError> {
        let rows = self
            .query_once(
                DbRole::Tenant(tenant_id),
                "SELECT * FROM start_turn($1, $2, $3, $4, make_interval(secs => $5), $6)",
                &[
                    (&tenant_id, Type::UUID),
                    (&turn_id, Type::UUID),
                    (&clean(owner), Type::TEXT),
                    (&ms(now), Type::TIMESTAMPTZ),
                    (&self.ttl, Type::FLOAT8),
                ],
            )
            .await?;
        only(&rows, |columns| Ok(Fence { tenant_id, stream_id: columns.id()?, owner: owner.to_owned(), epoch: columns.int()? }))
    }
}

fn opened(columns: &mut Columns<'_>, open: &OpenTurn, stream_id: Uuid) -> Result<Opened, StoreError> {
    let outcome = columns.text()?;
    let (epoch, first_event) = (columns.int_or_null()?, columns.int_or_null()?);
    let (state, assistant) = (columns.state_or_null()?, columns.text_or_null()?);
    let (stored_turn, stored_fingerprint) = (columns.id_or_null()?, columns.text_or_null()?);
    let refused = refusal(columns, open.reservation.as_ref())?;
    match (outcome.as_str(), stored_turn) {
        ("stored", _) => Ok(Opened::Stored {
            fence: epoch.map(|epoch| Fence { tenant_id: open.tenant_id, stream_id, owner: open.owner.clone(), epoch }),
            event_seqs: (first_event.unwrap_or(1)..).take(open.events.len()).collect(),
            state: state.unwrap_or_else(State::new),
            assistant: if open.assistant.is_empty() { assistant.unwrap_or_default() } else { open.assistant.clone() },
        }),
        ("duplicate", turn_id) => {
            let same_body = stored_fingerprint.as_deref() == open.inbox.as_ref().map(|entry| entry.fingerprint.as_str());
            Ok(Opened::copy(turn_id, same_body))
        }
        ("unknown", _) => Ok(Opened::UnknownConversation),
        ("superseded", _) => Ok(Opened::Superseded),
        ("stale_budgets", _) => Ok(Opened::StaleBudgets),
        ("over_budget", _) => refused.map(Opened::OverBudget).ok_or_else(|| StoreError::Broken("open_turn names no budget".to_owned())),
        ("retried", Some(call_id)) => Ok(Opened::Retried { call_id }),
        (other, _) => Err(StoreError::Broken(format!("open_turn returned {other}"))),
    }
}
