//! Logs followed through the door: long ones, shortened ones, and the text of an earlier process.

use jiff::SignedDuration;
use reqwest::{Method, Response};
use serde_json::json;
use werkruf::sample::DEMO_ID;
use werkruf_bench::fake_model::{Gate, Reply};
use werkruf_contract::{EventType, TurnStatus, Uuid};
use werkruf_store::{ConversationRef, Fence, NewEvent, NewPartial, OpenTurn, Opened, TurnChange, TurnKind, TurnWrite};

use crate::support::{House, Stream, body};

/// A turn of another hand in this conversation, written straight into the store.
struct Scribe<'a> {
    house: &'a House,
    fence: Fence,
    turn_id: Uuid,
}

impl<'a> Scribe<'a> {
    async fn begin(house: &'a House, conversation: &str) -> Self {
        let turn_id = house.app.clock.new_id();
        let open = OpenTurn {
            tenant_id: DEMO_ID,
            user_id: "3".to_owned(),
            turn_id,
            kind: TurnKind::Invoke,
            conversation: ConversationRef::Existing { id: conversation.parse().unwrap(), any_user: true },
            assistant: String::new(),
            key_id: None,
            message: None,
            inbox: None,
            start: true,
            owner: "scribe".to_owned(),
            calls: Vec::new(),
            approvals: Vec::new(),
            client: None,
            request_digest: None,
            results: Vec::new(),
            unanswered: None,
            after: None,
            events: Vec::new(),
            now: house.app.clock.now(),
        };
        let Opened::Stored { fence: Some(fence), .. } = house.app.store.open_turn(open).await.unwrap() else { panic!("not begun") };
        Self { house, fence, turn_id }
    }

    fn to_write(&self) -> TurnWrite {
        let clock = &self.house.app.clock;
        TurnWrite::new(clock.new_id(), self.fence.clone(), Some(self.fence.stream_id), self.turn_id, "3".to_owned(), clock.now())
    }

    async fn write(&self, events: usize, bytes: usize) {
        let mut write = self.to_write();
        let data = json!({"text": "x".repeat(bytes)}).to_string();
        write.events = (0..events).map(|_| NewEvent { kind: EventType::ToolStarted, data: data.clone() }).collect();
        self.house.app.store.write(write).await.unwrap();
    }

    async fn end(&self) {
        let mut write = self.to_write();
        write.turn = Some(TurnChange { status: TurnStatus::Failed, step: 1, error: None, message: None, transcript_digest: None });
        self.house.app.store.write(write).await.unwrap();
    }
}

fn path(conversation: &str, query: &str) -> String {
    format!("/api/conversations/{conversation}/events{query}")
}

async fn follow(house: &House, conversation: &str, after: i64) -> Stream {
    let request = house.as_user(3, Method::GET, &path(conversation, "")).header("last-event-id", after);
    Stream::new(request.send().await.unwrap())
}

#[tokio::test]
async fn a_log_of_ten_thousand_events_goes_over_to_live_without_gap_or_repeat() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("Hello.")]);
    let conversation = house.conversation(3).await;
    let scribe = Scribe::begin(&house, &conversation).await;
    for _ in 0..12 {
        scribe.write(1_000, 10).await;
    }
    // A few that fill a bite by their bytes and not by their number.
    scribe.write(20, 20_000).await;
    scribe.end().await;
    let stored = 2 + 12_020;

    let mut reader = follow(&house, &conversation, 1).await;
    let mut next = 2;
    let mut talks = ["one", "two", "three"].into_iter();
    loop {
        let event = reader.next().await.unwrap();
        let Some(id) = event.id else { continue };
        assert_eq!(id, next);
        next += 1;
        // While the reader is anywhere in the log, the conversation goes on.
        if id % 4_000 == 0 {
            let said = talks.next().unwrap();
            house.model.script(vec![Reply::text(said)]);
            assert_eq!(house.chat(3, json!({"message": said, "conversation_id": conversation})).await.status(), 200);
        }
        if event.name == "final" && event.data["message"]["content"] == "three" {
            break;
        }
    }
    assert_eq!(next, stored + 3 * 2 + 1);
    // From here on it hears what comes.
    house.model.script(vec![Reply::text("four")]);
    house.chat(3, json!({"message": "four", "conversation_id": conversation})).await;
    let rest = reader.until("final").await;
    assert_eq!(rest.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [next, next + 1]);
    assert_eq!(rest.iter().filter(|event| event.name == "assistant_token").count(), 1);
}

/// Status and details of a refusal.
async fn gone(response: Response) -> (u16, serde_json::Value, serde_json::Value) {
    let status = response.status().as_u16();
    let error = body(response).await["error"].clone();
    (status, error["code"].clone(), error["details"]["first_seq"].clone())
}

