//! A model that writes faster than clients can read: clients that read get everything, others are dropped.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use werkruf_bench::fake_model::{Reply, call};

use crate::support::{ADMIN, Event, Stream, TestServer};

const CLIENTS: usize = 6;
const TOKENS: usize = 8_000;

/// As many words, each a write of the model.
fn long_text() -> String {
    (0..TOKENS).map(|number| format!("word-{number} ")).collect()
}

async fn fast_model() -> (TestServer, String) {
    let (server, text) = (TestServer::open().await, long_text());
    let reply = Reply::text(&text);
    server.model.script_fn(move |_| reply.clone());
    (server, text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_chat_route_get_the_whole_text_and_the_end() {
    let (server, text) = fast_model().await;
    let client = async || server.stream(3, json!({"message": "write"})).await.rest().await;
    for events in join_all((0..CLIENTS).map(|_| client())).await {
        let tokens = events.iter().filter(|event| event.name == "assistant_token").map(content);
        assert_eq!(tokens.collect::<String>(), text);
        let ids: Vec<i64> = events.iter().filter_map(|event| event.id).collect();
        assert_eq!(ids, [1, 2], "init and final");
        let last = events.last().unwrap();
        assert_eq!((last.name.as_str(), &last.data["message"]["content"]), ("final", &json!(text)));
    }
}

fn content(event: &Event) -> &str {
    event.data["content"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_chat_completions_get_the_whole_text_and_the_end() {
    let (server, text) = fast_model().await;
    let client = async || {
        let request = json!({"messages": [{"role": "user", "content": "write"}], "stream": true});
        let response = server.as_user(3, Method::POST, "/v1/chat/completions").json(&request).send().await.unwrap();
        response.text().await.unwrap()
    };
    for body in join_all((0..CLIENTS).map(|_| client())).await {
        let mut data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"));
        let chunks: Vec<Value> = data.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
        let written: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(written, text);
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_responses_get_the_whole_text_and_the_end() {
    let (server, text) = fast_model().await;
    let client = async || {
        let request = json!({"input": "write", "stream": true});
        let response = server.as_user(3, Method::POST, "/v1/responses").json(&request).send().await.unwrap();
        Stream::new(response).rest().await
    };
    for events in join_all((0..CLIENTS).map(|_| client())).await {
        let deltas = events.iter().filter(|event| event.name == "response.output_text.delta");
        assert_eq!(deltas.map(|event| event.data["delta"].as_str().unwrap()).collect::<String>(), text);
        let last = events.last().unwrap();
        assert_eq!(last.name, "response.completed");
        assert_eq!(last.data["response"]["output"][0]["content"][0]["text"], text);
    }
}

/// A client with a small receive buffer that sends a request and does not read.
async fn silent_client(server: &TestServer, body: &Value) -> TcpStream {
    let url = server.bare(Method::POST, "/api/chat").build().unwrap().url().clone();
    let address = url.socket_addrs(|| None).unwrap()[0];
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST /api/chat HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {ADMIN}\r\nx-user-id: 3\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped_with_a_hint_to_come_back() {
    let server = TestServer::open().await;
    // A hundred events of 20 kB each: more than may wait for a client.
    let value = "x".repeat(20_000);
    let calls = (0..100).map(|number| call("test_echo", json!({"value": format!("{number} {value}")}))).collect();
    server.model.script(vec![Reply::calls(calls), Reply::text("Done.")]);
    let mut client = silent_client(&server, &json!({"message": "write"})).await;
    server.model.received(2).await;
    server.model.quiet().await;
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    let received = String::from_utf8(received).unwrap();
    assert!(received.contains("event: tool_started") && !received.contains("event: final"), "{}", received.len());
    assert!(received.ends_with("retry: 1000\n\n\r\n0\r\n\r\n"), "{}", &received[received.len() - 100..]);
}
