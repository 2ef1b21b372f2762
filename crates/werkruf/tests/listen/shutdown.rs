//! Open connections when the server stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use werkruf::api;

use crate::listener::{RouteState, TIMEOUT, TestListener, bounds};
use crate::support::{ADMIN, TestServer};

#[tokio::test]
async fn idle_connections_close_at_once_and_running_requests_finish() {
    let listener = TestListener::open(bounds()).await;
    let mut idle = listener.connect().await;
    idle.get("/").await;
    idle.until("here").await;
    let mut running = listener.connect().await;
    running.get("/held").await;
    listener.state.requested.notified().await;
    listener.stop.cancel();
    assert_eq!(idle.rest().await, "");
    assert!(!listener.serving.is_finished(), "a request runs");
    listener.state.gate.notify_one();
    let answer = running.rest().await;
    assert!(answer.contains("at last") && answer.contains("connection: close"), "{answer}");
    timeout(TIMEOUT, listener.serving).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(listener.address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn a_dropped_listener_leaves_no_connection() {
    let listener = TestListener::open(bounds()).await;
    let mut client = listener.connect().await;
    client.get("/flood").await;
    client.until("\r\n\r\n").await;
    listener.serving.abort();
    listener.tasks.close();
    timeout(TIMEOUT, listener.tasks.wait()).await.unwrap();
}

#[tokio::test]
async fn an_open_stream_ends_with_a_retry_hint_when_the_server_drains() {
    let server = TestServer::open().await;
    let conversation = server.conversation(1).await;
    let listener = TestListener::open_with(bounds(), api::router(Arc::clone(&server.app)), Arc::new(RouteState::default()), None).await;
    let mut stream = listener.connect().await;
    let request = format!(
        "GET /api/conversations/{conversation}/events HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {ADMIN}\r\nx-user-id: 1\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.send(&request).await;
    assert!(stream.until("event: final").await.starts_with("HTTP/1.1 200"));
    listener.stop.cancel();
    let ending = async { tokio::join!(server.app.runtime.drain(), listener.serving).1 };
    timeout(Duration::from_secs(5), ending).await.unwrap().unwrap();
    assert!(stream.rest().await.contains("retry: 1000"));
}
