//! Turns, calls and streams across replicas.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use werkruf_contract::{EventType, ToolOutput, TurnStatus, Uuid};
use werkruf_runtime::{InvokeOutcome, Refusal};
use werkruf_store::{CallFilter, ConversationFilter, Page, Records};

use crate::cluster::{Cluster, Replica, TENANT, wait_for};
use crate::scripted::HOLD;

fn text(data: &str) -> String {
    let data: Value = serde_json::from_str(data).unwrap();
    data["message"]["content"].as_str().unwrap().to_owned()
}

async fn chat(replica: &Replica, message: &str, conversation_id: Option<Uuid>) -> werkruf_runtime::AcceptedTurn {
    let (runtime, inbound) = (replica.runtime.clone(), replica.inbound(message, conversation_id, None));
    replica.run(async move { runtime.chat(inbound).await.unwrap() }).await
}

/// Works with and without notifications, only later without them.
async fn subscribes_and_queues_elsewhere(poll_only: bool) {
    let cluster = Cluster::new(poll_only);
    let (a, b) = (cluster.replica(), cluster.replica());
    let mut first = chat(&a, HOLD, None).await;
    let mut elsewhere = b.subscribe(first.conversation_id, first.turn_id);
    let (shown, numbers) = wait_for(&mut elsewhere, EventType::AssistantSnapshot).await;
    assert_eq!((shown.seq, numbers), (None, vec![1]));
    assert!(shown.data.contains("You said "), "{}", shown.data);
    let mut second = chat(&b, "hello", Some(first.conversation_id)).await;
    assert_eq!(b.turn(second.turn_id).await.status, TurnStatus::Accepted);
    cluster.gate.raise();
    // Event 2 belongs to the turn of the second message.
    let (end, numbers) = wait_for(&mut elsewhere, EventType::Final).await;
    assert_eq!((text(&end.data).as_str(), numbers.as_slice()), ("You said hold", [3].as_slice()));
    assert_eq!(text(&wait_for(&mut first.events, EventType::Final).await.0.data), "You said hold");
    let (end, numbers) = wait_for(&mut second.events, EventType::Final).await;
    assert_eq!((text(&end.data).as_str(), numbers.as_slice()), ("You said hello", [2, 4].as_slice()));
}

#[tokio::test]
async fn a_stream_is_subscribed_and_a_message_queued_on_another_replica() {
    subscribes_and_queues_elsewhere(false).await;
}

#[tokio::test]
async fn nothing_depends_on_notifications() {
    subscribes_and_queues_elsewhere(true).await;
}

#[tokio::test]
async fn a_turn_is_canceled_from_another_replica() {
    let cluster = Cluster::new(false);
    let (a, b) = (cluster.replica(), cluster.replica());
    let mut turn = chat(&a, HOLD, None).await;
    let mut queued = chat(&b, "hello", Some(turn.conversation_id)).await;
    for id in [queued.turn_id, turn.turn_id] {
        // One turn is queued at b and canceled at a, the other one runs at a and is canceled at b.
        let canceler = if id == turn.turn_id { &b } else { &a };
        let runtime = canceler.runtime.clone();
        assert!(canceler.run(async move { runtime.cancel_turn(TENANT, id).await.unwrap() }).await);
    }
    for events in [&mut queued.events, &mut turn.events] {
        let (end, _) = wait_for(events, EventType::Error).await;
        assert!(end.data.contains("\"canceled\""), "{}", end.data);
    }
}

