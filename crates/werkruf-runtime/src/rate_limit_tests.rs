use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use werkruf_contract::{BoxFuture, Uuid};
use werkruf_store::{Cluster, LeaseReport, StoreError, StoreFuture, StreamPosition, TokenGrant};

use super::{Rate, RateLimiter, RateSubject};

/// Counts the tokens of one minute that never ends, as the database does.
#[derive(Default)]
struct SharedCounts {
    alone: bool,
    fails: bool,
    taken: Mutex<HashMap<String, u32>>,
    asked: Mutex<u32>,
}

impl Cluster for SharedCounts {
    fn lease_ttl(&self) -> Option<Duration> {
        (!self.alone).then_some(Duration::from_secs(1))
    }
    fn take_tokens(&self, _: Uuid, subject: String, wanted: u32, per_minute: u32) -> StoreFuture<'_, Option<TokenGrant>> {
        *self.asked.lock().unwrap() += 1;
        if self.fails {
            return Box::pin(async { Err(StoreError::Busy) });
        }
        let mut taken = self.taken.lock().unwrap();
        let taken = taken.entry(subject).or_default();
        let granted = per_minute.saturating_sub(*taken).min(wanted);
        *taken += wanted;
        Box::pin(async move {
            // As a database: other requests come meanwhile.
            tokio::task::yield_now().await;
            Ok(Some(TokenGrant { granted, valid: Duration::from_secs(30) }))
        })
    }
    fn renew_leases(&self, _: String) -> StoreFuture<'_, LeaseReport> {
        Box::pin(async { Ok(LeaseReport::default()) })
    }
    fn claim_key(&self, _: Uuid, _: String, call_id: Uuid) -> StoreFuture<'_, Uuid> {
        Box::pin(async move { Ok(call_id) })
    }
    fn request_call_cancel(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, bool> {
        Box::pin(async { Ok(false) })
    }
    fn stream_positions(&self, _: Uuid, _: Vec<Uuid>, _: Vec<Uuid>) -> StoreFuture<'_, Vec<StreamPosition>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn notify(&self) {}
    fn notified(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

fn user(id: &str) -> RateSubject {
    RateSubject::User(id.to_owned())
}

async fn admitted(limiter: &RateLimiter, rate: Rate, times: u32) -> u32 {
    let mut admitted = 0;
    for _ in 0..times {
        admitted += u32::from(limiter.take(Uuid::nil(), user("1"), rate).await.is_ok());
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn a_minute_holds_so_many_turns_and_refills() {
    let cluster: Arc<dyn Cluster> = Arc::new(SharedCounts { alone: true, ..SharedCounts::default() });
    let limiter = RateLimiter::new("turns", &cluster);
    let rate = Rate::of_turns(3);
    assert_eq!(admitted(&limiter, rate, 3).await, 3);
    assert_eq!(limiter.take(Uuid::nil(), user("1"), rate).await, Err(20_000));
    assert_eq!(limiter.take(Uuid::nil(), user("2"), rate).await, Ok(()), "another user has a bucket of their own");
    assert_eq!(limiter.take(Uuid::max(), user("1"), rate).await, Ok(()), "and so has a user of another tenant");
    assert_eq!(limiter.take(Uuid::nil(), RateSubject::Key(Uuid::nil()), rate).await, Ok(()), "and a key");
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(admitted(&limiter, rate, 2).await, 1);
    assert_eq!(admitted(&limiter, Rate::of_turns(0), 100).await, 100, "0 is off");
}

#[tokio::test(start_paused = true)]
async fn requests_come_in_bursts_of_a_tenth() {
    let cluster: Arc<dyn Cluster> = Arc::new(SharedCounts { alone: true, ..SharedCounts::default() });
    let limiter = RateLimiter::new("requests", &cluster);
    assert_eq!(admitted(&limiter, Rate::of_requests(600), 100).await, 60);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(admitted(&limiter, Rate::of_requests(600), 100).await, 10);
    let few = RateLimiter::new("requests", &cluster);
    assert_eq!(admitted(&few, Rate::of_requests(5), 100).await, 1, "at least one");
}

#[tokio::test(start_paused = true)]
async fn processes_share_the_tokens_of_a_minute_and_take_them_in_blocks() {
    let counts = Arc::new(SharedCounts::default());
    let cluster: Arc<dyn Cluster> = counts.clone();
    let processes = [RateLimiter::new("turns", &cluster), RateLimiter::new("turns", &cluster)];
    let rate = Rate::of_turns(100);
    let mut total = 0;
    for process in &processes {
        total += admitted(process, rate, 100).await;
    }
    assert_eq!(total, 100);
    // 20 blocks, and one refused attempt in the second process, which asks no more until the minute is over.
    assert_eq!(*counts.asked.lock().unwrap(), 21);
    let refused = processes[1].take(Uuid::nil(), user("1"), rate).await;
    assert_eq!(refused, Err(30_000), "until the end of the minute");
}

#[tokio::test(start_paused = true)]
async fn small_limits_are_taken_in_blocks_that_leave_something_for_other_processes() {
    for (per_minute, asked) in [(1, 1), (4, 4), (8, 4), (20, 4), (60, 12), (200, 20)] {
        let counts = Arc::new(SharedCounts::default());
        let cluster: Arc<dyn Cluster> = counts.clone();
        let processes = [RateLimiter::new("turns", &cluster), RateLimiter::new("turns", &cluster)];
        let mut total = 0;
        for turn in 0..per_minute {
            total += admitted(&processes[turn as usize % 2], Rate::of_turns(per_minute), 1).await;
        }
        // Two processes may both hold a block that is not used up.
        assert!(total + 10.min(per_minute / 4) >= per_minute, "{total} of {per_minute}");
        assert_eq!(admitted(&RateLimiter::new("turns", &cluster), Rate::of_turns(per_minute), 1).await, 0, "all are taken");
        assert!(*counts.asked.lock().unwrap() <= asked + 3, "{per_minute}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_holds_for_requests_at_the_same_time_and_one_of_them_asks() {
    let counts = Arc::new(SharedCounts::default());
    let cluster: Arc<dyn Cluster> = counts.clone();
    let limiter = RateLimiter::new("requests", &cluster);
    let rate = Rate::of_requests(600);
    let together = (0..200).map(|_| limiter.take(Uuid::nil(), user("1"), rate));
    let admitted = futures_util::future::join_all(together).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(admitted, 60);
    assert_eq!(*counts.asked.lock().unwrap(), 2, "blocks of thirty");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_read_the_shared_tokens_counts_alone() {
    let counts = Arc::new(SharedCounts { fails: true, ..SharedCounts::default() });
    let cluster: Arc<dyn Cluster> = counts.clone();
    let limiter = RateLimiter::new("requests", &cluster);
    assert_eq!(admitted(&limiter, Rate::of_requests(600), 100).await, 60);
    assert_eq!(*counts.asked.lock().unwrap(), 1, "not at every request");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(admitted(&limiter, Rate::of_requests(600), 100).await, 10);
    assert_eq!(*counts.asked.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_can_be_taken_again() {
    for alone in [true, false] {
        let cluster: Arc<dyn Cluster> = Arc::new(SharedCounts { alone, ..SharedCounts::default() });
        let limiter = RateLimiter::new("turns", &cluster);
        let rate = Rate::of_turns(3);
        limiter.give_back(Uuid::nil(), user("1"), rate);
        for _ in 0..10 {
            assert_eq!(limiter.take(Uuid::nil(), user("1"), rate).await, Ok(()), "alone: {alone}");
            limiter.give_back(Uuid::nil(), user("1"), rate);
        }
        assert_eq!(admitted(&limiter, rate, 10).await, 3, "alone: {alone}");
        limiter.give_back(Uuid::nil(), user("1"), rate);
        assert_eq!(admitted(&limiter, rate, 10).await, 1, "alone: {alone}");
    }
}
