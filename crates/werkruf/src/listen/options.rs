//! Socket options. They are set once on the listening socket; accepted connections inherit them on Linux, which saves several system
//! calls per connection. A test reads them back from an accepted connection.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpListener;

use super::bounds::{Bounds, UNSENT_BYTES};

/// Open files other than connections: database, log, requests to models and tools.
const OTHER_FILES: u64 = 1_024;
/// The number of keepalive probes before a silent peer counts as disconnected.
const PROBES: u32 = 3;
const SHORTEST: Duration = Duration::from_secs(1);

pub(super) fn set(socket: &TcpListener, bounds: &Bounds) -> io::Result<()> {
    let socket = SockRef::from(socket);
    // Without this every small frame of a stream waits for the client's delayed acknowledgement: 40 ms each.
    socket.set_tcp_nodelay(true)?;
    // Whole seconds and not zero, which the kernel would reject.
    let (time, interval) = (bounds.peer.max(SHORTEST), (bounds.peer / PROBES).max(SHORTEST));
    let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(bounds.peer))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    }
    Ok(())
}

/// Raises the limit of open files. Many systems start a process with 1,024, which would be reached before the limit of connections.
pub(super) fn raise_file_limit(connections: u32) {
    let wanted = u64::from(connections) + OTHER_FILES;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let allowed = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    limit.current = Some(allowed);
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    } else if allowed < wanted {
        tracing::warn!(allowed, wanted, "fewer files may be open than connections are allowed; raise the hard limit (LimitNOFILE)");
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
