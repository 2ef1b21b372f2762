//! The socket that hyper uses. It records when a write waits for the client: hyper polls a body only while the socket accepts bytes,
//! so the body itself cannot notice a stalled client.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::control::{Command, ConnectionControl};

pub(super) struct TrackedStream {
    stream: TcpStream,
    control: Arc<ConnectionControl>,
    waiting: bool,
}

impl TrackedStream {
    pub(super) fn new(stream: TcpStream, control: Arc<ConnectionControl>) -> Self {
        Self { stream, control, waiting: false }
    }

    fn track_wait<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if written.is_pending() != self.waiting {
            self.waiting = !self.waiting;
            self.control.write_wait_changed();
        }
        written
    }
}

impl Drop for TrackedStream {
    fn drop(&mut self) {
        if self.control.command() == Command::Reset {
            // Otherwise the kernel keeps the unsent bytes for a client that does not read them.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.control.count_read();
        }
        read
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.track_wait(written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.track_wait(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
