//! Users, roles and branches, edited one by one.

use std::sync::Arc;

use futures_util::future::join_all;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Notes, Store, World};
use crate::import::parse_batch;
use crate::{Author, EditRefusal, MAX_PERSON_ID, NumberPage, Order, PeopleEdit, PeopleKind, TokenRoles, Uses};
use PeopleKind::{Branch, Role, User};

type Edited = Result<Value, EditRefusal>;

async fn edit<S: Store>(world: &World<S>, kind: PeopleKind, edit: PeopleEdit) -> Edited {
    let edited = world.store.edit_people(world.tenant, kind, edit, Author::operator(), world.now).await.unwrap();
    edited.map(|row| serde_json::to_value(row).unwrap())
}

async fn create<S: Store>(world: &World<S>, kind: PeopleKind, fields: Value) -> Edited {
    edit(world, kind, PeopleEdit::Create { fields: fields.to_string() }).await
}

async fn change<S: Store>(world: &World<S>, kind: PeopleKind, id: i64, fields: Value) -> Edited {
    edit(world, kind, PeopleEdit::Change { id, fields: fields.to_string() }).await
}

async fn delete<S: Store>(world: &World<S>, kind: PeopleKind, id: i64) -> Edited {
    edit(world, kind, PeopleEdit::Delete { id }).await
}

fn ana() -> Value {
    json!({"first_name": "Ana", "last_name": "Ruiz", "locale": "es-ES", "email": "ana@acme.test", "phone": "+34 600 111 222",
        "external_id": "sub-1", "branch_id": 1, "role_ids": [2, 1, 2]})
}

fn right(scope: &str) -> Value {
    json!({"entity": "table_requests", "entity_type": "table", "access": "read", "scope": scope})
}

/// A tenant with a branch, two roles and a user.
async fn office<S: Store>(world: &World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    create(world, Branch, json!({"name": "Madrid", "time_zone": "Europe/Madrid"})).await.unwrap();
    create(world, Role, json!({"name": "employee", "permissions": [right("own")]})).await.unwrap();
    create(world, Role, json!({"name": "lead"})).await.unwrap();
    create(world, User, ana()).await.unwrap();
}

fn page(after: Option<i64>, limit: u32, order: Order) -> NumberPage {
    NumberPage { after, limit, order, max_bytes: usize::MAX }
}

pub(crate) async fn people_are_made_changed_and_listed<S: Store>(world: World<S>) {
    office(&world).await;
    let row = async |kind, id| {
        let row = world.store.people_row(world.tenant, kind, id).await.unwrap();
        row.map(|row| serde_json::to_value(row).unwrap())
    };
    let expected = json!({"id": 1, "first_name": "Ana", "last_name": "Ruiz", "email": "ana@acme.test", "phone": "+34 600 111 222",
        "whatsapp_user_id": null, "external_id": "sub-1", "locale": "es-ES", "time_zone": null, "branch_id": 1, "role_ids": [1, 2],
        "active": true});
    assert_eq!(row(User, 1).await, Some(expected.clone()));
    assert_eq!(row(Role, 1).await, Some(json!({"id": 1, "name": "employee", "permissions": [right("own")]})));
    assert_eq!(row(Branch, 1).await, Some(json!({"id": 1, "name": "Madrid", "time_zone": "Europe/Madrid"})));
    assert_eq!(row(User, 9).await, None);
    assert_eq!(world.store.people_row(world.id(), User, 1).await.unwrap(), None, "another tenant");

    let mut changed = expected;
    changed["phone"] = json!("+34 600 999 999");
    changed["email"] = Value::Null;
    assert_eq!(change(&world, User, 1, json!({"phone": "+34 600 999 999", "email": null, "id": 1})).await, Ok(changed.clone()));
    assert_eq!(row(User, 1).await, Some(changed));
    let found = world.store.users_by_address(world.tenant, None, Some("34600999999".to_owned())).await.unwrap();
    assert_eq!(found.len(), 1, "the key follows the phone");
    change(&world, Role, 1, json!({"permissions": [right("all")]})).await.unwrap();
    let who = world.store.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap();
    assert_eq!((who.permissions.len(), who.permissions[0].role.as_str()), (1, "employee"), "at the next look");
    assert_eq!(who.permissions[0].permission.scope, werkruf_contract::Scope::All);

    assert_eq!(create(&world, User, json!({"id": 40, "first_name": "B", "last_name": "", "locale": "de"})).await.unwrap()["id"], 40);
    assert_eq!(create(&world, User, json!({"id": null, "first_name": "C", "last_name": "", "locale": "de"})).await.unwrap()["id"], 41);
    let ids = async |page: NumberPage| {
        let found = world.store.people(world.tenant, User, page).await.unwrap();
        (found.rows.iter().map(crate::PeopleRow::id).collect::<Vec<_>>(), found.is_full)
    };
    assert_eq!(ids(page(None, 2, Order::OldestFirst)).await, (vec![1, 40], true));
    assert_eq!(ids(page(Some(40), 2, Order::OldestFirst)).await, (vec![41], false));
    assert_eq!(ids(page(None, 5, Order::NewestFirst)).await, (vec![41, 40, 1], false));
    assert_eq!(ids(page(Some(41), 1, Order::NewestFirst)).await, (vec![40], true));
    assert_eq!(ids(NumberPage { max_bytes: 1, ..page(None, 5, Order::OldestFirst) }).await, (vec![1], true), "the row that fills it");
    let roles = world.store.people(world.tenant, Role, page(None, 10, Order::OldestFirst)).await.unwrap();
    assert_eq!((roles.rows.len(), roles.is_full), (2, false));
}

