use std::sync::Arc;

use werkruf_contract::{AssistantToken, EventType, Uuid};
use werkruf_store::{Fence, PartialText, StreamKey};

use super::super::event::{LiveEvent, SubscribeOptions};
use super::super::subscriber::Subscription;
use super::{Broadcast, RemoteRead};

const TURN: Uuid = Uuid::from_u128(2);
const AHEAD: Uuid = Uuid::from_u128(3);
const KEY: StreamKey = StreamKey { tenant_id: Uuid::from_u128(9), stream_id: Uuid::from_u128(1) };

fn event(seq: i64, kind: EventType) -> LiveEvent {
    LiveEvent { seq: Some(seq), kind, turn_id: TURN, data: Arc::from(r#"{"step":1}"#), at: None }
}

fn subscribe(broadcast: &Broadcast, turn_id: Option<Uuid>, after: i64) -> Subscription {
    broadcast.subscribe(KEY, SubscribeOptions { turn_id, debug: false, after }).0
}

fn token(broadcast: &Broadcast, turn_id: Uuid, content: &str) {
    let fence = Fence { tenant_id: KEY.tenant_id, stream_id: KEY.stream_id, owner: "me".to_owned(), epoch: 1 };
    broadcast.publish_token(&fence, turn_id, &AssistantToken { content: content.to_owned(), step: 1 });
}

fn nothing_read(up_to: i64) -> RemoteRead {
    RemoteRead { up_to, moved: false, partial: None, waiting: Vec::new() }
}

fn read_partial(up_to: i64, content: &str) -> RemoteRead {
    let text = PartialText { turn_id: TURN, step: 1, content: content.to_owned() };
    RemoteRead { partial: Some(("mark".to_owned(), Some(text))), ..nothing_read(up_to) }
}

fn kinds(events: &mut Subscription) -> Vec<EventType> {
    std::iter::from_fn(|| events.try_recv()).map(|event| event.kind).collect()
}

#[test]
fn saved_text_is_not_sent_after_a_row_that_was_delivered_since_it_was_read() {
    let broadcast = Broadcast::new(true);
    let mut events = subscribe(&broadcast, None, 0);
    let read = read_partial(0, "wrong");
    broadcast.publish(KEY.stream_id, &event(1, EventType::AssistantReset));
    broadcast.caught_up(KEY.stream_id, read);
    assert_eq!(kinds(&mut events), [EventType::AssistantReset]);
    // It is read again, with the rows up to this one.
    assert_eq!(broadcast.watched_streams(&[].into())[0].partial_mark, None);
    broadcast.caught_up(KEY.stream_id, read_partial(1, "right"));
    assert_eq!(kinds(&mut events), [EventType::AssistantSnapshot]);
}

#[test]
fn a_subscriber_who_joins_a_waiting_turn_stays_until_the_decision() {
    let broadcast = Broadcast::new(true);
    let ends_at_wait = |waiting: &[Uuid]| broadcast.ends_at_wait(KEY.stream_id, &[TURN].into(), waiting);
    let mut asked = subscribe(&broadcast, Some(TURN), 0);
    broadcast.deliver_row(KEY.stream_id, &event(1, EventType::ApprovalRequired));
    let mut joined = subscribe(&broadcast, Some(TURN), 1);
    let waits = |up_to| RemoteRead { waiting: vec![TURN], ..nothing_read(up_to) };
    assert!(ends_at_wait(&[TURN]));
    broadcast.caught_up(KEY.stream_id, waits(1));
    assert!(!ends_at_wait(&[TURN]));
    broadcast.publish(KEY.stream_id, &event(2, EventType::ToolFinished));
    assert_eq!((kinds(&mut asked), kinds(&mut joined)), (vec![EventType::ApprovalRequired], vec![EventType::ToolFinished]));
    // One call was decided, and the turn waits for another one again: no event says so.
    assert!(ends_at_wait(&[TURN]));
    broadcast.caught_up(KEY.stream_id, waits(2));
    assert!(broadcast.watched_streams(&[].into()).is_empty());
}

#[test]
fn a_subscriber_of_a_turn_at_work_is_disconnected_when_it_waits_although_it_wrote_nothing() {
    let broadcast = Broadcast::new(true);
    let _events = subscribe(&broadcast, Some(TURN), 1);
    assert!(!broadcast.ends_at_wait(KEY.stream_id, &[TURN].into(), &[]));
    assert!(broadcast.ends_at_wait(KEY.stream_id, &[TURN].into(), &[TURN]));
    broadcast.caught_up(KEY.stream_id, RemoteRead { waiting: vec![TURN], ..nothing_read(1) });
    assert!(broadcast.watched_streams(&[].into()).is_empty());
}

#[test]
fn text_that_is_saved_again_after_a_reset_is_sent_again() {
    let broadcast = Broadcast::new(true);
    let mut events = subscribe(&broadcast, None, 0);
    broadcast.caught_up(KEY.stream_id, read_partial(0, "same"));
    broadcast.deliver_row(KEY.stream_id, &event(1, EventType::AssistantReset));
    assert_eq!(broadcast.watched_streams(&[].into())[0].partial_mark, None);
    broadcast.caught_up(KEY.stream_id, read_partial(1, "same"));
    assert_eq!(kinds(&mut events), [EventType::AssistantSnapshot, EventType::AssistantReset, EventType::AssistantSnapshot]);
}

#[test]
fn saved_text_waits_for_a_row_that_its_subscriber_has_already() {
    let broadcast = Broadcast::new(true);
    let mut early = subscribe(&broadcast, None, 0);
    let mut ahead = subscribe(&broadcast, None, 1);
    let known = |broadcast: &Broadcast| broadcast.watched_streams(&[].into())[0].partial_mark.clone();
    broadcast.caught_up(KEY.stream_id, read_partial(0, "wrong"));
    assert_eq!((kinds(&mut early), kinds(&mut ahead)), (vec![EventType::AssistantSnapshot], vec![]));
    assert_eq!(known(&broadcast).as_deref(), Some("mark"), "nobody who has only the rows that were read lacks it");
    broadcast.deliver_row(KEY.stream_id, &event(1, EventType::ToolStarted));
    assert_eq!(known(&broadcast), None, "it is read again for the other");
    broadcast.caught_up(KEY.stream_id, read_partial(1, "right"));
    assert_eq!((kinds(&mut early), kinds(&mut ahead)), (vec![EventType::ToolStarted], vec![EventType::AssistantSnapshot]));
    assert_eq!(known(&broadcast).as_deref(), Some("mark"));
}

#[test]
fn a_subscriber_far_beyond_the_end_keeps_no_text_from_the_others() {
    let broadcast = Broadcast::new(true);
    let mut beyond = subscribe(&broadcast, None, i64::MAX);
    let mut reader = subscribe(&broadcast, None, 3);
    broadcast.caught_up(KEY.stream_id, read_partial(3, "text"));
    assert_eq!((kinds(&mut beyond), kinds(&mut reader)), (vec![], vec![EventType::AssistantSnapshot]));
    assert!(!broadcast.watched_streams(&[].into())[0].behind);
}

#[test]
fn a_cancellation_with_an_unknown_end_keeps_the_text_of_the_turn_ahead() {
    for shared in [false, true] {
        let broadcast = Broadcast::new(shared);
        let mut ahead = subscribe(&broadcast, Some(AHEAD), 0);
        let _canceled = subscribe(&broadcast, Some(TURN), 0);
        token(&broadcast, AHEAD, "Hel");
        broadcast.resynchronize_unstarted(KEY.stream_id, TURN);
        token(&broadcast, AHEAD, "lo");
        broadcast.caught_up(KEY.stream_id, nothing_read(0));
        // Where several processes share the stream, text waits until the rows were read, and comes as one snapshot.
        let expected = if shared { EventType::AssistantSnapshot } else { EventType::AssistantToken };
        let received: Vec<LiveEvent> = std::iter::from_fn(|| ahead.try_recv()).collect();
        assert_eq!(received.last().unwrap().kind, expected);
        assert_eq!(broadcast.subscribe(KEY, SubscribeOptions { turn_id: None, debug: false, after: 0 }).1.unwrap().content, "Hello");
    }
}
