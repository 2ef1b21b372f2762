//! `GET /api/stream`: hints about what has moved, for those who may see it; and the timeline of a turn.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{Event, Stream, TestServer, body};

/// A tool that a `lead` approves. Bernd (2) is one; Clara (3) is not.
const PAY: &str = "
[[tools]]
name = 'pay'
description = 'Pays.'
kind = 'http'
url = 'http://127.0.0.1:9/pay'
effect = 'once'
permission = 'none'
approval = 'lead'
parameters = '{\"type\": \"object\", \"properties\": {}}'
";

async fn open(server: &TestServer, key: &str) -> Stream {
    Stream::new(server.with_key(key, Method::GET, "/api/stream").send().await.unwrap())
}

/// The hints up to the first one like this.
async fn until(stream: &mut Stream, kind: &str, id: &Value, status: &str) -> Vec<Value> {
    let wanted = json!({"kind": kind, "id": id, "status": status});
    let mut seen = Vec::new();
    let work = async {
        while let Some(Event { id, name, data }) = stream.next().await {
            assert_eq!((id, name.as_str()), (None, "message"), "{data}");
            let found = data == wanted;
            seen.push(data);
            if found {
                return;
            }
        }
        panic!("the stream ended");
    };
    let found = tokio::time::timeout(Duration::from_secs(60), work).await;
    assert!(found.is_ok(), "no {wanted} in {seen:#?}");
    seen
}

fn ids_of(hints: &[Value], kind: &str) -> Vec<String> {
    hints.iter().filter(|hint| hint["kind"] == kind).map(|hint| hint["id"].as_str().unwrap().to_owned()).collect()
}

async fn echo(server: &TestServer, user: i64) -> Value {
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": "x"}))]), Reply::text("done")]);
    let answer = server.chat(user, json!({"message": "hello"})).await;
    assert_eq!(answer.status(), 200);
    body(answer).await
}

#[tokio::test]
async fn a_page_is_told_what_its_credential_may_see() {
    let server = TestServer::open().await;
    let (clara, admin) = (server.key(Some(3), &["read"]).await, server.key(None, &["admin"]).await);
    let (mut own, mut all) = (open(&server, &clara).await, open(&server, &admin).await);
    let foreign = echo(&server, 1).await;
    let turn = echo(&server, 3).await;
    let job = &turn["tool_results"][0]["job_id"];
    let hints = until(&mut own, "turn", &turn["turn_id"], "completed").await;
    assert!(ids_of(&hints, "turn").iter().all(|id| turn["turn_id"] == json!(id)), "{hints:#?}");
    let seen = until(&mut all, "turn", &turn["turn_id"], "completed").await;
    assert!(seen.contains(&json!({"kind": "turn", "id": foreign["turn_id"], "status": "completed"})), "{seen:#?}");
    // The order of kinds inside one batch is not fixed, so a later turn ends the look.
    let last = echo(&server, 3).await;
    let mut hints = hints;
    hints.extend(until(&mut own, "turn", &last["turn_id"], "completed").await);
    assert!(hints.contains(&json!({"kind": "call", "id": job, "status": "succeeded"})), "{hints:#?}");
    let foreign_job = foreign["tool_results"][0]["job_id"].as_str().unwrap().to_owned();
    assert!(!ids_of(&hints, "call").contains(&foreign_job), "{hints:#?}");
    let nobody = server.key(None, &["read"]).await;
    assert_eq!(server.with_key(&nobody, Method::GET, "/api/stream").send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn an_approval_is_told_to_those_who_decide_it() {
    let server = TestServer::open_with(PAY).await;
    let (bernd, clara) = (server.key(Some(2), &["read", "approve"]).await, server.key(Some(3), &["read", "chat"]).await);
    let (mut lead, mut asker) = (open(&server, &bernd).await, open(&server, &clara).await);
    server.model.script(vec![Reply::calls(vec![call("pay", json!({}))])]);
    let answer = body(server.chat(3, json!({"message": "Pay."})).await).await;
    let seen = until(&mut lead, "approval", &answer["approval_id"], "pending").await;
    assert_eq!((ids_of(&seen, "turn"), ids_of(&seen, "call")), (vec![], vec![]), "the turn is not Bernd's");
    let path = format!("/api/approvals/{}", answer["approval_id"].as_str().unwrap());
    let denied = server.with_key(&bernd, Method::POST, &path).json(&json!({"decision": "deny"})).send().await.unwrap();
    assert_eq!(denied.status(), 200);
    until(&mut lead, "approval", &answer["approval_id"], "denied").await;
    let seen = until(&mut asker, "turn", &answer["turn_id"], "awaiting_approval").await;
    assert_eq!(ids_of(&seen, "approval"), Vec::<String>::new(), "the asker may not read the approval");
}

#[tokio::test]
async fn a_turn_has_a_timeline() {
    let server = TestServer::open().await;
    let turn = echo(&server, 3).await;
    let path = format!("/api/turns/{}/timeline", turn["turn_id"].as_str().unwrap());
    let timeline = body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await;
    let shown = body(server.as_user(3, Method::GET, path.strip_suffix("/timeline").unwrap()).send().await.unwrap()).await;
    assert_eq!((&timeline["turn"], &timeline["takeovers"]), (&shown, &json!(0)));
    let spans: Vec<Value> = timeline["spans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| {
            assert!(span["started_at"].is_string() && span["took_ms"].is_u64(), "{span}");
            json!([span["kind"], span["name"], span["status"], span["step"], span.get("job_id"), span["usage"]["model_calls"]])
        })
        .collect();
    let job = &turn["tool_results"][0]["job_id"];
    assert_eq!(
        spans,
        [
            json!(["model", "fake-1", "succeeded", 1, null, 1]),
            json!(["tool", "test_echo", "succeeded", 1, job, null]),
            json!(["model", "fake-1", "succeeded", 2, null, 1]),
        ]
    );
    let foreign = server.key(Some(1), &["read"]).await;
    assert_eq!(server.with_key(&foreign, Method::GET, &path).send().await.unwrap().status(), 404);
}
