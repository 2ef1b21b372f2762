//! Serves HTTP/2 on one connection. Its streams are tasks of their own, and end with the connection.
//!
//! The reads of the socket say nothing about requests here, because a client may send other frames forever. So the connection is idle
//! while it has no open stream, and an incomplete head does not count.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::TaskTracker;

use super::bounds::{Bounds, CONNECTION_WINDOW, FRAME_BYTES, HEAD_BYTES, STREAM_WINDOW, STREAMS};
use super::control::{Command, ConnectionControl};
use super::head_timer::head_time;
use super::router::ConnectionRouter;
use super::stream_count::{OpenStream, StreamCount};

/// Serves until the connection ends or gets a command to end.
pub(super) async fn run<S>(stream: S, control: &ConnectionControl, router: ConnectionRouter, tasks: TaskTracker) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let bounds = router.bounds;
    let head = head_time(&bounds, router.spare.as_ref());
    let count = Arc::new(StreamCount::new(Arc::clone(&router.control)));
    let router = StreamRouter { router, count: Arc::clone(&count) };
    let mut connection = pin!(
        http2::Builder::new(StreamTasks(tasks))
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(FRAME_BYTES)
            .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
            .serve_connection(TokioIo::new(stream), router)
    );
    let mut idle = IdleTimer { sleep: Box::pin(tokio::time::sleep(head)), bounds };
    let mut closing = false;
    poll_fn(|cx| {
        match control.next_command(cx.waker(), &mut closing) {
            Command::Serve => {}
            Command::Close => {
                connection.as_mut().graceful_shutdown();
                idle.start(bounds.place / 2);
            }
            Command::End | Command::Reset => return Poll::Ready(Ok(())),
        }
        // Before the timer: a response that is ready is sent, however late this task runs.
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        if idle.poll(cx, control, &count, closing) {
            if closing {
                return Poll::Ready(Ok(()));
            }
            control.send(Command::Close);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// Expires when the connection has had no stream for as long as allowed. It is set again after it fires, not with every request.
struct IdleTimer {
    sleep: Pin<Box<tokio::time::Sleep>>,
    bounds: Bounds,
}

impl IdleTimer {
    fn start(&mut self, time: Duration) {
        self.sleep.set(tokio::time::sleep(time));
    }

    fn poll(&mut self, cx: &mut Context<'_>, control: &ConnectionControl, count: &StreamCount, closing: bool) -> bool {
        while self.sleep.as_mut().poll(cx).is_ready() {
            let allowed = if closing {
                self.bounds.place / 2
            } else if count.is_used() {
                self.bounds.idle
            } else {
                self.bounds.head
            };
            let idle = control.idle_time().unwrap_or_default();
            if idle >= allowed {
                self.start(allowed);
                return true;
            }
            self.start(allowed - idle);
        }
        false
    }
}

/// Runs the streams on the tracked tasks of the listener.
#[derive(Clone)]
struct StreamTasks(TaskTracker);

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.0.spawn(stream);
    }
}

/// The router, which counts the streams.
struct StreamRouter {
    router: ConnectionRouter,
    count: Arc<StreamCount>,
}

impl Service<Request<Incoming>> for StreamRouter {
    type Response = Response<StreamBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let stream = self.count.open();
        let response = self.router.call(request);
        async move { Ok(response.await?.map(|body| StreamBody { body, rest: Bytes::new(), stream })) }.boxed()
    }
}

/// The body of a response in small frames. What the client has no window for stays here, and the stream waits.
struct StreamBody {
    body: Body,
    rest: Bytes,
    stream: OpenStream,
}

impl hyper::body::Body for StreamBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.stream.set_waiting(false);
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(end) => {
                    self.stream.set_complete();
                    return Poll::Ready(end);
                }
            }
        }
        let length = self.rest.len().min(FRAME_BYTES);
        let frame = self.rest.split_to(length);
        if self.is_end_stream() {
            self.stream.set_complete();
        }
        self.stream.set_waiting(true);
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::new() }
    }
}
