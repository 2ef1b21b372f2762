//! Accepts a message: commit A, and the first event its client receives.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::oneshot;
use werkruf_contract::{EventType, Init, State, Uuid, is_locale};
use werkruf_store::{
    ConversationRef, Fence, InboxEntry, NewEvent, NewMessage, NewReservation, OpenTurn, Opened, Replacement, StoreError, StreamKey,
};

use super::admission::{Admission, AdmissionRefused, admission, store_over_budget};
use super::start::StoredTurn;
use crate::arrivals::Arrival;
use crate::client_request::ClientResult;
use crate::engine::Engine;
use crate::lease::{QueuePlace, RunningTurn};
use crate::request::{AcceptedTurn, Caller, Idempotency, InboundMessage, Refusal};
use crate::setup::Setup;
use crate::stored::json;
use crate::stream::{ClientLeave, LiveEvent, SubscribeOptions};
use crate::turn_limits::TurnCount;

/// How long the inbox remembers an idempotency key.
const IDEMPOTENCY_WINDOW: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
/// The result that a model gets of a call that its client never answered.
pub(crate) const NOT_ANSWERED: &str = r#"{"error":{"type":"FATAL","code":"canceled","message":"The client did not run this call."}}"#;
const TITLE_CHARS: usize = 80;
/// How often a message is offered to the store while the budgets change.
const OPEN_TRIES: u32 = 5;

/// What commit A left to do: the turn, its lease if it may start at once, and the conversation's state.
struct Opening {
    accepted: AcceptedTurn,
    turn: StoredTurn,
    fence: Option<Fence>,
    state: State,
}

/// Accepts a message. When this resolves, the message is durable, and its turn will end.
pub(crate) async fn accept(engine: &Arc<Engine>, mut message: InboundMessage) -> Result<AcceptedTurn, Refusal> {
    // Where no turn is counted, commit A finds the copy soon enough.
    let limited = engine.is_limited(&message.caller, TurnCount::of(&message.caller, &message.channel));
    let arrival = match inbox_of(&message, engine.store.clock.now()).filter(|_| limited) {
        Some(entry) => Some(first_copy(engine, message.caller.principal.tenant_id, entry).await?),
        None => None,
    };
    // Dropped without a stored turn, it gives back what was counted.
    let counted = engine.admit_message(&mut message).await?;
    message.caller.pins.apply(&mut message.context)?;
    let setup = engine.setup();
    if let Some(name) = &message.assistant
        && !engine.assistant_named(&setup, name, &message.caller)?.serves(&message.channel)
    {
        let message = format!("the assistant \"{name}\" does not answer on the channel {}", message.channel);
        return Err(Refusal::Invalid { code: "invalid_request", message });
    }
    let clock = &engine.store.clock;
    let (turn_id, created) = (clock.new_id(), message.conversation_id.is_none());
    let conversation_id = message.conversation_id.unwrap_or_else(|| clock.new_id());
    complete_context(&mut message, turn_id, clock.now());
    let place = engine.queues.enter(conversation_id);
    let init = Init { chat_id: conversation_id, conversation_id, turn_id, created };
    let (sender, receiver) = oneshot::channel();
    // Boxed: what opening needs is gone before the turn starts, which lasts far longer.
    let opening = open(Arc::clone(engine), setup, message, init, place);
    let opening = Box::pin(async move {
        let opened = opening.await;
        match &opened {
            Ok(_) => counted.keep(),
            Err(_) => drop(counted),
        }
        // Only now may other copies look.
        drop(arrival);
        opened
    });
    // A task of its own from here on: a client that leaves now must not leave a stored message without a turn.
    engine.tasks.spawn(async move {
        match opening.await {
            Ok(Opening { accepted, turn, fence, state }) => {
                let _ = sender.send(Ok(accepted));
                turn.run(fence, state).await;
            }
            Err(refusal) => drop(sender.send(Err(refusal))),
        }
    });
    receiver.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the message was not stored".to_owned()).into()))
}

/// Fills in what the request left open. From here on the context is the turn's, also for a process that takes it over.
fn complete_context(message: &mut InboundMessage, turn_id: Uuid, now: Timestamp) {
    let locale = requested_locale(message);
    let context = &mut message.context;
    (context.tenant_id, context.invocation_id, context.now_iso) = (message.caller.principal.tenant_id, turn_id, now);
    context.locale = locale;
    if context.trace_id.is_empty() {
        context.trace_id = turn_id.to_string();
    }
    if context.run_id.is_none() && context.ingestion_run_id.is_none() {
        context.run_id = Some(format!("run_{turn_id}"));
    }
}

