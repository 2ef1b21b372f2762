//! Serves one connection with hyper until it ends or gets a command to end.

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

use super::bounds::{BUFFER_BYTES, Bounds, HEAD_BYTES, SPARE_HEAD};
use super::client_address::Peer;
use super::control::Command;
use super::head_timer::HeadTimer;
use super::registry::Registration;
use super::router::{ConnectionRouter, IsOperator};
use super::tracked_stream::TrackedStream;

/// What all connections share.
pub(super) struct ConnectionServer {
    router: Router,
    bounds: Bounds,
    is_operator: IsOperator,
    tasks: TaskTracker,
}

impl ConnectionServer {
    pub(super) fn new(router: Router, bounds: Bounds, is_operator: IsOperator, tasks: TaskTracker) -> Self {
        // Builds the services of the routes once instead of at every request.
        Self { router: router.with_state(()), bounds, is_operator, tasks }
    }

    /// Serves a client on its own task.
    pub(super) fn serve(&self, stream: TcpStream, registration: Registration) {
        let (spare, mut bounds) = (registration.spare(), self.bounds);
        if spare.is_some() {
            bounds.head = bounds.head.min(SPARE_HEAD);
        }
        let router = ConnectionRouter {
            router: TowerToHyperService::new(self.router.clone()),
            bounds,
            peer: Peer(registration.peer),
            control: Arc::clone(&registration.control),
            spare,
            is_operator: Arc::clone(&self.is_operator),
        };
        self.tasks.spawn(run(stream, registration, router));
    }
}

async fn run(stream: TcpStream, registration: Registration, router: ConnectionRouter) {
    let (control, bounds) = (&registration.control, router.bounds);
    let stream = TokioIo::new(TrackedStream::new(stream, Arc::clone(control)));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(HeadTimer::new(Arc::clone(control), bounds))
            .header_read_timeout(bounds.head)
            .max_header_size(HEAD_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(stream, router)
    );
    let mut closing = false;
    let ended = poll_fn(|cx| {
        match control.command_with_waker(cx.waker()) {
            Command::Serve => {}
            Command::Close if closing => {}
            Command::Close => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            Command::End | Command::Reset => return Poll::Ready(Ok(())),
        }
        connection.as_mut().poll(cx)
    });
    if let Err(error) = ended.await {
        // Clients disconnect and timeouts expire; neither needs the attention of an operator.
        tracing::debug!(%error, "a connection ended early");
    }
}
