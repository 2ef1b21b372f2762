//! Backup, restore and erasure: a restored conversation can be continued, and a running turn prevents an erasure until it is
//! canceled.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use tower::ServiceExt;
use werkruf::api;
use werkruf::app::App;
use werkruf::config::{Config, Flags};
use werkruf_bench::fake_model::{Reply, call};
use werkruf_contract::Clock;
use werkruf_store::SqliteStore;

use crate::support::{ADMIN, TestServer, body, refusal};

#[tokio::test]
async fn a_conversation_continues_after_a_restore() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::calls(vec![call("test_sleep", json!({"ms": 25_000})).with_id("call_s")]), Reply::text("Back.")]);
    let mut stream = server.stream(3, json!({"message": "sleep"})).await;
    let started = stream.until("tool_started").await;
    let conversation = started[0].data["conversation_id"].as_str().unwrap().to_owned();
    let (copy, fresh) = (server.folder.path().join("copy.db"), server.folder.path().join("fresh.db"));
    let made = server.operator(Method::POST, "/api/admin/backup").json(&json!({"path": copy})).send().await.unwrap();
    assert_eq!(made.status(), 200);
    let key = server.key(None, &["admin"]).await;
    let tenant = server.with_key(&key, Method::POST, "/api/admin/backup").json(&json!({"path": copy})).send().await.unwrap();
    assert_eq!(refusal(tenant).await, (403, "forbidden".to_owned()), "a backup contains every tenant");

    let held = SqliteStore::restore(&copy, &fresh, false, &Clock::system(0)).unwrap().held;
    assert_eq!((held.turns, held.calls), (1, 1));
    let flags = Flags { database: Some(format!("sqlite:{}", fresh.display())), ..server.app.config.flags.clone() };
    let app = App::open(Config::load(&flags, &server.app.config.environment).unwrap()).await.unwrap();
    assert_eq!(app.runtime.recover().await.unwrap(), 0, "nothing resumes automatically");
    let request = http::Request::post("/api/chat")
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("x-user-id", "3")
        .header("accept", "application/json")
        .body(axum::body::Body::from(json!({"message": "and now?", "conversation_id": conversation}).to_string()))
        .unwrap();
    let answer = api::router(Arc::clone(&app)).oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 200, "the model accepted the history");

    let erase = async |cancel: bool| {
        server.operator(Method::POST, "/api/people/users/3/erase").json(&json!({"cancel": cancel})).send().await.unwrap()
    };
    assert_eq!(refusal(erase(false).await).await, (409, "turn_running".to_owned()));
    let erased = erase(true).await;
    assert_eq!(erased.status(), 200);
    assert_eq!(body(erased).await["conversations"], 1);
}