#[tokio::test]
async fn below_the_first_number_kept_is_410_and_names_it() {
    let house = House::open().await;
    let conversation = house.conversation(3).await;
    let horizon = house.app.clock.now() + SignedDuration::from_millis(5);
    while house.app.clock.now() <= horizon {
        tokio::task::yield_now().await;
    }
    house.chat(3, json!({"message": "again", "conversation_id": conversation})).await;
    let get = async |query: &str| house.as_user(3, Method::GET, &path(&conversation, query)).send().await.unwrap();
    let live =
        async |after: i64| house.as_user(3, Method::GET, &path(&conversation, "")).header("last-event-id", after).send().await.unwrap();
    assert_eq!(get("?after=0").await.status(), 200, "nothing is gone yet");
    assert_eq!(house.app.store.delete_events(horizon, None).await.unwrap().events, 2);
    let refused = (410, json!("events_gone"), json!(3));
    assert_eq!(gone(get("?after=0").await).await, refused);
    assert_eq!(gone(get("?after=1").await).await, refused);
    assert_eq!(gone(live(1).await).await, refused);
    let numbers = |list: &serde_json::Value| {
        list["events"].as_array().unwrap().iter().map(|event| event["seq"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&body(get("?after=2").await).await), [3, 4]);
    assert_eq!(numbers(&body(get("").await).await), [3, 4], "who names no number gets what there is");
    let heard = Stream::new(live(2).await).until("final").await;
    assert_eq!(heard.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [3, 4]);
    // Nothing is left: the next number is where the log begins.
    let all = house.app.clock.now() + SignedDuration::from_hours(1);
    house.app.store.delete_events(all, None).await.unwrap();
    assert_eq!(gone(get("?after=3").await).await, (410, json!("events_gone"), json!(5)));
    assert_eq!(body(get("?after=4").await).await["events"], json!([]));
    assert_eq!(body(get("?after=9").await).await["events"], json!([]), "beyond the end is no fault");
    let mut waits = Stream::new(live(4).await);
    house.chat(3, json!({"message": "more", "conversation_id": conversation})).await;
    assert_eq!(waits.until("final").await.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [5, 6]);
}

#[tokio::test]
async fn text_of_an_earlier_process_comes_as_one_snapshot() {
    let house = House::open().await;
    let conversation = house.conversation(3).await;
    let scribe = Scribe::begin(&house, &conversation).await;
    let kept = NewPartial { fence: scribe.fence.clone(), turn_id: scribe.turn_id, step: 1, content: "Es war \u{1f600}".to_owned() };
    assert_eq!(house.app.store.save_partials(vec![kept], house.app.clock.now()).await.unwrap(), 1);
    let mut reader = follow(&house, &conversation, 2).await;
    let snapshot = reader.next().await.unwrap();
    assert_eq!((snapshot.id, snapshot.name.as_str()), (None, "assistant_snapshot"));
    assert_eq!(snapshot.data, json!({"content": "Es war \u{1f600}", "step": 1, "turn_id": scribe.turn_id}));
    scribe.end().await;
    house.chat(3, json!({"message": "next", "conversation_id": conversation})).await;
    let rest = reader.until("final").await;
    assert_eq!(rest.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [3, 4]);
}

#[tokio::test]
async fn a_long_answer_is_kept_while_it_is_written_and_cleared_when_it_is_done() {
    let house = House::open().await;
    let (gate, keeper) = (Gate::after(2), house.app.runtime.clone());
    house.app.tasks.spawn(async move { keeper.save_partial_text().await });
    house.model.script(vec![Reply::text("one two three").gate(gate.clone())]);
    let mut stream = house.stream(3, json!({"message": "x"})).await;
    let init = stream.next().await.unwrap();
    let conversation: Uuid = init.data["conversation_id"].as_str().unwrap().parse().unwrap();
    gate.reached().await;
    let partial = async || house.app.store.partial(DEMO_ID, conversation).await.unwrap().map(|text| (text.step, text.content));
    let before = house.app.store.counts();
    while partial().await.is_none() || house.app.store.counts() == before {
        tokio::task::yield_now().await;
    }
    let (step, text) = partial().await.unwrap();
    assert!(step == 1 && "one two three".starts_with(&text) && !text.is_empty(), "{text}");
    let after = house.app.store.counts();
    assert_eq!((after.commits - before.commits, after.row_writes - before.row_writes), (1, 2), "the lease and the turn");
    gate.open();
    stream.until("final").await;
    assert_eq!(partial().await, None);
}
