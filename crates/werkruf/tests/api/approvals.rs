//! Approvals need a second person: whoever asked may deny, but not approve.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{TestServer, body, refusal};

/// A tool that a `lead` approves. Bernd (2) is one; Clara (3) is not.
const PAY: &str = "
[[tools]]
name = 'pay'
description = 'Pays.'
kind = 'http'
url = 'http://127.0.0.1:9/pay'
effect = 'once'
permission = 'none'
approval = 'lead'
parameters = '{\"type\": \"object\", \"properties\": {}}'
";

const CHAT: &str = "/api/chat";

/// Asks for a payment; returns the path of the approval.
async fn ask(server: &TestServer, request: RequestBuilder) -> String {
    server.model.script(vec![Reply::calls(vec![call("pay", json!({}))])]);
    let answer = body(request.header("accept", "application/json").json(&json!({"message": "Pay."})).send().await.unwrap()).await;
    format!("/api/approvals/{}", answer["approval_id"].as_str().unwrap())
}

async fn decide(request: RequestBuilder, decision: &str) -> Result<Value, (u16, String)> {
    let response = request.json(&json!({"decision": decision})).send().await.unwrap();
    if response.status() == 200 { Ok(body(response).await) } else { Err(refusal(response).await) }
}

fn refused(status: u16, code: &str) -> Result<Value, (u16, String)> {
    Err((status, code.to_owned()))
}

#[tokio::test]
async fn the_person_who_asked_may_deny_but_not_approve() {
    let server = TestServer::open_with(PAY).await;
    let (own, other) = (server.key(Some(2), &["chat"]).await, server.key(Some(2), &["chat", "approve"]).await);
    let path = ask(&server, server.with_key(&own, Method::POST, CHAT)).await;
    let four_eyes = refused(403, "four_eyes");
    assert_eq!(decide(server.with_key(&own, Method::POST, &path), "approve").await, four_eyes);
    assert_eq!(decide(server.with_key(&other, Method::POST, &path), "approve").await, four_eyes, "another key of the same person");
    assert_eq!(decide(server.as_user(2, Method::POST, &path), "approve").await, four_eyes, "the operator for the same person");
    let shown = body(server.with_key(&other, Method::GET, &path).send().await.unwrap()).await;
    assert_eq!((&shown["status"], &shown["asked_by"], &shown["decided_by"]), (&json!("pending"), &json!("2"), &json!(null)));
    let denied = decide(server.with_key(&own, Method::POST, &path), "deny").await.unwrap();
    assert_eq!((&denied["status"], &denied["decided_by"]), (&json!("denied"), &json!("2")));
    assert_eq!(denied["asked_key"], denied["decided_key"]);
}

#[tokio::test]
async fn a_credential_cannot_approve_for_one_person_what_it_asked_for_another() {
    let server = TestServer::open_with(PAY).await;
    let backend = server.key(None, &["chat", "act_as"]).await;
    let bernd = server.key(Some(2), &["approve"]).await;
    let path = ask(&server, server.with_key(&backend, Method::POST, CHAT).header("x-user-id", "3")).await;
    let four_eyes = refused(403, "four_eyes");
    let backend_as_bernd = |path: &str| server.with_key(&backend, Method::POST, path).header("x-user-id", "2");
    assert_eq!(decide(backend_as_bernd(&path), "approve").await, four_eyes);
    let approved = decide(server.with_key(&bernd, Method::POST, &path), "approve").await.unwrap();
    let keys = [&approved["asked_key"], &approved["decided_key"]].map(|key| key.as_str().unwrap().starts_with("key:"));
    assert_eq!((&approved["asked_by"], &approved["decided_by"], keys), (&json!("3"), &json!("2"), [true, true]));

    let path = ask(&server, server.as_user(3, Method::POST, CHAT)).await;
    assert_eq!(decide(server.as_user(2, Method::POST, &path), "approve").await, four_eyes, "the operator for somebody else");
    assert_eq!(decide(server.operator(Method::POST, &path), "approve").await, four_eyes, "the operator for nobody");
    let approved = decide(backend_as_bernd(&path), "approve").await.unwrap();
    assert_eq!((&approved["asked_key"], &approved["decided_by"]), (&json!("operator"), &json!("2")));
    assert_eq!(decide(server.operator(Method::POST, &path), "approve").await, refused(409, "already_decided"));
}

