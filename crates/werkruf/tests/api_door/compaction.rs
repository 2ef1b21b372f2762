//! HistoryImport longer than their assistant may send: what falls out, what the model is asked to remember of it, and what it costs.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{House, body};

const SUMMARY: &str = "[[assistants]]\nname = 'default'\ncontext_tokens = 100\ncompaction = 'summary'\n";
const TRIM: &str = "[[assistants]]\nname = 'default'\ncontext_tokens = 100\n";

/// About forty tokens, and whose they are.
fn long(name: &str) -> String {
    format!("{name}{}", " tea".repeat(39))
}

async fn say(house: &House, conversation: &Value, name: &str) -> Value {
    let request = match conversation {
        Value::Null => json!({"message": long(name)}),
        id => json!({"message": long(name), "conversation_id": id}),
    };
    body(house.chat(3, request).await).await
}

/// The beginnings of the messages of a request, without the system prompt.
fn sent(house: &House, request: usize) -> Vec<String> {
    let requests = house.model.requests();
    let messages = requests[request].body["messages"].as_array().unwrap().clone();
    messages[1..].iter().map(|m| m["content"].as_str().unwrap_or("").split(' ').next().unwrap().to_owned()).collect()
}

fn system(house: &House, request: usize) -> String {
    house.model.requests()[request].body["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_falls_out_is_summarised_once_and_then_extended() {
    let house = House::open_with(SUMMARY).await;
    let texts = ["A1.", "A2.", "MEMORY: tea.", "A3.", "A4.", "MEMORY: more tea.", "A5."];
    house.model.script(texts.iter().map(|text| Reply::text(text)).collect());
    let first = say(&house, &Value::Null, "q1").await;
    let conversation = &first["conversation_id"];
    let mut answers = vec![first.clone()];
    for name in ["q2", "q3", "q4", "q5"] {
        answers.push(say(&house, conversation, name).await);
    }
    let told: Vec<_> =
        answers.iter().map(|a| (a["message"]["content"].as_str().unwrap(), a["usage"]["model_calls"].as_u64().unwrap())).collect();
    assert_eq!(told, [("A1.", 1), ("A2.", 1), ("A3.", 2), ("A4.", 1), ("A5.", 2)], "one request more where more fell out, and paid for");
    assert_eq!(answers[2]["usage"]["total_tokens"], 30);

    assert_eq!(sent(&house, 1), ["q1", "A1.", "q2"]);
    assert!(system(&house, 2).starts_with("You keep the memory"));
    let record = house.model.requests()[2].body["messages"][1]["content"].as_str().unwrap().to_owned();
    assert!(record.starts_with("Person: q1 tea") && record.contains("Assistant: A2.") && !record.contains("q3"), "{record}");
    assert_eq!(house.model.requests()[2].body.get("tools"), None);
    assert_eq!(sent(&house, 3), ["What", "MEMORY:", "q3"]);
    assert_eq!(sent(&house, 4), ["What", "MEMORY:", "q3", "A3.", "q4"], "kept for the next turn");
    let record = house.model.requests()[5].body["messages"][1]["content"].as_str().unwrap().to_owned();
    assert!(record.starts_with("Earlier summary: MEMORY: tea.\n\nPerson: q3 tea"), "{record}");
    assert_eq!(sent(&house, 6), ["What", "MEMORY:", "q5"]);

    let path = format!("/api/conversations/{}/messages", conversation.as_str().unwrap());
    let listed = body(house.as_user(3, Method::GET, &path).send().await.unwrap()).await;
    let listed = listed["messages"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 10, "nothing of it is in the conversation");
    assert_eq!((&listed[0]["tokens"], &listed[1]["tokens"]), (&json!(41), &json!(5)), "what was counted is kept");
}

#[tokio::test]
async fn a_summary_that_cannot_be_had_leaves_a_trimmed_history() {
    let house = House::open_with(SUMMARY).await;
    house.model.script(vec![Reply::text("A1."), Reply::text("A2."), Reply::status(400), Reply::text("A3.")]);
    let first = say(&house, &Value::Null, "q1").await;
    say(&house, &first["conversation_id"], "q2").await;
    let third = say(&house, &first["conversation_id"], "q3").await;
    assert_eq!((&third["message"]["content"], &third["usage"]["model_calls"]), (&json!("A3."), &json!(2)));
    assert_eq!(sent(&house, 3), ["q2", "A2.", "q3"]);
}

#[tokio::test]
async fn by_default_nothing_is_asked_and_a_call_keeps_its_result() {
    let house = House::open_with(TRIM).await;
    let calls = vec![call("test_echo", json!({"value": "x ".repeat(60)}))];
    house.model.script(vec![Reply::calls(calls).usage(10, 60), Reply::text("A1."), Reply::text("A2."), Reply::text("A3.")]);
    let first = say(&house, &Value::Null, "q1").await;
    let second = say(&house, &first["conversation_id"], "q2").await;
    assert_eq!(second["usage"]["model_calls"], 1);
    assert_eq!(sent(&house, 2), ["q2"], "the call and its result fell out together");
    say(&house, &first["conversation_id"], "q3").await;
    assert_eq!(sent(&house, 3), ["q2", "A2.", "q3"]);
}
