//! Connections of people with other servers, and the links that make them.

use jiff::SignedDuration;
use werkruf_contract::Uuid;

use super::{Store, World};
use crate::{
    Author, ConnectionChange, ConnectionKey, ConnectionRequest, ConnectionRow, Connections, KeyDigest, NewConnectionRequest, OpenedLink,
    Seal, SecretKey, SecretKeys,
};

fn key<S>(world: &World<S>, user: &str, server: &str) -> ConnectionKey {
    ConnectionKey { tenant_id: world.tenant, user_id: user.to_owned(), server: server.to_owned() }
}

pub(crate) async fn a_link_is_opened_once_and_finished_in_the_same_browser<S: Store + Connections>(mut world: World<S>) {
    let store = world.store.clone();
    let (now, until) = (world.now, world.later(600_000));
    let after = world.later(600_001);
    let link = |text: &str, id| NewConnectionRequest {
        id,
        key: key(&world, "1", "calendar"),
        digest: KeyDigest::of(text),
        scope: Some("write".to_owned()),
        created_at: now,
        expires_at: until,
    };
    let id = world.id();
    store.put_connection_request(link("a", id)).await.unwrap();
    let unopened =
        ConnectionRequest { id, key: key(&world, "1", "calendar"), scope: Some("write".to_owned()), sealed: None, expires_at: until };
    let digest = KeyDigest::of;
    assert_eq!(store.connection_link(digest("a"), now).await.unwrap(), Some(unopened.clone()));
    assert_eq!(store.connection_link(digest("a"), after).await.unwrap(), None, "expired");
    assert_eq!(store.take_connection_request(digest("a"), digest("browser"), now).await.unwrap(), None, "not opened yet");

    let opened = |state: &str| OpenedLink { state: digest(state), browser: digest("browser"), sealed: vec![7] };
    assert_eq!(store.open_connection_link(digest("a"), opened("late"), after).await.unwrap(), None, "expired");
    let openings = (0..8).map(|n| store.open_connection_link(digest("a"), opened(&format!("state {n}")), now));
    let openings: Vec<_> = futures_util::future::join_all(openings).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(openings.iter().flatten().count(), 1, "one of several at once opens the link");
    let state = format!("state {}", openings.iter().position(Option::is_some).unwrap());
    let expected = ConnectionRequest { sealed: Some(vec![7]), ..unopened };
    assert_eq!(openings.iter().flatten().next(), Some(&expected));
    assert_eq!(store.connection_link(digest("a"), now).await.unwrap(), None, "used");

    let take = |state: &str, browser: &str, at| store.take_connection_request(digest(state), digest(browser), at);
    assert_eq!(take(&state, "another browser", now).await.unwrap(), None);
    assert_eq!(take("another state", "browser", now).await.unwrap(), None);
    assert_eq!(take(&state, "browser", after).await.unwrap(), None, "expired");
    assert_eq!(take(&state, "browser", now).await.unwrap(), Some(expected));
    assert_eq!(take(&state, "browser", now).await.unwrap(), None, "taken");

    for n in 0..30 {
        store.put_connection_request(link(&format!("link {n}"), world.id())).await.unwrap();
    }
    let mut left = 0;
    for n in 0..30 {
        left += usize::from(store.connection_link(digest(&format!("link {n}")), now).await.unwrap().is_some());
    }
    assert_eq!(left, 20, "the oldest links of a person are deleted");
}

/// A link of this person.
fn link<S: Store>(world: &World<S>, key: &ConnectionKey, text: &str) -> NewConnectionRequest {
    let expires_at = world.now.checked_add(SignedDuration::from_secs(600)).unwrap();
    NewConnectionRequest { id: world.id(), key: key.clone(), digest: KeyDigest::of(text), scope: None, created_at: world.now, expires_at }
}

/// A login of this person that is being finished.
async fn taken<S: Store + Connections>(world: &World<S>, key: &ConnectionKey) -> Uuid {
    let digest = KeyDigest::of;
    let (token, state) = (world.id().to_string(), world.id().to_string());
    let request = link(world, key, &token);
    world.store.put_connection_request(request.clone()).await.unwrap();
    let opened = OpenedLink { state: digest(&state), browser: digest("browser"), sealed: vec![7] };
    world.store.open_connection_link(digest(&token), opened, world.now).await.unwrap().unwrap();
    let taken = world.store.take_connection_request(digest(&state), digest("browser"), world.now).await.unwrap().unwrap();
    assert_eq!(taken.id, request.id);
    request.id
}

pub(crate) async fn a_link_is_tried_by_one_at_a_time_and_not_often<S: Store + Connections>(mut world: World<S>) {
    let (store, token) = (world.store.clone(), || KeyDigest::of("a"));
    store.put_connection_request(link(&world, &key(&world, "1", "calendar"), "a")).await.unwrap();
    let (now, until) = (world.now, world.later(1000));
    let tries = (0..8).map(|_| store.begin_connection_link(token(), until, now));
    let tries = futures_util::future::join_all(tries).await;
    assert_eq!(tries.into_iter().filter_map(Result::unwrap).count(), 1, "one of several at once");
    assert!(store.connection_link(token(), now).await.unwrap().is_some(), "it can be looked at meanwhile");
    assert!(store.begin_connection_link(token(), until, until).await.unwrap().is_some(), "whoever tried took too long");
    for _ in 2..10 {
        store.release_connection_link(token()).await.unwrap();
        assert!(store.begin_connection_link(token(), until, now).await.unwrap().is_some());
    }
    store.release_connection_link(token()).await.unwrap();
    assert_eq!(store.begin_connection_link(token(), until, now).await.unwrap(), None, "too often");
    assert_eq!(store.connection_link(token(), now).await.unwrap(), None);
}

