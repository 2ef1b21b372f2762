//! Heads of requests: late, endless, too large.

use std::time::Duration;

use crate::house::{PATIENCE, Porch, bounds};
use werkruf::listen::Bounds;

#[tokio::test]
async fn a_half_sent_head_is_closed_in_time() {
    let porch = Porch::open(bounds()).await;
    let mut silent = porch.connect().await;
    let mut half = porch.connect().await;
    half.send("GET / HTTP/1.1\r\nhost: te").await;
    assert_eq!(half.rest().await, "");
    assert_eq!(silent.rest().await, "");
}

#[tokio::test]
async fn a_byte_now_and_then_does_not_buy_time() {
    let porch = Porch::open(bounds()).await;
    let mut client = porch.connect().await;
    client.send("GET / HTTP/1.1\r\nx: ").await;
    let trickle = async {
        while client.hears_nothing_for(Duration::from_millis(20)).await {
            if tokio::io::AsyncWriteExt::write_all(&mut client.0, b"x").await.is_err() {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, trickle).await.unwrap();
}

#[tokio::test]
async fn a_connection_may_rest_between_requests_but_not_within_a_head() {
    let porch = Porch::open(bounds()).await;
    let mut client = porch.connect().await;
    for _ in 0..2 {
        client.get("/").await;
        assert!(client.until("here").await.starts_with("HTTP/1.1 200"));
        assert!(client.hears_nothing_for(Duration::from_millis(500)).await, "longer than a head may take");
    }
    client.send("GET / HT").await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_resting_connection_is_closed_after_its_time() {
    let porch = Porch::open(Bounds { idle: Duration::from_millis(300), head: PATIENCE, ..bounds() }).await;
    let mut client = porch.connect().await;
    client.get("/").await;
    client.until("here").await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn too_many_headers_and_too_large_a_head_are_refused() {
    let porch = Porch::open(bounds()).await;
    let request = |headers: &str| format!("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}\r\n");
    for (headers, status) in [("x: y\r\n".repeat(98), "200"), ("x: y\r\n".repeat(99), "431")] {
        let mut client = porch.connect().await;
        client.send(&request(&headers)).await;
        assert!(client.rest().await.starts_with(&format!("HTTP/1.1 {status}")), "{status}");
    }
    for (length, status) in [(15 * 1024, "200"), (17 * 1024, "431")] {
        let mut client = porch.connect().await;
        client.send(&request(&format!("x: {}\r\n", "y".repeat(length)))).await;
        assert!(client.rest().await.starts_with(&format!("HTTP/1.1 {status}")), "{length}");
    }
}
