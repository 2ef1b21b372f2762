//! Which model the server starts with, and how it ends with clients attached.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::json;
use werkruf_bench::fake_model::FakeModel;

use crate::support::{Place, Server};

/// A request over a socket of our own, so that it can stay open; what is read back comes line by line.
fn request(server: &Server, head: &str, body: &str) -> BufReader<TcpStream> {
    let address = server.address();
    let mut socket = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    let key = server.key();
    let length = body.len();
    write!(socket, "{head} HTTP/1.1\r\nHost: werkruf\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    BufReader::new(socket)
}

/// Reads until a line holds this.
fn until(lines: &mut BufReader<TcpStream>, wanted: &str) -> String {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the stream ended before {wanted}");
    }
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_a_name_is_asked_for_names() {
    let model = FakeModel::start().await;
    let place = Place::new().with("OPENAI_BASE_URL", &model.base_url());
    let refused = tokio::task::block_in_place(|| place.run(&["serve", "--listen", "127.0.0.1:0", "--json"])).exits(1).error();
    assert_eq!(refused["code"], "model_not_configured");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("OPENAI_MODEL") && message.contains("offers"), "{message}");
    // Nothing but the model is missing: commands that ask none still work.
    tokio::task::block_in_place(|| place.run(&["tools", "list"])).exits(0);
}

#[test]
fn an_open_stream_does_not_hold_the_server() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut chat = request(&server, "POST /api/chat", &json!({"message": "hallo"}).to_string());
    let init = until(&mut chat, "\"conversation_id\"");
    let id = init.split("\"conversation_id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert!(until(&mut chat, "\"message\":{").contains("OPENAI_API_KEY"), "it says how to connect a model");
    let mut events = request(&server, &format!("GET /api/conversations/{id}/events?after=0"), "");
    until(&mut events, "event: final");
    server.signal("-TERM");
    assert!(server.ended().success(), "the stream was still open");
}

#[test]
fn a_second_signal_ends_at_once() {
    let place =
        Place::new().with("WERKRUF_TEST_TOOLS", "1").with("WERKRUF_LIMIT_TOOL_MS", "600000").with("WERKRUF_LIMIT_DRAIN_MS", "600000");
    place.file("werkruf.toml", "");
    let server = place.serve(&[]);
    let mut call = request(&server, "POST /api/tools/test_sleep/invoke", &json!({"input": {"ms": 25_000}}).to_string());
    // The call is in the registry, so the drain has something to wait for.
    let running = || place.run(&["calls", "list", "--status", "running", "--json"]).json()["tool_calls"].as_array().map_or(0, Vec::len);
    assert!((0..500).any(|_| running() == 1), "the call never started");
    server.signal("-TERM");
    // Once it drains it accepts nobody any more.
    let address = server.address();
    assert!((0..10_000).any(|_| TcpStream::connect(address.trim_start_matches("http://")).is_err()), "it still accepts");
    server.signal("-TERM");
    assert_eq!(server.ended().code(), Some(130));
    assert_eq!(call.read_line(&mut String::new()).unwrap_or(0), 0, "no answer was made up");
}
