//! A lease as this process knows it: when it was surely ours, so that nothing begins under one that may have lapsed.
//!
//! Invariants: every time is monotonic, and the one that counts was taken before the store was asked; a lease is judged lost only
//! by an answer to a question that was asked after the lease was last heard of here, and never while a write of it is under way.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use werkruf_contract::Uuid;
use werkruf_store::{Fence, LeaseReport};

use crate::timer;

/// What is left of a lease when nothing may begin under it any more, at most.
const MARGIN: Duration = Duration::from_secs(3);

/// The lease of one running turn, once there is one.
#[derive(Default)]
pub(crate) struct Hold {
    held: Mutex<Option<Held>>,
}

struct Held {
    stream_id: Uuid,
    epoch: i64,
    /// Before the last question that was answered with yes.
    sure: Instant,
    /// When the store was last heard of it.
    heard: Instant,
    /// Writes under way.
    asking: u32,
}

/// A write under way.
pub(crate) struct Asking<'a> {
    hold: &'a Hold,
    asked: Instant,
}

impl Hold {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store gave it, and was asked for it then.
    pub(crate) fn take(&self, fence: &Fence, asked: Instant) {
        let (stream_id, epoch) = (fence.stream_id, fence.epoch);
        *self.lock() = Some(Held { stream_id, epoch, sure: asked, heard: timer::now(), asking: 0 });
    }

    /// It was given back, with the turn ended or waiting.
    pub(crate) fn give_back(&self) {
        *self.lock() = None;
    }

    pub(crate) fn is_held(&self) -> bool {
        self.lock().is_some()
    }

    /// Whether something may begin under it.
    pub(crate) fn is_sure(&self, ttl: Duration) -> bool {
        let longest = ttl.saturating_sub(MARGIN.min(ttl / 5));
        self.lock().as_ref().is_some_and(|held| held.sure.elapsed() < longest)
    }

    /// The store is asked to take a write, which renews the lease.
    pub(crate) fn ask(&self) -> Asking<'_> {
        if let Some(held) = self.lock().as_mut() {
            held.asking += 1;
        }
        Asking { hold: self, asked: timer::now() }
    }

    /// What the store said when it was asked then for all leases of this process. False when this one is lost.
    pub(crate) fn stands(&self, asked: Instant, renewed: bool, leases: &HashMap<Uuid, i64>) -> bool {
        let mut held = self.lock();
        let Some(held) = held.as_mut() else { return true };
        if leases.get(&held.stream_id) == Some(&held.epoch) {
            if renewed {
                held.sure = held.sure.max(asked);
            }
            return true;
        }
        held.asking > 0 || held.heard >= asked
    }
}

impl Asking<'_> {
    /// The write was taken.
    pub(crate) fn taken(&self) {
        if let Some(held) = self.hold.lock().as_mut() {
            held.sure = held.sure.max(self.asked);
            held.heard = timer::now();
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.hold.lock().as_mut() {
            held.asking = held.asking.saturating_sub(1);
        }
    }
}

/// The leases an answer names, by stream.
pub(crate) fn leases(renewed: &LeaseReport) -> HashMap<Uuid, i64> {
    renewed.held.iter().map(|(key, epoch)| (key.stream_id, *epoch)).collect()
}
