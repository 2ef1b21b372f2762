//! The audit log, the rotation of the key, and the modes of files, with the real binary.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::support::TestFolder;

#[expect(clippy::disallowed_methods, reason = "the test changes the file as somebody who has the machine")]
fn tamper(folder: &TestFolder, sql: &str) {
    rusqlite::Connection::open(folder.path().join("data/werkruf.db")).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_changed_or_cut_off_log_is_found() {
    let folder = TestFolder::new();
    for name in ["one", "two", "three"] {
        folder.run(&["keys", "create", "--scopes", "chat", "--name", name]).exits(0);
    }
    let listed = folder.run(&["audit", "list", "--tenant", "demo", "--json"]).exits(0).json();
    let last = listed["audit"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["action"], &last["after"]["name"], &last["actor"]["operator"]),
        (&json!("key.create"), &json!("three"), &json!(true))
    );
    assert!(folder.run(&["audit", "list"]).exits(0).stdout.contains("key.create"));
    let intact = folder.run(&["audit", "verify", "--json"]).exits(0).json();
    assert_eq!((&intact["intact"], &intact["chains"][0]["signed"]), (&json!(true), &json!(true)));
    folder.run(&["secrets", "rotate"]).exits(0);
    folder.run(&["audit", "verify"]).exits(0);

    let seq = last["seq"].as_i64().unwrap();
    let tenant = intact["chains"][0]["tenant_id"].as_str().unwrap();
    // The tail is cut off, and the head rewritten so that both fit.
    let cut = format!(
        "DELETE FROM audit_entries WHERE tenant_id = '{tenant}' AND seq = {seq};
         UPDATE audit_heads SET seq = {0}, count = {0}, hash = (SELECT hash FROM audit_entries WHERE tenant_id = '{tenant}' AND seq = {0})
         WHERE tenant_id = '{tenant}'",
        seq - 1
    );
    tamper(&folder, &cut);
    let broken = folder.run(&["audit", "verify", "--tenant", "demo", "--json"]).exits(1).json();
    assert_eq!((&broken["intact"], &broken["chains"][0]["break"]["kind"]), (&json!(false), &json!("head")));
    tamper(&folder, &format!("UPDATE audit_entries SET subject = 'x' WHERE tenant_id = '{tenant}' AND seq = 2"));
    let broken = folder.run(&["audit", "verify", "--tenant", "demo"]).exits(1);
    assert!(broken.stdout.contains("entry 2 was changed"), "{broken:?}");
}

#[test]
fn files_are_for_their_owner_whatever_the_umask_is() {
    let folder = TestFolder::new();
    let server = folder.serve(&[]);
    folder.run(&["backup", "copy.db"]).exits(0);
    folder.run(&["secrets", "rotate"]).exits(0);
    let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("data"), 0o700);
    for name in ["werkruf.db", "werkruf.db-wal", "werkruf.db-shm", "werkruf.db.lock", "werkruf.db.lock-held", "werkruf.db.key"] {
        assert_eq!(mode(&format!("data/{name}")), 0o600, "{name}");
    }
    assert_eq!(mode("copy.db"), 0o600);
    server.signal("-TERM");
    assert!(server.ended().success());
}

#[test]
fn a_config_file_that_was_only_found_gets_no_key() {
    let folder = TestFolder::new().with("OPENAI_API_KEY", "sk-of-the-operator");
    folder.file("werkruf.toml", "[model]\nbase_url = 'http://127.0.0.1:9/v1'\nname = 'm'\n");
    let refused = folder.run(&["tools", "list", "--json"]).exits(1).error();
    assert_eq!((&refused["code"], &refused["details"][0]["path"]), (&json!("config_not_named"), &json!("/model/base_url")), "{refused}");
    folder.run(&["keys", "create", "--scopes", "read", "--config", "./werkruf.toml"]).exits(0);
}