/// The locale that the request names, else the one of the message's language; `None` if the message does not show its language.
fn requested_locale(message: &InboundMessage) -> Option<String> {
    let requested = message.locale.as_ref().or(message.context.locale.as_ref()).filter(|locale| is_locale(locale));
    requested.cloned().or_else(|| message.caller.principal.locale_of_text(&message.message))
}

/// Commit A, and its event.
async fn open(
    engine: Arc<Engine>,
    setup: Arc<Setup>,
    mut message: InboundMessage,
    init: Init,
    place: QueuePlace,
) -> Result<Opening, Refusal> {
    let Init { conversation_id, turn_id, created, .. } = init;
    let tenant_id = message.caller.principal.tenant_id;
    // Registered before it is stored: the recovery scan must never find it without an owner.
    let registration = engine.register(tenant_id, turn_id).ok_or(Refusal::Busy { retry_after_ms: 1000 })?;
    let (opened, reservation) = commit(&engine, &setup, &mut message, &init, &place, registration.running()).await?;
    let (fence, seqs, state, assistant) = match opened {
        Opened::Stored { fence, event_seqs, state, assistant } => (fence, event_seqs, state, assistant),
        Opened::Duplicate { turn_id, same_body } => return Err(Refusal::Duplicate { turn_id, same_body }),
        Opened::Recorded => return Err(Refusal::Recorded),
        Opened::UnknownConversation => return Err(Refusal::UnknownConversation),
        // A chat turn retries no call.
        Opened::Superseded | Opened::Retried { .. } => return Err(Refusal::Superseded),
        // The budgets changed all the time.
        Opened::OverBudget(_) | Opened::StaleBudgets => return Err(Refusal::Busy { retry_after_ms: 1000 }),
    };
    let stream = StreamKey { tenant_id, stream_id: conversation_id };
    let options = SubscribeOptions { turn_id: Some(turn_id), debug: message.debug, after: seqs.first().map_or(0, |seq| seq - 1) };
    let (events, _) = engine.broadcast.subscribe(stream, options);
    let event = LiveEvent { seq: seqs.first().copied(), kind: EventType::Init, turn_id, data: Arc::from(json(&init)), at: None };
    engine.journals.publish(conversation_id, &event);
    let leave = ClientLeave {
        broadcast: Arc::clone(&engine.broadcast),
        running: Arc::clone(registration.running()),
        cluster: Arc::clone(&engine.store.cluster),
        stream,
        turn_id,
        stopping: engine.stopping.clone(),
        tasks: engine.tasks.clone(),
    };
    let accepted = AcceptedTurn { conversation_id, turn_id, created, events, leave };
    let inbound = message.inbound.as_ref().map(|channel| Arc::new(channel.inbound.clone()));
    // A turn that waits has only checked its budgets.
    let reservation = reservation.filter(|_| fence.is_some());
    let turn = StoredTurn { engine, setup, message, init, registration, place, assistant, inbound, reservation, taken_over: false };
    Ok(Opening { accepted, turn, fence, state })
}

/// Commits A with the claims of the first model request. A process that does not know the budgets as they are reads them and tries again.
async fn commit(
    engine: &Engine,
    setup: &Setup,
    message: &mut InboundMessage,
    init: &Init,
    place: &QueuePlace,
    running: &RunningTurn,
) -> Result<(Opened, Option<NewReservation>), Refusal> {
    let mut tried = 0;
    loop {
        tried += 1;
        let admission = match admission(engine, setup, message, init).await {
            Ok(admission) => admission,
            Err(AdmissionRefused::Store(error)) => return Err(error.into()),
            Err(AdmissionRefused::Budget(refusal)) => {
                // A copy is answered as a copy, whatever its budget.
                if let Some(entry) = inbox_of(message, engine.store.clock.now()) {
                    refuse_known(engine, message.caller.principal.tenant_id, entry).await?;
                }
                store_over_budget(message, refusal)?;
                Admission::default()
            }
        };
        let (budgets_version, reservation) = (admission.budgets_version, admission.reservation.clone());
        let open = OpenTurn { budgets_version, reservation, ..open_turn(engine, message, init, place.is_first()) };
        match engine.journals.open(open, running).await? {
            Opened::StaleBudgets if tried < OPEN_TRIES => {
                let known = admission.budgets_version.unwrap_or_default();
                engine.store.models.budgets.refresh_from(message.caller.principal.tenant_id, known).await?;
            }
            Opened::OverBudget(over) if tried < OPEN_TRIES => {
                engine.store.models.gate.conditions().budget_refused(message.caller.principal.tenant_id, &over);
                let refusal = admission.refusal(&over, engine.store.clock.now());
                store_over_budget(message, refusal.ok_or(Refusal::Busy { retry_after_ms: 1000 })?)?;
            }
            opened => return Ok((opened, admission.reservation)),
        }
    }
}

