//! Backup, restore and erasure: a restored conversation can be continued, and a running turn prevents an erasure until it is
//! canceled.

use std::sync::Arc;

use axum::body::Body;
use reqwest::Method;
use serde_json::{Value, json};
use tower::ServiceExt;
use werkruf::api;
use werkruf::app::App;
use werkruf::config::{Config, Flags};
use werkruf_bench::fake_model::{Reply, call};
use werkruf_contract::Clock;
use werkruf_runtime::RecoveryCloser;
use werkruf_store::{SecretKeys, SqliteStore};

use crate::support::{ADMIN, TestServer, body, refusal};

/// A tool that is never sent twice, and waits for an approval.
const PAY: &str = "[[tools]]\nname = 'pay'\ndescription = 'Pays.'\nkind = 'http'\nurl = 'http://127.0.0.1:9/pay'\neffect = 'once'\npermission = 'none'\n\
    approval = 'lead'\nparameters = '''{\"type\": \"object\", \"properties\": {}}'''\n";

#[tokio::test]
async fn a_conversation_continues_after_a_restore() {
    let server = TestServer::open_with(PAY).await;
    let calls = vec![call("test_sleep", json!({"ms": 25_000})).with_id("call_s"), call("pay", json!({})).with_id("call_p")];
    server.model.script(vec![Reply::calls(calls), Reply::text("Back.")]);
    let mut stream = server.stream(3, json!({"message": "sleep"})).await;
    let started = stream.until("tool_started").await;
    let conversation = started[0].data["conversation_id"].as_str().unwrap().to_owned();
    let (copy, fresh) = (server.folder.path().join("copy.db"), server.folder.path().join("fresh.db"));
    let made = server.operator(Method::POST, "/api/admin/backup").json(&json!({"path": copy})).send().await.unwrap();
    assert_eq!(made.status(), 200);
    let key = server.key(None, &["admin"]).await;
    let tenant = server.with_key(&key, Method::POST, "/api/admin/backup").json(&json!({"path": copy})).send().await.unwrap();
    assert_eq!(refusal(tenant).await, (403, "forbidden".to_owned()), "a backup contains every tenant");

    let clock = Clock::system(0);
    let held = SqliteStore::restore(
        &copy,
        &fresh,
        false,
        &RecoveryCloser::new(clock.clone()),
        &clock,
        werkruf::modules::MODULES,
        &SecretKeys::default(),
    )
    .unwrap()
    .held;
    assert_eq!((held.turns, held.calls), (1, 2));
    let flags = Flags { database: Some(format!("sqlite:{}", fresh.display())), ..server.app.config.flags.clone() };
    let app = App::open(Config::load(&flags, &server.app.config.environment).unwrap()).await.unwrap();
    assert_eq!(app.runtime.recover().await.unwrap(), 0, "nothing resumes automatically");
    let send = async |method: Method, path: &str, body: String| {
        let request = http::Request::builder().method(method).uri(path).header("authorization", format!("Bearer {ADMIN}"));
        let request = request.header("x-user-id", "3").header("accept", "application/json").body(Body::from(body)).unwrap();
        let answer = api::router(Arc::clone(&app)).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let listed = send(Method::GET, &format!("/api/tool-calls?conversation_id={conversation}"), String::new()).await;
    let calls = listed["tool_calls"].as_array().unwrap().iter();
    let mut codes: Vec<_> = calls.map(|call| ["tool_name", "status", "error_code"].map(|field| call[field].as_str().unwrap())).collect();
    codes.sort_unstable();
    assert_eq!(codes, [["pay", "failed", "outcome_unknown"], ["test_sleep", "failed", "restored"]]);
    let turn_id = started[0].data["turn_id"].as_str().unwrap();
    let turn = send(Method::GET, &format!("/api/turns/{turn_id}"), String::new()).await;
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &json!("restored")));
    // The model accepts the history.
    send(Method::POST, "/api/chat", json!({"message": "and now?", "conversation_id": conversation}).to_string()).await;

    let erase = async |cancel: bool| {
        server.operator(Method::POST, "/api/people/users/3/erase").json(&json!({"cancel": cancel})).send().await.unwrap()
    };
    assert_eq!(refusal(erase(false).await).await, (409, "turn_running".to_owned()));
    let erased = erase(true).await;
    assert_eq!(erased.status(), 200);
    assert_eq!(body(erased).await["conversations"], 1);
}
