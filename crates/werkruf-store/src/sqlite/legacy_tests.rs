//! Imports of other programs' files: messages of seed 001, and calls of seeds 000 and 004, in all their variants.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use serde_json::{Value, json};
use werkruf_contract::{CallKind, CallStatus, Clock, Runner, Uuid};

use crate::sqlite::SqliteStore;
use crate::{
    CallFilter, CallRow, ConversationFilter, Installation, Legacy, LegacyError, LegacyImport, LegacyReport, LegacySource, ManagePeople,
    MessageRow, Page, PeopleBatch, Records,
};

struct Fixture {
    store: Arc<SqliteStore>,
    tenant: Uuid,
    folder: tempfile::TempDir,
}

impl Fixture {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::system(0);
        let store = SqliteStore::open(folder.path().join("w.db"), &clock, crate::story::MODULES).unwrap();
        let tenant = clock.new_id();
        store.ensure_tenant(tenant, "demo".to_owned(), clock.now()).await.unwrap();
        let people: PeopleBatch = serde_json::from_value(json!({"users": [
            {"id": 3, "first_name": "Clara", "last_name": "", "locale": "de-DE", "external_id": "11111111-1111-4111-8111-111111111111"}]}))
        .unwrap();
        store.put_people(tenant, people).await.unwrap();
        Self { store, tenant, folder }
    }

    #[expect(clippy::disallowed_methods, reason = "the test plays the older program")]
    fn source(&self, name: &str, sql: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        path
    }

    async fn import(&self, source: &Path, dry_run: bool) -> Result<LegacyReport, LegacyError> {
        let import = LegacyImport {
            source: LegacySource::Sqlite(source.to_owned()),
            tenant_id: self.tenant,
            user_id: None,
            max_state_bytes: 1000,
            dry_run,
        };
        self.store.import_legacy(import).await
    }

    async fn messages(&self, conversation: Uuid) -> Vec<MessageRow> {
        self.store.messages(self.tenant, conversation, Page::default()).await.unwrap()
    }

    async fn calls(&self) -> Vec<CallRow> {
        self.store.calls(self.tenant, CallFilter::default(), Page::default()).await.unwrap()
    }

    /// Every row that an import can touch, as text.
    #[expect(clippy::disallowed_methods, reason = "the test looks at the file itself")]
    fn everything(&self) -> Vec<String> {
        let file = Connection::open(self.store.path()).unwrap();
        let mut out = Vec::new();
        for table in ["conversations", "leases", "messages", "turns", "tool_calls", "events"] {
            let mut statement = file.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let width = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                out.push((0..width).map(|at| format!("{:?}|", row.get_ref(at).unwrap())).collect());
            }
        }
        out
    }
}

fn written(report: &LegacyReport, table: &str) -> u64 {
    report.written.get(table).copied().unwrap_or_default()
}

/// Every row that was read was written or was skipped with a reason.
fn adds_up(report: &LegacyReport) {
    for (theirs, ours) in
        [("conversations", "conversations"), ("chats", "conversations"), ("tool_calls", "tool_calls"), ("tool_call", "tool_calls")]
    {
        let Some(read) = report.read.get(theirs) else { continue };
        let skipped = report.skipped.iter().filter(|row| row.table == theirs).count() as u64;
        let implied = u64::from(theirs == "conversations" && written(report, ours) > *read);
        assert_eq!(written(report, ours) + skipped, read + implied, "{theirs}: {report:?}");
    }
}

const CONVERSATIONS: &str = "CREATE TABLE conversations (id INTEGER PRIMARY KEY, user_id TEXT, title TEXT, created_at TEXT, plan TEXT);
    INSERT INTO conversations VALUES (1, '3', 'First', '2025-01-01 10:00:00', 'gold'), (2, 'unknown', NULL, '2025-01-02T10:00:00Z', NULL);";

/// Seed 004's table, with this value for `call_id`.
fn registry(call_id: &str, rows: &str) -> String {
    format!(
        "{CONVERSATIONS}
         CREATE TABLE tool_calls (id BIGINT PRIMARY KEY, conversation_id BIGINT NOT NULL, type VARCHAR(50) NOT NULL, name VARCHAR(255) NOT NULL,
           {call_id} item_id VARCHAR(255), arguments_json CLOB, result_json CLOB, status VARCHAR(50) NOT NULL, output_index INT,
           created_at TIMESTAMP NOT NULL);
         INSERT INTO tool_calls VALUES {rows};"
    )
}

