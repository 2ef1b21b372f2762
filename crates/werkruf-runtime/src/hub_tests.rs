use std::sync::Arc;

use werkruf_contract::{AssistantToken, EventType, Uuid};
use werkruf_store::{Fence, NewPartial, StreamKey};

use super::{EVENTS, Hub, LiveEvent, PartialAnswer, SubscribeOptions, TICKS, WEIGHT};

const STREAM: Uuid = Uuid::from_u128(1);
const TURN: Uuid = Uuid::from_u128(2);
const KEY: StreamKey = StreamKey { tenant_id: Uuid::from_u128(9), stream_id: STREAM };
const ALL: SubscribeOptions = SubscribeOptions { turn_id: None, debug: false, after: 0 };

fn fence(epoch: i64) -> Fence {
    Fence { tenant_id: Uuid::from_u128(9), stream_id: STREAM, owner: "me".to_owned(), epoch }
}

fn say(hub: &Hub, content: &str, step: u32) {
    hub.publish_token(&fence(1), TURN, &AssistantToken { content: content.to_owned(), step });
}

fn row(hub: &Hub, kind: EventType, data: &str) {
    hub.publish(STREAM, &LiveEvent { seq: Some(1), kind, turn_id: TURN, data: Arc::from(data) });
}

#[test]
fn who_joins_late_gets_the_text_so_far_and_then_only_what_follows() {
    let hub = Hub::default();
    say(&hub, "Hel", 1);
    let (mut events, shown) = hub.watch(KEY, ALL);
    assert_eq!(shown, Some(PartialAnswer { turn_id: TURN, step: 1, content: "Hel".to_owned() }));
    say(&hub, "lo", 1);
    assert_eq!(&*events.try_recv().unwrap().data, r#"{"content":"lo","step":1}"#);
    row(&hub, EventType::Final, "{}");
    assert_eq!(hub.watch(KEY, ALL).1, None);
}

#[test]
fn a_turn_canceled_in_its_lane_does_not_take_the_text_of_the_one_ahead() {
    let hub = Hub::default();
    say(&hub, "Hel", 1);
    let (mut events, _) = hub.watch(KEY, ALL);
    let behind = LiveEvent { seq: Some(2), kind: EventType::Error, turn_id: Uuid::from_u128(3), data: Arc::from("{}") };
    hub.publish_beside(STREAM, &behind);
    assert_eq!(events.try_recv(), Some(behind));
    say(&hub, "lo", 1);
    assert_eq!(hub.watch(KEY, ALL).1.unwrap().content, "Hello");
}

#[test]
fn a_reader_that_does_not_read_is_let_go() {
    let hub = Hub::default();
    let (events, _) = hub.watch(KEY, ALL);
    for _ in 0..=EVENTS {
        say(&hub, "x", 1);
    }
    assert!(!hub.is_watched(STREAM));
    drop(events);
}

#[test]
fn what_waits_for_a_reader_is_bounded_in_bytes_as_well() {
    let hub = Hub::default();
    let (mut events, _) = hub.watch(KEY, ALL);
    let large = "x".repeat(2 * WEIGHT);
    row(&hub, EventType::ToolStarted, &large);
    assert!(hub.is_watched(STREAM), "one event alone is always delivered");
    assert_eq!(events.try_recv().unwrap().data.len(), large.len());
    let half = "x".repeat(WEIGHT / 2 - 200);
    row(&hub, EventType::ToolStarted, &half);
    row(&hub, EventType::ToolStarted, &half);
    assert!(hub.is_watched(STREAM));
    events.try_recv().unwrap();
    row(&hub, EventType::ToolStarted, &half);
    assert!(hub.is_watched(STREAM), "what was taken weighs nothing any more");
    row(&hub, EventType::ToolStarted, &half);
    assert!(!hub.is_watched(STREAM));
}

#[test]
fn text_is_due_after_a_while_and_then_only_when_it_has_grown() {
    let hub = Hub::default();
    let kept = |content: &str| vec![NewPartial { fence: fence(1), turn_id: TURN, step: 1, content: content.to_owned() }];
    let tick = || (0..TICKS).flat_map(|_| hub.due()).collect::<Vec<_>>();
    say(&hub, "Hel", 1);
    assert_eq!(hub.due(), [], "a short turn is never written");
    assert_eq!(tick(), kept("Hel"));
    assert_eq!(tick(), [], "nothing new");
    say(&hub, "lo", 1);
    assert_eq!(tick(), kept("Hello"));
    hub.due_again();
    assert_eq!(tick(), kept("Hello"), "what was not taken is given again");
    row(&hub, EventType::AssistantReset, "{}");
    assert_eq!(tick(), []);
}

#[test]
fn text_under_a_new_lease_does_not_go_on_with_what_was_shown_under_the_old_one() {
    let hub = Hub::default();
    say(&hub, "lost", 1);
    hub.publish_token(&fence(2), TURN, &AssistantToken { content: "Hello".to_owned(), step: 1 });
    assert_eq!(hub.watch(KEY, ALL).1.unwrap().content, "Hello");
}

#[test]
fn who_heard_a_part_before_the_turn_went_elsewhere_hears_the_whole_before_its_end() {
    let hub = Hub::new(true);
    let (mut feed, _) = hub.watch(KEY, ALL);
    say(&hub, "This is the who", 1);
    hub.forsake(STREAM);
    let data = r#"{"message": {"role": "assistant", "content": "This is the whole answer."}}"#;
    hub.tell_row(STREAM, &LiveEvent { seq: Some(1), kind: EventType::Final, turn_id: TURN, data: Arc::from(data) });
    let heard: Vec<LiveEvent> = std::iter::from_fn(|| feed.try_recv()).collect();
    let kinds: Vec<EventType> = heard.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventType::AssistantToken, EventType::AssistantSnapshot, EventType::Final]);
    assert!(heard[1].data.contains("This is the whole answer."), "{}", heard[1].data);
}

