//! Tenants, people, permissions, keys and settings.

use jiff::SignedDuration;
use serde_json::json;
use werkruf_contract::{Access, Need, Scope};

use super::{Store, World};
use crate::import::parse_batch;
use crate::{Author, KeyDigest, NewKey, Page, PeopleBatch, Scopes, StoreError, TokenRoles};

fn people() -> PeopleBatch {
    let permission = |scope: &str| json!({"entity": "table_requests", "entity_type": "table", "access": "read", "scope": scope});
    serde_json::from_value(json!({
        "branches": [{"id": 1, "name": "Madrid", "time_zone": "Europe/Madrid"}],
        "roles": [
            {"id": 1, "name": "employee", "permissions": [permission("own")]},
            {"id": 2, "name": "lead", "permissions": [permission("branch")]},
            {"id": 3, "name": "guest", "permissions": []}
        ],
        "users": [
            {"id": 1, "first_name": "Ana", "last_name": "Ruiz", "locale": "es-ES", "branch_id": 1, "role_ids": [1, 2], "external_id": "sub-1"},
            {"id": 2, "first_name": "David", "last_name": "Lee", "locale": "en-US", "time_zone": "America/New_York", "branch_id": 1,
             "role_ids": [1]},
            {"id": 3, "first_name": "Eva", "last_name": "Roth", "locale": "de-DE", "role_ids": [3]}
        ]
    }))
    .unwrap()
}

pub(crate) async fn two_roles_give_the_widest_scope<S: Store>(world: World<S>) {
    let need = Need { entity: "table_requests".to_owned(), entity_type: "table".to_owned(), access: Access::Read };
    let who = async |id: &str| world.store.principal(world.tenant, id.to_owned()).await.unwrap();
    assert_eq!(who("1").await, None);
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    world.store.put_people(world.tenant, people()).await.unwrap();
    let ana = who("1").await.unwrap();
    assert_eq!(ana.tenant_slug, "demo");
    assert_eq!((ana.name.as_str(), ana.time_zone.as_str(), ana.branch_id), ("Ana Ruiz", "Europe/Madrid", Some(1)));
    assert_eq!((ana.grant(&need), ana.roles.len()), (Some(Scope::Branch), 2));
    assert_eq!(who("1").await, Some(ana), "the cached result is the same");
    let david = who("2").await.unwrap();
    assert_eq!((david.grant(&need), david.time_zone.as_str()), (Some(Scope::Own), "America/New_York"));
    let eva = who("3").await.unwrap();
    assert_eq!((eva.grant(&need), eva.time_zone.as_str(), eva.branch_id), (None, "UTC", None));
    assert_eq!(who("ana").await, None);

    let mut less = people();
    less.branches.clear();
    less.roles.truncate(1);
    less.roles[0].permissions.clear();
    less.users.truncate(1);
    less.users[0].role_ids = vec![1];
    world.store.put_people(world.tenant, less).await.unwrap();
    let ana = who("1").await.unwrap();
    assert_eq!((ana.grant(&need), ana.roles.len()), (None, 1), "the same id replaces the user, also in the cache");
    assert!(who("2").await.is_some(), "a user that is not in the batch stays");
    assert_eq!(world.store.principal(world.id(), "1".to_owned()).await.unwrap(), None, "another tenant's");
}

pub(crate) async fn a_bad_batch_is_not_written_at_all<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    let mut batch = people();
    batch.users[2].role_ids = vec![99];
    assert!(world.store.put_people(world.tenant, batch).await.is_err());
    assert_eq!(world.store.principal(world.tenant, "1".to_owned()).await.unwrap(), None);
}

