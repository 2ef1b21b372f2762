//! The state that the task of a connection shares with the registry: a few atomics and a waker. Only the list of HTTP/2 streams has a lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use werkruf_contract::Deadline;

/// Idle times are counted from here, the first use of the listener.
static START: LazyLock<Instant> = LazyLock::new(|| Deadline::after(Duration::ZERO).instant());

/// A command for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Command {
    /// Serve requests.
    Serve,
    /// Finish the running request and accept no new one.
    Close,
    /// Close now.
    End,
    /// Close now and discard the unsent bytes in the kernel, because the client does not read them.
    Reset,
}

/// Controls one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionControl {
    command: AtomicU8,
    /// Odd while a write waits for the client. Every change adds one, so the same odd number twice means the same wait.
    write_wait: AtomicU32,
    /// The number of reads that returned.
    reads: AtomicU32,
    /// When the connection began to wait for a request, in nanoseconds since [`START`]; 0 while it has one.
    idle_since: AtomicU64,
    /// The reads until then: with another read, a request is arriving.
    idle_reads: AtomicU32,
    /// Whether reads say nothing about requests.
    reads_ignored: AtomicBool,
    /// The streams of an HTTP/2 connection, each with a number like `write_wait`.
    streams: Mutex<Vec<Arc<AtomicU32>>>,
    /// Whether a whole head has arrived.
    had_head: AtomicBool,
    waker: AtomicWaker,
}

impl ConnectionControl {
    /// Sends a command. A weaker command never replaces a stronger one.
    pub(super) fn send(&self, command: Command) {
        self.command.fetch_max(command as u8, Ordering::Release);
        self.waker.wake();
    }

    /// The current command. The next command wakes this waker.
    pub(super) fn command_with_waker(&self, waker: &Waker) -> Command {
        self.waker.register(waker);
        self.command()
    }

    /// As above, but `Close` comes once: afterwards the connection is served until it is empty or a stronger command comes.
    pub(super) fn next_command(&self, waker: &Waker, closing: &mut bool) -> Command {
        match self.command_with_waker(waker) {
            Command::Close if std::mem::replace(closing, true) => Command::Serve,
            command => command,
        }
    }

    pub(super) fn command(&self) -> Command {
        match self.command.load(Ordering::Acquire) {
            0 => Command::Serve,
            1 => Command::Close,
            2 => Command::End,
            _ => Command::Reset,
        }
    }

    /// Records that a write started or stopped waiting. Only the connection's task changes this, so a plain store is enough.
    pub(super) fn write_wait_changed(&self) {
        self.write_wait.store(self.write_wait.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn write_wait(&self) -> u32 {
        self.write_wait.load(Ordering::Relaxed)
    }

    /// Records a read. Only the connection's task changes this.
    pub(super) fn count_read(&self) {
        self.reads.store(self.reads().wrapping_add(1), Ordering::Relaxed);
    }

    /// Records that the connection waits for a request from now on.
    pub(super) fn set_idle(&self, now: Instant) {
        self.idle_reads.store(self.reads(), Ordering::Relaxed);
        let since = now.saturating_duration_since(*START).as_nanos();
        self.idle_since.store(u64::try_from(since).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    /// Records that a request arrived.
    pub(super) fn set_busy(&self) {
        self.idle_since.store(0, Ordering::Relaxed);
        self.had_head.store(true, Ordering::Relaxed);
    }

    /// Whether a request has ever arrived.
    pub(super) fn had_head(&self) -> bool {
        self.had_head.load(Ordering::Relaxed)
    }

    /// Since when the connection has waited for the first byte of a request; `None` if it does not. Later times are larger.
    pub(super) fn idle_since(&self) -> Option<u64> {
        let since = self.idle_since.load(Ordering::Relaxed);
        let waits = self.reads_ignored.load(Ordering::Relaxed) || self.reads() == self.idle_reads.load(Ordering::Relaxed);
        (since > 0 && waits).then_some(since)
    }

    /// For how long the connection has waited for a request; `None` if it does not.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        let now = Deadline::after(Duration::ZERO).instant().saturating_duration_since(*START);
        self.idle_since().map(|since| now.saturating_sub(Duration::from_nanos(since)))
    }

    /// From now on reads do not end the wait for a request: HTTP/2 has frames without one.
    pub(super) fn ignore_reads(&self) {
        self.reads_ignored.store(true, Ordering::Relaxed);
    }

    /// Adds a stream. Its number is odd while a part of its response waits for the client.
    pub(super) fn add_stream(&self) -> Arc<AtomicU32> {
        let wait = Arc::new(AtomicU32::new(0));
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&wait));
        wait
    }

    pub(super) fn remove_stream(&self, stream: &Arc<AtomicU32>) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, stream));
    }

    /// Calls `see` with each stream that waits for the client, and the number of its wait.
    pub(super) fn waiting_streams(&self, mut see: impl FnMut(&Arc<AtomicU32>, u32)) {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let wait = stream.load(Ordering::Relaxed);
            if wait % 2 == 1 {
                see(stream, wait);
            }
        }
    }

    pub(super) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }
}
