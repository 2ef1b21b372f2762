//! Tools that the client runs: the response requests them, the next request has their results.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::{CLARA, answer, chunks, completion, message, own_tool, user};
use crate::support::{TestServer, body};

fn result(id: &Value, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

#[tokio::test]
async fn a_mixed_turn_shows_only_the_clients_calls_and_continues_with_all_results() {
    let server = TestServer::open().await;
    let server_call = call("test_echo", json!({"value": "tea"})).with_id("call_ours");
    let client_call = call("my_weather", json!({"city": "Bonn"})).with_id("call_theirs");
    server.model.script(vec![Reply::calls(vec![server_call, client_call]).with_text("Wait. "), Reply::text("Sunny tea.")]);
    let tools = json!([own_tool("my_weather")]);
    let (first, conversation) = answer(&server, json!({"model": "m", "tools": tools, "messages": [user("hi")]})).await;
    let reply = message(&first).clone();
    assert_eq!((&reply["content"], &first["choices"][0]["finish_reason"]), (&json!("Wait. "), &json!("tool_calls")));
    let calls = reply["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), &calls[0]["function"]["name"]), (1, &json!("my_weather")));
    let arguments: Value = serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Bonn"}));

    let messages = json!([user("hi"), reply, result(&calls[0]["id"], "sunny")]);
    let (second, same) = answer(&server, json!({"model": "m", "tools": tools, "messages": messages})).await;
    assert_eq!((message(&second)["content"].as_str(), same), (Some("Sunny tea."), conversation));
    let model_request = server.model.requests().pop().unwrap();
    let history = model_request.messages();
    assert_eq!(history[2]["tool_calls"].as_array().unwrap().len(), 2, "the stored message with all calls");
    let results: Vec<&str> = history[3..].iter().map(|message| message["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(results, ["call_ours", "call_theirs"]);
    assert_eq!(history[4]["content"], "sunny");
}

#[tokio::test]
async fn calls_are_sent_as_chunks() {
    let server = TestServer::open().await;
    let calls = vec![call("mine", json!({"city": "Bonn"})).with_id("a"), call("mine", json!({"city": "Köln"})).with_id("b")];
    server.model.script(vec![Reply::calls(calls)]);
    let request = json!({"model": "m", "stream": true, "tools": [own_tool("mine")], "messages": [user("hi")]});
    let stream = chunks(completion(&server).json(&request).send().await.unwrap()).await;
    let deltas: Vec<&Value> =
        stream.chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
    let ids: Vec<_> = deltas.iter().filter(|delta| delta.get("id").is_some()).map(|delta| (&delta["index"], &delta["id"])).collect();
    assert_eq!(ids, [(&json!(0), &json!("a")), (&json!(1), &json!("b"))]);
    let arguments: String = deltas.iter().filter(|delta| delta["index"] == 1).filter_map(|d| d["function"]["arguments"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&arguments).unwrap(), json!({"city": "Köln"}));
    assert_eq!(stream.chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    assert!(stream.done);
}

#[tokio::test]
async fn a_client_tool_replaces_the_servers_and_an_unanswered_call_is_canceled() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1})).with_id("a")]), Reply::text("Never mind.")]);
    let (first, conversation) = answer(&server, json!({"tools": [own_tool("test_echo")], "messages": [user("hi")]})).await;
    let reply = message(&first).clone();
    assert_eq!((&reply["content"], reply["tool_calls"][0]["id"].as_str()), (&Value::Null, Some("a")));
    let rows =
        body(server.as_user(CLARA, Method::GET, &format!("/api/tool-calls?conversation_id={conversation}")).send().await.unwrap()).await;
    assert!(!rows.to_string().contains("test_echo"), "the server ran nothing: {rows}");
    // The client sends another message instead of the result; it names the conversation by its id.
    let request = completion(&server).header("x-conversation-id", &conversation).json(&json!({"messages": [user("forget it")]}));
    assert_eq!(request.send().await.unwrap().status(), 200);
    let model_request = server.model.requests().pop().unwrap();
    let result = model_request.messages().iter().find(|message| message["tool_call_id"] == "a").unwrap();
    assert!(result["content"].as_str().unwrap().contains("canceled"), "{result}");
    assert_eq!(model_request.user_text(), "forget it");
}

#[tokio::test]
async fn results_of_unknown_calls_are_history() {
    let server = TestServer::open().await;
    let call = json!({"id": "x", "type": "function", "function": {"name": "mine", "arguments": "{}"}});
    let messages = json!([user("hi"), {"role": "assistant", "tool_calls": [call]}, result(&json!("x"), "42")]);
    answer(&server, json!({"tools": [own_tool("mine")], "messages": messages})).await;
    let model_request = server.model.requests().pop().unwrap();
    assert_eq!(model_request.messages()[1]["content"], "hi");
    assert_eq!(model_request.tool_results()[0]["content"], "42");
}

#[tokio::test]
async fn the_old_functions_field_is_answered_with_function_call() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::calls(vec![call("mine", json!({"city": "Bonn"}))]), Reply::text("Sunny.")]);
    let functions = json!([own_tool("mine")["function"]]);
    let (first, _) = answer(&server, json!({"functions": functions, "messages": [user("hi")]})).await;
    assert_eq!(first["choices"][0]["finish_reason"], "function_call");
    let reply = message(&first).clone();
    assert_eq!(reply["function_call"]["name"], "mine");
    let messages = json!([user("hi"), reply, {"role": "function", "name": "mine", "content": "sunny"}]);
    let (second, _) = answer(&server, json!({"functions": functions, "messages": messages})).await;
    assert_eq!(message(&second)["content"], "Sunny.");
    assert_eq!(server.model.requests().pop().unwrap().tool_results()[0]["content"], "sunny");
}
