use std::sync::Arc;

use bytes::BytesMut;
use werkruf_contract::{EventType, Uuid};
use werkruf_runtime::LiveEvent;

use super::{StreamCursor, frame};

const TURN: Uuid = Uuid::from_u128(1);

fn live(seq: Option<i64>, kind: EventType, data: &str) -> LiveEvent {
    LiveEvent { seq, kind, turn_id: TURN, data: Arc::from(data), at: None }
}

#[test]
fn only_numbered_events_have_an_id_line() {
    let mut out = BytesMut::new();
    frame(&mut out, Some(7), EventType::Init, "{}");
    frame(&mut out, None, EventType::AssistantToken, "{\"content\":\"a\"}");
    assert_eq!(&out[..], b"id: 7\nevent: init\ndata: {}\n\nevent: assistant_token\ndata: {\"content\":\"a\"}\n\n");
}

#[test]
fn a_line_break_in_the_data_does_not_break_the_frame() {
    let mut out = BytesMut::new();
    frame(&mut out, None, EventType::Debug, "{\n}");
    assert_eq!(&out[..], b"event: debug\ndata: {\ndata: }\n\n");
}

#[test]
fn live_events_do_not_repeat_stored_ones() {
    let cursor = StreamCursor::up_to(4);
    assert!(!cursor.is_new(&live(Some(4), EventType::ToolStarted, "{}")));
    assert!(cursor.is_new(&live(Some(5), EventType::ToolFinished, "{}")));
    assert!(cursor.is_new(&live(None, EventType::AssistantToken, r#"{"content":"x","step":1}"#)));
}

#[test]
fn a_missing_sequence_number_is_detected() {
    let cursor = StreamCursor::up_to(4);
    assert!(!cursor.skips_events(&live(Some(5), EventType::Init, "{}")));
    assert!(cursor.skips_events(&live(Some(6), EventType::Init, "{}")));
    assert!(!cursor.skips_events(&live(None, EventType::AssistantToken, "{}")));
}

#[test]
fn tokens_of_a_stored_text_are_left_out() {
    let mut cursor = StreamCursor::default();
    cursor.sent(3, EventType::AssistantSnapshot, Some(TURN), r#"{"content":"whole","step":1}"#);
    assert!(!cursor.is_new(&live(None, EventType::AssistantToken, r#"{"content":"wh","step":1}"#)));
    assert!(cursor.is_new(&live(None, EventType::AssistantToken, r#"{"content":"next","step":2}"#)));
    cursor.sent(9, EventType::Final, Some(TURN), "{}");
    assert!(!cursor.is_new(&live(None, EventType::AssistantToken, r#"{"content":"next","step":2}"#)));
    assert_eq!(cursor.last, 9);
}
