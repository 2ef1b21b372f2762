//! An erasure removes a person's content from the files, keeps other people's content, and covers every column.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;
use werkruf_contract::Clock;

use super::super::SqliteStore;
use super::super::migrate::beside;
use crate::story::World;
use crate::{Author, ConversationRef, Maintenance, MaintenanceError, OpenTurn, Records, StoreError, Turns};

/// Columns that lose their content, or whose rows are deleted, when their person is erased.
const ERASED: &[(&str, &str)] = &[
    ("api_keys", "digest user_id scopes name allow_ips safety_mode collection replaced_by root_id"),
    ("approvals", "arguments arguments_digest"),
    ("audit_entries", "salt before after"),
    ("budgets", "scope subject period unit"),
    ("call_attempts", "error"),
    ("connection_requests", "server scope digest browser opening_until"),
    ("connections", "server"),
    ("contacts", "channel account person address"),
    ("conversations", "title state summary summary_untrusted metadata"),
    ("events", "type data"),
    ("inbox", "channel account external_id fingerprint"),
    ("messages", "content role tool_calls tool_call_id tool_name status metadata"),
    ("outbox", "channel account recipient lane body status error_code error external_id owner"),
    ("outbox_lanes", "lane channel account"),
    ("tool_calls", "request raw_arguments repairs response error error_detail context meta permission dedupe_key idempotency_key"),
    ("turns", "partial error message client transcript_digest request_digest context inbound"),
    ("users", "first_name last_name email phone phone_key whatsapp_user_id external_id locale time_zone token_roles token_roles_until"),
];

/// Columns that stay, and why.
const STAYS: &[(&str, &str, &str)] = &[
    ("settings", "name value", "facts about the installation; of people only ids"),
    ("schema_migrations", "part name checksum", "the schema"),
    ("tenants", "slug", "a company"),
    ("branches", "name time_zone", "a site of the company"),
    ("roles", "name", "a role"),
    ("console_sessions", "digest operator_digest", "a digest of random bits; the session ends with the key of the person"),
    ("permissions", "entity entity_type access scope", "permissions of a role"),
    ("conversations", "user_id channel assistant", "ids and names from the configuration"),
    ("leases", "owner", "a process"),
    ("turns", "user_id kind assistant status error_code credential", "ids and codes"),
    (
        "tool_calls",
        "kind runner tool_name status error_type error_code effect dedupe_of retry_of taint",
        "ids and codes: the list of calls",
    ),
    ("call_attempts", "status", "a code"),
    (
        "approvals",
        "tool_name server_label approver_roles taint asked_by asked_key retried_by status decided_by decided_key",
        "ids and codes",
    ),
    (
        "audit_entries",
        "at address action subject person before_digest after_digest hash",
        "ids, and who acted from which address; the digests are salted, and the salt is erased",
    ),
    ("audit_heads", "hash key_name signature", "hashes"),
    ("alerts", "kind subject source detail", "ids, codes and sums"),
    ("api_usage", "user_id provider model operation request_id tool_name assistant counted_on", "usage rows"),
    ("budget_periods", "subject period_start", "sums of usage rows; those of a budget that names the person are deleted with it"),
    ("budget_reservations", "subject period_start", "what requests in progress may use"),
    ("usage_daily", "day user_id model tool_name", "sums of usage rows"),
    ("provider_tokens", "provider account", "the company's accounts"),
    ("tool_pins", "name server digest definition changed_digest changed_definition", "definitions of tools of other servers"),
    ("provider_claims", "provider account owner", "a process that uses the company's account"),
];

fn fresh() -> (Arc<SqliteStore>, World<SqliteStore>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system(0);
    let store = SqliteStore::open(folder.path().join("w.db"), &clock, crate::story::MODULES).unwrap();
    (Arc::clone(&store), World::new(store, clock), folder)
}

#[expect(clippy::disallowed_methods, reason = "the test writes to the file as another program")]
fn open_file(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

fn found(path: &Path, needle: &str) -> Vec<String> {
    let holds = |file: &Path| std::fs::read(file).is_ok_and(|bytes| bytes.windows(needle.len()).any(|part| part == needle.as_bytes()));
    ["", "-wal", "-shm", ".erased.jsonl"].into_iter().filter(|suffix| holds(&beside(path, suffix))).map(str::to_owned).collect()
}

#[test]
fn every_column_of_text_is_erased_or_has_a_reason_to_stay() {
    // Modules say it in their own lists, which a test of the binary checks.
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("w.db"), &Clock::system(0), &[]).unwrap();
    let file = open_file(store.path());
    let mut known = BTreeSet::new();
    for (table, columns) in ERASED.iter().copied().chain(STAYS.iter().map(|(table, columns, _)| (*table, *columns))) {
        for column in columns.split(' ') {
            assert!(known.insert(format!("{table}.{column}")), "{table}.{column} is named twice");
        }
    }
    let sql = "SELECT s.name || '.' || c.name FROM sqlite_schema s, pragma_table_xinfo(s.name) c
        WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite_%' AND c.type IN ('TEXT', '')";
    let mut statement = file.prepare(sql).unwrap();
    let all: BTreeSet<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    // Ids and times are not content, in any table.
    let content = |name: &&String| !(name.ends_with(".id") || name.ends_with("_at")) && (known.contains(*name) || !name.ends_with("_id"));
    let unhandled: Vec<&String> = all.iter().filter(content).filter(|name| !known.contains(*name)).collect();
    assert_eq!(unhandled, Vec::<&String>::new(), "handle it in erase.rs, or say why it stays");
    let unknown: Vec<&String> = known.iter().filter(|name| !all.contains(*name)).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "no such column");
}

