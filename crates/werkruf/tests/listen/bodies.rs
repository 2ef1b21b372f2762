//! Request bodies that arrive late or not at all, on the complete API.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::listener::{TIMEOUT, TestListener, bounds};
use crate::support::{ADMIN, TestServer};
use werkruf::api;
use werkruf::listen::Bounds;

const GAP: Duration = Duration::from_millis(400);

async fn open() -> (TestServer, TestListener) {
    let server = TestServer::open().await;
    let listener =
        TestListener::open_with(Bounds { body: GAP, ..bounds() }, api::router(Arc::clone(&server.app)), Arc::default(), None).await;
    (server, listener)
}

fn head(key: &str, length: usize) -> String {
    format!(
        "POST /api/chat HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\nx-user-id: 3\r\naccept: application/json\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

fn assert_timeout(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains(r#""code":"request_timeout""#) && answer.contains(r#""type":"TIMEOUT""#), "{answer}");
}

#[tokio::test]
async fn a_body_that_stops_is_refused_and_its_connection_closed() {
    let (server, listener) = open().await;
    for sent in ["", r#"{"message": "#] {
        let mut client = listener.connect().await;
        client.send(&head(ADMIN, 100)).await;
        client.send(sent).await;
        assert_timeout(&client.rest().await);
    }
    assert_eq!(server.model.requests().len(), 0);
}

#[tokio::test]
async fn a_slow_trickle_of_bytes_does_not_extend_the_deadline() {
    let (_server, listener) = open().await;
    let mut client = listener.connect().await;
    client.send(&head(ADMIN, 100_000)).await;
    let trickle = async {
        // No pause is as long as the limit, but the request ends anyway.
        while client.receives_nothing_for(GAP / 20).await {
            if client.0.write_all(b"x").await.is_err() {
                break;
            }
        }
    };
    timeout(TIMEOUT / 3, trickle).await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_never_slow_has_a_limit_too() {
    let server = TestServer::open().await;
    let limits = Bounds { body: 2 * TIMEOUT, body_total: GAP, ..bounds() };
    let listener = TestListener::open_with(limits, api::router(Arc::clone(&server.app)), Arc::default(), None).await;
    let mut client = listener.connect().await;
    client.send(&head(ADMIN, 1_000_000)).await;
    let mut answer = Vec::new();
    // Twenty times the slowest rate, and no long pause: only the limit of the whole body ends it.
    while timeout(GAP / 20, client.0.read_buf(&mut answer)).await.is_err() {
        client.0.write_all(&[b' '; 1024]).await.unwrap();
    }
    let rest = client.rest().await;
    assert_timeout(&(String::from_utf8(answer).unwrap() + &rest));
}

#[tokio::test]
async fn a_body_in_pieces_is_accepted() {
    let (server, listener) = open().await;
    let body = r#"{"message": "in pieces"}"#;
    let mut client = listener.connect().await;
    client.send(&head(ADMIN, body.len())).await;
    for piece in body.as_bytes().chunks(9) {
        assert!(client.receives_nothing_for(GAP / 20).await);
        client.0.write_all(piece).await.unwrap();
    }
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.model.requests().len(), 1);
    // A connection whose body was completely read serves the next request.
    client.get("/healthz").await;
    assert!(client.until("\r\n\r\n").await.contains("HTTP/1.1 200"));
}

#[tokio::test]
async fn over_the_limit_of_turns_the_body_is_not_awaited() {
    let server = TestServer::open_in("", &[("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "1")]).await;
    let listener = TestListener::open_with(bounds(), api::router(Arc::clone(&server.app)), Arc::default(), None).await;
    let body = r#"{"message": "the only one"}"#;
    let mut client = listener.connect().await;
    client.send(&head(ADMIN, body.len())).await;
    client.send(body).await;
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 200"));
    let mut client = listener.connect().await;
    client.send(&head(ADMIN, 100_000)).await;
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 429"));
}

#[tokio::test]
async fn without_a_key_the_body_is_not_awaited() {
    let (_server, listener) = open().await;
    let mut client = listener.connect().await;
    client.send(&head("wrong-key", 100_000)).await;
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 401"));
}
