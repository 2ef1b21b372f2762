//! Workspace rows on both databases: which ones a row scope returns, and what an import writes and refuses.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::{Date, date};
use serde_json::{Value, json};
use werkruf_contract::{Clock, Scope, Uuid};
use werkruf_store::import::{Import, ImportBatch, ImportFault, add_lines, parse_batch};
use werkruf_store::{IdentityStore, Modules, People, PostgresOptions, PostgresStore, SqliteStore};

use crate::testbed::fresh_database;
use crate::{ArticleQuery, DateSpan, RowScope, SCHEMA, Target, WorkQuery, Workspace, WorktimeQuery};

const MODULES: Modules = &[SCHEMA];

/// An opened store and what the tests need beside it.
struct World {
    store: Arc<dyn Workspace>,
    people: Arc<dyn People>,
    users: Arc<dyn IdentityStore>,
    import: Arc<dyn Import>,
    clock: Clock,
    tenant: Uuid,
    now: Timestamp,
}

impl World {
    fn new<S: Workspace + People + IdentityStore + Import + 'static>(store: Arc<S>, clock: Clock) -> Self {
        let (tenant, now) = (clock.new_id(), clock.now());
        Self { store: store.clone(), people: store.clone(), users: store.clone(), import: store, clock, tenant, now }
    }

    fn id(&self) -> Uuid {
        self.clock.new_id()
    }
}

/// Two branches. Users 1 and 2 belong to branch 1 and have rows in branch 2; user 3 belongs to branch 2; user 4 has no branch.
fn sample() -> Value {
    let user = |id: i64, name: &str, branch: Value| json!({"id": id, "first_name": name, "last_name": "Test", "email": null, "locale": "de-DE", "branch_id": branch, "role_ids": [1]});
    let request = |id: i64, requester: i64, responsible: Value, branch: i64, status: &str, due: &str| {
        json!({"id": id, "title": format!("r{id}"), "status": status, "due_date": due, "requester_id": requester, "responsible_id": responsible,
               "branch_id": branch, "created_at": format!("2026-11-0{id}T08:00:00Z")})
    };
    let task = |id: i64, user: i64, branch: i64| json!({"id": id, "title": format!("t{id}"), "status": "open", "user_id": user, "branch_id": branch});
    let worktime = |id: i64, user: i64, branch: i64| json!({"id": id, "user_id": user, "branch_id": branch, "started_at": format!("2026-11-15T0{id}:00:00Z"), "ended_at": format!("2026-11-15T0{id}:30:00Z")});
    json!({
        "tenant": "acme",
        "branches": [{"id": 1, "name": "Berlin", "time_zone": "Europe/Berlin"}, {"id": 2, "name": "Madrid", "time_zone": "Europe/Madrid"}],
        "roles": [{"id": 1, "name": "employee", "permissions": []}, {"id": 2, "name": "lead", "permissions": []}],
        "users": [user(1, "Ida", json!(1)), user(2, "Ben", json!(1)), user(3, "Eva", json!(2)), user(4, "Tom", Value::Null)],
        "requests": [
            request(1, 1, Value::Null, 1, "open", "2026-11-15"),
            request(2, 1, json!(3), 2, "done", "2026-11-16"),
            request(3, 2, json!(1), 1, "open", "2026-11-17"),
            request(4, 2, Value::Null, 2, "open", "2026-11-15"),
            request(5, 3, Value::Null, 2, "open", "2026-11-15")
        ],
        "tasks": [task(1, 1, 1), task(2, 1, 2), task(3, 2, 1), task(4, 2, 2), task(5, 3, 2)],
        "worktimes": [worktime(1, 1, 1), worktime(2, 1, 2), worktime(3, 2, 1), worktime(4, 2, 2), worktime(5, 3, 2)],
        "cerebro_articles": [
            {"id": 1, "title": "Notfall", "content": "Wer hilft?", "tags": ["notfall"]},
            {"id": 2, "title": "Berlin", "content": "Notfall und Notfälle", "tags": [], "branch_id": 1},
            {"id": 3, "title": "Madrid", "content": "Emergencia", "tags": ["notfall"], "branch_id": 2}
        ]
    })
}

fn parse(text: &str) -> ImportBatch {
    parse_batch(text, MODULES, |_| true).unwrap()
}

fn batch(value: &Value) -> ImportBatch {
    parse(&value.to_string())
}

