//! The timeout of a request's head. hyper has one timeout for an idle connection and for an incomplete head, but an idle connection
//! may wait longer. Therefore the sleep given to hyper checks whether bytes have arrived.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use super::bounds::{Bounds, SPARE_HEAD};
use super::control::ConnectionControl;
use super::registry::SparePlace;

/// The timer of one connection. hyper requests one sleep per head.
pub(super) struct HeadTimer {
    control: Arc<ConnectionControl>,
    bounds: Bounds,
    spare: Option<Arc<SparePlace>>,
    first_head_started: AtomicBool,
}

impl HeadTimer {
    pub(super) fn new(control: Arc<ConnectionControl>, bounds: Bounds, spare: Option<Arc<SparePlace>>) -> Self {
        Self { control, bounds, spare, first_head_started: AtomicBool::new(false) }
    }
}

/// The time of a head. A spare connection has less until it gets a usual place.
pub(super) fn head_time(bounds: &Bounds, spare: Option<&Arc<SparePlace>>) -> Duration {
    if spare.is_some_and(|place| !place.is_kept()) { bounds.head.min(SPARE_HEAD) } else { bounds.head }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadSleep { control: Arc::clone(&self.control), reads: 0, started: true, head: duration, idle: duration, sleep: None })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        let started = !self.first_head_started.swap(true, Ordering::Relaxed);
        let (head, idle) = (head_time(&self.bounds, self.spare.as_ref()), self.bounds.idle);
        // hyper adds the time of a head to the current time.
        self.control.set_idle(deadline.checked_sub(self.bounds.head).unwrap_or(deadline));
        Box::pin(HeadSleep { control: Arc::clone(&self.control), reads: self.control.reads(), started, head, idle, sleep: None })
    }
}

/// The timeout of one head. hyper polls it after every read that did not complete the head.
struct HeadSleep {
    control: Arc<ConnectionControl>,
    reads: u32,
    /// Whether the time of the head runs: its first byte arrived, or it is the first head of the connection.
    started: bool,
    head: Duration,
    idle: Duration,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Sleep for HeadSleep {}

impl Future for HeadSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.started && self.control.reads() != self.reads {
            self.started = true;
            self.sleep = None;
        }
        let time = if self.started { self.head } else { self.idle };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        sleep.as_mut().poll(cx)
    }
}
