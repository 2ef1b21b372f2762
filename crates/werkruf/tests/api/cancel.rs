//! Cancellation in every state of a turn: the turn ends at once with an error event, and the conversation continues.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::held_turn::HeldTurn;
use crate::support::{Event, Stream, TestServer, body, refusal};

async fn cancel(server: &TestServer, turn: &Value) -> u16 {
    let path = format!("/api/turns/{}/cancel", turn.as_str().unwrap());
    server.as_user(3, Method::POST, &path).send().await.unwrap().status().as_u16()
}

fn assert_canceled(last: &Event, turn: &Value) {
    assert_eq!((last.name.as_str(), &last.data["type"], &last.data["code"]), ("error", &json!("FATAL"), &json!("canceled")));
    assert_eq!(&last.data["turn_id"], turn);
    assert!(last.id.is_some(), "the end of a turn is a row");
}

async fn in_conversation(server: &TestServer, conversation: &Value, message: &str) -> (Stream, Value) {
    let mut stream = server.stream(3, json!({"message": message, "conversation_id": conversation})).await;
    let turn = stream.next().await.unwrap().data["turn_id"].clone();
    (stream, turn)
}

#[tokio::test]
async fn a_queued_turn_ends_at_once_and_the_queue_continues() {
    let server = TestServer::open().await;
    let gate = Gate::before_head();
    server.model.script(vec![Reply::text("One.").gate(gate.clone()), Reply::text("Three.")]);
    let mut first = server.stream(3, json!({"message": "one"})).await;
    let init = first.next().await.unwrap();
    let conversation = &init.data["conversation_id"];
    gate.reached().await;
    let (second, second_turn) = in_conversation(&server, conversation, "two").await;
    let (mut third, third_turn) = in_conversation(&server, conversation, "three").await;

    // The first turn still waits at the gate, but the second ends.
    assert_eq!(cancel(&server, &second_turn).await, 202);
    let end = second.rest().await;
    assert_eq!(end.len(), 1);
    assert_canceled(&end[0], &second_turn);
    let path = format!("/api/turns/{}", second_turn.as_str().unwrap());
    let row = body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await;
    assert_eq!((&row["status"], &row["error"]["code"]), (&json!("canceled"), &json!("canceled")));
    assert!(row["finished_at"].is_string());
    let again = server.as_user(3, Method::POST, &format!("{path}/cancel")).send().await.unwrap();
    assert_eq!(refusal(again).await, (409, "already_finished".to_owned()));

    gate.open();
    assert_eq!(first.until("final").await.last().unwrap().data["message"]["content"], "One.");
    let last = third.until("final").await;
    assert_eq!((&last.last().unwrap().data["message"]["content"], &last.last().unwrap().data["turn_id"]), (&json!("Three."), &third_turn));
    assert_eq!(server.model.requests().len(), 2, "the model got no request for the second turn");
    let path = format!("/api/conversations/{}/messages", conversation.as_str().unwrap());
    let listed = body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await;
    let contents: Vec<&str> = listed["messages"].as_array().unwrap().iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["one", "One.", "two", "three", "Three."], "its message is kept in its position");
}

#[tokio::test]
async fn a_queued_turn_with_a_json_response_is_canceled_too() {
    let server = TestServer::open().await;
    let HeldTurn { gate, stream: mut first, init } = HeldTurn::start(&server, "One.").await;
    let conversation = init.data["conversation_id"].clone();
    let canceler = async {
        let path = format!("/api/conversations/{}/events", conversation.as_str().unwrap());
        let mut live = Stream::new(server.as_user(3, Method::GET, &path).header("last-event-id", 1).send().await.unwrap());
        let init = live.until("init").await.pop().unwrap();
        assert_eq!(cancel(&server, &init.data["turn_id"]).await, 202);
        let received = live.until("error").await.pop().unwrap();
        assert_canceled(&received, &init.data["turn_id"]);
    };
    let (answer, ()) = tokio::join!(server.chat(3, json!({"message": "two", "conversation_id": conversation})), canceler);
    assert_eq!(answer.status(), 409);
    assert_eq!(body(answer).await["status"], "canceled");
    gate.open();
    first.until("final").await;
}

#[tokio::test]
async fn a_running_turn_is_canceled_at_every_stage() {
    let server = TestServer::open().await;
    let in_text = Gate::after(1);
    let scripts: Vec<(&str, Vec<Reply>, Option<Gate>)> = vec![
        ("in its text", vec![Reply::text("a long story").gate(in_text.clone())], Some(in_text)),
        ("while a tool runs", vec![Reply::calls(vec![call("test_sleep", json!({"ms": 60_000}))])], None),
        ("while it waits before a retry", vec![Reply::status(503).retry_after(50)], None),
    ];
    let mut requests = 0;
    for (what, script, gate) in scripts {
        server.model.script(script);
        let mut stream = server.stream(3, json!({"message": what})).await;
        let turn = stream.next().await.unwrap().data["turn_id"].clone();
        requests += 1;
        match gate {
            Some(gate) => gate.reached().await,
            None if what.contains("tool") => drop(stream.until("tool_started").await),
            None => server.model.received(requests).await,
        }
        assert_eq!(cancel(&server, &turn).await, 202, "{what}");
        assert_canceled(stream.until("error").await.last().unwrap(), &turn);
        assert!(stream.next().await.is_none(), "{what}");
    }
}
