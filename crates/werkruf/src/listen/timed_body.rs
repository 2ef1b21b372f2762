//! A request body with a timeout. A timer is created only when the body has to wait for the client.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use werkruf_contract::Deadline;

use super::bounds::{BODY_BYTES_PER_SECOND, Bounds};

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
    /// The most time of the whole body.
    total: Duration,
    received: u64,
    /// When the body first had to wait for the client.
    first_wait: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedBody<B> {
    pub(super) const fn new(inner: B, Bounds { body: gap, body_total: total, .. }: Bounds) -> Self {
        Self { inner, gap, total, received: 0, first_wait: None, timer: None }
    }

    /// The earliest one of three deadlines: for the next frame, for the bytes received so far, and for the whole body.
    fn end(&mut self) -> Instant {
        let gap = Deadline::after(self.gap).instant();
        let first_wait = *self.first_wait.get_or_insert_with(|| Deadline::after(Duration::ZERO).instant());
        let by_rate = first_wait + self.gap + Duration::from_secs(self.received / BODY_BYTES_PER_SECOND);
        gap.min(by_rate).min(first_wait + self.total)
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
