//! Tools that are polled: the same call several times in one turn.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::service::Service;
use crate::support::{TestServer, body};

/// A model that makes the same call until it has no tools any more. Returns how many requests the tool got, and the calls.
async fn poll(more: &str) -> (usize, Vec<Value>) {
    let service = Service::start(&[("job_status", json!({"state": "running"}))]).await;
    let server = TestServer::open_with(&service.tool("job_status", "read", more)).await;
    server.model.script_fn(|request| match request.tool_names().is_empty() {
        true => Reply::text("It still runs."),
        false => Reply::calls(vec![call("job_status", json!({"job": 7}))]),
    });
    let answer = body(server.chat(3, json!({"message": "Is it done?"})).await).await;
    assert_eq!(answer["message"]["content"], "It still runs.", "{answer}");
    (service.received("job_status"), answer["tool_results"].as_array().unwrap().clone())
}

fn outcomes(calls: &[Value]) -> Vec<(bool, Option<&str>)> {
    calls.iter().map(|call| (call["cache_hit"] == true, call["error"]["code"].as_str())).collect()
}

#[tokio::test]
async fn the_same_call_is_answered_from_the_turn_and_stopped_after_three() {
    let (requests, calls) = poll("").await;
    assert_eq!(requests, 1);
    assert_eq!(outcomes(&calls), [(false, None), (true, None), (true, None), (false, Some("repeat_limit"))]);
}

#[tokio::test]
async fn a_polled_tool_is_called_each_time_up_to_its_limit() {
    let (requests, calls) = poll("reuse_s = 0").await;
    assert_eq!(requests, 3);
    assert_eq!(outcomes(&calls), [(false, None), (false, None), (false, None), (false, Some("repeat_limit"))]);
    let (requests, calls) = poll("reuse_s = 0\nrepeat_limit = 7").await;
    assert_eq!((requests, calls.len()), (7, 8));
    assert_eq!(calls[7]["error"]["code"], "repeat_limit");
    assert!(calls[..7].iter().all(|call| call["status"] == "succeeded" && call["cache_hit"] == false));
}
