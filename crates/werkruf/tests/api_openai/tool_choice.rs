//! `tool_choice` means the client's tools where it has any.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::{answer, completion, message, own_tool, user};
use crate::responses::client::answered;
use crate::support::{TestServer, body};

fn flat(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object"}})
}

fn choices(server: &TestServer) -> Vec<Value> {
    server.model.requests().iter().map(|request| request.body["tool_choice"].clone()).collect()
}

#[tokio::test]
async fn required_is_kept_until_a_tool_of_the_client_is_called() {
    let server = TestServer::open().await;
    let replies = || {
        let ours = |value: i64| Reply::calls(vec![call("test_echo", json!({"value": value}))]);
        vec![ours(1), ours(2), Reply::calls(vec![call("submit", json!({"city": "Bonn"}))])]
    };
    server.model.script(replies());
    let request = json!({"tools": [own_tool("submit")], "tool_choice": "required", "messages": [user("hi")]});
    let (answer, _) = answer(&server, request).await;
    assert_eq!(message(&answer)["tool_calls"][0]["function"]["name"], "submit");
    assert_eq!(choices(&server), [json!("required"), json!("required"), json!("required")]);

    let server = TestServer::open().await;
    server.model.script(replies());
    let object = answered(&server, json!({"tools": [flat("submit")], "tool_choice": "required", "input": "hi"})).await;
    assert_eq!(object["output"][0]["name"], "submit");
    assert_eq!(choices(&server), [json!("required"), json!("required"), json!("required")]);
}

#[tokio::test]
async fn a_named_tool_of_the_client_is_kept_and_one_of_the_server_counts_once() {
    let server = TestServer::open().await;
    let ours = || Reply::calls(vec![call("test_echo", json!({"value": 1}))]);
    server.model.script(vec![ours(), Reply::calls(vec![call("submit", json!({}))])]);
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    answer(&server, json!({"tools": [own_tool("submit")], "tool_choice": named("submit"), "messages": [user("hi")]})).await;
    assert_eq!(choices(&server), [named("submit"), named("submit")]);

    let server = TestServer::open().await;
    server.model.script(vec![ours(), Reply::text("Done.")]);
    answer(&server, json!({"tools": [own_tool("submit")], "tool_choice": named("test_echo"), "messages": [user("hi")]})).await;
    assert_eq!(choices(&server), [named("test_echo"), json!("auto")]);

    let server = TestServer::open().await;
    server.model.script(vec![ours(), Reply::text("Done.")]);
    answer(&server, json!({"tool_choice": "required", "messages": [user("hi")]})).await;
    assert_eq!(choices(&server), [json!("required"), json!("auto")], "it means the server's tools");
}

#[tokio::test]
async fn allowed_tools_limit_the_clients_tools_or_else_the_servers() {
    let server = TestServer::open().await;
    let nested =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "a"}}]}});
    server.model.script(vec![Reply::calls(vec![call("a", json!({}))])]);
    answer(&server, json!({"tools": [own_tool("a"), own_tool("b")], "tool_choice": nested, "messages": [user("hi")]})).await;
    let request = server.model.requests().pop().unwrap();
    let names = request.tool_names();
    assert!(names.contains(&"a") && !names.contains(&"b") && names.contains(&"test_echo"), "{names:?}");
    assert_eq!(request.body["tool_choice"], "required");

    let allowed = json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "test_echo"}]});
    answered(&server, json!({"tool_choice": allowed, "input": "hi"})).await;
    assert_eq!(server.model.requests().pop().unwrap().tool_names(), ["test_echo"]);
}

#[tokio::test]
async fn a_client_that_repeats_the_same_exchange_is_stopped() {
    let server = TestServer::open().await;
    // A model that always calls the same tool while it has tools, and a client that always sends the same result.
    server.model.script_fn(|request| match request.tool_names().is_empty() {
        true => Reply::text("I give up."),
        false => Reply::calls(vec![call("mine", json!({"city": "Bonn"})).with_id("")]),
    });
    let mut messages = vec![user("hi")];
    let mut rounds = 0;
    let last = loop {
        let request = json!({"tools": [own_tool("mine")], "tool_choice": "required", "messages": messages});
        let (answer, _) = answer(&server, request).await;
        let reply = message(&answer).clone();
        let Some(calls) = reply["tool_calls"].as_array().cloned() else { break reply };
        messages.push(reply);
        messages.push(json!({"role": "tool", "tool_call_id": calls[0]["id"], "content": "no"}));
        rounds += 1;
        assert!(rounds < 20, "the loop goes on");
    };
    assert_eq!((last["content"].as_str(), rounds), (Some("I give up."), 5));
}

#[tokio::test]
async fn a_repeating_client_whose_model_says_nothing_gets_an_error_that_is_not_repeated() {
    let server = TestServer::open().await;
    server.model.script_fn(|_| Reply::calls(vec![call("mine", json!({"city": "Bonn"})).with_id("")]));
    let mut messages = vec![user("hi")];
    let refused = loop {
        let sent = completion(&server).json(&json!({"tools": [own_tool("mine")], "messages": messages})).send().await.unwrap();
        if sent.status() != 200 {
            break sent;
        }
        let reply = message(&body(sent).await).clone();
        messages.push(json!({"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "no"}));
        messages.insert(messages.len() - 1, reply);
        assert!(messages.len() < 40, "the loop goes on");
    };
    assert_eq!((refused.status().as_u16(), refused.headers()["x-should-retry"].to_str().unwrap()), (500, "false"));
    assert_eq!(body(refused).await["error"]["code"], "repeat_limit");
}

#[tokio::test]
async fn a_client_limits_the_calls_of_the_servers_tools() {
    let server = TestServer::open().await;
    let echo = |value: i64| call("test_echo", json!({"value": value}));
    let script = || server.model.script(vec![Reply::calls(vec![echo(1), echo(2)]), Reply::calls(vec![echo(3)]), Reply::text("Enough.")]);
    script();
    let object = answered(&server, json!({"input": "hi", "max_tool_calls": 1})).await;
    assert_eq!((&object["max_tool_calls"], &object["output"][0]["content"][0]["text"]), (&json!(1), &json!("Enough.")));
    let results = |request: &Value| -> Vec<Value> {
        let messages = request["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
        messages
            .map(|message| serde_json::from_str::<Value>(message["content"].as_str().unwrap()).unwrap()["error"]["code"].clone())
            .collect()
    };
    let sent = server.model.requests().pop().unwrap();
    assert_eq!(results(&sent.body), [Value::Null, json!("too_many_calls"), json!("too_many_calls")]);
    // A call that was refused does not count.
    server.model.script(vec![
        Reply::calls(vec![call("no_such_tool", json!({}))]),
        Reply::calls(vec![echo(4), echo(5)]),
        Reply::text("Enough."),
    ]);
    answered(&server, json!({"input": "hi", "max_tool_calls": 1})).await;
    let sent = server.model.requests().pop().unwrap();
    assert_eq!(results(&sent.body), [json!("unknown_tool"), Value::Null, json!("too_many_calls")]);
    // Each response has its own count, and without the field there is no such limit.
    script();
    answered(&server, json!({"input": "hi", "max_tool_calls": 3})).await;
    assert_eq!(results(&server.model.requests().pop().unwrap().body), [Value::Null, Value::Null, Value::Null]);
}
