//! The listener: accepts connections, serves HTTP/1.1 and, over TLS, HTTP/2 on them, and ends those that exceed the limits.
//!
//! Invariants: every connection is a tracked task and is listed in the [`registry`]; no client occupies a connection with an
//! incomplete request or an unread response for longer than [`Bounds`] allow; dropping [`Listener::serve`] ends every connection.

mod accept;
mod bounds;
mod client_address;
mod connection;
mod control;
mod handshake;
mod head_timer;
mod http2;
mod options;
mod proxies;
mod registry;
mod router;
mod stream_count;
mod timed_body;
mod tls;
mod tracked_stream;
mod watchdog;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use bounds::Bounds;
pub(crate) use client_address::client_address;
pub use proxies::Proxies;
use registry::ConnectionRegistry;
pub use router::IsOperator;
pub use timed_body::SlowBody;

pub use tls::{CertificateFault, CertificateFiles, Tls};

/// A bound address that is ready to serve.
pub struct Listener {
    socket: TcpListener,
    bounds: Bounds,
    proxies: Proxies,
    is_operator: IsOperator,
    tls: Option<Arc<Tls>>,
    tasks: TaskTracker,
}

impl Listener {
    /// Binds the address. Connections become tasks of `tasks`.
    pub async fn bind(address: SocketAddr, bounds: Bounds, tasks: TaskTracker) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        options::set(&socket, &bounds)?;
        options::raise_file_limit(bounds.connections.saturating_add(bounds::SPARE_CONNECTIONS));
        Ok(Self { socket, bounds, proxies: Proxies::default(), is_operator: Arc::new(|_| false), tls: None, tasks })
    }

    /// Exempts these addresses from the limit of connections per address.
    #[must_use]
    pub fn trusting(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// Serves the requests that have the operator's credential also while all connections are busy.
    #[must_use]
    pub fn reserving_for(mut self, is_operator: IsOperator) -> Self {
        self.is_operator = is_operator;
        self
    }

    /// Serves HTTPS only.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Arc<Tls>>) -> Self {
        self.tls = tls;
        self
    }

    /// The bound address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `stop`, then closes the socket and waits for running requests. Dropping the future ends every connection.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let Self { socket, bounds, proxies, is_operator, tls, tasks } = self;
        let registry = Arc::new(ConnectionRegistry::new(&bounds, proxies));
        let _end_all = EndAllOnDrop(Arc::clone(&registry));
        let serving = async {
            let server = connection::ConnectionServer::new(router, bounds, is_operator, tls.map(|tls| tls.acceptor()), tasks);
            tokio::select! {
                () = accept::accept(&socket, &registry, &server) => {}
                () = stop.cancelled() => {}
            }
            drop(socket);
            registry.close_all();
            registry.wait_until_empty().await;
        };
        tokio::select! {
            () = serving => {}
            () = watchdog::watch(&registry, bounds.stall) => {}
        }
    }
}

/// Ends all connections when it is dropped.
struct EndAllOnDrop(Arc<ConnectionRegistry>);

impl Drop for EndAllOnDrop {
    fn drop(&mut self) {
        self.0.end_all();
    }
}