pub(crate) async fn an_edit_with_faults_changes_nothing<S: Store>(world: World<S>) {
    office(&world).await;
    let entries = async || world.store.audit_entries(world.tenant, 0, 100).await.unwrap().len();
    let before = entries().await;
    let paths = |edited: Edited| match edited {
        Err(EditRefusal::Faults(faults)) => faults.into_iter().map(|fault| fault.path).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(paths(change(&world, User, 1, json!({"branch_id": 9, "role_ids": [1, 7]})).await), ["/branch_id", "/role_ids/1"]);
    assert_eq!(paths(change(&world, User, 1, json!({"id": 2})).await), ["/id"]);
    assert_eq!(paths(change(&world, User, 1, json!({"first_name": null, "wage": 1})).await), ["/first_name", "/wage"]);
    assert_eq!(paths(create(&world, User, ana()).await), ["/external_id"]);
    assert_eq!(paths(create(&world, Branch, json!({"name": "Mars", "time_zone": "Mars/Base"})).await), ["/time_zone"]);
    let taken = json!({"id": 1, "name": "guest"});
    assert_eq!(create(&world, Role, taken).await, Err(EditRefusal::Taken(1)));
    assert_eq!(change(&world, Role, 9, json!({})).await, Err(EditRefusal::Unknown));
    assert_eq!(delete(&world, User, 9).await, Err(EditRefusal::Unknown));
    assert_eq!(change(&world, User, 1, json!({"first_name": "Ana"})).await.map(|row| row["id"].clone()), Ok(json!(1)), "no change");
    assert_eq!(entries().await, before);
    assert_eq!(paths(change(&world, User, 1, json!({"active": null})).await), ["/active"]);
    assert_eq!(paths(change(&world, User, 1, json!({"phone": "0171 2345678"})).await), ["/phone"], "without the country code");
    let branch = |id: i64| json!({"id": id, "name": "last", "time_zone": "UTC"});
    assert_eq!(paths(create(&world, Branch, branch(MAX_PERSON_ID + 1)).await), ["/id"]);
    create(&world, Branch, branch(MAX_PERSON_ID)).await.unwrap();
    assert_eq!(paths(create(&world, Branch, json!({"name": "next", "time_zone": "UTC"})).await), ["/id"]);
}

pub(crate) async fn a_deactivated_user_is_unknown_until_activated<S: Store>(world: World<S>) {
    office(&world).await;
    let known = async || {
        let principal = world.store.principal(world.tenant, "1".to_owned()).await.unwrap().is_some();
        let by_phone = world.store.users_by_address(world.tenant, None, Some("34600111222".to_owned())).await.unwrap().len();
        let by_role = world.store.users_with_roles(world.tenant, vec!["lead".to_owned()]).await.unwrap().len();
        let active = world.store.active_users(vec![(world.tenant, 1), (world.tenant, 9), (world.id(), 1)]).await.unwrap();
        (principal, by_phone, by_role, active)
    };
    let (all, none) = ((true, 1, 1, vec![(world.tenant, 1)]), (false, 0, 0, vec![]));
    assert_eq!(known().await, all);
    assert_eq!(delete(&world, User, 1).await.unwrap()["active"], false);
    assert_eq!(known().await, none);
    assert_eq!(delete(&world, User, 1).await.unwrap()["active"], false, "once more");
    let same = world.store.create_guest(world.tenant, Some(1), None, "lead".to_owned()).await.unwrap();
    assert_eq!((same.first_name.as_str(), known().await), ("Ana", none.clone()), "the number is not free for a guest");
    change(&world, User, 1, json!({"active": true})).await.unwrap();
    assert_eq!(known().await, all);

    let token = TokenRoles { names: vec!["employee".to_owned()], only: false, until: world.now + SignedDuration::from_hours(1) };
    world.store.put_token_roles(world.tenant, 1, Some(token)).await.unwrap();
    let roles = async || world.store.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap().roles.len();
    change(&world, User, 1, json!({"last_name": "R"})).await.unwrap();
    assert_eq!(roles().await, 1, "roles from a token stay");
    change(&world, User, 1, json!({"role_ids": [1, 2], "last_name": "Ruiz"})).await.unwrap();
    assert_eq!(roles().await, 1, "the stored roles are the same");
    change(&world, User, 1, json!({"role_ids": []})).await.unwrap();
    assert_eq!(roles().await, 0, "other roles");

    delete(&world, User, 1).await.unwrap();
    let mut user = json!({"id": 1, "first_name": "Ana", "last_name": "Ruiz", "locale": "es-ES", "role_ids": []});
    let import = async |user: &Value| {
        let new = json!({"id": 2, "first_name": "B", "last_name": "", "locale": "de"});
        let file = parse_batch(&json!({"tenant": "demo", "users": [user, new]}).to_string(), &[], |_| true).unwrap();
        world.store.import(file, world.tenant, world.now).await.unwrap().unwrap();
        let entries = world.store.audit_entries(world.tenant, 0, 100).await.unwrap();
        let last = entries.into_iter().rfind(|entry| entry.action == "person.put" && entry.subject == "1").unwrap();
        let active = |text: Option<String>| serde_json::from_str::<Value>(&text.unwrap()).unwrap()["active"].clone();
        (active(last.before), active(last.after))
    };
    assert_eq!(import(&user).await, (json!(false), json!(false)));
    assert!(!known().await.0 && world.store.principal(world.tenant, "2".to_owned()).await.unwrap().is_some(), "a new user is active");
    user["active"] = json!(true);
    assert_eq!(import(&user).await, (json!(false), json!(true)));
    assert!(known().await.0, "the row says so");
    user["active"] = json!(false);
    assert_eq!(import(&user).await, (json!(true), json!(false)));
    assert!(!known().await.0);
    user["active"] = Value::Null;
    assert!(parse_batch(&json!({"tenant": "demo", "users": [user]}).to_string(), &[], |_| true).is_err(), "neither true nor false");
}

fn in_use(users: i64, tables: &[&'static str]) -> Edited {
    Err(EditRefusal::InUse(Uses { users, tables: tables.to_vec() }))
}

pub(crate) async fn a_role_or_branch_that_rows_of_a_module_name_stays<S: Store + Notes>(world: World<S>) {
    office(&world).await;
    create(&world, Branch, json!({"name": "Lima", "time_zone": "America/Lima"})).await.unwrap();
    change(&world, User, 1, json!({"role_ids": []})).await.unwrap();
    world.store.put_note_of(world.tenant, 1, Some(2), r#"["lead", "boss"]"#).await;
    world.store.put_note_of(world.id(), 1, Some(1), r#"["employee"]"#).await;
    assert_eq!(delete(&world, Branch, 2).await, in_use(0, &["notes"]));
    assert_eq!(delete(&world, Role, 2).await, in_use(0, &["notes"]));
    assert_eq!(change(&world, Role, 2, json!({"name": "head"})).await, in_use(0, &["notes"]), "by its name");
    assert_eq!(change(&world, Role, 2, json!({"permissions": [right("all")]})).await.unwrap()["name"], "lead");
    assert_eq!(delete(&world, Role, 1).await.unwrap()["name"], "employee", "rows of another tenant");
    world.store.delete_notes().await;
    assert_eq!(delete(&world, Branch, 2).await.unwrap()["name"], "Lima");
    assert_eq!(change(&world, Role, 2, json!({"name": "head"})).await.unwrap()["name"], "head");
}

pub(crate) async fn a_role_that_a_valid_token_names_stays<S: Store>(world: World<S>) {
    office(&world).await;
    change(&world, User, 1, json!({"role_ids": [1]})).await.unwrap();
    let token = async |until| {
        let token = TokenRoles { names: vec!["lead".to_owned()], only: false, until };
        world.store.put_token_roles(world.tenant, 1, Some(token)).await.unwrap();
    };
    token(world.now + SignedDuration::from_hours(1)).await;
    assert_eq!(delete(&world, Role, 2).await, in_use(1, &[]));
    assert_eq!(change(&world, Role, 2, json!({"name": "head"})).await, in_use(1, &[]));
    assert_eq!(change(&world, Role, 1, json!({"name": "staff"})).await.unwrap()["name"], "staff", "a stored role has an id");
    assert_eq!(create(&world, Role, json!({"name": "staff"})).await, Err(EditRefusal::NameTaken(1)));
    assert_eq!(change(&world, Role, 1, json!({"name": "lead"})).await, Err(EditRefusal::NameTaken(2)));
    token(world.now).await;
    assert_eq!(delete(&world, Role, 2).await.unwrap()["name"], "lead", "the token has expired");
}

pub(crate) async fn a_role_or_branch_in_use_is_not_deleted<S: Store>(world: World<S>) {
    office(&world).await;
    create(&world, User, json!({"first_name": "B", "last_name": "", "locale": "de", "role_ids": [2]})).await.unwrap();
    delete(&world, User, 2).await.unwrap();
    assert_eq!(delete(&world, Role, 2).await, in_use(2, &[]), "users who are not active count");
    assert_eq!(delete(&world, Branch, 1).await, in_use(1, &[]));
    change(&world, User, 1, json!({"role_ids": [1], "branch_id": null})).await.unwrap();
    change(&world, User, 2, json!({"role_ids": []})).await.unwrap();
    assert_eq!(delete(&world, Role, 2).await.unwrap()["name"], "lead");
    assert_eq!(delete(&world, Branch, 1).await.unwrap()["name"], "Madrid");
    for kind in [Role, Branch] {
        assert_eq!(delete(&world, kind, 2).await, Err(EditRefusal::Unknown));
    }
}

pub(crate) async fn edits_are_recorded_with_their_values<S: Store>(world: World<S>) {
    office(&world).await;
    change(&world, User, 1, json!({"phone": null})).await.unwrap();
    delete(&world, User, 1).await.unwrap();
    change(&world, User, 1, json!({"active": true, "role_ids": []})).await.unwrap();
    delete(&world, Role, 1).await.unwrap();
    change(&world, User, 1, json!({"branch_id": null})).await.unwrap();
    delete(&world, Branch, 1).await.unwrap();
    let rows = world.store.audit_entries(world.tenant, 0, 100).await.unwrap();
    let acts: Vec<_> = rows.iter().map(|row| (row.action.as_str(), row.subject.as_str(), row.person.as_deref())).collect();
    let (put, off, on) = ("person.put", "person.deactivate", "person.activate");
    assert_eq!(
        acts,
        [
            ("branch.put", "1", None),
            ("role.put", "1", None),
            ("role.put", "2", None),
            (put, "1", Some("1")),
            (put, "1", Some("1")),
            (off, "1", Some("1")),
            (on, "1", Some("1")),
            ("role.delete", "1", None),
            (put, "1", Some("1")),
            ("branch.delete", "1", None),
        ]
    );
    let value = |text: &Option<String>| text.as_deref().map(|text| serde_json::from_str::<Value>(text).unwrap());
    assert_eq!(value(&rows[3].before), None);
    assert_eq!(value(&rows[4].before).unwrap()["phone"], "+34 600 111 222");
    assert_eq!(value(&rows[4].after).unwrap()["phone"], Value::Null);
    assert_eq!((value(&rows[7].before).unwrap()["name"].clone(), value(&rows[7].after)), (json!("employee"), None));
    assert!(rows.iter().all(|row| row.actor.operator));

    world.store.erase_person(world.tenant, "1".to_owned(), false, world.closer(), Author::operator(), world.now).await.unwrap().unwrap();
    let rows = world.store.audit_entries(world.tenant, 0, 100).await.unwrap();
    assert!(!format!("{rows:?}").contains("Ruiz") && format!("{rows:?}").contains("Madrid"), "the erasure blanks the person only");
}

pub(crate) async fn new_rows_at_once_get_different_ids<S: Store>(world: World<S>) {
    office(&world).await;
    let world = Arc::new(world);
    let made = join_all((0..12).map(|at| {
        let world = Arc::clone(&world);
        async move {
            if at % 3 == 0 {
                let guest = world.store.create_guest(world.tenant, None, Some(format!("sub-guest-{at}")), "lead".to_owned()).await;
                guest.unwrap().id
            } else {
                let row = create(&world, User, json!({"first_name": "N", "last_name": "", "locale": "de"})).await.unwrap();
                row["id"].as_i64().unwrap()
            }
        }
    }))
    .await;
    let mut ids = made.clone();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), made.len(), "{made:?}");
    let names = world.store.people(world.tenant, User, page(None, 100, Order::OldestFirst)).await.unwrap();
    assert_eq!(names.rows.len(), 13, "nobody's row was replaced");
}
