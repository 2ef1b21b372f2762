//! The state that the task of a connection shares with the registry: a few atomics and a waker, without a lock.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
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
        (since > 0 && self.reads() == self.idle_reads.load(Ordering::Relaxed)).then_some(since)
    }

    pub(super) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }
}