pub(crate) async fn a_guest_is_created_once<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    world.store.put_people(world.tenant, people()).await.unwrap();
    let make = async |id, external: Option<&str>, role: &str| {
        world.store.create_guest(world.tenant, id, external.map(str::to_owned), role.to_owned()).await
    };
    let guest = make(None, Some("sub-9"), "guest").await.unwrap();
    assert_eq!(guest.id, 4);
    assert_eq!(make(None, Some("sub-9"), "guest").await.unwrap(), guest);
    assert_eq!(make(Some(77), None, "guest").await.unwrap().id, 77);
    assert_eq!(make(Some(1), None, "guest").await.unwrap().first_name, "Ana", "an existing user is not changed");
    assert!(matches!(make(None, Some("sub-10"), "unknown").await, Err(StoreError::Moved { what: "role", .. })));
    let found = world.store.user_by_external_id(world.tenant, "sub-9".to_owned()).await.unwrap();
    assert_eq!(found, Some(guest));
    assert_eq!(world.store.user_by_external_id(world.tenant, "sub-10".to_owned()).await.unwrap(), None);
    assert!(world.store.principal(world.tenant, "4".to_owned()).await.unwrap().unwrap().has_role("guest"));
}

pub(crate) async fn a_token_decides_the_roles_until_the_next_one<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    world.store.put_people(world.tenant, people()).await.unwrap();
    let until = world.now + SignedDuration::from_hours(1);
    let token = |names: &[&str], only| Some(TokenRoles { names: names.iter().map(|name| (*name).to_owned()).collect(), only, until });
    let held = async |roles: Option<TokenRoles>| {
        world.store.put_token_roles(world.tenant, 1, roles.clone()).await.unwrap();
        assert_eq!(world.store.user_by_external_id(world.tenant, "sub-1".to_owned()).await.unwrap().unwrap().token_roles, roles);
        let who = world.store.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap();
        who.roles.iter().map(|role| role.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(held(token(&["lead", "pilot"], false)).await, ["lead"], "a name without a role in the tenant is ignored");
    let need = Need { entity: "table_requests".to_owned(), entity_type: "table".to_owned(), access: Access::Read };
    let who = world.store.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap();
    assert_eq!((who.permissions.len(), who.grant(&need)), (1, Some(Scope::Branch)));
    assert_eq!(held(token(&["pilot"], false)).await, ["employee", "lead"], "no name is left, so the stored roles count");
    assert_eq!(held(token(&["pilot"], true)).await, Vec::<String>::new(), "these only");
    assert_eq!(held(token(&["guest"], true)).await, ["guest"]);
    assert_eq!(held(token(&[], true)).await, Vec::<String>::new(), "none at all");
    assert_eq!(held(None).await, ["employee", "lead"], "the stored roles were not changed");
    assert_eq!(world.store.principal(world.tenant, "2".to_owned()).await.unwrap().unwrap().roles.len(), 1, "another user");
    let unknown = world.store.put_token_roles(world.tenant, 99, None).await;
    assert!(matches!(unknown, Err(StoreError::Moved { what: "user", .. })));
}

pub(crate) async fn token_roles_end_with_the_token<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    world.store.put_people(world.tenant, people()).await.unwrap();
    let held = async |only, until| {
        let token = TokenRoles { names: vec!["guest".to_owned()], only, until };
        world.store.put_token_roles(world.tenant, 1, Some(token)).await.unwrap();
        let who = world.store.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap();
        (who.roles.iter().map(|role| role.name.clone()).collect::<Vec<_>>(), who.permissions.len())
    };
    let (past, future) = (world.now, world.now + SignedDuration::from_hours(1));
    for only in [false, true] {
        assert_eq!(held(only, future).await, (vec!["guest".to_owned()], 0));
        assert_eq!(held(only, past).await, (vec!["employee".to_owned(), "lead".to_owned()], 2), "the stored roles");
    }
}

