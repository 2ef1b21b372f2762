//! How many turns a user and a key may start: a leaky bucket each, refilled evenly over the minute.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use werkruf_contract::Uuid;

use crate::limits::Limits;

/// Buckets that are full again are forgotten once there are this many.
const SWEEP_AT: usize = 10_000;

/// Per key of the bucket: the time at which it will be full again, in milliseconds.
struct Buckets<K> {
    full_at: Mutex<HashMap<K, i64>>,
}

impl<K: Hash + Eq> Buckets<K> {
    fn new() -> Self {
        Self { full_at: Mutex::new(HashMap::new()) }
    }

    /// Whether one can be taken; the error is how long to wait.
    fn check<Q: Hash + Eq + ?Sized>(&self, key: &Q, per_minute: u32, now: Timestamp) -> Result<(), u64>
    where
        K: Borrow<Q>,
    {
        if per_minute == 0 {
            return Ok(());
        }
        let buckets = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let left = buckets.get(key).map_or(0, |full_at| *full_at - now.as_millisecond());
        let over = left.max(0) + (60_000 / i64::from(per_minute)).max(1) - 60_000;
        if over > 0 { Err(u64::try_from(over).unwrap_or(0)) } else { Ok(()) }
    }

    /// Takes one; the error is how long to wait.
    fn take(&self, key: K, per_minute: u32, now: Timestamp) -> Result<(), u64> {
        if per_minute == 0 {
            return Ok(());
        }
        let now = now.as_millisecond();
        let cost = 60_000 / i64::from(per_minute).max(1);
        let mut buckets = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= SWEEP_AT {
            buckets.retain(|_, full_at| *full_at > now);
        }
        let full_at = buckets.entry(key).or_insert(now);
        let next = (*full_at).max(now) + cost.max(1);
        let over = next - now - 60_000;
        if over > 0 {
            return Err(u64::try_from(over).unwrap_or(0));
        }
        *full_at = next;
        Ok(())
    }
}

/// Limits how many turns users and keys start.
pub(crate) struct RateLimits {
    users: Buckets<(Uuid, String)>,
    keys: Buckets<Uuid>,
}

impl RateLimits {
    pub(crate) fn new() -> Self {
        Self { users: Buckets::new(), keys: Buckets::new() }
    }

    /// The error is how many milliseconds to wait.
    pub(crate) fn admit(&self, limits: &Limits, tenant: Uuid, user: &str, key: Option<Uuid>, now: Timestamp) -> Result<(), u64> {
        // The user first: what one user is refused must not use up the key that users share.
        self.users.take((tenant, user.to_owned()), limits.turns_per_minute_user, now)?;
        key.map_or(Ok(()), |key| self.keys.take(key, limits.turns_per_minute_key, now))
    }

    /// What [`Self::admit`] would answer, without counting a turn.
    pub(crate) fn check(&self, limits: &Limits, tenant: Uuid, user: &str, key: Option<Uuid>, now: Timestamp) -> Result<(), u64> {
        self.users.check(&(tenant, user.to_owned()), limits.turns_per_minute_user, now)?;
        key.map_or(Ok(()), |key| self.keys.check(&key, limits.turns_per_minute_key, now))
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use werkruf_contract::Uuid;

    use super::RateLimits;
    use crate::limits::Limits;

    #[test]
    fn a_minute_holds_so_many_turns_and_refills() {
        let limits_in_force = RateLimits::new();
        let limits = Limits { turns_per_minute_user: 3, ..Limits::default() };
        let now = Timestamp::from_second(1_000_000).unwrap();
        let at = |now| limits_in_force.admit(&limits, Uuid::nil(), "1", None, now);
        assert_eq!([at(now), at(now), at(now)], [Ok(()), Ok(()), Ok(())]);
        assert_eq!(at(now), Err(20_000));
        assert_eq!(limits_in_force.check(&limits, Uuid::nil(), "1", None, now), Err(20_000));
        for _ in 0..4 {
            assert_eq!(limits_in_force.check(&limits, Uuid::nil(), "2", None, now), Ok(()), "a check counts nothing");
        }
        assert_eq!(limits_in_force.admit(&limits, Uuid::nil(), "2", None, now), Ok(()), "another user has a bucket of their own");
        assert_eq!(at(now + SignedDuration::from_secs(20)), Ok(()));
    }
}
