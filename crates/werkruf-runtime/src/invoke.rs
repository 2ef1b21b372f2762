//! One tool without a model: called directly, or tried again. The same corridor, a turn of its own.

use std::sync::Arc;

use tokio::sync::oneshot;
use werkruf_contract::{
    CallKind, CallStatus, ChatMessage, EventType, FinishReason, State, ToolContext, TurnError, TurnStatus, Usage, Uuid,
};
use werkruf_store::{CallRow, ConversationRef, NewEvent, OpenTurn, Opened, StoreError, TurnChange, TurnKind};

use crate::approve::park;
use crate::corridor::{Arguments, Asked, Finished, Plan, Prepared, Walk, Walked};
use crate::ground::{Ground, json};
use crate::hub::LiveEvent;
use crate::inbound::{Caller, Idempotency, Invoke, InvokeOutcome, InvokeResult, Refusal};
use crate::lane::Ticket;
use crate::provided::is_provided;
use crate::record::started;
use crate::replay::{StoredFinal, output_of};
use crate::runtime::{Alive, Runtime};
use crate::stir::LOOK;
use crate::take_in::inbox_entry;
use crate::timer;
use crate::turn::fail;

/// A call that comes through no chat.
#[derive(Clone)]
struct Direct {
    caller: Caller,
    kind: TurnKind,
    conversation_id: Option<Uuid>,
    context: ToolContext,
    asked: Asked,
    idempotency: Option<Idempotency>,
}

impl Runtime {
    /// Calls a tool and waits for its outcome. A caller who leaves does not cancel it.
    pub async fn invoke(&self, invoke: Invoke) -> Result<InvokeResult, Refusal> {
        if self.setup().registry.find(&invoke.tool).is_none() {
            return Err(Refusal::UnknownTool(invoke.tool));
        }
        self.house.admit(&invoke.caller)?;
        let asked = asked(self.house.parts.clock.new_id(), &invoke.tool, Arguments::Given(invoke.input), None, None);
        let direct = Direct {
            caller: invoke.caller,
            kind: TurnKind::Invoke,
            conversation_id: invoke.conversation_id,
            context: invoke.context,
            asked,
            idempotency: invoke.idempotency,
        };
        // Boxed: the way in is long, and its future large.
        let (job_id, ended) = Box::pin(self.enter(direct)).await?;
        let gone = || Refusal::Store(StoreError::Unavailable("the call could not be recorded".to_owned()));
        let outcome = ended.await.map_err(|_| gone())?;
        Ok(InvokeResult { job_id, outcome })
    }

    /// Tries a call again that did not go well, for the person it was made for. The answer is the new call's id.
    pub async fn retry_call(&self, caller: &Caller, call_id: Uuid, force: bool) -> Result<Uuid, Refusal> {
        self.house.admit(caller)?;
        let records = &self.house.parts.records;
        let tenant_id = caller.principal.tenant_id;
        let call = records.call(tenant_id, call_id).await?.ok_or(Refusal::UnknownCall)?;
        let unknown = call.error_code.as_deref() == Some("outcome_unknown");
        if !matches!(call.status, CallStatus::Failed | CallStatus::Timeout | CallStatus::Canceled) {
            let message = format!("the call is {}; only a failed, timed out or canceled one can be tried again", call.status);
            return Err(Refusal::Conflict { code: "not_retryable", message });
        }
        if is_provided(&call) {
            let message = "the model's provider made this call, not this server; ask the model again".to_owned();
            return Err(Refusal::Conflict { code: "not_retryable", message });
        }
        if unknown && !force {
            let message = "the call may have been carried out; send {\"force\": true} if you have checked that it was not".to_owned();
            return Err(Refusal::Conflict { code: "outcome_unknown", message });
        }
        let turn = records.turn(tenant_id, call.turn_id).await?.ok_or(Refusal::UnknownCall)?;
        let principal = self.house.parts.people.principal(tenant_id, turn.user_id).await?.ok_or(Refusal::UnknownCall)?;
        let caller = Caller { principal, key_id: caller.key_id, admin: false };
        let arguments = match (call.request.as_deref().and_then(|text| serde_json::from_str(text).ok()), &call.raw_arguments) {
            (Some(request), _) => Arguments::Given(request),
            (None, Some(raw)) => Arguments::Raw(raw.clone()),
            (None, None) => {
                let message = "the call's arguments are no longer stored".to_owned();
                return Err(Refusal::Conflict { code: "not_retryable", message });
            }
        };
        let context = serde_json::from_str(&call.context)
            .ok()
            .and_then(|context| ToolContext::from_json(context).ok())
            // Erased with the person it was made for.
            .ok_or_else(|| Refusal::Conflict { code: "not_retryable", message: "the call's context is no longer stored".to_owned() })?;
        // The outcome may be known to the other side: the same key lets it recognise the call.
        let key = call.idempotency_key.clone().filter(|_| unknown);
        let direct = Direct {
            caller,
            kind: TurnKind::Retry,
            conversation_id: call.conversation_id,
            context,
            asked: asked(self.house.parts.clock.new_id(), &call.tool_name, arguments, Some(call.id), key),
            idempotency: None,
        };
        let (job_id, _) = Box::pin(self.enter(direct)).await?;
        Ok(job_id)
    }

