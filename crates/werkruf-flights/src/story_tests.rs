//! Quotas and cached answers, tested on both databases.

use std::sync::Arc;

use jiff::civil::date;
use jiff::{SignedDuration, Timestamp};
use werkruf_contract::{Clock, Uuid};
use werkruf_store::{PostgresOptions, PostgresStore, ProviderAccount, Retention, SqliteStore};

use crate::testbed::fresh_database;
use crate::{FlightStore, SCHEMA};

/// An opened store and what the tests need beside it.
#[derive(Clone)]
struct World {
    store: Arc<dyn FlightStore>,
    retention: Arc<dyn Retention>,
    clock: Clock,
    tenant: Uuid,
    now: Timestamp,
}

impl World {
    fn new<S: FlightStore + Retention + 'static>(store: Arc<S>, clock: Clock) -> Self {
        let (tenant, now) = (clock.new_id(), clock.now());
        Self { store: store.clone(), retention: store, clock, tenant, now }
    }

    fn id(&self) -> Uuid {
        self.clock.new_id()
    }

    fn later(&mut self, ms: i64) -> Timestamp {
        self.now = self.now.checked_add(SignedDuration::from_millis(ms)).unwrap();
        self.now
    }
}

fn account(name: &str) -> ProviderAccount {
    ProviderAccount { provider: "seatsaero".to_owned(), account: name.to_owned() }
}

async fn a_quota_allows_exactly_its_calls(world: World) {
    let day = date(2026, 11, 15);
    let spending = (0..40).map(|_| {
        let world = world.clone();
        async move { world.store.spend_call(account("a"), day, 25).await.unwrap() }
    });
    let mut numbers: Vec<i64> = futures_util::future::join_all(spending).await.into_iter().flatten().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=25).collect::<Vec<_>>(), "each call has its own number, and no more than allowed");
    let next = day.tomorrow().unwrap();
    assert_eq!(world.store.spend_call(account("a"), next, 25).await.unwrap(), Some(1), "a new day");
    assert_eq!(world.store.spend_call(account("b"), day, 25).await.unwrap(), Some(1), "another account");
    assert_eq!(world.store.spend_call(account("c"), day, 0).await.unwrap(), None);
}

async fn the_providers_own_count_limits_calls_too(world: World) {
    let day = date(2026, 11, 15);
    let spend = || async { world.store.spend_call(account("a"), day, 1000).await.unwrap() };
    assert_eq!((spend().await, spend().await), (Some(1), Some(2)));
    // Another program uses the key as well: after our second call two are left. The report of the first call comes late.
    world.store.calls_left(account("a"), day, 2, 2).await.unwrap();
    world.store.calls_left(account("a"), day, 1, 3).await.unwrap();
    assert_eq!((spend().await, spend().await, spend().await), (Some(3), Some(4), None));
    // The latest report counts, even when it leaves more calls.
    world.store.calls_left(account("a"), day, 4, 1).await.unwrap();
    assert_eq!((spend().await, spend().await), (Some(5), None));
    let other = day.tomorrow().unwrap();
    assert_eq!(world.store.spend_call(account("a"), other, 1000).await.unwrap(), Some(1));
    world.store.close_day(account("a"), other).await.unwrap();
    assert_eq!(world.store.spend_call(account("a"), other, 1000).await.unwrap(), None);
    assert!(world.store.close_day(account("unknown"), day).await.is_err());
}

async fn an_answer_is_cached_for_its_tenant_until_it_expires(mut world: World) {
    let (tenant, key, start) = (world.tenant, || "k".to_owned(), world.now);
    let until = start.checked_add(SignedDuration::from_millis(1000)).unwrap();
    world.store.cache_answer(tenant, key(), "old".to_owned(), until, start).await.unwrap();
    world.store.cache_answer(tenant, key(), "new".to_owned(), until, start).await.unwrap();
    assert_eq!(world.store.cached_answer(tenant, key(), start).await.unwrap(), Some("new".to_owned()));
    assert_eq!(world.store.cached_answer(world.id(), key(), start).await.unwrap(), None, "another tenant's");
    let later = world.later(1000);
    assert_eq!(world.store.cached_answer(tenant, key(), later).await.unwrap(), None, "expired");
    let next = later.checked_add(SignedDuration::from_millis(1000)).unwrap();
    world.store.cache_answer(tenant, "other".to_owned(), "x".to_owned(), next, later).await.unwrap();
    assert_eq!(world.retention.delete_expired(later).await.unwrap(), 1);
    assert_eq!(world.store.cached_answer(tenant, key(), start).await.unwrap(), None, "deleted by retention");
    assert_eq!(world.store.cached_answer(tenant, "other".to_owned(), later).await.unwrap(), Some("x".to_owned()));
}

macro_rules! on_both_databases {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $case() {
                let (folder, clock) = (tempfile::tempdir().unwrap(), super::Clock::system(0));
                let store = super::SqliteStore::open(folder.path().join("w.db"), &clock, &[super::SCHEMA]).unwrap();
                super::$case(super::World::new(store, clock)).await;
            })+
        }

        mod postgres {
            $(#[tokio::test]
            async fn $case() {
                let clock = super::Clock::system(0);
                let options = super::PostgresOptions { pool_size: 4, ..super::PostgresOptions::new(super::fresh_database()) };
                let store = super::PostgresStore::open(options, &clock, &[super::SCHEMA]).await.unwrap();
                super::$case(super::World::new(store, clock)).await;
            })+
        }
    };
}

on_both_databases! {
    a_quota_allows_exactly_its_calls,
    the_providers_own_count_limits_calls_too,
    an_answer_is_cached_for_its_tenant_until_it_expires,
}
