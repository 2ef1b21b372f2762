//! When keys were last used. A use is kept in memory and stored later, many at once, and at most once a minute for each key.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::Uuid;
use werkruf_store::{KeyUse, Keys, StoreError};

/// The least time between two stored uses of a key.
const EVERY: SignedDuration = SignedDuration::from_mins(1);
/// The most keys that are remembered. A full table forgets the keys whose use is stored.
const KEYS: usize = 10_000;

/// Uses of keys.
#[derive(Default)]
pub(crate) struct KeyUses(Mutex<HashMap<Uuid, Use>>);

struct Use {
    tenant_id: Uuid,
    at: Timestamp,
    stored: bool,
}

impl KeyUses {
    /// Remembers that a key was used.
    pub(crate) fn used(&self, tenant_id: Uuid, id: Uuid, now: Timestamp) {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = uses.get(&id)
            && now.duration_since(known.at).abs() < EVERY
        {
            return;
        }
        if uses.len() >= KEYS {
            uses.retain(|_, known| !known.stored);
        }
        uses.insert(id, Use { tenant_id, at: now, stored: false });
    }

    /// Stores the uses that are not stored yet. Those of a failed write are lost; the next use is stored again.
    pub(crate) async fn store(&self, store: &dyn Keys) -> Result<(), StoreError> {
        let uses = self.take();
        if uses.is_empty() { Ok(()) } else { store.record_key_uses(uses).await }
    }

    fn take(&self) -> Vec<KeyUse> {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = uses.iter_mut().filter(|(_, known)| !known.stored);
        new.map(|(id, known)| {
            known.stored = true;
            KeyUse { tenant_id: known.tenant_id, id: *id, at: known.at }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_stored_once_a_minute() {
        let (uses, id, now) = (KeyUses::default(), Uuid::max(), Timestamp::UNIX_EPOCH);
        let stored = |at| {
            uses.used(Uuid::nil(), id, at);
            uses.take().into_iter().map(|used| used.at).collect::<Vec<_>>()
        };
        assert_eq!(stored(now), [now]);
        assert_eq!(stored(now + SignedDuration::from_secs(59)), []);
        let later = now + EVERY;
        assert_eq!(stored(later), [later]);
        let stepped_back = later - SignedDuration::from_hours(1);
        assert_eq!(stored(stepped_back), [stepped_back], "a step back of the clock does not stop it");
    }
}
