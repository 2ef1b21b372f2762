//! The access log: one line per request after its last byte was sent or its client left, in the target `werkruf::access`. A line names the
//! template of the route, never a path, a query, a body or a credential.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;
use werkruf_contract::Uuid;

use super::ApiState;
use super::policy::Authenticated;
use crate::identity::Identity;
use crate::listen::client_address;
use crate::metrics::{OpenStream, Route, method_name};
use crate::request_id;

const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The outermost layer. It also counts the request for the metrics.
pub(super) async fn record(State(api): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (method, route) = (method_name(request.method()), Route::of(request.extensions()));
    let address = client_address(request.extensions(), request.headers(), &api.proxies);
    let mut response = next.run(request).await;
    let http = &api.app.metrics.http;
    http.responded(method, &route, response.status(), started.elapsed());
    let is_stream = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    let line = Line {
        started,
        method,
        route,
        status: response.status(),
        bytes: 0,
        // A response without a body is complete before anybody asks for it.
        ended: response.body().is_end_stream(),
        request_id: response.headers().get(request_id::HEADER).cloned(),
        credential: response.extensions_mut().remove::<Authenticated>().map(|Authenticated(identity)| Credential::of(&identity)),
        address,
        _stream: is_stream.then(|| http.open_stream()),
    };
    response.map(|body| Body::new(LoggedBody { body, line }))
}

/// Whose request it was. Never the credential itself.
enum Credential {
    Operator,
    Key(Uuid),
    Token,
}

impl Credential {
    const fn of(identity: &Identity) -> Self {
        match identity.key_id {
            _ if identity.is_operator() => Self::Operator,
            Some(id) => Self::Key(id),
            None => Self::Token,
        }
    }
}

impl std::fmt::Display for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Operator => f.write_str("operator"),
            Self::Key(id) => id.fmt(f),
            Self::Token => f.write_str("token"),
        }
    }
}

/// The line of one request, written when it is dropped.
struct Line {
    started: Instant,
    method: &'static str,
    route: Route,
    status: StatusCode,
    bytes: u64,
    /// Whether all of the response was handed over; false where the client left or the stream broke off.
    ended: bool,
    request_id: Option<HeaderValue>,
    credential: Option<Credential>,
    address: Option<IpAddr>,
    _stream: Option<OpenStream>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let (method, route, status, bytes) = (self.method, self.route.as_str(), self.status.as_u16(), self.bytes);
        let took_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let request_id = self.request_id.as_ref().and_then(|id| id.to_str().ok());
        let (key_id, address) = (self.credential.as_ref().map(tracing::field::display), self.address.map(tracing::field::display));
        let complete = self.ended;
        // Probes and scrapes come every few seconds, and say something only when they fail.
        if PROBES.contains(&route) && self.status.is_success() {
            tracing::debug!(target: "werkruf::access", method, route, status, took_ms, bytes, complete, request_id, key_id, address, "a request ended");
        } else {
            tracing::info!(target: "werkruf::access", method, route, status, took_ms, bytes, complete, request_id, key_id, address, "a request ended");
        }
    }
}

/// The body of a response, which counts its bytes.
struct LoggedBody {
    body: Body,
    line: Line,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                self.line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                self.line.ended = self.body.is_end_stream();
            }
            Some(Err(_)) => {}
            None => self.line.ended = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
