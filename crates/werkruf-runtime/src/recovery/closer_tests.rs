use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::{CallStatus, Clock, Effect, EventType, TurnStatus, Uuid};
use werkruf_store::{CallRow, CloseReason, Fence, MessageRow, TurnCloser, TurnRow, TurnWrite, UnfinishedTurn};

use super::RecoveryCloser;
use crate::call::test_rows::once_call;

const CONVERSATION: Uuid = Uuid::from_u128(1);
const TURN: Uuid = Uuid::from_u128(2);
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn turn() -> TurnRow {
    TurnRow {
        id: TURN,
        tenant_id: Uuid::nil(),
        conversation_id: Some(CONVERSATION),
        user_id: "1".to_owned(),
        kind: "chat".to_owned(),
        assistant: "default".to_owned(),
        status: TurnStatus::Acting,
        step: 4,
        takeovers: 0,
        stalled: 0,
        key_id: None,
        cancel_requested: false,
        error: None,
        error_code: None,
        message: None,
        created_at: NOW,
        updated_at: NOW,
        finished_at: None,
        credential: String::new(),
        context: None,
        inbound: None,
    }
}

fn call(id: u128, effect: Effect, status: CallStatus, call_id: &str) -> CallRow {
    CallRow { id: Uuid::from_u128(id), turn_id: TURN, effect, status, call_id: Some(call_id.to_owned()), ..once_call() }
}

fn message(role: &str, tool_call_id: Option<&str>, status: Option<&str>) -> MessageRow {
    MessageRow {
        id: Uuid::nil(),
        conversation_id: CONVERSATION,
        created_at: NOW,
        content: String::new(),
        role: role.to_owned(),
        tool_calls: None,
        tool_call_id: tool_call_id.map(str::to_owned),
        tool_name: None,
        status: status.map(str::to_owned),
        metadata: "{}".to_owned(),
        seq: Some(1),
        turn_id: Some(TURN),
        tokens: None,
    }
}

/// Two calls have ended, of which one has no result yet; three are open, of which one has a placeholder and one has not started. The client
/// was to run another.
fn unfinished() -> UnfinishedTurn {
    let ended = CallRow { response: Some("7".to_owned()), ..call(14, Effect::Read, CallStatus::Succeeded, "ended") };
    let calls = vec![
        call(11, Effect::Once, CallStatus::Running, "once"),
        call(12, Effect::Read, CallStatus::Running, "placeholder"),
        CallRow { attempt: 0, ..call(13, Effect::Idempotent, CallStatus::Queued, "once") },
        ended.clone(),
        CallRow { id: Uuid::from_u128(15), call_id: Some("answered".to_owned()), ..ended },
    ];
    let own_id = format!("call_{}", Uuid::from_u128(13));
    let listed = ["once", "placeholder", &own_id, "ended", "answered", "client"].map(|id| json!({"id": id, "name": "pay", "args": {}}));
    let messages = vec![
        message("user", None, None),
        MessageRow { tool_calls: Some(json!(listed).to_string()), ..message("assistant", None, None) },
        message("tool", Some("placeholder"), Some("pending")),
        message("tool", Some("answered"), Some("success")),
    ];
    UnfinishedTurn { turn: turn(), calls, messages }
}

fn close(unfinished: UnfinishedTurn, reason: CloseReason) -> TurnWrite {
    let fence = Fence { tenant_id: Uuid::nil(), stream_id: CONVERSATION, owner: "maintenance".to_owned(), epoch: 1 };
    RecoveryCloser::new(Clock::driven(|| NOW, 1)).close(unfinished, fence, reason, NOW).unwrap()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_person_on_a_channel_is_told_of_a_restore_but_not_of_an_erasure() {
    let inbound = json!({"reply_to": {"channel": "whatsapp", "account": "100", "address": "49170"}}).to_string();
    let told = |reason| {
        let mut unfinished = unfinished();
        unfinished.turn.inbound = Some(inbound.clone());
        close(unfinished, reason).outbox
    };
    let rows = told(CloseReason::Restored);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.turn_id, row.recipient.lane.as_str()), (Some(TURN), "whatsapp:100:49170"));
    let text = "The server was restored from a backup while this was under way. Nothing is sent again by itself.";
    assert_eq!(parsed(&row.body), json!({"type": "text", "text": text}));
    assert_eq!(told(CloseReason::Canceled), []);
}

