//! A restored database has no pending work, a valid history, and no person who was erased after the backup.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use werkruf_contract::{CallStatus, Clock, EventType, TurnStatus};

use super::super::SqliteStore;
use super::super::migrate::beside;
use super::open;
use crate::story::{Running, World, a_release_starts_with_the_first_held_part, fill_outbox, held_rows_are_released, three_parts};
use crate::{
    Author, ConversationRef, HeldWork, Maintenance, MaintenanceError, OpenTurn, ReadLimit, Records, SecretKeys, StoreError, Streams, Turns,
};

struct Fixture {
    world: World<SqliteStore>,
    folder: TempDir,
    backup: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::system(0);
        let store = SqliteStore::open(folder.path().join("w.db"), &clock, crate::story::MODULES).unwrap();
        Self { world: World::new(store, clock), backup: folder.path().join("copy.db"), folder }
    }

    async fn back_up(&self) {
        self.world.store.back_up(self.backup.clone(), false).await.unwrap();
    }

    fn restore(&self, name: &str, force: bool) -> Result<crate::Restored, MaintenanceError> {
        SqliteStore::restore(
            &self.backup,
            &self.folder.path().join(name),
            force,
            &*self.world.closer(),
            &self.world.clock,
            crate::story::MODULES,
            &SecretKeys::default(),
        )
    }

    fn open(&self, name: &str) -> Arc<SqliteStore> {
        SqliteStore::open(self.folder.path().join(name), &self.world.clock, crate::story::MODULES).unwrap()
    }
}

async fn acting(world: &World<SqliteStore>) -> Running {
    let running = world.talk().await;
    world.act(&running, &[world.call(&running, 0)]).await;
    let waiting = ConversationRef::Existing { id: running.conversation, any_user: false };
    let waiting = OpenTurn { start: false, ..world.opening(waiting, "and then?") };
    world.store.open_turn(waiting).await.unwrap();
    running
}

#[tokio::test]
async fn pending_work_is_ended_and_the_history_is_valid() {
    let fixture = Fixture::new();
    let (world, tenant) = (&fixture.world, fixture.world.tenant);
    let running = acting(world).await;
    fixture.back_up().await;
    let restored = fixture.restore("new.db", false).unwrap();
    assert_eq!(restored.held, HeldWork { turns: 2, calls: 1, approvals: 0, outbox: 0 });
    let store = fixture.open("new.db");
    assert!(store.unfinished_turns("process-2".to_owned()).await.unwrap().is_empty());
    let turn = store.turn(tenant, running.turn).await.unwrap().unwrap();
    assert_eq!((turn.status, turn.error_code.as_deref(), turn.finished_at.is_some()), (TurnStatus::Failed, Some("Restored"), true));
    let calls = store.calls(tenant, crate::CallFilter::default(), crate::Page::default()).await.unwrap();
    let ended: Vec<_> = calls.iter().map(|call| (call.status, call.finished_at.is_some())).collect();
    assert_eq!(ended, [(CallStatus::Failed, true)]);
    let history = store.history(tenant, running.conversation).await.unwrap();
    let roles: Vec<_> = history.iter().map(|message| (message.role.as_str(), message.tool_call_id.as_deref())).collect();
    assert_eq!(roles, [("user", None), ("assistant", None), ("tool", Some("call_0")), ("user", None)]);
    let events = store.events(tenant, running.conversation, None, 0, ReadLimit::rows(100)).await.unwrap();
    assert!(events.iter().map(|event| event.seq).eq(1..=i64::try_from(events.len()).unwrap()), "no gaps");
    assert_eq!(events.iter().filter(|event| event.kind == EventType::Error).count(), 2);
    drop(store);

    // Nothing is pending now: another restore changes only the setting `restored_at`.
    let store = fixture.open("new.db");
    let second = fixture.folder.path().join("second.db");
    let before = store.back_up(second.clone(), false).await.unwrap();
    let again = SqliteStore::restore(
        &second,
        &fixture.folder.path().join("third.db"),
        false,
        &*world.closer(),
        &world.clock,
        crate::story::MODULES,
        &SecretKeys::default(),
    )
    .unwrap();
    assert_eq!((again.held, again.rows), (HeldWork::default(), before.rows));
}

