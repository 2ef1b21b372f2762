//! Calls that the provider runs only after an approval (`mcp_approval_request`): decided like calls of this server, and approved once.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, RecordedRequest, Reply, call};

use crate::support::{ADMIN, TestServer, body, refusal};

const FILE: &str = "[model]\napi = 'responses'\n[approvals]\nfour_eyes = false\n";
const ARGUMENTS: &str = "{\"amount\": 5}";

fn asks() -> Reply {
    Reply::asks("mcpr_1", "transfer", ARGUMENTS)
}

fn paid() -> Reply {
    Reply::text("Paid.").runs_approved("mcpr_1", "transfer", "paid 5")
}

async fn get(server: &TestServer, path: &str) -> Value {
    body(server.operator(Method::GET, path).send().await.unwrap()).await
}

/// Sends a message after which the turn waits; returns the answer.
async fn waits(server: &TestServer, request: Value) -> Value {
    let answered = server.chat(3, request).await;
    assert_eq!(answered.status(), 202);
    body(answered).await
}

async fn decide(server: &TestServer, approval: &Value, decision: &str) {
    let path = format!("/api/approvals/{}", approval.as_str().unwrap());
    let decided = server.operator(Method::POST, &path).json(&json!({"decision": decision})).send().await.unwrap();
    assert_eq!(decided.status(), 200, "{}", decided.text().await.unwrap());
}

/// The turn, once it has ended.
async fn ended(server: &TestServer, turn: &Value) -> Value {
    let path = format!("/api/turns/{}", turn.as_str().unwrap());
    loop {
        let turn = get(server, &path).await;
        if matches!(turn["status"].as_str(), Some("completed" | "failed" | "canceled")) {
            return turn;
        }
        tokio::task::yield_now().await;
    }
}

async fn rows(server: &TestServer, answer: &Value) -> Vec<Value> {
    let path = format!("/api/tool-calls?conversation_id={}", answer["conversation_id"].as_str().unwrap());
    get(server, &path).await["tool_calls"].as_array().unwrap().clone()
}

/// The only row of a conversation, once it has ended.
async fn ended_row(server: &TestServer, answer: &Value) -> Value {
    ended(server, &answer["turn_id"]).await;
    let rows = rows(server, answer).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0].clone()
}

/// Approves the call and waits until the approval has reached the provider, which does not answer yet.
async fn approval_out(server: &TestServer) -> (Value, Gate) {
    let gate = Gate::before_head();
    server.model.script(vec![asks(), paid().gate(gate.clone())]);
    let answer = waits(server, json!({"message": "Pay five."})).await;
    decide(server, &answer["approval_id"], "approve").await;
    gate.reached().await;
    (answer, gate)
}

/// A copy of the database: what a crash leaves.
async fn copied(server: &TestServer) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copy = json!({"path": folder.path().join("werkruf.db")});
    assert_eq!(server.operator(Method::POST, "/api/admin/backup").json(&copy).send().await.unwrap().status(), 200);
    folder
}

/// The items of this type in a request.
fn items<'a>(request: &'a RecordedRequest, kind: &str) -> Vec<&'a Value> {
    request.messages().iter().filter(|item| item["type"] == kind).collect()
}

/// How many requests had an approval.
fn approvals_sent(server: &TestServer) -> usize {
    let approves = |item: &Value| item["type"] == "mcp_approval_response" && item["approve"] == true;
    server.model.requests().iter().filter(|request| request.messages().iter().any(approves)).count()
}

/// What the history says instead of the request and its answer.
fn told(request: &RecordedRequest) -> (Value, Value) {
    let (calls, outputs) = (items(request, "function_call"), items(request, "function_call_output"));
    assert_eq!((calls.len(), outputs.len(), &calls[0]["call_id"]), (1, 1, &outputs[0]["call_id"]));
    assert!(items(request, "mcp_approval_request").is_empty() && items(request, "mcp_approval_response").is_empty());
    let output = outputs[0]["output"].as_str().unwrap();
    (calls[0]["name"].clone(), serde_json::from_str(output).unwrap_or_else(|_| json!(output)))
}

