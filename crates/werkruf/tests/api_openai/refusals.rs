//! Errors in OpenAI's format.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::Reply;

use crate::client::{CLARA, chunks, completion, user};
use crate::support::{TestServer, body};

async fn refused(response: Response) -> (u16, String, String) {
    let status = response.status().as_u16();
    assert!(response.headers().contains_key("x-request-id"));
    let error = body(response).await["error"].clone();
    assert!(error["message"].is_string() && error.get("param").is_some(), "{error}");
    let text = |name: &str| error[name].as_str().unwrap().to_owned();
    (status, text("type"), text("code"))
}

fn is(status: u16, kind: &str, code: &str) -> (u16, String, String) {
    (status, kind.to_owned(), code.to_owned())
}

#[tokio::test]
async fn every_error_under_v1_has_the_same_format() {
    let server = TestServer::open().await;
    let at = |method, path: &str| server.as_user(CLARA, method, path);
    let bare = server.bare(Method::GET, "/v1/models").send().await.unwrap();
    assert_eq!(refused(bare).await, is(401, "authentication_error", "unauthorized"));
    assert_eq!(refused(at(Method::GET, "/v1/nothing").send().await.unwrap()).await, is(404, "invalid_request_error", "unknown_route"));
    assert_eq!(
        refused(at(Method::GET, "/v1/chat/completions").send().await.unwrap()).await,
        is(405, "invalid_request_error", "method_not_allowed")
    );
    assert_eq!(refused(at(Method::GET, "/v1/models/x").send().await.unwrap()).await, is(404, "invalid_request_error", "model_not_found"));
    let key = server.key(Some(CLARA), &["read"]).await;
    let reader = server.with_key(&key, Method::POST, "/v1/chat/completions").json(&json!({})).send().await.unwrap();
    assert_eq!(refused(reader).await, is(403, "permission_error", "forbidden"));
    for bad in ["", "{", "[]", "{}", r#"{"messages": []}"#, r#"{"messages": [{"role": "king"}]}"#, r#"{"messages": [5]}"#] {
        let response = completion(&server).header("content-type", "application/json").body(bad).send().await.unwrap();
        assert_eq!(refused(response).await, is(400, "invalid_request_error", "invalid_request"), "{bad}");
    }
    let nowhere = completion(&server).header("x-conversation-id", "nowhere").json(&json!({"messages": [user("hi")]})).send().await.unwrap();
    assert_eq!(refused(nowhere).await, is(404, "invalid_request_error", "not_found"));
}

#[tokio::test]
async fn bodies_may_have_pictures_up_to_a_limit() {
    let server = TestServer::open().await;
    let picture = |bytes: usize| json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(bytes))}});
    let request = |bytes| json!({"messages": [{"role": "user", "content": [picture(bytes)]}]});
    assert_eq!(completion(&server).json(&request(4 << 20)).send().await.unwrap().status(), 200);
    let response = completion(&server).json(&request(17 << 20)).send().await.unwrap();
    assert_eq!(refused(response).await, is(413, "invalid_request_error", "body_too_large"));
}

#[tokio::test]
async fn the_model_gets_no_address_of_its_own_network() {
    let server = TestServer::open().await;
    for url in ["file:///etc/passwd", "http://169.254.169.254/latest/meta-data"] {
        let chat = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]});
        let items = json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]});
        let import = json!({"format": "openai", "messages": chat["messages"]});
        for (path, request) in [("/v1/chat/completions", &chat), ("/v1/responses", &items), ("/api/conversations", &import)] {
            let response = server.as_user(CLARA, Method::POST, path).json(request).send().await.unwrap();
            assert_eq!(response.status(), 400, "{path}");
            assert_eq!(body(response).await["error"]["code"], "invalid_request", "{path}");
        }
    }
    assert_eq!(server.model.requests().len(), 0);
}

#[tokio::test]
async fn over_the_limit_of_turns_no_message_is_read() {
    let server = TestServer::open_in("", &[("WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY", "1")]).await;
    // The operator has no limit of turns here.
    let key = server.key(Some(CLARA), &["chat"]).await;
    let post = |path: &str| server.with_key(&key, Method::POST, path);
    let first = post("/v1/chat/completions").json(&json!({"messages": [user("hi")]})).send().await.unwrap();
    assert_eq!(first.status(), 200);
    for (path, field) in [("/v1/chat/completions", "messages"), ("/v1/responses", "input")] {
        let send = async |message: &Value| {
            let request = json!({field: [message]});
            refused(post(path).json(&request).send().await.unwrap()).await
        };
        // A message that cannot be read is not looked at. What may be the result of a tool is: it may continue a turn.
        assert_eq!(send(&json!({"role": "user", "content": 5})).await, is(429, "rate_limit_error", "too_many_turns"), "{path}");
        let result = json!({"role": "tool", "type": "function_call_output", "content": 5});
        assert_ne!(send(&result).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn a_failed_turn_is_an_http_error_if_nothing_was_sent_yet() {
    let server = TestServer::open().await;
    for stream in [false, true] {
        server.model.script(vec![Reply::status(501), Reply::status(501), Reply::status(501)]);
        let response = completion(&server).json(&json!({"messages": [user("hi")], "stream": stream})).send().await.unwrap();
        let (status, kind, _) = refused(response).await;
        assert_eq!((status, kind.as_str()), (502, "server_error"), "stream: {stream}");
    }
}

#[tokio::test]
async fn a_retried_answer_with_another_text_is_an_error_in_the_stream() {
    let server = TestServer::open().await;
    let cut = |text: &str| Reply::text(text).cut_before_finish();
    server.model.script(vec![cut("Good morning to"), Reply::text("Good morning to you.")]);
    let request = json!({"messages": [user("hi")], "stream": true});
    let same = chunks(completion(&server).json(&request).send().await.unwrap()).await;
    assert_eq!((same.text.as_str(), same.done), ("Good morning to you.", true));
    server.model.script(vec![cut("Good morning to"), Reply::text("Bad luck.")]);
    let other = chunks(completion(&server).json(&request).send().await.unwrap()).await;
    let last: &Value = other.chunks.last().unwrap();
    assert_eq!((last["error"]["code"].as_str(), other.done), (Some("model_interrupted"), false));
}
