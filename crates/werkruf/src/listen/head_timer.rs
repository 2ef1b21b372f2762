//! The time a request's head may take. hyper has one timeout for "nothing comes" and "the head does not end"; a connection
//! between two requests may rest longer, so the sleep given to hyper looks whether bytes have come.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use super::bounds::Bounds;
use super::control::ConnectionControl;

/// The timer of one connection. hyper asks it for a sleep per head.
pub(super) struct HeadTimer {
    control: Arc<ConnectionControl>,
    bounds: Bounds,
    had_first: AtomicBool,
}

impl HeadTimer {
    pub(super) fn new(control: Arc<ConnectionControl>, bounds: Bounds) -> Self {
        Self { control, bounds, had_first: AtomicBool::new(false) }
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadSleep { control: Arc::clone(&self.control), reads: 0, begun: true, head: duration, rest: duration, running: None })
    }

    fn sleep_until(&self, _deadline: Instant) -> Pin<Box<dyn Sleep>> {
        let begun = !self.had_first.swap(true, Ordering::Relaxed);
        let Bounds { head, idle, .. } = self.bounds;
        Box::pin(HeadSleep { control: Arc::clone(&self.control), reads: self.control.reads(), begun, head, rest: idle, running: None })
    }
}

/// Polled by hyper after every read that did not end the head.
struct HeadSleep {
    control: Arc<ConnectionControl>,
    reads: u32,
    /// The head has begun: its first byte came, or it is the connection's first, which begins with connecting.
    begun: bool,
    head: Duration,
    rest: Duration,
    running: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Sleep for HeadSleep {}

impl Future for HeadSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.begun && self.control.reads() != self.reads {
            self.begun = true;
            self.running = None;
        }
        let time = if self.begun { self.head } else { self.rest };
        let running = self.running.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        running.as_mut().poll(cx)
    }
}
