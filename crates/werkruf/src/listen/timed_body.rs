//! A request's body that must keep coming. A body that is there costs no timer; one is made only when the client is waited for.

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

/// The body did not come in time. The client acts: it sends again, faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowBody;

impl SlowBody {
    /// Whether this is the cause, however deep.
    pub fn caused(error: &(dyn std::error::Error + 'static)) -> bool {
        std::iter::successors(Some(error), |error| error.source()).any(<dyn std::error::Error>::is::<Self>)
    }
}

impl fmt::Display for SlowBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of the request did not come in time")
    }
}

impl std::error::Error for SlowBody {}

/// A body with a clock.
pub(super) struct TimedBody<B> {
    inner: B,
    /// Between two pieces; and in all, beside what the bytes that came may have taken.
    gap: Duration,
    taken: u64,
    /// When the client was first waited for.
    began: Option<Instant>,
    waits: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedBody<B> {
    pub(super) const fn new(inner: B, gap: Duration) -> Self {
        Self { inner, gap, taken: 0, began: None, waits: None }
    }

    /// The end of the gap, or of the time for this much, whichever comes first.
    fn end(&mut self) -> Instant {
        let gap = Deadline::after(self.gap).instant();
        let began = *self.began.get_or_insert_with(|| Deadline::after(Duration::ZERO).instant());
        gap.min(began + self.gap + Duration::from_secs(self.taken / BODY_BYTES_PER_SECOND))
    }
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for TimedBody<B> {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            if let Some(Ok(frame)) = &frame {
                this.waits = None;
                this.taken += frame.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if this.waits.is_none() {
            let end = this.end();
            this.waits = Some(Box::pin(tokio::time::sleep_until(end.into())));
        }
        match this.waits.as_mut().map(|waits| waits.as_mut().poll(cx)) {
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

/// The router, behind bodies with a clock.
pub(super) struct TimedRouter {
    pub(super) router: TowerToHyperService<Router>,
    pub(super) gap: Duration,
}

impl Service<Request<Incoming>> for TimedRouter {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<TimedBody<Incoming>>>>::Future;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.router.call(request.map(|body| TimedBody::new(body, self.gap)))
    }
}