/// Writes `mark` into every text column of user 1, and `other` into those of user 2.
fn plant(path: &Path, tenant: &str, mark: &str, other: &str) {
    let file = open_file(path);
    let sql = format!(
        "PRAGMA foreign_keys = ON;
         INSERT INTO users (tenant_id, id, first_name, last_name, email, phone, phone_key, whatsapp_user_id, external_id, locale, time_zone,
           token_roles, token_roles_until) VALUES
           ('{tenant}', 1, '{mark}', '{mark}', '{mark}', '{mark}', '{mark}', '{mark}', '{mark}', '{mark}', '{mark}',
            '{{\"names\": [\"{mark}\"], \"only\": false}}', '{mark}'),
           ('{tenant}', 2, '{other}', '', NULL, NULL, NULL, NULL, '{other}', 'de-DE', NULL, NULL, NULL);
         INSERT INTO api_keys VALUES ('{tenant}', 'k1', '{mark}', '1', '{mark}', '{mark}', NULL, '', NULL, '{mark}', '{mark}', '{mark}', '{mark}',
           '{mark}');
         INSERT INTO outbox (tenant_id, id, channel, account, recipient, lane, user_id, part, status, repeatable, error_code, error, external_id,
           owner, next_at, created_at, updated_at, body) VALUES
           ('{tenant}', 'o1', '{mark}', '{mark}', '{mark}', '{mark}', '1', 1, 'pending', 0, '{mark}', '{mark}', '{mark}', '{mark}', '', '', '', '{mark}'),
           ('{tenant}', 'o2', 'c', 'a', 'r', '{other}', '2', 1, 'pending', 0, NULL, NULL, NULL, NULL, '', '', '', '{other}'),
           ('{tenant}', 'o3', 'c', 'a', '{mark}', 'before', NULL, 1, 'sent', 0, NULL, NULL, NULL, NULL, '', '', '', 'before the sender was a user');
         INSERT INTO outbox (tenant_id, id, channel, account, recipient, lane, user_id, turn_id, approval_id, part, status, repeatable, next_at, created_at,
           updated_at, body) SELECT tenant_id, 'b' || id, 'c', 'a', 'r', 'l', '2', id, 'x', 1, 'sent', 0, '', '', '', '{mark}' FROM turns WHERE user_id = '1';
         INSERT INTO connections VALUES ('{tenant}', '1', '{mark}', CAST('{mark}' AS BLOB), NULL, '', '2026-01-01T00:00:00.000Z'), ('{tenant}', '2', '{other}', x'', NULL, '', '');
         INSERT INTO connection_requests VALUES ('{tenant}', 'r1', '1', '{mark}', '{mark}', '{mark}', 1, '{mark}', CAST('{mark}' AS BLOB), 0, '', '', '');
         INSERT INTO outbox_lanes VALUES ('{tenant}', '{mark}', '', 'c', 'a'), ('{tenant}', '{other}', '', 'c', 'a');
         INSERT INTO inbox VALUES ('{tenant}', '{mark}', '{mark}', '{mark}:read', '{mark}', NULL, '', '');
         INSERT INTO contacts VALUES ('{tenant}', '{mark}', '{mark}', '1', '1', '{mark}', NULL, NULL, NULL, '', ''),
           ('{tenant}', 'c', 'a', '{mark}', NULL, '{mark}', NULL, NULL, NULL, '', ''),
           ('{tenant}', 'c', 'a', '2', '2', '{other}', NULL, NULL, NULL, '', '');
         INSERT INTO call_attempts SELECT tenant_id, id, 1, '', '', 'failed', '{mark}' FROM tool_calls;
         INSERT INTO approvals SELECT tenant_id, 'a' || id, conversation_id, turn_id, id, 't', NULL, '{mark}', '{mark}', '[]', NULL, '1', 'key:1', NULL, 'denied',
           NULL, NULL, '', NULL, '' FROM tool_calls;
         UPDATE tool_calls SET request = '{mark}', raw_arguments = '{mark}', repairs = '{mark}', response = '{mark}', error = '{mark}',
           error_detail = '{mark}', context = '{mark}', meta = '{mark}', permission = '{mark}', dedupe_key = '{mark}',
           idempotency_key = '{mark}';
         UPDATE turns SET partial = '{mark}', client = '{mark}', transcript_digest = '{mark}', request_digest = '{mark}', context = '{mark}', error = '{mark}', message = '{mark}' WHERE user_id = '1';
         UPDATE conversations SET title = '{mark}', state = '{{\"a\": \"{mark}\"}}', metadata = '{{\"a\": \"{mark}\"}}' WHERE user_id = '1';
         UPDATE conversations SET summary = '{mark}', summary_until = 1, summary_untrusted = '{mark}'
           WHERE id IN (SELECT conversation_id FROM turns WHERE user_id = '1');
         UPDATE events SET data = '{{\"a\": \"{mark}\"}}' WHERE turn_id IN (SELECT id FROM turns WHERE user_id = '1');
         UPDATE messages SET metadata = '{{\"a\": \"{mark}\"}}' WHERE turn_id IN (SELECT id FROM turns WHERE user_id = '1');"
    );
    file.execute_batch(&sql).unwrap();
}

