//! Identical calls in flight: the first one runs (the leader), the others wait for its outcome (followers).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use werkruf_contract::{Cancel, Uuid};

use super::outcome::CallOutcome;

type Leaders = HashMap<String, (Uuid, Arc<Completion>)>;

/// Where followers wait. They are woken in the order they came.
#[derive(Default)]
struct Completion {
    outcome: OnceLock<Arc<CallOutcome>>,
    /// Raised when the leader is gone, with an outcome or without.
    over: Cancel,
}

/// The calls that run now, by dedupe key. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct InFlight {
    leaders: Arc<Mutex<Leaders>>,
}

/// Held by the call that runs.
pub(super) struct Leader {
    calls: InFlight,
    key: String,
    job_id: Uuid,
    completion: Arc<Completion>,
}

/// Held by a call that waits for the leader's outcome.
pub(super) struct Follower {
    pub(super) leader_id: Uuid,
    completion: Arc<Completion>,
    /// Set where the leader runs in another process: local followers wait for this call.
    pub(super) remote: Option<Leader>,
}

/// Which of the two a call became.
pub(super) enum Role {
    Leader(Leader),
    Follower(Follower),
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, Leaders> {
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(&self, key: &str, job_id: Uuid) -> Role {
        let mut leaders = self.lock();
        if let Some((leader_id, completion)) = leaders.get(key) {
            return Role::Follower(Follower { leader_id: *leader_id, completion: Arc::clone(completion), remote: None });
        }
        Role::Leader(self.insert(&mut leaders, key, job_id))
    }

    /// Whether calls of this process wait for the outcome of this one.
    pub(crate) fn is_followed(&self, job_id: Uuid) -> bool {
        // The table and the leader have one reference each.
        self.lock().values().any(|(leader_id, completion)| *leader_id == job_id && Arc::strong_count(completion) > 2)
    }

    /// Makes a call the leader, whichever call has the key now. For a call that was sent before a crash: a repeated request may hold the key
    /// until it is recognised as a copy, and then leaves without an outcome.
    pub(super) fn take_lead(&self, key: &str, job_id: Uuid) -> Leader {
        self.insert(&mut self.lock(), key, job_id)
    }

    fn insert(&self, leaders: &mut Leaders, key: &str, job_id: Uuid) -> Leader {
        let completion = Arc::new(Completion::default());
        leaders.insert(key.to_owned(), (job_id, Arc::clone(&completion)));
        Leader { calls: self.clone(), key: key.to_owned(), job_id, completion }
    }
}

impl Leader {
    /// Another process runs this very call.
    pub(super) fn follow(self, leader_id: Uuid) -> Follower {
        Follower { leader_id, completion: Arc::clone(&self.completion), remote: Some(self) }
    }

    /// The dedupe key, and the call that leads.
    pub(super) fn key(&self) -> (&str, Uuid) {
        (&self.key, self.job_id)
    }

    /// Gives the outcome to all followers.
    pub(super) fn complete(self, outcome: &Arc<CallOutcome>) {
        // The only writer, and only once: `self` is consumed.
        let _ = self.completion.outcome.set(Arc::clone(outcome));
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // Success, failure and cancel all free the key at once: the next call asks the store.
        let mut leaders = self.calls.lock();
        if leaders.get(&self.key).is_some_and(|(leader_id, _)| *leader_id == self.job_id) {
            leaders.remove(&self.key);
        }
        drop(leaders);
        self.completion.over.raise();
    }
}

impl Follower {
    /// The leader's outcome; `None` when it left without one.
    pub(super) async fn outcome(self) -> Option<Arc<CallOutcome>> {
        self.completion.over.raised().await;
        self.completion.outcome.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Uuid;

    use super::{InFlight, Role};

    #[test]
    fn a_resumed_call_keeps_its_key_when_a_copy_leaves() {
        let calls = InFlight::default();
        let Role::Leader(copy) = calls.enter("key", Uuid::from_u128(2)) else { panic!("no call has the key yet") };
        let resumed = calls.take_lead("key", Uuid::from_u128(1));
        drop(copy);
        let Role::Follower(follower) = calls.enter("key", Uuid::from_u128(3)) else { panic!("the resumed call has the key") };
        assert_eq!(follower.leader_id, Uuid::from_u128(1));
        drop(resumed);
        assert!(matches!(calls.enter("key", Uuid::from_u128(4)), Role::Leader(_)));
    }
}