async fn import_sample(world: &World) {
    let report = world.import.import(batch(&sample()), world.tenant, world.now).await.unwrap().unwrap();
    assert_eq!(report.tenant_id, world.tenant);
    assert_eq!(report.written.get("requests"), Some(&5));
}

fn row_scope(caller: i64, grant: Scope, target: Target) -> RowScope {
    let caller_branch = match caller {
        1 | 2 => Some(1),
        3 => Some(2),
        _ => None,
    };
    RowScope { caller, caller_branch, grant, target }
}

async fn requests(world: &World, tenant: Uuid, row_scope: RowScope) -> Vec<i64> {
    let query = WorkQuery { row_scope, status: None, due: DateSpan::default(), limit: 20 };
    world.store.requests(tenant, query).await.unwrap().rows.iter().map(|row| row.id).collect()
}

async fn tasks(world: &World, tenant: Uuid, row_scope: RowScope) -> Vec<i64> {
    let query = WorkQuery { row_scope, status: None, due: DateSpan::default(), limit: 20 };
    world.store.tasks(tenant, query).await.unwrap().rows.iter().map(|row| row.id).collect()
}

async fn worktimes(world: &World, tenant: Uuid, row_scope: RowScope) -> Vec<i64> {
    let (from, to) = ("2026-11-15T00:00:00Z".parse().unwrap(), "2026-11-16T00:00:00Z".parse().unwrap());
    let found = world.store.worktimes(tenant, WorktimeQuery { row_scope, from, to, limit: 20 }).await.unwrap();
    found.rows.iter().map(|row| row.id).collect()
}

async fn a_row_scope_never_returns_more_than_its_grant(world: World) {
    import_sample(&world).await;
    // Caller, grant, target; then requests, tasks (newest first) and worktimes (oldest first), and the person that is returned.
    type Case<'a> = (i64, Scope, Target, &'a [i64], &'a [i64], Option<i64>);
    let cases: &[Case<'_>] = &[
        (1, Scope::Own, Target::Own, &[3, 2, 1], &[2, 1], Some(1)),
        (1, Scope::Branch, Target::Own, &[3, 2, 1], &[2, 1], Some(1)),
        (1, Scope::All, Target::Own, &[3, 2, 1], &[2, 1], Some(1)),
        (1, Scope::Own, Target::User(1), &[3, 2, 1], &[2, 1], Some(1)),
        (1, Scope::Branch, Target::User(1), &[3, 2, 1], &[2, 1], Some(1)),
        (1, Scope::All, Target::User(1), &[3, 2, 1], &[2, 1], Some(1)),
        (1, Scope::Own, Target::User(2), &[], &[], None),
        (1, Scope::Branch, Target::User(2), &[3], &[3], Some(2)),
        (1, Scope::All, Target::User(2), &[4, 3], &[4, 3], Some(2)),
        (1, Scope::Own, Target::User(3), &[], &[], None),
        (1, Scope::Branch, Target::User(3), &[], &[], None),
        (1, Scope::All, Target::User(3), &[5, 2], &[5], Some(3)),
        (1, Scope::All, Target::User(99), &[], &[], None),
        (1, Scope::Own, Target::Branch(1), &[], &[], None),
        (1, Scope::Branch, Target::Branch(1), &[3, 1], &[3, 1], None),
        (1, Scope::All, Target::Branch(1), &[3, 1], &[3, 1], None),
        (1, Scope::Own, Target::Branch(2), &[], &[], None),
        (1, Scope::Branch, Target::Branch(2), &[], &[], None),
        (1, Scope::All, Target::Branch(2), &[5, 4, 2], &[5, 4, 2], None),
        // For a caller without a branch, a grant for the branch covers the caller only.
        (4, Scope::Branch, Target::User(1), &[], &[], None),
        (4, Scope::Branch, Target::Branch(1), &[], &[], None),
        (4, Scope::Branch, Target::Own, &[], &[], Some(4)),
    ];
    let elsewhere = world.id();
    for (caller, grant, target, wanted_requests, wanted_rows, person) in cases {
        let row_scope = row_scope(*caller, *grant, *target);
        let mut oldest_first = wanted_rows.to_vec();
        oldest_first.reverse();
        assert_eq!(requests(&world, world.tenant, row_scope.clone()).await, *wanted_requests, "requests {row_scope:?}");
        assert_eq!(tasks(&world, world.tenant, row_scope.clone()).await, *wanted_rows, "tasks {row_scope:?}");
        assert_eq!(worktimes(&world, world.tenant, row_scope.clone()).await, oldest_first, "worktimes {row_scope:?}");
        let found = world.store.person(world.tenant, row_scope.clone()).await.unwrap();
        assert_eq!(found.map(|row| row.id), *person, "person {row_scope:?}");
        assert_eq!(requests(&world, elsewhere, row_scope.clone()).await, [0_i64; 0], "another tenant's");
        assert_eq!(world.store.person(elsewhere, row_scope).await.unwrap(), None, "another tenant's");
    }
}