    /// Waits for the conversation, decides, makes the turn and its call durable in one commit, and lets it run.
    async fn enter(&self, direct: Direct) -> Result<(Uuid, oneshot::Receiver<InvokeOutcome>), Refusal> {
        let house = Arc::clone(&self.house);
        let tenant_id = direct.caller.principal.tenant_id;
        let turn_id = house.parts.clock.new_id();
        let seen = || async {
            let Some(id) = direct.conversation_id else { return Ok(State::new()) };
            let conversation = house.parts.records.conversation(tenant_id, id).await?;
            let mine = conversation.filter(|c| direct.caller.admin || c.user_id == direct.caller.principal.user_id);
            mine.map(|conversation| conversation.state).ok_or(Refusal::UnknownConversation)
        };
        // Before the lane, so that a stranger learns nothing by waiting in it; after it, because the state moves on.
        seen().await?;
        let mut ticket = house.lanes.enter(direct.conversation_id.unwrap_or(turn_id));
        ticket.called().await;
        let (mut stirred, patience) = (house.stir.listen(), timer::after(house.limits.turn()));
        let (entered, ground, prepared, job_id) = loop {
            let state = seen().await?;
            let alive = house.go_live(tenant_id, turn_id);
            let mut ground =
                Arc::new(house.ground(self.setup(), direct.caller.clone(), turn_id, direct.conversation_id, Arc::clone(&alive.live)));
            let entered = Entered { context: direct.context.clone(), state: Arc::new(state), ticket, alive };
            match entered.open(&mut ground, direct.clone()).await {
                Ok((prepared, job_id)) => break (entered, ground, prepared, job_id),
                // A turn of another process is ahead. What was decided so far is decided anew: the state moves on with it.
                Err(Refusal::Store(StoreError::Busy)) if house.is_shared() && !patience.passed() && !self.is_draining() => {
                    ticket = entered.ticket;
                }
                Err(refusal) => return Err(refusal),
            }
            stirred.within(LOOK).await;
        };
        let (tell, told) = oneshot::channel();
        house.tasks.spawn(async move {
            let work = entered.go(&ground, prepared, &direct.asked, |output| drop(tell.send(output)));
            ground.unless_released(work).await;
        });
        Ok((job_id, told))
    }
}

/// A direct call whose place in the conversation has come.
pub(crate) struct Entered {
    pub(crate) context: ToolContext,
    pub(crate) state: Arc<State>,
    pub(crate) ticket: Ticket,
    #[expect(dead_code, reason = "held so that the recovery scan sees the turn as ours")]
    pub(crate) alive: Alive,
}

impl Entered {
    /// Commits A and B in one.
    async fn open(&self, ground: &mut Arc<Ground>, direct: Direct) -> Result<(Vec<Prepared>, Uuid), Refusal> {
        debug_assert!(self.ticket.is_first(), "nobody is ahead in the lane");
        let walk = Walk { ground, step: 1, state: &self.state, context: &self.context, earlier: &[] };
        let prepared = walk.prepare(vec![direct.asked]).await?;
        let Some(call) = prepared.first() else { return Err(Refusal::UnknownCall) };
        let job_id = call.row.id;
        let begins = call.row.started_at.is_some();
        let events: Vec<NewEvent> =
            if begins { vec![NewEvent { kind: EventType::ToolStarted, data: json(&started(&call.row)) }] } else { Vec::new() };
        let (now, asked) = (ground.clock.now(), timer::now());
        let route = format!("invoke/{}", call.row.tool_name);
        let opened = ground
            .turns
            .open_turn(OpenTurn {
                tenant_id: ground.fence.tenant_id,
                user_id: direct.caller.principal.user_id.clone(),
                turn_id: ground.turn_id,
                kind: direct.kind,
                conversation: ground
                    .conversation_id
                    .map_or(ConversationRef::None, |id| ConversationRef::Existing { id, any_user: direct.caller.admin }),
                assistant: String::new(),
                key_id: direct.caller.key_id,
                message: None,
                inbox: direct.idempotency.as_ref().map(|key| inbox_entry(&route, &direct.caller, key, now)),
                start: true,
                owner: ground.fence.owner.clone(),
                calls: vec![call.row.clone()],
                approvals: wish(&call.plan),
                client: None,
                request_digest: None,
                results: Vec::new(),
                unanswered: None,
                after: None,
                events,
                now,
            })
            .await?;
        match opened {
            Opened::Stored { fence: Some(fence), event_seqs, .. } => {
                for (seq, row) in event_seqs.iter().zip(prepared.iter().map(|call| &call.row)) {
                    let data = Arc::from(json(&started(row)));
                    let event = LiveEvent { seq: Some(*seq), kind: EventType::ToolStarted, turn_id: ground.turn_id, data };
                    ground.hub.publish(ground.stream_id(), &event);
                }
                ground.live.hold.take(&fence, asked);
                ground.cluster.notify();
                if let Some(ground) = Arc::get_mut(ground) {
                    ground.fence = fence;
                }
                Ok((prepared, job_id))
            }
            Opened::Stored { fence: None, .. } => Err(Refusal::Busy { retry_after_ms: 1000 }),
            Opened::Duplicate { turn_id, same_body } => {
                // The copy that became a turn may be waiting for this one.
                if let (Plan::Run(_, lead), None) = (&call.plan, ground.conversation_id) {
                    let (key, job_id) = lead.flight();
                    ground.cluster.release_key(ground.fence.tenant_id, key.to_owned(), job_id).await?;
                    ground.cluster.notify();
                }
                Err(Refusal::Duplicate { turn_id, same_body })
            }
            Opened::UnknownConversation => Err(Refusal::UnknownConversation),
            Opened::Superseded => Err(Refusal::Superseded),
        }
    }

