//! A lease as this process knows it: since when it is certain, so that no work starts under a lease that may have expired.
//!
//! Invariants: all times are monotonic, and the time that counts was taken before the store was asked. A lease counts as lost only by an
//! answer to a request that was sent after the store last confirmed the lease, and never while a write under it is in progress.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use werkruf_contract::Uuid;
use werkruf_store::Fence;

use crate::timer;

/// The last part of a lease's time, in which no work starts under it.
const MARGIN: Duration = Duration::from_secs(3);

/// The lease of one running turn, once it has one.
#[derive(Default)]
pub(crate) struct LocalLease {
    held: Mutex<Option<Held>>,
}

struct Held {
    stream_id: Uuid,
    epoch: i64,
    /// When the last request was sent that the store answered with yes.
    certain_at: Instant,
    /// When the store last confirmed the lease.
    confirmed_at: Instant,
    writes_in_progress: u32,
}

/// A write in progress. Dropping it ends the write.
pub(crate) struct LeasedWrite<'a> {
    lease: &'a LocalLease,
    sent_at: Instant,
}

impl LocalLease {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store granted the lease; the request for it was sent at `sent_at`.
    pub(crate) fn acquire(&self, fence: &Fence, sent_at: Instant) {
        let (stream_id, epoch) = (fence.stream_id, fence.epoch);
        *self.lock() = Some(Held { stream_id, epoch, certain_at: sent_at, confirmed_at: timer::now(), writes_in_progress: 0 });
    }

    /// The lease was given back: the turn has ended or waits for an approval.
    pub(crate) fn release(&self) {
        *self.lock() = None;
    }

    pub(crate) fn is_held(&self) -> bool {
        self.lock().is_some()
    }

    /// Whether new work may start under the lease.
    pub(crate) fn is_certain(&self, ttl: Duration) -> bool {
        let longest = ttl.saturating_sub(MARGIN.min(ttl / 5));
        self.lock().as_ref().is_some_and(|held| held.certain_at.elapsed() < longest)
    }

    /// Starts a write. A write that succeeds renews the lease.
    pub(crate) fn start_write(&self) -> LeasedWrite<'_> {
        if let Some(held) = self.lock().as_mut() {
            held.writes_in_progress += 1;
        }
        LeasedWrite { lease: self, sent_at: timer::now() }
    }

    /// Applies the store's list of this process's leases (epoch by stream), which was requested at `sent_at`. False when this lease
    /// is lost.
    pub(crate) fn confirm(&self, sent_at: Instant, renewed: bool, leases: &HashMap<Uuid, i64>) -> bool {
        let mut held = self.lock();
        let Some(held) = held.as_mut() else { return true };
        if leases.get(&held.stream_id) == Some(&held.epoch) {
            if renewed {
                held.certain_at = held.certain_at.max(sent_at);
            }
            return true;
        }
        held.writes_in_progress > 0 || held.confirmed_at >= sent_at
    }
}

impl LeasedWrite<'_> {
    /// The store took the write.
    pub(crate) fn succeeded(&self) {
        if let Some(held) = self.lease.lock().as_mut() {
            held.certain_at = held.certain_at.max(self.sent_at);
            held.confirmed_at = timer::now();
        }
    }
}

impl Drop for LeasedWrite<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.lease.lock().as_mut() {
            held.writes_in_progress = held.writes_in_progress.saturating_sub(1);
        }
    }
}
