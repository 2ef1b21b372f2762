//! Failures of the network and of the database at bad moments.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::timeout;
use werkruf_contract::{ApprovalStatus, Clock, Deadline, EventType, TurnStatus};

use super::flush::{DbRole, Statement};
use super::param::p;
use super::proxy::{Cut, Proxy};
use super::{PostgresOptions, PostgresStore};
use crate::story::{Running, World};
use crate::testbed::fresh_database;
use crate::{
    Act, Approvals, Audit, AuditLog, Author, ConversationRef, DecisionOutcome, EditRefusal, Installation, ManagePeople, NewApproval,
    NewEvent, Opened, PeopleEdit, PeopleKind, PeopleRow, Records, RequestsOf, StoreError, TurnChange, Turns, UsageRows,
};

pub(super) type Process = World<PostgresStore>;

/// One store behind a proxy that can be cut; without LISTEN and NOTIFY, so that every commit is one of an operation.
pub(super) async fn behind_proxy(pool_size: usize) -> (Process, Proxy) {
    let clock = Clock::system(0);
    let (proxy, url) = Proxy::before(&fresh_database()).await;
    let options = PostgresOptions { pool_size, poll_only: true, ..PostgresOptions::new(url) };
    (World::new(PostgresStore::open(options, &clock, crate::story::MODULES).await.unwrap(), clock), proxy)
}

fn event(kind: EventType) -> NewEvent {
    NewEvent { kind, data: "{}".to_owned() }
}

