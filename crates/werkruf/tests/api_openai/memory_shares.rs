//! Who may take how much of the memory of requests, and for how long.

use reqwest::{Method, Response};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use werkruf_bench::fake_model::{Gate, Reply};

use crate::client::{CLARA, user};
use crate::support::{TestServer, refusal};

const MIB: usize = 1024 * 1024;
/// Another user than Clara.
const OTHER: i64 = 4;

async fn server() -> TestServer {
    TestServer::open_in("", &[("WERKRUF_LIMIT_BYTES_IN_FLIGHT", "8388608")]).await
}

/// Sends a completion with a body of this many bytes.
async fn complete(server: &TestServer, key: &str, bytes: usize) -> Response {
    let request = json!({"messages": [user("hi")], "unknown": "a".repeat(bytes)});
    server.with_key(key, Method::POST, "/v1/chat/completions").json(&request).send().await.unwrap()
}

/// Starts a background turn whose body has this many bytes. Its model waits at the gate.
async fn held_turn(server: &TestServer, bytes: usize) -> Gate {
    let gate = Gate::before_head();
    server.model.script(vec![Reply::text("Done.").gate(gate.clone())]);
    let key = server.key(Some(CLARA), &["chat"]).await;
    let request = json!({"input": "hi", "background": true, "unknown": "a".repeat(bytes)});
    let response = server.with_key(&key, Method::POST, "/v1/responses").json(&request).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.bytes().await.unwrap();
    gate.reached().await;
    gate
}

#[tokio::test]
async fn a_turn_in_the_background_holds_its_memory_until_it_ends() {
    let server = server().await;
    let key = server.key(Some(OTHER), &["chat"]).await;
    let gate = held_turn(&server, 3 * MIB / 2).await;
    assert_eq!(refusal(complete(&server, &key, MIB).await).await, (503, "memory_busy".to_owned()));
    gate.open();
    // The memory is free soon after the turn ended.
    while complete(&server, &key, MIB).await.status() != 200 {}
}

#[tokio::test]
async fn a_declared_length_reserves_nothing() {
    let server = server().await;
    let key = server.key(Some(CLARA), &["chat"]).await;
    let url = server.bare(Method::GET, "/").build().unwrap().url().clone();
    let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut trickling = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {MIB}\r\n\
             expect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 25];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer[..], b"HTTP/1.1 100 Continue\r\n\r\n", "the server reads the body");
        stream.write_all(b"{").await.unwrap();
        trickling.push(stream);
    }
    let other = server.key(Some(OTHER), &["chat"]).await;
    assert_eq!(complete(&server, &other, MIB).await.status(), 200);
}

#[tokio::test]
async fn an_answer_is_refused_only_where_nothing_was_done() {
    let server = server().await;
    let keys = [server.key(Some(OTHER), &["tools", "read"]).await, server.key(None, &["admin"]).await];
    let invoked = async |n: usize| {
        let request = server.with_key(&keys[0], Method::POST, "/api/tools/test_bytes/invoke");
        request.json(&json!({"input": {"n": n}})).send().await.unwrap()
    };
    let before = invoked(300_000).await;
    let call = format!("/api/tool-calls/{}", before.headers()["x-tool-call-id"].to_str().unwrap());
    assert_eq!(before.status(), 200);
    // Less than 128 KiB are left.
    let _gate = held_turn(&server, 2 * MIB - 32 * 1024).await;
    assert_eq!(invoked(300_000).await.status(), 200, "the call was made");
    let read = server.with_key(&keys[1], Method::GET, &call).send().await.unwrap();
    assert_eq!(refusal(read).await, (503, "memory_busy".to_owned()));
}

#[tokio::test]
async fn one_user_does_not_take_the_share_of_others() {
    let server = server().await;
    let _gate = held_turn(&server, MIB).await;
    let (own, other) = (server.key(Some(CLARA), &["chat"]).await, server.key(Some(OTHER), &["chat"]).await);
    assert_eq!(refusal(complete(&server, &own, MIB / 2).await).await, (503, "memory_busy".to_owned()), "above a quarter");
    assert_eq!(complete(&server, &other, MIB / 2).await.status(), 200);
    let operator = json!({"messages": [user("hi")], "unknown": "a".repeat(4 * MIB)});
    let operator = server.as_user(CLARA, Method::POST, "/v1/chat/completions").json(&operator).send().await.unwrap();
    assert_eq!(operator.status(), 200, "the operator is not limited");
}