    /// Waits for the call it joined, if it did, and goes on from there.
    async fn go(&self, ground: &Arc<Ground>, prepared: Vec<Prepared>, asked: &Asked, tell: impl FnOnce(InvokeOutcome)) {
        let walk = Walk { ground, step: 1, state: &self.state, context: &self.context, earlier: &[] };
        match walk.led(prepared, asked).await {
            Ok(prepared) => self.finish(ground, prepared, tell).await,
            Err(error) => tracing::error!(turn_id = %ground.turn_id, %error, "the call could not be brought to an end"),
        }
    }

    /// Runs the call to its end and tells whoever still listens.
    pub(crate) async fn finish(&self, ground: &Arc<Ground>, prepared: Vec<Prepared>, tell: impl FnOnce(InvokeOutcome)) {
        match self.run(ground, prepared).await {
            Ok(outcome) => tell(outcome),
            Err(error) => tracing::error!(turn_id = %ground.turn_id, %error, "the call could not be brought to an end"),
        }
    }

    /// Commits C and D in one.
    async fn run(&self, ground: &Arc<Ground>, prepared: Vec<Prepared>) -> Result<InvokeOutcome, StoreError> {
        let walk = Walk { ground, step: 1, state: &self.state, context: &self.context, earlier: &[] };
        let Finished { walked, parked, mut draft, .. } = walk.finish(prepared).await?;
        if let Some(approval_id) = parked.first().and_then(|call| call.approval_id) {
            park(ground, draft, 1, parked, None).await?;
            return Ok(InvokeOutcome::Awaiting { approval_id });
        }
        let Some(Walked { row, ended, .. }) = walked.into_iter().next() else {
            return Err(StoreError::Broken("a call vanished on its way".to_owned()));
        };
        match &ended.result {
            Ok(success) => {
                let content = success.message.clone().unwrap_or_default();
                draft.write.turn = Some(TurnChange {
                    status: TurnStatus::Completed,
                    step: 1,
                    error: None,
                    message: success.message.clone(),
                    transcript_digest: None,
                });
                if let Some(conversation_id) = ground.conversation_id {
                    let stored = StoredFinal {
                        conversation_id,
                        turn_id: ground.turn_id,
                        created: false,
                        status: TurnStatus::Completed,
                        message: ChatMessage { role: "assistant".to_owned(), content },
                        client_calls: Vec::new(),
                        finish_reason: FinishReason::default(),
                        usage: Usage::default(),
                    };
                    draft.event(EventType::Final, &stored);
                }
            }
            Err(failure) => {
                let status = if ended.status == CallStatus::Canceled { TurnStatus::Canceled } else { TurnStatus::Failed };
                let error = TurnError::new(failure.kind, failure.code.to_string(), failure.message.clone());
                fail(ground, &mut draft, status, 1, error);
            }
        }
        ground.commit(draft).await?;
        Ok(InvokeOutcome::Done(Box::new(output_of(&concluded(row, &ended)))))
    }
}

/// What a person is asked before the call may run.
fn wish(plan: &Plan) -> Vec<werkruf_store::NewApproval> {
    match plan {
        Plan::Await(awaited) => awaited.wish.iter().cloned().collect(),
        Plan::Ended(_) | Plan::Join(_) | Plan::Run(..) => Vec::new(),
    }
}

/// The row as it stands after the commit.
fn concluded(mut row: CallRow, ended: &crate::outcome::Ended) -> CallRow {
    if !row.status.is_terminal() {
        crate::record::conclude(&mut row, ended);
    }
    row
}

fn asked(job_id: Uuid, tool: &str, arguments: Arguments, retry_of: Option<Uuid>, idempotency_key: Option<String>) -> Asked {
    Asked {
        job_id,
        kind: CallKind::Function,
        item_id: None,
        call_id: None,
        response_id: None,
        output_index: 0,
        name: tool.to_owned(),
        arguments,
        history_id: None,
        retry_of,
        idempotency_key,
        refused: None,
    }
}
