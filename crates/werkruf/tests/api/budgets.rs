//! Budgets over HTTP: what counts, who is refused, and that a refusal stores nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join_all;
use jiff::Timestamp;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};
use werkruf_contract::Clock;

use crate::graph::{Graph, NUMBER, deliver, number, put_users, rows, text};
use crate::support::{TestServer, body, refusal};

/// Makes a budget of the tenant demo; returns its id.
async fn budget(server: &TestServer, fields: Value) -> String {
    let made = server.operator(Method::POST, "/api/budgets").json(&fields).send().await.unwrap();
    assert_eq!(made.status(), 201, "{fields}");
    body(made).await["id"].as_str().unwrap().to_owned()
}

fn calls_of(scope: &str, subject: impl serde::Serialize, limit: i64) -> Value {
    json!({"scope": scope, "subject": json!(subject), "period": "day", "unit": "model_calls", "limit": limit})
}

async fn budgets(server: &TestServer) -> Vec<Value> {
    let list = body(server.operator(Method::GET, "/api/budgets").send().await.unwrap()).await;
    assert_eq!(list["next_after"], Value::Null);
    list["budgets"].as_array().unwrap().clone()
}

/// What the only budget has used and reserved.
async fn counted(server: &TestServer) -> (i64, i64) {
    let [only] = &budgets(server).await[..] else { panic!("one budget") };
    (only["used"].as_i64().unwrap(), only["reserved"].as_i64().unwrap())
}

async fn hello(server: &TestServer, user: i64) -> Response {
    server.chat(user, json!({"message": "hello"})).await
}

/// Status and code of a chat.
async fn said(server: &TestServer, user: i64) -> (u16, String) {
    let answer = hello(server, user).await;
    if answer.status() == 200 { (200, String::new()) } else { refusal(answer).await }
}

fn exceeded() -> (u16, String) {
    (429, "budget_exceeded".to_owned())
}

fn fine() -> (u16, String) {
    (200, String::new())
}

/// The rows that a refused message must not leave.
async fn stored(server: &TestServer) -> (usize, u64) {
    let list = body(server.operator(Method::GET, "/api/conversations?limit=1000").send().await.unwrap()).await;
    let usage = body(server.operator(Method::GET, "/api/usage").send().await.unwrap()).await;
    (list["conversations"].as_array().unwrap().len(), usage["total"]["calls"].as_u64().unwrap())
}

#[tokio::test]
async fn a_budget_is_made_shown_and_deleted() {
    let server = TestServer::open().await;
    let made = server.operator(Method::POST, "/api/budgets").json(&calls_of("user", json!(3), 2)).send().await.unwrap();
    assert_eq!(made.status(), 201);
    let made = body(made).await;
    let id = made["id"].as_str().unwrap().to_owned();
    let (resets_at, created_at) = (made["resets_at"].clone(), made["created_at"].clone());
    assert!(resets_at.as_str().unwrap().ends_with("T00:00:00.000Z"), "{made}");
    let mut shown = json!({"id": id, "tenant_id": "00000000-0000-7000-8000-000000000001", "scope": "user", "subject": "3", "period": "day",
        "unit": "model_calls", "limit": 2, "used": 0, "reserved": 0, "resets_at": resets_at, "configured": false, "created_at": created_at});
    assert_eq!(made, shown);
    assert_eq!(said(&server, 3).await, fine());
    shown["used"] = 1.into();
    assert_eq!(budgets(&server).await, [shown]);
    let again = server.operator(Method::POST, "/api/budgets").json(&calls_of("user", json!("3"), 9)).send().await.unwrap();
    assert_eq!(refusal(again).await, (409, "budget_exists".to_owned()));
    for wrong in [
        json!({"scope": "team", "period": "day", "unit": "tokens", "limit": 1}),
        json!({"scope": "user", "period": "week", "unit": "tokens", "limit": 1}),
        json!({"scope": "user", "period": "day", "unit": "usd", "limit": 1}),
        json!({"scope": "user", "period": "day", "unit": "tokens", "limit": -1}),
        json!({"scope": "tenant", "subject": "x", "period": "day", "unit": "tokens", "limit": 1}),
        json!({"scope": "key", "subject": "x", "period": "day", "unit": "tokens", "limit": 1}),
    ] {
        let refused = server.operator(Method::POST, "/api/budgets").json(&wrong).send().await.unwrap();
        assert_eq!(refusal(refused).await, (400, "invalid_request".to_owned()), "{wrong}");
    }
    let key = server.key(Some(3), &["chat", "read"]).await;
    for (method, path) in [(Method::GET, "/api/budgets".to_owned()), (Method::DELETE, format!("/api/budgets/{id}"))] {
        assert_eq!(refusal(server.with_key(&key, method, &path).send().await.unwrap()).await, (403, "forbidden".to_owned()));
    }
    let delete = async || server.operator(Method::DELETE, &format!("/api/budgets/{id}")).send().await.unwrap();
    assert_eq!(delete().await.status(), 204);
    assert_eq!(refusal(delete().await).await, (404, "not_found".to_owned()));
    assert_eq!(budgets(&server).await, [Value::Null; 0]);
    let audit = body(server.operator(Method::GET, "/api/audit").send().await.unwrap()).await;
    let acts: Vec<&str> = audit["audit"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|act| act["subject"] == id.as_str())
        .map(|act| act["action"].as_str().unwrap())
        .collect();
    assert_eq!(acts, ["budget.create", "budget.delete"]);
}

