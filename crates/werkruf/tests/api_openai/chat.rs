//! Chat Completions: objects, chunks, models, options.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use crate::client::{CLARA, answer, chunks, completion, message, user};
use crate::support::{TestServer, body};

#[tokio::test]
async fn one_object_has_the_text_of_all_steps() {
    let server = TestServer::open().await;
    let step = Reply::calls(vec![call("test_echo", json!({"value": 1})), call("test_echo", json!({"value": 2}))]);
    server.model.script(vec![step.with_text("Let me see. ").usage(10, 5), Reply::text("Here it is.").usage(20, 7)]);
    let response = completion(&server).json(&json!({"model": "gpt-whatever", "messages": [user("hi")]})).send().await.unwrap();
    assert_eq!((&response.headers()["x-werkruf-model"], response.status().as_u16()), (&"fake-1".parse().unwrap(), 200));
    assert!(response.headers().contains_key("x-conversation-id"));
    let answer = body(response).await;
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("gpt-whatever")));
    assert_eq!(message(&answer), &json!({"role": "assistant", "content": "Let me see. Here it is.", "refusal": null}));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]), (&json!(30), &json!(12), &json!(42)));
    assert!(answer["created"].as_i64().unwrap() > 1_700_000_000);
}

#[tokio::test]
async fn chunks_have_the_same_text() {
    let server = TestServer::open().await;
    let step = Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("Let me see. ");
    server.model.script(vec![step.usage(10, 5), Reply::text("Here it is.").usage(20, 7)]);
    let request = json!({"model": "m", "messages": [user("hi")], "stream": true, "stream_options": {"include_usage": true}});
    let response = completion(&server).json(&request).send().await.unwrap();
    assert!(response.headers().contains_key("x-conversation-id") && response.headers().contains_key("x-werkruf-model"));
    let stream = chunks(response).await;
    assert_eq!((stream.text.as_str(), stream.done), ("Let me see. Here it is.", true));
    let (last, before) = stream.chunks.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(42)));
    assert!(before.iter().all(|chunk| chunk["usage"].is_null() && chunk["choices"][0]["delta"].get("tool_calls").is_none()));
    assert_eq!(before.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn text_is_sent_while_the_model_still_writes() {
    let server = TestServer::open().await;
    let gate = Gate::after(1);
    server.model.script(vec![Reply::text("Hello there.").gate(gate.clone())]);
    let mut response = completion(&server).json(&json!({"messages": [user("hi")], "stream": true})).send().await.unwrap();
    let mut text = String::new();
    while !text.contains("Hello") {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert!(!text.contains("there"));
    gate.open();
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(text.contains("there.") && text.ends_with("data: [DONE]\n\n"), "{text}");
}

#[tokio::test]
async fn assistants_are_models() {
    let file = "[[assistants]]\nname = 'clerk'\nmodel = 'fake-2'\n[[assistants]]\nname = 'inner'\nchannels = ['web']\n\
        [[assistants]]\nname = 'other'\ntenant = 'elsewhere'\n";
    let server = TestServer::open_with(file).await;
    let list = body(server.as_user(CLARA, Method::GET, "/v1/models").send().await.unwrap()).await;
    let names: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!((list["object"].as_str(), names), (Some("list"), vec!["default", "clerk"]));
    let one = body(server.as_user(CLARA, Method::GET, "/v1/models/clerk").send().await.unwrap()).await;
    assert_eq!((&one["object"], &one["owned_by"]), (&json!("model"), &json!("werkruf")));
    for (model, real) in [("clerk", "fake-2"), ("gpt-4o", "fake-1"), ("inner", "fake-1")] {
        let response = completion(&server).json(&json!({"model": model, "messages": [user("hi")]})).send().await.unwrap();
        assert_eq!(response.headers()["x-werkruf-model"], real);
        assert_eq!(body(response).await["model"], model);
        assert_eq!(server.model.requests().last().unwrap().body["model"], real);
    }
}

#[tokio::test]
async fn options_instructions_and_history_reach_the_model() {
    let server = TestServer::open().await;
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let request = json!({
        "model": "m", "temperature": 0.25, "max_completion_tokens": 99, "top_p": 0.5, "response_format": {"type": "json_object"}, "n": 1,
        "messages": [
            {"role": "developer", "content": "Speak like a pirate."}, user("One"), {"role": "assistant", "content": "Two"},
            {"role": "user", "content": [{"type": "text", "text": "Three"}, picture.clone()]},
        ],
    });
    server.model.script(vec![Reply::text("{}")]);
    answer(&server, request).await;
    let model_request = server.model.requests().pop().unwrap();
    assert_eq!(
        (&model_request.body["temperature"], &model_request.body["max_tokens"], &model_request.body["top_p"]),
        (&json!(0.25), &json!(99), &json!(0.5))
    );
    assert_eq!(model_request.body["response_format"], json!({"type": "json_object"}));
    let messages = model_request.messages();
    assert!(messages[0]["content"].as_str().unwrap().ends_with("Speak like a pirate."));
    let contents: Vec<&Value> = messages[1..3].iter().map(|message| &message["content"]).collect();
    assert_eq!(contents, [&json!("One"), &json!("Two")]);
    assert_eq!(messages[3]["content"], json!([{"type": "text", "text": "Three"}, picture]));
}

#[tokio::test]
async fn the_servers_tools_can_be_limited() {
    let server = TestServer::open().await;
    let names = |server: &TestServer| server.model.requests().last().unwrap().tool_names().len();
    answer(&server, json!({"messages": [user("hi")]})).await;
    assert!(names(&server) > 2);
    for (header, count) in [("none", 0), ("test_echo, test_bytes", 2)] {
        let request = completion(&server).header("x-werkruf-tools", header).json(&json!({"messages": [user("hi")]}));
        assert_eq!(request.send().await.unwrap().status(), 200);
        assert_eq!(names(&server), count);
    }
}

#[tokio::test]
async fn a_repeated_idempotency_key_returns_the_same_turn() {
    let server = TestServer::open().await;
    let step = Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("Let me see. ");
    server.model.script(vec![step, Reply::text("Once.")]);
    let request = |stream: bool| {
        let request = json!({"messages": [user("hi")], "model": "m"});
        let request = completion(&server).header("idempotency-key", "k").json(&request);
        if stream { request.header("accept", "text/event-stream") } else { request }
    };
    let first = body(request(false).send().await.unwrap()).await;
    let again = request(false).send().await.unwrap();
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(body(again).await, first);
    assert_eq!(server.model.requests().len(), 2);
}

#[tokio::test]
async fn the_finish_reason_is_the_providers_also_when_replayed() {
    let server = TestServer::open().await;
    let step = || Reply::calls(vec![call("test_echo", json!({"value": 1}))]);
    for (reason, status) in [("length", "length"), ("content_filter", "content_filter"), ("stop", "stop")] {
        server.model.script(vec![step(), Reply::text("Once upon").finish(reason)]);
        let request = || completion(&server).header("idempotency-key", reason).json(&json!({"messages": [user(reason)]}));
        let first = body(request().send().await.unwrap()).await;
        assert_eq!((&first["choices"][0]["finish_reason"], &message(&first)["content"]), (&json!(status), &json!("Once upon")));
        assert_eq!(body(request().send().await.unwrap()).await, first, "as stored");
    }
}

#[tokio::test]
async fn a_turn_that_waits_for_approval_reports_its_usage() {
    let tool = "[[tools]]\nname = 'pay'\ndescription = 'Pays.'\nkind = 'http'\nurl = 'http://127.0.0.1:9/pay'\neffect = 'once'\npermission = 'none'\n\
         approval = 'lead'\nparameters = '''{\"type\": \"object\", \"properties\": {}}'''\n";
    let server = TestServer::open_with(tool).await;
    let steps = || {
        vec![
            Reply::calls(vec![call("test_echo", json!({"value": 1}))]).usage(10, 5),
            Reply::calls(vec![call("pay", json!({}))]).usage(20, 7),
        ]
    };
    server.model.script(steps());
    let waiting = body(completion(&server).json(&json!({"messages": [user("pay")]})).send().await.unwrap()).await;
    assert_eq!(waiting["choices"][0]["finish_reason"], "stop");
    let usage = &waiting["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]), (&json!(30), &json!(12), &json!(42)));
    server.model.script(steps());
    let request = json!({"messages": [user("pay again")], "stream": true, "stream_options": {"include_usage": true}});
    let stream = chunks(completion(&server).json(&request).send().await.unwrap()).await;
    assert_eq!(stream.chunks.last().unwrap()["usage"]["total_tokens"], 42);
}
