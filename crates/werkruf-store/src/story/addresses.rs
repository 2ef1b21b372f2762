//! Users by their addresses and by their roles.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Store, World};
use crate::import::parse_batch;
use crate::{PersonAddress, TokenRoles};

async fn import<S: Store>(world: &World<S>, users: Value) {
    let roles = json!([{"id": 1, "name": "employee", "permissions": []}, {"id": 2, "name": "lead", "permissions": []},
        {"id": 3, "name": "admin", "permissions": []}]);
    let branches =
        json!([{"id": 1, "name": "Madrid", "time_zone": "Europe/Madrid"}, {"id": 2, "name": "Lima", "time_zone": "America/Lima"}]);
    let text = json!({"tenant": "demo", "branches": branches, "roles": roles, "users": users}).to_string();
    world.store.import(parse_batch(&text, &[], |_| true).unwrap(), world.tenant, world.now).await.unwrap().unwrap();
}

fn user(id: i64, phone: Option<&str>, whatsapp: Option<&str>, branch_id: i64, role_ids: &[i64]) -> Value {
    json!({"id": id, "first_name": "A", "last_name": "B", "locale": "de-DE", "phone": phone, "whatsapp_user_id": whatsapp,
        "branch_id": branch_id, "role_ids": role_ids})
}

async fn found<S: Store>(world: &World<S>, id: Option<&str>, phone: Option<&str>) -> Vec<i64> {
    let found = world.store.users_by_address(world.tenant, id.map(str::to_owned), phone.map(str::to_owned)).await.unwrap();
    found.iter().map(|person| person.user_id).collect()
}

pub(crate) async fn a_user_is_found_by_the_id_of_the_channel_or_by_phone<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    let users = json!([
        user(1, Some("+54 9 11 1234-5678"), Some("AR.1"), 1, &[1]),
        user(2, Some("0052 55 1234 5678"), None, 1, &[1]),
        user(3, Some("+55 11 91234 5678"), None, 1, &[1]),
        user(4, Some("+34 600 111 222"), None, 1, &[1]),
        user(5, Some("0034 600 111222"), None, 2, &[1]),
        user(6, None, None, 2, &[1]),
    ]);
    import(&world, users).await;
    for (phone, ids) in [
        ("5491112345678", &[1][..]),
        ("541112345678", &[1]),
        ("5215512345678", &[2]),
        ("525512345678", &[2]),
        ("551112345678", &[3]),
        ("5511912345678", &[3]),
        ("34600111222", &[4, 5]),
        ("+34 600 111 223", &[]),
        ("nobody", &[]),
    ] {
        assert_eq!(found(&world, None, Some(phone)).await, ids, "{phone}");
    }
    assert_eq!(found(&world, Some("AR.1"), Some("34600111222")).await, [1], "the id of the channel counts first");
    assert_eq!(found(&world, Some("AR.2"), Some("34600111222")).await, [4, 5], "an id that nobody has");
    assert_eq!(found(&world, Some("AR.2"), Some("541112345678")).await, Vec::<i64>::new(), "the user with the phone has another id");
    assert_eq!(found(&world, None, None).await, Vec::<i64>::new());
    let person = world.store.users_by_address(world.tenant, Some("AR.1".to_owned()), None).await.unwrap();
    let (phone, whatsapp_user_id) = (Some("+54 9 11 1234-5678".to_owned()), Some("AR.1".to_owned()));
    assert_eq!(person, [PersonAddress { user_id: 1, branch_id: Some(1), locale: "de-DE".to_owned(), phone, whatsapp_user_id }]);
    assert!(world.store.users_by_address(world.id(), Some("AR.1".to_owned()), None).await.unwrap().is_empty(), "another tenant");

    import(&world, json!([user(4, Some("+34 600 111 333"), None, 1, &[1]), user(5, None, None, 1, &[1])])).await;
    assert_eq!(found(&world, None, Some("34600111222")).await, Vec::<i64>::new(), "the key follows the phone");
    assert_eq!(found(&world, None, Some("34600111333")).await, [4]);
}

/// A phone goes to another person, and an id of a channel stays with the one who left.
pub(crate) async fn the_address_of_a_user_who_is_not_active_is_nobodys<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    let mut left = user(1, Some("+34 600 111 222"), Some("ES.1"), 1, &[1]);
    left["active"] = json!(false);
    let users = [left.clone(), user(2, Some("+34 600 111 222"), None, 2, &[1]), user(3, Some("+34 600 111 333"), None, 1, &[1])];
    import(&world, json!(users)).await;
    let (phone, nobody) = (Some("34600111222"), Vec::<i64>::new());
    assert_eq!(found(&world, Some("ES.1"), Some("34600111333")).await, nobody, "the phone of another user does not help");
    assert_eq!(found(&world, None, phone).await, nobody, "either of the two");
    assert_eq!(found(&world, Some("ES.2"), phone).await, [2], "the one who left has another id");
    left["phone"] = Value::Null;
    import(&world, json!([left])).await;
    assert_eq!(found(&world, None, phone).await, [2]);
}

pub(crate) async fn users_are_found_by_the_roles_they_have_now<S: Store>(world: World<S>) {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    import(&world, json!([user(1, None, None, 1, &[3]), user(2, None, None, 1, &[1, 2]), user(3, None, None, 1, &[1])])).await;
    let with = async |roles: &[&str]| {
        let roles = roles.iter().map(|name| (*name).to_owned()).collect();
        let found = world.store.users_with_roles(world.tenant, roles).await.unwrap();
        found.iter().map(|person| person.user_id).collect::<Vec<_>>()
    };
    assert_eq!(with(&["lead", "admin"]).await, [1, 2]);
    assert_eq!(with(&["employee", "lead"]).await, [2, 3], "nobody twice");
    assert_eq!(with(&["pilot"]).await, Vec::<i64>::new());
    assert_eq!(with(&[]).await, Vec::<i64>::new());
    let token = async |until| {
        let token = TokenRoles { names: vec!["admin".to_owned()], only: false, until };
        world.store.put_token_roles(world.tenant, 2, Some(token)).await.unwrap();
    };
    token(world.now + SignedDuration::from_hours(1)).await;
    assert_eq!((with(&["admin"]).await, with(&["lead"]).await), (vec![1, 2], vec![]), "the token decides");
    token(world.now).await;
    assert_eq!((with(&["admin"]).await, with(&["lead"]).await), (vec![1], vec![2]), "the token has expired");
}
