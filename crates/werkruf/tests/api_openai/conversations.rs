//! How the conversation of a request is found.

use reqwest::Method;
use serde_json::json;
use werkruf_bench::fake_model::Reply;

use crate::client::{CLARA, answer, completion, message, user};
use crate::support::{TestServer, body};

#[tokio::test]
async fn a_history_sent_again_continues_its_conversation() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Two"), Reply::text("Four"), Reply::text("Six"), Reply::text("Other")]);
    let (first, conversation) = answer(&server, json!({"messages": [user("One")]})).await;
    let mut messages = vec![json!({"role": "system", "content": "anything"}), user("One"), message(&first).clone(), user("Three")];
    let (second, same) = answer(&server, json!({"messages": messages})).await;
    assert_eq!(same, conversation);
    messages.extend([message(&second).clone(), user("Five")]);
    let (_, same) = answer(&server, json!({"messages": messages})).await;
    assert_eq!(same, conversation);
    let rows = body(server.as_user(CLARA, Method::GET, &format!("/api/conversations/{conversation}/messages")).send().await.unwrap()).await;
    let texts: Vec<&str> = rows["messages"].as_array().unwrap().iter().map(|row| row["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["One", "Two", "Three", "Four", "Five", "Six"], "{rows}");
    // A request that continues from the middle starts a new conversation with the sent messages as its history.
    messages.truncate(3);
    messages.push(user("Instead"));
    let (_, other) = answer(&server, json!({"messages": messages})).await;
    assert_ne!(other, conversation);
    let model_request = server.model.requests().pop().unwrap();
    let contents: Vec<&str> = model_request.messages()[1..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["One", "Two", "Instead"]);
}

#[tokio::test]
async fn another_user_never_continues_it() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Two")]);
    let (first, conversation) = answer(&server, json!({"messages": [user("One")]})).await;
    let messages = json!([user("One"), message(&first), user("Three")]);
    let key = server.key(Some(2), &["chat"]).await;
    let other_user = server.with_key(&key, Method::POST, "/v1/chat/completions").json(&json!({"messages": messages})).send().await.unwrap();
    assert_ne!(other_user.headers()["x-conversation-id"], conversation.as_str());
    let named = server.with_key(&key, Method::POST, "/v1/chat/completions").header("x-conversation-id", &conversation);
    assert_eq!(named.json(&json!({"messages": [user("Three")]})).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_named_conversation_stores_only_new_messages() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Two"), Reply::text("Four")]);
    let conversation = server.conversation(CLARA).await;
    let messages = json!([user("invented"), {"role": "assistant", "content": "also invented"}, user("Three")]);
    let request = completion(&server).header("x-conversation-id", &conversation).json(&json!({"messages": messages}));
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-conversation-id"], conversation.as_str());
    let model_request = server.model.requests().pop().unwrap();
    let contents: Vec<&str> = model_request.messages()[1..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["hello", "Two", "Three"]);
    // Without new messages the conversation continues from its last message.
    let request = completion(&server).header("x-conversation-id", &conversation).json(&json!({"messages": []}));
    assert_eq!(request.send().await.unwrap().status(), 200);
    let model_request = server.model.requests().pop().unwrap();
    let contents: Vec<&str> = model_request.messages()[1..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["hello", "Two", "Three", "Four"]);
}
