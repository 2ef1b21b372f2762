//! What the connection's task and those outside it know of each other: a few numbers and a waker, no lock.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;

/// What a connection is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Command {
    /// Go on.
    Serve,
    /// Finish what runs, take nothing new.
    Close,
    /// Close now.
    End,
    /// Close now and throw away what waits in the kernel: nobody reads it.
    Reset,
}

/// The outside of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionControl {
    command: AtomicU8,
    /// Odd while a write waits for the client; every change adds one, so that the same odd number twice is the same wait.
    flow: AtomicU32,
    /// How often bytes came in.
    reads: AtomicU32,
    waker: AtomicWaker,
}

impl ConnectionControl {
    /// Gives an order. An order never becomes milder.
    pub(super) fn send(&self, command: Command) {
        self.command.fetch_max(command as u8, Ordering::Release);
        self.waker.wake();
    }

    /// The order, heard by the connection's task; the next one wakes it.
    pub(super) fn register_waker(&self, waker: &Waker) -> Command {
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

    /// A write began to wait, or goes on. Only the connection's task changes this, so a plain store is enough.
    pub(super) fn flow_changed(&self) {
        self.flow.store(self.flow.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn flow(&self) -> u32 {
        self.flow.load(Ordering::Relaxed)
    }

    /// Bytes came in. Only the connection's task changes this.
    pub(super) fn read(&self) {
        self.reads.store(self.reads().wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }
}
