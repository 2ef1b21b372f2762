//! Requests that are on their way into the inbox. Copies of one that arrive together wait for each other, so that the first is stored and the others
//! find it there, before they count towards a limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use werkruf_contract::Uuid;
use werkruf_store::InboxEntry;

/// So many different requests are known at once. One more does not wait; commit A recognises its copies.
const MOST: usize = 10_000;

/// The tenant, and the channel, account and id of the entry.
type Key = (Uuid, String, String, String);

/// The requests of this process, by inbox entry. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Arrivals {
    turns: Arc<Mutex<HashMap<Key, Arc<AsyncMutex<()>>>>>,
}

/// One request. While it exists, copies of it wait.
pub(crate) struct Arrival {
    arrivals: Arrivals,
    key: Key,
    /// `None` where too many requests are known.
    turn: Option<Arc<AsyncMutex<()>>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Arrivals {
    /// Waits for the copies that came earlier.
    pub(crate) async fn enter(&self, tenant_id: Uuid, entry: &InboxEntry) -> Arrival {
        let key = (tenant_id, entry.channel.clone(), entry.account.clone(), entry.external_id.clone());
        let mut arrival = Arrival { arrivals: self.clone(), turn: self.turn_of(&key), key, held: None };
        if let Some(turn) = &arrival.turn {
            arrival.held = Some(Arc::clone(turn).lock_owned().await);
        }
        arrival
    }

    fn turn_of(&self, key: &Key) -> Option<Arc<AsyncMutex<()>>> {
        let mut turns = self.lock();
        let full = turns.len() >= MOST && !turns.contains_key(key);
        (!full).then(|| Arc::clone(turns.entry(key.clone()).or_default()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<AsyncMutex<()>>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut turns = self.arrivals.lock();
        self.held = None;
        // The map has the other reference: no copy waits.
        if self.turn.take().is_some_and(|turn| Arc::strong_count(&turn) <= 2) {
            turns.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use jiff::Timestamp;
    use werkruf_contract::Uuid;
    use werkruf_store::InboxEntry;

    use super::{Arrivals, MOST};

    fn entry(id: &str) -> InboxEntry {
        let [channel, account, fingerprint] = ["chat", "1", ""].map(str::to_owned);
        InboxEntry { channel, account, external_id: id.to_owned(), fingerprint, expires_at: Timestamp::UNIX_EPOCH }
    }

    #[tokio::test]
    async fn copies_wait_for_each_other_and_nothing_is_left() {
        let arrivals = Arrivals::default();
        let first = arrivals.enter(Uuid::nil(), &entry("m1")).await;
        let (m1, m2) = (entry("m1"), entry("m2"));
        let mut second = Box::pin(arrivals.enter(Uuid::nil(), &m1));
        let mut third = Box::pin(arrivals.enter(Uuid::nil(), &m1));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        let others = [arrivals.enter(Uuid::nil(), &m2).await, arrivals.enter(Uuid::max(), &m1).await];
        assert_eq!(arrivals.lock().len(), 3, "another request and another tenant do not wait");
        drop(first);
        // A client that leaves while it waits.
        drop(third);
        drop(second.await);
        drop(others);
        assert_eq!(arrivals.lock().len(), 0);
    }

    #[tokio::test]
    async fn one_request_too_many_does_not_wait() {
        let arrivals = Arrivals::default();
        let mut known = Vec::new();
        for number in 0..MOST {
            known.push(arrivals.enter(Uuid::nil(), &entry(&number.to_string())).await);
        }
        drop((arrivals.enter(Uuid::nil(), &entry("more")).await, arrivals.enter(Uuid::nil(), &entry("more")).await));
        assert_eq!(arrivals.lock().len(), MOST);
        assert!(arrivals.enter(Uuid::nil(), &entry("7")).now_or_never().is_none(), "copies of the others still do");
        drop(known);
        assert_eq!(arrivals.lock().len(), 0);
    }
}
