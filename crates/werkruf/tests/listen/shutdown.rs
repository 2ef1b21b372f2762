//! What open connections see when the server stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use werkruf::api;

use crate::house::{Inside, PATIENCE, Porch, bounds};
use crate::support::{ADMIN, House};

#[tokio::test]
async fn idle_connections_close_at_once_and_running_requests_finish() {
    let porch = Porch::open(bounds()).await;
    let mut idle = porch.connect().await;
    idle.get("/").await;
    idle.until("here").await;
    let mut running = porch.connect().await;
    running.get("/held").await;
    porch.inside.asked.notified().await;
    porch.stop.cancel();
    assert_eq!(idle.rest().await, "");
    assert!(!porch.serving.is_finished(), "a request runs");
    porch.inside.gate.notify_one();
    let answer = running.rest().await;
    assert!(answer.contains("at last") && answer.contains("connection: close"), "{answer}");
    timeout(PATIENCE, porch.serving).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(porch.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_listener_that_is_dropped_leaves_no_connection() {
    let porch = Porch::open(bounds()).await;
    let mut client = porch.connect().await;
    client.get("/flood").await;
    client.until("\r\n\r\n").await;
    porch.serving.abort();
    porch.tasks.close();
    timeout(PATIENCE, porch.tasks.wait()).await.unwrap();
}

#[tokio::test]
async fn an_open_stream_ends_with_a_hint_when_the_house_drains() {
    let house = House::open().await;
    let conversation = house.conversation(1).await;
    let porch = Porch::open_with(bounds(), api::router(Arc::clone(&house.app)), Arc::new(Inside::default())).await;
    let mut stream = porch.connect().await;
    let request = format!(
        "GET /api/conversations/{conversation}/events HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {ADMIN}\r\nx-user-id: 1\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.send(&request).await;
    assert!(stream.until("event: final").await.starts_with("HTTP/1.1 200"));
    porch.stop.cancel();
    let ending = async { tokio::join!(house.app.runtime.drain(), porch.serving).1 };
    timeout(Duration::from_secs(5), ending).await.unwrap().unwrap();
    assert!(stream.rest().await.contains("retry: 1000"));
}
