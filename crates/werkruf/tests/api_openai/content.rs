//! Content that is more than text: pictures and files in messages and results, custom tools, and parameters that are refused.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::{CLARA, answer, chunks, completion, message, own_tool, user};
use crate::support::{TestServer, body};

const PICTURE: &str = "data:image/png;base64,AAAA";

async fn responses(server: &TestServer, request: Value) -> Value {
    let response = server.as_user(CLARA, Method::POST, "/v1/responses").json(&request).send().await.unwrap();
    let status = response.status();
    let answer = body(response).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

fn camera() -> Value {
    json!([{"type": "function", "name": "camera", "parameters": {"type": "object", "properties": {}}}])
}

#[tokio::test]
async fn pictures_in_results_reach_a_chat_model_behind_all_results() {
    let server = TestServer::open().await;
    let calls = vec![call("camera", json!({})).with_id("c1"), call("camera", json!({})).with_id("c2")];
    server.model.script(vec![Reply::calls(calls.clone()), Reply::text("A cat."), Reply::text("Still.")]);
    let first = responses(&server, json!({"input": "Look.", "tools": camera()})).await;
    let picture = json!([{"type": "input_text", "text": "left"}, {"type": "input_image", "image_url": PICTURE, "detail": "low"}]);
    let file = json!([{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}]);
    let results = json!([{"type": "function_call_output", "call_id": "c1", "output": picture}, {"type": "function_call_output", "call_id": "c2", "output": file}]);
    let second = responses(&server, json!({"input": results, "tools": camera(), "previous_response_id": first["id"]})).await;
    let expected = [
        json!({"role": "tool", "content": "left", "tool_call_id": "c1"}),
        json!({"role": "tool", "content": "The result follows in the next message.", "tool_call_id": "c2"}),
        json!({"role": "user", "content": [
            {"type": "text", "text": "From the result of the call c1:"}, {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
            {"type": "text", "text": "From the result of the call c2:"},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}}]}),
    ];
    let sent = server.model.requests().pop().unwrap();
    assert_eq!(sent.messages()[3..], expected, "the results stay together");
    // The stored conversation has them too.
    responses(&server, json!({"input": "And now?", "previous_response_id": second["id"]})).await;
    assert_eq!(server.model.requests().pop().unwrap().messages()[3..6], expected);
}

#[tokio::test]
async fn pictures_in_results_are_parts_for_a_model_with_the_responses_api() {
    let server = TestServer::open_in("[model]\napi = 'responses'\n", &[]).await;
    server.model.script(vec![Reply::calls(vec![call("camera", json!({})).with_id("c1")]), Reply::text("A cat.")]);
    let request = json!({"messages": [user("Look.")], "tools": [own_tool("camera")]});
    let (first, _) = answer(&server, request).await;
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "left"}, {"type": "image_url", "image_url": {"url": PICTURE}}]});
    answer(&server, json!({"messages": [user("Look."), message(&first), result], "tools": [own_tool("camera")]})).await;
    let sent = server.model.requests().pop().unwrap();
    let output = sent.body["input"].as_array().unwrap().iter().find(|item| item["type"] == "function_call_output").unwrap();
    let expected = json!([{"type": "input_text", "text": "left"}, {"type": "input_image", "image_url": PICTURE, "detail": "auto"}]);
    assert_eq!((&output["call_id"], &output["output"]), (&json!("c1"), &expected));
}

