//! Tools the client runs: the answer asks for them, their results come back.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::speaking::{CLARA, answer, chunks, completion, message, own_tool, user};
use crate::support::{House, body};

fn result(id: &Value, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

#[tokio::test]
async fn a_mixed_turn_shows_only_the_clients_calls_and_goes_on_with_all() {
    let house = House::open().await;
    let ours = call("test_echo", json!({"value": "tea"})).with_id("call_ours");
    let theirs = call("my_weather", json!({"city": "Bonn"})).with_id("call_theirs");
    house.model.script(vec![Reply::calls(vec![ours, theirs]).with_text("Wait. "), Reply::text("Sunny tea.")]);
    let tools = json!([own_tool("my_weather")]);
    let (first, conversation) = answer(&house, json!({"model": "m", "tools": tools, "messages": [user("hi")]})).await;
    let said = message(&first).clone();
    assert_eq!((&said["content"], &first["choices"][0]["finish_reason"]), (&json!("Wait. "), &json!("tool_calls")));
    let calls = said["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), &calls[0]["function"]["name"]), (1, &json!("my_weather")));
    let arguments: Value = serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Bonn"}));

    let messages = json!([user("hi"), said, result(&calls[0]["id"], "sunny")]);
    let (second, same) = answer(&house, json!({"model": "m", "tools": tools, "messages": messages})).await;
    assert_eq!((message(&second)["content"].as_str(), same), (Some("Sunny tea."), conversation));
    let asked = house.model.requests().pop().unwrap();
    let history = asked.messages();
    assert_eq!(history[2]["tool_calls"].as_array().unwrap().len(), 2, "the stored message with all calls");
    let results: Vec<&str> = history[3..].iter().map(|message| message["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(results, ["call_ours", "call_theirs"]);
    assert_eq!(history[4]["content"], "sunny");
}

#[tokio::test]
async fn calls_come_as_chunks() {
    let house = House::open().await;
    let calls = vec![call("mine", json!({"city": "Bonn"})).with_id("a"), call("mine", json!({"city": "Köln"})).with_id("b")];
    house.model.script(vec![Reply::calls(calls)]);
    let request = json!({"model": "m", "stream": true, "tools": [own_tool("mine")], "messages": [user("hi")]});
    let told = chunks(completion(&house).json(&request).send().await.unwrap()).await;
    let deltas: Vec<&Value> =
        told.chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
    let ids: Vec<_> = deltas.iter().filter(|delta| delta.get("id").is_some()).map(|delta| (&delta["index"], &delta["id"])).collect();
    assert_eq!(ids, [(&json!(0), &json!("a")), (&json!(1), &json!("b"))]);
    let arguments: String = deltas.iter().filter(|delta| delta["index"] == 1).filter_map(|d| d["function"]["arguments"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&arguments).unwrap(), json!({"city": "Köln"}));
    assert_eq!(told.chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    assert!(told.done);
}

#[tokio::test]
async fn a_client_tool_wins_over_the_servers_and_an_unanswered_call_is_canceled() {
    let house = House::open().await;
    house.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1})).with_id("a")]), Reply::text("Never mind.")]);
    let (first, conversation) = answer(&house, json!({"tools": [own_tool("test_echo")], "messages": [user("hi")]})).await;
    let said = message(&first).clone();
    assert_eq!((&said["content"], said["tool_calls"][0]["id"].as_str()), (&Value::Null, Some("a")));
    let rows =
        body(house.as_user(CLARA, Method::GET, &format!("/api/tool-calls?conversation_id={conversation}")).send().await.unwrap()).await;
    assert!(!rows.to_string().contains("test_echo"), "the server ran nothing: {rows}");
    // The client forgets its call and says something else; it knows the conversation by its id.
    let request = completion(&house).header("x-conversation-id", &conversation).json(&json!({"messages": [user("forget it")]}));
    assert_eq!(request.send().await.unwrap().status(), 200);
    let asked = house.model.requests().pop().unwrap();
    let result = asked.messages().iter().find(|message| message["tool_call_id"] == "a").unwrap();
    assert!(result["content"].as_str().unwrap().contains("canceled"), "{result}");
    assert_eq!(asked.user_text(), "forget it");
}

#[tokio::test]
async fn a_strangers_results_are_history() {
    let house = House::open().await;
    let call = json!({"id": "x", "type": "function", "function": {"name": "mine", "arguments": "{}"}});
    let messages = json!([user("hi"), {"role": "assistant", "tool_calls": [call]}, result(&json!("x"), "42")]);
    answer(&house, json!({"tools": [own_tool("mine")], "messages": messages})).await;
    let asked = house.model.requests().pop().unwrap();
    assert_eq!(asked.messages()[1]["content"], "hi");
    assert_eq!(asked.tool_results()[0]["content"], "42");
}

#[tokio::test]
async fn old_functions_are_answered_in_their_words() {
    let house = House::open().await;
    house.model.script(vec![Reply::calls(vec![call("mine", json!({"city": "Bonn"}))]), Reply::text("Sunny.")]);
    let functions = json!([own_tool("mine")["function"]]);
    let (first, _) = answer(&house, json!({"functions": functions, "messages": [user("hi")]})).await;
    assert_eq!(first["choices"][0]["finish_reason"], "function_call");
    let said = message(&first).clone();
    assert_eq!(said["function_call"]["name"], "mine");
    let messages = json!([user("hi"), said, {"role": "function", "name": "mine", "content": "sunny"}]);
    let (second, _) = answer(&house, json!({"functions": functions, "messages": messages})).await;
    assert_eq!(message(&second)["content"], "Sunny.");
    assert_eq!(house.model.requests().pop().unwrap().tool_results()[0]["content"], "sunny");
}
