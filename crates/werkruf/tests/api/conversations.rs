//! Conversations, messages, state, events.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::held_turn::HeldTurn;
use crate::support::{Stream, TestServer, body, refusal};

#[tokio::test]
async fn lists_are_paged_both_ways() {
    let server = TestServer::open().await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(server.conversation(3).await);
    }
    server.conversation(4).await;
    let key = server.key(Some(3), &["read"]).await;
    let list =
        async |query: &str| body(server.with_key(&key, Method::GET, &format!("/api/conversations{query}")).send().await.unwrap()).await;
    let ids = |page: &Value| -> Vec<String> {
        page["conversations"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&list("").await), made);
    let first = list("?limit=2").await;
    assert_eq!((ids(&first), &first["next_after"]), (made[..2].to_vec(), &json!(made[1])));
    let second = list(&format!("?limit=2&after={}", made[1])).await;
    assert_eq!((ids(&second), &second["next_after"]), (made[2..].to_vec(), &json!(null)));
    assert_eq!(ids(&list("?order=desc&limit=1").await), made[2..]);
    for query in ["?limit=0", "?limit=1001", "?order=up", "?after=x", "?limit=1&limit=2"] {
        let response = server.with_key(&key, Method::GET, &format!("/api/conversations{query}")).send().await.unwrap();
        assert_eq!(refusal(response).await, (400, "invalid_request".to_owned()), "{query}");
    }
    let all = body(server.operator(Method::GET, "/api/conversations").send().await.unwrap()).await;
    assert_eq!(ids(&all).len(), 4);
    let four = body(server.operator(Method::GET, "/api/conversations?user_id=4").send().await.unwrap()).await;
    assert_eq!(ids(&four).len(), 1);
    let other = server.with_key(&key, Method::GET, "/api/conversations?user_id=4").send().await.unwrap();
    assert_eq!(refusal(other).await.0, 403);
}

#[tokio::test]
async fn messages_have_every_column_and_json_as_json() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1})).with_id("call_x")]), Reply::text("One.")]);
    let turn = body(server.chat(3, json!({"message": "one?"})).await).await;
    let path = format!("/api/conversations/{}/messages", turn["conversation_id"].as_str().unwrap());
    let page = body(server.as_user(3, Method::GET, &format!("{path}?format=native")).send().await.unwrap()).await;
    let messages = page["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(messages[1]["tool_calls"], json!([{"id": "call_x", "name": "test_echo", "args": {"value": 1}}]));
    assert_eq!((&messages[2]["tool_call_id"], &messages[2]["tool_name"]), (&json!("call_x"), &json!("test_echo")));
    assert_eq!((&messages[2]["status"], &messages[3]["content"]), (&json!("success"), &json!("One.")));
    for (at, message) in messages.iter().enumerate() {
        assert_eq!((&message["seq"], &message["turn_id"]), (&json!(at + 1), &turn["turn_id"]));
        assert!(message["metadata"].is_object());
        assert!(message["created_at"].as_str().unwrap().ends_with('Z'));
    }
    let other = server.as_user(3, Method::GET, &format!("{path}?format=xml")).send().await.unwrap();
    assert_eq!(refusal(other).await, (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn state_is_merged_and_null_deletes_a_key() {
    let server = TestServer::open().await;
    let id = server.conversation(3).await;
    let path = format!("/api/conversations/{id}/state");
    let patch = async |patch: Value| server.as_user(3, Method::PATCH, &path).json(&patch).send().await.unwrap();
    assert_eq!(body(patch(json!({"a": 1, "b": {"x": 1}})).await).await, json!({"a": 1, "b": {"x": 1}}));
    assert_eq!(body(patch(json!({"a": null, "b": {"y": 2}})).await).await, json!({"b": {"y": 2}}));
    assert_eq!(body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await, json!({"b": {"y": 2}}));
    assert_eq!(refusal(patch(json!([1])).await).await, (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn a_conversation_is_deleted_only_while_no_turn_runs() {
    let server = TestServer::open().await;
    let HeldTurn { gate, stream, init } = HeldTurn::start(&server, "x").await;
    let path = format!("/api/conversations/{}", init.data["conversation_id"].as_str().unwrap());
    let busy = server.as_user(3, Method::DELETE, &path).send().await.unwrap();
    assert_eq!(refusal(busy).await, (409, "turn_running".to_owned()));
    gate.open();
    stream.rest().await;
    assert_eq!(server.as_user(3, Method::DELETE, &path).send().await.unwrap().status(), 204);
    assert_eq!(refusal(server.as_user(3, Method::GET, &path).send().await.unwrap()).await.0, 404);
}

#[tokio::test]
async fn events_resume_at_every_position_without_gap_or_repeat() {
    let server = TestServer::open().await;
    let gate = Gate::before_head();
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]), Reply::text("Good day.").gate(gate.clone())]);
    let mut first = server.stream(3, json!({"message": "x"})).await;
    let init = first.next().await.unwrap();
    gate.reached().await;
    first.until("tool_finished").await;
    let path = format!("/api/conversations/{}/events", init.data["conversation_id"].as_str().unwrap());
    let mut streams = Vec::new();
    for after in 0..=3 {
        let request = server.as_user(3, Method::GET, &format!("{path}?after={after}")).header("accept", "text/event-stream");
        streams.push(Stream::new(request.send().await.unwrap()));
    }
    gate.open();
    for (after, stream) in (0..).zip(&mut streams) {
        let events = stream.until("final").await;
        let numbers: Vec<i64> = events.iter().filter_map(|event| event.id).collect();
        assert_eq!(numbers, (after + 1..=4).collect::<Vec<i64>>());
        let text: String =
            events.iter().filter(|event| event.name == "assistant_token").map(|event| event.data["content"].as_str().unwrap()).collect();
        assert_eq!(text, "Good day.");
    }
    let list = async |query: &str| server.as_user(3, Method::GET, &format!("{path}{query}")).send().await.unwrap();
    let page = body(list("?after=1&limit=2").await).await;
    let numbers: Vec<&Value> = page["events"].as_array().unwrap().iter().map(|event| &event["seq"]).collect();
    assert_eq!((numbers, &page["next_after"]), (vec![&json!(2), &json!(3)], &json!(3)));
    let last = body(list("?after=3").await).await;
    assert_eq!((&last["events"][0]["type"], &last["next_after"]), (&json!("final"), &json!(null)));
    assert_eq!(last["events"][0]["data"]["tool_result"], json!({"value": 1}), "results are joined when read");
    for bad in ["?after=x", "?after=-1"] {
        assert_eq!(refusal(list(bad).await).await, (400, "invalid_request".to_owned()));
    }
    let bad = server.as_user(3, Method::GET, &path).header("last-event-id", "seven").send().await.unwrap();
    assert_eq!(refusal(bad).await, (400, "invalid_request".to_owned()));
}