#[tokio::test]
async fn a_refusal_says_when_the_budget_resets_and_stores_nothing() {
    let server = TestServer::open_in("", &[("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "3")]).await;
    let id = budget(&server, calls_of("tenant", Value::Null, 1)).await;
    assert_eq!(said(&server, 3).await, fine());
    let before = stored(&server).await;
    for _ in 0..5 {
        let answer = hello(&server, 3).await;
        let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=86_400).contains(&seconds), "{seconds}");
        assert_eq!((answer.status().as_u16(), &answer.headers()["x-should-retry"]), (429, &"false".parse().unwrap()));
        let error = body(answer).await["error"].take();
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("RATE_LIMIT"), &json!("budget_exceeded")),
            "not too_many_turns: no refusal counts"
        );
        let resets_at = budgets(&server).await[0]["resets_at"].clone();
        assert_eq!(
            error["details"],
            json!({"budget_id": id, "scope": "tenant", "period": "day", "unit": "model_calls", "limit": 1, "used": 1, "resets_at": resets_at})
        );
    }
    let keyed = server.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").header("idempotency-key", "k");
    assert_eq!(refusal(keyed.json(&json!({"message": "hello"})).send().await.unwrap()).await, exceeded());
    let background = server.chat(3, json!({"message": "hello", "background": true})).await;
    assert_eq!(refusal(background).await, exceeded());
    let alias = server.as_user(3, Method::POST, "/functions/v1/chat-rag").json(&json!({"message": "hello"})).send().await.unwrap();
    assert_eq!(refusal(alias).await, exceeded());
    assert_eq!((stored(&server).await, server.model.requests().len()), (before, 1));
    assert_eq!(counted(&server).await, (1, 0));
    let inbox = server.operator(Method::DELETE, &format!("/api/budgets/{id}")).send().await.unwrap();
    assert_eq!(inbox.status(), 204);
    let keyed = server.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").header("idempotency-key", "k");
    assert_eq!(keyed.json(&json!({"message": "hello"})).send().await.unwrap().status(), 200, "freed at once, and the key was not used up");
}

