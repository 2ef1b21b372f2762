use futures_util::future::join_all;
use jiff::Timestamp;
use tokio_postgres::Client;

use super::{MIGRATIONS, Migration, compat_views, migrate, report};
use crate::StoreError;
use crate::postgres::story_tests::connect;
use crate::testbed::fresh_database;

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const KNOWN: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

fn with(extra: Vec<Migration>) -> Vec<Migration> {
    let known = MIGRATIONS.iter().map(|Migration { version, compatible_with, name, sql }| Migration {
        version: *version,
        compatible_with: *compatible_with,
        name,
        sql,
    });
    known.chain(extra).collect()
}

fn next(sql: &'static str, compatible_with: i64) -> Migration {
    Migration { version: KNOWN + 1, compatible_with, name: "next", sql }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_servers_that_start_at_once_migrate_once() {
    let url = fresh_database();
    let starts = (0..8).map(|_| async { migrate(&mut connect(&url).await, "werkruf", MIGRATIONS, NOW).await });
    for started in join_all(starts).await {
        assert_eq!(started.unwrap(), KNOWN);
    }
    let client = connect(&url).await;
    assert_eq!(number(&client, "SELECT count(*) FROM werkruf.schema_migrations").await, MIGRATIONS.len() as i64);
    let told = report(&client, "werkruf", MIGRATIONS).await.unwrap();
    assert_eq!((told.found, told.known, told.pending.len()), (KNOWN, KNOWN, 0));
    assert_eq!(report(&client, "other", MIGRATIONS).await.unwrap().pending.len(), MIGRATIONS.len());
}

#[tokio::test]
async fn a_migration_that_dies_in_the_middle_leaves_nothing() {
    let url = fresh_database();
    let killed = with(vec![next("CREATE TABLE half (id bigint); SELECT pg_terminate_backend(pg_backend_pid())", KNOWN)]);
    assert!(migrate(&mut connect(&url).await, "werkruf", &killed, NOW).await.is_err());
    let client = connect(&url).await;
    assert_eq!(number(&client, "SELECT count(*) FROM pg_namespace WHERE nspname = 'werkruf'").await, 0, "all or nothing");
    migrate(&mut connect(&url).await, "werkruf", MIGRATIONS, NOW).await.unwrap();
    assert!(migrate(&mut connect(&url).await, "werkruf", &killed, NOW).await.is_err());
    assert_eq!(report(&client, "werkruf", &killed).await.unwrap().pending, [format!("{:04}_next", KNOWN + 1)]);
    assert_eq!(number(&client, "SELECT count(*) FROM pg_class WHERE relname = 'half'").await, 0);
}

#[tokio::test]
async fn a_schema_serves_the_binary_before_it_and_no_older_one() {
    let url = fresh_database();
    let mut client = connect(&url).await;
    migrate(&mut client, "werkruf", &with(vec![next("CREATE TABLE more (id bigint)", KNOWN)]), NOW).await.unwrap();
    assert_eq!(migrate(&mut client, "werkruf", MIGRATIONS, NOW).await.unwrap(), KNOWN + 1, "N serves N-1");
    let breaking = with(vec![
        next("CREATE TABLE more (id bigint)", KNOWN),
        Migration { version: KNOWN + 2, compatible_with: KNOWN + 1, name: "last", sql: "" },
    ]);
    migrate(&mut client, "werkruf", &breaking, NOW).await.unwrap();
    let refused = migrate(&mut client, "werkruf", MIGRATIONS, NOW).await;
    assert!(matches!(refused, Err(StoreError::TooNew { found, known }) if found == KNOWN + 2 && known == KNOWN), "{refused:?}");
    // A migration that was changed after it was applied is no longer the same schema.
    let changed = with(vec![next("CREATE TABLE other (id bigint)", KNOWN)]);
    client.batch_execute("UPDATE werkruf.schema_migrations SET compatible_with = 1").await.unwrap();
    assert!(matches!(migrate(&mut client, "werkruf", &changed, NOW).await, Err(StoreError::Broken(_))));
}

#[tokio::test]
async fn a_schema_of_another_program_is_left_alone() {
    let url = fresh_database();
    let mut client = connect(&url).await;
    client.batch_execute("CREATE SCHEMA werkruf; CREATE TABLE werkruf.theirs (id bigint)").await.unwrap();
    assert!(matches!(migrate(&mut client, "werkruf", MIGRATIONS, NOW).await, Err(StoreError::Broken(_))));
    migrate(&mut client, "werkruf_2", MIGRATIONS, NOW).await.unwrap();
}

#[tokio::test]
async fn the_views_stand_in_public_too_and_only_ours_are_replaced() {
    let url = fresh_database();
    let mut client = connect(&url).await;
    migrate(&mut client, "werkruf", MIGRATIONS, NOW).await.unwrap();
    compat_views(&mut client, "werkruf").await.unwrap();
    compat_views(&mut client, "werkruf").await.unwrap();
    client.batch_execute("SET ROLE werkruf_operator").await.unwrap();
    assert_eq!(number(&client, "SELECT count(chat_id) FROM public.tool_call").await, 0);
    client.batch_execute("RESET ROLE; DROP VIEW public.chats; CREATE TABLE public.chats (id bigint)").await.unwrap();
    assert!(compat_views(&mut client, "werkruf").await.is_err(), "a table of somebody else");
}

/// On managed servers the user is no superuser: it may make roles, or somebody else has made them.
#[tokio::test]
async fn an_ordinary_user_migrates_and_stands_before_the_walls() {
    let url = fresh_database();
    let admin = connect(&url).await;
    migrate(&mut connect(&url).await, "elsewhere", MIGRATIONS, NOW).await.unwrap();
    let name = format!("plain_{}", std::process::id());
    let database: String = admin.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    let made =
        format!("DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN PASSWORD 'plain'; GRANT CREATE ON DATABASE {database} TO {name}");
    admin.batch_execute(&made).await.unwrap();
    let plain = url.replacen(url.split("//").nth(1).unwrap().split('@').next().unwrap(), &format!("{name}:plain"), 1);
    let refused = migrate(&mut connect(&plain).await, "werkruf", MIGRATIONS, NOW).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("GRANT werkruf_app TO {name}")), "{refused}");
    admin.batch_execute(&format!("GRANT werkruf_app, werkruf_system, werkruf_operator TO {name}")).await.unwrap();
    let mut client = connect(&plain).await;
    migrate(&mut client, "werkruf", MIGRATIONS, NOW).await.unwrap();
    let seen = |role: &'static str| {
        let client = &client;
        async move {
            client.batch_execute(role).await.unwrap();
            number(client, "SELECT count(*) FROM werkruf.tenants").await
        }
    };
    seen("SET ROLE werkruf_system").await;
    client.batch_execute("INSERT INTO werkruf.tenants (id, slug, created_at) VALUES (gen_random_uuid(), 'a', now())").await.unwrap();
    assert_eq!(seen("SET ROLE werkruf_system").await, 1);
    assert_eq!(seen("RESET ROLE").await, 0, "forced for the owner too");
    assert_eq!(seen("SET ROLE werkruf_operator").await, 1);
    assert_eq!(seen("SET ROLE werkruf_app").await, 0);
    client.batch_execute("RESET ROLE").await.unwrap();
    drop(client);
    admin.batch_execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await.unwrap();
}
