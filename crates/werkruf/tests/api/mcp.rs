//! `/mcp` as plain HTTP: what a client gets whose request is no message of the protocol, and the end of a session.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{TestServer, body};

fn request(server: &TestServer, method: Method) -> RequestBuilder {
    let request = server.as_user(1, method, "/mcp").header("accept", "application/json, text/event-stream");
    request.header("content-type", "application/json")
}

#[tokio::test]
async fn a_body_that_is_no_message_gets_an_error_of_the_protocol() {
    let server = TestServer::open().await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let cases = [
        ("{\"jsonrpc\": ".to_owned(), -32700, Value::Null),
        (String::new(), -32700, Value::Null),
        (json!([ping, ping]).to_string(), -32600, Value::Null),
        (json!([]).to_string(), -32600, Value::Null),
        (json!({"id": 7, "hello": "world"}).to_string(), -32600, json!(7)),
        (json!("hello").to_string(), -32600, Value::Null),
    ];
    for (sent, code, id) in cases {
        let response = request(&server, Method::POST).body(sent.clone()).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (400, &"application/json".parse().unwrap()),
            "{sent}"
        );
        let answer = body(response).await;
        assert_eq!((&answer["jsonrpc"], &answer["id"], &answer["error"]["code"]), (&json!("2.0"), &id, &json!(code)), "{sent}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    let plain = server.as_user(1, Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    let wrong_type = plain.header("content-type", "text/plain").body(ping.to_string()).send().await.unwrap();
    assert_eq!(wrong_type.status(), 415, "another media type is still refused as one");
}

#[tokio::test]
async fn an_ended_session_is_answered_with_204() {
    let server = TestServer::open().await;
    let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let opening = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client});
    let opened = request(&server, Method::POST).body(opening.to_string()).send().await.unwrap();
    assert_eq!(opened.status(), 200);
    let session = opened.headers()["mcp-session-id"].clone();
    let delete = || request(&server, Method::DELETE).header("mcp-session-id", &session).send();
    let ended = delete().await.unwrap();
    assert_eq!((ended.status().as_u16(), ended.text().await.unwrap().as_str()), (204, ""));
    assert_eq!(delete().await.unwrap().status(), 404, "it is gone");
}
