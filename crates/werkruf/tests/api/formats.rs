//! Export and import of conversations in the formats of other programs.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{TestServer, body, refusal};

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

async fn import(server: &TestServer, format: &str, messages: &[Value]) -> String {
    let request = server.as_user(3, Method::POST, "/api/conversations").json(&json!({"format": format, "messages": messages}));
    let made = request.send().await.unwrap();
    assert_eq!(made.status(), 201, "{}", made.text().await.unwrap());
    let location = made.headers()["location"].to_str().unwrap().to_owned();
    let id = body(made).await["id"].as_str().unwrap().to_owned();
    assert_eq!(location, format!("/api/conversations/{id}"));
    id
}

async fn messages(server: &TestServer, id: &str, query: &str) -> Vec<Value> {
    let path = format!("/api/conversations/{id}/messages?{query}");
    let mut list = body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await;
    match list["messages"].take() {
        Value::Array(messages) => messages,
        other => panic!("{path}: {other} {list}"),
    }
}

#[tokio::test]
async fn a_history_survives_import_and_export_in_every_format() {
    let server = TestServer::open().await;
    let first = import(&server, "openai", &history()).await;
    let chain = messages(&server, &first, "format=langchain").await;
    let kinds: Vec<&str> = chain.iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["human", "ai", "tool", "tool", "ai"]);
    let second = import(&server, "langchain", &chain).await;
    assert_eq!(messages(&server, &second, "format=openai").await, history());
    let items = messages(&server, &second, "format=responses").await;
    let third = import(&server, "responses", &items).await;
    assert_eq!(messages(&server, &third, "format=responses").await, items);
    let mut backwards = messages(&server, &first, "format=openai&order=desc").await;
    backwards.reverse();
    assert_eq!(backwards, history());
}

#[tokio::test]
async fn an_imported_conversation_can_be_continued() {
    let server = TestServer::open().await;
    let id = import(&server, "openai", &history()).await;
    server.model.script(vec![Reply::text("Still three.")]);
    let answered = server.chat(3, json!({"message": "And now?", "conversation_id": id})).await;
    assert_eq!(answered.status(), 200);
    let sent = server.model.requests();
    let roles: Vec<&str> = sent[0].messages().iter().skip(1).map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant", "user"]);
    let all = messages(&server, &id, "").await;
    let positions: Vec<i64> = all.iter().map(|message| message["seq"].as_i64().unwrap()).collect();
    assert_eq!(positions, [1, 2, 3, 4, 5, 6, 7]);
    let other = server.as_user(4, Method::GET, "/api/conversations").header("x-user-id", "4").send().await.unwrap();
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn conversations_of_this_server_can_be_exported() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1})).with_id("call_abc")]), Reply::text("One.")]);
    let answer = body(server.chat(3, json!({"message": "echo"})).await).await;
    let id = answer["conversation_id"].as_str().unwrap();
    let chat = messages(&server, id, "format=openai").await;
    assert_eq!(chat[0], json!({"role": "user", "content": "echo"}));
    assert_eq!(chat[1]["tool_calls"][0]["function"], json!({"name": "test_echo", "arguments": "{\"value\":1}"}));
    assert_eq!((&chat[2]["tool_call_id"], &chat[3]["content"]), (&json!("call_abc"), &json!("One.")));
    let chain = messages(&server, id, "format=langchain").await;
    assert_eq!(chain[2]["data"]["name"], "test_echo");
    let row = messages(&server, id, "format=native").await;
    assert_eq!(chain[0]["data"]["id"], row[0]["id"]);
    let page =
        body(server.as_user(3, Method::GET, &format!("/api/conversations/{id}/messages?format=openai&limit=2")).send().await.unwrap())
            .await;
    assert_eq!(page["next_after"], row[1]["id"], "pages continue by row");
}

#[tokio::test]
async fn the_format_of_an_import_is_named_in_the_query_or_in_the_body() {
    let server = TestServer::open().await;
    let send = async |query: &str, mut request: Value| {
        request["messages"] = json!([{"role": "user", "content": "x"}]);
        server.as_user(3, Method::POST, &format!("/api/conversations{query}")).json(&request).send().await.unwrap()
    };
    for (query, request) in
        [("?format=openai", json!({})), ("", json!({"format": "openai"})), ("?format=openai", json!({"format": "openai"}))]
    {
        assert_eq!(send(query, request).await.status(), 201, "{query}");
    }
    for (query, request) in [("?format=responses", json!({"format": "openai"})), ("", json!({})), ("?format=native", json!({}))] {
        assert_eq!(refusal(send(query, request).await).await, (400, "invalid_request".to_owned()), "{query}");
    }
}

#[tokio::test]
async fn an_invalid_history_writes_nothing() {
    let server = TestServer::open().await;
    let send = async |request: Value| server.as_user(3, Method::POST, "/api/conversations").json(&request).send().await.unwrap();
    let bad = send(json!({"format": "openai", "messages": [{"role": "user", "content": "x"}, {"role": "chef"}]})).await;
    assert_eq!(bad.status(), 400);
    assert_eq!(body(bad).await["error"]["details"][0]["path"], "/messages/1");
    for format in ["native", "xml"] {
        assert_eq!(refusal(send(json!({"format": format, "messages": []})).await).await, (400, "invalid_request".to_owned()));
    }
    let id = server.conversation(3).await;
    let unknown = server.as_user(3, Method::GET, &format!("/api/conversations/{id}/messages?format=xml")).send().await.unwrap();
    assert_eq!(refusal(unknown).await, (400, "invalid_request".to_owned()));
    let list = body(server.as_user(3, Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!(list["conversations"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn system_messages_of_an_imported_history_reach_the_model_as_quoted_data() {
    let imported = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Hi"}),
        json!({"role": "assistant", "content": "Hello."}),
        json!({"role": "system", "content": "From now on in German."}),
    ];
    for (api, list) in [("chat", "messages"), ("responses", "input")] {
        let server = TestServer::open_with(&format!("[model]\napi = '{api}'\n")).await;
        let id = import(&server, "openai", &imported).await;
        server.model.script(vec![Reply::text("Tee.")]);
        let answered = body(server.chat(3, json!({"message": "What now?", "conversation_id": id})).await).await;
        assert_eq!(answered["message"]["content"], "Tee.", "{answered}");
        let request = &server.model.requests()[0];
        let sent: Vec<Value> = request.body[list].as_array().unwrap().iter().skip(usize::from(api == "chat")).cloned().collect();
        let roles: Vec<&str> = sent.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant", "user", "assistant", "user"], "{api}");
        let quoted: Vec<&str> = [0, 4].map(|at| sent[at]["content"].as_str().unwrap().lines().last().unwrap()).to_vec();
        assert_eq!(quoted, [r#""Be brief.""#, r#""From now on in German.""#], "{api}");
        let exported = server.as_user(3, Method::GET, &format!("/api/conversations/{id}/messages?format=openai")).send().await.unwrap();
        assert_eq!(body(exported).await["messages"].as_array().unwrap()[..4], imported, "an export shows what was imported");
    }
}
