//! The fixture of the shared tests: a store, a clock, and builders for long values.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use werkruf_contract::{ApprovalStatus, CallStatus, Clock, EventType, State, TurnStatus, Uuid};

use super::{Store, TestCloser};
use crate::{
    Author, CallEnd, CallRow, ConversationRef, Decision, Fence, InboxEntry, NewCall, NewEvent, NewMessage, NewUsage, OpenTurn, Opened,
    TurnCancellation, TurnChange, TurnWrite, Written,
};

pub(crate) struct World<S> {
    pub(crate) store: Arc<S>,
    pub(crate) clock: Clock,
    pub(crate) tenant: Uuid,
    /// Changes only through [`World::later`].
    pub(crate) now: Timestamp,
}

impl<S> Clone for World<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), clock: self.clock.clone(), tenant: self.tenant, now: self.now }
    }
}

pub(crate) const OWNER: &str = "process-1";

/// A turn that has started.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) fence: Fence,
    pub(crate) conversation: Uuid,
    pub(crate) turn: Uuid,
}

impl<S: Store> World<S> {
    pub(crate) fn new(store: Arc<S>, clock: Clock) -> Self {
        let (tenant, now) = (clock.new_id(), clock.now());
        Self { store, clock, tenant, now }
    }

    /// Advances the time.
    pub(crate) fn later(&mut self, ms: i64) -> Timestamp {
        self.now = self.now.checked_add(SignedDuration::from_millis(ms)).unwrap();
        self.now
    }

    pub(crate) fn id(&self) -> Uuid {
        self.clock.new_id()
    }

    pub(crate) fn closer(&self) -> Arc<TestCloser> {
        Arc::new(TestCloser(self.clock.clone()))
    }

    pub(crate) fn message(&self, role: &'static str, content: &str) -> NewMessage {
        NewMessage::new(self.id(), role, content)
    }

    /// A decision of user 2.
    pub(crate) fn decision(&self, status: ApprovalStatus) -> Decision {
        Decision {
            status,
            by: "2".to_owned(),
            key: Some("key:2".to_owned()),
            by_another: false,
            at: self.now,
            author: Some(Author::server()),
            outbox: Vec::new(),
        }
    }

