//! Random rows for the store comparison.

use jiff::SignedDuration;
use serde_json::json;
use werkruf_contract::{CallStatus, Effect, EventType, State, Uuid};
use werkruf_store::{CallEnd, CallRetry, CallRow, NewApproval, NewCall, NewEvent, NewMessage, NewUsage, ProviderCallUpdate};

use crate::store_comparison::Comparison;

impl Comparison {
    pub fn message(&self, role: &'static str, tool_call_id: Option<String>) -> NewMessage {
        let content = format!("text {}", self.step);
        match tool_call_id {
            Some(call_id) => NewMessage { role, ..NewMessage::result(self.id(), call_id, "lookup", content, "success") },
            None => NewMessage::new(self.id(), role, content),
        }
    }

    pub fn call(&self, turn_id: Uuid, conversation_id: Option<Uuid>) -> CallRow {
        let now = self.world.clock.now();
        let running = self.below(2) == 0;
        let new = NewCall {
            id: self.id(),
            tenant_id: self.tenant(),
            conversation_id,
            turn_id,
            step: 1,
            output_index: u32::try_from(self.below(6)).unwrap(),
            tool_name: "lookup".to_owned(),
            now,
        };
        CallRow {
            call_id: Some(format!("c{}", self.below(6))),
            status: if running { CallStatus::Running } else { CallStatus::Queued },
            request: Some("{}".to_owned()),
            raw_arguments: Some("{}".to_owned()),
            effect: [Effect::Read, Effect::Idempotent, Effect::Once][usize::try_from(self.below(3)).unwrap()],
            attempt: u32::from(running),
            dedupe_key: Some(format!("key-{}", self.below(3))),
            idempotency_key: Some("k".to_owned()),
            started_at: running.then_some(now),
            ..CallRow::queued(new)
        }
    }

    pub fn usage(&self) -> NewUsage {
        NewUsage {
            tokens_prompt: 3,
            tokens_cached: 1,
            tokens_completion: 2,
            tokens_reasoning: 1,
            tokens_total: 5,
            estimated: self.below(2) == 0,
            ..NewUsage::new(self.id(), "scripted", "seeded-1", "chat")
        }
    }

    pub fn approval_request(&self, call_id: Uuid) -> NewApproval {
        NewApproval {
            id: self.id(),
            call_id,
            tool_name: "lookup".to_owned(),
            server_label: Some("bank".to_owned()),
            arguments: "{}".to_owned(),
            arguments_digest: "d".to_owned(),
            approver_roles: vec![format!("role-{}", self.below(2))],
            taint: (self.below(2) == 0).then(|| "[]".to_owned()),
            asked_by: "1".to_owned(),
            asked_key: "key:1".to_owned(),
            retried_by: (self.below(2) == 0).then(|| "2".to_owned()),
            expires_at: self.world.clock.now() + SignedDuration::from_millis(self.world.rng.between_signed(1, 60)),
        }
    }
}

pub fn event(kind: EventType) -> NewEvent {
    NewEvent { kind, data: r#"{"n":1}"#.to_owned() }
}

/// Sets or removes one field.
pub fn patch(n: u64) -> State {
    State::from_iter([(format!("f{}", n % 2), if n == 2 { json!(null) } else { json!(n) })])
}

pub fn retry(id: Uuid, attempt: u32, now: jiff::Timestamp) -> CallRetry {
    let error = "{}".to_owned();
    CallRetry { id, attempt, started_at: now, finished_at: now, status: CallStatus::Failed, error, next_started_at: now }
}

pub fn end(id: Uuid, how: u64, now: jiff::Timestamp) -> CallEnd {
    let failed = how > 0;
    CallEnd {
        id,
        status: [CallStatus::Succeeded, CallStatus::Failed, CallStatus::Timeout, CallStatus::Running][usize::try_from(how).unwrap()],
        response: (!failed).then(|| "{}".to_owned()),
        meta: None,
        error: failed.then(|| "no".to_owned()),
        error_type: failed.then(|| "FATAL".to_owned()),
        error_code: failed.then(|| if how == 1 { "outcome_unknown" } else { "other" }.to_owned()),
        error_detail: failed.then(|| "{}".to_owned()),
        permission: (how == 1).then(|| r#"{"granted":false}"#.to_owned()),
        cache_hit: false,
        finished_at: now,
    }
}

pub fn provider_update(id: Uuid, how: u64) -> ProviderCallUpdate {
    let field = |what: &str| (how > 0).then(|| format!("{what}-{how}"));
    ProviderCallUpdate {
        id,
        tool_name: format!("tool-{how}"),
        response_id: field("resp"),
        item_id: field("item"),
        call_id: field("call"),
        request: field("request"),
        raw_arguments: field("raw"),
    }
}
