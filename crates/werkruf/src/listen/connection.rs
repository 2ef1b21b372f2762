//! One connection: hyper on a wire, until it ends or is told to.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::bounds::{BUFFER_BYTES, Bounds, HEAD_BYTES};
use super::head_timer::HeadTimer;
use super::line::Order;
use super::roll::Place;
use super::timed_body::Timed;
use super::wire::Wire;

/// What every connection gets.
pub(super) struct Door {
    router: Router,
    bounds: Bounds,
    tasks: TaskTracker,
}

impl Door {
    pub(super) fn new(router: Router, bounds: Bounds, tasks: TaskTracker) -> Self {
        // Makes the routes' services now instead of at every request.
        Self { router: router.with_state(()), bounds, tasks }
    }

    /// Serves a client on a task of its own.
    pub(super) fn open(&self, stream: TcpStream, place: Place) {
        let (router, bounds) = (self.router.clone(), self.bounds);
        self.tasks.spawn(run(stream, place, router, bounds));
    }
}

async fn run(stream: TcpStream, place: Place, router: Router, bounds: Bounds) {
    let line = &place.line;
    let wire = TokioIo::new(Wire::new(stream, Arc::clone(line)));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(HeadTimer::new(Arc::clone(line), bounds))
            .header_read_timeout(bounds.head)
            .max_header_size(HEAD_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(wire, Timed { router: TowerToHyperService::new(router), gap: bounds.body })
    );
    let mut closing = false;
    let ended = poll_fn(|cx| {
        match line.hear(cx.waker()) {
            Order::Serve => {}
            Order::Close if closing => {}
            Order::Close => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            Order::End | Order::Reset => return Poll::Ready(Ok(())),
        }
        connection.as_mut().poll(cx)
    });
    if let Err(error) = ended.await {
        // ClientRequests leave, and time is up: nothing an operator would act on.
        tracing::debug!(%error, "a connection ended early");
    }
}
