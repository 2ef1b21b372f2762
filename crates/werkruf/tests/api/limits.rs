//! How often a caller may come: requests, turns and failed logins.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};
use werkruf_contract::Clock;

use crate::support::{ADMIN, TestServer, body, refusal};

async fn limited(variables: &[(&str, &str)]) -> TestServer {
    TestServer::open_in("", variables).await
}

/// Asserts a refusal with this code that says when to come again.
async fn refused(response: Response, code: &str) {
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(response.status(), 429);
    assert_eq!(body(response).await["error"]["code"], code);
}

#[tokio::test]
async fn requests_of_a_person_are_limited_on_every_route() {
    let server = limited(&[("WERKRUF_LIMIT_REQUESTS_PER_MINUTE_USER", "1")]).await;
    let keys = [server.key(Some(3), &["read", "chat"]).await, server.key(Some(3), &["tools"]).await];
    assert_eq!(server.with_key(&keys[0], Method::GET, "/api/conversations").send().await.unwrap().status(), 200);
    for (key, method, path) in [
        (&keys[0], Method::GET, "/api/conversations"),
        (&keys[1], Method::GET, "/api/tools"),
        (&keys[0], Method::POST, "/api/knowledge/search"),
        (&keys[0], Method::GET, "/v1/models"),
        (&keys[1], Method::POST, "/api/tools/test_echo/invoke"),
        (&keys[0], Method::GET, "/api/nothing"),
    ] {
        refused(server.with_key(key, method, path).send().await.unwrap(), "rate_limited").await;
    }
    let other = server.key(Some(4), &["read"]).await;
    assert_eq!(server.with_key(&other, Method::GET, "/api/conversations").send().await.unwrap().status(), 200, "another person");
    for _ in 0..5 {
        let operator = server.as_user(3, Method::GET, "/api/conversations").send().await.unwrap();
        assert_eq!(operator.status(), 200, "the operator is not limited, whoever they act for");
    }
}

#[tokio::test]
async fn requests_of_a_key_are_limited_over_all_its_people() {
    let server = limited(&[("WERKRUF_LIMIT_REQUESTS_PER_MINUTE_KEY", "1")]).await;
    let backend = server.key(None, &["read", "act_as"]).await;
    let list = async |user: i64| {
        let request = server.with_key(&backend, Method::GET, "/api/conversations").header("x-user-id", user);
        request.send().await.unwrap()
    };
    assert_eq!(list(3).await.status(), 200);
    refused(list(4).await, "rate_limited").await;
}

/// Sends a completion with a key.
async fn complete(server: &TestServer, key: &str, messages: Value) -> Response {
    let tool = json!({"type": "function", "function": {"name": "mine", "parameters": {"type": "object", "properties": {}}}});
    let request = json!({"model": "default", "messages": messages, "tools": [tool]});
    server.with_key(key, Method::POST, "/v1/chat/completions").json(&request).send().await.unwrap()
}