#[tokio::test]
async fn openai_clients_get_their_own_shape() {
    let server = TestServer::open().await;
    budget(&server, calls_of("tenant", Value::Null, 0)).await;
    let key = server.key(Some(3), &["chat"]).await;
    for (path, request) in [
        ("/v1/chat/completions", json!({"model": "default", "messages": [{"role": "user", "content": "hello"}]})),
        ("/v1/chat/completions", json!({"model": "default", "stream": true, "messages": [{"role": "user", "content": "hello"}]})),
        ("/v1/responses", json!({"model": "default", "input": "hello"})),
        ("/v1/responses", json!({"model": "default", "input": "hello", "background": true})),
    ] {
        let answer = server.with_key(&key, Method::POST, path).json(&request).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.headers()["x-should-retry"]), (429, &"false".parse().unwrap()), "{path}");
        assert!(answer.headers().contains_key("retry-after"));
        let error = body(answer).await["error"].take();
        assert_eq!(
            (&error["type"], &error["code"], &error["param"]),
            (&json!("rate_limit_error"), &json!("budget_exceeded"), &Value::Null)
        );
    }
    assert_eq!((stored(&server).await, server.model.requests().len()), ((0, 0), 0));
}

#[tokio::test]
async fn each_scope_counts_its_own_requests() {
    let server = TestServer::open().await;
    budget(&server, calls_of("user", Value::Null, 1)).await;
    assert_eq!((said(&server, 3).await, said(&server, 3).await), (fine(), exceeded()));
    assert_eq!((said(&server, 4).await, said(&server, 4).await), (fine(), exceeded()), "each user has it for themselves");
    let shown = budgets(&server).await[0].clone();
    let used = |subject: &str| json!({"subject": subject, "used": 1, "reserved": 0});
    assert_eq!((&shown["used"], &shown["subjects"]), (&json!(1), &json!([used("3"), used("4")])));

    let (key, other) = (server.key(Some(1), &["chat"]).await, server.key(Some(2), &["chat"]).await);
    let keys = body(server.operator(Method::GET, "/api/keys").send().await.unwrap()).await;
    let id = keys["keys"].as_array().unwrap().iter().find(|key| key["user_id"] == "1").unwrap()["id"].clone();
    budget(&server, calls_of("key", id, 0)).await;
    let with = async |key: &str| {
        let request = server.with_key(key, Method::POST, "/api/chat").header("accept", "application/json");
        request.json(&json!({"message": "hello"})).send().await.unwrap()
    };
    assert_eq!(refusal(with(&key).await).await, exceeded());
    assert_eq!(with(&other).await.status(), 200);
}

#[tokio::test]
async fn the_assistant_of_a_conversation_counts_where_the_message_names_none() {
    let server = TestServer::open_with("[[assistants]]\nname = 'desk'\nprompt = 'You are at the desk.'\n").await;
    budget(&server, calls_of("assistant", json!("desk"), 1)).await;
    let first = body(server.chat(3, json!({"message": "hello", "assistant": "desk"})).await).await;
    let again = server.chat(3, json!({"message": "hello", "conversation_id": first["conversation_id"]})).await;
    assert_eq!(refusal(again).await, exceeded());
    assert_eq!(said(&server, 3).await, fine(), "the default assistant has no budget");
    assert_eq!(counted(&server).await, (1, 0));
}

#[tokio::test]
async fn two_hundred_clients_get_ten_calls() {
    let server = TestServer::open().await;
    budget(&server, calls_of("tenant", Value::Null, 10)).await;
    let mut answers =
        join_all((0..200).map(|_| hello(&server, 3))).await.into_iter().map(|answer| answer.status().as_u16()).collect::<Vec<_>>();
    answers.sort_unstable();
    assert_eq!((&answers[..10], &answers[10..]), ([200; 10].as_slice(), [429; 190].as_slice()));
    assert_eq!((server.model.requests().len(), counted(&server).await), (10, (10, 0)));
    assert_eq!(stored(&server).await, (10, 10));
}

