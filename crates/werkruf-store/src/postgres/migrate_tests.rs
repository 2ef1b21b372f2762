use futures_util::future::join_all;
use jiff::Timestamp;
use tokio_postgres::Client;

use super::{KERNEL, PartFunctions, PartMigration, Schema, compat_views, function_sets, migrate, report};
use crate::postgres::story_tests::connect;
use crate::story::MODULES;
use crate::testbed::fresh_database;
use crate::{FunctionSet, Migration, StoreError};

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// The newest migration of the part that the tests extend.
const NEWEST: i64 = 1;

fn known() -> Schema {
    Schema::new(MODULES)
}

fn count() -> i64 {
    i64::try_from(known().migrations.len()).unwrap()
}

fn with(extra: Vec<PartMigration>) -> Schema {
    let mut schema = known();
    schema.migrations.extend(extra);
    schema
}

fn functions(number: i64, compatible_with: i64, files: &'static [&'static str]) -> Schema {
    let part = format!("{KERNEL}/functions");
    let mut schema = known();
    schema.functions.retain(|known| known.part != part);
    schema.functions.push(PartFunctions { part, set: FunctionSet { number, compatible_with, files } });
    schema
}

fn next(sql: &'static str, compatible_with: i64) -> PartMigration {
    PartMigration { part: KERNEL, migration: Migration { number: NEWEST + 1, compatible_with, name: "next", sql } }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_that_start_at_once_migrate_once() {
    let url = fresh_database();
    let starts = (0..8).map(|_| async { migrate(&mut connect(&url).await, "werkruf", &known(), NOW).await });
    for started in join_all(starts).await {
        started.unwrap();
    }
    let client = connect(&url).await;
    assert_eq!(number(&client, "SELECT count(*) FROM werkruf.schema_migrations WHERE part NOT LIKE '%/functions'").await, count());
    let sets = "SELECT part, number, checksum FROM werkruf.schema_migrations WHERE part LIKE '%/functions' ORDER BY part";
    let sets: Vec<(String, i64, String)> =
        client.query(sets, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!((sets.len(), sets), (2, function_sets(MODULES)));
    let current = report(&client, "werkruf", &known()).await.unwrap();
    assert_eq!((current.found, current.known, current.pending.len()), (count(), count(), 0));
    let empty = report(&client, "other", &known()).await.unwrap();
    assert_eq!((empty.found, empty.known), (0, count()));
    assert_eq!(empty.pending, ["kernel/0001_first", "notes/0001_first", "kernel/functions/0001", "notes/functions/0001"]);
}

#[tokio::test]
async fn a_migration_that_dies_in_the_middle_leaves_nothing() {
    let url = fresh_database();
    let killed = with(vec![next("CREATE TABLE half (id bigint); SELECT pg_terminate_backend(pg_backend_pid())", NEWEST)]);
    assert!(migrate(&mut connect(&url).await, "werkruf", &killed, NOW).await.is_err());
    let client = connect(&url).await;
    assert_eq!(number(&client, "SELECT count(*) FROM pg_namespace WHERE nspname = 'werkruf'").await, 0, "all or nothing");
    migrate(&mut connect(&url).await, "werkruf", &known(), NOW).await.unwrap();
    assert!(migrate(&mut connect(&url).await, "werkruf", &killed, NOW).await.is_err());
    assert_eq!(report(&client, "werkruf", &killed).await.unwrap().pending, ["kernel/0002_next"]);
    assert_eq!(number(&client, "SELECT count(*) FROM pg_class WHERE relname = 'half'").await, 0);
}

#[tokio::test]
async fn a_schema_serves_the_binary_before_it_and_no_older_one() {
    let url = fresh_database();
    let mut client = connect(&url).await;
    let first = Migration { compatible_with: 0, ..Migration::first("CREATE TABLE part (id bigint)") };
    let new_part = PartMigration { part: "more", migration: first };
    migrate(&mut client, "werkruf", &with(vec![next("CREATE TABLE more (id bigint)", NEWEST), new_part]), NOW).await.unwrap();
    migrate(&mut client, "werkruf", &known(), NOW).await.unwrap();
    assert_eq!(report(&client, "werkruf", &known()).await.unwrap().found, count() + 2, "N serves N-1");
    let breaking = with(vec![
        next("CREATE TABLE more (id bigint)", NEWEST),
        new_part,
        PartMigration { part: KERNEL, migration: Migration { number: NEWEST + 2, compatible_with: NEWEST + 1, name: "last", sql: "" } },
    ]);
    migrate(&mut client, "werkruf", &breaking, NOW).await.unwrap();
    let refused = migrate(&mut client, "werkruf", &known(), NOW).await;
    assert!(matches!(refused, Err(StoreError::TooNew { found, known, .. }) if found == NEWEST + 2 && known == NEWEST), "{refused:?}");
    // A migration that was changed after it was applied is no longer the same schema.
    let changed = with(vec![next("CREATE TABLE other (id bigint)", NEWEST)]);
    client.batch_execute("UPDATE werkruf.schema_migrations SET compatible_with = 0").await.unwrap();
    assert!(matches!(migrate(&mut client, "werkruf", &changed, NOW).await, Err(StoreError::Prerelease(_))));
    assert!(matches!(report(&client, "werkruf", &changed).await, Err(StoreError::Prerelease(what)) if what == "the schema werkruf"));
}

#[tokio::test]
async fn only_a_function_set_with_a_higher_number_replaces_the_one_in_the_database() {
    let mut client = connect(&fresh_database()).await;
    let answer = "SELECT werkruf.answer()";
    let second = functions(2, 1, &["CREATE OR REPLACE FUNCTION answer() RETURNS bigint LANGUAGE sql AS 'SELECT 2::bigint'"]);
    let third = functions(3, 1, &["CREATE OR REPLACE FUNCTION answer() RETURNS bigint LANGUAGE sql AS 'SELECT 3::bigint'"]);
    migrate(&mut client, "werkruf", &known(), NOW).await.unwrap();
    migrate(&mut client, "werkruf", &second, NOW).await.unwrap();
    assert_eq!(number(&client, answer).await, 2);
    assert_eq!(report(&client, "werkruf", &third).await.unwrap().pending, ["kernel/functions/0003"]);
    migrate(&mut client, "werkruf", &third, NOW).await.unwrap();
    assert_eq!(number(&client, answer).await, 3);
    // Binaries with lower numbers leave it alone and work.
    for older in [second.clone(), known()] {
        migrate(&mut client, "werkruf", &older, NOW).await.unwrap();
        assert!(report(&client, "werkruf", &older).await.unwrap().pending.is_empty());
    }
    assert_eq!(number(&client, answer).await, 3);
    let changed = functions(3, 1, &["SELECT 1"]);
    assert!(matches!(migrate(&mut client, "werkruf", &changed, NOW).await, Err(StoreError::Prerelease(_))), "changed under its number");
    migrate(&mut client, "werkruf", &functions(4, 3, &["SELECT 1"]), NOW).await.unwrap();
    let refused = migrate(&mut client, "werkruf", &second, NOW).await;
    assert!(
        matches!(refused, Err(StoreError::TooNew { found: 4, known: 2, .. })),
        "a set without the signatures of the second: {refused:?}"
    );
}

#[tokio::test]
async fn a_database_of_an_unreleased_build_is_refused() {
    let mut client = connect(&fresh_database()).await;
    let record = "CREATE SCHEMA werkruf; CREATE TABLE werkruf.schema_migrations (version bigint NOT NULL PRIMARY KEY, name text NOT NULL,
                  checksum text NOT NULL, compatible_with bigint NOT NULL, applied_at timestamptz NOT NULL);
                  INSERT INTO werkruf.schema_migrations VALUES (1, 'first', 'x', 1, now())";
    client.batch_execute(record).await.unwrap();
    let refused = migrate(&mut client, "werkruf", &known(), NOW).await;
    assert!(matches!(&refused, Err(StoreError::Prerelease(what)) if what == "the schema werkruf"), "{refused:?}");
    assert!(matches!(report(&client, "werkruf", &known()).await, Err(StoreError::Prerelease(_))));
    assert_eq!(number(&client, "SELECT count(*) FROM werkruf.schema_migrations").await, 1, "nothing was changed");
}

#[tokio::test]
async fn a_schema_of_another_program_is_left_alone() {
    let url = fresh_database();
    let mut client = connect(&url).await;
    client.batch_execute("CREATE SCHEMA werkruf; CREATE TABLE werkruf.theirs (id bigint)").await.unwrap();
    assert!(matches!(migrate(&mut client, "werkruf", &known(), NOW).await, Err(StoreError::Foreign(_))));
    migrate(&mut client, "werkruf_2", &known(), NOW).await.unwrap();
}

#[tokio::test]
async fn compatibility_views_are_created_in_public_and_only_our_own_are_replaced() {
    let url = fresh_database();
    let mut client = connect(&url).await;
    migrate(&mut client, "werkruf", &known(), NOW).await.unwrap();
    compat_views(&mut client, "werkruf", MODULES).await.unwrap();
    compat_views(&mut client, "werkruf", MODULES).await.unwrap();
    client.batch_execute("SET ROLE werkruf_operator").await.unwrap();
    assert_eq!(number(&client, "SELECT count(chat_id) FROM public.tool_call").await, 0);
    client.batch_execute("RESET ROLE; DROP VIEW public.chats; CREATE TABLE public.chats (id bigint)").await.unwrap();
    assert!(compat_views(&mut client, "werkruf", MODULES).await.is_err(), "a table of another program");
}

/// On managed servers the user is no superuser: it may create roles, or an administrator has created them.
#[tokio::test]
async fn an_ordinary_user_migrates_and_is_bound_by_row_security() {
    let url = fresh_database();
    let admin = connect(&url).await;
    migrate(&mut connect(&url).await, "elsewhere", &known(), NOW).await.unwrap();
    let name = format!("plain_{}", std::process::id());
    let database: String = admin.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    let role =
        format!("DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN PASSWORD 'plain'; GRANT CREATE ON DATABASE {database} TO {name}");
    admin.batch_execute(&role).await.unwrap();
    let plain = url.replacen(url.split("//").nth(1).unwrap().split('@').next().unwrap(), &format!("{name}:plain"), 1);
    let refused = migrate(&mut connect(&plain).await, "werkruf", &known(), NOW).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("GRANT werkruf_app TO {name}")), "{refused}");
    admin.batch_execute(&format!("GRANT werkruf_app, werkruf_system, werkruf_operator TO {name}")).await.unwrap();
    let mut client = connect(&plain).await;
    migrate(&mut client, "werkruf", &known(), NOW).await.unwrap();
    let visible = |role: &'static str| {
        let client = &client;
        async move {
            client.batch_execute(role).await.unwrap();
            number(client, "SELECT count(*) FROM werkruf.tenants").await
        }
    };
    visible("SET ROLE werkruf_system").await;
    client.batch_execute("INSERT INTO werkruf.tenants (id, slug, created_at) VALUES (gen_random_uuid(), 'a', now())").await.unwrap();
    assert_eq!(visible("SET ROLE werkruf_system").await, 1);
    assert_eq!(visible("RESET ROLE").await, 0, "forced for the owner too");
    assert_eq!(visible("SET ROLE werkruf_operator").await, 1);
    assert_eq!(visible("SET ROLE werkruf_app").await, 0);
    client.batch_execute("RESET ROLE").await.unwrap();
    drop(client);
    admin.batch_execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await.unwrap();
}
