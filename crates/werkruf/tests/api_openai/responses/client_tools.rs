//! Calls that the client runs, and the ways a client goes on.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use super::talk::{answered, ask, numbered, streamed, text};
use crate::support::{House, body};

fn weather() -> Value {
    json!([{"type": "function", "name": "weather", "description": "Weather.", "strict": true,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}}])
}

fn mixed() -> Vec<Reply> {
    let calls = vec![call("test_echo", json!({"value": 1})).with_id("call_s"), call("weather", json!({"city": "Bonn"})).with_id("call_c")];
    vec![Reply::calls(calls).with_text("I look."), Reply::text("Rain.")]
}

fn result() -> Value {
    json!({"type": "function_call_output", "call_id": "call_c", "output": "rain"})
}

/// What the model is asked in the end, however the client went on.
fn check(house: &House, response: &Value, first: &Value) {
    assert_eq!(text(response), "Rain.");
    assert_eq!(response["conversation"], first["conversation"]);
    let asked = house.model.requests().pop().unwrap();
    let roles: Vec<&str> = asked.messages().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(asked.messages()[2]["tool_calls"].as_array().unwrap().len(), 2, "the stored message with all calls");
    let results: Vec<&str> = asked.tool_results().iter().filter_map(|result| result["tool_call_id"].as_str()).collect();
    assert_eq!(results, ["call_s", "call_c"]);
    assert_eq!(asked.messages()[4]["content"], "rain");
}

#[tokio::test]
async fn a_mixed_turn_shows_the_clients_call_only_and_goes_on_with_its_result() {
    let house = House::open().await;
    house.model.script(mixed());
    let first = answered(&house, json!({"input": "Weather?", "tools": weather()})).await;
    let output = first["output"].as_array().unwrap();
    assert_eq!(output.iter().map(|item| &item["type"]).collect::<Vec<_>>(), ["message", "function_call"]);
    let shown = &output[1];
    assert_eq!((&shown["call_id"], &shown["name"], &shown["status"]), (&json!("call_c"), &json!("weather"), &json!("completed")));
    assert_eq!(serde_json::from_str::<Value>(shown["arguments"].as_str().unwrap()).unwrap(), json!({"city": "Bonn"}));
    assert_eq!(first["status"], "completed");
    assert_eq!(first["tools"], weather());
    let request = json!({"input": [result()], "previous_response_id": first["id"], "tools": weather()});
    let second = answered(&house, request).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    check(&house, &second, &first);
}

#[tokio::test]
async fn a_client_that_resends_everything_goes_on_in_the_same_conversation() {
    let house = House::open().await;
    house.model.script(mixed());
    let input = json!({"role": "user", "content": "Weather?"});
    let events = numbered(streamed(&house, json!({"input": [input], "tools": weather()})).await.rest().await, 0);
    let first = events.last().unwrap()["response"].clone();
    let arguments: Vec<&Value> = events.iter().filter(|event| event["type"] == "response.function_call_arguments.delta").collect();
    assert_eq!(arguments.len(), 1);
    let mut items = vec![input];
    items.extend(first["output"].as_array().unwrap().iter().cloned());
    items.push(result());
    let second = answered(&house, json!({"input": items.clone(), "tools": weather()})).await;
    check(&house, &second, &first);
    // And on with words, again with everything.
    house.model.script(vec![Reply::text("Take an umbrella.")]);
    items.extend(second["output"].as_array().unwrap().iter().cloned());
    items.push(json!({"role": "user", "content": "And now?"}));
    let third = answered(&house, json!({"input": items, "tools": weather(), "store": false})).await;
    assert_eq!(third["conversation"], first["conversation"]);
}

#[tokio::test]
async fn items_may_be_named_instead_of_sent() {
    let house = House::open().await;
    house.model.script(mixed());
    let input = json!({"role": "user", "content": "Weather?"});
    let first = answered(&house, json!({"input": [input], "tools": weather()})).await;
    let named = |item: &Value| json!({"type": "item_reference", "id": item["id"]});
    let mut items = vec![input, json!({"type": "item_reference", "id": "rs_of_somebody_else"})];
    items.extend(first["output"].as_array().unwrap().iter().map(named));
    items.push(result());
    let second = answered(&house, json!({"input": items, "tools": weather()})).await;
    check(&house, &second, &first);
}

#[tokio::test]
async fn an_earlier_response_or_the_conversation_itself_is_gone_on_with() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("One."), Reply::text("Two."), Reply::text("Three."), Reply::text("Four.")]);
    let first = answered(&house, json!({"input": "1?"})).await;
    let second = answered(&house, json!({"input": "2?", "previous_response_id": first["id"]})).await;
    // The conversation has gone on since: it goes on from where it is.
    let third = answered(&house, json!({"input": "3?", "previous_response_id": first["id"]})).await;
    let fourth = answered(&house, json!({"input": "4?", "conversation": {"id": first["conversation"]["id"]}})).await;
    // Nothing new is the wish to go on.
    house.model.script(vec![Reply::text("Five.")]);
    let fifth = answered(&house, json!({"input": [], "previous_response_id": fourth["id"]})).await;
    assert_eq!(text(&fifth), "Five.");
    for later in [&second, &third, &fourth, &fifth] {
        assert_eq!(later["conversation"], first["conversation"]);
    }
    assert_eq!(house.model.requests().pop().unwrap().messages().len(), 1 + 8);
    let stranger = ask(&house, 1, json!({"input": "5?", "conversation": first["conversation"]["id"]})).await;
    // The operator's key sees everything; a person's own does not.
    assert_eq!(stranger.status(), 200);
    let key = house.key(Some(1), &["chat"]).await;
    let request = json!({"input": "5?", "conversation": first["conversation"]["id"]});
    let refused = house.with_key(&key, reqwest::Method::POST, "/v1/responses").json(&request).send().await.unwrap();
    assert_eq!(refused.status(), 404);
    assert_eq!(body(refused).await["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn the_same_key_and_body_is_the_same_response() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("One and only.")]);
    let send = async |stream: bool| {
        let request = house.as_user(3, reqwest::Method::POST, "/v1/responses").header("idempotency-key", format!("k{stream}"));
        request.json(&json!({"input": "x", "stream": stream})).send().await.unwrap()
    };
    let first = body(send(false).await).await;
    let again = send(false).await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(body(again).await, first);
    house.model.script(vec![Reply::text("Streamed once.")]);
    let told = crate::support::Stream::new(send(true).await).rest().await;
    assert_eq!(crate::support::Stream::new(send(true).await).rest().await, told);
}
