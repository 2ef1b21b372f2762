//! Retention through the API: which rows are deleted, and what clients get afterwards.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{TestServer, body, refusal};

const RETENTION: &str = "[retention]\nmessages_days = 1\nevents_days = 1\ncalls_days = 1\nusage_days = 1\n";
/// Three days ago.
const PAST: (&str, &str) = ("WERKRUF_CLOCK_OFFSET_S", "-259200");

async fn run(server: &TestServer, request: Value) -> Value {
    let done = server.operator(Method::POST, "/api/admin/retention").json(&request).send().await.unwrap();
    assert_eq!(done.status(), 200);
    body(done).await
}

async fn chat(server: &TestServer, message: &str, conversation: Option<&str>, key: &str) -> Value {
    let request = server.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").header("idempotency-key", key);
    let mut message_body = json!({"message": message});
    if let Some(id) = conversation {
        message_body["conversation_id"] = json!(id);
    }
    let answered = request.json(&message_body).send().await.unwrap();
    assert_eq!(answered.status(), 200);
    body(answered).await
}

fn numbers(run: &Value) -> [u64; 4] {
    ["messages", "events", "calls", "usage"].map(|kind| run[kind].as_u64().unwrap())
}

/// A server of today on a database with rows that are three days old; also the first response and its messages.
async fn after_three_days() -> (TestServer, Value, Value) {
    let past = TestServer::open_in(RETENTION, &[PAST]).await;
    past.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]), Reply::text("Then.")]);
    let answer = chat(&past, "Quittengelee", None, "k").await;
    let path = format!("/api/conversations/{}/messages", answer["conversation_id"].as_str().unwrap());
    let messages = body(past.as_user(3, Method::GET, &path).send().await.unwrap()).await["messages"].clone();
    let invoked = past.as_user(3, Method::POST, "/api/tools/test_echo/invoke").json(&json!({"input": {"value": 2}})).send().await.unwrap();
    assert_eq!(invoked.status(), 200);
    let folder = tempfile::tempdir().unwrap();
    let copy = json!({"path": folder.path().join("werkruf.db")});
    assert_eq!(past.operator(Method::POST, "/api/admin/backup").json(&copy).send().await.unwrap().status(), 200);
    (TestServer::open_in_folder(RETENTION, &[], folder).await, answer, messages)
}

#[tokio::test]
async fn old_rows_are_counted_then_deleted_and_clients_get_410() {
    let (server, old, messages) = after_three_days().await;
    let conversation = old["conversation_id"].as_str().unwrap();
    chat(&server, "and today?", Some(conversation), "k2").await;

    let key = server.key(None, &["admin"]).await;
    let tenant = server.with_key(&key, Method::POST, "/api/admin/retention").json(&json!({})).send().await.unwrap();
    assert_eq!(refusal(tenant).await, (403, "forbidden".to_owned()), "it concerns every tenant");
    let counted = run(&server, json!({"dry_run": true})).await;
    assert_eq!((numbers(&counted)[0], numbers(&counted)[2], numbers(&counted)[3]), (4, 2, 2), "{counted}");
    assert_eq!((&counted["dry_run"], &counted["conversations"]), (&json!(true), &Value::Null));
    assert_eq!(run(&server, json!({"dry_run": true})).await["calls"], 2, "counting changes nothing");
    let done = run(&server, json!({})).await;
    assert_eq!((numbers(&done), &done["conversations"]), (numbers(&counted), &json!(0)));
    for kind in ["messages", "events", "calls", "usage"] {
        assert!(done[format!("{kind}_before")].is_string(), "{done}");
    }
    assert_eq!(numbers(&run(&server, json!({})).await), [0; 4]);

    let get = async |path: String| server.as_user(3, Method::GET, &path).send().await.unwrap();
    let page = async |query: &str| get(format!("/api/conversations/{conversation}/messages{query}")).await;
    let left = body(page("").await).await["messages"].clone();
    let positions: Vec<_> = left.as_array().unwrap().iter().map(|message| (message["seq"].clone(), message["role"].clone())).collect();
    assert_eq!(positions, [(json!(5), json!("user")), (json!(6), json!("assistant"))]);
    let gone = page(&format!("?after={}", messages[1]["id"].as_str().unwrap())).await;
    assert_eq!(gone.status(), 410);
    let error = body(gone).await["error"].clone();
    assert_eq!((&error["code"], &error["details"]), (&json!("messages_gone"), &json!({"first_seq": 5})));
    let (first, last) = (left[0]["id"].as_str().unwrap(), left[1]["id"].as_str().unwrap());
    assert_eq!(body(page(&format!("?after={last}")).await).await["messages"], json!([]), "the end is valid");
    assert_eq!(body(page(&format!("?order=desc&after={first}")).await).await["messages"], json!([]), "so is the beginning");
    assert_eq!(get(format!("/api/conversations/{conversation}/events?after=0")).await.status(), 410);
    let job = old["tool_results"][0]["job_id"].as_str().unwrap();
    let turn = old["turn_id"].as_str().unwrap();
    for path in [format!("/api/tool-calls/{job}"), format!("/api/tool-calls/{job}/explain"), format!("/api/turns/{turn}")] {
        assert_eq!(refusal(get(path.clone()).await).await, (404, "not_found".to_owned()), "{path}");
    }
    let title = body(get(format!("/api/conversations/{conversation}")).await).await["title"].clone();
    assert_eq!(title, "and today?");

    // The conversation continues, and the remaining messages are a valid history for a model.
    chat(&server, "once more", Some(conversation), "k3").await;
    let sent = server.model.requests().last().unwrap().body.to_string();
    assert!(!sent.contains("Quittengelee") && sent.contains("and today?"), "{sent}");
    // An idempotency key expires after a day, even if its turn still exists; today's key has not expired.
    let again = chat(&server, "and today?", Some(conversation), "k2").await;
    assert_eq!(again["message"]["content"], left[1]["content"]);
    assert_ne!(chat(&server, "Quittengelee", None, "k").await["turn_id"], old["turn_id"]);
}

#[tokio::test]
async fn without_a_setting_nothing_is_deleted() {
    let server = TestServer::open().await;
    server.conversation(3).await;
    let done = run(&server, json!({})).await;
    assert_eq!(numbers(&done), [0; 4]);
    assert!(["messages", "events", "calls", "usage"].iter().all(|kind| done[format!("{kind}_before")].is_null()), "{done}");
}
