//! Event streams through the API: long logs, shortened logs, and partial text of an earlier process.

use jiff::SignedDuration;
use reqwest::{Method, Response};
use serde_json::json;
use werkruf::sample::DEMO_ID;
use werkruf_bench::fake_model::{Gate, Reply};
use werkruf_contract::{EventType, TurnStatus, Uuid};
use werkruf_store::{ConversationRef, Fence, NewEvent, NewPartial, OpenTurn, Opened, TurnChange, TurnKind, TurnWrite};

use crate::support::{Stream, TestServer, body};

/// A turn in this conversation that is written directly to the store.
struct DirectTurn<'a> {
    server: &'a TestServer,
    fence: Fence,
    turn_id: Uuid,
}

impl<'a> DirectTurn<'a> {
    async fn begin(server: &'a TestServer, conversation: &str) -> Self {
        let turn_id = server.app.clock.new_id();
        let conversation = ConversationRef::Existing { id: conversation.parse().unwrap(), any_user: true };
        let new = OpenTurn::new(DEMO_ID, "3", turn_id, conversation, "turn", server.app.clock.now());
        let open = OpenTurn { kind: TurnKind::Invoke, ..new };
        let Opened::Stored { fence: Some(fence), .. } = server.app.store.open_turn(open).await.unwrap() else {
            panic!("the turn did not start")
        };
        Self { server, fence, turn_id }
    }

    fn to_write(&self) -> TurnWrite {
        let clock = &self.server.app.clock;
        TurnWrite::new(clock.new_id(), self.fence.clone(), Some(self.fence.stream_id), self.turn_id, "3".to_owned(), clock.now())
    }

    async fn write(&self, events: usize, bytes: usize) {
        let mut write = self.to_write();
        let data = json!({"text": "x".repeat(bytes)}).to_string();
        write.events = (0..events).map(|_| NewEvent { kind: EventType::ToolStarted, data: data.clone() }).collect();
        self.server.app.store.write(write).await.unwrap();
    }

    async fn end(&self) {
        let mut write = self.to_write();
        write.turn = Some(TurnChange { status: TurnStatus::Failed, step: 1, error: None, message: None, transcript_digest: None });
        self.server.app.store.write(write).await.unwrap();
    }
}

fn path(conversation: &str, query: &str) -> String {
    format!("/api/conversations/{conversation}/events{query}")
}

async fn follow(server: &TestServer, conversation: &str, after: i64) -> Stream {
    let request = server.as_user(3, Method::GET, &path(conversation, "")).header("last-event-id", after);
    Stream::new(request.send().await.unwrap())
}

#[tokio::test]
async fn ten_thousand_stored_events_continue_with_live_events_without_gap_or_repeat() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Hello.")]);
    let conversation = server.conversation(3).await;
    let turn = DirectTurn::begin(&server, &conversation).await;
    for _ in 0..12 {
        turn.write(1_000, 10).await;
    }
    // A few large events reach the read limit in bytes instead of in rows.
    turn.write(20, 20_000).await;
    turn.end().await;
    let stored = 2 + 12_020;

    let mut reader = follow(&server, &conversation, 1).await;
    let mut next = 2;
    let mut texts = ["one", "two", "three"].into_iter();
    loop {
        let event = reader.next().await.unwrap();
        let Some(id) = event.id else { continue };
        assert_eq!(id, next);
        next += 1;
        // The conversation continues while the subscriber is somewhere in the log.
        if id % 4_000 == 0 {
            let text = texts.next().unwrap();
            server.model.script(vec![Reply::text(text)]);
            assert_eq!(server.chat(3, json!({"message": text, "conversation_id": conversation})).await.status(), 200);
        }
        if event.name == "final" && event.data["message"]["content"] == "three" {
            break;
        }
    }
    assert_eq!(next, stored + 3 * 2 + 1);
    // From here on the subscriber gets live events.
    server.model.script(vec![Reply::text("four")]);
    server.chat(3, json!({"message": "four", "conversation_id": conversation})).await;
    let rest = reader.until("final").await;
    assert_eq!(rest.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [next, next + 1]);
    assert_eq!(rest.iter().filter(|event| event.name == "assistant_token").count(), 1);
}

/// Status and details of a refusal.
async fn refused(response: Response) -> (u16, serde_json::Value, serde_json::Value) {
    let status = response.status().as_u16();
    let error = body(response).await["error"].clone();
    (status, error["code"].clone(), error["details"]["first_seq"].clone())
}