fn open_turn(engine: &Engine, message: &InboundMessage, init: &Init, start: bool) -> OpenTurn {
    let now = engine.store.clock.now();
    let conversation = if init.created {
        let title = message.message.chars().take(TITLE_CHARS).collect();
        ConversationRef::New { id: init.conversation_id, channel: message.channel.clone(), title }
    } else {
        ConversationRef::Existing { id: init.conversation_id, any_user: message.caller.admin }
    };
    let (client, principal) = (message.client.as_ref(), &message.caller.principal);
    OpenTurn {
        assistant: match (&message.assistant, init.created) {
            (Some(named), _) => named.clone(),
            (None, true) => "default".to_owned(),
            (None, false) => String::new(),
        },
        key_id: message.caller.key_id,
        credential: message.caller.credential.clone(),
        context: Some(json(&message.context)),
        message: user_message(engine, message),
        inbox: inbox_of(message, now),
        inbound: message.inbound.as_ref().map(|channel| json(&channel.inbound)),
        start,
        client: client.map(json),
        request_digest: client.map(|client| client.transcript_digest.clone()).filter(|digest| !digest.is_empty()),
        results: message.results.iter().map(client_result).collect(),
        unanswered: (!init.created).then(|| NOT_ANSWERED.to_owned()),
        expected_last_turn: message.after,
        events: vec![NewEvent { kind: EventType::Init, data: json(init) }],
        ..OpenTurn::new(principal.tenant_id, &principal.user_id, init.turn_id, conversation, &engine.owner, now)
    }
}

/// The user's own message; `None` where a client only sends results.
fn user_message(engine: &Engine, message: &InboundMessage) -> Option<NewMessage> {
    let empty = message.message.is_empty() && message.parts.is_empty();
    if empty && !message.results.is_empty() {
        return None;
    }
    let mut metadata = serde_json::Map::new();
    if empty {
        metadata.insert("silent".to_owned(), true.into());
    }
    if !message.parts.is_empty() {
        metadata.insert("content".to_owned(), message.parts.clone().into());
    }
    if message.client.as_ref().is_some_and(|client| !client.history.is_empty()) {
        metadata.insert("client_history".to_owned(), true.into());
    }
    Some(NewMessage {
        metadata: (!metadata.is_empty()).then(|| json(&metadata)),
        ..NewMessage::new(engine.store.clock.new_id(), "user", message.message.as_str())
    })
}

/// A client's result, which replaces its placeholder in the history.
fn client_result(result: &ClientResult) -> Replacement {
    let metadata = (!result.parts.is_empty()).then(|| json(&serde_json::json!({"content": result.parts})));
    Replacement { tool_call_id: result.call_id.clone(), content: result.content.clone(), status: "success", metadata }
}

/// The inbox entry of a message: the channel's own, else that of the client's idempotency key.
fn inbox_of(message: &InboundMessage, now: Timestamp) -> Option<InboxEntry> {
    let of_channel = message.inbound.as_ref().map(|channel| channel.inbox.clone());
    of_channel.or_else(|| message.idempotency.as_ref().map(|key| inbox_entry(&message.caller, key, now)))
}

/// Waits while this process stores another copy of the request, then refuses it if the inbox has it.
async fn first_copy(engine: &Engine, tenant_id: Uuid, entry: InboxEntry) -> Result<Arrival, Refusal> {
    let arrival = engine.arrivals.enter(tenant_id, &entry).await;
    refuse_known(engine, tenant_id, entry).await?;
    Ok(arrival)
}

/// Refuses a request that is in the inbox already, before it counts as a turn or waits for one.
pub(super) async fn refuse_known(engine: &Engine, tenant_id: Uuid, entry: InboxEntry) -> Result<(), Refusal> {
    let known = engine.store.turns.known_copy(tenant_id, entry, engine.store.clock.now()).await?;
    known.map_or(Ok(()), |(turn_id, same_body)| Err(Refusal::Duplicate { turn_id, same_body }))
}

/// The inbox entry by which a repeated request is recognised: the route, the user and the key.
pub(super) fn inbox_entry(caller: &Caller, key: &Idempotency, now: Timestamp) -> InboxEntry {
    InboxEntry {
        channel: "api".to_owned(),
        account: format!("{}:{}", key.route, caller.principal.user_id),
        external_id: key.key.clone(),
        fingerprint: key.fingerprint.clone(),
        expires_at: now + IDEMPOTENCY_WINDOW,
    }
}
