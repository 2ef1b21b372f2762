//! Erasing, holding and moving, with every kind of row in the tables.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use werkruf_contract::{CallStatus, Clock, Effect, TurnStatus, Uuid};

use super::PostgresStore;
use super::flush::DbRole;
use super::param::p;
use super::row::{all, only};
use super::story_tests::fresh;
use crate::story::{Notes, Store, World, a_release_starts_with_the_first_held_part, fill_outbox, held_rows_are_released, three_parts};
use crate::{
    ApprovalFilter, Approvals, Author, CallFilter, Cluster, Installation, Maintenance, MaintenanceError, ManagePeople, NewApproval, Outbox,
    OutboxFilter, Page, People, PeopleBatch, PeopleEdit, PeopleKind, Records, Retention, SqliteStore, StoreError, Turns,
};

async fn world() -> World<PostgresStore> {
    let (store, clock, ()) = fresh().await;
    World::new(store, clock)
}

fn people() -> PeopleBatch {
    serde_json::from_value(json!({
        "branches": [{"id": 1, "name": "North", "time_zone": "Europe/Berlin"}],
        "roles": [{"id": 1, "name": "clerk", "permissions": [{"entity": "requests", "entity_type": "table", "access": "read", "scope": "own"}]}],
        "users": [{"id": 1, "first_name": "Clara", "last_name": "Secret", "email": "clara@secret", "locale": "de-DE", "branch_id": 1,
                   "role_ids": [1], "external_id": "ext-secret"}]
    }))
    .unwrap()
}

/// A turn that has ended, one with an open `once` call, and one that waits.
async fn fill<S: Store>(world: &World<S>) -> Uuid {
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    world.store.put_people(world.tenant, people()).await.unwrap();
    let done = world.talk().await;
    let call = world.call(&done, 0);
    world.act(&done, std::slice::from_ref(&call)).await;
    world.finish_call(&done, &call).await;
    world.complete(&done).await;
    let reservation = world.reservation(&[world.worst(&world.calls_per_day(9).await, 1)]);
    let open = world.begin(world.within(world.new_conversation(), &reservation).await).await;
    let mut call = world.call(&open, 0);
    call.effect = Effect::Once;
    world.act(&open, std::slice::from_ref(&call)).await;
    let behind = world.opening(crate::ConversationRef::Existing { id: open.conversation, any_user: false }, "and a secret");
    world.store.open_turn(behind).await.unwrap();
    world.store.release(open.fence.clone()).await.unwrap();
    call.id
}

