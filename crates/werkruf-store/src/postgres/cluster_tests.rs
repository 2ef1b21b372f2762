//! Two processes on one database: ownership of conversations, waiting turns, and notifications.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use werkruf_contract::{CallStatus, Clock, EventType, TurnStatus, Uuid};

use super::flush::DbRole;
use super::param::p;
use super::{PostgresOptions, PostgresStore};
use crate::story::World;
use crate::testbed::fresh_database;
use crate::{Cluster, ConversationRef, NewPartial, OpenTurn, Opened, ReadLimit, Records, StoreError, Streams, Turns};

pub(super) type Process = World<PostgresStore>;

/// Two stores that share only the database.
pub(super) async fn two() -> (Process, Process) {
    let (url, clock) = (fresh_database(), Clock::system(0));
    let open = async || {
        let options = PostgresOptions { pool_size: 4, ..PostgresOptions::new(url.clone()) };
        PostgresStore::open(options, &clock, crate::story::MODULES).await.unwrap()
    };
    let here = World::new(open().await, clock.clone());
    let there = World { store: open().await, ..here.clone() };
    (here, there)
}

pub(super) fn existing(world: &Process, id: Uuid, owner: &str) -> OpenTurn {
    OpenTurn { owner: owner.to_owned(), ..world.opening(ConversationRef::Existing { id, any_user: false }, "and?") }
}