#[tokio::test]
async fn a_direct_call_and_its_retry_need_a_second_credential_too() {
    let server = TestServer::open_with(PAY).await;
    let bernd = server.key(Some(2), &["tools", "approve"]).await;
    let invoked = server.with_key(&bernd, Method::POST, "/api/tools/pay/invoke").json(&json!({"input": {}})).send().await.unwrap();
    assert_eq!(invoked.status(), 202);
    let waits = body(invoked).await;
    let path = format!("/api/approvals/{}", waits["approval_id"].as_str().unwrap());
    let four_eyes = refused(403, "four_eyes");
    assert_eq!(decide(server.with_key(&bernd, Method::POST, &path), "approve").await, four_eyes);
    assert!(decide(server.operator(Method::POST, &path), "deny").await.is_ok());
    let call = format!("/api/tool-calls/{}", waits["job_id"].as_str().unwrap());
    while body(server.operator(Method::GET, &call).send().await.unwrap()).await["status"] != "failed" {}
    let retried = server.operator(Method::POST, &format!("{call}/retry")).json(&json!({})).send().await.unwrap();
    assert_eq!(retried.status(), 202);
    let pending = body(server.operator(Method::GET, "/api/approvals?status=pending").send().await.unwrap()).await;
    let again = &pending["approvals"][0];
    assert_eq!((&again["asked_by"], &again["asked_key"]), (&json!("2"), &json!("operator")), "who retries has asked");
    let path = format!("/api/approvals/{}", again["id"].as_str().unwrap());
    assert_eq!(decide(server.operator(Method::POST, &path), "approve").await, four_eyes);
}

#[tokio::test]
async fn the_person_who_retried_a_call_of_somebody_else_cannot_approve_it_with_any_credential() {
    let server = TestServer::open_with(PAY).await;
    let path = ask(&server, server.as_user(3, Method::POST, CHAT)).await;
    let bernd = server.key(Some(2), &["approve"]).await;
    let job = decide(server.with_key(&bernd, Method::POST, &path), "deny").await.unwrap()["job_id"].as_str().unwrap().to_owned();
    let call = format!("/api/tool-calls/{job}");
    while body(server.operator(Method::GET, &call).send().await.unwrap()).await["status"] != "failed" {}
    let retried = server.as_user(2, Method::POST, &format!("{call}/retry")).json(&json!({})).send().await.unwrap();
    assert_eq!(retried.status(), 202, "{}", retried.text().await.unwrap());
    let pending = body(server.operator(Method::GET, "/api/approvals?status=pending").send().await.unwrap()).await;
    let again = &pending["approvals"][0];
    assert_eq!((&again["asked_by"], &again["retried_by"]), (&json!("3"), &json!("2")));
    let path = format!("/api/approvals/{}", again["id"].as_str().unwrap());
    assert_eq!(decide(server.with_key(&bernd, Method::POST, &path), "approve").await, refused(403, "four_eyes"));
}

#[tokio::test]
async fn a_rotated_key_is_the_same_credential() {
    let server = TestServer::open_with(PAY).await;
    let request = json!({"scopes": ["chat", "act_as", "admin"]});
    let old = body(server.operator(Method::POST, "/api/keys").json(&request).send().await.unwrap()).await;
    let ask_with = |key: &Value| server.with_key(key["key"].as_str().unwrap(), Method::POST, CHAT).header("x-user-id", "3");
    let path = ask(&server, ask_with(&old)).await;
    let mut newest = old.clone();
    for _ in 0..2 {
        let rotate = format!("/api/keys/{}/rotate", newest["id"].as_str().unwrap());
        newest = body(server.operator(Method::POST, &rotate).json(&json!({})).send().await.unwrap()).await;
        let as_bernd = server.with_key(newest["key"].as_str().unwrap(), Method::POST, &path).header("x-user-id", "2");
        assert_eq!(decide(as_bernd, "approve").await, refused(403, "four_eyes"));
    }
}

