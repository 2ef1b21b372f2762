//! A configuration file that names no module: its tools and the kernel's remain, and everything of a module is refused.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestServer, body, refusal};

const ONE_TOOL: &str = r#"
[[tools]]
name = "stock"
description = "Counts what is in stock."
url = "http://127.0.0.1:9/"
effect = "read"
permission = "none"
parameters = '{"type": "object"}'
"#;

async fn open() -> TestServer {
    TestServer::open_as_written(ONE_TOOL, &[("WERKRUF_TEST_TOOLS", "0")], tempfile::tempdir().unwrap()).await
}

#[tokio::test]
async fn only_the_named_tools_and_the_kernels_are_listed() {
    let server = open().await;
    let listed = body(server.operator(Method::GET, "/api/tools").send().await.unwrap()).await;
    let mut names: Vec<&str> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["read_result", "remember", "stock"]);
}

#[tokio::test]
async fn routes_of_a_module_that_is_off_name_the_module() {
    let server = open().await;
    let mut routes = vec![
        ("/api/knowledge/search", json!({"query": "tea"}), "knowledge"),
        ("/api/knowledge/documents", json!({"title": "Tea", "text": "Tea."}), "knowledge"),
    ];
    if cfg!(feature = "flights") {
        routes.push(("/functions/v1/seatsaero-flight-search", json!({}), "flights"));
    }
    for (path, request, module) in routes {
        let refused = server.as_user(1, Method::POST, path).json(&request).send().await.unwrap();
        assert_eq!(refused.status(), 404, "{path}");
        let error = &body(refused).await["error"];
        assert_eq!((&error["code"], &error["type"]), (&json!("module_off"), &json!("VALIDATION")), "{path}");
        assert!(error["message"].as_str().unwrap().contains(&format!("[{module}]")), "{error}");
    }
}

#[tokio::test]
async fn an_import_of_people_needs_no_module_and_one_of_work_does() {
    let server = open().await;
    let mut batch = json!({"tenant": "office", "branches": [{"id": 1, "name": "Bonn", "time_zone": "Europe/Berlin"}],
        "roles": [{"id": 1, "name": "employee", "permissions": []}],
        "users": [{"id": 1, "first_name": "Ida", "last_name": "Ott", "email": "i@example.org", "locale": "de-DE", "branch_id": 1, "role_ids": [1]}]});
    let import = async |batch: &Value| server.operator(Method::POST, "/api/workspace/import").json(batch).send().await.unwrap();
    let people = import(&batch).await;
    assert_eq!(people.status(), 200);
    assert_eq!(body(people).await["written"], json!({"branches": 1, "roles": 1, "users": 1}));
    batch["tasks"] = json!([{"id": 1, "title": "Tidy", "status": "open", "user_id": 1, "branch_id": 1}]);
    assert_eq!(refusal(import(&batch).await).await, (422, "module_off".to_owned()));
}

#[tokio::test]
async fn the_sample_people_chat_without_a_module() {
    let server = open().await;
    assert_eq!(server.chat(3, json!({"message": "hello"})).await.status(), 200);
}
