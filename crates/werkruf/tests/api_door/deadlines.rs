//! Every wait ends: for the model's first byte, between its pieces, for a tool, and for the turn as a whole.

use std::time::Duration;

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};
use werkruf_contract::Deadline;

use crate::support::{House, body};

/// Without the limit, whatever hangs here would hang for minutes.
const SOON: Duration = Duration::from_secs(15);

/// A turn in a house with these limits: its status and answer.
async fn turn(limits: &str, script: Vec<Reply>) -> (House, u16, Value) {
    let house = House::open_with(&format!("[limits]\n{limits}\n")).await;
    house.model.script(script);
    let soon = Deadline::after(SOON);
    let answer = house.chat(3, json!({"message": "hello"})).await;
    let status = answer.status().as_u16();
    let answer = body(answer).await;
    assert!(!soon.passed(), "{limits} did not end it: {answer}");
    (house, status, answer)
}

#[tokio::test]
async fn a_model_that_says_nothing_is_asked_three_times() {
    let script = (0..3).map(|_| Reply::text("never").hang()).collect();
    let (house, status, answer) = turn("model_first_byte_ms = 100", script).await;
    assert_eq!((status, &answer["error"]["code"], &answer["status"]), (502, &json!("model_unavailable"), &json!("failed")));
    assert_eq!(house.model.requests().len(), 3);
}

#[tokio::test]
async fn a_model_that_stops_in_the_middle_is_asked_three_times() {
    let script = (0..3).map(|_| Reply::text("one two").hang_mid_stream()).collect();
    let (house, status, answer) = turn("model_idle_ms = 100", script).await;
    assert_eq!((status, &answer["error"]["code"]), (502, &json!("model_incomplete")));
    assert_eq!(house.model.requests().len(), 3);
}

#[tokio::test]
async fn a_turn_out_of_time_has_a_last_word() {
    let (house, status, answer) = turn("turn_ms = 300", vec![Reply::text("never").hang(), Reply::text("In short.")]).await;
    assert_eq!((status, &answer["message"]["content"]), (200, &json!("In short.")));
    assert_eq!(house.model.requests().len(), 2);
}

#[tokio::test]
async fn a_turn_out_of_time_and_words_fails() {
    let (_house, status, answer) = turn("turn_ms = 300", vec![Reply::text("never").hang(), Reply::text("")]).await;
    assert_eq!((status, &answer["error"]["type"], &answer["error"]["code"]), (504, &json!("TIMEOUT"), &json!("turn_deadline")));
}

#[tokio::test]
async fn neither_a_tools_own_time_nor_the_turns_is_passed_by_a_tool() {
    for limits in ["tool_ms = 150", "turn_ms = 400"] {
        let sleep = Reply::calls(vec![call("test_sleep", json!({"ms": 3_600_000}))]);
        let (_house, status, answer) = turn(limits, vec![sleep, Reply::text("Too slow.")]).await;
        assert_eq!((status, &answer["message"]["content"]), (200, &json!("Too slow.")), "{limits}");
        let result = &answer["tool_results"][0];
        assert_eq!((&result["status"], &result["error"]["code"]), (&json!("timeout"), &json!("tool_timeout")), "{limits}");
    }
}
