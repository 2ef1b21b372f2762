//! A listener with small limits and a router for tests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use werkruf::listen::{Bounds, Listener, Tls};

/// A test that takes longer than this hangs.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A short time for heads, and high limits for the rest.
pub fn bounds() -> Bounds {
    let (head, long) = (Duration::from_millis(200), 2 * TIMEOUT);
    Bounds {
        head,
        body: long,
        body_total: long,
        idle: long,
        stall: long,
        peer: long,
        connections: 1_000,
        place: Duration::from_millis(200),
        per_address: 1_000,
    }
}

/// The state of the test routes.
#[derive(Default)]
pub struct RouteState {
    /// The number of bodies being sent.
    pub floods: AtomicUsize,
    /// Lets `/held` answer.
    pub gate: Notify,
    /// `/held` was requested.
    pub requested: Notify,
}

/// A running listener.
pub struct TestListener {
    pub address: SocketAddr,
    pub state: Arc<RouteState>,
    pub stop: CancellationToken,
    pub serving: JoinHandle<()>,
    pub tasks: TaskTracker,
}

impl TestListener {
    pub async fn open(bounds: Bounds) -> Self {
        Self::open_tls(bounds, None).await
    }

    pub async fn open_tls(bounds: Bounds, tls: Option<Arc<Tls>>) -> Self {
        let state = Arc::new(RouteState::default());
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/held", get(held))
            .route("/flood", get(flood))
            .with_state(Arc::clone(&state));
        Self::open_with(bounds, router, state, tls).await
    }

    pub async fn open_with(bounds: Bounds, router: Router, state: Arc<RouteState>, tls: Option<Arc<Tls>>) -> Self {
        let tasks = TaskTracker::new();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), bounds, tasks.clone()).await.unwrap();
        let listener = listener.reserving_for(Arc::new(|headers| headers.get("authorization").is_some_and(|value| value == "operator")));
        let listener = listener.with_tls(tls);
        let address = listener.address().unwrap();
        let stop = CancellationToken::new();
        let serving = tasks.spawn(listener.serve(router, stop.clone()));
        Self { address, state, stop, serving, tasks }
    }

    pub async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }
}

async fn held(State(state): State<Arc<RouteState>>) -> &'static str {
    state.requested.notify_one();
    state.gate.notified().await;
    "at last"
}

/// An endless body, as fast as the client reads.
async fn flood(State(state): State<Arc<RouteState>>) -> Body {
    state.floods.fetch_add(1, Ordering::SeqCst);
    let flood = Flood(state);
    Body::from_stream(stream::unfold(flood, |flood| async move {
        let chunk = Bytes::from(vec![b'x'; 8 * 1024]);
        Some((Ok::<_, Infallible>(chunk), flood))
    }))
}

struct Flood(Arc<RouteState>);

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.floods.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A client that writes raw bytes.
pub struct Client(pub TcpStream);

impl Client {
    pub async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    pub async fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")).await;
    }

    /// Everything up to the end of the connection; a reset counts as the end.
    pub async fn rest(&mut self) -> String {
        let mut text = Vec::new();
        let _ = timeout(TIMEOUT, self.0.read_to_end(&mut text)).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Reads up to and including this text.
    pub async fn until(&mut self, expected: &str) -> String {
        let mut text = Vec::new();
        let reading = async {
            while !String::from_utf8_lossy(&text).contains(expected) {
                let read = self.0.read_buf(&mut text).await.unwrap();
                assert_ne!(read, 0, "ended before {expected:?}: {}", String::from_utf8_lossy(&text));
            }
        };
        timeout(TIMEOUT, reading).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Whether nothing arrives for this long, not even the end of the connection.
    pub async fn receives_nothing_for(&mut self, time: Duration) -> bool {
        timeout(time, self.0.read_u8()).await.is_err()
    }
}
