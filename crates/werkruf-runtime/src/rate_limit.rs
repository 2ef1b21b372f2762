//! How often users and keys may do something: a bucket each, refilled evenly over the minute.
//!
//! Buckets run on the monotonic clock, so a step of the wall clock changes nothing. Processes that share a database also share
//! the tokens of each minute: a process takes them in blocks, so that an ordinary request needs no database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use werkruf_contract::Uuid;
use werkruf_store::{Cluster, TokenGrant};

use crate::timer;

/// The first number of subjects at which those with a full bucket are forgotten.
const SWEEP_AT: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);
/// A process takes this part of a minute's tokens at once.
const BLOCKS: u32 = 20;
/// A block has at least so many tokens, so that few requests write to the database. It has at most a quarter of a minute's tokens; the rest is
/// for other processes.
const SMALLEST_BLOCK: u32 = 5;
/// After a failure to read the shared tokens this process counts alone for this long, so that requests do not wait for each other.
const ALONE: Duration = Duration::from_secs(1);

/// Who is limited.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RateSubject {
    User(String),
    Key(Uuid),
}

/// How much a subject may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// 0 is off.
    pub per_minute: u32,
    /// How many may come at once.
    pub burst: u32,
}

impl Rate {
    /// A whole minute's worth may come at once.
    pub const fn of_turns(per_minute: u32) -> Self {
        Self { per_minute, burst: per_minute }
    }

    /// A tenth of a minute's worth may come at once.
    pub fn of_requests(per_minute: u32) -> Self {
        Self { per_minute, burst: (per_minute / 10).max(1) }
    }
}

/// What is left of a subject's rate, as this process knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateRoom {
    /// How many may come at once.
    pub limit: u32,
    /// How many may come now.
    pub remaining: u32,
    /// When all of them may come again.
    pub reset: Duration,
}

struct Bucket {
    full_at: Instant,
    /// Tokens of the current minute that this process took and has not used.
    tokens: u32,
    tokens_end: Instant,
    /// No process gets another token before `tokens_end`.
    exhausted: bool,
    /// This process counts alone until then, because the shared tokens could not be read.
    alone_until: Instant,
    /// Held while tokens are taken: one request of a subject asks for all that wait.
    taking: Arc<AsyncMutex<()>>,
}

struct Buckets {
    by_subject: HashMap<(Uuid, RateSubject), Bucket>,
    sweep_at: usize,
}

/// Limits how often users and keys do one kind of thing.
pub struct RateLimiter {
    /// Names the kind in the shared counts.
    kind: &'static str,
    buckets: Mutex<Buckets>,
    /// `None` where this process counts alone.
    cluster: Option<Arc<dyn Cluster>>,
}

enum Local {
    Admitted,
    /// The bucket has room, and a token must be taken from the shared ones, by one request at a time.
    NeedsToken(Arc<AsyncMutex<()>>),
}

impl RateLimiter {
    pub fn new(kind: &'static str, cluster: &Arc<dyn Cluster>) -> Self {
        let cluster = cluster.lease_ttl().is_some().then(|| Arc::clone(cluster));
        Self { kind, buckets: Mutex::new(Buckets { by_subject: HashMap::new(), sweep_at: SWEEP_AT }), cluster }
    }

    /// Takes one; the error is how many milliseconds to wait.
    pub async fn take(&self, tenant_id: Uuid, subject: RateSubject, rate: Rate) -> Result<(), u64> {
        if rate.per_minute == 0 {
            return Ok(());
        }
        let key = (tenant_id, subject);
        let Some(cluster) = &self.cluster else { return self.lock().take_alone(&key, rate) };
        let taking = match self.lock().take(&key, rate)? {
            Local::Admitted => return Ok(()),
            Local::NeedsToken(taking) => taking,
        };
        let _taking = taking.lock().await;
        // Another request may have taken tokens meanwhile.
        if matches!(self.lock().take(&key, rate)?, Local::Admitted) {
            return Ok(());
        }
        let name = match &key.1 {
            RateSubject::User(id) => format!("{}/user/{id}", self.kind),
            RateSubject::Key(id) => format!("{}/key/{id}", self.kind),
        };
        match cluster.take_tokens(tenant_id, name, rate.block(), rate.per_minute).await {
            Ok(Some(grant)) => self.lock().accept(&key, rate, grant),
            Ok(None) => self.lock().take_alone(&key, rate),
            Err(error) => {
                tracing::warn!(%error, "the shared limits cannot be read; this process counts alone");
                let mut buckets = self.lock();
                let now = timer::now();
                buckets.bucket(&key, now).alone_until = now + ALONE;
                buckets.take_alone(&key, rate)
            }
        }
    }

    /// Gives one back that was taken just now. A shared token stays with this process until the end of its minute.
    pub(crate) fn give_back(&self, tenant_id: Uuid, subject: RateSubject, rate: Rate) {
        let now = timer::now();
        // A subject that was forgotten has a full bucket.
        let mut buckets = self.lock();
        let Some(bucket) = buckets.by_subject.get_mut(&(tenant_id, subject)) else { return };
        bucket.full_at = bucket.full_at.checked_sub(rate.cost()).map_or(now, |before| before.max(now));
        if self.cluster.is_some() && now < bucket.tokens_end && now >= bucket.alone_until {
            bucket.tokens = bucket.tokens.saturating_add(1);
        }
    }