/// The client of a turn leaves its stream; returns the turn's id.
async fn leave(replica: &Replica, turn: werkruf_runtime::AcceptedTurn) -> Uuid {
    let werkruf_runtime::AcceptedTurn { turn_id, events, leave, .. } = turn;
    drop(events);
    replica.run(async move { leave.stop_turn() }).await;
    turn_id
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_turn_unless_another_replica_reads_it() {
    let cluster = Cluster::new(false);
    let (a, b) = (cluster.replica(), cluster.replica());
    let (read, mut left) = (chat(&a, HOLD, None).await, chat(&a, HOLD, None).await);
    let (conversation_id, left_conversation) = (read.conversation_id, left.conversation_id);
    let mut reader = b.subscribe(conversation_id, read.turn_id);
    wait_for(&mut reader, EventType::AssistantSnapshot).await;
    wait_for(&mut left.events, EventType::AssistantToken).await;
    leave(&a, read).await;
    // Left later: when it is stopped, the other one was not.
    let left = leave(&a, left).await;
    while !a.turn(left).await.status.is_terminal() {
        tokio::task::yield_now().await;
    }
    assert_eq!(a.turn(left).await.status, TurnStatus::Canceled);
    let store = std::sync::Arc::clone(&a.store);
    let kept = a.run(async move { store.messages(TENANT, left_conversation, Page::default()).await.unwrap() }).await;
    assert_eq!(kept.iter().map(|row| row.content.as_str()).collect::<Vec<_>>(), [HOLD, "You said "]);
    cluster.gate.raise();
    let (end, _) = wait_for(&mut reader, EventType::Final).await;
    assert_eq!(text(&end.data), "You said hold");
}

#[tokio::test]
async fn another_replica_resumes_the_turn_of_a_killed_one() {
    let cluster = Cluster::new(false);
    let (mut a, b) = (cluster.replica(), cluster.quick_replica());
    let turn = chat(&a, HOLD, None).await;
    let mut elsewhere = b.subscribe(turn.conversation_id, turn.turn_id);
    wait_for(&mut elsewhere, EventType::Init).await;
    a.kill();
    let (end, _) = wait_for(&mut elsewhere, EventType::Final).await;
    assert_eq!(text(&end.data), "You said hold");
    let turn = b.turn(turn.turn_id).await;
    assert_eq!((turn.status, turn.takeovers), (TurnStatus::Completed, 1));
}

#[tokio::test]
async fn a_drained_replica_releases_its_turn_to_the_others_at_once() {
    let cluster = Cluster::new(false);
    let (a, b) = (cluster.replica(), cluster.quick_replica());
    let turn = chat(&a, HOLD, None).await;
    let mut elsewhere = b.subscribe(turn.conversation_id, turn.turn_id);
    wait_for(&mut elsewhere, EventType::Init).await;
    let runtime = a.runtime.clone();
    let draining = a.run(async move { runtime.drain().await });
    let (received, ()) = tokio::join!(wait_for(&mut elsewhere, EventType::Final), draining);
    assert_eq!(text(&received.0.data), "You said hold");
    assert_eq!(b.turn(turn.turn_id).await.takeovers, 0);
}

#[tokio::test]
async fn the_same_message_a_hundred_times_to_three_replicas_is_one_turn() {
    let cluster = Cluster::new(false);
    let replicas = [cluster.replica(), cluster.replica(), cluster.replica()];
    let sent = (0..100).map(|n| {
        let replica = &replicas[n % 3];
        let (runtime, inbound) = (replica.runtime.clone(), replica.inbound("hello", None, Some("key")));
        replica.run(async move {
            match runtime.chat(inbound).await {
                Ok(accepted) => (accepted.turn_id, true),
                Err(Refusal::Duplicate { turn_id, same_body: true }) => (turn_id, false),
                Err(refusal) => panic!("{refusal}"),
            }
        })
    });
    let answers = join_all(sent).await;
    let turns: BTreeSet<Uuid> = answers.iter().map(|(turn_id, _)| *turn_id).collect();
    assert_eq!((turns.len(), answers.iter().filter(|(_, new)| *new).count()), (1, 1));
    let store = replicas[0].store.clone();
    let conversations =
        replicas[0].run(async move { store.conversations(TENANT, ConversationFilter::default(), Page::default()).await.unwrap() }).await;
    assert_eq!(conversations.len(), 1);
}

#[tokio::test]
async fn the_same_call_on_two_replicas_is_executed_once() {
    let cluster = Cluster::new(false);
    let (a, b) = (cluster.replica(), cluster.replica());
    let requests = [&a, &b].map(|replica| {
        let (runtime, invoke) = (replica.runtime.clone(), replica.pay(&cluster.clock));
        Box::pin(replica.run(async move { runtime.invoke(invoke).await.unwrap() }))
    });
    let open = async {
        let store = a.store.clone();
        // Both calls are stored: one runs, the other one waits for it.
        loop {
            let store = store.clone();
            let rows = a.run(async move { store.calls(TENANT, CallFilter::default(), Page::default()).await.unwrap() }).await;
            if rows.len() == 2 && cluster.calls.load(Ordering::SeqCst) > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cluster.gate.raise();
    };
    let (answers, ()) = tokio::join!(join_all(requests), open);
    for answer in &answers {
        assert!(matches!(&answer.outcome, InvokeOutcome::Done(output) if matches!(**output, ToolOutput::Ok(_))), "{answer:?}");
    }
    assert_ne!(answers[0].job_id, answers[1].job_id);
    assert_eq!(cluster.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_keyword_of_a_killed_replica_ends_elsewhere_without_a_model() {
    let cluster = Cluster::new(false);
    let (mut a, b) = (cluster.replica(), cluster.quick_replica());
    let (runtime, message) = (a.runtime.clone(), a.keyword("pay"));
    let turn = a.run(async move { runtime.chat(message).await.unwrap() }).await;
    let mut elsewhere = b.subscribe(turn.conversation_id, turn.turn_id);
    wait_for(&mut elsewhere, EventType::ToolStarted).await;
    a.kill();
    let (end, _) = wait_for(&mut elsewhere, EventType::Final).await;
    assert_eq!(text(&end.data), "It is not known whether this was carried out. Please check the result before you repeat it.");
    let data: Value = serde_json::from_str(&end.data).unwrap();
    assert_eq!((&data["usage"]["model_calls"], &data["tool_results"][0]["tool"]), (&Value::from(0), &Value::from("pay")));
    let row = b.turn(turn.turn_id).await;
    assert_eq!((row.status, row.takeovers), (TurnStatus::Completed, 1));
}