#[tokio::test]
async fn a_period_ends_and_the_next_one_starts_at_nothing() {
    let start: Timestamp = "2026-11-30T23:00:00Z".parse().unwrap();
    let seconds = Arc::new(AtomicI64::new(start.as_second()));
    let read = Arc::clone(&seconds);
    let clock = Clock::driven(move || Timestamp::from_second(read.load(Ordering::SeqCst)).unwrap(), 7);
    let server = TestServer::open_at("[workspace]\n", &[], tempfile::tempdir().unwrap(), Some(clock)).await;
    budget(&server, calls_of("tenant", Value::Null, 1)).await;
    budget(&server, json!({"scope": "tenant", "period": "month", "unit": "model_calls", "limit": 3})).await;
    assert_eq!((said(&server, 3).await, said(&server, 3).await), (fine(), exceeded()));
    let refused = hello(&server, 3).await;
    assert_eq!(refused.headers()["retry-after"], "3600", "one hour until midnight");
    seconds.fetch_add(3600, Ordering::SeqCst);
    assert_eq!((said(&server, 3).await, said(&server, 3).await), (fine(), exceeded()), "the first of December");
    let shown = budgets(&server).await;
    let resets: Vec<(&Value, &Value)> = shown.iter().map(|budget| (&budget["used"], &budget["resets_at"])).collect();
    assert_eq!(resets, [(&json!(1), &json!("2026-12-02T00:00:00.000Z")), (&json!(1), &json!("2027-01-01T00:00:00.000Z"))]);
    for day in 2..=3 {
        seconds.fetch_add(86_400, Ordering::SeqCst);
        assert_eq!(said(&server, 3).await, fine(), "December {day}");
    }
    seconds.fetch_add(86_400, Ordering::SeqCst);
    let details = body(hello(&server, 3).await).await["error"]["details"].take();
    assert_eq!((&details["period"], &details["used"]), (&json!("month"), &json!(3)), "the day has room");
}