pub(crate) async fn a_login_that_is_finished_after_an_erasure_is_not_stored<S: Store + Connections>(world: World<S>) {
    let store = world.store.clone();
    world.complete(&world.talk().await).await;
    let row = |user: &str, server: &str| ConnectionRow {
        key: key(&world, user, server),
        sealed: vec![1],
        expires_at: None,
        updated_at: world.now,
    };
    let (early, late, other) = (row("1", "mail"), row("1", "calendar"), row("2", "calendar"));
    let put = async |row: &ConnectionRow, request| store.put_connection(row.clone(), request, Author::operator()).await.unwrap();
    assert!(put(&early, taken(&world, &early.key).await).await);
    let (of_person, of_other) = (taken(&world, &late.key).await, taken(&world, &other.key).await);
    let erased = store.erase_person(world.tenant, "1".to_owned(), false, world.closer(), Author::operator(), world.now).await;
    assert_eq!(erased.unwrap().unwrap().connections, [early], "what other servers still know");
    assert!(!put(&late, of_person).await);
    assert!(!put(&late, of_other).await, "a request is for its person only");
    assert!(put(&other, of_other).await);
    assert_eq!(store.all_connections().await.unwrap(), [other]);
}

pub(crate) async fn links_that_have_expired_are_deleted<S: Store + Connections>(mut world: World<S>) {
    let (store, person) = (world.store.clone(), key(&world, "1", "calendar"));
    store.put_connection_request(link(&world, &person, "old")).await.unwrap();
    let made = world.now;
    world.later(1);
    store.put_connection_request(link(&world, &person, "new")).await.unwrap();
    let ended = made.checked_add(SignedDuration::from_secs(600)).unwrap();
    assert_eq!((store.delete_expired(ended).await.unwrap(), store.delete_expired(ended).await.unwrap()), (1, 0));
    let found = async |text: &str| store.connection_link(KeyDigest::of(text), made).await.unwrap().is_some();
    assert_eq!((found("old").await, found("new").await), (false, true));
}

pub(crate) async fn a_connection_belongs_to_one_person<S: Store + Connections>(mut world: World<S>) {
    let store = world.store.clone();
    let seal = Seal::new(SecretKeys::new(vec![SecretKey::new([1; 32])]));
    let (first_at, later) = (world.now, world.later(1000));
    let row = |user: &str, server: &str, secret: &str, at| {
        let key = key(&world, user, server);
        ConnectionRow { sealed: seal.close(&key.purpose(), secret).unwrap(), key, expires_at: Some(at), updated_at: at }
    };
    let (calendar, other, mail) =
        (row("1", "calendar", "one", first_at), row("2", "calendar", "two", later), row("1", "mail", "three", first_at));
    for row in [&calendar, &other, &mail] {
        let taken = taken(&world, &row.key).await;
        assert!(store.put_connection(row.clone(), taken, Author::operator()).await.unwrap());
        assert!(!store.put_connection(row.clone(), taken, Author::operator()).await.unwrap(), "a request is finished once");
    }
    assert_eq!(store.connection(calendar.key.clone()).await.unwrap(), Some(calendar.clone()));
    assert_eq!(store.connection(key(&world, "3", "calendar")).await.unwrap(), None);
    assert_eq!(store.connections_of_person(world.tenant, "1".to_owned()).await.unwrap(), [calendar.clone(), mail.clone()]);
    assert_eq!(store.connections_of_person(world.id(), "1".to_owned()).await.unwrap(), [], "another tenant");
    assert_eq!(
        store.connections_of_server("calendar".to_owned()).await.unwrap(),
        [calendar.clone(), other.clone()],
        "not the newest first"
    );

    let change = |old: &[u8], sealed: u8| ConnectionChange { old: old.to_vec(), sealed: vec![sealed], expires_at: None };
    assert!(store.replace_connection(mail.key.clone(), change(&mail.sealed, 5), later).await.unwrap());
    assert!(!store.replace_connection(mail.key.clone(), change(&mail.sealed, 6), later).await.unwrap(), "it has other bytes by now");
    let replaced = ConnectionRow { sealed: vec![5], expires_at: None, updated_at: later, ..mail };
    assert_eq!(store.connection(replaced.key.clone()).await.unwrap(), Some(replaced.clone()));

    let rotated = Seal::new(SecretKeys::new(vec![SecretKey::new([2; 32]), SecretKey::new([1; 32])]));
    assert_eq!(rotated.reseal_connections(store.as_ref(), later).await.unwrap(), (2, 1), "one is not encrypted at all");
    let newest = Seal::new(SecretKeys::new(vec![SecretKey::new([2; 32])]));
    let resealed = store.connection(calendar.key.clone()).await.unwrap().unwrap();
    assert_eq!(newest.open(&calendar.key.purpose(), &resealed.sealed).as_deref(), Some("one"));
    assert_eq!(newest.open(&other.key.purpose(), &resealed.sealed), None, "only for its person");

    let delete = |key: &ConnectionKey| store.delete_connection(key.clone(), Author::operator(), later);
    assert_eq!(delete(&replaced.key).await.unwrap(), Some(replaced.clone()));
    assert_eq!(delete(&replaced.key).await.unwrap(), None);
    assert_eq!(store.connections_of_person(world.tenant, "1".to_owned()).await.unwrap(), [resealed]);
}
