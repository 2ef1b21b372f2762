//! Budgets across replicas: who is refused, and what a killed replica leaves.

use werkruf_contract::{ErrorCode, EventType};
use werkruf_runtime::{BudgetRefusal, Refusal};
use werkruf_store::{Author, Budget, BudgetPeriod, BudgetScope, BudgetStatistics, BudgetUnit, ManageBudgets};

use crate::cluster::{Cluster, Replica, TENANT, wait_for};
use crate::scripted::HOLD;

/// Makes a budget of model calls. No replica is told.
async fn budget(cluster: &Cluster, replica: &Replica, limit: i64) {
    let budget = Budget {
        id: cluster.clock.new_id(),
        tenant_id: TENANT,
        scope: BudgetScope::Tenant,
        subject: None,
        period: BudgetPeriod::Month,
        unit: BudgetUnit::ModelCalls,
        limit,
        configured: false,
        created_at: cluster.clock.now(),
    };
    let store = replica.store.clone();
    assert!(replica.run(async move { store.create_budget(budget, Author::server()).await.unwrap() }).await);
}

/// What the only counter has used and reserved.
async fn counted(cluster: &Cluster, replica: &Replica) -> (i64, i64) {
    let (store, now) = (replica.store.clone(), cluster.clock.now());
    let uses = replica.run(async move { store.budget_uses(TENANT, now).await.unwrap() }).await;
    uses.first().map_or((0, 0), |only| (only.used, only.reserved))
}

async fn chat(replica: &Replica, message: &str) -> Result<werkruf_runtime::AcceptedTurn, Refusal> {
    let (runtime, inbound) = (replica.runtime.clone(), replica.inbound(message, None, None));
    replica.run(async move { runtime.chat(inbound).await }).await
}

#[tokio::test]
async fn a_replica_learns_of_a_budget_with_the_message_it_refuses() {
    let cluster = Cluster::new(false);
    let (a, b) = (cluster.quick_replica(), cluster.quick_replica());
    let mut free = chat(&b, "hello").await.unwrap();
    wait_for(&mut free.events, EventType::Final).await;
    budget(&cluster, &a, 1).await;
    let Err(Refusal::OverBudget(refusal)) = chat(&b, "hello").await else { panic!("the call before the budget counts") };
    assert!(matches!(*refusal, BudgetRefusal::Exceeded { limit: 1, used: 1, .. }), "{refusal:?}");
    assert_eq!((refusal.code(), counted(&cluster, &b).await), (ErrorCode::BudgetExceeded, (1, 0)));
}

/// A turn whose replica is killed while the provider answers; returns the last event and what the budget has counted.
async fn killed(limit: i64) -> (EventType, (i64, i64)) {
    let cluster = Cluster::new(false);
    let (mut a, b) = (cluster.replica(), cluster.quick_replica());
    budget(&cluster, &a, limit).await;
    let turn = chat(&a, HOLD).await.unwrap();
    let mut elsewhere = b.subscribe(turn.conversation_id, turn.turn_id);
    wait_for(&mut elsewhere, EventType::Init).await;
    assert_eq!(counted(&cluster, &b).await, (0, 1));
    a.kill();
    let kind = if limit == 1 { EventType::Error } else { EventType::Final };
    let (end, _) = wait_for(&mut elsewhere, kind).await;
    assert!(limit > 1 || end.data.contains("\"budget_exceeded\""), "{}", end.data);
    (end.kind, counted(&cluster, &b).await)
}

#[tokio::test]
async fn the_lost_request_of_a_killed_replica_counts_and_its_reservation_ends() {
    assert_eq!(killed(2).await, (EventType::Final, (2, 0)), "the lost request and the one after it");
}

#[tokio::test]
async fn a_takeover_asks_no_more_than_the_budget_has() {
    assert_eq!(killed(1).await, (EventType::Error, (1, 0)), "the lost request was the last one");
}

#[tokio::test]
async fn a_turn_that_waits_is_checked_and_reserves_when_it_starts() {
    let cluster = Cluster::new(false);
    let (a, b) = (cluster.replica(), cluster.replica());
    budget(&cluster, &a, 2).await;
    let mut first = chat(&a, HOLD).await.unwrap();
    let (runtime, inbound) = (b.runtime.clone(), b.inbound("hello", Some(first.conversation_id), None));
    let mut second = b.run(async move { runtime.chat(inbound).await.unwrap() }).await;
    assert_eq!(counted(&cluster, &b).await, (0, 1), "only the turn that runs has reserved");
    let mut third = chat(&b, "hello").await.unwrap();
    wait_for(&mut third.events, EventType::Final).await;
    cluster.gate.raise();
    wait_for(&mut first.events, EventType::Final).await;
    let (end, _) = wait_for(&mut second.events, EventType::Error).await;
    assert!(end.data.contains("\"budget_exceeded\""), "{}", end.data);
    assert_eq!(counted(&cluster, &a).await, (2, 0));
}
