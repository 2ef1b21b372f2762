//! Pictures and files in the results of the server's tools.

use reqwest::Method;
use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use crate::client::CLARA;
use crate::responses::client::{answered, refusal};
use crate::service::Service;
use crate::support::{TestServer, body};

/// The smallest PNG: one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// The beginning of a PDF.
const PDF: &str = "JVBERi0xLjcK";

fn photo() -> Value {
    json!({"place": "entrance", "content": [{"type": "text", "text": "Left."}, {"type": "image", "mimeType": "image/x-wrong", "data": PNG}]})
}

/// The data as the model reads it.
fn named() -> Value {
    json!({"place": "entrance", "content": [{"type": "text", "text": "Left."},
        {"type": "image", "mimeType": "image/png", "bytes": 70, "attached": true}]})
}

async fn server(more: &str) -> (TestServer, Service) {
    let bill = json!({"content": [{"type": "resource", "resource": {"uri": "file:///bills/may.pdf", "blob": PDF}},
        {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}, {"type": "image", "mimeType": "image/png", "data": "AAAA"}]});
    let output = json!({"status": "ok", "input": {}, "data": photo(), "meta": {"took_ms": 1}});
    let bodies = [("camera", photo()), ("wrapped", output), ("bill", bill), ("pay", json!({"paid": true}))];
    let service = Service::start(&bodies).await;
    let tools = [
        service.tool("camera", "read", "trust = 'untrusted'\nreuse_s = 600"),
        service.tool("wrapped", "read", ""),
        service.tool("bill", "read", ""),
        service.tool("pay", "once", ""),
    ];
    (TestServer::open_with(&format!("{}\n{more}", tools.concat())).await, service)
}

fn calls(names: &[&str]) -> Reply {
    Reply::calls(names.iter().map(|name| call(name, json!({})).with_id(&format!("c_{name}"))).collect())
}

fn picture() -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// The text of a result as JSON, and the rest of the message.
fn read_result(message: &Value) -> (Value, Value) {
    (serde_json::from_str(message["content"].as_str().unwrap()).unwrap(), message["tool_call_id"].clone())
}

#[tokio::test]
async fn they_reach_a_chat_model_behind_all_results_and_stay_in_the_history() {
    let (server, _service) = server("").await;
    server.model.script(vec![calls(&["camera", "wrapped", "bill"]), Reply::text("An entrance."), Reply::text("Still.")]);
    let first = answered(&server, json!({"input": "Look."})).await;
    let sent = server.model.requests().pop().unwrap();
    let messages = sent.messages()[3..].to_vec();
    assert_eq!(read_result(&messages[0]), (named(), json!("c_camera")));
    assert_eq!(read_result(&messages[1]), (named(), json!("c_wrapped")), "a whole ToolOutput may have them too");
    let expected = json!({"content": [
        {"type": "resource", "resource": {"uri": "file:///bills/may.pdf", "bytes": 9, "attached": true, "mimeType": "application/pdf"}},
        {"type": "audio", "mimeType": "audio/wav", "bytes": 4, "attached": false},
        {"type": "image", "mimeType": "image/png", "bytes": 3, "attached": false}]});
    assert_eq!(read_result(&messages[2]), (expected, json!("c_bill")), "sounds and what is no picture are only named");
    let attached = json!({"role": "user", "content": [
        text("From the result of the call c_camera:"), picture(), text("From the result of the call c_wrapped:"), picture(),
        text("From the result of the call c_bill:"),
        {"type": "file", "file": {"filename": "may.pdf", "file_data": format!("data:application/pdf;base64,{PDF}")}}]});
    assert_eq!(messages[3..], [attached]);
    // A later turn sends the same.
    answered(&server, json!({"input": "And now?", "previous_response_id": first["id"]})).await;
    assert_eq!(server.model.requests().pop().unwrap().messages()[3..7], messages);
    // The conversation lists them as parts of the output.
    let path = format!("/v1/conversations/{}/items?order=asc", first["conversation"]["id"].as_str().unwrap());
    let items = body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await;
    let output = items["data"].as_array().unwrap().iter().find(|item| item["type"] == "function_call_output").unwrap();
    assert_eq!(output["output"][1]["image_url"], picture()["image_url"]["url"], "{output}");
}