/// Runs the operation with its first commit cut, and asserts that it was cut.
pub(super) async fn cut<T>(proxy: &Proxy, at: Cut, operation: impl Future<Output = Result<T, StoreError>>) -> T {
    let before = proxy.cuts();
    proxy.cut_next(at);
    let done = operation.await.unwrap();
    assert_eq!(proxy.cuts(), before + 1, "nothing was cut");
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_commits_lost_their_answers_is_written_once() {
    for at in [Cut::Before, Cut::After] {
        let (world, proxy) = behind_proxy(2).await;
        let mut open = world.opening(world.new_conversation(), "hello");
        (open.inbox, open.events) = (Some(world.inbox("k", "body")), vec![event(EventType::Init), event(EventType::Debug)]);
        let turn = open.turn_id;
        let opened = cut(&proxy, at, world.store.open_turn(open)).await;
        let Opened::Stored { fence: Some(fence), event_seqs, .. } = opened else { panic!("{at:?}: {opened:?}") };
        assert_eq!((fence.epoch, event_seqs), (1, vec![1, 2]), "{at:?}");
        let running = Running { conversation: fence.stream_id, fence, turn };

        let mut write = world.to_write(&running);
        (write.messages, write.usage) = (vec![world.message("assistant", "one")], vec![world.usage()]);
        write.events = vec![event(EventType::ToolStarted)];
        write.state_patches = vec![std::iter::once(("a".to_owned(), 1.into())).collect()];
        let written = cut(&proxy, at, world.store.write(write)).await;
        assert_eq!(
            (written.event_seqs, written.state.unwrap()["a"].as_i64(), written.cancel_requested),
            (vec![3], Some(1), false),
            "{at:?}"
        );

        let mut last = world.to_write(&running);
        last.messages = vec![world.message("assistant", "done")];
        last.events = vec![event(EventType::Final)];
        last.turn = Some(TurnChange { status: TurnStatus::Completed, step: 1, error: None, message: None, transcript_digest: None });
        assert_eq!(cut(&proxy, at, world.store.write(last)).await.event_seqs, [4], "{at:?}");
        let history = world.store.history(world.tenant, running.conversation).await.unwrap();
        assert_eq!(
            history.iter().map(|m| (m.seq, m.content.as_str())).collect::<Vec<_>>(),
            [(Some(1), "hello"), (Some(2), "one"), (Some(3), "done")]
        );
        assert_eq!(world.store.turn_usage(world.tenant, turn, RequestsOf::Turn).await.unwrap().model_calls, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_turn_is_recognised_after_the_next_turn_has_written() {
    let (world, _proxy) = behind_proxy(2).await;
    let first = world.talk().await;
    let mut end = world.to_write(&first);
    end.events = vec![event(EventType::Final)];
    end.turn = Some(TurnChange { status: TurnStatus::Completed, step: 1, error: None, message: None, transcript_digest: None });
    let first_answer = world.store.write(end.clone()).await.unwrap();
    let next = world.begin(world.opening(ConversationRef::Existing { id: first.conversation, any_user: false }, "next")).await;
    world.store.write(world.to_write(&next)).await.unwrap();
    assert_eq!(world.store.write(end.clone()).await.unwrap(), first_answer, "the same write again");
    end.id = world.id();
    end.now = world.now.checked_add(SignedDuration::from_millis(1)).unwrap();
    assert!(matches!(world.store.write(end).await, Err(StoreError::Fenced)), "another write is fenced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_outside_a_running_turn_are_done_once_too() {
    for at in [Cut::Before, Cut::After] {
        let (world, proxy) = behind_proxy(2).await;
        let first = world.talk().await;
        let wait = async || {
            let mut open = world.opening(ConversationRef::Existing { id: first.conversation, any_user: false }, "and?");
            open.start = false;
            let turn = open.turn_id;
            let opened = cut(&proxy, at, world.store.open_turn(open)).await;
            assert!(matches!(opened, Opened::Stored { fence: None, .. }), "{opened:?}");
            turn
        };
        let (second, third) = (wait().await, wait().await);
        let canceled = cut(&proxy, at, world.store.cancel_waiting(world.tenant, second, world.cancellation())).await;
        assert_eq!(canceled, Some(4), "{at:?}");
        cut(&proxy, at, world.store.release(first.fence.clone())).await;
        let fence = cut(&proxy, at, world.store.take_over(world.tenant, first.turn, "me".to_owned(), world.now)).await;
        let row = world.store.turn(world.tenant, first.turn).await.unwrap().unwrap();
        assert_eq!(row.takeovers, 0, "{at:?}: it was released");
        world.complete(&Running { fence, ..first.clone() }).await;
        let fence = cut(&proxy, at, world.store.start_turn(world.tenant, third, "me", world.now)).await;
        world.complete(&Running { fence, turn: third, ..first.clone() }).await;
        assert!(cut(&proxy, at, world.store.delete_conversation(world.tenant, first.conversation)).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_whose_answer_was_lost_counts_once() {
    for at in [Cut::Before, Cut::After] {
        let (world, proxy) = behind_proxy(2).await;
        let running = world.talk().await;
        let call = world.call(&running, 0);
        let approval = NewApproval {
            id: world.id(),
            call_id: call.id,
            tool_name: "send".to_owned(),
            server_label: None,
            arguments: "{}".to_owned(),
            arguments_digest: "d".to_owned(),
            approver_roles: vec!["boss".to_owned()],
            taint: None,
            asked_by: "1".to_owned(),
            asked_key: "key:1".to_owned(),
            retried_by: None,
            expires_at: world.now.checked_add(SignedDuration::from_hours(1)).unwrap(),
        };
        let mut write = world.to_write(&running);
        (write.calls, write.approvals) = (vec![call], vec![approval.clone()]);
        world.store.write(write).await.unwrap();
        let decide = || world.store.decide(world.tenant, approval.id, world.decision(ApprovalStatus::Approved));
        let decided = cut(&proxy, at, decide()).await;
        assert!(matches!(decided, Some(DecisionOutcome::Decided(_))), "{at:?}: {decided:?}");
        assert!(matches!(decide().await.unwrap(), Some(DecisionOutcome::AlreadyDecided(_))), "a second decision finds the first");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_act_whose_answer_was_lost_is_recorded_once() {
    for at in [Cut::Before, Cut::After] {
        let (world, proxy) = behind_proxy(2).await;
        let record = |subject: &str| world.store.record(world.tenant, Author::server(), Act::new("config.reload", subject), world.now);
        cut(&proxy, at, record("one")).await;
        // Not an attempt of the same write.
        record("one").await.unwrap();
        cut(&proxy, at, record("two")).await;
        let entries = world.store.audit_entries(world.tenant, 0, 10).await.unwrap();
        let subjects: Vec<_> = entries.iter().map(|entry| (entry.seq, entry.subject.as_str())).collect();
        assert_eq!(subjects, [(1, "one"), (2, "one"), (3, "two")], "{at:?}");
        assert_eq!(world.store.audit_head(world.tenant).await.unwrap().map(|head| (head.seq, head.count)), Some((3, 3)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_of_people_whose_answer_was_lost_counts_once() {
    for at in [Cut::Before, Cut::After] {
        let (world, proxy) = behind_proxy(2).await;
        world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
        let edit = |edit| world.store.edit_people(world.tenant, PeopleKind::Role, edit, Author::server(), world.now);
        let create = |name: &str| edit(PeopleEdit::Create { fields: format!("{{\"name\": \"{name}\"}}") });
        let id = |edited: Result<PeopleRow, EditRefusal>| edited.map(|row| row.id());
        assert_eq!(id(cut(&proxy, at, create("one")).await), Ok(1));
        assert_eq!(id(cut(&proxy, at, create("two")).await), Ok(2));
        let named = || edit(PeopleEdit::Create { fields: "{\"id\": 9, \"name\": \"nine\"}".to_owned() });
        assert_eq!(id(cut(&proxy, at, named()).await), Ok(9));
        assert_eq!(id(named().await.unwrap()), Err(EditRefusal::Taken(9)), "another request");
        let (change, later) =
            (PeopleEdit::Change { id: 2, fields: "{\"name\": \"three\"}".to_owned() }, world.now + SignedDuration::from_secs(1));
        let change = world.store.edit_people(world.tenant, PeopleKind::Role, change, Author::server(), later);
        assert_eq!(id(cut(&proxy, at, change).await), Ok(2));
        assert_eq!(id(cut(&proxy, at, edit(PeopleEdit::Delete { id: 9 })).await), Ok(9));
        assert_eq!(id(edit(PeopleEdit::Delete { id: 9 }).await.unwrap()), Err(EditRefusal::Unknown));
        let entries = world.store.audit_entries(world.tenant, 0, 10).await.unwrap();
        let acts: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.subject.as_str())).collect();
        assert_eq!(acts, [("role.put", "1"), ("role.put", "2"), ("role.put", "9"), ("role.put", "2"), ("role.delete", "9")], "{at:?}");
    }
}

/// Two edits with the same author, time and fields are two edits, also where the answer to one of them was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_edits_in_one_millisecond_are_two() {
    for at in [Cut::Before, Cut::After] {
        let (world, proxy) = behind_proxy(2).await;
        world.store.ensure_tenant(world.tenant, "demo".to_owned(), world.now).await.unwrap();
        let edit = |edit| world.store.edit_people(world.tenant, PeopleKind::Branch, edit, Author::server(), world.now);
        let create = || edit(PeopleEdit::Create { fields: "{\"name\": \"A\", \"time_zone\": \"UTC\"}".to_owned() });
        let rename = |name: &str| edit(PeopleEdit::Change { id: 1, fields: format!("{{\"name\": \"{name}\"}}") });
        let name = |edited: Result<PeopleRow, EditRefusal>| match edited.unwrap() {
            PeopleRow::Branch(branch) => (branch.id, branch.name),
            other => panic!("{other:?}"),
        };
        assert_eq!(name(create().await.unwrap()), (1, "A".to_owned()));
        assert_eq!(name(cut(&proxy, at, create()).await), (2, "A".to_owned()), "{at:?}");
        rename("B").await.unwrap().unwrap();
        assert_eq!(name(cut(&proxy, at, rename("C")).await), (1, "C".to_owned()), "{at:?}");
        let entries = world.store.audit_entries(world.tenant, 0, 10).await.unwrap();
        let acts: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.subject.as_str())).collect();
        assert_eq!(acts, ["1", "2", "1", "1"].map(|subject| ("branch.put", subject)), "{at:?}");
        assert!(entries[3].after.as_deref().unwrap().contains("\"C\""), "{at:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_is_reported_and_found_again_soon() {
    let (world, proxy) = behind_proxy(4).await;
    let running = world.talk().await;
    for _ in 0..3 {
        proxy.set_down(true);
        let all = (0..16).map(|_| timeout(Duration::from_secs(2), world.store.write(world.to_write(&running))));
        for answer in futures_util::future::join_all(all).await {
            assert!(matches!(answer.expect("an answer within two seconds"), Err(StoreError::Unavailable(_))));
        }
        proxy.set_down(false);
        let back = Deadline::after(Duration::from_secs(5));
        while let Err(error) = world.store.ping().await {
            assert!(!back.passed(), "still away after five seconds: {error}");
        }
        world.store.write(world.to_write(&running)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_are_replaced_without_errors() {
    let (world, _proxy) = behind_proxy(4).await;
    let running = world.talk().await;
    for _ in 0..10 {
        let kill =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let admin = world.store.acquire().await.unwrap();
        admin.query_typed(kill, &[]).await.unwrap();
        drop(admin);
        let writes = (0..4).map(|_| world.store.write(world.to_write(&running)));
        for written in futures_util::future::join_all(writes).await {
            written.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_pool_is_reported_within_two_seconds() {
    let (world, _proxy) = behind_proxy(1).await;
    let running = world.talk().await;
    let held = world.store.acquire().await.unwrap();
    let answer = timeout(Duration::from_secs(2), world.store.write(world.to_write(&running))).await;
    assert!(matches!(answer.expect("an answer within two seconds"), Err(StoreError::Unavailable(_))));
    drop(held);
    world.store.write(world.to_write(&running)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_loses_a_deadlock_is_tried_again() {
    let (world, _proxy) = behind_proxy(4).await;
    let running = world.talk().await;
    let rival = world.store.acquire().await.unwrap();
    let schema = &world.store.options.schema;
    // With a long deadlock timeout, so that the other transaction is the victim.
    rival
        .batch_execute(&format!("SET deadlock_timeout = '1min'; SET search_path TO {schema}; SET ROLE werkruf_system; BEGIN"))
        .await
        .unwrap();
    rival.query_typed("SELECT 1 FROM turns WHERE id = $1 FOR UPDATE", &[p(&running.turn)]).await.unwrap();
    let mut write = world.to_write(&running);
    write.turn = Some(TurnChange { status: TurnStatus::Acting, step: 1, error: None, message: None, transcript_digest: None });
    let crossing = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
        while world.store.query(DbRole::System, waits, &[]).await.unwrap()[0].get::<_, i64>(0) == 0 {}
        rival.query_typed("SELECT 1 FROM leases WHERE conversation_id = $1 FOR UPDATE", &[p(&running.conversation)]).await.unwrap();
        rival.batch_execute("ROLLBACK").await.unwrap();
    };
    let (written, ()) = tokio::join!(world.store.write(write), crossing);
    written.unwrap();
    drop(deadpool_postgres::Object::take(rival));
    assert_eq!(world.store.turn(world.tenant, running.turn).await.unwrap().unwrap().status, TurnStatus::Acting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_fails_whole_and_leaves_its_connection_clean() {
    let (world, _proxy) = behind_proxy(1).await;
    let running = world.talk().await;
    let statements = [
        Statement { sql: "DELETE FROM messages WHERE conversation_id = $1", params: &[p(&running.conversation)] },
        Statement { sql: "SELECT 1 / 0", params: &[] },
    ];
    let failed = world.store.run(DbRole::Tenant(world.tenant), &statements).await;
    assert!(matches!(failed, Err(StoreError::Broken(_))), "{failed:?}");
    assert_eq!(world.store.history(world.tenant, running.conversation).await.unwrap().len(), 1);
    // An operation whose future is dropped ends all the same, and the next one finds a clean connection.
    for _ in 0..20 {
        drop(timeout(Duration::from_micros(1), world.store.write(world.to_write(&running))).await);
    }
    world.store.write(world.to_write(&running)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_server_is_reported_at_once() {
    let clock = Clock::system(0);
    let open = PostgresStore::open(PostgresOptions::new("postgres://me:secret@127.0.0.1:1/nothing"), &clock, crate::story::MODULES);
    let refused = timeout(Duration::from_secs(2), open).await.expect("an answer within two seconds");
    let Err(StoreError::Unavailable(text)) = refused else { panic!("{refused:?}") };
    assert!(!text.contains("secret"), "{text}");
    drop(Arc::new(text));
}
