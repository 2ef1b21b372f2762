//! The streams of one HTTP/2 connection: how many are open, whether the client cancels most of them, and which wait for the client.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use werkruf_contract::Deadline;

use super::bounds::CANCELLED_STREAMS;
use super::control::{Command, ConnectionControl};

/// Counts the streams of a connection.
pub(super) struct StreamCount {
    control: Arc<ConnectionControl>,
    open: Mutex<u32>,
    completed: AtomicU32,
    cancelled: AtomicU32,
    /// Whether a request has arrived.
    used: AtomicBool,
}

impl StreamCount {
    /// The connection waits for a request from now on.
    pub(super) fn new(control: Arc<ConnectionControl>) -> Self {
        control.ignore_reads();
        control.set_idle(Deadline::after(Duration::ZERO).instant());
        let (completed, cancelled) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { control, open: Mutex::new(0), completed, cancelled, used: AtomicBool::new(false) }
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn open(self: &Arc<Self>) -> OpenStream {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *open += 1;
        self.used.store(true, Ordering::Relaxed);
        self.control.set_busy();
        OpenStream { count: Arc::clone(self), wait: self.control.add_stream(), complete: false }
    }

    fn close(&self, complete: bool) {
        let number = if complete { &self.completed } else { &self.cancelled };
        number.fetch_add(1, Ordering::Relaxed);
        let (completed, cancelled) = (self.completed.load(Ordering::Relaxed), self.cancelled.load(Ordering::Relaxed));
        if cancelled > completed.saturating_add(CANCELLED_STREAMS) {
            // Opening and cancelling streams costs the client nothing, but each one starts a request here.
            self.control.send(Command::Reset);
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *open -= 1;
        if *open == 0 {
            self.control.set_idle(Deadline::after(Duration::ZERO).instant());
        }
    }
}

/// One open stream, from its request to the end of its response.
pub(super) struct OpenStream {
    count: Arc<StreamCount>,
    wait: Arc<AtomicU32>,
    complete: bool,
}

impl OpenStream {
    /// The whole response was handed to the connection.
    pub(super) fn set_complete(&mut self) {
        self.complete = true;
    }

    /// Records that a part of the response waits for the client, or no longer does.
    pub(super) fn set_waiting(&self, waiting: bool) {
        let wait = self.wait.load(Ordering::Relaxed);
        if (wait % 2 == 1) != waiting {
            self.wait.store(wait.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.count.control.remove_stream(&self.wait);
        self.count.close(self.complete);
    }
}
