//! Serves one connection, with or without TLS, until it ends or gets a command to end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::bounds::{BUFFER_BYTES, Bounds, HEAD_BYTES};
use super::client_address::Peer;
use super::control::{Command, ConnectionControl};
use super::head_timer::{HeadTimer, head_time};
use super::registry::Registration;
use super::router::{ConnectionRouter, IsOperator};
use super::tls::HTTP2;
use super::tracked_stream::TrackedStream;
use super::{handshake, http2};

/// What all connections share.
pub(super) struct ConnectionServer {
    router: Router,
    bounds: Bounds,
    is_operator: IsOperator,
    tls: Option<TlsAcceptor>,
    tasks: TaskTracker,
}

impl ConnectionServer {
    pub(super) fn new(router: Router, bounds: Bounds, is_operator: IsOperator, tls: Option<TlsAcceptor>, tasks: TaskTracker) -> Self {
        // Builds the services of the routes once instead of at every request.
        Self { router: router.with_state(()), bounds, is_operator, tls, tasks }
    }

    pub(super) const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Serves a client on its own task.
    pub(super) fn serve(&self, stream: TcpStream, registration: Registration) {
        let (spare, bounds) = (registration.spare(), self.bounds);
        let router = ConnectionRouter {
            router: TowerToHyperService::new(self.router.clone()),
            bounds,
            peer: Peer(registration.peer),
            control: Arc::clone(&registration.control),
            spare,
            is_operator: Arc::clone(&self.is_operator),
        };
        match self.tls.clone() {
            None => self.tasks.spawn(run_plain(stream, registration, router)),
            Some(acceptor) => self.tasks.spawn(run_tls(acceptor, stream, registration, router, self.tasks.clone())),
        };
    }
}

async fn run_plain(stream: TcpStream, registration: Registration, router: ConnectionRouter) {
    let control = &registration.control;
    log_end(run_http1(TrackedStream::new(stream, Arc::clone(control)), control, router).await);
}

async fn run_tls(acceptor: TlsAcceptor, stream: TcpStream, registration: Registration, router: ConnectionRouter, tasks: TaskTracker) {
    let control = &registration.control;
    let Some(stream) = handshake::accept(acceptor, stream, control, head_time(&router.bounds, router.spare.as_ref())).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
        log_end(Box::pin(http2::run(stream, control, router, tasks)).await);
    } else {
        log_end(Box::pin(run_http1(stream, control, router)).await);
    }
}

fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        // Clients disconnect and timeouts expire; neither needs the attention of an operator.
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn run_http1<S>(stream: S, control: &Arc<ConnectionControl>, router: ConnectionRouter) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let bounds = router.bounds;
    let mut connection = pin!(
        http1::Builder::new()
            .timer(HeadTimer::new(Arc::clone(control), bounds, router.spare.clone()))
            .header_read_timeout(bounds.head)
            .max_header_size(HEAD_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), router)
    );
    let mut closing = false;
    poll_fn(|cx| {
        match control.next_command(cx.waker(), &mut closing) {
            Command::Serve => {}
            Command::Close => connection.as_mut().graceful_shutdown(),
            Command::End | Command::Reset => return Poll::Ready(Ok(())),
        }
        connection.as_mut().poll(cx)
    })
    .await
}
