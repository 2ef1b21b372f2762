//! `serve`, and commands with and without a server, with the real binary.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Server, TestFolder};
use serde_json::{Value, json};

fn testing() -> TestFolder {
    TestFolder::new().with("WERKRUF_TEST_TOOLS", "1")
}

/// The status of a request with this key.
fn list_tools(server: &Server, key: &str) -> u16 {
    let client = werkruf_llm::http_client(&werkruf_llm::HttpLimits::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = client.get(format!("{}/api/tools", server.address())).bearer_auth(key).send();
    runtime.block_on(request).unwrap().status().as_u16()
}

/// Status and JSON of a request with the printed key: a POST where there is a body.
fn request(server: &Server, path: &str, body: Option<Value>) -> (u16, Value) {
    let client = werkruf_llm::http_client(&werkruf_llm::HttpLimits::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("{}{path}", server.address());
    let request = match body {
        Some(body) => client.post(url).json(&body),
        None => client.get(url),
    };
    runtime.block_on(async {
        let response = request.bearer_auth(server.key()).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    })
}

fn names(tools: &Value) -> Vec<&str> {
    tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn the_first_start_prints_a_key_once() {
    let folder = testing();
    let server = folder.serve(&[]);
    assert!(server.output.contains("Model: offline"), "{}", server.output);
    assert!(server.output.contains("Database: data/werkruf.db"), "{}", server.output);
    assert!(server.output.contains("Approvals: four_eyes is off"), "{}", server.output);
    let link = format!("Console: {}/console/signin?token=", server.address());
    assert!(server.output.lines().nth(1).unwrap().starts_with(&link), "{}", server.output);
    let key = server.key();
    assert!(key.starts_with("wk_"));
    assert_eq!((list_tools(&server, &key), list_tools(&server, "wk_wrong")), (200, 401));
    server.signal("-TERM");
    assert!(server.ended().success());
    let again = folder.serve(&[]);
    assert!(!again.output.contains("curl ") && again.output.contains("werkruf keys create"), "{}", again.output);
    assert_eq!(list_tools(&again, &key), 200, "the first key still works");
}

#[test]
fn the_lock_file_is_private_and_removed_after_an_interrupt() {
    let folder = testing();
    let server = folder.serve(&[]);
    let lock_file = folder.path().join("data/werkruf.db.lock");
    assert_eq!(std::fs::metadata(&lock_file).unwrap().permissions().mode() & 0o777, 0o600);
    let written: Value = serde_json::from_slice(&std::fs::read(&lock_file).unwrap()).unwrap();
    assert_eq!(written["address"], server.address().as_str());
    assert!(written["token"].is_string() && written["pid"].is_u64());
    server.signal("-INT");
    assert!(server.ended().success());
    assert!(!lock_file.exists());
}

#[test]
fn one_server_per_database() {
    let folder = testing();
    let _server = folder.serve(&[]);
    let second = folder.run(&["serve", "--listen", "127.0.0.1:0", "--json"]).exits(1);
    assert_eq!(second.error()["code"], "database_in_use");
    let text = folder.run(&["serve", "--listen", "127.0.0.1:0"]).exits(1);
    assert!(text.stderr.contains("database_in_use"), "{text:?}");
}

/// The file itself is locked, whatever its name is.
#[test]
#[expect(clippy::disallowed_methods, reason = "another program reads the file beside the server")]
fn one_server_per_database_under_every_name() {
    let folder = testing();
    let server = folder.serve(&[]);
    let data = folder.path().join("data");
    std::os::unix::fs::symlink("werkruf.db", data.join("symbolic.db")).unwrap();
    std::fs::hard_link(data.join("werkruf.db"), data.join("hard.db")).unwrap();
    std::fs::remove_file(data.join("werkruf.db.lock")).unwrap();
    std::fs::remove_file(data.join("werkruf.db.lock-held")).unwrap();
    for name in ["symbolic.db", "hard.db", "werkruf.db"] {
        let database = format!("sqlite:data/{name}");
        let second = folder.run(&["serve", "--listen", "127.0.0.1:0", "--database", &database, "--json"]).exits(1);
        assert_eq!(second.error()["code"], "database_in_use", "{name}");
        let command = folder.run(&["calls", "list", "--database", &database, "--json"]).exits(1);
        assert_eq!(command.error()["code"], "database_in_use", "{name}");
    }
    // SQLite's own locks are untouched: others can read, and the server writes.
    let outside = rusqlite::Connection::open_with_flags(data.join("werkruf.db"), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    assert_eq!(outside.query_row("SELECT count(*) FROM turns", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    assert_eq!(call_echo(&server).0, 200);
    assert_eq!(outside.query_row("SELECT count(*) FROM turns", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    server.signal("-TERM");
    assert!(server.ended().success());
    let _again = folder.serve(&["--database", "sqlite:data/symbolic.db"]);
}

/// Calls a tool with the printed key; returns the status and the error's code.
fn call_echo(server: &Server) -> (u16, Value) {
    let body = Some(json!({"input": {"value": 1}}));
    let (status, answer) = request(server, "/api/tools/test_echo/invoke", body);
    (status, answer["error"]["code"].clone())
}

#[test]
fn nothing_is_acknowledged_after_a_file_of_the_database_was_removed() {
    for lost in ["werkruf.db-wal", "werkruf.db"] {
        let folder = testing();
        let server = folder.serve(&[]);
        let data = folder.path().join("data");
        assert_eq!(call_echo(&server), (200, Value::Null));
        let ready = || {
            let (status, answer) = request(&server, "/readyz", None);
            (status, answer["warnings"].to_string().contains("database_replaced"))
        };
        assert_eq!(ready(), (200, false));
        if lost == "werkruf.db" {
            std::fs::copy(data.join(lost), data.join("copy.db")).unwrap();
            std::fs::rename(data.join("copy.db"), data.join(lost)).unwrap();
        } else {
            std::fs::remove_file(data.join(lost)).unwrap();
        }
        assert_eq!(ready(), (503, true), "{lost}");
        for _ in 0..2 {
            assert_eq!(call_echo(&server), (503, "database_replaced".into()), "{lost}");
        }
        server.signal("-TERM");
        assert!(server.ended().success());
        if lost == "werkruf.db-wal" {
            let calls = folder.run(&["calls", "list", "--json"]).exits(0).json();
            assert_eq!(calls["tool_calls"].as_array().unwrap().len(), 1, "what was acknowledged is there: {calls}");
        }
    }
}

#[test]
fn the_lock_file_of_a_killed_server_is_ignored() {
    let folder = testing();
    let server = folder.serve(&[]);
    server.signal("-KILL");
    assert!(!server.ended().success());
    assert!(folder.path().join("data/werkruf.db.lock").exists());
    assert!(names(&folder.run(&["tools", "list", "--json"]).exits(0).json()).contains(&"test_echo"));
    let _again = folder.serve(&[]);
}

#[test]
fn tools_are_called_with_and_without_a_server() {
    let folder = testing();
    let call = ["tools", "call", "test_echo", "--input", "{\"value\": \"hallo\"}", "--json"];
    let local = folder.run(&call).exits(0).json();
    let server = folder.serve(&[]);
    let remote = folder.run(&call).exits(0).json();
    assert_eq!((&local["status"], &local["data"]), (&remote["status"], &remote["data"]));
    assert!(local["data"].to_string().contains("hallo"), "{local}");
    let calls = folder.run(&["calls", "list", "--tool", "test_echo", "--json"]).exits(0).json();
    assert_eq!(calls["tool_calls"].as_array().unwrap().len(), 2, "both are in the same database: {calls}");
    drop(server);
    assert!(folder.run(&["tools", "schema", "test_echo"]).exits(0).json()["properties"]["value"].is_object());
    folder.run(&["tools", "schema", "nothing"]).exits(1);
    folder.run(&["tools", "call", "test_echo", "--input", "{"]).exits(2);
    assert_eq!(folder.run(&["tools", "call", "nothing", "--json"]).exits(1).error()["code"], "unknown_tool");
}

#[test]
fn a_failed_call_is_listed_explained_and_retried() {
    let folder = testing();
    let _server = folder.serve(&[]);
    let failed = folder.run(&["tools", "call", "test_panic", "--json"]).exits(1).json();
    assert_eq!(failed["error"]["code"], "tool_panicked");
    let calls = folder.run(&["calls", "list", "--status", "failed", "--json"]).exits(0).json();
    let id = calls["tool_calls"][0]["id"].as_str().unwrap().to_owned();
    // All but the last character: long enough to be unique, but not the full id.
    let prefix = &id[..id.len() - 1];
    assert_eq!(folder.run(&["calls", "show", prefix, "--json"]).exits(0).json()["id"], id.as_str());
    let explanation = folder.run(&["explain", prefix, "--json"]).exits(0).json();
    for field in ["message", "model_answer", "raw_arguments", "repairs", "arguments", "permission", "attempts", "outcome", "events"] {
        assert!(explanation.get(field).is_some(), "{field} is missing: {explanation}");
    }
    assert!(folder.run(&["explain", &id]).exits(0).stdout.contains("Outcome\n  status: failed"));
    let retried = folder.run(&["calls", "retry", prefix, "--json"]).exits(0).json();
    assert_ne!(retried["job_id"], id.as_str());
    assert_eq!(folder.run(&["calls", "show", "ffffffff", "--json"]).exits(1).error()["code"], "not_found");
    assert!(folder.run(&["calls", "list"]).exits(0).stdout.contains("tool_panicked"));
}

#[test]
fn keys_are_made_listed_used_and_deleted() {
    let folder = testing();
    let server = folder.serve(&[]);
    let made = folder
        .run(&["keys", "create", "--tenant", "demo", "--user", "3", "--scopes", "chat,read,tools", "--name", "c", "--json"])
        .exits(0)
        .json();
    let key = made["key"].as_str().unwrap();
    assert_eq!((&made["user_id"], list_tools(&server, key)), (&json!("3"), 200));
    let listed = folder.run(&["keys", "list", "--json"]).exits(0).json();
    assert!(listed["keys"].as_array().unwrap().iter().any(|row| row["id"] == made["id"]), "{listed}");
    assert!(!listed.to_string().contains(key), "a key is shown once");
    let id = made["id"].as_str().unwrap();
    folder.run(&["keys", "delete", &id[..35]]).exits(0);
    assert_eq!(list_tools(&server, key), 401);
    folder.run(&["keys", "delete", id]).exits(1);
}

#[test]
fn another_server_is_used_with_a_key() {
    let folder = testing();
    let server = folder.serve(&[]);
    let client = TestFolder::new().with("WERKRUF_SERVER", &server.address()).with("WERKRUF_KEY", &server.key());
    assert!(names(&client.run(&["tools", "list", "--json"]).exits(0).json()).contains(&"test_echo"));
    assert!(client.run(&["tools", "call", "test_echo", "--input", "{\"value\": \"da\"}"]).exits(0).stdout.contains("da"));
    assert!(!client.path().join("data").exists(), "no database is made for a named server");
    let wrong_key = TestFolder::new().with("WERKRUF_SERVER", &server.address()).with("WERKRUF_KEY", "wk_wrong");
    wrong_key.run(&["tools", "list"]).exits(1);
}

#[test]
fn a_hangup_reloads_the_tools() {
    let folder = TestFolder::new();
    folder.file("werkruf.toml", "");
    let server = folder.serve(&[]);
    let listed = || folder.run(&["tools", "list", "--json"]).exits(0).json();
    assert!(!names(&listed()).contains(&"fresh"));
    folder.file(
        "werkruf.toml",
        "[[tools]]\nname = 'fresh'\ndescription = 'F.'\nurl = 'http://127.0.0.1:9/'\neffect = 'read'\npermission = 'none'\nparameters = '{\"type\": \"object\"}'\n",
    );
    server.signal("-HUP");
    // A signal has no response; the list is polled until it has changed.
    let reloaded = (0..200).any(|_| names(&listed()).contains(&"fresh"));
    assert!(reloaded);
}

#[test]
fn a_new_database_has_sample_data_unless_configured_otherwise() {
    let call = ["tools", "call", "test_echo", "--input", "{\"value\": \"x\"}", "--user", "6", "--json"];
    let by_default = testing();
    by_default.run(&call).exits(0);
    let off = testing().with("WERKRUF_SAMPLE_DATA", "off");
    assert_eq!(off.run(&call).exits(1).error()["code"], "unknown_user");
    let configured = testing();
    configured.file("werkruf.toml", "disabled_tools = ['test_panic']");
    assert_eq!(configured.run(&call).exits(1).error()["code"], "unknown_user");
    assert!(!names(&configured.run(&["tools", "list", "--json"]).exits(0).json()).contains(&"test_panic"));
    configured.file("werkruf.toml", "sample_data = true");
    configured.run(&call).exits(0);
}

#[test]
fn the_demo_key_does_not_open_a_public_address() {
    let folder = testing();
    let server = folder.serve(&[]);
    let demo = server.key();
    let known = folder.run(&["keys", "list", "--tenant", "demo", "--json"]).exits(0).json();
    let id = known["keys"][0]["id"].as_str().unwrap().to_owned();
    server.signal("-TERM");
    assert!(server.ended().success());
    let public = ["serve", "--listen", "0.0.0.0:0", "--json"];
    let folder = folder.with("WERKRUF_TEST_TOOLS", "0");
    assert_eq!(folder.run(&public).exits(1).error()["code"], "key_required", "there is only {demo}");

    let made = folder.run(&["keys", "rotate", &id, "--overlap", "0", "--json"]).exits(0).json();
    assert_eq!(made["replaces"], json!(id));
    assert!(made["key"].as_str().unwrap().starts_with("wk_"));
    let _server = folder.serve_at("0.0.0.0:0", &[]);
    let flags = [
        "keys",
        "create",
        "--tenant",
        "demo",
        "--user",
        "1",
        "--scopes",
        "chat,approve",
        "--allow-ips",
        "10.0.0.0/8,192.0.2.1",
        "--collection",
        "handbook",
        "--json",
    ];
    let pinned = folder.run(&flags).exits(0).json();
    assert_eq!((&pinned["allow_ips"], &pinned["collection"]), (&json!(["10.0.0.0/8", "192.0.2.1/32"]), &json!("handbook")));
    let listed = folder.run(&["keys", "list", "--tenant", "demo"]).exits(0).stdout;
    assert!(listed.contains("LAST USED"), "{listed}");
    folder.run(&["keys", "revoke", pinned["id"].as_str().unwrap()]).exits(0);
}
