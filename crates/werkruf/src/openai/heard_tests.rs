use std::sync::Arc;

use serde_json::{Value, json};
use werkruf_contract::{EventType, Uuid};
use werkruf_runtime::LiveEvent;

use super::{Awaited, Heard, Listener};

fn event(kind: EventType, data: &Value) -> LiveEvent {
    LiveEvent { seq: None, kind, turn_id: Uuid::nil(), data: Arc::from(data.to_string()) }
}

fn token(text: &str) -> LiveEvent {
    event(EventType::AssistantToken, &json!({"content": text, "step": 1}))
}

fn reset() -> LiveEvent {
    event(EventType::AssistantReset, &json!({"step": 1, "turn_id": Uuid::nil()}))
}

/// The row that ends a step.
fn snapshot(text: &str) -> LiveEvent {
    LiveEvent { seq: Some(2), ..so_far(text) }
}

/// A text under way, as another process shows it: no row.
fn so_far(text: &str) -> LiveEvent {
    event(EventType::AssistantSnapshot, &json!({"content": text, "step": 1, "turn_id": Uuid::nil()}))
}

fn last(text: &str) -> LiveEvent {
    let usage = json!({"input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "reasoning_tokens": 0, "total_tokens": 2, "cost_usd": null, "model_calls": 1});
    event(EventType::Final, &json!({"message": {"role": "assistant", "content": text}, "usage": usage, "unknown": 1}))
}

/// The text heard with its steps, and how it ended.
fn told(events: &[LiveEvent]) -> (Vec<(u32, String)>, Option<Heard>) {
    let mut listener = Listener::default();
    let mut texts = Vec::new();
    let mut end = None;
    for one in events.iter().flat_map(|event| listener.hear(event)) {
        match one {
            Heard::Text { step, text } => texts.push((step, text)),
            other => assert!(end.replace(other).is_none(), "one end only"),
        }
    }
    assert_eq!(listener.has_ended(), end.is_some());
    (texts, end)
}

fn said(texts: &[(u32, &str)]) -> Vec<(u32, String)> {
    texts.iter().map(|(step, text)| (*step, (*text).to_owned())).collect()
}

#[test]
fn text_of_every_step_is_heard_once() {
    let (texts, end) = told(&[token("Let "), token("me see."), snapshot("Let me see."), token("Tea."), last("Tea.")]);
    assert_eq!(texts, said(&[(0, "Let "), (0, "me see."), (1, "Tea.")]));
    assert!(matches!(end, Some(Heard::Done(_))));
    // Stored rows have no tokens.
    let (stored, _) = told(&[snapshot("Let me see."), last("Tea.")]);
    assert_eq!(stored, said(&[(0, "Let me see."), (1, "Tea.")]));
}

#[test]
fn a_text_that_another_process_shows_is_heard_once() {
    let (texts, end) = told(&[so_far("Let "), so_far("Let me see."), snapshot("Let me see."), so_far("Te"), last("Tea.")]);
    assert_eq!(texts, said(&[(0, "Let "), (0, "me see."), (1, "Te"), (1, "a.")]));
    assert!(matches!(end, Some(Heard::Done(_))));
}

#[test]
fn text_beside_the_clients_calls_is_heard_once() {
    let mut ended = last("Wait.");
    let mut data: Value = serde_json::from_str(&ended.data).unwrap();
    data["client_calls"] = json!([{"id": "a", "name": "f", "arguments": "{}"}]);
    ended.data = Arc::from(data.to_string());
    for events in [vec![token("Wait."), snapshot("Wait."), ended.clone()], vec![snapshot("Wait."), ended]] {
        let (texts, end) = told(&events);
        assert_eq!(texts, said(&[(0, "Wait.")]));
        assert!(matches!(end, Some(Heard::Done(done)) if done.client_calls.len() == 1));
    }
}

#[test]
fn a_second_try_that_says_the_same_is_not_noticed() {
    let (texts, end) = told(&[token("Grü"), reset(), token("G"), token("rüße"), token("!"), last("Grüße!")]);
    assert_eq!(texts, said(&[(0, "Grü"), (0, "ße"), (0, "!")]));
    assert!(matches!(end, Some(Heard::Done(_))));
}

#[test]
fn a_second_try_that_says_something_else_ends_the_stream() {
    for events in [
        vec![token("Good"), reset(), token("Bad"), last("Bad")],
        vec![token("Good day"), reset(), token("Good"), last("Good")],
        vec![token("é"), reset(), token("è"), last("è")],
    ] {
        let (_, end) = told(&events);
        assert!(matches!(end, Some(Heard::Failed(failed)) if failed.code == "model_interrupted"), "{events:?}");
    }
}

#[test]
fn waiting_and_failing_are_heard() {
    let waiting =
        event(EventType::ApprovalRequired, &json!({"approval_id": Uuid::nil(), "tool": "pay", "job_id": Uuid::nil(), "arguments": {}}));
    let mut listener = Listener::default();
    assert!(listener.hear(&waiting).is_empty());
    assert_eq!(
        listener.end(Uuid::nil()),
        Some(Heard::Waiting(vec![Awaited { approval_id: Uuid::nil(), tool: "pay".to_owned(), usage: Default::default() }]))
    );
    assert_eq!(listener.end(Uuid::nil()), None);
    assert!(matches!(Listener::default().end(Uuid::nil()), Some(Heard::Failed(failed)) if failed.code == "server_busy"));
    let error = event(
        EventType::Error,
        &json!({"type": "UPSTREAM", "code": "model_unavailable", "message": "m", "retry_after_ms": null, "turn_id": Uuid::nil()}),
    );
    assert!(matches!(told(&[error]).1, Some(Heard::Failed(failed)) if failed.code == "model_unavailable"));
    assert!(matches!(told(&[event(EventType::Final, &json!({}))]).1, Some(Heard::Failed(failed)) if failed.code == "internal"));
}
