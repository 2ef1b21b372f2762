//! Chats without a language model: the tools propose the calls.

use jiff::SignedDuration;
use serde_json::{Value, json};
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
    let third = say(&server, 1, &mut chat, &format!("{day}")).await;
    assert_eq!(third["tool_result"]["missing"], json!(["cabin"]), "{third}");
    german(&third, "Klasse");
    let last = say(&server, 1, &mut chat, "Business").await;
    let found = &last["tool_result"];
    let request = &found["request"];
    let searched = [&request["origin"], &request["destination"], &request["depart_date"], &request["cabin"]];
    assert_eq!(searched, [&json!("FRA"), &json!("NYC"), &json!(day), &json!("BUSINESS")], "{last}");
    german(&last, "Meilen");
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
