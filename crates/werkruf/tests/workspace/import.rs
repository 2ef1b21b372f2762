//! `POST /api/workspace/import`.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_contract::{Scope, Uuid};
use werkruf_workspace::{DateSpan, RowScope, Target, WorkQuery};

use crate::support::{TestServer, body, refusal};

const PATH: &str = "/api/workspace/import";

fn office(tenant: &str) -> Value {
    json!({
        "tenant": tenant,
        "branches": [{"id": 1, "name": "Berlin", "time_zone": "Europe/Berlin"}],
        "roles": [{"id": 1, "name": "employee", "permissions": [
            {"entity": "table_requests", "entity_type": "table", "access": "read", "scope": "own"}]}],
        "users": [{"id": 1, "first_name": "Ida", "last_name": "Ott", "email": "ida@acme.example", "locale": "de-DE", "branch_id": 1,
                   "role_ids": [1]}],
        "requests": [{"id": 1, "title": "Stuhl", "status": "open", "requester_id": 1, "branch_id": 1}]
    })
}

async fn titles(server: &TestServer, tenant: Uuid) -> Vec<String> {
    let reach = RowScope { caller: 1, caller_branch: None, grant: Scope::Own, target: Target::Own };
    let query = WorkQuery { row_scope: reach, status: None, due: DateSpan::default(), limit: 50 };
    server.app.database.workspace().requests(tenant, query).await.unwrap().rows.into_iter().map(|row| row.title).collect()
}

#[tokio::test]
async fn an_office_is_imported_and_its_users_can_act() {
    let server = TestServer::open().await;
    let answer = server.operator(Method::POST, PATH).json(&office("acme")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer = body(answer).await;
    assert_eq!(answer["written"], json!({"branches": 1, "roles": 1, "users": 1, "requests": 1}));
    let tenant: Uuid = answer["tenant_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(titles(&server, tenant).await, ["Stuhl"]);
    let tools = server.as_user(1, Method::GET, "/api/tools").header("x-tenant-id", "acme").send().await.unwrap();
    assert_eq!(tools.status(), 200, "requests can be made for the new user");
    let change = json!({"tenant": tenant, "requests": [{"id": 1, "title": "Tisch", "status": "done", "requester_id": 1, "branch_id": 1}]});
    let again = body(server.operator(Method::POST, PATH).json(&change).send().await.unwrap()).await;
    assert_eq!(again, json!({"tenant_id": tenant, "written": {"requests": 1}}));
    assert_eq!(titles(&server, tenant).await, ["Tisch"]);
}

#[tokio::test]
async fn faults_have_path_and_line_and_write_nothing() {
    let server = TestServer::open().await;
    let import = async |text: String| server.operator(Method::POST, PATH).body(text).send().await.unwrap();
    let mut wrong = office("acme");
    wrong["requests"][0]["status"] = json!("opened");
    wrong["requests"][0]["requester_id"] = json!(7);
    let answer = import(format!("{wrong:#}")).await;
    assert_eq!(answer.status(), 422);
    let error = body(answer).await["error"].clone();
    assert_eq!((&error["type"], &error["code"]), (&json!("VALIDATION"), &json!("import_invalid")));
    let text = format!("{wrong:#}");
    let line = |needle: &str| text.lines().position(|line| line.contains(needle)).unwrap() + 1;
    let faults: Vec<(&str, u64)> = error["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| (fault["path"].as_str().unwrap(), fault["line"].as_u64().unwrap()))
        .collect();
    let status = ("/requests/0/status", u64::try_from(line("opened")).unwrap());
    let requester = ("/requests/0/requester_id", u64::try_from(line("requester_id")).unwrap());
    assert_eq!(faults, [status, requester]);
    assert_eq!(server.operator(Method::GET, "/api/tools").header("x-tenant-id", "acme").send().await.unwrap().status(), 404);
    for (text, path, line) in [("{\n\"tenant\": }", "", 2), ("{\"tenant\": \"acme\",\n\n \"taskz\": []}", "/taskz", 3)] {
        let error = body(import(text.to_owned()).await).await["error"].clone();
        assert_eq!((&error["code"], &error["details"][0]["path"]), (&json!("import_invalid"), &json!(path)), "{error}");
        assert_eq!(error["details"][0]["line"], line, "{error}");
    }
}

#[tokio::test]
async fn a_key_imports_only_into_its_own_tenant() {
    let server = TestServer::open().await;
    let admin = server.key(None, &["admin"]).await;
    let reader = server.key(Some(1), &["chat", "read", "tools"]).await;
    let send = async |key: &str, batch: Value| server.with_key(key, Method::POST, PATH).json(&batch).send().await.unwrap();
    assert_eq!(refusal(send(&reader, office("demo")).await).await, (403, "forbidden".to_owned()));
    assert_eq!(refusal(send(&admin, office("acme")).await).await, (404, "unknown_tenant".to_owned()));
    assert_eq!(refusal(server.bare(Method::POST, PATH).json(&office("demo")).send().await.unwrap()).await.0, 401);
    let article = json!({"tenant": "demo", "cerebro_articles": [{"id": 50, "title": "Neu", "content": "x", "tags": []}]});
    assert_eq!(send(&admin, article).await.status(), 200);
}

#[tokio::test]
async fn an_import_takes_memory_as_other_bodies_do() {
    let server = TestServer::open_in("", &[("WERKRUF_LIMIT_BYTES_IN_FLIGHT", "8388608")]).await;
    let admin = server.key(None, &["admin"]).await;
    // Two bytes for each value: the values take more than the bytes.
    let values = format!(r#"{{"tenant": "demo", "unknown": [0{}]}}"#, ",0".repeat(100_000));
    let text = json!({"tenant": "demo", "unknown": "a".repeat(3 * 1024 * 1024)}).to_string();
    for large in [values, text] {
        let refused = server.with_key(&admin, Method::POST, PATH).body(large).send().await.unwrap();
        assert_eq!(refusal(refused).await, (503, "memory_busy".to_owned()));
    }
    let too_large = server.operator(Method::POST, PATH).body(vec![b' '; 32 * 1024 * 1024 + 1]).send().await.unwrap();
    assert_eq!(refusal(too_large).await, (413, "body_too_large".to_owned()));
}

#[tokio::test]
async fn an_import_may_be_larger_than_other_bodies() {
    let server = TestServer::open().await;
    let article = json!({"id": 60, "title": "Lang", "content": "Wort ".repeat(1_000_000), "tags": []});
    let batch = json!({"tenant": "demo", "cerebro_articles": [article]});
    let answer = server.operator(Method::POST, PATH).json(&batch).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}
