use std::sync::Arc;

use werkruf_contract::{AssistantToken, EventType, Uuid};
use werkruf_store::{Fence, NewPartial, StreamKey};

use super::super::subscriber::{MAX_BYTES, MAX_EVENTS, PIECE};
use super::{Broadcast, LiveEvent, PartialAnswer, SubscribeOptions, TICKS};

const STREAM: Uuid = Uuid::from_u128(1);
const TURN: Uuid = Uuid::from_u128(2);
const KEY: StreamKey = StreamKey { tenant_id: Uuid::from_u128(9), stream_id: STREAM };
const ALL: SubscribeOptions = SubscribeOptions { turn_id: None, debug: false, after: 0 };

fn fence(epoch: i64) -> Fence {
    Fence { tenant_id: Uuid::from_u128(9), stream_id: STREAM, owner: "me".to_owned(), epoch }
}

fn token(broadcast: &Broadcast, content: &str, step: u32) {
    broadcast.publish_token(&fence(1), TURN, &AssistantToken { content: content.to_owned(), step });
}

fn row(broadcast: &Broadcast, kind: EventType, data: &str) {
    broadcast.publish(STREAM, &LiveEvent { seq: Some(1), kind, turn_id: TURN, data: Arc::from(data), at: None });
}

#[test]
fn a_late_subscriber_gets_the_text_so_far_and_then_only_what_follows() {
    let broadcast = Broadcast::default();
    token(&broadcast, "Hel", 1);
    let (mut events, partial) = broadcast.subscribe(KEY, ALL);
    assert_eq!(partial, Some(PartialAnswer { turn_id: TURN, step: 1, content: "Hel".to_owned() }));
    token(&broadcast, "lo", 1);
    assert_eq!(&*events.try_recv().unwrap().data, r#"{"content":"lo","step":1}"#);
    row(&broadcast, EventType::Final, "{}");
    assert_eq!(broadcast.subscribe(KEY, ALL).1, None);
}

#[test]
fn a_turn_canceled_in_its_queue_does_not_end_the_text_of_the_turn_ahead() {
    let broadcast = Broadcast::default();
    token(&broadcast, "Hel", 1);
    let (mut events, _) = broadcast.subscribe(KEY, ALL);
    let behind = LiveEvent { seq: Some(2), kind: EventType::Error, turn_id: Uuid::from_u128(3), data: Arc::from("{}"), at: None };
    broadcast.publish_unstarted(STREAM, &behind);
    assert_eq!(events.try_recv(), Some(behind));
    token(&broadcast, "lo", 1);
    assert_eq!(broadcast.subscribe(KEY, ALL).1.unwrap().content, "Hello");
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    let broadcast = Broadcast::default();
    let (events, _) = broadcast.subscribe(KEY, ALL);
    for _ in 0..MAX_EVENTS {
        row(&broadcast, EventType::ToolStarted, "{}");
    }
    assert!(broadcast.has_subscribers(STREAM));
    row(&broadcast, EventType::ToolStarted, "{}");
    assert!(!broadcast.has_subscribers(STREAM));
    drop(events);
}

/// The text of an event.
fn text(event: &LiveEvent) -> String {
    serde_json::from_str::<AssistantToken>(&event.data).unwrap().content
}

#[test]
fn a_subscriber_that_is_behind_gets_the_text_it_missed_in_one_piece() {
    let broadcast = Broadcast::default();
    let (mut fast, _) = broadcast.subscribe(KEY, ALL);
    let (mut slow, _) = broadcast.subscribe(KEY, ALL);
    let mut read = Vec::new();
    for number in 0..8_000 {
        token(&broadcast, &format!("{number} "), 1);
        read.extend(fast.try_recv());
    }
    row(&broadcast, EventType::Final, "{}");
    let whole: String = (0..8_000).map(|number| format!("{number} ")).collect();
    assert_eq!((read.len(), read.iter().map(text).collect::<String>()), (8_000, whole.clone()), "one position per subscriber");
    assert_eq!(fast.try_recv().unwrap().kind, EventType::Final);
    let missed: Vec<LiveEvent> = std::iter::from_fn(|| slow.try_recv()).collect();
    let (end, tokens) = missed.split_last().unwrap();
    assert_eq!((end.kind, tokens.len()), (EventType::Final, whole.len().div_ceil(PIECE)));
    assert_eq!(tokens.iter().map(text).collect::<String>(), whole);
}

#[test]
fn text_is_joined_within_a_step_only_and_never_cut_inside_a_character() {
    let broadcast = Broadcast::default();
    let (mut events, _) = broadcast.subscribe(KEY, ALL);
    token(&broadcast, "x", 1);
    token(&broadcast, &"😀".repeat(PIECE / 4 + 1), 1);
    row(&broadcast, EventType::ToolStarted, "{}");
    token(&broadcast, "after", 1);
    token(&broadcast, "next", 2);
    let received: Vec<LiveEvent> = std::iter::from_fn(|| events.try_recv()).collect();
    let kinds: Vec<EventType> = received.iter().map(|event| event.kind).collect();
    let token = EventType::AssistantToken;
    assert_eq!(kinds, [token, token, EventType::ToolStarted, token, token]);
    assert_eq!([text(&received[0]), text(&received[1])], [format!("x{}", "😀".repeat(PIECE / 4)), "😀".to_owned()]);
    assert_eq!([text(&received[3]), text(&received[4])], ["after", "next"]);
}

#[test]
fn unread_text_does_not_count_for_the_size_of_other_events() {
    let broadcast = Broadcast::default();
    let (events, _) = broadcast.subscribe(KEY, ALL);
    token(&broadcast, &"x".repeat(2 * MAX_BYTES), 1);
    row(&broadcast, EventType::AssistantSnapshot, &"x".repeat(2 * MAX_BYTES));
    assert!(broadcast.has_subscribers(STREAM));
    drop(events);
}

#[test]
fn the_queue_of_a_subscriber_is_bounded_in_bytes_as_well() {
    let broadcast = Broadcast::default();
    let (mut events, _) = broadcast.subscribe(KEY, ALL);
    let large = "x".repeat(2 * MAX_BYTES);
    row(&broadcast, EventType::ToolStarted, &large);
    assert!(broadcast.has_subscribers(STREAM), "one event alone is always delivered");
    assert_eq!(events.try_recv().unwrap().data.len(), large.len());
    let half = "x".repeat(MAX_BYTES / 2 - 200);
    row(&broadcast, EventType::ToolStarted, &half);
    row(&broadcast, EventType::ToolStarted, &half);
    assert!(broadcast.has_subscribers(STREAM));
    events.try_recv().unwrap();
    row(&broadcast, EventType::ToolStarted, &half);
    assert!(broadcast.has_subscribers(STREAM), "an event that was received does not count any more");
    row(&broadcast, EventType::ToolStarted, &half);
    assert!(!broadcast.has_subscribers(STREAM));
}

#[test]
fn text_is_saved_after_a_while_and_then_only_when_it_has_grown() {
    let broadcast = Broadcast::default();
    let saved = |content: &str| vec![NewPartial { fence: fence(1), turn_id: TURN, step: 1, content: content.to_owned() }];
    let tick = || (0..TICKS).flat_map(|_| broadcast.due_for_checkpoint()).collect::<Vec<_>>();
    token(&broadcast, "Hel", 1);
    assert_eq!(broadcast.due_for_checkpoint(), [], "a short turn is never written");
    assert_eq!(tick(), saved("Hel"));
    assert_eq!(tick(), [], "nothing new");
    token(&broadcast, "lo", 1);
    assert_eq!(tick(), saved("Hello"));
    broadcast.checkpoint_failed();
    assert_eq!(tick(), saved("Hello"), "a text that was not saved is due again");
    row(&broadcast, EventType::AssistantReset, "{}");
    assert_eq!(tick(), []);
}

#[test]
fn text_under_a_new_lease_does_not_continue_the_text_of_the_old_one() {
    let broadcast = Broadcast::default();
    token(&broadcast, "lost", 1);
    broadcast.publish_token(&fence(2), TURN, &AssistantToken { content: "Hello".to_owned(), step: 1 });
    assert_eq!(broadcast.subscribe(KEY, ALL).1.unwrap().content, "Hello");
}

#[test]
fn a_subscriber_with_a_part_of_the_text_gets_the_whole_before_the_end_after_a_takeover() {
    let broadcast = Broadcast::new(true);
    let (mut events, _) = broadcast.subscribe(KEY, ALL);
    token(&broadcast, "This is the who", 1);
    broadcast.abandon(STREAM);
    let data = r#"{"message": {"role": "assistant", "content": "This is the whole answer."}}"#;
    broadcast.deliver_row(STREAM, &LiveEvent { seq: Some(1), kind: EventType::Final, turn_id: TURN, data: Arc::from(data), at: None });
    let received: Vec<LiveEvent> = std::iter::from_fn(|| events.try_recv()).collect();
    let kinds: Vec<EventType> = received.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventType::AssistantToken, EventType::AssistantSnapshot, EventType::Final]);
    assert!(received[1].data.contains("This is the whole answer."), "{}", received[1].data);
}

