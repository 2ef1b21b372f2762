//! Chats without a language model: the tools propose the calls.

#[cfg(feature = "flights")]
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};
#[cfg(feature = "flights")]
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{TestServer, body};

async fn offline() -> TestServer {
    TestServer::open_in("", &[("WERKRUF_MODEL", "offline")]).await
}

/// Sends a message into a conversation; returns the answer.
async fn say(server: &TestServer, user: i64, conversation: &mut Value, message: &str) -> Value {
    let request = json!({"message": message, "conversation_id": conversation});
    let answer = body(server.chat(user, request).await).await;
    *conversation = answer["conversation_id"].clone();
    answer
}

#[cfg(feature = "flights")]
#[tokio::test]
async fn short_answers_complete_a_flight_search_in_the_language_of_the_conversation() {
    let server = offline().await;
    let day = (server.app.clock.now() + SignedDuration::from_hours(24 * 60)).to_string()[..10].to_owned();
    let mut chat = Value::Null;
    // Ana's own language is Spanish, and a code or a day alone shows no language.
    let first = say(&server, 1, &mut chat, "Ich möchte nach New York fliegen").await;
    assert_eq!(first["tool_result"]["missing"], json!(["origin", "depart_date", "cabin"]), "{first}");
    let german = |answer: &Value, word: &str| {
        let text = answer["message"]["content"].as_str().unwrap();
        assert!(text.contains(word), "{text}");
    };
    let second = say(&server, 1, &mut chat, "von Frankfurt").await;
    assert_eq!(second["tool_result"]["missing"], json!(["depart_date", "cabin"]), "{second}");
    let third = say(&server, 1, &mut chat, &day).await;
    assert_eq!(third["tool_result"]["missing"], json!(["cabin"]), "{third}");
    german(&third, "Klasse");
    let last = say(&server, 1, &mut chat, "Business").await;
    let found = &last["tool_result"];
    let request = &found["request"];
    let searched = [&request["origin"], &request["destination"], &request["depart_date"], &request["cabin"]];
    assert_eq!(searched, [&json!("FRA"), &json!("NYC"), &json!(day), &json!("BUSINESS")], "{last}");
    german(&last, "Meilen");
}

#[tokio::test]
async fn a_question_is_looked_up_in_the_documents() {
    let server = offline().await;
    let text = "Employees who travel by train may book first class for journeys of more than four hours.";
    let document = json!({"id": "travel", "title": "Travel policy", "text": text});
    let added = server.operator(Method::POST, "/api/knowledge/documents").json(&document).send().await.unwrap();
    assert_eq!(added.status(), 200);
    let answer = say(&server, 4, &mut Value::Null, "When may employees who travel by train book first class?").await;
    let call = &answer["tool_results"][0];
    assert_eq!((&call["tool"], &call["data"]["kind"]), (&json!("search_knowledge_base"), &json!("docs")), "{answer}");
    assert!(answer["message"]["content"].as_str().unwrap().contains("more than four hours"), "{answer}");
    // The tools of the office come first, and a greeting is no question.
    let requests = say(&server, 4, &mut Value::Null, "Which requests are open?").await;
    assert_eq!((&requests["tool_results"][0]["tool"], requests["tool_results"].as_array().unwrap().len()), (&json!("get_requests"), 1));
    assert_eq!(say(&server, 4, &mut Value::Null, "Hello there").await["tool_results"], json!([]));
}

#[tokio::test]
async fn a_question_without_an_answer_offers_no_web_search_and_says_what_can_be_asked() {
    let server = offline().await;
    let answer = say(&server, 4, &mut Value::Null, "How high is the Eiffel tower?").await;
    let data = &answer["tool_results"][0]["data"];
    assert_eq!((&data["kind"], data.get("suggested_tool")), (&json!("nothing"), None), "{answer}");
    let text = answer["message"]["content"].as_str().unwrap();
    assert!(!text.contains("web") && text.contains("I can look up: requests"), "{text}");
    assert_eq!(answer["session_state"].get("pending_gpt_query"), None);
}

#[cfg(feature = "flights")]
#[tokio::test]
async fn an_assistant_has_a_default_for_award_only() {
    let file = "[[assistants]]\nname = 'miles'\ndefaults = { search_flights = { award_only = true } }\n";
    let server = TestServer::open_with(file).await;
    let day = (server.app.clock.now() + SignedDuration::from_hours(24 * 60)).to_string()[..10].to_owned();
    let arguments = json!({"origin": "FRA", "destination": "JFK", "depart_date": day, "cabin": "BUSINESS"});
    let search = async |assistant: Option<&str>, mut more: Value| {
        let mut arguments = arguments.clone();
        arguments.as_object_mut().unwrap().append(more.as_object_mut().unwrap());
        server.model.script(vec![Reply::calls(vec![call("search_flights", arguments)])]);
        let answer = body(server.chat(4, json!({"message": "Flights, please", "assistant": assistant})).await).await;
        answer["tool_result"]["request"]["award_only"].clone()
    };
    assert_eq!(search(None, json!({})).await, false);
    assert_eq!(search(Some("miles"), json!({})).await, true);
    assert_eq!(search(Some("miles"), json!({"award_only": false})).await, false, "what the model says counts");
    let shown = &server.model.requests()[0].body["tools"];
    let tool = shown.as_array().unwrap().iter().find(|tool| tool["function"]["name"] == "search_flights").unwrap();
    let properties = &tool["function"]["parameters"]["properties"];
    assert_eq!((&properties["depart_date"]["format"], &properties["pax"]["maximum"]), (&json!("date"), &json!(9)), "{properties}");
}
