//! The context headers count on every way into a turn, and what keys and assistants pin cannot be widened.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Api, Reply, call};

use crate::held_turn::HeldTurn;
use crate::invoke::CONTEXT_HEADERS;
use crate::support::{Stream, TestServer, body, refusal};

const PROFILES: &str = "
[approvals]
four_eyes = false
[safety.careful]
tools_denied = ['test_sleep']
[safety.asking]
approval_required_for = ['test_echo']
[[assistants]]
name = 'strict'
safety_mode = 'careful'
[[assistants]]
name = 'staff'
collections = ['hr']
[[assistants]]
name = 'both'
collections = ['hr', 'travel']
";

/// The ways into a chat turn, each with a body for this text.
fn ways(text: &str) -> [(&'static str, Value); 4] {
    [
        ("/api/chat", json!({"message": text})),
        ("/functions/v1/chat-rag", json!({"message": text})),
        ("/v1/chat/completions", json!({"model": "default", "messages": [{"role": "user", "content": text}]})),
        ("/v1/responses", json!({"model": "default", "input": text})),
    ]
}

fn with(request: RequestBuilder, headers: &[(&str, &str)]) -> RequestBuilder {
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

async fn send(server: &TestServer, path: &str, headers: &[(&str, &str)], request: &Value) -> Response {
    let built = server.as_user(3, Method::POST, path).header("accept", "application/json");
    with(built, headers).json(request).send().await.unwrap()
}

/// The newest call.
async fn newest_call(server: &TestServer) -> Value {
    let list = body(server.operator(Method::GET, "/api/tool-calls?order=desc&limit=1").send().await.unwrap()).await;
    let id = list["tool_calls"][0]["id"].as_str().unwrap().to_owned();
    body(server.operator(Method::GET, &format!("/api/tool-calls/{id}")).send().await.unwrap()).await
}

/// The live events of a conversation.
async fn events(server: &TestServer, conversation: &Value) -> Stream {
    let path = format!("/api/conversations/{}/events", conversation.as_str().unwrap());
    Stream::new(server.operator(Method::GET, &path).header("accept", "text/event-stream").send().await.unwrap())
}

/// Lets the model make one call in a chat turn; returns its row.
async fn called(
    server: &TestServer,
    path: &str,
    headers: &[(&str, &str)],
    request: &Value,
    call: werkruf_bench::fake_model::Call,
) -> Value {
    server.model.script(vec![Reply::calls(vec![call]), Reply::text("Done.")]);
    let response = send(server, path, headers, request).await;
    assert_eq!(response.status(), 200, "{path}: {}", response.text().await.unwrap());
    newest_call(server).await
}

#[tokio::test]
async fn every_header_counts_on_every_way_as_on_invoke() {
    let server = TestServer::open_with(PROFILES).await;
    let headers = [CONTEXT_HEADERS.as_slice(), &[("accept-language", "fr-FR,fr;q=0.9")]].concat();
    // A context and its columns, without what is new for each call.
    let compared = |call: &Value| {
        let mut context = call["context"].clone();
        for own in ["invocation_id", "now_iso", "idempotency_key"] {
            context.as_object_mut().unwrap().remove(own);
        }
        let columns = ["trace_id", "run_id", "ingestion_run_id", "workflow_id", "case_id"].map(|column| call[column].clone());
        (context, columns)
    };
    let request = json!({"input": {"value": 1}});
    assert_eq!(send(&server, "/api/tools/test_echo/invoke", &headers, &request).await.status(), 200);
    let expected = compared(&newest_call(&server).await);
    assert_eq!((&expected.0["case_id"], &expected.0["locale"]), (&json!("crm-1"), &json!("fr-FR")));
    for (path, request) in ways("Guten Tag, was ist offen?") {
        let call = called(&server, path, &headers, &request, call("test_echo", json!({"value": path}))).await;
        assert_eq!(compared(&call), expected, "{path}");
    }
    let (path, request) = &ways("hello")[0];
    let headers = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("x-run-id", "r-1")];
    let traced = called(&server, path, &headers, request, call("test_echo", json!({"value": 2}))).await;
    assert_eq!((&traced["trace_id"], &traced["run_id"]), (&json!("4bf92f3577b34da6a3ce929d0e0e4736"), &json!("r-1")));
    let plain = called(&server, path, &[], request, call("test_echo", json!({"value": 3}))).await;
    let turn = plain["turn_id"].as_str().unwrap();
    assert_eq!(plain["run_id"], format!("run_{turn}"));
}

#[tokio::test]
async fn a_wrong_header_is_refused_on_every_way() {
    let server = TestServer::open_with(PROFILES).await;
    let bad: [&[(&str, &str)]; 5] = [
        &[("x-safety-mode", "reckless")],
        &[("x-run-id", "a"), ("x-ingestion-run-id", "b")],
        &[("x-timeout-ms", "0")],
        &[("x-budget-tokens", "-1")],
        &[("x-budget-tokens", "1.5")],
    ];
    let invoke = ("/api/tools/test_echo/invoke", json!({"input": {"value": 1}}));
    for (path, request) in ways("hello").into_iter().chain([invoke]) {
        for headers in bad {
            let response = send(&server, path, headers, &request).await;
            assert_eq!(refusal(response).await, (400, "invalid_context".to_owned()), "{path} {headers:?}");
        }
    }
    assert!(server.model.requests().is_empty());
    let listed = body(server.operator(Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!(listed["conversations"], json!([]), "nothing was stored");
}

#[tokio::test]
async fn a_safety_profile_and_a_timeout_bound_the_calls_of_a_chat() {
    let server = TestServer::open_with(PROFILES).await;
    for (path, request) in ways("hello") {
        let denied = called(&server, path, &[("x-safety-mode", "careful")], &request, call("test_sleep", json!({"ms": 1}))).await;
        assert_eq!((&denied["status"], &denied["error_code"]), (&json!("failed"), &json!("permission_denied")), "{path}");
        let slow = called(&server, path, &[("x-timeout-ms", "30")], &request, call("test_sleep", json!({"ms": 3_600_000}))).await;
        assert_eq!((&slow["status"], &slow["error_code"]), (&json!("timeout"), &json!("tool_timeout")), "{path}");
        server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": path}))])]);
        let waits = send(&server, path, &[("x-safety-mode", "asking")], &request).await;
        let native = !path.starts_with("/v1");
        assert_eq!(waits.status(), if native { 202 } else { 200 }, "{path}");
        assert!(native || waits.headers().contains_key("x-approval-id"), "{path}");
        assert_eq!(newest_call(&server).await["status"], "queued", "{path}");
    }
}

/// A turn that an approval stopped continues from its rows, as after a takeover.
#[tokio::test]
async fn the_context_survives_a_pause() {
    let server = TestServer::open_with(PROFILES).await;
    let headers = [("x-safety-mode", "asking"), ("x-case-id", "crm-1"), ("x-timeout-ms", "70"), ("accept-language", "es-ES")];
    server.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]),
        Reply::calls(vec![call("test_sleep", json!({"ms": 3_600_000}))]),
        Reply::text("Too slow."),
    ]);
    let waits = body(send(&server, "/api/chat", &headers, &json!({"message": "Go."})).await).await;
    let mut events = events(&server, &waits["conversation_id"]).await;
    let path = format!("/api/approvals/{}", waits["approval_id"].as_str().unwrap());
    assert_eq!(server.operator(Method::POST, &path).json(&json!({"decision": "approve"})).send().await.unwrap().status(), 200);
    assert_eq!(events.until("final").await.last().unwrap().data["message"]["content"], "Too slow.");
    let later = newest_call(&server).await;
    assert_eq!((&later["tool_name"], &later["status"], &later["case_id"]), (&json!("test_sleep"), &json!("timeout"), &json!("crm-1")));
    assert_eq!((&later["context"]["safety_mode"], &later["context"]["locale"]), (&json!("asking"), &json!("es-ES")));
}

