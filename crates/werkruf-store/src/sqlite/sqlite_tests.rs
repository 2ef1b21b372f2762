//! The shared tests on SQLite, and the guarantees of SQLite only: one process, group commit, few row writes, readable files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, StatementStatus};
use serde_json::json;
use tempfile::TempDir;
use werkruf_contract::{BoxFuture, Clock};

use super::SqliteStore;
use super::row::all;
use crate::story::{Tamper, World, tell};
use crate::{
    Claimed, ConversationRef, Counts, Diagnostics, IdentityStore, Installation, ManagePeople, NewUsage, Outbox, People, Records,
    StoreError, TokenRoles, Turns, UsageOwner, UsageRows,
};

fn fresh() -> (Arc<SqliteStore>, Clock, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system(0);
    let store = SqliteStore::open(folder.path().join("deep/er/w.db"), &clock, crate::story::MODULES).unwrap();
    (store, clock, folder)
}

fn opened() -> std::future::Ready<(Arc<SqliteStore>, Clock, TempDir)> {
    std::future::ready(fresh())
}

impl Tamper for SqliteStore {
    fn sql<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        let text = text.to_owned();
        Box::pin(async move { self.write_rows(move |c| Ok(c.execute_batch(&text)?)).await.unwrap() })
    }

    fn texts<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move { self.look_up(|c| all(&mut c.prepare(query)?, [], |columns| columns.text())).await.unwrap() })
    }

    fn everything(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let file = outside(self.path());
            let tables = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name";
            let mut rows = Vec::new();
            for table in all(&mut file.prepare(tables).unwrap(), [], |columns| columns.text()).unwrap() {
                let mut statement = file.prepare(&format!("SELECT * FROM \"{table}\"")).unwrap();
                let columns = statement.column_count();
                let mut found = statement.query([]).unwrap();
                while let Some(row) = found.next().unwrap() {
                    rows.push(format!("{table} {:?}", (0..columns).map(|at| row.get_ref(at).unwrap()).collect::<Vec<_>>()));
                }
            }
            rows
        })
    }

    const COUNTED_ON: &'static str = "coalesce(u.counted_on, substr(u.created_at, 1, 10))";
}

tell!(opened);