#[tokio::test]
async fn people_count_on_chat_and_keys_on_v1_and_a_continuation_is_no_new_turn() {
    let variables = [("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "1"), ("WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY", "2")];
    let server = limited(&variables).await;
    let key = server.key(Some(3), &["chat", "tools"]).await;
    let hello = json!({"role": "user", "content": "hello"});
    let asked = || Reply::calls(vec![call("mine", json!({})).with_id("a")]);
    server.model.script(vec![asked(), Reply::text("Done."), Reply::text("Again.")]);
    let first = complete(&server, &key, json!([hello])).await;
    assert_eq!(first.status(), 200);
    let reply = body(first).await["choices"][0]["message"].clone();
    // The second turn of the key, and the person's limit of one does not count here.
    let result = json!({"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "42"});
    assert_eq!(complete(&server, &key, json!([hello, reply, result])).await.status(), 200, "a continuation");
    assert_eq!(complete(&server, &key, json!([hello])).await.status(), 200, "the second turn");
    refused(complete(&server, &key, json!([hello])).await, "too_many_turns").await;

    let chat = async |key: &str| {
        let request = server.with_key(key, Method::POST, "/api/chat").header("accept", "application/json");
        request.json(&json!({"message": "hello"})).send().await.unwrap()
    };
    let other = server.key(Some(3), &["chat", "tools"]).await;
    assert_eq!(chat(&other).await.status(), 200);
    let third = server.key(Some(3), &["chat"]).await;
    refused(chat(&third).await, "too_many_turns").await;
    let invoked = server.with_key(&other, Method::POST, "/api/tools/test_echo/invoke").json(&json!({"input": {"value": 1}}));
    assert_eq!(invoked.send().await.unwrap().status(), 200, "a direct call is no turn of the person");
}

#[tokio::test]
async fn results_that_nobody_awaits_do_not_avoid_the_limit() {
    let server = limited(&[("WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY", "1")]).await;
    let key = server.key(Some(3), &["chat"]).await;
    let first = complete(&server, &key, json!([{"role": "user", "content": "hello"}])).await;
    let conversation = first.headers()["x-conversation-id"].to_str().unwrap().to_owned();
    let forged = json!({"messages": [{"role": "tool", "tool_call_id": "forged", "content": "42"}]});
    let request = server.with_key(&key, Method::POST, "/v1/chat/completions").header("x-conversation-id", conversation);
    refused(request.json(&forged).send().await.unwrap(), "too_many_turns").await;
}

#[tokio::test]
async fn a_step_back_of_the_wall_clock_locks_nobody_out() {
    let seconds = Arc::new(AtomicI64::new(Clock::system(0).now().as_second()));
    let read = Arc::clone(&seconds);
    let clock = Clock::driven(move || Timestamp::from_second(read.load(Ordering::SeqCst)).unwrap(), 7);
    let variables = [
        ("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "2"),
        ("WERKRUF_LIMIT_REQUESTS_PER_MINUTE_USER", "20"),
        ("WERKRUF_LIMIT_REQUESTS_PER_MINUTE_KEY", "20"),
    ];
    let server = TestServer::open_at("[workspace]\n", &variables, tempfile::tempdir().unwrap(), Some(clock)).await;
    let key = server.key(Some(3), &["chat"]).await;
    let chat = async || {
        let request = server.with_key(&key, Method::POST, "/api/chat").header("accept", "application/json");
        request.json(&json!({"message": "hello"})).send().await.unwrap().status()
    };
    assert_eq!(chat().await, 200);
    seconds.fetch_sub(SignedDuration::from_hours(1).as_secs(), Ordering::SeqCst);
    assert_eq!(chat().await, 200);
}

#[tokio::test]
async fn failed_logins_of_an_address_make_it_wait_but_not_its_neighbours_with_a_good_key() {
    let server = TestServer::open_in("trusted_proxies = ['127.0.0.1']", &[]).await;
    let good = server.key(Some(3), &["read"]).await;
    let late = server.key(Some(4), &["read"]).await;
    let from = async |address: &str, key: &str| {
        let request = server.with_key(key, Method::GET, "/api/conversations").header("x-forwarded-for", address);
        request.send().await.unwrap()
    };
    assert_eq!(from("192.0.2.1", &good).await.status(), 200);
    let mut wrong = 0;
    let waiting = loop {
        let response = from("192.0.2.1", &format!("wk_wrong{wrong}")).await;
        if response.status() != 401 {
            break response;
        }
        wrong += 1;
        assert!(wrong < 1000, "never refused");
    };
    assert!(wrong >= 20, "{wrong}");
    refused(waiting, "rate_limited").await;
    assert_eq!(from("192.0.2.1", &good).await.status(), 200, "a key that was accepted lately");
    assert_eq!(from("192.0.2.2", &late).await.status(), 200, "another address");
    let bare = server.bare(Method::GET, "/api/conversations").header("x-forwarded-for", "192.0.2.3");
    assert_eq!(refusal(bare.send().await.unwrap()).await.0, 401);
}

#[tokio::test]
async fn every_header_for_keys_is_read_like_a_bearer() {
    let server = TestServer::open().await;
    for name in ["apikey", "api-key", "x-api-key"] {
        let request = server.bare(Method::GET, "/api/tools").header(name, ADMIN);
        assert_eq!(request.send().await.unwrap().status(), 200, "{name}");
    }
}
