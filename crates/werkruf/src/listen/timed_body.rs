//! A request body with a timeout. A timer is created only when the body has to wait for the client.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use http::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::time::Sleep;
use werkruf_contract::Deadline;

use super::bounds::BODY_BYTES_PER_SECOND;
use super::client_address::Peer;

/// The body did not arrive in time. The client should send the request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowBody;

impl SlowBody {
    /// Whether an error was caused by a slow body, at any depth of its sources.
    pub fn caused(error: &(dyn std::error::Error + 'static)) -> bool {
        std::iter::successors(Some(error), |error| error.source()).any(<dyn std::error::Error>::is::<Self>)
    }
}

impl fmt::Display for SlowBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of the request did not arrive in time")
    }
}

impl std::error::Error for SlowBody {}

/// A body with a timeout.
pub(super) struct TimedBody<B> {
    inner: B,
    /// The most time between two frames. The whole body may take this long plus the time its bytes may take.
    gap: Duration,
    received: u64,
    /// When the body first had to wait for the client.
    first_wait: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedBody<B> {
    pub(super) const fn new(inner: B, gap: Duration) -> Self {
        Self { inner, gap, received: 0, first_wait: None, timer: None }
    }

    /// The earlier one of two deadlines: for the next frame, and for the whole body with the bytes received so far.
    fn end(&mut self) -> Instant {
        let gap = Deadline::after(self.gap).instant();
        let first_wait = *self.first_wait.get_or_insert_with(|| Deadline::after(Duration::ZERO).instant());
        gap.min(first_wait + self.gap + Duration::from_secs(self.received / BODY_BYTES_PER_SECOND))
    }
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for TimedBody<B> {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            if let Some(Ok(frame)) = &frame {
                this.timer = None;
                this.received += frame.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if this.timer.is_none() {
            let end = this.end();
            this.timer = Some(Box::pin(tokio::time::sleep_until(end.into())));
        }
        match this.timer.as_mut().map(|timer| timer.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(Some(Err(Box::new(SlowBody)))),
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A router whose request bodies have a timeout.
pub(super) struct TimedRouter {
    pub(super) router: TowerToHyperService<Router>,
    pub(super) gap: Duration,
    pub(super) peer: Option<Peer>,
}

impl Service<Request<Incoming>> for TimedRouter {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<TimedBody<Incoming>>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        self.router.call(request.map(|body| TimedBody::new(body, self.gap)))
    }
}
