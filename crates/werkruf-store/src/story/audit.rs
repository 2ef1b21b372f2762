//! The audit log: every kind of tampering is found, acts at once make a chain without holes, and an erasure keeps the chain intact.

use serde_json::{Value, json};
use werkruf_contract::{BoxFuture, Uuid};

use super::{Store, World};
use crate::import::ImportBatch;
use crate::{Act, Actor, AuditReport, Author, KeyDigest, NewKey, SERVER_CHAIN, Scopes, SecretKey, verify_chain};

/// Changes rows as somebody who has the database, past the server.
pub(crate) trait Tamper: Store {
    fn sql<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()>;
    /// The first column of a query, which is text.
    fn texts<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<String>>;
    /// All rows of all tables.
    fn everything(&self) -> BoxFuture<'_, Vec<String>>;
    /// The day that a usage row `u` counts on, as text.
    const COUNTED_ON: &'static str;
}

fn key<S: Store>(world: &World<S>, name: &str) -> NewKey {
    NewKey {
        id: world.id(),
        tenant_id: world.tenant,
        digest: KeyDigest::of(&format!("{name}{}", world.id())),
        user_id: Some("1".to_owned()),
        scopes: Scopes::default(),
        name: Some(name.to_owned()),
        expires_at: None,
        created_at: world.now,
        allow_ips: Vec::new(),
        safety_mode: None,
        collection: None,
        root_id: None,
    }
}

async fn verify<S: Store>(world: &World<S>) -> AuditReport {
    verify_chain(world.store.as_ref(), world.tenant).await.unwrap()
}

/// Makes a chain of `n` created keys, and returns the kind and number of the break after the tampering.
async fn broken<S: Tamper>(world: &World<S>, sql: &str) -> Option<(&'static str, i64)> {
    let intact = verify(world).await;
    assert_eq!(intact.found, None, "before: {sql}");
    world.store.sql(sql).await;
    verify(world).await.found.map(|found| (found.kind, found.seq))
}

async fn create<S: Store>(world: &World<S>, n: usize) {
    for number in 0..n {
        world.store.create_key(key(world, &format!("key {number}")), Author::operator()).await.unwrap();
    }
}

pub(crate) async fn acts_on_keys_are_recorded<S: Store>(world: World<S>) {
    let by = Author {
        actor: Actor { user_id: Some("7".to_owned()), key_id: Some(world.id()), operator: false },
        address: Some("192.0.2.9".to_owned()),
    };
    let made = world.store.create_key(key(&world, "first"), by.clone()).await.unwrap();
    let next = world.store.rotate_key(made.id, world.now, key(&world, "second"), by.clone()).await.unwrap().unwrap();
    assert!(world.store.delete_key(world.tenant, next.id, by.clone()).await.unwrap());
    assert!(!world.store.delete_key(world.tenant, next.id, by.clone()).await.unwrap());
    assert!(world.store.rotate_key(world.id(), world.now, key(&world, "third"), by.clone()).await.unwrap().is_none());

    let rows = world.store.audit_entries(world.tenant, 0, 10).await.unwrap();
    let told: Vec<_> = rows.iter().map(|row| (row.seq, row.action.as_str(), row.subject.clone())).collect();
    let expected = [(1, "key.create", made.id.to_string()), (2, "key.rotate", made.id.to_string()), (3, "key.revoke", next.id.to_string())];
    assert_eq!(told, expected, "what was refused is no act");
    assert!(rows.iter().all(|row| row.actor == by.actor && row.address == by.address));
    let value = |text: &Option<String>| serde_json::from_str::<Value>(text.as_deref().unwrap()).unwrap();
    assert_eq!((value(&rows[0].after)["name"].clone(), rows[0].before.clone()), (json!("first"), None));
    assert_eq!((value(&rows[1].before)["name"].clone(), value(&rows[1].after)["id"].clone()), (json!("first"), json!(next.id)));
    assert_eq!((value(&rows[2].before)["name"].clone(), rows[2].after.clone()), (json!("second"), None));
    let everything = format!("{rows:?}");
    assert!(!everything.contains(&key(&world, "first").digest.0[..16]) && !everything.contains("digest\":"), "no digest of a key");
    assert_eq!(world.store.audit_entries(world.tenant, 1, 1).await.unwrap(), rows[1..2]);
    assert_eq!(world.store.audit_entries(world.id(), 0, 10).await.unwrap(), [], "another tenant's");
    assert_eq!(verify(&world).await.entries, 3);
}