/// Opens the file as `sqlite3 file:w.db?mode=ro` does.
#[expect(clippy::disallowed_methods, reason = "the test looks at the file from outside")]
fn outside(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_one_call_turn_costs_at_most_22_row_writes() {
    let (store, clock, _folder) = fresh();
    let mut world = World::new(Arc::clone(&store), clock);
    let first = world.talk().await;
    world.complete(&first).await;
    let before = store.counts();
    let since = |last: &mut Counts| {
        let now = store.counts();
        let rows = now.row_writes - last.row_writes;
        *last = now;
        rows
    };
    let mut last = before;
    // Each commit has its own time: a conversation is not written twice for one time.
    world.later(1);
    let mut open = world.opening(ConversationRef::Existing { id: first.conversation, any_user: false }, "next");
    open.inbox = Some(world.inbox("k", "body"));
    let running = world.begin(open).await;
    assert_eq!(since(&mut last), 6, "A: lease, inbox, message, conversation, turn, init");
    world.later(1);
    let call = world.call(&running, 0);
    world.act(&running, std::slice::from_ref(&call)).await;
    assert_eq!(since(&mut last), 5, "B: lease, message, call, event, turn");
    world.later(1);
    world.finish_call(&running, &call).await;
    assert_eq!(since(&mut last), 5, "C: lease, call, message, usage, event");
    world.later(1);
    world.complete(&running).await;
    assert_eq!(since(&mut last), 6, "D: lease, message, conversation, usage, event, turn");
    assert_eq!(store.counts().commits - before.commits, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_share_commits() {
    let (store, clock, _folder) = fresh();
    let world = World::new(Arc::clone(&store), clock);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let world = world.clone();
        tasks.spawn(async move {
            let running = world.talk().await;
            world.complete(&running).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let counts = store.counts();
    assert_eq!(counts.commits, 128);
    assert!(counts.groups < counts.commits, "{counts:?}");
}

#[tokio::test]
async fn commits_survive_a_crash_and_old_leases_are_void() {
    let (store, clock, folder) = fresh();
    let world = World::new(Arc::clone(&store), clock.clone());
    let running = world.talk().await;
    let without_conversation = world.begin(crate::OpenTurn { message: None, ..world.opening(ConversationRef::None, "") }).await;
    // A copy of the files as after a crash: no checkpoint of the WAL, nothing closed.
    let crashed = folder.path().join("crashed.db");
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", store.path().display());
        std::fs::copy(from, format!("{}{suffix}", crashed.display())).unwrap();
    }
    let reopened = SqliteStore::open(&crashed, &clock, crate::story::MODULES).unwrap();
    assert_eq!(reopened.history(world.tenant, running.conversation).await.unwrap().len(), 1);
    assert_eq!(number(&outside(&crashed), "SELECT count(*) FROM leases WHERE owner <> ''"), 0);
    assert_eq!(number(&outside(&crashed), "SELECT CAST(value AS INTEGER) FROM settings WHERE name = 'boot_epoch'"), 2);
    for old in [&running, &without_conversation] {
        let fenced = reopened.write(world.to_write(old)).await;
        assert!(matches!(fenced, Err(StoreError::Fenced)), "{fenced:?}");
    }
    let next = reopened.take_over(world.tenant, running.turn, "process-2".to_owned(), world.now).await.unwrap();
    assert!(next.epoch > running.fence.epoch, "the epoch continues");
}

#[tokio::test]
async fn a_second_process_is_refused_until_the_first_has_ended() {
    let (store, clock, _folder) = fresh();
    let path = store.path().to_owned();
    let second = SqliteStore::open(&path, &clock, crate::story::MODULES);
    assert!(matches!(second, Err(StoreError::InUse(_))), "{second:?}");
    store.ping().await.unwrap();
    drop(store);
    assert!(!path.with_extension("db-wal").exists(), "closing checkpoints and removes the WAL");
    assert_eq!(number(&outside(&path), "SELECT min(number) FROM schema_migrations"), 1, "a closed file is readable from outside");
    SqliteStore::open(&path, &clock, crate::story::MODULES).unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_newer_or_tampered_schema_is_refused() {
    let (store, clock, _folder) = fresh();
    let path = store.path().to_owned();
    drop(store);
    let change = |sql: &str| {
        #[expect(clippy::disallowed_methods, reason = "the test acts as another program")]
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(sql).unwrap();
    };
    change("INSERT INTO schema_migrations VALUES ('kernel', 9999, 'future', 'x', '2030-01-01T00:00:00.000Z')");
    let newer = SqliteStore::open(&path, &clock, crate::story::MODULES);
    assert!(matches!(newer, Err(StoreError::TooNew { found: 9999, .. })), "{newer:?}");
    change("DELETE FROM schema_migrations WHERE number = 9999; UPDATE schema_migrations SET checksum = 'other'");
    let tampered = SqliteStore::open(&path, &clock, crate::story::MODULES);
    assert!(matches!(&tampered, Err(StoreError::Prerelease(named)) if *named == path.display().to_string()), "{tampered:?}");
}

#[tokio::test]
async fn the_queries_of_the_seeds_run_unchanged() {
    let (store, clock, _folder) = fresh();
    let world = World::new(Arc::clone(&store), clock);
    let running = world.talk().await;
    let call = world.call(&running, 0);
    world.act(&running, std::slice::from_ref(&call)).await;
    world.finish_call(&running, &call).await;
    let queries = [
        (
            "SELECT \n  id,\n  tool_name,\n  status,\n  created_at,\n  started_at,\n  finished_at,\n  error\nFROM tool_call\nWHERE chat_id = '<chat-id>'\nORDER BY created_at DESC;",
            1,
        ),
        ("SELECT \n  request,\n  response,\n  error\nFROM tool_call\nWHERE id = '<tool-call-id>';", 1),
        ("SELECT * FROM messages \nWHERE conversation_id = 'conv-123' \n  AND tool_calls IS NOT NULL;", 1),
        ("SELECT * FROM messages \nWHERE role = 'tool' \n  AND status = 'error';", 0),
        ("SELECT * FROM messages \nWHERE tool_call_id = 'call_123';", 1),
        ("SELECT id, title, state FROM chats", 1),
        ("SELECT chat_id FROM api_usage_by_chat WHERE chat_id = 'conv-123' AND cost_usd = 1.5", 1),
    ];
    let file = outside(store.path());
    for (query, expected) in queries {
        let conversation = running.conversation.to_string();
        let filled = query
            .replace("<chat-id>", &conversation)
            .replace("conv-123", &conversation)
            .replace("<tool-call-id>", &call.id.to_string())
            .replace("call_123", "call_0");
        let mut statement = file.prepare(&filled).unwrap();
        let found = statement.query_map([], |_| Ok(())).unwrap().count();
        assert_eq!(found, expected, "{filled}");
    }
}

/// The statements that run often while the tables grow.
fn hot_statements() -> Vec<String> {
    [
        super::turns::hot_statements(),
        super::streams::hot_statements(),
        super::retention::hot_statements(),
        super::retention_messages::hot_statements(),
        super::waiting::hot_statements(),
        super::client_requests::hot_statements(),
        super::records::hot_statements(),
        super::people::hot_statements(),
        super::outbox::hot_statements(),
        super::outbox_claim::hot_statements(),
        super::outbox_rows::hot_statements(),
        super::alerts::hot_statements(),
        super::console::hot_statements(),
        super::budget_counters::hot_statements(),
        super::budgets::hot_statements(),
    ]
    .concat()
}

/// The query plan of a statement, line by line.
fn plan(file: &Connection, sql: &str) -> Vec<String> {
    let mut statement = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut rows = statement.raw_query();
    let mut plan = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        plan.push(row.get(3).unwrap());
    }
    plan
}

#[tokio::test]
async fn every_table_names_its_tenant_and_hot_queries_use_their_index() {
    let (store, _clock, _folder) = fresh();
    let file = outside(store.path());
    let without = "SELECT group_concat(name) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND NOT EXISTS
        (SELECT 1 FROM pragma_table_xinfo(sqlite_schema.name) AS c WHERE c.name = 'tenant_id') ORDER BY name";
    let names: String = file.query_row(without, [], |row| row.get(0)).unwrap();
    let mut names: Vec<_> = names.split(',').collect();
    names.sort_unstable();
    assert_eq!(names, ["schema_migrations", "settings"]);
    for sql in hot_statements() {
        let plan = plan(&file, &sql);
        assert!(!plan.is_empty());
        // The roles of one user, and at most so many rows of an inner statement. Indexes that are nearly empty are read whole.
        let bounded = ["SCAN held_roles", "SCAN new_rows", "SCAN open_rows"];
        let few = ["outbox_dead", "alerts_open", "turns_open", "approvals_pending"];
        let few = |line: &str| few.iter().any(|index| line.ends_with(&format!("INDEX {index}")));
        let small = |line: &str| bounded.contains(&line) || line.contains("CONSTANT") || line.contains("json_each") || few(line);
        assert!(!plan.iter().any(|line| line.starts_with("SCAN") && !small(line)), "{sql}\n{plan:#?}");
    }
}

/// A plan that depends on bound values is made again for every run, which costs more than the run. A CHECK with a list of three values
/// builds a table for every row.
#[tokio::test]
async fn a_turn_plans_once_and_its_checks_build_no_tables() {
    let (store, _clock, _folder) = fresh();
    let file = super::open::read_only(store.path()).unwrap();
    for sql in hot_statements().into_iter().filter(|sql| sql.starts_with("SELECT")) {
        let mut statement = file.prepare(&sql).unwrap();
        for value in [7, 8, 9] {
            for at in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(at, value).unwrap();
            }
            let mut rows = statement.raw_query();
            while rows.next().unwrap().is_some() {}
            drop(rows);
            // As the statement cache does when a statement is returned.
            statement.clear_bindings();
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{sql}");
    }
    let mut tables = file.prepare("SELECT sql FROM sqlite_schema WHERE name IN ('turns', 'messages', 'tool_calls', 'api_usage')").unwrap();
    let definitions: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(definitions.len(), 4);
    for definition in definitions {
        let long = definition.split(" IN ").skip(1).find(|list| list.split(')').next().unwrap().matches(',').count() > 1);
        assert_eq!(long, None, "{definition}");
    }
}

#[tokio::test]
async fn the_cost_of_a_request_is_a_column_that_other_programs_see() {
    let (store, clock, _folder) = fresh();
    let world = World::new(Arc::clone(&store), clock);
    let file = outside(store.path());
    let listed = "SELECT count(*) FROM pragma_table_info('api_usage') WHERE name = 'cost_usd' AND type = 'REAL'";
    assert_eq!(file.query_row(listed, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    let owner = UsageOwner { tenant_id: world.tenant, ..UsageOwner::default() };
    let estimate = NewUsage { cost_nano_usd: None, estimated: true, ..world.usage() };
    let cost = || file.query_row("SELECT cost_usd FROM api_usage", [], |row| row.get::<_, Option<f64>>(0)).unwrap();
    store.put_usage(owner.clone(), estimate.clone(), world.now).await.unwrap();
    assert_eq!(cost(), None, "a request without a price");
    let known = NewUsage { cost_nano_usd: Some(2_437_500), estimated: false, ..estimate };
    store.put_usage(owner, known, world.now).await.unwrap();
    assert_eq!(cost(), Some(0.002_437_5));
}

#[tokio::test]
async fn values_outside_the_checks_are_refused() {
    let (store, _clock, _folder) = fresh();
    let turn = |kind: &str, status: &str| {
        format!(
            "INSERT INTO turns (tenant_id, id, user_id, kind, assistant, status, created_at, updated_at)
             VALUES ('t', 'u', '1', '{kind}', 'a', '{status}', '', '')"
        )
    };
    let message = |role: &str, status: &str| {
        format!(
            "INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role, status)
             VALUES ('m', 't', '', 'c', '', '{role}', '{status}')"
        )
    };
    let call = |kind: &str, runner: &str, status: &str, effect: &str| {
        format!(
            "INSERT INTO tool_calls (tenant_id, id, turn_id, step, output_index, kind, runner, tool_name, status, effect, context, created_at,
               updated_at)
             VALUES ('t', 'k', 'u', 1, 0, '{kind}', '{runner}', 'echo', '{status}', '{effect}', '{{}}', '', '')"
        )
    };
    let usage = "INSERT INTO api_usage (id, tenant_id, user_id, created_at, provider, model, operation, tokens_prompt, tokens_cached,
        tokens_completion, tokens_reasoning, tokens_total, estimated) VALUES ('a', 't', '1', '', 'p', 'm', 'other', 1, 1, 1, 1, 1, 0)";
    for sql in [
        turn("other", "acting"),
        turn("chat", "other"),
        message("other", "success"),
        message("tool", "other"),
        call("other", "server", "queued", "read"),
        call("function", "other", "queued", "read"),
        call("function", "server", "other", "read"),
        call("function", "server", "queued", "other"),
        usage.to_owned(),
    ] {
        let statement = sql.clone();
        let error = store.writer.submit(move |c| Ok(c.execute(&statement, [])?)).await.unwrap_err().to_string();
        assert!(error.contains("CHECK constraint failed"), "{sql}\n{error}");
    }
}

/// An index on the tenant alone is not enough: each statement would scan all rows of the tenant.
#[tokio::test]
async fn rows_are_found_by_more_than_their_tenant() {
    let (store, _clock, _folder) = fresh();
    let file = outside(store.path());
    for sql in hot_statements() {
        let plan = plan(&file, &sql);
        assert!(!plan.iter().any(|line| line.ends_with("(tenant_id=?)")), "{sql}\n{plan:#?}");
    }
}

#[tokio::test]
async fn the_cache_does_not_outlive_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let second = Arc::new(AtomicI64::new(1000));
    let time = Arc::clone(&second);
    let clock = Clock::driven(move || Timestamp::from_second(time.load(Ordering::SeqCst)).unwrap(), 1);
    let store = SqliteStore::open(folder.path().join("w.db"), &clock, crate::story::MODULES).unwrap();
    let tenant = store.ensure_tenant(clock.new_id(), "demo".to_owned(), clock.now()).await.unwrap().id;
    let people = json!({"roles": [{"id": 1, "name": "guest"}, {"id": 2, "name": "admin"}],
        "users": [{"id": 1, "first_name": "A", "last_name": "B", "locale": "de-DE", "role_ids": [1]}]});
    store.put_people(tenant, serde_json::from_value(people).unwrap()).await.unwrap();
    let until = Timestamp::from_second(2000).unwrap();
    store.put_token_roles(tenant, 1, Some(TokenRoles { names: vec!["admin".to_owned()], only: false, until })).await.unwrap();
    for (now, role) in [(1000, "admin"), (1000, "admin"), (1999, "admin"), (2000, "guest"), (2001, "guest")] {
        second.store(now, Ordering::SeqCst);
        let who = store.principal(tenant, "1".to_owned()).await.unwrap().unwrap();
        assert_eq!(who.roles.iter().map(|role| role.name.as_str()).collect::<Vec<_>>(), [role], "at {now}");
    }
}

#[tokio::test]
async fn settings_of_the_connection_are_the_durable_ones() {
    let (store, _clock, _folder) = fresh();
    let read =
        |name: &'static str| store.writer.submit(move |c| Ok(c.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0))?));
    assert_eq!(read("synchronous").await.unwrap(), 2);
    assert_eq!(read("foreign_keys").await.unwrap(), 1);
    assert_eq!(read("secure_delete").await.unwrap(), 1);
    assert_eq!(read("busy_timeout").await.unwrap(), 5000);
    let refused = store.readers.look_up(|c| Ok(c.execute_batch("DELETE FROM settings")?)).await;
    assert!(refused.is_err(), "a reader cannot write");
}

#[tokio::test]
async fn rows_of_an_earlier_process_wait_for_a_report() {
    let (store, clock, _folder) = fresh();
    let mut world = World::new(Arc::clone(&store), clock);
    let mut repeatable = world.outbox_row(None, "again");
    (repeatable.repeatable, repeatable.recipient.lane) = (true, "webhook:w:1".to_owned());
    let ids = world.send(vec![world.outbox_row(None, "once"), repeatable]).await;
    assert_eq!(world.claimed().await.len(), 2, "claimed for a minute, and then the process dies");
    assert_eq!(store.adopt("process-1".to_owned(), world.now, world.in_s(10)).await.unwrap(), 0, "its own rows");
    assert_eq!(store.adopt("process-2".to_owned(), world.now, world.in_s(30)).await.unwrap(), 2);
    let due: Vec<_> =
        world.claimed().await.into_iter().map(|claimed| if let Claimed::Send(row) = claimed { row.id } else { panic!() }).collect();
    assert_eq!(due, [ids[1]], "its recipient recognizes a repetition and sends no report");
    world.later(30_000);
    let claimed = world.claimed().await;
    assert!(matches!(&claimed[..], [Claimed::Send(row)] if row.id == ids[0] && row.ambiguous), "{claimed:?}");
}