    /// What the bucket of this process says about one more, without counting it.
    pub fn check(&self, tenant_id: Uuid, subject: RateSubject, rate: Rate) -> Result<(), u64> {
        if rate.per_minute == 0 {
            return Ok(());
        }
        let buckets = self.lock();
        buckets.by_subject.get(&(tenant_id, subject)).map_or(Ok(()), |bucket| bucket.next(rate, timer::now()).map(|_| ()))
    }

    /// What is left for a subject, without counting anything.
    pub fn room(&self, tenant_id: Uuid, subject: RateSubject, rate: Rate) -> RateRoom {
        let full = RateRoom { limit: rate.burst, remaining: rate.burst, reset: Duration::ZERO };
        self.lock().by_subject.get(&(tenant_id, subject)).map_or(full, |bucket| bucket.room(rate, timer::now()))
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buckets {
    /// Takes one from the bucket of this process only.
    fn take_alone(&mut self, key: &(Uuid, RateSubject), rate: Rate) -> Result<(), u64> {
        let now = timer::now();
        self.forget_full(now);
        let bucket = self.bucket(key, now);
        bucket.full_at = bucket.next(rate, now)?;
        Ok(())
    }

    /// Takes one, with one of the shared tokens that this process has.
    fn take(&mut self, key: &(Uuid, RateSubject), rate: Rate) -> Result<Local, u64> {
        let now = timer::now();
        self.forget_full(now);
        let bucket = self.bucket(key, now);
        let next = bucket.next(rate, now)?;
        if now < bucket.alone_until {
            bucket.full_at = next;
            return Ok(Local::Admitted);
        }
        if now >= bucket.tokens_end {
            return Ok(Local::NeedsToken(Arc::clone(&bucket.taking)));
        }
        match (bucket.tokens, bucket.exhausted) {
            (0, true) => Err(millis(bucket.tokens_end - now)),
            (0, false) => Ok(Local::NeedsToken(Arc::clone(&bucket.taking))),
            (left, _) => {
                bucket.tokens = left - 1;
                bucket.full_at = next;
                Ok(Local::Admitted)
            }
        }
    }

    /// Keeps tokens that were taken, and uses one of them. Without room in the bucket they wait for later requests.
    fn accept(&mut self, key: &(Uuid, RateSubject), rate: Rate, grant: TokenGrant) -> Result<(), u64> {
        let now = timer::now();
        let bucket = self.bucket(key, now);
        let known = if now < bucket.tokens_end { bucket.tokens } else { 0 };
        bucket.tokens_end = now + grant.valid;
        bucket.exhausted = grant.granted == 0;
        bucket.tokens = known.saturating_add(grant.granted);
        let Some(left) = bucket.tokens.checked_sub(1) else { return Err(millis(grant.valid)) };
        bucket.full_at = bucket.next(rate, now)?;
        bucket.tokens = left;
        Ok(())
    }

    fn bucket(&mut self, key: &(Uuid, RateSubject), now: Instant) -> &mut Bucket {
        let empty = || Bucket { full_at: now, tokens: 0, tokens_end: now, exhausted: false, alone_until: now, taking: Arc::default() };
        self.by_subject.entry(key.clone()).or_insert_with(empty)
    }

    /// Forgets the subjects whose buckets are full. The next time is when there are twice as many as remain.
    fn forget_full(&mut self, now: Instant) {
        if self.by_subject.len() < self.sweep_at {
            return;
        }
        self.by_subject.retain(|_, bucket| bucket.full_at > now || bucket.tokens_end > now);
        self.sweep_at = SWEEP_AT.max(self.by_subject.len() * 2);
    }
}

impl Bucket {
    fn room(&self, rate: Rate, now: Instant) -> RateRoom {
        let (cost, filling) = (rate.cost(), self.full_at.saturating_duration_since(now));
        let used = u32::try_from(filling.as_nanos().div_ceil(cost.as_nanos().max(1))).unwrap_or(u32::MAX);
        let remaining = rate.burst.saturating_sub(used);
        // Other processes have taken the rest of the minute's tokens.
        let is_exhausted = self.exhausted && now < self.tokens_end && now >= self.alone_until;
        if is_exhausted && self.tokens < remaining {
            return RateRoom { limit: rate.burst, remaining: self.tokens, reset: filling.max(self.tokens_end - now) };
        }
        RateRoom { limit: rate.burst, remaining, reset: filling }
    }

    /// When the bucket is full again after one more.
    fn next(&self, rate: Rate, now: Instant) -> Result<Instant, u64> {
        let cost = rate.cost();
        let next = self.full_at.max(now) + cost;
        let over = (next - now).saturating_sub(cost * rate.burst.max(1));
        if over.is_zero() { Ok(next) } else { Err(millis(over)) }
    }
}

impl Rate {
    fn cost(self) -> Duration {
        MINUTE / self.per_minute.max(1)
    }

    /// How many tokens a process takes at once.
    fn block(self) -> u32 {
        (self.per_minute / BLOCKS).max(SMALLEST_BLOCK.min(self.per_minute / 4)).max(1)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
#[path = "rate_limit_tests.rs"]
mod tests;
