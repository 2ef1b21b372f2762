//! What an answer refers to: from both upstream APIs to both APIs here, live, resumed and stored.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::{CLARA, answer, chunks, completion, message, own_tool, user};
use crate::responses::client::{answered, get, numbered, resumed, streamed};
use crate::responses::schema::check_event;
use crate::support::{TestServer, body};

const UPSTREAM: [&str; 2] = ["", "[model]\napi = 'responses'\n"];

fn citation(url: &str, start: u64, end: u64) -> Value {
    json!({"type": "url_citation", "url": url, "title": "A page", "start_index": start, "end_index": end})
}

/// The same as Chat Completions writes it.
fn nested(url: &str, start: u64, end: u64) -> Value {
    json!({"type": "url_citation", "url_citation": {"url": url, "title": "A page", "start_index": start, "end_index": end}})
}

fn file() -> Value {
    json!({"type": "file_citation", "file_id": "file_1", "filename": "a.pdf", "index": 3})
}

/// Two steps with text, a tool of the server between them.
fn script(server: &TestServer) {
    server.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("Früh: ").cites(citation("https://e.org/a", 0, 4)),
        Reply::text("so ist es.")
            .cites(citation("http://e.org/b", 3, 6))
            .cites(citation("javascript:alert(1)", 0, 2))
            .cites(file())
            .cites(citation("https://e.org/c", 7, 99)),
    ]);
}

#[tokio::test]
async fn each_message_of_a_response_has_its_annotations() {
    for upstream in UPSTREAM {
        let server = TestServer::open_in(upstream, &[]).await;
        script(&server);
        let events = numbered(streamed(&server, json!({"input": "Wie ist es?"})).await.rest().await, 0);
        events.iter().for_each(check_event);
        let end = &events.last().unwrap()["response"];
        let annotations = |item: usize| &end["output"][item]["content"][0]["annotations"];
        assert_eq!(annotations(0), &json!([citation("https://e.org/a", 0, 4)]), "{upstream}");
        let of_last = json!([citation("http://e.org/b", 3, 6), file(), citation("https://e.org/c", 7, 10)]);
        assert_eq!(annotations(1), &of_last, "addresses of the web only, and positions inside the text");
        let added: Vec<Value> = events
            .iter()
            .filter(|event| event["type"] == "response.output_text.annotation.added")
            .map(|event| {
                json!([event["output_index"], event["content_index"], event["annotation_index"], event["annotation"], event["item_id"]])
            })
            .collect();
        let id = |item: usize| end["output"][item]["id"].clone();
        let expected = [
            json!([0, 0, 0, annotations(0)[0], id(0)]),
            json!([1, 0, 0, of_last[0], id(1)]),
            json!([1, 0, 1, of_last[1], id(1)]),
            json!([1, 0, 2, of_last[2], id(1)]),
        ];
        assert_eq!(added, expected);
        let id = end["id"].as_str().unwrap();
        assert_eq!(&body(get(&server, CLARA, id).await).await, end, "the retrieved response is the same");
        for after in 0..events.len() as u64 {
            let rest = numbered(resumed(&server, id, after).await.rest().await, after + 1);
            assert_eq!(rest, events[after as usize + 1..], "after {after}");
        }
        // The items of the conversation, and a later turn.
        let conversation = end["conversation"]["id"].as_str().unwrap();
        let path = format!("/v1/conversations/{conversation}/items?order=asc");
        let items = body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await;
        let texts: Vec<&Value> = items["data"].as_array().unwrap().iter().filter(|item| item["role"] == "assistant").collect();
        assert_eq!(texts.len(), 2, "{items}");
        assert_eq!((&texts[0]["content"][0]["annotations"], &texts[1]["content"][0]["annotations"]), (annotations(0), &of_last));
        server.model.script(vec![Reply::text("Ja.")]);
        let next = answered(&server, json!({"input": "Wirklich?", "previous_response_id": id})).await;
        assert_eq!(next["output"][0]["content"][0]["annotations"], json!([]));
    }
}

#[tokio::test]
async fn a_completion_counts_positions_in_the_text_of_all_steps() {
    for upstream in UPSTREAM {
        let server = TestServer::open_in(upstream, &[]).await;
        // "Früh: " has six characters. Chat Completions knows no citations of files.
        let expected = json!([nested("https://e.org/a", 0, 4), nested("http://e.org/b", 9, 12), nested("https://e.org/c", 13, 16)]);
        script(&server);
        let (whole, _) = answer(&server, json!({"messages": [user("Wie ist es?")], "store": true})).await;
        assert_eq!((&message(&whole)["content"], &message(&whole)["annotations"]), (&json!("Früh: so ist es."), &expected), "{upstream}");
        let path = format!("/v1/chat/completions/{}", whole["id"].as_str().unwrap());
        let stored = body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await;
        assert_eq!(stored["choices"], whole["choices"], "the stored completion is the same");
        script(&server);
        let request = json!({"messages": [user("Und jetzt?")], "stream": true});
        let stream = chunks(completion(&server).json(&request).send().await.unwrap()).await;
        let of_deltas = stream.chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["annotations"].as_array()).flatten();
        assert_eq!((stream.text.as_str(), Value::from_iter(of_deltas.cloned())), ("Früh: so ist es.", expected));
        assert!(stream.done);
    }
}

#[tokio::test]
async fn only_the_annotations_of_the_text_that_the_client_gets_are_sent() {
    let server = TestServer::open().await;
    let format = json!({"type": "json_object"});
    let json_answer = || Reply::text(r#"{"a": "b"}"#).cites(citation("https://e.org/b", 1, 2));
    let first =
        || Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("I look. ").cites(citation("https://e.org/a", 0, 1));
    server.model.script(vec![first(), json_answer()]);
    let (whole, _) = answer(&server, json!({"messages": [user("x")], "response_format": format, "store": true})).await;
    assert_eq!(message(&whole)["annotations"], json!([nested("https://e.org/b", 1, 2)]), "JSON is the last step's text alone");
    let path = format!("/v1/chat/completions/{}", whole["id"].as_str().unwrap());
    let stored = body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await;
    assert_eq!(stored["choices"], whole["choices"]);
    server.model.script(vec![first(), json_answer()]);
    let response = answered(&server, json!({"input": "y", "text": {"format": format}})).await;
    assert_eq!(response["output"][0]["content"][0]["annotations"], json!([citation("https://e.org/b", 1, 2)]));
    // Text before a call of the client's tool, sent once.
    server.model.script(vec![
        Reply::calls(vec![call("mine", json!({})).with_id("c1")]).with_text("Wait. ").cites(citation("https://e.org/a", 0, 4)),
        Reply::refusal("No."),
    ]);
    let (waiting, _) = answer(&server, json!({"messages": [user("z")], "tools": [own_tool("mine")]})).await;
    assert_eq!(message(&waiting)["annotations"], json!([nested("https://e.org/a", 0, 4)]));
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "1"});
    let request = json!({"messages": [user("z"), message(&waiting), result], "tools": [own_tool("mine")]});
    let (refused, _) = answer(&server, request).await;
    assert_eq!((&message(&refused)["refusal"], message(&refused).get("annotations")), (&json!("No."), None));
    let sent = server.model.requests().pop().unwrap();
    assert!(!sent.body.to_string().contains("e.org"), "a provider does not get annotations back");
}