async fn expire_leases(store: &PostgresStore) {
    store.query(DbRole::System, "UPDATE leases SET expires_at = '-infinity'", &[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_is_taken_by_exactly_one_and_its_owner_is_fenced() {
    let (here, there) = two().await;
    let running = here.talk().await;
    let refused = there.store.take_over(there.tenant, running.turn, "other".to_owned(), there.now).await;
    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
    assert!(there.store.unfinished_turns("other".to_owned()).await.unwrap().is_empty(), "another process is running it");

    expire_leases(&here.store).await;
    assert_eq!(there.store.unfinished_turns("other".to_owned()).await.unwrap().len(), 1);
    let claims = (0..12).map(|number| {
        let process = if number % 2 == 0 { &here } else { &there };
        process.store.take_over(process.tenant, running.turn, format!("process-{number}-new"), process.now)
    });
    let (won, lost): (Vec<_>, Vec<_>) = join_all(claims).await.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 11));
    assert!(lost.into_iter().all(|claim| matches!(claim, Err(StoreError::Busy))));
    let late = here.store.write(here.to_write(&running)).await;
    assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
    let turn = here.store.turn(here.tenant, running.turn).await.unwrap().unwrap();
    assert_eq!((turn.takeovers, turn.stalled), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_renews_an_expired_lease_first_keeps_it() {
    let (here, there) = two().await;
    let running = here.talk().await;
    expire_leases(&here.store).await;
    here.store.write(here.to_write(&running)).await.unwrap();
    let refused = there.store.take_over(there.tenant, running.turn, "other".to_owned(), there.now).await;
    assert!(matches!(refused, Err(StoreError::Busy)), "a write renews: {refused:?}");
    expire_leases(&here.store).await;
    let renewed = here.store.renew_leases(running.fence.owner.clone()).await.unwrap();
    assert_eq!(renewed.held.iter().map(|(key, epoch)| (key.stream_id, *epoch)).collect::<Vec<_>>(), [(running.conversation, 1)]);
    let refused = there.store.take_over(there.tenant, running.turn, "other".to_owned(), there.now).await;
    assert!(matches!(refused, Err(StoreError::Busy)), "and so does renewing: {refused:?}");
    assert!(there.store.renew_leases("other".to_owned()).await.unwrap().held.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_on_two_processes_at_once_is_one_turn() {
    let (here, there) = two().await;
    let copies = (0..60).map(|number| {
        let process = if number % 2 == 0 { &here } else { &there };
        let mut open = process.opening(process.new_conversation(), "once");
        open.inbox = Some(process.inbox("wamid.1", "body"));
        process.store.open_turn(open)
    });
    let opened: Vec<_> = join_all(copies).await.into_iter().map(Result::unwrap).collect();
    let stored = opened.iter().filter(|opened| matches!(opened, Opened::Stored { .. })).count();
    let mut known: Vec<_> =
        opened.iter().filter_map(|o| if let Opened::Duplicate { turn_id, same_body: true } = o { Some(*turn_id) } else { None }).collect();
    assert_eq!((stored, known.len()), (1, 59));
    known.dedup();
    assert_eq!(known.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_starts_before_one_that_waits_longer() {
    let (here, there) = two().await;
    let first = here.talk().await;
    let wait = async |process: &Process, owner: &str| {
        let open = existing(process, first.conversation, owner);
        let turn = open.turn_id;
        let opened = process.store.open_turn(open).await.unwrap();
        assert!(matches!(opened, Opened::Stored { fence: None, .. }), "{opened:?}");
        turn
    };
    let second = wait(&there, "there").await;
    let third = wait(&here, "here").await;
    here.complete(&first).await;
    let jumped = here.store.start_turn(here.tenant, third, "here", here.now).await;
    assert!(matches!(jumped, Err(StoreError::Busy)), "{jumped:?}");
    let fourth = wait(&here, "here").await;
    for turn in [second, third, fourth] {
        let fence = there.store.start_turn(there.tenant, turn, "there", there.now).await.unwrap();
        there.complete(&crate::story::Running { fence, turn, ..first.clone() }).await;
    }
    let turns: Vec<_> = here.store.history(here.tenant, first.conversation).await.unwrap().into_iter().filter_map(|m| m.turn_id).collect();
    assert_eq!(turns, [first.turn, first.turn, second, second, third, third, fourth, fourth]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_write_one_conversation_without_a_gap() {
    let (here, there) = two().await;
    let first = here.talk().await;
    here.complete(&first).await;
    let opened = join_all((0..40).map(|number| {
        let process = if number % 2 == 0 { &here } else { &there };
        process.store.open_turn(existing(process, first.conversation, &format!("process-{}", number % 2)))
    }))
    .await;
    let started = opened.iter().filter(|opened| matches!(opened, Ok(Opened::Stored { fence: Some(_), .. }))).count();
    assert!(opened.iter().all(Result::is_ok));
    assert_eq!(started, 1, "one at a time");
    let events = here.store.events(here.tenant, first.conversation, None, 0, ReadLimit::rows(100)).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=42).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_requests_are_read_when_leases_are_renewed() {
    let (here, there) = two().await;
    let (running, other) = (here.talk().await, here.talk().await);
    let call = here.call(&running, 0);
    here.act(&running, std::slice::from_ref(&call)).await;
    assert!(there.store.request_call_cancel(there.tenant, call.id).await.unwrap());
    assert!(!there.store.request_call_cancel(there.id(), call.id).await.unwrap(), "another tenant's");
    assert!(there.store.request_cancel(there.tenant, other.turn, there.now).await.unwrap());
    let renewed = here.store.renew_leases(running.fence.owner.clone()).await.unwrap();
    assert_eq!((renewed.held.len(), renewed.canceled_turns, renewed.canceled_calls), (2, vec![other.turn], vec![call.id]));
    let mut write = here.to_write(&running);
    write.ends = vec![here.end(&call, CallStatus::Canceled)];
    here.store.write(write).await.unwrap();
    assert!(!there.store.request_call_cancel(there.tenant, call.id).await.unwrap(), "it has ended");
    assert!(here.store.renew_leases(running.fence.owner).await.unwrap().canceled_calls.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_followed_from_another_process() {
    let (here, there) = two().await;
    let running = here.talk().await;
    let position =
        async || there.store.stream_positions(there.tenant, vec![running.conversation, there.id()], vec![running.turn]).await.unwrap();
    let [started] = position().await.try_into().unwrap();
    assert_eq!((started.stream_id, started.next_event_seq, started.partial), (running.conversation, 2, None));
    let save = async |content: &str| {
        let partial = NewPartial { fence: running.fence.clone(), turn_id: running.turn, step: 1, content: content.to_owned() };
        assert_eq!(here.store.save_partials(vec![partial], here.now).await.unwrap(), 1);
        position().await.remove(0).partial.unwrap()
    };
    let marks = [save("Hel").await, save("Lo!").await, save("Lo!").await];
    assert!(marks[0] != marks[1] && marks[1] == marks[2], "{marks:?}");
    here.complete(&running).await;
    let [done] = position().await.try_into().unwrap();
    assert_eq!((done.next_event_seq, done.partial), (3, None));
    assert!(
        there.store.stream_positions(there.id(), vec![running.conversation], vec![running.turn]).await.unwrap().is_empty(),
        "another tenant sees nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_sees_that_another_one_reads_a_stream() {
    let (here, there) = two().await;
    let (running, other, ended) = (here.talk().await, here.talk().await, here.talk().await);
    here.complete(&ended).await;
    let is_read = async |stream: Uuid| here.store.is_read(here.tenant, stream).await.unwrap();
    assert!(!is_read(running.conversation).await);
    there.store.mark_read(there.tenant, vec![running.conversation, ended.conversation, there.id()]).await.unwrap();
    assert!(is_read(running.conversation).await && !is_read(other.conversation).await);
    assert!(!is_read(ended.conversation).await, "nothing is at work there");
    assert!(!here.store.is_read(here.id(), running.conversation).await.unwrap(), "another tenant's");
    // The mark expires by itself, and changes nothing for the turn.
    while is_read(running.conversation).await {
        tokio::task::yield_now().await;
    }
    here.complete(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_reaches_the_other_process_only() {
    let (here, there) = two().await;
    // A process that starts to listen is woken, because it may have missed notifications. It may be woken twice.
    for process in [&here, &there] {
        process.store.notified().await;
        while tokio::time::timeout(Duration::from_millis(100), process.store.notified()).await.is_ok() {}
    }
    let received = async || {
        while tokio::time::timeout(Duration::from_millis(200), there.store.notified()).await.is_err() {
            here.store.notify();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), received()).await.unwrap();
    for _ in 0..100 {
        here.store.notify();
    }
    let silent = tokio::time::timeout(Duration::from_millis(300), here.store.notified()).await;
    assert!(silent.is_err(), "a process does not receive its own notifications");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_for_work_is_fair_to_every_tenant() {
    let (here, _) = two().await;
    let (mut crowded, mut quiet) = (here.clone(), here.clone());
    (crowded.tenant, quiet.tenant) = (here.id(), here.id());
    for _ in 0..5 {
        crowded.talk().await;
    }
    let lone = quiet.talk().await;
    expire_leases(&here.store).await;
    let found = here.store.unfinished_turns("other".to_owned()).await.unwrap();
    assert_eq!(found.len(), 6);
    assert!(found[..2].iter().any(|turn| turn.id == lone.turn), "one of the first two is the quiet tenant's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_cannot_be_stored_is_stored_with_replacements() {
    let (here, _) = two().await;
    let mut open = here.opening(here.new_conversation(), "nul \0 here");
    open.user_id = "1".to_owned();
    let running = here.begin(open).await;
    let mut call = here.call(&running, 0);
    call.request = Some(r#"{"a":"x\u0000y","b":"\ud83d","c":"\ud83d\ude00"}"#.to_owned());
    call.raw_arguments = Some("{\"a\":\"\0\"}".to_owned());
    let mut write = here.to_write(&running);
    write.calls = vec![call.clone()];
    write.events = vec![crate::NewEvent { kind: EventType::ToolStarted, data: r#"{"a":"\u0000"}"#.to_owned() }];
    let mut patch = werkruf_contract::State::new();
    patch.insert("k\0".to_owned(), "v\0".into());
    write.state_patches = vec![patch];
    write.turn = Some(crate::TurnChange {
        status: TurnStatus::Acting,
        step: 1,
        error: None,
        message: Some("\0".to_owned()),
        transcript_digest: None,
    });
    let written = here.store.write(write).await.unwrap();
    assert_eq!(written.state.unwrap()["k\u{fffd}"], "v\u{fffd}");
    let row = here.store.call(here.tenant, call.id).await.unwrap().unwrap();
    let request: serde_json::Value = serde_json::from_str(&row.request.unwrap()).unwrap();
    assert_eq!(request, serde_json::json!({"a": "x\u{fffd}y", "b": "\u{fffd}", "c": "😀"}));
    assert_eq!(row.raw_arguments.as_deref(), Some("{\"a\":\"\u{fffd}\"}"));
    let history = here.store.history(here.tenant, running.conversation).await.unwrap();
    assert_eq!(history[0].content, "nul \u{fffd} here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_visible_to_its_tenant_and_the_system_only() {
    let (here, _) = two().await;
    let running = here.talk().await;
    let count = async |scope| {
        let rows = here.store.query(scope, "SELECT count(*) FROM turns WHERE id = $1", &[p(&running.turn)]).await.unwrap();
        rows[0].get::<_, i64>(0)
    };
    assert_eq!((count(DbRole::Tenant(here.tenant)).await, count(DbRole::Tenant(here.id())).await, count(DbRole::System).await), (1, 0, 1));
    drop(Arc::clone(&here.store));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_the_tokens_of_a_minute() {
    let (here, there) = two().await;
    // A new minute may begin between two statements; then the count begins again.
    loop {
        let subject = here.id().to_string();
        let mut grants = Vec::new();
        for (store, wanted) in [(&here.store, 5), (&there.store, 5), (&here.store, 5)] {
            grants.push(store.take_tokens(here.tenant, subject.clone(), wanted, 8).await.unwrap().unwrap());
        }
        let other = here.store.take_tokens(here.id(), subject, 1, 8).await.unwrap().unwrap();
        assert!(grants.iter().all(|grant| grant.valid <= Duration::from_secs(60)));
        if grants.windows(2).all(|pair| pair[1].valid <= pair[0].valid) {
            assert_eq!(grants.iter().map(|grant| grant.granted).collect::<Vec<_>>(), [5, 3, 0]);
            assert_eq!(other.granted, 1, "another tenant has tokens of its own");
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_comes_late_does_not_set_the_window_back() {
    let (here, _) = two().await;
    let subject = here.id().to_string();
    let take = async || here.store.take_tokens(here.tenant, subject.clone(), 5, 8).await.unwrap().unwrap().granted;
    let set = async |ahead: &str| {
        let sql = format!("UPDATE rate_windows SET window_start = date_trunc('minute', clock_timestamp()) + interval '{ahead}', taken = 8");
        here.store.query(DbRole::System, &sql, &[]).await.unwrap();
    };
    assert_eq!(take().await, 5);
    // Another statement began the next minute while this one waited for the row.
    set("1 minute").await;
    assert_eq!(take().await, 0);
    // The clock of the database was set back by an hour: nobody waits for an hour.
    set("1 hour").await;
    assert_eq!(take().await, 5);
}