#[tokio::test]
async fn rows_of_the_outbox_are_held_until_their_release() {
    let fixture = Fixture::new();
    let rows = fill_outbox(&fixture.world).await;
    fixture.back_up().await;
    let restored = fixture.restore("new.db", false).unwrap();
    assert_eq!(restored.held, HeldWork { outbox: 2, ..HeldWork::default() });
    assert_eq!((restored.rows["outbox"], restored.rows["contacts"]), (3, 1));
    held_rows_are_released(World { store: fixture.open("new.db"), ..fixture.world.clone() }, rows).await;
}

#[tokio::test]
async fn a_released_part_does_not_leave_before_earlier_ones() {
    let fixture = Fixture::new();
    let parts = three_parts(&fixture.world).await;
    fixture.back_up().await;
    fixture.restore("new.db", false).unwrap();
    a_release_starts_with_the_first_held_part(World { store: fixture.open("new.db"), ..fixture.world.clone() }, parts).await;
}

#[tokio::test]
async fn an_open_or_existing_database_is_not_overwritten() {
    let fixture = Fixture::new();
    fixture.back_up().await;
    let refused = fixture.restore("w.db", true);
    assert!(matches!(refused, Err(MaintenanceError::Store(StoreError::InUse(_)))), "{refused:?}");
    fixture.restore("new.db", false).unwrap();
    assert!(matches!(fixture.restore("new.db", false), Err(MaintenanceError::Exists(_))));
    let kept = fixture.restore("new.db", true).unwrap().kept.unwrap();
    assert!(kept.exists() && fixture.open("new.db").path().exists());
    let mut bytes = std::fs::read(&fixture.backup).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0x5a);
    std::fs::write(&fixture.backup, bytes).unwrap();
    let damaged = fixture.restore("other.db", false);
    assert!(matches!(damaged, Err(MaintenanceError::Unfit { .. } | MaintenanceError::Store(_))), "{damaged:?}");
    assert!(!fixture.folder.path().join("other.db").exists() && !fixture.folder.path().join("other.db.restoring").exists());
}

#[tokio::test]
async fn a_backup_of_an_unreleased_build_is_named_and_not_restored() {
    let fixture = Fixture::new();
    fixture.back_up().await;
    // A migration with other SQL under its number, and then a record without parts.
    for sql in ["UPDATE schema_migrations SET checksum = 'other'", "ALTER TABLE schema_migrations RENAME COLUMN part TO name_of_part"] {
        open::writable(&fixture.backup).unwrap().execute_batch(sql).unwrap();
        let refused = fixture.restore("new.db", false);
        let backup = fixture.backup.display().to_string();
        assert!(matches!(&refused, Err(MaintenanceError::Store(StoreError::Prerelease(named))) if *named == backup), "{refused:?}");
        assert!(!fixture.folder.path().join("new.db").exists() && !fixture.folder.path().join("new.db.restoring").exists());
    }
}

#[tokio::test]
async fn later_erasures_are_repeated() {
    let fixture = Fixture::new();
    let world = &fixture.world;
    let running = world.talk().await;
    world.complete(&running).await;
    fixture.back_up().await;
    let store = &world.store;
    store.erase_person(world.tenant, "1".to_owned(), false, world.closer(), Author::server(), world.clock.now()).await.unwrap().unwrap();
    let list = |name: &str| beside(&fixture.folder.path().join(name), ".erased.jsonl");
    std::fs::copy(list("w.db"), list("new.db")).unwrap();
    assert_eq!(fixture.restore("new.db", false).unwrap().erased_again, 1);
    let restored = fixture.open("new.db");
    assert!(restored.history(world.tenant, running.conversation).await.unwrap().is_empty());
    // A backup made after the erasure has its record, so a person who was created again stays.
    let later = fixture.folder.path().join("later.db");
    restored.back_up(later.clone(), false).await.unwrap();
    drop(restored);
    let target = fixture.folder.path().join("new.db");
    assert_eq!(
        SqliteStore::restore(&later, &target, true, &*world.closer(), &world.clock, crate::story::MODULES, &SecretKeys::default())
            .unwrap()
            .erased_again,
        0
    );
}