#[tokio::test]
async fn tokens_are_reserved_by_their_worst_case_and_settled_by_what_was_used() {
    let server = TestServer::open_in("", &[("OPENAI_MAX_OUTPUT_TOKENS", "1000")]).await;
    let id = budget(&server, json!({"scope": "tenant", "period": "day", "unit": "tokens", "limit": 1000})).await;
    assert_eq!(said(&server, 3).await, exceeded(), "the prompt and 1000 tokens of answer are more than 1000");
    server.operator(Method::DELETE, &format!("/api/budgets/{id}")).send().await.unwrap();
    budget(&server, json!({"scope": "tenant", "period": "day", "unit": "tokens", "limit": 100_000})).await;
    let gate = Gate::before_head();
    server.model.script(vec![Reply::text("Hi.").usage(70, 30).gate(gate.clone())]);
    let (answer, ()) = tokio::join!(hello(&server, 3), async {
        gate.reached().await;
        let (used, reserved) = counted(&server).await;
        assert!(used == 0 && reserved > 1100, "the schemas of the tools count: {reserved}");
        gate.open();
    });
    assert_eq!((answer.status().as_u16(), counted(&server).await), (200, (100, 0)));
    let picture = json!({"model": "default", "messages": [{"role": "user", "content": [{"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(2_000_000))}}]}]});
    let key = server.key(Some(3), &["chat"]).await;
    server.model.script(vec![Reply::text("A cat.").usage(900, 100)]);
    let seen = server.with_key(&key, Method::POST, "/v1/chat/completions").json(&picture).send().await.unwrap();
    assert_eq!((seen.status().as_u16(), counted(&server).await), (200, (1100, 0)), "a picture counts by its bound, not by its bytes");
    server.model.script(vec![Reply::text("Hi.").usage(98_000, 100)]);
    assert_eq!(said(&server, 3).await, fine());
    assert_eq!((said(&server, 3).await, counted(&server).await), (exceeded(), (99_200, 0)));
}

#[tokio::test]
async fn money_is_counted_at_list_price_and_an_unpriced_model_is_refused() {
    let server = TestServer::open_in("", &[("OPENAI_MODEL", "gpt-5"), ("OPENAI_MAX_OUTPUT_TOKENS", "1000")]).await;
    // 1000 tokens of output cost 10,000,000 nano-dollars.
    let id = budget(&server, json!({"scope": "tenant", "period": "day", "unit": "nano_usd", "limit": 10_000_000})).await;
    assert_eq!(said(&server, 3).await, exceeded());
    server.operator(Method::DELETE, &format!("/api/budgets/{id}")).send().await.unwrap();
    budget(&server, json!({"scope": "tenant", "period": "day", "unit": "nano_usd", "limit": 50_000_000})).await;
    server.model.script(vec![Reply::text("Hi.").usage(750, 150)]);
    assert_eq!((said(&server, 3).await, counted(&server).await), (fine(), (2_437_500, 0)));

    let unpriced = TestServer::open().await;
    budget(&unpriced, json!({"scope": "tenant", "period": "day", "unit": "nano_usd", "limit": 50_000_000})).await;
    assert_eq!(said(&unpriced, 3).await, (400, "price_unknown".to_owned()));
    assert_eq!((stored(&unpriced).await, unpriced.model.requests().len()), ((0, 0), 0));
}

/// Gateways name models in their own way.
#[tokio::test]
async fn an_answer_of_a_model_without_a_price_costs_what_was_asked_for() {
    let server = TestServer::open_in("", &[("OPENAI_MODEL", "gpt-5"), ("OPENAI_MAX_OUTPUT_TOKENS", "1000")]).await;
    budget(&server, json!({"scope": "tenant", "period": "day", "unit": "nano_usd", "limit": 100_000_000})).await;
    let usage = json!({"prompt_tokens": 750, "completion_tokens": 150, "total_tokens": 900});
    let answer = json!({"id": "c1", "object": "chat.completion", "model": "gateway/gpt-5@eu", "usage": usage,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}}]});
    server.model.script(vec![Reply::bytes("application/json", answer.to_string())]);
    assert_eq!((said(&server, 3).await, counted(&server).await), (fine(), (2_437_500, 0)));
    let rows = body(server.operator(Method::GET, "/api/usage/requests").send().await.unwrap()).await["requests"].take();
    assert_eq!((&rows[0]["model"], &rows[0]["cost_nano_usd"]), (&json!("gateway/gpt-5@eu"), &json!(2_437_500)));
}

/// What a crash would leave: the request has its row while it is in progress.
#[tokio::test]
async fn a_request_for_vectors_counts_before_it_leaves() {
    let server = TestServer::open_in("", &[("OPENAI_EMBEDDING_MODEL", "text-embedding-3-small")]).await;
    budget(&server, calls_of("tenant", Value::Null, 1)).await;
    let gate = Gate::before_head();
    let vectors = json!({"data": [{"index": 0, "embedding": [0.5, 0.5]}], "usage": {"prompt_tokens": 7, "total_tokens": 7}});
    server.model.script(vec![Reply::bytes("application/json", vectors.to_string()).gate(gate.clone())]);
    let search = || server.as_user(3, Method::POST, "/api/knowledge/search").json(&json!({"query": "tea time"})).send();
    let (found, ()) = tokio::join!(search(), async {
        gate.reached().await;
        assert_eq!((counted(&server).await, stored(&server).await.1), ((1, 0), 1));
        gate.open();
    });
    assert_eq!((found.unwrap().status().as_u16(), counted(&server).await, stored(&server).await.1), (200, (1, 0), 1));
}

#[tokio::test]
async fn every_request_counts_and_a_turn_ends_where_the_budget_does() {
    let server = TestServer::open().await;
    budget(&server, calls_of("tenant", Value::Null, 6)).await;
    let ask = || call("ask_gpt", json!({"query": "Which colour has the sky?"}));
    server.model.script(vec![
        Reply::status(503),
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]),
        Reply::calls(vec![ask()]),
        Reply::text("Blue."),
    ]);
    let answer = body(server.chat(3, json!({"message": "Which colour?"})).await).await;
    assert_eq!(
        (answer["message"]["content"].as_str(), counted(&server).await),
        (Some("Blue."), (4, 0)),
        "a repeat and the tool's own request count"
    );

    server.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]),
        Reply::calls(vec![ask()]),
        Reply::text("Never sent."),
    ]);
    let before = server.model.requests().len();
    let failed = server.chat(3, json!({"message": "Again?"})).await;
    assert!(failed.headers().contains_key("retry-after"));
    let failed = body(failed).await;
    assert_eq!(
        (&failed["error"]["type"], &failed["error"]["code"], &failed["status"]),
        (&json!("RATE_LIMIT"), &json!("budget_exceeded"), &json!("failed"))
    );
    assert_eq!((server.model.requests().len() - before, counted(&server).await), (2, (6, 0)));
    let list = body(server.operator(Method::GET, "/api/tool-calls?order=desc&limit=1").send().await.unwrap()).await;
    let last = &list["tool_calls"][0];
    assert_eq!(
        (&last["tool_name"], &last["status"], &last["error_code"]),
        (&json!("ask_gpt"), &json!("failed"), &json!("budget_exceeded")),
        "{last}"
    );
    let kept = body(
        server
            .as_user(3, Method::GET, &format!("/api/conversations/{}/messages", failed["conversation_id"].as_str().unwrap()))
            .send()
            .await
            .unwrap(),
    )
    .await;
    assert!(kept["messages"].as_array().unwrap().len() >= 5, "what happened before stays: {kept}");
}