pub(crate) async fn importing_a_user_ends_token_roles<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    world.store.put_people(world.tenant, people()).await.unwrap();
    let hold = async || {
        let token = TokenRoles { names: vec!["lead".to_owned()], only: false, until: world.now + SignedDuration::from_hours(1) };
        world.store.put_token_roles(world.tenant, 1, Some(token)).await.unwrap();
        assert!(world.store.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap().has_role("lead"));
    };
    let roles = async || {
        let who = world.store.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap();
        who.roles.iter().map(|role| role.name.clone()).collect::<Vec<_>>()
    };
    let mut batch = people();
    batch.users.truncate(1);
    batch.users[0].role_ids = vec![3];
    hold().await;
    world.store.put_people(world.tenant, batch).await.unwrap();
    assert_eq!(roles().await, ["guest"]);
    assert_eq!(world.store.user_by_external_id(world.tenant, "sub-1".to_owned()).await.unwrap().unwrap().token_roles, None);

    let import = async |users| {
        let text = json!({"tenant": "demo", "users": users}).to_string();
        let batch = parse_batch(&text, &[], |_| true).unwrap();
        world.store.import(batch, world.id(), world.now).await.unwrap().unwrap();
    };
    let user = |id: i64, external: Option<&str>| json!({"id": id, "first_name": "A", "last_name": "B", "locale": "de-DE", "external_id": external, "role_ids": [1]});
    hold().await;
    import(json!([user(2, None)])).await;
    assert_eq!(roles().await, ["lead"], "another user was imported");
    import(json!([user(1, Some("sub-1"))])).await;
    assert_eq!(roles().await, ["employee"]);
}

pub(crate) async fn keys_are_found_by_digest_until_deleted<S: Store>(world: World<S>) {
    let digest = KeyDigest::of("wk_secret");
    let look = async || world.store.key_by_digest(digest.clone()).await.unwrap();
    assert_eq!(look().await, None);
    let key = NewKey {
        id: world.id(),
        tenant_id: world.tenant,
        digest: digest.clone(),
        user_id: Some("3".to_owned()),
        scopes: Scopes { chat: true, read: true, ..Scopes::default() },
        name: Some("laptop".to_owned()),
        expires_at: Some(world.now),
        created_at: world.now,
        allow_ips: Vec::new(),
        safety_mode: None,
        collection: None,
        root_id: None,
    };
    let row = world.store.create_key(key.clone(), Author::server()).await.unwrap();
    assert_eq!(look().await.as_ref(), Some(&row));
    assert_eq!(look().await.as_ref(), Some(&row), "again, from the cache");
    assert_eq!(world.store.keys(world.tenant, Page::default()).await.unwrap(), [row]);
    assert!(
        world.store.create_key(NewKey { id: world.id(), ..key.clone() }, Author::server()).await.is_err(),
        "a digest belongs to one key"
    );
    assert!(!world.store.delete_key(world.id(), key.id, Author::server()).await.unwrap(), "another tenant's");
    assert!(world.store.delete_key(world.tenant, key.id, Author::server()).await.unwrap());
    assert_eq!(look().await, None);
}

pub(crate) async fn tenants_and_settings_are_stored<S: Store>(world: World<S>) {
    let demo = world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    assert_eq!((demo.id, demo.slug.as_str()), (world.tenant, "demo"));
    assert_eq!(world.store.ensure_tenant(world.id(), "demo".to_owned(), world.now).await.unwrap(), demo);
    assert_eq!(world.store.tenant("demo".to_owned()).await.unwrap().as_ref(), Some(&demo));
    assert_eq!(world.store.tenant(world.tenant.to_string().to_uppercase()).await.unwrap().as_ref(), Some(&demo));
    assert_eq!(world.store.tenant("other".to_owned()).await.unwrap(), None);
    assert_eq!(world.store.tenants().await.unwrap(), [demo]);
    let setting = async || world.store.setting("sample_data".to_owned()).await.unwrap();
    assert_eq!(setting().await, None);
    world.store.put_setting("sample_data".to_owned(), "off".to_owned()).await.unwrap();
    world.store.put_setting("sample_data".to_owned(), "on".to_owned()).await.unwrap();
    assert_eq!(setting().await.as_deref(), Some("on"));
}