#[tokio::test]
async fn the_rule_can_be_switched_off() {
    let server = TestServer::open_with(&format!("[approvals]\nfour_eyes = false\n{PAY}")).await;
    let path = ask(&server, server.as_user(2, Method::POST, CHAT)).await;
    let approved = decide(server.as_user(2, Method::POST, &path), "approve").await.unwrap();
    assert_eq!((&approved["asked_key"], &approved["decided_key"]), (&json!("operator"), &json!("operator")));
}

#[tokio::test]
async fn scope_approve_decides_with_the_role_and_nothing_else() {
    let server = TestServer::open_with(PAY).await;
    let approver = server.key(Some(2), &["approve"]).await;
    let path = ask(&server, server.as_user(3, Method::POST, CHAT)).await;
    let forbidden = refused(403, "forbidden");
    for scopes in [&["tools"][..], &["read"]] {
        let key = server.key(Some(2), scopes).await;
        assert_eq!(decide(server.with_key(&key, Method::POST, &path), "approve").await, forbidden, "{scopes:?}");
    }
    let without_role = server.key(Some(4), &["approve"]).await;
    assert_eq!(decide(server.with_key(&without_role, Method::POST, &path), "approve").await, refused(404, "not_found"));
    let asker = server.key(Some(3), &["approve"]).await;
    assert_eq!(decide(server.with_key(&asker, Method::POST, &path), "approve").await, forbidden);
    let listed = body(server.with_key(&approver, Method::GET, "/api/approvals?status=pending").send().await.unwrap()).await;
    assert!(path.ends_with(listed["approvals"][0]["id"].as_str().unwrap()));
    for path in ["/api/conversations", "/api/tools"] {
        assert_eq!(refusal(server.with_key(&approver, Method::GET, path).send().await.unwrap()).await, (403, "forbidden".to_owned()));
    }
    let chat = server.with_key(&approver, Method::POST, CHAT).json(&json!({"message": "hello"})).send().await.unwrap();
    assert_eq!(refusal(chat).await, (403, "forbidden".to_owned()));
    assert_eq!(decide(server.with_key(&approver, Method::POST, &path), "approve").await.unwrap()["status"], "approved");
}

#[tokio::test]
async fn a_call_that_is_canceled_while_it_waits_is_canceled_and_not_interrupted() {
    let server = TestServer::open_with(PAY).await;
    let key = server.key(Some(3), &["chat", "tools", "read"]).await;
    let ended = async |call: &Value| {
        let path = format!("/api/tool-calls/{}", call.as_str().unwrap());
        loop {
            let row = body(server.with_key(&key, Method::GET, &path).send().await.unwrap()).await;
            if !row["finished_at"].is_null() {
                return [row["status"].clone(), row["error_type"].clone(), row["error_code"].clone(), row["attempt"].clone()];
            }
        }
    };
    let canceled = [json!("canceled"), json!("FATAL"), json!("canceled"), json!(0)];

    let path = ask(&server, server.with_key(&key, Method::POST, CHAT)).await;
    let approval = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
    let turn = format!("/api/turns/{}/cancel", approval["turn_id"].as_str().unwrap());
    assert_eq!(server.with_key(&key, Method::POST, &turn).send().await.unwrap().status(), 202);
    assert_eq!(ended(&approval["job_id"]).await, canceled, "the turn was canceled");

    let invoked = server.with_key(&key, Method::POST, "/api/tools/pay/invoke").json(&json!({"input": {}})).send().await.unwrap();
    let call = body(invoked).await["job_id"].clone();
    let path = format!("/api/tool-calls/{}/cancel", call.as_str().unwrap());
    assert_eq!(server.with_key(&key, Method::POST, &path).send().await.unwrap().status(), 202);
    assert_eq!(ended(&call).await, canceled, "the direct call was canceled");
}