#[tokio::test]
async fn no_byte_of_the_person_is_left_and_other_content_stays() {
    const MARK: &str = "CANARY-zq81";
    const OTHER: &str = "NEIGHBOUR-zq82";
    let (store, world, _folder) = fresh();
    let mut open = world.opening(world.new_conversation(), MARK);
    open.inbox = Some(world.inbox(MARK, MARK));
    let own = world.begin(open).await;
    let call = world.call(&own, 0);
    world.act(&own, std::slice::from_ref(&call)).await;
    world.finish_call(&own, &call).await;
    world.complete(&own).await;
    let foreign = world.begin(OpenTurn { user_id: "2".to_owned(), ..world.opening(world.new_conversation(), OTHER) }).await;
    world.complete(&foreign).await;
    let guest = world.opening(ConversationRef::Existing { id: foreign.conversation, any_user: true }, MARK);
    let guest = world.begin(guest).await;
    world.complete(&guest).await;
    plant(store.path(), &world.tenant.to_string(), MARK, OTHER);
    assert!(!found(store.path(), MARK).is_empty());

    let erased = store
        .erase_person(world.tenant, "1".to_owned(), false, world.closer(), Author::server(), world.clock.now())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((erased.conversations, erased.turns, erased.calls, erased.keys, erased.compacted), (1, 2, 1, 1, true));
    assert_eq!(found(store.path(), MARK), Vec::<String>::new());
    assert!(!found(store.path(), OTHER).is_empty());

    let row = store.call(world.tenant, call.id).await.unwrap().unwrap();
    assert_eq!((row.tool_name.as_str(), row.status, row.request), ("get_requests", call_ended(), None), "the row of the call stays");
    let history = store.history(world.tenant, foreign.conversation).await.unwrap();
    let contents: Vec<&str> = history.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(contents, [OTHER, "done", "[erased]", "[erased]"], "messages of a guest lose their content and keep their rows");
    let (name, usage): (String, i64) = open_file(store.path())
        .query_row("SELECT first_name, (SELECT count(*) FROM api_usage) FROM users WHERE id = 1", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!((name.as_str(), usage), ("erased", 4), "usage rows stay");
    let kept: String = open_file(store.path())
        .query_row(
            "SELECT (SELECT group_concat(id) FROM outbox) || ' ' || (SELECT count(*) FROM outbox_lanes) || ' ' || (SELECT group_concat(person) FROM contacts)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(kept, "o2 1 2", "rows of other people stay");
    let unknown =
        store.erase_person(world.tenant, "99".to_owned(), false, world.closer(), Author::server(), world.clock.now()).await.unwrap();
    assert_eq!(unknown, None);
}

const fn call_ended() -> werkruf_contract::CallStatus {
    werkruf_contract::CallStatus::Succeeded
}

#[tokio::test]
async fn a_running_turn_is_never_erased() {
    let (store, world, _folder) = fresh();
    let running = world.talk().await;
    let erase = |cancel| store.erase_person(world.tenant, "1".to_owned(), cancel, world.closer(), Author::server(), world.clock.now());
    for cancel in [false, true] {
        let refused = erase(cancel).await;
        assert!(matches!(refused, Err(MaintenanceError::Store(StoreError::Busy))), "{refused:?}");
    }
    assert_eq!(store.unfinished_turns_of(world.tenant, "1".to_owned()).await.unwrap(), [running.turn]);
    store.release(running.fence.clone()).await.unwrap();
    assert!(erase(false).await.is_err(), "it has not ended");
    assert_eq!(erase(true).await.unwrap().unwrap().turns, 1);
    let turn = store.turn(world.tenant, running.turn).await.unwrap().unwrap();
    assert_eq!(turn.error_code.as_deref(), Some("Canceled"));
}
