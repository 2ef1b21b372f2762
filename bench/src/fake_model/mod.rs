//! A scripted model server on loopback with OpenAI's Chat Completions and Responses APIs.
//!
//! One script serves both: the next reply is sent in the format of the requested API.
//! Tests script the replies and read back the requests. A history that the real API would reject gets status 400.
//! The fake has no sleeps: gates and `hang` hold a response until the test opens the gate or the client disconnects.

mod body;
mod events;
mod fixed;
mod fixed_response;
mod gate;
mod reply;
mod request;
mod response_events;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use fixed::fixed_router;
pub use gate::Gate;
pub use reply::{Call, Reply, call, call_raw};
pub use request::{Api, RecordedRequest};

use gate::GatePoint;
use reply::{Ending, Kind};

type ReplyFn = Box<dyn Fn(&RecordedRequest) -> Reply + Send + Sync>;

/// A running fake. Dropping it closes its port and its connections.
pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

pub(super) struct Shared {
    script: Mutex<Script>,
    /// The number of requests received.
    received: watch::Sender<usize>,
    /// The number of unfinished responses.
    open: watch::Sender<usize>,
    closing: watch::Sender<bool>,
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    by_request: Option<ReplyFn>,
    requests: Vec<RecordedRequest>,
    calls: usize,
}

impl FakeModel {
    /// Starts on a free port.
    ///
    /// # Panics
    /// If no port on loopback is free.
    #[expect(clippy::expect_used, reason = "a test cannot continue without its fake, and this saves every test an unwrap")]
    pub async fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a free port on loopback")
    }

    /// Starts at this address, to replace an earlier fake.
    pub async fn start_at(address: SocketAddr) -> io::Result<Self> {
        Self::serve(address, |shared| {
            Router::new()
                .route("/v1/chat/completions", post(|state, headers, body| reply_to(Api::Chat, state, headers, body)))
                .route("/v1/responses", post(|state, headers, body| reply_to(Api::Responses, state, headers, body)))
                // The replies for vectors are bytes and statuses.
                .route("/v1/embeddings", post(|state, headers, body| reply_to(Api::Responses, state, headers, body)))
                .route("/v1/models", get(models))
                .layer(DefaultBodyLimit::disable())
                .with_state(shared)
        })
        .await
    }

    /// Starts the benchmark's model, which follows no script and records nothing.
    pub async fn start_fixed() -> io::Result<Self> {
        Self::serve(SocketAddr::from(([127, 0, 0, 1], 0)), |_| fixed_router(Duration::ZERO)).await
    }

    #[expect(clippy::disallowed_methods, reason = "the fake owns its server task and aborts it on drop")]
    async fn serve(address: SocketAddr, router: impl FnOnce(Arc<Shared>) -> Router) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script: Mutex::default(),
            received: watch::Sender::new(0),
            open: watch::Sender::new(0),
            closing: watch::Sender::new(false),
        });
        let mut closing = shared.closing.subscribe();
        let closed = async move {
            let _ = closing.wait_for(|closing| *closing).await;
        };
        let router = router(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).with_graceful_shutdown(closed).await;
        });
        Ok(Self { address, shared, server })
    }

    /// The base URL for the configuration of a client.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The address of the server.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds replies; each request gets the next one. When none is left, the reply is a plain text.
    pub fn script(&self, replies: Vec<Reply>) {
        self.shared.script().replies.extend(replies);
    }

    /// Answers by request, once the scripted replies are used up.
    pub fn script_fn(&self, reply: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) {
        self.shared.script().by_request = Some(Box::new(reply));
    }

    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.script().requests.clone()
    }

    /// Scripted replies that were not used yet.
    pub fn replies_left(&self) -> usize {
        self.shared.script().replies.len()
    }

    /// Waits until this number of requests has been received since the start.
    pub async fn received(&self, requests: usize) {
        let _ = self.shared.received.subscribe().wait_for(|received| *received >= requests).await;
    }

    /// Waits until no response is in progress: each is sent, or its client has disconnected.
    pub async fn quiet(&self) {
        let _ = self.shared.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Closes the port and waits until it is closed.
    pub async fn stop(mut self) {
        self.shared.closing.send_replace(true);
        self.server.abort();
        let _ = (&mut self.server).await;
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.shared.closing.send_replace(true);
        self.server.abort();
    }
}