#[tokio::test]
async fn a_position_before_the_first_stored_event_is_410() {
    let server = TestServer::open().await;
    let conversation = server.conversation(3).await;
    let horizon = server.app.clock.now() + SignedDuration::from_millis(5);
    while server.app.clock.now() <= horizon {
        tokio::task::yield_now().await;
    }
    server.chat(3, json!({"message": "again", "conversation_id": conversation})).await;
    let get = async |query: &str| server.as_user(3, Method::GET, &path(&conversation, query)).send().await.unwrap();
    let live =
        async |after: i64| server.as_user(3, Method::GET, &path(&conversation, "")).header("last-event-id", after).send().await.unwrap();
    assert_eq!(get("?after=0").await.status(), 200, "nothing is deleted yet");
    assert_eq!(server.delete_events(horizon).await, 2);
    let expected = (410, json!("events_gone"), json!(3));
    assert_eq!(refused(get("?after=0").await).await, expected);
    assert_eq!(refused(get("?after=1").await).await, expected);
    assert_eq!(refused(live(1).await).await, expected);
    let numbers = |list: &serde_json::Value| {
        list["events"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&body(get("?after=2").await).await), [3, 4]);
    assert_eq!(numbers(&body(get("").await).await), [3, 4], "without a position all stored events are returned");
    let received = Stream::new(live(2).await).until("final").await;
    assert_eq!(received.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [3, 4]);
    // No events are left: the log begins at the next number.
    let all = server.app.clock.now() + SignedDuration::from_hours(1);
    server.delete_events(all).await;
    assert_eq!(refused(get("?after=3").await).await, (410, json!("events_gone"), json!(5)));
    assert_eq!(body(get("?after=4").await).await["events"], json!([]));
    assert_eq!(body(get("?after=9").await).await["events"], json!([]), "a position beyond the end is valid");
    let mut waits = Stream::new(live(4).await);
    server.chat(3, json!({"message": "more", "conversation_id": conversation})).await;
    assert_eq!(waits.until("final").await.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [5, 6]);
}

#[tokio::test]
async fn partial_text_of_an_earlier_process_is_sent_as_one_snapshot() {
    let server = TestServer::open().await;
    let conversation = server.conversation(3).await;
    let turn = DirectTurn::begin(&server, &conversation).await;
    let partial = NewPartial { fence: turn.fence.clone(), turn_id: turn.turn_id, step: 1, content: "Es war \u{1f600}".to_owned() };
    assert_eq!(server.app.store.save_partials(vec![partial], server.app.clock.now()).await.unwrap(), 1);
    let mut reader = follow(&server, &conversation, 2).await;
    let snapshot = reader.next().await.unwrap();
    assert_eq!((snapshot.id, snapshot.name.as_str()), (None, "assistant_snapshot"));
    assert_eq!(snapshot.data, json!({"content": "Es war \u{1f600}", "step": 1, "turn_id": turn.turn_id}));
    turn.end().await;
    server.chat(3, json!({"message": "next", "conversation_id": conversation})).await;
    let rest = reader.until("final").await;
    assert_eq!(rest.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [3, 4]);
}

#[tokio::test]
async fn partial_text_is_saved_while_the_model_writes_and_cleared_at_the_end() {
    let server = TestServer::open().await;
    let (gate, runtime) = (Gate::after(2), server.app.runtime.clone());
    server.app.tasks.spawn(async move { runtime.save_partial_text().await });
    server.model.script(vec![Reply::text("one two three").gate(gate.clone())]);
    let mut stream = server.stream(3, json!({"message": "x"})).await;
    let init = stream.next().await.unwrap();
    let conversation: Uuid = init.data["conversation_id"].as_str().unwrap().parse().unwrap();
    gate.reached().await;
    let partial = async || server.app.store.partial(DEMO_ID, conversation).await.unwrap().map(|text| (text.step, text.content));
    let before = server.app.monitoring_store.counts();
    while partial().await.is_none() || server.app.monitoring_store.counts() == before {
        tokio::task::yield_now().await;
    }
    let (step, text) = partial().await.unwrap();
    assert!(step == 1 && "one two three".starts_with(&text) && !text.is_empty(), "{text}");
    let after = server.app.monitoring_store.counts();
    assert_eq!((after.commits - before.commits, after.row_writes - before.row_writes), (1, 2), "the lease and the turn");
    gate.open();
    stream.until("final").await;
    assert_eq!(partial().await, None);
}
