//! Accepts connections up to the limit and the spare ones, and retries with a pause when the system cannot give one.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use super::connection::ConnectionServer;
use super::registry::ConnectionRegistry;

/// The first pause after an error that would also fail the next attempt, such as too many open files. Each further pause is doubled,
/// up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The response to a client whose address has too many connections. It is a constant, because no request was read yet.
const TOO_MANY: &str = concat!(
    "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-type: application/json\r\n",
    "content-length: 137\r\n\r\n",
    "{\"error\":{\"type\":\"RETRYABLE\",\"code\":\"server_busy\",\"message\":\"Too many connections from this address; close some.\",",
    "\"retry_after_ms\":1000}}"
);

/// Accepts connections until it is dropped.
pub(super) async fn accept(socket: &TcpListener, registry: &Arc<ConnectionRegistry>, server: &ConnectionServer) {
    let mut pause = Pause::default();
    loop {
        match socket.accept().await {
            Ok((stream, client)) => {
                pause = Pause::default();
                let Some(place) = registry.acquire(client.ip()).await else { return };
                match registry.register(client, place) {
                    Some(registration) => server.serve(stream, registration),
                    None if server.has_tls() => {}
                    None => refuse(&stream),
                }
            }
            Err(error) if only_this_client(&error) => {}
            Err(error) => tokio::time::sleep(pause.after(&error)).await,
        }
    }
}

/// Sends the error and closes. This function does not wait: a rejected client gets no task.
fn refuse(stream: &TcpStream) {
    let _ = stream.try_write(TOO_MANY.as_bytes());
    let _ = SockRef::from(stream).shutdown(Shutdown::Write);
    // Received bytes are read: closing a socket with unread bytes resets the connection, and the response may be lost.
    let _ = stream.try_read(&mut [0; 4096]);
}

/// Whether the error affects only this client, which disconnected before it was accepted.
fn only_this_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused)
}

/// The pause before the next attempt.
#[derive(Default)]
struct Pause(Option<Duration>);

impl Pause {
    fn after(&mut self, error: &io::Error) -> Duration {
        if self.0.is_none() {
            tracing::error!(%error, "no connection can be accepted; trying again");
        }
        let next = self.0.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE));
        self.0 = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rejection_is_a_complete_response() {
        let (head, body) = TOO_MANY.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "server_busy");
    }

    #[test]
    fn pauses_grow_to_a_second() {
        let full = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        assert!(!only_this_client(&full));
        let mut pause = Pause::default();
        let pauses: Vec<u128> = (0..9).map(|_| pause.after(&full).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }
}
