//! Alerts across replicas: each is told once, and ended by whoever saw it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use werkruf_contract::{Clock, Uuid};
use werkruf_runtime::{AlertSources, Notification};
use werkruf_store::{
    Author, Budget, BudgetPeriod, BudgetScope, BudgetUnit, ManageBudgets, NewUsage, Outbox, OutboxFilter, Page, UsageOwner, UsageRows,
};

use crate::cluster::{Cluster, Replica, TENANT};

/// Long, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(90);

fn watch(replica: &Replica) {
    let (runtime, store) = (replica.runtime.clone(), replica.store.clone());
    let sources = AlertSources::new(store.clone(), store, Box::new(Vec::new));
    replica.start(async move { runtime.run_alerts(sources).await });
}

/// What the webhook is told about a tenant or the server, in order.
async fn told(replica: &Replica, tenant_id: Uuid) -> Vec<Value> {
    let store = Arc::clone(&replica.store);
    let rows = replica.run(async move { store.outbox(tenant_id, OutboxFilter::default(), Page::default()).await.unwrap() }).await;
    rows.iter().map(|row| serde_json::from_str::<Value>(&row.body).unwrap()["event"].clone()).collect()
}

async fn told_once(replica: &Replica, tenant_id: Uuid, count: usize) -> Vec<Value> {
    let work = async {
        loop {
            let events = told(replica, tenant_id).await;
            if events.len() >= count {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, work).await.unwrap()
}

/// Waits until a look of each replica began after this and ended.
async fn looked_again(cluster: &Cluster, replicas: &[Replica]) {
    for _ in 0..2 {
        let since = cluster.clock.now();
        let work = async {
            while replicas.iter().any(|replica| replica.runtime.alerts_progress().last().is_none_or(|last| last <= since)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, work).await.unwrap();
    }
}

#[tokio::test]
async fn three_replicas_tell_each_threshold_once() {
    let mut cluster = Cluster::new(false);
    // Not at the end of a day.
    let noon: Timestamp = "2026-05-10T12:00:00Z".parse().unwrap();
    cluster.clock = Clock::system(noon.duration_since(cluster.clock.now()).as_secs());
    let replicas = [cluster.quick_replica(), cluster.quick_replica(), cluster.quick_replica()];
    replicas.iter().for_each(watch);
    let now = cluster.clock.now();
    let budget = Budget {
        id: cluster.clock.new_id(),
        tenant_id: TENANT,
        scope: BudgetScope::Tenant,
        subject: None,
        period: BudgetPeriod::Day,
        unit: BudgetUnit::ModelCalls,
        limit: 10,
        configured: false,
        created_at: now,
    };
    let (store, created) = (Arc::clone(&replicas[0].store), budget.clone());
    assert!(replicas[0].run(async move { store.create_budget(created, Author::operator()).await.unwrap() }).await);
    let counted_in = vec![budget.counter("1", None, None, TimeZone::UTC.to_datetime(now).date()).unwrap()];
    let spent = (0..10).map(async |n| {
        let (replica, id) = (&replicas[n % 3], cluster.clock.new_id());
        let usage = NewUsage { counted_in: counted_in.clone(), ..NewUsage::new(id, "p", "m", "chat") };
        let owner = UsageOwner { tenant_id: TENANT, user_id: "1".to_owned(), ..UsageOwner::default() };
        let store = Arc::clone(&replica.store);
        replica.run(async move { store.put_usage(owner, usage, now).await.unwrap() }).await;
    });
    join_all(spent).await;
    told_once(&replicas[0], TENANT, 3).await;
    looked_again(&cluster, &replicas).await;
    let mut thresholds: Vec<Value> = told(&replicas[0], TENANT).await.into_iter().map(|event| event["threshold"].clone()).collect();
    thresholds.sort_by_key(Value::as_i64);
    assert_eq!(thresholds, [50, 80, 100], "each once");
}

#[tokio::test]
async fn a_state_is_ended_by_the_replica_that_saw_it() {
    let cluster = Cluster::new(false);
    let (a, b) = (cluster.quick_replica(), cluster.quick_replica());
    watch(&a);
    watch(&b);
    let server = Uuid::nil();
    a.runtime.conditions().raise(Notification::ModelDown, "p", "It is down.".to_owned());
    told_once(&a, server, 1).await;
    // The other replica compares now, and does not see the first condition.
    b.runtime.conditions().raise(Notification::Quota, "p", "No money.".to_owned());
    told_once(&a, server, 2).await;
    a.runtime.conditions().raise(Notification::Quota, "p", "No money.".to_owned());
    a.runtime.conditions().clear(Notification::ModelDown, "p");
    let events = told_once(&a, server, 3).await;
    let shown: Vec<_> = events.iter().map(|event| (event["type"].as_str().unwrap(), event["resolved"].as_bool().unwrap())).collect();
    assert_eq!(shown, [("model_down", false), ("quota", false), ("model_down", true)]);
    assert_eq!(events[0]["alert_id"], events[2]["alert_id"]);
}
