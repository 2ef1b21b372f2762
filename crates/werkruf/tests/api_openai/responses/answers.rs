//! Responses: objects, streams, failures, approvals.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Gate, Reply, call};

use super::client::{answered, get, numbered, refusal, resumed, send, streamed, text};
use crate::support::{Stream, TestServer, body};

#[tokio::test]
async fn a_response_has_its_request_parameters_and_its_output() {
    let server = TestServer::open().await;
    server.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("Let me look. ").usage(10, 4),
        Reply::text("It is 1.").usage(20, 6),
    ]);
    let request = json!({"model": "gpt-4.1", "input": "What is it?", "instructions": "Be brief.", "metadata": {"case": "7"},
        "temperature": 0.5, "max_output_tokens": 100, "strange": {"new": true}, "tools": [{"type": "web_search"}]});
    let response = send(&server, 3, request).await;
    assert_eq!(response.headers()["x-werkruf-model"], "fake-1");
    let conversation = response.headers()["x-conversation-id"].to_str().unwrap().to_owned();
    let object = body(response).await;
    assert!(object["id"].as_str().unwrap().starts_with("resp_"));
    assert_eq!((&object["object"], &object["status"], &object["model"]), (&json!("response"), &json!("completed"), &json!("gpt-4.1")));
    assert_eq!((&object["instructions"], &object["metadata"]), (&json!("Be brief."), &json!({"case": "7"})));
    assert_eq!((&object["temperature"], &object["store"], &object["tools"]), (&json!(0.5), &json!(true), &json!([])));
    let output = object["output"].as_array().unwrap();
    assert_eq!(output.iter().map(|item| &item["type"]).collect::<Vec<_>>(), ["message", "message"], "the server's call is not shown");
    assert_eq!(text(&object), "Let me look. It is 1.");
    assert_eq!(output[0]["content"][0], json!({"type": "output_text", "text": "Let me look. ", "annotations": [], "logprobs": []}));
    assert_eq!((&object["usage"]["input_tokens"], &object["usage"]["output_tokens"]), (&json!(30), &json!(10)));
    let model_request = &server.model.requests()[0];
    assert!(model_request.body["messages"][0]["content"].as_str().unwrap().contains("Be brief."));
    assert_eq!(model_request.user_text(), "What is it?");
    let id = object["id"].as_str().unwrap();
    assert_eq!(body(get(&server, 3, id).await).await, object, "the retrieved response is the same");
    assert_eq!(object["conversation"]["id"], json!(format!("conv_{}", conversation.replace('-', ""))));
}

#[tokio::test]
async fn a_stream_has_the_same_output_with_numbers_from_zero() {
    let server = TestServer::open().await;
    server.model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("Let me look."),
        Reply::text("It is one, and it stays one."),
    ]);
    let events = numbered(streamed(&server, json!({"model": "m", "input": "What is it?"})).await.rest().await, 0);
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("response.created"), &json!("response.in_progress")));
    let end = events.last().unwrap();
    assert_eq!(end["type"], "response.completed");
    let deltas: String =
        events.iter().filter(|event| event["type"] == "response.output_text.delta").map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(deltas, "Let me look.It is one, and it stays one.");
    let id = end["response"]["id"].as_str().unwrap();
    assert_eq!(body(get(&server, 3, id).await).await, end["response"]);
    for after in 0..events.len() as u64 {
        let rest = numbered(resumed(&server, id, after).await.rest().await, after + 1);
        assert_eq!(rest, events[after as usize + 1..], "after {after}");
    }
}

#[tokio::test]
async fn a_failed_turn_is_an_http_error_or_a_failed_response() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::status(400).message("no")]);
    let (status, code) = refusal(send(&server, 3, json!({"input": "x"})).await).await;
    assert_eq!((status, code.as_str()), (400, "model_refused"));
    // A stream that has started says so itself.
    server.model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]), Reply::status(400).message("no")]);
    let events = numbered(streamed(&server, json!({"input": "x"})).await.rest().await, 0);
    let kinds: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(kinds, ["response.created", "response.in_progress", "error", "response.failed"]);
    let failed = &events[3]["response"];
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("model_refused")));
    assert_eq!(events[2]["error"]["code"], "model_refused");
    let id = failed["id"].as_str().unwrap();
    assert_eq!(body(get(&server, 3, id).await).await["status"], "failed");
}