#[tokio::test]
async fn an_approved_call_is_run_by_the_provider_and_ends_its_row() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![asks(), paid(), Reply::text("You are welcome.")]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    assert_eq!(answer["status"], "awaiting_approval");
    let row = rows(&server, &answer).await[0].clone();
    let wire = [&row["kind"], &row["runner"], &row["item_id"], &row["call_id"], &row["response_id"], &row["tool_name"]];
    assert_eq!(wire, [&json!("mcp"), &json!("provider"), &json!("mcpr_1"), &json!(null), &json!("resp_fake_1"), &json!("transfer")]);
    let state = [&row["status"], &row["effect"], &row["request"], &row["raw_arguments"], &row["attempt"], &row["started_at"]];
    assert_eq!(state, [&json!("queued"), &json!("once"), &json!({"amount": 5}), &json!(ARGUMENTS), &json!(0), &json!(null)]);
    let approval = get(&server, "/api/approvals?status=pending").await["approvals"][0].clone();
    let asked = [&approval["id"], &approval["job_id"], &approval["tool"], &approval["arguments"], &approval["asked_by"]];
    assert_eq!(asked, [&answer["approval_id"], &row["id"], &json!("transfer"), &json!({"amount": 5}), &json!("3")]);
    assert_eq!((&approval["approver_roles"], &approval["server_label"]), (&json!(["admin"]), &json!("bank")));

    decide(&server, &answer["approval_id"], "approve").await;
    let turn = ended(&server, &answer["turn_id"]).await;
    assert_eq!((&turn["status"], &turn["message"]["content"]), (&json!("completed"), &json!("Paid.")));
    let row = ended_row(&server, &answer).await;
    assert_eq!((&row["status"], &row["response"], &row["attempt"]), (&json!("succeeded"), &json!("paid 5"), &json!(1)));
    assert_eq!((&row["item_id"], &row["response_id"]), (&json!("mcpr_1"), &json!("resp_fake_1")), "those of the request");
    assert!(row["started_at"].is_string() && row["finished_at"].is_string());
    let sent = server.model.requests()[1].messages().to_vec();
    let request =
        json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "transfer", "arguments": ARGUMENTS, "server_label": "bank"});
    let response = json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true});
    assert_eq!(sent[sent.len() - 2..], [request, response]);

    let explained = get(&server, &format!("/api/tool-calls/{}/explain", row["id"].as_str().unwrap())).await;
    assert_eq!((&explained["runner"], &explained["approval"]["status"]), (&json!("provider"), &json!("approved")));
    assert_eq!((&explained["model_answer"]["tool_calls"][0]["id"], &explained["outcome"]["data"]), (&json!("mcpr_1"), &json!("paid 5")));
    let names: Vec<&str> = explained["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names, ["approval_required", "tool_started", "tool_finished"]);
    assert_eq!(explained["events"][0]["data"]["server_label"], "bank", "{}", explained["events"][0]);

    let next = server.chat(3, json!({"message": "Thanks.", "conversation_id": answer["conversation_id"]})).await;
    assert_eq!(next.status(), 200);
    assert_eq!(told(&server.model.requests()[2]), (json!("transfer"), json!("paid 5")));
    assert_eq!(approvals_sent(&server), 1);
}

