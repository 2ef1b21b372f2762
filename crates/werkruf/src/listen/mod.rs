//! The listener: takes connections, speaks HTTP/1.1 on them, and ends those that do harm.
//!
//! Invariants: every connection is a task with an owner and has a place on the [`roll`]; nobody holds a connection with a
//! half-sent request or an unread answer for longer than [`Bounds`] say; dropping [`Listener::serve`] ends every connection.

mod accept;
mod bounds;
mod connection;
mod head_timer;
mod line;
mod options;
mod proxies;
mod roll;
mod timed_body;
mod watchdog;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use bounds::Bounds;
pub use proxies::Proxies;
use roll::Roll;
pub use timed_body::SlowBody;

/// A bound address that is ready to serve.
pub struct Listener {
    socket: TcpListener,
    bounds: Bounds,
    proxies: Proxies,
    tasks: TaskTracker,
}

impl Listener {
    /// Binds; connections become tasks of `tasks`.
    pub async fn bind(address: SocketAddr, bounds: Bounds, tasks: TaskTracker) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        options::set(&socket, &bounds)?;
        options::raise_file_limit(bounds.connections);
        Ok(Self { socket, bounds, proxies: Proxies::default(), tasks })
    }

    /// Does not count the connections of these addresses one by one.
    #[must_use]
    pub fn trusting(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `stop`, then closes the address and waits for running requests. Dropped before that, it ends
    /// every connection.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let Self { socket, bounds, proxies, tasks } = self;
        let roll = Arc::new(Roll::new(&bounds, proxies));
        let _ends_all = EndsAll(Arc::clone(&roll));
        let serving = async {
            let door = connection::Door::new(router, bounds, tasks);
            tokio::select! {
                () = accept::accept(&socket, &roll, &door) => {}
                () = stop.cancelled() => {}
            }
            drop(socket);
            roll.close_all();
            roll.empty().await;
        };
        tokio::select! {
            () = serving => {}
            () = watchdog::watch(&roll, bounds.stall) => {}
        }
    }
}

/// Leaves no connection behind.
struct EndsAll(Arc<Roll>);

impl Drop for EndsAll {
    fn drop(&mut self) {
        self.0.end_all();
    }
}
