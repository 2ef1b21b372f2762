//! Streams that were cut and go on.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use super::talk::{numbered, resumed, streamed, text};
use crate::support::{Event, House};

fn words() -> String {
    (0..60).map(|number| format!("word{number} ")).collect()
}

/// Reads until so many events came.
async fn some(stream: &mut crate::support::Stream, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.push(stream.next().await.unwrap());
    }
    events
}

#[tokio::test]
async fn a_client_that_left_in_the_middle_gets_exactly_the_rest() {
    let house = House::open().await;
    let gate = Gate::after(20);
    house.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("First I look."),
        Reply::text(&words()).gate(gate.clone()),
    ]);
    let mut stream = streamed(&house, json!({"input": "Go.", "background": true})).await;
    let seen = numbered(some(&mut stream, 12).await, 0);
    let id = seen[0]["response"]["id"].as_str().unwrap().to_owned();
    drop(stream);
    gate.reached().await;
    // Several come back while the text is being written, each from another place.
    let mut back = Vec::new();
    for after in [0, 3, 7, 11] {
        back.push((after, resumed(&house, &id, after).await));
    }
    let mut heard: Vec<Vec<Event>> = Vec::new();
    for (_, stream) in &mut back {
        heard.push(some(stream, 2).await);
    }
    gate.open();
    let whole = numbered(resumed(&house, &id, 0).await.rest().await, 1);
    for ((after, stream), mut heard) in back.into_iter().zip(heard) {
        heard.extend(stream.rest().await);
        assert_eq!(numbered(heard, after + 1), whole[usize::try_from(after).unwrap()..], "after {after}");
    }
    assert_eq!(seen[1..], whole[..seen.len() - 1]);
    assert_eq!(text(&whole.last().unwrap()["response"]), format!("First I look.{}", words()));
}

#[tokio::test]
async fn a_model_that_breaks_off_and_says_the_same_is_not_noticed() {
    let house = House::open().await;
    let broken = json!({"message": "overloaded", "type": "server_error", "code": "overloaded"});
    house.model.script(vec![Reply::text("One two three four").error_in_stream(broken), Reply::text("One two three four five.")]);
    let events = numbered(streamed(&house, json!({"input": "Count."})).await.rest().await, 0);
    assert_eq!(house.model.requests().len(), 2);
    let end = events.last().unwrap();
    assert_eq!(end["type"], "response.completed");
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, "One two three four five.");
    let id = end["response"]["id"].as_str().unwrap();
    assert_eq!(numbered(resumed(&house, id, 0).await.rest().await, 1), events[1..]);
}

#[tokio::test]
async fn a_model_that_breaks_off_and_says_something_else_ends_the_stream() {
    let house = House::open().await;
    let broken = json!({"message": "overloaded", "type": "server_error", "code": "overloaded"});
    house.model.script(vec![Reply::text("One two three four").error_in_stream(broken), Reply::text("Something else entirely.")]);
    let events = numbered(streamed(&house, json!({"input": "Count."})).await.rest().await, 0);
    let end: Vec<&Value> = events.iter().rev().take(2).map(|event| &event["type"]).collect();
    assert_eq!(end, ["response.failed", "error"]);
    assert_eq!(events.last().unwrap()["response"]["error"]["code"], "model_interrupted");
    let id = events[0]["response"]["id"].as_str().unwrap();
    let whole = resumed(&house, id, 0).await.rest().await;
    assert_eq!(text(&whole.last().unwrap().data["response"]), "Something else entirely.", "the response itself has come to its end");
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_brought_up_from_the_rows() {
    let house = House::open().await;
    let gate = Gate::after(3);
    let long: String = (0..40_000).map(|number| format!("{number} ")).collect();
    house.model.script(vec![Reply::text(&long).gate(gate.clone())]);
    let mut stream = streamed(&house, json!({"input": "Count."})).await;
    let mut heard = some(&mut stream, 2).await;
    gate.reached().await;
    gate.open();
    // Nobody reads until the turn has ended.
    let id = heard[0].data["response"]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/turns/{}", id.trim_start_matches("resp_"));
    loop {
        let turn = crate::support::body(house.as_user(3, reqwest::Method::GET, &path).send().await.unwrap()).await;
        if turn["status"] == "completed" {
            break;
        }
        tokio::task::yield_now().await;
    }
    heard.extend(stream.rest().await);
    let heard = numbered(heard, 0);
    assert_eq!(text(&heard.last().unwrap()["response"]), long);
    let deltas: String = heard.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, long);
}
