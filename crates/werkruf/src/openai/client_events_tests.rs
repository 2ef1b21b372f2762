use std::sync::Arc;

use serde_json::{Value, json};
use werkruf_contract::{EventType, Uuid};
use werkruf_runtime::LiveEvent;

use super::{ClientEvent, ClientEventReader, PendingApproval};

fn event(kind: EventType, data: &Value) -> LiveEvent {
    LiveEvent { seq: None, kind, turn_id: Uuid::nil(), data: Arc::from(data.to_string()), at: None }
}

fn token(text: &str) -> LiveEvent {
    event(EventType::AssistantToken, &json!({"content": text, "step": 1}))
}

fn reset() -> LiveEvent {
    event(EventType::AssistantReset, &json!({"step": 1, "turn_id": Uuid::nil()}))
}

/// The row that ends a step.
fn snapshot(text: &str) -> LiveEvent {
    LiveEvent { seq: Some(2), ..partial(text) }
}

/// The partial text of a step that another process runs. It has no sequence number.
fn partial(text: &str) -> LiveEvent {
    event(EventType::AssistantSnapshot, &json!({"content": text, "step": 1, "turn_id": Uuid::nil()}))
}

fn final_event(text: &str) -> LiveEvent {
    let usage = json!({"input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "reasoning_tokens": 0, "total_tokens": 2, "cost_usd": null, "model_calls": 1});
    event(EventType::Final, &json!({"message": {"role": "assistant", "content": text}, "usage": usage, "unknown": 1}))
}

/// The texts with their steps, and the last event.
fn read_all(events: &[LiveEvent]) -> (Vec<(u32, String)>, Option<ClientEvent>) {
    let mut reader = ClientEventReader::default();
    let mut texts = Vec::new();
    let mut end = None;
    for event in events.iter().flat_map(|event| reader.read(event)) {
        match event {
            ClientEvent::Text { step, text } => texts.push((step, text)),
            other => assert!(end.replace(other).is_none(), "one end only"),
        }
    }
    assert_eq!(reader.has_ended(), end.is_some());
    (texts, end)
}

fn texts_of(texts: &[(u32, &str)]) -> Vec<(u32, String)> {
    texts.iter().map(|(step, text)| (*step, (*text).to_owned())).collect()
}

#[test]
fn the_text_of_every_step_is_sent_once() {
    let (texts, end) = read_all(&[token("Let "), token("me see."), snapshot("Let me see."), token("Tea."), final_event("Tea.")]);
    assert_eq!(texts, texts_of(&[(0, "Let "), (0, "me see."), (1, "Tea.")]));
    assert!(matches!(end, Some(ClientEvent::Answered(_))));
    // Stored events contain no tokens.
    let (stored, _) = read_all(&[snapshot("Let me see."), final_event("Tea.")]);
    assert_eq!(stored, texts_of(&[(0, "Let me see."), (1, "Tea.")]));
}

#[test]
fn a_partial_text_of_another_process_is_sent_once() {
    let (texts, end) = read_all(&[partial("Let "), partial("Let me see."), snapshot("Let me see."), partial("Te"), final_event("Tea.")]);
    assert_eq!(texts, texts_of(&[(0, "Let "), (0, "me see."), (1, "Te"), (1, "a.")]));
    assert!(matches!(end, Some(ClientEvent::Answered(_))));
}

#[test]
fn the_text_of_a_step_with_client_calls_is_sent_once() {
    let mut ended = final_event("Wait.");
    let mut data: Value = serde_json::from_str(&ended.data).unwrap();
    data["client_calls"] = json!([{"id": "a", "name": "f", "arguments": "{}"}]);
    ended.data = Arc::from(data.to_string());
    for events in [vec![token("Wait."), snapshot("Wait."), ended.clone()], vec![snapshot("Wait."), ended]] {
        let (texts, end) = read_all(&events);
        assert_eq!(texts, texts_of(&[(0, "Wait.")]));
        assert!(matches!(end, Some(ClientEvent::Answered(answer)) if answer.client_calls.len() == 1));
    }
}

#[test]
fn a_restart_with_the_same_text_continues_the_stream() {
    let (texts, end) = read_all(&[token("Grü"), reset(), token("G"), token("rüße"), token("!"), final_event("Grüße!")]);
    assert_eq!(texts, texts_of(&[(0, "Grü"), (0, "ße"), (0, "!")]));
    assert!(matches!(end, Some(ClientEvent::Answered(_))));
}

#[test]
fn a_restart_with_another_text_ends_the_stream() {
    for events in [
        vec![token("Good"), reset(), token("Bad"), final_event("Bad")],
        vec![token("Good day"), reset(), token("Good"), final_event("Good")],
        vec![token("é"), reset(), token("è"), final_event("è")],
    ] {
        let (_, end) = read_all(&events);
        assert!(matches!(end, Some(ClientEvent::Failed(failed)) if failed.code == "model_interrupted"), "{events:?}");
    }
}

#[test]
fn pending_approvals_and_failures_end_the_stream() {
    let waiting =
        event(EventType::ApprovalRequired, &json!({"approval_id": Uuid::nil(), "tool": "pay", "job_id": Uuid::nil(), "arguments": {}}));
    let mut reader = ClientEventReader::default();
    assert!(reader.read(&waiting).is_empty());
    assert_eq!(
        reader.end(Uuid::nil()),
        Some(ClientEvent::AwaitingApproval(vec![PendingApproval {
            approval_id: Uuid::nil(),
            tool: "pay".to_owned(),
            usage: Default::default()
        }]))
    );
    assert_eq!(reader.end(Uuid::nil()), None);
    assert!(matches!(ClientEventReader::default().end(Uuid::nil()), Some(ClientEvent::Failed(failed)) if failed.code == "server_busy"));
    let error = event(
        EventType::Error,
        &json!({"type": "UPSTREAM", "code": "model_unavailable", "message": "m", "retry_after_ms": null, "turn_id": Uuid::nil()}),
    );
    assert!(matches!(read_all(&[error]).1, Some(ClientEvent::Failed(failed)) if failed.code == "model_unavailable"));
    assert!(matches!(read_all(&[event(EventType::Final, &json!({}))]).1, Some(ClientEvent::Failed(failed)) if failed.code == "internal"));
}
