//! Streams that resume after a disconnect.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use super::client::{numbered, resumed, streamed, text};
use crate::support::{Event, TestServer};

fn words() -> String {
    (0..60).map(|number| format!("word{number} ")).collect()
}

/// Reads this many events.
async fn read(stream: &mut crate::support::Stream, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.push(stream.next().await.unwrap());
    }
    events
}

#[tokio::test]
async fn a_client_that_disconnects_gets_exactly_the_rest_later() {
    let server = TestServer::open().await;
    let gate = Gate::after(20);
    server.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("First I look."),
        Reply::text(&words()).gate(gate.clone()),
    ]);
    let mut stream = streamed(&server, json!({"input": "Go.", "background": true})).await;
    let before = numbered(read(&mut stream, 12).await, 0);
    let id = before[0]["response"]["id"].as_str().unwrap().to_owned();
    drop(stream);
    gate.reached().await;
    // Several clients resume while the text is being written, each from another position.
    let mut clients = Vec::new();
    for after in [0, 3, 7, 11] {
        clients.push((after, resumed(&server, &id, after).await));
    }
    let mut received: Vec<Vec<Event>> = Vec::new();
    for (_, stream) in &mut clients {
        received.push(read(stream, 2).await);
    }
    gate.open();
    let whole = numbered(resumed(&server, &id, 0).await.rest().await, 1);
    for ((after, stream), mut received) in clients.into_iter().zip(received) {
        received.extend(stream.rest().await);
        assert_eq!(numbered(received, after + 1), whole[usize::try_from(after).unwrap()..], "after {after}");
    }
    assert_eq!(before[1..], whole[..before.len() - 1]);
    assert_eq!(text(&whole.last().unwrap()["response"]), format!("First I look.{}", words()));
}

/// The events of a response whose model fails after "One two three four" and then answers with this text.
async fn retried(server: &TestServer, text: &str) -> Vec<Value> {
    let broken = json!({"message": "overloaded", "type": "server_error", "code": "overloaded"});
    server.model.script(vec![Reply::text("One two three four").error_in_stream(broken), Reply::text(text)]);
    numbered(streamed(server, json!({"input": "Count."})).await.rest().await, 0)
}

#[tokio::test]
async fn a_retry_with_the_same_text_is_invisible() {
    let server = TestServer::open().await;
    let events = retried(&server, "One two three four five.").await;
    assert_eq!(server.model.requests().len(), 2);
    let end = events.last().unwrap();
    assert_eq!(end["type"], "response.completed");
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, "One two three four five.");
    let id = end["response"]["id"].as_str().unwrap();
    assert_eq!(numbered(resumed(&server, id, 0).await.rest().await, 1), events[1..]);
}

#[tokio::test]
async fn a_retry_with_another_text_ends_the_stream() {
    let server = TestServer::open().await;
    let events = retried(&server, "Something else entirely.").await;
    let end: Vec<&Value> = events.iter().rev().take(2).map(|event| &event["type"]).collect();
    assert_eq!(end, ["response.failed", "error"]);
    assert_eq!(events.last().unwrap()["response"]["error"]["code"], "model_interrupted");
    let id = events[0]["response"]["id"].as_str().unwrap();
    let whole = resumed(&server, id, 0).await.rest().await;
    assert_eq!(text(&whole.last().unwrap().data["response"]), "Something else entirely.", "the response itself is complete");
}

#[tokio::test]
async fn a_slow_subscriber_is_served_from_stored_rows() {
    let server = TestServer::open().await;
    let gate = Gate::after(3);
    let long: String = (0..40_000).map(|number| format!("{number} ")).collect();
    server.model.script(vec![Reply::text(&long).gate(gate.clone())]);
    let mut stream = streamed(&server, json!({"input": "Count."})).await;
    let mut received = read(&mut stream, 2).await;
    gate.reached().await;
    gate.open();
    // The client does not read until the turn has ended.
    let id = received[0].data["response"]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/turns/{}", id.trim_start_matches("resp_"));
    loop {
        let turn = crate::support::body(server.as_user(3, reqwest::Method::GET, &path).send().await.unwrap()).await;
        if turn["status"] == "completed" {
            break;
        }
        tokio::task::yield_now().await;
    }
    received.extend(stream.rest().await);
    let received = numbered(received, 0);
    assert_eq!(text(&received.last().unwrap()["response"]), long);
    let deltas: String = received.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, long);
}