async fn text_of_everything(store: &PostgresStore) -> String {
    let sql = "SELECT class.relname::text FROM pg_class AS class WHERE relnamespace = 'werkruf'::regnamespace AND relkind = 'r'";
    let mut everything = String::new();
    for table in all(&store.query(DbRole::System, sql, &[]).await.unwrap(), |columns| columns.text()).unwrap() {
        let sql = format!("SELECT coalesce(json_agg(found)::text, '') FROM {table} AS found");
        everything += &only(&store.query(DbRole::System, &sql, &[]).await.unwrap(), |columns| columns.text()).unwrap();
    }
    everything
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_erased_from_every_table() {
    let world = world().await;
    fill(&world).await;
    let (store, tenant) = (&world.store, world.tenant);
    fill_outbox(&world).await;
    assert!(text_of_everything(store).await.contains("wamid-secret"));
    let windows = async || {
        let rows = store.query(DbRole::System, "SELECT subject FROM rate_windows ORDER BY subject", &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
    };
    for subject in ["turns/user/1", "requests/user/1", "requests/user/11", "requests/user/a/user/1"] {
        store.take_tokens(tenant, subject.to_owned(), 1, 10).await.unwrap();
    }
    let busy = store.erase_person(tenant, "1".to_owned(), false, world.closer(), Author::server(), world.clock.now()).await;
    assert!(matches!(busy, Err(MaintenanceError::Store(StoreError::Busy))), "{busy:?}");
    assert_eq!(store.unfinished_turns_of(tenant, "1".to_owned()).await.unwrap().len(), 2);
    let erased =
        store.erase_person(tenant, "1".to_owned(), true, world.closer(), Author::server(), world.clock.now()).await.unwrap().unwrap();
    assert_eq!((erased.conversations, erased.turns, erased.calls), (3, 3, 2), "with the conversation of the contact");
    assert!(erased.messages >= 6, "{erased:?}");
    assert_eq!(windows().await, ["requests/user/11", "requests/user/a/user/1"]);
    store.delete_expired(world.clock.now()).await.unwrap();
    assert_eq!(windows().await, ["requests/user/11", "requests/user/a/user/1"], "the current minute");
    store.query(DbRole::System, "UPDATE rate_windows SET window_start = window_start - interval '3 minutes'", &[]).await.unwrap();
    store.delete_expired(world.clock.now()).await.unwrap();
    assert_eq!(windows().await, [""; 0]);
    let left = text_of_everything(store).await;
    for text in ["secret", "Clara", "hello", "status\\\":"] {
        assert!(!left.contains(text), "{text} is left");
    }
    assert!(left.contains(&format!("erased:{tenant}:1")));
    assert!(store.unfinished_turns_of(tenant, "1".to_owned()).await.unwrap().is_empty());
    let unknown = store.erase_person(tenant, "77".to_owned(), true, world.closer(), Author::server(), world.clock.now()).await.unwrap();
    assert_eq!(unknown, None);
    let refused = store.back_up("/tmp/x".into(), false).await.unwrap_err().to_string();
    assert!(refused.contains("pg_dump"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_work_is_ended_and_not_resumed() {
    let world = world().await;
    let once = fill(&world).await;
    let (store, tenant) = (&world.store, world.tenant);
    let working = world.talk().await;
    let busy = store.hold_pending(false, world.closer(), world.clock.now()).await;
    assert!(matches!(busy, Err(MaintenanceError::Store(StoreError::Busy))), "a server has a valid lease: {busy:?}");
    let approval = NewApproval {
        id: world.id(),
        call_id: world.id(),
        tool_name: "pay".to_owned(),
        server_label: None,
        arguments: "{}".to_owned(),
        arguments_digest: "d".to_owned(),
        approver_roles: vec!["clerk".to_owned()],
        taint: None,
        asked_by: "1".to_owned(),
        asked_key: "key:1".to_owned(),
        retried_by: None,
        expires_at: world.now,
    };
    let mut write = world.to_write(&working);
    write.approvals = vec![approval];
    store.write(write).await.unwrap();
    let rows = fill_outbox(&world).await;
    let held = store.hold_pending(true, world.closer(), world.clock.now()).await.unwrap();
    assert_eq!((held.turns, held.calls, held.approvals, held.outbox), (3, 1, 1, 2));
    let call = store.call(tenant, once).await.unwrap().unwrap();
    assert_eq!((call.status, call.finished_at.is_some()), (CallStatus::Failed, true));
    assert!(store.unfinished_turns("any process".to_owned()).await.unwrap().is_empty());
    let turn = store.turn(tenant, call.turn_id).await.unwrap().unwrap();
    assert_eq!((turn.status, turn.error_code.as_deref()), (TurnStatus::Failed, Some("Restored")));
    let approvals = store.approvals(tenant, ApprovalFilter::default(), Page::default()).await.unwrap();
    assert_eq!(approvals[0].status.as_str(), "canceled");
    assert_eq!(world.uses().await, [(String::new(), 2, 0)], "what the turns had reserved is released");
    // The stale owner can write nothing more, and every call has its one result.
    assert!(matches!(store.write(world.to_write(&working)).await, Err(StoreError::Fenced)));
    let history = store.history(tenant, call.conversation_id.unwrap()).await.unwrap();
    let roles: Vec<&str> = history.iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    assert_eq!(store.hold_pending(false, world.closer(), world.clock.now()).await.unwrap().turns, 0, "nothing is left for a second time");
    held_rows_are_released(world.clone(), rows).await;
    let parts = three_parts(&world).await;
    store.hold_pending(true, world.closer(), world.clock.now()).await.unwrap();
    a_release_starts_with_the_first_held_part(world, parts).await;
}

fn sqlite(path: &Path) -> (Arc<SqliteStore>, Clock) {
    let clock = Clock::system(0);
    (SqliteStore::open(path, &clock, crate::story::MODULES).unwrap(), clock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_moves_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.db");
    let (store, clock) = sqlite(&file);
    let from = World::new(store, clock.clone());
    fill(&from).await;
    from.store.put_notes(from.tenant, &[(7, 1, None)]).await;
    let [_, doubtful, _] = fill_outbox(&from).await;
    let sending = from.find(from.tenant, doubtful).await;
    let running = from.talk().await;
    let mut write = from.to_write(&running);
    write.messages = vec![from.message("assistant", "with a \0 in it, ä and \"quotes\"")];
    write.state_patches = vec![serde_json::from_value(json!({"b": 1.50, "a": {"z": [1e2, null], "y": "\u{0}"}})).unwrap()];
    from.store.write(write).await.unwrap();
    let (tenant, conversation) = (from.tenant, running.conversation);
    let calls = from.store.calls(tenant, CallFilter::default(), Page::default()).await.unwrap();

    let (target, _, ()) = fresh().await;
    let held = target.import_sqlite(file.clone(), clock.clone()).await;
    assert!(matches!(held, Err(MaintenanceError::Store(StoreError::InUse(_)))), "{held:?}");
    drop(from);
    let moved = target.import_sqlite(file.clone(), clock.clone()).await.unwrap();
    assert_eq!((moved.tables["messages"].rows, moved.tables["tool_calls"].rows, moved.tables["tenants"].rows), (9, 2, 1));
    assert_eq!((moved.tables["users"].rows, moved.tables["notes"].rows, moved.tables["note_labels"].rows), (1, 1, 1));
    let of_channels = ["outbox", "outbox_lanes", "contacts", "inbox"].map(|table| moved.tables[table].rows);
    assert_eq!(of_channels, [3, 2, 1, 3]);
    assert_eq!(target.outbox(tenant, OutboxFilter::of_id(doubtful), Page::default()).await.unwrap().pop(), sending);
    assert!(!moved.tables.contains_key("note_claims"), "only PostgreSQL has the table");
    let letters = target.query(DbRole::System, "SELECT letters FROM notes", &[]).await.unwrap();
    assert_eq!(only(&letters, |columns| columns.int()).unwrap(), 4, "a column that only PostgreSQL has, set after the move");
    assert_eq!(target.calls(tenant, CallFilter::default(), Page::default()).await.unwrap(), calls);
    let history = target.history(tenant, conversation).await.unwrap();
    assert_eq!(history.last().unwrap().content, "with a \u{fffd} in it, ä and \"quotes\"");
    let person = target.principal(tenant, "1".to_owned()).await.unwrap().unwrap();
    assert_eq!((person.name.as_str(), person.permissions.len()), ("Clara Secret", 1));
    // A released turn is found by the next process at once; one with an owner only when its lease has expired.
    assert_eq!(target.unfinished_turns("next".to_owned()).await.unwrap().len(), 2);

    let again = target.import_sqlite(file.clone(), clock.clone()).await;
    assert!(matches!(again, Err(MaintenanceError::NotEmpty(_))), "{again:?}");
    let nowhere = target.import_sqlite(folder.path().join("no.db"), clock.clone()).await;
    assert!(nowhere.is_err() && !folder.path().join("no.db").exists());
    // The file is unchanged: it can be moved into another database too.
    let (second, _, ()) = fresh().await;
    assert_eq!(second.import_sqlite(file, clock).await.unwrap(), moved);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_fails_in_the_middle_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.db");
    let (store, clock) = sqlite(&file);
    let from = World::new(store, clock.clone());
    fill(&from).await;
    drop(from);
    let (target, _, ()) = fresh().await;
    // A trigger that changes the rows that arrive: the digests must differ.
    let mut client = target.acquire().await.unwrap();
    let spoil = "CREATE FUNCTION werkruf.spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.content := NEW.content || '!'; RETURN NEW; END $$;
                 CREATE TRIGGER spoil BEFORE INSERT ON werkruf.messages FOR EACH ROW EXECUTE FUNCTION werkruf.spoil()";
    let client: &mut tokio_postgres::Client = &mut client;
    client.batch_execute(spoil).await.unwrap();
    let spoilt = target.import_sqlite(file, clock).await.unwrap_err().to_string();
    assert!(spoilt.contains("messages"), "{spoilt}");
    let none = Uuid::nil();
    let rows = target.query(DbRole::System, "SELECT count(*) FROM tenants WHERE id <> $1", &[p(&none)]).await.unwrap();
    assert_eq!(only(&rows, |columns| columns.int()).unwrap(), 0, "nothing is half-written");
}

/// An edit that has read the person and then has to wait, while the person is erased.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_does_not_undo_an_erasure() {
    let world = world().await;
    world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
    world.store.put_people(world.tenant, people()).await.unwrap();
    let rival = world.store.acquire().await.unwrap();
    rival.batch_execute("SET search_path TO werkruf; SET ROLE werkruf_system; BEGIN").await.unwrap();
    rival.query_typed("SELECT 1 FROM branches FOR UPDATE", &[]).await.unwrap();
    let (erased, waits) = (AtomicBool::new(false), async |count: i64, or: &AtomicBool| {
        let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
        while world.store.query(DbRole::System, sql, &[]).await.unwrap()[0].get::<_, i64>(0) < count && !or.load(Ordering::SeqCst) {}
    });
    let change = PeopleEdit::Change { id: 1, fields: json!({"phone": "+34 600 111 222"}).to_string() };
    let edit = world.store.edit_people(world.tenant, PeopleKind::User, change, Author::server(), world.now);
    let erase = async {
        waits(1, &AtomicBool::new(false)).await;
        let erase = world.store.erase_person(world.tenant, "1".to_owned(), false, world.closer(), Author::server(), world.now);
        assert!(erase.await.unwrap().is_some());
        erased.store(true, Ordering::SeqCst);
    };
    let release = async {
        waits(2, &erased).await;
        rival.batch_execute("ROLLBACK").await.unwrap();
    };
    let (edited, (), ()) = tokio::join!(edit, erase, release);
    edited.unwrap().unwrap();
    drop(deadpool_postgres::Object::take(rival));
    let left = text_of_everything(&world.store).await;
    assert!(!left.contains("Secret") && !left.contains("600 111 222"), "{left}");
}
