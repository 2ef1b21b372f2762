//! Backup, restore and erasure with the real binary.

use serde_json::json;

use crate::support::TestFolder;

fn contains(folder: &TestFolder, needle: &str) -> bool {
    ["data/werkruf.db", "data/werkruf.db-wal"].iter().any(|name| {
        std::fs::read(folder.path().join(name)).is_ok_and(|bytes| bytes.windows(needle.len()).any(|part| part == needle.as_bytes()))
    })
}

#[test]
fn a_backup_is_made_beside_a_server_and_restored_without_one() {
    let folder = TestFolder::new().with("WERKRUF_TEST_TOOLS", "1");
    assert_eq!(folder.run(&["backup", "b.db", "--json"]).exits(1).error()["code"], "not_found", "no database is made for it");
    let server = folder.serve(&[]);
    let made = folder.run(&["backup", "b.db", "--json"]).exits(0).json();
    assert!(made["rows"]["users"].as_u64() == Some(6) && made["bytes"].as_u64() > Some(0), "{made}");
    assert_eq!(folder.run(&["backup", "b.db", "--json"]).exits(1).error()["code"], "file_exists");
    assert_eq!(folder.run(&["restore", "b.db", "--force", "--json"]).exits(1).error()["code"], "database_in_use");
    server.signal("-TERM");
    assert!(server.ended().success());
    assert_eq!(folder.run(&["restore", "b.db", "--json"]).exits(1).error()["code"], "file_exists");
    let restored = folder.run(&["restore", "b.db", "--force", "--json"]).exits(0).json();
    assert_eq!(restored["held"]["turns"], 0);
    assert!(std::path::Path::new(&folder.path().join(restored["kept"].as_str().unwrap())).exists(), "{restored}");
    folder.file("letter.txt", "no database at all");
    assert_eq!(folder.run(&["restore", "letter.txt", "--force", "--json"]).exits(1).error()["code"], "backup_invalid");
    folder.run(&["backup", "c.db"]).exits(0);
}

#[test]
fn a_restore_without_the_key_of_the_backup_warns_until_the_key_is_in_place() {
    let (folder, elsewhere) = (TestFolder::new(), TestFolder::new());
    folder.run(&["keys", "create", "--scopes", "chat"]).exits(0);
    folder.run(&["backup", "b.db"]).exits(0);
    let backup = folder.path().join("b.db");
    let backup = backup.to_str().unwrap();
    let own = folder.run(&["restore", backup, "--force", "--json"]).exits(0);
    assert_eq!((&own.json()["warnings"], own.stderr.contains("key_missing")), (&json!([]), false), "the key is there: {own:?}");
    folder.run(&["audit", "verify"]).exits(0);

    let restored = elsewhere.run(&["restore", backup, "--json"]).exits(0);
    let (answer, place) = (restored.json(), "data/werkruf.db.key");
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("key_missing: ") && warning.contains(place) && warning.contains("--force"), "{warning}");
    assert_eq!(answer["missing_keys"].as_array().unwrap().len(), 1);
    assert!(restored.stderr.contains("key_missing: "), "{restored:?}");
    assert!(elsewhere.run(&["restore", backup, "--force"]).exits(0).stderr.contains("key_missing: "));
    elsewhere.run(&["audit", "verify"]).exits(1);

    std::fs::copy(folder.path().join(place), elsewhere.path().join(place)).unwrap();
    let repaired = elsewhere.run(&["restore", backup, "--force", "--json"]).exits(0);
    assert_eq!((&repaired.json()["warnings"], repaired.stderr.contains("key_missing")), (&json!([]), false), "{repaired:?}");
    elsewhere.run(&["audit", "verify"]).exits(0);
}

#[test]
fn a_user_is_erased_from_the_files_and_again_after_a_restore() {
    const CANARY: &str = "CANARY-7f3a";
    let folder = TestFolder::new().with("WERKRUF_TEST_TOOLS", "1");
    let server = folder.serve(&[]);
    folder.run(&["chat", CANARY, "--user", "3"]).exits(0);
    folder.run(&["tools", "call", "test_echo", "--input", &format!("{{\"value\": \"{CANARY}\"}}"), "--user", "3"]).exits(0);
    folder.run(&["chat", "NEIGHBOUR-7f3b", "--user", "4"]).exits(0);
    folder.run(&["backup", "b.db"]).exits(0);
    assert!(contains(&folder, CANARY) && contains(&folder, "Clara"));
    let erased = folder.run(&["people", "erase", "3", "--json"]).exits(0).json();
    assert_eq!((erased["compacted"].as_bool(), erased["conversations"].as_u64()), (Some(true), Some(1)), "{erased}");
    assert!(!contains(&folder, CANARY) && !contains(&folder, "Clara") && contains(&folder, "NEIGHBOUR-7f3b"));
    assert_eq!(folder.run(&["people", "erase", "77", "--json"]).exits(1).error()["code"], "not_found");
    folder.run(&["calls", "list", "--json"]).exits(0);
    server.signal("-TERM");
    assert!(server.ended().success());
    assert_eq!(folder.run(&["restore", "b.db", "--force", "--json"]).exits(0).json()["erased_again"], 1);
    assert!(!contains(&folder, CANARY) && contains(&folder, "NEIGHBOUR-7f3b"));
}
