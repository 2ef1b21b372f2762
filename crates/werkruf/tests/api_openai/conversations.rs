//! Which conversation a request belongs to.

use reqwest::Method;
use serde_json::json;
use werkruf_bench::fake_model::Reply;

use crate::speaking::{CLARA, answer, completion, message, user};
use crate::support::{House, body};

#[tokio::test]
async fn a_history_sent_again_continues_its_conversation() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("Two"), Reply::text("Four"), Reply::text("Six"), Reply::text("Other")]);
    let (first, conversation) = answer(&house, json!({"messages": [user("One")]})).await;
    let mut messages = vec![json!({"role": "system", "content": "anything"}), user("One"), message(&first).clone(), user("Three")];
    let (second, same) = answer(&house, json!({"messages": messages})).await;
    assert_eq!(same, conversation);
    messages.extend([message(&second).clone(), user("Five")]);
    let (_, same) = answer(&house, json!({"messages": messages})).await;
    assert_eq!(same, conversation);
    let rows = body(house.as_user(CLARA, Method::GET, &format!("/api/conversations/{conversation}/messages")).send().await.unwrap()).await;
    let texts: Vec<&str> = rows["messages"].as_array().unwrap().iter().map(|row| row["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["One", "Two", "Three", "Four", "Five", "Six"], "{rows}");
    // Whoever goes on from the middle begins a conversation of its own, with what it brings as its past.
    messages.truncate(3);
    messages.push(user("Instead"));
    let (_, other) = answer(&house, json!({"messages": messages})).await;
    assert_ne!(other, conversation);
    let asked = house.model.requests().pop().unwrap();
    let said: Vec<&str> = asked.messages()[1..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["One", "Two", "Instead"]);
}

#[tokio::test]
async fn another_person_never_continues_it() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("Two")]);
    let (first, conversation) = answer(&house, json!({"messages": [user("One")]})).await;
    let messages = json!([user("One"), message(&first), user("Three")]);
    let key = house.key(Some(2), &["chat"]).await;
    let stranger = house.with_key(&key, Method::POST, "/v1/chat/completions").json(&json!({"messages": messages})).send().await.unwrap();
    assert_ne!(stranger.headers()["x-conversation-id"], conversation.as_str());
    let named = house.with_key(&key, Method::POST, "/v1/chat/completions").header("x-conversation-id", &conversation);
    assert_eq!(named.json(&json!({"messages": [user("Three")]})).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_named_conversation_takes_only_what_is_new() {
    let house = House::open().await;
    house.model.script(vec![Reply::text("Two"), Reply::text("Four")]);
    let conversation = house.conversation(CLARA).await;
    let messages = json!([user("invented"), {"role": "assistant", "content": "also invented"}, user("Three")]);
    let request = completion(&house).header("x-conversation-id", &conversation).json(&json!({"messages": messages}));
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-conversation-id"], conversation.as_str());
    let asked = house.model.requests().pop().unwrap();
    let said: Vec<&str> = asked.messages()[1..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["hello", "Two", "Three"]);
    // With nothing new it goes on from where it stands.
    let request = completion(&house).header("x-conversation-id", &conversation).json(&json!({"messages": []}));
    assert_eq!(request.send().await.unwrap().status(), 200);
    let asked = house.model.requests().pop().unwrap();
    let said: Vec<&str> = asked.messages()[1..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["hello", "Two", "Three", "Four"]);
}
