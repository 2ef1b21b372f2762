//! The router of one connection: request bodies have a timeout, and a spare connection serves the operator only, until it gets a place
//! among the others.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::json;

use super::bounds::Bounds;
use super::client_address::Peer;
use super::control::{Command, ConnectionControl};
use super::registry::SparePlace;
use super::timed_body::TimedBody;
use crate::openai_path::is_openai_path;
use crate::request_id;

/// Whether a request has the operator's credential.
pub type IsOperator = Arc<dyn Fn(&HeaderMap) -> bool + Send + Sync>;

/// The message of the response to a request that got no place.
const NO_PLACE: &str = "All connections are busy; try again.";

type RouterFuture = <TowerToHyperService<Router> as Service<Request<TimedBody<Incoming>>>>::Future;

pub(super) struct ConnectionRouter {
    pub(super) router: TowerToHyperService<Router>,
    pub(super) bounds: Bounds,
    /// The address at the other end of the connection.
    pub(super) peer: Peer,
    pub(super) control: Arc<ConnectionControl>,
    /// The place of a spare connection.
    pub(super) spare: Option<Arc<SparePlace>>,
    pub(super) is_operator: IsOperator,
}

impl Service<Request<Incoming>> for ConnectionRouter {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<RouterFuture, BoxFuture<'static, Result<Response, Infallible>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.control.set_busy();
        let spare = self.spare.as_ref().filter(|spare| !spare.is_kept());
        let is_operator = spare.is_some() && (self.is_operator)(request.headers());
        let request = request.map(|body| TimedBody::new(body, self.bounds));
        let Some(spare) = spare.map(Arc::clone) else { return Either::Left(self.router.call(request)) };
        let (router, wait) = (self.router.clone(), self.bounds.place);
        let control = Arc::clone(&self.control);
        let is_http2 = request.version() == Version::HTTP_2;
        let no_place = no_place(request.uri().path(), request.headers());
        let answer = async move {
            let (response, close) = if is_operator {
                // The place is for the next request of the operator.
                (router.call(request).await, true)
            } else if spare.keep(wait).await {
                (router.call(request).await, false)
            } else {
                (Ok(no_place), true)
            };
            if close && is_http2 {
                control.send(Command::Close);
            }
            if close && !is_http2 { response.map(closing) } else { response }
        };
        Either::Right(answer.boxed())
    }
}

/// The response to a request that got no place, as the API writes its errors.
fn no_place(path: &str, headers: &HeaderMap) -> Response {
    let id = request_id::of(headers);
    let body = if is_openai_path(path) {
        json!({"error": {"message": NO_PLACE, "type": "server_error", "param": null, "code": "server_busy"}})
    } else {
        json!({"error": {"type": "RETRYABLE", "code": "server_busy", "message": NO_PLACE, "retry_after_ms": 1000, "request_id": id}})
    };
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(request_id::HEADER, id);
    }
    response
}

/// The response, after which an HTTP/1.1 connection is closed.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_without_a_place_gets_an_error_of_the_api() {
        let mut headers = HeaderMap::new();
        headers.insert(request_id::HEADER, HeaderValue::from_static("r1"));
        let body = async |path: &str| {
            let response = no_place(path, &headers);
            assert_eq!(response.headers()[request_id::HEADER], "r1");
            let bytes = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
            serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["error"].clone()
        };
        let usual = json!({"type": "RETRYABLE", "code": "server_busy", "message": NO_PLACE, "retry_after_ms": 1000, "request_id": "r1"});
        assert_eq!(body("/api/chat").await, usual);
        let openai = json!({"message": NO_PLACE, "type": "server_error", "param": null, "code": "server_busy"});
        assert_eq!(body("/v1/models").await, openai);
        assert!(!no_place("/", &HeaderMap::new()).headers()[request_id::HEADER].is_empty());
    }
}
