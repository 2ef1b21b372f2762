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
async fn requests_of_a_person_are_limited_on_every_route_but_v1() {
    let server = limited(&[("WERKRUF_LIMIT_REQUESTS_PER_MINUTE_USER", "1")]).await;
    let keys = [server.key(Some(3), &["read", "chat"]).await, server.key(Some(3), &["tools"]).await];
    assert_eq!(server.with_key(&keys[0], Method::GET, "/api/conversations").send().await.unwrap().status(), 200);
    for (key, method, path) in [
        (&keys[0], Method::GET, "/api/conversations"),
        (&keys[1], Method::GET, "/api/tools"),
        (&keys[0], Method::POST, "/api/knowledge/search"),
        (&keys[1], Method::POST, "/api/tools/test_echo/invoke"),
        (&keys[0], Method::GET, "/api/nothing"),
    ] {
        refused(server.with_key(key, method, path).send().await.unwrap(), "rate_limited").await;
    }
    for _ in 0..5 {
        let program = server.with_key(&keys[0], Method::GET, "/v1/models").send().await.unwrap();
        assert_eq!(program.status(), 200, "under /v1 the key counts, not its user");
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

#[tokio::test]
async fn requests_with_wrong_headers_count_too() {
    let variables = [("WERKRUF_LIMIT_REQUESTS_PER_MINUTE_KEY", "1")];
    let server = TestServer::open_in("[auth]\nunknown_users = 'guest'", &variables).await;
    let wrong = async |key: &str, name: &'static str, value: &'static str| {
        server.with_key(key, Method::GET, "/api/conversations").header(name, value).send().await.unwrap()
    };
    for (name, value, code) in [("x-tenant-id", "nowhere", "unknown_tenant"), ("x-user-id", "4", "forbidden")] {
        let key = server.key(Some(3), &["read"]).await;
        assert_eq!(refusal(wrong(&key, name, value).await).await.1, code);
        refused(wrong(&key, name, value).await, "rate_limited").await;
    }
    // A key over its limit makes no guests.
    let backend = server.key(None, &["read", "act_as"]).await;
    assert_eq!(wrong(&backend, "x-user-id", "ext:first").await.status(), 200);
    refused(wrong(&backend, "x-user-id", "ext:second").await, "rate_limited").await;
    let people = &server.app.identity_store;
    let tenant = werkruf::sample::DEMO_ID;
    assert!(people.user_by_external_id(tenant, "first".to_owned()).await.unwrap().is_some());
    assert!(people.user_by_external_id(tenant, "second".to_owned()).await.unwrap().is_none());
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
async fn results_that_come_several_times_at_once_continue_one_turn() {
    let server = limited(&[("WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY", "1")]).await;
    let key = server.key(Some(3), &["chat", "tools"]).await;
    server.model.script(vec![Reply::calls(vec![call("mine", json!({})).with_id("a")]), Reply::text("Done.")]);
    let first = complete(&server, &key, json!([{"role": "user", "content": "hello"}])).await;
    let conversation = first.headers()["x-conversation-id"].to_str().unwrap().to_owned();
    let id = body(first).await["choices"][0]["message"]["tool_calls"][0]["id"].clone();
    let result = json!({"messages": [{"role": "tool", "tool_call_id": id, "content": "42"}]});
    let send = || async {
        let request = server.with_key(&key, Method::POST, "/v1/chat/completions").header("x-conversation-id", &conversation);
        request.json(&result).send().await.unwrap().status().as_u16()
    };
    let mut statuses = futures_util::future::join_all((0..6).map(|_| send())).await;
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200, "{statuses:?}");
    assert!(statuses[1..].iter().all(|status| [409, 429].contains(status)), "{statuses:?}");
}

#[tokio::test]
async fn a_repeated_request_is_neither_counted_nor_refused() {
    let server = limited(&[("WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY", "1")]).await;
    for path in ["/api/chat", "/v1/chat/completions", "/v1/responses", "/api/tools/test_echo/invoke"] {
        let key = server.key(Some(3), &["chat", "tools"]).await;
        let request = json!({"message": "hello", "messages": [{"role": "user", "content": "hello"}], "input": "hello"});
        let request = if path.ends_with("invoke") { json!({"input": {"value": 1}}) } else { request };
        let send = async |name: &str| {
            let request = server.with_key(&key, Method::POST, path).header("accept", "application/json").json(&request);
            request.header("idempotency-key", format!("{path} {name}")).send().await.unwrap()
        };
        assert_eq!(send("one").await.status(), 200, "{path}");
        for _ in 0..2 {
            let again = send("one").await;
            assert_eq!((again.status().as_u16(), &again.headers()["idempotent-replayed"]), (200, &"true".parse().unwrap()), "{path}");
        }
        refused(send("two").await, "too_many_turns").await;
    }
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
    for (key, who) in [(good.as_str(), "a key that was used before"), (&late, "a new one"), (ADMIN, "the operator")] {
        let response = from("192.0.2.1", key).await;
        assert_ne!(response.status(), 429, "{who} behind the same address");
        assert_ne!(response.status(), 401, "{who}");
    }
    assert_eq!(from("192.0.2.2", "wk_wrong").await.status(), 401, "another address");
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