#[tokio::test]
async fn a_canceled_turn_releases_what_it_had_reserved() {
    let server = TestServer::open().await;
    budget(&server, calls_of("tenant", Value::Null, 2)).await;
    server.model.script(vec![Reply::text("Hi.").hang()]);
    let started = body(server.chat(3, json!({"message": "hello", "background": true})).await).await;
    server.model.received(1).await;
    assert_eq!(counted(&server).await, (0, 1));
    let path = format!("/api/turns/{}", started["turn_id"].as_str().unwrap());
    server.as_user(3, Method::POST, &format!("{path}/cancel")).send().await.unwrap();
    let ended = async || body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await["status"] == "canceled";
    while !ended().await {
        tokio::task::yield_now().await;
    }
    assert_eq!(counted(&server).await, (1, 0), "the provider was asked");
}

#[tokio::test]
async fn a_request_may_limit_its_own_tokens() {
    let server = TestServer::open_in("", &[("OPENAI_MAX_OUTPUT_TOKENS", "100")]).await;
    let chat = async |tokens: &str| {
        let request = server.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").header("x-budget-tokens", tokens);
        request.json(&json!({"message": "hello"})).send().await.unwrap()
    };
    let refused = chat("50").await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["x-should-retry"]), (429, &"false".parse().unwrap()));
    let details = body(refused).await["error"]["details"].take();
    assert_eq!(details, json!({"scope": "request", "unit": "tokens", "limit": 50, "used": 0}));
    assert_eq!((stored(&server).await, server.model.requests().len()), ((0, 0), 0));
    let key = server.key(Some(3), &["chat", "tools"]).await;
    for (path, request) in [
        ("/v1/chat/completions", json!({"model": "default", "messages": [{"role": "user", "content": "hello"}]})),
        ("/v1/responses", json!({"model": "default", "input": "hello"})),
    ] {
        let refused = server.with_key(&key, Method::POST, path).header("x-budget-tokens", "50").json(&request).send().await.unwrap();
        assert_eq!(refusal(refused).await, exceeded(), "{path}");
    }
    server.model.script(vec![Reply::text("Hi.").usage(500, 20)]);
    let most = async |tokens: &str| {
        let status = chat(tokens).await.status().as_u16();
        (status, server.model.requests().last().map(|request| request.body["max_tokens"].clone()))
    };
    let (_, usual) = most("100000").await;
    assert_eq!(usual, Some(json!(100)));
    // The least that is enough for the prompt and a short answer: the answer is limited to what is left.
    let mut least = 50;
    let limit = loop {
        let (status, most) = most(&least.to_string()).await;
        if status == 200 {
            break most.unwrap().as_u64().unwrap();
        }
        least += 40;
    };
    assert!((16..100).contains(&limit), "{limit}");
    let before = server.model.requests().len();
    // The first answer uses nearly everything.
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]).usage(99_000, 900)]);
    assert_eq!(refusal(chat("100000").await).await, exceeded(), "inside the turn");
    assert_eq!(server.model.requests().len() - before, 1);
    assert_eq!(chat("100000").await.status(), 200, "each request has its own");

    let invoke = async |tokens: &str| {
        let request = server.with_key(&key, Method::POST, "/api/tools/ask_gpt/invoke").header("x-budget-tokens", tokens);
        body(request.json(&json!({"input": {"query": "Which colour has the sky?"}})).send().await.unwrap()).await
    };
    let output = invoke("50").await;
    assert_eq!(
        (&output["status"], &output["error"]["type"], &output["error"]["code"]),
        (&json!("error"), &json!("RATE_LIMIT"), &json!("budget_exceeded")),
        "{output}"
    );
    assert_eq!(invoke("100000").await["status"], "ok");
}

