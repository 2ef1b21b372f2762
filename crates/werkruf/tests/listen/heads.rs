//! Request heads that are late, endless or too large.

use std::time::Duration;

use crate::listener::{TIMEOUT, TestListener, bounds};
use werkruf::listen::Bounds;

#[tokio::test]
async fn a_half_sent_head_is_closed_in_time() {
    let listener = TestListener::open(bounds()).await;
    let mut silent = listener.connect().await;
    let mut half = listener.connect().await;
    half.send("GET / HTTP/1.1\r\nhost: te").await;
    assert_eq!(half.rest().await, "");
    assert_eq!(silent.rest().await, "");
}

#[tokio::test]
async fn a_slow_trickle_of_bytes_does_not_extend_the_deadline() {
    let listener = TestListener::open(bounds()).await;
    let mut client = listener.connect().await;
    client.send("GET / HTTP/1.1\r\nx: ").await;
    let trickle = async {
        while client.receives_nothing_for(Duration::from_millis(20)).await {
            if tokio::io::AsyncWriteExt::write_all(&mut client.0, b"x").await.is_err() {
                break;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, trickle).await.unwrap();
}

#[tokio::test]
async fn a_connection_may_idle_between_requests_but_not_within_a_head() {
    let listener = TestListener::open(bounds()).await;
    let mut client = listener.connect().await;
    for _ in 0..2 {
        client.get("/").await;
        assert!(client.until("here").await.starts_with("HTTP/1.1 200"));
        assert!(client.receives_nothing_for(Duration::from_millis(500)).await, "longer than a head may take");
    }
    client.send("GET / HT").await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_limit() {
    let listener = TestListener::open(Bounds { idle: Duration::from_millis(300), head: TIMEOUT, ..bounds() }).await;
    let mut client = listener.connect().await;
    client.get("/").await;
    client.until("here").await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn too_many_headers_and_too_large_a_head_are_refused() {
    let listener = TestListener::open(bounds()).await;
    let request = |headers: &str| format!("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}\r\n");
    for (headers, status) in [("x: y\r\n".repeat(98), "200"), ("x: y\r\n".repeat(99), "431")] {
        let mut client = listener.connect().await;
        client.send(&request(&headers)).await;
        assert!(client.rest().await.starts_with(&format!("HTTP/1.1 {status}")), "{status}");
    }
    for (length, status) in [(15 * 1024, "200"), (17 * 1024, "431")] {
        let mut client = listener.connect().await;
        client.send(&request(&format!("x: {}\r\n", "y".repeat(length)))).await;
        assert!(client.rest().await.starts_with(&format!("HTTP/1.1 {status}")), "{length}");
    }
}
