//! Every wait has a deadline: for the model's first byte, between its chunks, for a tool, and for the whole turn.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};
use werkruf_contract::Deadline;

use crate::service::Service;
use crate::support::{TestServer, body};

/// Without the limit the turn would take minutes.
const EXPECTED: Duration = Duration::from_secs(15);

/// Runs a turn on a server with these limits; returns its status and response.
async fn turn(limits: &str, script: Vec<Reply>) -> (TestServer, u16, Value) {
    let server = TestServer::open_with(&format!("[limits]\n{limits}\n")).await;
    server.model.script(script);
    let deadline = Deadline::after(EXPECTED);
    let answer = server.chat(3, json!({"message": "hello"})).await;
    let status = answer.status().as_u16();
    let answer = body(answer).await;
    assert!(!deadline.passed(), "{limits} did not end it: {answer}");
    (server, status, answer)
}

#[tokio::test]
async fn a_model_that_does_not_answer_is_tried_three_times() {
    let script = (0..3).map(|_| Reply::text("never").hang()).collect();
    let (server, status, answer) = turn("model_first_byte_ms = 100", script).await;
    assert_eq!((status, &answer["error"]["code"], &answer["status"]), (502, &json!("model_unavailable"), &json!("failed")));
    assert_eq!(server.model.requests().len(), 3);
}

#[tokio::test]
async fn a_model_that_stops_in_the_middle_is_tried_three_times() {
    let script = (0..3).map(|_| Reply::text("one two").hang_mid_stream()).collect();
    let (server, status, answer) = turn("model_idle_ms = 100", script).await;
    assert_eq!((status, &answer["error"]["code"]), (502, &json!("model_incomplete")));
    assert_eq!(server.model.requests().len(), 3);
}

#[tokio::test]
async fn a_turn_out_of_time_gets_one_final_model_call() {
    let (server, status, answer) = turn("turn_ms = 300", vec![Reply::text("never").hang(), Reply::text("In short.")]).await;
    assert_eq!((status, &answer["message"]["content"]), (200, &json!("In short.")));
    assert_eq!(server.model.requests().len(), 2);
}

#[tokio::test]
async fn a_turn_out_of_time_without_a_final_answer_fails() {
    let (_server, status, answer) = turn("turn_ms = 300", vec![Reply::text("never").hang(), Reply::text("")]).await;
    assert_eq!((status, &answer["error"]["type"], &answer["error"]["code"]), (504, &json!("TIMEOUT"), &json!("turn_deadline")));
}

#[tokio::test]
async fn a_tool_exceeds_neither_its_own_deadline_nor_the_turns() {
    for limits in ["tool_ms = 150", "turn_ms = 400"] {
        let sleep = Reply::calls(vec![call("test_sleep", json!({"ms": 3_600_000}))]);
        let (_server, status, answer) = turn(limits, vec![sleep, Reply::text("Too slow.")]).await;
        assert_eq!((status, &answer["message"]["content"]), (200, &json!("Too slow.")), "{limits}");
        let result = &answer["tool_results"][0];
        assert_eq!((&result["status"], &result["error"]["code"]), (&json!("timeout"), &json!("tool_timeout")), "{limits}");
    }
}

#[tokio::test]
async fn a_call_does_not_wait_longer_for_its_service_than_it_may_run() {
    let busy = |ms: u64| json!({"status": "error", "error": {"type": "RATE_LIMIT", "code": "too_fast", "message": "Later.", "retry_after_ms": ms}});
    let service = Service::start(&[("long", busy(100_000)), ("own", busy(3_000)), ("short", busy(10))]).await;
    let tools = [service.tool("long", "read", ""), service.tool("own", "read", "timeout_ms = 2000"), service.tool("short", "read", "")];
    let server = TestServer::open_with(&tools.concat()).await;
    for (tool, ms, attempts) in [("long", 100_000, 1), ("own", 3_000, 1), ("short", 10, 3)] {
        let deadline = Deadline::after(EXPECTED);
        let called = server.as_user(3, Method::POST, &format!("/api/tools/{tool}/invoke")).json(&json!({"input": {}}));
        let output = body(called.send().await.unwrap()).await;
        assert!(!deadline.passed(), "{tool}: {output}");
        assert_eq!((&output["error"]["type"], &output["error"]["retry_after_ms"]), (&json!("RATE_LIMIT"), &json!(ms)), "{output}");
        assert_eq!(service.received(tool), attempts, "{tool}");
    }
}
