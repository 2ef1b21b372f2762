//! HTTP servers on loopback: one that sends a fixed response and records the requests, and one that sends raw bytes.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A recorded request.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl ReceivedRequest {
    /// A header as text; empty if absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A running server; it stops when dropped.
pub struct Server {
    pub url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    arrived: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// A server that sends this response to every request.
    pub async fn answering(status: u16, headers: &[(&'static str, &str)], body: impl Into<Bytes>) -> Self {
        let headers: Vec<(&'static str, String)> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let body: Bytes = body.into();
        let (requests, arrived) = (Arc::<Mutex<Vec<ReceivedRequest>>>::default(), Arc::<Notify>::default());
        let log = Arc::clone(&requests);
        let handler = move |method, uri, sent: HeaderMap, bytes| async move {
            log.lock().unwrap().push(ReceivedRequest { method, uri, headers: sent, body: bytes });
            let builder = headers.iter().fold(Response::builder().status(status), |builder, (name, value)| builder.header(*name, value));
            builder.body(Body::from(body)).unwrap()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/tool", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await.unwrap() });
        Self { url, requests, arrived, _tasks: tasks }
    }

    /// A server that reads a request, writes these bytes, and then closes the connection or keeps it open for ever.
    pub async fn raw(bytes: &'static [u8], then_hang: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/tool", listener.local_addr().unwrap());
        let (requests, arrived) = (Arc::default(), Arc::<Notify>::default());
        let signal = Arc::clone(&arrived);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                // Reads to the end of the JSON body, because closing with unread bytes would reset the connection.
                while request.last() != Some(&b'}') {
                    assert!(socket.read_buf(&mut request).await.unwrap() > 0, "a request arrives");
                }
                socket.write_all(bytes).await.unwrap();
                signal.notify_one();
                if then_hang {
                    open.push(socket);
                }
            }
        });
        Self { url, requests, arrived, _tasks: tasks }
    }

    /// Waits until a raw server has read a request.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// The recorded request; there must be exactly one.
    pub fn only_request(&self) -> ReceivedRequest {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "exactly one request per call");
        requests.remove(0)
    }

    /// All recorded requests.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}
