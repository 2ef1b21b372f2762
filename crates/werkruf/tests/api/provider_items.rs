//! Calls that the provider runs itself: each is a row before its event is sent, and ends even if the model's response breaks.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::support::{Event, TestServer, body};

const FILE: &str = "[model]\napi = 'responses'\n";

fn search() -> Value {
    json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tea"}})
}

fn lookup() -> Value {
    json!({"type": "mcp_call", "id": "mcp_1", "name": "lookup", "server_label": "crm", "arguments": "{\"id\":7}", "output": "found",
        "error": null, "status": "completed"})
}

async fn rows(server: &TestServer, conversation: &Value) -> Vec<Value> {
    let path = format!("/api/tool-calls?conversation_id={}", conversation.as_str().unwrap());
    let listed = body(server.operator(Method::GET, &path).send().await.unwrap()).await;
    listed["tool_calls"].as_array().unwrap().clone()
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).filter(|name| *name != "assistant_token").collect()
}

/// A stream that begins to search and then breaks.
fn broken_search() -> Reply {
    let created = json!({"type": "response.created", "response": {"id": "resp_broken", "status": "in_progress"}});
    let added = json!({"type": "response.output_item.added", "output_index": 0,
        "item": {"type": "web_search_call", "id": "ws_0", "status": "in_progress"}});
    Reply::bytes("text/event-stream", format!("data: {created}\n\ndata: {added}\n\n"))
}

#[tokio::test]
async fn its_events_are_sent_while_it_runs_and_the_text_continues() {
    let server = TestServer::open_with(FILE).await;
    let gate = Gate::after(1);
    server.model.script(vec![Reply::text("Tea is hot.").runs(search()).runs(lookup()).gate(gate.clone())]);
    let mut stream = server.stream(3, json!({"message": "what is tea?"})).await;
    let init = stream.next().await.unwrap();
    let started = stream.next().await.unwrap();
    assert_eq!(
        (started.name.as_str(), &started.data["tool"], &started.data["call_id"]),
        ("tool_started", &json!("web_search_call"), &Value::Null)
    );
    assert!(started.id.is_some(), "it is a row");
    let conversation = &init.data["conversation_id"];
    let running = rows(&server, conversation).await;
    assert_eq!(running.len(), 1);
    assert_eq!(
        (&running[0]["status"], &running[0]["kind"], &running[0]["runner"], &running[0]["item_id"]),
        (&json!("running"), &json!("web_search"), &json!("provider"), &json!("ws_1"))
    );
    assert_eq!(running[0]["id"], started.data["job_id"]);
    gate.open();

    let rest = stream.until("final").await;
    assert_eq!(names(&rest), ["tool_finished", "tool_started", "tool_finished", "final"]);
    let text: String = rest.iter().filter(|e| e.name == "assistant_token").map(|e| e.data["content"].as_str().unwrap()).collect();
    assert_eq!(text, "Tea is hot.");
    let ended = rows(&server, conversation).await;
    let actual: Vec<_> = ended.iter().map(|row| (&row["status"], &row["output_index"], &row["step"], &row["attempt"])).collect();
    assert_eq!(actual, [(&json!("succeeded"), &json!(0), &json!(1), &json!(1)), (&json!("succeeded"), &json!(1), &json!(1), &json!(1))]);
    assert_eq!((&ended[0]["request"]["query"], &ended[1]["response"]), (&json!("tea"), &json!("found")));
    assert_eq!(ended[0]["response_id"], "resp_fake_1");
    assert_eq!(rest.last().unwrap().data["tool_results"], json!([]), "they are not calls of this server");
}

#[tokio::test]
async fn a_broken_response_keeps_its_step_and_the_next_gets_a_new_one() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![
        broken_search(),
        Reply::calls(vec![call("test_echo", json!({"value": "tea"}))]),
        Reply::text("Done.").runs(search()),
    ]);
    let mut stream = server.stream(3, json!({"message": "tea"})).await;
    let received = stream.until("final").await;
    let expected = ["init", "tool_started", "tool_finished", "tool_started", "tool_finished", "tool_started", "tool_finished", "final"];
    assert_eq!(names(&received), expected);
    assert_eq!((&received[2].data["tool"], &received[2].data["status"]), (&json!("web_search_call"), &json!("failed")));
    let rows = rows(&server, &received[0].data["conversation_id"]).await;
    let positions: Vec<_> =
        rows.iter().map(|row| (row["step"].as_u64().unwrap(), row["output_index"].as_u64().unwrap(), &row["status"])).collect();
    assert_eq!(positions, [(1, 0, &json!("failed")), (2, 0, &json!("succeeded")), (3, 0, &json!("succeeded"))]);
    assert_eq!(rows[0]["error_code"], "interrupted");
    assert_eq!([&rows[0]["runner"], &rows[1]["runner"], &rows[2]["runner"]], ["provider", "server", "provider"]);
    let path = format!("/api/turns/{}", received[0].data["turn_id"].as_str().unwrap());
    let turn = body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await;
    assert_eq!((&turn["status"], &turn["step"]), (&json!("completed"), &json!(3)));
    assert_eq!(received.last().unwrap().data["usage"]["model_calls"], 3);
}

#[tokio::test]
async fn it_ends_when_its_turn_is_canceled_or_fails() {
    let server = TestServer::open_with(FILE).await;
    server.model.script(vec![Reply::text("Never.").runs(search()).hang_mid_stream()]);
    let mut stream = server.stream(3, json!({"message": "tea"})).await;
    let received = stream.until("tool_started").await;
    let path = format!("/api/turns/{}/cancel", received[0].data["turn_id"].as_str().unwrap());
    assert_eq!(server.as_user(3, Method::POST, &path).send().await.unwrap().status(), 202);
    assert_eq!(names(&stream.rest().await), ["tool_finished", "error"]);
    let canceled = rows(&server, &received[0].data["conversation_id"]).await;
    assert_eq!((&canceled[0]["status"], canceled[0]["finished_at"].is_string()), (&json!("canceled"), true));

    server.model.script(vec![broken_search(), broken_search(), broken_search()]);
    let received = server.stream(3, json!({"message": "tea"})).await.rest().await;
    assert_eq!(received.last().unwrap().data["code"], "model_incomplete");
    let failed = rows(&server, &received[0].data["conversation_id"]).await;
    let actual: Vec<_> = failed.iter().map(|row| (row["step"].as_u64().unwrap(), &row["status"])).collect();
    assert_eq!(actual, [(1, &json!("failed")), (2, &json!("failed")), (3, &json!("failed"))]);
}