#[tokio::test]
async fn the_context_survives_the_queue() {
    let server = TestServer::open_with(PROFILES).await;
    let held = HeldTurn::start(&server, "First.").await;
    let conversation = &held.init.data["conversation_id"];
    let request = json!({"message": "Next.", "conversation_id": conversation, "background": true});
    let headers = [("x-safety-mode", "careful"), ("x-case-id", "crm-2")];
    assert_eq!(body(send(&server, "/api/chat", &headers, &request).await).await["status"], "accepted");
    server.model.script(vec![Reply::calls(vec![call("test_sleep", json!({"ms": 1}))]), Reply::text("Denied.")]);
    let mut events = events(&server, conversation).await;
    held.gate.open();
    events.until("final").await;
    assert_eq!(events.until("final").await.last().unwrap().data["message"]["content"], "Denied.");
    let call = newest_call(&server).await;
    assert_eq!((&call["error_code"], &call["case_id"]), (&json!("permission_denied"), &json!("crm-2")));
}

#[tokio::test]
async fn profiles_of_assistant_and_request_add_up() {
    let server = TestServer::open_with(PROFILES).await;
    let request = json!({"message": "hello", "assistant": "strict"});
    for headers in [&[][..], &[("x-safety-mode", "asking")], &[("x-safety-mode", "careful")]] {
        let denied = called(&server, "/api/chat", headers, &request, call("test_sleep", json!({"ms": 1}))).await;
        assert_eq!(denied["error_code"], "permission_denied", "{headers:?}");
    }
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))])]);
    assert_eq!(send(&server, "/api/chat", &[("x-safety-mode", "asking")], &request).await.status(), 202);
    let context = &newest_call(&server).await["context"];
    assert_eq!((&context["safety_mode"], &context["safety_pinned"]), (&json!("asking"), &json!(["careful"])));
}

