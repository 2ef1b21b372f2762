//! One budget of bytes for the requests of all connections: what their bodies, the values parsed from them and their buffered answers
//! may take at the same time. Above it a request gets 503 and tries again, instead of ending the process.
//!
//! Invariant: a reservation is released when its request ends, after the last byte of the answer was sent or the client left.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Frame, SizeHint};

use super::ApiState;
use super::error::ApiError;

/// What a body takes per byte: the bytes themselves, the texts parsed from them, the message to be stored and the model's request.
const COPIES: u64 = 4;
/// What a value of JSON takes beside its text, as an element of a list or a field of an object.
const VALUE_BYTES: u64 = 160;
/// Smaller answers are not counted: an answer of this size takes no more than the buffers of its connection.
const COUNTED_ANSWER: u64 = 64 * 1024;
const RETRY_AFTER_MS: u64 = 1000;

/// The bytes that all requests together may take.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    limit: u64,
    held: AtomicU64,
}

impl ByteBudget {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, held: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> bool {
        let within = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }
}

/// What one request holds of the budget.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<ByteBudget>,
    held: AtomicU64,
}

impl Reservation {
    pub(crate) const fn new(budget: Arc<ByteBudget>) -> Self {
        Self { budget, held: AtomicU64::new(0) }
    }

    /// Reserves the memory of this many bytes of a body.
    pub(crate) fn body(&self, bytes: u64) -> Result<(), ApiError> {
        self.grow(bytes.saturating_mul(COPIES))
    }

    /// Reserves the memory of this many parsed values.
    pub(crate) fn values(&self, count: u64) -> Result<(), ApiError> {
        self.grow(count.saturating_mul(VALUE_BYTES))
    }

    fn grow(&self, bytes: u64) -> Result<(), ApiError> {
        if !self.budget.take(bytes) {
            return Err(over_budget());
        }
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
    }
}

fn over_budget() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "memory_busy", "Other requests take the server's memory; try again.")
        .retry_after_ms(RETRY_AFTER_MS)
}

/// The layer that gives a request its reservation and holds it until the answer was sent.
pub(crate) async fn hold(State(api): State<Arc<ApiState>>, mut request: Request, next: Next) -> Response {
    let has_body = !request.body().is_end_stream();
    let reservation = has_body.then(|| Arc::new(Reservation::new(Arc::clone(&api.bytes))));
    if let Some(reservation) = &reservation {
        request.extensions_mut().insert(Arc::clone(reservation));
    }
    let response = next.run(request).await;
    let answer = response.body().size_hint().exact().filter(|bytes| *bytes > COUNTED_ANSWER);
    let reservation = match (reservation, answer) {
        (None, None) => return response,
        (None, Some(_)) => Arc::new(Reservation::new(Arc::clone(&api.bytes))),
        (Some(reservation), _) => reservation,
    };
    if let Some(bytes) = answer
        && let Err(error) = reservation.grow(bytes)
    {
        return error.into_response();
    }
    response.map(|body| Body::new(HoldingBody { body, _reservation: reservation }))
}

/// The body of an answer, with the reservation of its request.
struct HoldingBody {
    body: Body,
    _reservation: Arc<Reservation>,
}

impl HttpBody for HoldingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ByteBudget, Reservation};

    #[test]
    fn what_a_request_reserved_is_free_after_its_end() {
        let budget = Arc::new(ByteBudget::new(1000));
        let first = Reservation::new(Arc::clone(&budget));
        first.body(100).unwrap();
        first.values(2).unwrap();
        let second = Reservation::new(Arc::clone(&budget));
        let error = second.body(100).unwrap_err();
        assert_eq!((error.status().as_u16(), error.code()), (503, "memory_busy"));
        second.body(70).unwrap();
        drop(first);
        second.body(180).unwrap();
        assert!(second.body(1).is_err());
        drop(second);
        assert_eq!(budget.held.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}
