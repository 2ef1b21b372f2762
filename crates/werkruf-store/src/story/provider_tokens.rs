//! Tokens of providers.

use std::time::Duration;

use jiff::SignedDuration;

use super::{Store, World};
use crate::{ProviderAccount, ProviderTokens, SealedToken};

fn account(name: &str) -> ProviderAccount {
    ProviderAccount { provider: "seatsaero".to_owned(), account: name.to_owned() }
}

pub(crate) async fn a_token_is_stored_and_replaced<S: Store + ProviderTokens>(world: World<S>) {
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

pub(crate) async fn one_owner_at_a_time_fetches_a_token<S: Store + ProviderTokens>(mut world: World<S>) {
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
