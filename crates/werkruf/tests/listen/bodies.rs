//! Bodies of requests that do not come, before the whole house.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::house::{PATIENCE, Porch, bounds};
use crate::support::{ADMIN, House};
use werkruf::api;
use werkruf::listen::Bounds;

const GAP: Duration = Duration::from_millis(400);

async fn open() -> (House, Porch) {
    let house = House::open().await;
    let porch = Porch::open_with(Bounds { body: GAP, ..bounds() }, api::router(Arc::clone(&house.app)), Arc::default()).await;
    (house, porch)
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
    let (house, porch) = open().await;
    for sent in ["", r#"{"message": "#] {
        let mut client = porch.connect().await;
        client.send(&head(ADMIN, 100)).await;
        client.send(sent).await;
        assert_timeout(&client.rest().await);
    }
    assert_eq!(house.model.requests().len(), 0);
}

#[tokio::test]
async fn a_byte_now_and_then_buys_no_time() {
    let (_house, porch) = open().await;
    let mut client = porch.connect().await;
    client.send(&head(ADMIN, 100_000)).await;
    let trickle = async {
        // Never a pause as long as the gap, and still over soon.
        while client.hears_nothing_for(GAP / 20).await {
            if client.0.write_all(b"x").await.is_err() {
                break;
            }
        }
    };
    timeout(PATIENCE / 3, trickle).await.unwrap();
}

#[tokio::test]
async fn a_body_in_pieces_is_taken() {
    let (house, porch) = open().await;
    let body = r#"{"message": "in pieces"}"#;
    let mut client = porch.connect().await;
    client.send(&head(ADMIN, body.len())).await;
    for piece in body.as_bytes().chunks(9) {
        assert!(client.hears_nothing_for(GAP / 20).await);
        client.0.write_all(piece).await.unwrap();
    }
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 200"));
    assert_eq!(house.model.requests().len(), 1);
    // A connection whose body was read whole serves the next request.
    client.get("/healthz").await;
    assert!(client.until("\r\n\r\n").await.contains("HTTP/1.1 200"));
}

#[tokio::test]
async fn without_a_key_nobody_is_waited_for() {
    let (_house, porch) = open().await;
    let mut client = porch.connect().await;
    client.send(&head("nobody", 100_000)).await;
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 401"));
}