#[tokio::test]
async fn call_ids_of_the_provider_are_kept_and_invented_ones_are_not() {
    let fixture = Fixture::open().await;
    let source = fixture.source(
        "old.db",
        &registry(
            "call_id VARCHAR(255) NOT NULL,",
            r#"(1, 1, 'function_call', 'get_weather', 'call_abc', 'fc_1', '{"city": "Berlin"}', '{"t": 3}', 'completed', 2, '2025-01-01 10:00:01'),
               (2, 1, 'mcp_call', 'fetch', 'mcp_9', 'mcp_9', '{}', 'plain text', 'COMPLETED', 0, '2025-01-01 10:00:02'),
               (3, 1, 'web_search_call', 'web_search', '', 'ws_1', NULL, NULL, 'failed', NULL, '2025-01-01 10:00:03'),
               (4, 2, 'function_call', 'book', 'call_abc', NULL, '{"broken":', NULL, 'in_progress', 0, '2025-01-02 10:00:00')"#,
        ),
    );
    let report = fixture.import(&source, false).await.unwrap();
    assert_eq!((written(&report, "conversations"), written(&report, "tool_calls")), (2, 4));
    assert_eq!(report.read, [("conversations".to_owned(), 2), ("tool_calls".to_owned(), 4)].into_iter().collect());
    adds_up(&report);
    let calls = fixture.calls().await;
    let ids: Vec<_> = calls.iter().map(|call| (call.call_id.as_deref(), call.item_id.as_deref())).collect();
    assert_eq!(ids, [(Some("call_abc"), Some("fc_1")), (None, Some("mcp_9")), (None, Some("ws_1")), (Some("call_abc"), None)]);
    assert_eq!(
        calls.iter().map(|call| call.kind).collect::<Vec<_>>(),
        [CallKind::Function, CallKind::Mcp, CallKind::WebSearch, CallKind::Function]
    );
    assert_eq!(
        calls.iter().map(|call| call.runner).collect::<Vec<_>>(),
        [Runner::Server, Runner::Provider, Runner::Provider, Runner::Server]
    );
    assert_eq!((calls[0].status, calls[0].output_index, calls[0].step), (CallStatus::Succeeded, 2, 1));
    assert_eq!(
        (calls[0].request.as_deref(), calls[0].raw_arguments.as_deref()),
        (Some(r#"{"city":"Berlin"}"#), Some(r#"{"city": "Berlin"}"#))
    );
    assert_eq!((calls[0].response.as_deref(), calls[1].response.as_deref()), (Some(r#"{"t":3}"#), Some("\"plain text\"")));
    assert!(calls[1].meta.as_deref().unwrap().contains(r#""call_id":"mcp_9""#), "kept, but not as a call id of the provider");
    assert_eq!((calls[2].status, calls[2].error_code.as_deref()), (CallStatus::Failed, Some("upstream_error")));
    assert_eq!((calls[3].status, calls[3].error_code.as_deref()), (CallStatus::Failed, Some("outcome_unknown")), "it will never end");
    assert_eq!((calls[3].request.as_deref(), calls[3].raw_arguments.as_deref()), (None, Some(r#"{"broken":"#)));
    assert!(calls.iter().all(|call| call.finished_at.is_some()));
    let mine = fixture.store.conversations(fixture.tenant, ConversationFilter::of("3"), Page::default()).await.unwrap();
    assert_eq!((mine.len(), mine[0].title.as_str()), (1, "First"));
    let whole = fixture.store.conversation(fixture.tenant, mine[0].id).await.unwrap().unwrap();
    assert_eq!(whole.state["imported"]["plan"], "gold", "a column without a counterpart is kept");
}

#[tokio::test]
async fn calls_without_call_ids_are_imported_too() {
    let fixture = Fixture::open().await;
    let row = r#"'function_call', 'get_weather', {} 'fc_1', '{}', '{}', 'completed', 0, '2025-01-01 10:00:01'"#;
    let nullable =
        fixture.source("nullable.db", &registry("call_id VARCHAR(255) NULL,", &format!("(1, 1, {})", row.replace("{}", "NULL,"))));
    // The same text in both: only the placeholder differs.
    let without = registry("", &format!("(7, 1, {})", row.replacen("{} ", "", 1)));
    let without = fixture.source("without.db", &without);
    for source in [&nullable, &without] {
        let report = fixture.import(source, false).await.unwrap();
        assert_eq!(written(&report, "tool_calls"), 1, "{report:?}");
        adds_up(&report);
    }
    let calls = fixture.calls().await;
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call.call_id.is_none() && call.item_id.as_deref() == Some("fc_1")));
    assert_eq!(calls.iter().map(|call| call.step).collect::<Vec<_>>(), [1, 2], "the same conversation, the next step");
}

#[tokio::test]
async fn importing_again_changes_nothing_and_a_dry_run_reports_the_same() {
    let fixture = Fixture::open().await;
    let sql = registry(
        "call_id VARCHAR(255),",
        "(1, 1, 'function_call', 'a', 'c1', 'f1', '{}', '{}', 'completed', 0, '2025-01-01 10:00:01'),
         (2, 9, 'function_call', 'b', NULL, NULL, NULL, NULL, 'queued', NULL, '2025-01-03 10:00:01')",
    );
    let sql = format!(
        "{sql} CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation_id INTEGER, role TEXT, content TEXT, created_at TEXT, metadata TEXT);
         INSERT INTO messages VALUES (1, 1, 'user', 'hi', '2025-01-01 10:00:00', NULL), (2, 1, 'assistant', 'hello', '2025-01-01 10:00:05', '{{}}'),
           (3, 1, 'chef', '?', '2025-01-01 10:00:06', NULL), (4, NULL, 'user', '?', NULL, NULL);
         CREATE TABLE users (id INTEGER); INSERT INTO users VALUES (1), (2);"
    );
    let source = fixture.source("old.db", &sql);
    let before = fixture.everything();
    let dry = fixture.import(&source, true).await.unwrap();
    assert_eq!(fixture.everything(), before, "a dry run writes nothing");
    let real = fixture.import(&source, false).await.unwrap();
    assert_eq!(dry, real);
    adds_up(&real);
    assert_eq!((written(&real, "conversations"), written(&real, "messages"), written(&real, "tool_calls")), (3, 2, 2));
    let reasons: Vec<(&str, &Value)> = real.skipped.iter().map(|row| (row.table.as_str(), &row.id)).collect();
    assert_eq!(reasons, [("users", &Value::Null), ("messages", &json!(3)), ("messages", &json!(4))]);
    let after = fixture.everything();
    let again = fixture.import(&source, false).await.unwrap();
    assert_eq!(fixture.everything(), after);
    assert_eq!(again.written.values().sum::<u64>(), 0);
    adds_up(&again);
    // The other program continued meanwhile: only new rows are imported.
    let more = fixture.source("old.db", "INSERT INTO messages VALUES (5, 1, 'user', 'more', '2025-01-04 10:00:00', NULL);");
    let report = fixture.import(&more, false).await.unwrap();
    assert_eq!((report.written.values().sum::<u64>(), written(&report, "messages")), (1, 1));
    let first = fixture.store.conversations(fixture.tenant, ConversationFilter::of("3"), Page::default()).await.unwrap()[0].id;
    let numbered: Vec<_> = fixture.messages(first).await.into_iter().map(|row| (row.seq, row.content)).collect();
    assert_eq!(numbered, [(Some(1), "hi".to_owned()), (Some(2), "hello".to_owned()), (Some(3), "more".to_owned())]);
}

#[tokio::test]
async fn tool_data_moves_from_metadata_into_the_columns() {
    let fixture = Fixture::open().await;
    let conversation = "22222222-2222-4222-8222-222222222222";
    let source = fixture.source(
        "old.db",
        &format!(
            r#"CREATE TABLE conversations (id TEXT PRIMARY KEY, user_id TEXT);
            INSERT INTO conversations VALUES ('{conversation}', '11111111-1111-4111-8111-111111111111');
            CREATE TABLE messages (id TEXT PRIMARY KEY, created_at TEXT, conversation_id TEXT, content TEXT, role TEXT, metadata TEXT, liked INTEGER);
            INSERT INTO messages VALUES
              ('aaaaaaaa-0000-4000-8000-000000000001', '2025-01-01T00:00:01Z', '{conversation}', 'Show it', 'user', '{{"ip": "::1"}}', 1),
              ('aaaaaaaa-0000-4000-8000-000000000002', '2025-01-01T00:00:02Z', '{conversation}', 'I look.', 'assistant',
                '{{"tool_calls": [{{"id": "call_1", "name": "look", "args": {{"a": 1}}}},
                   {{"id": "call_2", "type": "function", "function": {{"name": "see", "arguments": "{{\"b\": 2}}"}}, "result": {{"n": 0}}}}], "model": "m"}}', NULL),
              ('aaaaaaaa-0000-4000-8000-000000000003', '2025-01-01T00:00:03Z', '{conversation}', 'a cat', 'assistant',
                '{{"tool_call_id": "call_1", "tool_name": "look", "status": "success"}}', NULL),
              ('aaaaaaaa-0000-4000-8000-000000000004', '2025-01-01T00:00:04Z', '{conversation}', 'A cat.', 'assistant', NULL, NULL),
              ('aaaaaaaa-0000-4000-8000-000000000005', '2025-01-01T00:00:05Z', '{conversation}', '', 'assistant',
                '{{"toolCalls": "[{{\"name\": \"look\", \"arguments\": \"{{broken\", \"error\": \"bad\"}}, {{\"id\": \"call_1\", \"name\": \"look\"}}]",
                   "tool_results": [{{"tool_call_id": "call_1", "content": "again"}}]}}', NULL);"#
        ),
    );
    let report = fixture.import(&source, false).await.unwrap();
    assert_eq!((report.read["messages"], written(&report, "messages")), (5, 8), "three results stood inside others");
    assert!(report.skipped.is_empty(), "{report:?}");
    let rows = fixture.messages(Uuid::parse_str(conversation).unwrap()).await;
    let listed: Vec<_> =
        rows.iter().map(|row| (row.role.as_str(), row.content.as_str(), row.tool_name.as_deref(), row.status.as_deref())).collect();
    assert_eq!(
        listed,
        [
            ("user", "Show it", None, None),
            ("assistant", "I look.", None, None),
            ("tool", r#"{"n":0}"#, Some("see"), Some("success")),
            ("tool", "a cat", Some("look"), Some("success")),
            ("assistant", "A cat.", None, None),
            ("assistant", "", None, None),
            ("tool", "bad", Some("look"), Some("error")),
            ("tool", "again", Some("look"), Some("success")),
        ]
    );
    assert_eq!(
        rows[1].tool_calls.as_deref(),
        Some(r#"[{"id":"call_1","name":"look","args":{"a":1}},{"id":"call_2","name":"see","args":{"b": 2}}]"#)
    );
    assert_eq!((rows[2].tool_call_id.as_deref(), rows[3].tool_call_id.as_deref()), (Some("call_2"), Some("call_1")));
    let calls: Value = serde_json::from_str(rows[5].tool_calls.as_deref().unwrap()).unwrap();
    assert_eq!(calls[0]["args"], "{broken", "damage stays what it was");
    assert_eq!(rows[6].tool_call_id.as_deref(), calls[0]["id"].as_str());
    assert_ne!(calls[1]["id"], "call_1", "an id is used once");
    assert_eq!(rows[7].tool_call_id.as_deref(), calls[1]["id"].as_str());
    let metadata: Value = serde_json::from_str(&rows[0].metadata).unwrap();
    assert_eq!((&metadata["ip"], &metadata["imported"]["liked"]), (&json!("::1"), &json!(1)));
    assert!(rows[1].metadata.contains("\"model\":\"m\""));
    let owner = fixture.store.conversation(fixture.tenant, rows[0].conversation_id).await.unwrap().unwrap().user_id;
    assert_eq!(owner, "3", "known by the external id");
}

#[tokio::test]
async fn calls_of_seed_000_and_columns_of_seed_001_are_imported() {
    let fixture = Fixture::open().await;
    let source = fixture.source(
        "old.db",
        r#"CREATE TABLE chats (id TEXT PRIMARY KEY, title TEXT);
        INSERT INTO chats VALUES ('33333333-3333-4333-8333-333333333333', 'Old');
        CREATE TABLE tool_call (id TEXT PRIMARY KEY, chat_id TEXT, tool_name TEXT NOT NULL, status TEXT NOT NULL, request TEXT, response TEXT, error TEXT,
          dedupe_key TEXT, created_at TEXT, updated_at TEXT, started_at TEXT, finished_at TEXT);
        INSERT INTO tool_call VALUES
          ('44444444-4444-4444-8444-444444444444', '33333333-3333-4333-8333-333333333333', 'search_flights', 'succeeded', '{"origin":"FRA"}', '{"n":1}', NULL,
            'abc', '2025-01-01T00:00:00Z', '2025-01-01T00:00:09Z', '2025-01-01T00:00:01Z', '2025-01-01T00:00:02Z'),
          ('55555555-5555-4555-8555-555555555555', NULL, 'search_flights', 'timeout', NULL, NULL, 'too late', NULL, '2025-01-01T00:00:00Z', NULL, NULL, NULL);
        CREATE TABLE messages (id TEXT, created_at TEXT, conversation_id TEXT, content TEXT, role TEXT, tool_calls TEXT, tool_call_id TEXT, tool_name TEXT,
          status TEXT, metadata TEXT);
        INSERT INTO messages VALUES
          (NULL, '2025-01-01T00:00:00Z', '33333333-3333-4333-8333-333333333333', '', 'assistant', '[{"id": "call_123", "name": "t", "args": {}}]', NULL, NULL, NULL, '{}'),
          (NULL, '2025-01-01T00:00:01Z', '33333333-3333-4333-8333-333333333333', 'no', 'tool', NULL, 'call_123', 't', 'error', '{}');"#,
    );
    let report = fixture.import(&source, false).await.unwrap();
    assert_eq!((written(&report, "conversations"), written(&report, "messages"), written(&report, "tool_calls")), (1, 2, 2));
    adds_up(&report);
    let calls = fixture.calls().await;
    assert_eq!(calls[0].id.to_string(), "44444444-4444-4444-8444-444444444444");
    assert_eq!((calls[0].dedupe_key.as_deref(), calls[0].meta.as_deref().unwrap().contains("\"dedupe_key\":\"abc\"")), (None, true));
    assert_eq!(calls[0].finished_at.unwrap().to_string(), "2025-01-01T00:00:02Z");
    assert_eq!((calls[1].conversation_id, calls[1].status, calls[1].error.as_deref()), (None, CallStatus::Timeout, Some("too late")));
    let rows = fixture.messages(calls[0].conversation_id.unwrap()).await;
    assert_eq!((rows[1].tool_call_id.as_deref(), rows[1].status.as_deref()), (Some("call_123"), Some("error")));
    assert_eq!(fixture.import(&source, false).await.unwrap().written.values().sum::<u64>(), 0, "rows without ids are recognized too");
}

#[tokio::test]
async fn a_file_cannot_claim_more_rows_than_it_has() {
    let fixture = Fixture::open().await;
    let refused = async |name: &str, sql: &str| match fixture.import(&fixture.source(name, sql), true).await {
        Err(LegacyError::Source { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let rows =
        "INSERT INTO messages (content) WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000) SELECT n FROM n;";
    let generated = "CREATE TABLE messages (content TEXT, more TEXT GENERATED ALWAYS AS (hex(zeroblob(100000000))) VIRTUAL);";
    let why = refused("generated.db", &format!("{generated}{rows}")).await;
    assert!(why.contains("messages") && why.contains("more is generated"), "{why}");
    // Rows that were written before the column was added have its default value, which the file stores once.
    let added = format!("ALTER TABLE messages ADD COLUMN more TEXT DEFAULT '{}';", "x".repeat(100_000));
    let why = refused("default.db", &format!("CREATE TABLE messages (content TEXT);{rows}{added}")).await;
    assert!(why.contains("more memory than the file"), "{why}");
    // A view is no table.
    let view = "CREATE VIEW messages AS SELECT hex(zeroblob(100000000)) AS content;";
    assert!(refused("view.db", view).await.contains("neither"));
}

#[tokio::test]
async fn a_state_that_is_too_large_is_left_out() {
    let fixture = Fixture::open().await;
    let states = format!(r#"('a', '{{"kept": 1}}'), ('b', '{{"large": "{}"}}')"#, "x".repeat(1000));
    let source = fixture.source(
        "old.db",
        &format!(
            "CREATE TABLE messages (id TEXT); CREATE TABLE conversations (id TEXT, state TEXT); INSERT INTO conversations VALUES {states};"
        ),
    );
    let report = fixture.import(&source, false).await.unwrap();
    assert_eq!(written(&report, "conversations"), 2);
    let skipped: Vec<_> = report.skipped.iter().map(|row| (row.table.as_str(), row.id.clone(), &row.reason[..15])).collect();
    assert_eq!(skipped, [("conversations.state", json!("b"), "state_too_large")]);
    let listed = fixture.store.conversations(fixture.tenant, ConversationFilter::default(), Page::default()).await.unwrap();
    let mut states = Vec::new();
    for row in listed {
        states.push(fixture.store.conversation(fixture.tenant, row.id).await.unwrap().unwrap().state);
    }
    states.sort_by_key(|state| state.len());
    assert!(states[0].is_empty() && states[1]["kept"] == 1, "{states:?}");
}

#[tokio::test]
async fn files_that_are_not_a_source_are_refused() {
    let fixture = Fixture::open().await;
    let why = async |path: &Path| match fixture.import(path, false).await {
        Err(LegacyError::Source { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(&fixture.folder.path().join("nowhere.db")).await.contains("no such file"));
    let text = fixture.folder.path().join("text");
    std::fs::write(&text, "not a database, but long enough to be taken for one without a check").unwrap();
    assert!(why(&text).await.contains("not a database"));
    assert!(why(&fixture.source("empty.db", "CREATE TABLE a (n)")).await.contains("neither"));
    assert!(why(fixture.store.path()).await.contains("itself"));
    let other = Fixture::open().await;
    assert!(why(other.store.path()).await.contains("werkruf"));
}
