//! A listener with small bounds before a router made for tests.

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
use werkruf::listen::{Bounds, Listener};

/// Nothing here takes longer unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Small times, roomy counts.
pub fn bounds() -> Bounds {
    let (head, long) = (Duration::from_millis(200), 2 * PATIENCE);
    Bounds { head, body: long, idle: long, stall: long, peer: long, connections: 1_000, per_address: 1_000 }
}

/// What the test's routes share.
#[derive(Default)]
pub struct Inside {
    /// Bodies under way.
    pub floods: AtomicUsize,
    /// Lets `/held` answer.
    pub gate: Notify,
    /// `/held` was asked.
    pub asked: Notify,
}

/// A running listener.
pub struct Porch {
    pub address: SocketAddr,
    pub inside: Arc<Inside>,
    pub stop: CancellationToken,
    pub serving: JoinHandle<()>,
    pub tasks: TaskTracker,
}

impl Porch {
    pub async fn open(bounds: Bounds) -> Self {
        let inside = Arc::new(Inside::default());
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/held", get(held))
            .route("/flood", get(flood))
            .with_state(Arc::clone(&inside));
        Self::open_with(bounds, router, inside).await
    }

    pub async fn open_with(bounds: Bounds, router: Router, inside: Arc<Inside>) -> Self {
        let tasks = TaskTracker::new();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), bounds, tasks.clone()).await.unwrap();
        let address = listener.address().unwrap();
        let stop = CancellationToken::new();
        let serving = tasks.spawn(listener.serve(router, stop.clone()));
        Self { address, inside, stop, serving, tasks }
    }

    pub async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }
}

async fn held(State(inside): State<Arc<Inside>>) -> &'static str {
    inside.asked.notify_one();
    inside.gate.notified().await;
    "at last"
}

/// A body without an end, as fast as it is taken.
async fn flood(State(inside): State<Arc<Inside>>) -> Body {
    inside.floods.fetch_add(1, Ordering::SeqCst);
    let flood = Flood(inside);
    Body::from_stream(stream::unfold(flood, |flood| async move {
        let chunk = Bytes::from(vec![b'x'; 8 * 1024]);
        Some((Ok::<_, Infallible>(chunk), flood))
    }))
}

struct Flood(Arc<Inside>);

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.floods.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A client that writes bytes and not requests.
pub struct Client(pub TcpStream);

impl Client {
    pub async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    pub async fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")).await;
    }

    /// Everything up to the end of the connection; a reset is an end as well.
    pub async fn rest(&mut self) -> String {
        let mut text = Vec::new();
        let _ = timeout(PATIENCE, self.0.read_to_end(&mut text)).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    /// What comes, up to and with these words.
    pub async fn until(&mut self, words: &str) -> String {
        let mut text = Vec::new();
        let reading = async {
            while !String::from_utf8_lossy(&text).contains(words) {
                let read = self.0.read_buf(&mut text).await.unwrap();
                assert_ne!(read, 0, "ended before {words:?}: {}", String::from_utf8_lossy(&text));
            }
        };
        timeout(PATIENCE, reading).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Whether nothing at all comes for this long, not even the end.
    pub async fn hears_nothing_for(&mut self, time: Duration) -> bool {
        timeout(time, self.0.read_u8()).await.is_err()
    }
}