pub(crate) async fn an_act_of_the_server_has_its_own_chain<S: Store>(world: World<S>) {
    let act = Act::new("server.reload", "configuration");
    world.store.record(SERVER_CHAIN, Author::operator(), act, world.now).await.unwrap();
    create(&world, 1).await;
    let mut chains = world.store.audit_chains().await.unwrap();
    chains.sort();
    assert_eq!(chains, [SERVER_CHAIN, world.tenant]);
    let server = verify_chain(world.store.as_ref(), SERVER_CHAIN).await.unwrap();
    assert_eq!((server.entries, server.signed, server.found), (1, false, None));
    assert_eq!(world.store.audit_entries(SERVER_CHAIN, 0, 10).await.unwrap().len(), 1);
}

pub(crate) async fn a_decision_and_a_changed_person_are_recorded<S: Store>(world: World<S>) {
    let user = |name: &str, roles: &[i64]| {
        serde_json::from_value(json!({"id": 3, "first_name": name, "last_name": "B", "locale": "de-DE", "role_ids": roles})).unwrap()
    };
    let role = |id: i64| serde_json::from_value(json!({"id": id, "name": format!("role {id}"), "permissions": []})).unwrap();
    let batch =
        |users, roles| ImportBatch { tenant: world.tenant.to_string(), users, roles, by: Author::operator(), ..ImportBatch::default() };
    world.store.ensure_tenant(world.tenant, "acme".to_owned(), world.now).await.unwrap();
    let first = batch(vec![user("Ada", &[2, 1])], vec![role(1), role(2)]);
    world.store.import(first, world.tenant, world.now).await.unwrap().unwrap();
    let same = batch(vec![user("Ada", &[1, 2])], vec![role(2)]);
    world.store.import(same, world.tenant, world.now).await.unwrap().unwrap();
    world.store.import(batch(vec![user("Ada", &[1])], Vec::new()), world.tenant, world.now).await.unwrap().unwrap();
    let rows = world.store.audit_entries(world.tenant, 0, 20).await.unwrap();
    let actions: Vec<_> = rows.iter().map(|row| (row.action.as_str(), row.subject.as_str())).collect();
    let file = ("people.import", &*world.tenant.to_string());
    assert_eq!(actions, [file, ("role.put", "1"), ("role.put", "2"), ("person.put", "3"), file, file, ("person.put", "3")]);
    let value = |text: &Option<String>| serde_json::from_str::<Value>(text.as_deref().unwrap()).unwrap();
    assert_eq!((value(&rows[6].before)["role_ids"].clone(), value(&rows[6].after)["role_ids"].clone()), (json!([1, 2]), json!([1])));
    assert_eq!(verify(&world).await.found, None);

    let blanked_names = format!("{rows:?}").matches("Ada").count();
    assert_eq!(blanked_names, 3);
    world.store.erase_person(world.tenant, "3".to_owned(), false, world.closer(), Author::operator(), world.now).await.unwrap().unwrap();
    let rows = world.store.audit_entries(world.tenant, 0, 20).await.unwrap();
    assert!(!format!("{rows:?}").contains("Ada"), "the values about the person are blank");
    assert_eq!(value(&rows.last().unwrap().after)["blanked"], json!([4, 7]));
    let report = verify(&world).await;
    assert_eq!((report.entries, report.blanked, report.found), (8, 2, None), "an erasure keeps the chain intact");
}

pub(crate) async fn a_changed_entry_is_found<S: Tamper>(world: World<S>) {
    create(&world, 4).await;
    let tenant = world.tenant;
    let changes = [
        ("subject", "'other'"),
        ("user_id", "'1'"),
        ("address", "'192.0.2.1'"),
        ("action", "'key.revoke'"),
        ("person", "'9'"),
        ("at", "'2020-01-01T00:00:00.000Z'"),
        ("after", "'{}'"),
        ("before", "'{}'"),
        ("after_digest", "NULL"),
    ];
    for (column, value) in changes {
        let kept = "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT * FROM audit_entries WHERE seq = 2";
        world.store.sql(kept).await;
        let change = format!("UPDATE audit_entries SET {column} = {value} WHERE tenant_id = '{tenant}' AND seq = 2");
        assert_eq!(broken(&world, &change).await, Some(("changed", 2)), "{column}");
        world.store.sql(&format!("UPDATE audit_entries SET {column} = (SELECT {column} FROM kept) WHERE seq = 2")).await;
    }
    let blank = "UPDATE audit_entries SET before = NULL, after = NULL, salt = NULL WHERE seq = 3";
    assert_eq!(broken(&world, blank).await, Some(("changed", 3)), "blank without an erasure");
}

