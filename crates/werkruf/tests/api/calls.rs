//! Tool calls: list, show, explain, cancel, retry.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::service::Service;
use crate::support::{TestServer, body, refusal};

#[tokio::test]
async fn a_call_is_listed_shown_and_explained() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1})).with_id("call_x")]), Reply::text("One.")]);
    let turn = body(server.chat(3, json!({"message": "one?"})).await).await;
    let id = turn["tool_results"][0]["job_id"].as_str().unwrap();
    let get = async |path: &str| body(server.as_user(3, Method::GET, path).send().await.unwrap()).await;
    for (query, count) in [
        ("", 1),
        ("?tool=test_echo&status=succeeded", 1),
        ("?status=failed", 0),
        ("?tool=other", 0),
        (&format!("?conversation_id={}", turn["conversation_id"].as_str().unwrap()), 1),
    ] {
        assert_eq!(get(&format!("/api/tool-calls{query}")).await["tool_calls"].as_array().unwrap().len(), count, "{query}");
    }
    let bad = server.as_user(3, Method::GET, "/api/tool-calls?status=lost").send().await.unwrap();
    assert_eq!(refusal(bad).await, (400, "invalid_request".to_owned()));

    let shown = get(&format!("/api/tool-calls/{id}")).await;
    assert_eq!((&shown["request"], &shown["response"]), (&json!({"value": 1}), &json!({"value": 1})));
    assert_eq!((&shown["call_id"], &shown["attempt"], &shown["effect"]), (&json!("call_x"), &json!(1), &json!("read")));
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1);
    assert_eq!((&shown["attempts"][0]["attempt"], &shown["attempts"][0]["status"]), (&json!(1), &json!("succeeded")));
    let names: Vec<&Value> = shown["events"].as_array().unwrap().iter().map(|event| &event["type"]).collect();
    assert_eq!(names, [&json!("tool_started"), &json!("tool_finished")]);
    assert!(shown["took_ms"].is_u64() && shown["context"]["tenant_id"].is_string());
    let random = &id[id.len() - 12..];
    assert_eq!(get(&format!("/api/tool-calls/{}", &id[..id.len() - 2])).await["id"], id, "a unique prefix is enough");
    assert_eq!(get(&format!("/api/tool-calls/{random}")).await["id"], id, "and so is a unique end");
    let wrong = server.as_user(3, Method::GET, "/api/tool-calls/ffffffff").send().await.unwrap();
    assert_eq!(refusal(wrong).await, (404, "not_found".to_owned()));

    let explained = get(&format!("/api/tool-calls/{id}/explain")).await;
    assert_eq!(explained["message"]["content"], "one?");
    assert_eq!(explained["model_answer"]["tool_calls"][0]["id"], "call_x");
    assert_eq!((&explained["arguments"], &explained["outcome"]["status"]), (&json!({"value": 1}), &json!("succeeded")));
    let key = server.key(Some(4), &["read"]).await;
    let foreign = server.with_key(&key, Method::GET, &format!("/api/tool-calls/{id}")).send().await.unwrap();
    assert_eq!(refusal(foreign).await, (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_part_of_an_id_is_compared_with_what_the_caller_may_see() {
    let server = TestServer::open().await;
    let key = server.key(Some(4), &["read", "tools"]).await;
    let input = json!({"input": {"value": 1}});
    let mut ids = Vec::new();
    for request in
        [server.as_user(3, Method::POST, "/api/tools/test_echo/invoke"), server.with_key(&key, Method::POST, "/api/tools/test_echo/invoke")]
    {
        let made = request.json(&input).send().await.unwrap();
        ids.push(made.headers()["x-tool-call-id"].to_str().unwrap().to_owned());
    }
    let common: String = ids[0].chars().zip(ids[1].chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let path = format!("/api/tool-calls/{common}");
    let own = server.with_key(&key, Method::GET, &path).send().await.unwrap();
    assert_eq!(body(own).await["id"], ids[1].as_str(), "the other call belongs to somebody else");
    let both = server.operator(Method::GET, &path).send().await.unwrap();
    assert_eq!(both.status(), 400);
    let error = body(both).await["error"].take();
    let named: Vec<&str> = error["details"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!((error["code"].as_str(), named), (Some("ambiguous_id"), vec![ids[1].as_str(), ids[0].as_str()]));
}

#[tokio::test]
async fn only_a_failed_call_can_be_retried() {
    let server = TestServer::open().await;
    let invoke = async |tool: &str, input: Value| {
        let request = server.as_user(3, Method::POST, &format!("/api/tools/{tool}/invoke")).json(&json!({"input": input}));
        request.send().await.unwrap().headers()["x-tool-call-id"].to_str().unwrap().to_owned()
    };
    let post = async |path: String| server.operator(Method::POST, &path).send().await.unwrap();
    let good = invoke("test_echo", json!({"value": 1})).await;
    assert_eq!(post(format!("/api/tool-calls/{good}/retry")).await.status(), 409);
    let ended = post(format!("/api/tool-calls/{good}/cancel")).await;
    assert_eq!(refusal(ended).await, (409, "already_finished".to_owned()));
    let failed = invoke("test_panic", json!({})).await;
    let retried = post(format!("/api/tool-calls/{failed}/retry")).await;
    assert_eq!(retried.status(), 202);
    let job = body(retried).await["job_id"].as_str().unwrap().to_owned();
    assert_ne!(job, failed);
    let row = body(server.operator(Method::GET, &format!("/api/tool-calls/{job}")).send().await.unwrap()).await;
    assert_eq!(row["retry_of"], failed);
    let nowhere = post("/api/tool-calls/00000000-0000-7000-8000-00000000ffff/retry".to_owned()).await;
    assert_eq!(refusal(nowhere).await, (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_running_call_can_be_canceled() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::calls(vec![call("test_sleep", json!({"ms": 25000}))]), Reply::text("Stopped.")]);
    let mut stream = server.stream(3, json!({"message": "sleep"})).await;
    let started = stream.until("tool_started").await.pop().unwrap();
    let path = format!("/api/tool-calls/{}/cancel", started.data["job_id"].as_str().unwrap());
    assert_eq!(server.as_user(3, Method::POST, &path).send().await.unwrap().status(), 202);
    let events = stream.rest().await;
    let finished = events.iter().find(|event| event.name == "tool_finished").unwrap();
    assert_eq!(finished.data["status"], "canceled");
    assert_eq!(events.last().unwrap().name, "final", "the turn continues");
}

/// A tool that happens once, and whose outcome is never known.
async fn unknown_outcomes() -> (TestServer, Service) {
    let service = Service::start(&[("pay", json!({"status": "error", "error": {"type": "UPSTREAM", "message": "?"}}))]).await;
    let server = TestServer::open_with(&service.tool("pay", "once", "")).await;
    (server, service)
}

async fn until_ended(server: &TestServer, call: &str) {
    let path = format!("/api/tool-calls/{call}");
    while body(server.operator(Method::GET, &path).send().await.unwrap()).await["finished_at"].is_null() {}
}

#[tokio::test]
async fn a_forced_retry_counts_once_per_unknown_outcome() {
    let (server, service) = unknown_outcomes().await;
    let conversation = server.conversation(3).await;
    for (round, input) in [json!({"input": {}}), json!({"input": {}, "conversation_id": conversation})].into_iter().enumerate() {
        let invoked = server.as_user(3, Method::POST, "/api/tools/pay/invoke").json(&input).send().await.unwrap();
        let first = invoked.headers()["x-tool-call-id"].to_str().unwrap().to_owned();
        assert_eq!(body(invoked).await["error"]["code"], "outcome_unknown");
        let force = async |id: &str| {
            server.as_user(3, Method::POST, &format!("/api/tool-calls/{id}/retry")).json(&json!({"force": true})).send().await.unwrap()
        };
        let (mut jobs, mut refused) = (Vec::new(), Vec::new());
        for response in futures_util::future::join_all([&first; 5].map(|id| force(id))).await {
            if response.status() == 202 { jobs.push(body(response).await) } else { refused.push(refusal(response).await) }
        }
        assert_eq!((jobs.len(), refused), (1, vec![(409, "already_retried".to_owned()); 4]));
        assert_eq!(refusal(force(&first).await).await, (409, "already_retried".to_owned()), "nor later");
        let job = jobs[0]["job_id"].as_str().unwrap();
        until_ended(&server, job).await;
        assert_eq!(service.received("pay"), 2 + 3 * round, "the first request and one retry");
        // The outcome of the retry is unknown too: it may be retried once.
        let again = body(force(job).await).await;
        assert_eq!(refusal(force(job).await).await, (409, "already_retried".to_owned()));
        until_ended(&server, again["job_id"].as_str().unwrap()).await;
        assert_eq!(service.received("pay"), 3 + 3 * round);
    }
}

#[tokio::test]
async fn a_message_that_was_queued_before_the_outcome_was_known_allows_no_repetition() {
    let (server, service) = unknown_outcomes().await;
    let conversation = server.conversation(3).await;
    let pay = || Reply::calls(vec![call("pay", json!({}))]);
    let gate = Gate::before_head();
    let told = Reply::text("Unknown.").gate(gate.clone());
    server.model.script(vec![pay(), told, pay(), Reply::text("Refused."), pay(), Reply::text("Sent.")]);
    let first = server.stream(3, json!({"message": "Pay.", "conversation_id": conversation})).await;
    gate.reached().await;
    let mut queued = server.stream(3, json!({"message": "Pay, please!", "conversation_id": conversation})).await;
    queued.until("init").await;
    gate.open();
    first.rest().await;
    assert_eq!(queued.rest().await.last().unwrap().data["message"]["content"], "Refused.");
    assert_eq!(service.received("pay"), 1, "nobody knew the outcome when the second message was sent");
    let last = server.stream(3, json!({"message": "Yes, again.", "conversation_id": conversation})).await.rest().await;
    assert_eq!((&last.last().unwrap().data["message"]["content"], service.received("pay")), (&json!("Sent."), 2));
}
