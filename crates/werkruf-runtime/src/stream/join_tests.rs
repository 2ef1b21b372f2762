use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::{AssistantToken, EventType, Uuid};
use werkruf_store::{EventRow, Fence, NewPartial, PartialText, ReadLimit, StoreFuture, StreamKey, Streams};

use super::super::event::LiveEvent;
use super::{Broadcast, Joined, PartialAnswer, SubscribeOptions, join};

const TURN: Uuid = Uuid::from_u128(2);
const KEY: StreamKey = StreamKey { tenant_id: Uuid::from_u128(9), stream_id: Uuid::from_u128(1) };
const LIMIT: ReadLimit = ReadLimit { rows: 10, bytes: 1024 };

const fn after(after: i64) -> SubscribeOptions {
    SubscribeOptions { turn_id: None, debug: false, after }
}

/// A store in which something happens while the rows are read.
struct Racing<'a> {
    saved: Option<&'static str>,
    during_read: &'a (dyn Fn() -> Vec<EventRow> + Send + Sync),
}

impl Streams for Racing<'_> {
    fn events(&self, _: Uuid, _: Uuid, _: Option<Uuid>, _: i64, _: ReadLimit) -> StoreFuture<'_, Vec<EventRow>> {
        Box::pin(async { Ok((self.during_read)()) })
    }

    fn first_event(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, i64> {
        Box::pin(async { Ok(1) })
    }

    fn partial(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, Option<PartialText>> {
        Box::pin(async { Ok(self.saved.map(|content| PartialText { turn_id: TURN, step: 1, content: content.to_owned() })) })
    }

    fn save_partials(&self, _: Vec<NewPartial>, _: Timestamp) -> StoreFuture<'_, usize> {
        Box::pin(async { Ok(0) })
    }
}

fn token(broadcast: &Broadcast, content: &str) {
    let fence = Fence { tenant_id: KEY.tenant_id, stream_id: KEY.stream_id, owner: "me".to_owned(), epoch: 1 };
    broadcast.publish_token(&fence, TURN, &AssistantToken { content: content.to_owned(), step: 1 });
}

fn row(kind: EventType) -> EventRow {
    EventRow { seq: 1, kind, turn_id: Some(TURN), data: r#"{"step":1}"#.into(), created_at: Timestamp::UNIX_EPOCH }
}

/// The text that a subscriber has after it joined and received what waits.
fn shown(joined: Joined) -> String {
    let Joined::Live { partial, mut events, .. } = joined else { panic!("the subscriber is behind: {joined:?}") };
    let mut shown = partial.map(|partial| partial.content).unwrap_or_default();
    while let Some(event) = events.try_recv() {
        shown.push_str(&serde_json::from_str::<AssistantToken>(&event.data).unwrap().content);
    }
    shown
}

#[tokio::test]
async fn text_that_a_row_discards_while_the_rows_are_read_is_not_shown() {
    let broadcast = Broadcast::default();
    token(&broadcast, "wr");
    let discarding = || {
        token(&broadcast, "ong");
        let reset = row(EventType::AssistantReset);
        let event = LiveEvent { seq: Some(1), kind: reset.kind, turn_id: TURN, data: Arc::from(&*reset.data), at: None };
        broadcast.publish(KEY.stream_id, &event);
        token(&broadcast, "right");
        vec![reset]
    };
    let joined = join(&Racing { saved: Some("wr"), during_read: &discarding }, &broadcast, KEY, after(0), LIMIT).await.unwrap();
    assert!(matches!(&joined, Joined::Behind(rows) if rows.len() == 1), "{joined:?}");
    let again = join(&Racing { saved: None, during_read: &Vec::new }, &broadcast, KEY, after(1), LIMIT).await.unwrap();
    assert_eq!(shown(again), "right");
}

#[tokio::test]
async fn text_that_begins_while_a_subscriber_joins_is_shown_once() {
    let broadcast = Broadcast::default();
    let writing = || {
        token(&broadcast, "new");
        vec![row(EventType::ToolProgress)]
    };
    let joined = join(&Racing { saved: None, during_read: &writing }, &broadcast, KEY, after(0), LIMIT).await.unwrap();
    assert_eq!(shown(joined), "new");
}

#[tokio::test]
async fn saved_text_of_another_process_is_shown() {
    let broadcast = Broadcast::default();
    let joined = join(&Racing { saved: Some("elsewhere"), during_read: &Vec::new }, &broadcast, KEY, after(0), LIMIT).await.unwrap();
    let Joined::Live { partial, .. } = &joined else { panic!("{joined:?}") };
    assert_eq!(partial, &Some(PartialAnswer { turn_id: TURN, step: 1, content: "elsewhere".to_owned() }));
}
