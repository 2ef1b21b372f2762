//! The turns that run in this process, and the signals that stop them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use werkruf_contract::{Cancel, Uuid};

use super::local::LocalLease;
use crate::timer;

/// The part of a running turn that other tasks may touch: its stop signals and its lease.
pub(crate) struct RunningTurn {
    /// When this process accepted the turn or took it over.
    since: Instant,
    canceled: Cancel,
    /// Raised when the turn is canceled because its client left.
    left: Cancel,
    /// Raised when the process must stop before the turn has ended.
    released: Cancel,
    /// Raised by a decision or a cancel that may come just as the turn starts to wait for an approval.
    recheck: Cancel,
    /// Raised when another process has started the turn while it waits here for its place.
    started_elsewhere: Cancel,
    /// Raised when another process owns the turn: nothing more may start or be written here.
    lost: Cancel,
    /// Raised when this process works on the turn no more.
    over: Cancel,
    lease: LocalLease,
    /// Sorted, so that a seeded test cancels in the same order twice.
    calls: Mutex<BTreeMap<Uuid, RunningCall>>,
}

#[derive(Default)]
struct RunningCall {
    cancel: Cancel,
    /// It was sent and must not be repeated: its end is waited for when the client leaves.
    must_end: bool,
}

impl Default for RunningTurn {
    fn default() -> Self {
        Self {
            since: timer::now(),
            canceled: Cancel::default(),
            left: Cancel::default(),
            released: Cancel::default(),
            recheck: Cancel::default(),
            started_elsewhere: Cancel::default(),
            lost: Cancel::default(),
            over: Cancel::default(),
            lease: LocalLease::default(),
            calls: Mutex::default(),
        }
    }
}

impl RunningTurn {
    pub(crate) const fn since(&self) -> Instant {
        self.since
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<Uuid, RunningCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn lease(&self) -> &LocalLease {
        &self.lease
    }

    /// Cancels the turn and every call in it.
    pub(crate) fn cancel(&self) {
        self.canceled.raise();
        for call in self.calls().values() {
            call.cancel.raise();
        }
    }

    /// The client left: cancels the turn and its calls, except calls that were sent and must not be repeated.
    pub(crate) fn leave(&self) {
        self.left.raise();
        self.canceled.raise();
        for call in self.calls().values().filter(|call| !call.must_end) {
            call.cancel.raise();
        }
    }

    /// Whether the turn is canceled because its client left.
    pub(crate) fn is_left(&self) -> bool {
        self.left.is_raised()
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.canceled.is_raised()
    }

    /// Resolves when the turn is canceled.
    pub(crate) async fn canceled(&self) {
        self.canceled.raised().await;
    }

    /// Cancels one call; false when it does not run here.
    pub(crate) fn cancel_call(&self, job_id: Uuid) -> bool {
        self.calls().get(&job_id).map(|call| call.cancel.raise()).is_some()
    }

    /// Cancels one call, unless it was sent and must not be repeated; false when it goes on, and `None` when it does not run here.
    pub(crate) fn cancel_unsent_call(&self, job_id: Uuid) -> Option<bool> {
        let calls = self.calls();
        let call = calls.get(&job_id)?;
        if !call.must_end {
            call.cancel.raise();
        }
        Some(!call.must_end)
    }

    /// A call that must not be repeated is about to be sent; false when it is canceled already.
    pub(crate) fn must_end(&self, job_id: Uuid) -> bool {
        let mut calls = self.calls();
        let Some(call) = calls.get_mut(&job_id) else { return true };
        call.must_end = !call.cancel.is_raised();
        call.must_end
    }

    /// The cancel signal of a call that starts now.
    pub(crate) fn register_call(&self, job_id: Uuid) -> Cancel {
        let cancel = Cancel::default();
        self.calls().insert(job_id, RunningCall { cancel: cancel.clone(), must_end: false });
        // The turn may have been canceled while this call was prepared.
        if self.canceled.is_raised() {
            cancel.raise();
        }
        cancel
    }

    pub(crate) fn forget_call(&self, job_id: Uuid) {
        self.calls().remove(&job_id);
    }

    /// Stops the work without ending the turn.
    pub(crate) fn release(&self) {
        self.released.raise();
    }

    pub(crate) async fn released(&self) {
        self.released.raised().await;
    }

    /// The turn waits here, and another process has started it. A turn that works here does not listen.
    pub(crate) fn start_elsewhere(&self) {
        self.started_elsewhere.raise();
    }

    pub(crate) async fn started_elsewhere(&self) {
        self.started_elsewhere.raised().await;
    }

    /// Another process owns the turn.
    pub(crate) fn lose(&self) {
        self.lost.raise();
    }

    pub(crate) async fn lost(&self) {
        self.lost.raised().await;
    }

    /// Resolves when this process works on the turn no more: it ended, waits for an approval, or belongs to another process.
    pub(crate) async fn over(&self) {
        self.over.raised().await;
    }

    /// Whether the turn must be looked at again once its work here has stopped.
    pub(crate) fn needs_recheck(&self) -> bool {
        self.recheck.is_raised()
    }
}

/// The turns of this process by id, sorted, so that a seeded test sees the same order twice.
#[derive(Default)]
pub(crate) struct RunningTurns {
    turns: Mutex<BTreeMap<Uuid, Arc<RunningTurn>>>,
}

impl RunningTurns {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<RunningTurn>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn get(&self, turn_id: Uuid) -> Option<Arc<RunningTurn>> {
        self.lock().get(&turn_id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<(Uuid, Arc<RunningTurn>)> {
        self.lock().iter().map(|(turn_id, turn)| (*turn_id, Arc::clone(turn))).collect()
    }

    /// Adds a turn; `None` while the turn already runs here.
    pub(crate) fn add(&self, turn_id: Uuid) -> Option<Arc<RunningTurn>> {
        match self.lock().entry(turn_id) {
            Entry::Vacant(place) => Some(Arc::clone(place.insert(Arc::new(RunningTurn::default())))),
            Entry::Occupied(_) => None,
        }
    }

    pub(crate) fn remove(&self, turn_id: Uuid) {
        if let Some(turn) = self.lock().remove(&turn_id) {
            turn.over.raise();
        }
    }

    /// Asks for another look at the turn once its work here has stopped; false when it does not run here.
    pub(crate) fn request_recheck(&self, turn_id: Uuid) -> bool {
        self.lock().get(&turn_id).map(|turn| turn.recheck.raise()).is_some()
    }
}
