//! Finished calls, ten per turn, each with its rows in the history and in the events.

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;
use werkruf_contract::{CallStatus, EventType, TurnStatus};
use werkruf_store::{
    CallRow, ConversationRef, InboxEntry, NewCall, NewEvent, NewMessage, NewUsage, OpenTurn, Opened, StoreError, TurnChange, TurnWrite,
};

use super::{AT_ONCE, SeedStore};
use crate::audit::Expected;

/// Calls of one stored turn.
const PER_TURN: u64 = 10;

/// Writes so many calls; returns the expected rows.
pub async fn calls(seed_store: &SeedStore, count: u64) -> Result<Expected, String> {
    let turns = count.div_ceil(PER_TURN);
    let writes = (0..turns).map(|number| turn(seed_store, number));
    stream::iter(writes).buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok(()) }).await.map_err(|error| error.to_string())?;
    let mut expected = Expected::default();
    expected.turns(turns, PER_TURN);
    Ok(expected)
}

/// Writes one turn of ten steps: commit A, then everything else in one write.
async fn turn(seed_store: &SeedStore, number: u64) -> Result<(), StoreError> {
    let past = PastTurn {
        seed_store,
        turn_id: seed_store.clock.new_id(),
        conversation_id: seed_store.clock.new_id(),
        now: seed_store.clock.now(),
    };
    let opened = seed_store.store.open_turn(past.open(number)).await?;
    let Opened::Stored { fence: Some(fence), .. } = opened else {
        return Err(StoreError::Broken("a seeded turn did not begin".to_owned()));
    };
    let mut write = TurnWrite::new(seed_store.clock.new_id(), fence, Some(past.conversation_id), past.turn_id, "1".to_owned(), past.now);
    for step in 1..=u32::try_from(PER_TURN).unwrap_or_default() {
        past.step(&mut write, step);
    }
    past.end(&mut write);
    seed_store.store.write(write).await.map(drop)
}

struct PastTurn<'a> {
    seed_store: &'a SeedStore,
    turn_id: Uuid,
    conversation_id: Uuid,
    now: Timestamp,
}

impl PastTurn<'_> {
    fn open(&self, number: u64) -> OpenTurn {
        let id = self.conversation_id;
        let init = json!({"chatId": id, "conversation_id": id, "turn_id": self.turn_id, "created": true}).to_string();
        let conversation = ConversationRef::New { id, channel: "api".to_owned(), title: format!("Turn {number}") };
        OpenTurn {
            assistant: "default".to_owned(),
            message: Some(self.message("user", format!("Turn {number} steps=10"), None)),
            inbox: Some(InboxEntry {
                channel: "api".to_owned(),
                account: "chat:1".to_owned(),
                external_id: format!("seed-{number}"),
                fingerprint: format!("{number:064x}"),
                expires_at: self.now + jiff::SignedDuration::from_hours(24),
            }),
            events: vec![NewEvent { kind: EventType::Init, data: init }],
            ..OpenTurn::new(self.seed_store.tenant_id, "1", self.turn_id, conversation, "seed", self.now)
        }
    }

    fn step(&self, write: &mut TurnWrite, step: u32) {
        let (id, name) = (self.seed_store.clock.new_id(), format!("seed_{step}"));
        let arguments = json!({"value": format!("step {step} call 0")}).to_string();
        let mut calling = self.message("assistant", String::new(), None);
        calling.tool_calls = Some(format!(r#"[{{"id":"{name}","name":"test_echo","args":{arguments}}}]"#));
        write.messages.push(calling);
        write.messages.push(self.message("tool", arguments.clone(), Some(name.clone())));
        write.calls.push(self.call(id, name.clone(), arguments, step));
        let started = json!({"tool": "test_echo", "job_id": id, "call_id": name, "step": step});
        let finished = json!({"tool": "test_echo", "job_id": id, "call_id": name, "status": "succeeded", "took_ms": 0, "cache_hit": false});
        write.events.push(NewEvent { kind: EventType::ToolStarted, data: started.to_string() });
        write.events.push(NewEvent { kind: EventType::ToolFinished, data: finished.to_string() });
        write.usage.push(self.usage());
    }

    fn end(&self, write: &mut TurnWrite) {
        let text = "Done long ago.".to_owned();
        write.messages.push(self.message("assistant", text.clone(), None));
        write.usage.push(self.usage());
        let last = json!({"conversation_id": self.conversation_id, "turn_id": self.turn_id, "created": true, "status": "completed",
            "message": {"role": "assistant", "content": text}});
        write.events.push(NewEvent { kind: EventType::Final, data: last.to_string() });
        write.turn =
            Some(TurnChange { status: TurnStatus::Completed, step: 11, error: None, message: Some(text), transcript_digest: None });
    }

    fn message(&self, role: &'static str, content: String, answers: Option<String>) -> NewMessage {
        let id = self.seed_store.clock.new_id();
        match answers {
            Some(call_id) => NewMessage { role, ..NewMessage::result(id, call_id, "test_echo", content, "success") },
            None => NewMessage::new(id, role, content),
        }
    }

    fn call(&self, id: Uuid, name: String, arguments: String, step: u32) -> CallRow {
        CallRow {
            call_id: Some(name),
            status: CallStatus::Succeeded,
            request: Some(arguments.clone()),
            raw_arguments: Some(arguments.clone()),
            response: Some(arguments),
            attempt: 1,
            dedupe_key: Some(scattered(id)),
            idempotency_key: Some(id.to_string()),
            permission: Some(r#"{"needs":null,"granted":true,"scope":"all"}"#.to_owned()),
            context: json!({"tenant_id": self.seed_store.tenant_id, "trace_id": self.turn_id, "invocation_id": id}).to_string(),
            trace_id: Some(self.turn_id.to_string()),
            run_id: Some(format!("run_{}", self.turn_id)),
            started_at: Some(self.now),
            finished_at: Some(self.now),
            ..CallRow::queued(NewCall {
                id,
                tenant_id: self.seed_store.tenant_id,
                conversation_id: Some(self.conversation_id),
                turn_id: self.turn_id,
                step,
                output_index: 0,
                tool_name: "test_echo".to_owned(),
                now: self.now,
            })
        }
    }

    fn usage(&self) -> NewUsage {
        NewUsage {
            tokens_prompt: 100,
            tokens_completion: 31,
            tokens_total: 131,
            ..NewUsage::new(self.seed_store.clock.new_id(), "openai", "fixed", "chat")
        }
    }
}

/// Like a digest: ids that are close in time have distant values.
fn scattered(id: Uuid) -> String {
    let mixed = id.as_u128().wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    format!("{mixed:032x}{:032x}", mixed.rotate_left(64))
}