#[tokio::test]
async fn the_conversation_continues_while_the_call_waits_and_the_rules_for_approvals_hold() {
    let file = "[model]\napi = 'responses'\n[approvals]\nprovider_role = 'lead'\n";
    let server = TestServer::open_with(file).await;
    server.model.script(vec![asks(), Reply::text("Still waiting."), paid()]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    let later = server.chat(3, json!({"message": "And?", "conversation_id": answer["conversation_id"]})).await;
    assert_eq!(later.status(), 200);
    let (name, placeholder) = told(&server.model.requests()[1]);
    assert_eq!((name, &placeholder["status"]), (json!("transfer"), &json!("waiting for approval")));

    let path = format!("/api/approvals/{}", answer["approval_id"].as_str().unwrap());
    let approve = json!({"decision": "approve"});
    let own = server.as_user(2, Method::POST, &path).json(&approve).send().await.unwrap();
    assert_eq!(refusal(own).await, (403, "four_eyes".to_owned()), "the credential that asked");
    let (guest, lead) = (server.key(Some(4), &["approve"]).await, server.key(Some(2), &["approve"]).await);
    let stranger = server.with_key(&guest, Method::POST, &path).json(&approve).send().await.unwrap();
    assert_eq!(refusal(stranger).await, (404, "not_found".to_owned()));
    assert_eq!(server.with_key(&lead, Method::POST, &path).json(&approve).send().await.unwrap().status(), 200);
    assert_eq!(ended_row(&server, &answer).await["status"], "succeeded");
    assert_eq!(approvals_sent(&server), 1);
}

#[tokio::test]
async fn a_denied_call_is_denied_at_the_provider() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![asks(), Reply::text("I did not pay."), Reply::text("No.")]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    decide(&server, &answer["approval_id"], "deny").await;
    let row = ended_row(&server, &answer).await;
    assert_eq!((&row["status"], &row["error_code"], &row["attempt"]), (&json!("failed"), &json!("approval_denied"), &json!(0)));
    let sent = server.model.requests()[1].clone();
    let response = items(&sent, "mcp_approval_response")[0];
    assert_eq!((&response["approval_request_id"], &response["approve"]), (&json!("mcpr_1"), &json!(false)));
    assert_eq!(response["reason"], row["error"]);
    let next = server.chat(3, json!({"message": "Really?", "conversation_id": answer["conversation_id"]})).await;
    assert_eq!(next.status(), 200);
    assert_eq!(told(&server.model.requests()[2]).1["error"]["code"], "approval_denied");
}

#[tokio::test]
async fn a_call_that_the_provider_does_not_run_or_reports_as_failed_has_failed() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![asks(), Reply::text("I forgot."), Reply::text("Sorry.")]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    decide(&server, &answer["approval_id"], "approve").await;
    let row = ended_row(&server, &answer).await;
    assert_eq!(
        (&row["status"], &row["error_code"], &row["error_type"]),
        (&json!("failed"), &json!("provider_call_not_run"), &json!("UPSTREAM"))
    );
    server.chat(3, json!({"message": "And?", "conversation_id": answer["conversation_id"]})).await;
    assert_eq!(told(&server.model.requests()[2]).1["error"]["code"], "provider_call_not_run");

    let error = |kind: &str, code: u32| json!({"type": kind, "code": code, "message": "down"});
    for (status, error, finish, code) in [
        ("failed", error("mcp_tool_execution_error", 0), "stop", "provider_call_failed"),
        ("failed", error("http_error", 403), "stop", "provider_call_failed"),
        ("failed", error("http_error", 500), "stop", "outcome_unknown"),
        ("failed", error("mcp_protocol_error", 0), "stop", "outcome_unknown"),
        ("in_progress", Value::Null, "length", "outcome_unknown"),
        ("incomplete", Value::Null, "length", "outcome_unknown"),
    ] {
        let item = json!({"type": "mcp_call", "id": "mcp_1", "name": "transfer", "server_label": "bank", "arguments": ARGUMENTS, "output": null,
            "status": status, "error": error, "approval_request_id": "mcpr_1"});
        server.model.script(vec![asks(), Reply::text("It failed.").runs(item).finish(finish)]);
        let answer = waits(&server, json!({"message": "Pay five."})).await;
        decide(&server, &answer["approval_id"], "approve").await;
        let row = ended_row(&server, &answer).await;
        assert_eq!((&row["status"], &row["error_code"]), (&json!("failed"), &json!(code)), "{status} {error}");
    }
}

