//! The rows of an older program are imported alike, from either database into either.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use werkruf_contract::{CallStatus, Clock, Uuid};

use super::story_tests::{connect, fresh};
use crate::moving::canonical_json;
use crate::story::Store;
use crate::testbed::fresh_database;
use crate::{CallFilter, ConversationFilter, LegacyError, LegacyImport, LegacyReport, LegacySource, Page, SqliteStore};

/// Seed 001's messages and seed 004's registry, in SQL that both databases understand.
const OLDER: &str = r#"
    CREATE TABLE chats (id INTEGER PRIMARY KEY, user_id TEXT, title TEXT, created_at TIMESTAMP, folder TEXT);
    CREATE TABLE messages (id INTEGER PRIMARY KEY, chat_id INTEGER, role TEXT, content TEXT, metadata TEXT, created_at TIMESTAMP);
    CREATE TABLE tool_call (id INTEGER PRIMARY KEY, chat_id INTEGER, tool_name TEXT, call_id TEXT, item_id TEXT, arguments_json TEXT,
      result_json TEXT, status TEXT, created_at TIMESTAMP);
    CREATE TABLE themes (name TEXT);
    INSERT INTO themes VALUES ('dark');
    INSERT INTO chats VALUES (1, '9', 'Weather', '2025-03-01 08:00:00', 'a');
    INSERT INTO messages VALUES
      (1, 1, 'user', 'How warm is it in Berlin?', NULL, '2025-03-01 08:00:00'),
      (2, 1, 'assistant', '', '{"tool_calls": [{"id": "call_1", "function": {"name": "get_weather", "arguments": "{\"city\": \"Berlin\"}"}}]}', '2025-03-01 08:00:01'),
      (3, 1, 'assistant', '{"t": 3}', '{"tool_call_id": "call_1", "tool_name": "get_weather", "status": "success"}', '2025-03-01 08:00:02'),
      (4, 1, 'assistant', 'Three degrees.', NULL, '2025-03-01 08:00:03'),
      (5, 1, 'ghost', 'Who?', NULL, '2025-03-01 08:00:04');
    INSERT INTO tool_call VALUES
      (1, 1, 'get_weather', 'call_1', 'fc_1', '{"city": "Berlin"}', '{"t": 3}', 'completed', '2025-03-01 08:00:01'),
      (2, 1, 'send_mail', 'fc_2', 'fc_2', '{"to": "x"}', NULL, 'in_progress', '2025-03-01 08:00:02'),
      (3, NULL, 'fetch', NULL, NULL, '{}', NULL, 'failed', '2025-03-01 08:00:03');
"#;

#[expect(clippy::disallowed_methods, reason = "the test writes as the older program")]
fn old_file(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("old.db");
    Connection::open(&path).unwrap().execute_batch(OLDER).unwrap();
    path
}

async fn old_postgres() -> String {
    let url = fresh_database();
    connect(&url).await.batch_execute(OLDER).await.unwrap();
    url
}

async fn import(store: &dyn Store, tenant_id: Uuid, source: &LegacySource, dry_run: bool) -> Result<LegacyReport, LegacyError> {
    store.import_legacy(LegacyImport { source: source.clone(), tenant_id, user_id: None, max_state_bytes: 1000, dry_run }).await
}

/// The imported rows as text, without what differs by tenant.
async fn imported(store: &dyn Store, tenant: Uuid) -> Vec<String> {
    let [conversation] = &store.conversations(tenant, ConversationFilter::default(), Page::default()).await.unwrap()[..] else {
        panic!("one conversation")
    };
    let mut lines = vec![format!(
        "{} {} {:?} {}",
        conversation.title,
        conversation.user_id,
        canonical_json(&serde_json::to_string(&conversation.state).unwrap()),
        conversation.updated_at
    )];
    for message in store.messages(tenant, conversation.id, Page::default()).await.unwrap() {
        lines.push(format!(
            "{:?} {} {} {:?} {:?} {}",
            message.seq,
            message.role,
            message.content,
            message.tool_calls.as_deref().map(canonical_json),
            message.status,
            message.created_at
        ));
    }
    for call in store.calls(tenant, CallFilter::default(), Page::default()).await.unwrap() {
        lines.push(format!(
            "{} {} {:?} {:?} {:?} {:?} {}",
            call.tool_name, call.status, call.call_id, call.item_id, call.request, call.error_code, call.step
        ));
    }
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_databases_import_alike_from_both_sources() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system(0);
    let (postgres, _, ()) = fresh().await;
    let sqlite: Arc<dyn Store> = SqliteStore::open(folder.path().join("w.db"), &clock, crate::story::MODULES).unwrap();
    let stores: [Arc<dyn Store>; 2] = [postgres, sqlite];
    let sources = [LegacySource::Sqlite(old_file(&folder)), LegacySource::Postgres(old_postgres().await)];
    let mut outcomes = Vec::new();
    for (store, name) in stores.iter().zip(["p", "s"]) {
        for (source, from) in sources.iter().zip(["sqlite", "postgres"]) {
            let tenant = clock.new_id();
            store.ensure_tenant(tenant, format!("{name}-{from}"), clock.now()).await.unwrap();
            let dry = import(store.as_ref(), tenant, source, true).await.unwrap();
            let report = import(store.as_ref(), tenant, source, false).await.unwrap();
            assert_eq!(dry, report, "{name} from {from}: a dry run reports the same");
            assert_eq!(report.written.values().sum::<u64>() + u64::try_from(report.skipped.len()).unwrap(), 1 + 4 + 3 + 2, "{report:?}");
            let again = import(store.as_ref(), tenant, source, false).await.unwrap();
            assert_eq!(again.written.values().sum::<u64>(), 0, "{again:?}");
            outcomes.push((report, imported(store.as_ref(), tenant).await));
        }
    }
    for (report, lines) in &outcomes {
        assert_eq!(lines, &outcomes[0].1);
        assert_eq!((&report.read, &report.written, &report.skipped), (&outcomes[0].0.read, &outcomes[0].0.written, &outcomes[0].0.skipped));
    }
    let (postgres, tenant) = (&stores[0], stores[0].tenants().await.unwrap()[0].id);
    let calls = postgres.calls(tenant, CallFilter::default(), Page::default()).await.unwrap();
    let mail = calls.iter().find(|call| call.tool_name == "send_mail").unwrap();
    assert_eq!((mail.status, mail.error_code.as_deref(), mail.call_id.as_deref()), (CallStatus::Failed, Some("outcome_unknown"), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_for_an_unusable_source_has_no_password() {
    let (store, clock, ()) = fresh().await;
    let nowhere = LegacySource::Postgres("postgres://me:hidden@127.0.0.1:1/old".to_owned());
    let error = import(store.as_ref(), clock.new_id(), &nowhere, false).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1/old") && !error.contains("hidden"), "{error}");
    assert!(!format!("{nowhere:?}").contains("hidden"));
    let empty = LegacySource::Postgres(fresh_database());
    let error = import(store.as_ref(), clock.new_id(), &empty, false).await.unwrap_err().to_string();
    assert!(error.contains("neither messages nor tool_calls"), "{error}");
}
