//! Rights that change while a turn or a call waits: what starts later goes by the rights of then, and the row of the call says so.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::held_turn::HeldTurn;
use crate::service::Service;
use crate::support::{TestServer, body};

async fn put(server: &TestServer, method: Method, path: &str, request: Value) {
    let answer = server.operator(method, &format!("/api/people/{path}")).json(&request).send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
}

async fn get(server: &TestServer, path: &str) -> Value {
    body(server.operator(Method::GET, path).send().await.unwrap()).await
}

/// The row once the condition holds.
async fn when(server: &TestServer, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
    loop {
        let row = get(server, path).await;
        if condition(&row) {
            return row;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_whose_rights_were_removed_during_its_approval_says_so() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::calls(vec![call("create_request", json!({"title": "Printer"}))]), Reply::text("done")]);
    let asked = body(server.chat(3, json!({"message": "A printer, please."})).await).await;
    let approval = format!("/api/approvals/{}", asked["approval_id"].as_str().unwrap());
    let job = get(&server, &approval).await["job_id"].as_str().unwrap().to_owned();
    let path = format!("/api/tool-calls/{job}");
    assert_eq!(get(&server, &path).await["permission"]["granted"], true, "when it was asked");

    put(&server, Method::PUT, "users/3/roles", json!({"role_ids": []})).await;
    let lead = server.key(Some(2), &["approve"]).await;
    let decided = server.with_key(&lead, Method::POST, &approval).json(&json!({"decision": "approve"})).send().await.unwrap();
    assert_eq!(decided.status(), 200);
    let row = when(&server, &path, |row| row["finished_at"].is_string()).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!("failed"), &json!("permission_denied")));
    let denied = json!({"needs": "table_requests:table:write", "granted": false, "role": null, "permission": null, "scope": null});
    assert_eq!(row["permission"], denied);
}

#[tokio::test]
async fn a_call_that_waits_behind_another_is_refused_after_its_user_was_deactivated() {
    let server = TestServer::open_with("[limits]\nparallel = 1\n").await;
    let calls = vec![call("test_sleep", json!({"ms": 60_000})), call("get_requests", json!({}))];
    server.model.script(vec![Reply::calls(calls), Reply::text("done")]);
    let mut stream = server.stream(3, json!({"message": "both"})).await;
    let first = stream.until("tool_started").await.pop().unwrap().data;
    put(&server, Method::DELETE, "users/3", json!({})).await;
    let cancel = format!("/api/tool-calls/{}/cancel", first["job_id"].as_str().unwrap());
    assert_eq!(server.operator(Method::POST, &cancel).send().await.unwrap().status(), 202);
    let turn = format!(
        "/api/turns/{}",
        get(&server, &format!("/api/tool-calls/{}", first["job_id"].as_str().unwrap())).await["turn_id"].as_str().unwrap()
    );
    when(&server, &turn, |row| row["finished_at"].is_string()).await;
    let rows = get(&server, "/api/tool-calls?order=desc&limit=2").await;
    let row = rows["tool_calls"].as_array().unwrap().iter().find(|row| row["tool_name"] == "get_requests").unwrap();
    let row = get(&server, &format!("/api/tool-calls/{}", row["id"].as_str().unwrap())).await;
    assert_eq!(
        (&row["status"], &row["error_code"], &row["permission"]["granted"]),
        (&json!("failed"), &json!("permission_denied"), &json!(false))
    );
}

#[tokio::test]
async fn a_turn_that_waits_does_not_start_for_a_user_who_was_deactivated() {
    let server = TestServer::open().await;
    let HeldTurn { gate, stream, init } = HeldTurn::start(&server, "First.").await;
    let mut second = server.stream(3, json!({"message": "and?", "conversation_id": init.data["conversation_id"]})).await;
    let second = second.next().await.unwrap().data["turn_id"].as_str().unwrap().to_owned();
    put(&server, Method::DELETE, "users/3", json!({})).await;
    gate.open();
    let row = when(&server, &format!("/api/turns/{second}"), |row| row["finished_at"].is_string()).await;
    assert_eq!((&row["status"], &row["error"]["code"]), (&json!("failed"), &json!("unknown_user")));
    assert_eq!(server.model.requests().len(), 1, "the model got no request for it");
    drop(stream);
}

#[tokio::test]
async fn a_result_is_not_reused_after_the_branch_or_a_role_of_the_user_changed() {
    let service = Service::start(&[("rates", json!({"rate": 1}))]).await;
    let server = TestServer::open_with(&service.tool("rates", "read", "reuse_s = 3600")).await;
    let received = async || {
        let request = server.as_user(3, Method::POST, "/api/tools/rates/invoke").json(&json!({"input": {}}));
        assert_eq!(body(request.send().await.unwrap()).await["status"], "ok");
        service.received("rates")
    };
    assert_eq!((received().await, received().await), (1, 1));
    put(&server, Method::PATCH, "users/3", json!({"branch_id": 2})).await;
    assert_eq!((received().await, received().await), (2, 2), "the service gets the branch");
    put(&server, Method::POST, "roles", json!({"id": 20, "name": "trader"})).await;
    put(&server, Method::PUT, "users/3/roles", json!({"role_ids": [3, 20]})).await;
    assert_eq!((received().await, received().await), (3, 3), "and the names of the roles");
}