pub(crate) async fn a_missing_entry_is_found<S: Tamper>(world: World<S>) {
    create(&world, 4).await;
    assert_eq!(broken(&world, "DELETE FROM audit_entries WHERE seq = 2").await, Some(("missing", 2)));
}

pub(crate) async fn a_cut_off_entry_is_found<S: Tamper>(world: World<S>) {
    create(&world, 4).await;
    assert_eq!(broken(&world, "DELETE FROM audit_entries WHERE seq = 4").await, Some(("cut_off", 4)));
}

pub(crate) async fn swapped_entries_are_found<S: Tamper>(world: World<S>) {
    create(&world, 4).await;
    let swap = "UPDATE audit_entries SET seq = 99 WHERE seq = 2; UPDATE audit_entries SET seq = 2 WHERE seq = 3;
        UPDATE audit_entries SET seq = 3 WHERE seq = 99";
    assert_eq!(broken(&world, swap).await, Some(("changed", 2)));
}

pub(crate) async fn a_head_of_another_chain_is_found<S: Tamper>(world: World<S>) {
    create(&world, 3).await;
    let moved = "UPDATE audit_heads SET seq = 2, count = 2, hash = (SELECT hash FROM audit_entries WHERE seq = 2)";
    assert_eq!(broken(&world, moved).await, Some(("head", 3)), "an entry lies after the head");
    world.store.sql("DELETE FROM audit_heads").await;
    assert_eq!(verify(&world).await.found.map(|found| (found.kind, found.seq)), Some(("head", 1)));
}

pub(crate) async fn a_rewritten_head_is_found_by_its_signature<S: Tamper>(world: World<S>) {
    let keys = world.store.secret_keys();
    let (new, old) = (SecretKey::new([2; 32]), SecretKey::new([1; 32]));
    keys.replace(vec![old.clone()]);
    create(&world, 4).await;
    let report = verify(&world).await;
    assert_eq!((report.signed, report.found), (true, None));
    // A rotation: the new key signs, the old one is no longer needed.
    keys.replace(vec![new.clone(), old.clone()]);
    assert_eq!(world.store.sign_heads(false).await.unwrap(), 1);
    keys.replace(vec![new.clone()]);
    assert_eq!(verify(&world).await.found, None);
    keys.replace(vec![old.clone()]);
    assert_eq!(verify(&world).await.found.map(|found| found.kind), Some("head"), "signed with a key that is not there");
    keys.replace(vec![new]);

    let cut = "DELETE FROM audit_entries WHERE seq = 4;
        UPDATE audit_heads SET seq = 3, count = 3, hash = (SELECT hash FROM audit_entries WHERE seq = 3)";
    assert_eq!(broken(&world, cut).await, Some(("head", 3)), "the tail is cut off and the head rewritten");
    create(&world, 1).await;
    assert_eq!(verify(&world).await.found.map(|found| found.kind), Some("head"), "the next act does not make it valid");
    assert_eq!(world.store.sign_heads(true).await.unwrap(), 0, "nor does a rotation");
    assert_eq!(verify(&world).await.found.map(|found| found.kind), Some("head"));
    world.store.sql("UPDATE audit_heads SET signature = NULL, key_name = NULL").await;
    create(&world, 1).await;
    assert_eq!(verify(&world).await.found.map(|found| found.kind), Some("head"), "nor does it without the signature");
    assert_eq!(world.store.sign_heads(false).await.unwrap(), 0, "nor does a rotation");
    assert_eq!(verify(&world).await.found.map(|found| found.kind), Some("head"));
    assert_eq!(world.store.sign_heads(true).await.unwrap(), 1, "only the operator may say that it never had one");
}

pub(crate) async fn acts_at_once_make_a_chain_without_holes<S: Store>(world: World<S>) {
    let made = (0..40).map(|number| {
        let key = key(&world, &format!("key {number}"));
        world.store.create_key(key, Author::operator())
    });
    let made = futures_util::future::join_all(made).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let report = verify(&world).await;
    assert_eq!((report.entries, report.found), (40, None));
    let subjects: std::collections::BTreeSet<Uuid> = made.into_iter().map(|key| key.unwrap().id).collect();
    let rows = world.store.audit_entries(world.tenant, 0, 100).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.subject.parse().unwrap()).collect::<std::collections::BTreeSet<Uuid>>(), subjects);
}
