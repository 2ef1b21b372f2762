//! Backup, restore and erasure, through the real binary.

use crate::support::Place;

fn holds(place: &Place, needle: &str) -> bool {
    ["data/werkruf.db", "data/werkruf.db-wal"].iter().any(|name| {
        std::fs::read(place.path().join(name)).is_ok_and(|bytes| bytes.windows(needle.len()).any(|part| part == needle.as_bytes()))
    })
}

#[test]
fn a_backup_beside_the_server_is_restored_without_it() {
    let place = Place::new().with("WERKRUF_TEST_TOOLS", "1");
    assert_eq!(place.run(&["backup", "b.db", "--json"]).exits(1).error()["code"], "not_found", "no database is made for it");
    let server = place.serve(&[]);
    let made = place.run(&["backup", "b.db", "--json"]).exits(0).json();
    assert!(made["rows"]["users"].as_u64() == Some(6) && made["bytes"].as_u64() > Some(0), "{made}");
    assert_eq!(place.run(&["backup", "b.db", "--json"]).exits(1).error()["code"], "file_exists");
    assert_eq!(place.run(&["restore", "b.db", "--force", "--json"]).exits(1).error()["code"], "database_in_use");
    server.signal("-TERM");
    assert!(server.ended().success());
    assert_eq!(place.run(&["restore", "b.db", "--json"]).exits(1).error()["code"], "file_exists");
    let restored = place.run(&["restore", "b.db", "--force", "--json"]).exits(0).json();
    assert_eq!(restored["held"]["turns"], 0);
    assert!(std::path::Path::new(&place.path().join(restored["kept"].as_str().unwrap())).exists(), "{restored}");
    place.file("letter.txt", "no database at all");
    assert_eq!(place.run(&["restore", "letter.txt", "--force", "--json"]).exits(1).error()["code"], "backup_invalid");
    place.run(&["backup", "c.db"]).exits(0);
}

#[test]
fn a_person_is_erased_from_the_files_and_again_after_a_restore() {
    const CANARY: &str = "CANARY-7f3a";
    let place = Place::new().with("WERKRUF_TEST_TOOLS", "1");
    let server = place.serve(&[]);
    place.run(&["chat", CANARY, "--user", "3"]).exits(0);
    place.run(&["tools", "call", "test_echo", "--input", &format!("{{\"value\": \"{CANARY}\"}}"), "--user", "3"]).exits(0);
    place.run(&["chat", "NEIGHBOUR-7f3b", "--user", "4"]).exits(0);
    place.run(&["backup", "b.db"]).exits(0);
    assert!(holds(&place, CANARY) && holds(&place, "Clara"));
    let erased = place.run(&["people", "erase", "3", "--json"]).exits(0).json();
    assert_eq!((erased["compacted"].as_bool(), erased["conversations"].as_u64()), (Some(true), Some(1)), "{erased}");
    assert!(!holds(&place, CANARY) && !holds(&place, "Clara") && holds(&place, "NEIGHBOUR-7f3b"));
    assert_eq!(place.run(&["people", "erase", "77", "--json"]).exits(1).error()["code"], "not_found");
    place.run(&["calls", "list", "--json"]).exits(0);
    server.signal("-TERM");
    assert!(server.ended().success());
    assert_eq!(place.run(&["restore", "b.db", "--force", "--json"]).exits(0).json()["erased_again"], 1);
    assert!(!holds(&place, CANARY) && holds(&place, "NEIGHBOUR-7f3b"));
}
