//! Deleted text is in no file any more, also not in the WAL.

use std::sync::Arc;

use werkruf_contract::Clock;

use super::super::SqliteStore;
use super::super::migrate::beside;
use crate::story::World;
use crate::{Retention, Sweep, Sweepable};

#[tokio::test]
async fn deleted_text_is_removed_from_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let (path, clock) = (folder.path().join("w.db"), Clock::system(0));
    let store = SqliteStore::open(&path, &clock, crate::story::MODULES).unwrap();
    let mut world = World::new(Arc::clone(&store), clock);
    let text = "Quittengelee mit Senf";
    let old = world.begin(world.opening(world.new_conversation(), text)).await;
    world.complete(&old).await;
    let before = world.later(1_000);
    world.talk().await;
    let found = || {
        [path.clone(), beside(&path, "-wal")].iter().any(|file| {
            let bytes = std::fs::read(file).unwrap_or_default();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    };
    assert!(found(), "it was there");
    for dry_run in [true, false] {
        let sweep = Sweep { rows: Sweepable::Messages, before, now: world.now, dry_run };
        let swept = store.sweep(sweep, None).await.unwrap();
        assert_eq!((swept.rows, swept.conversations, found()), (2, u64::from(!dry_run), dry_run));
    }
}
