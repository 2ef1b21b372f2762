//! `werkruf import` of the real binary. The store's tests cover how each row is imported.

use serde_json::json;

use crate::support::TestFolder;

const OLDER: &str = r#"
    CREATE TABLE conversations (id INTEGER PRIMARY KEY, title TEXT, created_at TEXT);
    CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation_id INTEGER, role TEXT, content TEXT, created_at TEXT, metadata TEXT);
    CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, conversation_id INTEGER, type TEXT, name TEXT, call_id TEXT NOT NULL, item_id TEXT,
      arguments_json TEXT, result_json TEXT, status TEXT, output_index INTEGER, created_at TEXT);
    INSERT INTO conversations VALUES (1, 'Weather', '2025-03-01 08:00:00');
    INSERT INTO messages VALUES (1, 1, 'user', 'How is it in Berlin?', '2025-03-01 08:00:00', NULL),
      (2, 1, 'assistant', '', '2025-03-01 08:00:01', '{"tool_calls": [{"id": "call_1", "name": "get_weather", "args": {"city": "Berlin"}}]}'),
      (3, 1, 'assistant', '{"t": 3}', '2025-03-01 08:00:02', '{"tool_call_id": "call_1", "tool_name": "get_weather", "status": "success"}');
    INSERT INTO tool_calls VALUES
      (1, 1, 'function_call', 'get_weather', 'call_1', 'fc_1', '{"city": "Berlin"}', '{"t": 3}', 'completed', 0, '2025-03-01 08:00:01'),
      (2, 1, 'mcp_call', 'fetch', 'mcp_1', 'mcp_1', '{}', NULL, 'failed', 1, '2025-03-01 08:00:03');
"#;

#[expect(clippy::disallowed_methods, reason = "the test writes the file of the older program")]
fn older_program(folder: &TestFolder) {
    rusqlite::Connection::open(folder.path().join("old.db")).unwrap().execute_batch(OLDER).unwrap();
}

#[test]
fn unusable_sources_have_an_error_code() {
    let folder = TestFolder::new();
    let refused = folder.run(&["import", "--from", "postgres://me:secret@127.0.0.1:1/old", "--json"]).exits(1).error();
    assert_eq!(refused["code"], "source_unusable");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("postgres://127.0.0.1:1/old") && !message.contains("secret"), "{refused}");
    let refused = folder.run(&["import", "--from", "sqlite:nowhere.db", "--json"]).exits(1).error();
    assert_eq!(refused["code"], "source_unusable");
    assert!(refused["message"].as_str().unwrap().contains("no such file"), "{refused}");
    folder.run(&["import", "--from", "nowhere.db"]).exits(2);
    folder.run(&["import"]).exits(2);
}

#[test]
fn an_older_programs_file_is_imported_with_and_without_a_server() {
    let folder = TestFolder::new().with("WERKRUF_SAMPLE_DATA", "on");
    older_program(&folder);
    let dry = folder.run(&["import", "--from", "sqlite:old.db", "--dry-run", "--json"]).exits(0).json();
    assert_eq!(dry["read"], json!({"conversations": 1, "messages": 3, "tool_calls": 2}));
    assert_eq!(dry["written"], json!({"conversations": 1, "messages": 3, "tool_calls": 2}));
    let server = folder.serve(&[]);
    let real = folder.run(&["import", "--from", "sqlite:old.db", "--user", "3", "--json"]).exits(0).json();
    assert_eq!(real, dry);
    let again = folder.run(&["import", "--from", "sqlite:old.db", "--user", "3"]).exits(0);
    assert!(again.stdout.contains("already imported"), "{again:?}");
    drop(server);
    let audit = folder.run(&["audit", "list", "--tenant", "demo", "--json"]).exits(0).json();
    let imports: Vec<_> = audit["audit"].as_array().unwrap().iter().filter(|entry| entry["action"] == "legacy.import").collect();
    assert_eq!(imports.len(), 2, "the dry run is no act");
    let calls = folder.run(&["calls", "list", "--json"]).exits(0).json();
    let ids: Vec<_> =
        calls["tool_calls"].as_array().unwrap().iter().map(|call| (call["call_id"].clone(), call["item_id"].clone())).collect();
    assert_eq!(ids, [(json!(null), json!("mcp_1")), (json!("call_1"), json!("fc_1"))], "the newest first");
    let call = calls["tool_calls"][1]["id"].as_str().unwrap();
    folder.run(&["explain", call]).exits(0);
    let list = folder.run(&["conversations", "list", "--user", "3", "--json"]).exits(0).json();
    let id = list["conversations"][0]["id"].as_str().unwrap();
    let chain = folder.run(&["conversations", "export", id, "--format", "langchain"]).exits(0).json();
    let kinds: Vec<&str> = chain.as_array().unwrap().iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["human", "ai", "tool"]);
}
