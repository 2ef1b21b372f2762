//! What happens when the other side is slow, large, broken or not there.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tokio::net::TcpListener;
use werkruf_contract::{Deadline, Failure, Happened, ToolErrorType, ToolObject};

use crate::declared::{call, tool};
use crate::server::Server;
use crate::support::invocation;

fn assert_failure(failure: &Failure, kind: ToolErrorType, code: &str, happened: Happened) {
    assert_eq!((failure.kind, failure.code.as_ref(), failure.happened), (kind, code, happened), "{failure:?}");
}

#[tokio::test]
async fn ten_mebibytes_are_too_large() {
    let server = Server::answering(200, &[], vec![b'7'; 10 * 1024 * 1024]).await;
    let failure = call(&server.url).await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Fatal, "response_too_large", Happened::Unknown);
    assert_eq!((failure.upstream_status, failure.endpoint.as_deref()), (Some(200), Some(server.url.as_str())));
}

#[tokio::test]
async fn the_limit_is_exact() {
    let server = Server::answering(200, &[], "\"12345678\"").await;
    let with_limit = |limit: u64| tool(&server.url, &json!({"max_response_bytes": limit}));
    assert_eq!(with_limit(10).call(json!({}), invocation()).await.unwrap().data, json!("12345678"));
    assert_eq!(with_limit(9).call(json!({}), invocation()).await.unwrap_err().code, "response_too_large");
}

#[tokio::test]
async fn a_body_without_a_length_is_stopped_at_the_limit() {
    // The server never finishes its answer: only stopping at the limit can end this before the deadline.
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n20\r\n\"0123456789012345678901234567890\r\n";
    let server = Server::raw(head, true).await;
    let failure = tool(&server.url, &json!({"max_response_bytes": 16})).call(json!({}), invocation()).await.unwrap_err();
    assert_eq!(failure.code, "response_too_large");
}

#[tokio::test]
async fn a_gzip_bomb_is_counted_unpacked() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b' '; 10 * 1024 * 1024]).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < 100_000, "it looks small on the wire");
    let server = Server::answering(200, &[("content-encoding", "gzip")], packed).await;
    assert_eq!(call(&server.url).await.unwrap_err().code, "response_too_large");
}

#[tokio::test]
async fn packed_json_is_read_and_broken_packing_is_a_bad_response() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"{\"a\": 1}").unwrap();
    let server = Server::answering(200, &[("content-encoding", "gzip")], encoder.finish().unwrap()).await;
    assert_eq!(call(&server.url).await.unwrap().data, json!({"a": 1}));
    let server = Server::answering(200, &[("content-encoding", "gzip")], "not packed at all").await;
    assert_failure(&call(&server.url).await.unwrap_err(), ToolErrorType::Upstream, "bad_response", Happened::Unknown);
}

#[tokio::test]
async fn a_hanging_server_ends_at_the_tools_own_deadline() {
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"] {
        let server = Server::raw(bytes, true).await;
        let failure = tool(&server.url, &json!({"timeout_ms": 50})).call(json!({}), invocation()).await.unwrap_err();
        assert_failure(&failure, ToolErrorType::Timeout, "tool_timeout", Happened::Unknown);
    }
}

#[tokio::test]
async fn the_calls_deadline_wins_when_it_is_earlier() {
    let server = Server::raw(b"", true).await;
    let tool = tool(&server.url, &json!({"timeout_ms": 3_600_000}));
    let mut invocation = invocation();
    invocation.deadline = Deadline::after(Duration::from_millis(200));
    let failure = tool.call(json!({}), invocation.clone()).await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Timeout, "tool_timeout", Happened::Unknown);
    // Now it has passed: nothing leaves.
    let failure = tool.call(json!({}), invocation).await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Timeout, "tool_timeout", Happened::No);
}

#[tokio::test]
async fn a_refusal_that_hangs_midway_still_counts() {
    let server = Server::raw(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 100\r\n\r\nno", true).await;
    assert_failure(&call(&server.url).await.unwrap_err(), ToolErrorType::Fatal, "upstream_refused", Happened::No);
}

#[tokio::test]
async fn a_cancel_is_heard_while_waiting() {
    let server = Server::raw(b"", true).await;
    let invocation = invocation();
    let cancel = invocation.cancel.clone();
    let tool = tool(&server.url, &json!({}));
    let cancels = async {
        server.arrival().await;
        cancel.raise();
    };
    let (outcome, ()) = tokio::join!(tool.call(json!({}), invocation.clone()), cancels);
    assert_failure(&outcome.unwrap_err(), ToolErrorType::Fatal, "canceled", Happened::Unknown);
    let failure = tool.call(json!({}), invocation).await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Fatal, "canceled", Happened::No);
}

#[tokio::test]
async fn a_connection_dropped_before_or_in_the_answer_may_have_had_its_effect() {
    for bytes in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}",
    ] {
        let server = Server::raw(bytes, false).await;
        let failure = call(&server.url).await.unwrap_err();
        assert_failure(&failure, ToolErrorType::Upstream, "upstream_error", Happened::Unknown);
        assert!(failure.cause.is_some());
        assert_eq!(failure.upstream_status, (!bytes.is_empty()).then_some(200));
    }
}

#[tokio::test]
async fn a_closed_port_means_that_nothing_happened() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://user:pass@{address}/tool?key=secret");
    let failure = call(&url).await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Upstream, "upstream_unreachable", Happened::No);
    assert_eq!(failure.endpoint, Some(format!("http://{address}/tool")));
    let printed = format!("{failure:?}");
    assert!(!printed.contains("secret") && !printed.contains("pass"), "{printed}");
}

#[tokio::test]
async fn an_unknown_host_means_that_nothing_happened() {
    let failure = call("http://no-such-host.invalid/tool").await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Upstream, "upstream_unreachable", Happened::No);
}
