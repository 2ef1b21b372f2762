//! What a budget costs a turn on SQLite.

use std::sync::Arc;

use tempfile::TempDir;
use werkruf_contract::{CallStatus, Clock, EventType, TurnStatus};

use super::super::SqliteStore;
use crate::story::{World, event, to};
use crate::{Diagnostics, Turns};

async fn fresh() -> (Arc<SqliteStore>, World<SqliteStore>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system(0);
    let store = SqliteStore::open(folder.path().join("w.db"), &clock, crate::story::MODULES).unwrap();
    (Arc::clone(&store), World::new(store, clock).at_noon().await, folder)
}

#[tokio::test]
async fn a_one_call_turn_within_a_budget_costs_six_more_row_writes() {
    let (store, mut world, _folder) = fresh().await;
    let budget = world.calls_per_day(10).await;
    let mut last = store.counts().row_writes;
    let mut since = || {
        let now = store.counts().row_writes;
        now - std::mem::replace(&mut last, now)
    };
    let first = world.reservation(&[world.worst(&budget, 1)]);
    let running = world.begin(world.within(world.new_conversation(), &first).await).await;
    assert_eq!(since(), 5 + 2, "A: conversation, lease, message, turn, init; counter, reservation");
    world.later(1);
    let call = world.call(&running, 0);
    world.act(&running, std::slice::from_ref(&call)).await;
    assert_eq!(since(), 5, "B");
    world.later(1);
    let second = world.reservation(&[world.worst(&budget, 1)]);
    let mut write = world.to_write(&running);
    (write.usage, write.reserve) = (vec![world.counted(&first)], Some(second.clone()));
    write.ends = vec![world.end(&call, CallStatus::Succeeded)];
    write.events = vec![event(EventType::ToolFinished)];
    assert_eq!(store.write(write).await.unwrap().over_budget, None);
    assert_eq!(since(), 4 + 2, "C: lease, call, usage, event; counter, reservation");
    world.later(1);
    let mut write = world.to_write(&running);
    (write.usage, write.turn) = (vec![world.counted(&second)], Some(to(TurnStatus::Completed)));
    store.write(write).await.unwrap();
    assert_eq!(since(), 4 + 2, "D: lease, conversation, usage, turn; counter, reservation");
    assert_eq!(world.uses().await, [(String::new(), 2, 0)]);
}

#[tokio::test]
async fn a_tenant_without_budgets_writes_no_row_more() {
    let (store, world, _folder) = fresh().await;
    let before = store.counts().row_writes;
    let open = crate::OpenTurn { budgets_version: Some(0), ..world.opening(world.new_conversation(), "hello") };
    let running = world.begin(open).await;
    assert_eq!(store.counts().row_writes - before, 5);
    let mut write = world.to_write(&running);
    (write.usage, write.release_reservations) = (vec![world.usage()], true);
    let before = store.counts().row_writes;
    store.write(write).await.unwrap();
    assert_eq!(store.counts().row_writes - before, 2, "lease, usage");
}