#[tokio::test]
async fn the_configuration_names_budgets_and_alone_changes_them() {
    let line = |limit: i64| format!("[[budgets]]\nscope = 'tenant'\nperiod = 'day'\nunit = 'model_calls'\nlimit = {limit}\n[workspace]\n");
    let server = TestServer::open_with("").await;
    let reload = async |text: &str| {
        std::fs::write(server.folder.path().join("werkruf.toml"), text).unwrap();
        server.operator(Method::POST, "/api/admin/reload").send().await.unwrap().status().as_u16()
    };
    assert_eq!(said(&server, 3).await, fine());
    assert_eq!(reload(&line(2)).await, 200);
    let [only] = &budgets(&server).await[..] else { panic!("one budget") };
    assert_eq!((&only["used"], &only["configured"]), (&json!(1), &json!(true)), "what today has used counts");
    let path = format!("/api/budgets/{}", only["id"].as_str().unwrap());
    assert_eq!(refusal(server.operator(Method::DELETE, &path).send().await.unwrap()).await, (409, "budget_configured".to_owned()));
    assert_eq!((said(&server, 3).await, said(&server, 3).await), (fine(), exceeded()));
    assert_eq!(reload(&line(3)).await, 200);
    assert_eq!((said(&server, 3).await, said(&server, 3).await), (fine(), exceeded()), "the count goes on");
    assert_eq!(reload("[[budgets]]\nscope = 'team'\nlimit = 1\n").await, 422);
    assert_eq!(said(&server, 3).await, exceeded(), "an invalid file changes nothing");
    assert_eq!(reload("[workspace]\n").await, 200);
    assert_eq!(said(&server, 3).await, fine());
}

#[tokio::test]
async fn a_whatsapp_message_over_budget_is_stored_and_its_sender_told() {
    let graph = Graph::start().await;
    let server = graph.serve(&number(NUMBER, "demo", ""), &[]).await;
    put_users(&server, "demo", &[(11, Some("+49 170 1"), None, 1), (12, Some("+49 170 2"), None, 1)]).await;
    budget(&server, calls_of("tenant", Value::Null, 1)).await;
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))])]);
    deliver(&server, &[text(&server, "w1", "491701", "How are you today?")]).await;
    let told = graph.answers("491701", 1).await.remove(0);
    assert!(told.contains("budget") && told.contains("UTC"), "{told}");
    let again = text(&server, "w2", "491701", "And now?");
    deliver(&server, &[again.clone(), text(&server, "w3", "491702", "Hello from me"), again]).await;
    let other = graph.answers("491702", 1).await.remove(0);
    assert!(other.contains("budget"), "each person is told: {other}");
    assert!(graph.answers("491701", 2).await[1].contains("budget"), "each message is answered, a copy is not");
    deliver(&server, &[text(&server, "w4", "491701", "who am i")]).await;
    let answers = graph.answers("491701", 3).await;
    assert!(answers[2].contains("U11"), "a keyword needs no model: {answers:?}");
    assert_eq!(server.model.requests().len(), 1);
    let list = body(server.as_user(11, Method::GET, "/api/conversations").send().await.unwrap()).await;
    let conversation = list["conversations"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/conversations/{conversation}/events");
    let events = body(server.as_user(11, Method::GET, &path).send().await.unwrap()).await;
    let codes: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "error")
        .map(|event| event["data"]["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["budget_exceeded", "budget_exceeded"]);
    rows(&server, |rows| rows.len() == 4).await;
}