#[tokio::test]
async fn files_and_audio_of_a_message_have_the_names_of_the_upstream_api() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Read."), Reply::text("Heard.")]);
    let content = json!([{"type": "input_text", "text": "Read."}, {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}]);
    responses(&server, json!({"input": [{"role": "user", "content": content}]})).await;
    let expected = json!([{"type": "text", "text": "Read."}, {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}}]);
    assert_eq!(server.model.requests().pop().unwrap().last_message()["content"], expected);
    let audio = json!([{"type": "text", "text": "Listen."}, {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]);
    answer(&server, json!({"messages": [{"role": "user", "content": audio}]})).await;
    assert_eq!(server.model.requests().pop().unwrap().last_message()["content"], audio);
    for (name, part) in [
        ("file_url", json!({"type": "input_file", "file_url": "https://e.org/a.pdf"})),
        ("file_id", json!({"type": "input_image", "file_id": "file-1", "detail": "auto"})),
    ] {
        for item in [json!({"role": "user", "content": [part]}), json!({"type": "function_call_output", "call_id": "c", "output": [part]})]
        {
            let refused = server.as_user(CLARA, Method::POST, "/v1/responses").json(&json!({"input": [user("x"), item]}));
            let refused = refused.send().await.unwrap();
            assert_eq!(refused.status(), 400, "{item}");
            let error = body(refused).await["error"].clone();
            assert_eq!((&error["code"], &error["param"]), (&json!("unsupported_parameter"), &json!(name)), "Chat Completions has none");
        }
    }
}

#[tokio::test]
async fn a_custom_tool_gets_its_text_and_answers() {
    let server = TestServer::open().await;
    let tools = json!([{"type": "custom", "custom": {"name": "shell", "description": "Runs a command."}}]);
    let script =
        || server.model.script(vec![Reply::calls(vec![call("shell", json!({"input": "ls -l"})).with_id("c1")]), Reply::text("Two files.")]);
    script();
    let (first, _) = answer(&server, json!({"messages": [user("List.")], "tools": tools})).await;
    let expected = json!([{"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}]);
    assert_eq!((&message(&first)["tool_calls"], &first["choices"][0]["finish_reason"]), (&expected, &json!("tool_calls")));
    let offered = server.model.requests()[0].body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["function"]["name"] == "shell")
        .unwrap()
        .clone();
    assert_eq!(offered["function"]["parameters"]["required"], json!(["input"]), "the model knows it as a function");
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "a b"});
    let (second, _) = answer(&server, json!({"messages": [user("List."), message(&first), result], "tools": tools})).await;
    assert_eq!(message(&second)["content"], "Two files.");
    let sent = server.model.requests().pop().unwrap();
    let arguments: Value = serde_json::from_str(sent.messages()[2]["tool_calls"][0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"input": "ls -l"}));
    script();
    let stream =
        chunks(completion(&server).json(&json!({"messages": [user("List 2.")], "tools": tools, "stream": true})).send().await.unwrap())
            .await;
    let deltas: Vec<&Value> =
        stream.chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls")).map(|calls| &calls[0]).collect();
    assert_eq!(
        deltas,
        [
            &json!({"index": 0, "id": "c1", "type": "custom", "custom": {"name": "shell", "input": ""}}),
            &json!({"index": 0, "custom": {"input": "ls -l"}}),
        ]
    );
}

#[tokio::test]
async fn parameters_that_would_change_the_meaning_are_refused_by_name() {
    let server = TestServer::open().await;
    let chat = |extra: Value| {
        let mut request = json!({"messages": [user("x")]});
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        (String::from("/v1/chat/completions"), request)
    };
    let response = |extra: Value| {
        let mut request = json!({"input": "x"});
        request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        (String::from("/v1/responses"), request)
    };
    for ((path, request), param) in [
        (chat(json!({"n": 2})), "n"),
        (chat(json!({"logprobs": true})), "logprobs"),
        (chat(json!({"modalities": ["audio"], "audio": {"voice": "x"}})), "modalities"),
        (response(json!({"prompt": {"id": "pmpt_1"}})), "prompt"),
        (response(json!({"top_logprobs": 3})), "top_logprobs"),
    ] {
        let answer = server.as_user(CLARA, Method::POST, &path).json(&request).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{request}");
        let error = body(answer).await["error"].clone();
        assert_eq!(
            (&error["code"], &error["param"], &error["type"]),
            (&json!("unsupported_parameter"), &json!(param), &json!("invalid_request_error"))
        );
    }
    assert_eq!(server.model.requests().len(), 0);
    server.model.script(vec![Reply::text("Yes.")]);
    answer(&server, json!({"messages": [user("x")], "n": 1, "logprobs": false, "prediction": {"type": "content", "content": "x"}, "service_tier": "flex"})).await;
}
