//! The start of a TLS connection. It must end within the time of a head, and a client that speaks plain HTTP gets an error it can read.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use werkruf_contract::Deadline;

use super::control::{Command, ConnectionControl};
use super::tracked_stream::TrackedStream;

/// The first byte of every TLS connection.
const HANDSHAKE_RECORD: u8 = 22;

/// The response to a request without TLS. It is a constant, because the request is not read.
const HTTPS_REQUIRED: &str = concat!(
    "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 107\r\n\r\n",
    "{\"error\":{\"type\":\"VALIDATION\",\"code\":\"https_required\",\"message\":\"This port serves HTTPS; write https://.\"}}"
);

/// Opens TLS; `None` if the client does not finish in time, does not speak TLS, or the connection has to end.
pub(super) async fn accept(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    control: &Arc<ConnectionControl>,
    time: Duration,
) -> Option<TlsStream<TrackedStream>> {
    // A client that has not sent a byte is idle, and its place may be taken.
    control.set_idle(Deadline::after(Duration::ZERO).instant());
    let opening = async {
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        let mut stream = TrackedStream::new(stream, Arc::clone(control));
        if first[0].is_ascii_alphabetic() {
            // Closing a socket with unread bytes would reset the connection, and the response may be lost.
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(HTTPS_REQUIRED.as_bytes()).await;
            let _ = stream.shutdown().await;
            return None;
        }
        if first[0] != HANDSHAKE_RECORD {
            return None;
        }
        match acceptor.accept(stream).await {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
        }
    };
    let mut opening = pin!(tokio::time::timeout(time, opening));
    poll_fn(|cx| {
        if control.command_with_waker(cx.waker()) > Command::Serve {
            return Poll::Ready(None);
        }
        opening.as_mut().poll(cx).map(|opened| opened.ok().flatten())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::HTTPS_REQUIRED;

    #[test]
    fn the_error_for_plain_http_is_a_complete_response() {
        let (head, body) = HTTPS_REQUIRED.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "https_required");
    }
}