#[tokio::test]
async fn what_the_provider_returned_taints_the_turn_although_its_answer_was_lost() {
    let server = TestServer::open_with(FILE).await;
    let once = Reply::calls(vec![call("create_request", json!({"title": "Pay again"}))]);
    server.model.script(vec![asks(), paid().cut_before_finish(), once]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    decide(&server, &answer["approval_id"], "approve").await;
    let made = loop {
        if let Some(row) = rows(&server, &answer).await.iter().find(|row| row["tool_name"] == "create_request") {
            break row.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(made["taint"][0]["tool"], "transfer", "{made}");
}

#[tokio::test]
async fn a_safety_mode_that_is_gone_allows_nothing_when_the_call_would_leave() {
    let server = TestServer::open_with(&format!("{FILE}[safety.strict]\ntools_denied = []\n")).await;
    server.model.script(vec![asks(), Reply::text("Not allowed.")]);
    let request = server.as_user(3, Method::POST, "/api/chat").header("accept", "application/json").header("x-safety-mode", "strict");
    let answer = body(request.json(&json!({"message": "Pay five."})).send().await.unwrap()).await;
    let path = server.folder.path().join("werkruf.toml");
    let file = std::fs::read_to_string(&path).unwrap().replace("[safety.strict]", "[safety.other]");
    std::fs::write(&path, file).unwrap();
    let reloaded = server.operator(Method::POST, "/api/admin/reload").send().await.unwrap();
    assert_eq!(body(reloaded).await, json!({"reloaded": true}));
    decide(&server, &answer["approval_id"], "approve").await;
    let row = ended_row(&server, &answer).await;
    assert_eq!((&row["error_code"], approvals_sent(&server)), (&json!("permission_denied"), 0));
}

#[tokio::test]
async fn an_approval_is_sent_again_only_if_the_provider_rejected_it() {
    for (lost, sent, code) in [
        (Reply::status(429).retry_after(0), 2, None),
        (Reply::status(503), 1, Some("outcome_unknown")),
        (paid().cut_before_finish(), 1, None),
        (paid().cut_after(300), 1, Some("outcome_unknown")),
        (Reply::bytes("text/event-stream", ""), 1, Some("outcome_unknown")),
    ] {
        let server = TestServer::open_with(FILE).await;
        let shown = format!("{lost:?}");
        server.model.script(vec![asks(), lost, if sent == 2 { paid() } else { Reply::text("Done?") }]);
        let answer = waits(&server, json!({"message": "Pay five."})).await;
        decide(&server, &answer["approval_id"], "approve").await;
        assert_eq!(ended(&server, &answer["turn_id"]).await["status"], "completed", "{shown}");
        let row = ended_row(&server, &answer).await;
        assert_eq!((row["error_code"].as_str(), approvals_sent(&server)), (code, sent), "{shown}");
        assert_eq!((&row["attempt"], server.model.requests().len()), (&json!(1), 3), "{shown}");
        if sent == 1 {
            let (_, told) = told(&server.model.requests()[2]);
            assert_eq!((told["error"]["code"].as_str(), told.as_str()), (code, code.is_none().then_some("paid 5")), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_rejected_request_leaves_the_call_unrun_and_the_conversation_usable() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![asks(), Reply::status(400), Reply::text("Hello.")]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    decide(&server, &answer["approval_id"], "approve").await;
    assert_eq!(ended(&server, &answer["turn_id"]).await["error"]["code"], "model_refused");
    let row = ended_row(&server, &answer).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!("failed"), &json!("provider_call_not_run")));
    let next = server.chat(3, json!({"message": "hi", "conversation_id": answer["conversation_id"]})).await;
    assert_eq!(next.status(), 200);
    assert_eq!(approvals_sent(&server), 1);
}

#[tokio::test]
async fn a_canceled_turn_does_not_know_what_its_approval_did() {
    let server = TestServer::open_with(FILE).await;
    let (answer, _gate) = approval_out(&server).await;
    assert_eq!(rows(&server, &answer).await[0]["status"], "running", "before the approval left");
    let path = format!("/api/turns/{}/cancel", answer["turn_id"].as_str().unwrap());
    assert_eq!(server.as_user(3, Method::POST, &path).send().await.unwrap().status(), 202);
    let row = ended_row(&server, &answer).await;
    assert_eq!((&row["status"], &row["error_code"]), (&json!("canceled"), &json!("outcome_unknown")));
}

#[tokio::test]
async fn the_provider_learns_all_decisions_of_an_answer_at_once() {
    let server = TestServer::open_with(FILE).await;
    let own = Reply::calls(vec![call("test_echo", json!({"value": "tea"}))]);
    let first = own.and_asks("mcpr_1", "transfer", ARGUMENTS).and_asks("mcpr_2", "refund", "").and_asks("mcpr_3", "refund", "{broken");
    server.model.script(vec![first, paid()]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    let pending = get(&server, "/api/approvals?status=pending").await["approvals"].clone();
    assert_eq!((&pending[1]["tool"], &pending[1]["arguments"], &pending[2]), (&json!("refund"), &json!({}), &json!(null)));
    decide(&server, &pending[0]["id"], "approve").await;
    let waiting: Vec<Value> = rows(&server, &answer).await.iter().map(|row| row["status"].clone()).collect();
    assert_eq!((waiting, server.model.requests().len()), (["queued", "queued", "failed", "succeeded"].map(Value::from).to_vec(), 1));
    decide(&server, &pending[1]["id"], "deny").await;
    ended(&server, &answer["turn_id"]).await;
    let sent = server.model.requests()[1].clone();
    let decisions: Vec<_> = items(&sent, "mcp_approval_response").iter().map(|item| item["approve"].clone()).collect();
    assert_eq!((decisions, items(&sent, "function_call_output").len()), (vec![json!(true), json!(false)], 2));
    let codes: Vec<_> = rows(&server, &answer).await.iter().map(|row| (row["status"].clone(), row["error_code"].clone())).collect();
    let done = |code: Value| (json!(if code.is_null() { "succeeded" } else { "failed" }), code);
    assert_eq!(codes, [done(json!(null)), done(json!("approval_denied")), done(json!("invalid_arguments")), done(json!(null))]);
}

#[tokio::test]
async fn a_process_that_takes_over_does_not_send_the_approval_again() {
    let server = TestServer::open_with(FILE).await;
    let (answer, _gate) = approval_out(&server).await;
    let folder = copied(&server).await;
    let file = std::fs::read_to_string(server.folder.path().join("werkruf.toml")).unwrap();
    let next = TestServer::open_as_written(&file, &[], folder).await;
    next.model.script(vec![Reply::text("I do not know.")]);
    next.app.runtime.recover().await.unwrap();
    let row = ended_row(&next, &answer).await;
    assert_eq!((&row["status"], &row["error_code"], &row["attempt"]), (&json!("failed"), &json!("outcome_unknown"), &json!(1)));
    assert_eq!((next.model.requests().len(), approvals_sent(&next)), (1, 0));
    assert_eq!(told(&next.model.requests()[0]).1["error"]["code"], "outcome_unknown");
}

#[tokio::test]
async fn an_approval_for_another_api_is_not_delivered() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![asks()]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    let folder = copied(&server).await;
    let next = TestServer::open_in_folder("[approvals]\nfour_eyes = false\n", &[], folder).await;
    next.model.script(vec![Reply::text("It was not run.")]);
    decide(&next, &answer["approval_id"], "approve").await;
    let row = ended_row(&next, &answer).await;
    assert_eq!((&row["status"], &row["error_code"], &row["attempt"]), (&json!("failed"), &json!("provider_call_not_run"), &json!(0)));
    let sent = next.model.requests()[0].messages().to_vec();
    let [.., call, result] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((&call["tool_calls"][0]["function"]["name"], &result["tool_call_id"]), (&json!("transfer"), &json!("mcpr_1")));
    assert!(result["content"].as_str().unwrap().contains("provider_call_not_run"), "{result}");
}

#[tokio::test]
async fn secrets_in_arguments_are_redacted() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![Reply::asks("mcpr_1", "transfer", &json!({"key": ADMIN}).to_string())]);
    let answer = waits(&server, json!({"message": "Pay five."})).await;
    let messages = format!("/api/conversations/{}/messages", answer["conversation_id"].as_str().unwrap());
    let shown = [get(&server, "/api/approvals").await, json!(rows(&server, &answer).await), get(&server, &messages).await];
    let shown = shown.map(|shown| shown.to_string());
    assert!(shown.iter().all(|text| text.contains("[redacted]") && !text.contains(ADMIN)), "{shown:?}");
}