#[tokio::test]
async fn a_failed_response_has_its_usage_and_its_last_message_is_incomplete() {
    let server = TestServer::open().await;
    let steps =
        |texts: [&str; 2]| texts.map(|text| Reply::calls(vec![call("test_echo", json!({"value": text}))]).with_text(text).usage(10, 2));
    server.model.script(steps(["One.", "Two."]).into_iter().chain([Reply::status(400).message("no")]).collect());
    let events = numbered(streamed(&server, json!({"input": "x"})).await.rest().await, 0);
    let failed = &events.last().unwrap()["response"];
    let stored = body(get(&server, 3, failed["id"].as_str().unwrap()).await).await;
    for response in [failed, &stored] {
        let statuses: Vec<&Value> = response["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
        assert_eq!((&response["status"], statuses), (&json!("failed"), vec![&json!("completed"), &json!("incomplete")]));
        assert!(response["usage"]["input_tokens"].as_u64().unwrap() >= 20 && response["usage"]["output_tokens"] == 4, "{response}");
    }
    assert_eq!(failed["usage"], stored["usage"]);
    let again = numbered(resumed(&server, failed["id"].as_str().unwrap(), 1).await.rest().await, 2);
    assert_eq!(again, events[2..], "a stream that is joined later is the same");
}

#[tokio::test]
async fn a_turn_that_waits_for_approval_is_in_progress_and_can_be_followed() {
    let tools = "[safety.default]\napproval_required_for = ['test_echo']\n[[tools]]\nname = 'pay'\ndescription = 'Pays.'\nkind = 'http'\n\
         url = 'http://127.0.0.1:9/pay'\neffect = 'once'\npermission = 'none'\napproval = 'lead'\nparameters = '''{\"type\": \"object\", \"properties\": {}}'''\n";
    let server = TestServer::open_with(tools).await;
    server.model.script(vec![Reply::calls(vec![call("pay", json!({}))]).with_text("I ask."), Reply::text("Then not.")]);
    let response = send(&server, 3, json!({"input": "Pay."})).await;
    assert_eq!(response.status(), 200);
    let approval = response.headers()["x-approval-id"].to_str().unwrap().to_owned();
    let object = body(response).await;
    assert_eq!((&object["status"], &object["metadata"]["approval_id"]), (&json!("in_progress"), &json!(approval)));
    assert_eq!(text(&object), "I ask.");
    let id = object["id"].as_str().unwrap();
    let mut follow = resumed(&server, id, 1).await;
    let before = follow.until("response.in_progress").await;
    assert_eq!(before.last().unwrap().data["response"]["metadata"]["approval_id"], json!(approval));
    let path = format!("/api/approvals/{approval}");
    assert_eq!(server.operator(Method::POST, &path).json(&json!({"decision": "deny"})).send().await.unwrap().status(), 200);
    let mut received = before;
    received.extend(follow.rest().await);
    let received = numbered(received, 2);
    assert_eq!(received.last().unwrap()["type"], "response.completed");
    assert_eq!(text(&received.last().unwrap()["response"]), "I ask.Then not.");
    assert_eq!(numbered(resumed(&server, id, 1).await.rest().await, 2), received, "replayed it is the same");
    // The request's own stream ends at the approval, also when it is replayed.
    server.model.script(vec![Reply::calls(vec![call("pay", json!({}))])]);
    let send_again = async || {
        let request = server
            .as_user(3, Method::POST, "/v1/responses")
            .header("idempotency-key", "pay")
            .json(&json!({"input": "Pay.", "stream": true}));
        numbered(Stream::new(request.send().await.unwrap()).rest().await, 0)
    };
    let events = send_again().await;
    assert_eq!(events.len(), 3);
    assert!(events[2]["response"]["metadata"]["approval_id"].is_string());
    assert_eq!(send_again().await, events);
}

#[tokio::test]
async fn a_background_response_is_queued_and_can_be_canceled() {
    let server = TestServer::open().await;
    let gate = Gate::after(2);
    server.model.script(vec![Reply::text("one two three four").gate(gate.clone())]);
    let queued = answered(&server, json!({"input": "Count.", "background": true})).await;
    assert_eq!((&queued["status"], &queued["background"], &queued["output"]), (&json!("queued"), &json!(true), &json!([])));
    let id = queued["id"].as_str().unwrap();
    gate.reached().await;
    let running = body(get(&server, 3, id).await).await;
    assert_eq!(running["status"], "in_progress");
    let cancel = async || server.as_user(3, Method::POST, &format!("/v1/responses/{id}/cancel")).send().await.unwrap();
    let stopped = body(cancel().await).await;
    assert_eq!((&stopped["status"], &stopped["error"]), (&json!("cancelled"), &Value::Null));
    assert_eq!(body(cancel().await).await["status"], "cancelled", "a second time changes nothing");
    let events = resumed(&server, id, 1).await.rest().await;
    assert_eq!(events.last().unwrap().data["response"]["status"], "cancelled");
}

#[tokio::test]
async fn a_response_cut_by_its_limit_is_incomplete() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text("Once upon a").finish("length").usage(5, 4)]);
    let events = numbered(streamed(&server, json!({"input": "Tell.", "max_output_tokens": 4})).await.rest().await, 0);
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["response"]["status"]), (&json!("response.incomplete"), &json!("incomplete")));
    assert_eq!(body(get(&server, 3, end["response"]["id"].as_str().unwrap()).await).await, end["response"]);
}

#[tokio::test]
async fn the_providers_limit_and_filter_are_reported() {
    let server = TestServer::open_with("[model]\napi = 'responses'\n").await;
    let step = || Reply::calls(vec![call("test_echo", json!({"value": 1}))]);
    for (finish, reason) in [("length", "max_output_tokens"), ("content_filter", "content_filter")] {
        server.model.script(vec![step(), Reply::text("Once upon a").finish(finish)]);
        let object = answered(&server, json!({"input": "Tell."})).await;
        assert_eq!((&object["status"], &object["incomplete_details"]["reason"]), (&json!("incomplete"), &json!(reason)));
        assert_eq!(text(&object), "Once upon a");
        assert_eq!(body(get(&server, 3, object["id"].as_str().unwrap()).await).await, object);
    }
}
