//! Conversations in other programs' shapes, out and in.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{House, body, refusal};

fn history() -> Vec<Value> {
    vec![
        json!({"role": "user", "content": [{"type": "text", "text": "What is open?"}, {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}]}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_requests", "arguments": "{\"status\": \"open\"}"}},
            {"id": "call_2", "type": "function", "function": {"name": "get_todos", "arguments": "{\"broken\""}}]}),
        json!({"role": "tool", "tool_call_id": "call_1", "content": "3"}),
        json!({"role": "tool", "tool_call_id": "call_2", "content": "not JSON"}),
        json!({"role": "assistant", "content": "Three.", "name": "bot"}),
    ]
}

async fn import(house: &House, format: &str, messages: &[Value]) -> String {
    let request = house.as_user(3, Method::POST, "/api/conversations").json(&json!({"format": format, "messages": messages}));
    let made = request.send().await.unwrap();
    assert_eq!(made.status(), 201, "{}", made.text().await.unwrap());
    let place = made.headers()["location"].to_str().unwrap().to_owned();
    let id = body(made).await["id"].as_str().unwrap().to_owned();
    assert_eq!(place, format!("/api/conversations/{id}"));
    id
}

async fn messages(house: &House, id: &str, query: &str) -> Vec<Value> {
    let path = format!("/api/conversations/{id}/messages?{query}");
    let mut list = body(house.as_user(3, Method::GET, &path).send().await.unwrap()).await;
    match list["messages"].take() {
        Value::Array(messages) => messages,
        other => panic!("{path}: {other} {list}"),
    }
}

#[tokio::test]
async fn a_history_goes_through_the_store_and_langchain_and_back() {
    let house = House::open().await;
    let first = import(&house, "openai", &history()).await;
    let chain = messages(&house, &first, "format=langchain").await;
    let kinds: Vec<&str> = chain.iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["human", "ai", "tool", "tool", "ai"]);
    let second = import(&house, "langchain", &chain).await;
    assert_eq!(messages(&house, &second, "format=openai").await, history());
    let items = messages(&house, &second, "format=responses").await;
    let third = import(&house, "responses", &items).await;
    assert_eq!(messages(&house, &third, "format=responses").await, items);
    let mut backwards = messages(&house, &first, "format=openai&order=desc").await;
    backwards.reverse();
    assert_eq!(backwards, history());
}

#[tokio::test]
async fn a_conversation_from_elsewhere_goes_on_here() {
    let house = House::open().await;
    let id = import(&house, "openai", &history()).await;
    house.model.script(vec![Reply::text("Still three.")]);
    let answered = house.chat(3, json!({"message": "And now?", "conversation_id": id})).await;
    assert_eq!(answered.status(), 200);
    let sent = house.model.requests();
    let roles: Vec<&str> = sent[0].messages().iter().skip(1).map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant", "user"]);
    let all = messages(&house, &id, "").await;
    let places: Vec<i64> = all.iter().map(|message| message["seq"].as_i64().unwrap()).collect();
    assert_eq!(places, [1, 2, 3, 4, 5, 6, 7]);
    let other = house.as_user(4, Method::GET, "/api/conversations").header("x-user-id", "4").send().await.unwrap();
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn what_the_server_wrote_itself_can_be_taken_along() {
    let house = House::open().await;
    house.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1})).with_id("call_abc")]), Reply::text("One.")]);
    let answer = body(house.chat(3, json!({"message": "echo"})).await).await;
    let id = answer["conversation_id"].as_str().unwrap();
    let chat = messages(&house, id, "format=openai").await;
    assert_eq!(chat[0], json!({"role": "user", "content": "echo"}));
    assert_eq!(chat[1]["tool_calls"][0]["function"], json!({"name": "test_echo", "arguments": "{\"value\":1}"}));
    assert_eq!((&chat[2]["tool_call_id"], &chat[3]["content"]), (&json!("call_abc"), &json!("One.")));
    let chain = messages(&house, id, "format=langchain").await;
    assert_eq!(chain[2]["data"]["name"], "test_echo");
    let row = messages(&house, id, "format=native").await;
    assert_eq!(chain[0]["data"]["id"], row[0]["id"]);
    let page =
        body(house.as_user(3, Method::GET, &format!("/api/conversations/{id}/messages?format=openai&limit=2")).send().await.unwrap()).await;
    assert_eq!(page["next_after"], row[1]["id"], "pages go on by row");
}

#[tokio::test]
async fn what_is_no_history_writes_nothing() {
    let house = House::open().await;
    let ask = async |request: Value| house.as_user(3, Method::POST, "/api/conversations").json(&request).send().await.unwrap();
    let bad = ask(json!({"format": "openai", "messages": [{"role": "user", "content": "x"}, {"role": "chef"}]})).await;
    assert_eq!(bad.status(), 400);
    assert_eq!(body(bad).await["error"]["details"][0]["path"], "/messages/1");
    for format in ["native", "xml"] {
        assert_eq!(refusal(ask(json!({"format": format, "messages": []})).await).await, (400, "invalid_request".to_owned()));
    }
    let id = house.conversation(3).await;
    let unknown = house.as_user(3, Method::GET, &format!("/api/conversations/{id}/messages?format=xml")).send().await.unwrap();
    assert_eq!(refusal(unknown).await, (400, "invalid_request".to_owned()));
    let list = body(house.as_user(3, Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!(list["conversations"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_the_model_was_told_to_heed_reaches_it_as_such() {
    let told = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Hi"}),
        json!({"role": "assistant", "content": "Hello."}),
        json!({"role": "system", "content": "From now on in German."}),
    ];
    for (api, list) in [("chat", "messages"), ("responses", "input")] {
        let house = House::open_with(&format!("[model]\napi = '{api}'\n")).await;
        let id = import(&house, "openai", &told).await;
        house.model.script(vec![Reply::text("Tee.")]);
        let answered = body(house.chat(3, json!({"message": "What now?", "conversation_id": id})).await).await;
        assert_eq!(answered["message"]["content"], "Tee.", "{answered}");
        let request = &house.model.requests()[0];
        let sent: Vec<Value> = request.body[list].as_array().unwrap().iter().skip(usize::from(api == "chat")).cloned().collect();
        assert_eq!(sent, [&told[..], &[json!({"role": "user", "content": "What now?"})]].concat(), "{api}");
    }
}