#[test]
fn every_open_call_ends_and_a_once_call_has_an_unknown_outcome() {
    let unknown = "The request may have been carried out; check the result before you repeat it.";
    let restored = "The server was restored from a backup while this was under way. Nothing is sent again by itself.";
    let cases = [
        (CloseReason::Restored, CallStatus::Failed, TurnStatus::Failed, "restored", restored),
        (CloseReason::Canceled, CallStatus::Canceled, TurnStatus::Canceled, "canceled", "The turn was canceled."),
    ];
    for (reason, call_status, turn_status, code, text) in cases {
        let write = close(unfinished(), reason);
        let ends: Vec<_> = write.ends.iter().map(|end| (end.id.as_u128(), end.status, end.error_code.as_deref().unwrap())).collect();
        assert_eq!(ends, [(11, call_status, "outcome_unknown"), (12, call_status, code), (13, call_status, code)]);
        let details: Vec<Value> = write.ends.iter().map(|end| parsed(end.error_detail.as_deref().unwrap())).collect();
        assert_eq!(details[0], json!({"type": "FATAL", "message": unknown, "code": "outcome_unknown", "attempt": 1}));
        assert_eq!(details[1], json!({"type": "FATAL", "message": text, "code": code, "attempt": 1}));
        assert_eq!(details[2], json!({"type": "FATAL", "message": text, "code": code}));
        assert_eq!(write.withdrawn, write.ends.iter().map(|end| end.id).collect::<Vec<_>>());

        let results: Vec<_> =
            write.messages.iter().map(|message| (message.tool_call_id.as_deref().unwrap(), message.status.unwrap())).collect();
        let own_id = format!("call_{}", Uuid::from_u128(13));
        assert_eq!(results, [("once", "error"), (&own_id, "error"), ("ended", "success"), ("client", "error")]);
        let contents: Vec<Value> = write.messages.iter().map(|message| parsed(&message.content)).collect();
        let client = json!({"code": code, "message": text});
        assert_eq!(contents, [json!({"error": details[0]}), json!({"error": details[2]}), json!(7), json!({"error": client})]);
        let [replacement] = &write.replacements[..] else { panic!("{:?}", write.replacements) };
        assert_eq!((replacement.tool_call_id.as_str(), replacement.status), ("placeholder", "error"));
        assert_eq!(parsed(&replacement.content), json!({"error": details[1]}));

        let change = write.turn.unwrap();
        let (stored, stored_code) = change.error.unwrap();
        assert_eq!((change.status, change.step, stored_code.as_str()), (turn_status, 4, code));
        assert_eq!(parsed(&stored)["message"], text);
        // A call that had not started was never announced, so its end is not announced either.
        let kinds: Vec<EventType> = write.events.iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventType::ToolFinished, EventType::ToolFinished, EventType::Error]);
        let error = json!({"type": "FATAL", "code": code, "message": text, "retry_after_ms": null, "turn_id": TURN});
        assert_eq!(parsed(&write.events[2].data), error);
    }
}

#[test]
fn a_turn_without_a_conversation_gets_no_messages() {
    let UnfinishedTurn { turn, calls, .. } = unfinished();
    let write =
        close(UnfinishedTurn { turn: TurnRow { conversation_id: None, ..turn }, calls, messages: Vec::new() }, CloseReason::Restored);
    assert_eq!((write.ends.len(), write.messages.len(), write.replacements.len()), (3, 0, 0));
}

#[test]
fn an_unreadable_list_of_calls_is_reported() {
    let mut unfinished = unfinished();
    unfinished.messages[1].tool_calls = Some("[".to_owned());
    let fence = Fence { tenant_id: Uuid::nil(), stream_id: CONVERSATION, owner: "maintenance".to_owned(), epoch: 1 };
    let closed = RecoveryCloser::new(Clock::system(0)).close(unfinished, fence, CloseReason::Restored, NOW);
    assert!(matches!(closed, Err(werkruf_store::StoreError::Broken(_))), "{closed:?}");
}
