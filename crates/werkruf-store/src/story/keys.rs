//! Keys after they were made: rotation, last use, and the roles that a token may name.

use jiff::SignedDuration;
use werkruf_contract::Uuid;

use super::{Store, World};
use crate::{Author, KeyDigest, KeyRow, KeyUse, NewKey, Page, PeopleBatch, RoleWithPermissions, Scopes};

fn key<S: Store>(world: &World<S>, secret: &str) -> NewKey {
    NewKey {
        id: world.id(),
        tenant_id: world.tenant,
        digest: KeyDigest::of(secret),
        user_id: None,
        scopes: Scopes { chat: true, approve: true, ..Scopes::default() },
        name: None,
        expires_at: None,
        created_at: world.now,
        allow_ips: vec!["10.0.0.0/8".to_owned(), "2001:db8::/32".to_owned()],
        safety_mode: Some("strict".to_owned()),
        collection: Some("handbook".to_owned()),
        root_id: Some(world.id()),
    }
}

async fn look<S: Store>(world: &World<S>, secret: &str) -> Option<KeyRow> {
    world.store.key_by_digest(KeyDigest::of(secret)).await.unwrap()
}

pub(crate) async fn a_rotated_key_lives_no_longer_than_its_overlap<S: Store>(world: World<S>) {
    let old = world.store.create_key(key(&world, "old"), Author::server()).await.unwrap();
    assert_eq!(look(&world, "old").await.as_ref(), Some(&old), "every column is read back");
    let ends = world.now + SignedDuration::from_hours(1);
    let new = world.store.rotate_key(old.id, ends, key(&world, "new"), Author::server()).await.unwrap().unwrap();
    assert_eq!(look(&world, "new").await.as_ref(), Some(&new));
    assert_eq!(look(&world, "old").await, Some(KeyRow { expires_at: Some(ends), replaced_by: Some(new.id), ..old.clone() }));
    let later = ends + SignedDuration::from_hours(1);
    let by = Author::server;
    assert_eq!(world.store.rotate_key(old.id, later, key(&world, "newer"), by()).await.unwrap(), None, "a key is replaced once");
    assert_eq!(look(&world, "newer").await, None);
    let newer = world.store.rotate_key(new.id, ends, key(&world, "newer"), by()).await.unwrap().unwrap();
    let newest = world.store.rotate_key(newer.id, later, key(&world, "newest"), by()).await.unwrap().unwrap();
    assert_eq!(look(&world, "newer").await.unwrap().replaced_by, Some(newest.id));
    assert_eq!(look(&world, "new").await.unwrap().expires_at, Some(ends));
    assert_eq!(world.store.rotate_key(world.id(), ends, key(&world, "unknown"), by()).await.unwrap(), None);
    let elsewhere = NewKey { tenant_id: world.id(), ..key(&world, "foreign") };
    assert_eq!(world.store.rotate_key(old.id, ends, elsewhere, Author::server()).await.unwrap(), None, "another tenant's");
    assert_eq!((look(&world, "unknown").await, look(&world, "foreign").await), (None, None), "nothing was stored");
}

pub(crate) async fn the_last_use_of_a_key_is_stored<S: Store>(world: World<S>) {
    let used = world.store.create_key(key(&world, "used"), Author::server()).await.unwrap();
    let unused = world.store.create_key(key(&world, "unused"), Author::server()).await.unwrap();
    let at = world.now + SignedDuration::from_mins(2);
    let uses = [(used.id, at), (used.id, world.now), (world.id(), at)];
    for (id, at) in uses {
        world.store.record_key_uses(vec![KeyUse { tenant_id: world.tenant, id, at }]).await.unwrap();
    }
    let listed = world.store.keys(world.tenant, Page::default()).await.unwrap();
    let last = |id: Uuid| listed.iter().find(|row| row.id == id).unwrap().last_used_at;
    assert_eq!((last(used.id), last(unused.id)), (Some(at), None));
    let found = world.store.keys_by_id(vec![used.id, world.id()]).await.unwrap();
    assert_eq!(found, [KeyRow { last_used_at: Some(at), ..used }]);
    assert_eq!(world.store.keys_by_id(Vec::new()).await.unwrap(), []);
}

pub(crate) async fn names_without_a_role_are_unknown<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    let lead = RoleWithPermissions { id: 1, name: "lead".to_owned(), permissions: Vec::new() };
    world.store.put_people(world.tenant, PeopleBatch { roles: vec![lead], ..PeopleBatch::default() }).await.unwrap();
    let ask = async |tenant, names: &[&str]| {
        world.store.unknown_roles(tenant, names.iter().map(|name| (*name).to_owned()).collect()).await.unwrap()
    };
    assert_eq!(ask(world.tenant, &["lead", "ghost"]).await, ["ghost"]);
    assert_eq!(ask(world.tenant, &[]).await, Vec::<String>::new());
    assert_eq!(ask(world.id(), &["lead"]).await, ["lead"], "another tenant's role");
}