    pub(crate) fn cancellation(&self) -> TurnCancellation {
        let (error, error_code) = (r#"{"code":"canceled"}"#.to_owned(), "canceled".to_owned());
        TurnCancellation { error, error_code, event: event(EventType::Error), outbox: Vec::new(), at: self.now }
    }

    pub(crate) fn opening(&self, conversation: ConversationRef, text: &str) -> OpenTurn {
        OpenTurn {
            assistant: "default".to_owned(),
            message: Some(self.message("user", text)),
            events: vec![event(EventType::Init)],
            ..OpenTurn::new(self.tenant, "1", self.id(), conversation, OWNER, self.now)
        }
    }

    pub(crate) fn new_conversation(&self) -> ConversationRef {
        ConversationRef::New { id: self.id(), channel: "web".to_owned(), title: "Hello".to_owned() }
    }

    pub(crate) fn inbox(&self, key: &str, fingerprint: &str) -> InboxEntry {
        InboxEntry {
            channel: "api".to_owned(),
            account: "chat/1".to_owned(),
            external_id: key.to_owned(),
            fingerprint: fingerprint.to_owned(),
            expires_at: self.now.checked_add(SignedDuration::from_hours(24)).unwrap(),
        }
    }

    /// Opens a turn that may start at once.
    pub(crate) async fn begin(&self, open: OpenTurn) -> Running {
        let turn = open.turn_id;
        match self.store.open_turn(open).await.unwrap() {
            Opened::Stored { fence: Some(fence), .. } => Running { conversation: fence.stream_id, fence, turn },
            other => panic!("not started: {other:?}"),
        }
    }

    /// A new conversation with a running turn.
    pub(crate) async fn talk(&self) -> Running {
        self.begin(self.opening(self.new_conversation(), "hello")).await
    }

    pub(crate) fn to_write(&self, running: &Running) -> TurnWrite {
        TurnWrite::new(self.id(), running.fence.clone(), Some(running.conversation), running.turn, "1".to_owned(), self.now)
    }

    pub(crate) fn call(&self, running: &Running, output_index: u32) -> CallRow {
        CallRow {
            response_id: Some("resp_1".to_owned()),
            call_id: Some(format!("call_{output_index}")),
            status: CallStatus::Running,
            request: Some(r#"{"status":"open"}"#.to_owned()),
            raw_arguments: Some(r#"{"status": "open"}"#.to_owned()),
            attempt: 1,
            dedupe_key: Some("key".to_owned()),
            idempotency_key: Some("idem".to_owned()),
            trace_id: Some("trace".to_owned()),
            run_id: Some("run".to_owned()),
            started_at: Some(self.now),
            ..CallRow::queued(NewCall {
                id: self.id(),
                tenant_id: self.tenant,
                conversation_id: Some(running.conversation),
                turn_id: running.turn,
                step: 1,
                output_index,
                tool_name: "get_requests".to_owned(),
                now: self.now,
            })
        }
    }

    pub(crate) fn end(&self, call: &CallRow, status: CallStatus) -> CallEnd {
        CallEnd { response: Some(r#"{"items":[]}"#.to_owned()), ..CallEnd::new(call.id, status, self.now) }
    }

    /// The end of a call that timed out with an unknown outcome.
    pub(crate) fn unknown_end(&self, call: &CallRow) -> CallEnd {
        CallEnd { error_code: Some("outcome_unknown".to_owned()), ..CallEnd::new(call.id, CallStatus::Timeout, self.now) }
    }

    pub(crate) fn usage(&self) -> NewUsage {
        NewUsage {
            tokens_prompt: 10,
            tokens_completion: 5,
            tokens_total: 15,
            cost_nano_usd: Some(1_500_000_000),
            ..NewUsage::new(self.id(), "openai", "gpt-5", "chat")
        }
    }

    /// Commit B of a step with these calls.
    pub(crate) async fn act(&self, running: &Running, calls: &[CallRow]) -> Written {
        let mut write = self.to_write(running);
        let mut message = self.message("assistant", "");
        message.tool_calls = Some(r#"[{"id":"call_0","name":"get_requests","args":{}}]"#.to_owned());
        write.messages = vec![message];
        write.calls = calls.to_vec();
        write.events = calls.iter().map(|_| event(EventType::ToolStarted)).collect();
        write.turn = Some(to(TurnStatus::Acting));
        self.store.write(write).await.unwrap()
    }

    /// Commit C for one call.
    pub(crate) async fn finish_call(&self, running: &Running, call: &CallRow) -> Written {
        let mut write = self.to_write(running);
        let mut message = self.message("tool", "{}");
        message.tool_call_id.clone_from(&call.call_id);
        message.tool_name = Some(call.tool_name.clone());
        message.status = Some("success");
        write.messages = vec![message];
        write.ends = vec![self.end(call, CallStatus::Succeeded)];
        write.usage = vec![self.usage()];
        write.events = vec![event(EventType::ToolFinished)];
        self.store.write(write).await.unwrap()
    }

    /// Commit D.
    pub(crate) async fn complete(&self, running: &Running) -> Written {
        let mut write = self.to_write(running);
        write.messages = vec![self.message("assistant", "done")];
        write.usage = vec![self.usage()];
        write.events = vec![event(EventType::Final)];
        write.turn = Some(TurnChange {
            status: TurnStatus::Completed,
            step: 2,
            error: None,
            message: Some("done".to_owned()),
            transcript_digest: None,
        });
        self.store.write(write).await.unwrap()
    }
}

pub(crate) fn event(kind: EventType) -> NewEvent {
    NewEvent { kind, data: r#"{"n":1}"#.to_owned() }
}

pub(crate) fn to(status: TurnStatus) -> TurnChange {
    TurnChange { status, step: 1, error: None, message: None, transcript_digest: None }
}

pub(crate) fn state(value: Value) -> State {
    match value {
        Value::Object(state) => state,
        other => panic!("{other} is not an object"),
    }
}
