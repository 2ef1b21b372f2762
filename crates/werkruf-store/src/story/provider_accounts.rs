//! Quotas, tokens and cached answers of providers.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::date;

use super::{Store, World};
use crate::{ProviderAccount, SealedToken};

fn account(name: &str) -> ProviderAccount {
    ProviderAccount { provider: "seatsaero".to_owned(), account: name.to_owned() }
}

pub(crate) async fn a_quota_allows_exactly_its_calls<S: Store>(world: World<S>) {
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

pub(crate) async fn the_providers_own_count_limits_calls_too<S: Store>(world: World<S>) {
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

pub(crate) async fn a_token_is_stored_and_replaced<S: Store>(world: World<S>) {
    let token = |byte: u8, ms: i64| SealedToken {
        sealed: vec![byte, 0, 255],
        expires_at: world.now.checked_add(SignedDuration::from_millis(ms)).unwrap(),
    };
    assert_eq!(world.store.provider_token(account("test")).await.unwrap(), None);
    world.store.put_provider_token(account("test"), token(1, 1000), world.now).await.unwrap();
    world.store.put_provider_token(account("prod"), token(2, 1000), world.now).await.unwrap();
    world.store.put_provider_token(account("test"), token(3, 2000), world.now).await.unwrap();
    assert_eq!(world.store.provider_token(account("test")).await.unwrap(), Some(token(3, 2000)));
    assert_eq!(world.store.provider_token(account("prod")).await.unwrap(), Some(token(2, 1000)));
}

pub(crate) async fn one_owner_at_a_time_fetches_a_token<S: Store>(mut world: World<S>) {
    let claim = |world: World<S>, owner, ttl| async move { world.store.claim_token(account("a"), owner, ttl, world.now).await.unwrap() };
    let (minute, owners) = (Duration::from_secs(60), (0..10).map(|_| world.id()).collect::<Vec<_>>());
    let claims = futures_util::future::join_all(owners.iter().map(|owner| claim(world.clone(), *owner, minute))).await;
    assert_eq!(claims.iter().filter(|claimed| **claimed).count(), 1, "{claims:?}");
    let first = owners[claims.iter().position(|claimed| *claimed).unwrap()];
    let other = world.id();
    assert!(claim(world.clone(), first, minute).await, "the owner may claim again");
    world.store.release_token(account("a"), other).await.unwrap();
    assert!(!claim(world.clone(), other, minute).await, "only the owner can release a claim");
    assert!(world.store.claim_token(account("b"), other, minute, world.now).await.unwrap(), "another account");
    world.store.release_token(account("a"), first).await.unwrap();
    assert!(claim(world.clone(), other, Duration::ZERO).await, "released");
    world.now = world.later(1);
    assert!(claim(world.clone(), first, minute).await, "expired");
    world.store.release_token(account("a"), other).await.unwrap();
    assert!(!claim(world.clone(), other, minute).await, "a former owner releases nothing");
}

pub(crate) async fn an_answer_is_cached_for_its_tenant_until_it_expires<S: Store>(mut world: World<S>) {
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
    assert_eq!(world.store.cached_answer(tenant, key(), start).await.unwrap(), None, "deleted when another answer was cached");
}