fn event(seq: i64, kind: EventType, data: &str) -> LiveEvent {
    LiveEvent { seq: Some(seq), kind, turn_id: TURN, data: Arc::from(data), at: None }
}

#[test]
fn a_row_read_before_it_is_published_brings_the_text_that_was_held_back() {
    let broadcast = Broadcast::new(true);
    let (mut events, _) = broadcast.subscribe(KEY, ALL);
    let (init, end) = (
        event(1, EventType::Init, "{}"),
        event(2, EventType::Final, r#"{"message": {"role": "assistant", "content": "This is all of it."}}"#),
    );
    broadcast.publish(STREAM, &init);
    token(&broadcast, "This is ", 1);
    // A subscriber joins that has fewer events, so no subscriber receives text until it has caught up.
    let (_late, _) = broadcast.subscribe(KEY, ALL);
    token(&broadcast, "all of it.", 1);
    broadcast.deliver_row(STREAM, &init);
    broadcast.deliver_row(STREAM, &end);
    broadcast.publish(STREAM, &end);
    let received: Vec<EventType> = std::iter::from_fn(|| events.try_recv()).map(|event| event.kind).collect();
    assert_eq!(received, [EventType::Init, EventType::AssistantToken, EventType::AssistantSnapshot, EventType::Final]);
}

#[test]
fn an_older_row_delivered_again_does_not_settle_the_text_of_a_later_step() {
    let broadcast = Broadcast::new(true);
    let (mut events, _) = broadcast.subscribe(KEY, ALL);
    let first = event(1, EventType::AssistantSnapshot, r#"{"content": "Let me see.", "step": 1}"#);
    let end = event(2, EventType::Final, r#"{"message": {"role": "assistant", "content": "This is all of it."}}"#);
    broadcast.publish(STREAM, &first);
    token(&broadcast, "This is ", 2);
    let (_late, _) = broadcast.subscribe(KEY, ALL);
    token(&broadcast, "all of it.", 2);
    broadcast.publish(STREAM, &end);
    broadcast.deliver_row(STREAM, &first);
    broadcast.deliver_row(STREAM, &end);
    let received: Vec<EventType> = std::iter::from_fn(|| events.try_recv()).map(|event| event.kind).collect();
    assert_eq!(received, [EventType::AssistantSnapshot, EventType::AssistantToken, EventType::AssistantSnapshot, EventType::Final]);
}
