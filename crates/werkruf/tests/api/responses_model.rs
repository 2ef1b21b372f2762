//! Turns with a model server of the Responses API: its requests, its responses, and the stored ids.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Api, Reply, call};

use crate::support::{TestServer, body};

const FILE: &str = "[model]\napi = 'responses'\nheaders = { X-Team = 'support-team' }\n";

#[tokio::test]
async fn a_turn_with_two_parallel_tools_keeps_every_id() {
    let server = TestServer::open_with(FILE).await;
    let calls = vec![call("test_echo", json!({"value": "tea"})), call("test_echo", json!({"value": "milk"}))];
    server.model.script(vec![Reply::calls(calls).with_text("I look.").thinks("sealed"), Reply::text("Tea with milk.")]);
    let answered = body(server.chat(3, json!({"message": "tea please"})).await).await;
    assert_eq!(answered["message"]["content"], "Tea with milk.");
    assert_eq!(answered["usage"]["total_tokens"], 30, "{answered}");

    let requests = server.model.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request.api == Api::Responses && request.headers["x-team"] == "support-team"));
    assert_eq!((requests[0].user_text(), &requests[0].body["store"]), ("tea please", &json!(false)));
    assert!(requests[0].body["instructions"].as_str().is_some_and(|prompt| !prompt.is_empty()));
    let outputs: Vec<&Value> = requests[1].tool_results().into_iter().map(|output| &output["call_id"]).collect();
    assert_eq!(outputs, ["call_1", "call_2"]);

    let path = format!("/api/tool-calls?conversation_id={}", answered["conversation_id"].as_str().unwrap());
    let rows = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
    let ids: Vec<(&Value, &Value)> = rows["tool_calls"].as_array().unwrap().iter().map(|row| (&row["call_id"], &row["item_id"])).collect();
    assert_eq!(ids, [(&json!("call_1"), &json!("fc_fake_1_2")), (&json!("call_2"), &json!("fc_fake_1_3"))]);
}

#[tokio::test]
async fn a_response_cut_inside_a_call_runs_nothing() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": "tea"}))]).finish("length")]);
    let answered = body(server.chat(3, json!({"message": "tea please"})).await).await;
    assert_eq!(answered["error"]["code"], "model_incomplete", "{answered}");
    let rows = body(server.operator(Method::GET, "/api/tool-calls").send().await.unwrap()).await;
    assert_eq!(rows["tool_calls"], json!([]));
}
