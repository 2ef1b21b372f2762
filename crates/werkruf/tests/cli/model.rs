//! The model at start, and shutdown with connected clients.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::json;
use werkruf_bench::fake_model::FakeModel;

use crate::support::{Server, TestFolder};

/// Sends a request over its own socket, which can stay open; the response is read line by line.
fn request(server: &Server, head: &str, body: &str) -> BufReader<TcpStream> {
    let address = server.address();
    let mut socket = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    let key = server.key();
    let length = body.len();
    write!(socket, "{head} HTTP/1.1\r\nHost: werkruf\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    BufReader::new(socket)
}

/// Reads until a line contains this text.
fn until(lines: &mut BufReader<TcpStream>, expected: &str) -> String {
    let mut line = String::new();
    while !line.contains(expected) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the stream ended before {expected}");
    }
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_name_the_error_lists_the_models() {
    let model = FakeModel::start().await;
    let folder = TestFolder::new().with("OPENAI_BASE_URL", &model.base_url());
    let refused = tokio::task::block_in_place(|| folder.run(&["serve", "--listen", "127.0.0.1:0", "--json"])).exits(1).error();
    assert_eq!(refused["code"], "model_not_configured");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("OPENAI_MODEL") && message.contains("offers"), "{message}");
    // Only the model is missing: commands that need none still work.
    tokio::task::block_in_place(|| folder.run(&["keys", "create", "--scopes", "read"])).exits(0);
}

#[test]
fn an_open_stream_does_not_delay_the_shutdown() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    let mut chat = request(&server, "POST /api/chat", &json!({"message": "hallo"}).to_string());
    let init = until(&mut chat, "\"conversation_id\"");
    let id = init.split("\"conversation_id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert!(until(&mut chat, "\"message\":{").contains("OPENAI_API_KEY"), "the answer says how to connect a model");
    let mut events = request(&server, &format!("GET /api/conversations/{id}/events?after=0"), "");
    until(&mut events, "event: final");
    server.signal("-TERM");
    assert!(server.ended().success(), "the stream was still open");
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder =
        TestFolder::new().with("WERKRUF_TEST_TOOLS", "1").with("WERKRUF_LIMIT_TOOL_MS", "600000").with("WERKRUF_LIMIT_DRAIN_MS", "600000");
    folder.file("werkruf.toml", "");
    let server = folder.serve(&[]);
    let mut call = request(&server, "POST /api/tools/test_sleep/invoke", &json!({"input": {"ms": 25_000}}).to_string());
    // The call runs, so the shutdown has to wait for it.
    let running = || folder.run(&["calls", "list", "--status", "running", "--json"]).json()["tool_calls"].as_array().map_or(0, Vec::len);
    assert!((0..500).any(|_| running() == 1), "the call never started");
    server.signal("-TERM");
    // A draining server accepts no connections.
    let address = server.address();
    assert!((0..10_000).any(|_| TcpStream::connect(address.trim_start_matches("http://")).is_err()), "it still accepts");
    server.signal("-TERM");
    assert_eq!(server.ended().code(), Some(130));
    assert_eq!(call.read_line(&mut String::new()).unwrap_or(0), 0, "no response was sent");
}