#[tokio::test]
async fn the_collection_limits_what_a_chat_searches() {
    let server = TestServer::open_with(PROFILES).await;
    let texts = [("hr", "Holidays are thirty days."), ("travel", "Holidays abroad need a visa."), ("default", "Holidays in general.")];
    for (collection, text) in texts {
        let document = json!({"collection": collection, "documents": [{"id": collection, "title": "Holidays", "text": text}]});
        assert_eq!(server.operator(Method::POST, "/api/knowledge/documents").json(&document).send().await.unwrap().status(), 200);
    }
    let found = async |assistant: Option<&str>, headers: &[(&str, &str)]| {
        let request = json!({"message": "Holidays?", "assistant": assistant});
        let search = call("search_knowledge_base", json!({"query": "holidays"}));
        let call = called(&server, "/api/chat", headers, &request, search).await;
        let mut found: Vec<String> = call["response"]["sources"]
            .as_array()
            .map(|sources| sources.iter().map(|source| source["document_id"].as_str().unwrap().to_owned()).collect())
            .unwrap_or_else(|| vec![call["error_code"].as_str().unwrap().to_owned()]);
        found.sort();
        found
    };
    assert_eq!(found(None, &[]).await, ["default"]);
    assert_eq!(found(None, &[("x-collection-id", "travel")]).await, ["travel"]);
    assert_eq!(found(Some("staff"), &[]).await, ["hr"]);
    assert_eq!(found(Some("both"), &[]).await, ["hr", "travel"]);
    assert_eq!(found(Some("both"), &[("x-collection-id", "travel")]).await, ["travel"]);
    assert_eq!(found(Some("both"), &[("x-collection-id", "default")]).await, ["permission_denied"]);
}

/// With a limit of one millisecond no request to a model would be in time.
#[tokio::test]
async fn ask_gpt_has_its_own_limit_and_is_sent_once() {
    let server = TestServer::open_with("[limits]\ntool_ms = 1\n").await;
    let shown = async |tool: &str| body(server.operator(Method::GET, &format!("/api/tools/{tool}")).send().await.unwrap()).await;
    let (ask, echo) = (shown("ask_gpt").await, shown("test_echo").await);
    assert_eq!((&ask["timeout_ms"], &ask["attempts"], &echo["timeout_ms"]), (&json!(90_000), &json!(1), &json!(1)));
    let answer = json!({"status": "completed", "model": "fake-1", "output": [{"type": "web_search_call", "status": "completed"},
        {"type": "message", "content": [{"type": "output_text", "text": "Sunny."}]}]});
    server.model.script(vec![Reply::bytes("application/json", answer.to_string()), Reply::status(503)]);
    let ask = async || {
        let request = json!({"input": {"query": "weather", "web_search": true}});
        body(send(&server, "/api/tools/ask_gpt/invoke", &[], &request).await).await
    };
    let found = ask().await;
    assert_eq!((&found["status"], &found["data"]["message"]), (&json!("ok"), &json!("Sunny.")));
    let failed = ask().await;
    assert_eq!(failed["error"]["type"], "UPSTREAM");
    let sent = server.model.requests().iter().filter(|request| request.api == Api::Responses).count();
    assert_eq!(sent, 2, "a search that failed is not paid for again");
}

/// A tool answers by its context, so the same arguments in another context are another call.
#[tokio::test]
async fn a_result_is_not_reused_in_another_context() {
    let server = TestServer::open_with(PROFILES).await;
    let key_of = async |headers: &[(&str, &str)]| {
        let request = json!({"input": {"value": 1}});
        assert_eq!(send(&server, "/api/tools/test_echo/invoke", headers, &request).await.status(), 200);
        newest_call(&server).await["dedupe_key"].as_str().unwrap().to_owned()
    };
    let plain = key_of(&[]).await;
    assert_eq!(key_of(&[("x-trace-id", "t"), ("accept-language", "fr")]).await, plain);
    for header in ["x-case-id", "x-workflow-id", "x-collection-id", "x-document-id", "x-document-version-id"] {
        assert_ne!(key_of(&[(header, "other")]).await, plain, "{header}");
    }
}