fn event(seq: i64, kind: EventType, data: &str) -> LiveEvent {
    LiveEvent { seq: Some(seq), kind, turn_id: TURN, data: Arc::from(data) }
}

#[test]
fn a_row_read_before_its_turn_tells_of_it_brings_the_text_that_was_held_back() {
    let hub = Hub::new(true);
    let (mut feed, _) = hub.watch(KEY, ALL);
    let (init, end) = (
        event(1, EventType::Init, "{}"),
        event(2, EventType::Final, r#"{"message": {"role": "assistant", "content": "This is all of it."}}"#),
    );
    hub.publish(STREAM, &init);
    say(&hub, "This is ", 1);
    // Somebody joins who has less, so nobody is told any text until they have caught up.
    let (_late, _) = hub.watch(KEY, ALL);
    say(&hub, "all of it.", 1);
    hub.tell_row(STREAM, &init);
    hub.tell_row(STREAM, &end);
    hub.publish(STREAM, &end);
    let heard: Vec<EventType> = std::iter::from_fn(|| feed.try_recv()).map(|event| event.kind).collect();
    assert_eq!(heard, [EventType::Init, EventType::AssistantToken, EventType::AssistantSnapshot, EventType::Final]);
}

#[test]
fn an_older_row_told_again_does_not_take_the_text_of_a_later_step() {
    let hub = Hub::new(true);
    let (mut feed, _) = hub.watch(KEY, ALL);
    let first = event(1, EventType::AssistantSnapshot, r#"{"content": "Let me see.", "step": 1}"#);
    let end = event(2, EventType::Final, r#"{"message": {"role": "assistant", "content": "This is all of it."}}"#);
    hub.publish(STREAM, &first);
    say(&hub, "This is ", 2);
    let (_late, _) = hub.watch(KEY, ALL);
    say(&hub, "all of it.", 2);
    hub.publish(STREAM, &end);
    hub.tell_row(STREAM, &first);
    hub.tell_row(STREAM, &end);
    let heard: Vec<EventType> = std::iter::from_fn(|| feed.try_recv()).map(|event| event.kind).collect();
    assert_eq!(heard, [EventType::AssistantSnapshot, EventType::AssistantToken, EventType::AssistantSnapshot, EventType::Final]);
}