impl Shared {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the fake closes.
    pub(super) async fn closed(&self) {
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }
}

/// A response in progress; counted until it is dropped.
pub(super) struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.send_modify(|open| *open += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

async fn models() -> Json<Value> {
    Json(json!({"object": "list", "data": [{"id": "fake-1", "object": "model"}, {"id": "fake-2", "object": "model"}]}))
}

async fn reply_to(api: Api, State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let open = Open::new(&shared);
    let (reply, request) = match take_reply(api, &shared, headers, &body) {
        Ok(taken) => taken,
        Err(refusal) => return *refusal,
    };
    if reply.fate == Ending::Hang {
        shared.closed().await;
    }
    for gate in reply.gates.iter().filter(|gate| gate.point == GatePoint::BeforeHead) {
        gate.pass().await;
    }
    let mut response = match &reply.kind {
        Kind::Status { status, retry_after, message, code } => {
            let text = message.clone().unwrap_or_else(|| format!("The fake was scripted to answer {status}."));
            let mut response = refusal(*status, &text, code.as_deref());
            if let Some(value) = retry_after.as_ref().and_then(|seconds| seconds.parse().ok()) {
                response.headers_mut().insert(header::RETRY_AFTER, value);
            }
            response
        }
        Kind::Bytes { content_type, body } => {
            let body = body::body(vec![Bytes::from(body.clone())], 0, &reply, open);
            ([(header::CONTENT_TYPE, content_type.clone())], body).into_response()
        }
        Kind::Answer(script) => answer(&shared, script, &reply, &request, open),
    };
    if let Some(id) = reply.request_id.as_ref().and_then(|id| id.parse().ok()) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

/// Records the request and takes its reply from the script, or rejects it as the real API would.
fn take_reply(api: Api, shared: &Shared, headers: HeaderMap, body: &[u8]) -> Result<(Reply, RecordedRequest), Box<Response>> {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return Err(Box::new(refusal(400, "We could not parse the JSON body of your request.", None)));
    };
    let mut request = RecordedRequest { api, headers, body, refused: false };
    let fault = request.fault();
    request.refused = fault.is_some();
    let mut script = shared.script();
    script.requests.push(request.clone());
    shared.received.send_replace(script.requests.len());
    if let Some(fault) = fault {
        return Err(Box::new(refusal(400, &fault, None)));
    }
    let reply = match (script.replies.pop_front(), &script.by_request) {
        (Some(reply), _) => reply,
        (None, Some(by_request)) => by_request(&request),
        (None, None) => Reply::text("The fake model has nothing more to say."),
    };
    Ok((reply, request))
}

fn answer(shared: &Shared, script: &reply::Script, reply: &Reply, request: &RecordedRequest, open: Open) -> Response {
    let model = request.body["model"].as_str().unwrap_or_default();
    let mut state = shared.script();
    let number = state.requests.len();
    if request.body["stream"] != true {
        let whole = match request.api {
            Api::Chat => events::whole_body(script, model, number, &mut state.calls),
            Api::Responses => response_events::whole_body(script, model, number, &mut state.calls),
        };
        return Json(whole).into_response();
    }
    let mut pieces = match request.api {
        Api::Chat => events::stream_pieces(script, model, number, &mut state.calls),
        Api::Responses => response_events::stream_pieces(script, model, number, &mut state.calls),
    };
    drop(state);
    if reply.fate == Ending::CutBeforeFinish {
        pieces.all.truncate(1 + pieces.deltas);
    }
    ([(header::CONTENT_TYPE, "text/event-stream")], body::body(pieces.all, 1, reply, open)).into_response()
}

fn refusal(status: u16, message: &str, code: Option<&str>) -> Response {
    let kind = if status == 429 {
        "rate_limit_exceeded"
    } else if status < 500 {
        "invalid_request_error"
    } else {
        "server_error"
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(json!({"error": {"message": message, "type": kind, "param": null, "code": code}}))).into_response()
}
