//! A tool that belongs to certain tenants does not exist for the others.

use reqwest::Method;
use serde_json::json;
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{TestServer, body, refusal};

const CRM: &str = r#"
[[tools]]
name = "crm"
description = "Reads the customers of the office."
url = "http://127.0.0.1:9/"
effect = "read"
permission = "none"
tenants = ["office"]
parameters = '{"type": "object"}'
"#;

#[tokio::test]
async fn another_tenant_neither_lists_nor_calls_the_tool() {
    let server = TestServer::open_with(CRM).await;
    let listed = body(server.as_user(5, Method::GET, "/api/tools").send().await.unwrap()).await;
    assert!(listed["tools"].as_array().unwrap().iter().all(|tool| tool["name"] != "crm"));
    let get = server.operator(Method::GET, "/api/tools/crm").send().await.unwrap();
    assert_eq!(refusal(get).await, (404, "unknown_tool".to_owned()));
    let invoked = server.as_user(5, Method::POST, "/api/tools/crm/invoke").json(&json!({"input": {}})).send().await.unwrap();
    assert_eq!(refusal(invoked).await, (404, "unknown_tool".to_owned()));

    server.model.script(vec![Reply::calls(vec![call("crm", json!({}))]), Reply::text("I cannot.")]);
    let answer = body(server.chat(5, json!({"message": "Read the customers"})).await).await;
    assert_eq!(answer["tool_results"][0]["error"]["code"], "unknown_tool");
    assert!(!server.model.requests()[0].tool_names().contains(&"crm"));
}

#[tokio::test]
async fn its_own_tenant_has_the_tool() {
    let server = TestServer::open_with(CRM).await;
    let office = json!({"tenant": "office", "branches": [{"id": 1, "name": "Bonn", "time_zone": "Europe/Berlin"}], "roles": [],
        "users": [{"id": 1, "first_name": "Ida", "last_name": "Ott", "email": "i@example.org", "locale": "de-DE", "branch_id": 1, "role_ids": []}]});
    assert_eq!(server.operator(Method::POST, "/api/workspace/import").json(&office).send().await.unwrap().status(), 200);
    let get = server.operator(Method::GET, "/api/tools/crm").header("x-tenant-id", "office").send().await.unwrap();
    assert_eq!(get.status(), 200);
    let invoked = server.as_user(1, Method::POST, "/api/tools/crm/invoke").header("x-tenant-id", "office");
    let output = body(invoked.json(&json!({"input": {}})).send().await.unwrap()).await;
    assert_eq!(output["error"]["code"], "upstream_unreachable", "the tool was called: {output}");
}
