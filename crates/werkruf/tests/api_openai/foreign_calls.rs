//! Results whose call ids another conversation of the user waits for: model servers use ids such as `call_0` everywhere.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::{answer, message, own_tool, user};
use crate::support::TestServer;

/// A chat that waits for `call_0` of the tool `mine`. Returns its conversation and its answer.
async fn private(server: &TestServer, question: &str) -> (String, Value) {
    server.model.script(vec![Reply::calls(vec![call("mine", json!({"city": "Bonn", "days": 1.0})).with_id("call_0")])]);
    let (first, conversation) = answer(server, json!({"tools": [own_tool("mine")], "messages": [user(question)]})).await;
    (conversation, message(&first).clone())
}

fn asks(name: &str, arguments: &str) -> Value {
    json!({"role": "assistant", "content": null,
        "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": name, "arguments": arguments}}]})
}

fn result() -> Value {
    json!({"role": "tool", "tool_call_id": "call_0", "content": "sunny"})
}

async fn conversation_of(server: &TestServer, messages: Value) -> String {
    server.model.script(vec![Reply::text("Sunny.")]);
    answer(server, json!({"tools": [own_tool("mine")], "messages": messages})).await.1
}

#[tokio::test]
async fn a_chat_with_another_history_is_not_joined_by_the_id_of_a_call() {
    let server = TestServer::open().await;
    let (private, _) = private(&server, "private question").await;
    let same = r#"{"city": "Bonn", "days": 1}"#;
    for (question, call) in [
        ("other chat", asks("weather", "{}")),
        ("other chat", asks("mine", "{}")),
        ("other chat", asks("mine", same)),
        ("private question", asks("weather", same)),
        ("private question", asks("mine", r#"{"city": "Köln", "days": 1}"#)),
    ] {
        let messages = json!([user(question), call, result()]);
        assert_ne!(conversation_of(&server, messages).await, private, "{question} {call}");
        let request = server.model.requests().pop().unwrap();
        let sent = &request.messages()[1..];
        assert_eq!((&sent[0]["content"], sent.len()), (&json!(question), 3), "the client's own history: {sent:?}");
        assert_eq!(sent[1]["tool_calls"][0]["function"]["name"], call["tool_calls"][0]["function"]["name"]);
    }
}

#[tokio::test]
async fn a_history_in_the_clients_own_spelling_continues_its_conversation() {
    let server = TestServer::open().await;
    let respelled = |reply: &Value, arguments: &str| {
        let mut reply = reply.clone();
        reply["tool_calls"][0]["function"]["arguments"] = arguments.into();
        reply
    };
    // Numbers are written anew, and defaults of a schema are added.
    for (at, arguments) in [r#"{"days":1,"city":"Bonn"}"#, r#"{"city":"Bonn","days":1,"unit":"C"}"#].iter().enumerate() {
        let question = format!("question {at}");
        let (conversation, reply) = private(&server, &question).await;
        assert_eq!(conversation_of(&server, json!([user(&question), respelled(&reply, arguments), result()])).await, conversation);
    }
    // The beginning of the history is left out.
    server.model.script(vec![Reply::text("Hello.")]);
    let (hello, conversation) = answer(&server, json!({"messages": [user("hello")]})).await;
    server.model.script(vec![Reply::calls(vec![call("mine", json!({"city": "Bonn"})).with_id("call_0")])]);
    let messages = json!([user("hello"), message(&hello), user("weather?")]);
    let (reply, _) = answer(&server, json!({"tools": [own_tool("mine")], "messages": messages})).await;
    assert_eq!(conversation_of(&server, json!([user("weather?"), message(&reply), result()])).await, conversation);
    // Only the result is sent.
    let (conversation, _) = private(&server, "last question").await;
    assert_eq!(conversation_of(&server, json!([result()])).await, conversation);
}
