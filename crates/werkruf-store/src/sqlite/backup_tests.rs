//! A backup under load is complete; only an older backup is ever replaced.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use werkruf_contract::Clock;

use super::super::SqliteStore;
use super::verify;
use crate::story::World;
use crate::{Diagnostics, Maintenance, MaintenanceError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system(0);
    let store = SqliteStore::open(folder.path().join("w.db"), &clock, crate::story::MODULES).unwrap();
    let world = World::new(Arc::clone(&store), clock.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (world, stop) = (world.clone(), Arc::clone(&stop));
        writers.spawn(async move {
            while !stop.load(Ordering::Acquire) {
                let running = world.talk().await;
                world.complete(&running).await;
            }
        });
    }
    let target = folder.path().join("copy.db");
    let before = store.counts().commits;
    let mut last = 0;
    // Continues until turns have ended during the copies, so that there was load.
    while last == 0 || store.counts().commits < before + 64 {
        let made = store.back_up(target.clone(), true).await.unwrap();
        assert_eq!(verify(&target).unwrap(), (made.schema, made.rows.clone()));
        assert!(made.rows["turns"] >= last && made.bytes > 0);
        last = made.rows["turns"].max(1);
    }
    stop.store(true, Ordering::Release);
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!folder.path().join("copy.db.part").exists());
    SqliteStore::open(&target, &clock, crate::story::MODULES).unwrap();
}

#[tokio::test]
async fn only_a_backup_is_replaced_and_only_with_force() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("w.db"), &Clock::system(0), crate::story::MODULES).unwrap();
    let target = folder.path().join("copy.db");
    store.back_up(target.clone(), false).await.unwrap();
    let again = store.back_up(target.clone(), false).await;
    assert!(matches!(again, Err(MaintenanceError::Exists(_))), "{again:?}");
    store.back_up(target, true).await.unwrap();
    let letter = folder.path().join("letter.txt");
    std::fs::write(&letter, "dear reader, this is no database").unwrap();
    for target in [letter.clone(), store.path().to_owned(), "relative.db".into()] {
        let refused = store.back_up(target.clone(), true).await;
        assert!(matches!(refused, Err(MaintenanceError::Unfit { .. })), "{}: {refused:?}", target.display());
    }
    assert_eq!(std::fs::read_to_string(letter).unwrap(), "dear reader, this is no database");
}
