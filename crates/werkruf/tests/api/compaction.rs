//! Histories longer than the assistant's context: which messages are left out, how they are summarized, and what the summary
//! costs.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{TestServer, body};

const SUMMARY: &str = "[[assistants]]\nname = 'default'\ncontext_tokens = 100\ncompaction = 'summary'\n";
const TRIM: &str = "[[assistants]]\nname = 'default'\ncontext_tokens = 100\n";

/// A message of about forty tokens that begins with this name.
fn long(name: &str) -> String {
    format!("{name}{}", " tea".repeat(39))
}

async fn send(server: &TestServer, conversation: &Value, name: &str) -> Value {
    let request = match conversation {
        Value::Null => json!({"message": long(name)}),
        id => json!({"message": long(name), "conversation_id": id}),
    };
    body(server.chat(3, request).await).await
}

/// The first words of the messages in a model request, without the system prompt.
fn sent(server: &TestServer, request: usize) -> Vec<String> {
    let requests = server.model.requests();
    let messages = requests[request].body["messages"].as_array().unwrap().clone();
    messages[1..].iter().map(|m| m["content"].as_str().unwrap_or("").split(' ').next().unwrap().to_owned()).collect()
}

fn system(server: &TestServer, request: usize) -> String {
    server.model.requests()[request].body["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn messages_left_out_are_summarized_once_and_the_summary_is_extended() {
    let server = TestServer::open_with(SUMMARY).await;
    let texts = ["A1.", "A2.", "MEMORY: tea.", "A3.", "A4.", "MEMORY: more tea.", "A5."];
    server.model.script(texts.iter().map(|text| Reply::text(text)).collect());
    let first = send(&server, &Value::Null, "q1").await;
    let conversation = &first["conversation_id"];
    let mut answers = vec![first.clone()];
    for name in ["q2", "q3", "q4", "q5"] {
        answers.push(send(&server, conversation, name).await);
    }
    let answered: Vec<_> =
        answers.iter().map(|a| (a["message"]["content"].as_str().unwrap(), a["usage"]["model_calls"].as_u64().unwrap())).collect();
    assert_eq!(
        answered,
        [("A1.", 1), ("A2.", 1), ("A3.", 2), ("A4.", 1), ("A5.", 2)],
        "one more model call, which is counted, where messages were left out"
    );
    assert_eq!(answers[2]["usage"]["total_tokens"], 30);

    assert_eq!(sent(&server, 1), ["q1", "A1.", "q2"]);
    assert!(system(&server, 2).starts_with("You keep the memory"));
    let record = server.model.requests()[2].body["messages"][1]["content"].as_str().unwrap().to_owned();
    assert!(record.starts_with("Person: q1 tea") && record.contains("Assistant: A2.") && !record.contains("q3"), "{record}");
    assert_eq!(server.model.requests()[2].body.get("tools"), None);
    assert_eq!(sent(&server, 3), ["What", "MEMORY:", "q3"]);
    assert_eq!(sent(&server, 4), ["What", "MEMORY:", "q3", "A3.", "q4"], "the summary is reused in the next turn");
    let record = server.model.requests()[5].body["messages"][1]["content"].as_str().unwrap().to_owned();
    assert!(record.starts_with("Earlier summary: MEMORY: tea.\n\nPerson: q3 tea"), "{record}");
    assert_eq!(sent(&server, 6), ["What", "MEMORY:", "q5"]);

    let path = format!("/api/conversations/{}/messages", conversation.as_str().unwrap());
    let listed = body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await;
    let listed = listed["messages"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 10, "the summary is not a message of the conversation");
    assert_eq!((&listed[0]["tokens"], &listed[1]["tokens"]), (&json!(41), &json!(5)), "token counts are stored");
}

#[tokio::test]
async fn summaries_count_towards_budgets_beside_the_request_of_the_turn() {
    let server = TestServer::open_with(SUMMARY).await;
    for unit in ["model_calls", "tokens"] {
        let budget = json!({"scope": "tenant", "period": "day", "unit": unit, "limit": 10_000_000});
        assert_eq!(server.operator(Method::POST, "/api/budgets").json(&budget).send().await.unwrap().status(), 201);
    }
    let replies = ["A1.", "A2.", "MEMORY: tea.", "A3.", "A4."].map(Reply::text);
    // The second summary fails.
    server.model.script(replies.into_iter().chain([Reply::status(400), Reply::text("A5.")]).collect());
    let first = send(&server, &Value::Null, "q1").await;
    let mut answers = vec![first["message"]["content"].clone()];
    for name in ["q2", "q3", "q4", "q5"] {
        answers.push(send(&server, &first["conversation_id"], name).await["message"]["content"].take());
    }
    assert_eq!(answers, ["A1.", "A2.", "A3.", "A4.", "A5."]);
    let budgets = body(server.operator(Method::GET, "/api/budgets").send().await.unwrap()).await["budgets"].take();
    let budgets = budgets.as_array().unwrap();
    assert_eq!(budgets.iter().map(|budget| &budget["reserved"]).collect::<Vec<_>>(), [0, 0], "{budgets:?}");
    let calls = budgets.iter().find(|budget| budget["unit"] == "model_calls").unwrap();
    assert_eq!(calls["used"], 7, "{calls}");
}

#[tokio::test]
async fn a_failed_summary_leaves_a_trimmed_history() {
    let server = TestServer::open_with(SUMMARY).await;
    server.model.script(vec![Reply::text("A1."), Reply::text("A2."), Reply::status(400), Reply::text("A3.")]);
    let first = send(&server, &Value::Null, "q1").await;
    send(&server, &first["conversation_id"], "q2").await;
    let third = send(&server, &first["conversation_id"], "q3").await;
    assert_eq!((&third["message"]["content"], &third["usage"]["model_calls"]), (&json!("A3."), &json!(2)));
    assert_eq!(sent(&server, 3), ["q2", "A2.", "q3"]);
}

#[tokio::test]
async fn by_default_nothing_is_summarized_and_a_call_keeps_its_result() {
    let server = TestServer::open_with(TRIM).await;
    let calls = vec![call("test_echo", json!({"value": "x ".repeat(60)}))];
    server.model.script(vec![Reply::calls(calls).usage(10, 60), Reply::text("A1."), Reply::text("A2."), Reply::text("A3.")]);
    let first = send(&server, &Value::Null, "q1").await;
    let second = send(&server, &first["conversation_id"], "q2").await;
    assert_eq!(second["usage"]["model_calls"], 1);
    assert_eq!(sent(&server, 2), ["q2"], "the call and its result were left out together");
    send(&server, &first["conversation_id"], "q3").await;
    assert_eq!(sent(&server, 3), ["q2", "A2.", "q3"]);
}