async fn work_is_filtered_ordered_and_limited(world: World) {
    import_sample(&world).await;
    let all = row_scope(1, Scope::All, Target::Branch(2));
    let find = async |status: Option<&str>, from: Option<Date>, to: Option<Date>, limit: u32| {
        let query = WorkQuery { row_scope: all.clone(), status: status.map(str::to_owned), due: DateSpan { from, to }, limit };
        let found = world.store.requests(world.tenant, query).await.unwrap();
        (found.rows.iter().map(|row| row.id).collect::<Vec<_>>(), found.truncated)
    };
    let day = date(2026, 11, 15);
    assert_eq!(find(Some("open"), None, None, 20).await, (vec![5, 4], false));
    assert_eq!(find(None, Some(day), Some(day), 20).await, (vec![5, 4], false));
    assert_eq!(find(None, Some(day.tomorrow().unwrap()), None, 20).await, (vec![2], false));
    assert_eq!(find(None, None, None, 2).await, (vec![5, 4], true));
    assert_eq!(find(None, None, None, 3).await, (vec![5, 4, 2], false));
    let query =
        WorkQuery { row_scope: row_scope(3, Scope::Own, Target::Own), status: Some("done".to_owned()), due: DateSpan::default(), limit: 1 };
    let row = world.store.requests(world.tenant, query).await.unwrap().rows.remove(0);
    assert_eq!((row.requester.as_str(), row.responsible.as_deref()), ("Ida Test", Some("Eva Test")));
    assert_eq!(row.due_date, Some(date(2026, 11, 16)));
    let person = world.store.person(world.tenant, row_scope(1, Scope::Own, Target::Own)).await.unwrap().unwrap();
    assert_eq!((person.first_name.as_str(), person.branch.as_deref(), person.roles), ("Ida", Some("Berlin"), vec!["employee".to_owned()]));
}

async fn worktimes_are_those_that_overlap(world: World) {
    import_sample(&world).await;
    let running = json!({"tenant": "acme", "worktimes": [{"id": 9, "user_id": 1, "branch_id": 1, "started_at": "2026-11-15T20:00:00Z"}]});
    world.import.import(batch(&running), world.id(), world.now).await.unwrap().unwrap();
    let find = async |from: &str, to: &str, limit: u32| {
        let query =
            WorktimeQuery { row_scope: row_scope(1, Scope::Own, Target::Own), from: from.parse().unwrap(), to: to.parse().unwrap(), limit };
        let found = world.store.worktimes(world.tenant, query).await.unwrap();
        (found.rows.iter().map(|row| row.id).collect::<Vec<_>>(), found.truncated)
    };
    assert_eq!(find("2026-11-15T01:15:00Z", "2026-11-15T01:20:00Z", 9).await, (vec![1], false), "inside it");
    assert_eq!(find("2026-11-15T01:30:00Z", "2026-11-15T02:00:00Z", 9).await, (vec![], false), "the end of one is the start of the other");
    assert_eq!(find("2026-11-16T00:00:00Z", "2026-11-17T00:00:00Z", 9).await, (vec![9], false), "still running");
    assert_eq!(find("2026-11-15T00:00:00Z", "2026-11-16T00:00:00Z", 2).await, (vec![1, 2], true));
}

