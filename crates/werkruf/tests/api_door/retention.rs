//! What was kept long enough goes, through the door; and what readers of it hear afterwards.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{House, body, refusal};

const WINDOWS: &str = "[retention]\nmessages_days = 1\nevents_days = 1\ncalls_days = 1\nusage_days = 1\n";
/// Three days ago.
const THEN: (&str, &str) = ("WERKRUF_CLOCK_OFFSET_S", "-259200");

async fn run(house: &House, request: Value) -> Value {
    let done = house.operator(Method::POST, "/api/admin/retention").json(&request).send().await.unwrap();
    assert_eq!(done.status(), 200);
    body(done).await
}

async fn ask(house: &House, message: &str, conversation: Option<&str>, key: &str) -> Value {
    let request = house.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").header("idempotency-key", key);
    let mut asked = json!({"message": message});
    if let Some(id) = conversation {
        asked["conversation_id"] = json!(id);
    }
    let answered = request.json(&asked).send().await.unwrap();
    assert_eq!(answered.status(), 200);
    body(answered).await
}

fn numbers(run: &Value) -> [u64; 4] {
    ["messages", "events", "calls", "usage"].map(|kind| run[kind].as_u64().unwrap())
}

/// A house whose rows are three days old, opened again today; the first answer and its messages.
async fn after_three_days() -> (House, Value, Value) {
    let past = House::open_in(WINDOWS, &[THEN]).await;
    past.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]), Reply::text("Then.")]);
    let answer = ask(&past, "Quittengelee", None, "k").await;
    let path = format!("/api/conversations/{}/messages", answer["conversation_id"].as_str().unwrap());
    let messages = body(past.as_user(3, Method::GET, &path).send().await.unwrap()).await["messages"].clone();
    let invoked = past.as_user(3, Method::POST, "/api/tools/test_echo/invoke").json(&json!({"input": {"value": 2}})).send().await.unwrap();
    assert_eq!(invoked.status(), 200);
    let folder = tempfile::tempdir().unwrap();
    let copy = json!({"path": folder.path().join("werkruf.db")});
    assert_eq!(past.operator(Method::POST, "/api/admin/backup").json(&copy).send().await.unwrap().status(), 200);
    (House::move_in(WINDOWS, &[], folder).await, answer, messages)
}

#[tokio::test]
async fn old_rows_are_counted_then_deleted_and_readers_are_told() {
    let (house, old, messages) = after_three_days().await;
    let conversation = old["conversation_id"].as_str().unwrap();
    ask(&house, "and today?", Some(conversation), "k2").await;

    let key = house.key(None, &["admin"]).await;
    let tenant = house.with_key(&key, Method::POST, "/api/admin/retention").json(&json!({})).send().await.unwrap();
    assert_eq!(refusal(tenant).await, (403, "forbidden".to_owned()), "it is about every tenant");
    let counted = run(&house, json!({"dry_run": true})).await;
    assert_eq!((numbers(&counted)[0], numbers(&counted)[2], numbers(&counted)[3]), (4, 2, 2), "{counted}");
    assert_eq!((&counted["dry_run"], &counted["conversations"]), (&json!(true), &Value::Null));
    assert_eq!(run(&house, json!({"dry_run": true})).await["calls"], 2, "counting changes nothing");
    let done = run(&house, json!({})).await;
    assert_eq!((numbers(&done), &done["conversations"]), (numbers(&counted), &json!(0)));
    for kind in ["messages", "events", "calls", "usage"] {
        assert!(done[format!("{kind}_before")].is_string(), "{done}");
    }
    assert_eq!(numbers(&run(&house, json!({})).await), [0; 4]);

    let get = async |path: String| house.as_user(3, Method::GET, &path).send().await.unwrap();
    let page = async |query: &str| get(format!("/api/conversations/{conversation}/messages{query}")).await;
    let left = body(page("").await).await["messages"].clone();
    let places: Vec<_> = left.as_array().unwrap().iter().map(|message| (message["seq"].clone(), message["role"].clone())).collect();
    assert_eq!(places, [(json!(5), json!("user")), (json!(6), json!("assistant"))]);
    let gone = page(&format!("?after={}", messages[1]["id"].as_str().unwrap())).await;
    assert_eq!(gone.status(), 410);
    let error = body(gone).await["error"].clone();
    assert_eq!((&error["code"], &error["details"]), (&json!("messages_gone"), &json!({"first_seq": 5})));
    let (first, last) = (left[0]["id"].as_str().unwrap(), left[1]["id"].as_str().unwrap());
    assert_eq!(body(page(&format!("?after={last}")).await).await["messages"], json!([]), "the end is no fault");
    assert_eq!(body(page(&format!("?order=desc&after={first}")).await).await["messages"], json!([]), "nor is the beginning");
    assert_eq!(get(format!("/api/conversations/{conversation}/events?after=0")).await.status(), 410);
    let job = old["tool_results"][0]["job_id"].as_str().unwrap();
    let turn = old["turn_id"].as_str().unwrap();
    for path in [format!("/api/tool-calls/{job}"), format!("/api/tool-calls/{job}/explain"), format!("/api/turns/{turn}")] {
        assert_eq!(refusal(get(path.clone()).await).await, (404, "not_found".to_owned()), "{path}");
    }
    let title = body(get(format!("/api/conversations/{conversation}")).await).await["title"].clone();
    assert_eq!(title, "and today?");

    // The conversation goes on, and what is left is a history a model takes.
    ask(&house, "once more", Some(conversation), "k3").await;
    let sent = house.model.requests().last().unwrap().body.to_string();
    assert!(!sent.contains("Quittengelee") && sent.contains("and today?"), "{sent}");
    // A day after the first its key is free, also where the turn is still there; today's is not.
    let again = ask(&house, "and today?", Some(conversation), "k2").await;
    assert_eq!(again["message"]["content"], left[1]["content"]);
    assert_ne!(ask(&house, "Quittengelee", None, "k").await["turn_id"], old["turn_id"]);
}

#[tokio::test]
async fn without_a_window_nothing_goes() {
    let house = House::open().await;
    house.conversation(3).await;
    let done = run(&house, json!({})).await;
    assert_eq!(numbers(&done), [0; 4]);
    assert!(["messages", "events", "calls", "usage"].iter().all(|kind| done[format!("{kind}_before")].is_null()), "{done}");
}
