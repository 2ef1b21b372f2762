use std::path::PathBuf;

use werkruf_contract::Clock;
use werkruf_store::{Installation, SqliteStore};

use super::{Expected, audit, open};
use crate::seed::{self, SeedStore};
use crate::stage::Database;

async fn seeded(name: &str) -> (PathBuf, Expected) {
    let folder = std::env::temp_dir().join(format!("werkruf-audit-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("a.db");
    let clock = Clock::system(0);
    let store = SqliteStore::open(&file, &clock, crate::seed::MODULES).unwrap();
    store.ensure_tenant(clock.new_id(), "demo".to_owned(), clock.now()).await.unwrap();
    drop(store);
    let seed_store = SeedStore::open(&Database::File(file.clone())).await.unwrap();
    let mut expected = seed::calls(&seed_store, 30).await.unwrap();
    let past = seed::past();
    seed::history(&seed_store, &[clock.new_id(), clock.new_id()], &past).await.unwrap();
    expected.older_messages(2 * past.len() as u64);
    (file, expected)
}

#[tokio::test]
async fn seeded_rows_are_correct_and_counted() {
    let (file, expected) = seeded("sound").await;
    assert_eq!(audit(&Database::File(file.clone()), &expected).await.unwrap(), Vec::<String>::new());
    let mut more = expected;
    more.turns(1, 1);
    assert_eq!(audit(&Database::File(file.clone()), &more).await.unwrap().len(), 11);
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[tokio::test]
async fn every_damage_is_detected() {
    let (file, expected) = seeded("damage").await;
    let damages = [
        ("UPDATE turns SET status = 'failed' WHERE rowid = 1", "completed turns"),
        ("UPDATE tool_calls SET attempt = 2 WHERE rowid = 1", "calls that succeeded at the first attempt"),
        ("UPDATE leases SET owner = 'x' WHERE epoch > 0", "leases still held"),
        ("DELETE FROM events WHERE type = 'init'", "init events"),
        ("UPDATE messages SET tool_call_id = 'other' WHERE tool_call_id = 'seed_3'", "calls whose result does not follow directly"),
        ("UPDATE messages SET seq = seq + 1000 WHERE role = 'user'", "conversations with gaps in their message numbers"),
        ("UPDATE messages SET seq = NULL WHERE role = 'user'", "messages without a number"),
    ];
    for (sql, what) in damages {
        let copy = file.with_file_name("copy.db");
        std::fs::copy(&file, &copy).unwrap();
        damage(&copy, sql);
        let deviations = audit(&Database::File(copy.clone()), &expected).await.unwrap();
        assert!(deviations.iter().any(|line| line.starts_with(what)), "{sql}: {deviations:?}");
    }
    assert!(open(&file.with_file_name("nothing.db")).is_err());
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the test damages the file itself")]
fn damage(file: &std::path::Path, sql: &str) {
    assert!(rusqlite::Connection::open(file).unwrap().execute(sql, []).unwrap() > 0, "{sql}");
}
