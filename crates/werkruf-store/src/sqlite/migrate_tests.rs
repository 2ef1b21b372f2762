//! Versions, checksums, the copy made before a step.

use jiff::Timestamp;
use rusqlite::Connection;

use super::{MIGRATIONS, Migration, beside, migrate};
use crate::StoreError;

const FIRST: Migration = Migration { version: 1, name: "one", sql: "CREATE TABLE a (n INTEGER)" };
const SECOND: Migration = Migration { version: 2, name: "two", sql: "CREATE TABLE b (n INTEGER); INSERT INTO b VALUES (1);" };
const BAD: Migration = Migration { version: 2, name: "bad", sql: "CREATE TABLE b (n INTEGER); INSERT INTO nowhere VALUES (1);" };
const OTHER: Migration = Migration { version: 1, name: "one", sql: "CREATE TABLE a (n TEXT)" };

#[expect(clippy::disallowed_methods, reason = "the test looks at the file itself")]
fn open(path: &std::path::Path) -> Connection {
    Connection::open(path).unwrap()
}

fn tables(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM sqlite_schema WHERE name IN ('a', 'b')", [], |row| row.get(0)).unwrap()
}

#[test]
fn an_older_database_is_copied_aside_and_moved_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let connection = open(&path);
    migrate(&connection, &path, &[FIRST], Timestamp::UNIX_EPOCH).unwrap();
    let copy = beside(&path, ".before-2");
    assert!(!copy.exists(), "a new database needs no copy");
    migrate(&connection, &path, &[FIRST, SECOND], Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!((tables(&connection), tables(&open(&copy))), (2, 1));
    migrate(&connection, &path, &[FIRST, SECOND], Timestamp::UNIX_EPOCH).unwrap();
}

#[test]
fn a_step_that_fails_leaves_nothing_and_may_be_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let connection = open(&path);
    migrate(&connection, &path, &[FIRST], Timestamp::UNIX_EPOCH).unwrap();
    assert!(migrate(&connection, &path, &[FIRST, BAD], Timestamp::UNIX_EPOCH).is_err());
    assert_eq!(tables(&connection), 1);
    migrate(&connection, &path, &[FIRST, SECOND], Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(tables(&connection), 2);
}

#[test]
fn a_changed_step_and_a_newer_schema_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let connection = open(&path);
    migrate(&connection, &path, &[FIRST, SECOND], Timestamp::UNIX_EPOCH).unwrap();
    let newer = migrate(&connection, &path, &[FIRST], Timestamp::UNIX_EPOCH);
    assert!(matches!(newer, Err(StoreError::TooNew { found: 2, known: 1 })), "{newer:?}");
    let changed = migrate(&connection, &path, &[OTHER, SECOND], Timestamp::UNIX_EPOCH);
    assert!(matches!(changed, Err(StoreError::Broken(_))), "{changed:?}");
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let connection = open(&path);
    connection.execute_batch("CREATE TABLE theirs (n INTEGER)").unwrap();
    assert!(matches!(migrate(&connection, &path, MIGRATIONS, Timestamp::UNIX_EPOCH), Err(StoreError::Broken(_))));
    assert_eq!(connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

/// Nobody knows when those tokens end.
#[test]
fn what_tokens_said_before_their_end_was_kept_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let connection = open(&path);
    migrate(&connection, &path, &MIGRATIONS[..5], Timestamp::UNIX_EPOCH).unwrap();
    let people = r#"INSERT INTO tenants (id, slug, created_at) VALUES ('t', 'demo', '');
        INSERT INTO roles (tenant_id, id, name) VALUES ('t', 1, 'guest'), ('t', 2, 'admin');
        INSERT INTO users (tenant_id, id, first_name, last_name, locale, token_roles)
          VALUES ('t', 1, 'A', 'B', 'de-DE', '{"names": ["admin"], "only": false}');
        INSERT INTO user_roles (tenant_id, user_id, role_id) VALUES ('t', 1, 1);"#;
    connection.execute_batch(people).unwrap();
    let held = || connection.query_row("SELECT group_concat(role_id) FROM held_roles", [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(held(), "2");
    migrate(&connection, &path, MIGRATIONS, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(held(), "1");
    assert!(connection.execute("UPDATE users SET token_roles = '{}'", []).is_err(), "never without an end");
}

#[test]
fn tables_that_are_built_anew_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let connection = open(&path);
    migrate(&connection, &path, &MIGRATIONS[..11], Timestamp::UNIX_EPOCH).unwrap();
    let rows = "INSERT INTO events (conversation_id, seq, tenant_id, turn_id, type, data, created_at)
          VALUES ('c', 2, 't', 'u', 'final', '{}', 'later'), ('c', 1, 't', NULL, 'init', '{}', 'now');
        INSERT INTO api_usage (id, tenant_id, user_id, conversation_id, turn_id, call_id, key_id, created_at, provider, model, operation,
          tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd)
          VALUES ('b', 't', '1', 'c', 'u', 'k', 'y', 'now', 'p', 'm', 'chat', 1, 2, 3, 4, 5, 0, 1500000000),
            ('a', 't', '1', NULL, NULL, NULL, NULL, 'now', 'p', 'm', 'tool', 1, 2, 3, 4, 5, 1, NULL);";
    connection.execute_batch(rows).unwrap();
    connection.execute_batch("CREATE VIEW mine AS SELECT type FROM events JOIN api_usage USING (turn_id)").unwrap();
    let whole = || {
        let sql = "SELECT json_array(
          (SELECT json_group_array(json_array(conversation_id, seq, tenant_id, turn_id, type, data, created_at))
             FROM (SELECT * FROM events ORDER BY seq)),
          (SELECT json_group_array(json_array(id, tenant_id, user_id, chat_id, turn_id, call_id, key_id, created_at, provider, model, operation,
             tokens_prompt, tokens_cached, tokens_completion, tokens_reasoning, tokens_total, estimated, cost_nano_usd, cost_usd))
             FROM (SELECT * FROM api_usage_by_chat ORDER BY id)))";
        connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    let before = whole();
    assert!(before.contains("1.5") && before.contains("final"), "{before}");
    migrate(&connection, &path, MIGRATIONS, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(whole(), before);
    assert_eq!(connection.query_row("SELECT type FROM mine", [], |row| row.get::<_, String>(0)).unwrap(), "final", "the operator's view");
}

#[test]
fn versions_count_from_one_without_holes() {
    assert!(MIGRATIONS.iter().map(|step| step.version).eq(1..=i64::try_from(MIGRATIONS.len()).unwrap()));
}
