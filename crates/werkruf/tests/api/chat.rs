//! Chat: event order, JSON responses, errors, cancellation.

use reqwest::Method;
use serde_json::json;
use werkruf_bench::fake_model::{Reply, call};

use crate::held_turn::HeldTurn;
use crate::support::{Stream, TestServer, body, refusal};

#[tokio::test]
async fn a_turn_with_one_tool_streams_in_order() {
    let server = TestServer::open().await;
    server
        .model
        .script(vec![Reply::calls(vec![call("test_echo", json!({"value": "tea"})).with_id("call_abc")]), Reply::text("Here is tea.")]);
    let stream = server.stream(3, json!({"message": "tea please", "unknown": 1})).await;
    let headers = stream.response.headers().clone();
    assert_eq!((&headers["cache-control"], &headers["x-accel-buffering"]), (&"no-cache".parse().unwrap(), &"no".parse().unwrap()));
    let events = stream.rest().await;
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).filter(|name| *name != "assistant_token").collect();
    assert_eq!(names, ["init", "tool_started", "tool_finished", "final"]);
    let numbered: Vec<i64> = events.iter().filter_map(|event| event.id).collect();
    assert_eq!(numbered, [1, 2, 3, 4]);
    assert!(events.iter().filter(|event| event.name == "assistant_token").all(|event| event.id.is_none()));
    let text: String = events.iter().filter_map(|event| event.data.get("content").and_then(|text| text.as_str())).collect();
    assert_eq!(text, "Here is tea.");

    let of = |name: &str| &events.iter().find(|event| event.name == name).unwrap().data;
    let (init, started, finished, last) = (of("init"), of("tool_started"), of("tool_finished"), of("final"));
    assert_eq!((&init["chatId"], &init["created"]), (&init["conversation_id"], &json!(true)));
    assert_eq!(headers["x-conversation-id"], init["conversation_id"].as_str().unwrap());
    assert_eq!((&started["tool"], &started["call_id"]), (&json!("test_echo"), &json!("call_abc")));
    assert_eq!(
        (&finished["job_id"], &finished["status"], &finished["cache_hit"]),
        (&started["job_id"], &json!("succeeded"), &json!(false))
    );
    assert_eq!(last["message"], json!({"role": "assistant", "content": "Here is tea."}));
    assert_eq!(last["tool_result"], json!({"value": "tea"}));
    assert_eq!(last["tool_results"][0]["job_id"], started["job_id"]);
    assert_eq!((&last["status"], &last["usage"]["model_calls"]), (&json!("completed"), &json!(2)));
}

/// Commits A, B, C and D, and nothing else. The number of writes per turn is guaranteed.
#[tokio::test]
async fn a_one_call_turn_is_four_commits_and_at_most_24_row_writes() {
    let server = TestServer::open().await;
    let conversation_id = server.conversation(3).await;
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]), Reply::text("Done.")]);
    let before = server.app.monitoring_store.counts();
    let answered = server
        .as_user(3, Method::POST, "/api/chat")
        .header("accept", "application/json")
        .header("idempotency-key", "counted")
        .json(&json!({"message": "once", "conversation_id": conversation_id}))
        .send()
        .await
        .unwrap();
    assert_eq!(answered.status(), 200);
    let after = server.app.monitoring_store.counts();
    // A commit in the same millisecond as the one before does not write the time of the conversation again.
    let (commits, writes) = (after.commits - before.commits, after.row_writes - before.row_writes);
    assert!(commits == 4 && (20..=24).contains(&writes), "{commits} commits, {writes} row writes");
}

#[tokio::test]
async fn the_json_response_equals_the_final_event_on_both_paths() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Hello Clara."), Reply::text("Again.")]);
    let first = server.chat(3, json!({"message": "hi"})).await;
    assert_eq!(first.status(), 200);
    let named = first.headers()["x-conversation-id"].to_str().unwrap().to_owned();
    let first = body(first).await;
    assert_eq!((&first["conversation_id"], &first["chatId"]), (&json!(named), &json!(named)));
    assert_eq!((&first["created"], &first["message"]["content"]), (&json!(true), &json!("Hello Clara.")));
    assert_eq!((&first["tool_result"], &first["tool_results"], &first["session_state"]), (&json!(null), &json!([]), &json!({})));
    let request = server.as_user(3, Method::POST, "/functions/v1/chat-rag").header("accept", "application/json");
    let second = body(request.json(&json!({"message": "more", "chatId": named})).send().await.unwrap()).await;
    assert_eq!((&second["conversation_id"], &second["created"]), (&json!(named), &json!(false)));
}

