//! Query plans, and roles from a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use rusqlite::{Connection, params_from_iter};
use serde_json::json;
use werkruf_contract::{Clock, Scope};
use werkruf_store::{IdentityStore, Installation, ManagePeople, SqliteStore, TokenRoles};

use super::statements;
use crate::{RowScope, SCHEMA, Target, Workspace};

fn plan(c: &Connection, sql: &str) -> Vec<String> {
    let mut statement = c.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let values = vec![None::<i64>; statement.parameter_count()];
    let rows = statement.query_map(params_from_iter(values), |row| row.get(3)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test]
async fn every_query_uses_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("w.db"), &Clock::system(0), &[SCHEMA]).unwrap();
    let plans = store.read_rows(|c| Ok(statements().into_iter().map(|sql| (sql, plan(c, sql))).collect::<Vec<_>>())).await.unwrap();
    for (sql, plan) in plans {
        assert!(!plan.is_empty());
        // The role names inside one user's row, and the roles of that user.
        let small = |line: &String| line.contains("CONSTANT") || line.contains("json_each") || line == "SCAN held_roles";
        assert!(!plan.iter().any(|line| line.starts_with("SCAN") && !small(line)), "{sql}\n{plan:#?}");
    }
}

#[tokio::test]
async fn a_person_has_the_roles_of_a_token_until_it_expires() {
    let folder = tempfile::tempdir().unwrap();
    let second = Arc::new(AtomicI64::new(1000));
    let time = Arc::clone(&second);
    let clock = Clock::driven(move || Timestamp::from_second(time.load(Ordering::SeqCst)).unwrap(), 1);
    let store = SqliteStore::open(folder.path().join("w.db"), &clock, &[SCHEMA]).unwrap();
    let tenant = store.ensure_tenant(clock.new_id(), "demo".to_owned(), clock.now()).await.unwrap().id;
    let people = json!({"roles": [{"id": 1, "name": "guest"}, {"id": 2, "name": "admin"}],
        "users": [{"id": 1, "first_name": "A", "last_name": "B", "locale": "de-DE", "role_ids": [1]}]});
    store.put_people(tenant, serde_json::from_value(people).unwrap()).await.unwrap();
    let until = Timestamp::from_second(2000).unwrap();
    store.put_token_roles(tenant, 1, Some(TokenRoles { names: vec!["admin".to_owned()], only: false, until })).await.unwrap();
    for (now, role) in [(1000, "admin"), (1999, "admin"), (2000, "guest"), (2001, "guest")] {
        second.store(now, Ordering::SeqCst);
        let scope = RowScope { caller: 1, caller_branch: None, grant: Scope::Own, target: Target::Own };
        let person = store.person(tenant, scope).await.unwrap().unwrap();
        assert_eq!(person.roles, [role], "at {now}");
    }
}