#[tokio::test]
async fn they_are_parts_for_a_model_with_the_responses_api() {
    let (server, _service) = server("[model]\napi = 'responses'\n").await;
    server.model.script(vec![calls(&["camera"]), Reply::text("An entrance.")]);
    answered(&server, json!({"input": "Look."})).await;
    let sent = server.model.requests().pop().unwrap();
    let item = sent.body["input"].as_array().unwrap().iter().find(|item| item["type"] == "function_call_output").unwrap();
    let output = item["output"].as_array().unwrap();
    assert_eq!(serde_json::from_str::<Value>(output[0]["text"].as_str().unwrap()).unwrap(), named());
    assert_eq!(output[1..], [json!({"type": "input_image", "image_url": picture()["image_url"]["url"], "detail": "auto"})]);
}

#[tokio::test]
async fn the_row_has_the_whole_data_and_a_reused_result_its_picture() {
    let (server, service) = server("").await;
    server.model.script(vec![calls(&["camera"]), Reply::text("An entrance."), calls(&["camera"]), Reply::text("The same.")]);
    let chat = async |request: Value| {
        let request = server.as_user(CLARA, Method::POST, "/api/chat").header("accept", "application/json").json(&request);
        body(request.send().await.unwrap()).await
    };
    let first = chat(json!({"message": "Look."})).await;
    assert_eq!(first["tool_results"][0]["data"], photo(), "a program gets what the tool returned");
    let path = format!("/api/tool-calls/{}", first["tool_results"][0]["job_id"].as_str().unwrap());
    assert_eq!(body(server.as_user(CLARA, Method::GET, &path).send().await.unwrap()).await["response"], photo());
    let second = chat(json!({"message": "Again.", "conversation_id": first["conversation_id"]})).await;
    assert_eq!((&second["tool_results"][0]["cache_hit"], service.received("camera")), (&json!(true), 1));
    let sent = server.model.requests().pop().unwrap();
    let last = sent.messages().last().unwrap().clone();
    assert_eq!(last["content"][1], picture(), "{last}");
    // What strangers show taints as what they write.
    server.model.script(vec![calls(&["pay"]), Reply::text("Paid.")]);
    let third = chat(json!({"message": "Pay.", "conversation_id": first["conversation_id"]})).await;
    assert_eq!((&third["status"], third["approval_id"].is_string()), (&json!("awaiting_approval"), true), "{third}");
}

#[tokio::test]
async fn a_model_that_reads_no_pictures_gets_their_names() {
    let (server, _service) = server("[[assistants]]\nname = 'default'\npictures = false\n").await;
    server.model.script(vec![calls(&["camera"]), Reply::text("An entrance.")]);
    answered(&server, json!({"input": "Look."})).await;
    let sent = server.model.requests().pop().unwrap();
    let messages = sent.messages();
    assert_eq!(read_result(messages.last().unwrap()).0["content"][1]["attached"], json!(false));
    assert!(!sent.body.to_string().contains(PNG));
}

#[tokio::test]
async fn a_picture_that_the_model_refuses_does_not_end_the_conversation() {
    let (server, _service) = server("").await;
    server.model.script(vec![
        calls(&["camera"]),
        Reply::status(400).code("invalid_image"),
        Reply::text("An entrance."),
        Reply::status(400),
        Reply::text("Still."),
    ]);
    let first = answered(&server, json!({"input": "Look."})).await;
    let sent: Vec<bool> = server.model.requests().iter().map(|request| request.body.to_string().contains(PNG)).collect();
    assert_eq!(sent, [false, true, false]);
    answered(&server, json!({"input": "And now?", "previous_response_id": first["id"]})).await;
    // Without pictures of tools a refusal is the client's.
    server.model.script(vec![Reply::status(400).code("invalid_image")]);
    let request = server.as_user(CLARA, Method::POST, "/v1/responses").json(&json!({"input": "hi"}));
    assert_eq!(refusal(request.send().await.unwrap()).await, (400, "invalid_image".to_owned()));
}

#[tokio::test]
async fn a_budget_counts_a_picture_before_it_is_sent() {
    let (server, _service) = server("").await;
    let budget = json!({"scope": "user", "subject": CLARA, "period": "day", "unit": "tokens", "limit": 9000});
    assert_eq!(server.operator(Method::POST, "/api/budgets").json(&budget).send().await.unwrap().status(), 201);
    server.model.script(vec![calls(&["camera"]), Reply::text("An entrance.")]);
    let request = json!({"input": "Look.", "max_output_tokens": 50});
    let request = server.as_user(CLARA, Method::POST, "/v1/responses").header("x-werkruf-tools", "camera").json(&request);
    assert_eq!(refusal(request.send().await.unwrap()).await, (429, "budget_exceeded".to_owned()));
    assert_eq!(server.model.requests().len(), 1, "the picture does not fit into what is left");
}