#[tokio::test]
async fn invalid_bodies_are_refused() {
    let server = TestServer::open().await;
    let send = async |bytes: Vec<u8>| server.as_user(3, Method::POST, "/api/chat").body(bytes).send().await.unwrap();
    let invalid = (400, "invalid_request".to_owned());
    for bytes in [&b""[..], b"not json", b"[]", br#"["hi"]"#, br#"{"message": 3}"#, br#"{"message": "  "}"#, b"{}"] {
        assert_eq!(refusal(send(bytes.to_vec()).await).await, invalid, "{}", String::from_utf8_lossy(bytes));
    }
    let large = format!(r#"{{"message": "{}"}}"#, "x".repeat(2 * 1024 * 1024));
    assert_eq!(refusal(send(large.into_bytes()).await).await, invalid);
    let unknown = server.chat(3, json!({"message": "x", "assistant": "nobody"})).await;
    assert_eq!(refusal(unknown).await, invalid);
    let nowhere = server.chat(3, json!({"message": "x", "conversation_id": "not-an-id"})).await;
    assert_eq!(refusal(nowhere).await, (404, "not_found".to_owned()));
    assert_eq!(server.model.requests().len(), 0, "the model got no request");
}

#[tokio::test]
async fn a_failed_turn_has_the_status_of_its_error() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::status(400).message("bad request")]);
    let failed = server.chat(3, json!({"message": "x"})).await;
    let status = failed.status().as_u16();
    assert!(failed.headers().contains_key("x-conversation-id"));
    let failed = body(failed).await;
    assert_eq!(failed["status"], "failed");
    assert!(failed["turn_id"].is_string());
    let expected = match failed["error"]["type"].as_str().unwrap() {
        "VALIDATION" => 400,
        "RATE_LIMIT" => 429,
        "UPSTREAM" => 502,
        "TIMEOUT" => 504,
        "FATAL" => 500,
        other => panic!("{other}"),
    };
    assert_eq!(status, expected, "{failed}");
    let turn = server.as_user(3, Method::GET, &format!("/api/turns/{}", failed["turn_id"].as_str().unwrap())).send().await.unwrap();
    let turn = body(turn).await;
    assert_eq!((&turn["status"], &turn["error"]["code"]), (&json!("failed"), &failed["error"]["code"]));
}

#[tokio::test]
async fn a_background_turn_is_read_at_its_location() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Done.")]);
    let accepted = server.chat(3, json!({"message": "x", "background": true})).await;
    assert_eq!(accepted.status(), 202);
    let location = accepted.headers()["location"].to_str().unwrap().to_owned();
    let accepted = body(accepted).await;
    assert_eq!(location, format!("/api/turns/{}", accepted["turn_id"].as_str().unwrap()));
    let events = format!("/api/conversations/{}/events", accepted["conversation_id"].as_str().unwrap());
    let mut live = Stream::new(server.as_user(3, Method::GET, &events).header("accept", "text/event-stream").send().await.unwrap());
    live.until("final").await;
    let turn = body(server.as_user(3, Method::GET, &location).send().await.unwrap()).await;
    assert_eq!((&turn["status"], &turn["message"]["content"]), (&json!("completed"), &json!("Done.")));
    let again = server.as_user(3, Method::POST, &format!("{location}/cancel")).send().await.unwrap();
    assert_eq!(refusal(again).await, (409, "already_finished".to_owned()));
}

#[tokio::test]
async fn a_canceled_turn_ends_with_canceled_as_stream_and_as_json() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("never").hang(), Reply::text("never").hang()]);
    let mut stream = server.stream(3, json!({"message": "x"})).await;
    let init = stream.next().await.unwrap();
    server.model.received(1).await;
    let cancel = async |turn: &str| {
        let response = server.as_user(3, Method::POST, &format!("/api/turns/{turn}/cancel")).send().await.unwrap();
        assert_eq!(response.status(), 202);
    };
    cancel(init.data["turn_id"].as_str().unwrap()).await;
    let last = stream.rest().await.pop().unwrap();
    assert_eq!((last.name.as_str(), &last.data["type"], &last.data["code"]), ("error", &json!("FATAL"), &json!("canceled")));

    let conversation = init.data["conversation_id"].as_str().unwrap().to_owned();
    let canceler = async {
        server.model.received(2).await;
        let events = body(server.as_user(3, Method::GET, &format!("/api/conversations/{conversation}/events")).send().await.unwrap()).await;
        let newest = events["events"].as_array().unwrap().iter().rev().find(|event| event["type"] == "init").unwrap();
        cancel(newest["turn_id"].as_str().unwrap()).await;
    };
    let (answer, ()) = tokio::join!(server.chat(3, json!({"message": "y", "conversation_id": conversation})), canceler);
    assert_eq!(answer.status(), 409);
    let answer = body(answer).await;
    assert_eq!((&answer["status"], &answer["error"]["code"]), (&json!("canceled"), &json!("canceled")));
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_cancel_the_turn() {
    let server = TestServer::open().await;
    let HeldTurn { gate, stream, init } = HeldTurn::start(&server, "Still here.").await;
    drop(stream);
    gate.open();
    let events = format!("/api/conversations/{}/events", init.data["conversation_id"].as_str().unwrap());
    let request = server.as_user(3, Method::GET, &events).header("last-event-id", init.id.unwrap());
    let mut resumed = Stream::new(request.send().await.unwrap());
    let rest = resumed.until("final").await;
    assert_eq!(rest.iter().filter_map(|event| event.id).collect::<Vec<_>>(), [2]);
    assert_eq!(rest.last().unwrap().data["message"]["content"], "Still here.");
}

#[tokio::test]
async fn the_prompt_has_the_example_of_a_function_that_the_assistant_has() {
    let server = TestServer::open_with("[[assistants]]\nname = 'narrow'\ntools = ['get_todos']\n").await;
    server.model.script(vec![Reply::text("One."), Reply::text("Two.")]);
    for request in [json!({"message": "x"}), json!({"message": "x", "assistant": "narrow"})] {
        assert_eq!(server.chat(3, request).await.status(), 200);
    }
    let example = "\n  Example: \"solicitudes abiertas de hoy\" → get_requests({ status: \"open\", dueDate: \"today\" })\n";
    let has_example: Vec<bool> =
        server.model.requests().iter().map(|request| request.messages()[0]["content"].as_str().unwrap().contains(example)).collect();
    assert_eq!(has_example, [true, false]);
}
