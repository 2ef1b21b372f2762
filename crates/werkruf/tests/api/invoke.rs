//! Listing tools, and calling them directly.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::{TestServer, body, refusal};

async fn invoke(server: &TestServer, tool: &str, headers: &[(&str, &str)], request: Value) -> Response {
    let path = format!("/api/tools/{tool}/invoke");
    let built = headers.iter().fold(server.as_user(3, Method::POST, &path), |built, (name, value)| built.header(*name, *value));
    built.json(&request).send().await.unwrap()
}

/// Every context header but the language.
pub(crate) const CONTEXT_HEADERS: [(&str, &str); 11] = [
    ("x-trace-id", "trace-1"),
    ("x-request-id", "request-1"),
    ("x-ingestion-run-id", "ingest_7"),
    ("x-workflow-id", "flow"),
    ("x-case-id", "crm-1"),
    ("x-collection-id", "hr"),
    ("x-document-id", "d"),
    ("x-document-version-id", "d2"),
    ("x-budget-tokens", "4096"),
    ("x-timeout-ms", "5000"),
    ("x-safety-mode", "careful"),
];

#[tokio::test]
async fn tools_are_listed_with_their_schema() {
    let server = TestServer::open().await;
    let list = body(server.operator(Method::GET, "/api/tools").send().await.unwrap()).await;
    assert_eq!(list["next_after"], json!(null));
    let echo = list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "test_echo").unwrap();
    assert_eq!((&echo["effect"], &echo["permission"], &echo["attempts"]), (&json!("read"), &json!(null), &json!(3)));
    assert_eq!(echo["parameters"]["type"], "object");
    let one = body(server.operator(Method::GET, "/api/tools/test_echo").send().await.unwrap()).await;
    assert_eq!(&one, echo);
    assert_eq!(refusal(server.operator(Method::GET, "/api/tools/none").send().await.unwrap()).await, (404, "unknown_tool".to_owned()));
}

#[tokio::test]
async fn every_envelope_is_http_200() {
    let server = TestServer::open().await;
    let good = invoke(&server, "test_echo", &[], json!({"input": {"value": [1, 2]}})).await;
    assert_eq!(good.status(), 200);
    assert!(good.headers().contains_key("x-tool-call-id"));
    let good = body(good).await;
    assert_eq!((&good["status"], &good["input"], &good["data"]), (&json!("ok"), &json!({"value": [1, 2]}), &json!({"value": [1, 2]})));
    for (tool, input, code) in [("test_echo", json!({}), "invalid_arguments"), ("test_panic", json!({}), "tool_panicked")] {
        let failed = invoke(&server, tool, &[], json!({"input": input})).await;
        assert_eq!(failed.status(), 200);
        let id = failed.headers()["x-tool-call-id"].to_str().unwrap().to_owned();
        let failed = body(failed).await;
        assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("error"), &json!(code)));
        let stored = body(server.as_user(3, Method::GET, &format!("/api/tool-calls/{id}")).send().await.unwrap()).await;
        assert_eq!((&stored["status"], &stored["error_code"]), (&json!("failed"), &json!(code)));
    }
    let slow = body(invoke(&server, "test_sleep", &[("x-timeout-ms", "30")], json!({"input": {"ms": 60000}})).await).await;
    assert_eq!(slow["error"]["type"], "TIMEOUT");
}

#[tokio::test]
async fn the_cause_is_shown_to_the_operator_only() {
    let server = TestServer::open().await;
    let key = server.key(Some(3), &["tools"]).await;
    let request = server.with_key(&key, Method::POST, "/api/tools/test_panic/invoke").json(&json!({"input": {}}));
    let failed = body(request.send().await.unwrap()).await;
    assert_eq!(failed["error"]["code"], "tool_panicked");
    assert_eq!(failed["error"].get("cause"), None);
}

#[tokio::test]
async fn invalid_calls_are_refused() {
    let server = TestServer::open().await;
    assert_eq!(refusal(invoke(&server, "none", &[], json!({"input": {}})).await).await, (404, "unknown_tool".to_owned()));
    assert_eq!(refusal(invoke(&server, "test_echo", &[], json!({})).await).await, (400, "invalid_request".to_owned()));
    assert_eq!(refusal(invoke(&server, "test_echo", &[], json!([])).await).await, (400, "invalid_request".to_owned()));
    let bad: [&[(&str, &str)]; 6] = [
        &[("x-run-id", "a"), ("x-ingestion-run-id", "b")],
        &[("x-timeout-ms", "0")],
        &[("x-timeout-ms", "-5")],
        &[("x-timeout-ms", "soon")],
        &[("x-budget-tokens", "1.5")],
        &[("x-safety-mode", "reckless")],
    ];
    for headers in bad {
        let response = invoke(&server, "test_echo", headers, json!({"input": {"value": 1}})).await;
        assert_eq!(refusal(response).await, (400, "invalid_context".to_owned()), "{headers:?}");
    }
    let calls = body(server.operator(Method::GET, "/api/tool-calls").send().await.unwrap()).await;
    assert_eq!(calls["tool_calls"], json!([]), "nothing was recorded");
}

#[tokio::test]
async fn the_context_comes_from_the_headers() {
    let server = TestServer::open().await;
    let headers = [CONTEXT_HEADERS.as_slice(), &[("accept-language", "de-DE,de;q=0.9")]].concat();
    let context = async |headers: &[(&str, &str)], request: Value| {
        let response = invoke(&server, "test_echo", headers, request).await;
        let id = response.headers()["x-tool-call-id"].to_str().unwrap().to_owned();
        body(server.as_user(3, Method::GET, &format!("/api/tool-calls/{id}")).send().await.unwrap()).await
    };
    let call = context(&headers, json!({"input": {"value": 1}})).await;
    let stored = &call["context"];
    for (field, expected) in [
        ("trace_id", json!("trace-1")),
        ("request_id", json!("request-1")),
        ("ingestion_run_id", json!("ingest_7")),
        ("workflow_id", json!("flow")),
        ("case_id", json!("crm-1")),
        ("collection_id", json!("hr")),
        ("document_id", json!("d")),
        ("document_version_id", json!("d2")),
        ("budget_tokens", json!(4096)),
        ("timeouts_ms", json!(5000)),
        ("safety_mode", json!("careful")),
        ("locale", json!("de-DE")),
    ] {
        assert_eq!(stored[field], expected, "{field}");
    }
    assert_eq!((stored.get("run_id"), stored.get("auth")), (None, None));
    assert_eq!((&call["trace_id"], &call["ingestion_run_id"]), (&json!("trace-1"), &json!("ingest_7")));
    let made = context(&[], json!({"input": {"value": 2}, "trace_id": "from-body"})).await;
    assert!(made["run_id"].as_str().unwrap().starts_with("run_"));
    assert_eq!(made["trace_id"], "from-body");
    let denied = body(invoke(&server, "test_sleep", &[("x-safety-mode", "careful")], json!({"input": {"ms": 1}})).await).await;
    assert_eq!(denied["error"]["code"], "permission_denied");
}