async fn articles_are_found_by_words_tags_and_branch(world: World) {
    import_sample(&world).await;
    let find = async |caller: i64, grant: Scope, search: Option<&str>, tags: &[&str], limit: u32| {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let query = ArticleQuery { row_scope: row_scope(caller, grant, Target::Own), search: search.map(str::to_owned), tags, limit };
        let found = world.store.articles(world.tenant, query).await.unwrap();
        (found.rows.iter().map(|row| row.id).collect::<Vec<_>>(), found.truncated)
    };
    assert_eq!(find(1, Scope::Own, None, &[], 10).await, (vec![1, 2], false));
    assert_eq!(find(3, Scope::Branch, None, &[], 10).await, (vec![1, 3], false));
    assert_eq!(find(4, Scope::Branch, None, &[], 10).await, (vec![1], false));
    assert_eq!(find(4, Scope::All, None, &[], 10).await, (vec![1, 2, 3], false));
    assert_eq!(
        find(1, Scope::All, Some("NOTFÄLLE"), &[], 10).await,
        (vec![1, 2, 3], false),
        "title, content or tag; two matches before one"
    );
    assert_eq!(find(1, Scope::Own, Some("notfall berlin"), &[], 10).await, (vec![2], false));
    assert_eq!(find(1, Scope::All, None, &["Notfall", "x"], 1).await, (vec![1], true));
    assert_eq!(find(1, Scope::All, Some("urlaub"), &[], 10).await, (vec![], false));
}

async fn an_import_replaces_what_it_names_and_nothing_else(world: World) {
    import_sample(&world).await;
    let ida = world.people.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap();
    assert!(ida.has_role("employee"));
    let mut change = json!({
        "tenant": world.tenant.to_string(),
        "users": [{"id": 1, "first_name": "Ida", "last_name": "Neu", "locale": "de-DE", "branch_id": 2, "role_ids": [2]}],
        "requests": [{"id": 1, "title": "new title", "status": "done", "requester_id": 1, "branch_id": 1}]
    });
    let report = world.import.import(batch(&change), world.id(), world.now).await.unwrap().unwrap();
    assert_eq!(report.tenant_id, world.tenant, "by id, not a new one");
    assert_eq!(report.written, [("requests".to_owned(), 1), ("users".to_owned(), 1)].into_iter().collect());
    let ida = world.people.principal(world.tenant, "1".to_owned()).await.unwrap().unwrap();
    assert_eq!((ida.name.as_str(), ida.branch_id, ida.has_role("employee"), ida.has_role("lead")), ("Ida Neu", Some(2), false, true));
    let own = WorkQuery { row_scope: row_scope(1, Scope::Own, Target::Own), status: None, due: DateSpan::default(), limit: 20 };
    let rows = world.store.requests(world.tenant, own).await.unwrap().rows;
    let first = rows.iter().find(|row| row.id == 1).unwrap();
    assert_eq!((first.title.as_str(), first.status.as_str(), first.due_date), ("new title", "done", None));
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [3, 2, 1], "it keeps its creation time");
    assert_eq!(tasks(&world, world.tenant, row_scope(1, Scope::Own, Target::Own)).await, [2, 1], "a missing list changes nothing");

    change["tenant"] = json!("beta");
    change["users"][0]["branch_id"] = Value::Null;
    let beta = world.id();
    let refused = world.import.import(batch(&change), beta, world.now).await.unwrap().unwrap_err();
    assert_eq!(paths(&refused), ["/users/0/role_ids/0", "/requests/0/branch_id"], "another tenant's roles and branches are not known");
    assert_eq!(world.people.tenant("beta".to_owned()).await.unwrap(), None, "nor is the tenant created");
}

async fn an_external_id_belongs_to_one_user(world: World) {
    import_sample(&world).await;
    let user = |id: i64, external: &str| json!({"id": id, "first_name": "A", "last_name": "B", "locale": "de", "external_id": external, "role_ids": []});
    let put =
        async |users: Value| world.import.import(batch(&json!({"tenant": "acme", "users": users})), world.id(), world.now).await.unwrap();
    put(json!([user(1, "x"), user(2, "y")])).await.unwrap();
    put(json!([user(1, "y"), user(2, "x")])).await.unwrap();
    let found = world.users.user_by_external_id(world.tenant, "x".to_owned()).await.unwrap().unwrap();
    assert_eq!(found.id, 2, "two users may exchange their ids");
    let twice = put(json!([user(3, "z"), user(4, "z")])).await.unwrap_err();
    assert_eq!(paths(&twice), ["/users/1/external_id"]);
    let taken = put(json!([user(3, "x")])).await.unwrap_err();
    assert_eq!(paths(&taken), ["/users/0/external_id"]);
}

