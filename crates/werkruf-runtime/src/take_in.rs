//! A message comes in: commit A, and the first word its client hears.

use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::{EventType, Init, State};
use werkruf_store::{ConversationRef, Fence, InboxEntry, NewEvent, NewMessage, OpenTurn, Opened, Replacement, StreamKey, TurnKind, crash};

use crate::begun::Begun;
use crate::brought::ClientResult;
use crate::ground::json;
use crate::hub::{LiveEvent, SubscribeOptions};
use crate::inbound::{AcceptedTurn, Caller, Idempotency, InboundMessage, Refusal};
use crate::lane::Ticket;
use crate::runtime::{House, Setup};
use crate::timer;

/// How long an API key is remembered.
const IDEMPOTENCY_WINDOW: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
/// What a model reads of a call that its client never answered.
pub(crate) const UNANSWERED: &str = r#"{"error":{"type":"FATAL","code":"canceled","message":"The client did not run this call."}}"#;
const TITLE_CHARS: usize = 80;

impl House {
    /// Makes the message durable and says so.
    pub(crate) async fn take_in(
        self: Arc<Self>,
        setup: Arc<Setup>,
        inbound: InboundMessage,
        init: Init,
        ticket: Ticket,
    ) -> Result<(AcceptedTurn, Begun, Option<Fence>, State), Refusal> {
        let Init { conversation_id, turn_id, created, .. } = init;
        // Known as ours before it is stored: the recovery scan must never meet it as nobody's.
        let alive = self.go_live(inbound.caller.principal.tenant_id, turn_id);
        let open = self.open_chat(&inbound, &init, ticket.is_first());
        crash::point("before_a");
        let asked = timer::now();
        let (fence, seqs, state, assistant) = match self.parts.turns.open_turn(open).await? {
            Opened::Stored { fence, event_seqs, state, assistant } => (fence, event_seqs, state, assistant),
            Opened::Duplicate { turn_id, same_body } => return Err(Refusal::Duplicate { turn_id, same_body }),
            Opened::UnknownConversation => return Err(Refusal::UnknownConversation),
            Opened::Superseded => return Err(Refusal::Superseded),
        };
        if let Some(fence) = &fence {
            alive.live.hold.take(fence, asked);
        }
        crash::point("after_a");
        let (tenant_id, after) = (inbound.caller.principal.tenant_id, seqs.first().map_or(0, |seq| seq - 1));
        let stream = StreamKey { tenant_id, stream_id: conversation_id };
        let (events, _) = self.hub.watch(stream, SubscribeOptions { turn_id: Some(turn_id), debug: inbound.debug, after });
        let heard = LiveEvent { seq: seqs.first().copied(), kind: EventType::Init, turn_id, data: Arc::from(json(&init)) };
        self.hub.publish(conversation_id, &heard);
        self.parts.cluster.notify();
        let accepted = AcceptedTurn { conversation_id, turn_id, created, events };
        Ok((accepted, Begun { house: self, setup, inbound, init, alive, ticket, assistant }, fence, state))
    }

    /// Commit A.
    fn open_chat(&self, inbound: &InboundMessage, init: &Init, start: bool) -> OpenTurn {
        let now = self.parts.clock.now();
        let conversation = if init.created {
            let title = inbound.message.chars().take(TITLE_CHARS).collect();
            ConversationRef::New { id: init.conversation_id, channel: inbound.channel.clone(), title }
        } else {
            ConversationRef::Existing { id: init.conversation_id, any_user: inbound.caller.admin }
        };
        OpenTurn {
            tenant_id: inbound.caller.principal.tenant_id,
            user_id: inbound.caller.principal.user_id.clone(),
            turn_id: init.turn_id,
            kind: TurnKind::Chat,
            conversation,
            assistant: inbound.assistant.clone().unwrap_or_else(|| "default".to_owned()),
            key_id: inbound.caller.key_id,
            message: self.spoken(inbound),
            inbox: inbound.idempotency.as_ref().map(|key| inbox_entry("chat", &inbound.caller, key, now)),
            start,
            owner: self.owner.clone(),
            calls: Vec::new(),
            approvals: Vec::new(),
            client: inbound.brought.as_ref().map(json),
            request_digest: inbound.brought.as_ref().map(|brought| brought.seen.clone()).filter(|seen| !seen.is_empty()),
            results: inbound.results.iter().map(answered).collect(),
            unanswered: (!init.created).then(|| UNANSWERED.to_owned()),
            after: inbound.after,
            events: vec![NewEvent { kind: EventType::Init, data: json(init) }],
            now,
        }
    }

    /// The person's own message; a client that only sends results has none.
    fn spoken(&self, inbound: &InboundMessage) -> Option<NewMessage> {
        let silent = inbound.message.is_empty() && inbound.parts.is_empty();
        if silent && !inbound.results.is_empty() {
            return None;
        }
        let mut kept = serde_json::Map::new();
        if silent {
            kept.insert("silent".to_owned(), true.into());
        }
        if !inbound.parts.is_empty() {
            kept.insert("content".to_owned(), inbound.parts.clone().into());
        }
        if inbound.brought.as_ref().is_some_and(|brought| !brought.history.is_empty()) {
            kept.insert("brought".to_owned(), true.into());
        }
        Some(NewMessage {
            id: self.parts.clock.new_id(),
            role: "user",
            content: inbound.message.clone(),
            tool_calls: None,
            tool_call_id: None,
            tool_name: None,
            status: None,
            metadata: (!kept.is_empty()).then(|| json(&kept)),
            tokens: None,
        })
    }
}

/// A client's result as the history takes it.
fn answered(result: &ClientResult) -> Replacement {
    Replacement { tool_call_id: result.call_id.clone(), content: result.content.clone(), status: "success" }
}

/// The key under which the inbox knows a request again: the route, and who made it.
pub(crate) fn inbox_entry(route: &str, caller: &Caller, key: &Idempotency, now: Timestamp) -> InboxEntry {
    InboxEntry {
        channel: "api".to_owned(),
        account: format!("{route}:{}", caller.principal.user_id),
        external_id: key.key.clone(),
        fingerprint: key.fingerprint.clone(),
        expires_at: now + IDEMPOTENCY_WINDOW,
    }
}
