//! Failures for a service that is slow, broken or unreachable, or that sends too much.

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
async fn a_response_of_ten_mebibytes_is_too_large() {
    let server = Server::answering(200, &[], vec![b'7'; 10 * 1024 * 1024]).await;
    let failure = call(&server.url).await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Fatal, "response_too_large", Happened::Unknown);
    assert_eq!((failure.upstream_status, failure.endpoint.as_deref()), (Some(200), Some(server.url.as_str())));
}

#[tokio::test]
async fn the_size_limit_is_exact() {
    let server = Server::answering(200, &[], "\"12345678\"").await;
    let with_limit = |limit: u64| tool(&server.url, &json!({"max_response_bytes": limit}));
    assert_eq!(with_limit(10).call(json!({}), invocation()).await.unwrap().data, json!("12345678"));
    assert_eq!(with_limit(9).call(json!({}), invocation()).await.unwrap_err().code, "response_too_large");
}

#[tokio::test]
async fn a_body_without_a_length_is_stopped_at_the_limit() {
    // The server never completes its response, so the call ends before the deadline only if reading stops at the limit.
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n20\r\n\"0123456789012345678901234567890\r\n";
    let server = Server::raw(head, true).await;
    let failure = tool(&server.url, &json!({"max_response_bytes": 16})).call(json!({}), invocation()).await.unwrap_err();
    assert_eq!(failure.code, "response_too_large");
}

#[tokio::test]
async fn a_gzip_bomb_is_measured_after_decompression() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b' '; 10 * 1024 * 1024]).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < 100_000, "the compressed body is small");
    let server = Server::answering(200, &[("content-encoding", "gzip")], packed).await;
    assert_eq!(call(&server.url).await.unwrap_err().code, "response_too_large");
}

#[tokio::test]
async fn gzipped_json_is_read_and_invalid_gzip_is_a_bad_response() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"{\"a\": 1}").unwrap();
    let server = Server::answering(200, &[("content-encoding", "gzip")], encoder.finish().unwrap()).await;
    assert_eq!(call(&server.url).await.unwrap().data, json!({"a": 1}));
    let server = Server::answering(200, &[("content-encoding", "gzip")], "not gzip").await;
    assert_failure(&call(&server.url).await.unwrap_err(), ToolErrorType::Upstream, "bad_response", Happened::Unknown);
}

#[tokio::test]
async fn a_hanging_server_ends_at_the_tools_timeout() {
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"] {
        let server = Server::raw(bytes, true).await;
        let failure = tool(&server.url, &json!({"timeout_ms": 50})).call(json!({}), invocation()).await.unwrap_err();
        assert_failure(&failure, ToolErrorType::Timeout, "tool_timeout", Happened::Unknown);
    }
}

#[tokio::test]
async fn the_deadline_of_the_call_wins_if_it_is_earlier() {
    let server = Server::raw(b"", true).await;
    let tool = tool(&server.url, &json!({"timeout_ms": 3_600_000}));
    let mut invocation = invocation();
    invocation.deadline = Deadline::after(Duration::from_millis(200));
    let failure = tool.call(json!({}), invocation.clone()).await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Timeout, "tool_timeout", Happened::Unknown);
    // The deadline has passed, so no request is sent.
    let failure = tool.call(json!({}), invocation).await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Timeout, "tool_timeout", Happened::No);
}

#[tokio::test]
async fn an_error_response_that_hangs_mid_body_still_counts() {
    let server = Server::raw(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 100\r\n\r\nno", true).await;
    assert_failure(&call(&server.url).await.unwrap_err(), ToolErrorType::Fatal, "upstream_refused", Happened::No);
}

#[tokio::test]
async fn a_cancel_request_ends_the_wait() {
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
async fn a_connection_lost_before_or_during_the_response_has_an_unknown_effect() {
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
async fn a_closed_port_means_no_effect() {
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
async fn an_unknown_host_means_no_effect() {
    let failure = call("http://no-such-host.invalid/tool").await.unwrap_err();
    assert_failure(&failure, ToolErrorType::Upstream, "upstream_unreachable", Happened::No);
}