fn paths(faults: &[ImportFault]) -> Vec<&str> {
    faults.iter().map(|fault| fault.path.as_str()).collect()
}

async fn a_batch_with_faults_reports_all_and_writes_nothing(world: World) {
    let mut bad = sample();
    bad["branches"][0]["time_zone"] = json!("Europe/Atlantis");
    bad["users"][0]["locale"] = json!("german please");
    bad["users"][1]["email"] = json!("ben");
    bad["users"][1]["phone"] = json!("call me");
    bad["users"][2]["branch_id"] = json!(9);
    bad["users"][3]["role_ids"] = json!([1, 8]);
    bad["users"][3]["time_zone"] = json!("Nowhere");
    bad["requests"][0]["title"] = json!("  ");
    bad["requests"][3]["status"] = json!("improval");
    bad["requests"][4]["responsible_id"] = json!(77);
    bad["tasks"][1]["id"] = json!(1);
    bad["tasks"][2]["status"] = json!("cancelled");
    bad["tasks"][4]["user_id"] = json!(78);
    bad["worktimes"][0]["ended_at"] = json!("2026-11-14T00:00:00Z");
    bad["cerebro_articles"][0]["branch_id"] = json!(10);
    let text = format!("{bad:#}");
    let mut faults = world.import.import(parse(&text), world.tenant, world.now).await.unwrap().unwrap_err();
    assert!(faults.iter().all(|fault| fault.line.is_none() && !fault.message.is_empty()));
    add_lines(&text, &mut faults);
    let wanted = [
        "/branches/0/time_zone",
        "/users/0/locale",
        "/users/1/email",
        "/users/1/phone",
        "/users/2/branch_id",
        "/users/3/role_ids/1",
        "/users/3/time_zone",
        "/requests/0/title",
        "/requests/3/status",
        "/requests/4/responsible_id",
        "/tasks/1/id",
        "/tasks/2/status",
        "/tasks/4/user_id",
        "/worktimes/0/ended_at",
        "/cerebro_articles/0/branch_id",
    ];
    let mut found = paths(&faults);
    found.sort_unstable();
    let mut sorted = wanted;
    sorted.sort_unstable();
    assert_eq!(found, sorted);
    for fault in &faults {
        let field = fault.path.rsplit('/').find(|step| step.parse::<usize>().is_err()).unwrap();
        let line = text.lines().nth(fault.line.unwrap() - 1).unwrap();
        assert!(line.contains(field) || fault.path.contains("role_ids"), "{fault:?} is not in {line}");
    }
    assert_eq!(world.people.tenants().await.unwrap(), [], "nothing was written");
    assert_eq!(requests(&world, world.tenant, row_scope(1, Scope::All, Target::Branch(2))).await, [0_i64; 0]);
    for (name, expected) in [("", 1), ("Two Words", 1), ("00000000-0000-7000-8000-0000000000ff", 1), ("fine-name", 0)] {
        let batch = ImportBatch { tenant: name.to_owned(), ..ImportBatch::default() };
        let refused = world.import.import(batch, world.id(), world.now).await.unwrap().err().unwrap_or_default();
        assert_eq!(paths(&refused), vec!["/tenant"; expected], "{name}");
    }
}

macro_rules! on_both_databases {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $case() {
                let (folder, clock) = (tempfile::tempdir().unwrap(), super::Clock::system(0));
                let store = super::SqliteStore::open(folder.path().join("w.db"), &clock, super::MODULES).unwrap();
                super::$case(super::World::new(store, clock)).await;
            })+
        }

        mod postgres {
            $(#[tokio::test]
            async fn $case() {
                let clock = super::Clock::system(0);
                let options = super::PostgresOptions { pool_size: 4, ..super::PostgresOptions::new(super::fresh_database()) };
                let store = super::PostgresStore::open(options, &clock, super::MODULES).await.unwrap();
                super::$case(super::World::new(store, clock)).await;
            })+
        }
    };
}

on_both_databases! {
    a_row_scope_never_returns_more_than_its_grant,
    work_is_filtered_ordered_and_limited,
    worktimes_are_those_that_overlap,
    articles_are_found_by_words_tags_and_branch,
    an_import_replaces_what_it_names_and_nothing_else,
    an_external_id_belongs_to_one_user,
    a_batch_with_faults_reports_all_and_writes_nothing,
}
